//! Data-parallel training: replicas of a task on several devices.

mod merge;
mod replica;

use std::fmt;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use kiln_ir::{GroupMember, ThreadGroup};
use kiln_nn::SyncGroup;

pub(crate) use replica::Replica;

use super::{StateVisitor, Task};
use crate::error::{Result, TrainError, TrainPosition};
use crate::learner::guarded;
use crate::snapshot::Snapshot;
use crate::step::{GradientsEvent, Outcome, Step, StepOptions, Validation, Watch};

/// Trains replicas of a task, each on a device of its own and in a thread of its own.
///
/// A training batch is one batch for each replica, in their order: see
/// [`ShardedLoader`](crate::loader::ShardedLoader) and [`SplitLoader`](crate::loader::SplitLoader). In each
/// [`backward`](Step::backward), [`update`](Step::update) or [`minimize`](Step::minimize) the replicas sum the gradients of
/// each parameter over a [`ThreadGroup`], in rank order. All then take the same optimizer step, so that they stay equal bit
/// for bit on devices of one kind.
///
/// * **Weights.** The loss is the mean of the replicas' losses, weighted by the number of items that each has
///   [observed](Step::observe) before the update, as [`Supervised`](crate::Supervised) and
///   [`ModelTask`](crate::ModelTask) do. If a replica has observed none, all weights are equal. A mean over items thus has the
///   gradients of the whole batch on one device, up to rounding.
/// * **Fewer batches** than replicas, as at the end of an epoch: the first replicas train, and the others then copy all state
///   of replica 0.
/// * **Buffers**, such as running statistics, are copied from replica 0 after each step. Statistics of the whole batch need
///   [`SyncBatchNorm`](kiln_nn::SyncBatchNorm) with the group that [`on`](DataParallel::on) passes.
/// * **Random numbers.** Each device has its own. Seed them with different seeds. Two replicas on one device draw from one
///   stream in an order that is not fixed.
/// * **Values** that steps log are averaged with the same weights, and the metrics get the observations of all replicas.
/// * **Gradients** that a callback [sees](crate::Callback::gradients) are the sums. Its changes reach all replicas.
/// * **Validation**, and callbacks that use the model, see replica 0, as does the trained model:
///   [`into_first`](DataParallel::into_first).
/// * **Checkpoints** contain replica 0 and the random state of every device. A checkpoint of another number of replicas, or of
///   the task without `DataParallel`, can be resumed, but not bit for bit.
/// * **Errors.** An error or a panic of one replica ends the step with its error. The other replicas stop at their next update.
///   The replicas are made equal to replica 0 before the next step.
///
/// All replicas must call the updates in the same order, for models with the same parameters. A parameter that only some
/// replicas use has the gradient zero on the others. The task should create tensors on the device of the batch or the model:
/// the default device is the same in all threads.
///
/// ```
/// use kiln_backends::{Device, Dyn};
/// use kiln_nn::{Linear, LinearConfig};
/// use kiln_optim::SgdConfig;
/// use kiln_tensor::Tensor;
/// use kiln_train::loader::{SplitLoader, TensorLoader};
/// use kiln_train::{DataParallel, Learner, StepOutput, Supervised};
///
/// type Batch = (Tensor<Dyn, 2>, Tensor<Dyn, 2>);
///
/// let devices = [1, 2].map(|threads| Device::flex_with_threads(threads).autodiff());
/// let task = DataParallel::on(&devices, |device, _group| {
///     let model: Linear = LinearConfig::new(1, 1).init(device);
///     Supervised::new(model, SgdConfig::new().init(), 0.1, |model: &Linear, (x, y): Batch| {
///         let predictions = model.forward(x);
///         StepOutput::regression((predictions.clone() - y.clone()).square().mean(), predictions, y)
///     })
/// })?;
///
/// let x = Tensor::<Dyn, 1>::from_floats([0.0, 0.5, 1.0, 1.5], &devices[0]).unsqueeze_dim::<2>(1);
/// let loader = TensorLoader::new((x.clone(), x * 2.0 + 1.0)).batch_size(4);
/// let split = SplitLoader::new(loader, devices, |(x, y): Batch, device| (x.to_device(device), y.to_device(device)));
/// let mut learner = Learner::new(task).epochs(100).silent();
/// let history = learner.fit_without_validation(&split)?;
/// assert!(history.losses[99] < 0.1 * history.losses[0]);
/// let model = learner.into_task().into_first().into_model();
/// # Ok::<(), kiln_train::TrainError>(())
/// ```
#[doc(alias = "DistributedDataParallel")]
#[doc(alias = "DDP")]
pub struct DataParallel<T> {
    replicas: Vec<T>,
    /// The group of the collectives in models.
    group: ThreadGroup,
    /// Whether all replicas have the state of replica 0.
    are_equal: bool,
}

impl<T: Task> DataParallel<T> {
    /// Returns a task of replicas, whose models are on different devices. The state of replica 0 is copied to the others.
    ///
    /// # Errors
    /// When there are no replicas, their models have other names or parameters, or a device fails.
    pub fn new(replicas: Vec<T>) -> Result<DataParallel<T>> {
        let group = ThreadGroup::new(replicas.len().max(1));
        DataParallel::of(replicas, group)
    }

    /// Returns a task with a replica on each device. The closure builds a replica. It receives the device and the group of the
    /// replicas with its rank, for [`SyncBatchNorm`](kiln_nn::SyncBatchNorm). The state of replica 0 is copied to the others,
    /// so they may be initialized with different random numbers.
    ///
    /// # Errors
    /// See [`new`](DataParallel::new).
    pub fn on<D>(devices: &[D], mut build: impl FnMut(&D, SyncGroup) -> T) -> Result<DataParallel<T>> {
        let group = ThreadGroup::new(devices.len().max(1));
        let sync = |rank| SyncGroup { id: group.id(), rank, size: group.size() };
        let replicas = devices.iter().enumerate().map(|(rank, device)| build(device, sync(rank))).collect();
        DataParallel::of(replicas, group)
    }

    fn of(replicas: Vec<T>, group: ThreadGroup) -> Result<DataParallel<T>> {
        if replicas.is_empty() {
            return Err(TrainError::InvalidOption {
                option: "the number of replicas",
                value: "0".to_owned(),
                requirement: "at least 1",
            });
        }
        let mut task = DataParallel { replicas, group, are_equal: false };
        task.copy_state(1)?;
        Ok(task)
    }

    /// Returns the replicas, by rank.
    pub fn replicas(&self) -> &[T] {
        &self.replicas
    }

    /// Returns replica 0.
    pub fn first(&self) -> &T {
        &self.replicas[0]
    }

    /// Returns replica 0, to change it. Its state is copied to the others before the next step.
    pub fn first_mut(&mut self) -> &mut T {
        self.are_equal = false;
        &mut self.replicas[0]
    }

    /// Returns replica 0 and drops the others.
    pub fn into_first(mut self) -> T {
        self.replicas.swap_remove(0)
    }

    /// Copies all state of replica 0 to the replicas from `start`.
    fn copy_state(&mut self, start: usize) -> Result<()> {
        let (first, others) = self.replicas.split_at_mut(1);
        let start = start.max(1) - 1;
        if start < others.len() {
            let snapshot = Snapshot::of(&mut first[0])?;
            for (index, replica) in others.iter_mut().enumerate().skip(start) {
                snapshot.copy_to(replica, index + 1)?;
            }
        }
        self.are_equal = true;
        Ok(())
    }

    /// Copies the buffers of replica 0 to the replicas before `end`.
    fn copy_buffers(&mut self, end: usize) -> Result<()> {
        let (first, others) = self.replicas.split_at_mut(1);
        let snapshot = Snapshot::of_buffers(&mut first[0])?;
        if snapshot.is_empty() {
            return Ok(());
        }
        for (index, replica) in others.iter_mut().enumerate().take(end - 1) {
            snapshot.copy_to(replica, index + 1)?;
        }
        Ok(())
    }

    /// Runs the step of each replica that has a batch in a thread of its own.
    fn run(&mut self, batches: Vec<T::Batch>, origin: Origin, watch: Watch<'_>) -> Result<Vec<Outcome>> {
        // A group for each step: it has only the replicas with a batch, and nothing of a failed step is left in it.
        let gradients = ThreadGroup::new(batches.len());
        let members = gradients.join()?;
        // The replicas without a batch leave.
        let mut model_members = self.group.join()?;
        model_members.truncate(batches.len());
        let groups = Groups { gradients: &gradients, model: &self.group, blamed: Mutex::new(None) };
        let (groups, origin) = (&groups, &origin);
        // Callbacks see the gradients of replica 0.
        let mut watch = Some(watch);
        let results: Vec<Result<Outcome>> = std::thread::scope(|scope| {
            let work = self.replicas.iter_mut().zip(batches).zip(members.into_iter().zip(model_members));
            let threads: Vec<_> = work
                .map(|((task, batch), members)| {
                    let name = format!("replica {}", members.0.rank());
                    let watch = watch.take();
                    let run = move || groups.run(task, batch, members, origin, watch);
                    std::thread::Builder::new().name(name).spawn_scoped(scope, run)
                })
                .collect();
            threads.into_iter().map(|thread| finished(thread, origin.place)).collect()
        });
        let blamed = *groups.blamed.lock().unwrap_or_else(PoisonError::into_inner);
        in_order_of_blame(results, blamed).into_iter().collect()
    }
}

/// The position, options and caller of a step.
struct Origin {
    place: TrainPosition,
    options: StepOptions,
    caller: &'static Location<'static>,
}

/// The groups of a step.
struct Groups<'a> {
    gradients: &'a ThreadGroup,
    model: &'a ThreadGroup,
    /// The replica whose error came first. The errors of the others follow from it.
    blamed: Mutex<Option<usize>>,
}

impl Groups<'_> {
    /// Runs the step of a replica in its thread.
    fn run<T: Task>(
        &self,
        task: &mut T,
        batch: T::Batch,
        (member, model_member): (GroupMember, GroupMember),
        origin: &Origin,
        watch: Option<Watch<'_>>,
    ) -> Result<Outcome> {
        let &Origin { place, options, caller } = origin;
        let mut outcome = Outcome::default();
        let replica = Replica::new(member);
        let mut ignore = |_: &mut GradientsEvent<'_>| Ok(());
        let watch = match watch {
            Some(watch) => watch,
            None => &mut ignore,
        };
        let mut step = Step::new(place, options, caller, &mut outcome, watch).of_replica(&replica);
        let result = guarded(place, || task.train(batch, &mut step)).and_then(|result| result);
        result.map_err(|error| error.at(place)).inspect_err(|error| {
            let mut blamed = self.blamed.lock().unwrap_or_else(PoisonError::into_inner);
            let rank = replica.rank();
            let first = self.model.first_failure().or(self.gradients.first_failure()).unwrap_or(rank);
            blamed.get_or_insert(first);
            // Under the lock, so that no other replica fails by this one before it is blamed.
            model_member.fail(error);
            replica.fail(error);
        })?;
        Ok(outcome)
    }
}

/// The result of a thread.
fn finished(
    thread: std::io::Result<std::thread::ScopedJoinHandle<'_, Result<Outcome>>>,
    place: TrainPosition,
) -> Result<Outcome> {
    let thread = thread.map_err(TrainError::task)?;
    thread.join().unwrap_or_else(|_| {
        Err(TrainError::Panicked { place, problem: "the thread of a replica ended".to_owned() })
    })
}

/// Puts the result of the blamed replica first if it is an error, so that it is the error of the step.
fn in_order_of_blame(mut results: Vec<Result<Outcome>>, blamed: Option<usize>) -> Vec<Result<Outcome>> {
    if let Some(rank) = blamed
        && results.get(rank).is_some_and(Result::is_err)
    {
        results.swap(0, rank);
    }
    results
}

impl<T: Task> Task for DataParallel<T> {
    type Batch = Vec<T::Batch>;
    type ValidBatch = T::ValidBatch;

    fn train(&mut self, batches: Vec<T::Batch>, step: &mut Step<'_>) -> Result<()> {
        let (active, size) = (batches.len(), self.replicas.len());
        if active == 0 || active > size {
            let problem = format!("a step has {active} batches for {size} replicas");
            return Err(TrainError::task(format!(
                "{problem}\n  hint: pass 1 to {size} batches, one for each replica"
            )));
        }
        if !self.are_equal {
            self.copy_state(1)?;
        }
        self.are_equal = false;
        let (place, options, caller, watch) = step.origin();
        let outcomes = self.run(batches, Origin { place, options, caller }, watch)?;
        step.set_outcome(merge::merged(outcomes, place)?);
        self.copy_buffers(active)?;
        // Replicas without a batch took no step.
        self.copy_state(active)
    }

    fn validate(&mut self, batch: T::ValidBatch, validation: &mut Validation<'_>) -> Result<()> {
        self.replicas[0].validate(batch, validation)
    }

    fn start_validation(&mut self) -> Result<()> {
        self.replicas[0].start_validation()
    }

    fn end_validation(&mut self) {
        self.replicas[0].end_validation();
    }

    fn state(&mut self, visitor: &mut dyn StateVisitor) -> Result<()> {
        let (first, others) = self.replicas.split_at_mut(1);
        first[0].state(visitor)?;
        let visited = others.iter_mut().enumerate().try_for_each(|(index, replica)| {
            if visitor.replica(index + 1) { replica.state(visitor) } else { Ok(()) }
        });
        visitor.replica(0);
        visited
    }

    fn description(&self) -> String {
        self.replicas[0].description()
    }
}

impl<T: fmt::Debug> fmt::Debug for DataParallel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataParallel").field("replicas", &self.replicas).finish_non_exhaustive()
    }
}
