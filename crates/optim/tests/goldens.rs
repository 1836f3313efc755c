//! Trajectories and clipping against PyTorch: the `optimizer` family of the suite's goldens.

use std::fs;
use std::path::Path;

use kiln_backends::Flex;
use kiln_nn::{GradientsParams, Module, Param};
use kiln_optim::{AdamConfig, AdamWConfig, Norm, Optimizer, SgdConfig, clip_grad_norm_with, clip_grad_value};
use kiln_tensor::{Autodiff, Backend, Tensor, TensorData};
use safetensors::SafeTensors;
use serde_json::Value;

type B = Autodiff<Flex>;

/// Optimizers in the goldens that Kiln does not have yet.
const ABSENT: [&str; 6] = ["adamax", "nadam", "radam", "rmsprop", "adagrad", "adadelta"];

#[derive(Debug, Module)]
struct Layer<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
}

#[test]
fn trajectories_match_pytorch() {
    let mut seen = 0;
    for case in cases().iter().filter(|case| !case.op().starts_with("clip_")) {
        let Some(mut optimizer) = optimizer(case) else {
            assert!(ABSENT.contains(&case.op()), "unknown optimizer {}", case.op());
            continue;
        };
        follow(case, &mut optimizer);
        seen += 1;
    }
    assert_eq!(seen, 19);
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

fn optimizer(case: &Case) -> Option<Box<dyn Optimizer>> {
    let beta = |place: usize| case.attributes["betas"][place].as_f64().unwrap();
    Some(match case.op() {
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
        _ => return None,
    })
}

#[test]
fn gradient_clipping_matches_pytorch() {
    let mut seen = 0;
    for case in cases().iter().filter(|case| case.op().starts_with("clip_")) {
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

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../suite/goldens");
    let file = fs::read(folder.join("optimizer.safetensors")).unwrap();
    let json: Value = serde_json::from_slice(&fs::read(folder.join("optimizer.json")).unwrap()).unwrap();
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
        self.attributes[attribute].as_bool().unwrap()
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
