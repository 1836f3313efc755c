//! Gradients of many slices of one tensor.

use crate::layer::counting::Counting;
use crate::layer::{gradient, leaf, numbers, value};
use kiln_autodiff::{Autodiff, Checkpointing};
use kiln_ir::{DType, Engine, Op, Recorder, SliceAxis, TensorData, TensorType, Value, Var, gradient_program};
use std::sync::Arc;

/// A read of row `t` of a matrix, `[1, columns]`.
type Read = for<'e> fn(&Var<'e>, usize) -> Var<'e>;

fn sliced<'e>(x: &Var<'e>, t: usize) -> Var<'e> {
    x.slice_axis(0, SliceAxis { start: t, len: 1, step: 1 })
}

fn taken<'e>(x: &Var<'e>, t: usize) -> Var<'e> {
    let index = Var::full(x.engine(), TensorType::new([1], DType::I32), t as i64);
    x.take(0, &index)
}

fn gathered<'e>(x: &Var<'e>, t: usize) -> Var<'e> {
    let index = Var::full(x.engine(), TensorType::new([1, x.shape()[1]], DType::I32), t as i64);
    x.gather(0, &index)
}

fn matrix<'e>(layer: &'e Autodiff, rows: usize, columns: usize) -> Var<'e> {
    let elements: Vec<f64> = (0..rows * columns).map(|i| (i as f64 * 0.37).sin()).collect();
    let data = TensorData::new(elements, [rows, columns]).expect("a matrix");
    Var::new(layer, layer.require_grad(layer.write(data)))
}

/// The elements touched, forward and backward, by a recurrent network over the rows of one tensor.
fn touched_by_recurrence(time: usize, read: Read) -> usize {
    let engine = Counting::new();
    let layer = Autodiff::new(engine.clone(), Checkpointing::None);
    let (x, weight) = (matrix(&layer, time, 4), matrix(&layer, 4, 4));
    let mut state = Var::zeros(&layer, TensorType::new([1, 4], DType::F64));
    let mut states = Vec::new();
    for t in 0..time {
        state = (read(&x, t) + state.matmul(&weight)).tanh();
        states.push(state.clone());
    }
    let loss = Var::concat(&states, 0).square().sum(&[0, 1]).into_value();
    drop((state, states));
    let gradients = layer.backward_owned(loss, None).expect("a gradient");
    assert_eq!(gradient(&layer, &gradients, &x).len(), time * 4);
    engine.touched()
}

#[test]
fn gradient_work_is_linear_in_the_number_of_reads() {
    for (name, read) in [("slice", sliced as Read), ("take", taken), ("gather", gathered)] {
        let (once, twice) = (touched_by_recurrence(200, read), touched_by_recurrence(400, read));
        let ratio = twice as f64 / once as f64;
        assert!(ratio < 2.1, "{name}: {once} elements for 200 steps, {twice} for 400");
    }
}

#[test]
fn gradients_of_overlapping_and_repeated_slices_accumulate() {
    let engine = Counting::new();
    let layer = Autodiff::new(engine, Checkpointing::None);
    let x = leaf(&layer, &[1.0, 2.0, 3.0, 4.0, 5.0]);
    let ranges = |n: usize| match n % 4 {
        0 => SliceAxis { start: n % 5, len: 1, step: 1 },
        1 => SliceAxis { start: 4, len: 3, step: -2 },
        2 => SliceAxis { start: 0, len: 0, step: 1 },
        _ => SliceAxis { start: 1, len: 4, step: 1 },
    };
    let mut expected = [0.0; 5];
    let mut loss = x.square().sum(&[0]);
    for n in 0..40 {
        let factor = f64::from(n as u32 + 1);
        let range = ranges(n);
        loss = loss + (x.slice(vec![range]) * factor).sum(&[0]);
        for i in 0..range.len as isize {
            expected[(range.start as isize + i * range.step) as usize] += factor;
        }
    }
    for (i, slot) in expected.iter_mut().enumerate() {
        *slot += 2.0 * (i as f64 + 1.0);
    }
    let gradients = layer.backward(&value(&loss), None).expect("a gradient");
    assert_eq!(gradient(&layer, &gradients, &x), expected);
}

#[test]
fn second_gradients_of_many_slices() {
    let base: Arc<dyn Engine> = Counting::new();
    let inner = Arc::new(Autodiff::new(base.clone(), Checkpointing::None));
    let outer = Autodiff::new(inner.clone(), Checkpointing::None);
    let count = 24;
    let elements: Vec<f64> = (0..count).map(|i| 1.0 + i as f64 * 0.1).collect();
    for read in [(|x, t| x.slice_axis(0, SliceAxis { start: t, len: 1, step: 1 })) as Read, |x, t| {
        x.take(0, &Var::full(x.engine(), TensorType::new([1], DType::I32), t as i64))
    }] {
        let lower: Value = inner.require_grad(base.write(elements.clone().into()));
        let upper: Value = outer.require_grad(lower.clone());
        let x = Var::new(&outer, upper.clone());
        // Σ x[t]³ x[0]: the gradient is 3 x[t]² x[0], and Σ x³ more at 0.
        let first = read(&x, 0);
        let terms = (0..count).map(|t| {
            let part = read(&x, t);
            part.square() * part * &first
        });
        let loss = terms.reduce(|sum, term| sum + term).expect("terms").into_value();
        let slope = outer.backward(&loss, None).expect("a gradient").get(&upper).expect("of x");
        let total = Var::new(&*inner, slope.clone()).sum(&[0]).into_value();
        let second = inner.backward(&total, None).expect("a gradient").get(&lower).expect("of x");
        let cubes: f64 = elements.iter().map(|x| x.powi(3)).sum();
        let squares: f64 = elements.iter().map(|x| x.powi(2)).sum();
        let (slope, second) = (numbers(&*inner, slope), numbers(&*base, second));
        for (t, &x) in elements.iter().enumerate() {
            let (first, last) = (elements[0], if t == 0 { 1.0 } else { 0.0 });
            let expected = 3.0 * x * x * first + last * cubes;
            assert!((slope[t] - expected).abs() < 1e-9, "{} instead of {expected} at {t}", slope[t]);
            let expected = 6.0 * x * first + 3.0 * x * x + last * 3.0 * squares;
            assert!((second[t] - expected).abs() < 1e-9, "{} instead of {expected} at {t}", second[t]);
        }
    }
}

#[test]
fn a_gradient_program_accumulates_many_slices_in_place() {
    let count = 12;
    let ty = TensorType::new([count], DType::F64);
    let recorder = Recorder::new(&[ty]);
    let x = Var::new(&recorder, recorder.inputs().remove(0));
    let terms = (0..count).map(|t| x.slice_axis(0, SliceAxis { start: t, len: 1, step: 1 }).square());
    let y = terms.reduce(|sum, term| sum + term).expect("terms").into_operand();
    let program = gradient_program(&recorder.finish(&[y])).expect("a gradient");
    let ops = |is: fn(&Op) -> bool| program.instructions.iter().filter(|step| is(&step.op)).count();
    assert_eq!(ops(|op| matches!(op, Op::Pad(_))), 8);
    assert_eq!(ops(|op| matches!(op, Op::SliceUpdate { .. })), 4);
    let engine = kiln_reference::Reference::new();
    let numbers: Vec<f64> = (0..count).map(|i| i as f64).collect();
    let seed = TensorData::new(vec![1.0f64], [1]).expect("one");
    let inputs = [numbers.clone().into(), seed].map(|data: TensorData| engine.write(data));
    let gradient = program.run(&engine, inputs.into_iter().collect()).remove(0);
    let expected: Vec<f64> = numbers.iter().map(|x| 2.0 * x).collect();
    assert_eq!(crate::layer::numbers(&engine, gradient), expected);
}
