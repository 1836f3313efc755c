//! Gradients by parameter.

use super::{Module, NamedTensors, ParamId, visitors};
use alloc::collections::BTreeMap;
use alloc::format;
use core::fmt;
use kiln_ir::Binary;
use kiln_tensor::{AnyTensor, Backend, Error, Gradients, Result, Tensor};

/// The gradients of a module's parameters by id: the input of an optimizer.
///
/// The tensors are on the backend below automatic differentiation and hold no reference to the tape. They may be sent
/// to another thread.
#[derive(Clone, Default)]
pub struct GradientsParams {
    gradients: BTreeMap<ParamId, AnyTensor>,
}

impl GradientsParams {
    /// Returns an empty collection.
    pub fn new() -> GradientsParams {
        GradientsParams::default()
    }

    /// Returns the gradients of a module's trainable parameters. Parameters that are not part of the computation have
    /// none. That of a [tied](super::Param#tied-parameters) parameter is the sum over its places.
    ///
    /// # Panics
    /// As [`take`](GradientsParams::take).
    #[track_caller]
    pub fn from_grads(mut gradients: Gradients, module: &dyn Module) -> GradientsParams {
        GradientsParams::take(&mut gradients, module)
    }

    /// Moves the gradients of a module's trainable parameters out of `gradients` and leaves the others. Use it where
    /// parts of a network have their own optimizers. The gradients of several leaves with one id are added.
    ///
    /// # Panics
    /// When the tensors of two parameters with one id differ in shape or dtype.
    #[track_caller]
    pub fn take(gradients: &mut Gradients, module: &dyn Module) -> GradientsParams {
        let mut taken = GradientsParams::new();
        // At each place: those of a tied parameter may be leaves of their own, which one update joins.
        visitors::for_each_place(module, |_, parameter| {
            if !parameter.is_trainable() {
                return;
            }
            if let Some(gradient) = gradients.remove(&parameter.value) {
                taken.add(parameter.id, gradient).unwrap_or_else(|error| panic!("{error}"));
            }
        });
        taken
    }

    /// Adds a gradient, on the device of the earlier one.
    fn add(&mut self, id: ParamId, gradient: AnyTensor) -> Result<()> {
        let gradient = match self.gradients.get(&id) {
            Some(total) => gradient.to_stack(total.stack())?,
            None => gradient,
        };
        self.accumulate(GradientsParams::from_iter([(id, gradient)]))
    }

    /// Returns the gradients that a [transform](kiln_tensor::transform::grad) computed, by the dotted names of the
    /// module's parameters. Those under several names of a tied parameter are added.
    ///
    /// # Errors
    /// When a name is not a parameter of the module, or the gradients of one parameter differ in shape or dtype.
    pub fn from_named(mut gradients: NamedTensors, module: &dyn Module) -> Result<GradientsParams> {
        let mut found = GradientsParams::new();
        let mut added = Ok(());
        visitors::for_each_place(module, |path, parameter| {
            if let Some(gradient) = gradients.remove(path.as_str())
                && added.is_ok()
            {
                added = found.add(parameter.id, gradient);
            }
        });
        added?;
        match gradients.keys().next() {
            None => Ok(found),
            Some(name) => {
                Err(Error::type_error("gradients", format!("the module has no parameter `{name}`"), &[])
                    .hint("`named_parameters` lists the names"))
            }
        }
    }

    /// Adds the gradients of another backward pass: gradient accumulation, for batches larger than the memory of the
    /// device. A parameter without a gradient gets the other's. The sum over `n` passes is the gradient of a mean if each
    /// loss was divided by `n`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::{GradientsParams, Linear, LinearConfig};
    /// use kiln_tensor::{Autodiff, Tensor};
    ///
    /// let model: Linear<Autodiff<Flex>> = LinearConfig::new(2, 1).init(&Default::default());
    /// let mut total = GradientsParams::new();
    /// for rows in [[[1.0, 2.0]], [[3.0, 4.0]]] {
    ///     let loss = model.forward(Tensor::from(rows)).sum() / 2;
    ///     total.accumulate(GradientsParams::from_grads(loss.backward(), &model))?;
    /// }
    /// let weight = total.tensor::<Flex, 2>(model.weight.id()).unwrap();
    /// assert_eq!(weight.to_vec::<f32>(), [2.0, 3.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// When two gradients of one parameter differ in shape, dtype or device. Gradients before it are then added.
    pub fn accumulate(&mut self, other: GradientsParams) -> Result<()> {
        for (id, gradient) in other {
            if let Some(total) = self.gradients.get(&id) {
                check_alike(total, &gradient)?;
            }
            // Taken out, so that the sum can be written into its memory.
            let total = match self.gradients.remove(&id) {
                Some(total) => total.binary(Binary::Add, gradient)?,
                None => gradient,
            };
            self.gradients.insert(id, total);
        }
        Ok(())
    }

    /// Returns the gradient of a parameter.
    pub fn get(&self, id: ParamId) -> Option<&AnyTensor> {
        self.gradients.get(&id)
    }

    /// Returns the gradient of a parameter as a typed tensor of the backend below automatic differentiation.
    ///
    /// # Panics
    /// When the gradient has another rank, or is on another backend.
    #[track_caller]
    pub fn tensor<B: Backend, const D: usize>(&self, id: ParamId) -> Option<Tensor<B, D>> {
        let gradient = self.gradients.get(&id)?.clone();
        Some(gradient.try_into_tensor().unwrap_or_else(|error| panic!("{error}")))
    }

    /// Removes the gradient of a parameter and returns it.
    pub fn remove(&mut self, id: ParamId) -> Option<AnyTensor> {
        self.gradients.remove(&id)
    }

    /// Inserts the gradient of a parameter and returns the previous one.
    pub fn insert(&mut self, id: ParamId, gradient: AnyTensor) -> Option<AnyTensor> {
        self.gradients.insert(id, gradient)
    }

    /// Returns the number of parameters with a gradient.
    pub fn len(&self) -> usize {
        self.gradients.len()
    }

    /// Returns whether no parameter has a gradient.
    pub fn is_empty(&self) -> bool {
        self.gradients.is_empty()
    }

    /// Iterates over the gradients, in the order in which their parameters were created.
    pub fn iter(&self) -> impl Iterator<Item = (ParamId, &AnyTensor)> {
        self.gradients.iter().map(|(&id, gradient)| (id, gradient))
    }

    /// Iterates over mutable gradients, in the order in which their parameters were created.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ParamId, &mut AnyTensor)> {
        self.gradients.iter_mut().map(|(&id, gradient)| (id, gradient))
    }
}

fn check_alike(total: &AnyTensor, gradient: &AnyTensor) -> Result<()> {
    let differ = |what: &str, total: &dyn fmt::Display, gradient: &dyn fmt::Display| {
        let problem = format!("two gradients of one parameter differ in {what}: {total} and {gradient}");
        Err(Error::type_error("accumulate", problem, &[])
            .hint("accumulate gradients of one module that was not changed or moved in between"))
    };
    if total.ty() != gradient.ty() {
        return differ("type", &total.ty(), &gradient.ty());
    }
    if total.stack().domain() != gradient.stack().domain() {
        return differ("device", &total.stack().device_name(), &gradient.stack().device_name());
    }
    Ok(())
}

impl IntoIterator for GradientsParams {
    type Item = (ParamId, AnyTensor);
    type IntoIter = alloc::collections::btree_map::IntoIter<ParamId, AnyTensor>;

    fn into_iter(self) -> Self::IntoIter {
        self.gradients.into_iter()
    }
}

impl FromIterator<(ParamId, AnyTensor)> for GradientsParams {
    fn from_iter<I: IntoIterator<Item = (ParamId, AnyTensor)>>(gradients: I) -> GradientsParams {
        GradientsParams { gradients: gradients.into_iter().collect() }
    }
}

impl fmt::Debug for GradientsParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
