//! Trajectories and clipping against PyTorch: the families `optimizer` and `optimizer2` of the suite's goldens.

use std::fs;
use std::path::Path;

use kiln_backends::Flex;
use kiln_nn::{GradientsParams, Module, Param};
use kiln_optim::{
    AdadeltaConfig, AdafactorConfig, AdagradConfig, AdamConfig, AdamWConfig, AdamaxConfig, AsgdConfig,
    LbfgsConfig, LineSearch, MuonConfig, MuonScale, NAdamConfig, Norm, Optimizer, RAdamConfig, RmsPropConfig,
    RpropConfig, SgdConfig, clip_grad_norm_with, clip_grad_value,
};
use kiln_tensor::{Autodiff, Backend, Tensor, TensorData};
use safetensors::SafeTensors;
use serde_json::Value;

type B = Autodiff<Flex>;

#[derive(Debug, Module)]
struct Layer<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
}

#[test]
fn trajectories_match_pytorch() {
    let mut seen = 0;
    for case in cases("optimizer").iter().filter(|case| !case.op().starts_with("clip_")) {
        follow(case, &mut optimizer(case));
        seen += 1;
    }
    assert_eq!(seen, 32);
}

#[test]
fn long_trajectories_match_pytorch() {
    let mut seen = 0;
    for case in cases("optimizer2").iter().filter(|case| case.op() != "lbfgs") {
        match (case.op(), case.tensor("weight").shape().rank()) {
            ("muon", _) => follow_weight::<2>(case, &mut optimizer(case)),
            (_, 2) => follow(case, &mut optimizer(case)),
            (_, 3) => follow_weight::<3>(case, &mut optimizer(case)),
            (op, rank) => panic!("{op} of rank {rank}"),
        }
        seen += 1;
    }
    assert_eq!(seen, 24);
}

/// Follows the weight alone.
fn follow_weight<const D: usize>(case: &Case, optimizer: &mut Box<dyn Optimizer>) {
    #[derive(Debug, Module)]
    struct Weight<B: Backend, const D: usize> {
        weight: Param<Tensor<B, D>>,
    }
    let device = Default::default();
    let weight = Param::from_tensor(Tensor::from_floats(case.tensor("weight"), &device));
    let mut layer = Weight::<B, D> { weight };
    let (gradients, steps) = (case.tensor("weight_gradients"), case.tensor("weight_steps"));
    for step in 0..gradients.shape()[0] {
        let gradient = Tensor::<Flex, D>::from_floats(row(&gradients, step), &device);
        let gradients = GradientsParams::from_iter([(layer.weight.id(), gradient.into_any())]);
        optimizer.update(case.number("learning_rate"), &mut layer, gradients).unwrap();
        case.compare(&layer.weight.to_data(), &row(&steps, step));
    }
}

#[test]
fn lbfgs_matches_pytorch() {
    #[derive(Debug, Module)]
    struct Point<B: Backend> {
        x: Param<Tensor<B, 2>>,
    }
    let mut seen = 0;
    for case in cases("optimizer2").iter().filter(|case| case.op() == "lbfgs") {
        let device = Default::default();
        let a = Tensor::<B, 2>::from_floats(case.tensor("a"), &device);
        let column = |name: &str| {
            let data = case.tensor(name);
            let length = data.num_elements();
            Tensor::<B, 2>::from_floats(data.reshape([length, 1]).unwrap(), &device)
        };
        let y = column("y");
        let mut point = Point::<B> { x: Param::from_tensor(column("x")) };
        let line_search = match case.attributes["line_search_fn"].as_str() {
            None => LineSearch::Fixed,
            Some(_) => LineSearch::StrongWolfe,
        };
        let mut optimizer = LbfgsConfig::new()
            .with_max_iter(case.number("max_iter") as u64)
            .with_history_size(case.number("history_size") as u64)
            .with_line_search(line_search)
            .init();
        let steps = case.tensor("x_steps");
        for step in 0..steps.shape()[0] {
            point = optimizer.step_with(case.number("learning_rate"), point, |point| {
                let x = point.x.val();
                let loss = (a.clone().matmul(x.clone()).tanh() - y.clone()).square().mean();
                let loss = loss + x.square().sum() / 20;
                let gradients = GradientsParams::from_grads(loss.backward(), point);
                (loss, gradients)
            });
            let found = point.x.to_data().reshape([3]).unwrap();
            case.compare(&found, &row(&steps, step));
        }
        seen += 1;
    }
    assert_eq!(seen, 5);
}

fn follow(case: &Case, optimizer: &mut Box<dyn Optimizer>) {
    let device = Default::default();
    let mut layer = Layer::<B> {
        weight: Param::from_tensor(Tensor::from_floats(case.tensor("weight"), &device)),
        bias: Param::from_tensor(Tensor::from_floats(case.tensor("bias"), &device)),
    };
    let (weights, biases) = (case.tensor("weight_gradients"), case.tensor("bias_gradients"));
    let (weight_steps, bias_steps) = (case.tensor("weight_steps"), case.tensor("bias_steps"));
    for step in 0..weights.shape()[0] {
        let gradients = GradientsParams::from_iter([
            (layer.weight.id(), Tensor::<Flex, 2>::from_floats(row(&weights, step), &device).into_any()),
            (layer.bias.id(), Tensor::<Flex, 1>::from_floats(row(&biases, step), &device).into_any()),
        ]);
        optimizer.update(case.number("learning_rate"), &mut layer, gradients).unwrap();
        case.compare(&layer.weight.to_data(), &row(&weight_steps, step));
        case.compare(&layer.bias.to_data(), &row(&bias_steps, step));
    }
    assert!(layer.weight.is_require_grad() && layer.bias.is_require_grad());
}

fn optimizer(case: &Case) -> Box<dyn Optimizer> {
    let pair = |name: &str, place: usize| case.attributes[name][place].as_f64().unwrap();
    let beta = |place: usize| pair("betas", place);
    match case.op() {
        "sgd" => Box::new(
            SgdConfig::new()
                .with_momentum(case.number("momentum"))
                .with_dampening(case.number("dampening"))
                .with_nesterov(case.flag("nesterov"))
                .with_weight_decay(case.number("weight_decay"))
                .with_maximize(case.flag("maximize"))
                .init(),
        ),
        "adam" => Box::new(
            AdamConfig::new()
                .with_beta_1(beta(0))
                .with_beta_2(beta(1))
                .with_epsilon(case.number("epsilon"))
                .with_weight_decay(case.number("weight_decay"))
                .with_amsgrad(case.flag("amsgrad"))
                .init(),
        ),
        "adamw" => Box::new(
            AdamWConfig::new()
                .with_beta_1(beta(0))
                .with_beta_2(beta(1))
                .with_epsilon(case.number("epsilon"))
                .with_weight_decay(case.number("weight_decay"))
                .with_amsgrad(case.flag("amsgrad"))
                .init(),
        ),
        "adamax" => Box::new(
            AdamaxConfig::new()
                .with_beta_1(beta(0))
                .with_beta_2(beta(1))
                .with_epsilon(case.number("epsilon"))
                .with_weight_decay(case.number("weight_decay"))
                .with_maximize(case.flag("maximize"))
                .init(),
        ),
        "nadam" => Box::new(
            NAdamConfig::new()
                .with_beta_1(beta(0))
                .with_beta_2(beta(1))
                .with_epsilon(case.number("epsilon"))
                .with_weight_decay(case.number("weight_decay"))
                .with_momentum_decay(case.number("momentum_decay"))
                .with_decoupled_weight_decay(case.flag("decoupled_weight_decay"))
                .with_maximize(case.flag("maximize"))
                .init(),
        ),
        "radam" => Box::new(
            RAdamConfig::new()
                .with_beta_1(beta(0))
                .with_beta_2(beta(1))
                .with_epsilon(case.number("epsilon"))
                .with_weight_decay(case.number("weight_decay"))
                .with_decoupled_weight_decay(case.flag("decoupled_weight_decay"))
                .with_maximize(case.flag("maximize"))
                .init(),
        ),
        "rmsprop" => Box::new(
            RmsPropConfig::new()
                .with_alpha(case.number("alpha"))
                .with_epsilon(case.number("epsilon"))
                .with_weight_decay(case.number("weight_decay"))
                .with_momentum(case.number("momentum"))
                .with_centered(case.flag("centered"))
                .with_maximize(case.flag("maximize"))
                .init(),
        ),
        "adagrad" => Box::new(
            AdagradConfig::new()
                .with_lr_decay(case.number("lr_decay"))
                .with_weight_decay(case.number("weight_decay"))
                .with_initial_accumulator_value(case.number("initial_accumulator_value"))
                .with_epsilon(case.number("epsilon"))
                .with_maximize(case.flag("maximize"))
                .init(),
        ),
        "adadelta" => Box::new(
            AdadeltaConfig::new()
                .with_rho(case.number("rho"))
                .with_epsilon(case.number("epsilon"))
                .with_weight_decay(case.number("weight_decay"))
                .with_maximize(case.flag("maximize"))
                .init(),
        ),
        "asgd" => Box::new(
            AsgdConfig::new()
                .with_lambda(case.number("lambd"))
                .with_alpha(case.number("alpha"))
                .with_t0(case.number("t0"))
                .with_weight_decay(case.number("weight_decay"))
                .init(),
        ),
        "rprop" => Box::new(
            RpropConfig::new()
                .with_eta_minus(pair("etas", 0))
                .with_eta_plus(pair("etas", 1))
                .with_min_step(pair("step_sizes", 0))
                .with_max_step(pair("step_sizes", 1))
                .init(),
        ),
        "adafactor" => Box::new(
            AdafactorConfig::new()
                .with_beta_2_decay(case.number("beta2_decay"))
                .with_epsilon_1(case.number("epsilon_1"))
                .with_epsilon_2(case.number("eps_2"))
                .with_d(case.number("d"))
                .with_weight_decay(case.number("weight_decay"))
                .with_maximize(case.flag("maximize"))
                .init(),
        ),
        "muon" => Box::new(
            MuonConfig::new()
                .with_weight_decay(case.number("weight_decay"))
                .with_momentum(case.number("momentum"))
                .with_nesterov(case.flag("nesterov"))
                .with_iterations(case.number("ns_steps") as usize)
                .with_scale(match case.attributes["adjust_lr_fn"].as_str().unwrap() {
                    "original" => MuonScale::Original,
                    _ => MuonScale::MatchRmsAdamW,
                })
                .init(),
        ),
        op => panic!("unknown optimizer {op}"),
    }
}

#[test]
fn gradient_clipping_matches_pytorch() {
    let mut seen = 0;
    for case in cases("optimizer").iter().filter(|case| case.op().starts_with("clip_")) {
        let device = Default::default();
        let ids = [kiln_nn::ParamId::new(), kiln_nn::ParamId::new()];
        let (a, b) = (case.tensor("a"), case.tensor("b"));
        let mut gradients = GradientsParams::from_iter([
            (ids[0], Tensor::<Flex, 2>::from_floats(a, &device).into_any()),
            (ids[1], Tensor::<Flex, 1>::from_floats(b, &device).into_any()),
        ]);
        if case.op() == "clip_by_value" {
            clip_grad_value(&mut gradients, case.number("limit")).unwrap();
        } else {
            let norm = match case.attributes["norm_type"].as_f64() {
                None => Norm::Infinity,
                Some(1.0) => Norm::L1,
                Some(2.0) => Norm::L2,
                Some(order) => Norm::P(order),
            };
            let total = clip_grad_norm_with(&mut gradients, case.number("max_norm"), norm).unwrap();
            case.compare(&TensorData::scalar(total), &case.tensor("total_norm"));
        }
        for (id, name) in ids.into_iter().zip(["clipped_a", "clipped_b"]) {
            case.compare(&gradients.get(id).unwrap().to_data().unwrap(), &case.tensor(name));
        }
        seen += 1;
    }
    assert_eq!(seen, 6);
}

struct Case {
    name: String,
    op: String,
    attributes: Value,
    absolute: f64,
    relative: f64,
    file: Vec<u8>,
}

fn cases(family: &str) -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../suite/goldens");
    let file = fs::read(folder.join(format!("{family}.safetensors"))).unwrap();
    let json: Value =
        serde_json::from_slice(&fs::read(folder.join(format!("{family}.json"))).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let case = |case: &Value| Case {
        name: text(&case["name"]),
        op: text(&case["op"]),
        attributes: case["attributes"].clone(),
        absolute: case["tolerance"]["absolute"].as_f64().unwrap(),
        relative: case["tolerance"]["relative"].as_f64().unwrap(),
        file: file.clone(),
    };
    json.as_array().unwrap().iter().map(case).collect()
}

impl Case {
    fn op(&self) -> &str {
        &self.op
    }

    fn number(&self, attribute: &str) -> f64 {
        self.attributes[attribute].as_f64().unwrap()
    }

    fn flag(&self, attribute: &str) -> bool {
        match self.attributes.get(attribute) {
            Some(flag) => flag.as_bool().unwrap(),
            None => false,
        }
    }

    fn tensor(&self, name: &str) -> TensorData {
        let tensors = SafeTensors::deserialize(&self.file).unwrap();
        let view = tensors.tensor(&format!("{}/{name}", self.name)).unwrap();
        let numbers = view.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        TensorData::new(numbers.collect::<Vec<_>>(), view.shape()).unwrap()
    }

    fn compare(&self, found: &TensorData, expected: &TensorData) {
        assert_eq!(found.shape(), expected.shape(), "{}", self.name);
        for (found, expected) in found.to_vec::<f64>().into_iter().zip(expected.to_vec::<f64>()) {
            let allowed = self.absolute + self.relative * expected.abs();
            assert!((found - expected).abs() <= allowed, "{}: {found} instead of {expected}", self.name);
        }
    }
}

/// The elements at `index` of the first axis.
fn row(data: &TensorData, index: usize) -> TensorData {
    let shape = data.shape().without(0);
    let length = shape.num_elements();
    let numbers = data.to_vec::<f32>();
    TensorData::new(numbers[index * length..][..length].to_vec(), shape).unwrap()
}
