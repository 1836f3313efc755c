//! Tests of the fuzzer: injected engine bugs are found, and the failing programs are minimized.

use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode};
use kiln_fuzz::Trial;
use kiln_fuzz::campaign::{Options, Report, run};
use kiln_fuzz::check::{Check, Subjects, check};
use kiln_fuzz::shrink::shrink;
use kiln_ir::{
    Binary, BoxFuture, Caps, Custom, CustomOp, DType, Engine, Instruction, Op, OpKind, OperandType, Operands,
    Program, ProgramOperand, Result, ResultTypes, TensorData, TensorType, Unary, Value, Values, Var,
    block_on, expanding,
};
use smallvec::smallvec;
use std::sync::Arc;

/// An injected engine bug.
#[derive(Clone, Copy)]
enum Mistake {
    /// The last element of the first result of an op is replaced by the one before.
    LastElement(OpKind),
    /// Results of an op are too large by this factor.
    Factor(Binary, f64),
    /// An op panics.
    Panic(OpKind),
}

struct Wrong {
    inner: Cpu,
    mistake: Mistake,
}

impl Wrong {
    fn engine(mistake: Mistake) -> Arc<dyn Engine> {
        Arc::new(Wrong { inner: Cpu::with_threads(1), mistake })
    }

    fn changed(&self, value: Value, change: impl FnOnce(&mut Vec<f64>)) -> Value {
        let Ok(data) = block_on(self.inner.read(value.clone())) else { return value };
        let mut numbers = data.to_vec::<f64>();
        change(&mut numbers);
        self.inner.write(TensorData::new(numbers, *data.shape()).unwrap().convert(data.dtype()))
    }
}

impl Engine for Wrong {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let mut values = self.inner.execute(op, inputs, results);
        match self.mistake {
            Mistake::LastElement(kind) if op.kind() == kind => {
                values[0] = self.changed(values[0].clone(), |numbers| {
                    if let [.., before, last] = &mut numbers[..] {
                        *last = *before;
                    }
                });
            }
            Mistake::Factor(function, factor) if *op == Op::Binary(function) => {
                values[0] = self.changed(values[0].clone(), |numbers| {
                    numbers.iter_mut().for_each(|x| *x *= factor);
                });
            }
            Mistake::Panic(kind) if op.kind() == kind => panic!("no such kernel"),
            Mistake::LastElement(_) | Mistake::Factor(..) | Mistake::Panic(_) => {}
        }
        values
    }

    fn write(&self, data: TensorData) -> Value {
        self.inner.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.inner.read(value)
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&self.inner)
    }
}

fn found(subjects: impl Fn() -> Subjects + Sync) -> Report {
    run(&Options { programs: 400, threads: 1, most_failures: 1, ..Options::default() }, subjects)
}

fn with(mistake: Mistake) -> Report {
    found(|| Subjects::of(Wrong::engine(mistake), Wrong::engine(mistake)))
}

/// The first failure, whose program must be small.
fn small(report: &Report) -> (Check, Option<String>, Trial) {
    assert!(!report.is_good());
    let first = report.failures.first().expect("the mistake is found");
    let trial = Trial::from_filetest(&first.filetest).expect("the failure is a filetest");
    assert!(trial.program.instructions.len() <= 2, "{}", first.filetest);
    let elements: usize = trial.inputs.iter().map(TensorData::num_elements).sum();
    assert!(elements <= 12, "{}", first.filetest);
    assert!(first.filetest.contains("cargo xtask fuzz --seed 1 --first"), "{}", first.filetest);
    (first.failure.check, first.failure.op.clone(), trial)
}

#[test]
fn a_wrong_element_is_found_and_minimized() {
    let (check, op, _) = small(&with(Mistake::LastElement(OpKind::Windows)));
    // Found by the value check or by the batching rule, depending on the element.
    assert!(matches!(check, Check::Value | Check::Batch), "{check}");
    assert_eq!(op.as_deref(), Some("windows"));
}

#[test]
fn engines_of_other_devices_are_compared_with_the_reference() {
    let report = found(|| Subjects::device(Arc::new(Cpu::with_threads(1))));
    assert!(report.failures.is_empty(), "{report}");
    assert!(report.counts.regions > 400 && report.counts.fused_gradients > 100, "{report}");
    assert!(report.counts.early > 100, "{report}");
    let (check, op, _) =
        small(&found(|| Subjects::device(Wrong::engine(Mistake::LastElement(OpKind::Windows)))));
    assert_eq!((check, op.as_deref()), (Check::Value, Some("windows")));
}

#[test]
fn a_wrong_rounding_is_found_and_minimized() {
    let (check, op, trial) = small(&with(Mistake::Factor(Binary::Atan2, 1.0 + 1e-3)));
    // A region computes the right value, so it differs from the op alone.
    let expected = [(Check::Value, Some("atan2")), (Check::Fused, None)];
    assert!(expected.contains(&(check, op.as_deref())), "{check:?} {op:?}");
    assert!(trial.program.instructions.iter().any(|i| i.op == Op::Binary(Binary::Atan2)));
}

#[test]
fn a_panic_is_found_and_minimized() {
    let report = with(Mistake::Panic(OpKind::Sort));
    let (check, _, trial) = small(&report);
    assert_eq!(check, Check::Value);
    assert!(report.failures[0].failure.message.contains("no such kernel"));
    assert!(trial.program.instructions.iter().any(|i| i.op.kind() == OpKind::Sort));
}

#[test]
fn results_that_depend_on_thread_count_are_found() {
    let report = found(|| {
        let many = Wrong::engine(Mistake::LastElement(OpKind::Scan));
        Subjects::of(Arc::new(Cpu::with_threads(1)), many)
    });
    let (check, op, _) = small(&report);
    assert_eq!(check, Check::Threads);
    assert!(op.unwrap().starts_with("scan"));
}

#[test]
fn a_wrong_fused_region_is_found_and_minimized() {
    let report = found(|| {
        let cpu = || Arc::new(Cpu::with_threads(1));
        let wrong = Wrong::engine(Mistake::LastElement(OpKind::Fused));
        let fused = Fusion::with_mode(expanding(wrong), Mode::On);
        Subjects { fused, ..Subjects::of(cpu(), cpu()) }
    });
    let first = report.failures.first().expect("the mistake is found");
    assert_eq!(first.failure.check, Check::Fused, "{first}");
    let trial = Trial::from_filetest(&first.filetest).expect("the failure is a filetest");
    assert!(trial.program.instructions.len() <= 3, "{}", first.filetest);
}

/// `x²` with the wrong gradient of `x`.
#[derive(Debug)]
struct WrongRule;

impl CustomOp for WrongRule {
    fn name(&self) -> &str {
        "wrong_rule"
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        Ok(smallvec![*inputs[0].tensor().expect("a tensor")])
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        Some(vec![inputs[0].square()])
    }

    fn vjp<'e>(
        &self,
        _inputs: &[Var<'e>],
        _outputs: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<Result<Vec<Option<Var<'e>>>>> {
        Some(Ok(vec![gradients[0].clone()]))
    }
}

#[test]
fn a_wrong_gradient_is_found_and_minimized() {
    Custom::register("wrong_rule", |_| Ok(Custom::new(WrongRule)));
    let ty = TensorType::new([3], DType::F64);
    let ops = [
        (Op::Unary(Unary::Sin), vec![0]),
        (Op::Binary(Binary::Mul), vec![0, 1]),
        (Op::Custom(Custom::new(WrongRule)), vec![2]),
        (Op::Unary(Unary::Tanh), vec![3]),
        (Op::Binary(Binary::Add), vec![4, 1]),
        (Op::Unary(Unary::Atan), vec![0]),
    ];
    let instructions = ops.map(|(op, operands)| Instruction {
        op,
        operands: operands.into_iter().map(ProgramOperand::Slot).collect(),
        results: vec![ty],
    });
    let program = Program {
        inputs: vec![ty],
        instructions: instructions.to_vec(),
        outputs: vec![ProgramOperand::Slot(5), ProgramOperand::Slot(6)],
    };
    let trial = Trial { program, inputs: vec![TensorData::from([1.0, 2.0, 3.0])], smooth: true };
    let subjects = Subjects::cpu();
    let failure = check(&trial, &subjects).failure.expect("the gradient is wrong");
    let small = shrink(&trial, &failure, &subjects, 1_000);
    assert_eq!(small.num_ops(), 1, "{}", small.to_filetest(&[]));
    assert_eq!(small.inputs[0].num_elements(), 1, "{}", small.to_filetest(&[]));
}

/// Regions with a cosine, which occurs only in the gradient of sine, return twice the correct result.
struct WrongBackward(Cpu);

impl Engine for WrongBackward {
    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let values = self.0.execute(op, inputs, results);
        let Op::Fused(region) = op else { return values };
        let is_cosine = |i: &Instruction| i.op == Op::Unary(Unary::Cos);
        if !region.program().instructions.iter().any(is_cosine) {
            return values;
        }
        let double = |value: Value| {
            let operands = [value.clone().into(), value.clone().into()].into_iter().collect();
            self.0.execute(&Op::Binary(Binary::Add), operands, &[*value.ty()]).remove(0)
        };
        values.into_iter().map(double).collect()
    }

    fn write(&self, data: TensorData) -> Value {
        self.0.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.0.read(value)
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&self.0)
    }
}

#[test]
fn a_wrong_gradient_over_fusion_is_found_and_minimized() {
    let ty = TensorType::new([2, 3], DType::F32);
    let ops = [
        (Op::Unary(Unary::Exp), vec![0], ty),
        (Op::Unary(Unary::Sin), vec![1], ty),
        (Op::Binary(Binary::Mul), vec![2, 1], ty),
        (Op::Unary(Unary::Neg), vec![3], ty),
        (Op::Reshape([6].into()), vec![4], TensorType::new([6], DType::F32)),
        (Op::Unary(Unary::Tanh), vec![5], TensorType::new([6], DType::F32)),
    ];
    let instructions = ops.map(|(op, operands, result)| Instruction {
        op,
        operands: operands.into_iter().map(ProgramOperand::Slot).collect(),
        results: vec![result],
    });
    let program = Program {
        inputs: vec![ty],
        instructions: instructions.to_vec(),
        outputs: vec![ProgramOperand::Slot(6), ProgramOperand::Slot(3)],
    };
    let inputs = vec![TensorData::new(vec![0.1f32, 0.2, 0.3, 0.4, 0.5, 0.6], [2, 3]).unwrap()];
    let trial = Trial { program, inputs, smooth: false };
    let cpu = || Arc::new(Cpu::with_threads(1));
    let fused = Fusion::with_mode(Arc::new(WrongBackward(Cpu::with_threads(1))), Mode::On);
    let subjects = Subjects { fused, ..Subjects::of(cpu(), cpu()) };
    let failure = check(&trial, &subjects).failure.expect("the gradient is wrong");
    assert_eq!(failure.check, Check::FusedGradient, "{failure}");
    let small = shrink(&trial, &failure, &subjects, 1_000);
    assert!(small.num_ops() <= 2, "{}", small.to_filetest(&[]));
    assert_eq!(small.inputs[0].num_elements(), 1, "{}", small.to_filetest(&[]));
}
