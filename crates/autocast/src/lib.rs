//! Mixed precision: contractions run in 16 bits, numerically sensitive ops in `f32`.
//!
//! [`Autocast`] is an [`Engine`](kiln_ir::Engine) around another one. Above it every tensor has its visible dtype: an
//! `f32` tensor stays `f32`, including parameters, so that optimizers update weights in full precision. Below it the
//! result of a matmul is a 16-bit value, and it stays in 16 bits as long as the following ops allow. An op on such
//! values runs in 16 bits. An op that needs `f32` casts them first, and so does reading. Tensors of any other dtype
//! (`f64`, integers, and `bf16` or `f16` that a program chose itself) are forwarded unchanged.
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
//! assert_eq!(product.dtype(), DType::F32, "what the program sees");
//! assert_eq!(layer.held_dtype(product.operand().value().unwrap()), DType::BF16, "what is in memory");
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
//! | in 16 bits | in `f32` | in the widest precision of the operands |
//! |---|---|---|
//! | matmul, convolution and its gradients, attention and its gradients | sums, products and their scans; softmax, norms; `exp`, `expm1`, `ln`, `log1p`, `recip`, `rsqrt`, `tan`, `pow`; Fourier transforms; indexed writes that add or multiply; quantization; collectives; custom ops | everything else: arithmetic, comparisons, selection, `tanh`, `erf`, views, minimum and maximum, sorting, indexed reads, pooling, resizing |
//!
//! Losses, norms and statistics composed of these ops are `f32` because their sums and logarithms are.
//!
//! * A plain number with 16-bit tensors keeps its own precision. If 16 bits cannot represent it, the op is computed in
//!   `f32` and rounded once. If it is out of their range (`-1e9` with `f16`), or the op is `min` or `max`, whose result
//!   may be the number, the result stays `f32`.
//! * [`cast`](kiln_ir::Op::Cast) returns exactly the requested dtype, even `f32`.
//! * Matmuls of [8-bit floats](kiln_ir::Op::MatMulFloat8) whose result the program sees as `f32` are stored in 16 bits.
//! * A custom op that is an [expression](kiln_ir::CustomOp::is_expression) runs as the ops of its expansion, each by
//!   its own rule. If the op [matches the precision](kiln_ir::CustomOp::match_precision) of an operand, its results are
//!   in 16 bits if that operand is. An example is batch normalization, which computes in `f32`, between two
//!   convolutions.
//! * The cast of a value to 16 bits is cached with the value. A parameter is cast once in each step, and the cast is
//!   freed when the optimizer replaces the parameter. Casts to `f32` are not cached: a fusion layer below this one
//!   fuses them into the ops that read them.
//! * An autodiff layer above saves only the 16-bit copy of a matmul's operand, which the gradient reads
//!   ([`Engine::saved_for_backward`](kiln_ir::Engine::saved_for_backward)). Gradients of its leaves are cast to `f32`
//!   ([`Engine::mixes_precision`](kiln_ir::Engine::mixes_precision)).
//!
//! Order of layers: automatic differentiation above, fusion below. In `f16` gradients may underflow: scale the loss
//! (`LossScaler` in `kiln-optim`).
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
