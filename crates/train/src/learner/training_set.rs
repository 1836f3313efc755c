//! The training batches of a call of `fit`, and smaller batches once memory runs out.

use std::panic::Location;

use super::Learner;
use crate::error::{Result, TrainError};
use crate::history::History;
use crate::loader::Loader;
use crate::record::Record;
use crate::task::Task;

/// The loader of a call of `fit`.
pub(super) enum TrainingSet<'a, Batch> {
    Fixed(&'a dyn Loader<Batch>),
    Sized(SizedSet<'a, Batch>),
}

/// A loader whose batch size can be halved.
pub(super) struct SizedSet<'a, Batch> {
    batch_size: usize,
    make: &'a mut dyn FnMut(usize) -> Result<Box<dyn Loader<Batch> + 'a>>,
    loader: Box<dyn Loader<Batch> + 'a>,
}

impl<Batch> TrainingSet<'_, Batch> {
    pub(super) fn loader(&self) -> &dyn Loader<Batch> {
        match self {
            TrainingSet::Fixed(loader) => *loader,
            TrainingSet::Sized(set) => &*set.loader,
        }
    }

    pub(super) fn can_halve(&self) -> bool {
        match self {
            TrainingSet::Fixed(_) => false,
            TrainingSet::Sized(set) => set.batch_size > 1,
        }
    }
}

impl<T: Task> Learner<T> {
    /// Trains like [`fit`](Learner::fit), and halves the batch size whenever the memory of the device runs out in a
    /// training step. `loader` returns the loader for a batch size.
    ///
    /// The failed step is repeated on the same items: the loaders must have the same order of items for every batch size,
    /// as [`DataLoader`](kiln_data::DataLoader) and [`TensorLoader`](crate::loader::TensorLoader) do. From an odd size,
    /// up to one batch of items is repeated. Later epochs use the smaller size. The step waits for its updates, so that
    /// an update without memory leaves its model unchanged; with several updates in a step, those before the failure are
    /// not undone. A smaller batch means more steps of noisier gradients: schedules count steps. A logged warning names
    /// each new size.
    ///
    /// A run that [resumes](Learner::resume) from a checkpoint of a halved size starts with that size.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_nn::{Linear, LinearConfig};
    /// # use kiln_optim::SgdConfig;
    /// # use kiln_tensor::{Autodiff, Tensor};
    /// # use kiln_train::{Learner, StepOutput, Supervised, loader::TensorLoader};
    /// # type B = Autodiff<Flex>;
    /// # let model: Linear<B> = LinearConfig::new(1, 1).init(&Default::default());
    /// # let loss = |model: &Linear<B>, x: Tensor<B, 2>| StepOutput::new(model.forward(x).square().mean(), 4);
    /// # let task = Supervised::new(model, SgdConfig::new().init(), 0.1, loss);
    /// # let x = Tensor::<B, 2>::ones([256, 1], &Default::default());
    /// # let valid = TensorLoader::new(x.clone());
    /// # let mut learner = Learner::new(task).silent();
    /// let train = TensorLoader::new(x).shuffle(7);
    /// learner.fit_with_batch_size(128, |size| Ok(train.clone().batch_size(size)), &valid)?;
    /// # Ok::<(), kiln_train::TrainError>(())
    /// ```
    ///
    /// # Errors
    /// See [`fit`](Learner::fit). Memory that does not suffice for a batch of one item, or for validation, is an error.
    #[track_caller]
    pub fn fit_with_batch_size<L: Loader<T::Batch>>(
        &mut self,
        batch_size: usize,
        mut loader: impl FnMut(usize) -> Result<L>,
        valid: &dyn Loader<T::ValidBatch>,
    ) -> Result<History> {
        let caller = Location::caller();
        let mut make = |size| -> Result<Box<dyn Loader<T::Batch> + '_>> { Ok(Box::new(loader(size)?)) };
        self.fit_sized(batch_size, &mut make, valid, caller)
    }

    #[allow(
        clippy::needless_lifetimes,
        reason = "without a name, the result of `make` has no lifetime to borrow"
    )]
    fn fit_sized<'a>(
        &mut self,
        batch_size: usize,
        make: &'a mut dyn FnMut(usize) -> Result<Box<dyn Loader<T::Batch> + 'a>>,
        valid: &dyn Loader<T::ValidBatch>,
        caller: &'static Location<'static>,
    ) -> Result<History> {
        if batch_size == 0 {
            return Err(TrainError::InvalidOption {
                option: "the batch size",
                value: "0".to_owned(),
                requirement: "at least 1",
            });
        }
        let batch_size = self.resumed_batch_size(batch_size);
        let loader = make(batch_size)?;
        let waits = std::mem::replace(&mut self.options.step.waits_for_updates, true);
        let mut train = TrainingSet::Sized(SizedSet { batch_size, make, loader });
        let history = self.run(&mut train, &[("valid", valid)], caller);
        self.options.step.waits_for_updates = waits;
        history
    }

    /// The batch size of the checkpoint, if halving leads to it; else this size.
    fn resumed_batch_size(&self, batch_size: usize) -> usize {
        let saved = self.resumed.as_ref().and_then(|(_, identity)| identity.batch_size);
        let mut halves = std::iter::successors(Some(batch_size), |size| (*size > 1).then_some(size / 2));
        halves.find(|size| Some(*size as u64) == saved).unwrap_or(batch_size)
    }

    /// Halves the batch size, and moves the position to the batch with the first item that is not done.
    pub(super) fn halve(&mut self, train: &mut TrainingSet<'_, T::Batch>) -> Result<()> {
        let TrainingSet::Sized(set) = train else { return Ok(()) };
        let (old, new) = (set.batch_size, set.batch_size / 2);
        set.loader = (set.make)(new)?;
        set.batch_size = new;
        self.position.batch = self.position.batch * old as u64 / new as u64;
        self.identity = set.loader.identity();
        let text = format!("memory ran out with batches of {old} items: batches of {new} from here on");
        self.control.warn(text);
        self.send_records()?;
        let batches = self.options.overfit_batches.or(set.loader.num_batches());
        self.send(&Record::Batches { step: self.position.step, batches })
    }
}
