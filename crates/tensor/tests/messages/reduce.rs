//! Reductions and scans.

use super::*;

pub(super) fn cases() -> Vec<Case> {
    let empty = || Tensor::<Flex, 2>::ones([2, 0], &DEVICE);
    vec![
        panics("sum_dim: an axis that is not there", || x().sum_dim(5)),
        panics("sum_dims: an axis named twice", || x().sum_dims([0, 0])),
        panics("mean_dim: an axis that is not there", || x().mean_dim(2)),
        panics("prod_dim: an axis that is not there", || x().prod_dim(2)),
        panics("max_dim: an axis that is not there", || x().max_dim(3)),
        panics("argmax: no elements", || empty().argmax(1)),
        panics("argmin: an axis that is not there", || x().argmin(2)),
        panics("cumsum: an axis that is not there", || x().cumsum(2)),
        panics("cummax: an axis that is not there", || x().cummax(2)),
        panics("var: an axis that is not there", || x().var(2)),
        panics("all_dim: an axis that is not there", || b().all_dim(2)),
    ]
}
