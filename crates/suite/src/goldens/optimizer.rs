//! Optimizers: the parameters after each of twelve steps, and clipping.

use super::call::{Call, Outputs};
use kiln_nn::{GradientsParams, Module, Param, ParamId};
use kiln_optim::{
    AdadeltaConfig, AdagradConfig, AdamConfig, AdamWConfig, AdamaxConfig, NAdamConfig, Norm, Optimizer,
    RAdamConfig, RmsPropConfig, SgdConfig, clip_grad_norm_with, clip_grad_value,
};
use kiln_tensor::{AnyTensor, Backend, Tensor, TensorData};

/// The trained parameters.
#[derive(Debug, Module)]
struct Parameters<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
}

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let real = |name: &str| call.real(name);
    let betas = || call.optional_reals("betas").expect("two betas");
    match &*call.op {
        "sgd" => {
            let config = SgdConfig {
                momentum: real("momentum"),
                dampening: real("dampening"),
                nesterov: call.flag("nesterov"),
                weight_decay: real("weight_decay"),
                maximize: call.flag("maximize"),
                grad_clipping: None,
            };
            trajectory(call, config.init())
        }
        "adam" => {
            let config = AdamConfig {
                beta_1: betas()[0],
                beta_2: betas()[1],
                epsilon: real("epsilon"),
                weight_decay: real("weight_decay"),
                amsgrad: call.flag("amsgrad"),
                grad_clipping: None,
            };
            trajectory(call, config.init())
        }
        "adamw" => {
            let config = AdamWConfig {
                beta_1: betas()[0],
                beta_2: betas()[1],
                epsilon: real("epsilon"),
                weight_decay: real("weight_decay"),
                amsgrad: call.flag("amsgrad"),
                grad_clipping: None,
            };
            trajectory(call, config.init())
        }
        "adamax" => {
            let config = AdamaxConfig::new()
                .with_beta_1(betas()[0])
                .with_beta_2(betas()[1])
                .with_epsilon(real("epsilon"))
                .with_weight_decay(real("weight_decay"));
            trajectory(call, config.init())
        }
        "nadam" => {
            let config = NAdamConfig::new()
                .with_beta_1(betas()[0])
                .with_beta_2(betas()[1])
                .with_epsilon(real("epsilon"))
                .with_weight_decay(real("weight_decay"))
                .with_momentum_decay(real("momentum_decay"));
            trajectory(call, config.init())
        }
        "radam" => {
            let config = RAdamConfig::new()
                .with_beta_1(betas()[0])
                .with_beta_2(betas()[1])
                .with_epsilon(real("epsilon"))
                .with_weight_decay(real("weight_decay"));
            trajectory(call, config.init())
        }
        "rmsprop" => {
            let config = RmsPropConfig::new()
                .with_alpha(real("alpha"))
                .with_epsilon(real("epsilon"))
                .with_weight_decay(real("weight_decay"))
                .with_momentum(real("momentum"))
                .with_centered(call.flag("centered"));
            trajectory(call, config.init())
        }
        "adagrad" => {
            let config = AdagradConfig::new()
                .with_lr_decay(real("lr_decay"))
                .with_epsilon(real("epsilon"))
                .with_weight_decay(real("weight_decay"))
                .with_initial_accumulator_value(real("initial_accumulator_value"));
            trajectory(call, config.init())
        }
        "adadelta" => {
            let config = AdadeltaConfig::new()
                .with_rho(real("rho"))
                .with_epsilon(real("epsilon"))
                .with_weight_decay(real("weight_decay"));
            trajectory(call, config.init())
        }
        "clip_by_norm" => clip_by_norm(call),
        "clip_by_value" => clip_by_value(call),
        op => panic!("unknown op {op}"),
    }
}

fn trajectory(call: &Call<'_>, mut optimizer: impl Optimizer) -> Outputs {
    let mut module = Parameters {
        weight: Param::from_tensor(call.tensor("weight")),
        bias: Param::from_tensor(call.tensor("bias")),
    };
    let (weights, biases) = (call.tensor::<3>("weight_gradients"), call.tensor::<2>("bias_gradients"));
    let (mut weight_steps, mut bias_steps) = (Vec::new(), Vec::new());
    for step in 0..weights.dims()[0] {
        let mut gradients = GradientsParams::new();
        let weight = weights.clone().narrow(0, step, 1).squeeze_dim::<2>(0);
        let bias = biases.clone().narrow(0, step, 1).squeeze_dim::<1>(0);
        gradients.insert(module.weight.id(), weight.into_any().inner());
        gradients.insert(module.bias.id(), bias.into_any().inner());
        module = optimizer.step(call.real("learning_rate"), module, gradients);
        weight_steps.push(module.weight.val().unsqueeze_dim::<3>(0).into_any().detach());
        bias_steps.push(module.bias.val().unsqueeze_dim::<2>(0).into_any().detach());
    }
    let join = |steps: Vec<AnyTensor>| Some(AnyTensor::cat(steps, 0).expect("steps of one shape"));
    Ok(vec![join(weight_steps), join(bias_steps)])
}

fn gradients(call: &Call<'_>) -> ([ParamId; 2], GradientsParams) {
    let ids = [ParamId::new(), ParamId::new()];
    let mut gradients = GradientsParams::new();
    gradients.insert(ids[0], call.input("a").clone());
    gradients.insert(ids[1], call.input("b").clone());
    (ids, gradients)
}

fn clip_by_norm(call: &Call<'_>) -> Outputs {
    let (ids, mut gradients) = gradients(call);
    let norm = match call.real("norm_type") {
        1.0 => Norm::L1,
        2.0 => Norm::L2,
        f64::INFINITY => Norm::Infinity,
        p => Norm::P(p),
    };
    let total = clip_grad_norm_with(&mut gradients, call.real("max_norm"), norm).expect("valid gradients");
    let total = call.place(&TensorData::scalar(total as f32));
    Ok(vec![gradients.remove(ids[0]), gradients.remove(ids[1]), Some(total)])
}

fn clip_by_value(call: &Call<'_>) -> Outputs {
    let (ids, mut gradients) = gradients(call);
    clip_grad_value(&mut gradients, call.real("limit")).expect("valid gradients");
    Ok(vec![gradients.remove(ids[0]), gradients.remove(ids[1])])
}
