//! Modules of settings only.

/// Defines a module whose fields are settings, its configuration with the same fields, and `init`.
///
/// ```text
/// plain_module! {
///     /// Docs of the module.
///     LpPool2d LpPool2dConfig {
///         /// Docs of a required setting.
///         norm_type: f64,
///         kernel_size: [usize; 2],
///     }
///     stride 2 {
///         /// Docs of a setting. Default: false.
///         ceil_mode: bool = false,
///     }
/// }
/// ```
///
/// * `padding: PaddingConfig2d = PaddingConfig2d::Valid => [into = PaddingConfig2d]` has more options of `#[config]`.
/// * `stride N { .. }` adds a stride of N dims, which is the `kernel_size` by default, and fields after it.
/// * `init |config| { .. }` checks the settings.
macro_rules! plain_module {
    (
        $(#[$meta:meta])*
        $name:ident
        $(#[$config_meta:meta])*
        $config:ident {
            $($(#[$about:meta])* $field:ident: $ty:ty $(= $default:expr)? $(=> [$($option:tt)*])?,)*
        }
        $(stride $axes:literal {
            $($(#[$later_about:meta])* $later:ident: $later_ty:ty = $later_default:expr $(=> [$($later_option:tt)*])?,)*
        })?
        $(init $(#[$init_meta:meta])* |$settings:ident| $check:block)?
    ) => {
        #[doc = concat!("Settings of [`", stringify!($name), "`].")]
        $(#[$config_meta])*
        #[derive($crate::Config, Clone, Debug, PartialEq)]
        pub struct $config {
            $(
                $(#[$about])*
                $(#[config(default = $default)])?
                $(#[config($($option)*)])?
                pub $field: $ty,
            )*
            $(
                /// Stride. Default (`None`): the window size.
                pub stride: Option<[usize; $axes]>,
                $(
                    $(#[$later_about])*
                    #[config(default = $later_default)]
                    $(#[config($($later_option)*)])?
                    pub $later: $later_ty,
                )*
            )?
        }

        $(#[$meta])*
        #[derive($crate::Module, Clone, Debug)]
        pub struct $name {
            $(
                $(#[$about])*
                #[module(attribute)]
                pub $field: $ty,
            )*
            $(
                /// Stride.
                #[module(attribute)]
                pub stride: [usize; $axes],
                $(
                    $(#[$later_about])*
                    #[module(attribute)]
                    pub $later: $later_ty,
                )*
            )?
        }

        impl $config {
            /// Returns the module with these settings.
            $($(#[$init_meta])*)?
            pub fn init(&self) -> $name {
                $(
                    let $settings = self;
                    $check
                )?
                $name {
                    $($field: Clone::clone(&self.$field),)*
                    $(
                        stride: self.stride.unwrap_or(self.kernel_size),
                        $($later: Clone::clone(&self.$later),)*
                    )?
                }
            }

            $(
                /// Sets the stride: `with_stride(Some(strides))` under the name that Burn uses.
                #[must_use]
                pub fn with_strides(self, strides: [usize; $axes]) -> Self {
                    self.with_stride(Some(strides))
                }
            )?
        }
    };
}

/// Implements `Default` by the defaults of a configuration.
macro_rules! default_modules {
    ($($name:ident $config:ident;)*) => {$(
        impl Default for $name {
            fn default() -> $name {
                $config::new().init()
            }
        }
    )*};
}

/// Defines modules without settings.
macro_rules! unit_modules {
    ($($(#[$meta:meta])* $name:ident;)*) => {$(
        $(#[$meta])*
        #[derive($crate::Module, Clone, Copy, Debug, Default)]
        pub struct $name;

        impl $name {
            /// Returns the module.
            pub fn new() -> $name {
                $name
            }
        }
    )*};
}

pub(crate) use {default_modules, plain_module, unit_modules};
