//! The options of one step of gated recurrent modules.

use crate::module::ReplaceParameter;
use crate::{ActivationConfig, BackendModule, Module, ModuleOn, Path, Visitor, VisitorMut};
use kiln_tensor::Backend;

/// The options of one step of a [`Gru`](crate::Gru) or [`GruCell`](crate::GruCell), with the names of their
/// configurations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GruOptions {
    /// Whether the reset gate multiplies the product with `W_hn`, as in PyTorch, instead of the hidden state. Default:
    /// true.
    pub reset_after: bool,
    /// The bound of the hidden state: it is clamped to `-clip..=clip` after each step. Default: none.
    pub clip: Option<f64>,
    /// The activation of the reset and update gates. Default: sigmoid.
    pub gate_activation: ActivationConfig,
    /// The activation of the new state. Default: tanh.
    pub hidden_activation: ActivationConfig,
}

impl Default for GruOptions {
    fn default() -> GruOptions {
        GruOptions {
            reset_after: true,
            clip: None,
            gate_activation: ActivationConfig::Sigmoid,
            hidden_activation: ActivationConfig::Tanh,
        }
    }
}

/// The options of one step of an [`Lstm`](crate::Lstm) or [`LstmCell`](crate::LstmCell), with the names of their
/// configurations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LstmOptions {
    /// The bound of the cell state: it is clamped to `-clip..=clip` after each step. Default: none.
    pub clip: Option<f64>,
    /// Whether the forget gate is `1 - i` for the input gate `i`. The weights then have three gates. Default: false.
    pub input_forget: bool,
    /// The activation of the input, forget and output gates. Default: sigmoid.
    pub gate_activation: ActivationConfig,
    /// The activation of the new cell state. Default: tanh.
    pub cell_activation: ActivationConfig,
    /// The activation of the cell state in the hidden state. Default: tanh.
    pub hidden_activation: ActivationConfig,
}

impl Default for LstmOptions {
    fn default() -> LstmOptions {
        LstmOptions {
            clip: None,
            input_forget: false,
            gate_activation: ActivationConfig::Sigmoid,
            cell_activation: ActivationConfig::Tanh,
            hidden_activation: ActivationConfig::Tanh,
        }
    }
}

impl GruOptions {
    /// Returns the options if they are valid.
    #[track_caller]
    pub(super) fn checked(self) -> GruOptions {
        check_clip("gru", self.clip);
        check_elementwise("gru", "gate_activation", self.gate_activation);
        check_elementwise("gru", "hidden_activation", self.hidden_activation);
        self
    }
}

impl LstmOptions {
    /// Returns the options if they are valid.
    #[track_caller]
    pub(super) fn checked(self) -> LstmOptions {
        check_clip("lstm", self.clip);
        check_elementwise("lstm", "gate_activation", self.gate_activation);
        check_elementwise("lstm", "cell_activation", self.cell_activation);
        check_elementwise("lstm", "hidden_activation", self.hidden_activation);
        self
    }

    /// The number of gates in the weights.
    pub(super) fn gates(self) -> usize {
        if self.input_forget { 3 } else { 4 }
    }
}

#[track_caller]
fn check_clip(module: &str, clip: Option<f64>) {
    if let Some(clip) = clip {
        assert!(clip > 0.0, "[{module}] clip is {clip}, but must be greater than 0");
    }
}

#[track_caller]
fn check_elementwise(module: &str, option: &str, activation: ActivationConfig) {
    assert!(
        activation.is_elementwise(),
        "[{module}] {option} is {activation:?}, but must be elementwise, without parameters and randomness"
    );
}

/// Implements the module traits for options. Layer tables show only options that are not the defaults.
macro_rules! step_options {
    ($($name:ident { $($field:ident)* })*) => {$(
        impl Module for $name {
            fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
                let default = $name::default();
                $(if self.$field != default.$field {
                    path.within(stringify!($field), |path| visitor.attribute(path, &self.$field));
                })*
            }

            fn visit_mut(&mut self, _path: &mut Path, _visitor: &mut dyn VisitorMut) {}
        }

        impl<B: Backend> BackendModule<B> for $name {}

        impl<B: Backend> ModuleOn<B> for $name {
            type On = $name;

            fn on(&self, _path: &mut Path, _place: &mut ReplaceParameter<'_>) -> $name {
                *self
            }
        }
    )*};
}

step_options! {
    GruOptions { reset_after clip gate_activation hidden_activation }
    LstmOptions { clip input_forget gate_activation cell_activation hidden_activation }
}
