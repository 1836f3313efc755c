//! Gradients.

use super::*;
use kiln_backends::{Device, Dyn};
use kiln_tensor::{AnyTensor, Autodiff, TensorData};

type A = Autodiff<Flex>;

pub(super) fn cases() -> Vec<Case> {
    let int = || AnyTensor::from_data(TensorData::from([1i32, 2]), &Device::cpu().autodiff());
    vec![
        panics("backward: nothing requires a gradient", || Tensor::<A, 1>::ones([1], &DEVICE).backward()),
        panics("backward: a device without autodiff", || {
            Tensor::<Dyn, 1>::ones([1], &Device::cpu()).backward()
        }),
        panics("require_grad: a device without autodiff", || {
            Tensor::<Dyn, 1>::ones([1], &Device::cpu()).require_grad()
        }),
        fails("require_grad: integers", || int().require_grad()),
        fails("backward from: a gradient of another shape", || {
            let y = Tensor::<A, 2>::ones([2, 3], &DEVICE).require_grad().exp();
            y.try_backward_from(Tensor::ones([3, 2], &DEVICE)).map(|_| ())
        }),
        fails("grad: a device without autodiff", || {
            let x = Tensor::<A, 1>::ones([1], &DEVICE).require_grad();
            x.clone().inner().into_any().try_grad(&x.backward())
        }),
        fails("grad: not tracked", || {
            let (x, y) = (Tensor::<A, 1>::ones([1], &DEVICE).require_grad(), Tensor::ones([1], &DEVICE));
            y.try_grad(&(x * &y).backward())
        }),
        fails("grad: the result of an op", || {
            let y = Tensor::<A, 1>::ones([1], &DEVICE).require_grad().exp();
            y.try_grad(&y.backward())
        }),
        fails("grad: not reached", || {
            let leaf = || Tensor::<A, 1>::ones([1], &DEVICE).require_grad();
            leaf().try_grad(&leaf().exp().backward())
        }),
        fails("from_inner: not below", || int().from_inner(Device::cpu().as_ref())),
    ]
}
