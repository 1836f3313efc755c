//! Training on plain tensors.

use super::Learner;
use crate::error::Result;
use crate::history::History;
use crate::loader::{BatchTensors, TensorLoader};
use crate::task::Task;

impl<T: Task> Learner<T>
where
    T::Batch: BatchTensors,
    T::ValidBatch: BatchTensors,
{
    /// Trains on tensors whose first dimension is the items: the short form for data in memory. Training batches are
    /// shuffled by the [seed](Learner::seed) of the learner (default: 0), and halved
    /// [when memory runs out](Learner::fit_with_batch_size). [`drop_last`](Learner::drop_last) drops an incomplete last one.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::{Linear, LinearConfig};
    /// use kiln_optim::AdamConfig;
    /// use kiln_tensor::{Autodiff, Tensor};
    /// use kiln_train::{Learner, StepOutput, Supervised};
    ///
    /// type B = Autodiff<Flex>;
    ///
    /// let model: Linear<B> = LinearConfig::new(1, 1).init(&Default::default());
    /// let loss = |model: &Linear<B>, (x, y): (Tensor<B, 2>, Tensor<B, 2>)| {
    ///     let predictions = model.forward(x);
    ///     StepOutput::regression((predictions.clone() - y.clone()).square().mean(), predictions, y)
    /// };
    /// let mut learner = Learner::new(Supervised::new(model, AdamConfig::new().init(), 0.05, loss)).epochs(40).silent();
    ///
    /// let x = Tensor::<B, 1>::arange_float(0.0..64.0, 1.0, &Default::default()).unsqueeze_dim::<2>(1) / 64.0;
    /// let y = x.clone() * 2.0 + 1.0;
    /// let history = learner.fit_tensors((x.clone(), y.clone()), (x, y), 8)?;
    /// assert!(history.epochs[39].valid().unwrap().loss < 1e-2);
    /// # Ok::<(), kiln_train::TrainError>(())
    /// ```
    ///
    /// # Errors
    /// See [`fit`](Learner::fit). Also when the tensors of a set differ in their first dimension.
    #[track_caller]
    pub fn fit_tensors(
        &mut self,
        train: T::Batch,
        valid: T::ValidBatch,
        batch_size: usize,
    ) -> Result<History> {
        let seed = self.options.seed.unwrap_or(0);
        let train = TensorLoader::new(train).shuffle(seed).drop_last(self.options.drop_last);
        let valid = TensorLoader::new(valid).batch_size(batch_size);
        self.fit_with_batch_size(batch_size, |size| Ok(train.clone().batch_size(size)), &valid)
    }
}
