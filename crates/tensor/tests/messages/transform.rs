//! Function transforms.

use super::*;
use kiln_tensor::transform::{grad, hessian, jvp, vmap};
use kiln_tensor::{Autodiff, Forward, Vmap};

type A = Autodiff<Flex>;

pub(super) fn cases() -> Vec<Case> {
    vec![
        panics("grad: more than one number", || grad(|x: Tensor<A, 2>| x.exp())(x())),
        panics("jvp: a direction of another shape", || {
            let direction = Tensor::ones([3, 2], &DEVICE);
            jvp(|x: Tensor<Forward<Flex>, 2>| x.exp(), x(), direction)
        }),
        panics("hessian: more than one number", || {
            let f = |x: Tensor<Autodiff<Forward<Flex>>, 1>| x.exp();
            let h: Tensor<Flex, 2> = hessian(f)(v());
            h
        }),
        panics("vmap: numbers of examples that differ", || {
            let f = |(a, b): (Tensor<Vmap<Flex>, 1>, Tensor<Vmap<Flex>, 1>)| a + b;
            let y: Tensor<Flex, 2> = vmap(f)((x(), Tensor::<Flex, 2>::ones([4, 3], &DEVICE)));
            y
        }),
    ]
}
