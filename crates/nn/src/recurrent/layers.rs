//! The module of layers of any unit.

use super::lengths::SequenceLengths;
use super::run::run;
use super::unit::{State, Unit};
use super::weights::RecurrentLayers;
use crate::module::ReplaceParameter;
use crate::{BackendModule, ForwardModule, Module, ModuleOn, Path, Visitor, VisitorMut};
use core::fmt;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Int, Tensor};

/// A recurrent network of several layers and of one or two directions: [`Rnn`](crate::Rnn), [`Gru`](crate::Gru) or
/// [`Lstm`](crate::Lstm), by the type `U` of its options.
#[derive(Clone, Debug)]
pub struct Recurrent<U, B: Backend = Dyn> {
    /// The layers.
    pub layers: RecurrentLayers<B>,
    /// The options of a step.
    pub options: U,
}

impl<U: Unit, B: Backend> Recurrent<U, B> {
    /// Computes all steps. Returns the hidden states of the last layer, and the states after the last step.
    ///
    /// A state is a tensor, `[layers * directions, batch, d_hidden]`, or of an [`Lstm`](crate::Lstm) an
    /// [`LstmState`](crate::LstmState) of two.
    ///
    /// * `x`: `[batch, length, d_input]`, or `[length, batch, d_input]` without `batch_first`.
    /// * `state`: the state before the first step; zeros if `None`.
    /// * The outputs are `[batch, length, directions * d_hidden]` (or length first): with two directions, the features
    ///   of the reverse direction are last. With a projection, its features are in place of `d_hidden`.
    ///
    /// # Panics
    /// When a shape differs, or the length is 0.
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 3>, state: Option<U::State<B, 3>>) -> (Tensor<B, 3>, U::State<B, 3>) {
        self.run(x, state, None)
    }

    /// Computes [`forward`](Recurrent::forward) of sequences of different lengths, padded at the end.
    ///
    /// A sequence ends at its length: later steps do not change its state, and their outputs are 0. The reverse
    /// direction starts at the last step of each sequence. `lengths` is a slice of `usize` or an integer tensor
    /// `[batch]`, in any order. The result is that of PyTorch's `pack_padded_sequence` with `enforce_sorted=False`,
    /// padded to the length of `x`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::LstmConfig;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let lstm = LstmConfig::new(3, 4, true).init::<Flex>(&device);
    /// let x = Tensor::<Flex, 3>::ones([2, 5, 3], &device);
    /// let (y, state) = lstm.forward_packed(x.clone(), &[2, 5], None);
    /// assert_eq!(y.narrow(0, 0, 1).narrow(1, 2, 3).abs().max().into_scalar::<f32>(), 0.0);
    /// // The state of the first sequence is the one after 2 steps.
    /// let (_, short) = lstm.forward(x.narrow(0, 0, 1).narrow(1, 0, 2), None);
    /// let difference = state.hidden.narrow(1, 0, 1) - short.hidden;
    /// assert!(difference.abs().max().into_scalar::<f32>() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// When a shape differs, the length of `x` is 0, or a length in a slice is above that of `x`.
    #[track_caller]
    pub fn forward_packed(
        &self,
        x: Tensor<B, 3>,
        lengths: impl SequenceLengths<B>,
        state: Option<U::State<B, 3>>,
    ) -> (Tensor<B, 3>, U::State<B, 3>) {
        let lengths = self.layers.lengths(&x, lengths);
        self.run(x, state, Some(lengths))
    }

    #[track_caller]
    fn run(
        &self,
        x: Tensor<B, 3>,
        state: Option<U::State<B, 3>>,
        lengths: Option<Tensor<B, 1, Int>>,
    ) -> (Tensor<B, 3>, U::State<B, 3>) {
        let (y, states) = run(self.options, &self.layers, x, state.map(State::into_tensors), lengths);
        (y, State::from_tensors(states))
    }
}

impl<U: Unit, B: Backend> Module for Recurrent<U, B> {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        let [name, _] = U::MODULES;
        visitor.enter(path, name);
        self.layers.visit(path, visitor);
        self.options.visit_field(path, visitor);
        visitor.exit(path, name);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        let [name, _] = U::MODULES;
        visitor.enter(path, name);
        self.layers.visit_mut(path, visitor);
        visitor.exit(path, name);
    }
}

impl<U: Unit, B: Backend> BackendModule<B> for Recurrent<U, B> {}

impl<U: Unit, B: Backend, B2: Backend> ModuleOn<B2> for Recurrent<U, B> {
    type On = Recurrent<U, B2>;

    #[track_caller]
    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Recurrent<U, B2> {
        Recurrent { layers: self.layers.on(path, place), options: self.options }
    }
}

impl<U: Unit, B: Backend> fmt::Display for Recurrent<U, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::module::display(self, f)
    }
}

/// Returns the outputs of all steps, from a state of zeros.
impl<U: Unit, B: Backend> ForwardModule<Tensor<B, 3>> for Recurrent<U, B> {
    type Output = Tensor<B, 3>;

    #[track_caller]
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        Recurrent::forward(self, x, None).0
    }
}
