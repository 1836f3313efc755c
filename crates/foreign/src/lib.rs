//! Kiln's engine over the tensors of another library, such as candle or LibTorch.
//!
//! [`Foreign`] is the [`Engine`](kiln_ir::Engine) of a [`Library`]: its values are the library's tensors. A tour:
//!
//! * **Library.** [`Library`] opens a device and moves elements. The traits [`View`], [`Elementwise`], [`Reduce`], [`Index`],
//!   [`Contraction`] and [`Composite`] are its kernels, one method for each op.
//! * **Ops.** A kernel returns [`Native`]: tensors, or `None` where the library's results would differ from Kiln's. The CPU engine
//!   then runs the op on copies in host memory. [`Expand`](kiln_ir::Expand), which every stack puts around the engine, writes ops
//!   that are neither in [`Library::NATIVE`] nor in [`Library::ON_HOST`] in simpler ops.
//! * **Precision.** Elementwise functions, reductions, convolutions, pooling and composites take 16-bit floats as `f32`; the engine
//!   rounds the result once.
//! * **Errors.** An error of the library poisons the results, with the op, the operands and the library's message.
//!
//! The crates `kiln-candle` and `kiln-torch` have two examples of a library.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod call;
mod dispatch;
mod engine;
mod index;
mod library;

pub use call::Call;
pub use dispatch::{binary, entry};
pub use engine::Foreign;
pub use library::{
    Composite, Contraction, Elementwise, Index, Kernels, Library, NATIVE, Native, Outcome, Reduce, View,
};
