//! Mutation fuzzing of configurations. The harness and its variables are those of `crates/store/tests/fuzz/main.rs`, and
//! the corpus is the configurations of the tests.
//!
//! ```text
//! KILN_FUZZ_SECONDS=600 cargo test -p kiln-models --test fuzz -- --nocapture
//! ```

#[path = "../../store/tests/fuzz/harness.rs"]
mod harness;

use harness::Target;
use kiln_models::{BertConfig, Gpt2Config, LlamaConfig};

#[test]
fn damaged_files() {
    let folders = [
        ("bert", "fixtures/bert"),
        ("gpt2", "fixtures/gpt2"),
        ("llama3", "fixtures/llama3"),
        ("yarn", "fixtures/llama_yarn"),
        ("gemma2", "fixtures/gemma2"),
        ("smollm3", "fixtures/smollm3"),
    ];
    let target =
        |(name, folder)| Target { name, folder, ends: &["config.json"], prepare: |bytes| bytes, read };
    harness::fuzz(&folders.map(target));
}

/// What a reader accepts is finite and fits together.
fn read(bytes: &[u8]) {
    let json = String::from_utf8_lossy(bytes);
    let _ = BertConfig::from_hugging_face(&json);
    let _ = Gpt2Config::from_hugging_face(&json);
    if let Ok(config) = LlamaConfig::from_hugging_face(&json) {
        assert!(config.rope_theta >= 1.0 && config.rms_norm_eps >= 0.0, "{config:?}");
        assert!(config.num_attention_heads.is_multiple_of(config.num_key_value_heads), "{config:?}");
    }
}
