//! Gradient accumulation: the sum of the gradients of a value's uses.

use super::Places;
use crate::{Binary, Engine, Op, Operand, UpdateMode, Value, Var};
use smallvec::smallvec;

/// The maximum number of partial contributions that are padded to the whole value and added. A fusing layer runs so few
/// as one pass over memory.
const MAX_SPREAD: u32 = 8;

/// The accumulator of one value's gradient.
///
/// A use that reads a part of the value (`slice`, `take`, `gather`) contributes zeros elsewhere. From the ninth such
/// contribution on, each is added in place to the sum, at the cost of the part. `T` slices of one tensor then cost a
/// constant number of passes over it instead of `T`.
#[derive(Clone, Debug, Default)]
pub struct GradientSum {
    sum: Option<Value>,
    parts: u32,
}

impl GradientSum {
    /// Adds a contribution of the value's type. Overwrites operands without aliases.
    pub fn add(&mut self, engine: &dyn Engine, gradient: Value) {
        self.sum = Some(match self.sum.take() {
            Some(sum) => {
                let ty = *sum.ty();
                let operands = smallvec![sum.into(), gradient.into()];
                engine.execute(&Op::Binary(Binary::Add), operands, &[ty]).remove(0)
            }
            None => gradient,
        });
    }

    /// Returns whether the op reads only some positions of its first operand.
    pub fn is_part(op: &Op) -> bool {
        matches!(op, Op::Slice(_) | Op::Take { .. } | Op::Gather { .. })
    }

    /// Counts a contribution of an op that [reads a part](GradientSum::is_part) of the value. Returns `true` if the
    /// caller adds it with [`add_part`](GradientSum::add_part), `false` if the op's rule computes it.
    pub fn wants_part(&mut self) -> bool {
        self.parts = self.parts.saturating_add(1);
        self.sum.is_some() && self.parts > MAX_SPREAD
    }

    /// Adds the gradient of the result of `op`, which read a part of the value, to that part of the sum. `index` is the
    /// op's second operand, if it has one.
    ///
    /// # Panics
    /// When there is no sum, or the op reads no part.
    pub fn add_part(&mut self, engine: &dyn Engine, op: &Op, index: Option<Operand>, gradient: Value) {
        let sum = self.sum.take().unwrap_or_else(|| panic!("[{}] no sum to add a part to", op.name()));
        let index = index.map(|index| Var::new(engine, index));
        let places = Places::read_by(op, index.as_ref())
            .unwrap_or_else(|| panic!("[{}] does not read a part of its operand", op.name()));
        let gradient = Var::new(engine, gradient);
        self.sum = Some(places.write(Var::new(engine, sum), UpdateMode::Add, &gradient).into_value());
    }

    /// Returns the sum; `None` without contributions.
    pub fn into_value(self) -> Option<Value> {
        self.sum
    }

    /// Takes the sum; `None` without contributions.
    pub fn take(&mut self) -> Option<Value> {
        core::mem::take(self).sum
    }
}
