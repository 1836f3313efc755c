//! Tokenizers of strangers: each is an error, or encodes in bounded time.

use kiln_text::{GgufVocabulary, Tokenizer};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn of(fields: Value) -> kiln_text::Result<Tokenizer> {
    let mut document = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "a": 1, "##a": 2}},
    });
    for (key, value) in fields.as_object().unwrap() {
        document[key] = value.clone();
    }
    Tokenizer::from_bytes(document.to_string())
}

fn refused(fields: Value, problem: &str) {
    let message = of(fields).unwrap_err().to_string();
    assert!(message.contains(problem), "{message}");
}

fn unigram(tokens: &[(String, f64)]) -> Value {
    json!({"model": {"type": "Unigram", "unk_id": 0, "vocab": tokens}})
}

fn word_piece(most: u64) -> Value {
    let vocab = json!({"[UNK]": 0, "a": 1, "##a": 2});
    json!({"model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                     "max_input_chars_per_word": most, "vocab": vocab}})
}

fn replace(pattern: &str, content: &str) -> Value {
    json!({"type": "Replace", "pattern": {"String": pattern}, "content": content})
}

#[test]
fn panics_of_the_library_are_errors() {
    let template = json!({"type": "TemplateProcessing", "pair": [],
        "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}], "special_tokens": {}});
    assert!(of(json!({"post_processor": template})).is_err());
    refused(json!({"pre_tokenizer": {"type": "FixedLength", "length": 0}}), "the library failed");
    // The decoder fails for tokens that are shorter than the text it strips.
    let strip = json!({"type": "Strip", "content": "a", "start": 0, "stop": 9});
    let decoded = of(json!({"decoder": strip})).and_then(|tokenizer| tokenizer.decode(&[1], false));
    assert!(decoded.unwrap_err().to_string().contains("cannot decode the ids: the library failed"));
}

#[test]
fn charsmaps_are_checked() {
    let with =
        |charsmap: &str| json!({"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap}});
    refused(with("/////w=="), "precompiled_charsmap declares a trie of 4294967295 bytes, but only 0 follow");
    refused(with("BAAAAP////8="), "refers to unit");
    refused(with("AAAAAA=="), "precompiled_charsmap has no trie");
    let nested = json!({"normalizer": {"type": "Sequence", "normalizers": [with("/////w==")["normalizer"]]}});
    refused(nested, "precompiled_charsmap declares");
}

#[test]
fn growth_of_text_is_bounded() {
    let chain = |count: usize| {
        let steps: Vec<Value> = (0..count).map(|_| replace("a", "aa")).collect();
        json!({"normalizer": {"type": "Sequence", "normalizers": steps}})
    };
    assert!(of(chain(5)).is_ok());
    refused(chain(6), "normalizer and pre_tokenizer may make 64 bytes of one, more than the 48 allowed");
    refused(chain(60), "more than the 48 allowed");
    let mut decoder = chain(60)["normalizer"].clone();
    decoder["decoders"] = decoder["normalizers"].take();
    refused(json!({"decoder": decoder}), "decoder may make 64 bytes of one");
    assert!(of(json!({"normalizer": replace("a", &"b".repeat(48))})).is_ok());
    refused(json!({"normalizer": replace("a", &"b".repeat(49))}), "49 bytes of one");
    refused(json!({"normalizer": replace("a", &"b".repeat(1025))}), "1025 bytes, more than the 1024 allowed");
    refused(json!({"normalizer": {"type": "Prepend", "prepend": "b".repeat(2000)}}), "2000 bytes");
    let levels: Vec<Value> = (0..5)
        .map(|_| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false}))
        .collect();
    let levels = json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": levels}});
    refused(levels, "more than 4 steps that widen text");
    let steps = vec![json!({"type": "NFC"}); 64];
    refused(json!({"normalizer": {"type": "Sequence", "normalizers": steps}}), "more than the 64 steps");
    let tokenizer = of(json!({"normalizer": replace("a", &"a".repeat(48))})).unwrap();
    let message = tokenizer.encode(&"a".repeat((128 << 20) / 48 + 1), false).unwrap_err().to_string();
    assert!(message.contains("more than the 2796202 that this tokenizer accepts"), "{message}");
}

#[test]
fn models_encode_in_bounded_time() {
    refused(word_piece(1 << 62), "max_input_chars_per_word is 4611686018427387904, expected at most 100");
    refused(word_piece(101), "max_input_chars_per_word is 101");
    refused(
        json!({"model": {"type": "WordPiece", "unk_token": "[UNK]", "max_input_chars_per_word": 100,
        "continuing_subword_prefix": "#".repeat(257), "vocab": {"[UNK]": 0}}}),
        "continuing_subword_prefix has 257",
    );
    let tokens = |lengths: &mut dyn Iterator<Item = usize>| {
        let unknown = [("<unk>".to_owned(), 0.0)].into_iter();
        unknown.chain(lengths.map(|length| ("a".repeat(length), -1.0))).collect::<Vec<_>>()
    };
    refused(unigram(&tokens(&mut (1..=3000))), "more than the 256 allowed");
    refused(unigram(&tokens(&mut (1..=256))), "starts with have more than the 4096 bytes allowed");
    refused(unigram(&tokens(&mut std::iter::once(1 << 20))), "1048576 bytes, more than the 256 allowed");
    // The most that is accepted.
    let worst =
        [of(word_piece(100)).unwrap(), of(unigram(&tokens(&mut (1..=89).chain([256 - 165])))).unwrap()];
    let words = ("a".repeat(100) + " ").repeat(10_000);
    for tokenizer in worst {
        let start = Instant::now();
        println!("{} ids in {:?}", tokenizer.encode(&words, false).unwrap().len(), start.elapsed());
        assert!(start.elapsed() < Duration::from_secs(40));
    }
}

#[test]
fn files_are_bounded() {
    let message = Tokenizer::from_file("/dev/zero").unwrap_err().to_string();
    assert!(message.contains("it is no regular file"), "{message}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::File::create(&path).unwrap().set_len((128 << 20) + 1).unwrap();
    let message = Tokenizer::from_file(&path).unwrap_err().to_string();
    assert!(message.contains("more than the 134217728 bytes allowed"), "{message}");
}

#[test]
fn long_tokens_of_gguf_are_refused() {
    let vocabulary = |length: usize| GgufVocabulary {
        model: "llama".into(),
        tokens: vec!["<unk>".into(), "a".repeat(length)],
        scores: vec![0.0; 2],
        unknown: Some(0),
        ..GgufVocabulary::default()
    };
    assert!(Tokenizer::from_gguf(vocabulary(4096)).is_ok());
    let message = Tokenizer::from_gguf(vocabulary(4097)).unwrap_err().to_string();
    assert!(message.contains("token 1 has 4097 bytes, more than the 4096 allowed"), "{message}");
}
