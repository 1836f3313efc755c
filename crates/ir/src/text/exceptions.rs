//! The differences of the text form from the serde form of ops.

use super::attribute::Attribute;
use crate::{OpKind, TensorType};
use alloc::string::String;
use alloc::vec::Vec;

/// The attribute that the names of a kind contain.
const IN_NAME: [(OpKind, &str); 14] = [
    (OpKind::Unary, "Unary"),
    (OpKind::Binary, "Binary"),
    (OpKind::Compare, "Comparison"),
    (OpKind::Random, "distribution"),
    (OpKind::Reduce, "reduction"),
    (OpKind::ArgReduce, "extremum"),
    (OpKind::Scan, "reduction"),
    (OpKind::Conv, "pass"),
    (OpKind::Pool, "kind"),
    (OpKind::PoolGrad, "kind"),
    (OpKind::Softmax, "log"),
    (OpKind::Norm, "kind"),
    (OpKind::Fft, "kind"),
    (OpKind::Collective, "kind"),
];

/// The kinds whose names contain an attribute.
pub(super) fn named_by_attribute() -> impl Iterator<Item = OpKind> {
    IN_NAME.iter().map(|(kind, _)| *kind)
}

/// The attribute that the names of this kind contain; empty if there is none.
pub(super) fn in_name(kind: OpKind) -> &'static str {
    IN_NAME.iter().find(|row| row.0 == kind).map_or("", |row| row.1)
}

/// One attribute for each field of a list of structs, each with the number that is repeated if it is omitted.
type Columns = &'static [(&'static str, Option<i64>)];

const SLICES: Columns = &[("start", None), ("len", None), ("step", Some(1))];
const PADS: Columns = &[("low", None), ("high", None), ("interior", Some(0))];

/// The attributes for a list of structs, by the field that holds it, or by its variant.
pub(super) fn columns(key: &str) -> Option<Columns> {
    match key {
        "Slice" | "slices" => Some(SLICES),
        "Pad" => Some(PADS),
        _ => None,
    }
}

/// The attributes that are omitted if they repeat the type of the first result.
pub(super) const OF_RESULT: [&str; 3] = ["type", "shape", "dtype"];

/// The value of an omitted attribute, for an op with a first result of that type.
pub(super) fn implied(key: &str, result: Option<&TensorType>) -> Option<Attribute<'static>> {
    match key {
        "type" => result.map(Attribute::from),
        "shape" => result.map(|ty| Attribute::from(&ty.shape)),
        "dtype" => result.map(|ty| Attribute::Word(ty.dtype.name())),
        "attributes" => Some(Attribute::Text(String::new())),
        "numbers" => Some(Attribute::List(Vec::new())),
        "pattern" => Some(Attribute::Word("loop")),
        _ => None,
    }
}
