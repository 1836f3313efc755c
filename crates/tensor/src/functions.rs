//! Functions by family.

pub mod activation;
pub mod loss;
pub mod module;
