//! Training of small networks: convergence, bit-for-bit reproducibility, stop conditions.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kiln_backends::{Cpu, Device, Dyn, Flex};
use kiln_data::{DataError, DataLoader, DataLoaderBuilder, InMemoryDataset};
use kiln_nn::{AutodiffModule, GradientsParams, Module, Param};
use kiln_optim::{AdamConfig, Optimizer, SgdConfig};
use kiln_store::{Checkpoint, CheckpointWriter, StoreError};
use kiln_tensor::{Autodiff, AutodiffBackend, Backend, Int, Tensor, loss};
use kiln_train::loader::Stream;
use kiln_train::metric::LearningRateMetric;
use kiln_train::{
    Accuracy, EarlyStopping, Evaluator, FunctionTask, Interrupter, Learner, Metric, ModelTask, Monitor, Step,
    StepOutput, StopReason, Supervised, TrainError, TrainStep, Trainable, ValidStep, Validation, evaluate,
};

type B = Autodiff<Flex>;

/// A classifier of two classes, separated by a line.
#[derive(Clone, Debug, Module)]
struct Net<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
}

#[derive(Clone, Debug)]
struct Batch<B: Backend> {
    points: Tensor<B, 2>,
    classes: Tensor<B, 1, Int>,
}

fn net() -> Net<B> {
    let device = Default::default();
    Net {
        weight: Param::from_tensor(Tensor::from_floats([[0.1, -0.2], [0.3, 0.05]], &device)),
        bias: Param::from_tensor(Tensor::from_floats([0.0, 0.1], &device)),
    }
}

impl<B: Backend> Net<B> {
    fn classify(&self, batch: Batch<B>) -> StepOutput<B> {
        let bias = self.bias.val().unsqueeze_dim::<2>(0);
        let logits = batch.points.matmul(self.weight.val()) + bias;
        let loss = loss::cross_entropy(logits.clone(), batch.classes.clone(), &Default::default());
        StepOutput::classification(loss, logits, batch.classes)
    }
}

impl<B: AutodiffBackend> TrainStep<Batch<B>> for Net<B> {
    type Backend = B;
    fn step(&self, batch: Batch<B>) -> StepOutput<B> {
        self.classify(batch)
    }
}

impl<B: Backend> ValidStep<Batch<B>> for Net<B> {
    type Backend = B;
    fn step(&self, batch: Batch<B>) -> StepOutput<B> {
        self.classify(batch)
    }
}

type Item = ([f32; 2], i32);

fn items() -> Vec<Item> {
    let at = |i: i32, j: i32| ([i as f32 / 4.0 - 1.0, j as f32 / 4.0 - 1.0], i32::from(i + j > 8));
    (0..9).flat_map(|i| (0..9).filter(move |j| i + j != 8).map(move |j| at(i, j))).collect()
}

fn batch<B: Backend>(items: Vec<Item>) -> Result<Batch<B>, DataError> {
    let device = Default::default();
    let points: Vec<f32> = items.iter().flat_map(|(point, _)| *point).collect();
    let classes: Vec<i32> = items.iter().map(|(_, class)| *class).collect();
    let points = Tensor::<B, 1>::from_floats(points, &device).reshape([items.len(), 2]);
    Ok(Batch { points, classes: Tensor::from_ints(classes, &device) })
}

fn loader<B: Backend>(items: Vec<Item>) -> DataLoader<Batch<B>> {
    DataLoaderBuilder::new(batch::<B>).batch_size(16).shuffle(3).build(InMemoryDataset::new(items)).unwrap()
}

type NetTask = ModelTask<Net<B>, Batch<B>, Batch<Flex>>;

fn learner() -> Learner<NetTask> {
    let task = ModelTask::new(net(), AdamConfig::new().init(), 0.05);
    Learner::new(task).epochs(4).silent().metric(Accuracy::new())
}

fn model(learner: &Learner<NetTask>) -> &Net<B> {
    learner.task().model()
}

fn weights(net: &Net<B>) -> Vec<f32> {
    net.weight.to_data().to_vec()
}

/// 72 items: 4 batches of 16 and one of 8.
const STEPS: usize = 5;

#[test]
fn training_learns_a_line_and_is_reproducible_bit_for_bit() {
    let run = |interval| {
        let mut learner = learner().metric(Accuracy::top(2)).read_delay(interval);
        let history = learner.fit(&loader(items()), &loader(items())).unwrap();
        (history, weights(model(&learner)))
    };
    let (history, weights) = run(1);
    assert_eq!(history.losses.len(), 4 * STEPS);
    assert_eq!(history.stopped, StopReason::Finished);
    let last = &history.epochs[3];
    assert_eq!((last.epoch, last.step, last.train.num_items), (3, 20, 72));
    let valid = last.valid().unwrap();
    assert!(valid.loss < history.epochs[0].valid().unwrap().loss);
    assert!(valid.metric("accuracy").unwrap() > 0.95, "{valid:?}");
    assert_eq!(valid.metric("top-2 accuracy"), Some(1.0));
    assert_eq!(valid.metric("absent"), None);
    assert_eq!(history.best_epoch, Some(3));
    assert_eq!(run(1), (history.clone(), weights.clone()));
    // The losses are equal for any read interval, and are also read at the end of an epoch.
    assert_eq!(run(3), (history.clone(), weights.clone()));
    assert_eq!(run(1000), (history, weights));
}

#[test]
fn callbacks_see_every_step_and_epoch() {
    let steps = Arc::new(Mutex::new(Vec::new()));
    let epochs = Arc::new(Mutex::new(Vec::new()));
    let (seen_steps, seen_epochs) = (steps.clone(), epochs.clone());
    let schedule = kiln_optim::lr_scheduler::Linear::new(0.1, 0.0, 10).unwrap();
    let mut learner =
        Learner::new(ModelTask::<_, _, Batch<Flex>>::new(net(), SgdConfig::new().init(), schedule))
            .epochs(2)
            .silent()
            .train_metric(LearningRateMetric::new())
            .on_step(move |report| seen_steps.lock().unwrap().push(report.clone()))
            .on_epoch(move |report, task: &mut NetTask| {
                seen_epochs.lock().unwrap().push((report.epoch, weights(task.model())));
            });
    let history = learner.fit_without_validation(&loader::<B>(items())).unwrap();
    // The mean of 0.1, 0.09, 0.08, 0.07 and 0.06.
    assert!((history.epochs[0].train.metric("learning_rate").unwrap() - 0.08).abs() < 1e-12);
    let steps = steps.lock().unwrap();
    assert_eq!(steps.len(), 2 * STEPS);
    assert_eq!((steps[7].epoch, steps[7].step, steps[7].batch, steps[7].items), (1, 7, 2, 16));
    let (name, rate) = &steps[7].learning_rates[0];
    assert!(name == "model" && (rate - 0.03).abs() < 1e-12);
    assert_eq!((steps[4].items, steps[1].values.clone()), (8, vec![("loss".to_owned(), history.losses[1])]));
    assert_eq!(epochs.lock().unwrap().len(), 2);
    assert_eq!(epochs.lock().unwrap()[1], (1, weights(model(&learner))));
    assert_eq!(history.epochs[1].valid(), None);
}

#[test]
fn a_schedule_cycles_the_momentum_of_the_optimizer() {
    use kiln_optim::lr_scheduler::{LearningRate, OneCycleConfig};
    let schedule = || OneCycleConfig::new(0.1, 10).with_cycle_momentum(true).init();
    // Without the momenta of the schedule: the rates alone.
    let rates = || OneCycleConfig::new(0.1, 10).init();
    let run = |rates: Box<dyn LearningRate>, momentum: f64| {
        let optimizer = SgdConfig::new().with_momentum(momentum).init();
        let mut learner = Learner::new(NetTask::new(net(), optimizer, rates)).silent();
        learner.fit_without_validation(&loader::<B>(items())).map(|_| weights(model(&learner)))
    };
    let cycled = run(Box::new(schedule()), 0.5).unwrap();
    // The momentum of the configuration has no effect.
    assert_eq!(cycled, run(Box::new(schedule()), 0.9).unwrap());
    assert_ne!(cycled, run(Box::new(rates()), 0.95).unwrap());
    let error = run(Box::new(schedule()), 0.0).unwrap_err().to_string();
    assert!(error.contains("[sgd] the momentum of the schedule is 0.95"), "{error}");
}

#[test]
fn an_interrupted_run_resumes_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last");
    let mut straight = learner();
    let whole = straight.fit(&loader(items()), &loader(items())).unwrap();

    let interrupter = Interrupter::new();
    let flag = interrupter.clone();
    // The record of a step arrives after the next one.
    let stop_after_step_7 = move |report: &kiln_train::StepRecord| {
        if report.step == 6 {
            flag.stop();
        }
    };
    let mut first = learner().interrupter(interrupter.clone()).on_step(stop_after_step_7).keep_last(&path);
    let before = first.fit(&loader(items()), &loader(items())).unwrap();
    assert_eq!((before.stopped, before.losses.len(), before.epochs.len()), (StopReason::Interrupted, 8, 1));

    // In another process, from the checkpoint.
    let mut resumed = learner().resume(&Checkpoint::open(&path).unwrap()).unwrap();
    let after = resumed.fit(&loader(items()), &loader(items())).unwrap();
    assert_eq!([before.losses.clone(), after.losses].concat(), whole.losses);
    assert_eq!(weights(model(&resumed)), weights(model(&straight)));
    assert_eq!(after.epochs.last().unwrap().valid, whole.epochs.last().unwrap().valid);

    // In the same process.
    interrupter.reset();
    let after = first.fit(&loader(items()), &loader(items())).unwrap();
    assert_eq!([before.losses, after.losses].concat(), whole.losses);
    assert_eq!(weights(model(&first)), weights(model(&straight)));
}

#[test]
fn a_schedule_observes_the_validation_loss_and_resumes_bit_for_bit() {
    use kiln_optim::lr_scheduler::{ReduceOnPlateauConfig, Sequential};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last");
    // No loss is an improvement by 10, so that each epoch after the first of the plateau halves the rate.
    let plateau = || {
        let config = ReduceOnPlateauConfig::new(0.1).with_factor(0.5).with_patience(0);
        config
            .with_threshold_mode(kiln_optim::lr_scheduler::ThresholdMode::Absolute)
            .with_threshold(10.0)
            .init()
    };
    let schedule = move || Sequential::new().then(0.2, STEPS as u64).finally(plateau());
    let run = |epochs| {
        let rates = Arc::new(Mutex::new(Vec::new()));
        let seen = rates.clone();
        let learner =
            Learner::new(ModelTask::<_, _, Batch<Flex>>::new(net(), SgdConfig::new().init(), schedule()))
                .epochs(epochs)
                .silent()
                .keep_last(&path)
                .on_step(move |report| seen.lock().unwrap().push(report.learning_rates[0].1));
        (learner, rates)
    };
    let (mut straight, rates) = run(5);
    let whole = straight.fit(&loader(items()), &loader(items())).unwrap();
    let by_epoch: Vec<f64> = rates.lock().unwrap().iter().step_by(STEPS).copied().collect();
    assert_eq!(by_epoch, [0.2, 0.1, 0.05, 0.025, 0.0125]);

    let (mut first, _) = run(3);
    first.fit(&loader(items()), &loader(items())).unwrap();
    let (resumed, rates) = run(5);
    let mut resumed = resumed.resume(&Checkpoint::open(&path).unwrap()).unwrap();
    let after = resumed.fit(&loader(items()), &loader(items())).unwrap();
    assert_eq!(after.losses, whole.losses[3 * STEPS..]);
    assert_eq!(weights(model(&resumed)), weights(model(&straight)));
    let rates = rates.lock().unwrap().clone();
    assert_eq!((rates[0], rates[STEPS]), (0.025, 0.0125));

    // Without validation it observes the training loss.
    let (mut unvalidated, rates) = run(4);
    unvalidated.fit_without_validation(&loader::<B>(items())).unwrap();
    assert_eq!(rates.lock().unwrap()[3 * STEPS], 0.025);

    // A schedule without state cannot load the state of another, but a state is not required.
    let other = || {
        Learner::new(ModelTask::<_, _, Batch<Flex>>::new(net(), SgdConfig::new().init(), 0.1))
            .epochs(1)
            .silent()
            .keep_last(&path)
    };
    let error = other().resume(&Checkpoint::open(&path).unwrap()).unwrap_err().to_string();
    assert!(error.contains("the schedule that the checkpoint was written with"), "{error}");
    other().fit(&loader(items()), &loader(items())).unwrap();
    let (resumed, rates) = run(2);
    let mut resumed = resumed.resume(&Checkpoint::open(&path).unwrap()).unwrap();
    resumed.fit(&loader(items()), &loader(items())).unwrap();
    assert_eq!(rates.lock().unwrap()[0], 0.1);
}

#[test]
fn early_stopping_waits_and_keeps_the_best_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("best");
    // A learning rate of 0 never improves.
    let mut learner = Learner::new(ModelTask::<_, _, Batch<Flex>>::new(net(), SgdConfig::new().init(), 0.0))
        .epochs(10)
        .silent()
        .early_stopping(EarlyStopping::new(2))
        .keep_best(&path);
    let history = learner.fit(&loader(items()), &loader(items())).unwrap();
    assert_eq!((history.stopped, history.epochs.len()), (StopReason::EarlyStopping, 3));
    assert_eq!(history.best_epoch, Some(0));
    let best = Checkpoint::open(&path).unwrap();
    assert_eq!((best.state().epoch, best.state().step), (1, 5));
    assert_eq!(weights(&best.load_module(net()).unwrap()), weights(&net()));

    // By accuracy, where higher is better; the initial model is bad on purpose.
    let mut learner = learner_of_metric("accuracy", &path);
    let history = learner.fit(&loader(items()), &loader(items())).unwrap();
    let best = history.best_epoch.unwrap() as usize;
    let accuracy = |epoch: usize| history.epochs[epoch].valid().unwrap().metric("accuracy").unwrap();
    assert!((0..4).all(|epoch| accuracy(epoch) <= accuracy(best)));
    assert_eq!(Checkpoint::open(&path).unwrap().state().epoch, best as u64 + 1);
    assert_eq!(
        learner_of_metric("f1", &path).fit(&loader(items()), &loader(items())).unwrap_err().to_string(),
        "[learner] no metric `f1` to monitor; available: accuracy"
    );
}

fn learner_of_metric(name: &str, path: &Path) -> Learner<NetTask> {
    learner().monitor(Monitor::Metric(name.to_owned())).keep_best(path)
}

#[test]
fn a_nan_loss_stops_training() {
    let mut bad = items();
    bad[0].0[0] = f32::NAN;
    let ordered = || {
        let dataset = InMemoryDataset::new([items(), bad.clone()].concat());
        DataLoaderBuilder::new(batch::<B>).batch_size(36).build(dataset).unwrap()
    };
    let expected = "[learner] epoch 1, step 3, batch 3: the loss is NaN\n  hint: lower the learning rate";
    let error = learner().fit_without_validation(&ordered()).unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
    // Checked before the update, the model stays as it was.
    let mut learner = learner().check_loss_before_update(true);
    let error = learner.fit_without_validation(&ordered()).unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
    assert!(weights(model(&learner)).iter().all(|weight| weight.is_finite()));

    let mut careless = self::learner().epochs(1).stop_on_non_finite(false);
    let history = careless.fit_without_validation(&ordered()).unwrap();
    assert!(history.losses[2].is_nan() && history.losses[3].is_nan());
    assert_eq!(history.best_epoch, None);
}

#[test]
fn errors_of_loaders_and_devices_are_returned() {
    let failing = |items: Vec<Item>| {
        if items.iter().any(|(_, class)| *class == 7) {
            return Err(DataError::batcher("no such class"));
        }
        batch::<B>(items)
    };
    let mut with_a_seven = items();
    with_a_seven[40].1 = 7;
    let build = |dataset: Vec<Item>| {
        DataLoaderBuilder::new(failing).batch_size(16).build(InMemoryDataset::new(dataset)).unwrap()
    };
    let error = learner().fit_without_validation(&build(with_a_seven.clone())).unwrap_err().to_string();
    assert_eq!(error, "[learner] epoch 1, step 3, batch 3: no such class");

    // The device detects a label out of range.
    let mut learner = learner();
    let unchecked =
        DataLoaderBuilder::new(batch::<B>).batch_size(16).build(InMemoryDataset::new(with_a_seven));
    let error = learner.fit_without_validation(&unchecked.unwrap()).unwrap_err().to_string();
    let expected = "[learner] epoch 1, step 3, batch 3: [cross_entropy] label 7 at position [8] is out of range for 2 classes";
    assert!(error.starts_with(expected), "{error}");
    assert!(weights(model(&learner)).iter().all(|weight| weight.is_finite()));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "no folder").unwrap();
    let error = self::learner().keep_last(file.join("last")).fit_without_validation(&loader::<B>(items()));
    assert!(error.unwrap_err().to_string().contains("file: cannot create the folder"), "a file is no folder");
}

#[test]
fn errors_name_invalid_options() {
    let fit = |mut learner: Learner<NetTask>| {
        learner.fit_without_validation(&loader::<B>(items())).unwrap_err().to_string()
    };
    assert_eq!(fit(learner().epochs(0)), "[learner] epochs is 0\n  hint: it must be at least 1");
    assert!(fit(learner().max_steps(0)).starts_with("[learner] max_steps is 0"));
    assert!(fit(learner().early_stopping(EarlyStopping::new(0))).contains("patience"));
    assert!(
        fit(learner().early_stopping(EarlyStopping::new(1).min_delta(f64::NAN))).contains("min_delta is NaN")
    );
    let mut bad_rate =
        Learner::new(ModelTask::<_, _, Batch<Flex>>::new(net(), AdamConfig::new().init(), f64::NAN)).silent();
    let error = bad_rate.fit_without_validation(&loader::<B>(items())).unwrap_err().to_string();
    assert!(
        error.starts_with("[learner] epoch 1, step 1, batch 1: [adam] the learning rate is NaN"),
        "{error}"
    );

    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("foreign");
    Checkpoint::save(&foreign, &net(), None, &kiln_store::TrainingState::of(&net())).unwrap();
    let error = learner().resume(&Checkpoint::open(&foreign).unwrap()).unwrap_err().to_string();
    assert!(error.contains("it must be one that a learner wrote"), "{error}");
}

/// If the loss is not read, the optimizer reports the error.
#[test]
fn a_failed_optimizer_step_error_names_epoch_and_step() {
    let mut with_a_seven = items();
    with_a_seven[40].1 = 7;
    // A lazy engine does not detect the error in the backward pass.
    type L = Autodiff<Cpu>;
    let dataset = InMemoryDataset::new(with_a_seven);
    let loader = DataLoaderBuilder::new(batch::<L>).batch_size(16).build(dataset).unwrap();
    let device = Default::default();
    let model = Net::<L> {
        weight: Param::from_tensor(Tensor::from_floats([[0.1, -0.2], [0.3, 0.05]], &device)),
        bias: Param::from_tensor(Tensor::from_floats([0.0, 0.1], &device)),
    };
    let mut learner = Learner::new(ModelTask::<_, _, Batch<Cpu>>::new(model, AdamConfig::new().init(), 0.1))
        .silent()
        .read_delay(1000);
    let (result, line) = (learner.fit_without_validation(&loader), line!());
    let error = result.unwrap_err().to_string();
    // A later step may detect it, and the position is that of its batch.
    let begin = "[learner] epoch 1, step 3, batch 3: [adam] step 3 at ";
    assert!(error.starts_with(begin) && error.contains(&format!("{}:{line}:", file!())), "{error}");
    assert!(error.contains("[cross_entropy] label 7 at position [8]"), "{error}");
    let weights = learner.task().model().weight.val().into_data().to_vec::<f32>();
    assert!(weights.iter().all(|weight| weight.is_finite()));
}

#[test]
fn a_panic_in_a_step_names_epoch_and_step() {
    #[derive(Debug, Module)]
    struct Narrow<B: Backend>(Param<Tensor<B, 2>>);
    impl<B: Backend> Narrow<B> {
        /// Accepts only batches of 16 points.
        fn output(&self, batch: Batch<B>) -> StepOutput<B> {
            let [count, _] = batch.points.dims();
            StepOutput::new(self.0.val().matmul(batch.points).square().mean(), count)
        }
    }
    impl<B: AutodiffBackend> TrainStep<Batch<B>> for Narrow<B> {
        type Backend = B;
        fn step(&self, batch: Batch<B>) -> StepOutput<B> {
            self.output(batch)
        }
    }
    impl<B: Backend> ValidStep<Batch<B>> for Narrow<B> {
        type Backend = B;
        fn step(&self, batch: Batch<B>) -> StepOutput<B> {
            self.output(batch)
        }
    }
    let model = || Narrow::<B>(Param::from_tensor(Tensor::ones([1, 16], &Default::default())));
    // 72 points: the fifth batch has 8.
    let mut learner =
        Learner::new(ModelTask::<_, _, Batch<Flex>>::new(model(), SgdConfig::new().init(), 0.001)).silent();
    let error = learner.fit_without_validation(&loader::<B>(items())).unwrap_err().to_string();
    let begin = "[learner] epoch 1, step 5, batch 5: the model's step panicked: [matmul] ";
    assert!(error.starts_with(begin) && error.contains("f32[1, 16] x f32[8, 2]"), "{error}");
    let error = evaluate(&model().valid(), &loader::<Flex>(items()), &[]).unwrap_err().to_string();
    let begin = "[learner] epoch 1, validation batch 5: the model's step panicked: [matmul] ";
    assert!(error.starts_with(begin), "{error}");
}

#[test]
fn folders_of_checkpoints_are_checked_before_training_starts() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let steps = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&steps);
    let counting = move || {
        let steps = Arc::clone(&counter);
        learner().on_step(move |_| {
            steps.fetch_add(1, Ordering::Relaxed);
        })
    };
    let fit = |mut learner: Learner<NetTask>| learner.fit_without_validation(&loader::<B>(items()));
    let refused = |learner: Learner<NetTask>, expected: &str| {
        let error = fit(learner).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(steps.load(Ordering::Relaxed), 0, "training started");
    };
    for (last, best) in [("runs", "runs/best"), ("runs/last", "runs"), ("runs", "runs")] {
        let nested = counting().keep_last(at(last)).keep_best(at(best));
        refused(nested, "neither inside another folder of checkpoints nor a parent of it");
        assert!(!at("runs").exists());
    }
    std::fs::write(at("file"), "").unwrap();
    refused(counting().keep_best(at("file/best")), "file: cannot create the folder");
    std::fs::create_dir_all(at("precious")).unwrap();
    std::fs::write(at("precious/thesis.txt"), "years of work").unwrap();
    refused(counting().keep_last(at("precious")), "precious: a folder with `thesis.txt`");

    let other = CheckpointWriter::open(at("runs/last")).unwrap();
    refused(counting().keep_last(at("runs/last")), "runs/last: is being written by this process");
    drop(other);
    let mut trained = counting().keep_last(at("runs/last")).keep_best(at("runs/best"));
    let inner = at("runs/last");
    trained = trained.on_epoch(move |_, _| {
        assert!(matches!(CheckpointWriter::open(&inner), Err(StoreError::Locked { .. })));
    });
    trained.fit_without_validation(&loader::<B>(items())).unwrap();
    assert!(Checkpoint::open(at("runs/last")).is_ok() && Checkpoint::open(at("runs/best")).is_ok());
    // The learner is alive, but its locks are released.
    assert!(CheckpointWriter::open(at("runs/last")).is_ok());
    assert!(CheckpointWriter::open(at("runs/best")).is_ok());
}

#[test]
fn a_loss_must_be_a_scalar() {
    #[derive(Clone, Debug, Module)]
    struct Wide<B: Backend>(Param<Tensor<B, 1>>);
    let step = |model: &Wide<B>, batch: Batch<B>| StepOutput::new(model.0.val() * 2, batch.classes.dims()[0]);
    let model = Wide::<B>(Param::from_tensor(Tensor::ones([3], &Default::default())));
    let mut learner = Learner::new(Supervised::new(model, SgdConfig::new().init(), 0.1, step)).silent();
    let error = learner.fit_without_validation(&loader::<B>(items())).unwrap_err().to_string();
    assert!(error.contains("the loss has 3 elements, expected one"), "{error}");

    let model = Wide::<B>(Param::from_tensor(Tensor::ones([1], &Default::default())));
    let optimizer = SgdConfig::new().init();
    let mut learner =
        Learner::new(Supervised::new(model, optimizer, 0.1, step)).silent().metric(Accuracy::new());
    let error = learner.fit_without_validation(&loader::<B>(items())).unwrap_err().to_string();
    assert!(
        error.starts_with("[accuracy] epoch 1, step 1, batch 1: the output of the step has no `logits`"),
        "{error}"
    );
}

#[test]
fn models_are_evaluated_without_a_learner() {
    use kiln_nn::AutodiffModule;
    let metrics: Vec<Box<dyn Metric>> = vec![Box::new(Accuracy::new())];
    let valid = net().valid();
    let scores = evaluate(&valid, &loader::<Flex>(items()), &metrics).unwrap();
    assert_eq!(scores.num_items, 72);
    let again = evaluate(&valid, &loader::<Flex>(items()), &metrics).unwrap();
    assert_eq!(scores, again);
}

#[test]
fn accuracy_counts_the_classes_with_the_highest_scores() {
    let device = Default::default();
    let logits =
        [[0.1, 0.7, 0.2, 0.0], [0.9, 0.0, 0.05, 0.3], [0.2, 0.2, 0.3, 0.3], [f32::NAN, 0.0, 1.0, 2.0]];
    let output = StepOutput::<Flex>::classification(
        Tensor::from_floats([0.0], &device),
        Tensor::from_floats(logits, &device),
        Tensor::from_ints([1, 3, 0, 0], &device),
    );
    let value = |mut metric: Accuracy| {
        metric.update(output.observation()).unwrap();
        metric.update(output.observation()).unwrap();
        let value = metric.values().unwrap().main().unwrap();
        assert_eq!(metric.values().unwrap().main().unwrap(), value);
        metric.reset();
        assert!(metric.values().unwrap().main().unwrap().is_nan());
        value
    };
    assert_eq!(value(Accuracy::top(2)), 0.5);
    // Third and fourth of the third row are equal, so its class is at least third.
    assert_eq!(value(Accuracy::top(3)), 0.75);
    // A NaN score is never among the highest.
    assert_eq!(value(Accuracy::top(4)), 0.75);
    // Without the two items of class 0. Of class 1 and 3, the first is hit.
    assert_eq!(value(Accuracy::new().with_pad_token(0)), 0.5);
    assert_eq!(value(Accuracy::top(2).ignore_index(3)), 1.0 / 3.0);
    assert_eq!(Accuracy::new().format(0.98765), "98.77 %");
    assert_eq!((Accuracy::new().name(), Accuracy::top(5).name()), ("accuracy", "top-5 accuracy"));
}

/// The batches of an epoch: 4 of 16 items and one of 8. In epoch 0, batch `bad` has a label out of range.
fn with_a_bad_label<B: Backend>(epoch: u64, bad: &[usize]) -> Vec<Batch<B>> {
    let items = items();
    let chunks = items.chunks(16).enumerate().map(|(index, items)| {
        let mut items = items.to_vec();
        if epoch == 0 && bad.contains(&index) {
            items[3].1 = 2;
        }
        batch(items).unwrap()
    });
    chunks.collect()
}

/// Where the error of a bad batch is found: in the backward pass, or by the optimizer.
#[derive(Clone, Copy)]
enum Found {
    Backward,
    ByOptimizer,
}

/// The weights after two epochs of steps on the good batches alone. A step of several passes has all of them or none.
fn trained_on_good_batches<A: AutodiffBackend>(
    mut net: Net<A>,
    bad: &[usize],
    passes: usize,
    found: Found,
) -> Vec<f32> {
    let mut optimizer = SgdConfig::new().with_momentum(0.9).init().with_accumulation(passes as u64).unwrap();
    let batches: Vec<Batch<A>> = (0..2).flat_map(|_| with_a_bad_label(1, bad)).collect();
    for (index, batch) in batches.into_iter().enumerate() {
        let is_left_out = match found {
            Found::Backward => bad.contains(&index),
            Found::ByOptimizer => bad.iter().any(|bad| bad / passes == index / passes),
        };
        if !is_left_out {
            let loss = net.classify(batch).loss().clone();
            let gradients = GradientsParams::from_grads(loss.backward(), &net);
            optimizer.update(0.1, &mut net, gradients).unwrap();
        }
    }
    optimizer.finish().unwrap();
    net.weight.to_data().to_vec()
}

/// The error of a batch has the position of that batch, on an engine that finds it at once and on one that finds it later, and
/// no other batch is lost: also at the ends of the epoch and with accumulated gradients.
#[test]
fn a_bad_batch_costs_no_other_and_its_error_has_its_position() {
    bad_batches::<Autodiff<Cpu>>(Found::ByOptimizer);
    bad_batches::<Autodiff<Flex>>(Found::Backward);
}

fn bad_batches<A: AutodiffBackend>(found: Found) {
    let net = || Net::<A> {
        weight: Param::from_tensor(Tensor::from_floats([[0.1, -0.2], [0.3, 0.05]], &Default::default())),
        bias: Param::from_tensor(Tensor::from_floats([0.0, 0.1], &Default::default())),
    };
    let cases: [&[usize]; 8] = [&[], &[0], &[1], &[2], &[3], &[4], &[1, 2], &[0, 4]];
    for (bad, passes, delay) in
        cases.iter().flat_map(|bad| [(*bad, 1, 1), (*bad, 1, 0), (*bad, 1, 7), (*bad, 2, 1)])
    {
        let case = format!("{bad:?}, {passes} passes, delay {delay}");
        let optimizer = SgdConfig::new().with_momentum(0.9).init().with_accumulation(passes as u64).unwrap();
        let train = move |model: &mut Trainable<Net<A>>, batch: Batch<A>, step: &mut Step<'_>| {
            let output = model.classify(batch);
            let loss = output.loss().clone();
            step.observe(output);
            step.backward(loss, model).map(drop)
        };
        let validate = |_: &mut Trainable<Net<A>>, _: Batch<A>, _: &mut Validation<'_>| Ok(());
        let task = FunctionTask::new(net(), optimizer, 0.1, train, validate);
        let mut learner = Learner::new(task).epochs(2).silent().metric(Accuracy::new()).read_delay(delay);
        let of_epoch = bad.to_vec();
        let loader = Stream::new(move |epoch| with_a_bad_label::<A>(epoch, &of_epoch).into_iter().map(Ok));
        let mut places = Vec::new();
        let history = loop {
            match learner.fit_without_validation(&loader) {
                Ok(history) => break history,
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("label 2 at position [3]"), "{case}: {text}");
                    let (TrainError::Optimizer { place, .. } | TrainError::Tensor { place, .. }) = error
                    else {
                        panic!("{case}: {text}")
                    };
                    places.push((place.epoch, place.step, place.batch));
                    assert!(places.len() <= bad.len(), "{case}: {text}");
                }
            }
        };
        // Of a step with two bad passes, the optimizer names the first.
        let is_named = |bad: &[usize]| match found {
            Found::Backward => true,
            Found::ByOptimizer => bad.len() < 2 || bad[0] / passes != bad[1] / passes,
        };
        let named = (0..bad.len()).filter(|&index| is_named(&bad[index.saturating_sub(1)..=index]));
        let expected: Vec<_> = named.map(|index| (0, bad[index] as u64, bad[index])).collect();
        assert_eq!(places, expected, "{case}");
        assert_eq!(learner.step(), 10, "{case}");
        let weights: Vec<f32> = learner.task().trainable().weight.to_data().to_vec();
        assert_eq!(weights, trained_on_good_batches(net(), bad, passes, found), "{case}");
        assert_eq!(history.epochs.last().unwrap().train.num_items, 72, "{case}");
    }
}

/// The device of `Dyn` names its layers: the validation model of a `ModelTask` is on the device below automatic differentiation.
#[test]
fn validation_on_dyn_has_its_batches_on_the_inner_device() {
    let device = Device::cpu_with_threads(1).autodiff();
    let on = |device: &Device| {
        let device = device.clone();
        let batcher = move |items: Vec<Item>| -> Result<Batch<Dyn>, DataError> {
            let points: Vec<f32> = items.iter().flat_map(|(point, _)| *point).collect();
            let classes: Vec<i32> = items.iter().map(|(_, class)| *class).collect();
            let points = Tensor::<Dyn, 1>::from_floats(points, &device).reshape([items.len(), 2]);
            Ok(Batch { points, classes: Tensor::from_ints(classes, &device) })
        };
        DataLoaderBuilder::new(batcher).batch_size(16).build(InMemoryDataset::new(items())).unwrap()
    };
    let net = Net::<Dyn> {
        weight: Param::from_tensor(Tensor::from_floats([[0.1, -0.2], [0.3, 0.05]], &device)),
        bias: Param::from_tensor(Tensor::from_floats([0.0, 0.1], &device)),
    };
    let task = |net| ModelTask::<Net<Dyn>, Batch<Dyn>, Batch<Dyn>>::new(net, SgdConfig::new().init(), 0.1);
    let mut learner = Learner::new(task(net.clone())).epochs(2).silent().metric(Accuracy::new());
    let inner = Dyn::inner_device(&device);
    assert_eq!(inner, device.inner());
    let history = learner.fit(&on(&device), &on(&inner)).unwrap();
    let scores = history.epochs[1].valid().unwrap();
    let model = learner.into_task().into_model().valid();
    let mut evaluator = Evaluator::new().metric(Accuracy::new());
    assert_eq!(evaluator.evaluate(&on(&inner), |batch| model.classify(batch)).unwrap(), *scores);

    let error = Learner::new(task(net)).silent().fit(&on(&device), &on(&device)).unwrap_err().to_string();
    let parts = ["epoch 1, validation batch 1", "different devices", "`valid()` are on `device.inner()`"];
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    let error = evaluator.evaluate(&on(&device), |batch| model.classify(batch)).unwrap_err().to_string();
    assert!(error.contains("`device.inner()`"), "{error}");
}
