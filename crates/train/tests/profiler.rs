//! The profiler: the parts of a step, their work, and training that does not change.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use kiln_backends::{Cpu, Flex};
use kiln_ir::profile;
use kiln_nn::{Conv2d, Conv2dConfig, Linear, LinearConfig, Lstm, LstmConfig, Module};
use kiln_optim::{LbfgsConfig, SgdConfig};
use kiln_tensor::{Autodiff, AutodiffBackend, Backend, Tensor, activation};
use kiln_train::callback::profiler::{ProfileReport, scope};
use kiln_train::loader::TensorLoader;
use kiln_train::{
    Callback, Context, Event, FunctionTask, History, Learner, Profiler, Result, Step, StepOutput, Supervised,
    Trainable, Validation,
};

/// Two convolutions and a linear layer without biases: an op each.
#[derive(Clone, Debug, Module)]
struct Net<B: Backend> {
    conv1: Conv2d<B>,
    conv2: Conv2d<B>,
    fc: Linear<B>,
}

type Pair<B> = (Tensor<B, 4>, Tensor<B, 2>);

const BATCH: usize = 8;

fn ramp<B: Backend, const D: usize>(shape: [usize; D], scale: f64) -> Tensor<B, D> {
    let len = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..len).map(|i| ((i * 7 % 23) as f64 * scale - scale * 11.0) as f32).collect();
    Tensor::<B, 1>::from_floats(values, &Default::default()).reshape(shape)
}

fn net<B: AutodiffBackend>() -> Net<B> {
    let device = Default::default();
    let mut net = Net {
        conv1: Conv2dConfig::new([1, 4], [3, 3]).with_bias(false).init(&device),
        conv2: Conv2dConfig::new([4, 5], [3, 3]).with_bias(false).init(&device),
        fc: LinearConfig::new(20, 3).with_bias(false).init(&device),
    };
    net.conv1.weight = net.conv1.weight.map(|weight| ramp(weight.dims(), 0.03));
    net.conv2.weight = net.conv2.weight.map(|weight| ramp(weight.dims(), 0.02));
    net.fc.weight = net.fc.weight.map(|weight| ramp(weight.dims(), 0.05));
    net
}

fn step<B: AutodiffBackend>(net: &Net<B>, (x, y): Pair<B>) -> StepOutput<B> {
    let x = scope("relu", || activation::relu(net.conv1.forward(x)));
    let x = net.conv2.forward(x);
    let x = scope("relu", || activation::relu(x));
    let predictions = net.fc.forward(x.reshape([BATCH, 20]));
    let loss = scope("loss", || (predictions.clone() - y.clone()).square().mean());
    StepOutput::regression(loss, predictions, y)
}

/// The net with its convolutions outside of scopes.
fn plain_step<B: AutodiffBackend>(net: &Net<B>, (x, y): Pair<B>) -> StepOutput<B> {
    let x = net.conv1.forward(x);
    let x = scope("relu", || activation::relu(x));
    let x = net.conv2.forward(x);
    let x = scope("relu", || activation::relu(x));
    let predictions = net.fc.forward(x.reshape([BATCH, 20]));
    let loss = scope("loss", || (predictions.clone() - y.clone()).square().mean());
    StepOutput::regression(loss, predictions, y)
}

fn loader<B: AutodiffBackend>() -> TensorLoader<Pair<B>> {
    TensorLoader::new((ramp([6 * BATCH, 1, 6, 6], 0.1), ramp([6 * BATCH, 3], 0.1))).batch_size(BATCH)
}

type Function<B> = fn(&Net<B>, Pair<B>) -> StepOutput<B>;
type NetTask<B> = Supervised<Net<B>, Pair<B>, Function<B>>;

fn task<B: AutodiffBackend>(step: Function<B>) -> NetTask<B> {
    Supervised::new(net(), SgdConfig::new().init(), 0.01, step)
}

fn profiler() -> Profiler {
    Profiler::new().steps(2..5).with_peaks(1e10, 1e9)
}

/// The report of three steps, and the time of training in milliseconds.
fn profiled<B: AutodiffBackend>(step: Function<B>) -> (ProfileReport, f64) {
    let profiler = profiler();
    let handle = profiler.handle();
    let mut learner = Learner::new(task::<B>(step)).callback(profiler).silent();
    let started = Instant::now();
    learner.fit_without_validation(&loader()).unwrap();
    (handle.report().unwrap(), started.elapsed().as_secs_f64() * 1e3)
}

#[test]
fn every_module_has_the_time_and_work_of_both_passes() {
    for (report, wall) in [profiled::<Autodiff<Flex>>(plain_step), profiled::<Autodiff<Cpu>>(plain_step)] {
        assert_eq!(report.steps, 3);
        // The convolution of 8 images to 4 channels of 4 x 4, of 5 channels of 2 x 2; 8 x 20 by 20 x 3.
        let forward = [2 * 8 * 4 * 4 * 4 * 9, 2 * 8 * 5 * 2 * 2 * 4 * 9, 2 * 8 * 20 * 3];
        for (name, flops) in ["model.conv1", "model.conv2", "model.fc"].into_iter().zip(forward) {
            let part = report.part(name).unwrap();
            assert_eq!((part.kind.as_str(), part.calls), ("module", 1.0), "{report}");
            assert!(part.forward.ms > 0.0 && part.backward.ms > 0.0, "{report}");
            // The first input needs no gradient.
            let products = if name == "model.conv1" { 1 } else { 2 };
            assert_eq!(part.forward.flops, f64::from(flops), "{name}\n{report}");
            assert_eq!(part.backward.flops, f64::from(products * flops), "{name}\n{report}");
        }
        let fc = report.part("model.fc").unwrap();
        let [x, w, y] = [8 * 20, 20 * 3, 8 * 3].map(|elements| f64::from(4 * elements));
        assert_eq!(fc.forward.bytes, x + w + y);
        assert_eq!(fc.backward.bytes, y + x + w + x + w);
        let floor = 1e3 * f64::max(fc.forward.flops / 1e10, fc.forward.bytes / 1e9);
        assert_eq!(fc.forward.floor_ms, Some(floor));
        let relu = report.part("relu").unwrap();
        assert_eq!((relu.kind.as_str(), relu.calls), ("scope", 2.0));
        assert_eq!(relu.forward.flops, 8.0 * (4.0 * 16.0 + 5.0 * 4.0));
        let optimizer = report.part("optimizer model").unwrap();
        assert!(optimizer.forward.ms > 0.0 && optimizer.calls == 1.0);
        // Parameters and gradients are read, parameters are written.
        let parameters = f64::from(4 * 9 + 5 * 4 * 9 + 20 * 3);
        // A lazy engine also reads flags: whether the gradients are valid.
        let flags = optimizer.forward.bytes - 3.0 * 4.0 * parameters;
        assert!((0.0..16.0).contains(&flags), "{flags} {report}");
        let sum: f64 = report.parts.iter().map(|part| part.total.ms).sum();
        assert!((sum - report.step_ms).abs() < 1e-6 * sum && 3.0 * report.step_ms <= wall, "{report}");
    }
}

#[test]
fn a_scope_holds_the_modules_inside() {
    let (report, _) = profiled::<Autodiff<Flex>>(step);
    assert!(report.part("model.conv1").is_none_or(|part| part.total.ms == 0.0), "{report}");
    assert!(report.part("relu").unwrap().forward.flops > 9000.0, "{report}");
}

#[test]
fn fusion_does_not_change_the_counted_work() {
    let (plain, _) = profiled::<Autodiff<Flex>>(plain_step);
    let (fused, _) = profiled::<Autodiff<Cpu>>(plain_step);
    for part in plain.parts.iter().filter(|part| part.kind == "module" || part.kind == "scope") {
        let other = fused.part(&part.name).unwrap();
        for (a, b) in [(part.forward, other.forward), (part.backward, other.backward)] {
            assert_eq!((a.flops, a.bytes), (b.flops, b.bytes), "{}\n{plain}\n{fused}", part.name);
        }
    }
}

fn trained<B: AutodiffBackend>(profiler: Option<Profiler>) -> (History, Vec<f32>) {
    let mut learner = Learner::new(task::<B>(plain_step)).epochs(2).silent();
    if let Some(profiler) = profiler {
        learner = learner.callback(profiler);
    }
    let history = learner.fit_without_validation(&loader()).unwrap();
    let net = learner.into_task().into_model();
    let weights = net.named_parameters().into_iter();
    let weights = weights.flat_map(|(_, parameter)| parameter.value.into_data().unwrap().to_vec::<f32>());
    (history, weights.collect())
}

#[test]
fn a_profiler_does_not_change_training() {
    let compare = |(history, weights): (History, Vec<f32>), (other, others): (History, Vec<f32>)| {
        assert_eq!(history.losses, other.losses);
        assert_eq!(weights, others);
    };
    // With measured peaks.
    compare(trained::<Autodiff<Flex>>(None), trained::<Autodiff<Flex>>(Some(Profiler::new().steps(1..8))));
    compare(trained::<Autodiff<Cpu>>(None), trained::<Autodiff<Cpu>>(Some(profiler())));
}

/// Counts the steps whose start or end is within a profile.
struct Running(Arc<AtomicUsize>);

impl<T> Callback<T> for Running {
    fn name(&self) -> &str {
        "running"
    }

    fn on(&mut self, event: Event<'_>, _context: &mut Context<'_, T>) -> Result<()> {
        if let Event::StepEnded = event {
            self.0.fetch_add(usize::from(profile::is_on()), Ordering::Relaxed);
        } else {
            assert!(!profile::is_on(), "{event:?}");
        }
        Ok(())
    }
}

#[test]
fn only_the_chosen_steps_and_two_before_them_are_profiled() {
    let running = Arc::new(AtomicUsize::new(0));
    let profiler = Profiler::new().steps(3..5).with_peaks(1e10, 1e9);
    let handle = profiler.handle();
    let task = task::<Autodiff<Flex>>(plain_step);
    let mut learner =
        Learner::new(task).epochs(2).callback(profiler).callback(Running(running.clone())).silent();
    assert_eq!(handle.report(), None);
    learner.fit_without_validation(&loader()).unwrap();
    assert_eq!((handle.report().unwrap().steps, running.load(Ordering::Relaxed)), (2, 4));
}

#[test]
fn a_step_that_fails_ends_its_profile_with_the_learner() {
    let task = task::<Autodiff<Flex>>(|_, _| panic!("a failure"));
    let mut learner = Learner::new(task).callback(Profiler::new().steps(0..2).with_peaks(1.0, 1.0)).silent();
    assert!(learner.fit_without_validation(&loader()).is_err());
    drop(learner);
    assert!(!profile::is_on());
}

#[test]
fn the_json_has_the_fields_of_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    let profiler = profiler().json(&path);
    let handle = profiler.handle();
    let mut learner = Learner::new(task::<Autodiff<Flex>>(plain_step)).callback(profiler).silent();
    learner.fit_without_validation(&loader()).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(serde_json::from_str::<ProfileReport>(&text).unwrap(), handle.report().unwrap());
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["steps"], 3);
    for field in ["device", "step_ms", "flops_per_second", "bytes_per_second"] {
        assert!(!json[field].is_null(), "{field}");
    }
    for part in json["parts"].as_array().unwrap() {
        for field in ["name", "kind", "calls", "percent_of_step"] {
            assert!(!part[field].is_null(), "{field}");
        }
        for pass in ["forward", "backward", "total"] {
            for field in ["ms", "flops", "bytes", "floor_ms"] {
                assert!(part[pass][field].is_number(), "{pass} {field}");
            }
        }
    }
}

#[test]
fn the_body_of_a_loop_counts_once_per_step_and_not_when_it_is_traced() {
    type B = Autodiff<Flex>;
    let lstm: Lstm<B> = LstmConfig::new(32, 32, true).with_batch_first(true).init(&Default::default());
    let step =
        |model: &Lstm<B>, x: Tensor<B, 3>| StepOutput::new(model.forward(x, None).0.square().mean(), 4);
    let task = Supervised::new(lstm, SgdConfig::new().init(), 0.1, step);
    let profiler = Profiler::new().steps(0..1).with_peaks(1e10, 1e9);
    let handle = profiler.handle();
    let loader = TensorLoader::new(ramp::<B, 3>([4, 1, 32], 0.1)).batch_size(4);
    Learner::new(task).callback(profiler).silent().fit_without_validation(&loader).unwrap();
    let report = handle.report().unwrap();
    let flops: f64 = report.parts.iter().map(|part| part.forward.flops).sum();
    let products = f64::from(2 * 4 * 32 * 4 * 32 * 2);
    assert!(flops > products && flops < 1.3 * products, "{report}");
}

#[test]
fn an_optimizer_that_evaluates_the_model_has_a_part_of_its_own() {
    type B = Autodiff<Flex>;
    let model: Linear<B> = LinearConfig::new(4, 1).init(&Default::default());
    let task = FunctionTask::new(
        model,
        LbfgsConfig::new().init(),
        1.0,
        |target: &mut Trainable<Linear<B>>, x: Tensor<B, 2>, step: &mut Step<'_>| {
            step.minimize(target, |model| (model.forward(x.clone()) - 1.0).square().mean())?;
            Ok(())
        },
        |_: &mut Trainable<Linear<B>>, _: Tensor<B, 2>, _: &mut Validation<'_>| Ok(()),
    );
    let profiler = Profiler::new().steps(0..1).with_peaks(1e10, 1e9);
    let handle = profiler.handle();
    let loader = TensorLoader::new(ramp::<B, 2>([8, 4], 0.1)).batch_size(8);
    Learner::new(task).callback(profiler).silent().fit_without_validation(&loader).unwrap();
    let report = handle.report().unwrap();
    let model = report.part("model").unwrap();
    assert!(model.calls >= 1.0 && model.backward.ms > 0.0, "{report}");
    assert!(report.part("optimizer model").unwrap().forward.ms > 0.0, "{report}");
}
