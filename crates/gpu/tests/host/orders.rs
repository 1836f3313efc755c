//! Regions over dense operands in any dim order.

use super::{data, host, permuted};
use kiln_gpu::Gpu;
use kiln_ir::{
    Comparison, DType, Engine, FusedOp, Op, Operand, Operands, Pattern, Program, ProgramOperand, Recorder,
    TensorData, TensorType, Value, Var, block_on,
};
use kiln_kernel::match_epilogue;
use kiln_reference::Reference;
use kiln_suite::case::{Fill, Tolerance};
use kiln_suite::compare::difference;

/// Memory orders of the operands of one run, outermost dim first.
const ORDERS: [[[usize; 4]; 2]; 5] = [
    [[0, 2, 3, 1], [0, 2, 3, 1]],
    [[0, 2, 3, 1], [0, 1, 2, 3]],
    [[0, 1, 2, 3], [0, 2, 3, 1]],
    [[3, 1, 0, 2], [3, 1, 0, 2]],
    [[1, 0, 2, 3], [2, 3, 0, 1]],
];

const CLOSE: Tolerance = Tolerance::Near { relative: 64.0, absolute: 64.0 };

/// Runs a program of two large tensors in all memory orders, followed by per-channel operands.
fn check(shape: [usize; 4], dtypes: [DType; 2], body: impl for<'e> Fn(&[Var<'e>]) -> Vec<Var<'e>>) {
    let Some(host) = host() else { return };
    let channels = TensorType::new([1, shape[1], 1, 1], DType::F32);
    let types = [TensorType::new(shape, dtypes[0]), TensorType::new(shape, dtypes[1]), channels, channels];
    let program = Recorder::trace(&types, |inputs| body(inputs));
    let inputs: Vec<TensorData> = types
        .iter()
        .map(|ty| data(&ty.shape, ty.dtype, Fill::Among(&[1.0, -2.0, 0.5, 3.0, 0.25, -0.75])))
        .collect();
    let reference = Reference::new();
    let written = inputs.iter().map(|data| reference.write(data.clone())).collect();
    let expected: Vec<TensorData> =
        program.run(&reference, written).into_iter().map(|value| read(&reference, value)).collect();
    for orders in ORDERS {
        let big = (0..2).map(|place| permuted(&host, &inputs[place], &orders[place]));
        let small = inputs[2..].iter().map(|data| host.write(data.clone()));
        let values = fused(&host, &program, big.chain(small).map(Operand::Value).collect());
        for (place, (expected, value)) in expected.iter().zip(values).enumerate() {
            let problem = difference(expected, &read(&*host, value), CLOSE);
            let problem =
                problem.map(|problem| format!("{shape:?} in {orders:?}, result {place}: {problem}"));
            assert!(problem.is_none(), "{program}{}", problem.unwrap_or_default());
        }
    }
}

/// A program as one region, with the epilogue pattern of the planner if it has one.
pub(crate) fn fused(
    host: &Gpu<impl kiln_gpu::driver::Driver>,
    program: &Program,
    operands: Operands,
) -> Vec<Value> {
    let pattern = match_epilogue(program).map_or(Pattern::Loop, Pattern::Epilogue);
    run_region(host, FusedOp::with_pattern(program.clone(), pattern).unwrap(), operands)
}

/// Runs a region.
pub(crate) fn run_region(
    host: &Gpu<impl kiln_gpu::driver::Driver>,
    region: FusedOp,
    operands: Operands,
) -> Vec<Value> {
    let program = region.program();
    let slots = program.slot_types();
    let of_output = |output: &ProgramOperand| match output {
        ProgramOperand::Slot(slot) => slots[*slot],
        ProgramOperand::Scalar(_) => unreachable!("outputs are computed"),
    };
    let types: Vec<TensorType> = program.outputs.iter().map(of_output).collect();
    let values = host.execute(&Op::Fused(region), operands, &types);
    values.into_iter().collect()
}

pub(crate) fn read(engine: &dyn Engine, value: Value) -> TensorData {
    block_on(engine.read(value)).unwrap_or_else(|error| panic!("{error}"))
}

/// Shapes with whole vectors of channels and remainders, axes of length 1, many columns and few.
const SHAPES: [[usize; 4]; 7] =
    [[2, 16, 5, 4], [3, 5, 4, 7], [1, 8, 3, 3], [4, 1, 3, 2], [2, 24, 1, 1], [2, 72, 6, 6], [16, 8, 24, 24]];

#[test]
fn maps() {
    for shape in SHAPES {
        for dtypes in [[DType::BF16, DType::BF16], [DType::F32, DType::BF16]] {
            check(shape, dtypes, |x| {
                let y = (x[0].cast(DType::F32) - &x[2]) * &x[3] + x[1].cast(DType::F32);
                let positive = y.max(&y.scalar(0.0));
                vec![positive.cast(DType::BF16), y.compare(Comparison::Le, &y.scalar(0.0))]
            });
        }
    }
}

#[test]
fn reductions_over_all_but_channels() {
    for shape in SHAPES {
        check(shape, [DType::BF16, DType::BF16], |x| {
            let normal = (x[0].cast(DType::F32) - &x[2]) * &x[3];
            let g = x[1].cast(DType::F32);
            vec![g.sum(&[0, 2, 3]), (&g * normal).sum(&[0, 2, 3])]
        });
    }
}

#[test]
fn reductions_fused_with_their_operands() {
    for shape in SHAPES {
        check(shape, [DType::BF16, DType::F32], |x| {
            let y = (x[0].cast(DType::F32) - &x[2]) * &x[1];
            let total = y.sum(&[0, 2, 3]) * &x[3];
            vec![y.cast(DType::BF16), total]
        });
    }
}

#[test]
fn reductions_along_other_axes() {
    for shape in SHAPES {
        check(shape, [DType::F32, DType::F32], |x| vec![(&x[0] * &x[1]).sum(&[1])]);
        check(shape, [DType::F32, DType::F32], |x| vec![(&x[0] + &x[1]).sum(&[2, 3])]);
        check(shape, [DType::F32, DType::F32], |x| vec![(&x[0] - &x[1]).sum(&[0, 1, 2, 3])]);
    }
}
