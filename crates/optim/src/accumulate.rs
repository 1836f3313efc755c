//! Gradient accumulation over several backward passes.

use core::marker::PhantomData;
use kiln_nn::{GradientsParams, Module};

/// Accumulates the gradients of a module of type `M` over several backward passes, for batches larger than the memory of
/// the device. [`GradientsParams::accumulate`] does the same without an object.
///
/// Divide each loss by the number of passes where the batch's loss is a mean.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{Linear, LinearConfig};
/// use kiln_optim::{GradientsAccumulator, GradientsParams, Optimizer, SgdConfig};
/// use kiln_tensor::{Autodiff, Tensor};
///
/// let mut model: Linear<Autodiff<Flex>> = LinearConfig::new(2, 1).init(&Default::default());
/// let mut optimizer = SgdConfig::new().init();
/// let mut accumulator = GradientsAccumulator::new();
/// for rows in [[[1.0, 2.0]], [[3.0, 4.0]]] {
///     let loss = model.forward(Tensor::from(rows)).sum() / 2;
///     accumulator.accumulate(&model, GradientsParams::from_grads(loss.backward(), &model));
/// }
/// model = optimizer.step(0.1, model, accumulator.grads());
/// ```
#[derive(Debug)]
pub struct GradientsAccumulator<M> {
    total: GradientsParams,
    module: PhantomData<fn(M)>,
}

impl<M: Module> GradientsAccumulator<M> {
    /// Returns an empty accumulator.
    pub fn new() -> GradientsAccumulator<M> {
        GradientsAccumulator { total: GradientsParams::new(), module: PhantomData }
    }

    /// Adds the gradients of the module's parameters. Gradients of other parameters are dropped.
    ///
    /// # Panics
    /// When a gradient differs from an earlier one of its parameter in shape, dtype or device.
    #[track_caller]
    pub fn accumulate(&mut self, module: &M, mut gradients: GradientsParams) {
        let ids = module.named_parameters().into_iter().map(|(_, parameter)| parameter.id);
        let own = ids.filter_map(|id| Some((id, gradients.remove(id)?))).collect();
        self.total.accumulate(own).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Returns the sums and starts again from none.
    pub fn grads(&mut self) -> GradientsParams {
        core::mem::take(&mut self.total)
    }
}

impl<M: Module> Default for GradientsAccumulator<M> {
    fn default() -> Self {
        GradientsAccumulator::new()
    }
}
