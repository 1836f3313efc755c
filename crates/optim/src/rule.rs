//! Update rules.

use crate::error::Result;
use crate::{ParameterState, StepOptions};
use core::fmt::Debug;
use kiln_tensor::{AnyTensor, TensorType};

/// The update rule of one parameter: the core of an optimizer.
///
/// ```
/// use kiln_ir::{Binary, Unary};
/// use kiln_optim::{ParameterState, PerParameter, Result, StepOptions, Update, UpdateRule};
/// use kiln_tensor::AnyTensor;
///
/// /// Steps of the same size for every element: `p -= lr sign(g)`.
/// #[derive(Debug)]
/// struct SignSgd;
///
/// impl UpdateRule for SignSgd {
///     fn name(&self) -> &'static str {
///         "sign_sgd"
///     }
///
///     fn slots(&self) -> &'static [&'static str] {
///         &[]
///     }
///
///     fn update(
///         &self,
///         _value: &AnyTensor,
///         gradient: AnyTensor,
///         _state: &mut ParameterState,
///         options: StepOptions,
///     ) -> Result<Update> {
///         let step = gradient.unary(Unary::Sign)?.binary_scalar(Binary::Mul, options.learning_rate)?;
///         Ok(Update { keep: 1.0, step })
///     }
/// }
///
/// let optimizer = PerParameter::new(SignSgd);
/// ```
pub trait UpdateRule: Debug + Send {
    /// Returns the name of the optimizer, for messages and states.
    fn name(&self) -> &'static str;

    /// Returns the names of the tensors that the rule stores per parameter: identifiers without dots, and not
    /// `step` or `rule`.
    fn slots(&self) -> &'static [&'static str];

    /// Returns the type of a stored tensor, to check loaded states. Default: the parameter's type.
    fn slot_type(&self, _slot: &str, parameter: TensorType) -> TensorType {
        parameter
    }

    /// Returns whether a parameter of this type has a stored tensor. Default: yes.
    fn has_slot(&self, _slot: &str, _parameter: TensorType) -> bool {
        true
    }

    /// Returns the code of a stored tensor in [8 bits](crate::PerParameter::with_8bit_state). Default:
    /// [`SlotCode::Signed`].
    fn slot_code(&self, _slot: &str) -> SlotCode {
        SlotCode::Signed
    }

    /// Returns the requirement that a parameter of this type does not satisfy, such as "a matrix". Default: none.
    fn unmet_requirement(&self, _parameter: TensorType) -> Option<&'static str> {
        None
    }

    /// Returns whether the parameters for evaluation differ from those for training. Default: no.
    fn has_eval_values(&self) -> bool {
        false
    }

    /// Converts a parameter between its values for training and for evaluation, with the state after its last step.
    /// Called only if [`has_eval_values`](UpdateRule::has_eval_values). Default: the value.
    ///
    /// # Errors
    /// When an op fails.
    fn converted(&self, value: AnyTensor, _state: &ParameterState, _to: Mode) -> Result<AnyTensor> {
        Ok(value)
    }

    /// Returns the weight decay of parameters whose group sets none. Default: 0.
    fn weight_decay(&self) -> f64 {
        0.0
    }

    /// Returns whether [`update`](UpdateRule::update) follows [`StepOptions::momentum`]. Default: no.
    fn has_momentum(&self) -> bool {
        false
    }

    /// Computes the update of a parameter.
    ///
    /// Value, gradient and state are on one device, below automatic differentiation; value and gradient have the same
    /// type. `state` already counts this step. Clones of `value` must not outlive the call, or the new value cannot
    /// reuse its memory.
    ///
    /// # Errors
    /// When an op fails.
    fn update(
        &self,
        value: &AnyTensor,
        gradient: AnyTensor,
        state: &mut ParameterState,
        options: StepOptions,
    ) -> Result<Update>;
}

/// The update of a parameter: the new value is `keep · value - step`.
#[derive(Clone, Debug)]
pub struct Update {
    /// The factor of the old value: 1 without decoupled weight decay.
    pub keep: f64,
    /// The subtracted tensor. It has the parameter's type.
    pub step: AnyTensor,
}

/// The code of a stored tensor in 8 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotCode {
    /// Numbers of both signs.
    Signed,
    /// Numbers of at least 0.
    NonNegative,
    /// The tensor stays in full precision.
    Exact,
}

/// The purpose of a module's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Gradients are computed at these values.
    Train,
    /// Inference uses these values.
    Eval,
}
