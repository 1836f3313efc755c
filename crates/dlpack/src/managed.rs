//! Ownership of managed tensors.

use alloc::format;
use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;

use kiln_ir::{Error, Result, TensorData, TensorType};
use kiln_tensor::{AnyTensor, Stack};

use crate::abi::{DLManagedTensor, DLManagedTensorVersioned, FLAG_IS_COPIED, FLAG_READ_ONLY, VERSION};
use crate::export::{Source, export};
use crate::import::{Described, describe, read};

/// An owned managed tensor. Dropping it calls its deleter.
///
/// `F` is its form: [`DLManagedTensorVersioned`] or [`DLManagedTensor`].
///
/// ```
/// use kiln_dlpack::{DLManagedTensor, Managed};
/// use kiln_tensor::TensorData;
///
/// let shared = Managed::<DLManagedTensor>::export(TensorData::from([1u8, 2, 3]));
/// assert_eq!(shared.to_data()?, TensorData::from([1u8, 2, 3]));
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
pub struct Managed<F: Form>(NonNull<F>);

impl<F: Form> Managed<F> {
    /// Exports data without copying. The importer may write to the elements.
    pub fn export(data: TensorData) -> Managed<F> {
        Managed(export(Source::Owned(data), FLAG_IS_COPIED))
    }

    /// Exports the elements of a tensor. Waits for its device. Does not copy if the tensor is the only owner of its
    /// elements, they were created from a `Vec`, and they are contiguous in row-major order.
    ///
    /// # Errors
    /// The error of the tensor's computation.
    pub fn from_tensor(tensor: AnyTensor) -> Result<Managed<F>> {
        tensor.into_data().map(Managed::export)
    }

    /// Takes ownership of a managed tensor.
    ///
    /// # Errors
    /// When the pointer is null.
    ///
    /// # Safety
    /// A pointer that is not null must point to a valid managed tensor of this form. The tensor must have no other
    /// owner, and its deleter must be callable from this thread. During the lifetime of the `Managed`, no other code
    /// may write to the tensor's memory.
    pub unsafe fn from_raw(pointer: *mut F) -> Result<Managed<F>> {
        NonNull::new(pointer).map(Managed).ok_or_else(|| {
            Error::value("dlpack", "the managed tensor is a null pointer")
                .hint("the other framework failed to share its tensor; see its own message")
        })
    }

    /// Transfers ownership of the struct to another framework, which calls its deleter.
    pub fn into_raw(self) -> *mut F {
        let pointer = self.0.as_ptr();
        core::mem::forget(self);
        pointer
    }

    /// Returns a pointer to the struct without transferring ownership.
    pub fn as_ptr(&self) -> *mut F {
        self.0.as_ptr()
    }

    /// Returns the shape and dtype.
    ///
    /// # Errors
    /// When the tensor is not in host memory, its dtype is not supported, its struct has another major version, or the
    /// struct is invalid: negative lengths, null pointers, or addresses outside the address space.
    pub fn ty(&self) -> Result<TensorType> {
        self.describe().map(|described| described.ty)
    }

    /// Copies the elements to host data in row-major order.
    ///
    /// # Errors
    /// The errors of [`ty`](Managed::ty). When a `bool` element is neither 0 nor 1, or the memory for the copy cannot
    /// be allocated.
    pub fn to_data(&self) -> Result<TensorData> {
        let described = self.describe()?;
        // SAFETY: `describe` checked the struct, and `from_raw` requires that its memory is valid and not written to.
        unsafe { read(&described) }
    }

    /// Copies the elements to a tensor on a device.
    ///
    /// # Errors
    /// See [`to_data`](Managed::to_data).
    pub fn to_tensor(&self, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        Ok(AnyTensor::from_data(self.to_data()?, device))
    }

    /// Returns whether the memory is read-only. The form before DLPack 1.0 has no such flag; the result is then false.
    ///
    /// # Errors
    /// When the struct has another major version.
    pub fn is_read_only(&self) -> Result<bool> {
        self.checked().map(|form| form.flags() & FLAG_READ_ONLY != 0)
    }

    fn describe(&self) -> Result<Described> {
        // SAFETY: `from_raw` requires a valid struct, so its pointers are null or valid.
        unsafe { describe(self.checked()?.tensor()) }
    }

    /// Returns the struct after checking that it has the layout of this major version.
    fn checked(&self) -> Result<&F> {
        // SAFETY: the pointer is valid as `from_raw` requires, or comes from `export`.
        match unsafe { F::major_version(self.0.as_ptr()) } {
            // SAFETY: the struct has the layout of this version.
            major if major == VERSION.major => Ok(unsafe { self.0.as_ref() }),
            major => {
                let problem = format!("the tensor is of DLPack version {major}; only version 1 is known");
                Err(Error::unsupported("dlpack", problem)
                    .hint("request version 1 from the other framework: `max_version=(1, 1)`"))
            }
        }
    }
}

impl Managed<DLManagedTensorVersioned> {
    /// Exports shared data without copying. The tensor is marked as read-only.
    ///
    /// ```
    /// use kiln_dlpack::Managed;
    /// use kiln_tensor::TensorData;
    /// use std::sync::Arc;
    ///
    /// let data = Arc::new(TensorData::from([1.0f32, 2.0]));
    /// let shared = Managed::share(data.clone());
    /// assert!(shared.is_read_only()?);
    /// assert_eq!(Arc::strong_count(&data), 2);
    /// drop(shared);
    /// assert_eq!(Arc::strong_count(&data), 1);
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    pub fn share(data: Arc<TensorData>) -> Self {
        Managed(export(Source::Shared(data), FLAG_READ_ONLY))
    }
}

impl<F: Form> From<TensorData> for Managed<F> {
    fn from(data: TensorData) -> Self {
        Managed::export(data)
    }
}

impl<F: Form> Drop for Managed<F> {
    fn drop(&mut self) {
        // SAFETY: the pointer is valid, and the struct has no other owner; a `Managed` is dropped once.
        unsafe { F::delete(self.0.as_ptr()) }
    }
}

impl<F: Form> fmt::Debug for Managed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ty() {
            Ok(ty) => write!(f, "Managed({ty})"),
            Err(error) => write!(f, "Managed({error})"),
        }
    }
}

/// A form of managed tensors: [`DLManagedTensorVersioned`] or [`DLManagedTensor`].
pub trait Form: sealed::Form {}

impl Form for DLManagedTensorVersioned {}

impl Form for DLManagedTensor {}

pub(crate) mod sealed {
    use core::ffi::c_void;

    use crate::abi::{DLManagedTensor, DLManagedTensorVersioned, DLTensor, VERSION};

    pub trait Form: Sized + 'static {
        /// Creates a struct with this deleter.
        fn new(
            tensor: DLTensor,
            context: *mut c_void,
            deleter: unsafe extern "C" fn(*mut Self),
            flags: u64,
        ) -> Self;

        /// Returns the major version, which must be known before a reference to the whole struct may exist.
        ///
        /// # Safety
        /// The pointer must be valid for the fields that exist in all versions.
        unsafe fn major_version(pointer: *const Self) -> u32;

        fn flags(&self) -> u64;

        /// Returns the exporter's private data.
        fn context(&self) -> *mut c_void;

        fn tensor(&self) -> &DLTensor;

        /// Calls the deleter, if any.
        ///
        /// # Safety
        /// The pointer must be valid, and must not be used afterwards.
        unsafe fn delete(pointer: *mut Self);
    }

    impl Form for DLManagedTensorVersioned {
        fn new(
            tensor: DLTensor,
            context: *mut c_void,
            deleter: unsafe extern "C" fn(*mut Self),
            flags: u64,
        ) -> Self {
            let deleter = Some(deleter);
            DLManagedTensorVersioned {
                version: VERSION,
                manager_ctx: context,
                deleter,
                flags,
                dl_tensor: tensor,
            }
        }

        unsafe fn major_version(pointer: *const Self) -> u32 {
            // SAFETY: the caller passes a valid pointer; the version is the first field in all versions.
            unsafe { (*pointer).version.major }
        }

        fn flags(&self) -> u64 {
            self.flags
        }

        fn context(&self) -> *mut c_void {
            self.manager_ctx
        }

        fn tensor(&self) -> &DLTensor {
            &self.dl_tensor
        }

        unsafe fn delete(pointer: *mut Self) {
            // SAFETY: the caller passes a valid pointer. The deleter has the same offset in all versions.
            if let Some(deleter) = unsafe { (*pointer).deleter } {
                // SAFETY: the struct was created for this deleter, and is not used afterwards.
                unsafe { deleter(pointer) }
            }
        }
    }

    impl Form for DLManagedTensor {
        fn new(
            tensor: DLTensor,
            context: *mut c_void,
            deleter: unsafe extern "C" fn(*mut Self),
            _: u64,
        ) -> Self {
            DLManagedTensor { dl_tensor: tensor, manager_ctx: context, deleter: Some(deleter) }
        }

        /// This form has no version; its fields are those of version 1.
        unsafe fn major_version(_: *const Self) -> u32 {
            VERSION.major
        }

        fn flags(&self) -> u64 {
            0
        }

        fn context(&self) -> *mut c_void {
            self.manager_ctx
        }

        fn tensor(&self) -> &DLTensor {
            &self.dl_tensor
        }

        unsafe fn delete(pointer: *mut Self) {
            // SAFETY: the caller passes a valid pointer.
            if let Some(deleter) = unsafe { (*pointer).deleter } {
                // SAFETY: the struct was created for this deleter, and is not used afterwards.
                unsafe { deleter(pointer) }
            }
        }
    }
}
