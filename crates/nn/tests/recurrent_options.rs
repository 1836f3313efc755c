//! Options of gated recurrent modules that PyTorch's modules do not have.

use crate::golden::{B, Case, any, each_case};
use kiln_backends::{Cpu, Flex};
use kiln_nn::rnn::*;
use kiln_nn::*;
use kiln_tensor::{AnyTensor, Autodiff, AutodiffBackend, Tensor};

/// The activation that an attribute names, or the default.
fn activation(case: &Case<'_>, attribute: &str, default: ActivationConfig) -> ActivationConfig {
    match case.json["attributes"][attribute].as_str() {
        None => default,
        Some("hard_sigmoid") => HardSigmoidConfig::new().into(),
        Some("elu") => EluConfig::new().into(),
        Some("softsign") => ActivationConfig::Softsign,
        Some(other) => panic!("{other}"),
    }
}

fn clip(case: &Case<'_>) -> Option<f64> {
    case.json["attributes"]["clip"].as_f64()
}

fn flag(case: &Case<'_>, attribute: &str, default: bool) -> bool {
    case.json["attributes"][attribute].as_bool().unwrap_or(default)
}

fn count(case: &Case<'_>, attribute: &str) -> usize {
    case.json["attributes"][attribute].as_u64().unwrap() as usize
}

macro_rules! with_gru_options {
    ($case:expr, $config:expr) => {
        $config
            .with_reset_after(flag($case, "reset_after", true))
            .with_clip(clip($case))
            .with_gate_activation(activation($case, "gate_activation", ActivationConfig::Sigmoid))
            .with_hidden_activation(activation($case, "hidden_activation", ActivationConfig::Tanh))
    };
}

macro_rules! with_lstm_options {
    ($case:expr, $config:expr) => {
        $config
            .with_clip(clip($case))
            .with_input_forget(flag($case, "input_forget", false))
            .with_gate_activation(activation($case, "gate_activation", ActivationConfig::Sigmoid))
            .with_cell_activation(activation($case, "cell_activation", ActivationConfig::Tanh))
            .with_hidden_activation(activation($case, "hidden_activation", ActivationConfig::Tanh))
    };
}

/// Replaces the parameters of a module by the inputs of the case with their names.
fn load<M: Module>(case: &Case<'_>, mut module: M) -> M {
    module.map_parameters(|path, parameter| {
        parameter.map(|old| {
            let data = case.data(path.as_str());
            assert_eq!(data.shape(), old.shape(), "{}: {path}", case.name());
            AnyTensor::from_data(data, old.stack())
        })
    });
    module
}

/// Compares the outputs, flat, and the gradients of inputs and parameters.
fn check<const D: usize>(
    case: &Case<'_>,
    module: &impl Module,
    inputs: Vec<(&str, Option<AnyTensor>)>,
    outputs: &[Tensor<B, D>],
) {
    let flat = outputs.iter().map(|output| output.clone().reshape([-1])).collect();
    let parameters = module.named_parameters();
    let named = parameters.iter().map(|(name, parameter)| (name.as_str(), Some(parameter.value.clone())));
    let all: Vec<_> = inputs.into_iter().chain(named).collect();
    assert_eq!(case.json["gradients"].as_object().unwrap().len(), all.len(), "{}", case.name());
    case.check(Tensor::<B, 1>::cat(flat, 0), &all);
}

#[test]
fn gru_options_match_the_formulas() {
    each_case("recurrent_options", &["gru"], |case| {
        let (x, hidden) = (case.input::<3>("x"), case.input::<3>("hidden"));
        let config = GruConfig::new(2, 2, true)
            .with_num_layers(count(case, "layers"))
            .with_bidirectional(case.flag("bidirectional"));
        let gru: Gru<B> = load(case, with_gru_options!(case, config).init(&Default::default()));
        let inputs = vec![("x", any(&x)), ("hidden", any(&hidden))];
        let (y, last) = gru.forward(x, Some(hidden));
        check(case, &gru, inputs, &[y, last]);
    });
    each_case("recurrent_options", &["gru_cell"], |case| {
        let (x, hidden) = (case.input::<2>("x"), case.input::<2>("hidden"));
        let config = with_gru_options!(case, GruCellConfig::new(3, 2, true));
        let gru: GruCell<B> = load(case, config.init(&Default::default()));
        let inputs = vec![("x", any(&x)), ("hidden", any(&hidden))];
        let after = gru.forward(x, Some(hidden));
        check(case, &gru, inputs, &[after]);
    });
}

#[test]
fn lstm_options_match_the_formulas() {
    each_case("recurrent_options", &["lstm"], |case| {
        let [x, hidden, cell] = ["x", "hidden", "cell"].map(|name| case.input::<3>(name));
        let config = LstmConfig::new(2, 2, true)
            .with_num_layers(count(case, "layers"))
            .with_bidirectional(case.flag("bidirectional"));
        let lstm: Lstm<B> = load(case, with_lstm_options!(case, config).init(&Default::default()));
        let inputs = vec![("x", any(&x)), ("hidden", any(&hidden)), ("cell", any(&cell))];
        let (y, last) = lstm.forward(x, Some(LstmState::new(cell, hidden)));
        check(case, &lstm, inputs, &[y, last.hidden, last.cell]);
    });
    each_case("recurrent_options", &["lstm_cell"], |case| {
        let [x, hidden, cell] = ["x", "hidden", "cell"].map(|name| case.input::<2>(name));
        let config = with_lstm_options!(case, LstmCellConfig::new(3, 2, true));
        let lstm: LstmCell<B> = load(case, config.init(&Default::default()));
        let inputs = vec![("x", any(&x)), ("hidden", any(&hidden)), ("cell", any(&cell))];
        let after = lstm.forward(x, Some(LstmState::new(cell, hidden)));
        check(case, &lstm, inputs, &[after.hidden, after.cell]);
    });
}

/// The outputs and the gradients of the input of modules with all options.
fn outputs<T: AutodiffBackend>(gru: &GruConfig, lstm: &LstmConfig, x: &[f32]) -> Vec<f64> {
    let device = Default::default();
    let x = Tensor::<T, 1>::from_floats(x.to_vec(), &device).reshape([2, 4, 3]).require_grad();
    let y = gru.init::<T>(&device).forward_packed(x.clone(), &[4, 2], None).0;
    let z = lstm.init::<T>(&device).forward_packed(y.clone(), &[4, 2], None).0;
    let gradients = z.clone().square().sum().backward();
    let gradient = gradients.get(x.as_any()).unwrap().into_data().unwrap().to_vec::<f64>();
    [y.into_data().to_vec(), z.into_data().to_vec(), gradient].concat()
}

#[test]
fn fused_options_are_those_of_eager_ops() {
    let constant = Initializer::Constant { value: 0.3 };
    let gru = GruConfig::new(3, 4, true)
        .with_bidirectional(true)
        .with_reset_after(false)
        .with_clip(0.3)
        .with_gate_activation(HardSigmoidConfig::new().into())
        .with_initializer(constant);
    let lstm = LstmConfig::new(8, 3, true)
        .with_projection(2)
        .with_input_forget(true)
        .with_clip(0.5)
        .with_cell_activation(ActivationConfig::Silu)
        .with_initializer(constant);
    let x: Vec<f32> = (0..24).map(|place| (place as f32 * 0.7).sin()).collect();
    let (eager, fused) =
        (outputs::<Autodiff<Flex>>(&gru, &lstm, &x), outputs::<Autodiff<Cpu>>(&gru, &lstm, &x));
    assert!(eager.iter().any(|x| x.abs() > 1e-3));
    for (eager, fused) in eager.iter().zip(&fused) {
        assert!((eager - fused).abs() < 1e-5, "{eager} {fused}");
    }
}

#[test]
fn configurations_with_options_are_read_from_json() {
    let config = LstmConfig::new(3, 4, true)
        .with_clip(0.5)
        .with_input_forget(true)
        .with_gate_activation(HardSigmoidConfig::new().into());
    assert_eq!(LstmConfig::from_json(&config.to_json()).unwrap(), config);
    let config = GruConfig::from_json(r#"{"d_input": 3, "d_hidden": 4, "bias": false}"#).unwrap();
    assert_eq!(config, GruConfig::new(3, 4, false));
}

#[test]
fn tables_show_the_options_that_are_not_defaults() {
    let device = Default::default();
    let gru: Gru<Flex> = GruConfig::new(2, 3, false).with_reset_after(false).init(&device);
    assert!(gru.to_string().contains("dropout 0.0, options.reset_after false)"), "{gru}");
    let lstm: LstmCell<Flex> = LstmCellConfig::new(2, 3, false).with_input_forget(true).init(&device);
    assert!(lstm.to_string().contains("options.input_forget true"), "{lstm}");
    let lstm: Lstm<Flex> = LstmConfig::new(2, 3, false).init(&device);
    assert!(!lstm.to_string().contains("options"), "{lstm}");
}

#[test]
fn configurations_of_two_directions_have_the_options() {
    let device = Default::default();
    let gru = BiGruConfig::new(2, 3, true).with_reset_after(false).with_clip(1.0);
    let options = gru.init::<Flex>(&device).options;
    assert_eq!(options, GruOptions { reset_after: false, clip: Some(1.0), ..Default::default() });
    let lstm = BiLstmConfig::new(2, 3, true).with_input_forget(true).init::<Flex>(&device);
    assert_eq!(lstm.options, LstmOptions { input_forget: true, ..Default::default() });
    assert_eq!(lstm.layers.weights[1].weight_ih.dims(), [9, 2]);
    assert_eq!(lstm.layers.weights[1].weight_hh.dims(), [9, 3]);
}

#[test]
fn modules_with_other_parameters_keep_their_options() {
    let lstm = LstmConfig::new(2, 3, true).with_clip(0.25).init::<Flex>(&Default::default());
    let other: Lstm<Flex> = with_parameters(&lstm, trainable_parameters(&lstm));
    assert_eq!(other.options, lstm.options);
}

#[test]
#[should_panic(expected = "[gru] clip is 0, but must be greater than 0")]
fn clip_of_zero_panics() {
    GruConfig::new(2, 3, true).with_clip(0.0).init::<Flex>(&Default::default());
}

#[test]
#[should_panic(expected = "[lstm] cell_activation is PRelu(")]
fn activation_with_parameters_panics() {
    LstmConfig::new(2, 3, true)
        .with_cell_activation(PReluConfig::new().into())
        .init::<Flex>(&Default::default());
}

#[test]
#[should_panic(expected = "[gru] hidden_activation is RRelu(")]
fn random_activation_panics() {
    GruCellConfig::new(2, 3, true)
        .with_hidden_activation(RReluConfig::new().into())
        .init::<Flex>(&Default::default());
}
