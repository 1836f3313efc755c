//! Optimizers and learning-rate schedules, as tables.

use super::Twin;
use crate::check::Outcome;
use kiln_backends::{Device, Dyn};
use kiln_ir::DType;
use kiln_nn::{GradientsParams, Module, Param};
use kiln_optim::lr_scheduler::{self, LearningRate};
use kiln_optim::*;
use kiln_tensor::{Backend, Tensor};

const ABSENT: &str = "PyTorch has no such optimizer; its formula is tested in `f64`";
const NO_SCHEDULE: &str = "PyTorch has no such schedule; its formula is tested";

/// An optimizer and its learning rate on the test problem.
#[derive(Clone, Copy)]
pub struct OptimizerRow {
    /// The name of the type.
    pub name: &'static str,
    /// PyTorch's trajectories.
    pub twin: Twin,
    /// Creates the optimizer.
    pub new: fn() -> Box<dyn Optimizer>,
    /// The learning rate.
    pub rate: f64,
}

/// A learning-rate schedule.
#[derive(Clone, Copy)]
pub struct ScheduleRow {
    /// The name of the type.
    pub name: &'static str,
    /// PyTorch's trajectories.
    pub twin: Twin,
    /// Creates the schedule.
    pub new: fn() -> Box<dyn LearningRate>,
}

const fn first(op: &'static str) -> Twin {
    Twin::Golden("optimizer", op)
}

const fn second(op: &'static str) -> Twin {
    Twin::Golden("optimizer2", op)
}

const fn schedule(op: &'static str) -> Twin {
    Twin::Golden("schedule", op)
}

macro_rules! optimizers {
    ($($name:literal $twin:expr, $rate:literal, $new:expr;)+) => {
        &[$(OptimizerRow { name: $name, twin: $twin, new: || Box::new($new), rate: $rate }),+]
    };
}

macro_rules! schedules {
    ($($name:literal $twin:expr, $new:expr;)+) => {
        &[$(ScheduleRow { name: $name, twin: $twin, new: || Box::new($new) }),+]
    };
}

/// Every optimizer.
pub const OPTIMIZERS: &[OptimizerRow] = optimizers! {
    "Adadelta" first("adadelta"), 1.0, AdadeltaConfig::new().init();
    "Adafactor" second("adafactor"), 0.05, AdafactorConfig::new().init();
    "Adagrad" first("adagrad"), 0.1, AdagradConfig::new().init();
    "Adam" first("adam"), 0.02, AdamConfig::new().init();
    "AdamW" first("adamw"), 0.02, AdamWConfig::new().init();
    "Adamax" first("adamax"), 0.02, AdamaxConfig::new().init();
    "Adan" Twin::None(ABSENT), 0.02, AdanConfig::new().init();
    "Asgd" second("asgd"), 0.1, AsgdConfig::new().with_t0(2.0).init();
    "Lamb" Twin::None(ABSENT), 0.02, LambConfig::new().init();
    "Lars" Twin::None(ABSENT), 5.0, LarsConfig::new().init();
    "Lbfgs" second("lbfgs"), 0.5, LbfgsConfig::new().with_history_size(2).init();
    "Lion" Twin::None(ABSENT), 0.005, LionConfig::new().init();
    "Muon" second("muon"), 0.02, muon();
    "NAdam" first("nadam"), 0.02, NAdamConfig::new().init();
    "RAdam" first("radam"), 0.02, RAdamConfig::new().init();
    "RmsProp" first("rmsprop"), 0.005, RmsPropConfig::new().init();
    "Rprop" second("rprop"), 0.01, RpropConfig::new().init();
    "ScheduleFreeAdamW" Twin::None(ABSENT), 0.05, ScheduleFreeAdamWConfig::new().init();
    "ScheduleFreeSgd" Twin::None(ABSENT), 0.5, ScheduleFreeSgdConfig::new().init();
    "Sgd" first("sgd"), 0.05, SgdConfig::new().with_momentum(0.9).init();
    "Shampoo" Twin::None(ABSENT), 0.05, ShampooConfig::new().init();
    "Soap" Twin::None(ABSENT), 0.02, SoapConfig::new().with_update_interval(3).init();
    "SophiaG" Twin::None(ABSENT), 0.005, SophiaGConfig::new().init();
};

/// Every schedule.
pub const SCHEDULES: &[ScheduleRow] = schedules! {
    "Composed" schedule("chained"), lr_scheduler::Composed::new(lr_scheduler::SchedulerReduction::Prod).with(0.5);
    "Constant" schedule("constant"), lr_scheduler::Constant::new(0.1).expect("a rate");
    "Cosine" schedule("cosine"), lr_scheduler::Cosine::new(1.0, 0.0, 50).expect("rates");
    "CosineWarmRestarts" schedule("cosine_warm_restarts"), lr_scheduler::CosineWarmRestarts::new(1.0, 0.0, 10).expect("rates");
    "Cyclic" schedule("cyclic"), lr_scheduler::CyclicConfig::new(0.1, 1.0).init();
    "Exponential" schedule("exponential"), lr_scheduler::Exponential::new(1.0, 0.9).expect("rates");
    "InverseSqrt" Twin::None(NO_SCHEDULE), lr_scheduler::InverseSqrt::new(1.0, 10).expect("rates");
    "Lambda" schedule("lambda"), lr_scheduler::Lambda::new(1.0, |step| 1.0 / (1.0 + step as f64)).expect("a rate");
    "Linear" schedule("linear"), lr_scheduler::Linear::new(1.0, 0.0, 50).expect("rates");
    "MultiStep" schedule("multi_step"), lr_scheduler::MultiStep::new(1.0, 0.5, [10, 20]).expect("rates");
    "Multiplicative" schedule("multiplicative"), lr_scheduler::Multiplicative::new(1.0, |_| 0.9).expect("a rate");
    "Noam" Twin::None(NO_SCHEDULE), lr_scheduler::Noam::new(1.0, 64, 10).expect("rates");
    "OneCycle" schedule("one_cycle"), lr_scheduler::OneCycleConfig::new(1.0, 50).init();
    "Polynomial" schedule("polynomial"), lr_scheduler::Polynomial::new(1.0, 0.0, 50, 2.0).expect("rates");
    "ReduceOnPlateau" schedule("plateau"), lr_scheduler::ReduceOnPlateauConfig::new(1.0).with_patience(2).init();
    "Repeat" Twin::None(NO_SCHEDULE),
        lr_scheduler::Repeat::new(lr_scheduler::Linear::new(1.0, 0.0, 4).expect("rates"), 5).expect("a length");
    "Sequential" schedule("sequential"), lr_scheduler::Sequential::new().then(0.1, 5).finally(0.2);
    "Step" schedule("step"), lr_scheduler::Step::new(1.0, 0.5, 10).expect("rates");
    "SwaLr" schedule("swa"), lr_scheduler::SwaLr::new(0.5, 0.05, 10, lr_scheduler::AnnealStrategy::Cosine).expect("rates");
    "Warmup" Twin::None(NO_SCHEDULE), lr_scheduler::Warmup::new(0.5, 0.1, 20).expect("rates");
    "WarmupCosine" Twin::None(NO_SCHEDULE), lr_scheduler::WarmupCosine::new(1.0, 10, 50).expect("rates");
    "WarmupStableDecay" Twin::None(NO_SCHEDULE), lr_scheduler::WarmupStableDecayConfig::new(1.0, 10, 20, 20).init();
};

fn muon() -> Muon {
    let adamw = AdamWConfig::new().rule().expect("defaults");
    let others = ParameterGroup::matching("bias").rule(adamw).learning_rate(1e-2);
    MuonConfig::new().init().with_group(others).expect("a valid group")
}

/// A small regression.
#[derive(Debug, Module)]
struct Net<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
}

const INPUTS: [[f32; 3]; 4] = [[1.0, 0.5, -1.0], [-0.5, 2.0, 0.25], [0.0, -1.0, 1.5], [2.0, 1.0, 0.5]];
const TARGETS: [[f32; 2]; 4] = [[0.5, 0.1], [-0.3, 0.7], [0.2, -0.6], [0.4, 0.3]];

impl Net<Dyn> {
    fn new(device: &Device) -> Net<Dyn> {
        let weight = Tensor::from_floats([[0.5, -1.0], [1.5, 0.25], [-0.75, 1.0]], device);
        let bias = Tensor::from_floats([0.1, -0.2], device);
        Net { weight: Param::from_tensor(weight), bias: Param::from_tensor(bias) }
    }

    fn step(
        &mut self,
        row: &OptimizerRow,
        optimizer: &mut dyn Optimizer,
        device: &Device,
    ) -> Result<f64, String> {
        let (x, y) =
            (Tensor::<Dyn, 2>::from_floats(INPUTS, device), Tensor::<Dyn, 2>::from_floats(TARGETS, device));
        let output = (x.matmul(self.weight.val()) + self.bias.val().unsqueeze_dim::<2>(0)).tanh();
        let loss = (output - y).square().mean();
        let gradients = GradientsParams::from_grads(loss.backward(), self);
        let loss = loss.inner().into_scalar::<f64>();
        optimizer.update(row.rate, self, gradients).map_err(|error| error.to_string())?;
        Ok(loss)
    }

    fn numbers(&self) -> Vec<f64> {
        let weight = self.weight.to_data().convert(DType::F64).to_vec::<f64>();
        [weight, self.bias.to_data().convert(DType::F64).to_vec()].concat()
    }
}

/// Trains on an engine: after 20 steps the parameters are those of the CPU engine without fusion.
pub fn check_optimizer(row: &OptimizerRow, device: &Device) -> Outcome {
    let mut outcome = Outcome::default();
    let run = |device: &Device| {
        let device = device.autodiff();
        let (mut net, mut optimizer) = (Net::new(&device), (row.new)());
        for _ in 0..20 {
            net.step(row, &mut *optimizer, &device)?;
        }
        Ok::<_, String>(net.numbers())
    };
    let problem = match (run(&Device::flex()), run(device)) {
        (Ok(expected), Ok(found)) => {
            let worst = expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            (worst > 1e-3).then(|| format!("differs by {worst} after 20 steps"))
        }
        (Err(error), _) | (_, Err(error)) => Some(error),
    };
    outcome.note(row.name, problem);
    outcome
}

/// Trains for 1,000 steps: the loss stays finite and below the first, and memory does not grow after the first 100 steps.
pub fn check_long_training(row: &OptimizerRow, device: &Device) -> Outcome {
    let mut outcome = Outcome::default();
    let run = || {
        let device = device.autodiff();
        let (mut net, mut optimizer) = (Net::new(&device), (row.new)());
        let live = || Dyn::memory(&device).map_or(0, |memory| memory.live_bytes);
        let (mut start, mut before, mut last) = (None, 0, 0.0);
        for step in 0..1000 {
            last = net.step(row, &mut *optimizer, &device)?;
            start.get_or_insert(last);
            if step == 100 {
                before = live();
            }
        }
        let (start, after) = (start.unwrap_or(0.0), live());
        if !last.is_finite() || last >= start {
            return Err(format!("the loss went from {start} to {last}"));
        }
        if after > before {
            return Err(format!("memory grew from {before} to {after} bytes"));
        }
        Ok(())
    };
    outcome.note(row.name, run().err());
    outcome
}
