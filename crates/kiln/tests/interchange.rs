//! Conversion between tensors and arrays of other libraries, by the façade.

use kiln::dlpack::{DLManagedTensorVersioned, Managed};
use kiln::ndarray::{Ix2, array};
use kiln::prelude::*;
use kiln::store::numpy;

#[test]
fn an_ndarray_is_a_tensor() {
    let array = array![[1.0f32, 2.0], [3.0, 4.0]];
    let x = Tensor::<Flex, 2>::from_data(&array, &Default::default());
    let doubled = (x * 2).into_data().into_ndarray::<f32>().unwrap().into_dimensionality::<Ix2>().unwrap();
    assert_eq!(doubled, &array * 2.0);
    let indices = Tensor::<Flex, 1, Int>::from_data(array![1i64, 2], &Default::default());
    assert_eq!(indices.into_data().to_vec::<i64>(), [1, 2]);
    let x: Tensor<Flex, 2> = Tensor::from_data(array.t(), &Default::default());
    assert_eq!(x.into_data(), TensorData::from([[1.0f32, 3.0], [2.0, 4.0]]));
}

#[test]
fn numpys_files_and_shared_tensors() {
    let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &Default::default());
    let read = numpy::from_bytes(&numpy::to_bytes(&x.to_data())).unwrap();
    assert_eq!(read, x.to_data());
    let shared = Managed::<DLManagedTensorVersioned>::from_tensor(x.clone().into_any()).unwrap();
    let back = shared.to_tensor(&Device::cpu()).unwrap();
    assert_eq!(back.into_data().unwrap(), x.into_data());
}
