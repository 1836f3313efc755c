//! The weights of a module as handles: nothing is copied.

use std::collections::VecDeque;

use kiln_nn::{Module, Parameter, Path, Visitor, VisitorMut};
use kiln_tensor::AnyTensor;

/// The weights and buffers of a module, in the order of a visit. While they live, updates of the module need memory of
/// their own.
#[derive(Clone, Debug)]
pub(crate) struct Weights(Vec<AnyTensor>);

impl Weights {
    pub(crate) fn of(module: &dyn Module) -> Weights {
        let mut collect = Collect(Vec::new());
        module.visit(&mut Path::new(), &mut collect);
        Weights(collect.0)
    }

    /// Puts the weights into the module that they are of.
    pub(crate) fn put_into(self, module: &mut dyn Module) {
        module.visit_mut(&mut Path::new(), &mut Put(self.0.into()));
    }
}

struct Collect(Vec<AnyTensor>);

impl Visitor for Collect {
    fn parameter(&mut self, _path: &Path, parameter: Parameter) {
        self.0.push(crate::observation::below(parameter.value));
    }
}

struct Put(VecDeque<AnyTensor>);

impl VisitorMut for Put {
    fn parameter(&mut self, _path: &Path, parameter: Parameter) -> Parameter {
        match self.0.pop_front() {
            Some(value) => parameter.map(|_| value),
            None => parameter,
        }
    }
}
