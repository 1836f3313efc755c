//! Properties of every optimizer: resuming is exact, training converges, options are checked.

use kiln_backends::Flex;
use kiln_nn::{GradientsParams, Module, Param};
use kiln_optim::*;
use kiln_tensor::{Autodiff, Backend, Tensor};

type B = Autodiff<Flex>;

#[derive(Debug, Module)]
struct Net<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
}

impl Net<B> {
    fn new() -> Net<B> {
        let device = Default::default();
        let weight = Tensor::from_floats([[0.5, -1.0], [1.5, 0.25], [-0.75, 1.0]], &device);
        Net {
            weight: Param::from_tensor(weight),
            bias: Param::from_tensor(Tensor::from_floats([0.1, -0.2], &device)),
        }
    }

    /// A net with the same values and other ids, as in another process.
    fn copy(&self) -> Net<B> {
        Net {
            weight: Param::from_tensor(self.weight.val().detach()),
            bias: Param::from_tensor(self.bias.val().detach()),
        }
    }

    fn loss(&self) -> Tensor<B, 1> {
        let device = Default::default();
        let x = Tensor::<B, 2>::from_floats(
            [[1.0, 0.5, -1.0], [-0.5, 2.0, 0.25], [0.0, -1.0, 1.5], [2.0, 1.0, 0.5]],
            &device,
        );
        let y = Tensor::<B, 2>::from_floats([[0.5, 0.1], [-0.3, 0.7], [0.2, -0.6], [0.4, 0.3]], &device);
        let output = (x.matmul(self.weight.val()) + self.bias.val().unsqueeze_dim::<2>(0)).tanh();
        (output - y).square().mean()
    }

    fn gradients(&self) -> GradientsParams {
        GradientsParams::from_grads(self.loss().backward(), self)
    }

    fn numbers(&self) -> Vec<f32> {
        [self.weight.val().to_data().to_vec::<f32>(), self.bias.val().to_data().to_vec()].concat()
    }
}

type New = fn() -> Box<dyn Optimizer>;

/// Every optimizer and a learning rate.
fn all() -> Vec<(New, f64)> {
    vec![
        (|| Box::new(SgdConfig::new().with_momentum(0.9).init()), 0.05),
        (|| Box::new(AdamConfig::new().init()), 0.02),
        (|| Box::new(AdamWConfig::new().with_amsgrad(true).init()), 0.02),
        (|| Box::new(AdadeltaConfig::new().init()), 1.0),
        (|| Box::new(AdafactorConfig::new().init()), 0.05),
        (|| Box::new(AdagradConfig::new().init()), 0.1),
        (|| Box::new(AdamaxConfig::new().init()), 0.02),
        (|| Box::new(AdanConfig::new().init()), 0.02),
        (|| Box::new(AsgdConfig::new().with_t0(2.0).init()), 0.1),
        (|| Box::new(LambConfig::new().init()), 0.02),
        (|| Box::new(LarsConfig::new().init()), 5.0),
        (|| Box::new(LionConfig::new().init()), 0.005),
        (|| Box::new(muon()), 0.02),
        (|| Box::new(NAdamConfig::new().init()), 0.02),
        (|| Box::new(RAdamConfig::new().init()), 0.02),
        (|| Box::new(RmsPropConfig::new().with_momentum(0.5).with_centered(true).init()), 0.005),
        (|| Box::new(RpropConfig::new().init()), 0.01),
        (|| Box::new(ScheduleFreeAdamWConfig::new().init()), 0.05),
        (|| Box::new(ScheduleFreeSgdConfig::new().with_warmup_steps(4).init()), 0.5),
        (|| Box::new(ShampooConfig::new().with_momentum(0.5).with_update_interval(2).init()), 0.05),
        (|| Box::new(ShampooConfig::new().with_max_size(2).init()), 0.05),
        (|| Box::new(ShampooConfig::new().with_max_size(1).init()), 0.05),
        (|| Box::new(SoapConfig::new().with_update_interval(3).init()), 0.02),
        (|| Box::new(SophiaGConfig::new().init()), 0.005),
        (|| Box::new(LbfgsConfig::new().with_history_size(2).init()), 0.5),
    ]
}

fn muon() -> Muon {
    let adamw = AdamWConfig::new().rule().unwrap();
    let others = ParameterGroup::matching("bias").rule(adamw).learning_rate(1e-2);
    MuonConfig::new().with_weight_decay(0.01).init().with_group(others).unwrap()
}

fn train(optimizer: &mut Box<dyn Optimizer>, rate: f64, net: &mut Net<B>, steps: usize) {
    for _ in 0..steps {
        let gradients = net.gradients();
        optimizer.update(rate, net, gradients).unwrap();
    }
}

#[test]
fn every_optimizer_resumes_bit_for_bit() {
    for (new, rate) in all() {
        let (mut optimizer, mut net) = (new(), Net::new());
        train(&mut optimizer, rate, &mut net, 5);
        let state = optimizer.state(&net).unwrap();
        let name = state.optimizer().to_owned();

        let mut other = net.copy();
        let mut resumed = new();
        let loaded =
            OptimizerState::from_tensors(name.clone(), state.clone().into_tensors().unwrap()).unwrap();
        assert_eq!(loaded, state, "{name}");
        resumed.load_state(loaded, &other).unwrap();
        assert_eq!(resumed.state(&other).unwrap(), state, "{name}");

        train(&mut optimizer, rate, &mut net, 6);
        train(&mut resumed, rate, &mut other, 6);
        assert_eq!(net.numbers(), other.numbers(), "{name}");
        assert_eq!(optimizer.state(&net).unwrap(), resumed.state(&other).unwrap(), "{name}");
    }
}

#[test]
fn every_optimizer_lowers_the_loss_and_stays_finite() {
    for (new, rate) in all() {
        let (mut optimizer, mut net) = (new(), Net::new());
        let before = net.loss().into_scalar::<f32>();
        train(&mut optimizer, rate, &mut net, 200);
        optimizer.finish().unwrap();
        assert!(optimizer.last_report().unwrap().is_applied());
        optimizer.enter_eval(&mut net).unwrap();
        let after = net.loss().into_scalar::<f32>();
        let name = optimizer.state(&net).unwrap().optimizer().to_owned();
        assert!(net.numbers().iter().all(|x| x.is_finite()), "{name}");
        assert!(after < 0.9 * before, "{name}: {before} to {after}");
    }
}

#[test]
fn lbfgs_resumes_bit_for_bit_with_line_search() {
    let new = || LbfgsConfig::new().with_line_search(LineSearch::StrongWolfe).with_max_iter(2).init();
    let step = |optimizer: &mut Lbfgs, net: Net<B>| {
        optimizer.step_with(1.0, net, |net| {
            let loss = net.loss();
            let gradients = GradientsParams::from_grads(loss.backward(), net);
            (loss, gradients)
        })
    };
    let (mut optimizer, mut net) = (new(), Net::new());
    for _ in 0..3 {
        net = step(&mut optimizer, net);
    }
    assert!(optimizer.evaluations() >= 6);
    let mut other = net.copy();
    let mut resumed = new();
    let tensors = optimizer.state(&net).unwrap().into_tensors().unwrap();
    resumed.load_state(OptimizerState::from_tensors("lbfgs", tensors).unwrap(), &other).unwrap();
    for _ in 0..3 {
        net = step(&mut optimizer, net);
        other = step(&mut resumed, other);
    }
    assert_eq!(net.numbers(), other.numbers());
}

#[test]
fn other_optimizers_evaluate_a_closure_once() {
    let mut optimizer: Box<dyn Optimizer> = Box::new(SgdConfig::new().init());
    let mut count = 0;
    let mut straight = Net::new();
    let net = optimizer.step_with(0.1, straight.copy(), |net| {
        count += 1;
        (net.loss(), net.gradients())
    });
    let gradients = straight.gradients();
    optimizer.update(0.1, &mut straight, gradients).unwrap();
    assert_eq!(count, 1);
    assert_eq!(net.numbers(), straight.numbers());
}

#[test]
fn invalid_options_are_refused() {
    fn refused<T: std::fmt::Debug>(result: Result<T>, start: &str) {
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with(start), "{error}");
    }
    refused(AdadeltaConfig::new().with_rho(1.0).try_init(), "[adadelta] rho is 1");
    refused(AdafactorConfig::new().with_d(0.0).try_init(), "[adafactor] d is 0");
    refused(AdafactorConfig::new().with_beta_2_decay(0.1).try_init(), "[adafactor] beta_2_decay is 0.1");
    refused(AdagradConfig::new().with_lr_decay(-1.0).try_init(), "[adagrad] lr_decay is -1");
    refused(AdamaxConfig::new().with_beta_1(1.0).try_init(), "[adamax] beta_1 is 1");
    refused(AdanConfig::new().with_beta_3(-0.1).try_init(), "[adan] beta_3 is -0.1");
    refused(AsgdConfig::new().with_t0(-1.0).try_init(), "[asgd] t0 is -1");
    refused(LambConfig::new().with_epsilon(-1.0).try_init(), "[lamb] epsilon is -1");
    refused(LarsConfig::new().with_trust_coefficient(0.0).try_init(), "[lars] trust_coefficient is 0");
    refused(LbfgsConfig::new().with_max_iter(0).try_init(), "[lbfgs] max_iter is 0");
    refused(LionConfig::new().with_beta_2(1.0).try_init(), "[lion] beta_2 is 1");
    refused(MuonConfig::new().with_momentum(1.0).try_init(), "[muon] momentum is 1");
    refused(NAdamConfig::new().with_momentum_decay(-1.0).try_init(), "[nadam] momentum_decay is -1");
    refused(RAdamConfig::new().with_beta_2(f64::NAN).try_init(), "[radam] beta_2 is NaN");
    refused(RmsPropConfig::new().with_alpha(1.0).try_init(), "[rmsprop] alpha is 1");
    refused(RpropConfig::new().with_eta_plus(1.0).try_init(), "[rprop] eta_plus is 1");
    refused(RpropConfig::new().with_max_step(1e-7).try_init(), "[rprop] max_step is");
    refused(
        ScheduleFreeSgdConfig::new().with_momentum(0.0).try_init(),
        "[schedule_free_sgd] the momentum is 0",
    );
    refused(ScheduleFreeAdamWConfig::new().with_r(-1.0).try_init(), "[schedule_free_adamw] r is -1");
    refused(ShampooConfig::new().with_epsilon(0.0).try_init(), "[shampoo] epsilon is 0");
    refused(SoapConfig::new().with_update_interval(0).try_init(), "[soap] update_interval is 0");
    refused(SophiaGConfig::new().with_rho(0.0).try_init(), "[sophia_g] rho is 0");
}

#[test]
fn muon_refuses_vectors_without_a_group() {
    let mut net = Net::new();
    let gradients = net.gradients();
    let error = MuonConfig::new().init().update(0.1, &mut net, gradients).unwrap_err();
    assert_eq!(
        error.to_string(),
        "[muon] parameter `bias` is f32[2], but the rule needs a matrix\n  \
         hint: give other parameters another rule, with `ParameterGroup::rule`"
    );
    assert_eq!(net.numbers(), Net::new().numbers());
}
