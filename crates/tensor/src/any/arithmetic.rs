//! Arithmetic of numbers.

use crate::{AnyTensor, Result};
use kiln_ir::Binary;

impl AnyTensor {
    /// `self + other`; broadcasts.
    #[allow(
        clippy::should_implement_trait,
        reason = "operators cannot return a Result as field users expect"
    )]
    pub fn add(self, other: AnyTensor) -> Result<AnyTensor> {
        self.binary(Binary::Add, other)
    }

    /// `self - other`; broadcasts.
    #[allow(
        clippy::should_implement_trait,
        reason = "operators cannot return a Result as field users expect"
    )]
    pub fn sub(self, other: AnyTensor) -> Result<AnyTensor> {
        self.binary(Binary::Sub, other)
    }

    /// `self * other`, element by element; broadcasts.
    #[allow(
        clippy::should_implement_trait,
        reason = "operators cannot return a Result as field users expect"
    )]
    pub fn mul(self, other: AnyTensor) -> Result<AnyTensor> {
        self.binary(Binary::Mul, other)
    }

    /// `self / other`; broadcasts.
    #[allow(
        clippy::should_implement_trait,
        reason = "operators cannot return a Result as field users expect"
    )]
    pub fn div(self, other: AnyTensor) -> Result<AnyTensor> {
        self.binary(Binary::Div, other)
    }
}
