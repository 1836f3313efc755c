//! Training and evaluation mode.

use super::{BackendModule, Module, ModuleOn, Path, ReplaceParameter, Visitor, VisitorMut};
use kiln_tensor::{Backend, Stack};
use serde::{Deserialize, Serialize};

/// Whether a module such as [`Dropout`](crate::Dropout) or [`BatchNorm`](crate::BatchNorm) is in training mode.
///
/// A module whose behaviour depends on it has a field of this type, which [`Module::train`], [`Module::eval`] and
/// [`Module::with_mode`] set in a whole model or in a part of it. The mode is independent of automatic differentiation
/// and of [freezing](Module::freeze): a frozen backbone may train its dropout, and a model in evaluation mode may be
/// differentiated.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{Dropout, DropoutConfig, Module};
/// use kiln_tensor::Tensor;
///
/// let x = Tensor::<Flex, 1>::ones([1000], &Default::default());
/// let dropout = DropoutConfig::new(0.5).init();
/// // `Flex` has no automatic differentiation: the default is evaluation mode.
/// assert_eq!(dropout.forward(x.clone()).sum().into_scalar::<f32>(), 1000.0);
/// // Monte Carlo dropout: random at inference too.
/// let dropout = dropout.train();
/// assert_eq!(dropout.forward(x).min().into_scalar::<f32>(), 0.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Training mode on a backend with automatic differentiation (in any of its layers), evaluation mode on others.
    #[default]
    Auto,
    /// Training mode on every backend.
    Train,
    /// Evaluation mode on every backend.
    Eval,
}

impl Mode {
    /// Returns whether a module in this mode trains, for an input on this stack.
    pub fn is_training(self, stack: &Stack) -> bool {
        match self {
            Mode::Auto => stack.is_differentiated(),
            Mode::Train => true,
            Mode::Eval => false,
        }
    }
}

impl Module for Mode {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        visitor.mode(path, *self);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        visitor.mode(path, self);
    }
}

impl<B: Backend> BackendModule<B> for Mode {}

impl<B: Backend> ModuleOn<B> for Mode {
    type On = Mode;
    fn on(&self, _path: &mut Path, _place: &mut ReplaceParameter<'_>) -> Mode {
        *self
    }
}

/// Sets the mode of all modules inside `module`: [`Module::with_mode`] for modules behind a reference.
pub fn set_mode(module: &mut dyn Module, mode: Mode) {
    struct Setter(Mode);
    impl VisitorMut for Setter {
        fn mode(&mut self, _path: &Path, mode: &mut Mode) {
            *mode = self.0;
        }

        fn parameter(&mut self, _path: &Path, parameter: super::Parameter) -> super::Parameter {
            parameter
        }
    }
    module.visit_mut(&mut Path::new(), &mut Setter(mode));
}
