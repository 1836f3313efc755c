//! Views.

use super::*;
use kiln_tensor::s;

pub(super) fn cases() -> Vec<Case> {
    vec![
        panics("reshape: another number of elements", || x().reshape([2, 2])),
        panics("reshape: a rest that does not divide", || x().reshape([4, -1])),
        panics("reshape: two lengths left open", || x().reshape([-1, -1])),
        panics("flatten: the wrong way round", || x().flatten::<1>(1, 0)),
        panics("flatten: an axis out of range", || x().flatten::<1>(0, 2)),
        panics("flatten: another number of axes", || x().flatten::<2>(0, 1)),
        panics("squeeze: axes that are too long", || x().squeeze::<1>()),
        panics("squeeze_dim: an axis that is too long", || x().squeeze_dim::<1>(1)),
        panics("squeeze_dim: an axis out of range", || x().squeeze_dim::<1>(3)),
        panics("unsqueeze: to fewer axes", || x().unsqueeze::<1>()),
        panics("unsqueeze_dim: an axis too far", || x().unsqueeze_dim::<3>(4)),
        panics("transpose: a vector", || v().transpose()),
        panics("swap_dims: an axis out of range", || x().swap_dims(0, 3)),
        panics("permute: an axis named twice", || x().permute([1, 1])),
        panics("permute: an axis out of range", || x().permute([0, 2])),
        panics("movedim: an axis out of range", || x().movedim(0, 2)),
        panics("flip: an axis out of range", || x().flip([2])),
        panics("flip: an axis named twice", || x().flip([1, 1])),
        panics("expand: a length other than 1", || x().expand([4, 3])),
        panics("expand: to fewer axes", || x().expand([6])),
        panics("slice: a start beyond the axis", || x().slice(s![.., 7..])),
        panics("slice: a step of 0", || x().slice(s![..; 0])),
        panics("slice: more ranges than axes", || x().slice(s![.., .., ..])),
        panics("slice_assign: values of another shape", || x().slice_assign(s![.., 1..], x())),
        panics("narrow: beyond the axis", || x().narrow(1, 2, 2)),
        panics("chunk: no parts", || x().chunk(0, 0)),
        panics("split: parts of length 0", || x().split(0, 0)),
        panics("split: an axis out of range", || x().split(1, 2)),
        panics("repeat_dim: an axis out of range", || x().repeat_dim(2, 2)),
        panics("pad: a fraction for integers", || i().pad([(1, 1), (0, 0)], 0.5)),
    ]
}
