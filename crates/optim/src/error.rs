//! The error type of the crate.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::panic::Location;
use kiln_tensor::TensorType;

/// A result whose error is [`OptimError`].
pub type Result<T, E = OptimError> = core::result::Result<T, E>;

/// An error of an optimizer, a learning-rate schedule or their state.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptimError {
    /// An option is out of range.
    #[error("[{owner}] {option} is {value}\n  hint: it must be {requirement}")]
    InvalidOption {
        /// The optimizer or schedule.
        owner: &'static str,
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// The valid range.
        requirement: &'static str,
    },

    /// A gradient has another type than its parameter.
    #[error(
        "[{optimizer}] parameter `{parameter}` is {expected}, but its gradient is {found}\n  \
         hint: pass the gradients of the same module, from `GradientsParams::from_grads`"
    )]
    GradientType {
        /// The optimizer.
        optimizer: &'static str,
        /// The parameter's dotted name.
        parameter: String,
        /// The parameter's type.
        expected: Box<TensorType>,
        /// The gradient's type.
        found: Box<TensorType>,
    },

    /// Two places of a module have trainable parameters with one id, but with different tensors.
    #[error(
        "[{optimizer}] parameter `{parameter}` has the id of an earlier one, but another tensor\n  \
         hint: to tie them, assign a clone of the parameter; to train both, create one anew: \
         `Param::from_tensor(parameter.val())`"
    )]
    SeparateTensors {
        /// The optimizer.
        optimizer: &'static str,
        /// The dotted name of the second place.
        parameter: String,
    },

    /// An update rule computed a step of another type than the parameter.
    #[error(
        "[{optimizer}] the rule computed a step of type {found} for parameter `{parameter}`, which has type {expected}"
    )]
    StepType {
        /// The optimizer.
        optimizer: &'static str,
        /// The parameter's dotted name.
        parameter: String,
        /// The parameter's type.
        expected: Box<TensorType>,
        /// The type of the step.
        found: Box<TensorType>,
    },

    /// An update rule does not support a parameter.
    #[error(
        "[{rule}] parameter `{parameter}` is {found}, but the rule needs {requirement}\n  \
         hint: give other parameters another rule, with `ParameterGroup::rule`"
    )]
    UnsupportedParameter {
        /// The update rule.
        rule: &'static str,
        /// The parameter's dotted name.
        parameter: String,
        /// The parameter's type.
        found: Box<TensorType>,
        /// The parameters that the rule supports.
        requirement: &'static str,
    },

    /// A gradient or parameter of a step is in error. The step changed neither parameters nor the optimizer's state.
    #[error(
        "[{optimizer}] step {step}{} at {caller} was rejected; parameters and state are unchanged: the gradients or the \
         parameters contain an error\n  {source}",
        of_pass(*pass)
    )]
    StepRefused {
        /// The optimizer.
        optimizer: &'static str,
        /// The index of the step, counted from 1. Compare it with [`StepReport::step`](crate::StepReport::step).
        step: u64,
        /// With gradient accumulation the first pass of the step that is in error, counted from 1.
        pass: Option<u64>,
        /// The source location of the call: that of the pass in error, or of the step.
        caller: &'static Location<'static>,
        /// The error, with the op that caused it.
        source: kiln_tensor::Error,
    },

    /// A state belongs to another optimizer.
    #[error(
        "[{optimizer}] the state is of optimizer `{found}`\n  hint: load it into an optimizer of that kind"
    )]
    WrongOptimizer {
        /// The optimizer that loads the state.
        optimizer: &'static str,
        /// The optimizer that saved the state.
        found: String,
    },

    /// A state contains parameters that the module does not have.
    #[error("[{optimizer}] the state contains parameters that the module does not have: {}", list(names))]
    UnknownParameters {
        /// The optimizer.
        optimizer: &'static str,
        /// The dotted names.
        names: Vec<String>,
    },

    /// A part of a state is not valid for the optimizer.
    #[error("[{optimizer}] state of parameter `{parameter}`: {problem}")]
    InvalidState {
        /// The optimizer.
        optimizer: &'static str,
        /// The parameter's dotted name.
        parameter: String,
        /// A description of the problem.
        problem: String,
    },

    /// The state of a learning-rate schedule belongs to another schedule.
    #[error(
        "[{schedule}] {problem}\n  hint: load the state into the schedule that saved it, with the same parts"
    )]
    ScheduleState {
        /// The schedule that loads the state.
        schedule: &'static str,
        /// A description of the problem.
        problem: String,
    },

    /// An op on a tensor failed.
    #[error(transparent)]
    Tensor(#[from] kiln_tensor::Error),
}

impl OptimError {
    /// Returns the index of the step that was refused; `None` for other errors.
    pub fn refused_step(&self) -> Option<u64> {
        if let OptimError::StepRefused { step, .. } = self { Some(*step) } else { None }
    }

    /// Returns the error of an option out of range.
    pub fn option(
        owner: &'static str,
        option: &'static str,
        value: impl fmt::Display,
        requirement: &'static str,
    ) -> OptimError {
        OptimError::InvalidOption { owner, option, value: value.to_string(), requirement }
    }

    /// Returns the error of a state that a schedule cannot load.
    pub fn schedule_state(schedule: &'static str, problem: impl Into<String>) -> OptimError {
        OptimError::ScheduleState { schedule, problem: problem.into() }
    }
}

/// Returns the value if it is finite and at least 0.
pub(crate) fn not_negative(owner: &'static str, option: &'static str, value: f64) -> Result<f64> {
    if value.is_finite() && value >= 0.0 {
        return Ok(value);
    }
    Err(OptimError::option(owner, option, value, "a finite number of at least 0"))
}

/// Returns the value if it is finite and greater than 0.
pub(crate) fn positive(owner: &'static str, option: &'static str, value: f64) -> Result<f64> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(OptimError::option(owner, option, value, "a finite number greater than 0"))
}

/// Returns the value if it is in `[0, 1)`.
pub(crate) fn below_one(owner: &'static str, option: &'static str, value: f64) -> Result<f64> {
    if (0.0..1.0).contains(&value) {
        return Ok(value);
    }
    Err(OptimError::option(owner, option, value, "at least 0 and below 1"))
}

/// Checks that the value is in `(0, 1)`.
pub(crate) fn inside_unit(owner: &'static str, option: &'static str, value: f64) -> Result<()> {
    below_one(owner, option, value)?;
    positive(owner, option, value).map(|_| ())
}

/// Returns the error of a momentum for an update rule that has none.
pub(crate) fn no_momentum(owner: &'static str, momentum: f64) -> OptimError {
    let requirement =
        "none: the update rule has no momentum to replace (in `sgd` and `rmsprop` it must be above 0)";
    OptimError::option(owner, "the momentum of the schedule", momentum, requirement)
}

/// Returns the value if it is at least 1.
pub(crate) fn at_least_one(owner: &'static str, option: &'static str, value: u64) -> Result<u64> {
    if value == 0 { Err(OptimError::option(owner, option, value, "at least 1")) } else { Ok(value) }
}

/// ` (pass 2)`.
fn of_pass(pass: Option<u64>) -> String {
    pass.map_or_else(String::new, |pass| format!(" (pass {pass})"))
}

/// Formats at most eight names and the number of the others.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
