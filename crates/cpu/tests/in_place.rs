//! Fused regions whose results overwrite operands, against the same programs on the reference engine.

use kiln_cpu::Cpu;
use kiln_ir::*;
use kiln_reference::Reference;

type Body = for<'e> fn(&[Var<'e>]) -> Vec<Var<'e>>;

/// Some tiles, and a part of one.
const LENGTH: usize = 5003;

fn operands(engine: &dyn Engine, count: usize) -> Operands {
    let number = |seed: usize, i: usize| ((i * 7919 + seed * 104_729) % 4001) as f64 / 2000.0 + 0.01;
    let data = |seed| {
        let numbers: Vec<f64> = (0..LENGTH).map(|i| number(seed, i)).collect();
        TensorData::new(numbers, [LENGTH]).unwrap().convert(DType::F32)
    };
    (0..count).map(|seed| engine.write(data(seed)).into()).collect()
}

fn read(engine: &dyn Engine, value: Value) -> Vec<f64> {
    block_on(engine.read(value)).unwrap().to_vec::<f64>()
}

/// Checks a region on operands without other owners. `reused` is the number of results in the memory of an operand.
#[track_caller]
fn check(count: usize, reused: usize, body: Body) {
    let types = vec![TensorType::new([LENGTH], DType::F32); count];
    let op = Op::Fused(FusedOp::new(Recorder::trace(&types, body)));
    let reference = Reference::new();
    let results = infer(&op, &types.iter().map(OperandType::Tensor).collect::<Vec<_>>()).unwrap();
    let expected = reference.execute(&op, operands(&reference, count), &results);
    let expected: Vec<Vec<f64>> = expected.into_iter().map(|value| read(&reference, value)).collect();
    let engines = ["scalar", "avx2", "avx512"].map(|set| Cpu::with_threads(2).with_instructions(set));
    for cpu in engines.into_iter().flatten() {
        let given = operands(&cpu, count);
        let addresses: Vec<usize> = given.iter().map(|x| x.value().unwrap().address()).collect();
        let found = cpu.execute(&op, given, &results);
        assert_eq!(found.iter().filter(|y| addresses.contains(&y.address())).count(), reused);
        for (y, expected) in found.into_iter().zip(&expected) {
            let near = |(y, x): (f64, &f64)| (y - x).abs() <= 1e-5 * x.abs().max(1.0);
            assert!(read(&cpu, y).into_iter().zip(expected).all(near));
        }
    }
}

#[test]
fn an_optimizer_step_overwrites_parameter_and_state() {
    check(4, 3, |v| {
        let (value, gradient, mean, square) = (&v[0], &v[1], &v[2], &v[3]);
        let mean = (mean - gradient) * 0.9 + gradient;
        let square = square * 0.999 + gradient * gradient * 0.001;
        let step = &mean / (square.sqrt() + 1e-8) * 0.01;
        vec![value * 0.99 - step, mean, square]
    });
}

/// The first result is complete before the operand in its memory is read for the second.
#[test]
fn an_operand_that_is_read_after_the_result_is_copied() {
    check(2, 2, |v| {
        let first = &v[0] * &v[1] + 1.0;
        let second = (first.exp() - &v[0]) * &v[1];
        vec![first, second]
    });
}

#[test]
fn results_exchange_the_memory_of_operands() {
    check(2, 2, |v| vec![&v[1] * 2.0 + &v[0], (&v[0] - 3.0) * &v[1]]);
}
