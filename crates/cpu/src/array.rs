//! The engine's tensor storage: a buffer and the layout of the elements in it.

use crate::buffer::Buffer;
use core::sync::atomic::{Ordering, fence};
use kiln_ir::{Element, Error, Layout, Result, Shape, TensorType, Value};

/// The payload of the engine's values. Clones share the buffer.
#[derive(Clone)]
pub(crate) struct Array {
    pub(crate) buffer: Buffer,
    pub(crate) layout: Layout,
}

impl Array {
    /// An uninitialized contiguous array of that type.
    ///
    /// # Errors
    /// When there is not enough memory, or no memory could hold such a tensor.
    #[inline]
    pub(crate) fn uninit(ty: &TensorType) -> Result<Array> {
        // No allocation has `usize::MAX` bytes.
        let buffer = Buffer::uninit(ty.checked_num_bytes().unwrap_or(usize::MAX))?;
        Ok(Array { buffer, layout: Layout::contiguous(ty.shape) })
    }

    /// A contiguous array of zeros (`false`).
    ///
    /// # Errors
    /// When there is not enough memory.
    pub(crate) fn zeros(ty: &TensorType) -> Result<Array> {
        let array = Array::uninit(ty)?;
        // SAFETY: the buffer is fresh and that many bytes long.
        unsafe { array.buffer.as_ptr().write_bytes(0, ty.num_bytes()) };
        Ok(array)
    }

    /// The array of a value.
    ///
    /// # Errors
    /// The error of a poisoned value; an error for a value of another engine.
    #[inline]
    pub(crate) fn of(value: &Value) -> Result<&Array> {
        match value.payload::<Array>() {
            Some(array) => Ok(array),
            None => Err(not_an_array(value)),
        }
    }

    /// Wraps the array in a value of that type.
    #[inline]
    pub(crate) fn into_value(self, ty: TensorType) -> Value {
        Value::new(ty, self)
    }

    /// As [`is_reusable`], for a contiguous array and its value.
    #[inline]
    pub(crate) fn is_reusable_in(&self, value: &Value) -> bool {
        if !value.is_unique() {
            return false;
        }
        // Accesses through clones that other threads dropped happen before this write.
        fence(Ordering::Acquire);
        self.buffer.is_unique() && self.layout.offset == 0 && self.buffer.len() == value.ty().num_bytes()
    }

    #[inline]
    pub(crate) fn shape(&self) -> &Shape {
        &self.layout.shape
    }

    #[inline]
    pub(crate) fn strides(&self) -> &[isize] {
        self.layout.strides()
    }

    #[inline]
    pub(crate) fn num_elements(&self) -> usize {
        self.layout.num_elements()
    }

    #[inline]
    pub(crate) fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// The pointer to the element at index 0 of every axis; `T` must have the size of the dtype.
    #[inline]
    pub(crate) fn as_ptr<T>(&self) -> *const T {
        self.as_mut_ptr::<T>().cast_const()
    }

    /// As [`as_ptr`](Array::as_ptr), mutable: only for a fresh or unique buffer.
    #[inline]
    pub(crate) fn as_mut_ptr<T>(&self) -> *mut T {
        // The offset is within the buffer, so the product cannot overflow.
        self.buffer.as_ptr().wrapping_add(self.layout.offset * size_of::<T>()).cast()
    }

    /// The same pointer as bytes, for elements of that size.
    #[inline]
    pub(crate) fn address(&self, size: usize) -> *mut u8 {
        self.buffer.as_ptr().wrapping_add(self.layout.offset * size)
    }

    /// The elements of a contiguous array whose dtype is `T`'s (or has the same size and takes any bits).
    ///
    /// # Panics
    /// When the array is not contiguous.
    #[inline]
    pub(crate) fn data<T: Element>(&self) -> &[T] {
        assert!(self.is_contiguous(), "[cpu] a kernel for contiguous data met strides");
        // SAFETY: contiguous elements from the first on are within the buffer, and were written by the op that
        // made the array.
        unsafe { core::slice::from_raw_parts(self.as_ptr(), self.num_elements()) }
    }
}

#[cold]
fn not_an_array(value: &Value) -> Error {
    match value.error() {
        Some(error) => error.clone(),
        None => Error::unsupported("cpu", "an operand is a value of another engine")
            .hint("read it on that engine and write it on this one"),
    }
}

/// In-place check: whether a result may reuse the buffer of an operand. Value and buffer must have no other owner, and
/// the elements must fill the whole buffer.
#[inline]
pub(crate) fn is_reusable(value: &Value) -> bool {
    value.payload::<Array>().is_some_and(|array| array.is_contiguous() && array.is_reusable_in(value))
}
