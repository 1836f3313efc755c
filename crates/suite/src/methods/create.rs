//! Tensor creation.

use super::{Method, ints, normal, one};
use kiln_ir::{DType, TensorType};
use kiln_tensor::AnyTensor;

const NOTHING: &str = "made from nothing";
const NUMBERS: &str = "the operand holds no floats";

pub(super) fn rows() -> Vec<Method> {
    vec![
        Method::new("empty", |x| {
            AnyTensor::empty(TensorType::new([2, 3], DType::F32), x[0].stack())
                .map(|made| vec![made.zeros_like().expect("zeros")])
        })
        .on(&[normal(&[1])])
        .no_gradient(NOTHING),
        Method::new("zeros_like", |x| one(x[0].zeros_like()))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[0])])
            .no_gradient(NOTHING),
        Method::new("ones_like", |x| one(x[0].ones_like()))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[0])])
            .no_gradient(NOTHING),
        Method::new("empty_like", |x| x[0].empty_like().map(|made| vec![made.ones_like().expect("ones")]))
            .on(&[normal(&[2, 3])])
            .no_gradient(NOTHING),
        Method::new("full_like", |x| one(x[0].full_like(1.5))).on(&[normal(&[2, 3])]).no_gradient(NOTHING),
        Method::new("arange", |x| one(AnyTensor::arange(-3..8, 2, DType::I32, x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient(NOTHING),
        Method::new("arange", |x| {
            let (start, end) = (5, 0);
            one(AnyTensor::arange(start..end, -2, DType::F32, x[0].stack()))
        })
        .variant("down")
        .intermediate_dtype(DType::I64)
        .on(&[normal(&[1])])
        .no_gradient(NOTHING),
        Method::new("arange_float", |x| {
            one(AnyTensor::arange_float(0.0..1.0, 0.1, DType::F32, x[0].stack()))
        })
        .on(&[normal(&[1])])
        .no_gradient(NOTHING),
        Method::new("linspace", |x| one(AnyTensor::linspace(-1.0, 2.0, 7, DType::F32, x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient(NOTHING),
        Method::new("logspace", |x| one(AnyTensor::logspace(-1.0, 2.0, 5, 10.0, DType::F32, x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient(NOTHING),
        Method::new("tril_indices", |x| one(AnyTensor::tril_indices(3, 4, -1, x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient(NOTHING),
        Method::new("triu_indices", |x| one(AnyTensor::triu_indices(3, 4, 1, x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient(NOTHING),
        Method::new("eye", |x| one(AnyTensor::eye(2, 3, DType::F32, x[0].stack())))
            .on(&[normal(&[1])])
            .no_gradient(NOTHING),
        Method::new("one_hot", |x| one(x[0].clone().one_hot(4)))
            .on(&[ints(0, 3, &[2, 3])])
            .on(&[ints(0, 3, &[])])
            .no_gradient(NUMBERS),
        Method::new("one_hot_fill", |x| one(x[0].clone().one_hot_fill(3, 5, -1, 0)))
            .on(&[ints(0, 2, &[2, 3])])
            .on(&[ints(0, 2, &[0])])
            .no_gradient(NUMBERS),
        Method::new("cat", |x| one(AnyTensor::cat(vec![x[0].clone(), x[1].clone()], -1)))
            .on(&[normal(&[2, 3]), normal(&[2, 1])])
            .on(&[normal(&[2, 0]), normal(&[2, 2])]),
        Method::new("stack_tensors", |x| one(AnyTensor::stack_tensors(vec![x[0].clone(), x[1].clone()], 1)))
            .on(&[normal(&[2, 3]), normal(&[2, 3])])
            .on(&[normal(&[0]), normal(&[0])]),
        Method::new("hstack", |x| one(AnyTensor::hstack(vec![x[0].clone(), x[1].clone()])))
            .on(&[normal(&[2, 3]), normal(&[2, 1])])
            .on(&[normal(&[2]), normal(&[3])]),
        Method::new("vstack", |x| one(AnyTensor::vstack(vec![x[0].clone(), x[1].clone()])))
            .on(&[normal(&[2, 3]), normal(&[1, 3])])
            .on(&[normal(&[2]), normal(&[2])]),
        Method::new("dstack", |x| one(AnyTensor::dstack(vec![x[0].clone(), x[1].clone()])))
            .on(&[normal(&[2, 3]), normal(&[2, 3])])
            .on(&[normal(&[2]), normal(&[2])]),
        Method::new("column_stack", |x| one(AnyTensor::column_stack(vec![x[0].clone(), x[1].clone()])))
            .on(&[normal(&[2, 3]), normal(&[2])])
            .on(&[normal(&[2]), normal(&[2])]),
        Method::new("block_diag", |x| {
            one(AnyTensor::block_diag(vec![x[0].clone(), x[1].clone(), x[2].clone()]))
        })
        .on(&[normal(&[2, 3]), normal(&[2]), normal(&[0, 1])]),
    ]
}
