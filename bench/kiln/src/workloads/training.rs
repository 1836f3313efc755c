//! One training step of any model.

use bench_protocol::Result;
use kiln::nn::{AutodiffModule, GradientsParams};
use kiln::optim::Optimizer;
use kiln::{AutodiffBackend, Tensor};

/// A model with its optimizer.
pub(crate) struct Training<M, O> {
    model: Option<M>,
    optimizer: O,
    learning_rate: f64,
}

impl<M, O: Optimizer> Training<M, O> {
    pub(crate) fn new(model: M, optimizer: O, learning_rate: f64) -> Training<M, O> {
        Training { model: Some(model), optimizer, learning_rate }
    }

    /// Forward, backward and update. Returns the loss before the update.
    pub(crate) fn step<B: AutodiffBackend>(
        &mut self,
        device: &B::Device,
        loss: impl FnOnce(&M) -> Tensor<B, 1>,
    ) -> Result<f64>
    where
        M: AutodiffModule<B>,
    {
        let model = self.model.take().ok_or_else(|| bench_protocol::failed("an earlier step failed"))?;
        let loss = loss(&model);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        // Dropping the tape releases the parameters, so that they are updated in place.
        let loss = loss.inner();
        self.model = Some(self.optimizer.step(self.learning_rate, model, gradients));
        let loss = loss.try_into_scalar::<f64>()?;
        B::sync(device)?;
        Ok(loss)
    }
}
