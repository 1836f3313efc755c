//! Regions that fuse row reductions with column reductions, or that reduce their own stored results over columns.

use super::orders::{fused, read};
use super::{data, host, permuted};
use kiln_ir::{DType, Engine, Operand, Program, Recorder, Reduction, TensorData, TensorType, Var};
use kiln_kernel::{KernelKind, Layout, Nest};
use kiln_reference::Reference;
use kiln_suite::case::{Fill, Tolerance};
use kiln_suite::compare::difference;

/// Rows and columns: one row, fewer rows than blocks, not a multiple of blocks; whole vectors and remainders; one group
/// of threads, many, and rows so long that a thread has no registers to prefetch the next row.
const SHAPES: [[usize; 2]; 11] = [
    [1, 24],
    [2, 33],
    [7, 64],
    [9, 255],
    [100, 96],
    [33, 520],
    [20, 2100],
    [70, 2056],
    [17, 4096],
    [5, 9000],
    [301, 8],
];

const DTYPES: [[DType; 2]; 4] = [
    [DType::BF16, DType::BF16],
    [DType::F32, DType::BF16],
    [DType::F16, DType::F32],
    [DType::F64, DType::F64],
];

/// Rows sum to large numbers, beside which the last bits of small ones are lost.
const CLOSE: Tolerance = Tolerance::Near { relative: 512.0, absolute: 512.0 };

/// Runs a program of two tensors and of two rows.
fn check(shape: [usize; 2], dtypes: [DType; 2], body: impl for<'e> Fn(&[Var<'e>]) -> Vec<Var<'e>>) {
    let program = traced(shape, dtypes, body);
    assert!(shape[0] == 1 || has_columns(&program), "{program}");
    equals_reference(shape, &program);
}

fn traced(
    shape: [usize; 2],
    dtypes: [DType; 2],
    body: impl for<'e> Fn(&[Var<'e>]) -> Vec<Var<'e>>,
) -> Program {
    let row = TensorType::new([shape[1]], dtypes[0].accumulator());
    let types = [TensorType::new(shape, dtypes[0]), TensorType::new(shape, dtypes[1]), row, row];
    Recorder::trace(&types, |inputs| body(inputs))
}

/// Runs a program, with its first two tensors row-major and transposed in memory.
fn equals_reference(shape: [usize; 2], program: &Program) {
    let Some(host) = host() else { return };
    let types = &program.inputs;
    let among = Fill::Among(&[1.0, -2.0, 0.5, 3.0, 0.25, -0.75]);
    let inputs: Vec<TensorData> = types.iter().map(|ty| data(&ty.shape, ty.dtype, among)).collect();
    let reference = Reference::new();
    let written = inputs.iter().map(|data| reference.write(data.clone())).collect();
    let expected: Vec<TensorData> =
        program.run(&reference, written).into_iter().map(|value| read(&reference, value)).collect();
    for order in [[0, 1], [1, 0]] {
        let whole = (0..2).map(|place| permuted(&host, &inputs[place], &order));
        let rows = inputs[2..].iter().map(|data| host.write(data.clone()));
        let values = fused(&host, program, whole.chain(rows).map(Operand::Value).collect());
        for (place, (expected, value)) in expected.iter().zip(values).enumerate() {
            let problem = difference(expected, &read(&*host, value), CLOSE);
            let problem = problem.map(|problem| format!("{shape:?} in {order:?}, result {place}: {problem}"));
            assert!(problem.is_none(), "{program}{}", problem.unwrap_or_default());
        }
    }
}

/// Whether a program is one kernel with a column reduction.
fn has_columns(program: &Program) -> bool {
    let numbers = vec![false; program.inputs.len()];
    let layouts: Vec<Layout> = program.inputs.iter().map(|ty| Layout::row_major(&ty.shape)).collect();
    Nest::of_program_with_columns(program, &numbers)
        .is_ok_and(|(nest, outputs)| nest.lower(&outputs, &layouts).unwrap().kernel.has_columns())
}

/// The gradients of a row norm: of its input, of its weight, and of its bias, which accumulates.
#[test]
fn gradients_of_norms() {
    for shape in SHAPES {
        for dtypes in DTYPES {
            check(shape, dtypes, |x| {
                let wide = dtypes[0].accumulator();
                let (rows, g) = (x[0].cast(wide), x[1].cast(wide));
                let centred = &rows - rows.mean(&[1]);
                let scale = (centred.square().mean(&[1]) + 0.5).rsqrt();
                let normal = centred * &scale;
                let u = &g * x[2].broadcast(shape);
                let along = &normal * (&u * &normal).mean(&[1]);
                let gradient = ((&u - u.mean(&[1]) - along) * scale).cast(dtypes[0]);
                let weight = (&g * normal).sum(&[0]).cast(dtypes[1]);
                let bias = &x[3] * &x[3].scalar(0.5) + g.sum(&[0]).reshape([shape[1]]);
                vec![gradient, weight, bias]
            });
        }
    }
}

/// A row reduction without stored elements, and the maximum of columns.
#[test]
fn sums_and_extrema() {
    for shape in SHAPES {
        for dtypes in [[DType::F32, DType::BF16], [DType::F64, DType::F32], [DType::I32, DType::I32]] {
            check(shape, dtypes, |x| {
                let rows = x[0].sum(&[1]);
                let greatest = x[1].reduce(Reduction::Max, &[0]);
                vec![rows, x[0].sum(&[0]), greatest, x[0].sum(&[0]) * x[2].reshape([1, shape[1]])]
            });
        }
    }
}

/// Sums over rows of stored elements. Threads prefetch as many rows as their registers hold; rows past the last one are
/// neither stored nor counted.
#[test]
fn column_sums_of_stored_values() {
    for shape in [[1, 24], [2, 33], [7, 64], [31, 8], [33, 40], [100, 96], [301, 8], [129, 520], [1000, 17]] {
        for dtypes in DTYPES {
            let program = traced(shape, dtypes, |x| {
                let wide = dtypes[0].accumulator();
                let (a, b) = (x[0].cast(wide), x[1].cast(wide));
                let stored = (a * x[2].broadcast(shape) + b).cast(dtypes[1]);
                let sum = stored.cast(wide).sum(&[0]);
                vec![stored, sum, x[0].cast(wide).sum(&[0]) * x[3].reshape([1, shape[1]])]
            });
            let layouts: Vec<Layout> = program.inputs.iter().map(|ty| Layout::row_major(&ty.shape)).collect();
            let (nest, outputs) = Nest::of_program(&program, &[false; 4]).expect("one region");
            let kernel = nest.lower(&outputs, &layouts).expect("one kernel").kernel;
            assert!(shape[0] == 1 || kernel.kind == KernelKind::ColReduce, "{program}");
            equals_reference(shape, &program);
        }
    }
}
