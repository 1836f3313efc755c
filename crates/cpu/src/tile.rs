//! The tile machine: an interpreter of fused regions as lists of steps over tiles that stay in the L1 cache.
//!
//! A [kernel](kiln_kernel::Kernel) describes one loop nest. The [compiler](compile) splits its index space into tiles
//! of some hundred elements ([`layout`]). It turns each scalar instruction into a step over a tile: a loop from the
//! tables of [`kernels`](crate::kernels), compiled for the processor's vectors, with the addresses of its operands.
//! Steps read contiguous operands and write results in place; only other operands are copied into a register first
//! ([`space`]). Registers are as long as a tile, and share memory after the last use of their values ([`registers`]).
//!
//! Values that are constant along a row are computed once per row, and uniform values once per launch. Reductions
//! ([`fold`]) split the steps into stages: softmax has three, with the row in cache all the time.
//!
//! [`run`] orders the tiles: in any order for maps, row by row, part by part of a few long rows, or down the columns.
//! The split depends on the shapes alone, so results do not depend on the number of threads.

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
