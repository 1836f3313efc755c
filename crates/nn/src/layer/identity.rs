//! The identity.

use crate::ForwardModule;
use crate::module::plain::unit_modules;

unit_modules! {
    /// The identity: returns its input. It takes the place of an optional layer.
    Identity;
}

impl Identity {
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
