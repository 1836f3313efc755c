//! The payload of a GPU value: a memory block, a strided layout, and deferred bounds-check flags.

use crate::bindings::reach;
use crate::driver::{DevicePtr, Driver, Reach};
use crate::memory::Block;
use crate::suspicion::Suspicions;
use kiln_ir::{Error, Layout, Operand, Result, TensorType, Value};
use std::sync::Arc;

/// The payload of the engine's values: a strided view of a memory block. Clones share the memory.
pub(crate) struct Array<D: Driver> {
    pub(crate) block: Arc<Block<D>>,
    pub(crate) layout: Layout,
    pub(crate) suspicions: Suspicions<D>,
}

impl<D: Driver> Clone for Array<D> {
    fn clone(&self) -> Self {
        Array { block: self.block.clone(), layout: self.layout, suspicions: self.suspicions.clone() }
    }
}

impl<D: Driver> Array<D> {
    /// The array in a value.
    ///
    /// # Errors
    /// The error of a poisoned value; an error for a value of another engine.
    pub(crate) fn of(value: &Value) -> Result<&Array<D>> {
        value.payload::<Array<D>>().ok_or_else(|| match value.error() {
            Some(error) => error.clone(),
            None => Error::unsupported("gpu", "a value of another engine was passed")
                .hint("move the tensor to the device first"),
        })
    }

    pub(crate) fn into_value(self, ty: TensorType) -> Value {
        Value::new(ty, self)
    }

    /// The device pointer of the element at index 0 of every axis; `size` is the element size in bytes.
    pub(crate) fn at(&self, size: usize) -> DevicePtr<D::Memory> {
        let first = self.block.at(self.layout.offset * size);
        match self.block.exceeded_limit() {
            Some(_) => DevicePtr { reach: Reach::of(reach(&self.layout, size)), ..first },
            None => first,
        }
    }

    /// The same memory under another layout.
    pub(crate) fn with_layout(&self, layout: Layout) -> Array<D> {
        Array { layout, ..self.clone() }
    }
}

/// The union of the operands' deferred bounds-check flags.
pub(crate) fn suspicions<'a, D: Driver>(inputs: impl IntoIterator<Item = &'a Operand>) -> Suspicions<D> {
    let mut all = Suspicions::<D>::new();
    for value in inputs.into_iter().filter_map(Operand::value) {
        let Ok(array) = Array::<D>::of(value) else { continue };
        all.join(&array.suspicions);
    }
    all
}
