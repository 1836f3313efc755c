//! Mutation fuzzing of the files that come with models of strangers: templates, tokenizers and settings of generation.
//! The harness and its variables are those of `crates/store/tests/fuzz/main.rs`.
//!
//! ```text
//! KILN_FUZZ_SECONDS=600 cargo test -p kiln-text --test fuzz -- --nocapture
//! ```

#[path = "../../store/tests/fuzz/harness.rs"]
mod harness;

use harness::Target;
use kiln_text::{ChatTemplate, GenerationDefaults, Message, RenderOptions, Tokenizer};

/// The work of a rendering, so that each case is fast.
const FUEL: u64 = 50_000;

#[test]
fn damaged_files() {
    harness::fuzz(&[
        Target {
            name: "template",
            folder: "fuzz/corpus",
            ends: &[".jinja"],
            prepare: unchanged,
            read: template,
        },
        Target {
            name: "tokenizer",
            folder: "fuzz/corpus",
            ends: &[".tokenizer.json"],
            prepare: unchanged,
            read: tokenizer,
        },
        Target {
            name: "generation",
            folder: "fuzz/corpus",
            ends: &[".generation.json"],
            prepare: unchanged,
            read: generation,
        },
    ]);
}

fn unchanged(bytes: Vec<u8>) -> Vec<u8> {
    bytes
}

fn template(bytes: &[u8]) {
    let source = String::from_utf8_lossy(bytes);
    let Ok(template) = ChatTemplate::new(source) else { return };
    let messages = [Message::system("a"), Message::user("b"), Message::assistant("c"), Message::user("d")];
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let _ = template.with_fuel(FUEL).render(&messages, &options);
}

fn tokenizer(bytes: &[u8]) {
    let Ok(tokenizer) = Tokenizer::from_bytes(bytes) else { return };
    for text in ["", "a", "Hello, world! 123", "\u{fdfa} é ▁ 中文\n\n  x"] {
        if let Ok(ids) = tokenizer.encode(text, true) {
            let _ = tokenizer.decode(&ids, false);
        }
    }
}

fn generation(bytes: &[u8]) {
    if let Ok(defaults) = GenerationDefaults::from_json(&String::from_utf8_lossy(bytes)) {
        let _ = defaults.config();
    }
}
