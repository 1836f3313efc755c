//! The visitors behind the methods of `Module`.

use super::typed::changed_role;
use super::{Module, Parameter, ParameterRole, Path, Visitor, VisitorMut};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Calls a function with each parameter.
struct Reader<F>(F);

impl<F: FnMut(&Path, Parameter)> Visitor for Reader<F> {
    fn parameter(&mut self, path: &Path, parameter: Parameter) {
        (self.0)(path, parameter);
    }
}

/// Calls a function with each parameter, at each of its places.
struct PlaceReader<F>(F);

impl<F: FnMut(&Path, Parameter)> Visitor for PlaceReader<F> {
    fn parameter(&mut self, path: &Path, parameter: Parameter) {
        (self.0)(path, parameter);
    }

    fn tied(&mut self, path: &Path, parameter: Parameter) {
        (self.0)(path, parameter);
    }
}

/// Passes each parameter through a function.
pub(super) struct Mapper<F>(pub(super) F);

impl<F: FnMut(&Path, Parameter) -> Parameter> VisitorMut for Mapper<F> {
    fn parameter(&mut self, path: &Path, parameter: Parameter) -> Parameter {
        (self.0)(path, parameter)
    }
}

pub(super) fn for_each(module: &dyn Module, f: impl FnMut(&Path, Parameter)) {
    module.visit(&mut Path::new(), &mut Reader(f));
}

/// As [`for_each`], but also at the further places of tied parameters.
pub(super) fn for_each_place(module: &dyn Module, f: impl FnMut(&Path, Parameter)) {
    module.visit(&mut Path::new(), &mut PlaceReader(f));
}

pub(super) fn collect(module: &dyn Module) -> Vec<(String, Parameter)> {
    let mut all = Vec::new();
    for_each(module, |path, parameter| all.push((path.to_string(), parameter)));
    all
}

pub(super) fn count(module: &dyn Module, counts: impl Fn(&Parameter) -> bool) -> usize {
    let mut total = 0;
    for_each(module, |_, parameter| {
        if counts(&parameter) {
            total += parameter.value.shape().num_elements();
        }
    });
    total
}

pub(super) fn with_role<M: Module>(mut module: M, role: ParameterRole) -> M {
    let mut change = Mapper(|_: &Path, parameter: Parameter| {
        let role = changed_role(parameter.role, role);
        Parameter { role, ..parameter }
    });
    module.visit_mut(&mut Path::new(), &mut change);
    module
}
