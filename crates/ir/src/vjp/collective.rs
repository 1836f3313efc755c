//! Gradient rules of collectives.
//!
//! The rules differentiate the sum of all members' results. Every member takes part in the collectives of the gradient,
//! even if its own share is zero, so that no other member deadlocks.

use super::{Gradients, Rule, attains, emit};
use crate::{Collective, CollectiveKind, DType, Op, Reduction, Scalar, SliceAxis, TensorType, Var};
use alloc::vec::Vec;

impl<'e> Rule<'_, 'e> {
    pub(super) fn collective(&self, group: Collective) -> Gradients<'e> {
        match group.kind {
            CollectiveKind::AllReduce(reduction) => self.linear(|g, x| {
                let g = all_sum(group, g);
                self.reduced(group, reduction, &g, self.y(), x)
            }),
            CollectiveKind::ReduceScatter { reduction, axis } => self.linear(|g, x| {
                let gathered = |part: &Var<'e>| run(group, CollectiveKind::AllGather { axis }, part);
                match reduction {
                    Reduction::Sum | Reduction::Prod => self.reduced(group, reduction, &gathered(g), x, x),
                    Reduction::Min | Reduction::Max => {
                        self.reduced(group, reduction, &gathered(g), &gathered(self.y()), x)
                    }
                }
            }),
            CollectiveKind::AllGather { axis } => self.linear(|g, _| {
                run(group, CollectiveKind::ReduceScatter { reduction: Reduction::Sum, axis }, g)
            }),
            CollectiveKind::Broadcast { root } => self.linear(|g, _| {
                let total = all_sum(group, g);
                if group.rank == root { total } else { depending_zeros(&total) }
            }),
            CollectiveKind::Send { .. } | CollectiveKind::Recv { .. } => self.zero(),
        }
    }

    /// The gradient of a member's operand, given that of the reduced result and the result `y`.
    fn reduced(
        &self,
        group: Collective,
        reduction: Reduction,
        g: &Var<'e>,
        y: &Var<'e>,
        x: &Var<'e>,
    ) -> Var<'e> {
        match reduction {
            Reduction::Sum => g.clone(),
            Reduction::Prod => match product_of_others(group, x) {
                Some(others) => g * others,
                None => g.clone(),
            },
            Reduction::Min | Reduction::Max => {
                let hit = attains(x, y);
                let count = all_sum(group, &hit.cast(x.dtype()));
                hit.select(&(g / count), &g.scalar(0.0))
            }
        }
    }
}

fn run<'e>(group: Collective, kind: CollectiveKind, x: &Var<'e>) -> Var<'e> {
    emit(Op::Collective(Collective { kind, ..group }), &[x])
}

fn all_sum<'e>(group: Collective, x: &Var<'e>) -> Var<'e> {
    run(group, CollectiveKind::AllReduce(Reduction::Sum), x)
}

/// The product of the operands of all other members; `None` if there are none.
fn product_of_others<'e>(group: Collective, x: &Var<'e>) -> Option<Var<'e>> {
    let flat = x.reshape([1, x.shape().num_elements()]);
    let all = run(group, CollectiveKind::AllGather { axis: 0 }, &flat);
    let ranges = [0..group.rank, group.rank + 1..group.size];
    let parts: Vec<Var<'e>> = ranges
        .into_iter()
        .filter(|range| !range.is_empty())
        .map(|range| all.slice_axis(0, SliceAxis::range(range)).reduce(Reduction::Prod, &[0]))
        .collect();
    let product = parts.into_iter().reduce(|a, b| a * b)?;
    Some(product.reshape(x.shape()))
}

/// Zeros that depend on `x`, so that an engine with dead-code elimination runs `x` too.
fn depending_zeros<'e>(x: &Var<'e>) -> Var<'e> {
    let never = TensorType::new(x.shape(), DType::Bool);
    Var::full(x.engine(), never, Scalar::Bool(false)).select(x, &x.scalar(0.0))
}
