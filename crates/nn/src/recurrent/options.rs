//! Options of one step, and the configurations that contain them.

use crate::ActivationConfig;

/// Defines a kind of recurrent module: the options of one step, and the configurations of the module of layers, of that
/// with two directions and of the cell. Fields of a block behind a configuration are of that configuration only.
macro_rules! recurrent_kind {
    (
        $(#[$doc:meta])*
        $options:ident { $($(#[$about:meta])* $field:ident: $ty:ty = $default:expr,)* }
        $module:ident $config:ident { $($(#[$layers_about:meta])* $layers_field:ident: $layers_ty:ty,)* }
        $two:ident $two_config:ident
        $cell:ident $cell_config:ident
        $panics:literal
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $options {
            $($(#[$about])* pub $field: $ty,)*
        }

        impl Default for $options {
            fn default() -> $options {
                $options { $($field: $default,)* }
            }
        }

        /// Layer tables show only options that are not the defaults.
        impl $crate::Module for $options {
            fn visit(&self, path: &mut $crate::Path, visitor: &mut dyn $crate::Visitor) {
                let default = $options::default();
                $(if self.$field != default.$field {
                    path.within(stringify!($field), |path| visitor.attribute(path, &self.$field));
                })*
            }

            fn visit_mut(&mut self, _path: &mut $crate::Path, _visitor: &mut dyn $crate::VisitorMut) {}
        }

        impl<B: Backend> $crate::BackendModule<B> for $options {}

        impl<B: Backend> $crate::ModuleOn<B> for $options {
            type On = $options;

            fn on(
                &self,
                _path: &mut $crate::Path,
                _place: &mut $crate::module::ReplaceParameter<'_>,
            ) -> $options {
                *self
            }
        }

        #[doc = concat!("Settings of [`", stringify!($module), "`].")]
        #[derive($crate::Config, Clone, Debug, PartialEq)]
        pub struct $config {
            /// Number of input features.
            pub d_input: usize,
            /// Number of features of the state.
            pub d_hidden: usize,
            /// Whether to add biases.
            pub bias: bool,
            /// Number of layers. Each layer has the outputs of the one before as inputs. Default: 1.
            #[config(default = 1)]
            pub num_layers: usize,
            /// Whether each layer also runs from the last step to the first, with weights of its own. Default: false.
            #[config(default = false)]
            pub bidirectional: bool,
            $($(#[$layers_about])* pub $layers_field: $layers_ty,)*
            /// The probability of [dropout](crate::Dropout) on the outputs of each layer except the last. Default: 0.
            #[config(default = 0.0)]
            pub dropout: f64,
            /// Whether inputs and outputs are `[batch, length, features]` instead of `[length, batch, features]`.
            /// Default: true (PyTorch: false).
            #[config(default = true)]
            pub batch_first: bool,
            $(
                $(#[$about])*
                #[config(default = $default)]
                pub $field: $ty,
            )*
            /// The initializer of weights and biases. Default: uniform over `±1 / √d_hidden`, as in PyTorch.
            pub initializer: Option<$crate::Initializer>,
        }

        impl $config {
            /// Returns a module with initialized parameters on a device.
            ///
            /// # Panics
            #[doc = concat!(
                "When `num_layers` or `d_hidden` is 0, the probability of dropout is not between 0 and 1", $panics, "."
            )]
            #[track_caller]
            pub fn init<B: Backend>(&self, device: &B::Device) -> $module<B> {
                let options = $options { $($field: self.$field,)* }.checked();
                let settings = LayerSettings {
                    gates: options.gates(),
                    d_input: self.d_input,
                    d_hidden: self.d_hidden,
                    projection: None,
                    bias: self.bias,
                    num_layers: self.num_layers,
                    bidirectional: self.bidirectional,
                    dropout: self.dropout,
                    batch_first: self.batch_first,
                    initializer: self.initializer,
                };
                $(let settings = LayerSettings { $layers_field: self.$layers_field, ..settings };)*
                Recurrent { layers: settings.init(device), options }
            }
        }

        #[doc = concat!("[`", stringify!($module), "`] of two directions, as [`", stringify!($two_config), "`] makes it.")]
        pub type $two<B = Dyn> = $module<B>;

        #[doc = concat!("Settings of [`", stringify!($two), "`]: those of [`", stringify!($config), "`] with")]
        /// `bidirectional` and one layer.
        ///
        /// Burn's module has two modules, `forward` and `reverse`. This one has PyTorch's parameters: those of the
        /// reverse direction have the suffix `_reverse`.
        #[derive($crate::Config, Clone, Debug, PartialEq)]
        pub struct $two_config {
            /// Number of input features.
            pub d_input: usize,
            /// Number of features of the state of each direction.
            pub d_hidden: usize,
            /// Whether to add biases.
            pub bias: bool,
            /// Whether inputs and outputs are `[batch, length, features]` instead of `[length, batch, features]`.
            /// Default: true.
            #[config(default = true)]
            pub batch_first: bool,
            $(
                $(#[$about])*
                #[config(default = $default)]
                pub $field: $ty,
            )*
            /// The initializer of weights and biases. Default: uniform over `±1 / √d_hidden`.
            pub initializer: Option<$crate::Initializer>,
        }

        impl $two_config {
            /// Returns a module of two directions with initialized parameters on a device.
            ///
            /// # Panics
            #[doc = concat!("When `d_hidden` is 0", $panics, ".")]
            #[track_caller]
            pub fn init<B: Backend>(&self, device: &B::Device) -> $two<B> {
                let config = $config {
                    bidirectional: true,
                    batch_first: self.batch_first,
                    $($field: self.$field,)*
                    initializer: self.initializer,
                    ..$config::new(self.d_input, self.d_hidden, self.bias)
                };
                config.init(device)
            }
        }

        #[doc = concat!("Settings of [`", stringify!($cell), "`].")]
        #[derive($crate::Config, Clone, Debug, PartialEq)]
        pub struct $cell_config {
            /// Number of input features.
            pub d_input: usize,
            /// Number of features of the state.
            pub d_hidden: usize,
            /// Whether to add biases.
            pub bias: bool,
            $(
                $(#[$about])*
                #[config(default = $default)]
                pub $field: $ty,
            )*
            /// The initializer of weights and biases. Default: uniform over `±1 / √d_hidden`, as in PyTorch.
            pub initializer: Option<$crate::Initializer>,
        }

        impl $cell_config {
            /// Returns a cell with initialized parameters on a device.
            ///
            /// # Panics
            #[doc = concat!("When `d_hidden` is 0", $panics, ".")]
            #[track_caller]
            pub fn init<B: Backend>(&self, device: &B::Device) -> $cell<B> {
                let options = $options { $($field: self.$field,)* }.checked();
                RecurrentCell::new([self.d_input, self.d_hidden], self.bias, self.initializer, options, device)
            }
        }
    };
}

pub(super) use recurrent_kind;

#[track_caller]
pub(super) fn check_clip(module: &str, clip: Option<f64>) {
    if let Some(clip) = clip {
        assert!(clip > 0.0, "[{module}] clip is {clip}, but must be greater than 0");
    }
}

#[track_caller]
pub(super) fn check_elementwise(module: &str, option: &str, activation: ActivationConfig) {
    assert!(
        activation.is_elementwise(),
        "[{module}] {option} is {activation:?}, but must be elementwise, without parameters and randomness"
    );
}
