//! A library that Python loads with `ctypes`: it exports and imports managed tensors. `tests/python.rs` builds and runs
//! it.

use std::ffi::c_char;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use kiln_dlpack::{DLManagedTensor, DLManagedTensorVersioned, Form, Managed};
use kiln_tensor::{DType, TensorData};

/// The exported tensors, some of which may still be alive.
static SHARED: Mutex<Vec<Weak<TensorData>>> = Mutex::new(Vec::new());

/// Numbers 0 to 5 in the shape `[2, 3]`, of one dtype.
fn numbers(dtype: i32) -> TensorData {
    let numbers = TensorData::from([[0i64, 1, 2], [3, 4, 5]]);
    numbers.convert(DType::ALL[dtype as usize % DType::ALL.len()])
}

/// Exports numbers in the form since DLPack 1.0; the importer may write to them.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_export(dtype: i32) -> *mut DLManagedTensorVersioned {
    Managed::export(numbers(dtype)).into_raw()
}

/// Shares numbers in the form before DLPack 1.0.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_export_legacy(dtype: i32) -> *mut DLManagedTensor {
    Managed::export(numbers(dtype)).into_raw()
}

/// Shares numbers that are read-only, and remembers whether they are alive.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_share(dtype: i32) -> *mut DLManagedTensorVersioned {
    let data = Arc::new(numbers(dtype));
    SHARED.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&data));
    Managed::share(data).into_raw()
}

/// How many of the tensors of [`kiln_share`] are alive.
#[unsafe(no_mangle)]
pub extern "C" fn kiln_alive() -> usize {
    let shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.iter().filter(|data| data.strong_count() > 0).count()
}

/// Imports a tensor, frees it, and writes its contents as text into a buffer. Returns the number of bytes.
///
/// # Safety
/// The pointer must be a managed tensor without another owner, and the buffer have room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_take(
    managed: *mut DLManagedTensorVersioned,
    buffer: *mut c_char,
    capacity: usize,
) -> usize {
    // SAFETY: as the caller promises.
    unsafe { take(managed, buffer, capacity) }
}

/// As [`kiln_take`], in the form before DLPack 1.0.
///
/// # Safety
/// As [`kiln_take`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_take_legacy(
    managed: *mut DLManagedTensor,
    buffer: *mut c_char,
    capacity: usize,
) -> usize {
    // SAFETY: as the caller promises.
    unsafe { take(managed, buffer, capacity) }
}

/// # Safety
/// As [`kiln_take`].
unsafe fn take<F: Form>(managed: *mut F, buffer: *mut c_char, capacity: usize) -> usize {
    // SAFETY: the caller passes a managed tensor without another owner.
    let data = unsafe { Managed::from_raw(managed) }.and_then(|managed| managed.to_data());
    let text = data.map_or_else(|error| error.to_string(), |data| format!("{data:?}"));
    let length = text.len().min(capacity);
    // SAFETY: the caller passes a buffer with room for `capacity` bytes, of which these are at most as many.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), length) };
    length
}
