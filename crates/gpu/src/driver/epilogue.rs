//! The epilogue of a BLAS matmul: bias and activation, applied before the result is stored.

use super::{DevicePtr, Products};
use core::fmt;
use kiln_ir::Activation;

/// The epilogue of a matmul, applied before elements are stored. Default: none.
pub struct Epilogue<M> {
    /// A bias vector added to each row: one element per column, of the results' dtype, contiguous.
    pub bias: Option<DevicePtr<M>>,
    /// The activation after the bias.
    pub activation: Option<Activation>,
}

/// An [`Epilogue`] without its memory: the key by which libraries choose algorithms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EpilogueForm {
    /// Whether there is a bias vector.
    pub has_bias: bool,
    /// The activation after the bias.
    pub activation: Option<Activation>,
}

// A derived impl would require `M: Default`.
impl<M> Default for Epilogue<M> {
    fn default() -> Self {
        Epilogue { bias: None, activation: None }
    }
}

impl<M> Epilogue<M> {
    /// The epilogue without its memory.
    pub fn form(&self) -> EpilogueForm {
        EpilogueForm { has_bias: self.bias.is_some(), activation: self.activation }
    }
}

impl EpilogueForm {
    /// Whether there is neither a bias nor an activation.
    pub fn is_plain(self) -> bool {
        self == EpilogueForm::default()
    }
}

/// The text in traces: ` + bias, relu`.
impl fmt::Display for EpilogueForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_bias {
            f.write_str(" + bias")?;
        }
        match self.activation {
            Some(Activation::Relu) => f.write_str(", relu"),
            Some(Activation::Gelu) => f.write_str(", gelu"),
            None => Ok(()),
        }
    }
}

impl<M> Products<M> {
    /// All device pointers that are read or written.
    pub fn places(&self) -> impl Iterator<Item = &DevicePtr<M>> {
        let [a, b] = &self.factors;
        let scales = self.float8.iter().flat_map(|float8| &float8.scales);
        [&a.at, &b.at, &self.to].into_iter().chain(&self.epilogue.bias).chain(scales)
    }
}
