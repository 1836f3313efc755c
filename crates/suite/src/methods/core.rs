//! Core methods, on which other methods are built: one function per group of ops.

use super::{Method, bools, distinct, ints, normal, one, positive};
use crate::case::Fill;
use kiln_ir::{
    Binary, Comparison, DType, Extremum, PadAxis, Reduction, SliceAxis, TensorType, Unary, UpdateMode,
};
use kiln_tensor::{AnyTensor, Distribution};

const NUMBERS: &str = "the result holds no floats";

pub(super) fn rows() -> Vec<Method> {
    vec![
        Method::new("unary", |x| one(x[0].clone().unary(Unary::Tanh))).elementwise(Fill::Normal),
        Method::new("binary", |x| one(x[0].clone().binary(Binary::Atan2, x[1].clone()))).pairwise(Fill::Away),
        Method::new("binary_with", |x| one(x[0].clone().binary_with(Binary::Mul, &x[1])))
            .pairwise(Fill::Normal),
        Method::new("binary_scalar", |x| one(x[0].clone().binary_scalar(Binary::Pow, 3)))
            .elementwise(Fill::Positive),
        Method::new("scalar_binary", |x| one(x[0].clone().scalar_binary(2.0, Binary::Div)))
            .elementwise(Fill::Away),
        Method::new("compare", |x| one(x[0].clone().compare(Comparison::Le, x[1].clone())))
            .pairwise(Fill::Among(&[-1.0, 0.0, 1.0, f64::NAN]))
            .no_gradient(NUMBERS),
        Method::new("compare_scalar", |x| one(x[0].clone().compare_scalar(Comparison::Lt, 0.5)))
            .elementwise(Fill::Normal)
            .no_gradient(NUMBERS),
        Method::new("scalar_compare", |x| one(x[0].clone().scalar_compare(0.5, Comparison::Lt)))
            .elementwise(Fill::Normal)
            .no_gradient(NUMBERS),
        Method::new("if_else", |x| one(x[0].clone().if_else(x[1].clone(), x[2].clone())))
            .on(&[bools(&[2, 3]), normal(&[2, 3]), normal(&[2, 3])])
            .on(&[bools(&[3]), normal(&[2, 1]), normal(&[1])]),
        Method::new("if_else_number", |x| one(x[0].clone().if_else_number(1.5, x[1].clone())))
            .on(&[bools(&[2, 3]), normal(&[2, 3])])
            .on(&[bools(&[3]), normal(&[2, 1])]),
        Method::new("cast", |x| one(x[0].clone().cast(DType::F64))).elementwise(Fill::Normal),
        Method::new("full", |x| one(AnyTensor::full(TensorType::new([2, 3], DType::F32), 1.5, x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient("made from nothing"),
        Method::new("zeros", |x| one(AnyTensor::zeros(TensorType::new([2, 3], DType::Bool), x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient("made from nothing"),
        Method::new("ones", |x| one(AnyTensor::ones(TensorType::new([2, 3], DType::I32), x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient("made from nothing"),
        Method::new("iota", |x| one(AnyTensor::iota(TensorType::new([2, 3], DType::I32), 1, x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient("made from nothing"),
        Method::new("random", |x| {
            let ty = TensorType::new([2, 3], DType::F32);
            one(AnyTensor::random(ty, Distribution::Normal(1.0, 2.0), x[0].stack()))
        })
        .on(&[normal(&[1])])
        .no_gradient("made from nothing"),
        Method::new("slice_axes", |x| {
            one(x[0].clone().slice_axes(vec![SliceAxis::all(2), SliceAxis { start: 3, len: 2, step: -2 }]))
        })
        .on(&[normal(&[2, 4])]),
        Method::new("slice_axis", |x| {
            one(x[0].clone().slice_axis(1, SliceAxis { start: 1, len: 2, step: 1 }))
        })
        .on(&[normal(&[2, 4])])
        .on(&[normal(&[0, 4])]),
        Method::new("pad_axes", |x| {
            let pads = vec![PadAxis::new(1, 0), PadAxis { low: 0, high: 2, interior: 1 }];
            one(x[0].clone().pad_axes(pads, 0.5))
        })
        .on(&[normal(&[2, 3])])
        .on(&[normal(&[0, 3])]),
        Method::new("reduce", |x| one(x[0].clone().reduce(Reduction::Max, &[1])))
            .on(&[distinct(&[2, 3])])
            .on(&[distinct(&[0, 3])])
            .once("a maximum is piecewise linear"),
        Method::new("reduce_all", |x| one(x[0].clone().reduce_all(Reduction::Prod)))
            .on(&[positive(&[2, 3])])
            .on(&[positive(&[])]),
        Method::new("mean_over", |x| one(x[0].clone().mean_over(&[0])))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[2, 0])]),
        Method::new("arg_reduce", |x| one(x[0].clone().arg_reduce(Extremum::Min, 1)))
            .on(&[normal(&[2, 3])])
            .no_gradient(NUMBERS),
        Method::new("scan", |x| one(x[0].clone().scan(Reduction::Prod, 1)))
            .on(&[positive(&[2, 3])])
            .on(&[positive(&[2, 0])]),
        Method::new("put", |x| one(x[0].clone().put(0, x[1].clone(), x[2].clone(), UpdateMode::Mul))).on(&[
            positive(&[4, 3]),
            ints(0, 3, &[2]),
            positive(&[2, 3]),
        ]),
        Method::new("scatter_mode", |x| {
            one(x[0].clone().scatter_mode(1, x[1].clone(), x[2].clone(), UpdateMode::Add))
        })
        .on(&[normal(&[2, 3]), ints(0, 2, &[2, 4]), normal(&[2, 4])]),
    ]
}
