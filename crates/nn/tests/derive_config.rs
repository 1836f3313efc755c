//! Inputs that `#[derive(Config)]` accepts, and the code it generates.
#![deny(warnings)]

use kiln_nn::{Config, ConfigError, Initializer, LinearConfig, PaddingConfig2d};
use std::path::PathBuf;

fn rate() -> f64 {
    1e-3
}

#[derive(Config, Clone, Debug, PartialEq)]
struct Training {
    /// Passes over the data.
    epochs: usize,
    r#type: String,
    #[config(default = rate())]
    learning_rate: f64,
    #[config(default = "[32, 64]")]
    channels: [usize; 2],
    #[config(default = "adam")]
    optimizer: String,
    #[config(default = Vec::<(usize, f32)>::new())]
    schedule: Vec<(usize, f32)>,
    seed: Option<u64>,
    model: LinearConfig,
    #[config(default = "PaddingConfig2d::Explicit(1, 2, 1, 2)")]
    padding: PaddingConfig2d,
}

fn training() -> Training {
    Training::new(10, "mlp".into(), LinearConfig::new(2, 3))
}

#[test]
fn new_takes_fields_without_default() {
    let config = training();
    assert_eq!((config.epochs, config.learning_rate, config.channels), (10, 1e-3, [32, 64]));
    assert_eq!((config.optimizer.as_str(), config.seed), ("adam", None));
    let config = config.with_seed(Some(7)).with_learning_rate(0.5).with_padding(PaddingConfig2d::Same);
    assert_eq!((config.seed, config.learning_rate, config.padding), (Some(7), 0.5, PaddingConfig2d::Same));
}

#[test]
fn configs_round_trip_through_json() {
    let config = training().with_seed(Some(u64::MAX)).with_schedule(vec![(3, 0.5)]);
    assert_eq!(Training::from_json(&config.to_json()).unwrap(), config);
    assert_eq!(config.to_string(), config.to_json());
    assert!(config.to_json().contains("\"type\": \"mlp\""));
}

#[test]
fn absent_fields_have_their_defaults() {
    let json = r#"{ "epochs": 10, "type": "mlp", "model": { "d_input": 2, "d_output": 3 } }"#;
    assert_eq!(Training::from_json(json).unwrap(), training());
}

#[derive(Config, Clone, Debug, PartialEq)]
enum Schedule {
    Constant,
    Step(usize),
    Range(usize, usize),
    Cosine { from: f64, to: f64 },
}

#[derive(Config, Clone, Debug, PartialEq)]
struct Generic<T: Clone, const N: usize>
where
    T: Default,
{
    first: T,
    #[config(default = Default::default())]
    second: T,
    list: Option<Vec<T>>,
}

#[derive(Config, Clone, Debug, PartialEq)]
struct Empty;

#[derive(Config, Debug)]
#[config(crate = "kiln_nn")]
struct Renamed {}

#[test]
fn enums_generics_and_empty_structs() {
    for schedule in [
        Schedule::Constant,
        Schedule::Step(3),
        Schedule::Range(1, 2),
        Schedule::Cosine { from: 1.0, to: 0.0 },
    ] {
        assert_eq!(Schedule::from_json(&schedule.to_json()).unwrap(), schedule);
    }
    let generic = Generic::<u32, 3>::new(5).with_list(Some(vec![1, 2]));
    assert_eq!(generic.second, 0);
    assert_eq!(Generic::from_json(&generic.to_json()).unwrap(), generic);
    assert_eq!(Empty::from_json(&Empty::new().to_json()).unwrap(), Empty);
    assert!(Renamed::from_json(&Renamed::new().to_json()).is_ok());
    let initializer = Initializer::KaimingUniform { gain: 0.1, fan_out_only: true };
    assert_eq!(Initializer::from_json(&initializer.to_json()).unwrap(), initializer);
}

#[derive(Config, Clone)]
struct Ranges {
    #[config(range = "[1, inf]")]
    steps: u64,
    #[config(range = "[0, 1)", default = 0.5)]
    beta: f64,
    #[config(range = "(0, inf)", expected = "above 0", default = [1.0, 2.0])]
    sizes: [f32; 2],
    #[config(range = "[-inf, 0]", default = (-1.0, f64::NEG_INFINITY))]
    powers: (f64, f64),
    #[config(range = "(-inf, inf)")]
    offset: Option<f64>,
}

#[test]
fn numbers_out_of_range_are_named() {
    let error = |config: Ranges| config.check_ranges().unwrap_err().to_string();
    let valid = Ranges::new(1);
    valid.check_ranges().unwrap();
    assert_eq!(error(Ranges::new(0)), "steps is 0\n  hint: it must be at least 1");
    let expected = "\n  hint: it must be at least 0 and below 1";
    for beta in [1.0, -0.5, f64::NAN, f64::INFINITY] {
        assert_eq!(error(valid.clone().with_beta(beta)), format!("beta is {beta}{expected}"));
    }
    assert_eq!(error(valid.clone().with_sizes([1.0, 0.0])), "sizes is 0\n  hint: it must be above 0");
    assert_eq!(error(valid.clone().with_powers((0.0, 0.25))), "powers is 0.25\n  hint: it must be at most 0");
    assert_eq!(
        error(valid.clone().with_powers((f64::NAN, 0.0))),
        "powers is NaN\n  hint: it must be at most 0"
    );
    assert_eq!(
        error(valid.clone().with_offset(f64::INFINITY)),
        "offset is inf\n  hint: it must be a finite number"
    );
    // The first field, in the order of declaration.
    assert!(error(valid.with_sizes([-1.0, 1.0]).with_beta(2.0)).starts_with("beta is 2"));
    // A configuration without ranges.
    training().check_ranges().unwrap();
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn written(folder: &tempfile::TempDir, json: &str) -> PathBuf {
    let path = folder.path().join("config.json");
    std::fs::write(&path, json).unwrap();
    path
}

#[test]
fn saved_files_are_replaced_atomically() {
    let folder = folder();
    let path = folder.path().join("config.json");
    training().save(&path).unwrap();
    assert_eq!(Training::load(&path).unwrap(), training());
    training().with_seed(Some(1)).save(&path).unwrap();
    assert_eq!(Training::load(&path).unwrap().seed, Some(1));
    // No temporary file is left.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn errors_name_file_line_and_field() {
    let folder = folder();
    let cases = [
        (
            "{\n  \"d_input\": 2,\n  \"d_outptu\": 3\n}",
            "line 3, column 12: unknown field `d_outptu`, expected one of",
        ),
        ("{\n  \"d_input\": 2\n}", "line 3, column 1: missing field `d_output`"),
        (
            "{\n  \"d_input\": 2,\n  \"d_output\": \"x\"\n}",
            "line 3, column 17: invalid type: string \"x\", expected usize",
        ),
        ("{ \"d_input\": 2,", "line 1, column 15: EOF while parsing a value"),
        ("", "line 1, column 0: EOF while parsing a value"),
        ("{} {}", "line 1, column 2: missing field `d_input`"),
    ];
    for (json, expected) in cases {
        let path = written(&folder, json);
        let error = LinearConfig::load(&path).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}, {expected}", path.display())), "{error}");
    }
}

#[test]
fn missing_files_and_unwritable_folders_are_errors() {
    let folder = folder();
    let path = folder.path().join("missing").join("config.json");
    let error = LinearConfig::load(&path).unwrap_err();
    assert!(matches!(&error, ConfigError::File { action: "read", .. }), "{error}");
    assert!(error.to_string().contains("hint: expected a configuration in JSON; the folder "), "{error}");
    let error = training().save(&path).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    assert!(matches!(&error, ConfigError::File { action: "write", .. }), "{error}");
}
