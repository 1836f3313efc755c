//! Views and copies: reshape, permute, slice, repeat.

use super::{Method, ints, normal, one};
use kiln_tensor::{AnyTensor, PadMode, s};

const NOTHING: &str = "made from nothing";

pub(super) fn rows() -> Vec<Method> {
    vec![
        Method::new("reshape", |x| one(x[0].clone().reshape([3, 2]))).on(&[normal(&[2, 3])]),
        Method::new("reshape_lengths", |x| one(x[0].clone().reshape_lengths(&[0, -1, 1])))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[2, 3, 4])]),
        Method::new("flatten", |x| one(x[0].clone().flatten(0, -2)))
            .on(&[normal(&[2, 3, 4])])
            .on(&[normal(&[2, 0])]),
        Method::new("unflatten", |x| one(x[0].clone().unflatten(1, &[2, -1])))
            .on(&[normal(&[3, 4])])
            .on(&[normal(&[0, 6])]),
        Method::new("squeeze", |x| one(x[0].clone().squeeze())).on(&[normal(&[1, 3, 1])]).on(&[normal(&[])]),
        Method::new("squeeze_dim", |x| one(x[0].clone().squeeze_dim(-2))).on(&[normal(&[2, 1, 3])]),
        Method::new("squeeze_dims", |x| one(x[0].clone().squeeze_dims([0, -1]))).on(&[normal(&[1, 3, 1])]),
        Method::new("unsqueeze", |x| one(x[0].clone().unsqueeze(4)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[])]),
        Method::new("unsqueeze_dim", |x| one(x[0].clone().unsqueeze_dim(-1)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[])]),
        Method::new("unsqueeze_dims", |x| one(x[0].clone().unsqueeze_dims([0, -2]))).on(&[normal(&[2, 3])]),
        Method::new("expand", |x| one(x[0].clone().expand([4, 2, 3])))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[2, 1])]),
        Method::new("expand_lengths", |x| one(x[0].clone().expand_lengths(&[4, -1, 3])))
            .on(&[normal(&[2, 1])])
            .on(&[normal(&[0, 3])]),
        Method::new("broadcast_tensors", |x| AnyTensor::broadcast_tensors(vec![x[0].clone(), x[1].clone()]))
            .on(&[normal(&[2, 1]), normal(&[3])])
            .on(&[normal(&[]), normal(&[0, 2])]),
        Method::new("atleast_1d", |x| one(x[0].clone().atleast_1d())).on(&[normal(&[])]).on(&[normal(&[2])]),
        Method::new("atleast_2d", |x| one(x[0].clone().atleast_2d()))
            .on(&[normal(&[])])
            .on(&[normal(&[2])])
            .on(&[normal(&[2, 3])]),
        Method::new("atleast_3d", |x| one(x[0].clone().atleast_3d()))
            .on(&[normal(&[])])
            .on(&[normal(&[2])])
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[2, 3, 4])]),
        Method::new("permute", |x| one(x[0].clone().permute([-1, 0, 1])))
            .on(&[normal(&[2, 3, 4])])
            .on(&[normal(&[2, 0, 3])]),
        Method::new("swap_dims", |x| one(x[0].clone().swap_dims(0, -1))).on(&[normal(&[2, 3, 4])]),
        Method::new("transpose", |x| one(x[0].clone().transpose()))
            .on(&[normal(&[2, 3, 4])])
            .on(&[normal(&[0, 3])]),
        Method::new("movedim", |x| one(x[0].clone().movedim([0, 1], [-1, 0]))).on(&[normal(&[2, 3, 4])]),
        Method::new("flip", |x| one(x[0].clone().flip([0, -1])))
            .on(&[normal(&[2, 3, 4])])
            .on(&[normal(&[2, 0])]),
        Method::new("fliplr", |x| one(x[0].clone().fliplr())).on(&[normal(&[2, 3])]),
        Method::new("flipud", |x| one(x[0].clone().flipud())).on(&[normal(&[2, 3])]).on(&[normal(&[3])]),
        Method::new("rot90", |x| one(x[0].clone().rot90(1, [0, 1]))).variant("1").on(&[normal(&[2, 3])]),
        Method::new("rot90", |x| one(x[0].clone().rot90(2, [0, 1]))).variant("2").on(&[normal(&[2, 3])]),
        Method::new("rot90", |x| one(x[0].clone().rot90(3, [0, 1]))).variant("3").on(&[normal(&[2, 3])]),
        Method::new("rot90", |x| one(x[0].clone().rot90(-1, [0, 1]))).variant("-1").on(&[normal(&[2, 3])]),
        Method::new("roll", |x| one(x[0].clone().roll(&[1, -2], [0, 1])))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[0, 3])]),
        Method::new("roll_dim", |x| one(x[0].clone().roll_dim(-4, 1)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[2, 0])]),
        Method::new("slice", |x| one(x[0].clone().slice(s![-2.., 0..4;-2])))
            .on(&[normal(&[3, 4])])
            .on(&[normal(&[2, 5, 2])]),
        Method::new("slice_dim", |x| one(x[0].clone().slice_dim(-1, s![1..-1][0]))).on(&[normal(&[2, 4])]),
        Method::new("slice_assign", |x| one(x[0].clone().slice_assign(s![.., ..;2], x[1].clone())))
            .on(&[normal(&[2, 4]), normal(&[2, 2])])
            .on(&[normal(&[2, 3]), normal(&[1])]),
        Method::new("slice_fill", |x| one(x[0].clone().slice_fill(s![1.., ..2], 0.5))).on(&[normal(&[2, 3])]),
        Method::new("narrow", |x| one(x[0].clone().narrow(1, 1, 2)))
            .on(&[normal(&[2, 4])])
            .on(&[normal(&[0, 3])]),
        Method::new("select_dim", |x| one(x[0].clone().select_dim(0, -1)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[2, 0])]),
        Method::new("unfold", |x| one(x[0].clone().unfold(1, 3, 2)))
            .on(&[normal(&[2, 7])])
            .on(&[normal(&[0, 3])]),
        Method::new("split", |x| x[0].clone().split(2, 1)).on(&[normal(&[2, 5])]).on(&[normal(&[2, 0])]),
        Method::new("split_with_sizes", |x| x[0].clone().split_with_sizes(&[1, 0, 2], -1))
            .on(&[normal(&[2, 3])]),
        Method::new("chunk", |x| x[0].clone().chunk(2, 1)).on(&[normal(&[2, 5])]).on(&[normal(&[2, 1])]),
        Method::new("tensor_split", |x| x[0].clone().tensor_split(3, 1))
            .on(&[normal(&[2, 5])])
            .on(&[normal(&[2, 1])]),
        Method::new("tensor_split_at", |x| x[0].clone().tensor_split_at(&[1, -1, 9], 1))
            .on(&[normal(&[2, 5])]),
        Method::new("unbind", |x| x[0].clone().unbind(1)).on(&[normal(&[2, 3])]),
        Method::new("repeat", |x| one(x[0].clone().repeat(&[2, 3])))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[1, 0])]),
        Method::new("repeat_dim", |x| one(x[0].clone().repeat_dim(0, 3)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[1, 2])]),
        Method::new("tile", |x| one(x[0].clone().tile(&[2, 1, 2])))
            .on(&[normal(&[3])])
            .on(&[normal(&[2, 2])])
            .on(&[normal(&[1, 1, 1, 2])]),
        Method::new("repeat_interleave", |x| one(x[0].clone().repeat_interleave(2, 1)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[2, 0])]),
        Method::new("repeat_interleave_each", |x| one(x[0].clone().repeat_interleave_each(x[1].clone(), 0)))
            .on(&[normal(&[3, 2]), ints(0, 2, &[3])])
            .on(&[normal(&[0, 2]), ints(0, 2, &[0])]),
        Method::new("pad", |x| one(x[0].clone().pad(&[(1, 2), (0, 1)], 0.5)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[0, 3])])
            .on(&[normal(&[2, 2, 2])]),
        Method::new("pad_signed", |x| one(x[0].clone().pad_signed(&[(-1, 2), (1, -2)], 0.5)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[1, 2])]),
        Method::new("pad_signed", |x| one(x[0].clone().pad_signed(&[(-2, 2)], PadMode::Reflect)))
            .variant("reflect")
            .on(&[normal(&[2, 3])]),
        Method::new("pad_signed", |x| one(x[0].clone().pad_signed(&[(-1, 2)], PadMode::Circular)))
            .variant("circular")
            .on(&[normal(&[2, 4])]),
        Method::new("pad_signed", |x| one(x[0].clone().pad_signed(&[(2, -3)], PadMode::Edge)))
            .variant("edge")
            .on(&[normal(&[2, 4])]),
        Method::new("pad", |x| one(x[0].clone().pad(&[(2, 1)], PadMode::Reflect)))
            .variant("reflect")
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[3])]),
        Method::new("pad", |x| one(x[0].clone().pad(&[(2, 1), (0, 3)], PadMode::Edge)))
            .variant("edge")
            .on(&[normal(&[2, 3])]),
        Method::new("pad", |x| one(x[0].clone().pad(&[(2, 1)], PadMode::Circular)))
            .variant("circular")
            .on(&[normal(&[2, 3])]),
        Method::new("tril", |x| one(x[0].clone().tril(-1)))
            .on(&[normal(&[3, 4])])
            .on(&[normal(&[2, 2, 2])])
            .on(&[normal(&[0, 2])]),
        Method::new("triu", |x| one(x[0].clone().triu(1)))
            .on(&[normal(&[3, 4])])
            .on(&[normal(&[2, 2, 2])])
            .on(&[normal(&[2, 0])]),
        Method::new("tril_mask", |x| one(AnyTensor::tril_mask([2, 3, 4], 1, x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient(NOTHING),
        Method::new("triu_mask", |x| one(AnyTensor::triu_mask([2, 3, 4], 1, x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient(NOTHING),
        Method::new("diag_mask", |x| one(AnyTensor::diag_mask([2, 3, 4], 1, x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient(NOTHING),
        Method::new("diagonal", |x| one(x[0].clone().diagonal(1, 0, 1)))
            .on(&[normal(&[3, 4])])
            .on(&[normal(&[2, 3, 2])])
            .on(&[normal(&[0, 2])]),
        Method::new("diagonal", |x| one(x[0].clone().diagonal(-1, 2, 0)))
            .variant("below")
            .on(&[normal(&[3, 4, 2])]),
        Method::new("diag_embed", |x| one(x[0].clone().diag_embed(-1, 0, -1)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[3])])
            .on(&[normal(&[2, 0])]),
        Method::new("diag", |x| one(x[0].clone().diag(1))).on(&[normal(&[3])]).on(&[normal(&[3, 4])]),
    ]
}
