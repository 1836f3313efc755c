//! The attributes of the text form: keys and values.

use super::lexer::write_scalar;
use super::write_program;
use crate::{Program, Scalar, Shape, TensorType};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Attribute<'t> {
    /// A number or a boolean.
    Number(Scalar),
    /// A name: a dtype or a mode.
    Word(&'t str),
    /// A quoted string.
    Text(String),
    /// The type of a tensor: its lengths and its dtype.
    Type(Vec<Attribute<'t>>),
    /// A list in brackets.
    List(Vec<Attribute<'t>>),
    /// A program.
    Program(Arc<Program>),
}

impl<'t> Attribute<'t> {
    /// The entries of a list.
    pub(super) fn list(self) -> Option<Vec<Attribute<'t>>> {
        if let Attribute::List(list) = self { Some(list) } else { None }
    }

    /// An entry of a list.
    pub(super) fn entry(&self, place: usize) -> Option<Attribute<'t>> {
        if let Attribute::List(list) = self { list.get(place).cloned() } else { None }
    }
}

impl From<&TensorType> for Attribute<'_> {
    fn from(ty: &TensorType) -> Self {
        Attribute::Type([Attribute::from(&ty.shape), Attribute::Word(ty.dtype.name())].into())
    }
}

impl From<&Shape> for Attribute<'_> {
    fn from(shape: &Shape) -> Self {
        Attribute::List(shape.iter().map(|&length| Attribute::Number(Scalar::from(length))).collect())
    }
}

pub(super) fn write_attributes(
    f: &mut fmt::Formatter<'_>,
    attributes: &[(&'static str, Attribute<'_>)],
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

fn write_attribute(f: &mut fmt::Formatter<'_>, value: &Attribute<'_>, depth: usize) -> fmt::Result {
    match value {
        Attribute::Number(scalar) => write_scalar(f, *scalar),
        Attribute::Word(word) => f.write_str(word),
        Attribute::Text(text) => write_text(f, text),
        Attribute::Type(parts) => parts.iter().rev().try_for_each(|part| write_attribute(f, part, depth)),
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
