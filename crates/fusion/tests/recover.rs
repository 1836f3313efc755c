//! `Op::Recover` in recordings: fallible inputs are checked, gradients stay in the kernels that use them, and old
//! values are selected if an op failed.

use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{Engine, IndexUser, Op, Operands, TensorData, Value, Var, block_on};
use kiln_reference::Reference;
use std::sync::Arc;

fn fusion() -> Fusion {
    Fusion::with_mode(Arc::new(Cpu::with_threads(2)), Mode::On)
}

fn grid(rows: usize, columns: usize, scale: f32) -> TensorData {
    let numbers = (0..rows * columns).map(|i| ((i * 37 % 101) as f32 / 101.0 - 0.5) * scale).collect();
    TensorData::new(numbers, [rows, columns]).unwrap()
}

fn read(engine: &dyn Engine, value: Value) -> Vec<f32> {
    block_on(engine.read(value)).unwrap().to_vec()
}

/// A training step of two weights: new weights, a flag, the cause, and the first gradient recovered.
fn step<'e>(engine: &'e dyn Engine, labels: &[i32], checks: bool, recovers: bool) -> Vec<Var<'e>> {
    let write = |data| Var::new(engine, engine.write(data));
    let (x, w, v) = (write(grid(8, 16, 1.0)), write(grid(16, 32, 0.3)), write(grid(32, 4, 0.3)));
    let labels = write(TensorData::new(labels.to_vec(), [8, 1]).unwrap());
    let index = if checks {
        labels.apply(Op::CheckIndex { length: 4, user: IndexUser::CrossEntropy }, &[])
    } else {
        labels
    };
    let hidden = x.matmul(&w).tanh();
    // A loss over the selected logits, and its gradients by hand.
    let slope = hidden.matmul(&v).apply(Op::Softmax { axis: 1, log: false }, &[]);
    let zeros = Var::zeros(engine, slope.ty());
    let ones = Var::full(engine, index.ty().with_dtype(kiln_ir::DType::F32), 1.0);
    let slope = slope - zeros.scatter(1, kiln_ir::UpdateMode::Add, &index, &ones);
    let by_v = hidden.permute(&[1, 0]).matmul(&slope);
    let by_w =
        x.permute(&[1, 0]).matmul(&(slope.matmul(&v.permute(&[1, 0])) * ((&hidden * &hidden) * -1.0 + 1.0)));
    if !recovers {
        return vec![&w - by_w * 0.1, &v - by_v * 0.1];
    }
    let operands: Operands = [by_w, by_v, w.clone(), v.clone()].into_iter().map(Var::into_operand).collect();
    let mut results = Var::emit(engine, &Op::Recover { watched: 2 }, operands);
    let (cause, ok) = (results.pop().unwrap(), results.pop().unwrap());
    let new =
        [(&w, &results[0]), (&v, &results[1])].map(|(old, gradient)| ok.select(&(old - gradient * 0.1), old));
    let [w, v] = new;
    vec![w, v, ok, cause]
}

const GOOD: [i32; 8] = [0, 1, 2, 3, 3, 2, 1, 0];
const BAD: [i32; 8] = [0, 1, 2, 3, 3, 4, 1, 0];

#[test]
fn an_optimizer_step_is_atomic() {
    for checks in [true, false] {
        for labels in [GOOD, BAD] {
            let (reference, fusion) = (Reference::new(), fusion());
            let engines: [&dyn Engine; 3] = [&reference, &Cpu::with_threads(1), &fusion];
            let all = engines.map(|engine| {
                let mut results = step(engine, &labels, checks, true);
                let cause = block_on(engine.read(results.pop().unwrap().into_value()));
                let ok = read(engine, results.pop().unwrap().into_value()) == [1.0];
                let numbers: Vec<Vec<f32>> =
                    results.into_iter().map(|var| read(engine, var.into_value())).collect();
                (ok, cause.err().map(|error| error.to_string()), numbers)
            });
            let is_good = labels == GOOD;
            for (ok, error, numbers) in &all {
                assert_eq!((*ok, error.is_none()), (is_good, is_good));
                let name =
                    if checks { "[cross_entropy] label 4 at position [5, 0]" } else { "[scatter] index 4" };
                assert!(is_good || error.as_ref().unwrap().starts_with(name), "{error:?}");
                for (found, expected) in numbers.iter().flatten().zip(all[0].2.iter().flatten()) {
                    assert!((found - expected).abs() < 1e-5, "{found} instead of {expected}");
                }
            }
            if !is_good {
                assert_eq!(all[2].2[0], grid(16, 32, 0.3).to_vec::<f32>());
            }
        }
    }
}

/// It splits neither matmuls nor updates into separate kernels.
#[test]
fn recover_of_infallible_values_adds_no_step() {
    let steps = |recovers: bool| {
        let fusion = fusion();
        let mut results = step(&fusion, &GOOD, true, recovers);
        results.truncate(2);
        for var in results {
            read(&fusion, var.into_value());
        }
        fusion.statistics()
    };
    let (plain, guarded) = (steps(false), steps(true));
    assert_eq!(guarded.regions_run, plain.regions_run);
    // The recovery, and a view of the flag for each weight.
    assert!(guarded.steps_run <= plain.steps_run + 3, "{guarded:?} {plain:?}");
}

/// A recovered value is readable without the error.
#[test]
fn recovered_values_are_readable() {
    for index in [1, 7] {
        let fusion = fusion();
        let write = |data| Var::new(&fusion as &dyn Engine, fusion.write(data));
        let x = write(TensorData::from([1.0f32, 2.0, 3.0]));
        let taken = x.take(0, &write(TensorData::from([0, index]))) * 2.0;
        let operands: Operands = [taken.into_operand()].into_iter().collect();
        let results = Var::emit(&fusion, &Op::Recover { watched: 0 }, operands);
        let [value, ok, _] = results.try_into().unwrap_or_else(|_| panic!("three results"));
        let found = read(&fusion, value.into_value());
        assert_eq!(found, if index == 1 { [2.0, 4.0] } else { [0.0, 0.0] });
        assert_eq!(read(&fusion, ok.into_value()), [if index == 1 { 1.0 } else { 0.0 }]);
    }
}
