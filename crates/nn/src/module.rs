//! The module trait: one object-safe traversal over parameters with dotted names. Beside it, the
//! [functions](kiln_tensor::module) of layers, such as [`conv2d`].

mod any_parameter;
mod containers;
#[doc(hidden)]
pub mod derived;
pub(crate) mod forward;
mod functional;
mod gradients;
mod mode;
mod parameter;
mod path;
mod pattern;
pub(crate) mod plain;
mod summary;
mod table;
mod typed;
mod update_lock;
mod visited;
mod visitors;

pub(crate) use any_parameter::AnyParam;
pub use forward::ForwardModule;
pub use functional::{NamedTensors, buffers, trainable_parameters, with_parameters};
pub use gradients::GradientsParams;
pub use mode::{Mode, set_mode};
pub use parameter::{Param, ParamId, RunningState};
pub use path::Path;
pub use pattern::{Pattern, edit_distance};
pub use summary::{FunctionSummary, LayerSummary, ModuleSummary, Summary};
pub use table::LayerTable;
pub use typed::{AutodiffModule, BackendModule, Devices, ModuleOn, ReplaceParameter};

pub use kiln_macros::Module;
pub use kiln_tensor::module::*;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{Debug, Display};
use kiln_tensor::{AnyTensor, Backend, Stack};

/// A module: a part of a network that owns parameters and other modules. Derive it with
/// [`#[derive(Module)]`](macro@crate::Module).
///
/// An implementation traverses the parameters of the type. The trait has no type parameters, so it is object-safe:
/// optimizers, files and tables work on `&mut dyn Module`. A traversal visits the parameters in field order. Each has
/// the dotted path of its field names: `conv1.weight`, `layers.0.bias`. A parameter in several places is
/// [tied](Param#tied-parameters) and visited once, at the first.
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
    /// A [tied](Param#tied-parameters) parameter has the name of its first place.
    fn named_parameters(&self) -> Vec<(String, Parameter)>
    where
        Self: Sized,
    {
        visitors::collect(self)
    }

    /// Returns the number of elements in all parameters, without buffers. [Tied](Param#tied-parameters) parameters
    /// count once.
    fn num_parameters(&self) -> usize
    where
        Self: Sized,
    {
        visitors::count(self, |parameter| !parameter.is_buffer())
    }

    /// [`num_parameters`](Module::num_parameters) under the name that Burn uses.
    fn num_params(&self) -> usize
    where
        Self: Sized,
    {
        self.num_parameters()
    }

    /// Returns the number of elements in trainable parameters.
    fn num_trainable_parameters(&self) -> usize
    where
        Self: Sized,
    {
        visitors::count(self, Parameter::is_trainable)
    }

    /// Replaces every parameter by a function of its dotted name and itself; see [`VisitorMut::parameter`]. The
    /// function is called once for a [tied](Param#tied-parameters) parameter, with the name of its first place.
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

    /// Sets training mode in every module of this one: dropout is active and batch normalisation uses the statistics of
    /// the batch, on every backend. Parameters and their gradients do not change.
    #[must_use]
    fn train(self) -> Self
    where
        Self: Sized,
    {
        self.with_mode(Mode::Train)
    }

    /// Sets evaluation mode in every module of this one: dropout is the identity and batch normalisation uses its
    /// running statistics, also where gradients are tracked. Apply it to a part of a model to freeze the statistics of
    /// that part, and [`freeze`](Module::freeze) it to freeze its parameters too.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::{BatchNorm, BatchNormConfig, Module};
    /// use kiln_tensor::{Autodiff, Tensor};
    ///
    /// let device = Default::default();
    /// let norm: BatchNorm<Autodiff<Flex>> = BatchNormConfig::new(2).init(&device);
    /// let norm = norm.eval();
    /// let x = Tensor::<_, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &device);
    /// norm.forward(x);
    /// assert_eq!(norm.running_mean.value().into_data().to_vec::<f32>(), [0.0, 0.0]);
    /// assert_eq!(norm.num_trainable_parameters(), 4);
    /// ```
    #[must_use]
    fn eval(self) -> Self
    where
        Self: Sized,
    {
        self.with_mode(Mode::Eval)
    }

    /// Sets the [mode](Mode) of every module of this one. The mode of new modules is [`Mode::Auto`].
    #[must_use]
    fn with_mode(mut self, mode: Mode) -> Self
    where
        Self: Sized,
    {
        set_mode(&mut self, mode);
        self
    }

    /// Returns the devices of the parameters without duplicates, in traversal order. Empty for a module without
    /// parameters, whose backend is a type argument: `dropout.devices::<B>()`.
    fn devices<B: Backend>(&self) -> Devices<B>
    where
        Self: Sized + BackendModule<B>,
    {
        self.collect_devices(Devices::<B>::new())
    }

    /// Adds the devices of the parameters to `devices`, without duplicates.
    fn collect_devices<B: Backend>(&self, devices: Devices<B>) -> Devices<B>
    where
        Self: Sized + BackendModule<B>,
    {
        typed::collect_devices::<B>(self, devices)
    }

    /// Moves all parameters to a device. They become new leaves with the same ids. Waits for the devices that hold the
    /// parameters now.
    ///
    /// To copy a module to another device or thread, call `model.clone().to_device(&device)`.
    ///
    /// ```
    /// use kiln_backends::{Device, Dyn};
    /// use kiln_nn::{Linear, LinearConfig, Module};
    ///
    /// let layer: Linear<Dyn> = LinearConfig::new(4, 2).init(&Device::flex());
    /// let layer = layer.to_device(&Device::cpu());
    /// assert_eq!(layer.devices(), [Device::cpu()]);
    /// ```
    ///
    /// # Panics
    /// When a device fails, or the computation of a parameter failed.
    #[doc(alias = "to")]
    #[must_use]
    fn to_device<B: Backend>(mut self, device: &B::Device) -> Self
    where
        Self: Sized + BackendModule<B>,
    {
        typed::to_stack(&mut self, B::stack(device));
        self
    }

    /// Moves all parameters to a device: the same as [`to_device`](Module::to_device), under Burn's name for a module
    /// with leaves of its own.
    ///
    /// # Panics
    /// As [`to_device`](Module::to_device).
    #[must_use]
    fn fork<B: Backend>(self, device: &B::Device) -> Self
    where
        Self: Sized + BackendModule<B>,
    {
        self.to_device(device)
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

    /// Called for the mode of a module that has one. Layer tables show a mode other than [`Mode::Auto`].
    fn mode(&mut self, _path: &Path, _mode: Mode) {}

    /// Visits a parameter. Its value is on the module's own backend. With automatic differentiation it is tracked, so
    /// that results computed from it can be differentiated.
    fn parameter(&mut self, path: &Path, parameter: Parameter);

    /// Called at each further place of a [tied](Param#tied-parameters) parameter, which this traversal has passed to
    /// [`parameter`](Visitor::parameter) already.
    fn tied(&mut self, _path: &Path, _parameter: Parameter) {}
}

/// A visitor that replaces the parameters of a module.
pub trait VisitorMut {
    /// Called at the start of a module. `name` is the name of its type.
    fn enter(&mut self, _path: &Path, _name: &str) {}

    /// Called at the end of the innermost open module.
    fn exit(&mut self, _path: &Path, _name: &str) {}

    /// Receives the mode of a module that has one, and may change it.
    fn mode(&mut self, _path: &Path, _mode: &mut Mode) {}

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

    /// Called at each further place of a [tied](Param#tied-parameters) parameter, which this traversal has passed to
    /// [`parameter`](VisitorMut::parameter) already. The place gets the same leaf.
    fn tied(&mut self, _path: &Path, _id: ParamId) {}
}

/// Implements `Display` of derived modules: prints the layer table.
///
/// # Errors
/// When the formatter fails.
#[doc(hidden)]
pub fn display(module: &dyn Module, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
    Display::fmt(&LayerTable::new(module), f)
}
