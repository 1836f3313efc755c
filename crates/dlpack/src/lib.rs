//! Tensor exchange with other frameworks in one process, through
//! [DLPack](https://dmlc.github.io/dlpack/latest/).
//!
//! The exporter creates a C struct with the address of the elements, their dtype, shape and strides, and a deleter. The
//! importer calls the deleter when it no longer needs the tensor. PyTorch, NumPy, JAX, CuPy and TensorFlow support
//! DLPack. [`Managed`] owns such a struct, in either of its forms:
//!
//! * [`DLManagedTensorVersioned`], since DLPack 1.0 (in Python, a capsule with the name `dltensor_versioned`), has a
//!   flag for read-only tensors;
//! * [`DLManagedTensor`] is the form before DLPack 1.0 (`dltensor`).
//!
//! ```
//! use kiln_backends::{Device, Flex};
//! use kiln_dlpack::{DLManagedTensorVersioned, Managed};
//! use kiln_tensor::Tensor;
//!
//! // Export: the elements are not copied.
//! let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &Default::default());
//! let shared: Managed<DLManagedTensorVersioned> = Managed::from_tensor(x.into_any())?;
//! let pointer = shared.into_raw(); // for the other framework
//!
//! // Import: a pointer from another framework.
//! // SAFETY: the pointer is a managed tensor without another owner.
//! let taken = unsafe { Managed::<DLManagedTensorVersioned>::from_raw(pointer) }?;
//! let y = taken.to_tensor(&Device::cpu())?;
//! assert_eq!(y.into_data()?.to_vec::<f32>(), [1.0, 2.0, 3.0, 4.0]);
//! # Ok::<(), kiln_tensor::Error>(())
//! ```
//!
//! Export does not copy: the struct points to Kiln's own memory and keeps it alive. Import copies the elements once,
//! since a Kiln tensor owns its memory. Only host memory is supported; a tensor on another device is an error.
//!
//! The crate is `no_std` (with `alloc`). It contains `unsafe` code, because it reads memory that other languages wrote.
#![no_std]

extern crate alloc;

mod abi;
mod export;
mod import;
mod managed;

pub use abi::{
    CPU, DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
    FLAG_IS_COPIED, FLAG_READ_ONLY, VERSION,
};
pub use managed::{Form, Managed};
