//! Optimizers: the parameters after each step, and clipping.

use super::call::{Call, Outputs};
use kiln_backends::Dyn;
use kiln_nn::{GradientsParams, Module, Param, ParamId};
use kiln_optim::{
    AdadeltaConfig, AdafactorConfig, AdagradConfig, AdamConfig, AdamWConfig, AdamaxConfig, AsgdConfig,
    LbfgsConfig, LineSearch, MuonConfig, MuonScale, NAdamConfig, Norm, Optimizer, RAdamConfig, RmsPropConfig,
    RpropConfig, SgdConfig, clip_grad_norm_with, clip_grad_value,
};
use kiln_tensor::{Backend, Tensor, TensorData};

/// The trained parameters.
#[derive(Debug, Module)]
struct Parameters<B: Backend, const D: usize> {
    weight: Param<Tensor<B, D>>,
    bias: Option<Param<Tensor<B, 1>>>,
}

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    match &*call.op {
        "clip_by_norm" => clip_by_norm(call),
        "clip_by_value" => clip_by_value(call),
        "lbfgs" => lbfgs(call),
        _ => match call.input("weight").rank() {
            2 => trajectory::<2, 3>(call, optimizer(call)),
            3 => trajectory::<3, 4>(call, optimizer(call)),
            rank => panic!("no golden has a weight of {rank} axes"),
        },
    }
}

/// The parameters after each step, `G` axes for weights of `D` axes.
fn trajectory<const D: usize, const G: usize>(call: &Call<'_>, mut optimizer: Box<dyn Optimizer>) -> Outputs {
    let bias = call.optional_tensor("bias").map(Param::from_tensor);
    let mut module = Parameters::<Dyn, D> { weight: Param::from_tensor(call.tensor("weight")), bias };
    let (weights, biases) =
        (call.tensor::<G>("weight_gradients"), call.optional_tensor::<2>("bias_gradients"));
    let (mut weight_steps, mut bias_steps) = (Vec::new(), Vec::new());
    for step in 0..weights.dims()[0] {
        let mut gradients = GradientsParams::new();
        let weight = weights.clone().narrow(0, step, 1).squeeze_dim::<D>(0);
        gradients.insert(module.weight.id(), weight.into_any().inner());
        if let (Some(bias), Some(biases)) = (&module.bias, &biases) {
            let gradient = biases.clone().narrow(0, step, 1).squeeze_dim::<1>(0);
            gradients.insert(bias.id(), gradient.into_any().inner());
        }
        let report = optimizer.update(call.real("learning_rate"), &mut module, gradients);
        report.expect("gradients of the parameters' shapes");
        weight_steps.push(module.weight.val().detach().unsqueeze_dim::<G>(0));
        bias_steps.extend(module.bias.as_ref().map(|bias| bias.val().detach().unsqueeze_dim::<2>(0)));
    }
    let mut outputs = vec![Some(Tensor::cat(weight_steps, 0).into_any())];
    if !bias_steps.is_empty() {
        outputs.push(Some(Tensor::cat(bias_steps, 0).into_any()));
    }
    Ok(outputs)
}

/// The points after each step of L-BFGS on `mean((tanh(a x) - y)^2) + sum(x^2) / 20`.
fn lbfgs(call: &Call<'_>) -> Outputs {
    #[derive(Debug, Module)]
    struct Point<B: Backend> {
        x: Param<Tensor<B, 2>>,
    }
    if !call.device.is_autodiff() {
        // The closure computes gradients.
        return Ok(vec![None]);
    }
    let column = |name: &str| call.tensor::<1>(name).unsqueeze_dim::<2>(1);
    let (a, y) = (call.tensor::<2>("a"), column("y"));
    let mut point = Point::<Dyn> { x: Param::from_tensor(column("x")) };
    let line_search = match call.attributes["line_search_fn"].as_str() {
        None => LineSearch::Fixed,
        Some("strong_wolfe") => LineSearch::StrongWolfe,
        Some(other) => panic!("unknown line search {other}"),
    };
    let mut optimizer = LbfgsConfig::new()
        .with_max_iter(call.count("max_iter") as u64)
        .with_history_size(call.count("history_size") as u64)
        .with_line_search(line_search)
        .init();
    let mut steps: Vec<Tensor<Dyn, 2>> = Vec::new();
    for _ in 0..call.golden_tensor("x_steps").shape()[0] {
        point = optimizer.step_with(call.real("learning_rate"), point, |point| {
            let x = point.x.val();
            let loss = (a.clone().matmul(x.clone()).tanh() - y.clone()).square().mean();
            let loss = loss + x.square().sum() / 20;
            let gradients = GradientsParams::from_grads(loss.backward(), point);
            (loss, gradients)
        });
        steps.push(point.x.val().detach().transpose());
    }
    Ok(vec![Some(Tensor::cat(steps, 0).into_any())])
}

/// The optimizer of a case with its attributes.
fn optimizer(call: &Call<'_>) -> Box<dyn Optimizer> {
    let pair = |name: &str, place: usize| call.optional_reals(name).expect("two numbers")[place];
    let beta = |place: usize| pair("betas", place);
    let flag = |name: &str| call.attributes[name].as_bool().unwrap_or(false);
    match &*call.op {
        "sgd" => Box::new(
            SgdConfig::new()
                .with_momentum(call.real("momentum"))
                .with_dampening(call.real("dampening"))
                .with_nesterov(flag("nesterov"))
                .with_weight_decay(call.real("weight_decay"))
                .with_maximize(flag("maximize"))
                .init(),
        ),
        "adam" => Box::new(
            AdamConfig::new()
                .with_beta_1(beta(0))
                .with_beta_2(beta(1))
                .with_epsilon(call.real("epsilon"))
                .with_weight_decay(call.real("weight_decay"))
                .with_amsgrad(flag("amsgrad"))
                .init(),
        ),
        "adamw" => Box::new(
            AdamWConfig::new()
                .with_beta_1(beta(0))
                .with_beta_2(beta(1))
                .with_epsilon(call.real("epsilon"))
                .with_weight_decay(call.real("weight_decay"))
                .with_amsgrad(flag("amsgrad"))
                .init(),
        ),
        "adamax" => Box::new(
            AdamaxConfig::new()
                .with_beta_1(beta(0))
                .with_beta_2(beta(1))
                .with_epsilon(call.real("epsilon"))
                .with_weight_decay(call.real("weight_decay"))
                .with_maximize(flag("maximize"))
                .init(),
        ),
        "nadam" => Box::new(
            NAdamConfig::new()
                .with_beta_1(beta(0))
                .with_beta_2(beta(1))
                .with_epsilon(call.real("epsilon"))
                .with_weight_decay(call.real("weight_decay"))
                .with_momentum_decay(call.real("momentum_decay"))
                .with_decoupled_weight_decay(flag("decoupled_weight_decay"))
                .with_maximize(flag("maximize"))
                .init(),
        ),
        "radam" => Box::new(
            RAdamConfig::new()
                .with_beta_1(beta(0))
                .with_beta_2(beta(1))
                .with_epsilon(call.real("epsilon"))
                .with_weight_decay(call.real("weight_decay"))
                .with_decoupled_weight_decay(flag("decoupled_weight_decay"))
                .with_maximize(flag("maximize"))
                .init(),
        ),
        "rmsprop" => Box::new(
            RmsPropConfig::new()
                .with_alpha(call.real("alpha"))
                .with_epsilon(call.real("epsilon"))
                .with_weight_decay(call.real("weight_decay"))
                .with_momentum(call.real("momentum"))
                .with_centered(flag("centered"))
                .with_maximize(flag("maximize"))
                .init(),
        ),
        "adagrad" => Box::new(
            AdagradConfig::new()
                .with_lr_decay(call.real("lr_decay"))
                .with_weight_decay(call.real("weight_decay"))
                .with_initial_accumulator_value(call.real("initial_accumulator_value"))
                .with_epsilon(call.real("epsilon"))
                .with_maximize(flag("maximize"))
                .init(),
        ),
        "adadelta" => Box::new(
            AdadeltaConfig::new()
                .with_rho(call.real("rho"))
                .with_epsilon(call.real("epsilon"))
                .with_weight_decay(call.real("weight_decay"))
                .with_maximize(flag("maximize"))
                .init(),
        ),
        "asgd" => Box::new(
            AsgdConfig::new()
                .with_lambda(call.real("lambd"))
                .with_alpha(call.real("alpha"))
                .with_t0(call.real("t0"))
                .with_weight_decay(call.real("weight_decay"))
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
                .with_beta_2_decay(call.real("beta2_decay"))
                .with_epsilon_1(call.real("epsilon_1"))
                .with_epsilon_2(call.real("eps_2"))
                .with_d(call.real("d"))
                .with_weight_decay(call.real("weight_decay"))
                .with_maximize(flag("maximize"))
                .init(),
        ),
        "muon" => Box::new(
            MuonConfig::new()
                .with_weight_decay(call.real("weight_decay"))
                .with_momentum(call.real("momentum"))
                .with_nesterov(flag("nesterov"))
                .with_iterations(call.count("ns_steps"))
                .with_scale(match call.text("adjust_lr_fn") {
                    "original" => MuonScale::Original,
                    "match_rms_adamw" => MuonScale::MatchRmsAdamW,
                    other => panic!("unknown scale {other}"),
                })
                .init(),
        ),
        op => panic!("unknown optimizer {op}"),
    }
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
