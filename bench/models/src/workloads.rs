//! Models from files, with inputs like those of `bench/models.py`.

use bench_protocol::{Prepared, Result, unknown};
use kiln::models::{
    CausalLanguageModel, EfficientNetLite, EfficientNetLiteConfig, PretrainedLanguageModel, SentenceEncoder,
};
use kiln::store::Weights;
use kiln::text::{LanguageModel, TokenInput};
use kiln::{Backend, Cpu, Int, Tensor, TensorData};

type B = Cpu;

/// Tokens of a prompt.
const PROMPT: usize = 512;
/// Tokens that are generated after a prompt of [`START`] tokens.
const GENERATED: usize = 128;
const START: usize = 16;
/// Tokens of each sentence.
const SENTENCE: usize = 128;
const IMAGE: [usize; 4] = [1, 3, 224, 224];

/// Prepares a workload.
pub(crate) fn prepare(workload: &str, file: &str) -> Result<Prepared> {
    match workload {
        "smollm2_q4_1_prompt" | "smollm2_q8_0_prompt" => prompt(file),
        "smollm2_q4_1_decode" | "smollm2_q8_0_decode" => decode(file),
        "minilm_1" => sentences(file, 1),
        "minilm_32" => sentences(file, 32),
        "efficientnet_lite0" => image(file),
        "load_500mb" => load(file),
        other => Err(unknown(other)),
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
fn prompt(file: &str) -> Result<Prepared> {
    let model = language_model(file)?;
    let ids = tokens(1, PROMPT);
    Ok(Prepared::new(move || {
        let mut cache = model.new_cache(1, PROMPT);
        let logits = model.forward(TokenInput::new(ids.clone()), &mut cache);
        Ok(logits.argmax(2).try_into_scalar::<f64>()?)
    }))
}

/// The sum of the ids that follow a short prompt, each the likeliest.
fn decode(file: &str) -> Result<Prepared> {
    let model = language_model(file)?;
    let start = tokens(1, START);
    Ok(Prepared::new(move || {
        let mut cache = model.new_cache(1, START + GENERATED);
        let mut total = 0.0;
        let mut logits = model.forward(TokenInput::new(start.clone()), &mut cache);
        for _ in 0..GENERATED {
            let new = logits.argmax(2).reshape([1, 1]);
            total += new.clone().try_into_scalar::<f64>()?;
            logits = model.forward(TokenInput::new(new), &mut cache);
        }
        Ok(total + 0.0 * first(logits)?)
    }))
}

fn sentences(folder: &str, count: usize) -> Result<Prepared> {
    let model = SentenceEncoder::<B>::from_pretrained(folder, &Default::default())?;
    let ids = tokens(count, SENTENCE);
    Ok(Prepared::new(move || first(model.forward(ids.clone(), None))))
}

fn image(file: &str) -> Result<Prepared> {
    let config = EfficientNetLiteConfig::lite0();
    let model: EfficientNetLite<B> = EfficientNetLite::from_pretrained(&config, file, &Default::default())?;
    let pixels: Vec<f32> = (0..IMAGE.iter().product::<usize>()).map(|i| (i as f32 * 0.37).sin()).collect();
    let x = Tensor::<B, 1>::from_data(TensorData::from(pixels), &Default::default()).reshape(IMAGE);
    Ok(Prepared::new(move || first(model.forward(x.clone()))))
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

/// The first number of a result.
fn first<const D: usize>(y: Tensor<B, D>) -> Result<f64> {
    Ok(y.slice(std::array::from_fn::<_, D, _>(|_| 0..1)).try_into_scalar::<f64>()?)
}
