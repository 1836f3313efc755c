//! Guards steps against gradients in error: such a step changes neither parameters nor states, and a later call reports
//! it.
//!
//! Whether a gradient is in error may be known only on the device, or after the recording has run. The step then uses
//! the gradients [without their errors](AnyTensor::recover), and selects old or new values by the returned flag, so it
//! does not wait.

use crate::error::{OptimError, Result};
use crate::{GradientsParams, ParameterState};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::panic::Location;
use kiln_nn::{Module, ParamId, Parameter, Path, Visitor};
use kiln_tensor::{AnyTensor, Recovered, Stack, TensorData};

/// Maximum number of steps with unknown outcome. At this number, the device is waited for.
const MAX_PENDING: usize = 64;

/// The index and call location of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepId {
    pub(crate) optimizer: &'static str,
    pub(crate) step: u64,
    pub(crate) caller: &'static Location<'static>,
}

impl StepId {
    fn refused(self, source: kiln_tensor::Error) -> OptimError {
        let StepId { optimizer, step, caller } = self;
        OptimError::StepRefused { optimizer, step, pass: None, caller, source }
    }

    /// The refusal of a step with the mean gradient of several passes. It names the first pass in error.
    fn refused_with(self, passes: &[Pass], source: kiln_tensor::Error) -> OptimError {
        let is_in_error = |pass: &&Pass| pass.causes.iter().any(|cause| cause.to_data().is_err());
        let StepId { optimizer, step, caller } = self;
        match passes.iter().find(is_in_error) {
            Some(&Pass { number, caller, .. }) => {
                OptimError::StepRefused { optimizer, step, pass: Some(number), caller, source }
            }
            None => OptimError::StepRefused { optimizer, step, pass: None, caller, source },
        }
    }

    /// The refusal of the step, if the error is that of a tensor.
    pub(crate) fn refused_by(self, error: OptimError) -> OptimError {
        if let OptimError::Tensor(source) = error { self.refused(source) } else { error }
    }
}

/// The steps with unknown outcome, and the refused steps that no call has reported yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guard {
    steps: u64,
    pending: Vec<Pending>,
    /// In the order of the steps.
    refused: VecDeque<OptimError>,
    /// The accumulated passes of the next step, until its end.
    passes: Vec<Pass>,
}

/// An accumulated pass.
#[derive(Clone, Debug)]
struct Pass {
    /// Counted from 1 within the step.
    number: u64,
    caller: &'static Location<'static>,
    /// In error if a gradient of the pass is.
    causes: Vec<AnyTensor>,
}

/// The parameters of one device in a step with unknown outcome.
#[derive(Clone, Debug)]
struct Pending {
    id: StepId,
    /// In error if the step was refused.
    cause: AnyTensor,
    parameters: Vec<ParamId>,
    passes: Vec<Pass>,
}

/// The gradient of a parameter, below automatic differentiation and on the parameter's device.
pub(crate) struct Ready {
    pub(crate) gradient: AnyTensor,
    /// The flag that says whether the step is applied. `None` if it is known to be.
    pub(crate) ok: Option<AnyTensor>,
}

/// The gradients of one device.
struct Part {
    stack: Stack,
    ids: Vec<ParamId>,
    gradients: Vec<AnyTensor>,
    values: Vec<AnyTensor>,
}

/// All gradients of a step, and their stacks.
pub(crate) struct Prepared {
    pub(crate) gradients: BTreeMap<ParamId, Ready>,
    pub(crate) stacks: Vec<Stack>,
}

impl Guard {
    /// Counts a step and returns its id.
    pub(crate) fn begin(&mut self, optimizer: &'static str, caller: &'static Location<'static>) -> StepId {
        self.steps += 1;
        StepId { optimizer, step: self.steps, caller }
    }

    /// The index of the next step.
    pub(crate) fn next_step(&self) -> u64 {
        self.steps + 1
    }

    /// Adds a pass to the next step, to name it if its gradients are in error. Does not wait for the device.
    ///
    /// # Errors
    /// When an op fails.
    pub(crate) fn add_pass(
        &mut self,
        number: u64,
        caller: &'static Location<'static>,
        gradients: &GradientsParams,
    ) -> Result<()> {
        let mut causes = Vec::new();
        let mut unknown: Vec<Vec<AnyTensor>> = Vec::new();
        for (_, gradient) in gradients.iter() {
            match gradient.outcome() {
                Some(Ok(())) => {}
                Some(Err(_)) => causes.push(gradient.clone()),
                None => {
                    let gradient = gradient.clone().detach();
                    match unknown.iter_mut().find(|group| group[0].stack().same_domain(gradient.stack())) {
                        Some(group) => group.push(gradient),
                        None => unknown.push(alloc::vec![gradient]),
                    }
                }
            }
        }
        for mut group in unknown {
            let first = group.split_off(group.len() - 1);
            causes.push(AnyTensor::recover(first, group)?.cause);
        }
        if number == 1 {
            self.passes.clear();
        }
        self.passes.push(Pass { number, caller, causes });
        Ok(())
    }

    /// The refusal of a step of accumulated passes, if the error is that of a tensor.
    pub(crate) fn refused_by(&self, id: StepId, error: OptimError) -> OptimError {
        if let OptimError::Tensor(source) = error { id.refused_with(&self.passes, source) } else { error }
    }

    /// Collects the gradients of a module's trainable parameters for a step.
    ///
    /// # Errors
    /// When a gradient or a parameter is known to be in error.
    pub(crate) fn prepare(
        &mut self,
        id: StepId,
        module: &dyn Module,
        gradients: GradientsParams,
    ) -> Result<Prepared> {
        let mut gather = Gather { gradients, parts: Vec::new(), result: Ok(()) };
        module.visit(&mut Path::new(), &mut gather);
        gather.result?;
        let mut prepared = Prepared { gradients: BTreeMap::new(), stacks: Vec::new() };
        let mut pending = Vec::new();
        for part in gather.parts {
            let Part { stack, ids, gradients, values } = part;
            let mut is_known = true;
            for tensor in gradients.iter().chain(&values) {
                match tensor.outcome() {
                    Some(outcome) => outcome.map_err(|error| id.refused_with(&self.passes, error))?,
                    None => is_known = false,
                }
            }
            let (gradients, ok) = if is_known {
                (gradients, None)
            } else {
                let Recovered { tensors, ok, cause } = AnyTensor::recover(gradients, values)?;
                pending.push(Pending { id, cause, parameters: ids.clone(), passes: self.passes.clone() });
                (tensors, Some(ok))
            };
            for (id, gradient) in ids.into_iter().zip(gradients) {
                prepared.gradients.insert(id, Ready { gradient, ok: ok.clone() });
            }
            prepared.stacks.push(stack);
        }
        self.pending.extend(pending);
        Ok(prepared)
    }

    /// Looks for steps that are known to have been refused, and keeps their errors for [`take`](Guard::take). With `wait`,
    /// or with [`MAX_PENDING`] steps, it waits for all.
    pub(crate) fn look(&mut self, wait: bool, states: &mut BTreeMap<ParamId, ParameterState>) {
        let wait = wait || self.pending.len() >= MAX_PENDING;
        for pending in core::mem::take(&mut self.pending) {
            let outcome = if wait { Some(pending.wait()) } else { pending.cause.outcome() };
            match outcome {
                None => self.pending.push(pending),
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    let Pending { id, parameters, passes, .. } = pending;
                    for parameter in parameters {
                        if let Some(state) = states.get_mut(&parameter)
                            && state.take_back_step() == 0
                        {
                            states.remove(&parameter);
                        }
                    }
                    // A step on several devices is refused once.
                    if !self.has_refused(id.step) {
                        self.refused.push_back(id.refused_with(&passes, error));
                    }
                }
            }
        }
    }

    /// Returns whether a step is known to have been refused, and no call has reported it.
    pub(crate) fn has_refused(&self, step: u64) -> bool {
        self.refused.iter().any(|error| error.refused_step() == Some(step))
    }

    /// Reports the first refused step.
    ///
    /// # Errors
    /// Its error, which is then forgotten.
    pub(crate) fn take(&mut self) -> Result<()> {
        self.refused.pop_front().map_or(Ok(()), Err)
    }

    /// The error to report first: that of an earlier step, after which the given one is reported.
    pub(crate) fn in_order(&mut self, error: OptimError) -> OptimError {
        match self.refused.pop_front() {
            Some(earlier) => {
                self.refused.push_back(error);
                earlier
            }
            None => error,
        }
    }

    /// Makes the refusal of a step leave the step counts unchanged.
    pub(crate) fn keep_counts(&mut self, id: StepId) {
        for pending in self.pending.iter_mut().filter(|pending| pending.id.step == id.step) {
            pending.parameters.clear();
        }
    }

    /// Waits for all steps and keeps them.
    ///
    /// # Errors
    /// The error of the first step that was refused.
    pub(crate) fn check(&self) -> Result<()> {
        self.refused.front().map_or(Ok(()), |error| Err(error.clone()))?;
        self.pending.iter().try_for_each(|pending| {
            pending.wait().map_err(|error| pending.id.refused_with(&pending.passes, error))
        })
    }

    /// Forgets all steps, but not their number.
    pub(crate) fn clear(&mut self) {
        *self = Guard { steps: self.steps, ..Guard::default() };
    }
}

impl Pending {
    fn wait(&self) -> Result<(), kiln_tensor::Error> {
        self.cause.to_data().map(drop)
    }
}

/// Moves the gradients of trainable parameters to the devices of the parameters.
struct Gather {
    gradients: GradientsParams,
    parts: Vec<Part>,
    result: Result<()>,
}

impl Visitor for Gather {
    fn parameter(&mut self, _: &Path, parameter: Parameter) {
        if self.result.is_err() || !parameter.is_trainable() {
            return;
        }
        let Some(gradient) = self.gradients.remove(parameter.id) else { return };
        let value = parameter.value.inner();
        // On a stack with two layers of automatic differentiation, the lower one may track the gradient.
        let gradient = match gradient.detach().to_stack(value.stack()) {
            Ok(gradient) => gradient.detach(),
            Err(error) => {
                self.result = Err(error.into());
                return;
            }
        };
        let place = self.parts.iter().position(|part| part.stack.same(value.stack()));
        let place = place.unwrap_or_else(|| {
            let stack = value.stack().clone();
            self.parts.push(Part { stack, ids: Vec::new(), gradients: Vec::new(), values: Vec::new() });
            self.parts.len() - 1
        });
        let part = &mut self.parts[place];
        part.ids.push(parameter.id);
        part.gradients.push(gradient);
        part.values.push(value);
    }
}

/// Selects `new` where the flag `[1]` is true, otherwise `old`, or zeros without an old value.
pub(crate) fn select(ok: &AnyTensor, new: AnyTensor, old: Option<AnyTensor>) -> Result<AnyTensor> {
    let ok = if new.rank() == 0 { ok.clone().reshape([])? } else { ok.clone() };
    let old = match old {
        Some(old) => old,
        None => AnyTensor::from_data(TensorData::zeros(*new.ty()), new.stack()),
    };
    Ok(ok.if_else(new, old)?)
}
