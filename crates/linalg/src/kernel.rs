//! Host kernels for a single matrix.

pub(crate) mod eigen;
pub(crate) mod exp;
pub(crate) mod factor;
pub(crate) mod ldl;
pub(crate) mod lu;
