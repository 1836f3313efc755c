//! An activation that is chosen by a configuration.

use super::*;
use crate::module::forward::forward_modules;
use crate::{Config, Module};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor};

/// Defines both enums. Each variant holds the layer of the same name; its configuration is a unit variant, or holds
/// the layer's own configuration.
macro_rules! choices {
    (
        plain { $($plain:ident)* }
        configured { $($configured:ident $config:ident)* }
        on_a_device { $($placed:ident $placed_config:ident)* }
    ) => {
        /// Settings of an [`Activation`].
        ///
        /// ```
        /// use kiln_backends::Flex;
        /// use kiln_nn::{Activation, ActivationConfig, Config, LeakyReluConfig};
        /// use kiln_tensor::Tensor;
        ///
        /// let config: ActivationConfig = LeakyReluConfig::new().with_negative_slope(0.5).into();
        /// assert_eq!(ActivationConfig::from_json(&config.to_json())?, config);
        /// let device = Default::default();
        /// let layer: Activation<Flex> = config.init(&device);
        /// let x = Tensor::from_floats([-2.0, 2.0], &device);
        /// assert_eq!(layer.forward::<1>(x).into_data().to_vec::<f32>(), [-1.0, 2.0]);
        /// # Ok::<(), kiln_nn::ConfigError>(())
        /// ```
        #[derive(Config, Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum ActivationConfig {
            $(#[doc = concat!("[`", stringify!($plain), "`].")] $plain,)*
            /// [`Gelu`].
            Gelu,
            /// [`Gelu`] with the tanh approximation.
            GeluApproximate,
            $(#[doc = concat!("[`", stringify!($configured), "`].")] $configured($config),)*
            $(#[doc = concat!("[`", stringify!($placed), "`].")] $placed($placed_config),)*
        }

        /// An activation layer of a type that is chosen at run time.
        // `super::` gives the derive a token of this macro, whose names it can see.
        #[derive(Module, Clone, Debug)]
        #[non_exhaustive]
        pub enum Activation<B: Backend = Dyn> {
            $(#[doc = concat!("[`", stringify!($plain), "`].")] $plain(super::$plain),)*
            /// [`Gelu`], exact or approximate.
            Gelu(Gelu),
            $(#[doc = concat!("[`", stringify!($configured), "`].")] $configured(super::$configured),)*
            $(#[doc = concat!("[`", stringify!($placed), "`].")] $placed(super::$placed<B>),)*
        }

        impl ActivationConfig {
            /// Returns the layer, with its parameters on a device if it has any.
            ///
            /// # Panics
            /// When the settings of the layer are not valid.
            #[track_caller]
            pub fn init<B: Backend>(&self, device: &B::Device) -> Activation<B> {
                match self {
                    $(ActivationConfig::$plain => Activation::$plain($plain::new()),)*
                    ActivationConfig::Gelu => Activation::Gelu(Gelu::new()),
                    ActivationConfig::GeluApproximate => Activation::Gelu(Gelu::approximate()),
                    $(ActivationConfig::$configured(config) => Activation::$configured(config.init()),)*
                    $(ActivationConfig::$placed(config) => Activation::$placed(config.init(device)),)*
                }
            }
        }

        impl ActivationConfig {
            /// Whether the activation is a function of each element: it has neither parameters nor randomness.
            pub(crate) fn is_elementwise(self) -> bool {
                match self {
                    $(ActivationConfig::$plain => true,)*
                    ActivationConfig::Gelu | ActivationConfig::GeluApproximate => true,
                    $(ActivationConfig::$configured(_) => !matches!(self, ActivationConfig::RRelu(_)),)*
                    $(ActivationConfig::$placed(_) => false,)*
                }
            }

            /// Applies an activation without parameters.
            ///
            /// # Panics
            /// When the activation has parameters.
            #[track_caller]
            pub(crate) fn apply<B: Backend, const D: usize>(self, x: Tensor<B, D>) -> Tensor<B, D> {
                match self {
                    $(ActivationConfig::$plain => $plain::new().forward(x),)*
                    ActivationConfig::Gelu => Gelu::new().forward(x),
                    ActivationConfig::GeluApproximate => Gelu::approximate().forward(x),
                    $(ActivationConfig::$configured(config) => config.init().forward(x),)*
                    $(ActivationConfig::$placed(_) => panic!(
                        "[activation] {} has parameters, but the activation must be elementwise",
                        stringify!($placed)
                    ),)*
                }
            }
        }

        impl<B: Backend> Activation<B> {
            /// Applies the activation. The output has the shape of the input; that of a gated layer has the layer's
            /// number of output features.
            ///
            /// # Panics
            /// When the layer does not accept the shape.
            #[track_caller]
            pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
                match self {
                    $(Activation::$plain(layer) => layer.forward(x),)*
                    Activation::Gelu(layer) => layer.forward(x),
                    $(Activation::$configured(layer) => layer.forward(x),)*
                    $(Activation::$placed(layer) => layer.forward(x),)*
                }
            }
        }

        $(impl<B: Backend> From<$plain> for Activation<B> {
            fn from(layer: $plain) -> Self {
                Activation::$plain(layer)
            }
        })*

        impl<B: Backend> From<Gelu> for Activation<B> {
            fn from(layer: Gelu) -> Self {
                Activation::Gelu(layer)
            }
        }

        $(impl<B: Backend> From<$configured> for Activation<B> {
            fn from(layer: $configured) -> Self {
                Activation::$configured(layer)
            }
        }

        impl From<$config> for ActivationConfig {
            fn from(config: $config) -> Self {
                ActivationConfig::$configured(config)
            }
        })*

        $(impl<B: Backend> From<$placed<B>> for Activation<B> {
            fn from(layer: $placed<B>) -> Self {
                Activation::$placed(layer)
            }
        }

        impl From<$placed_config> for ActivationConfig {
            fn from(config: $placed_config) -> Self {
                ActivationConfig::$placed(config)
            }
        })*
    };
}

choices! {
    plain { Relu Relu6 Silu Tanh Tanhshrink Sigmoid LogSigmoid HardSwish Mish Selu Softsign }
    configured {
        LeakyRelu LeakyReluConfig
        Elu EluConfig
        Celu CeluConfig
        Softplus SoftplusConfig
        HardSigmoid HardSigmoidConfig
        Hardtanh HardtanhConfig
        HardShrink HardShrinkConfig
        SoftShrink SoftShrinkConfig
        Shrink ShrinkConfig
        Threshold ThresholdConfig
        ThresholdedRelu ThresholdedReluConfig
        RRelu RReluConfig
    }
    on_a_device {
        PRelu PReluConfig
        SwiGlu SwiGluConfig
        GeGlu GeGluConfig
        ReGlu ReGluConfig
    }
}

forward_modules! {
    Activation<B>;
}
