//! Functions by family.

pub mod activation;
pub mod blocks;
pub mod fft;
pub mod float8;
pub mod grid;
pub mod linalg;
pub mod loss;
pub mod module;
pub mod quantize;
pub mod signal;
pub mod stats;
mod table;
