//! The tile machine: fused regions as lists of steps over tiles that stay in the first cache.
//!
//! A [kernel](kiln_kernel::Kernel) describes one loop nest. The [compiler](compile) cuts its index space into tiles of
//! some hundred elements ([`layout`]) and turns each scalar instruction into a step over a tile: a loop found in the
//! tables of [`kernels`](crate::kernels), compiled for the processor's vectors, with the addresses of its operands.
//! Steps read contiguous operands and write results in place; only other operands are copied into a register first
//! ([`space`]). Registers are as long as a tile, and share memory once their values are no longer needed
//! ([`registers`]).
//!
//! Values that do not change along a row are computed once per row, those that do not change at all once per launch.
//! Reductions ([`fold`]) cut the steps into stages: softmax has three, with the row in cache all the while.
//!
//! [`run`] orders the tiles: any order for maps, row by row, part by part of a few long rows, or down the columns. How work
//! is cut depends on the shapes alone, and so results do not depend on the number of threads.

mod cache;
mod code;
mod compile;
mod cost;
mod fold;
mod forms;
mod frame;
mod fused;
mod guarded;
mod layout;
mod pairs;
mod registers;
mod run;
mod scan;
mod space;
mod split;
mod stage;
mod stages;
mod weights;

pub(crate) use cache::Cache;
pub(crate) use fused::fused;
