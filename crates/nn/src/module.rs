//! The module trait: one object-safe traversal over parameters with dotted names.

mod containers;
mod functional;
mod gradients;
mod parameter;
mod path;
mod table;
mod typed;
mod update_lock;
mod visitors;

pub use functional::{NamedTensors, buffers, trainable_parameters, with_parameters};
pub use gradients::GradientsParams;
pub use parameter::{Param, ParamId, RunningState};
pub use path::Path;
pub use table::LayerTable;
pub use typed::{AutodiffModule, BackendModule, ModuleOn, ReplaceParameter};

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{Debug, Display};
use kiln_tensor::{AnyTensor, Stack};

/// A part of a network: owns parameters and other modules. Derive it with
/// [`#[derive(Module)]`](macro@crate::Module).
///
/// An implementation traverses the parameters of the type. The trait has no type parameters, so it is object-safe:
/// optimizers, files and tables work on `&mut dyn Module`. A traversal visits the parameters in the order of the
/// fields, each with the dotted path of its field names: `conv1.weight`, `layers.0.bias`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a module",
    note = "derive `Module` for a type with parameters, wrap a tensor in `Param`, and mark a field that is plain data \
            `#[module(skip)]`, or `#[module(attribute)]` to show it in the layer table"
)]
pub trait Module: Debug + Send {
    /// Shows each parameter to the visitor. `path` is the path of this module, and is the same afterwards.
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor);

    /// Passes each parameter through the visitor. `path` is the path of this module, and is the same afterwards.
    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut);

    /// Every parameter with its dotted name, in the order of the traversal. The values are as
    /// [`Visitor::parameter`] receives them.
    fn named_parameters(&self) -> Vec<(String, Parameter)>
    where
        Self: Sized,
    {
        visitors::collect(self)
    }

    /// The number of weights: the elements of all parameters but buffers.
    fn num_parameters(&self) -> usize
    where
        Self: Sized,
    {
        visitors::count(self, |parameter| !parameter.is_buffer())
    }

    /// The number of weights that optimizers change.
    fn num_trainable_parameters(&self) -> usize
    where
        Self: Sized,
    {
        visitors::count(self, Parameter::is_trainable)
    }

    /// Passes every parameter through a function of its dotted name and itself; see [`VisitorMut::parameter`].
    fn map_parameters(&mut self, mut f: impl FnMut(&Path, Parameter) -> Parameter)
    where
        Self: Sized,
    {
        self.visit_mut(&mut Path::new(), &mut visitors::Mapper(&mut f));
    }

    /// Keeps optimizers from changing the weights, and spares the computation of their gradients.
    #[must_use]
    fn freeze(self) -> Self
    where
        Self: Sized,
    {
        visitors::with_role(self, ParameterRole::Frozen)
    }

    /// Lets optimizers change the weights again.
    #[must_use]
    fn unfreeze(self) -> Self
    where
        Self: Sized,
    {
        visitors::with_role(self, ParameterRole::Trainable)
    }

    /// The same as [`freeze`](Module::freeze): nothing computed by the module is tracked on account of its weights.
    #[must_use]
    fn no_grad(self) -> Self
    where
        Self: Sized,
    {
        self.freeze()
    }

    /// The table of layers with their weights, as `Display` of a derived module prints it.
    fn layer_table(&self) -> LayerTable
    where
        Self: Sized,
    {
        LayerTable::new(self)
    }
}

/// One parameter, as visitors see it.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// The id. It does not change with the value; a clone of a module has the same ids.
    pub id: ParamId,
    /// The tensor. Where it is tracked by automatic differentiation, and which backend it is on, is said by
    /// the visitor's method.
    pub value: AnyTensor,
    /// The role of the parameter.
    pub role: ParameterRole,
    /// The stack of engines that the module runs on. A [`VisitorMut`] that returns another moves the
    /// parameter there.
    pub stack: Stack,
}

/// The role of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterRole {
    /// A weight that optimizers change.
    Trainable,
    /// A weight that does not change until it is unfrozen.
    Frozen,
    /// State that no optimizer changes, such as running statistics.
    Buffer,
}

impl Parameter {
    /// Whether optimizers change it.
    pub fn is_trainable(&self) -> bool {
        self.role == ParameterRole::Trainable
    }

    /// Whether it is state and no weight.
    pub fn is_buffer(&self) -> bool {
        self.role == ParameterRole::Buffer
    }

    /// The same parameter with its value passed through a function.
    #[must_use]
    pub fn map(self, f: impl FnOnce(AnyTensor) -> AnyTensor) -> Parameter {
        Parameter { value: f(self.value), ..self }
    }
}

/// Reads the parameters of a module.
pub trait Visitor {
    /// A module begins. `name` is the name of its type.
    fn enter(&mut self, _path: &Path, _name: &str) {}

    /// The module that began last ends.
    fn exit(&mut self, _path: &Path, _name: &str) {}

    /// A field of plain data that describes the module, such as a stride. Tables show it.
    fn attribute(&mut self, _path: &Path, _value: &dyn Debug) {}

    /// Visits a parameter. Its value is on the module's own backend: with automatic differentiation it is tracked, and
    /// results computed from it can be differentiated.
    fn parameter(&mut self, path: &Path, parameter: Parameter);
}

/// Changes the parameters of a module.
pub trait VisitorMut {
    /// A module begins. `name` is the name of its type.
    fn enter(&mut self, _path: &Path, _name: &str) {}

    /// The module that began last ends.
    fn exit(&mut self, _path: &Path, _name: &str) {}

    /// Takes a parameter and returns its replacement.
    ///
    /// The value was moved out of the module, so that a visitor that drops or transforms it lets the engine reuse its
    /// memory. It is below automatic differentiation, where gradients are too, and is best returned from there: the
    /// module puts it under the layer of the returned stack, as a fresh leaf that requires a gradient if the returned
    /// role is [`Trainable`](ParameterRole::Trainable). A value from elsewhere is copied to that stack.
    ///
    /// The module keeps its id, whatever the returned one. A visitor that fails returns the parameter
    /// unchanged and stores the error itself.
    ///
    /// # Panics
    /// The module panics when the returned value has another shape, or is of another kind (float, integer,
    /// `bool`), or cannot be copied to the stack. The dtype may change within the kind.
    fn parameter(&mut self, path: &Path, parameter: Parameter) -> Parameter;
}

/// Implements `Display` of derived modules: prints the layer table.
#[doc(hidden)]
pub fn display(module: &dyn Module, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
    Display::fmt(&LayerTable::new(module), f)
}
