//! Parameters of a rank that is known at run time.

use super::parameter::{LOST, as_leaf, check_placed};
use super::{
    BackendModule, Module, ModuleOn, ParamId, Parameter, ParameterRole, Path, ReplaceParameter, Visitor,
    VisitorMut, visited,
};
use core::fmt;
use kiln_tensor::{AnyTensor, Backend};

/// A parameter of any rank, on any stack: [`Param`](super::Param) without types. It is its own type on every backend.
#[derive(Clone)]
pub(crate) struct AnyParam {
    id: ParamId,
    role: ParameterRole,
    /// `None` only while a visitor holds the tensor.
    value: Option<AnyTensor>,
}

impl AnyParam {
    /// Returns a trainable parameter with this initial value and a new id.
    pub(crate) fn new(value: AnyTensor) -> AnyParam {
        let role = ParameterRole::Trainable;
        AnyParam { id: ParamId::new(), role, value: Some(as_leaf(value, role)) }
    }

    /// Returns a clone of the tensor.
    #[track_caller]
    pub(crate) fn val(&self) -> AnyTensor {
        #[cfg(feature = "std")]
        kiln_ir::profile::read_parameter(self.id.value());
        self.current()
    }

    /// The tensor, for a visitor: the profiler does not count it as a use of the module.
    #[track_caller]
    fn current(&self) -> AnyTensor {
        self.value.clone().expect(LOST)
    }
}

impl fmt::Debug for AnyParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "Param({}, {:?}, {value:?})", self.id, self.role),
            None => write!(f, "Param({}, {:?}, lost)", self.id, self.role),
        }
    }
}

impl Module for AnyParam {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        visited::show(Parameter::new(self.id, self.current(), self.role), path, visitor);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        let value = self.value.take().expect(LOST);
        let below = Parameter::new(self.id, value, self.role).map(AnyTensor::inner);
        let (value, role) = visited::replace(below, path, visitor);
        self.value = Some(value);
        self.role = role;
    }
}

impl<B: Backend> BackendModule<B> for AnyParam {}

impl<B: Backend> ModuleOn<B> for AnyParam {
    type On = AnyParam;

    #[track_caller]
    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> AnyParam {
        let before = self.current();
        let ty = *before.ty();
        let value = place(path, Parameter::new(self.id, before, self.role));
        check_placed(path, &ty, value.ty());
        AnyParam { id: self.id, role: self.role, value: Some(value) }
    }
}
