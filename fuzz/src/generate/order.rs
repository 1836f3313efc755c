//! Generates reductions, scans and sorting.

use super::Generator;
use kiln_ir::{Axes, DType, Extremum, Op, Reduction};

impl Generator<'_> {
    fn reducible(&mut self, reduction: Reduction, least_rank: usize) -> usize {
        match reduction {
            Reduction::Sum | Reduction::Prod => self.tensor(least_rank, 5, |dtype| !dtype.is_bool()),
            Reduction::Min | Reduction::Max => self.tensor(least_rank, 5, |_| true),
        }
    }

    pub(super) fn reduce(&mut self) -> Option<()> {
        let reduction = self.random.pick(Reduction::ALL);
        let x = self.reducible(reduction, 0);
        let axes: Vec<usize> = (0..self.ty(x).rank()).filter(|_| self.random.chance(50)).collect();
        self.emit_on(Op::Reduce { reduction, axes: Axes::new(&axes) }, &[x]).map(drop)
    }

    pub(super) fn arg_reduce(&mut self) -> Option<()> {
        let extremum = self.random.pick(Extremum::ALL);
        let x = self.tensor(1, 5, |_| true);
        let axis = self.random.below(self.ty(x).rank());
        let index = self.index_dtype(self.ty(x).shape[axis]);
        self.emit_on(Op::ArgReduce { extremum, axis, index }, &[x]).map(drop)
    }

    /// An integer dtype that represents all indices below a length.
    pub(super) fn index_dtype(&mut self, length: usize) -> DType {
        let greatest = |dtype: DType| 1u128 << (8 * dtype.size() - usize::from(dtype.is_signed_int()));
        self.dtype(|dtype| dtype.is_int() && length as u128 + 1 < greatest(dtype))
    }

    pub(super) fn scan(&mut self) -> Option<()> {
        let reduction = self.random.pick(Reduction::ALL);
        let x = self.reducible(reduction, 1);
        let axis = self.random.below(self.ty(x).rank());
        let (reverse, exclusive) = (self.random.chance(50), self.random.chance(50));
        self.emit_on(Op::Scan { reduction, axis, reverse, exclusive }, &[x]).map(drop)
    }

    pub(super) fn sort(&mut self) -> Option<()> {
        let x = self.tensor(1, 5, |_| true);
        let axis = self.random.below(self.ty(x).rank());
        let index = self.index_dtype(self.ty(x).shape[axis]);
        let descending = self.random.chance(50);
        self.emit_on(Op::Sort { axis, descending, index }, &[x]).map(drop)
    }

    pub(super) fn topk(&mut self) -> Option<()> {
        let x = self.tensor(1, 5, |_| true);
        let axis = self.random.below(self.ty(x).rank());
        let length = self.ty(x).shape[axis];
        let (k, largest) = (self.random.between(0, length), self.random.chance(50));
        let index = self.index_dtype(length);
        self.emit_on(Op::TopK { axis, k, largest, index }, &[x]).map(drop)
    }
}
