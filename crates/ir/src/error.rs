//! Errors of operations, programs and engines.

use crate::{Op, OperandType, Shape, TensorType};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// An error of an operation, a program or an engine. One machine word; cheap to pass on.
///
/// Errors about an operation display in one form, with the op, the problem, the operands and a hint:
///
/// ```text
/// [matmul] inner sizes differ: f32[2, 3] x f32[4, 5]
///   hint: the last axis of the left operand must be as long as the second last of the right one
/// ```
///
/// It serializes as its [kind](ErrorKind), with all text and numbers of its message. It contains no source locations,
/// so serialization loses none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error(transparent)]
#[serde(transparent)]
pub struct Error(Box<ErrorKind>);

/// The kinds of [`Error`].
///
/// Serialized, a kind is a lower-case tag around its fields:
/// `{"value": {"op": "take", "problem": "...", "hint": null}}`. Deserialization skips unknown fields, and a missing
/// hint is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorKind {
    /// An op does not accept its operands.
    #[error("[{op}] {problem}{}{}", Operands(.operands), Hint(.hint))]
    Type {
        /// The op's name.
        op: String,
        /// The violated rule.
        problem: String,
        /// The operand types, such as `f32[2, 3]`.
        operands: Vec<String>,
        /// The suggested fix.
        hint: Option<String>,
    },
    /// Data met while running an op is invalid: an index out of range, for instance.
    #[error("[{op}] {problem}{}", Hint(.hint))]
    Value {
        /// The op's name.
        op: String,
        /// The problem, with the offending number and its index.
        problem: String,
        /// The suggested fix.
        hint: Option<String>,
    },
    /// The engine does not provide this.
    #[error("[{engine}] {problem}{}", Hint(.hint))]
    Unsupported {
        /// The engine's name.
        engine: String,
        /// The unsupported feature.
        problem: String,
        /// The suggested fix.
        hint: Option<String>,
    },
    /// The device failed: out of memory, lost, missing library.
    #[error("[{device}] {problem}{}", Hint(.hint))]
    Device {
        /// The device's name.
        device: String,
        /// The failure.
        problem: String,
        /// The suggested fix.
        hint: Option<String>,
    },
    /// No gradient is defined here.
    #[error("[{op}] {problem}{}", Hint(.hint))]
    Gradient {
        /// The op's name.
        op: String,
        /// The reason why there is no gradient.
        problem: String,
        /// The suggested fix.
        hint: Option<String>,
    },
    /// A text is not a program.
    #[error("line {line}, column {column}: {problem}")]
    Parse {
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The syntax error.
        problem: String,
    },
    /// A program violates a rule of [`verify`](mod@crate::verify).
    #[error("[program] {problem}")]
    Program {
        /// The violated rule.
        problem: String,
    },
}

impl Error {
    /// Creates the error of an op that does not accept its operands.
    pub fn type_error(op: &str, problem: impl Into<String>, operands: &[OperandType<'_>]) -> Error {
        ErrorKind::Type {
            op: op.into(),
            problem: problem.into(),
            operands: operands.iter().map(ToString::to_string).collect(),
            hint: None,
        }
        .into()
    }

    /// Replaces the op's name by that of the composite op that the user called. Only errors about operands change;
    /// others keep the op in which they occurred.
    #[must_use]
    pub fn in_op(mut self, name: &str) -> Error {
        if let ErrorKind::Type { op, .. } = &mut *self.0 {
            *op = name.into();
        }
        self
    }

    /// Creates the error for invalid data found while running an op.
    pub fn value(op: &str, problem: impl Into<String>) -> Error {
        ErrorKind::Value { op: op.into(), problem: problem.into(), hint: None }.into()
    }

    /// Creates the error for a feature that an engine does not provide.
    pub fn unsupported(engine: &str, problem: impl Into<String>) -> Error {
        ErrorKind::Unsupported { engine: engine.into(), problem: problem.into(), hint: None }.into()
    }

    /// Creates the error for an index that is out of range for an axis, at a position of the index tensor.
    pub fn index_out_of_range(
        op: &str,
        index: impl fmt::Display,
        position: &Shape,
        axis: usize,
        length: usize,
    ) -> Error {
        let problem = format!(
            "index {index} at position {position} is out of range for axis {axis} of length {length}"
        );
        Error::value(op, problem).hint(match length {
            0 => "the axis is empty, so no index is valid".into(),
            _ => format!("indices range from 0 to {}", length - 1),
        })
    }

    /// Creates the error for a device failure.
    pub fn device(device: &str, problem: impl Into<String>) -> Error {
        ErrorKind::Device { device: device.into(), problem: problem.into(), hint: None }.into()
    }

    /// Creates the error for an undefined gradient.
    pub fn gradient(op: &str, problem: impl Into<String>) -> Error {
        ErrorKind::Gradient { op: op.into(), problem: problem.into(), hint: None }.into()
    }

    /// Creates the error for an invalid program.
    pub fn program(problem: impl Into<String>) -> Error {
        ErrorKind::Program { problem: problem.into() }.into()
    }

    /// Creates a parse error; `line` and `column` count from 1.
    pub fn parse(line: usize, column: usize, problem: impl Into<String>) -> Error {
        ErrorKind::Parse { line, column, problem: problem.into() }.into()
    }

    /// Adds a hint: the suggested fix. Errors of kinds without a hint are returned unchanged.
    #[must_use]
    pub fn hint(mut self, text: impl Into<String>) -> Error {
        if let ErrorKind::Type { hint, .. }
        | ErrorKind::Value { hint, .. }
        | ErrorKind::Unsupported { hint, .. }
        | ErrorKind::Device { hint, .. }
        | ErrorKind::Gradient { hint, .. } = &mut *self.0
        {
            *hint = Some(text.into());
        }
        self
    }

    /// Names the op and its results in an error [out of memory](Error::is_out_of_memory). Other errors do not change.
    #[must_use]
    pub fn out_of_memory_in(mut self, op: &Op, results: &[TensorType]) -> Error {
        if self.is_out_of_memory()
            && let ErrorKind::Device { problem, .. } = &mut *self.0
        {
            let types: Vec<String> = results.iter().map(ToString::to_string).collect();
            problem.push_str(&format!(", by `{}` with the result {}", op.name(), types.join(", ")));
        }
        self
    }

    /// Returns whether the device had no memory for a tensor: fewer or smaller tensors may succeed.
    ///
    /// ```
    /// use kiln_ir::Error;
    ///
    /// assert!(Error::device("cpu", "out of memory: 8 bytes could not be allocated").is_out_of_memory());
    /// assert!(!Error::device("cuda:0", "the device is lost").is_out_of_memory());
    /// ```
    pub fn is_out_of_memory(&self) -> bool {
        matches!(&*self.0, ErrorKind::Device { problem, .. } if problem.starts_with(OUT_OF_MEMORY))
    }

    /// Returns the kind of the error, with its fields.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }
}

/// The beginning of the problem of every device error that reports exhausted memory.
const OUT_OF_MEMORY: &str = "out of memory";

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Error {
        Error(Box::new(kind))
    }
}

struct Operands<'a>(&'a [String]);

impl fmt::Display for Operands<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, operand) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { ": " } else { " x " })?;
            f.write_str(operand)?;
        }
        Ok(())
    }
}

struct Hint<'a>(&'a Option<String>);

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |hint| f.write_str(&format!("\n  hint: {hint}")))
    }
}
