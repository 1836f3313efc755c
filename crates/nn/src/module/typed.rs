//! Module traits with the backend as a type parameter.

use super::{Module, Parameter, ParameterRole, Path, VisitorMut, visitors};
use alloc::vec::Vec;
use kiln_tensor::{AnyTensor, AutodiffBackend, Backend, Stack};

/// A module whose parameters are on backend `B`. Derived with [`Module`](macro@crate::Module). A module without
/// parameters implements it for every backend.
pub trait BackendModule<B: Backend>: Module {
    /// Returns the devices of the parameters without duplicates, in traversal order. Empty for a module without
    /// parameters.
    fn devices(&self) -> Vec<B::Device>
    where
        Self: Sized,
    {
        let mut devices = Vec::new();
        visitors::for_each(self, |_, parameter| {
            let device = B::device(&parameter.stack);
            if !devices.contains(&device) {
                devices.push(device);
            }
        });
        devices
    }

    /// Moves all parameters to a device. They become new leaves with the same ids. Waits for the devices that hold the
    /// parameters now.
    ///
    /// To copy a module to another device or thread, call `model.clone().to_device(&device)`.
    ///
    /// ```
    /// use kiln_backends::{Device, Dyn};
    /// use kiln_nn::{BackendModule, Linear, LinearConfig};
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
    fn to_device(mut self, device: &B::Device) -> Self
    where
        Self: Sized,
    {
        self.visit_mut(&mut Path::new(), &mut Mover { target: B::stack(device) });
        self
    }
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
