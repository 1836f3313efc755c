//! Indexing, masking and sorting.

use super::*;

pub(super) fn cases() -> Vec<Case> {
    vec![
        panics("select: an axis out of range", || x().select(2, indices([0]))),
        panics("select: an index out of range", || x().select(0, indices([0, 5])).into_data()),
        panics("select: a negative index out of range", || x().select(0, indices([-7])).into_data()),
        panics("take: an axis out of range", || x().take::<1, 2>(3, indices([0]))),
        panics("take: another number of axes", || x().take::<1, 3>(0, indices([0]))),
        panics("gather: an axis out of range", || x().gather(2, i())),
        panics("gather: lengths beside the axis", || x().gather(1, Tensor::ones([3, 3], &DEVICE))),
        panics("scatter: values of another shape", || x().scatter(1, i(), Tensor::ones([2, 2], &DEVICE))),
        panics("scatter: an index out of range", || x().scatter(1, i() * 8, x()).into_data()),
        panics("select_assign: values of another shape", || {
            x().select_assign(0, indices([0]), Tensor::ones([2, 3], &DEVICE))
        }),
        panics("mask_where: shapes", || x().mask_where(b(), Tensor::ones([4, 3], &DEVICE))),
        panics("mask_fill: shapes", || x().mask_fill(Tensor::full([3, 3], true, &DEVICE), 0)),
        panics("mask_fill: a fraction for integers", || i().mask_fill(b(), 0.5)),
        panics("sort: an axis out of range", || x().sort(2)),
        panics("argsort: an axis out of range", || x().argsort(2)),
        panics("topk: more than there are", || x().topk(4, 1)),
        panics("topk: an axis out of range", || x().topk(1, 2)),
    ]
}
