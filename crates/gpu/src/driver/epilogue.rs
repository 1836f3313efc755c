//! The epilogue of a BLAS matmul: bias and activation, applied before the result is stored.

use super::{DevicePtr, Products};
use core::fmt;
use kiln_ir::Activation;

/// What is done with the elements of products before they are stored: nothing by default.
pub struct Epilogue<M> {
    /// A vector that is added to each row, as long as rows are and of the results' dtype, without gaps.
    pub bias: Option<DevicePtr<M>>,
    /// What comes after that.
    pub activation: Option<Activation>,
}

/// An [`Epilogue`] without its memory: what libraries choose algorithms by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EpilogueForm {
    /// Whether a vector is added to each row.
    pub has_bias: bool,
    /// What comes after that.
    pub activation: Option<Activation>,
}

// Derived, this would ask the same of `M`.
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
    /// Whether products are stored as they are.
    pub fn is_plain(self) -> bool {
        self == EpilogueForm::default()
    }
}

/// As traces have it behind the product: ` + bias, relu`.
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
    /// All memory that is read or written.
    pub fn places(&self) -> impl Iterator<Item = &DevicePtr<M>> {
        let [a, b] = &self.factors;
        let scales = self.float8.iter().flat_map(|float8| &float8.scales);
        [&a.at, &b.at, &self.to].into_iter().chain(&self.epilogue.bias).chain(scales)
    }
}
