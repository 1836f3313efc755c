//! Vector and matrix products, and norms.

mod add_product;
mod norm;
mod product;

pub use norm::Norm;
pub use product::TensordotAxes;
