//! Options of the learner: the search of a learning rate, smaller batches once memory runs out, the best weights,
//! statistics of gradients, activation checkpointing, tensors, and the table of times.

use std::sync::{Arc, Mutex};

use kiln_backends::Flex;
use kiln_data::DataError;
use kiln_nn::{Linear, LinearConfig};
use kiln_optim::lr_scheduler::Lambda;
use kiln_optim::{AdamConfig, SgdConfig};
use kiln_store::Checkpoint;
use kiln_tensor::{Autodiff, Checkpointing, Error, Tensor};
use kiln_train::loader::{Prefetch, Stream, TensorLoader};
use kiln_train::{
    Activity, FunctionTask, GradientStatistics, Interrupter, KeepLast, Learner, LearningRateFinder, Level,
    Loader, Monitor, Record, Renderer, RestoreBest, Step, StepOutput, Supervised, TrainError, Trainable,
    Validation,
};

type B = Autodiff<Flex>;
type Pair = (Tensor<B, 2>, Tensor<B, 2>);
type Line = Supervised<Linear<B>, Pair, fn(&Linear<B>, Pair) -> StepOutput<B>>;

/// A line of weight 0.5 and bias 0.
fn linear() -> Linear<B> {
    let mut linear: Linear<B> = LinearConfig::new(1, 1).init(&Default::default());
    linear.weight = linear.weight.map(|weight| weight.zeros_like() + 0.5);
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

fn task(learning_rate: f64) -> Line {
    Supervised::new(linear(), SgdConfig::new().init(), learning_rate, squared_error as fn(&_, _) -> _)
}

fn weights(learner: &Learner<Line>) -> Vec<f32> {
    let model = learner.task().trainable();
    let bias = model.bias.as_ref().map(|bias| bias.to_data().to_vec::<f32>()).unwrap_or_default();
    [model.weight.to_data().to_vec::<f32>(), bias].concat()
}

/// A renderer that collects records.
#[derive(Clone, Default)]
struct Records(Arc<Mutex<Vec<Record>>>);

impl Renderer for Records {
    fn record(&mut self, record: &Record) {
        self.0.lock().unwrap().push(record.clone());
    }
}

impl Records {
    fn warnings(&self) -> Vec<String> {
        let of = |record: &Record| {
            let Record::Message { level: Level::Warning, text } = record else { return None };
            Some(text.clone())
        };
        self.0.lock().unwrap().iter().filter_map(of).collect()
    }
}

#[test]
fn the_search_of_a_learning_rate_leaves_no_trace() {
    let loader = TensorLoader::new(line(64)).batch_size(16).shuffle(1);
    let fitted = |search: bool| {
        let mut learner = Learner::new(task(0.1)).epochs(3).silent();
        if search {
            let curve = learner.find_learning_rate(&loader, &LearningRateFinder::new()).unwrap();
            assert!(curve.diverged, "a learning rate of 10 diverges: {curve}");
            assert_eq!(curve.points[0].learning_rate, 1e-7);
            let suggestion = curve.suggestion().unwrap();
            assert!((1e-3..1.0).contains(&suggestion), "{curve}");
            assert!(curve.to_string().contains("suggested learning rate"), "{curve}");
        }
        let history = learner.fit(&loader, &loader).unwrap();
        (history, weights(&learner))
    };
    assert_eq!(fitted(true), fitted(false));
}

#[test]
fn the_first_losses_of_a_search_are_those_of_the_model() {
    // With a constant batch and a tiny learning rate, the loss is that of the initial model: mean((1.5 x + 1)²).
    let loader = TensorLoader::new(line(4)).batch_size(4);
    let mut learner = Learner::new(task(0.1)).silent();
    let finder = LearningRateFinder::new().range(1e-12, 1e-11).steps(5).smoothing(0.5);
    let curve = learner.find_learning_rate(&loader, &finder).unwrap();
    let expected = [0.0f64, 0.25, 0.5, 0.75].iter().map(|x| (1.5 * x + 1.0).powi(2)).sum::<f64>() / 4.0;
    assert_eq!(curve.points.len(), 5);
    assert!(!curve.diverged);
    for point in &curve.points {
        assert!(
            (point.loss - expected).abs() < 1e-5 && (point.smoothed - expected).abs() < 1e-5,
            "{point:?}"
        );
    }
    let last = curve.points[4].learning_rate;
    assert!((last / 1e-11 - 1.0).abs() < 1e-9, "{last}");
}

#[test]
fn a_search_names_its_problem() {
    let loader = TensorLoader::new(line(4)).batch_size(4);
    let mut learner = Learner::new(task(0.1)).silent();
    let mut message =
        |finder: LearningRateFinder| learner.find_learning_rate(&loader, &finder).unwrap_err().to_string();
    assert!(message(LearningRateFinder::new().range(1.0, 0.1)).contains("ascending"));
    assert!(message(LearningRateFinder::new().steps(1)).contains("at least 2"));
    assert!(message(LearningRateFinder::new().model("critic")).contains("[\"model\"]"));
    assert!(message(LearningRateFinder::new().value("error")).contains("available: loss"));
    let empty = Stream::new(|_| std::iter::empty::<Result<Pair, DataError>>());
    let error = learner.find_learning_rate(&empty, &LearningRateFinder::new()).unwrap_err();
    assert!(error.to_string().contains("without batches"), "{error}");
}

type Step2 = fn(&mut Trainable<Linear<B>>, Pair, &mut Step<'_>) -> kiln_train::Result<()>;
type Valid2 = fn(&mut Trainable<Linear<B>>, Pair, &mut Validation<'_>) -> kiln_train::Result<()>;

/// A task without memory for more than 4 items.
fn small_memory() -> FunctionTask<Linear<B>, Pair, Pair, Step2, Valid2> {
    let train: Step2 = |model, batch, step| {
        if batch.0.dims()[0] > 4 {
            return Err(TrainError::task(Error::device("gpu", "out of memory: 8 bytes requested")));
        }
        let (loss, observation) = {
            let output = squared_error(model, batch);
            (output.loss().clone(), output.observation().clone())
        };
        step.observe(observation);
        step.backward(loss, model)?;
        Ok(())
    };
    let validate: Valid2 = |model, batch, validation| {
        validation.observe(squared_error(model, batch));
        Ok(())
    };
    FunctionTask::new(linear(), SgdConfig::new().init(), 0.1, train, validate)
}

/// As PyTorch's `DataLoader(range(10), batch_size=4, drop_last=True)`: 2 batches, of the items 0 to 7.
#[test]
fn an_incomplete_last_batch_is_dropped() {
    let items = |loader: &TensorLoader<Tensor<B, 1>>, epoch, skip| -> Vec<Vec<f32>> {
        loader.batches(epoch, skip).map(|batch| batch.unwrap().into_data().to_vec::<f32>()).collect()
    };
    let x = Tensor::<B, 1>::arange_float(0.0..10.0, 1.0, &Default::default());
    let kept = TensorLoader::new(x.clone()).batch_size(4);
    let dropped = kept.clone().drop_last(true);
    assert_eq!((items(&kept, 0, 0).len(), kept.num_batches()), (3, Some(3)));
    assert_eq!(items(&dropped, 0, 0), [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]);
    assert_eq!(items(&dropped, 0, 1), [[4.0, 5.0, 6.0, 7.0]]);
    assert_eq!(dropped.num_batches(), Some(2));
    let whole = dropped.clone().batch_size(5);
    assert_eq!((items(&whole, 0, 0).len(), whole.num_batches()), (2, Some(2)));
    // A shuffled epoch is the beginning of the whole order.
    let (kept, dropped) = (kept.shuffle(3), dropped.shuffle(3));
    assert_eq!(items(&dropped, 1, 0), items(&kept, 1, 0)[..2]);
    let ahead = Prefetch::new(dropped.clone(), 2);
    assert_eq!((Loader::<Tensor<B, 1>>::num_batches(&ahead), ahead.batches(0, 0).count()), (Some(2), 2));
    // A run with and without the last batch differ in their items.
    assert_eq!((kept.identity().items, dropped.identity().items), (Some(10), Some(8)));
    let short = TensorLoader::new(x).batch_size(11).drop_last(true);
    let mut short = short.batches(0, 0);
    let error = short.next().unwrap().unwrap_err().to_string();
    assert!(error.contains("no batch of 11 items can be filled from 10, and drop_last is on"), "{error}");
    assert!(short.next().is_none());
}

#[test]
fn training_on_tensors_drops_an_incomplete_last_batch() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last");
    let learner = |epochs| Learner::new(task(0.1)).epochs(epochs).seed(5).silent();
    let fit = |learner: &mut Learner<Line>| learner.fit_tensors(line(13), line(5), 4);
    assert_eq!(fit(&mut learner(1)).unwrap().losses.len(), 4);
    let whole = fit(&mut learner(2).drop_last(true)).unwrap();
    assert_eq!((whole.losses.len(), whole.epochs[0].train.num_items), (6, 12));
    assert_eq!(whole.epochs[0].valid().unwrap().num_items, 5);

    let mut first = learner(2).drop_last(true).max_steps(4).keep_last(&path);
    let begun = fit(&mut first).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let rest = fit(&mut learner(2).drop_last(true).resume(&checkpoint).unwrap()).unwrap();
    assert_eq!([begun.losses, rest.losses].concat(), whole.losses);
    let other = fit(&mut learner(2).resume(&checkpoint).unwrap()).unwrap_err().to_string();
    assert!(other.contains("its training loader has number of items 12, this one 13"), "{other}");
}

#[test]
fn batches_are_halved_until_memory_suffices() {
    let data = TensorLoader::new(line(40)).shuffle(5);
    let valid = TensorLoader::new(line(8)).batch_size(8);
    let records = Records::default();
    let mut learner = Learner::new(small_memory()).epochs(2).renderer(records.clone());
    let mut sizes = Vec::new();
    let halved = learner
        .fit_with_batch_size(
            16,
            |size| {
                sizes.push(size);
                Ok(data.clone().batch_size(size))
            },
            &valid,
        )
        .unwrap();
    assert_eq!(sizes, [16, 8, 4]);
    assert_eq!(records.warnings().len(), 2);
    assert!(records.warnings()[0].contains("batches of 16 items: batches of 8"), "{:?}", records.warnings());
    let is_told = |record: &Record| matches!(record, Record::Batches { batches: Some(10), .. });
    assert!(records.0.lock().unwrap().iter().any(is_told));
    // The items and their order are those of a run with 4 items from the start.
    let mut learner = Learner::new(small_memory()).epochs(2).silent();
    let small = learner.fit(&data.clone().batch_size(4), &valid).unwrap();
    assert_eq!(halved, small);
    assert_eq!(halved.losses.len(), 20);
}

#[test]
fn halving_within_an_epoch_continues_with_the_next_item() {
    // The first batch of an epoch has few items, so that memory runs out at the second one.
    let seen = Arc::new(Mutex::new(Vec::new()));
    let of = seen.clone();
    let train = move |model: &mut Trainable<Linear<B>>, (x, y): Pair, step: &mut Step<'_>| {
        let items = x.to_data().to_vec::<f32>();
        if items.len() > 2 && items[0] > 0.4 {
            return Err(TrainError::task(Error::device("gpu", "out of memory: 8 bytes requested")));
        }
        of.lock().unwrap().extend(items);
        let loss = (model.forward(x) - y).square().mean();
        step.backward(loss, model).map(|_| ())
    };
    let validate = |_: &mut Trainable<Linear<B>>, _: Pair, _: &mut Validation<'_>| Ok(());
    let task = FunctionTask::new(linear(), SgdConfig::new().init(), 0.01, train, validate);
    let data = TensorLoader::new(line(16));
    let valid = TensorLoader::new(line(4)).batch_size(4);
    let mut learner = Learner::new(task).silent();
    let history = learner.fit_with_batch_size(8, |size| Ok(data.clone().batch_size(size)), &valid).unwrap();
    let expected: Vec<f32> = (0..16).map(|index| index as f32 / 16.0).collect();
    assert_eq!(*seen.lock().unwrap(), expected);
    assert_eq!(history.losses.len(), 5, "one batch of 8, four of 2");
}

#[test]
fn a_halved_run_resumes_with_its_size_and_one_item_is_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let data = TensorLoader::new(line(40)).shuffle(5);
    let valid = TensorLoader::new(line(8)).batch_size(8);
    let interrupter = Interrupter::new();
    let stop = interrupter.clone();
    let checkpoint = folder.path().join("last");
    let learner = |epochs| Learner::new(small_memory()).epochs(epochs).silent();
    let whole = learner(2).fit(&data.clone().batch_size(4), &valid).unwrap();
    let mut first = learner(2).keep_last(&checkpoint).interrupter(interrupter).on_step(move |record| {
        if record.step == 6 {
            stop.stop()
        }
    });
    let begun = first.fit_with_batch_size(16, |size| Ok(data.clone().batch_size(size)), &valid).unwrap();
    let mut sizes = Vec::new();
    let make = |size: usize| {
        sizes.push(size);
        Ok(data.clone().batch_size(size))
    };
    let mut second = learner(2).resume(&Checkpoint::open(&checkpoint).unwrap()).unwrap();
    let rest = second.fit_with_batch_size(16, make, &valid).unwrap();
    assert_eq!(sizes, [4]);
    assert_eq!([begun.losses, rest.losses].concat(), whole.losses);

    let train: Step2 =
        |_, _, _| Err(TrainError::task(Error::device("gpu", "out of memory: 8 bytes requested")));
    let validate: Valid2 = |_, _, _| Ok(());
    let task = FunctionTask::new(linear(), SgdConfig::new().init(), 0.1, train, validate);
    let mut learner = Learner::new(task).silent();
    let error = learner.fit_with_batch_size(5, |size| Ok(data.clone().batch_size(size)), &valid).unwrap_err();
    assert!(error.to_string().contains("out of memory"), "{error}");
    let error = learner.fit_with_batch_size(0, |size| Ok(data.clone().batch_size(size)), &valid).unwrap_err();
    assert!(error.to_string().contains("the batch size is 0"), "{error}");
}

#[test]
fn the_best_weights_return_at_the_end() {
    let loader = TensorLoader::new(line(16)).batch_size(16);
    // The learning rate of later epochs destroys the model.
    let rates = || Lambda::new(1.0, |step: u64| if step < 3 { 0.1 } else { 1.1 }).unwrap();
    let run = |epochs: u64| {
        let task =
            Supervised::new(linear(), SgdConfig::new().init(), rates(), squared_error as fn(&_, _) -> _);
        let mut learner: Learner<Line> =
            Learner::new(task).epochs(epochs).callback(RestoreBest::new()).silent();
        let history = learner.fit(&loader, &loader).unwrap();
        (history, weights(&learner))
    };
    let (history, restored) = run(6);
    assert_eq!(history.best_epoch, Some(2));
    assert_eq!(restored, run(3).1);
    let mut learner =
        Learner::new(task(0.1)).callback(RestoreBest::new().monitor(Monitor::Metric("x".into()))).silent();
    assert!(learner.fit(&loader, &loader).unwrap_err().to_string().contains("no metric `x`"));
}

#[test]
fn a_resumed_run_restores_the_same_best_weights() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = folder.path().join("last");
    let loader = TensorLoader::new(line(16)).batch_size(16);
    let rates = || Lambda::new(1.0, |step: u64| if step < 3 { 0.1 } else { 1.1 }).unwrap();
    let learner = |epochs: u64| -> Learner<Line> {
        let task =
            Supervised::new(linear(), SgdConfig::new().init(), rates(), squared_error as fn(&_, _) -> _);
        Learner::new(task)
            .epochs(epochs)
            .callback(RestoreBest::new())
            .keep_last_of(KeepLast::new(&checkpoint))
            .silent()
    };
    let mut whole = learner(6);
    whole.fit(&loader, &loader).unwrap();
    learner(4).fit(&loader, &loader).unwrap();
    let mut resumed = learner(6).resume(&Checkpoint::open(&checkpoint).unwrap()).unwrap();
    resumed.fit(&loader, &loader).unwrap();
    assert_eq!(weights(&resumed), weights(&whole));
}

#[test]
fn statistics_of_gradients_equal_those_by_hand() {
    // One step from weight 0.5 and bias 0: residuals 1.5 x + 1 with the sign reversed.
    let loader = TensorLoader::new(line(4)).batch_size(4);
    let statistics = GradientStatistics::new().per_parameter(true);
    let mut learner = Learner::new(task(0.1)).callback(statistics).silent();
    let history = learner.fit(&loader, &loader).unwrap();
    let xs = [0.0f64, 0.25, 0.5, 0.75];
    let weight = xs.iter().map(|x| -2.0 * (1.5 * x + 1.0) * x).sum::<f64>() / 4.0;
    let bias = xs.iter().map(|x| -2.0 * (1.5 * x + 1.0)).sum::<f64>() / 4.0;
    let close = |name: &str, expected: f64| {
        let value = history.values[name][0];
        assert!((value - expected).abs() < 1e-5, "{name}: {value}, expected {expected}");
    };
    close("gradient norm", weight.hypot(bias));
    close("gradient max", weight.abs().max(bias.abs()));
    close("gradient norm of weight", weight.abs());
    close("relative gradient of weight", weight.abs() / 0.5);
    let mut learner =
        Learner::new(task(0.1)).max_steps(5).callback(GradientStatistics::new().every(2)).silent();
    assert_eq!(learner.fit(&loader, &loader).unwrap().values["gradient norm"].len(), 3);
    let mut learner = Learner::new(task(0.1)).callback(GradientStatistics::new().every(0)).silent();
    assert!(learner.fit(&loader, &loader).unwrap_err().to_string().contains("at least 1"));
}

#[test]
fn a_callback_may_change_gradients() {
    #[derive(Debug)]
    struct Double;
    impl<T> kiln_train::Callback<T> for Double {
        fn name(&self) -> &str {
            "double"
        }
        fn on(
            &mut self,
            _: kiln_train::Event<'_>,
            _: &mut kiln_train::Context<'_, T>,
        ) -> kiln_train::Result<()> {
            Ok(())
        }
        fn gradients(&mut self, event: &mut kiln_train::GradientsEvent<'_>) -> kiln_train::Result<()> {
            for (_, gradient) in event.gradients_mut().iter_mut() {
                *gradient = gradient.clone().mul_scalar(2.0).map_err(TrainError::task)?;
            }
            Ok(())
        }
    }
    let loader = TensorLoader::new(line(8)).batch_size(8);
    let mut doubled = Learner::new(task(0.05)).epochs(3).callback(Double).silent();
    doubled.fit(&loader, &loader).unwrap();
    let mut plain = Learner::new(task(0.1)).epochs(3).silent();
    plain.fit(&loader, &loader).unwrap();
    for (doubled, plain) in weights(&doubled).iter().zip(weights(&plain)) {
        assert!((doubled - plain).abs() < 1e-6);
    }
}

#[test]
fn checkpointing_changes_no_values() {
    let run = |mode| {
        let mut learner = Learner::new(task(0.1)).epochs(2).checkpointing(mode).silent();
        let history = learner.fit_tensors(line(32), line(8), 8).unwrap();
        (history, weights(&learner))
    };
    assert_eq!(run(Checkpointing::Balanced), run(Checkpointing::None));
}

#[test]
fn tensors_train_and_report_their_usage() {
    let records = Records::default();
    let task = Supervised::new(linear(), AdamConfig::new().init(), 0.1, squared_error as fn(&_, _) -> _);
    let mut learner: Learner<Line> = Learner::new(task).epochs(30).renderer(records.clone());
    let history = learner.fit_tensors(line(64), line(16), 16).unwrap();
    assert_eq!(history.losses.len(), 120);
    assert!(history.epochs[29].valid().unwrap().loss < 0.01);
    let count = |activity| history.usage.times.iter().find(|row| row.activity == activity).unwrap().count;
    assert_eq!(count(Activity::Steps), 120);
    assert_eq!(count(Activity::Validation), 30);
    assert!(history.usage.process_peak_bytes.is_none_or(|bytes| bytes > 1 << 20));
    assert_eq!(history.usage.devices.len(), 1);
    let records = records.0.lock().unwrap();
    let end = &records[records.len() - 2..];
    assert!(matches!(end, [Record::Usage(usage), Record::End { .. }] if *usage == history.usage), "{end:?}");
    let different = (line(4).0, line(5).1);
    assert!(learner_error(different).contains("items"));
}

fn learner_error(pair: Pair) -> String {
    Learner::new(task(0.1)).silent().fit_tensors(pair, line(4), 2).unwrap_err().to_string()
}

#[test]
fn prefetched_batches_are_those_of_the_loader() {
    let loader = TensorLoader::new(line(50)).batch_size(8).shuffle(3);
    let ahead = Prefetch::new(loader.clone(), 3);
    for (epoch, skip) in [(0, 0), (1, 0), (1, 5), (1, 99)] {
        let values = |loader: &dyn Loader<Pair>| -> Vec<f32> {
            loader.batches(epoch, skip).flat_map(|batch| batch.unwrap().0.to_data().to_vec::<f32>()).collect()
        };
        assert_eq!(values(&ahead), values(&loader));
    }
    assert_eq!(Loader::<Pair>::identity(&ahead), Loader::<Pair>::identity(&loader));
    // A dropped iterator ends its thread, also of an unbounded stream.
    let endless = Prefetch::new(Stream::new(|_| std::iter::repeat_with(|| Ok(1u8))), 2);
    assert_eq!(endless.batches(0, 0).take(5).map(Result::unwrap).sum::<u8>(), 5);
    let broken = Prefetch::new(
        Stream::new(|_| (0..5).map(|index| if index == 2 { panic!("a broken file") } else { Ok(index) })),
        2,
    );
    let batches: Vec<Result<i32, DataError>> = broken.batches(0, 0).collect();
    assert_eq!(batches.len(), 3);
    let error = batches[2].as_ref().unwrap_err().to_string();
    assert!(error.contains("batch 2") && error.contains("a broken file"), "{error}");
}

#[test]
fn a_run_without_a_length_says_that_it_has_one_epoch() {
    let told = |learner: Learner<Line>| -> usize {
        let records = Records::default();
        let mut learner = learner.renderer(records.clone());
        learner.fit_without_validation(&TensorLoader::new(line(8)).batch_size(4)).unwrap();
        let records = records.0.lock().unwrap();
        let is_told = |record: &&Record| {
            matches!(record, Record::Message { level: Level::Info, text }
                if text == "neither `epochs` nor `max_steps` is set: training ends after 1 epoch")
        };
        records.iter().filter(is_told).count()
    };
    assert_eq!(told(Learner::new(task(0.1))), 1);
    assert_eq!(told(Learner::new(task(0.1)).epochs(1)), 0);
    assert_eq!(told(Learner::new(task(0.1)).max_steps(1)), 0);
}
