//! One step of any unit, as a module.

use super::run::run_cell;
use super::unit::{State, Unit};
use super::weights::{RecurrentWeights, default_initializer};
use crate::module::ReplaceParameter;
use crate::{BackendModule, Initializer, Module, ModuleOn, Param, Path, Visitor, VisitorMut};
use core::fmt;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor};

/// One step of a [`Recurrent`](crate::Recurrent) module: [`RnnCell`](crate::RnnCell), [`GruCell`](crate::GruCell) or
/// [`LstmCell`](crate::LstmCell), by the type `U` of its options.
///
/// `gates` is that of [`RecurrentWeights`](crate::RecurrentWeights).
#[derive(Clone, Debug)]
pub struct RecurrentCell<U, B: Backend = Dyn> {
    /// `[gates * d_hidden, d_input]`.
    pub weight_ih: Param<Tensor<B, 2>>,
    /// `[gates * d_hidden, d_hidden]`.
    pub weight_hh: Param<Tensor<B, 2>>,
    /// `[gates * d_hidden]`.
    pub bias_ih: Option<Param<Tensor<B, 1>>>,
    /// `[gates * d_hidden]`.
    pub bias_hh: Option<Param<Tensor<B, 1>>>,
    /// The options of a step.
    pub options: U,
}

impl<U: Unit, B: Backend> RecurrentCell<U, B> {
    #[track_caller]
    pub(super) fn new(
        [d_input, d_hidden]: [usize; 2],
        bias: bool,
        initializer: Option<Initializer>,
        options: U,
        device: &B::Device,
    ) -> Self {
        let shape = [options.gates() * d_hidden, d_input, d_hidden];
        let weights = RecurrentWeights::cell(shape, bias, default_initializer(initializer, d_hidden), device);
        let RecurrentWeights { weight_ih, weight_hh, bias_ih, bias_hh, weight_hr: _ } = weights;
        RecurrentCell { weight_ih, weight_hh, bias_ih, bias_hh, options }
    }

    /// Computes one step: the state after it. `x` is `[batch, d_input]`.
    ///
    /// A state is a tensor, `[batch, d_hidden]`, or of an [`LstmCell`](crate::LstmCell) an
    /// [`LstmState`](crate::LstmState) of two. `None` is a state of zeros.
    ///
    /// # Panics
    /// When a shape differs.
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 2>, state: Option<U::State<B, 2>>) -> U::State<B, 2> {
        let weights = RecurrentWeights {
            weight_ih: self.weight_ih.clone(),
            weight_hh: self.weight_hh.clone(),
            bias_ih: self.bias_ih.clone(),
            bias_hh: self.bias_hh.clone(),
            weight_hr: None,
        };
        State::from_tensors(run_cell(self.options, &weights, x, state.map(State::into_tensors)))
    }
}

impl<U: Unit, B: Backend> Module for RecurrentCell<U, B> {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        let [_, name] = U::MODULES;
        visitor.enter(path, name);
        path.within("weight_ih", |path| self.weight_ih.visit(path, visitor));
        path.within("weight_hh", |path| self.weight_hh.visit(path, visitor));
        path.within("bias_ih", |path| self.bias_ih.visit(path, visitor));
        path.within("bias_hh", |path| self.bias_hh.visit(path, visitor));
        self.options.visit_field(path, visitor);
        visitor.exit(path, name);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        let [_, name] = U::MODULES;
        visitor.enter(path, name);
        path.within("weight_ih", |path| self.weight_ih.visit_mut(path, visitor));
        path.within("weight_hh", |path| self.weight_hh.visit_mut(path, visitor));
        path.within("bias_ih", |path| self.bias_ih.visit_mut(path, visitor));
        path.within("bias_hh", |path| self.bias_hh.visit_mut(path, visitor));
        visitor.exit(path, name);
    }
}

impl<U: Unit, B: Backend> BackendModule<B> for RecurrentCell<U, B> {}

impl<U: Unit, B: Backend, B2: Backend> ModuleOn<B2> for RecurrentCell<U, B> {
    type On = RecurrentCell<U, B2>;

    #[track_caller]
    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> RecurrentCell<U, B2> {
        RecurrentCell {
            weight_ih: path.within("weight_ih", |path| self.weight_ih.on(path, place)),
            weight_hh: path.within("weight_hh", |path| self.weight_hh.on(path, place)),
            bias_ih: path.within("bias_ih", |path| self.bias_ih.on(path, place)),
            bias_hh: path.within("bias_hh", |path| self.bias_hh.on(path, place)),
            options: self.options,
        }
    }
}

impl<U: Unit, B: Backend> fmt::Display for RecurrentCell<U, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::module::display(self, f)
    }
}
