//! Bringing elements to the host. All of this waits for the device.

use super::ok;
use crate::{Backend, Element, Kind, Result, Tensor, TensorData};
use kiln_ir::Error;

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// The elements.
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
    /// With the error that the computation met.
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

    /// The elements, without blocking the thread.
    ///
    /// # Errors
    /// The error that the computation met.
    pub async fn into_data_async(self) -> Result<TensorData> {
        self.into_any().into_data_async().await
    }

    /// The only element, converted to `E`: `let loss: f32 = loss.into_scalar();`
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
        let ty = *self.as_any().ty();
        match *self.try_into_data()?.to_vec::<E>() {
            [element] => Ok(element),
            _ => Err(Error::type_error("into_scalar", "is not a single element", &[(&ty).into()])
                .hint("reduce it first: `sum`, `mean`, or pick one with `slice`")),
        }
    }
}
