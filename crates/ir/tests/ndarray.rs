//! Exchange with the `ndarray` crate.

use half::{bf16, f16};
use kiln_ir::ndarray::{Array, ArrayD, Axis, Ix3, IxDyn, arr0, array, s};
use kiln_ir::{DType, Element, TensorData};

#[test]
fn standard_layout_arrays_are_moved() {
    let array = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let address = array.as_ptr();
    let data = TensorData::from(array);
    assert_eq!(data.as_slice::<f32>().unwrap().as_ptr(), address);
    let back = data.into_ndarray::<f32>().unwrap();
    assert_eq!(back.as_ptr(), address);
    assert_eq!(back.shape(), [2, 3]);
}

#[test]
fn other_layouts_are_copied_in_logical_order() {
    let array = Array::from_shape_fn((2, 3, 4), |(i, j, k)| (100 * i + 10 * j + k) as i32);
    let expected = |array: ArrayD<i32>| {
        let shape = array.shape().to_vec();
        TensorData::new(array.iter().copied().collect::<Vec<i32>>(), &*shape).unwrap()
    };
    let flipped = array.slice(s![.., ..;-1, 1..;2]);
    assert_eq!(TensorData::from(flipped), expected(flipped.to_owned().into_dyn()));
    let transposed = array.clone().reversed_axes();
    assert_eq!(TensorData::from(&transposed), expected(transposed.clone().into_dyn()));
    assert_eq!(TensorData::from(transposed.clone()), expected(transposed.into_dyn()));
    let mut cut = array.clone();
    cut.slice_collapse(s![1.., 1..2, 1..3]);
    assert_eq!(TensorData::from(cut.clone()), expected(cut.into_dyn()));
    let mut inverted = array.clone();
    inverted.invert_axis(Axis(0));
    assert_eq!(TensorData::from(inverted.clone()), expected(inverted.into_dyn()));
    let mut array = array;
    let last = expected(array.index_axis(Axis(0), 1).to_owned().into_dyn());
    assert_eq!(TensorData::from(array.index_axis_mut(Axis(0), 1)), last);
    let wide = array![[7u8]].broadcast((2, 2)).unwrap().to_owned();
    assert_eq!(TensorData::from(wide), TensorData::from([[7u8, 7], [7, 7]]));
}

#[test]
fn every_dtype_and_rank() {
    fn round<E: Element>(elements: [E; 6]) {
        let data = TensorData::new(elements.to_vec(), [1, 3, 2]).unwrap();
        let array = data.to_ndarray::<E>().unwrap();
        assert_eq!(array.clone().into_dimensionality::<Ix3>().unwrap()[[0, 2, 1]], elements[5]);
        assert_eq!(TensorData::from(array), data);
    }
    round([1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0]);
    round([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    round([1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(f16::from_f32));
    round([1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(bf16::from_f32));
    round([1i64, 2, 3, 4, 5, 6]);
    round([1i32, 2, 3, 4, 5, 6]);
    round([1i16, 2, 3, 4, 5, 6]);
    round([1i8, 2, 3, 4, 5, 6]);
    round([1u64, 2, 3, 4, 5, 6]);
    round([1u32, 2, 3, 4, 5, 6]);
    round([1u16, 2, 3, 4, 5, 6]);
    round([1u8, 2, 3, 4, 5, 6]);
    round([true, false, true, true, false, true]);
    assert_eq!(TensorData::from(arr0(2.5f32)), TensorData::scalar(2.5f32));
    assert_eq!(TensorData::scalar(2.5f32).to_ndarray::<f32>().unwrap().ndim(), 0);
    let empty = TensorData::from(Array::<f32, _>::zeros((0, 3)));
    assert_eq!((empty.dtype(), &empty.shape()[..]), (DType::F32, &[0, 3][..]));
    assert_eq!(empty.into_ndarray::<f32>().unwrap().shape(), [0, 3]);
}

#[test]
fn another_dtype_is_an_error() {
    let data = TensorData::from([1i32]);
    let error = data.to_ndarray::<f32>().unwrap_err().to_string();
    assert!(error.starts_with("[data] contains i32[1], not f32\n  hint: convert it first"), "{error}");
    assert_eq!(data.into_ndarray::<i64>().unwrap_err().to_string(), error.replace("f32", "i64"));
}

#[test]
#[should_panic(expected = "13 axes are more than the 12")]
fn too_many_axes_panic() {
    let _ = TensorData::from(ArrayD::<f32>::zeros(IxDyn(&[1; 13])));
}
