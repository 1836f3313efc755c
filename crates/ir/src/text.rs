//! The text format of programs.
//!
//! ```text
//! program(%0: f32[2, 3], %1: f32[3, 4]) {
//!   %2: f32[2, 4] = matmul %0, %1
//!   %3: f32[2, 1] = reduce_sum %2 {axes = [1]}
//!   %4: f32[2, 3], %5: i32[2, 3] = sort %0 {axis = 1, descending = true, index = i32}
//!   return %3, %4 ; a comment runs to the end of its line
//! }
//! ```
//!
//! Each line defines slots with their types, and names an op ([`Op::name`]), its operands and its attributes. These are
//! the fields of the serde form of [`Op`], also those of nested structs and enums, without the attribute that the name
//! contains. Ranges and padding are one list for each of their fields. Literals:
//! `1.0`, `1e-5`, `inf` and `nan` are floats, `1` is an integer, `5u` an unsigned one. An attribute that repeats the
//! type of the first result is omitted: the type of [`Op::Full`], [`Op::Iota`] and [`Op::Random`], the shape of
//! [`Op::Reshape`] and [`Op::Broadcast`], the dtype of [`Op::Cast`], [`Op::Bitcast`] and [`Op::Quantize`]. A custom op
//! is written `custom` with its name and attributes as strings. A fused one is written with its program and its
//! [pattern](crate::Pattern), unless that is `loop`; slots of a pattern are numbers.
//!
//! `Display` prints a [`Program`], [`Program::parse`] parses it: a printed program parses to an equal one. Parsing
//! checks the syntax only; [`verify`](mod@crate::verify) checks the semantics.

mod attribute;
mod build;
mod describe;
mod exceptions;
pub mod lexer;
mod parser;
mod value;

use crate::{Error, Instruction, Op, Program, ProgramOperand, Result, TensorType};
use attribute::indented;
use core::fmt;
use core::str::FromStr;

/// The maximum length of a text in bytes.
pub const MAX_TEXT: usize = 64 << 20;

/// The maximum nesting depth of programs and lists.
pub const MAX_NESTING: usize = 8;

/// The maximum number of operands or results of one op, and of inputs or outputs of a program.
pub const MAX_OPERANDS: usize = 1 << 16;

impl Program {
    /// Parses a program from its [text form](crate::text).
    ///
    /// # Errors
    /// When the text is no program, is longer than [`MAX_TEXT`], uses a slot that is not defined above, or names a
    /// custom op that is not registered. The message contains line and column.
    pub fn parse(text: &str) -> Result<Program> {
        parser::parse(text)
    }
}

impl FromStr for Program {
    type Err = Error;

    fn from_str(text: &str) -> Result<Program> {
        Program::parse(text)
    }
}

/// The text form of the module [`text`](crate::text).
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_program(f, self, 0)
    }
}

/// The name of the op and all its attributes, as in the text form of programs.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(describe::word(self))?;
        attribute::write_attributes(f, &describe::attributes(self, None)?, 0)
    }
}

fn write_program(f: &mut fmt::Formatter<'_>, program: &Program, depth: usize) -> fmt::Result {
    f.write_str("program(")?;
    write_slots(f, 0, &program.inputs)?;
    f.write_str(") {\n")?;
    let mut slot = program.inputs.len();
    for instruction in &program.instructions {
        indented(f, depth + 1)?;
        write_instruction(f, instruction, slot, depth)?;
        f.write_str("\n")?;
        slot += instruction.results.len();
    }
    indented(f, depth + 1)?;
    f.write_str("return")?;
    write_operands(f, &program.outputs)?;
    f.write_str("\n")?;
    indented(f, depth)?;
    f.write_str("}")
}

fn write_instruction(
    f: &mut fmt::Formatter<'_>,
    instruction: &Instruction,
    slot: usize,
    depth: usize,
) -> fmt::Result {
    write_slots(f, slot, &instruction.results)?;
    f.write_str(if instruction.results.is_empty() { "= " } else { " = " })?;
    f.write_str(describe::word(&instruction.op))?;
    write_operands(f, &instruction.operands)?;
    let attributes = describe::attributes(&instruction.op, instruction.results.first())?;
    attribute::write_attributes(f, &attributes, depth + 1)
}

fn write_slots(f: &mut fmt::Formatter<'_>, first: usize, types: &[TensorType]) -> fmt::Result {
    for (i, ty) in types.iter().enumerate() {
        let comma = if i == 0 { "" } else { ", " };
        write!(f, "{comma}%{}: {ty}", first + i)?;
    }
    Ok(())
}

fn write_operands(f: &mut fmt::Formatter<'_>, operands: &[ProgramOperand]) -> fmt::Result {
    for (i, operand) in operands.iter().enumerate() {
        f.write_str(if i == 0 { " " } else { ", " })?;
        match operand {
            ProgramOperand::Slot(slot) => write!(f, "%{slot}")?,
            ProgramOperand::Scalar(scalar) => lexer::write_scalar(f, *scalar)?,
        }
    }
    Ok(())
}
