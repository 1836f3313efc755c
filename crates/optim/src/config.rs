//! The constructors that configurations of optimizers share.

/// Implements `init`, `try_init` and `Default` of a configuration with `rule` and `grad_clipping`.
macro_rules! optimizer_config {
    ($config:ident, $optimizer:ident) => {
        impl $config {
            /// Returns the optimizer.
            ///
            /// # Panics
            /// When an option is out of range; [`try_init`](Self::try_init) returns the error instead.
            #[track_caller]
            pub fn init(&self) -> $optimizer {
                self.try_init().unwrap_or_else(|error| panic!("{error}"))
            }

            /// Returns the optimizer, or the error of an invalid option.
            ///
            /// # Errors
            /// When an option is out of range.
            pub fn try_init(&self) -> $crate::Result<$optimizer> {
                $crate::PerParameter::new(self.rule()?).with_grad_clipping(self.grad_clipping)
            }
        }

        impl Default for $config {
            fn default() -> $config {
                $config::new()
            }
        }
    };
}

pub(crate) use optimizer_config;
