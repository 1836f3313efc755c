//! Layers and directions of a recurrent module.

use super::scan::{Order, Step, scan};
use super::unit::Unit;
use super::weights::{RecurrentLayers, RecurrentWeights};
use crate::Dropout;
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::{AnyTensor, Backend, Bool, Int, Result, Tensor, TensorType, module};

/// The outputs of the last layer, and the states of all layers and directions after the last step, one tensor
/// `[layers * directions, batch, width]` per state of the unit.
pub(super) type Outputs<B> = (Tensor<B, 3>, Vec<Tensor<B, 3>>);

/// Computes all layers. `lengths` is `[batch]`.
#[track_caller]
pub(super) fn run<B: Backend, U: Unit>(
    unit: U,
    layers: &RecurrentLayers<B>,
    x: Tensor<B, 3>,
    states: Option<Vec<Tensor<B, 3>>>,
    lengths: Option<Tensor<B, 1, Int>>,
) -> Outputs<B> {
    check_input::<U>(x.dims(), layers.d_input(), layers.batch_first);
    let mut x = if layers.batch_first { x.swap_dims(0, 1) } else { x };
    let [length, batch, _] = x.dims();
    let states = match states {
        Some(states) => split_states(unit, layers, states, batch),
        None => zero_states(unit, layers, &x),
    };
    let mask = lengths.map(|lengths| Mask::new(lengths, length));
    // Numbers after the end of a sequence must not reach the weights' gradients, where zero times NaN is NaN.
    x = mask.as_ref().map_or(x.clone(), |mask| mask.zeroed(x));

    let directions = layers.num_directions();
    let mut last = vec![Vec::new(); U::STATES.len()];
    let mut remaining = states.into_iter();
    for (layer, weights) in layers.weights.chunks(directions).enumerate() {
        let orders = [Order::FirstToLast, Order::LastToFirst];
        let mut outputs = Vec::with_capacity(directions);
        for ((weights, order), states) in weights.iter().zip(orders).zip(remaining.by_ref()) {
            let (y, states) = run_direction(unit, weights, order, x.clone(), states, mask.as_ref());
            outputs.push(y);
            last.iter_mut().zip(states).for_each(|(all, state)| all.push(state));
        }
        x = joined(outputs);
        if layer + 1 < layers.num_layers() {
            x = Dropout { prob: layers.dropout, mode: layers.mode }.forward(x);
        }
    }
    let y = if layers.batch_first { x.swap_dims(0, 1) } else { x };
    (y, last.into_iter().map(|states| Tensor::stack(states, 0)).collect())
}

/// Computes one direction of one layer: outputs `[length, batch, state]`, and the states `[batch, width]` after the
/// last step.
#[track_caller]
fn run_direction<B: Backend, U: Unit>(
    unit: U,
    weights: &RecurrentWeights<B>,
    order: Order,
    x: Tensor<B, 3>,
    states: Vec<Tensor<B, 2>>,
    mask: Option<&Mask<B>>,
) -> (Tensor<B, 3>, Vec<Tensor<B, 2>>) {
    let product = input_product(unit, weights, x);
    let scanned = core::iter::once(product.into_any()).chain(mask.map(Mask::of_steps)).collect();
    let constants: Vec<AnyTensor> = unit.constants(weights).into_iter().map(Tensor::into_any).collect();
    let carried = states.into_iter().map(Tensor::into_any).collect();

    let body = move |carried: Vec<AnyTensor>, scanned: Vec<AnyTensor>, constants: &[AnyTensor]| {
        step::<B, U>(unit, carried, scanned, constants)
    };
    let Step { carried, mut outputs } = ok(scan(order, carried, scanned, &constants, body));
    let y = Tensor::from_any(outputs.remove(0));
    (mask.map_or(y.clone(), |mask| mask.zeroed(y)), typed(carried))
}

/// The product of inputs of any number of steps, `[.., input]`, with `weight_ih`, `[.., gates * hidden]`.
#[track_caller]
fn input_product<B: Backend, U: Unit, const D: usize>(
    unit: U,
    weights: &RecurrentWeights<B>,
    x: Tensor<B, D>,
) -> Tensor<B, D> {
    module::linear(x, weights.weight_ih.val(), unit.input_bias(weights))
}

/// The body of the iteration over steps: `(states, [input product, mask?], constants) -> (states, [hidden state])`.
fn step<B: Backend, U: Unit>(
    unit: U,
    carried: Vec<AnyTensor>,
    mut scanned: Vec<AnyTensor>,
    constants: &[AnyTensor],
) -> Step {
    let mask = (scanned.len() > 1).then(|| Tensor::<B, 2, Bool>::from_any(scanned.remove(1)));
    let product = Tensor::from_any(scanned.remove(0));
    let before = typed::<B>(carried);
    // Without a mask the step owns the states, so an engine may reuse their memory.
    let kept = mask.map(|mask| (mask, before.clone()));
    let after = unit.step(product, before, &typed::<B>(constants.to_vec()));
    let after: Vec<Tensor<B, 2>> = match kept {
        Some((mask, before)) => {
            let select = |(old, new): (Tensor<B, 2>, Tensor<B, 2>)| old.mask_where(mask.clone(), new);
            before.into_iter().zip(after).map(select).collect()
        }
        None => after,
    };
    let carried: Vec<AnyTensor> = after.into_iter().map(Tensor::into_any).collect();
    Step { outputs: vec![carried[0].clone()], carried }
}

/// Computes one step of a cell: the states `[batch, width]` after it.
#[track_caller]
pub(super) fn run_cell<B: Backend, U: Unit>(
    unit: U,
    weights: &RecurrentWeights<B>,
    x: Tensor<B, 2>,
    states: Option<Vec<Tensor<B, 2>>>,
) -> Vec<Tensor<B, 2>> {
    let ([batch, features], d_input) = (x.dims(), weights.weight_ih.dims()[1]);
    assert!(
        features == d_input,
        "[{}_cell] the input {:?} has {features} features, but the weights expect {d_input}\n  \
         hint: the axes are [batch, features]",
        U::NAME,
        x.dims()
    );
    let widths = unit.widths(weights);
    let states =
        states.unwrap_or_else(|| widths.iter().map(|&width| zeros([batch, width], x.as_any())).collect());
    for ((state, width), name) in states.iter().zip(widths).zip(U::STATES) {
        assert!(
            state.dims() == [batch, width],
            "[{}_cell] the {name} state is {:?}, but must be [batch, width] = {:?}",
            U::NAME,
            state.dims(),
            [batch, width]
        );
    }
    unit.step(input_product(unit, weights, x), states, &unit.constants(weights))
}

fn typed<B: Backend>(tensors: Vec<AnyTensor>) -> Vec<Tensor<B, 2>> {
    tensors.into_iter().map(Tensor::from_any).collect()
}

/// Concatenates the outputs of the directions along the features.
fn joined<B: Backend>(mut outputs: Vec<Tensor<B, 3>>) -> Tensor<B, 3> {
    match outputs.len() {
        1 => outputs.remove(0),
        _ => Tensor::cat(outputs, 2),
    }
}

#[track_caller]
fn ok<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// The steps that each sequence has: `[length, batch, 1]`, true before the end of a sequence.
struct Mask<B: Backend> {
    inside: Tensor<B, 3, Bool>,
}

impl<B: Backend> Mask<B> {
    #[track_caller]
    fn new(lengths: Tensor<B, 1, Int>, length: usize) -> Mask<B> {
        let inside = module::padding_mask(lengths, length).transpose().unsqueeze_dim::<3>(2);
        Mask { inside }
    }

    fn of_steps(&self) -> AnyTensor {
        self.inside.clone().into_any()
    }

    /// Sets the steps after the end of each sequence to zero.
    #[track_caller]
    fn zeroed(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        x.mask_fill(self.inside.clone().bool_not(), 0)
    }
}

#[track_caller]
fn check_input<U: Unit>(shape: [usize; 3], d_input: usize, batch_first: bool) {
    let (name, axis) = (U::NAME, usize::from(batch_first));
    assert!(
        shape[2] == d_input,
        "[{name}] the input {shape:?} has {} features, but the weights expect {d_input}\n  \
         hint: the axes are {}",
        shape[2],
        axes(batch_first)
    );
    assert!(
        shape[axis] > 0,
        "[{name}] the input {shape:?} has no steps\n  hint: the axes are {}",
        axes(batch_first)
    );
}

fn axes(batch_first: bool) -> &'static str {
    if batch_first { "[batch, length, features] (batch_first)" } else { "[length, batch, features]" }
}

/// Splits the given states by layer and direction.
#[track_caller]
fn split_states<B: Backend, U: Unit>(
    unit: U,
    layers: &RecurrentLayers<B>,
    states: Vec<Tensor<B, 3>>,
    batch: usize,
) -> Vec<Vec<Tensor<B, 2>>> {
    let count = layers.weights.len();
    for ((state, width), name) in states.iter().zip(unit.widths(&layers.weights[0])).zip(U::STATES) {
        assert!(
            state.dims() == [count, batch, width],
            "[{}] the {name} state is {:?}, but must be [layers * directions, batch, width] = {:?}",
            U::NAME,
            state.dims(),
            [count, batch, width]
        );
    }
    let of = |index: usize| states.iter().map(|state| state.clone().select_dim(0, index as i64)).collect();
    (0..count).map(of).collect()
}

#[track_caller]
fn zero_states<B: Backend, U: Unit>(
    unit: U,
    layers: &RecurrentLayers<B>,
    x: &Tensor<B, 3>,
) -> Vec<Vec<Tensor<B, 2>>> {
    let of = |weights: &RecurrentWeights<B>| {
        unit.widths(weights).into_iter().map(|width| zeros([x.dims()[1], width], x.as_any())).collect()
    };
    layers.weights.iter().map(of).collect()
}

/// Zeros with the dtype and device of `like`.
#[track_caller]
fn zeros<B: Backend>(shape: [usize; 2], like: &AnyTensor) -> Tensor<B, 2> {
    Tensor::from_any(ok(AnyTensor::zeros(TensorType::new(shape, like.dtype()), like.stack())))
}
