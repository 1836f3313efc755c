//! A cell of the op table.

use super::Op;

/// A property in a row of [`OPS`](super::OPS).
#[derive(Clone, Copy, Debug)]
pub enum Fact<T, F = fn(&Op) -> T> {
    /// The same for every op of the kind.
    Fixed(T),
    /// The attributes decide, or the operands: this function reads them.
    By(F),
}

impl<T: Copy> Fact<T> {
    /// Returns the property of an op of the kind.
    #[inline]
    pub fn of(&self, op: &Op) -> T {
        match self {
            Fact::Fixed(value) => *value,
            Fact::By(read) => read(op),
        }
    }
}

/// A cell: a constant, or in parentheses the function of the attributes.
macro_rules! fact {
    (($by:path)) => {
        $crate::Fact::By($by)
    };
    ($fixed:ident) => {
        $fixed
    };
    ($fixed:literal) => {
        $crate::Fact::Fixed($fixed)
    };
    ($stem:literal ($by:path)) => {
        $crate::Fact::By($by)
    };
}
pub(super) use fact;
