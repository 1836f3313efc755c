//! Reductions and scans.

use super::*;

pub(super) fn cases() -> Vec<Case> {
    let empty = || Tensor::<Flex, 2>::ones([2, 0], &DEVICE);
    vec![
        panics("sum_dim: an axis out of range", || x().sum_dim(5)),
        panics("sum_dims: an axis named twice", || x().sum_dims([0, 0])),
        panics("mean_dim: an axis out of range", || x().mean_dim(2)),
        panics("prod_dim: an axis out of range", || x().prod_dim(2)),
        panics("max_dim: an axis out of range", || x().max_dim(3)),
        panics("argmax: no elements", || empty().argmax(1)),
        panics("argmin: an axis out of range", || x().argmin(2)),
        panics("cumsum: an axis out of range", || x().cumsum(2)),
        panics("cummax: an axis out of range", || x().cummax(2)),
        panics("var: an axis out of range", || x().var(2)),
        panics("all_dim: an axis out of range", || b().all_dim(2)),
    ]
}
