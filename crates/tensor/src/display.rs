//! Pretty printing of tensors.

use crate::{AnyTensor, Backend, Kind, Tensor};
use core::fmt;

/// Prints elements, shape, dtype and device. Waits for the device; an error of the computation is printed in place of
/// the elements.
impl<B: Backend, const D: usize, K: Kind> fmt::Display for Tensor<B, D, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_any().fmt(f)
    }
}

impl fmt::Display for AnyTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_data() {
            Ok(data) => data.fmt(f)?,
            Err(error) => write!(f, "({error})")?,
        }
        write!(f, " {}, {:?}", self.ty(), self.stack())
    }
}
