//! The units: how one step computes its state.

use super::weights::RecurrentWeights;
use crate::{Module, Param, Path, Visitor};
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::{Backend, Tensor};

/// A kind of recurrent module, as the options of one step: [`RnnOptions`](crate::RnnOptions),
/// [`GruOptions`](crate::GruOptions) or [`LstmOptions`](crate::LstmOptions).
///
/// Tensors of states are `[batch, width]`; the first is the hidden state, which is also the output.
///
/// A step is split for speed: a unit multiplies the inputs of all steps by `weight_ih` at once, before the first step.
/// `input_bias` is added to that product, and `step` computes the remainder.
pub trait Unit: Module + Copy + 'static {
    /// The state: a tensor, or a struct of tensors.
    type State<B: Backend, const D: usize>: State<B, D>;

    /// The names of the module of layers and of the cell in layer tables.
    const MODULES: [&'static str; 2];
    /// The name in messages.
    const NAME: &'static str;
    /// The names of the tensors of a state in messages.
    const STATES: &'static [&'static str];

    /// Returns the options if they are valid.
    ///
    /// # Panics
    /// When an option is out of its range.
    #[track_caller]
    #[must_use]
    fn checked(self) -> Self {
        self
    }

    /// The number of gates in the weights.
    fn gates(self) -> usize;

    /// Visits the options as a field of a module at `path`.
    fn visit_field(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        path.within("options", |path| self.visit(path, visitor));
    }

    /// The widths of the tensors of a state.
    fn widths<B: Backend>(self, weights: &RecurrentWeights<B>) -> Vec<usize> {
        vec![weights.weight_hh.dims()[1]; Self::STATES.len()]
    }

    /// The bias of the input product: `bias_ih`, and `bias_hh` where it is added to the same sum.
    fn input_bias<B: Backend>(self, weights: &RecurrentWeights<B>) -> Option<Tensor<B, 1>> {
        sum(value(&weights.bias_ih), value(&weights.bias_hh))
    }

    /// The tensors that each step reads: the transpose of `weight_hh` first, or of its rows that multiply the hidden
    /// state itself.
    fn constants<B: Backend>(self, weights: &RecurrentWeights<B>) -> Vec<Tensor<B, 2>> {
        vec![weights.weight_hh.val().transpose()]
    }

    /// Returns the states after a step, from the input product `x Wᵀ_ih + input_bias`, `[batch, gates * hidden]`, the
    /// states before it, and the constants.
    fn step<B: Backend>(
        self,
        product: Tensor<B, 2>,
        states: Vec<Tensor<B, 2>>,
        constants: &[Tensor<B, 2>],
    ) -> Vec<Tensor<B, 2>>;
}

/// The state of a unit: its tensors, with the hidden state first.
pub trait State<B: Backend, const D: usize> {
    /// Returns the tensors.
    fn into_tensors(self) -> Vec<Tensor<B, D>>;

    /// Returns the state of these tensors.
    fn from_tensors(tensors: Vec<Tensor<B, D>>) -> Self;
}

impl<B: Backend, const D: usize> State<B, D> for Tensor<B, D> {
    fn into_tensors(self) -> Vec<Tensor<B, D>> {
        vec![self]
    }

    fn from_tensors(tensors: Vec<Tensor<B, D>>) -> Self {
        let [state] = exactly(tensors);
        state
    }
}

pub(super) fn value<B: Backend>(bias: &Option<Param<Tensor<B, 1>>>) -> Option<Tensor<B, 1>> {
    bias.as_ref().map(Param::val)
}

pub(super) fn sum<B: Backend>(a: Option<Tensor<B, 1>>, b: Option<Tensor<B, 1>>) -> Option<Tensor<B, 1>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    }
}

pub(super) fn clipped<B: Backend>(state: Tensor<B, 2>, clip: Option<f64>) -> Tensor<B, 2> {
    match clip {
        Some(clip) => state.clamp(-clip, clip),
        None => state,
    }
}

/// Converts a list to an array. The list is of this length wherever the module checked its operands.
pub(super) fn exactly<T, const N: usize>(list: Vec<T>) -> [T; N] {
    let count = list.len();
    match list.try_into() {
        Ok(array) => array,
        Err(_) => panic!("[recurrent] expected {N} tensors, got {count}"),
    }
}
