//! Reads of elements to the host, and copies to other devices.

use crate::{AnyTensor, DType, Element, Error, Result, Stack, TensorData};
use alloc::vec::Vec;

/// The largest table that an op computes on the host: 2 GiB of `f64`.
const MAX_ON_HOST: usize = 1 << 28;

/// Returns an error if a table of these lengths, which an op computes on the host, is too large: checked before memory
/// is allocated.
pub(crate) fn check_table(op: &str, lengths: &[usize]) -> Result<()> {
    let count = lengths.iter().try_fold(1usize, |count, &length| count.checked_mul(length));
    match count {
        Some(count) if count <= MAX_ON_HOST => Ok(()),
        _ => {
            let problem = alloc::format!("a table of {lengths:?} numbers is too large");
            Err(Error::type_error(op, problem, &[])
                .hint(alloc::format!("the host computes up to {MAX_ON_HOST} of them: check the sizes")))
        }
    }
}

/// The elements of data as `E`, converted as `cast` does.
fn elements<E: Element>(data: TensorData) -> Result<Vec<E>> {
    if data.dtype() == E::DTYPE { data.into_vec() } else { Ok(data.to_vec()) }
}

impl AnyTensor {
    /// Reads the elements to the host. Waits for the device.
    ///
    /// # Errors
    /// When the computation failed. In a browser, where no thread may wait for a GPU: see
    /// [`into_data_async`](AnyTensor::into_data_async).
    pub fn into_data(self) -> Result<TensorData> {
        self.wait("await `into_data_async`")
    }

    /// Reads the elements to the host, without consuming the tensor. Waits for the device.
    ///
    /// # Errors
    /// As [`into_data`](AnyTensor::into_data).
    pub fn to_data(&self) -> Result<TensorData> {
        self.clone().wait("await `to_data_async`")
    }

    /// Waits for the elements. The hint names the asynchronous form of the method.
    pub(crate) fn wait(self, hint: &str) -> Result<TensorData> {
        kiln_ir::wait_for(self.stack.engine().read(self.value), "reading a tensor", hint)
    }

    /// Reads the elements to the host, without blocking the thread.
    ///
    /// # Errors
    /// When the computation failed.
    pub async fn into_data_async(self) -> Result<TensorData> {
        self.stack.engine().read(self.value).await
    }

    /// Reads the elements to the host, without blocking the thread or consuming the tensor.
    ///
    /// # Errors
    /// As [`into_data_async`](AnyTensor::into_data_async).
    pub async fn to_data_async(&self) -> Result<TensorData> {
        self.clone().into_data_async().await
    }

    /// Reads the elements in another dtype, converted as `cast` does. Waits for the device.
    ///
    /// # Errors
    /// As [`into_data`](AnyTensor::into_data).
    pub fn into_data_dtype(self, dtype: DType) -> Result<TensorData> {
        Ok(self.into_data()?.convert(dtype))
    }

    /// Reads the elements as `E`, converted as `cast` does, in row-major order. Waits for the device.
    ///
    /// # Errors
    /// As [`into_data`](AnyTensor::into_data).
    pub fn into_vec_as<E: Element>(self) -> Result<Vec<E>> {
        elements(self.into_data()?)
    }

    /// Reads the elements in row-major order as `E`, converted as `cast` does, without consuming the tensor. Waits for
    /// the device.
    ///
    /// ```
    /// use kiln_backends::Device;
    /// use kiln_tensor::AnyTensor;
    ///
    /// let x = AnyTensor::from_data([1.0f32, 2.0], &Device::cpu());
    /// assert_eq!(x.to_vec::<f64>()?, [1.0, 2.0]);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`into_data`](AnyTensor::into_data).
    #[doc(alias = "tolist")]
    #[doc(alias = "numpy")]
    pub fn to_vec<E: Element>(&self) -> Result<Vec<E>> {
        elements(self.clone().wait("await `to_vec_async`")?)
    }

    /// Like [`to_vec`](AnyTensor::to_vec), without blocking the thread.
    ///
    /// # Errors
    /// When the computation failed.
    pub async fn to_vec_async<E: Element>(&self) -> Result<Vec<E>> {
        elements(self.to_data_async().await?)
    }

    /// Reads the only element as `E`, without consuming the tensor. Waits for the device.
    ///
    /// ```
    /// use kiln_backends::Device;
    /// use kiln_tensor::AnyTensor;
    ///
    /// let x = AnyTensor::from_data([3i32], &Device::cpu());
    /// assert_eq!(x.item::<f32>()?, 3.0);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is not exactly one element, or the computation failed.
    pub fn item<E: Element>(&self) -> Result<E> {
        AnyTensor::single("item", self.ty(), self.clone().wait("await `item_async`")?)
    }

    /// Like [`item`](AnyTensor::item), without blocking the thread.
    ///
    /// # Errors
    /// As [`item`](AnyTensor::item).
    pub async fn item_async<E: Element>(&self) -> Result<E> {
        AnyTensor::single("item", self.ty(), self.to_data_async().await?)
    }

    /// Reads the only element, converted to `E`. Waits for the device.
    ///
    /// # Errors
    /// As [`item`](AnyTensor::item).
    pub fn into_scalar<E: Element>(self) -> Result<E> {
        let ty = *self.ty();
        AnyTensor::single("into_scalar", &ty, self.wait("await `into_scalar_async`")?)
    }

    /// Reads the only element, converted to `E`, without blocking the thread.
    ///
    /// # Errors
    /// As [`item`](AnyTensor::item).
    pub async fn into_scalar_async<E: Element>(self) -> Result<E> {
        let ty = *self.ty();
        AnyTensor::single("into_scalar", &ty, self.into_data_async().await?)
    }

    fn single<E: Element>(op: &str, ty: &crate::TensorType, data: TensorData) -> Result<E> {
        let [element] = *data.to_vec::<E>() else {
            return Err(Error::type_error(op, "is not a single element", &[ty.into()])
                .hint("reduce it first: `sum`, `mean`, or pick one with `slice`"));
        };
        Ok(element)
    }

    /// Copies the elements to another stack. Waits for the device, unless both stacks are on one engine, where nothing
    /// is copied.
    ///
    /// Derivatives are kept if the other stack has the same layer. With automatic differentiation, gradients flow back
    /// through the copy; with forward mode, tangents are copied; with batching, all examples are copied. In a
    /// [`no_grad`](crate::no_grad) scope only the elements are copied.
    ///
    /// If the computation failed, its error moves with the tensor and is reported when the tensor is read.
    ///
    /// # Errors
    /// When a derivative flows through the tensor, or it represents a batch, and the other stack has no layer for that.
    pub fn to_stack(self, stack: &Stack) -> Result<AnyTensor> {
        if self.stack.same_domain(stack) {
            return Ok(AnyTensor::new(stack.clone(), stack.place(self.value)));
        }
        if let Some(left) = self.stack.lost_layer_state(&self.value, stack) {
            let problem = alloc::format!("{left} would not follow {} to {stack:?}", self.ty());
            return Err(Error::gradient("to_device", problem).hint(
                "move it to a device with the same layers, as `device.autodiff()`; `detach()` moves elements without gradients",
            ));
        }
        let AnyTensor { value, stack: from } = self;
        let value = stack.engine().import(from.engine(), value);
        Ok(AnyTensor::new(stack.clone(), stack.place(value)))
    }

    /// Copies the elements to another device. Waits for the current device, unless both devices are on one engine.
    ///
    /// Gradients and errors are kept: see [`to_stack`](AnyTensor::to_stack).
    ///
    /// # Errors
    /// As [`to_stack`](AnyTensor::to_stack).
    #[doc(alias = "to")]
    #[doc(alias = "device_put")]
    pub fn to_device(self, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        self.to_stack(device.as_ref())
    }
}
