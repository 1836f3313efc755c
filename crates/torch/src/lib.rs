//! Kiln's engine over [LibTorch](https://pytorch.org/cppdocs/), the C++ library of PyTorch.
//!
//! [`LibTorch`] is an [`Engine`](kiln_ir::Engine) whose values are PyTorch's tensors. A tour:
//!
//! * **Devices.** [`LibTorchDevice`] names the processor, an NVIDIA GPU (an AMD GPU in a LibTorch for ROCm) or an Apple GPU;
//!   [`LibTorch::open`](kiln_foreign::Foreign::open) makes the engine of one. Which of them exist follows from the LibTorch that was found.
//! * **Ops.** Each op takes one of three ways. LibTorch's kernels run it where they give Kiln's results
//!   ([`Library::NATIVE`](kiln_foreign::Library::NATIVE) lists the kinds). The
//!   CPU engine runs it on the host where LibTorch lacks the function or the dtype. [`Expand`](kiln_ir::Expand), which every stack puts
//!   around the engine, writes the rest in simpler ops.
//! * **Dtypes.** All of Kiln's. `u16`, `u32` and `u64` are kept as the bits of `i16`, `i32` and `i64`, since LibTorch 1.13 lacks them; most
//!   ops run on them natively all the same.
//! * **Errors.** An error of LibTorch poisons the results, with the op, the operands and LibTorch's message.
//! * **Unsafe code.** All of it is in the module `ffi`, over a shim in C++ that calls ops by their names in PyTorch's schema.
//!
//! ```
//! use kiln_ir::{Engine, TensorData, Var, block_on};
//! use kiln_torch::{LibTorch, LibTorchDevice};
//!
//! match LibTorch::open(LibTorchDevice::Cpu) {
//!     Ok(engine) => {
//!         let x = Var::new(&engine, engine.write(TensorData::from([1.0f32, 2.0, 3.0])));
//!         let y = engine.read((x * 2.0 + 1.0).into_value());
//!         assert_eq!(block_on(y)?.into_vec::<f32>()?, [3.0, 5.0, 7.0]);
//!     }
//!     Err(error) => assert!(error.to_string().contains("apt-get install libtorch-dev")),
//! }
//! # Ok::<(), kiln_ir::Error>(())
//! ```
//!
//! # Which LibTorch
//!
//! 1.13 and 2.x: Debian's `libtorch-dev`, the `torch` of PyPI, or a folder with `include` and `lib`. The build looks at
//!
//! 1. the folder in the variable `LIBTORCH` (`/usr` for Debian's package),
//! 2. the module `torch` of the Python in `PYTHON`, by default `python3`,
//! 3. `/usr/include` and `/usr/lib`, where Debian's package puts it.
//!
//! It compiles the shim against the first one with a C++ compiler, into a shared library that a program opens at run time by its
//! path: nothing has to be passed to the linker, and `LD_LIBRARY_PATH` stays as it is. A program that moves to another machine takes
//! `libkiln_torch.so` along in its own folder, or names it in the variable `KILN_TORCH_SHIM`. Without LibTorch the crate builds too;
//! opening a device then is an error with the line to run. It does not support Windows.
//!
//! # Process-wide settings
//!
//! Opening a device turns off the rounding of `f32` products to TF32 and cuDNN's choice of algorithms by measurement. The number of
//! threads is LibTorch's (`OMP_NUM_THREADS`).
//!
//! # Where LibTorch differs
//!
//! | LibTorch | Kiln, and how the engine gets it |
//! |---|---|
//! | no `u16`, `u32`, `u64` (1.13) | kept as bits of signed integers: widened to `i64`, or with the sign flipped, where the order matters |
//! | `sign` of NaN is 0 | it stays: selected from the operand |
//! | `log1p` of the greatest numbers is infinite | finite: by `log` |
//! | the remainder of floats is NaN for great quotients | exact: on the host |
//! | powers are infinite for the greatest numbers, off for integers with negative exponents | on the host |
//! | layer norm loses digits where the mean of a row is great | kept: the mean is subtracted first |
//! | `sqrt` with MKL may be off by the last bit | rounded correctly: in `f64`, and of `f64` on the host |
//! | `erfcx` loses digits for negative numbers | accurate: on the host |
//! | integer division by 0 is an error, that of the least integer by -1 ends the process | 0, and the least integer: masked |
//! | shifts by the width or more are undefined | 0, or the sign: masked |
//! | conversions of floats beyond the range of an integer are undefined | saturate, NaN becomes 0: masked; to `u64` on the host |
//! | conversions to 16-bit floats round twice (by way of `f32`) | once: from `f64` and wide integers on the host |
//! | `f16` lacks kernels on the processor | computed in `f32`, rounded once |
//! | an index out of range on a GPU ends the CUDA context | an error: indices are checked before each op |
//! | a duplicate index in a scatter has no order on GPUs | the last one wins: on the host |
//! | products of integer matrices only on the processor | on the host for GPUs |
//! | one padding for both sides in convolutions and pooling | others are added to the operand first, or cut off the gradient |
//! | reductions over no elements are errors for extremes | the identity: ops on empty tensors run on the host |
//! | Apple GPUs have no `f64` | an error of the value |
//! | the expansions of Fourier transforms and cubic resizing lose digits in its products | on the host |
//! | random numbers of its own generators | Kiln's, which are the same on each engine: on the host |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

mod composite;
mod contraction;
mod device;
mod elementwise;
#[allow(unsafe_code)]
mod ffi;
mod index;
mod library;
mod reduce;
mod tensor;
mod view;

#[cfg(test)]
mod tests;

pub use device::{LibTorchDevice, version};
pub use library::Torch;

/// The engine of a device of LibTorch. See the [crate's tour](crate).
///
/// Opening a device fails when LibTorch or the device is missing; the error lists the searched places and the line to run.
///
/// ```
/// use kiln_torch::{LibTorch, LibTorchDevice, version};
/// use std::sync::Arc;
///
/// assert_eq!(LibTorch::open(LibTorchDevice::Cpu).is_ok(), version().is_ok());
/// if let (Ok(a), Ok(b)) = (LibTorch::shared(LibTorchDevice::Cpu), LibTorch::shared(LibTorchDevice::Cpu)) {
///     assert!(Arc::ptr_eq(&a, &b));
/// }
/// ```
pub type LibTorch = kiln_foreign::Foreign<Torch>;
