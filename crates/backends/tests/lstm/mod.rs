//! An LSTM as a loop and unrolled, shared by tests.

use kiln_tensor::transform::scan;
use kiln_tensor::{Backend, Distribution, Tensor, activation};

/// Hidden units, inputs and examples of the LSTM cells below.
pub(crate) const HIDDEN: usize = 4;
pub(crate) const INPUTS: usize = 3;
pub(crate) const EXAMPLES: usize = 2;

pub(crate) type State<B> = (Tensor<B, 2>, Tensor<B, 2>);
pub(crate) type Weights<B> = (Tensor<B, 2>, Tensor<B, 2>, Tensor<B, 1>);

/// One step of an LSTM: `gates = x Wᵀ + h Uᵀ + b`, in the order of PyTorch.
pub(crate) fn lstm_cell<B: Backend>(
    (h, c): State<B>,
    x: Tensor<B, 2>,
    (w, u, b): Weights<B>,
) -> (State<B>, Tensor<B, 2>) {
    let gates = x.matmul(w.transpose()) + h.matmul(u.transpose()) + b.unsqueeze::<2>();
    let gate = |number: usize| gates.clone().narrow(1, number * HIDDEN, HIDDEN);
    let (input, forget) = (activation::sigmoid(gate(0)), activation::sigmoid(gate(1)));
    let c = forget * c + input * gate(2).tanh();
    let h = activation::sigmoid(gate(3)) * c.clone().tanh();
    ((h.clone(), c), h)
}

pub(crate) fn drawn<B: Backend, const D: usize>(shape: [usize; D]) -> Tensor<B, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 0.5), &Default::default())
}

pub(crate) fn weights<B: Backend>() -> Weights<B> {
    (drawn([4 * HIDDEN, INPUTS]), drawn([4 * HIDDEN, HIDDEN]), drawn([4 * HIDDEN]))
}

pub(crate) fn zeros<B: Backend>() -> State<B> {
    let zeros = Tensor::zeros([EXAMPLES, HIDDEN], &Default::default());
    (zeros.clone(), zeros)
}

pub(crate) fn looped<B: Backend>(
    x: Tensor<B, 3>,
    weights: Weights<B>,
    reverse: bool,
) -> (State<B>, Tensor<B, 3>) {
    scan(zeros(), x, weights, reverse, lstm_cell::<B>)
}

pub(crate) fn unrolled<B: Backend>(
    x: Tensor<B, 3>,
    weights: Weights<B>,
    reverse: bool,
) -> (State<B>, Tensor<B, 3>) {
    let steps = x.dims()[0];
    let mut state = zeros();
    let mut outputs = Vec::new();
    for number in 0..steps {
        let step = if reverse { steps - 1 - number } else { number };
        let slice = x.clone().narrow(0, step, 1).squeeze_dim::<2>(0);
        let output;
        (state, output) = lstm_cell(state, slice, weights.clone());
        outputs.push(output);
    }
    if reverse {
        outputs.reverse();
    }
    (state, Tensor::stack(outputs, 0))
}
