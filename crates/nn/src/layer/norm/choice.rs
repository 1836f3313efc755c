//! A normalisation that is chosen by a configuration.

use super::*;
use crate::module::forward::forward_modules;
use crate::{Config, Identity, Module};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor};

/// Defines both enums and their conversions. Each variant holds a layer or its configuration; `$features` is the
/// configuration's field with the number of features.
macro_rules! choices {
    ($($variant:ident $layer:ident $config:ident $features:ident;)*) => {
        /// Settings of a [`Normalization`]: one kind of layer for all places of a network, with the number of features
        /// set at each by [`with_num_features`](NormalizationConfig::with_num_features).
        ///
        /// ```
        /// use kiln_backends::Flex;
        /// use kiln_nn::{BatchNormConfig, Normalization, NormalizationConfig};
        ///
        /// let norm: NormalizationConfig = BatchNormConfig::new(0).with_momentum(0.01).into();
        /// let device = Default::default();
        /// let layers = [16, 32].map(|width| norm.clone().with_num_features(width).init::<Flex>(&device));
        /// assert_eq!(layers.map(|layer| layer.num_features()), [16, 32]);
        /// ```
        #[derive(Config, Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum NormalizationConfig {
            /// [`Identity`]: no normalisation.
            Identity,
            $(#[doc = concat!("[`", stringify!($layer), "`].")] $variant($config),)*
        }

        /// A normalisation layer of a type that is chosen at run time.
        // `super::` gives the derive a token of this macro, whose names it can see.
        #[derive(Module, Clone, Debug)]
        #[non_exhaustive]
        pub enum Normalization<B: Backend = Dyn> {
            /// [`Identity`]: no normalisation.
            Identity(Identity),
            $(#[doc = concat!("[`", stringify!($layer), "`].")] $variant(super::$layer<B>),)*
        }

        impl NormalizationConfig {
            /// Returns the layer on a device.
            ///
            /// # Panics
            /// When the settings of the layer are not valid.
            #[track_caller]
            pub fn init<B: Backend>(&self, device: &B::Device) -> Normalization<B> {
                match self {
                    NormalizationConfig::Identity => Normalization::Identity(Identity::new()),
                    $(NormalizationConfig::$variant(config) => Normalization::$variant(config.init(device)),)*
                }
            }

            /// Sets the number of features: channels, or the length of the last dimension for `Layer` and `Rms`.
            #[must_use]
            pub fn with_num_features(self, num_features: usize) -> Self {
                match self {
                    NormalizationConfig::Identity => NormalizationConfig::Identity,
                    $(NormalizationConfig::$variant(config) => {
                        NormalizationConfig::$variant($config { $features: num_features, ..config })
                    })*
                }
            }

            /// Returns the number of features; 0 for `Identity`.
            pub fn num_features(&self) -> usize {
                match self {
                    NormalizationConfig::Identity => 0,
                    $(NormalizationConfig::$variant(config) => config.$features,)*
                }
            }
        }

        impl<B: Backend> Normalization<B> {
            /// Normalises the input; the output has the same shape.
            ///
            /// # Panics
            /// When the layer does not accept the shape.
            #[track_caller]
            pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
                match self {
                    Normalization::Identity(_) => x,
                    $(Normalization::$variant(layer) => layer.forward(x),)*
                }
            }
        }

        impl<B: Backend> From<Identity> for Normalization<B> {
            fn from(layer: Identity) -> Self {
                Normalization::Identity(layer)
            }
        }

        $(impl<B: Backend> From<$layer<B>> for Normalization<B> {
            fn from(layer: $layer<B>) -> Self {
                Normalization::$variant(layer)
            }
        }

        impl From<$config> for NormalizationConfig {
            fn from(config: $config) -> Self {
                NormalizationConfig::$variant(config)
            }
        })*
    };
}

choices! {
    Batch BatchNorm BatchNormConfig num_features;
    Group GroupNorm GroupNormConfig num_channels;
    Instance InstanceNorm InstanceNormConfig num_channels;
    Layer LayerNorm LayerNormConfig d_model;
    Rms RmsNorm RmsNormConfig d_model;
}

impl<B: Backend> Normalization<B> {
    /// Returns the number of features; 0 for `Identity`, and for layer normalisation without weight and bias.
    pub fn num_features(&self) -> usize {
        match self {
            Normalization::Identity(_) => 0,
            Normalization::Batch(norm) => norm.num_features,
            Normalization::Group(norm) => norm.num_channels,
            Normalization::Instance(norm) => norm.num_channels,
            Normalization::Layer(norm) => {
                norm.weight.as_ref().or(norm.bias.as_ref()).map_or(0, |parameter| parameter.dims()[0])
            }
            Normalization::Rms(norm) => norm.weight.dims()[0],
        }
    }
}

forward_modules! {
    Normalization<B>;
}
