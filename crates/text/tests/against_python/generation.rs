//! Generation with a small model: equal to PyTorch's, alone and in batches.

use crate::against_python::attention_model::{AttentionModel, Caching, model};
use kiln_text::{
    FinishReason, GenerateConfig, GgufVocabulary, LanguageModel, TextError, TextGenerator, TokenInput,
    Tokenizer, generate_ids,
};

/// A tokenizer whose 13 tokens are letters, a character of two tokens, and an end.
pub(crate) fn letters() -> Tokenizer {
    let tokens = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "Ã", "©", "Ġ", "<|end|>"];
    let tokenizer = Tokenizer::from_gguf(GgufVocabulary {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens: tokens.map(String::from).to_vec(),
        token_types: [vec![1; 12], vec![3]].concat(),
        eos: Some(12),
        ..GgufVocabulary::default()
    });
    tokenizer.unwrap()
}

fn greedy() -> GenerateConfig {
    GenerateConfig::new().with_max_new_tokens(12)
}

#[test]
fn logits_of_the_model_are_those_of_pytorch() {
    let (model, fixture) = model(Caching::Static);
    let ids: Vec<i32> = fixture.prompts[2].iter().map(|&id| id as i32).collect();
    let ids =
        kiln_tensor::Tensor::from_data(kiln_tensor::TensorData::new(ids, [1, 6]).unwrap(), &model.device());
    let logits = model.forward(TokenInput::new(ids), &mut model.new_cache(1, 6));
    assert_eq!(logits.dims(), [1, 1, 13]);
    for (own, expected) in logits.to_vec::<f32>().into_iter().zip(fixture.logits) {
        assert!((own - expected).abs() < 1e-5, "{own} {expected}");
    }
}

#[test]
fn greedy_tokens_are_those_of_pytorch_alone_and_in_batches() {
    for caching in [Caching::Static, Caching::Growing] {
        let (model, fixture) = model(caching);
        for (prompt, expected) in fixture.prompts.iter().zip(&fixture.greedy) {
            let alone = generate_ids(&model, std::slice::from_ref(prompt), &greedy()).unwrap();
            assert_eq!(&alone.rows[0].ids, expected, "{caching:?}");
            assert_eq!(alone.rows[0].finish, FinishReason::Length);
        }
        for config in [greedy(), greedy().with_run_ahead(1), greedy().with_run_ahead(3), on_host()] {
            let batch = generate_ids(&model, &fixture.prompts, &config).unwrap();
            let rows: Vec<Vec<u32>> = batch.rows.into_iter().map(|row| row.ids).collect();
            assert_eq!(rows, fixture.greedy, "{caching:?} {config}");
            assert_eq!((batch.statistics.prompt_tokens, batch.statistics.new_tokens), (12, 48));
        }
    }
}

/// Greedy, but selected on the host: top-k of one.
fn on_host() -> GenerateConfig {
    greedy().with_temperature(1.0).with_top_k(Some(1))
}

#[test]
fn rows_end_by_themselves() {
    let (model, fixture) = model(Caching::Static);
    // The token that ends the second row of the batch is its fourth.
    let end = fixture.greedy[1][3];
    for config in [greedy(), greedy().with_run_ahead(2), on_host()] {
        let batch = generate_ids(&model, &fixture.prompts, &config.with_stop_ids(vec![end])).unwrap();
        for (row, expected) in batch.rows.iter().zip(&fixture.greedy) {
            match expected.iter().position(|&id| id == end) {
                Some(at) => {
                    assert_eq!(row.ids, expected[..at]);
                    assert_eq!(row.finish, FinishReason::EndToken(end));
                }
                None => {
                    assert_eq!(&row.ids, expected);
                    assert_eq!(row.finish, FinishReason::Length);
                }
            }
        }
    }
}

#[test]
fn a_total_length_counts_the_prompt() {
    let (model, fixture) = model(Caching::Static);
    let run = |length| generate_ids(&model, &fixture.prompts[2..3], &greedy().with_max_length(Some(length)));
    assert_eq!(run(10).unwrap().rows[0].ids, fixture.greedy[2][..4]);
    let error = run(6).unwrap_err();
    assert!(matches!(error, TextError::ContextOverflow { prompt: 6, max_length: 6 }), "{error}");
    assert!(matches!(run(0).unwrap_err(), TextError::InvalidSetting { setting: "max_length", .. }));
}

#[test]
fn prompts_are_computed_once() {
    let (model, fixture) = model(Caching::Static);
    generate_ids(&model, &fixture.prompts[2..3], &greedy().with_max_new_tokens(5)).unwrap();
    assert_eq!(model.computed.get(), 6 + 4, "the last new token is not computed");
}

#[test]
fn sampling_is_reproducible() {
    let (model, fixture) = model(Caching::Static);
    let config = greedy().with_temperature(1.5).with_top_p(Some(0.95)).with_seed(11);
    let rows = |config: &GenerateConfig| generate_ids(&model, &fixture.prompts, config).unwrap().rows;
    assert_eq!(rows(&config), rows(&config));
    assert_ne!(rows(&config), rows(&config.clone().with_seed(12)));
    let same = vec![fixture.prompts[0].clone(); 3];
    let of_same = generate_ids(&model, &same, &config).unwrap().rows;
    assert!(of_same[0] != of_same[1] && of_same[1] != of_same[2], "rows have different random numbers");
    let alone = generate_ids(&model, &same[..1], &config).unwrap().rows;
    assert_eq!(alone[0], of_same[0], "a row does not depend on the others");
}

#[test]
fn penalties_prevent_repetition() {
    let (model, fixture) = model(Caching::Static);
    let config = greedy().with_presence_penalty(1e6).with_max_new_tokens(10);
    let row = generate_ids(&model, &fixture.prompts[..1], &config).unwrap().rows.remove(0);
    let mut distinct = row.ids.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), 10);
}

#[test]
fn the_context_limits_the_length() {
    let (model, _) = model(Caching::Static);
    let prompt = vec![1; 20];
    let config = greedy().with_max_new_tokens(100);
    let row = generate_ids(&model, std::slice::from_ref(&prompt), &config).unwrap().rows.remove(0);
    assert_eq!(row.ids.len(), 5, "24 positions; the last token needs none");
    let error = generate_ids(&model, &[vec![1; 25]], &config).unwrap_err();
    assert!(matches!(error, TextError::ContextOverflow { prompt: 25, max_length: 24 }), "{error}");
}

#[test]
fn invalid_prompts_are_errors() {
    let (model, _) = model(Caching::Static);
    let error = |prompts: &[Vec<u32>]| generate_ids(&model, prompts, &greedy()).unwrap_err();
    assert!(matches!(error(&[]), TextError::InvalidArgument { .. }));
    assert!(matches!(error(&[vec![1], vec![]]), TextError::EmptyPrompt { row: 1 }));
    assert!(matches!(error(&[vec![13]]), TextError::UnknownId { id: 13, size: 13 }));
    let config = greedy().with_stop(vec!["x".into()]);
    let error = generate_ids(&model, &[vec![1]], &config).unwrap_err();
    assert!(matches!(error, TextError::InvalidSetting { setting: "stop", .. }), "{error}");
}

fn text(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    tokenizer.decode(ids, true).unwrap()
}

#[test]
fn streams_have_the_text_of_the_whole() {
    let (model, fixture) = model(Caching::Static);
    let tokenizer = letters();
    let generator = TextGenerator::new(&model, &tokenizer);
    let config = greedy().with_ignore_end(true);
    for temperature in [0.0, 2.0] {
        let config = config.clone().with_temperature(temperature);
        let whole = generator.generate_from_ids(&fixture.prompts, &config).unwrap();
        let mut stream = generator.stream_from_ids(&fixture.prompts, &config).unwrap();
        let mut texts = vec![String::new(); fixture.prompts.len()];
        let mut finished = 0;
        for event in stream.by_ref() {
            let event = event.unwrap();
            texts[event.row] += &event.text;
            finished += usize::from(event.finish.is_some());
        }
        assert_eq!(finished, 4);
        assert_eq!(stream.statistics().new_tokens, 48);
        for (row, streamed) in whole.rows.iter().zip(&texts) {
            assert_eq!(&row.text, streamed);
            assert_eq!(row.text, text(&tokenizer, &row.ids));
            assert_eq!(row.finish, FinishReason::Length);
        }
    }
}

/// Generates from the first prompt and returns the text, its pieces, and the reason of the end.
fn pieces(
    model: &AttentionModel,
    tokenizer: &Tokenizer,
    config: &GenerateConfig,
) -> (Vec<String>, FinishReason) {
    let (_, fixture) = crate::against_python::attention_model::model(Caching::Static);
    let generator = TextGenerator::new(model, tokenizer);
    let (mut pieces, mut finish) = (Vec::new(), None);
    for event in generator.stream_from_ids(&fixture.prompts[..1], config).unwrap() {
        let event = event.unwrap();
        pieces.push(event.text);
        finish = finish.or(event.finish);
    }
    (pieces, finish.unwrap())
}

#[test]
fn stop_strings_end_the_text_across_tokens() {
    let (model, _) = model(Caching::Static);
    let tokenizer = letters();
    let config = greedy().with_ignore_end(true);
    let (all, _) = pieces(&model, &tokenizer, &config);
    let whole: String = all.concat();
    println!("{whole:?}");
    let characters: Vec<char> = whole.chars().collect();
    assert!(characters.len() >= 6);
    let part = |from: usize, to: usize| characters[from..to].iter().collect::<String>();

    // A stop string of three tokens: nothing of it is released.
    let stop = part(2, 5);
    let at = whole.find(&stop).unwrap();
    let (own, finish) =
        pieces(&model, &tokenizer, &config.clone().with_stop(vec!["zz".into(), stop.clone()]));
    assert_eq!(own.concat(), whole[..at]);
    assert_eq!(finish, FinishReason::StopString(stop));

    // The start of a stop string that does not follow is held back, then released.
    let almost = part(1, 3) + "#";
    let (own, finish) = pieces(&model, &tokenizer, &config.clone().with_stop(vec![almost]));
    assert_eq!(own.concat(), whole);
    assert_eq!(finish, FinishReason::Length);
    assert!(own.iter().any(String::is_empty));

    // At the end of the text too.
    let last = part(characters.len() - 1, characters.len()) + "#";
    let (own, _) = pieces(&model, &tokenizer, &config.with_stop(vec![last]));
    assert_eq!(own.concat(), whole);
}

#[test]
fn end_tokens_of_the_tokenizer_end_the_text() {
    let (model, fixture) = model(Caching::Static);
    let tokenizer = letters();
    let end = fixture.greedy[0][4];
    let mut special = tokenizer.special_tokens().clone();
    special.end = vec![end];
    let tokenizer = tokenizer.with_special_tokens(special);
    let row = |config: &GenerateConfig| {
        let generator = TextGenerator::new(&model, &tokenizer);
        generator.generate_from_ids(&fixture.prompts[..1], config).unwrap().rows.remove(0)
    };
    let first = fixture.greedy[0].iter().position(|&id| id == end).unwrap();
    let own = row(&greedy());
    assert_eq!(own.finish, FinishReason::EndToken(end));
    assert_eq!(own.ids, fixture.greedy[0][..first]);
    assert_eq!(row(&greedy().with_ignore_end(true)).ids, fixture.greedy[0]);
}

#[test]
fn prompts_of_text_are_encoded() {
    let (model, fixture) = model(Caching::Static);
    let tokenizer = letters();
    let generator = TextGenerator::new(&model, &tokenizer);
    let config = greedy().with_ignore_end(true);
    let own = generator.generate(&["bcd"], &config).unwrap();
    assert_eq!(own.rows[0].ids, fixture.greedy[0]);
    assert!(own.statistics.to_string().starts_with("prompt 3 tokens in "), "{}", own.statistics);
    assert!(matches!(generator.generate(&[""], &config), Err(TextError::EmptyPrompt { row: 0 })));
}
