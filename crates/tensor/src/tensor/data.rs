//! Reads of elements to the host. All of them wait for the device.

use super::ok;
use crate::{AnyTensor, Backend, DType, Element, Kind, Result, Tensor, TensorData};
use alloc::vec::Vec;

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Reads the elements to the host.
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
    /// When the computation failed, for example by an index out of range or a lost device.
    #[track_caller]
    pub fn into_data(self) -> TensorData {
        ok(self.try_into_data())
    }

    /// Reads the elements to the host, without consuming the tensor.
    ///
    /// # Panics
    /// When the computation failed, for example by an index out of range or a lost device.
    #[track_caller]
    pub fn to_data(&self) -> TensorData {
        self.clone().into_data()
    }

    /// Reads the elements to the host.
    ///
    /// # Errors
    /// When the computation failed, for example by an index out of range or a lost device.
    pub fn try_into_data(self) -> Result<TensorData> {
        self.into_any().into_data()
    }

    /// Reads the elements to the host, without consuming the tensor.
    ///
    /// # Errors
    /// When the computation failed, for example by an index out of range or a lost device.
    pub fn try_to_data(&self) -> Result<TensorData> {
        self.as_any().to_data()
    }

    /// Reads the elements in row-major order as `E`, converted as [`TensorData::convert`] does, without consuming the
    /// tensor.
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
    /// When the computation failed, for example by an index out of range or a lost device.
    #[doc(alias = "tolist")]
    #[doc(alias = "numpy")]
    #[track_caller]
    pub fn to_vec<E: Element>(&self) -> Vec<E> {
        ok(self.try_to_vec())
    }

    /// Like [`to_vec`](Tensor::to_vec), but returns an error instead of panicking.
    ///
    /// # Errors
    /// When the computation failed, for example by an index out of range or a lost device.
    pub fn try_to_vec<E: Element>(&self) -> Result<Vec<E>> {
        self.as_any().to_vec()
    }

    /// Reads the only element as `E`, without consuming the tensor.
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
    /// When there is not exactly one element, or the computation failed.
    #[track_caller]
    pub fn item<E: Element>(&self) -> E {
        ok(self.try_item())
    }

    /// Like [`item`](Tensor::item), but returns an error instead of panicking.
    ///
    /// # Errors
    /// When there is not exactly one element, or the computation failed.
    pub fn try_item<E: Element>(&self) -> Result<E> {
        self.as_any().item()
    }

    /// Like [`to_vec`](Tensor::to_vec), without blocking the thread.
    ///
    /// # Errors
    /// When the computation failed, for example by an index out of range or a lost device.
    pub async fn to_vec_async<E: Element>(&self) -> Result<Vec<E>> {
        self.as_any().to_vec_async().await
    }

    /// Like [`item`](Tensor::item), without blocking the thread.
    ///
    /// # Errors
    /// When there is not exactly one element, or the computation failed.
    pub async fn item_async<E: Element>(&self) -> Result<E> {
        self.as_any().item_async().await
    }

    /// Reads the elements to the host, without blocking the thread: the form for browsers, where the synchronous ones
    /// fail on GPUs. The copy starts with the first poll of the future.
    ///
    /// ```
    /// use kiln_backends::Cpu;
    /// use kiln_tensor::Tensor;
    ///
    /// async fn doubled(x: Tensor<Cpu, 1>) -> Result<Vec<f32>, kiln_tensor::Error> {
    ///     Ok((x * 2.0).into_data_async().await?.to_vec())
    /// }
    /// # let x = Tensor::<Cpu, 1>::from([1.0, 2.0]);
    /// # assert_eq!(kiln_ir::block_on(doubled(x))?, [2.0, 4.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the computation failed, for example by an index out of range or a lost device.
    pub async fn into_data_async(self) -> Result<TensorData> {
        self.into_any().into_data_async().await
    }

    /// Reads the elements to the host, without blocking the thread or consuming the tensor.
    ///
    /// # Errors
    /// When the computation failed, for example by an index out of range or a lost device.
    pub async fn to_data_async(&self) -> Result<TensorData> {
        self.as_any().to_data_async().await
    }

    /// Reads the elements in another dtype, converted as [`TensorData::convert`] does.
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
    /// When the computation failed, for example by an index out of range or a lost device.
    #[track_caller]
    pub fn into_data_dtype(self, dtype: DType) -> TensorData {
        ok(self.try_into_data_dtype(dtype))
    }

    /// Reads the elements in another dtype, without consuming the tensor.
    ///
    /// # Panics
    /// When the computation failed, for example by an index out of range or a lost device.
    #[track_caller]
    pub fn to_data_dtype(&self, dtype: DType) -> TensorData {
        self.clone().into_data_dtype(dtype)
    }

    /// Reads the elements in another dtype, converted as [`TensorData::convert`] does.
    ///
    /// # Errors
    /// When the computation failed, for example by an index out of range or a lost device.
    pub fn try_into_data_dtype(self, dtype: DType) -> Result<TensorData> {
        self.into_any().into_data_dtype(dtype)
    }

    /// Reads the elements in another dtype, without consuming the tensor.
    ///
    /// # Errors
    /// When the computation failed, for example by an index out of range or a lost device.
    pub fn try_to_data_dtype(&self, dtype: DType) -> Result<TensorData> {
        self.clone().try_into_data_dtype(dtype)
    }

    /// Reads the elements as `E`, converted as [`TensorData::convert`] does.
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
    /// When the computation failed, for example by an index out of range or a lost device.
    #[track_caller]
    pub fn into_data_as<E: Element>(self) -> TensorData {
        self.into_data_dtype(E::DTYPE)
    }

    /// Reads the elements as `E`, without consuming the tensor.
    ///
    /// # Panics
    /// When the computation failed, for example by an index out of range or a lost device.
    #[track_caller]
    pub fn to_data_as<E: Element>(&self) -> TensorData {
        self.clone().into_data_as::<E>()
    }

    /// Reads the elements as `E`, converted as [`TensorData::convert`] does.
    ///
    /// # Errors
    /// When the computation failed, for example by an index out of range or a lost device.
    pub fn try_into_data_as<E: Element>(self) -> Result<TensorData> {
        self.try_into_data_dtype(E::DTYPE)
    }

    /// Reads the elements as `E`, without consuming the tensor.
    ///
    /// # Errors
    /// When the computation failed, for example by an index out of range or a lost device.
    pub fn try_to_data_as<E: Element>(&self) -> Result<TensorData> {
        self.clone().try_into_data_as::<E>()
    }

    /// Reads the elements in row-major order as `E`, converted as [`TensorData::convert`] does.
    ///
    /// # Errors
    /// When the computation failed, for example by an index out of range or a lost device.
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

    /// Reads the elements in row-major order as `E`, without consuming the tensor.
    ///
    /// # Errors
    /// When the computation failed, for example by an index out of range or a lost device.
    pub fn try_to_vec_as<E: Element>(&self) -> Result<Vec<E>> {
        self.clone().try_into_vec_as()
    }

    /// Reads the only element, converted to `E`.
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
    /// When there is not exactly one element, or the computation failed.
    #[track_caller]
    pub fn into_scalar<E: Element>(self) -> E {
        ok(self.try_into_scalar())
    }

    /// Reads the only element, converted to `E`.
    ///
    /// # Errors
    /// When there is not exactly one element, or the computation failed.
    pub fn try_into_scalar<E: Element>(self) -> Result<E> {
        self.into_any().into_scalar()
    }

    /// Reads the only element, converted to `E`, without blocking the thread.
    ///
    /// # Panics
    /// When there is not exactly one element, or the computation failed.
    pub async fn into_scalar_async<E: Element>(self) -> E {
        ok(self.try_into_scalar_async().await)
    }

    /// Reads the only element, converted to `E`, without blocking the thread.
    ///
    /// # Errors
    /// When there is not exactly one element, or the computation failed.
    pub async fn try_into_scalar_async<E: Element>(self) -> Result<E> {
        self.into_any().into_scalar_async().await
    }

    /// Converts an [`AnyTensor`] to a typed tensor.
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

    /// Returns whether this tensor is the only owner of its elements, so that an engine may overwrite them with a
    /// result.
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
