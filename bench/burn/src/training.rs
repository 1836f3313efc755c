//! One training step of any model.

use bench_protocol::{Result, failed};
use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Tensor;

/// A model with its optimizer.
pub(crate) struct Training<M> {
    model: Option<M>,
    optimizer: ModuleOptimizer,
    learning_rate: f64,
}

impl<M: Module> Training<M> {
    pub(crate) fn new(model: M, optimizer: ModuleOptimizer, learning_rate: f64) -> Training<M> {
        Training { model: Some(model), optimizer, learning_rate }
    }

    /// Forward, backward and update; the loss before the update.
    pub(crate) fn step(&mut self, loss: impl FnOnce(&M) -> Tensor<1>) -> Result<f64> {
        let model = self.model.take().ok_or_else(|| failed("an earlier step failed"))?;
        let loss = loss(&model);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        self.model = Some(self.optimizer.step(self.learning_rate, model, gradients));
        Ok(loss.try_into_scalar::<f64>()?)
    }
}
