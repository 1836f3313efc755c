//! Mixed precision: contractions run in 16 bits, numerically sensitive ops in `f32`.
//!
//! [`Autocast`] is a layer: an [`Engine`](kiln_ir::Engine) around another one. Programs see unchanged dtypes: an
//! `f32` tensor stays `f32`, and so do parameters, so optimizers update weights in full precision. Below the layer,
//! results of matmuls are stored in 16 bits, and ops that allow it run in 16 bits. Ops that need `f32` cast their
//! operands first, and so do reads. Tensors of other dtypes (`f64`, integers, and `bf16` or `f16` that the program
//! requested) are unchanged.
//!
//! ```
//! use kiln_autocast::{Autocast, LowPrecision};
//! use kiln_ir::{DType, Engine, Var, block_on};
//! use kiln_reference::Reference;
//! use std::sync::Arc;
//!
//! let layer = Autocast::new(Arc::new(Reference::new()), LowPrecision::BF16);
//! let x = Var::new(&layer, layer.write([[1.0f32, 2.0], [3.0, 4.0]].into()));
//! let product = x.matmul(&x);
//! assert_eq!(product.dtype(), DType::F32, "the visible dtype");
//! assert_eq!(layer.held_dtype(product.operand().value().unwrap()), DType::BF16, "the stored dtype");
//! let sum = product.sum(&[0, 1]).into_value();
//! assert_eq!(layer.held_dtype(&sum), DType::F32, "sums need f32");
//! assert_eq!(block_on(layer.read(sum))?.into_vec::<f32>()?, [54.0]);
//! # Ok::<(), kiln_ir::Error>(())
//! ```
//!
//! # Precision of each op
//!
//! [`precision`] is the table; [`Precision`] lists the classes. It follows [PyTorch's lists for
//! CUDA](https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior):
//!
//! | in 16 bits | in `f32` | in the widest stored dtype of the operands |
//! |---|---|---|
//! | matmul, convolution and its gradients, attention and its gradients | sums, products and their scans; softmax, norms; `exp`, `expm1`, `ln`, `log1p`, `recip`, `rsqrt`, `tan`, `pow`; Fourier transforms; scatters that add or multiply; quantization; collectives; custom ops | everything else: arithmetic, comparisons, selection, `tanh`, `erf`, views, minima and maxima, sorting, gathers, pooling, resizing |
//!
//! Losses, norms and statistics are `f32`, because their sums and logarithms are.
//!
//! * A scalar operand keeps its precision: if it is not exact in 16 bits, the op is computed in `f32` and rounded
//!   once. If it is out of range (`-1e9` beside `f16`), or the op is `min` or `max`, whose result may be the scalar,
//!   the result is `f32`.
//! * [`cast`](kiln_ir::Op::Cast) returns exactly the requested dtype, even `f32`.
//! * `f32` products of [8-bit floats](kiln_ir::Op::MatMulFloat8) are stored in 16 bits.
//! * A custom op that is an [expression of others](kiln_ir::CustomOp::is_expression) runs as these, each by its own
//!   rule. Results of an op that [matches the precision](kiln_ir::CustomOp::match_precision) of an operand are stored
//!   in 16 bits where that operand is. Example: batch normalisation, which computes in `f32`, between two
//!   convolutions.
//! * Casts to 16 bits are cached with the value. A parameter is cast once per step, and the cast is freed when the
//!   optimizer replaces the parameter. Casts to `f32` are not cached: a fusion layer below fuses them into their
//!   readers.
//! * A tape above this layer saves only the 16-bit operands of a product
//!   ([`Engine::saved_for_backward`](kiln_ir::Engine::saved_for_backward)). Gradients of its leaves are cast to `f32`
//!   ([`Engine::mixes_precision`](kiln_ir::Engine::mixes_precision)).
//!
//! Order of layers: automatic differentiation above, fusion below. In `f16` gradients may underflow: scale the loss
//! with `LossScaler` of `kiln-optim`.
//!
//! The crate is `no_std` (with `alloc`) and free of `unsafe`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod held;
mod layer;
mod policy;

pub use layer::{Autocast, LowPrecision};
pub use policy::{Precision, precision};
