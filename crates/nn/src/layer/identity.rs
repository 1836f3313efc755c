//! The identity.

use crate::{ForwardModule, Module};

/// The identity: returns its input. It takes the place of an optional layer.
#[derive(Module, Clone, Copy, Debug, Default)]
pub struct Identity;

impl Identity {
    /// Returns the layer.
    pub fn new() -> Identity {
        Identity
    }

    /// Returns the input.
    pub fn forward<X>(&self, x: X) -> X {
        x
    }
}

impl<X> ForwardModule<X> for Identity {
    type Output = X;

    fn forward(&self, x: X) -> X {
        x
    }
}
