//! The options and constructors that optimizers share.

use crate::error::{OptimError, Result};
use kiln_nn::{Config, OutOfRange};

/// Checks the ranges that the options of a configuration declare.
pub(crate) fn check_ranges(owner: &'static str, config: &impl Config) -> Result<()> {
    config.check_ranges().map_err(|OutOfRange { option, value, expected }| OptimError::InvalidOption {
        owner,
        option,
        value,
        requirement: expected,
    })
}

/// Implements `init` of a configuration with `try_init`.
macro_rules! init {
    ($config:ident, $product:ident, $noun:literal) => {
        impl $config {
            #[doc = concat!("Returns the ", $noun, ".")]
            ///
            /// # Panics
            /// When an option is out of range; [`try_init`](Self::try_init) returns the error instead.
            #[track_caller]
            pub fn init(&self) -> $product {
                self.try_init().unwrap_or_else(|error| panic!("{error}"))
            }
        }
    };
}

/// Declares the configuration of an optimizer, which has a method `rule`: its own options and those that optimizers
/// share.
macro_rules! optimizer_options {
    (
        $(#[$doc:meta])*
        pub struct $config:ident: $optimizer:ident { $($option:tt)* }
        $(weight_decay = $decay:literal: $decay_doc:literal;)?
        $({ $($later:tt)* })?
        $(maximize = $maximize:literal;)?
    ) => {
        $(#[$doc])*
        #[derive(kiln_nn::Config, Clone, Debug, PartialEq)]
        pub struct $config {
            $($option)*
            $(
                #[doc = concat!($decay_doc, ". Default: ", $decay, ".")]
                #[config(range = "[0, inf)", into = crate::decay::WeightDecayConfig, default = $decay)]
                pub weight_decay: f64,
            )?
            $($($later)*)?
            $(
                /// Whether to maximize the objective instead of minimizing it. Default: no.
                #[config(default = $maximize)]
                pub maximize: bool,
            )?
            /// Gradient clipping before the update. Default: none.
            pub grad_clipping: Option<crate::GradientClipping>,
        }

        impl $config {
            /// Returns the optimizer, or the error of an invalid option.
            ///
            /// # Errors
            /// When an option is out of range.
            pub fn try_init(&self) -> $crate::Result<$optimizer> {
                $crate::PerParameter::new(self.rule()?).with_grad_clipping(self.grad_clipping)
            }
        }

        $crate::config::init!($config, $optimizer, "optimizer");

        impl Default for $config {
            fn default() -> $config {
                $config::new()
            }
        }
    };
}

/// Declares the configuration of an optimizer and its update rule. `check` is a function that checks the options beyond
/// their ranges.
macro_rules! optimizer {
    (
        $(#[$doc:meta])*
        pub struct $config:ident: $optimizer:ident, $rule:ident, $name:literal { $($option:tt)* }
        $(weight_decay = $decay:literal: $decay_doc:literal;)?
        $({ $($later:tt)* })?
        $(maximize = $maximize:literal;)?
        $(check = $check:expr;)?
    ) => {
        $crate::config::optimizer_options! {
            $(#[$doc])*
            pub struct $config: $optimizer { $($option)* }
            $(weight_decay = $decay: $decay_doc;)?
            $({ $($later)* })?
            $(maximize = $maximize;)?
        }

        impl $config {
            /// Returns the update rule, for a [`ParameterGroup`](crate::ParameterGroup).
            ///
            /// # Errors
            /// When an option is out of range.
            pub fn rule(&self) -> $crate::Result<$rule> {
                $crate::config::check_ranges($rule::NAME, self)?;
                $(
                    let check: fn(&$config) -> $crate::Result<()> = $check;
                    check(self)?;
                )?
                Ok($rule { options: self.clone() })
            }
        }

        #[doc = concat!("The update rule of [`", stringify!($optimizer), "`].")]
        #[derive(Clone, Debug)]
        pub struct $rule {
            options: $config,
        }

        impl $rule {
            const NAME: &'static str = $name;
        }
    };
}

/// The methods of an [`UpdateRule`](crate::UpdateRule) that return the name and the weight decay.
macro_rules! name_and_weight_decay {
    () => {
        fn name(&self) -> &'static str {
            Self::NAME
        }

        fn weight_decay(&self) -> f64 {
            self.options.weight_decay
        }
    };
}

pub(crate) use {init, name_and_weight_decay, optimizer, optimizer_options};
