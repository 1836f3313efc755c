//! Indexing by integers and masks.
//!
//! Indices are in `0..length`: negative indices do not count from the end. An index out of range is an error of the
//! result, reported when the result is read.

mod mask;
mod nd;
mod read;
mod reduce;
mod search;
mod strided;
mod write;

use kiln_ir::DType;
pub use write::ScatterReduction;

/// The dtype of indices below a count. A device may lack integers of 64 bits.
pub(crate) fn index_dtype(count: usize) -> DType {
    if i32::try_from(count).is_ok() { DType::I32 } else { DType::I64 }
}
