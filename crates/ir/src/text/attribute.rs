//! The attributes of the text form: keys and values.

use super::lexer::write_scalar;
use super::write_program;
use crate::{Program, Scalar, TensorType};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// The value of an attribute.
#[derive(Clone, Debug)]
pub(super) enum Attribute {
    /// A number or a boolean.
    Number(Scalar),
    /// A name: a dtype or a mode.
    Word(String),
    /// A quoted string.
    Text(String),
    /// The type of a tensor.
    Type(TensorType),
    /// A list in brackets.
    List(Vec<Attribute>),
    /// A program.
    Program(Arc<Program>),
}

pub(super) fn write_attributes(
    f: &mut fmt::Formatter<'_>,
    attributes: &[(&'static str, Attribute)],
    depth: usize,
) -> fmt::Result {
    if attributes.is_empty() {
        return Ok(());
    }
    for (i, (key, value)) in attributes.iter().enumerate() {
        write!(f, "{}{key} = ", if i == 0 { " {" } else { ", " })?;
        write_attribute(f, value, depth)?;
    }
    f.write_str("}")
}

fn write_attribute(f: &mut fmt::Formatter<'_>, value: &Attribute, depth: usize) -> fmt::Result {
    match value {
        Attribute::Number(scalar) => write_scalar(f, *scalar),
        Attribute::Word(word) => f.write_str(word),
        Attribute::Text(text) => write_text(f, text),
        Attribute::Type(ty) => write!(f, "{ty}"),
        Attribute::List(list) => {
            f.write_str("[")?;
            for (i, value) in list.iter().enumerate() {
                f.write_str(if i == 0 { "" } else { ", " })?;
                write_attribute(f, value, depth)?;
            }
            f.write_str("]")
        }
        Attribute::Program(program) => write_program(f, program, depth),
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\t' => f.write_str("\\t")?,
            c if c.is_control() => write!(f, "\\u{{{:x}}}", c as u32)?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

pub(super) fn indented(f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
    (0..depth).try_for_each(|_| f.write_str("  "))
}
