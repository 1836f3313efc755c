//! Tensors from arrays, vectors and scalars, on the default device.

use crate::{Backend, Element, Kind, Tensor, TensorData, default_device};
use alloc::vec::Vec;

/// Creates a tensor on the [default device](crate::default_device); see [`from_data`](Tensor::from_data).
///
/// ```
/// use kiln_backends::Cpu;
/// use kiln_tensor::{Int, Tensor};
///
/// let x = Tensor::<Cpu, 2>::from([[1., 2.], [3., 4.]]);
/// let i = Tensor::<Cpu, 1, Int>::from(vec![0, 1]);
/// assert_eq!(x.select(0, i).to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0]);
/// ```
///
/// # Panics
/// When the data does not have `D` axes.
impl<B: Backend, const D: usize, K: Kind> From<TensorData> for Tensor<B, D, K> {
    #[track_caller]
    fn from(data: TensorData) -> Self {
        Tensor::from_data(data, &default_device())
    }
}

macro_rules! from {
    ($(#[$doc:meta])* $rank:literal: [$($length:ident)*] $ty:ty) => {
        $(#[$doc])*
        impl<B: Backend, K: Kind, E: Element, $(const $length: usize),*> From<$ty> for Tensor<B, $rank, K> {
            fn from(data: $ty) -> Self {
                TensorData::from(data).into()
            }
        }
    };
}

from! {
    /// Creates a vector on the [default device](crate::default_device).
    1: [N] [E; N]
}
from! {
    /// Creates a matrix from rows, on the [default device](crate::default_device).
    2: [N M] [[E; M]; N]
}
from! {
    /// Creates a tensor from nested arrays, outermost axis first, on the [default device](crate::default_device).
    3: [N M L] [[[E; L]; M]; N]
}
from! {
    /// Creates a tensor from nested arrays, outermost axis first, on the [default device](crate::default_device).
    4: [N M L P] [[[[E; P]; L]; M]; N]
}
from! {
    /// Creates a vector on the [default device](crate::default_device).
    1: [] Vec<E>
}
from! {
    /// Creates a vector on the [default device](crate::default_device).
    1: [] &[E]
}

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        /// Creates a tensor of one element, of shape `[1]`, on the [default device](crate::default_device).
        impl<B: Backend, K: Kind> From<$ty> for Tensor<B, 1, K> {
            fn from(number: $ty) -> Self {
                [number].into()
            }
        }
    )*};
}

numbers!(f64, f32, half::f16, half::bf16, i64, i32, i16, i8, u64, u32, u16, u8, bool);
