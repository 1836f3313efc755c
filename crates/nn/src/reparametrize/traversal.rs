//! The traversal of reparametrized modules.

use super::{Parametrization, Reparametrized};
use crate::module::ReplaceParameter;
use crate::{
    BackendModule, ForwardModule, Mode, Module, ModuleOn, ParamId, Parameter, Path, Visitor, VisitorMut,
};
use alloc::collections::{BTreeMap, BTreeSet};
use core::fmt::Debug;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Kind, Tensor};

/// Passes the wrapped module's traversal to a visitor, with the paths of original tensors, and visits each
/// parametrization after its original tensor.
struct Reader<'a, P> {
    parametrizations: &'a BTreeMap<ParamId, P>,
    visited: BTreeSet<ParamId>,
    visitor: &'a mut dyn Visitor,
}

/// [`Reader`] for a visitor that replaces parameters.
struct Writer<'a, P> {
    parametrizations: &'a mut BTreeMap<ParamId, P>,
    visited: BTreeSet<ParamId>,
    visitor: &'a mut dyn VisitorMut,
}

impl<P: Parametrization> Visitor for Reader<'_, P> {
    fn enter(&mut self, path: &Path, name: &str) {
        self.visitor.enter(path, name);
    }

    fn exit(&mut self, path: &Path, name: &str) {
        self.visitor.exit(path, name);
    }

    fn attribute(&mut self, path: &Path, value: &dyn Debug) {
        self.visitor.attribute(path, value);
    }

    fn mode(&mut self, path: &Path, mode: Mode) {
        self.visitor.mode(path, mode);
    }

    fn parameter(&mut self, path: &Path, parameter: Parameter) {
        let id = parameter.id;
        match self.parametrizations.contains_key(&id) {
            true => self.visitor.parameter(&P::original_path(path), parameter),
            false => self.visitor.parameter(path, parameter),
        }
        self.visit_parametrization(path, id);
    }

    fn tied(&mut self, path: &Path, parameter: Parameter) {
        let id = parameter.id;
        match self.parametrizations.contains_key(&id) {
            true => self.visitor.tied(&P::original_path(path), parameter),
            false => self.visitor.tied(path, parameter),
        }
        // The first place may be in another reparametrized module.
        self.visit_parametrization(path, id);
    }
}

impl<P: Parametrization> Reader<'_, P> {
    /// Visits the parametrization of a parameter, if it has one, at its first place.
    fn visit_parametrization(&mut self, path: &Path, id: ParamId) {
        if let Some(parametrization) = self.parametrizations.get(&id)
            && self.visited.insert(id)
        {
            parametrization.visit(&mut P::own_path(path).in_traversal_of(path), self.visitor);
        }
    }
}

impl<P: Parametrization> VisitorMut for Writer<'_, P> {
    fn enter(&mut self, path: &Path, name: &str) {
        self.visitor.enter(path, name);
    }

    fn exit(&mut self, path: &Path, name: &str) {
        self.visitor.exit(path, name);
    }

    fn mode(&mut self, path: &Path, mode: &mut Mode) {
        self.visitor.mode(path, mode);
    }

    fn parameter(&mut self, path: &Path, parameter: Parameter) -> Parameter {
        let id = parameter.id;
        let original = match self.parametrizations.contains_key(&id) {
            true => self.visitor.parameter(&P::original_path(path), parameter),
            false => self.visitor.parameter(path, parameter),
        };
        self.visit_parametrization(path, id);
        original
    }

    fn tied(&mut self, path: &Path, id: ParamId) {
        match self.parametrizations.contains_key(&id) {
            true => self.visitor.tied(&P::original_path(path), id),
            false => self.visitor.tied(path, id),
        }
        // The first place may be in another reparametrized module.
        self.visit_parametrization(path, id);
    }
}

impl<P: Parametrization> Writer<'_, P> {
    /// As [`Reader::visit_parametrization`].
    fn visit_parametrization(&mut self, path: &Path, id: ParamId) {
        if let Some(parametrization) = self.parametrizations.get_mut(&id)
            && self.visited.insert(id)
        {
            parametrization.visit_mut(&mut P::own_path(path).in_traversal_of(path), self.visitor);
        }
    }
}

impl<M: Module, P: Parametrization> Module for Reparametrized<M, P> {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        let parametrizations = &self.parametrizations;
        self.base.visit(path, &mut Reader { parametrizations, visited: BTreeSet::new(), visitor });
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        let parametrizations = &mut self.parametrizations;
        self.base.visit_mut(path, &mut Writer { parametrizations, visited: BTreeSet::new(), visitor });
    }
}

impl<B: Backend, M: BackendModule<B>, P: Parametrization> BackendModule<B> for Reparametrized<M, P> {}

impl<B: Backend, M: ModuleOn<B>, P: Parametrization> ModuleOn<B> for Reparametrized<M, P> {
    type On = Reparametrized<M::On, P>;

    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Self::On {
        let mut parametrizations = BTreeMap::new();
        let base = self.base.on(path, &mut |path, parameter| {
            let id = parameter.id;
            let Some(parametrization) = self.parametrizations.get(&id) else { return place(path, parameter) };
            let original = place(&P::original_path(path), parameter);
            parametrizations
                .entry(id)
                .or_insert_with(|| ModuleOn::<Dyn>::on(parametrization, &mut P::own_path(path), place));
            original
        });
        Reparametrized { base, parametrizations, frozen: self.frozen.clone() }
    }
}

/// Computes the weights and calls the wrapped module. Running statistics of the wrapped module do not change; see
/// [`Reparametrized::with_buffers_of`].
impl<B, M, P, K, const D: usize> ForwardModule<Tensor<B, D, K>> for Reparametrized<M, P>
where
    B: Backend,
    K: Kind,
    M: ForwardModule<Tensor<B, D, K>> + ModuleOn<B, On = M>,
    P: Parametrization,
{
    type Output = M::Output;

    #[track_caller]
    fn forward(&self, input: Tensor<B, D, K>) -> M::Output {
        self.module().forward(input)
    }
}
