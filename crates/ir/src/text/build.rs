//! Parsing of ops: from a name and attributes to an op.

use super::attribute::Attribute;
use super::exceptions::{OF_RESULT, implied, in_name, named_by_attribute};
use super::lexer::Position;
use super::value::{Problem, Value};
use crate::{FusedOp, LoopOp, OPS, Op, OpKind, Program, Result, Scalar, TensorType};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use serde::Deserialize;
use serde::de::Error as _;

/// A parsed op.
pub(super) struct ParsedOp<'t> {
    pub(super) name: &'t str,
    pub(super) place: Position,
    /// The type of the first result, for omitted attributes.
    pub(super) result: Option<TensorType>,
    pub(super) attributes: Vec<(&'t str, Attribute<'t>, Position)>,
}

/// Builds the op.
///
/// # Errors
/// When there is no such op, or an attribute is missing, unknown, of the wrong kind or out of range.
pub(super) fn build(parsed: &ParsedOp<'_>) -> Result<Op> {
    let Some((kind, choice)) = kind_of(parsed.name) else {
        let shown: String = parsed.name.chars().take(40).collect();
        return Err(parsed.place.error(format!("unknown op `{shown}`")));
    };
    let given = Given::new(kind, choice, Some(parsed));
    let op = given.op().map_err(|problem| given.error(problem, parsed))?;
    let read = given.read.borrow();
    match parsed.attributes.iter().find(|(key, ..)| !read.contains(key)) {
        None => Ok(op),
        Some((key, _, place)) => Err(place.error(format!("`{}` has no attribute `{key}`", parsed.name))),
    }
}

/// The kind of the op of this name, and the index of the attribute that the name contains.
fn kind_of(name: &str) -> Option<(OpKind, usize)> {
    let row = OPS.iter().find(|row| row.name == name && in_name(row.kind).is_empty());
    let index = |kind| {
        let example = |choice| Op::deserialize(Value::new(&Given::new(kind, choice, None), "Op")).ok();
        (0..).map_while(example).position(|op| op.name() == name)
    };
    let chosen = || named_by_attribute().find_map(|kind| Some((kind, index(kind)?)));
    row.map(|row| (row.kind, 0)).or_else(chosen)
}

/// The attributes of an op.
pub(super) struct Given<'p, 't> {
    kind: OpKind,
    /// The index of the attribute that the name contains.
    choice: usize,
    /// The attributes in the text; without them, each number is 0 and each list is empty.
    pub(super) parsed: Option<&'p ParsedOp<'t>>,
    /// The attributes that were read.
    read: RefCell<Vec<&'static str>>,
    /// The attribute that was read last, and whether that was one of its entries.
    pub(super) last: Cell<(&'static str, bool)>,
}

impl<'p, 't> Given<'p, 't> {
    fn new(kind: OpKind, choice: usize, parsed: Option<&'p ParsedOp<'t>>) -> Given<'p, 't> {
        Given { kind, choice, parsed, read: RefCell::default(), last: Cell::new(("", false)) }
    }

    fn op(&self) -> Result<Op, Problem> {
        if self.kind == OpKind::Fused {
            let pattern = Deserialize::deserialize(Value::new(self, "pattern"))?;
            FusedOp::with_pattern(self.program("program")?, pattern).map(Op::Fused).map_err(Problem::custom)
        } else if self.kind == OpKind::Loop {
            let attributes = Deserialize::deserialize(Value::new(self, "attributes"))?;
            LoopOp::new(self.program("body")?, attributes).map(Op::Loop).map_err(Problem::custom)
        } else {
            Op::deserialize(Value::new(self, "Op"))
        }
    }

    fn program(&self, key: &'static str) -> Result<Arc<Program>, Problem> {
        let Attribute::Program(program) = self.attribute(key)? else {
            return Err(Problem::Wanted("a program".into()));
        };
        Ok(program)
    }

    /// The index of the variant of the op, and of the attribute that its name contains.
    pub(super) fn variant(&self, key: &str) -> Option<usize> {
        match key {
            "Op" => Some(self.kind as usize),
            _ => (key == in_name(self.kind)).then_some(self.choice),
        }
    }

    fn find(&self, key: &str) -> Option<&'p (&'t str, Attribute<'t>, Position)> {
        self.parsed?.attributes.iter().find(|(other, ..)| *other == key)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// The attribute that is given or implied.
    pub(super) fn attribute(&self, key: &'static str) -> Result<Attribute<'t>, Problem> {
        let Some(parsed) = self.parsed else { return Ok(Attribute::Number(Scalar::Int(0))) };
        self.last.set((key, false));
        self.read.borrow_mut().push(key);
        let given = self.find(key).map(|(_, value, _)| value.clone());
        given.or_else(|| implied(key, parsed.result.as_ref())).ok_or_else(|| {
            Problem::Op(if OF_RESULT.contains(&key) {
                format!("needs a result or the attribute `{key}`")
            } else {
                format!("`{}` needs the attribute `{key}`", parsed.name)
            })
        })
    }

    fn error(&self, problem: Problem, parsed: &ParsedOp<'_>) -> crate::Error {
        match problem {
            Problem::Op(problem) => parsed.place.error(problem),
            Problem::Wanted(wanted) => {
                let (key, is_entry) = self.last.get();
                let place = self.find(key).map_or(parsed.place, |(_, _, place)| *place);
                let entry = if is_entry { "each entry of " } else { "" };
                place.error(format!("{entry}`{key}` must be {wanted}"))
            }
        }
    }
}
