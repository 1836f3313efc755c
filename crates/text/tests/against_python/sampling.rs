//! Logits equal to those of the processors of `transformers`.

use crate::against_python::fixture;
use kiln_text::{GenerateConfig, Sampler, TextError, TokenHistory};
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixture {
    logits: Vec<f32>,
    ids: Vec<u32>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    settings: Settings,
    expected: Vec<Option<f32>>,
}

#[derive(Debug, Deserialize)]
struct Settings {
    temperature: Option<f64>,
    repetition_penalty: Option<f64>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    min_p: Option<f64>,
}

#[test]
fn processed_logits_are_those_of_transformers() {
    let Fixture { logits, ids, cases } = fixture("sampling.json");
    for Case { settings, expected } in cases {
        let config = GenerateConfig::new()
            .with_temperature(settings.temperature.unwrap_or(1.0))
            .with_repetition_penalty(settings.repetition_penalty.unwrap_or(1.0))
            .with_top_k(settings.top_k)
            .with_top_p(settings.top_p)
            .with_min_p(settings.min_p);
        let mut own = logits.clone();
        Sampler::new(&config, 0).unwrap().process(&mut own, &TokenHistory::of_prompt(&ids));
        for (id, (own, expected)) in own.iter().zip(&expected).enumerate() {
            match expected {
                Some(expected) => {
                    assert!((own - expected).abs() < 1e-5, "{settings:?} {id}: {own} {expected}")
                }
                None => assert_eq!(*own, f32::NEG_INFINITY, "{settings:?} {id}"),
            }
        }
    }
}

#[test]
fn frequency_and_presence_penalties_count_new_tokens() {
    let config = GenerateConfig::new().with_frequency_penalty(0.5).with_presence_penalty(0.25);
    let mut history = TokenHistory::of_prompt(&[0]);
    [1, 1, 2].into_iter().for_each(|id| history.push(id));
    let mut logits = [1.0; 4];
    Sampler::new(&config, 0).unwrap().process(&mut logits, &history);
    assert_eq!(logits, [1.0, 1.0 - 1.25, 1.0 - 0.75, 1.0]);
}

#[test]
fn samples_have_the_probabilities_and_depend_on_seed_and_row() {
    let logits = [0.5_f32.ln(), 0.3_f32.ln(), f32::NEG_INFINITY, 0.2_f32.ln()];
    let draw = |seed: u64, row: usize| {
        let config = GenerateConfig::new().with_temperature(1.0).with_seed(seed);
        let mut sampler = Sampler::new(&config, row).unwrap();
        let sample = |_| sampler.sample(&mut logits.clone(), &TokenHistory::default()).unwrap();
        (0..20_000).map(sample).collect::<Vec<u32>>()
    };
    let first = draw(1, 0);
    assert_eq!(first, draw(1, 0));
    assert_ne!(first, draw(2, 0));
    assert_ne!(first, draw(1, 1));
    for (id, probability) in [(0, 0.5), (1, 0.3), (2, 0.0), (3, 0.2)] {
        let share = first.iter().filter(|&&own| own == id).count() as f64 / 20_000.0;
        assert!((share - probability).abs() < 0.015, "{id}: {share}");
    }
}

#[test]
fn greedy_sampling_takes_the_first_of_equals_and_needs_a_finite_logit() {
    let mut sampler = Sampler::new(&GenerateConfig::new(), 0).unwrap();
    let history = TokenHistory::default();
    assert_eq!(sampler.sample(&mut [1.0, 2.0, 2.0, f32::NAN], &history), Some(1));
    assert_eq!(sampler.sample(&mut [f32::NAN, f32::NEG_INFINITY], &history), None);
    let config = GenerateConfig::new().with_temperature(1.0).with_top_p(Some(0.5)).with_min_p(Some(0.5));
    let mut sampler = Sampler::new(&config, 0).unwrap();
    assert_eq!(sampler.sample(&mut [f32::NAN; 3], &history), None);
    assert_eq!(sampler.sample(&mut [], &history), None);
}

#[test]
fn invalid_settings_are_errors() {
    let config = GenerateConfig::new;
    let invalid = [
        config().with_max_new_tokens(0),
        config().with_temperature(-1.0),
        config().with_temperature(f64::NAN),
        config().with_top_k(Some(0)),
        config().with_top_p(Some(0.0)),
        config().with_top_p(Some(1.01)),
        config().with_min_p(Some(-0.1)),
        config().with_min_p(Some(f64::NAN)),
        config().with_repetition_penalty(0.0),
        config().with_frequency_penalty(f64::INFINITY),
        config().with_stop(vec![String::new()]),
    ];
    for config in invalid {
        let error = config.validate().unwrap_err();
        assert!(matches!(error, TextError::InvalidSetting { .. }), "{error}");
        assert!(error.to_string().contains("hint"), "{error}");
    }
}
