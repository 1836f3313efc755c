//! Creation and reading of tensors.

use super::*;
use kiln_backends::Device;
use kiln_tensor::{DType, TensorData, TensorType};

pub(super) fn cases() -> Vec<Case> {
    vec![
        fails("data: elements that do not fill the shape", || TensorData::new(vec![1.0f32; 3], [2, 2])),
        fails("data: bytes that do not fill the type", || {
            TensorData::from_bytes(&[0; 7], TensorType::new([2], DType::F32))
        }),
        fails("data: a byte that is no truth value", || {
            TensorData::from_bytes(&[0, 2], TensorType::new([2], DType::Bool))
        }),
        fails("data: a slice of another dtype", || TensorData::from([1i32]).as_slice::<f32>().map(|_| ())),
        fails("data: a vector of another dtype", || TensorData::from([1i32]).into_vec::<i64>()),
        fails("data: another number of elements", || TensorData::from([1i32, 2, 3]).reshape([2, 2])),
        panics("from_floats: another number of axes", || {
            Tensor::<Flex, 2>::from_floats([1.0, 2.0, 3.0], &DEVICE)
        }),
        panics("from_data: a dtype of another kind", || {
            Tensor::<Flex, 1>::from_data_dtype([1.0, 2.0], DType::I32, &DEVICE)
        }),
        panics("zeros: another number of axes", || Tensor::<Flex, 2>::zeros([2, 3, 4], &DEVICE)),
        panics("shape: too many axes", || Tensor::<Flex, 2>::zeros(&[1; 13][..], &DEVICE)),
        panics("full: a fraction for integers", || Tensor::<Flex, 1, Int>::full([2], 0.5, &DEVICE)),
        panics("arange: a step of 0", || Tensor::<Flex, 1, Int>::arange_step(0..5, 0, &DEVICE)),
        panics("cat: no tensors", || Tensor::<Flex, 2>::cat(vec![], 0)),
        panics("cat: shapes", || Tensor::cat(vec![x(), Tensor::ones([4, 3], &DEVICE)], 1)),
        panics("cat: an axis out of range", || Tensor::cat(vec![x(), x()], 2)),
        panics("stack: shapes", || Tensor::stack::<3>(vec![x(), Tensor::ones([4, 3], &DEVICE)], 0)),
        panics("stack: not one axis more", || Tensor::stack::<4>(vec![x(), x()], 0)),
        panics("into_scalar: several elements", || x().into_scalar::<f32>()),
        fails("try_into_scalar: no elements", || {
            Tensor::<Flex, 1>::ones([0], &DEVICE).try_into_scalar::<f32>()
        }),
        unknown_kind(),
        panics("device: no threads", || Device::cpu_with_threads(0)),
    ]
}

/// The kinds in the message depend on the features of the build.
fn unknown_kind() -> Case {
    let case = fails("device: an unknown kind", || Device::open("abacus", 0));
    Case { message: case.message.replace(&Device::kinds().join(", "), "KINDS"), ..case }
}
