//! Parameters that a module holds in two places. The numbers are PyTorch 1.13's, in f64.

use kiln_backends::Flex;
use kiln_nn::reparametrize::{LoraConfig, LoraModel};
use kiln_nn::{
    AutodiffModule, Embedding, EmbeddingConfig, GradientsParams, Linear, LinearConfig, Module, Param,
};
use kiln_optim::{
    AdamConfig, AverageState, EmaConfig, GradientClipping, LbfgsConfig, Optimizer, OptimizerState,
    ParameterGroup, SgdConfig,
};
use kiln_tensor::loss::cross_entropy;
use kiln_tensor::{Autodiff, Backend, DType, Int, Tensor, TensorData};

type B = Autodiff<Flex>;

/// A language model of five tokens.
#[derive(Clone, Debug, Module)]
struct Model<B: Backend> {
    embed: Embedding<B>,
    head: Linear<B>,
}

fn model() -> Model<B> {
    let device = Default::default();
    let mut model = Model {
        embed: EmbeddingConfig::new(5, 3).init(&device),
        head: LinearConfig::new(3, 5).init(&device),
    };
    let weight: [[f64; 3]; 5] =
        [[0.5, -0.25, 1.0], [-1.0, 0.75, 0.25], [0.125, 0.5, -0.5], [1.5, -1.0, 0.5], [-0.75, -0.5, 0.25]];
    let bias = [0.1f64, -0.2, 0.3, 0.0, -0.1];
    model.embed.weight = Param::from_tensor(Tensor::from_data_dtype(weight, DType::F64, &device));
    model.head.weight = model.embed.weight.clone();
    model.head.bias = Some(Param::from_tensor(Tensor::from_data_dtype(bias, DType::F64, &device)));
    model
}

fn loss(model: &Model<B>, batch: usize) -> Tensor<B, 1> {
    let tokens =
        [([[0, 1, 2], [3, 1, 4]], [[1, 2, 3], [1, 4, 0]]), ([[4, 4, 0], [2, 3, 1]], [[4, 0, 3], [3, 1, 2]])];
    let ints = |tokens: [[i32; 3]; 2]| Tensor::<B, 2, Int>::from_ints(tokens, &Default::default());
    let (x, y) = (ints(tokens[batch % 2].0), ints(tokens[batch % 2].1));
    let logits = model.head.forward(model.embed.forward(x).tanh());
    cross_entropy(logits.flatten::<2>(0, 1), y.flatten::<1>(0, 1), &Default::default())
}

fn gradients(model: &Model<B>, batch: usize) -> GradientsParams {
    GradientsParams::from_grads(loss(model, batch).backward(), model)
}

fn numbers<B: Backend, const D: usize>(tensor: &Tensor<B, D>) -> Vec<f64> {
    tensor.to_data().to_vec()
}

/// Both places have these weights, and the bias follows them.
#[track_caller]
fn assert_numbers<B: Backend>(model: &Model<B>, expected: &[f64]) {
    for weight in [&model.embed.weight, &model.head.weight] {
        let found = [numbers(weight), numbers(model.head.bias.as_ref().unwrap())].concat();
        let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(found.len() == expected.len() && worst < 1e-6, "{worst}: {found:?}");
    }
}

const GRADIENT: [f64; 15] = [
    0.334281279,
    -0.131701785,
    0.047603302,
    -0.371142160,
    0.315179674,
    -0.069070364,
    -0.161633688,
    0.102863363,
    -0.093598726,
    0.157240093,
    -0.275112224,
    0.216160482,
    -0.003107901,
    -0.075419735,
    -0.112691689,
];
const SGD: [f64; 20] = [
    0.223947446,
    -0.212496343,
    0.945811310,
    -0.554645349,
    0.438240374,
    0.269810448,
    0.314882858,
    0.389682887,
    -0.390500537,
    1.340989360,
    -0.638178661,
    0.286216331,
    -0.765814980,
    -0.478297403,
    0.388019484,
    0.042463815,
    -0.077859962,
    0.258393708,
    -0.005283236,
    -0.117714325,
];
/// The exponential moving average over the steps of [`SGD`], with decay 0.9.
const AVERAGE: [f64; 20] = [
    0.324508054,
    -0.192642485,
    0.971788954,
    -0.776607138,
    0.573009015,
    0.279209396,
    0.221902381,
    0.440267250,
    -0.443728694,
    1.410702236,
    -0.830117017,
    0.379264027,
    -0.752086145,
    -0.468431372,
    0.318324896,
    0.081900097,
    -0.139068581,
    0.281450604,
    -0.023937283,
    -0.100344837,
];
const LBFGS: [f64; 20] = [
    -0.538221398,
    -0.292284771,
    0.957158760,
    -0.103301634,
    0.067690971,
    0.205294411,
    0.616341609,
    0.268193733,
    -0.339130528,
    1.253716432,
    -0.000291826,
    -0.048557988,
    -0.797922436,
    -0.263268391,
    0.642249241,
    -0.262803169,
    0.647790155,
    0.087438978,
    -0.117442203,
    -0.254983762,
];

fn train(
    optimizer: &mut dyn Optimizer,
    rate: f64,
    mut model: Model<B>,
    steps: std::ops::Range<usize>,
) -> Model<B> {
    for step in steps {
        let gradients = gradients(&model, step);
        let report = optimizer.update(rate, &mut model, gradients).unwrap();
        assert_eq!((report.updated, report.without_gradient), (2, vec![]));
    }
    model
}

#[test]
fn gradients_of_all_places_add() {
    let model = model();
    let gradients = gradients(&model, 0);
    assert_eq!(gradients.len(), 2);
    let found = numbers(&gradients.tensor::<Flex, 2>(model.embed.weight.id()).unwrap());
    assert!(found.iter().zip(&GRADIENT).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?}");
    assert!((numbers(&loss(&model, 0).inner())[0] - 2.351139537).abs() < 1e-9);
}

#[test]
fn a_step_updates_all_places_once() {
    let model = train(&mut SgdConfig::new().init(), 0.5, model(), 0..3);
    assert_numbers(&model, &SGD);
    // One leaf, whose next gradient is whole.
    assert_eq!(gradients(&model, 3).len(), 2);
    let leaf = |weight: &Param<Tensor<B, 2>>| weight.as_any().value().address();
    assert_eq!(leaf(&model.embed.weight), leaf(&model.head.weight));
    assert_numbers(&model.valid(), &SGD);
}

/// Two leaves of one id: each receives a part of the gradient.
#[test]
fn places_that_were_frozen_separately_are_tied_again() {
    let mut model = model();
    model.embed = model.embed.freeze().unfreeze();
    model.head = model.head.freeze().unfreeze();
    let leaf = |weight: &Param<Tensor<B, 2>>| weight.as_any().value().address();
    assert_ne!(leaf(&model.embed.weight), leaf(&model.head.weight));
    assert_eq!(model.num_parameters(), 20);
    assert_numbers(&train(&mut SgdConfig::new().init(), 0.5, model, 0..3), &SGD);
}

#[test]
fn the_norm_counts_a_gradient_once() {
    let mut model = model();
    let mut optimizer = SgdConfig::new().with_grad_clipping(GradientClipping::GlobalNorm(0.1)).init();
    let gradients = gradients(&model, 0);
    let report = optimizer.update(0.5, &mut model, gradients).unwrap();
    assert!((report.gradient_norm().unwrap().unwrap() - 0.775614591).abs() < 1e-6);
}

#[test]
fn averages_hold_a_parameter_once() {
    let (mut optimizer, mut model) = (SgdConfig::new().init(), model());
    let mut average = EmaConfig::new().with_decay(0.9).init();
    for step in 0..3 {
        model = train(&mut optimizer, 0.5, model, step..step + 1);
        average.update(&model).unwrap();
    }
    assert_numbers(&average.averaged(model.clone()), &AVERAGE);
    assert_numbers(&average.averaged(model.valid()), &AVERAGE);
    assert_numbers(&model, &SGD);

    let state = average.state(&model).unwrap().into_tensors();
    let names: Vec<_> = state.iter().map(|(name, _)| name.clone()).collect();
    assert!(!names.iter().any(|name| name.contains("head.weight")), "{names:?}");
    let mut loaded = EmaConfig::new().with_decay(0.9).init();
    loaded.load_state(AverageState::from_tensors(state.clone()).unwrap(), &model).unwrap();
    assert_numbers(&loaded.averaged(model.clone()), &AVERAGE);
    // PyTorch saves both names.
    let both = state.into_iter().flat_map(|(name, data)| {
        let other = name.contains("embed.weight").then(|| (name.replace("embed", "head"), data.clone()));
        [(name, data)].into_iter().chain(other)
    });
    loaded.load_state(AverageState::from_tensors(both).unwrap(), &model).unwrap();
    assert_numbers(&loaded.averaged(model), &AVERAGE);
}

#[test]
fn lbfgs_moves_a_parameter_once() {
    let mut optimizer = LbfgsConfig::new().with_max_iter(4).with_history_size(2).init();
    let model = optimizer.step_with(0.5, model(), |model| {
        let loss = loss(model, 0);
        let gradients = GradientsParams::from_grads(loss.backward(), model);
        (loss, gradients)
    });
    assert_numbers(&model, &LBFGS);
    let mut resumed = LbfgsConfig::new().with_max_iter(4).with_history_size(2).init();
    resumed.load_state(optimizer.state(&model).unwrap(), &model).unwrap();
}

#[test]
fn the_state_of_a_parameter_is_saved_once() {
    let new = || AdamConfig::new().init();
    let mut optimizer = new();
    let model = train(&mut optimizer, 0.1, model(), 0..2);
    let state = optimizer.state(&model).unwrap();
    assert_eq!(state.parameters().collect::<Vec<_>>(), ["embed.weight", "head.bias"]);
    let straight = train(&mut optimizer, 0.1, model.clone(), 2..4);
    let expected = [numbers(&straight.embed.weight), numbers(straight.head.bias.as_ref().unwrap())].concat();

    let tensors = state.into_tensors().unwrap();
    let renamed = |keep: bool| {
        let copies = tensors.iter().flat_map(|(name, data)| {
            let own = (keep || !name.starts_with("embed")).then(|| (name.clone(), data.clone()));
            let other = name
                .starts_with("embed")
                .then(|| (name.replace("embed.weight", "head.weight"), data.clone()));
            own.into_iter().chain(other)
        });
        copies.collect::<Vec<_>>()
    };
    // Under the first name, another one, or both.
    for tensors in [tensors.clone(), renamed(false), renamed(true)] {
        let mut resumed = new();
        resumed.load_state(OptimizerState::from_tensors("adam", tensors).unwrap(), &model).unwrap();
        assert_numbers(&train(&mut resumed, 0.1, model.clone(), 2..4), &expected);
    }
    let mut different = renamed(true);
    for (name, data) in &mut different {
        if name == "head.weight.step" {
            *data = TensorData::scalar(7u64);
        }
    }
    let state = OptimizerState::from_tensors("adam", different).unwrap();
    let error = new().load_state(state, &model).unwrap_err().to_string();
    assert!(
        error.contains("`head.weight`: the module ties it to `embed.weight`, whose state differs"),
        "{error}"
    );
}

#[test]
fn a_group_contains_a_parameter_by_any_of_its_names() {
    let group = || ParameterGroup::matching("head.weight").learning_rate_factor(0.0);
    let mut optimizer = SgdConfig::new().init().with_group(group()).unwrap();
    let trained = train(&mut optimizer, 0.5, model(), 0..1);
    assert_eq!(numbers(&trained.embed.weight), numbers(&model().embed.weight));
    assert_ne!(numbers(trained.head.bias.as_ref().unwrap()), numbers(model().head.bias.as_ref().unwrap()));
}

#[test]
fn different_tensors_of_one_id_are_refused() {
    let mut model = model();
    model.head.weight = model.head.weight.map(|weight| weight * 2);
    let gradients = gradients(&model, 0);
    let error = SgdConfig::new().init().update(0.5, &mut model, gradients).unwrap_err().to_string();
    assert!(error.starts_with("[sgd] parameter `head.weight` has the id of an earlier one"), "{error}");
}

/// A frozen copy with the id of the trained parameter: a target network.
#[test]
fn a_frozen_copy_keeps_its_own_values() {
    #[derive(Clone, Debug, Module)]
    struct Agent<B: Backend> {
        online: Linear<B>,
        target: Linear<B>,
    }
    let device = Default::default();
    let online: Linear<B> = LinearConfig::new(2, 1).init(&device);
    let target = online.clone().no_grad();
    let mut agent = Agent { online, target };
    let before = agent.target.weight.to_data().to_vec::<f32>();
    let x = Tensor::<B, 2>::ones([1, 2], &device);
    let loss = (agent.online.forward(x.clone()) + agent.target.forward(x)).sum();
    let gradients = GradientsParams::from_grads(loss.backward(), &agent);
    agent = SgdConfig::new().init().step(0.1, agent, gradients);
    let agent = agent.valid();
    assert_eq!(agent.target.weight.to_data().to_vec::<f32>(), before);
    assert_ne!(agent.online.weight.to_data().to_vec::<f32>(), before);
    assert_eq!((agent.num_parameters(), agent.num_trainable_parameters()), (6, 3));
}

#[test]
fn adapters_of_a_tied_weight_apply_to_all_places() {
    let base = model();
    // Either name is a target.
    for target in ["embed.weight", "head.weight"] {
        let mut model: LoraModel<Model<B>> =
            LoraConfig::new(2).with_targets([target]).init(base.clone()).unwrap();
        assert_eq!((model.num_parameters(), model.num_trainable_parameters()), (20 + 16, 16));
        let mut optimizer = AdamConfig::new().init();
        for step in 0..3 {
            let loss = loss(&model.module(), step);
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            assert_eq!(gradients.len(), 2);
            model = optimizer.step(0.1, model, gradients);
        }
        let merged = model.merge();
        let [embed, head] = [&merged.embed.weight, &merged.head.weight].map(|weight| numbers(weight));
        assert_eq!(embed, head);
        assert_ne!(embed, numbers(&base.embed.weight));
        assert_eq!((merged.num_parameters(), merged.num_trainable_parameters()), (20, 20));
        assert_eq!(numbers(&model.base().head.weight), numbers(&base.head.weight));
    }
}

#[test]
fn a_tied_model_in_half_precision_stays_tied() {
    let mut model = model();
    model.map_parameters(|_, parameter| parameter.map(|value| value.cast(DType::BF16).unwrap()));
    assert_eq!(model.head.weight.dtype(), DType::BF16);
    let model = train(&mut SgdConfig::new().init(), 0.5, model, 0..3);
    assert_eq!(model.num_parameters(), 20);
    let [embed, head] = [&model.embed.weight, &model.head.weight]
        .map(|weight| weight.to_data().convert(DType::F64).to_vec::<f64>());
    assert_eq!(embed, head);
    assert!(embed.iter().zip(&SGD).all(|(a, b)| (a - b).abs() < 0.03), "{embed:?}");
}
