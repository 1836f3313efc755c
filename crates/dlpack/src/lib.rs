//! Tensor exchange with other frameworks in one process, through
//! [DLPack](https://dmlc.github.io/dlpack/latest/).
//!
//! The producer of a tensor exports a C struct: data pointer, dtype, shape, strides and a deleter. The consumer calls
//! the deleter when it is done. PyTorch, NumPy, JAX, CuPy and TensorFlow support DLPack. [`Managed`] owns such a
//! struct, in either of its forms:
//!
//! * [`DLManagedTensorVersioned`], since DLPack 1.0 (in Python, a capsule called `dltensor_versioned`), can mark a
//!   tensor read-only;
//! * [`DLManagedTensor`], the older form (`dltensor`).
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
//! An export copies nothing: the struct points to Kiln's memory and keeps it alive. An import copies the elements once,
//! because a Kiln tensor owns its memory. Only host memory is exchanged; a tensor on another device is an error.
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
