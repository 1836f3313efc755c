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

/// A module: a part of a network that owns parameters and other modules. Derive it with
/// [`#[derive(Module)]`](macro@crate::Module).
///
/// An implementation traverses the parameters of the type. The trait has no type parameters, so it is object-safe:
/// optimizers, files and tables work on `&mut dyn Module`. A traversal visits the parameters in field order. Each has
/// the dotted path of its field names: `conv1.weight`, `layers.0.bias`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a module",
    note = "derive `Module` for a type with parameters, wrap a tensor in `Param`, and mark a field that is plain data \
            `#[module(skip)]`, or `#[module(attribute)]` to show it in the layer table"
)]
pub trait Module: Debug + Send {
    /// Visits each parameter. `path` is the path of this module; it is unchanged when the call returns.
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor);

    /// Passes each parameter through the visitor and stores the result. `path` is the path of this module; it is
    /// unchanged when the call returns.
    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut);

    /// Returns all parameters with their dotted names, in traversal order. [`Visitor::parameter`] defines their values.
    fn named_parameters(&self) -> Vec<(String, Parameter)>
    where
        Self: Sized,
    {
        visitors::collect(self)
    }

    /// Returns the number of elements in all parameters, without buffers.
    fn num_parameters(&self) -> usize
    where
        Self: Sized,
    {
        visitors::count(self, |parameter| !parameter.is_buffer())
    }

    /// Returns the number of elements in trainable parameters.
    fn num_trainable_parameters(&self) -> usize
    where
        Self: Sized,
    {
        visitors::count(self, Parameter::is_trainable)
    }

    /// Replaces every parameter by a function of its dotted name and itself; see [`VisitorMut::parameter`].
    fn map_parameters(&mut self, mut f: impl FnMut(&Path, Parameter) -> Parameter)
    where
        Self: Sized,
    {
        self.visit_mut(&mut Path::new(), &mut visitors::Mapper(&mut f));
    }

    /// Freezes the parameters: optimizers do not change them, and no gradients are computed for them.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::{Linear, LinearConfig, Module};
    /// use kiln_tensor::Autodiff;
    ///
    /// let layer: Linear<Autodiff<Flex>> = LinearConfig::new(4, 2).init(&Default::default());
    /// let layer = layer.freeze();
    /// assert_eq!((layer.num_parameters(), layer.num_trainable_parameters()), (4 * 2 + 2, 0));
    /// assert_eq!(layer.unfreeze().num_trainable_parameters(), 4 * 2 + 2);
    /// ```
    #[doc(alias = "requires_grad_")]
    #[must_use]
    fn freeze(self) -> Self
    where
        Self: Sized,
    {
        visitors::with_role(self, ParameterRole::Frozen)
    }

    /// Makes frozen parameters trainable again.
    #[must_use]
    fn unfreeze(self) -> Self
    where
        Self: Sized,
    {
        visitors::with_role(self, ParameterRole::Trainable)
    }

    /// Freezes the parameters: the same as [`freeze`](Module::freeze).
    #[must_use]
    fn no_grad(self) -> Self
    where
        Self: Sized,
    {
        self.freeze()
    }

    /// Returns the table of layers and parameters that `Display` of a derived module prints.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::{Linear, LinearConfig, Module};
    ///
    /// let layer: Linear<Flex> = LinearConfig::new(784, 10).init(&Default::default());
    /// println!("{}", layer.layer_table());
    /// assert!(layer.to_string().contains("7,850"));
    /// ```
    #[doc(alias = "summary")]
    fn layer_table(&self) -> LayerTable
    where
        Self: Sized,
    {
        LayerTable::new(self)
    }
}

/// A parameter, as visitors see it.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// The id. It does not change with the value. Clones of a module have the same ids.
    pub id: ParamId,
    /// The tensor. The visitor's method documents its backend and whether automatic differentiation tracks it.
    pub value: AnyTensor,
    /// The role: trainable, frozen or buffer.
    pub role: ParameterRole,
    /// The stack that the module runs on. A [`VisitorMut`] that returns another stack moves the parameter there.
    pub stack: Stack,
}

/// The role of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterRole {
    /// A parameter that optimizers update.
    Trainable,
    /// A parameter that does not change until it is unfrozen.
    Frozen,
    /// State that optimizers do not update, such as running statistics.
    Buffer,
}

impl Parameter {
    /// Returns whether optimizers update the parameter.
    pub fn is_trainable(&self) -> bool {
        self.role == ParameterRole::Trainable
    }

    /// Returns whether the parameter is a buffer.
    pub fn is_buffer(&self) -> bool {
        self.role == ParameterRole::Buffer
    }

    /// Returns the parameter with its value passed through a function.
    #[must_use]
    pub fn map(self, f: impl FnOnce(AnyTensor) -> AnyTensor) -> Parameter {
        Parameter { value: f(self.value), ..self }
    }
}

/// A visitor that reads the parameters of a module.
pub trait Visitor {
    /// Called at the start of a module. `name` is the name of its type.
    fn enter(&mut self, _path: &Path, _name: &str) {}

    /// Called at the end of the innermost open module.
    fn exit(&mut self, _path: &Path, _name: &str) {}

    /// Called for a field of plain data that describes the module, such as a stride. Layer tables show it.
    fn attribute(&mut self, _path: &Path, _value: &dyn Debug) {}

    /// Visits a parameter. Its value is on the module's own backend. With automatic differentiation it is tracked, so
    /// that results computed from it can be differentiated.
    fn parameter(&mut self, path: &Path, parameter: Parameter);
}

/// A visitor that replaces the parameters of a module.
pub trait VisitorMut {
    /// Called at the start of a module. `name` is the name of its type.
    fn enter(&mut self, _path: &Path, _name: &str) {}

    /// Called at the end of the innermost open module.
    fn exit(&mut self, _path: &Path, _name: &str) {}

    /// Receives a parameter and returns its replacement.
    ///
    /// The value is moved out of the module, so that the engine can reuse its memory when the visitor drops or
    /// transforms it. The value is on the backend below automatic differentiation, as gradients are, and the
    /// replacement should be too. The module wraps it for the returned stack as a new leaf. The leaf requires a
    /// gradient if the returned role is [`Trainable`](ParameterRole::Trainable). A value from another stack is copied
    /// to that stack.
    ///
    /// The module keeps the parameter's id and ignores the returned id. A visitor that fails returns the parameter
    /// unchanged and stores the error.
    ///
    /// # Panics
    /// The module panics when the returned value has another shape or another kind (float, integer, `bool`), or cannot
    /// be copied to the stack. The dtype may change within the kind.
    fn parameter(&mut self, path: &Path, parameter: Parameter) -> Parameter;
}

/// Implements `Display` of derived modules: prints the layer table.
#[doc(hidden)]
pub fn display(module: &dyn Module, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
    Display::fmt(&LayerTable::new(module), f)
}
