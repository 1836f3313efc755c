//! Operators, matmuls and comparisons.

use super::*;
use kiln_tensor::DType;

pub(super) fn cases() -> Vec<Case> {
    vec![
        panics("add: shapes that do not broadcast", || x() + Tensor::ones([4, 3], &DEVICE)),
        panics("sub: shapes that do not broadcast", || x().sub(Tensor::ones([2, 4], &DEVICE))),
        panics("div: shapes that do not broadcast", || x() / Tensor::ones([3, 2], &DEVICE)),
        panics("mul: a fraction times integers", || i() * 0.5),
        panics("pow: shapes that do not broadcast", || x().powf(Tensor::ones([5, 3], &DEVICE))),
        panics("max_pair: shapes that do not broadcast", || x().max_pair(Tensor::ones([2, 2], &DEVICE))),
        panics("atan2: shapes that do not broadcast", || x().atan2(Tensor::ones([3, 3], &DEVICE))),
        panics("clamp: a fraction as the bound of integers", || i().clamp(0.5, 2)),
        panics("matmul: inner sizes", || x().matmul(x())),
        panics("matmul: batches that do not broadcast", || {
            Tensor::<Flex, 3>::ones([2, 3, 4], &DEVICE).matmul(Tensor::ones([5, 4, 3], &DEVICE))
        }),
        panics("matmul: vectors", || v().matmul(v())),
        panics("matmul: dtypes that differ", || x().matmul(x().transpose().cast(DType::F64))),
        panics("dot: lengths", || v().dot(Tensor::ones([4], &DEVICE))),
        panics("equal: shapes that do not broadcast", || x().equal(Tensor::ones([2, 4], &DEVICE))),
        panics("bool_and: shapes that do not broadcast", || {
            b().bool_and(Tensor::full([3, 3], true, &DEVICE))
        }),
        panics("is_close: shapes that do not broadcast", || {
            x().is_close(Tensor::ones([3, 3], &DEVICE), None, None)
        }),
        panics("cast: a float tensor to integers", || x().cast(DType::I32)),
        panics("cast: an integer tensor to floats", || i().cast(DType::F32)),
    ]
}
