//! Mixed precision: contractions run in 16 bits, numerically sensitive ops in `f32`.
//!
//! [`Autocast`] is an [`Engine`](kiln_ir::Engine) around another one. Above it every tensor keeps the dtype that the
//! program sees: an `f32` tensor stays `f32`, parameters too, so that optimizers update weights in full precision.
//! Below it the result of a matrix product is a value of 16 bits, and it stays one as long as the ops that follow
//! allow. An op on such values runs in 16 bits; one that needs `f32` casts them first, and so does reading. Tensors of
//! any other dtype (`f64`, integers, and `bf16` or `f16` that a program chose itself) pass through untouched.
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
//! assert_eq!(layer.stored_dtype(product.operand().value().unwrap()), DType::BF16, "what is in memory");
//! let sum = product.sum(&[0, 1]).into_value();
//! assert_eq!(layer.stored_dtype(&sum), DType::F32, "sums need f32");
//! assert_eq!(block_on(layer.read(sum))?.into_vec::<f32>()?, [54.0]);
//! # Ok::<(), kiln_ir::Error>(())
//! ```
//!
//! # Which op runs in which precision
//!
//! [`precision`] is the table; the classes are [`Precision`]'s. It follows
//! [PyTorch's lists for CUDA](https://docs.pytorch.org/docs/stable/amp.html#cuda-op-specific-behavior):
//!
//! | in 16 bits | in `f32` | as the operands are held, the widest counts |
//! |---|---|---|
//! | matrix product, convolution and its gradients, attention and its gradients | sums, products and their scans; softmax, norms; `exp`, `expm1`, `ln`, `log1p`, `recip`, `rsqrt`, `tan`, `pow`; Fourier transforms; writes by index that add or multiply; quantising; collectives; custom ops | everything else: arithmetic, comparisons, selection, `tanh`, `erf`, views, least and greatest, sorting, reads by index, pooling, resizing |
//!
//! Losses, norms and statistics made of these ops are `f32` because their sums and logarithms are.
//!
//! * A plain number beside tensors of 16 bits keeps its own precision: where 16 bits do not hold it, the op is computed in
//!   `f32` and rounded once. If it is outside of their range (`-1e9` beside `f16`), or the op is `min` or `max`, whose result
//!   may be the number, the result stays `f32`.
//! * [`cast`](kiln_ir::Op::Cast) returns exactly the requested dtype, even `f32`.
//! * Products of [8-bit floats](kiln_ir::Op::MatMulFloat8) that the program sees as `f32` are held in 16 bits.
//! * A custom op that is a [name for others](kiln_ir::CustomOp::is_expression) runs as these, each by its own rule. The
//!   results of one that [matches the precision](kiln_ir::CustomOp::match_precision) of an operand are in 16 bits where
//!   that operand is: batch normalisation, which computes in `f32`, between two convolutions.
//! * The cast of a value to 16 bits is made once and cached with the value. A parameter is cast once in each step, and
//!   the cast is freed when the optimizer replaces the parameter. Casts to `f32` are not cached: a fusion layer below
//!   this one makes them part of the ops that read them.
//! * The tape of a layer of automatic differentiation above keeps of an operand of a product only the 16 bits that the
//!   gradient reads ([`Engine::saved_for_backward`](kiln_ir::Engine::saved_for_backward)), and gradients of its leaves are brought to `f32`
//!   ([`Engine::mixes_precision`](kiln_ir::Engine::mixes_precision)).
//!
//! Order of layers: automatic differentiation above, fusion below. In `f16` gradients may vanish: scale the loss
//! (`LossScaler` in `kiln-optim`).
//!
//! The crate is `no_std` (with `alloc`) and free of `unsafe`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod layer;
mod policy;
mod stored;

pub use layer::{Autocast, LowPrecision};
pub use policy::{Precision, precision};
