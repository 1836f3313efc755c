//! BERT and sentence embeddings.

use kiln_models::{Bert, SentenceEncoder, cast};
use kiln_tensor::{DType, Tensor};

use crate::models::B;
use crate::models::fixture::{assert_close, expected, folder};

const TOLERANCE: f64 = 1e-4;

fn bert() -> Bert<B> {
    cast(Bert::from_pretrained(folder("bert"), &Default::default()).unwrap(), DType::F32)
}

#[test]
fn features_pooling_and_types() {
    let (model, expected) = (bert(), expected("bert"));
    let ids = expected.ints::<2>("ids");
    let features = model.forward(ids.clone(), None);
    assert_close(features.clone(), expected.floats("features"), TOLERANCE);
    assert_close(model.pool(features).unwrap(), expected.floats("pooled"), TOLERANCE);
    let typed = model.forward_types(ids, expected.ints("types"), None);
    assert_close(typed, expected.floats("typed"), TOLERANCE);
}

#[test]
fn sentence_embeddings_ignore_padding() {
    let (encoder, expected) = (SentenceEncoder::new(bert()), expected("bert"));
    let (ids, lengths) = (expected.ints::<2>("ids"), expected.ints::<1>("lengths"));
    let embeddings = encoder.forward(ids.clone(), Some(lengths));
    assert_close(embeddings.clone(), expected.floats("embeddings"), TOLERANCE);
    let short: Tensor<B, 2, kiln_tensor::Int> = ids.narrow(0, 1, 1).narrow(1, 0, 4);
    assert_close(encoder.forward(short, None), embeddings.narrow(0, 1, 1), TOLERANCE);
}
