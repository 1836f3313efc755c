//! Module traits with the backend as a type parameter.

use super::{Module, Parameter, ParameterRole, Path, VisitorMut, visitors};
use alloc::vec::Vec;
use kiln_tensor::{AnyTensor, AutodiffBackend, Backend, Stack};

/// A module whose parameters are on backend `B`. Derived with [`Module`](macro@crate::Module); a module without
/// parameters is one on every backend.
pub trait BackendModule<B: Backend>: Module {
    /// The devices that the parameters are on, each once, in the order of the traversal. A module without parameters is
    /// on none.
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

    /// The module with all parameters on a device, as fresh leaves with the same ids. Waits for the devices where
    /// parameters are now.
    ///
    /// A copy for another device or thread is `model.clone().to_device(&device)`.
    ///
    /// # Panics
    /// When a device fails, or a parameter's computation failed.
    #[must_use]
    fn to_device(mut self, device: &B::Device) -> Self
    where
        Self: Sized,
    {
        self.visit_mut(&mut Path::new(), &mut Mover { target: B::stack(device) });
        self
    }
}

/// Gives the tensor that takes the place of a parameter; see [`ModuleOn::on`].
pub type ReplaceParameter<'a> = dyn FnMut(&Path, Parameter) -> AnyTensor + 'a;

/// A module that also exists on backend `B`, with other tensors. Derived with [`Module`](macro@crate::Module).
///
/// [`valid`](AutodiffModule::valid) and [`with_parameters`](crate::with_parameters) are made of it.
pub trait ModuleOn<B: Backend>: Module {
    /// The module on that backend.
    type On: Module;

    /// The module with the tensors that a function returns for its parameters, in the order of the traversal. Ids and
    /// roles are kept, plain data is cloned. `path` is the path of this module, and is the same afterwards.
    ///
    /// Tensors are used unchanged: unlike the tensors that a [`VisitorMut`] returns, they need not be leaves of
    /// automatic differentiation.
    ///
    /// # Panics
    /// When a tensor has another shape or is of another kind (float, integer, `bool`) than the parameter, or is not on
    /// backend `B`.
    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Self::On;
}

/// A module on a backend with automatic differentiation: every one that is a [`ModuleOn`] the backend below.
pub trait AutodiffModule<B: AutodiffBackend>: BackendModule<B> {
    /// The module on the backend below.
    type InnerModule: Module;

    /// The module for inference: the same weights, shared and not copied, below automatic differentiation, where
    /// dropout does nothing and batch normalisation uses its running statistics.
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

/// The role after freezing or unfreezing; buffers do not change.
pub(super) fn changed_role(present: ParameterRole, wanted: ParameterRole) -> ParameterRole {
    match present {
        ParameterRole::Buffer => ParameterRole::Buffer,
        ParameterRole::Trainable | ParameterRole::Frozen => wanted,
    }
}
