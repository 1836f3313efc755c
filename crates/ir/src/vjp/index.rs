//! Gradient rules of indexing ops.

use super::{Gradients, Rule, attains, index_dtype};
use crate::{Op, Operands, Scalar, SliceAxis, TensorType, UpdateMode, Var};
use smallvec::smallvec;

/// The positions in a tensor that an op reads or writes.
#[derive(Clone, Copy)]
pub(super) enum Places<'a, 'e> {
    /// The positions of [`Op::Take`] and [`Op::Put`].
    Put { axis: usize, index: &'a Var<'e> },
    /// The positions of [`Op::Gather`] and [`Op::Scatter`].
    Scatter { axis: usize, index: &'a Var<'e> },
    /// The positions of [`Op::Slice`] and [`Op::SliceUpdate`]; none occurs twice.
    Slices(&'a [SliceAxis]),
}

impl<'a, 'e> Places<'a, 'e> {
    /// The positions that an op reads of its first operand; `None` for an op that reads all or computes.
    pub(super) fn read_by(op: &'a Op, index: Option<&'a Var<'e>>) -> Option<Places<'a, 'e>> {
        if let Op::Slice(slices) = op {
            return Some(Places::Slices(slices));
        }
        let index = index?;
        if let Op::Take { axis } = op {
            return Some(Places::Put { axis: *axis, index });
        }
        let Op::Gather { axis } = op else { return None };
        Some(Places::Scatter { axis: *axis, index })
    }

    fn read(&self, from: &Var<'e>) -> Var<'e> {
        match self {
            Places::Put { axis, index } => from.take(*axis, index),
            Places::Scatter { axis, index } => from.gather(*axis, index),
            Places::Slices(slices) => from.slice(slices.to_vec()),
        }
    }

    /// Writes into the base in place if it has no other owner.
    pub(super) fn write(&self, base: Var<'e>, mode: UpdateMode, source: &Var<'e>) -> Var<'e> {
        let engine = base.engine();
        let mut operands: Operands = smallvec![base.into_operand()];
        let op = match self {
            Places::Put { axis, index } => {
                operands.push(index.operand().clone());
                Op::Put { axis: *axis, mode }
            }
            Places::Scatter { axis, index } => {
                operands.push(index.operand().clone());
                Op::Scatter { axis: *axis, mode }
            }
            Places::Slices(slices) => Op::SliceUpdate { slices: slices.to_vec(), mode },
        };
        operands.push(source.operand().clone());
        Var::emit(engine, &op, operands).remove(0)
    }

    /// A number for each element of the source, which increases with write order among elements with the same target.
    /// `None` if targets are unique.
    fn order(&self, source: &Var<'e>) -> Option<Var<'e>> {
        match self {
            Places::Slices(_) => None,
            Places::Scatter { axis, .. } => {
                let ty = source.ty().with_dtype(index_dtype(source.shape()[*axis]));
                Some(Var::iota(source.engine(), ty, *axis))
            }
            Places::Put { axis, index } => {
                let count = index.shape().num_elements();
                let ty = TensorType::new([count], index_dtype(count));
                let flat = Var::iota(source.engine(), ty, 0);
                let (start, end) = (*axis, *axis + index.rank());
                let here =
                    (0..source.rank()).map(|a| if (start..end).contains(&a) { source.shape()[a] } else { 1 });
                Some(flat.reshape(here.collect::<crate::Shape>()).broadcast(source.shape()))
            }
        }
    }
}

impl<'e> Rule<'_, 'e> {
    /// The rule of `(x, index) -> y`: adds the gradient at the positions that were read.
    pub(super) fn read(&self, places: Places<'_, 'e>) -> Gradients<'e> {
        self.linear(|g, x| places.write(Var::zeros(g.engine(), x.ty()), UpdateMode::Add, g))
    }

    /// The rule of `(base, .., source) -> y`.
    pub(super) fn write(&self, places: Places<'_, 'e>, mode: UpdateMode) -> Gradients<'e> {
        let last = self.inputs.len() - 1;
        let mut gradients = self.zero();
        if self.wanted[0] {
            gradients[0] = Some(self.base_gradient(places, mode, self.x(last)));
        }
        if self.wanted[last] {
            gradients[last] = Some(self.source_gradient(places, mode, self.x(last)));
        }
        gradients
    }

    fn base_gradient(&self, places: Places<'_, 'e>, mode: UpdateMode, source: &Var<'e>) -> Var<'e> {
        let (g, base) = (self.g(), self.x(0));
        match mode {
            UpdateMode::Add => g.clone(),
            UpdateMode::Set => places.write(g.clone(), mode, &Var::zeros(g.engine(), source.ty())),
            UpdateMode::Mul => places.write(g.clone(), mode, source),
            UpdateMode::Min | UpdateMode::Max => {
                attains(base, self.y()).select(&self.share(places, source), &g.scalar(0.0))
            }
        }
    }

    fn source_gradient(&self, places: Places<'_, 'e>, mode: UpdateMode, source: &Var<'e>) -> Var<'e> {
        let (g, zero) = (self.g(), self.g().scalar(0.0));
        match mode {
            UpdateMode::Add => places.read(g),
            UpdateMode::Set => match places.order(source) {
                None => places.read(g),
                Some(order) => {
                    let nowhere = Var::zeros(g.engine(), g.ty().with_dtype(order.dtype()));
                    let last = places.read(&places.write(nowhere, UpdateMode::Set, &order));
                    last.equal(&order).select(&places.read(g), &zero)
                }
            },
            UpdateMode::Mul => match places {
                Places::Slices(_) => places.read(&(g * self.x(0))),
                Places::Put { .. } | Places::Scatter { .. } => {
                    places.read(&(g * self.x(0))) * product_of_other_writes(places, g, source)
                }
            },
            UpdateMode::Min | UpdateMode::Max => {
                let hit = attains(source, &places.read(self.y()));
                hit.select(&places.read(&self.share(places, source)), &zero)
            }
        }
    }

    /// The gradient at each position of a minimum or maximum, divided by the number of elements that attain it.
    fn share(&self, places: Places<'_, 'e>, source: &Var<'e>) -> Var<'e> {
        let (base, y) = (self.x(0), self.y());
        let hits = |a: &Var<'e>, b: &Var<'e>| attains(a, b).cast(y.dtype());
        let count = places.write(hits(base, y), UpdateMode::Add, &hits(source, &places.read(y)));
        self.g() / count
    }
}

/// For each element of the source, the product of all others written to the same position.
///
/// Zeros are excluded from the product and counted: one zero makes the products of the other elements zero, two make
/// all zero. `zeros` carries their values, which are 0 but not constant, so that second derivatives are right.
fn product_of_other_writes<'e>(places: Places<'_, 'e>, like: &Var<'e>, source: &Var<'e>) -> Var<'e> {
    let (zero, one) = (source.scalar(0.0), source.scalar(1.0));
    let is_zero = source.equal(&zero);
    let safe = is_zero.select(&one, source);
    let filled = |x: f64| Var::full(like.engine(), like.ty(), x);
    let sum = |x: &Var<'e>| places.read(&places.write(filled(0.0), UpdateMode::Add, x));
    let product = places.read(&places.write(filled(1.0), UpdateMode::Mul, &safe));
    let count = sum(&is_zero.cast(source.dtype()));
    let zeros = sum(&is_zero.select(source, &zero));
    let numbered = |n: f64| count.equal(&count.scalar(Scalar::Float(n)));
    let of_zero =
        numbered(1.0).select(&product, &numbered(2.0).select(&(&product * (&zeros - source)), &zero));
    let quotient = &product / &safe;
    let of_other = numbered(0.0).select(&quotient, &numbered(1.0).select(&(&quotient * &zeros), &zero));
    is_zero.select(&of_zero, &of_other)
}
