//! The text format of kernels and launches.
//!
//! ```text
//! kernel row_reduce [p, r] (%0: f32 in [any, one], %1: f32 number, %2: f32 out [any, one]) {
//!   v0: f32 = load %0
//!   v1: f32 = reduce_max v0
//!   v2: f32 = sub v0, v1 ; a comment runs to the end of its line
//!   v3: f32 = number %1
//!   v4: f32 = mul v2, v3
//!   v5: f32 = store %2, v4
//! }
//! launch [64, 1024] (%0: 0 [1024, 1], %1: 1, %2: 0 [1024, 1])
//! ```
//!
//! The text of a kernel has its kind (a matmul with the value of its sum: `matmul v4`), the roles of its axes
//! (`p`arallel or `r`educed), its parameters with dtype, kind and stride classes, and one instruction per line: the
//! value, its dtype, the operation and its operands. Functions have the names of their ops; reductions and scans are
//! `reduce_sum`, `column_reduce_sum`, `scan_sum v0 {reverse = true, exclusive = false}`; an index names its axis. The
//! text of a launch has the extents, and for each parameter its place, its offset if that is not 0 (`%0: 0 at -4 [1]`),
//! and its strides.
//!
//! `Display` prints a [`Kernel`] or a [`Launch`]; `FromStr` parses the same text. Parsing checks the syntax only;
//! [`verify`](crate::verify()) checks the semantics.

mod parser;

use crate::{Axis, Compute, Kernel, KernelKind, Launch, Param, ParamKind, StrideClass};
use core::fmt;
use core::str::FromStr;
use kiln_ir::text::lexer::write_scalar;
use kiln_ir::{Error, Result};

/// The maximum length of a text in bytes.
pub const MAX_TEXT: usize = 1 << 20;

/// The maximum number of instructions of a text.
pub const MAX_INSTRUCTIONS: usize = 1 << 14;

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}", self.kind.name())?;
        if let KernelKind::MatMul(product) = self.kind {
            write!(f, " v{product}")?;
        }
        let role = |axis: &Axis| match axis {
            Axis::Parallel => "p",
            Axis::Reduce => "r",
        };
        f.write_str(" ")?;
        list(f, self.axes.iter().map(role))?;
        f.write_str(" (")?;
        for (i, param) in self.params.iter().enumerate() {
            write!(f, "{}%{i}: {param}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str(") {\n")?;
        for (i, instruction) in self.body.iter().enumerate() {
            writeln!(f, "  v{i}: {} = {}", instruction.dtype, instruction.compute)?;
        }
        f.write_str("}")
    }
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ParamKind::Input => "in",
            ParamKind::Number => "number",
            ParamKind::Output => "out",
        };
        write!(f, "{} {kind}", self.dtype)?;
        if self.kind == ParamKind::Number && self.strides.is_empty() {
            return Ok(());
        }
        let class = |class: &StrideClass| match class {
            StrideClass::Zero => "zero",
            StrideClass::One => "one",
            StrideClass::Any => "any",
        };
        f.write_str(" ")?;
        list(f, self.strides.iter().map(class))
    }
}

impl fmt::Display for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Compute::Load(param) => write!(f, "load %{param}"),
            Compute::LoadWhere(param, condition) => write!(f, "load_where %{param}, v{condition}"),
            Compute::LoadAt { param, offset, condition } => {
                write!(f, "load_at %{param}, v{offset}, v{condition}")
            }
            Compute::Number(param) => write!(f, "number %{param}"),
            Compute::Constant(scalar) => {
                f.write_str("constant ")?;
                write_scalar(f, scalar)
            }
            Compute::Index(axis) => write!(f, "index {axis}"),
            Compute::Unary(function, a) => write!(f, "{} v{a}", function.name()),
            Compute::Binary(function, a, b) => write!(f, "{} v{a}, v{b}", function.name()),
            Compute::Compare(comparison, a, b) => write!(f, "{} v{a}, v{b}", comparison.name()),
            Compute::Select(condition, a, b) => write!(f, "select v{condition}, v{a}, v{b}"),
            Compute::Cast(a) => write!(f, "cast v{a}"),
            Compute::Bitcast(a) => write!(f, "bitcast v{a}"),
            Compute::Reduce(reduction, a) => write!(f, "reduce_{} v{a}", reduction.name()),
            Compute::ColumnReduce(reduction, a) => write!(f, "column_reduce_{} v{a}", reduction.name()),
            Compute::Scan { reduction, reverse, exclusive, value } => {
                let name = reduction.name();
                write!(f, "scan_{name} v{value} {{reverse = {reverse}, exclusive = {exclusive}}}")
            }
            Compute::Checked(a, bound) => write!(f, "checked v{a}, v{bound}"),
            Compute::Store(param, a) => write!(f, "store %{param}, v{a}"),
        }
    }
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("launch ")?;
        list(f, self.extents.iter())?;
        f.write_str(" (")?;
        for (i, binding) in self.bindings.iter().enumerate() {
            write!(f, "{}%{i}: {}", if i == 0 { "" } else { ", " }, binding.place)?;
            if binding.offset != 0 {
                write!(f, " at {}", binding.offset)?;
            }
            if !binding.strides.is_empty() {
                f.write_str(" ")?;
                list(f, binding.strides.iter())?;
            }
        }
        f.write_str(")")
    }
}

fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, entries: impl Iterator<Item = T>) -> fmt::Result {
    f.write_str("[")?;
    for (i, entry) in entries.enumerate() {
        write!(f, "{}{entry}", if i == 0 { "" } else { ", " })?;
    }
    f.write_str("]")
}

impl FromStr for Kernel {
    type Err = Error;

    /// Parses a kernel from its [text form](crate::text).
    ///
    /// # Errors
    /// When the text is no kernel, or is longer than [`MAX_TEXT`]. The message contains line and column.
    fn from_str(text: &str) -> Result<Kernel> {
        parser::kernel(text)
    }
}

impl FromStr for Launch {
    type Err = Error;

    /// Parses a launch from its [text form](crate::text).
    ///
    /// # Errors
    /// When the text is no launch, or is longer than [`MAX_TEXT`]. The message contains line and column.
    fn from_str(text: &str) -> Result<Launch> {
        parser::launch(text)
    }
}

impl KernelKind {
    /// The name used in messages and in the text form.
    ///
    /// ```
    /// assert_eq!(kiln_kernel::KernelKind::RowReduce.name(), "row_reduce");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            KernelKind::Map => "map",
            KernelKind::Transpose => "transpose",
            KernelKind::RowReduce => "row_reduce",
            KernelKind::ColReduce => "col_reduce",
            KernelKind::FullReduce => "full_reduce",
            KernelKind::Scan => "scan",
            KernelKind::MatMul(_) => "matmul",
        }
    }
}
