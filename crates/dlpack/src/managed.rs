//! Owning a managed tensor.

use alloc::format;
use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;

use kiln_ir::{Error, Result, TensorData, TensorType};
use kiln_tensor::{AnyTensor, Stack};

use crate::abi::{DLManagedTensor, DLManagedTensorVersioned, FLAG_IS_COPIED, FLAG_READ_ONLY, VERSION};
use crate::export::{Source, export};
use crate::import::{Described, describe, read};

/// A managed tensor that this program owns: dropping it calls its deleter.
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
    /// Shares data: its elements stay where they are, and the one who takes them may write to them.
    pub fn export(data: TensorData) -> Managed<F> {
        Managed(export(Source::Owned(data), FLAG_IS_COPIED))
    }

    /// Shares the elements of a tensor. Waits for its device. Nothing is copied where the tensor is the only owner of its
    /// elements, they were made from a `Vec`, and they are in order.
    ///
    /// # Errors
    /// The error of the tensor's computation.
    pub fn from_tensor(tensor: AnyTensor) -> Result<Managed<F>> {
        tensor.into_data().map(Managed::export)
    }

    /// Takes a managed tensor over.
    ///
    /// # Errors
    /// When the pointer is null.
    ///
    /// # Safety
    /// A pointer that is not null must point to a managed tensor of this form, as a framework made it. The tensor must
    /// have no other owner, and its deleter must be callable from this thread. While the `Managed` lives, no other code
    /// may write to the tensor's memory.
    pub unsafe fn from_raw(pointer: *mut F) -> Result<Managed<F>> {
        NonNull::new(pointer).map(Managed).ok_or_else(|| {
            Error::value("dlpack", "the managed tensor is a null pointer")
                .hint("the other framework failed to share its tensor; its own message says why")
        })
    }

    /// Transfers the struct to another framework, which calls its deleter.
    pub fn into_raw(self) -> *mut F {
        let pointer = self.0.as_ptr();
        core::mem::forget(self);
        pointer
    }

    /// The struct, which stays owned.
    pub fn as_ptr(&self) -> *mut F {
        self.0.as_ptr()
    }

    /// The shape and dtype.
    ///
    /// # Errors
    /// When the tensor is not in the host's memory, its type is none of Kiln's, its struct is of another major version,
    /// or the struct is invalid: a negative length, null pointers, addresses beyond the memory.
    pub fn ty(&self) -> Result<TensorType> {
        self.describe().map(|described| described.ty)
    }

    /// A copy of the elements, in row-major order.
    ///
    /// # Errors
    /// As [`ty`](Managed::ty); when a truth value is neither 0 nor 1, and when there is no memory for the copy.
    pub fn to_data(&self) -> Result<TensorData> {
        let described = self.describe()?;
        // SAFETY: `describe` checked the struct, and `from_raw` demands that the memory it names is there and at rest.
        unsafe { read(&described) }
    }

    /// The tensor with these elements on a device; copies them.
    ///
    /// # Errors
    /// As [`to_data`](Managed::to_data).
    pub fn to_tensor(&self, device: &impl AsRef<Stack>) -> Result<AnyTensor> {
        Ok(AnyTensor::from_data(self.to_data()?, device))
    }

    /// Whether the memory may not be written to. The form before DLPack 1.0 cannot say so.
    ///
    /// # Errors
    /// When the struct is of another major version.
    pub fn is_read_only(&self) -> Result<bool> {
        self.checked().map(|form| form.flags() & FLAG_READ_ONLY != 0)
    }

    fn describe(&self) -> Result<Described> {
        // SAFETY: `from_raw` demands a struct as a framework made it, so its pointers are null or valid.
        unsafe { describe(self.checked()?.tensor()) }
    }

    /// The struct, if its fields are where this crate knows them to be.
    fn checked(&self) -> Result<&F> {
        // SAFETY: the pointer is valid by `from_raw`'s demand or from `export`.
        match unsafe { F::major_version(self.0.as_ptr()) } {
            // SAFETY: and the struct has the layout of this version.
            major if major == VERSION.major => Ok(unsafe { self.0.as_ref() }),
            major => {
                let problem = format!("the tensor is of DLPack version {major}; only version 1 is known");
                Err(Error::unsupported("dlpack", problem)
                    .hint("ask the other framework for version 1: `max_version=(1, 1)`"))
            }
        }
    }
}

impl Managed<DLManagedTensorVersioned> {
    /// Shares data that others keep seeing: the tensor is marked as read-only.
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
        /// A struct whose deleter is `deleter`.
        fn new(
            tensor: DLTensor,
            context: *mut c_void,
            deleter: unsafe extern "C" fn(*mut Self),
            flags: u64,
        ) -> Self;

        /// The major version, which must be known before there may be a reference to the whole struct.
        ///
        /// # Safety
        /// The pointer must be valid for the fields that all versions have.
        unsafe fn major_version(pointer: *const Self) -> u32;

        fn flags(&self) -> u64;

        /// The exporter's private data.
        fn context(&self) -> *mut c_void;

        fn tensor(&self) -> &DLTensor;

        /// Calls the deleter, if there is one.
        ///
        /// # Safety
        /// The pointer must be valid and not used afterwards.
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
            // SAFETY: the caller passes a valid pointer; the version is in front in all versions.
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
            // SAFETY: the caller passes a valid pointer. The deleter is in the same place in all versions.
            if let Some(deleter) = unsafe { (*pointer).deleter } {
                // SAFETY: the struct was made for this deleter, and is not used afterwards.
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

        /// Has no version; its fields are those of version 1.
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
                // SAFETY: the struct was made for this deleter, and is not used afterwards.
                unsafe { deleter(pointer) }
            }
        }
    }
}
