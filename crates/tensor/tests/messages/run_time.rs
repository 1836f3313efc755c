//! Tensors whose rank and dtype are known at run time: errors that static types would catch.

use super::*;
use kiln_backends::{Device, Dyn};
use kiln_tensor::{AnyTensor, DType, Float, TensorData, TensorType};

fn any(data: impl Into<TensorData>) -> AnyTensor {
    AnyTensor::from_data(data, &Device::cpu())
}

fn matrix() -> AnyTensor {
    any([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])
}

pub(super) fn cases() -> Vec<Case> {
    let other = || AnyTensor::from_data([[1.0f32; 3]; 2], &Device::cpu_with_threads(2));
    vec![
        fails("add: truth values", || any([true]).add(any([false]))),
        fails("add: devices that differ", || matrix().add(other())),
        fails("mul: shapes that do not broadcast", || matrix().mul(any([1.0f32, 2.0]))),
        fails("matmul: truth values", || any([[true]]).matmul(any([[false]]))),
        fails("sum: truth values", || any([true]).sum()),
        fails("reshape: another number of elements", || matrix().reshape([4, 2])),
        fails("expand: a length other than 1", || matrix().expand([4, 3])),
        fails("permute: an axis named twice", || matrix().permute([0, 0])),
        fails("permute: too few axes", || matrix().permute([1])),
        fails("swap_dims: an axis out of range", || matrix().swap_dims(0, 2)),
        fails("slice: more ranges than axes", || matrix().slice([0..1, 0..1, 0..1])),
        fails("cat: dtypes that differ", || AnyTensor::cat(vec![any([1u64]), any([1i32])], 0)),
        fails("cat: ranks that differ", || AnyTensor::cat(vec![matrix(), any([1.0f32])], 0)),
        fails("take: an index that is no integer", || matrix().take(0, any([0.0f32]))),
        fails("mask_where: a mask that is no truth value", || matrix().mask_where(matrix(), matrix())),
        fails("full: a fraction for integers", || {
            AnyTensor::full(TensorType::new([2], DType::I32), 0.5, &Device::cpu())
        }),
        fails("typed: another rank", || matrix().try_into_tensor::<Dyn, 3, Float>()),
        fails("typed: another kind", || matrix().try_into_tensor::<Dyn, 2, Int>()),
        fails("typed: another backend", || other().try_into_tensor::<Flex, 2, Float>()),
    ]
}
