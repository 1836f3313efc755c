//! Models from files, with inputs like those of `bench/models.py`.

use super::first;
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use kiln::models::{
    CausalLanguageModel, EfficientNetLite, EfficientNetLiteConfig, PretrainedLanguageModel, SentenceEncoder,
};
use kiln::store::Weights;
use kiln::text::{LanguageModel, TokenInput};
use kiln::{Backend, Cpu, Int, Tensor, TensorData};

type B = Cpu;

/// Prepares a workload; `None` if it is none of these.
pub(crate) fn prepare(row: &Row, file: &str) -> Option<Result<Prepared>> {
    match row.operation {
        "prompt" => Some(prompt(row, file)),
        "decode" => Some(decode(row, file)),
        "sentences" => Some(sentences(row, file)),
        "image" => Some(image(row, file)),
        "load_weights" => Some(load(file)),
        _ => None,
    }
}

/// The id of a token of all prompts and sentences.
fn token(i: usize) -> i32 {
    (1000 + i * 7919 % 19_000) as i32
}

fn tokens(rows: usize, length: usize) -> Tensor<B, 2, Int> {
    let ids: Vec<i32> = (0..rows * length).map(token).collect();
    Tensor::<B, 1, Int>::from_data(ids, &Default::default()).reshape([rows, length])
}

fn language_model(file: &str) -> Result<CausalLanguageModel<B>> {
    Ok(PretrainedLanguageModel::<B>::open(file, &Default::default())?.model)
}

/// The id of the token that follows a prompt.
fn prompt(row: &Row, file: &str) -> Result<Prepared> {
    let model = language_model(file)?;
    let length = row.size("length")?;
    let ids = tokens(1, length);
    Ok(Prepared::new(move || {
        let mut cache = model.new_cache(1, length);
        let logits = model.forward(TokenInput::new(ids.clone()), &mut cache);
        Ok(logits.argmax(2).try_into_scalar::<f64>()?)
    }))
}

/// The sum of the ids that follow a short prompt, each the likeliest.
fn decode(row: &Row, file: &str) -> Result<Prepared> {
    let model = language_model(file)?;
    let (length, generated) = (row.size("start")?, row.size("generated")?);
    let start = tokens(1, length);
    Ok(Prepared::new(move || {
        let mut cache = model.new_cache(1, length + generated);
        let mut total = 0.0;
        let mut logits = model.forward(TokenInput::new(start.clone()), &mut cache);
        for _ in 0..generated {
            let new = logits.argmax(2).reshape([1, 1]);
            total += new.clone().try_into_scalar::<f64>()?;
            logits = model.forward(TokenInput::new(new), &mut cache);
        }
        Ok(total + 0.0 * first(logits.as_any())?)
    }))
}

fn sentences(row: &Row, folder: &str) -> Result<Prepared> {
    let model = SentenceEncoder::<B>::from_pretrained(folder, &Default::default())?;
    let ids = tokens(row.size("count")?, row.size("length")?);
    Ok(Prepared::new(move || first(model.forward(ids.clone(), None).as_any())))
}

fn image(row: &Row, file: &str) -> Result<Prepared> {
    let config = EfficientNetLiteConfig::lite0();
    let model: EfficientNetLite<B> = EfficientNetLite::from_pretrained(&config, file, &Default::default())?;
    let shape = row.sizes::<4>("x")?;
    let pixels: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| (i as f32 * 0.37).sin()).collect();
    let x = Tensor::<B, 1>::from_data(TensorData::from(pixels), &Default::default()).reshape(shape);
    Ok(Prepared::new(move || first(model.forward(x.clone()).as_any())))
}

/// The sum of all tensors: a mapped file is read by the sum.
fn load(file: &str) -> Result<Prepared> {
    let (file, stack) = (file.to_owned(), B::stack(&Default::default()));
    Ok(Prepared::new(move || {
        let weights = Weights::open(&file)?;
        let load = |name: &str| Ok(Tensor::<B, 2>::from_any(weights.load(name, &stack)?));
        let tensors = weights.names().into_iter().map(load).collect::<Result<Vec<_>>>()?;
        let sums: Vec<Tensor<B, 1>> = tensors.iter().map(|tensor| tensor.clone().sum()).collect();
        Ok(Tensor::cat(sums, 0).sum().try_into_scalar::<f64>()?)
    }))
}
