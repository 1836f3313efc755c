//! Vector and matrix products, and einsum.

use super::*;
use kiln_tensor::{einsum, linalg};

pub(super) fn cases() -> Vec<Case> {
    vec![
        panics("matvec: inner sizes", || linalg::matvec(x(), Tensor::<Flex, 1>::ones([4], &DEVICE))),
        panics("vecdot: lengths", || linalg::vecdot(v(), Tensor::ones([4], &DEVICE), 0)),
        panics("tensordot: lengths that differ", || linalg::tensordot::<Flex, 2, 2, 2, _>(x(), x(), 1)),
        panics("trace: a vector", || linalg::trace::<Flex, 1, 1, _>(v())),
        panics("cross: not 3 elements", || {
            let x = Tensor::<Flex, 1>::ones([4], &DEVICE);
            x.clone().cross(x, 0)
        }),
        panics("vector_norm: an axis out of range", || linalg::vector_norm(x(), 2.0, 2)),
        panics("cosine_similarity: shapes", || {
            linalg::cosine_similarity(x(), Tensor::ones([2, 4], &DEVICE), 1, None)
        }),
        panics("einsum: an axis of two lengths", || einsum::<_, 2>("ij,jk->ik", [x(), x()])),
        panics("einsum: too few operands", || einsum::<_, 2>("ij,jk->ik", [x()])),
        panics("einsum: not as many axes", || einsum::<_, 2>("ijk->ik", [x()])),
        panics("einsum: an axis from nowhere", || einsum::<_, 2>("ij->ik", [x()])),
    ]
}
