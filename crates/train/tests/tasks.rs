//! Tasks of several models, loaders, validation sets, callbacks and metrics of a learner.

use std::sync::{Arc, Mutex};

use kiln_backends::Flex;
use kiln_data::DataError;
use kiln_nn::{Linear, LinearConfig};
use kiln_optim::{AdamConfig, LbfgsConfig, LineSearch, SgdConfig, SwaConfig};
use kiln_store::Checkpoint;
use kiln_tensor::{Autodiff, Tensor};
use kiln_train::loader::{Stream, TensorLoader};
use kiln_train::metric::{Accumulated, Accumulator, MetricRule, MetricValues};
use kiln_train::{
    Callback, Context, Event, FunctionTask, History, Interrupter, Interval, KeepLast, Learner, Loader,
    MetricError, MetricValue, Observation, PREDICTIONS, Record, Result, StateVisitor, Step, StepOutput,
    StopReason, Supervised, TARGETS, Task, TrainError, Trainable, Validation, WeightAverage,
};

type B = Autodiff<Flex>;
type Pair = (Tensor<B, 2>, Tensor<B, 2>);
type Line = Supervised<Linear<B>, Pair, fn(&Linear<B>, Pair) -> StepOutput<B>>;

fn linear(inputs: usize, value: f32) -> Linear<B> {
    let mut linear: Linear<B> = LinearConfig::new(inputs, 1).init(&Default::default());
    linear.weight = linear.weight.map(|weight| weight.zeros_like() + value);
    linear.bias = linear.bias.map(|bias| bias.map(|bias| bias.zeros_like()));
    linear
}

/// Points of the line `2 x + 1`.
fn line(len: usize) -> Pair {
    let x: Vec<f32> = (0..len).map(|index| index as f32 / len as f32).collect();
    let x = Tensor::<B, 1>::from_floats(x, &Default::default()).unsqueeze_dim::<2>(1);
    (x.clone(), x * 2.0 + 1.0)
}

fn squared_error(model: &Linear<B>, (x, y): Pair) -> StepOutput<B> {
    let predictions = model.forward(x);
    let loss = (predictions.clone() - y.clone()).square().mean();
    StepOutput::regression(loss, predictions, y)
}

fn task() -> Line {
    Supervised::new(linear(1, 0.5), AdamConfig::new().init(), 0.05, squared_error as fn(&_, _) -> _)
}

fn weights(learner: &Learner<Line>) -> Vec<f32> {
    learner.task().trainable().weight.to_data().to_vec()
}

/// The mean and the histogram of absolute errors.
type Errors = Accumulated<ErrorsRule>;

#[derive(Clone, Debug, Default)]
struct ErrorsRule;

impl MetricRule for ErrorsRule {
    fn name(&self) -> String {
        "absolute error".to_owned()
    }

    fn add(
        &mut self,
        sums: &mut Accumulator,
        observation: &Observation,
    ) -> std::result::Result<(), MetricError> {
        sums.append("errors", observation.tensor(PREDICTIONS)?.sub(observation.tensor(TARGETS)?)?)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> std::result::Result<MetricValues, MetricError> {
        let errors: Vec<f64> = sums.numbers("errors")?.iter().map(|error| error.abs()).collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let small = errors.iter().filter(|&&error| error < 0.5).count() as f64;
        let counts = vec![small, errors.len() as f64 - small];
        let histogram = MetricValue::Histogram { edges: vec![0.0, 0.5, f64::INFINITY], counts };
        Ok(MetricValues::scalar(name, mean).with("absolute errors", histogram))
    }

    fn higher_is_better(&self) -> bool {
        false
    }
}

#[test]
fn a_run_that_is_interrupted_within_an_epoch_has_the_same_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last");
    let (train, valid) = (TensorLoader::new(line(40)).batch_size(8).shuffle(3), TensorLoader::new(line(10)));
    let learner = || Learner::new(task()).epochs(3).metric(Errors::default()).silent();
    let mut straight = learner();
    let whole = straight.fit(&train, &valid).unwrap();
    for stop_at in [0, 4, 6, 9] {
        let interrupter = Interrupter::new();
        let flag = interrupter.clone();
        let mut first = learner().interrupter(interrupter).keep_last(&path).on_step(move |record| {
            if record.step == stop_at {
                flag.stop();
            }
        });
        let before = first.fit(&train, &valid).unwrap();
        assert_eq!(before.stopped, StopReason::Interrupted);
        let mut second = learner().resume(&Checkpoint::open(&path).unwrap()).unwrap();
        let after = second.fit(&train, &valid).unwrap();
        assert_eq!([before.losses, after.losses].concat(), whole.losses, "stopped at {stop_at}");
        assert_eq!([before.epochs, after.epochs].concat(), whole.epochs, "stopped at {stop_at}");
        assert_eq!(weights(&second), weights(&straight));
    }
}

#[test]
fn values_of_metrics_reach_the_report() {
    let mut learner = Learner::new(task()).metric(Errors::default()).silent();
    let history = learner.fit(&TensorLoader::new(line(16)), &TensorLoader::new(line(8))).unwrap();
    let scores = history.epochs[0].valid().unwrap();
    let Some(MetricValue::Histogram { counts, .. }) = scores.values.get("absolute errors") else {
        panic!("no histogram in {scores:?}");
    };
    assert_eq!(counts.iter().sum::<f64>(), 8.0);
    assert!(scores.metric("absolute error").unwrap() > 0.5);
}

#[test]
fn a_resume_with_other_data_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last");
    let mut learner = Learner::new(task()).keep_last(&path).silent();
    learner.fit_without_validation(&TensorLoader::new(line(40)).batch_size(8)).unwrap();
    let resumed = |loader: &dyn Loader<Pair>| {
        let learner = Learner::new(task()).epochs(2).silent();
        let mut learner = learner.resume(&Checkpoint::open(&path).unwrap()).unwrap();
        learner.fit_without_validation(loader)
    };
    let refused = |loader: &dyn Loader<Pair>, expected: &str| {
        let error = resumed(loader).unwrap_err();
        assert!(matches!(error, TrainError::OtherRun { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    };
    refused(&TensorLoader::new(line(40)).batch_size(10), "batch size 8, this one 10");
    refused(&TensorLoader::new(line(48)).batch_size(8), "number of items 40, this one 48");
    resumed(&TensorLoader::new(line(40)).batch_size(8)).unwrap();

    let other = FunctionTask::new(
        linear(3, 0.5),
        AdamConfig::new().init(),
        0.05,
        |_: &mut Trainable<Linear<B>>, _: Pair, _: &mut Step<'_>| Ok(()),
        |_: &mut Trainable<Linear<B>>, _: Pair, _: &mut Validation<'_>| Ok(()),
    );
    let error = Learner::new(other).resume(&Checkpoint::open(&path).unwrap()).unwrap_err().to_string();
    assert!(error.contains("weight") && error.contains("[1, 1]"), "{error}");
    // Other metrics in the middle of an epoch.
    let mut stopped = Learner::new(task()).max_steps(3).keep_last(&path).metric(Errors::default()).silent();
    stopped.fit_without_validation(&TensorLoader::new(line(40)).batch_size(8)).unwrap();
    let error = Learner::new(task()).resume(&Checkpoint::open(&path).unwrap()).unwrap_err().to_string();
    assert!(
        error.contains("its epoch began with the metrics [\"absolute error\"], this run has []"),
        "{error}"
    );
    // The optimizer of another kind.
    let other = Supervised::new(linear(1, 0.5), SgdConfig::new().init(), 0.05, squared_error);
    let error = Learner::new(other).resume(&Checkpoint::open(&path).unwrap()).unwrap_err().to_string();
    assert!(error.contains("optimizer"), "{error}");
}

/// Two models: one imitates the other, which imitates the line.
struct Imitation {
    teacher: Trainable<Linear<B>>,
    student: Trainable<Linear<B>>,
    /// The number of batches.
    batches: u64,
}

impl Imitation {
    fn new() -> Imitation {
        let teacher = Trainable::new(linear(1, 0.5), AdamConfig::new().init(), 0.1).named("teacher");
        let student = Trainable::new(linear(1, -1.0), SgdConfig::new().init(), 0.5).named("student");
        Imitation { teacher, student, batches: 0 }
    }
}

impl Task for Imitation {
    type Batch = Pair;
    type ValidBatch = Pair;

    fn train(&mut self, (x, y): Pair, step: &mut Step<'_>) -> Result<()> {
        self.batches += 1;
        let loss = (self.teacher.forward(x.clone()) - y).square().mean();
        step.backward(loss, &mut self.teacher)?;
        for _ in 0..2 {
            let target = self.teacher.forward(x.clone()).detach();
            let loss = (self.student.forward(x.clone()) - target).square().mean();
            step.backward(loss, &mut self.student)?;
        }
        step.log("batches", self.batches as f64);
        Ok(())
    }

    fn validate(&mut self, (x, y): Pair, validation: &mut Validation<'_>) -> Result<()> {
        validation.log("student error", (self.student.forward(x) - y).abs().mean());
        Ok(())
    }

    fn state(&mut self, visitor: &mut dyn StateVisitor) -> Result<()> {
        self.teacher.state(visitor)?;
        self.student.state(visitor)?;
        visitor.value("batches", &mut self.batches)
    }
}

#[test]
fn a_task_of_two_models_trains_both_and_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last");
    let (train, valid) = (TensorLoader::new(line(32)).batch_size(8), TensorLoader::new(line(10)));
    let mut straight = Learner::new(Imitation::new()).epochs(60).silent();
    let whole = straight.fit(&train, &valid).unwrap();
    let error = |epoch: usize| whole.epochs[epoch].valid().unwrap().metric("student error").unwrap();
    assert!(error(59) < 0.05 * error(0), "{} after {}", error(59), error(0));
    let losses = &whole.values["student loss"];
    assert_eq!((losses.len(), whole.values["batches"].last()), (2 * 60 * 4, Some(&240.0)));
    assert_eq!(straight.task().student.updates(), 480);

    let mut first = Learner::new(Imitation::new()).max_steps(130).keep_last(&path).silent();
    let before = first.fit(&train, &valid).unwrap();
    assert_eq!((before.stopped, first.step()), (StopReason::Finished, 130));
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.module_names(), ["student", "teacher"]);
    let mut second = Learner::new(Imitation::new()).epochs(60).resume(&checkpoint).unwrap().silent();
    let after = second.fit(&train, &valid).unwrap();
    assert_eq!(after.epochs.last(), whole.epochs.last());
    assert_eq!(second.task().batches, 240);
    let data = |learner: &Learner<Imitation>| learner.task().student.weight.to_data();
    assert_eq!(data(&second), data(&straight));
}

#[test]
fn lbfgs_fits_a_line_in_few_steps() {
    let optimizer = LbfgsConfig::new().with_line_search(LineSearch::StrongWolfe).init();
    let task = FunctionTask::new(
        linear(1, 0.5),
        optimizer,
        1.0,
        |model: &mut Trainable<Linear<B>>, (x, y): Pair, step: &mut Step<'_>| {
            step.minimize(model, |model| (model.forward(x.clone()) - y.clone()).square().mean())?;
            Ok(())
        },
        |_: &mut Trainable<Linear<B>>, _: Pair, _: &mut Validation<'_>| Ok(()),
    );
    let mut learner = Learner::new(task).epochs(3).silent();
    let history = learner.fit_without_validation(&TensorLoader::new(line(32))).unwrap();
    assert!(history.losses[0] > 0.5 && history.losses[2] < 1e-6, "{:?}", history.losses);
}

#[test]
fn accumulated_passes_equal_one_large_batch() {
    let sgd = |passes| SgdConfig::new().init().with_accumulation(passes).unwrap();
    let run = |passes, batch_size| {
        let loss = squared_error as fn(&_, _) -> _;
        let mut learner =
            Learner::new(Supervised::new(linear(1, 0.5), sgd(passes), 0.1, loss)).epochs(5).silent();
        learner.fit_without_validation(&TensorLoader::new(line(32)).batch_size(batch_size)).unwrap();
        assert_eq!(learner.task().trainable().updates(), 5);
        weights(&learner)[0]
    };
    assert!((run(4, 8) - run(1, 32)).abs() < 1e-6);
}

#[test]
fn validation_uses_averaged_weights_and_training_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last");
    let loader = TensorLoader::new(line(32)).batch_size(8);
    let average =
        || WeightAverage::new(SwaConfig::new().init(), |task: &mut Line| task.trainable_mut().model_mut());
    let mut plain = Learner::new(task()).epochs(3).silent();
    let expected = plain.fit(&loader, &loader).unwrap();
    let mut straight = Learner::new(task()).epochs(3).callback(average()).silent();
    let whole = straight.fit(&loader, &loader).unwrap();
    assert_eq!(whole.losses, expected.losses, "training is as without the average");
    assert_eq!(weights(&straight), weights(&plain));
    // The average lags behind the weights, so its error is greater.
    let valid = |history: &History| history.epochs[2].valid().unwrap().loss;
    assert!(valid(&whole) > valid(&expected), "{} and {}", valid(&whole), valid(&expected));

    let mut first = Learner::new(task()).max_steps(6).callback(average()).keep_last(&path).silent();
    first.fit(&loader, &loader).unwrap();
    let second = Learner::new(task()).epochs(3).callback(average().apply_at_end(true)).silent();
    let mut second = second.resume(&Checkpoint::open(&path).unwrap()).unwrap();
    let after = second.fit(&loader, &loader).unwrap();
    assert_eq!(after.epochs.last(), whole.epochs.last());
    let score = second.evaluate(&[("valid", &loader)]).unwrap();
    assert_eq!(score[0].1.loss, valid(&whole), "the model has the averaged weights at the end");
}

#[test]
fn validation_runs_at_intervals_on_named_sets() {
    let evaluations = Arc::new(Mutex::new(Vec::new()));

    type Evaluations = Vec<(u64, Vec<String>)>;
    struct Watch(Arc<Mutex<Evaluations>>);
    impl<T> Callback<T> for Watch {
        fn name(&self) -> &str {
            "watch"
        }
        fn on(&mut self, event: Event<'_>, _context: &mut Context<'_, T>) -> Result<()> {
            if let Event::Evaluated(report) = event {
                let names = report.valid.iter().map(|(name, _)| name.clone()).collect();
                self.0.lock().unwrap().push((report.step, names));
            }
            Ok(())
        }
    }

    let (near, far) = (TensorLoader::new(line(8)), TensorLoader::new(line(12)));
    let mut learner = Learner::new(task())
        .epochs(2)
        .validate_every(Interval::Steps(3))
        .callback(Watch(evaluations.clone()))
        .silent();
    learner.fit_with(&TensorLoader::new(line(32)).batch_size(8), &[("near", &near), ("far", &far)]).unwrap();
    let names = || vec!["near".to_owned(), "far".to_owned()];
    assert_eq!(*evaluations.lock().unwrap(), [(3, names()), (6, names())]);

    let scores = learner.evaluate(&[("near", &near)]).unwrap();
    assert_eq!((scores[0].0.as_str(), scores[0].1.num_items), ("near", 8));
}

#[test]
fn a_stream_may_be_unbounded() {
    let endless = Stream::new(|_| std::iter::repeat_with(|| Ok(line(4))));
    let mut learner = Learner::new(task()).max_steps(7).silent();
    assert_eq!(learner.fit_without_validation(&endless).unwrap().losses.len(), 7);
    assert_eq!((learner.epoch(), learner.step()), (0, 7));

    let empty = Stream::new(|_| std::iter::empty::<std::result::Result<Pair, DataError>>());
    let error = Learner::new(task()).max_steps(7).silent().fit_without_validation(&empty).unwrap_err();
    assert!(error.to_string().contains("without batches in epoch 1"), "{error}");
    let uneven = TensorLoader::new((line(4).0, line(5).0));
    let error = Learner::new(task()).silent().fit_without_validation(&uneven).unwrap_err().to_string();
    assert!(error.contains("the tensors have [4, 5] items"), "{error}");
}

#[test]
fn callbacks_run_in_order_and_keep_their_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series");

    struct Count(&'static str, u64, Arc<Mutex<Vec<(&'static str, u64)>>>);
    impl<T> Callback<T> for Count {
        fn name(&self) -> &str {
            "count"
        }
        fn on(&mut self, event: Event<'_>, context: &mut Context<'_, T>) -> Result<()> {
            if let Event::StepEnded = event {
                self.1 += 1;
                self.2.lock().unwrap().push((self.0, self.1));
                if self.1 == 100 {
                    context.control.stop(StopReason::Callback);
                }
                if self.1 == 50 && context.control.position().epoch == 90 {
                    return Err(context.control.error("count", "too late"));
                }
            }
            Ok(())
        }
        fn order(&self) -> i32 {
            if self.0 == "first" { -1 } else { 0 }
        }
        fn state(&mut self, _task: &mut T, visitor: &mut dyn StateVisitor) -> Result<()> {
            visitor.value("count", &mut self.1)
        }
    }

    let calls = Arc::new(Mutex::new(Vec::new()));
    let learner = |epochs| {
        Learner::new(task())
            .epochs(epochs)
            .callback(Count("second", 0, calls.clone()))
            .callback(Count("first", 0, calls.clone()))
            .keep_last_of(KeepLast::new(&path).keep(2).every(Interval::Steps(2)))
            .silent()
    };
    let loader = TensorLoader::new(line(32)).batch_size(8);
    learner(2).fit_without_validation(&loader).unwrap();
    assert_eq!(calls.lock().unwrap()[..4], [("first", 1), ("second", 1), ("first", 2), ("second", 2)]);
    let mut folders: Vec<String> = std::fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("step-"))
        .collect();
    folders.sort();
    assert_eq!(folders.len(), 2, "{folders:?}");

    let latest = kiln_store::CheckpointSeries::open(&path, 2).unwrap().latest().unwrap().unwrap();
    assert_eq!(latest.state().step, 8);
    calls.lock().unwrap().clear();
    learner(3).resume(&latest).unwrap().fit_without_validation(&loader).unwrap();
    assert_eq!(calls.lock().unwrap()[0], ("first", 9));
}

/// The state of a callback, with floats that JSON lacks.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Floats {
    best: f64,
    small: f32,
    list: Vec<f64>,
    optional: [Option<f32>; 2],
    by_name: std::collections::BTreeMap<String, f64>,
    by_step: std::collections::BTreeMap<u64, f64>,
    either: Either,
    #[serde(flatten)]
    more: More,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct More {
    worst: f64,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
enum Either {
    Number(f64),
    Text(String),
}

impl<T> Callback<T> for Floats {
    fn name(&self) -> &str {
        "floats"
    }
    fn on(&mut self, _event: Event<'_>, _context: &mut Context<'_, T>) -> Result<()> {
        Ok(())
    }
    fn state(&mut self, _task: &mut T, visitor: &mut dyn StateVisitor) -> Result<()> {
        visitor.value("best", &mut self.best)?;
        visitor.value("all", self)
    }
}

/// The best value of a callback is infinite until there is one: such a run must resume.
#[test]
fn values_that_are_infinite_or_nan_are_resumed() {
    let floats = |number: f64| Floats {
        best: number,
        small: number as f32,
        list: vec![number, 0.1, -number],
        optional: [Some(number as f32), None],
        by_name: [("a".to_owned(), number)].into(),
        by_step: [(7, -number)].into(),
        either: Either::Number(number),
        more: More { worst: -number },
    };
    struct Check(Floats);
    impl<T> Callback<T> for Check {
        fn name(&self) -> &str {
            "floats"
        }
        fn on(&mut self, _event: Event<'_>, _context: &mut Context<'_, T>) -> Result<()> {
            Ok(())
        }
        fn state(&mut self, _task: &mut T, visitor: &mut dyn StateVisitor) -> Result<()> {
            let (mut best, mut all) =
                (0.0, Floats { either: Either::Text("other".to_owned()), ..self.0.clone() });
            visitor.value("best", &mut best)?;
            visitor.value("all", &mut all)?;
            // Other visitors than that of `resume` leave the values.
            if best == 0.0 {
                return Ok(());
            }
            assert_eq!(format!("{best:?} {all:?}"), format!("{:?} {:?}", self.0.best, self.0));
            Ok(())
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let loader = TensorLoader::new(line(32)).batch_size(8);
    for (name, number) in
        [("inf", f64::INFINITY), ("minus", f64::NEG_INFINITY), ("nan", f64::NAN), ("e", 1e-300)]
    {
        let path = folder.path().join(name);
        let learner = || Learner::new(task()).silent();
        learner().callback(floats(number)).keep_last(&path).fit_without_validation(&loader).unwrap();
        let checkpoint = Checkpoint::open(&path).unwrap();
        learner().epochs(2).callback(Check(floats(number))).resume(&checkpoint).unwrap();
    }
}

#[test]
fn a_value_that_cannot_be_loaded_is_refused_when_it_is_saved() {
    struct Refused;
    impl<T> Callback<T> for Refused {
        fn name(&self) -> &str {
            "refused"
        }
        fn on(&mut self, _event: Event<'_>, _context: &mut Context<'_, T>) -> Result<()> {
            Ok(())
        }
        fn state(&mut self, _task: &mut T, visitor: &mut dyn StateVisitor) -> Result<()> {
            let mut pairs = std::collections::BTreeMap::from([((1u8, 2u8), 0.5f64)]);
            visitor.value("pairs", &mut pairs)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let loader = TensorLoader::new(line(32)).batch_size(8);
    let mut learner = Learner::new(task()).silent().callback(Refused).keep_last(folder.path().join("last"));
    let error = learner.fit_without_validation(&loader).unwrap_err().to_string();
    assert!(error.contains("`callback_refused_pairs`") && error.contains("key"), "{error}");
}

#[test]
fn an_error_of_a_callback_or_an_anomaly_names_its_place() {
    struct Failing;
    impl<T> Callback<T> for Failing {
        fn name(&self) -> &str {
            "failing"
        }
        fn on(&mut self, event: Event<'_>, context: &mut Context<'_, T>) -> Result<()> {
            if let Event::StepEnded = event
                && context.control.steps() == 3
            {
                return Err(context.control.error("failing", "no more"));
            }
            Ok(())
        }
    }
    let loader = TensorLoader::new(line(32)).batch_size(8);
    let mut learner = Learner::new(task()).callback(Failing).silent();
    let error = learner.fit_without_validation(&loader).unwrap_err().to_string();
    assert_eq!(error, "[failing] epoch 1, step 3, batch 3: no more");

    // The square root of 0 has an infinite slope, but a finite value.
    let root = |model: &Linear<B>, (x, _): Pair| StepOutput::new((model.forward(x) * 0.0).sqrt().mean(), 8);
    let task = Supervised::new(linear(1, 0.5), SgdConfig::new().init(), 0.1, root);
    let mut learner = Learner::new(task).detect_anomalies(true).silent();
    let error = learner.fit_without_validation(&loader).unwrap_err().to_string();
    assert!(error.contains("epoch 1, step 1, batch 1: the gradient of `weight` is not finite: `"), "{error}");
    assert!(error.contains("returned NaN, after `") && error.contains("returned infinity\n"), "{error}");

    // The logarithm of a negative number, in the forward pass.
    let log =
        |model: &Linear<B>, (x, _): Pair| StepOutput::new((model.forward(x) - 9.0).log().exp().mean(), 8);
    let task = Supervised::new(linear(1, 0.5), SgdConfig::new().init(), 0.1, log);
    let mut learner = Learner::new(task).detect_anomalies(true).silent();
    let error = learner.fit_without_validation(&loader).unwrap_err().to_string();
    assert!(error.contains("batch 1: the loss is NaN: `ln` of f32[8, 1] returned NaN"), "{error}");
}

#[test]
fn loggers_receive_the_records_in_order() {
    struct Log(Arc<Mutex<Vec<Record>>>);
    impl kiln_train::Logger for Log {
        fn name(&self) -> &str {
            "log"
        }
        fn record(&mut self, record: &Record) -> std::result::Result<(), kiln_train::LoggerError> {
            self.0.lock().unwrap().push(record.clone());
            Ok(())
        }
    }
    let records = Arc::new(Mutex::new(Vec::new()));
    let mut learner = Learner::new(task())
        .name("line")
        .epochs(1)
        .hyper_parameter("rate", 0.05)
        .metric(Errors::default())
        .logger(Log(records.clone()))
        .silent();
    learner.fit(&TensorLoader::new(line(16)).batch_size(8), &TensorLoader::new(line(8))).unwrap();
    let records = records.lock().unwrap();
    let kinds: Vec<String> = records
        .iter()
        .map(|record| {
            let kind = serde_json::to_value(record).unwrap()["record"].as_str().unwrap().to_owned();
            if let Record::Values(values) = record { values.split.name().to_owned() } else { kind }
        })
        .collect();
    assert_eq!(kinds, ["start", "step", "step", "train", "valid", "epoch", "usage", "end"]);
    let Record::Start(description) = &records[0] else { panic!("{:?}", records[0]) };
    assert_eq!((description.name.as_str(), &*description.hyper_parameters["rate"]), ("line", "0.05"));
}
