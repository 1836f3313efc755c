//! One training step of any model.

use bench_protocol::{Prepared, failed};
use kiln::nn::{AutodiffModule, GradientsParams};
use kiln::optim::Optimizer;
use kiln::{AutodiffBackend, Int, Tensor, loss};

/// Forward, backward and update. The number that is read is the loss before the update.
pub(crate) fn train<B: AutodiffBackend, M: AutodiffModule<B> + 'static>(
    model: M,
    mut optimizer: impl Optimizer + 'static,
    learning_rate: f64,
    device: &B::Device,
    loss: impl Fn(&M) -> Tensor<B, 1> + 'static,
) -> Prepared {
    let (mut kept, device) = (Some(model), device.clone());
    Prepared::new(move || {
        let model = kept.take().ok_or_else(|| failed("an earlier step failed"))?;
        let loss = loss(&model);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        // Dropping the tape releases the parameters, so that they are updated in place.
        let loss = loss.inner();
        kept = Some(optimizer.step(learning_rate, model, gradients));
        let loss = loss.try_into_scalar::<f64>()?;
        B::sync(&device)?;
        Ok(loss)
    })
}

/// Training with the cross-entropy of a model's logits, `[examples, classes]`.
pub(crate) fn cross_entropy<B: AutodiffBackend, M: AutodiffModule<B> + 'static>(
    model: M,
    optimizer: impl Optimizer + 'static,
    learning_rate: f64,
    targets: Vec<i32>,
    device: &B::Device,
    logits: impl Fn(&M) -> Tensor<B, 2> + 'static,
) -> Prepared {
    let targets = Tensor::<B, 1, Int>::from_data(targets, device);
    train(model, optimizer, learning_rate, device, move |model| {
        loss::cross_entropy(logits(model), targets.clone(), &Default::default())
    })
}
