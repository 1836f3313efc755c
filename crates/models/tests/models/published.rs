//! Published models against PyTorch. `fixtures/published.py` prepares a folder of models, which the environment variable
//! `KILN_MODELS_DIR` names. Without it, these tests are skipped.

use std::path::PathBuf;

use kiln_models::{EfficientNetLite, EfficientNetLiteConfig, SentenceEncoder};
use kiln_store::TensorFile;
use kiln_tensor::{Int, Tensor, TensorData};
use kiln_text::Tokenizer;
use serde_json::Value;

use crate::models::B;
use crate::models::fixture::assert_close;

/// Returns a file or folder of the prepared models; `None` if it is absent.
pub(crate) fn model(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("KILN_MODELS_DIR").map(|folder| PathBuf::from(folder).join(name));
    let found = path.filter(|path| path.exists());
    if found.is_none() {
        println!("skipped: {name} is not in KILN_MODELS_DIR; see tests/fixtures/published.py");
    }
    found
}

pub(crate) fn expected() -> Value {
    serde_json::from_str(include_str!("../fixtures/published.json")).unwrap()
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// Rows of ids, padded with zeros, and their lengths.
fn batch(rows: &Value) -> (Tensor<B, 2, Int>, Tensor<B, 1, Int>) {
    let rows: Vec<Vec<i64>> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| numbers(row).iter().map(|&id| id as i64).collect())
        .collect();
    let longest = rows.iter().map(Vec::len).max().unwrap();
    let lengths: Vec<i64> = rows.iter().map(|row| row.len() as i64).collect();
    let padded =
        |row: &Vec<i64>| row.iter().copied().chain(vec![0; longest - row.len()]).collect::<Vec<i64>>();
    let ids: Vec<i64> = rows.iter().flat_map(padded).collect();
    let device = Default::default();
    let ids = TensorData::new(ids, [rows.len(), longest]).unwrap();
    let lengths = TensorData::new(lengths, [rows.len()]).unwrap();
    (Tensor::from_data(ids, &device), Tensor::from_data(lengths, &device))
}

#[test]
fn minilm_embeddings_are_those_of_pytorch() {
    let Some(folder) = model("all-MiniLM-L6-v2") else { return };
    let expected = &expected()["minilm"];
    let encoder = SentenceEncoder::<B>::from_pretrained(&folder, &Default::default()).unwrap();
    let tokenizer = Tokenizer::from_folder(&folder).unwrap();
    let sentences: Vec<&str> =
        expected["sentences"].as_array().unwrap().iter().map(|sentence| sentence.as_str().unwrap()).collect();
    let encoded = encoder.encode(&tokenizer, &sentences).unwrap();
    assert_eq!(encoder.max_length, 256);
    let (ids, lengths) = batch(&expected["ids"]);
    let found = encoder.forward(ids, Some(lengths));
    // The tokenizer has the ids of `transformers`.
    assert_close(encoded, found.clone(), 1e-6);
    let found = found.into_data().to_vec::<f32>();
    let rows = expected["embeddings"].as_array().unwrap();
    for (row, expected) in found.chunks(384).zip(rows) {
        let pairs = row.iter().map(|&x| f64::from(x)).zip(numbers(expected));
        let (dot, own, other) = pairs
            .fold((0.0, 0.0, 0.0), |(dot, own, other), (x, y)| (dot + x * y, own + x * x, other + y * y));
        let distance = 1.0 - dot / f64::sqrt(own * other);
        println!("cosine distance {distance:e}");
        assert!(distance < 1e-6);
    }
}

/// The `.pth` file is in the format of `torch.save` before PyTorch 1.6.
#[test]
fn efficientnet_classifies_photographs_as_pytorch_does() {
    for file in ["efficientnet-lite0.safetensors", "efficientnet-lite0.pth"] {
        let (Some(weights), Some(photographs)) = (model(file), model("photographs")) else { return };
        let (config, device) = (EfficientNetLiteConfig::lite0(), Default::default());
        let model = EfficientNetLite::<B>::from_pretrained(&config, weights, &device).unwrap();
        for (name, expected) in expected()["efficientnet"].as_object().unwrap() {
            let pixels = TensorFile::open(photographs.join(format!("{name}.safetensors"))).unwrap();
            check_classes(&model, &config, &pixels.read("pixels").unwrap(), expected);
        }
    }
}

#[track_caller]
fn check_classes(
    model: &EfficientNetLite<B>,
    config: &EfficientNetLiteConfig,
    pixels: &TensorData,
    expected: &Value,
) {
    let sides = [pixels.shape()[0], pixels.shape()[1]];
    let preprocessor = config.preprocessor();
    let image = preprocessor.forward_pixels(&pixels.to_vec::<u8>(), sides, &Default::default()).unwrap();
    let (logits, classes) = model.forward(image).topk_with_indices(5, 1);
    let classes: Vec<f64> = classes.into_data().to_vec::<i64>().iter().map(|&class| class as f64).collect();
    assert_eq!(classes, numbers(&expected["classes"]));
    for (found, expected) in logits.into_data().to_vec::<f32>().iter().zip(numbers(&expected["logits"])) {
        // Pixels differ by 1 of 255 where Pillow's fixed-point arithmetic rounds otherwise.
        assert!((f64::from(*found) - expected).abs() < 0.05, "{found} and {expected}");
    }
}
