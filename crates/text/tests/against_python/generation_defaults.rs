//! `generation_config.json`, with the defaults of `transformers` 5 (`GenerationConfig._get_default_generation_params`).

use kiln_text::{GenerateConfig, GenerationDefaults};

fn defaults(json: &str) -> GenerationDefaults {
    GenerationDefaults::from_json(json).unwrap()
}

#[test]
fn absent_fields_have_the_defaults_of_transformers() {
    assert_eq!(defaults("{}").config(), GenerateConfig::new());
    assert_eq!(defaults(r#"{"eos_token_id": null, "top_k": null}"#), GenerationDefaults::default());

    // Llama 3.2 Instruct.
    let llama = defaults(
        r#"{"bos_token_id": 128000, "do_sample": true, "eos_token_id": [128001, 128008, 128009], "temperature": 0.6,
            "top_p": 0.9, "transformers_version": "4.45.0.dev0"}"#,
    );
    assert_eq!(llama.end_ids, [128001, 128008, 128009]);
    let expected = GenerateConfig::new().with_temperature(0.6).with_top_p(Some(0.9)).with_top_k(Some(50));
    assert_eq!(llama.config(), expected);
    assert_eq!(llama.unsupported, [""; 0]);

    // Qwen 2.5 Instruct.
    let qwen = defaults(
        r#"{"pad_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643], "repetition_penalty": 1.05,
            "temperature": 0.7, "top_p": 0.8, "top_k": 20}"#,
    );
    let expected = GenerateConfig::new()
        .with_temperature(0.7)
        .with_top_p(Some(0.8))
        .with_top_k(Some(20))
        .with_repetition_penalty(1.05);
    assert_eq!(qwen.config(), expected);
}

#[test]
fn without_do_sample_decoding_is_greedy() {
    for json in [
        r#"{"temperature": 0.6, "top_k": 5, "top_p": 0.5, "min_p": 0.1}"#,
        r#"{"do_sample": false, "temperature": 0.6, "top_k": 5}"#,
    ] {
        assert_eq!(defaults(json).config(), GenerateConfig::new());
        assert_eq!(defaults(json).top_k, Some(5));
    }
    let config = defaults(r#"{"do_sample": true, "top_k": 0, "min_p": 0.1, "eos_token_id": 7}"#).config();
    assert_eq!((config.temperature, config.top_k, config.min_p), (1.0, None, Some(0.1)));
}

#[test]
fn new_tokens_replace_the_total() {
    let config = defaults(r#"{"max_length": 4096}"#).config();
    assert_eq!((config.max_new_tokens, config.max_length), (256, Some(4096)));
    let config = defaults(r#"{"max_length": 4096, "max_new_tokens": 64}"#).config();
    assert_eq!((config.max_new_tokens, config.max_length), (64, None));
}

#[test]
fn stop_strings_are_one_or_several() {
    assert_eq!(defaults(r#"{"stop_strings": "END"}"#).config().stop, ["END"]);
    assert_eq!(defaults(r#"{"stop_strings": ["a", "b"]}"#).stop, ["a", "b"]);
}

#[test]
fn fields_without_effect_are_named() {
    let json = r#"{"num_beams": 4, "typical_p": 1.0, "no_repeat_ngram_size": 3, "suppress_tokens": [], "min_length": 0,
        "forced_eos_token_id": 0, "use_cache": true}"#;
    assert_eq!(defaults(json).unsupported, ["num_beams", "no_repeat_ngram_size", "forced_eos_token_id"]);
}

#[test]
fn invalid_fields_are_errors() {
    for (json, expected) in [
        (r#"{"temperature": -1}"#, "`temperature` is -1"),
        (r#"{"temperature": "hot"}"#, "`temperature` is \"hot\""),
        (r#"{"top_p": 1.5}"#, "`top_p` is 1.5"),
        (r#"{"top_k": -1}"#, "`top_k` is -1"),
        (r#"{"min_p": 2}"#, "`min_p` is 2"),
        (r#"{"repetition_penalty": 0}"#, "`repetition_penalty` is 0"),
        (r#"{"do_sample": 1}"#, "`do_sample` is 1"),
        (r#"{"max_new_tokens": 0}"#, "`max_new_tokens` is 0"),
        (r#"{"max_length": 1e99}"#, "`max_length` is 1e"),
        (r#"{"eos_token_id": [1, -2]}"#, "`eos_token_id` is a list of 2 values"),
        (r#"{"eos_token_id": 4294967296}"#, "`eos_token_id` is 4294967296"),
        (r#"{"stop_strings": [""]}"#, "`stop_strings`"),
        ("[1]", "expected an object"),
        ("{", "not JSON"),
    ] {
        let error = GenerationDefaults::from_json(json).unwrap_err().to_string();
        assert!(error.contains(expected) && error.starts_with("generation_config.json: "), "{error}");
    }
    // Deep nesting is refused without overflowing the stack.
    let deep = format!("{}{}", r#"{"a": "#, "[".repeat(100_000));
    assert!(GenerationDefaults::from_json(&deep).is_err());
}

#[test]
fn a_folder_may_have_no_file_and_long_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = || GenerationDefaults::from_folder(folder.path());
    assert_eq!(open().unwrap(), GenerationDefaults::default());
    let path = folder.path().join("generation_config.json");
    std::fs::write(&path, r#"{"top_k": 3}"#).unwrap();
    assert_eq!(open().unwrap().top_k, Some(3));
    std::fs::write(&path, r#"{"top_k": []}"#).unwrap();
    let error = open().unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()) && error.contains("`top_k`"), "{error}");
    std::fs::write(&path, format!("{}{{}}", " ".repeat(1 << 20))).unwrap();
    assert!(open().unwrap_err().to_string().contains("more than the 1048576 bytes"));
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(open().is_err());
}
