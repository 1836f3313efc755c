//! Tensors with a backend, a rank and an element kind as types, over engines that execute ops.
//!
//! [`Tensor<B, D, K>`](Tensor) has three parameters. `B` is a [`Backend`], a zero-sized marker that names a stack of
//! engines (`Flex`, [`Autodiff<Flex>`](Autodiff), `Dyn`; the crate `kiln-backends` has them); `D` is the rank; `K` is
//! the kind of the elements: [`Float`] (the default), [`Int`] or [`Bool`]. All work happens in one non-generic type,
//! [`AnyTensor`]: a method of `Tensor` is one inlined call, so programs that use tensors compile fast.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::{Autodiff, Distribution, Tensor};
//!
//! type B = Autodiff<Flex>;
//! let device = Default::default();
//! let x: Tensor<B, 2> = Tensor::random([32, 32], Distribution::Default, &device);
//! let y: Tensor<B, 2> = Tensor::random([32, 32], Distribution::Default, &device).require_grad();
//! let loss = (&x + &y).matmul(x).exp().sum();
//! let gradients = loss.backward();
//! let y_grad = y.grad(&gradients).unwrap();
//! assert_eq!(y_grad.dims(), [32, 32]);
//! ```
//!
//! * Operators accept values, references and numbers: `&a + &b`, `x / 2`, `1 - x`.
//! * Wrong shapes or dtypes panic at the caller's line with a message of one form:
//!   `[matmul] inner sizes differ: f32[2, 3] x f32[4, 5]`. Methods that begin with `try_`, and every method of
//!   [`AnyTensor`] (rank and dtype known at run time), return [`Result`] instead.
//! * Only reads ([`Tensor::into_data`]) and [`Backend::sync`] wait for a device.
//! * [`activation`], [`module`], [`loss`], [`quantize`], [`float8`], [`blocks`], [`linalg`], [`fft`], [`signal`],
//!   [`grid`] and [`random`] hold functions by family.
//! * [`einsum()`] contracts tensors by a formula; [`NamedTensor`] has named axes that the compiler checks;
//!   [`Complex`] is a pair of real tensors.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod any;
mod axis;
mod backend;
mod capture;
mod complex;
mod default_device;
mod display;
mod einsum;
mod functions;
mod kind;
mod looped;
mod named;
mod number;
pub mod random;
mod slice;
mod special;
mod stack;
mod tensor;
pub mod transform;

pub use any::{AnyComplex, AnyTensor, Interpolation, PadMode, Recovered, ScatterReduction, UniqueAny};
pub use axis::{Axis, AxisList};
pub use backend::{
    Autodiff, AutodiffBackend, Backend, BalancedCheckpointing, CheckpointingStrategy, Forward,
    ForwardBackend, NoCheckpointing, Vmap, VmapBackend,
};
pub use capture::{Captured, capture};
pub use complex::Complex;
pub use default_device::default_device;
#[cfg(feature = "std")]
pub use default_device::with_device;
pub use einsum::{EinsumOperand, EinsumOperands, EinsumPath, EinsumStep, einsum};
pub use functions::{activation, blocks, fft, float8, grid, linalg, loss, module, quantize, signal, stats};
pub use half::{bf16, f16};
pub use kiln_autodiff::Checkpointing;
#[cfg(feature = "std")]
pub use kiln_autodiff::{no_grad, with_checkpointing};
#[cfg(feature = "std")]
#[doc(hidden)]
pub use kiln_ir::read_error;
pub use kiln_ir::{
    BlockFormat, CacheStrategy, Custom, CustomOp, DType, Element, ElementConversion, Elements, Error,
    ErrorKind, MAX_RANK, MemoryConfig, MemoryUse, OperandType, PrintOptions, Result, ResultTypes, Scalar,
    Shape, SharedBytes, TensorData, TensorType, ToElement, UpdateMode, Var, print_options, set_print_options,
};
pub use kind::{Bool, Float, Int, Kind, Numeric};
pub use looped::{LoopResults, loop_for, loop_over};
pub use named::{At, AxisName, AxisNames, Has, NamedTensor};
pub use number::Number;
pub use random::{Distribution, HOST_KERNELS, HostKernel};
pub use slice::{SliceArg, SliceArgs};
#[cfg(feature = "std")]
pub use special::register_special_functions;
pub use stack::{DeviceKey, DeviceValue, DomainId, Stack};
pub use tensor::{Gradients, NodeId, ReshapeArgs, Tensor, Unique, checkpoint};
