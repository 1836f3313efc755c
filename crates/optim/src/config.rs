//! The options and constructors that optimizers share.

use crate::error::{OptimError, Result};
use crate::{ParameterState, StepOptions};
use kiln_nn::{Config, OutOfRange};
use kiln_tensor::AnyTensor;

/// The inputs of a rule's `formula`: those of [`UpdateRule::update`](crate::UpdateRule::update), with the gradient
/// negated if the objective is maximized.
pub(crate) struct Inputs<'a> {
    pub(crate) value: &'a AnyTensor,
    pub(crate) gradient: AnyTensor,
    pub(crate) state: &'a mut ParameterState,
    pub(crate) options: StepOptions,
}

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

/// Declares the configuration of an optimizer and its update rule, whose method `formula` computes the update. `check`
/// is a function that checks the options beyond their ranges. A slot is a constant, its name in states and its
/// [`SlotCode`](crate::SlotCode). `momentum` is the option that the momentum of a group replaces. `rule` contains other
/// methods of the [`UpdateRule`](crate::UpdateRule).
macro_rules! optimizer {
    (
        $(#[$doc:meta])*
        pub struct $config:ident: $optimizer:ident, $rule:ident, $name:literal { $($option:tt)* }
        $(weight_decay = $decay:literal: $decay_doc:literal;)?
        $({ $($later:tt)* })?
        $(maximize = $maximize:literal;)?
        $(check = $check:expr;)?
        $(slots = { $($slot:ident $(= $slot_name:literal)?: $code:ident),+ $(,)? };)?
        $(momentum = $momentum:ident;)?
        $(rule { $($method:item)+ })?
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

            $(
                /// Returns the momentum of a step.
                fn momentum(&self, options: $crate::StepOptions) -> f64 {
                    options.momentum.unwrap_or(self.options.$momentum)
                }
            )?
        }

        $($($(const $slot: &str = $slot_name;)?)+)?

        impl $crate::UpdateRule for $rule {
            fn name(&self) -> &'static str {
                Self::NAME
            }

            $(
                fn slots(&self) -> &'static [&'static str] {
                    &[$($slot),+]
                }

                fn slot_code(&self, slot: &str) -> $crate::SlotCode {
                    match slot {
                        $($slot => $crate::SlotCode::$code,)+
                        _ => $crate::SlotCode::Signed,
                    }
                }
            )?

            $(
                fn weight_decay(&self) -> f64 {
                    const _: f64 = $decay;
                    self.options.weight_decay
                }
            )?

            $(
                fn has_momentum(&self) -> bool {
                    let _ = self.options.$momentum;
                    true
                }
            )?

            $($($method)+)?

            fn update(
                &self,
                value: &kiln_tensor::AnyTensor,
                gradient: kiln_tensor::AnyTensor,
                state: &mut $crate::ParameterState,
                options: $crate::StepOptions,
            ) -> $crate::Result<$crate::Update> {
                $(
                    const _: bool = $maximize;
                    let gradient = if self.options.maximize { gradient.neg()? } else { gradient };
                )?
                self.formula($crate::config::Inputs { value, gradient, state, options })
            }
        }
    };
}

pub(crate) use {init, optimizer, optimizer_options};
