//! Sorting and the greatest elements.

use super::ok;
use crate::{Backend, Int, Numeric, Tensor};
use kiln_ir::Op;

impl<B: Backend, const D: usize, K: Numeric> Tensor<B, D, K> {
    /// Elements in ascending order along an axis. NaN comes last.
    #[track_caller]
    pub fn sort(self, axis: usize) -> Self {
        self.sort_with_indices(axis).0
    }

    /// Elements in descending order along an axis. NaN comes first.
    #[track_caller]
    pub fn sort_descending(self, axis: usize) -> Self {
        self.sort_descending_with_indices(axis).0
    }

    /// Elements in ascending order along an axis, and where each was. Equal elements keep their order.
    #[track_caller]
    pub fn sort_with_indices(self, axis: usize) -> (Self, Tensor<B, D, Int>) {
        let index = self.as_any().stack().int_dtype();
        self.ordered(&Op::Sort { axis, descending: false, index })
    }

    /// Elements in descending order along an axis, and where each was. Equal elements keep their order.
    #[track_caller]
    pub fn sort_descending_with_indices(self, axis: usize) -> (Self, Tensor<B, D, Int>) {
        let index = self.as_any().stack().int_dtype();
        self.ordered(&Op::Sort { axis, descending: true, index })
    }

    /// The indices that sort an axis in ascending order.
    #[track_caller]
    pub fn argsort(self, axis: usize) -> Tensor<B, D, Int> {
        self.sort_with_indices(axis).1
    }

    /// The indices that sort an axis in descending order.
    #[track_caller]
    pub fn argsort_descending(self, axis: usize) -> Tensor<B, D, Int> {
        self.sort_descending_with_indices(axis).1
    }

    /// The `k` greatest elements along an axis, in descending order.
    #[track_caller]
    pub fn topk(self, k: usize, axis: usize) -> Self {
        self.topk_with_indices(k, axis).0
    }

    /// The `k` greatest elements along an axis, in descending order, and where each was.
    #[track_caller]
    pub fn topk_with_indices(self, k: usize, axis: usize) -> (Self, Tensor<B, D, Int>) {
        let index = self.as_any().stack().int_dtype();
        self.ordered(&Op::TopK { axis, k, largest: true, index })
    }

    #[track_caller]
    fn ordered(self, op: &Op) -> (Self, Tensor<B, D, Int>) {
        let mut results = ok(self.into_any().apply_many(op, [])).into_iter();
        match (results.next(), results.next()) {
            (Some(values), Some(index)) => (Tensor::from_any(values), Tensor::from_any(index)),
            _ => unreachable!("an order has two results"),
        }
    }
}
