//! Module traits with the backend as a type parameter.

use super::{Module, Parameter, ParameterRole, Path, VisitorMut, visitors};
use alloc::vec::Vec;
use kiln_tensor::{AnyTensor, AutodiffBackend, Backend, Stack};

/// A module whose parameters are on backend `B`, which the methods of [`Module`] on devices need. Derived with [`Module`](macro@crate::Module). A module without
/// parameters implements it for every backend.
pub trait BackendModule<B: Backend>: Module {}

/// Devices of a module: [`Module::devices`].
pub type Devices<B> = Vec<<B as Backend>::Device>;

/// Adds the devices of the parameters that are not yet in the list.
pub(super) fn collect_devices<B: Backend>(module: &dyn Module, mut devices: Devices<B>) -> Devices<B> {
    visitors::for_each(module, |_, parameter| {
        let device = B::device(&parameter.stack);
        if !devices.contains(&device) {
            devices.push(device);
        }
    });
    devices
}

/// Moves all parameters to a stack.
pub(super) fn to_stack(module: &mut dyn Module, target: Stack) {
    module.visit_mut(&mut Path::new(), &mut Mover { target });
}

/// A function that returns the replacement tensor of a parameter; see [`ModuleOn::on`].
pub type ReplaceParameter<'a> = dyn FnMut(&Path, Parameter) -> AnyTensor + 'a;

/// A module that can be converted to backend `B`, with other tensors. Derived with [`Module`](macro@crate::Module).
///
/// [`valid`](AutodiffModule::valid) and [`with_parameters`](crate::with_parameters) use it.
pub trait ModuleOn<B: Backend>: Module {
    /// The module type on backend `B`.
    type On: Module;

    /// Returns the module with each parameter replaced by the result of `place`, called in traversal order, at each place
    /// of a [tied](super::Param#tied-parameters) parameter. Ids and roles are kept, and plain data is cloned. `path` is the path of this module; it is unchanged when the call
    /// returns.
    ///
    /// Tensors are used unchanged. Unlike the results of a [`VisitorMut`], they need not be leaves of automatic
    /// differentiation.
    ///
    /// # Panics
    /// When a tensor has another shape or kind (float, integer, `bool`) than the parameter, or is not on backend `B`.
    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Self::On;
}

/// A module on a backend with automatic differentiation. Implemented for every module that is [`ModuleOn`] the backend
/// below.
pub trait AutodiffModule<B: AutodiffBackend>: BackendModule<B> {
    /// The module type on the backend below.
    type InnerModule: Module;

    /// Returns the module for inference, on the backend below automatic differentiation. It shares the parameters
    /// without a copy. Dropout is inactive, and batch normalisation uses its running statistics, except where
    /// [`Module::train`] set the mode of a module.
    fn valid(&self) -> Self::InnerModule;
}

impl<B: AutodiffBackend, M: BackendModule<B> + ModuleOn<B::InnerBackend>> AutodiffModule<B> for M {
    type InnerModule = M::On;

    fn valid(&self) -> M::On {
        self.on(&mut Path::new(), &mut |_, parameter| parameter.value.inner())
    }
}

struct Mover {
    target: Stack,
}

impl VisitorMut for Mover {
    fn parameter(&mut self, _path: &Path, parameter: Parameter) -> Parameter {
        Parameter { stack: self.target.clone(), ..parameter }
    }
}

/// The role after freezing or unfreezing. Buffers do not change.
pub(super) fn changed_role(present: ParameterRole, wanted: ParameterRole) -> ParameterRole {
    match present {
        ParameterRole::Buffer => ParameterRole::Buffer,
        ParameterRole::Trainable | ParameterRole::Frozen => wanted,
    }
}
