//! What a module can do on a backend that is known by its type.

use super::{Module, Parameter, ParameterRole, Path, VisitorMut};
use kiln_tensor::{AutodiffBackend, Backend, Stack};

/// A module whose parameters are on backend `B`. Derived with [`Module`](macro@crate::Module); a module without
/// parameters is one on every backend.
pub trait BackendModule<B: Backend>: Module {
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

/// A module on a backend with automatic differentiation. Derived with [`Module`](macro@crate::Module).
pub trait AutodiffModule<B: AutodiffBackend>: BackendModule<B> {
    /// The module on the backend below.
    type InnerModule: Module;

    /// The module for inference: the same weights, shared and not copied, below automatic differentiation, where
    /// dropout does nothing and batch normalisation uses its running statistics.
    fn valid(&self) -> Self::InnerModule;
}

struct Mover {
    target: Stack,
}

impl VisitorMut for Mover {
    fn parameter(&mut self, _path: &Path, parameter: Parameter) -> Parameter {
        Parameter { stack: self.target.clone(), ..parameter }
    }
}

/// The role after freezing or unfreezing; buffers stay what they are.
pub(super) fn changed_role(present: ParameterRole, wanted: ParameterRole) -> ParameterRole {
    match present {
        ParameterRole::Buffer => ParameterRole::Buffer,
        ParameterRole::Trainable | ParameterRole::Frozen => wanted,
    }
}
