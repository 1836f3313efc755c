//! Data-parallel training on several CPU devices.

use std::ops::Deref;
use std::sync::MutexGuard;

use kiln_backends::{Device, Dyn};
use kiln_nn::{
    BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig, Module, SyncBatchNorm,
    SyncGroup,
};
use kiln_optim::{AdamConfig, LbfgsConfig, Optimizer, SgdConfig};
use kiln_store::Checkpoint;
use kiln_tensor::{Tensor, TensorData};
use kiln_train::loader::{ShardedLoader, SplitLoader, TensorLoader};
use kiln_train::{
    Callback, Context, DataParallel, Event, FunctionTask, GradientStatistics, GradientsEvent, Interrupter,
    Learner, LearningRateFinder, Loader, RestoreBest, Result, StateVisitor, Step, StepOutput, Supervised,
    Task, TrainError, Trainable, Validation,
};

use crate::alone;

type Batch = (Tensor<Dyn, 2>, Tensor<Dyn, 2>);

/// Two linear layers with an activation.
#[derive(Clone, Debug, Module)]
struct Net {
    hidden: Linear,
    dropout: Dropout,
    output: Linear,
}

type Regression = Supervised<Net, Batch, fn(&Net, Batch) -> StepOutput<Dyn>>;

impl Net {
    fn new(device: &Device, dropout: f64) -> Net {
        Net {
            hidden: LinearConfig::new(2, 8).init(device),
            dropout: DropoutConfig::new(dropout).init(),
            output: LinearConfig::new(8, 1).init(device),
        }
    }

    fn forward(&self, x: Tensor<Dyn, 2>) -> Tensor<Dyn, 2> {
        self.output.forward(self.dropout.forward(self.hidden.forward(x).tanh()))
    }
}

fn squared_error(model: &Net, (x, y): Batch) -> StepOutput<Dyn> {
    let predictions = model.forward(x);
    let loss = (predictions.clone() - y.clone()).square().mean();
    StepOutput::regression(loss, predictions, y)
}

/// Devices: each has another number of threads. Their random numbers are those of the process.
struct Devices {
    devices: Vec<Device>,
    _alone: MutexGuard<'static, ()>,
}

impl Deref for Devices {
    type Target = [Device];

    fn deref(&self) -> &[Device] {
        &self.devices
    }
}

fn devices(count: usize) -> Devices {
    let devices = (0..count).map(|index| Device::flex_with_threads(index + 1).autodiff()).collect();
    Devices { devices, _alone: alone() }
}

fn seed(devices: &[Device]) {
    use kiln_tensor::Backend;
    for (index, device) in devices.iter().enumerate() {
        Dyn::seed(device, 100 + index as u64);
    }
}

fn task(device: &Device, dropout: f64, optimizer: impl Optimizer + 'static) -> Regression {
    Supervised::new(Net::new(device, dropout), optimizer, 0.05, squared_error as fn(&_, _) -> _)
}

fn parallel(devices: &[Device], dropout: f64) -> DataParallel<Regression> {
    seed(devices);
    DataParallel::on(devices, |device, _| task(device, dropout, AdamConfig::new().init())).unwrap()
}

fn data(items: usize, device: &Device) -> Batch {
    let numbers = |len: usize, step: usize| (0..len).map(|i| ((i * step) % 23) as f32 / 11.0 - 1.0).collect();
    let x: Vec<f32> = numbers(items * 2, 7);
    let x = Tensor::<Dyn, 1>::from_floats(x, device).reshape([items, 2]);
    let y = x.clone().sin().sum_dim(1);
    (x, y)
}

fn moved((x, y): Batch, device: &Device) -> Batch {
    (x.to_device(device), y.to_device(device))
}

/// Batches of 8, the last of 3, split over the devices.
fn split(devices: &[Device]) -> impl Loader<Vec<Batch>> + use<> {
    let loader = TensorLoader::new(data(35, &devices[0])).batch_size(8).shuffle(5);
    SplitLoader::new(loader, devices, moved)
}

/// The parameters and buffers as numbers.
fn parameters(module: &impl Module) -> Vec<(String, Vec<f32>)> {
    let numbers =
        |(name, parameter): (String, kiln_nn::Parameter)| (name, parameter.value.to_vec::<f32>().unwrap());
    module.named_parameters().into_iter().map(numbers).collect()
}

fn assert_equal_replicas(task: &DataParallel<Regression>) {
    let first = parameters(task.first().trainable().model());
    for replica in task.replicas() {
        assert_eq!(parameters(replica.trainable().model()), first);
    }
}

#[test]
fn replicas_train_as_one_device_with_the_whole_batch() {
    for count in [2, 4] {
        let devices = devices(count);
        let sgd = || SgdConfig::new().init();
        seed(&devices);
        let parallel = DataParallel::on(&devices, |device, _| task(device, 0.0, sgd())).unwrap();
        assert_equal_replicas(&parallel);
        seed(&devices);
        let single = task(&devices[0], 0.0, sgd());
        let valid = TensorLoader::new(data(10, &devices[0]));

        let whole = TensorLoader::new(data(35, &devices[0])).batch_size(8).shuffle(5);
        let mut alone = Learner::new(single).epochs(3).silent();
        let expected = alone.fit(&whole, &valid).unwrap();
        let mut together = Learner::new(parallel).epochs(3).silent();
        let history = together.fit(&split(&devices), &valid).unwrap();

        for (loss, expected) in history.losses.iter().zip(&expected.losses) {
            assert!((loss - expected).abs() < 1e-5, "{count} devices: {loss} instead of {expected}");
        }
        let report = |history: &kiln_train::History| {
            let epoch = history.epochs.last().unwrap();
            (epoch.train.num_items, epoch.train.loss, epoch.valid().unwrap().loss)
        };
        let ((items, train, valid), expected) = (report(&history), report(&expected));
        assert_eq!(items, expected.0);
        assert!((train - expected.1).abs() < 1e-5 && (valid - expected.2).abs() < 1e-5);
        let trained = parameters(together.task().first().trainable().model());
        for ((name, a), (_, b)) in trained.iter().zip(parameters(alone.task().trainable().model())) {
            let close = a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5);
            assert!(close, "{count} devices, {name}: {a:?} instead of {b:?}");
        }
    }
}

#[test]
fn runs_and_replicas_are_bit_identical() {
    for count in [2, 4] {
        let devices = devices(count);
        let run = || {
            let mut learner = Learner::new(parallel(&devices, 0.3)).epochs(3).silent();
            let history = learner.fit_without_validation(&split(&devices)).unwrap();
            assert_equal_replicas(learner.task());
            (history.losses, parameters(learner.task().first().trainable().model()))
        };
        assert_eq!(run(), run());
    }
}

#[test]
fn devices_with_fusion_train_alike() {
    let devices: Vec<Device> = [1, 2].map(|threads| Device::cpu_with_threads(threads).autodiff()).into();
    let mut learner = Learner::new(parallel(&devices, 0.0)).epochs(3).silent();
    let history = learner.fit_without_validation(&split(&devices)).unwrap();
    assert!(history.losses.last() < history.losses.first());
    assert_equal_replicas(learner.task());
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last");
    let devices = devices(2);
    let loader = split(&devices);
    let learner = || Learner::new(parallel(&devices, 0.3)).epochs(3).silent();
    let mut straight = learner();
    let whole = straight.fit_without_validation(&loader).unwrap();
    for stop_at in [1, 4, 7] {
        let interrupter = Interrupter::new();
        let flag = interrupter.clone();
        let mut first = learner().interrupter(interrupter).keep_last(&path).on_step(move |record| {
            if record.step == stop_at {
                flag.stop();
            }
        });
        let before = first.fit_without_validation(&loader).unwrap();
        // Other random states and weights than those of the checkpoint.
        let mut second = learner().resume(&Checkpoint::open(&path).unwrap()).unwrap();
        assert_equal_replicas(second.task());
        let after = second.fit_without_validation(&loader).unwrap();
        assert_eq!([before.losses, after.losses].concat(), whole.losses, "stopped at {stop_at}");
        assert_equal_replicas(second.task());
        let trained = |learner: &Learner<DataParallel<Regression>>| {
            parameters(learner.task().first().trainable().model())
        };
        assert_eq!(trained(&second), trained(&straight));
    }
}

#[test]
fn replicas_without_a_batch_copy_the_others() {
    let devices = devices(3);
    let shard = |rank: usize, items| TensorLoader::new(data(items, &devices[rank])).batch_size(4);
    let loader = ShardedLoader::new(vec![shard(0, 12), shard(1, 7), shard(2, 4)]);
    assert_eq!(loader.identity().items, Some(23));
    assert_eq!(
        (loader.identity().batch_size, Loader::<Vec<Batch>>::num_batches(&loader)),
        (Some(12), Some(3))
    );
    let lengths =
        |skip| -> Vec<usize> { loader.batches(0, skip).map(|batches| batches.unwrap().len()).collect() };
    assert_eq!((lengths(0), lengths(1)), (vec![3, 2, 1], vec![2, 1]));
    let mut learner = Learner::new(parallel(&devices, 0.0)).epochs(2).silent();
    let history = learner.fit_without_validation(&loader).unwrap();
    assert_eq!(history.epochs[1].train.num_items, 23);
    assert_equal_replicas(learner.task());
    let updates = learner.task().replicas().iter().map(|task| task.trainable().updates());
    assert_eq!(updates.collect::<Vec<_>>(), [6, 6, 6]);

    let wrong = ShardedLoader::new(vec![shard(0, 4), shard(1, 8)]);
    let error = wrong.batches(0, 1).next().unwrap().err().unwrap().to_string();
    assert!(error.contains("loader 1 has more batches than loader 0"), "{error}");
}

#[test]
fn a_step_with_too_many_or_no_batches_is_an_error() {
    let devices = devices(3);
    let task = parallel(&devices[..2], 0.0);
    let error = Learner::new(task).silent().fit_without_validation(&split(&devices)).unwrap_err().to_string();
    assert!(error.contains("a step has 3 batches for 2 replicas"), "{error}");
}

/// A task that fails on batches of large numbers.
struct Fragile {
    model: Trainable<Net>,
    panics: bool,
}

impl Task for Fragile {
    type Batch = Batch;
    type ValidBatch = Batch;

    fn train(&mut self, (x, y): Batch, step: &mut Step<'_>) -> Result<()> {
        let largest = x.clone().max().into_scalar::<f32>();
        if largest > 100.0 && self.panics {
            panic!("too large: {largest}");
        }
        if largest > 100.0 {
            return Err(TrainError::task(format!("too large: {largest}")));
        }
        step.backward((self.model.forward(x) - y).square().mean(), &mut self.model).map(|_| ())
    }

    fn validate(&mut self, _batch: Batch, _validation: &mut Validation<'_>) -> Result<()> {
        Ok(())
    }

    fn state(&mut self, visitor: &mut dyn StateVisitor) -> Result<()> {
        self.model.state(visitor)
    }
}

#[test]
fn an_error_or_a_panic_of_one_replica_ends_the_step_with_it() {
    let devices = devices(3);
    for panics in [false, true] {
        for failing in 0..3 {
            let replica = |device: &Device, _| Fragile {
                model: Trainable::new(Net::new(device, 0.0), SgdConfig::new().init(), 0.1),
                panics,
            };
            let task = DataParallel::on(&devices, replica).unwrap();
            let mut learner = Learner::new(task).silent();
            let shards = |large: f32| {
                let shard = |(rank, device): (usize, &Device)| {
                    let (x, y) = data(4, device);
                    TensorLoader::new((if rank == failing { x + large } else { x }, y))
                };
                ShardedLoader::new(devices.iter().enumerate().map(shard).collect())
            };
            let error = learner.fit_without_validation(&shards(1000.0)).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("too large: 100") && text.contains("epoch 1, step 1"), "{text}");
            assert_eq!(matches!(error, TrainError::Panicked { .. }), panics, "{text}");
            // The learner keeps the task, whose replicas are equal again after a step.
            learner.fit_without_validation(&shards(0.0)).unwrap();
            let first = parameters(learner.task().first().model.model());
            for replica in learner.task().replicas() {
                assert_eq!(parameters(replica.model.model()), first);
            }
        }
    }
}

#[test]
fn a_replica_with_an_update_more_than_the_others_is_an_error() {
    let devices = devices(2);
    let replica = |device: &Device, group: SyncGroup| {
        FunctionTask::new(
            Net::new(device, 0.0),
            SgdConfig::new().init(),
            0.1,
            move |model: &mut Trainable<Net>, (x, y): Batch, step: &mut Step<'_>| {
                for _ in 0..=group.rank {
                    let loss = (model.forward(x.clone()) - y.clone()).square().mean();
                    step.backward(loss, model)?;
                }
                Ok(())
            },
            |_: &mut Trainable<Net>, _: Batch, _: &mut Validation<'_>| Ok(()),
        )
    };
    let task = DataParallel::on(&devices, replica).unwrap();
    let error = Learner::new(task).silent().fit_without_validation(&split(&devices)).unwrap_err().to_string();
    assert!(error.contains("member 0 has left, but member 1"), "{error}");
}

#[test]
fn a_parameter_that_one_replica_alone_uses_is_updated_on_all() {
    let devices = devices(2);
    let replica = |device: &Device, group: SyncGroup| {
        FunctionTask::new(
            Net::new(device, 0.0),
            SgdConfig::new().init(),
            0.1,
            move |model: &mut Trainable<Net>, (x, _): Batch, step: &mut Step<'_>| {
                let hidden = model.hidden.forward(x);
                let output = if group.rank == 0 { hidden } else { model.output.forward(hidden) };
                step.log("rank", group.rank as f64);
                step.backward(output.square().mean(), model).map(|_| ())
            },
            |_: &mut Trainable<Net>, _: Batch, _: &mut Validation<'_>| Ok(()),
        )
    };
    let task = DataParallel::on(&devices, replica).unwrap();
    let before = parameters(task.first().trainable().model());
    let mut learner = Learner::new(task).max_steps(1).silent();
    let history = learner.fit_without_validation(&split(&devices)).unwrap();
    assert_eq!(history.values["rank"], [0.5]);
    let [first, second] = [0, 1].map(|rank| parameters(learner.task().replicas()[rank].trainable().model()));
    assert_eq!(first, second);
    for ((name, after), (_, before)) in first.iter().zip(&before) {
        assert_ne!(after, before, "{name} did not change");
    }
}

#[test]
fn lbfgs_evaluates_the_mean_of_the_replicas() {
    let devices = devices(2);
    let replica = |device: &Device, _| {
        FunctionTask::new(
            Net::new(device, 0.0),
            LbfgsConfig::new().init(),
            0.5,
            |model: &mut Trainable<Net>, (x, y): Batch, step: &mut Step<'_>| {
                let loss = |model: &Net| (model.forward(x.clone()) - y.clone()).square().mean();
                step.minimize(model, loss).map(|_| ())
            },
            |_: &mut Trainable<Net>, _: Batch, _: &mut Validation<'_>| Ok(()),
        )
    };
    let task = DataParallel::on(&devices, replica).unwrap();
    let loader = SplitLoader::new(TensorLoader::new(data(16, &devices[0])), devices.to_vec(), moved);
    let mut learner = Learner::new(task).epochs(4).silent();
    let history = learner.fit_without_validation(&loader).unwrap();
    assert!(history.losses[3] < 0.5 * history.losses[0], "{:?}", history.losses);
    let [first, second] = [0, 1].map(|rank| parameters(learner.task().replicas()[rank].trainable().model()));
    assert_eq!(first, second);
}

/// A model with normalisation over the whole batch.
#[derive(Clone, Debug, Module)]
struct Normalised {
    norm: SyncBatchNorm,
    output: Linear,
}

/// The same with normalisation over the batch of one device.
#[derive(Clone, Debug, Module)]
struct NormalisedAlone {
    norm: BatchNorm,
    output: Linear,
}

#[test]
fn synchronized_batch_norm_equals_that_of_the_whole_batch() {
    let devices = devices(2);
    let config = BatchNormConfig::new(2);
    seed(&devices);
    let alone =
        NormalisedAlone { norm: config.init(&devices[0]), output: LinearConfig::new(2, 1).init(&devices[0]) };
    let weight = alone.output.clone();
    let loss = |model: &NormalisedAlone, (x, y): Batch| {
        let predictions = model.output.forward(model.norm.forward(x));
        StepOutput::regression((predictions.clone() - y.clone()).square().mean(), predictions, y)
    };
    let alone = Supervised::new(alone, SgdConfig::new().init(), 0.1, loss);
    let replica = |device: &Device, group: SyncGroup| {
        let norm = SyncBatchNorm::from_batch_norm(config.init(device), group);
        let output = if group.rank == 0 { weight.clone() } else { LinearConfig::new(2, 1).init(device) };
        let loss = |model: &Normalised, (x, y): Batch| {
            let predictions = model.output.forward(model.norm.forward(x));
            StepOutput::regression((predictions.clone() - y.clone()).square().mean(), predictions, y)
        };
        Supervised::new(Normalised { norm, output }, SgdConfig::new().init(), 0.1, loss)
    };
    let parallel = DataParallel::on(&devices, replica).unwrap();
    // Batches of 7: 4 items on one device and 3 on the other.
    let loader = || TensorLoader::new(data(21, &devices[0])).batch_size(7);
    let mut single = Learner::new(alone).epochs(2).silent();
    single.fit_without_validation(&loader()).unwrap();
    let mut together = Learner::new(parallel).epochs(2).silent();
    together.fit_without_validation(&SplitLoader::new(loader(), devices.to_vec(), moved)).unwrap();
    let expected = parameters(single.task().trainable().model());
    for replica in together.task().replicas() {
        for ((name, a), (_, b)) in parameters(replica.trainable().model()).iter().zip(&expected) {
            assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 2e-5), "{name}: {a:?} instead of {b:?}");
        }
    }
}

#[test]
fn an_index_out_of_range_on_one_replica_is_the_error_of_the_step() {
    let devices = devices(2);
    let replica = |device: &Device, group: SyncGroup| {
        FunctionTask::new(
            Net::new(device, 0.0),
            SgdConfig::new().init(),
            0.1,
            move |model: &mut Trainable<Net>, (x, _): Batch, step: &mut Step<'_>| {
                let row = TensorData::from([if group.rank == 1 { 99i32 } else { 0 }]);
                let row = Tensor::<Dyn, 1, kiln_tensor::Int>::from_data(row, &x.device());
                step.backward(model.forward(x.select(0, row)).square().mean(), model).map(|_| ())
            },
            |_: &mut Trainable<Net>, _: Batch, _: &mut Validation<'_>| Ok(()),
        )
    };
    let task = DataParallel::on(&devices, replica).unwrap();
    let before = parameters(task.first().trainable().model());
    let mut learner = Learner::new(task).silent();
    let error = learner.fit_without_validation(&split(&devices)).unwrap_err().to_string();
    assert!(error.contains("99") && !error.contains("[group"), "{error}");
    assert_eq!(parameters(learner.task().first().trainable().model()), before);
}

/// Halves the gradients, and counts the events.
struct Halve(u64);

impl<T> Callback<T> for Halve {
    fn name(&self) -> &str {
        "halve"
    }

    fn on(&mut self, _event: Event<'_>, _context: &mut Context<'_, T>) -> Result<()> {
        Ok(())
    }

    fn gradients(&mut self, event: &mut GradientsEvent<'_>) -> Result<()> {
        self.0 += 1;
        event.log("events", self.0 as f64);
        for (_, gradient) in event.gradients_mut().iter_mut() {
            *gradient = gradient.clone().mul_scalar(0.5).map_err(TrainError::task)?;
        }
        Ok(())
    }
}

#[test]
fn callbacks_see_the_gradients_of_all_and_change_them_for_all() {
    let devices = devices(2);
    let sgd = |device: &Device| task(device, 0.0, SgdConfig::new().init());
    seed(&devices);
    let parallel = DataParallel::on(&devices, |device, _| sgd(device)).unwrap();
    let mut together = Learner::new(parallel).callback(GradientStatistics::new()).callback(Halve(0)).silent();
    let history = together.fit_without_validation(&split(&devices)).unwrap();
    assert_equal_replicas(together.task());
    assert_eq!(history.values["events"], [1.0, 2.0, 3.0, 4.0, 5.0]);

    seed(&devices);
    let whole = TensorLoader::new(data(35, &devices[0])).batch_size(8).shuffle(5);
    let mut alone =
        Learner::new(sgd(&devices[0])).callback(GradientStatistics::new()).callback(Halve(0)).silent();
    let expected = alone.fit_without_validation(&whole).unwrap();
    for (norm, expected) in history.values["gradient norm"].iter().zip(&expected.values["gradient norm"]) {
        assert!((norm - expected).abs() < 1e-5 * expected, "{norm}, alone {expected}");
    }
}

#[test]
fn a_search_of_a_learning_rate_restores_all_replicas_and_their_random_numbers() {
    let devices = devices(2);
    let run = |search: bool| {
        let mut learner =
            Learner::new(parallel(&devices, 0.3)).callback(RestoreBest::new()).epochs(2).silent();
        if search {
            let finder = LearningRateFinder::new().steps(20);
            let curve = learner.find_learning_rate(&split(&devices), &finder).unwrap();
            assert!(curve.points.len() > 5, "{curve}");
        }
        let history = learner.fit_without_validation(&split(&devices)).unwrap();
        assert_equal_replicas(learner.task());
        history
    };
    assert_eq!(run(true), run(false));
}

/// A model whose layers share their weights.
#[derive(Clone, Debug, Module)]
struct TiedNet {
    first: Linear,
    second: Linear,
}

impl TiedNet {
    fn new(device: &Device) -> TiedNet {
        let first = LinearConfig::new(2, 2).init(device);
        let mut second = LinearConfig::new(2, 2).init(device);
        second.weight = first.weight.clone();
        TiedNet { first, second }
    }
}

fn tied_error(model: &TiedNet, (x, y): Batch) -> StepOutput<Dyn> {
    let predictions = model.second.forward(model.first.forward(x).tanh()).sum_dim(1);
    let loss = (predictions.clone() - y.clone()).square().mean();
    StepOutput::regression(loss, predictions, y)
}

#[test]
fn replicas_train_tied_weights_as_one_device() {
    type Tied = Supervised<TiedNet, Batch, fn(&TiedNet, Batch) -> StepOutput<Dyn>>;
    let devices = devices(2);
    let task = |device: &Device| -> Tied {
        let adam = AdamConfig::new().init();
        Supervised::new(TiedNet::new(device), adam, 0.05, tied_error as fn(&_, _) -> _)
    };
    seed(&devices);
    let parallel = DataParallel::on(&devices, |device, _| task(device)).unwrap();
    seed(&devices);
    let single = task(&devices[0]);
    let valid = TensorLoader::new(data(10, &devices[0]));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last");
    let whole = TensorLoader::new(data(35, &devices[0])).batch_size(8).shuffle(5);
    let statistics = || GradientStatistics::new().per_parameter(true);
    let mut alone =
        Learner::new(single).epochs(3).silent().callback(statistics()).callback(RestoreBest::new());
    let history = alone.fit(&whole, &valid).unwrap();
    let mut together = Learner::new(parallel)
        .epochs(3)
        .silent()
        .keep_last(&path)
        .callback(statistics())
        .callback(RestoreBest::new());
    together.fit(&split(&devices), &valid).unwrap();

    let expected = parameters(alone.task().trainable().model());
    let names: Vec<&str> = expected.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["first.weight", "first.bias", "second.bias"]);
    assert!(!history.values.contains_key("gradient norm of second.weight"));
    let norm = |name: &&str| history.values[&format!("gradient norm of {name}")][0];
    let total = names.iter().map(norm).fold(0.0f64, f64::hypot);
    assert!((history.values["gradient norm"][0] - total).abs() < 1e-5);
    for replica in together.task().replicas() {
        let model = replica.trainable().model();
        for ((name, a), (_, b)) in parameters(model).iter().zip(&expected) {
            assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5), "{name}: {a:?} instead of {b:?}");
        }
        assert_eq!(model.second.weight.to_data(), model.first.weight.to_data());
    }

    // A checkpoint holds the weights once, and a resumed run ties them.
    let resumed = DataParallel::on(&devices, |device, _| task(device)).unwrap();
    let resumed = Learner::new(resumed).silent().resume(&Checkpoint::open(&path).unwrap()).unwrap();
    for replica in resumed.task().replicas() {
        let model = replica.trainable().model();
        assert_eq!(parameters(model), parameters(together.task().first().trainable().model()));
        assert_eq!(model.second.weight.to_data(), model.first.weight.to_data());
    }
}
