//! Tests of kiln-text against Python's tokenizers, sentencepiece, transformers and torch; see `fixtures/generate.py`.

mod attention_model;
mod chat;
mod chat_template;
mod generation;
mod generation_defaults;
mod perplexity;
mod sampling;
mod tokenizer;
mod untrusted_tokenizer;

use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// Reads a file of expected values.
fn fixture<T: DeserializeOwned>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let text = std::fs::read_to_string(&path).expect("the fixture is there");
    serde_json::from_str(&text).expect("the fixture has this structure")
}

/// The folder of an installed Python package, in `KILN_PYTHON_PACKAGES`; `None`, with a message, if it is absent.
fn python_package(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("KILN_PYTHON_PACKAGES").map(|packages| PathBuf::from(packages).join(name));
    let found = folder.filter(|folder| folder.is_dir());
    if found.is_none() {
        println!("skipped: the package {name} is not in KILN_PYTHON_PACKAGES (a site-packages folder)");
    }
    found
}
