//! Planning time of large programs with much sharing: planning visits each op a bounded number of times.

use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode, Plan};
use kiln_ir::{
    Binary, Comparison, DType, Engine, Instruction, Op, Program, ProgramOperand, Recorder, Reduction, Shape,
    TensorData, TensorType, Unary, Value, Var, block_on,
};
use std::sync::Arc;
use std::time::Duration;

/// Fails the test instead of hanging: a pass that visits all paths to an op of these programs takes years.
fn ends(body: impl FnOnce() + Send + 'static) {
    let (done, finished) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match finished.recv_timeout(Duration::from_secs(300)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("hangs"),
        Ok(()) | Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
            if let Err(payload) = thread.join() {
                std::panic::resume_unwind(payload);
            }
        }
    }
}

fn read(engine: &dyn Engine, value: Value) -> Vec<f64> {
    block_on(engine.read(value)).unwrap().to_vec()
}

/// Compares the values of a body with the plain engine, and plans it as a program with only its results live.
fn as_without_fusion(
    data: [TensorData; 2],
    body: impl for<'e> Fn(Var<'e>, &Var<'e>) -> Var<'e> + Send + Sync + 'static,
) {
    ends(move || {
        let run = |engine: &dyn Engine| {
            let [x, y] = data.clone().map(|data| Var::new(engine, engine.write(data)));
            let result = body(x, &y).into_value();
            drop(y);
            read(engine, result)
        };
        let expected = run(&Cpu::with_threads(1));
        let fusion = Fusion::with_mode(Arc::new(Cpu::with_threads(1)), Mode::On);
        let found = run(&fusion);
        assert!(fusion.statistics().regions_run > 0);
        for (a, b) in expected.iter().zip(&found) {
            let same = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-5 * a.abs();
            assert!(same, "{b} instead of {a}");
        }
        let program = Recorder::trace(&data.each_ref().map(|data| data.ty()), |given| {
            vec![body(given[0].clone(), &given[1])]
        });
        assert!(!Plan::of_program(&program).steps().is_empty());
    });
}

fn floats() -> [TensorData; 2] {
    let data = TensorData::new((0..8).map(|i| i as f32 / 10.0 + 0.1).collect::<Vec<_>>(), [8]).unwrap();
    [data.clone(), data]
}

#[test]
fn planning_of_repeated_doubling_terminates() {
    as_without_fusion(floats(), |mut x, _| {
        for _ in 0..300 {
            x = x.clone() + x;
        }
        x
    });
}

#[test]
fn planning_of_newtons_iteration_terminates() {
    as_without_fusion(floats(), |a, _| {
        let mut x = a.clone();
        for _ in 0..300 {
            x = (&x + &(&a / &x)) * 0.5;
        }
        x
    });
}

#[test]
fn planning_of_the_logistic_map_terminates() {
    as_without_fusion(floats(), |mut x, _| {
        for _ in 0..300 {
            // At this rate the map converges to 0.6, so that rounding errors do not grow.
            x = (&x * 2.5) * (x.clone() * -1.0 + 1.0);
        }
        x
    });
}

#[test]
fn planning_of_a_ladder_terminates() {
    as_without_fusion(floats(), |mut a, b| {
        let mut b = b.clone() * 0.1;
        for _ in 0..300 {
            (a, b) = ((&a + &b) * 0.5, &a * &b);
        }
        a + b
    });
}

/// Euclid's algorithm with a fixed number of steps, as `gcd` has it.
#[test]
fn planning_of_euclids_algorithm_terminates() {
    let data = [[12i64, 18, 46_368, 7, 0, 1 << 40], [18, 12, 28_657, 0, 0, 1 << 20]].map(TensorData::from);
    as_without_fusion(data, |mut a, b| {
        let mut b = b.clone();
        for _ in 0..97 {
            let rest = a.apply(Op::Binary(Binary::Rem), &[&b]);
            let done = b.apply(Op::Compare(Comparison::Eq), &[&(&b - &b)]);
            (a, b) = (done.apply(Op::Select, &[&a, &b]), rest);
        }
        a
    });
}

/// More groups than a recording has.
#[test]
fn planning_of_many_kernels_terminates() {
    ends(|| {
        let ty = TensorType::new([4], DType::F32);
        let mut program = Program { inputs: vec![ty], ..Program::default() };
        for number in 0..12_000 {
            let slot = |back: usize| ProgramOperand::Slot((number + 1usize).saturating_sub(back));
            let scan = Op::Scan { reduction: Reduction::Sum, axis: 0, reverse: false, exclusive: false };
            let (op, operands) = match number % 3 {
                0 => (scan, vec![slot(1)]),
                1 => (Op::Binary(Binary::Add), vec![slot(1), slot(700)]),
                _ => (Op::Unary(Unary::Exp), vec![slot(1)]),
            };
            program.instructions.push(Instruction { op, operands, results: vec![ty] });
        }
        program.outputs = vec![ProgramOperand::Slot(12_000)];
        let plan = Plan::of_program(&program);
        // A scan, and a kernel of two ops after it; one of these ends with a window of groups.
        assert_eq!(plan.steps().len(), 8_001);
    });
}

/// A chain of views is not traversed recursively: threads have small stacks.
#[test]
fn long_chains_of_views_are_planned_without_recursion() {
    let wide = TensorType::new([2, 2], DType::F32);
    let flat = TensorType::new([4], DType::F32);
    for computed in [false, true] {
        let mut program = Program { inputs: vec![flat], ..Program::default() };
        let mut push = |op: Op, operands: &[usize], ty: TensorType| {
            let operands = operands.iter().map(|&slot| ProgramOperand::Slot(slot)).collect();
            program.instructions.push(Instruction { op, operands, results: vec![ty] });
            program.instructions.len()
        };
        let mut x = if computed { push(Op::Unary(Unary::Exp), &[0], flat) } else { 0 };
        for _ in 0..20_000 {
            x = push(Op::Reshape(Shape::new([2, 2])), &[x], wide);
            x = push(Op::Reshape(Shape::new([4])), &[x], flat);
        }
        let y = push(Op::Unary(Unary::Tanh), &[x], flat);
        program.outputs = vec![ProgramOperand::Slot(y)];
        let small = std::thread::Builder::new().stack_size(256 << 10);
        let steps = small.spawn(move || Plan::of_program(&program).steps().len()).unwrap().join().unwrap();
        assert_eq!(steps, 40_001 + usize::from(computed));
    }
}
