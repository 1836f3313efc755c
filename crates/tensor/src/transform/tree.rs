//! Pytrees: tensors in tuples, arrays, vectors and maps.

use crate::tensor::mismatch;
use crate::{AnyTensor, Backend, Error, Kind, Result, Tensor};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// A pytree: a tensor, or tuples of up to five, arrays, vectors and maps of pytrees, on one backend.
/// [Transformed](crate::transform) functions accept and return trees. Implement it for custom structures.
pub trait Tree<B: Backend>: Clone {
    /// The same structure on another backend.
    type On<B2: Backend>: Tree<B2>;

    /// Appends the tensors in order, and returns their structure.
    fn flatten(self, leaves: &mut Vec<AnyTensor>) -> Structure;

    /// Rebuilds the tree of a structure from the next tensors.
    ///
    /// # Errors
    /// When the structure is not of this type, there are too few tensors, or a tensor has another rank or kind than the
    /// type.
    fn unflatten(structure: &Structure, leaves: &mut dyn Iterator<Item = AnyTensor>) -> Result<Self>;
}

/// The structure of a [`Tree`]. Displays as `(tensor, {bias: tensor, weight: tensor})`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Structure {
    /// One tensor.
    Leaf,
    /// Several trees in order.
    Node(Vec<Structure>),
    /// Trees with names, in the order of the names.
    Map(Vec<(String, Structure)>),
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Structure::Leaf => f.write_str("tensor"),
            Structure::Node(parts) => {
                f.write_str("(")?;
                for (number, part) in parts.iter().enumerate() {
                    write!(f, "{}{part}", if number == 0 { "" } else { ", " })?;
                }
                f.write_str(")")
            }
            Structure::Map(parts) => {
                f.write_str("{")?;
                for (number, (name, part)) in parts.iter().enumerate() {
                    write!(f, "{}{name}: {part}", if number == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
        }
    }
}

impl Structure {
    /// Returns the number of tensors.
    pub(super) fn num_leaves(&self) -> usize {
        match self {
            Structure::Leaf => 1,
            Structure::Node(parts) => parts.iter().map(Structure::num_leaves).sum(),
            Structure::Map(parts) => parts.iter().map(|(_, part)| part.num_leaves()).sum(),
        }
    }

    /// Returns the children of a node, `count` of them or any number.
    fn parts(&self, count: Option<usize>) -> Result<&[Structure]> {
        match self {
            Structure::Node(parts) if count.is_none_or(|count| count == parts.len()) => Ok(parts),
            Structure::Leaf | Structure::Node(_) | Structure::Map(_) => {
                let wanted = match count {
                    Some(count) => format!("{count} parts"),
                    None => "a list".into(),
                };
                Err(Error::type_error("transform", format!("the tensors are {self}, not {wanted}"), &[])
                    .hint("pass arguments of the structure that the function expects"))
            }
        }
    }

    fn leaf(&self, leaves: &mut dyn Iterator<Item = AnyTensor>) -> Result<AnyTensor> {
        let error = || {
            Error::type_error("transform", format!("the tensors are {self}, not one tensor"), &[])
                .hint("pass arguments of the structure that the function expects")
        };
        match self {
            Structure::Leaf => leaves.next().ok_or_else(error),
            Structure::Node(_) | Structure::Map(_) => Err(error()),
        }
    }
}

impl<B: Backend, const D: usize, K: Kind> Tree<B> for Tensor<B, D, K> {
    type On<B2: Backend> = Tensor<B2, D, K>;

    fn flatten(self, leaves: &mut Vec<AnyTensor>) -> Structure {
        leaves.push(self.into_any());
        Structure::Leaf
    }

    fn unflatten(structure: &Structure, leaves: &mut dyn Iterator<Item = AnyTensor>) -> Result<Self> {
        let any = structure.leaf(leaves)?;
        if any.rank() != D || !K::holds(any.dtype()) {
            return Err(mismatch::<D, K>(any.ty()));
        }
        Ok(Tensor::from_any(any))
    }
}

impl<B: Backend> Tree<B> for AnyTensor {
    type On<B2: Backend> = AnyTensor;

    fn flatten(self, leaves: &mut Vec<AnyTensor>) -> Structure {
        leaves.push(self);
        Structure::Leaf
    }

    fn unflatten(structure: &Structure, leaves: &mut dyn Iterator<Item = AnyTensor>) -> Result<Self> {
        structure.leaf(leaves)
    }
}

impl<B: Backend, T: Tree<B>> Tree<B> for Vec<T> {
    type On<B2: Backend> = Vec<T::On<B2>>;

    fn flatten(self, leaves: &mut Vec<AnyTensor>) -> Structure {
        Structure::Node(self.into_iter().map(|part| part.flatten(leaves)).collect())
    }

    fn unflatten(structure: &Structure, leaves: &mut dyn Iterator<Item = AnyTensor>) -> Result<Self> {
        structure.parts(None)?.iter().map(|part| T::unflatten(part, leaves)).collect()
    }
}

/// The names are part of the structure: a gradient has the names of its argument.
impl<B: Backend, T: Tree<B>> Tree<B> for BTreeMap<String, T> {
    type On<B2: Backend> = BTreeMap<String, T::On<B2>>;

    fn flatten(self, leaves: &mut Vec<AnyTensor>) -> Structure {
        Structure::Map(self.into_iter().map(|(name, part)| (name, part.flatten(leaves))).collect())
    }

    fn unflatten(structure: &Structure, leaves: &mut dyn Iterator<Item = AnyTensor>) -> Result<Self> {
        let Structure::Map(parts) = structure else {
            let problem = format!("the tensors are {structure}, not a map by name");
            return Err(Error::type_error("transform", problem, &[])
                .hint("pass arguments of the structure that the function expects"));
        };
        parts.iter().map(|(name, part)| Ok((name.clone(), T::unflatten(part, leaves)?))).collect()
    }
}

impl<B: Backend, T: Tree<B>, const N: usize> Tree<B> for [T; N] {
    type On<B2: Backend> = [T::On<B2>; N];

    fn flatten(self, leaves: &mut Vec<AnyTensor>) -> Structure {
        Structure::Node(self.into_iter().map(|part| part.flatten(leaves)).collect())
    }

    fn unflatten(structure: &Structure, leaves: &mut dyn Iterator<Item = AnyTensor>) -> Result<Self> {
        let parts = structure.parts(Some(N))?;
        let parts: Vec<T> = parts.iter().map(|part| T::unflatten(part, leaves)).collect::<Result<_>>()?;
        parts.try_into().map_err(|_| Error::type_error("transform", format!("expected {N} parts"), &[]))
    }
}

macro_rules! tuples {
    ($($count:literal: $($part:ident $number:tt)*;)*) => {$(
        impl<B: Backend, $($part: Tree<B>),*> Tree<B> for ($($part,)*) {
            type On<B2: Backend> = ($($part::On<B2>,)*);

            fn flatten(self, _leaves: &mut Vec<AnyTensor>) -> Structure {
                Structure::Node(Vec::from([$(self.$number.flatten(_leaves)),*]))
            }

            fn unflatten(structure: &Structure, _leaves: &mut dyn Iterator<Item = AnyTensor>) -> Result<Self> {
                let _parts = structure.parts(Some($count))?;
                Ok(($($part::unflatten(&_parts[$number], _leaves)?,)*))
            }
        }
    )*};
}

tuples! {
    0: ;
    1: T0 0;
    2: T0 0 T1 1;
    3: T0 0 T1 1 T2 2;
    4: T0 0 T1 1 T2 2 T3 3;
    5: T0 0 T1 1 T2 2 T3 3 T4 4;
}
