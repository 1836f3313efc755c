//! Bringing elements to the host, and to other devices.

use crate::{AnyTensor, Result, Stack, TensorData};

impl AnyTensor {
    /// Brings the elements to the host. Waits for the device.
    pub fn into_data(self) -> Result<TensorData> {
        kiln_ir::block_on(self.stack.engine().read(self.value))
    }

    /// The elements; the tensor stays. Waits for the device.
    pub fn to_data(&self) -> Result<TensorData> {
        self.clone().into_data()
    }

    /// Brings the elements to the host without blocking the thread.
    pub async fn into_data_async(self) -> Result<TensorData> {
        self.stack.engine().read(self.value).await
    }

    /// The same elements on another stack. Waits for the device, unless it is the same stack.
    pub fn to_stack(self, stack: &Stack) -> Result<AnyTensor> {
        if self.stack.same(stack) {
            return Ok(self);
        }
        Ok(AnyTensor::from_data(self.into_data()?, stack))
    }

    /// The same elements on another device. Waits for this one.
    pub fn to_device(self, device: &crate::Device) -> Result<AnyTensor> {
        self.to_stack(&device.0)
    }
}
