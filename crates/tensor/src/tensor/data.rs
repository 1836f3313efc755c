//! Bringing elements to the host. All of this waits for the device.

use super::ok;
use crate::{AnyTensor, Backend, DType, Element, Kind, Result, Tensor, TensorData};
use alloc::vec::Vec;

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// The elements.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.into_data(), [1.0f32, 2.0, 3.0].into());
    /// ```
    ///
    /// # Panics
    /// With the error that the computation met: an index out of range, a lost device.
    #[track_caller]
    pub fn into_data(self) -> TensorData {
        ok(self.try_into_data())
    }

    /// The elements; the tensor stays.
    ///
    /// # Panics
    /// With the error that the computation met: an index out of range, a lost device.
    #[track_caller]
    pub fn to_data(&self) -> TensorData {
        self.clone().into_data()
    }

    /// The elements.
    ///
    /// # Errors
    /// The error that the computation met: an index out of range, a lost device.
    pub fn try_into_data(self) -> Result<TensorData> {
        self.into_any().into_data()
    }

    /// The elements; the tensor stays.
    ///
    /// # Errors
    /// The error that the computation met: an index out of range, a lost device.
    pub fn try_to_data(&self) -> Result<TensorData> {
        self.as_any().to_data()
    }

    /// The elements in row-major order as `E`, converted as [`TensorData::convert`] does; the tensor stays.
    ///
    /// ```
    /// use kiln_backends::Cpu;
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Cpu, 2>::from([[1.0, 2.0], [3.0, 4.0]]);
    /// assert_eq!(x.to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// With the error that the computation met: an index out of range, a lost device.
    #[doc(alias = "tolist")]
    #[doc(alias = "numpy")]
    #[track_caller]
    pub fn to_vec<E: Element>(&self) -> Vec<E> {
        ok(self.try_to_vec())
    }

    /// As [`to_vec`](Tensor::to_vec), with an error instead of a panic.
    ///
    /// # Errors
    /// The error that the computation met: an index out of range, a lost device.
    pub fn try_to_vec<E: Element>(&self) -> Result<Vec<E>> {
        self.as_any().to_vec()
    }

    /// The only element as `E`; the tensor stays.
    ///
    /// ```
    /// use kiln_backends::Cpu;
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Cpu, 1>::from([1.0, 2.0, 3.0]);
    /// assert_eq!(x.sum().item::<f32>(), 6.0);
    /// ```
    ///
    /// # Panics
    /// When there is not exactly one element, or with the error that the computation met.
    #[track_caller]
    pub fn item<E: Element>(&self) -> E {
        ok(self.try_item())
    }

    /// As [`item`](Tensor::item), with an error instead of a panic.
    ///
    /// # Errors
    /// When there is not exactly one element, or the error that the computation met.
    pub fn try_item<E: Element>(&self) -> Result<E> {
        self.as_any().item()
    }

    /// The elements, without blocking the thread.
    ///
    /// # Errors
    /// The error that the computation met: an index out of range, a lost device.
    pub async fn into_data_async(self) -> Result<TensorData> {
        self.into_any().into_data_async().await
    }

    /// The elements, without blocking the thread; the tensor stays.
    ///
    /// # Errors
    /// The error that the computation met: an index out of range, a lost device.
    pub async fn to_data_async(&self) -> Result<TensorData> {
        self.as_any().to_data_async().await
    }

    /// The elements in another dtype, converted as [`TensorData::convert`] does.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{DType, Tensor};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.into_data_dtype(DType::I64), [1i64, 2, 3].into());
    /// ```
    ///
    /// # Panics
    /// With the error that the computation met: an index out of range, a lost device.
    #[track_caller]
    pub fn into_data_dtype(self, dtype: DType) -> TensorData {
        ok(self.try_into_data_dtype(dtype))
    }

    /// The elements in another dtype; the tensor stays.
    ///
    /// # Panics
    /// With the error that the computation met: an index out of range, a lost device.
    #[track_caller]
    pub fn to_data_dtype(&self, dtype: DType) -> TensorData {
        self.clone().into_data_dtype(dtype)
    }

    /// The elements in another dtype, converted as [`TensorData::convert`] does.
    ///
    /// # Errors
    /// The error that the computation met: an index out of range, a lost device.
    pub fn try_into_data_dtype(self, dtype: DType) -> Result<TensorData> {
        self.into_any().into_data_dtype(dtype)
    }

    /// The elements in another dtype; the tensor stays.
    ///
    /// # Errors
    /// The error that the computation met: an index out of range, a lost device.
    pub fn try_to_data_dtype(&self, dtype: DType) -> Result<TensorData> {
        self.clone().try_into_data_dtype(dtype)
    }

    /// The elements as `E`, converted as [`TensorData::convert`] does.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.into_data_as::<f64>(), [1.0f64, 2.0, 3.0].into());
    /// ```
    ///
    /// # Panics
    /// With the error that the computation met: an index out of range, a lost device.
    #[track_caller]
    pub fn into_data_as<E: Element>(self) -> TensorData {
        self.into_data_dtype(E::DTYPE)
    }

    /// The elements as `E`; the tensor stays.
    ///
    /// # Panics
    /// With the error that the computation met: an index out of range, a lost device.
    #[track_caller]
    pub fn to_data_as<E: Element>(&self) -> TensorData {
        self.clone().into_data_as::<E>()
    }

    /// The elements as `E`, converted as [`TensorData::convert`] does.
    ///
    /// # Errors
    /// The error that the computation met: an index out of range, a lost device.
    pub fn try_into_data_as<E: Element>(self) -> Result<TensorData> {
        self.try_into_data_dtype(E::DTYPE)
    }

    /// The elements as `E`; the tensor stays.
    ///
    /// # Errors
    /// The error that the computation met: an index out of range, a lost device.
    pub fn try_to_data_as<E: Element>(&self) -> Result<TensorData> {
        self.clone().try_into_data_as::<E>()
    }

    /// The elements in row-major order as `E`, converted as [`TensorData::convert`] does.
    ///
    /// # Errors
    /// The error that the computation met: an index out of range, a lost device.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// assert_eq!(x.try_into_vec_as::<i32>()?, [1, 2, 3]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    pub fn try_into_vec_as<E: Element>(self) -> Result<Vec<E>> {
        self.into_any().into_vec_as()
    }

    /// The elements in row-major order as `E`; the tensor stays.
    ///
    /// # Errors
    /// The error that the computation met: an index out of range, a lost device.
    pub fn try_to_vec_as<E: Element>(&self) -> Result<Vec<E>> {
        self.clone().try_into_vec_as()
    }

    /// The only element, converted to `E`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let sum: f32 = x.sum().into_scalar();
    /// assert_eq!(sum, 6.0);
    /// ```
    ///
    /// # Panics
    /// When there is not exactly one element, or with the error that the computation met.
    #[track_caller]
    pub fn into_scalar<E: Element>(self) -> E {
        ok(self.try_into_scalar())
    }

    /// The only element, converted to `E`.
    ///
    /// # Errors
    /// When there is not exactly one element, or the error that the computation met.
    pub fn try_into_scalar<E: Element>(self) -> Result<E> {
        self.into_any().into_scalar()
    }

    /// The only element, converted to `E`, without blocking the thread.
    ///
    /// # Panics
    /// When there is not exactly one element, or with the error that the computation met.
    pub async fn into_scalar_async<E: Element>(self) -> E {
        ok(self.try_into_scalar_async().await)
    }

    /// The only element, converted to `E`, without blocking the thread.
    ///
    /// # Errors
    /// When there is not exactly one element, or the error that the computation met.
    pub async fn try_into_scalar_async<E: Element>(self) -> Result<E> {
        self.into_any().into_scalar_async().await
    }

    /// The typed tensor of one whose rank and kind are known at run time.
    ///
    /// # Errors
    /// When rank or kind differ, or the tensor is not on a device of `B`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let any = Tensor::<Flex, 2>::zeros([2, 3], &device).into_any();
    /// assert!(Tensor::<Flex, 2>::try_from_any(any.clone()).is_ok());
    /// assert!(Tensor::<Flex, 1>::try_from_any(any).is_err());
    /// ```
    pub fn try_from_any(any: AnyTensor) -> Result<Self> {
        any.try_into_tensor()
    }

    /// Whether nothing else shares the elements, so that an engine may write a result in their place.
    pub fn can_mut(&self) -> bool {
        self.as_any().value().is_unique()
    }

    /// Replaces the tensor by the result of a function of it. The function owns the tensor, so an engine may reuse
    /// its memory. If the function panics, the tensor has no elements left.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let mut x = Tensor::<Flex, 1>::ones([2], &device);
    /// x.inplace(|x| x * 3);
    /// assert_eq!(x.into_data().to_vec::<f32>(), [3.0, 3.0]);
    /// ```
    #[track_caller]
    pub fn inplace(&mut self, f: impl FnOnce(Self) -> Self) {
        let x = self.take_out();
        *self = f(x);
    }
}
