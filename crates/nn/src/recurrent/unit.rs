//! The units: how one step computes its state.

use super::options::{GruOptions, LstmOptions};
use super::weights::RecurrentWeights;
use crate::{Config, Param};
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::activation::relu;
use kiln_tensor::{Backend, Tensor};

/// A kind of recurrent unit. States are `[batch, width]`; the first is the hidden state, which is also the output.
///
/// A step is split for speed: a unit multiplies the inputs of all steps by `weight_ih` at once, before the first step.
/// [`Unit::input_bias`] is added to that product, and [`Unit::step`] computes the remainder.
pub(super) trait Unit: Copy + 'static {
    /// The name in messages.
    const NAME: &'static str;
    /// The names of the states in messages.
    const STATES: &'static [&'static str];

    /// The widths of the states.
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

fn value<B: Backend>(bias: &Option<Param<Tensor<B, 1>>>) -> Option<Tensor<B, 1>> {
    bias.as_ref().map(Param::val)
}

fn sum<B: Backend>(a: Option<Tensor<B, 1>>, b: Option<Tensor<B, 1>>) -> Option<Tensor<B, 1>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    }
}

/// The activation of an [`Rnn`](crate::Rnn).
#[derive(Config, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nonlinearity {
    /// Hyperbolic tangent.
    #[default]
    Tanh,
    /// `max(x, 0)`.
    Relu,
}

crate::plain_data!(Nonlinearity);

/// `h' = activation(product + h Wᵀ_hh)`
#[derive(Clone, Copy)]
pub(super) struct RnnUnit {
    pub(super) nonlinearity: Nonlinearity,
}

impl Unit for RnnUnit {
    const NAME: &'static str = "rnn";
    const STATES: &'static [&'static str] = &["hidden"];

    fn step<B: Backend>(
        self,
        product: Tensor<B, 2>,
        states: Vec<Tensor<B, 2>>,
        constants: &[Tensor<B, 2>],
    ) -> Vec<Tensor<B, 2>> {
        let [hidden] = exactly(states);
        let sum = product + hidden.matmul(constants[0].clone());
        vec![match self.nonlinearity {
            Nonlinearity::Tanh => sum.tanh(),
            Nonlinearity::Relu => relu(sum),
        }]
    }
}

/// `r, z = σ(product + h Wᵀ_hh)`, `n = tanh(product + r (h Wᵀ_hh + bias_hn))`, `h' = n + z (h - n)`
///
/// With `reset_after`, the bias of the new gate is inside the product with `r`, so it is a constant of the steps.
/// Otherwise `n = tanh(product + (r h) Wᵀ_hn)`, where the product contains the bias.
impl Unit for GruOptions {
    const NAME: &'static str = "gru";
    const STATES: &'static [&'static str] = &["hidden"];

    fn input_bias<B: Backend>(self, weights: &RecurrentWeights<B>) -> Option<Tensor<B, 1>> {
        let hidden = value(&weights.bias_hh).map(|bias| {
            let width = bias.dims()[0] / 3;
            if self.reset_after { bias.narrow(0, 0, 2 * width).pad([(0, width)], 0) } else { bias }
        });
        sum(value(&weights.bias_ih), hidden)
    }

    /// With `reset_after`: the transpose of `weight_hh`, and the part of `bias_hh` of the new gate, `[1, hidden]`.
    /// Otherwise the transposes of the rows of `weight_hh` of the two gates, and of the new state.
    fn constants<B: Backend>(self, weights: &RecurrentWeights<B>) -> Vec<Tensor<B, 2>> {
        let weight = weights.weight_hh.val();
        let width = weight.dims()[1];
        if !self.reset_after {
            let new = weight.clone().narrow(0, 2 * width, width);
            return vec![weight.narrow(0, 0, 2 * width).transpose(), new.transpose()];
        }
        let new = value(&weights.bias_hh).map(|bias| bias.narrow(0, 2 * width, width).unsqueeze_dim(0));
        core::iter::once(weight.transpose()).chain(new).collect()
    }

    fn step<B: Backend>(
        self,
        product: Tensor<B, 2>,
        states: Vec<Tensor<B, 2>>,
        constants: &[Tensor<B, 2>],
    ) -> Vec<Tensor<B, 2>> {
        let [hidden] = exactly(states);
        let (new, update) = match self.reset_after {
            true => self.reset_product(product, &hidden, constants),
            false => self.reset_hidden(product, &hidden, constants),
        };
        let new = self.hidden_activation.apply(new);
        vec![clipped(new.clone() + update * (hidden - new), self.clip)]
    }
}

impl GruOptions {
    /// The new state before its activation, and the update gate, with `reset_after`.
    fn reset_product<B: Backend>(
        self,
        product: Tensor<B, 2>,
        hidden: &Tensor<B, 2>,
        constants: &[Tensor<B, 2>],
    ) -> (Tensor<B, 2>, Tensor<B, 2>) {
        let [reset, update, new] = exactly(product.chunk(3, 1));
        let [hidden_reset, hidden_update, hidden_new] =
            exactly(hidden.clone().matmul(constants[0].clone()).chunk(3, 1));
        let hidden_new = match constants.get(1) {
            Some(bias) => hidden_new + bias.clone(),
            None => hidden_new,
        };
        let reset = self.gate_activation.apply(reset + hidden_reset);
        let update = self.gate_activation.apply(update + hidden_update);
        (new + reset * hidden_new, update)
    }

    /// The new state before its activation, and the update gate, without `reset_after`.
    fn reset_hidden<B: Backend>(
        self,
        product: Tensor<B, 2>,
        hidden: &Tensor<B, 2>,
        constants: &[Tensor<B, 2>],
    ) -> (Tensor<B, 2>, Tensor<B, 2>) {
        let [reset, update, new] = exactly(product.chunk(3, 1));
        let [hidden_reset, hidden_update] = exactly(hidden.clone().matmul(constants[0].clone()).chunk(2, 1));
        let reset = self.gate_activation.apply(reset + hidden_reset);
        let update = self.gate_activation.apply(update + hidden_update);
        (new + (reset * hidden.clone()).matmul(constants[1].clone()), update)
    }
}

/// `i, f, g, o = product + h Wᵀ_hh`, `c' = σ(f) c + σ(i) tanh(g)`, `h' = σ(o) tanh(c')`, with a projection
/// `h' = W_hr σ(o) tanh(c')`
///
/// With `input_forget` there is no `f`: `c' = c + σ(i) (tanh(g) - c)`.
impl Unit for LstmOptions {
    const NAME: &'static str = "lstm";
    const STATES: &'static [&'static str] = &["hidden", "cell"];

    fn widths<B: Backend>(self, weights: &RecurrentWeights<B>) -> Vec<usize> {
        let [rows, width] = weights.weight_hh.dims();
        vec![width, rows / self.gates()]
    }

    fn constants<B: Backend>(self, weights: &RecurrentWeights<B>) -> Vec<Tensor<B, 2>> {
        let projection = weights.weight_hr.as_ref().map(|weight| weight.val().transpose());
        core::iter::once(weights.weight_hh.val().transpose()).chain(projection).collect()
    }

    fn step<B: Backend>(
        self,
        product: Tensor<B, 2>,
        states: Vec<Tensor<B, 2>>,
        constants: &[Tensor<B, 2>],
    ) -> Vec<Tensor<B, 2>> {
        let [hidden, cell] = exactly(states);
        let gates = product + hidden.matmul(constants[0].clone());
        let (cell, output) = match self.input_forget {
            true => self.coupled_cell(gates, cell),
            false => self.cell(gates, cell),
        };
        let cell = clipped(cell, self.clip);
        let hidden = self.gate_activation.apply(output) * self.hidden_activation.apply(cell.clone());
        let hidden = match constants.get(1) {
            Some(projection) => hidden.matmul(projection.clone()),
            None => hidden,
        };
        vec![hidden, cell]
    }
}

impl LstmOptions {
    /// The cell state, and the output gate before its activation.
    fn cell<B: Backend>(self, gates: Tensor<B, 2>, cell: Tensor<B, 2>) -> (Tensor<B, 2>, Tensor<B, 2>) {
        let [input, forget, new, output] = exactly(gates.chunk(4, 1));
        let kept = self.gate_activation.apply(forget) * cell;
        (kept + self.gate_activation.apply(input) * self.cell_activation.apply(new), output)
    }

    /// The cell state with `input_forget`, and the output gate before its activation.
    fn coupled_cell<B: Backend>(
        self,
        gates: Tensor<B, 2>,
        cell: Tensor<B, 2>,
    ) -> (Tensor<B, 2>, Tensor<B, 2>) {
        let [input, new, output] = exactly(gates.chunk(3, 1));
        let change = self.cell_activation.apply(new) - cell.clone();
        (cell + self.gate_activation.apply(input) * change, output)
    }
}

fn clipped<B: Backend>(state: Tensor<B, 2>, clip: Option<f64>) -> Tensor<B, 2> {
    match clip {
        Some(clip) => state.clamp(-clip, clip),
        None => state,
    }
}

/// Converts a list to an array. The list is of this length wherever the module checked its operands.
fn exactly<T, const N: usize>(list: Vec<T>) -> [T; N] {
    let count = list.len();
    match list.try_into() {
        Ok(array) => array,
        Err(_) => panic!("[recurrent] expected {N} tensors, got {count}"),
    }
}
