//! Typical fused regions: one kernel each, of the expected kind, with the program's values.

use crate::harness;

use harness::{Fill, Random, Source, check, renumber};
use kiln_ir::{
    DType, NormKind, Op, Program, ProgramOperand, Real, Recorder, Reduction, TensorType, Unary, Var,
    gradient_program,
};
use kiln_kernel::{Compute, KernelKind, Lowered, Nest, Refusal};

const F32: DType = DType::F32;

fn ty(shape: &[usize], dtype: DType) -> TensorType {
    TensorType::new(shape, dtype)
}

/// The program reduced to some of its outputs.
fn pruned(mut program: Program, outputs: &[usize]) -> Program {
    program.outputs = outputs.iter().map(|&output| program.outputs[output]).collect();
    let mut needed = vec![false; program.num_slots()];
    let mark = |needed: &mut Vec<bool>, operands: &[ProgramOperand]| {
        for operand in operands {
            if let ProgramOperand::Slot(slot) = operand {
                needed[*slot] = true;
            }
        }
    };
    mark(&mut needed, &program.outputs);
    let inputs = program.inputs.len();
    for (number, instruction) in program.instructions.iter().enumerate().rev() {
        if needed[inputs + number] {
            mark(&mut needed, &instruction.operands);
        }
    }
    let mut renamed: Vec<usize> = (0..inputs).collect();
    let mut kept = Vec::new();
    for (number, instruction) in program.instructions.into_iter().enumerate() {
        renamed.push(inputs + kept.len());
        if needed[inputs + number] {
            kept.push(instruction);
        }
    }
    program.instructions = kept;
    renumber(&mut program, &renamed);
    program
}

/// The kernel of a whole program, compared with the program on several layouts; integers are below `bound`.
fn kernel_of(program: &Program, bound: usize) -> Lowered {
    let numbers: Vec<bool> = program.inputs.iter().map(|_| false).collect();
    let (nest, outputs) = Nest::of_program(program, &numbers)
        .unwrap_or_else(|(number, refusal)| panic!("instruction {number}: {refusal}\n{program}"));
    let tolerance = |output: &ProgramOperand| match output {
        ProgramOperand::Slot(slot) => {
            let dtype = program.slot_types()[*slot].dtype;
            if dtype.is_float() && dtype.size() == 2 { 3e-2 } else { 1e-5 }
        }
        ProgramOperand::Scalar(_) => 0.0,
    };
    let tolerances: Vec<f64> = program.outputs.iter().map(tolerance).collect();
    let mut lowered = None;
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let source = |ty: &TensorType| {
            let fill = if ty.dtype.is_float() { Fill::Quarters } else { Fill::Below(bound) };
            match seed {
                0 => Source::contiguous(&mut random, *ty, fill),
                _ => Source::random(&mut random, *ty, fill),
            }
        };
        let sources: Vec<Source> = program.inputs.iter().map(source).collect();
        let checked = check(&nest, &outputs, program, &sources, &tolerances);
        let checked = checked.unwrap_or_else(|problem| panic!("seed {seed}: {problem}\n{program}"));
        lowered.get_or_insert(checked);
    }
    lowered.unwrap()
}

fn trace(inputs: &[TensorType], body: impl for<'e> Fn(&[Var<'e>]) -> Vec<Var<'e>>) -> Program {
    Recorder::trace(inputs, |inputs| body(inputs))
}

fn softmax(axis: usize, log: bool) -> Op {
    Op::Softmax { axis, log }
}

#[test]
fn gelu_is_one_loop() {
    let program = trace(&[ty(&[32, 64], F32)], |x| {
        vec![&x[0] * ((&x[0] * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0) * 0.5]
    });
    let lowered = kernel_of(&program, 1);
    assert_eq!((lowered.kernel.kind, lowered.launch.extents), (KernelKind::Map, vec![2048]));
}

#[test]
fn softmax_is_one_row_reduction() {
    for dtype in [F32, DType::F64, DType::F16, DType::BF16] {
        for log in [false, true] {
            let program = trace(&[ty(&[6, 8], dtype)], |x| vec![x[0].apply(softmax(1, log), &[])]);
            let lowered = kernel_of(&program, 1);
            assert_eq!((lowered.kernel.kind, lowered.launch.extents), (KernelKind::RowReduce, vec![6, 8]));
        }
    }
}

#[test]
fn softmax_along_axis_0_is_a_row_reduction() {
    let program = trace(&[ty(&[6, 8], F32)], |x| vec![x[0].apply(softmax(0, false), &[])]);
    let lowered = kernel_of(&program, 1);
    assert_eq!((lowered.kernel.kind, lowered.launch.extents), (KernelKind::RowReduce, vec![8, 6]));
}

#[test]
fn gradients_of_softmax_are_one_row_reduction() {
    for log in [false, true] {
        let program = trace(&[ty(&[6, 8], F32)], |x| vec![x[0].apply(softmax(1, log), &[])]);
        let lowered = kernel_of(&gradient_program(&program).unwrap(), 1);
        assert_eq!((lowered.kernel.kind, lowered.launch.extents), (KernelKind::RowReduce, vec![6, 8]));
    }
}

#[test]
fn norms_and_their_gradients_are_one_row_reduction() {
    for kind in NormKind::ALL {
        let inputs = [ty(&[6, 8], F32), ty(&[8], F32), ty(&[8], F32)];
        let norm = Op::Norm { kind: *kind, axes: 1, epsilon: Real(1e-5) };
        let program = trace(&inputs, |x| vec![x[0].apply(norm.clone(), &[&x[1], &x[2]])]);
        assert_eq!(kernel_of(&program, 1).kernel.kind, KernelKind::RowReduce);
        let gradient = pruned(gradient_program(&program).unwrap(), &[0]);
        let lowered = kernel_of(&gradient, 1);
        assert_eq!(
            (lowered.kernel.kind, lowered.launch.extents),
            (KernelKind::RowReduce, vec![6, 8]),
            "{kind:?}"
        );
    }
}

#[test]
fn cross_entropy_and_its_gradient_are_one_row_reduction() {
    let inputs = [ty(&[6, 10], F32), ty(&[6, 1], DType::I32)];
    let program = trace(&inputs, |x| vec![x[0].apply(softmax(1, true), &[]).gather(1, &x[1]).neg()]);
    let lowered = kernel_of(&program, 10);
    assert_eq!((lowered.kernel.kind, lowered.launch.extents), (KernelKind::RowReduce, vec![6, 10]));
    let lowered = kernel_of(&gradient_program(&program).unwrap(), 10);
    assert_eq!((lowered.kernel.kind, lowered.launch.extents), (KernelKind::RowReduce, vec![6, 10]));
}

#[test]
fn an_index_out_of_range_is_an_error() {
    let inputs = [ty(&[3, 4], F32), ty(&[3, 1], DType::I32)];
    let program = trace(&inputs, |x| vec![x[0].apply(softmax(1, true), &[]).gather(1, &x[1])]);
    let (nest, outputs) = Nest::of_program(&program, &[]).unwrap();
    let mut random = Random::new(1);
    let mut sources: Vec<Source> =
        inputs.iter().map(|ty| Source::contiguous(&mut random, *ty, Fill::Below(4))).collect();
    sources[1].elements = kiln_ir::Elements::I32(vec![0, 4, 2]);
    let layouts: Vec<_> = sources.iter().map(|source| source.layout.clone()).collect();
    let lowered = nest.lower(&outputs, &layouts).unwrap();
    let error = harness::run(&lowered, &sources).unwrap_err();
    assert!(error.contains("index 4 is out of range for an axis of length 4"), "{error}");
}

#[test]
fn operands_are_read_by_index() {
    let loads = |lowered: &Lowered| {
        let is_load = |i: &&kiln_kernel::Instruction| matches!(i.compute, Compute::LoadAt { .. });
        lowered.kernel.body.iter().filter(is_load).count()
    };
    let lines = [ty(&[3, 4], F32), ty(&[3, 1], DType::I32)];
    assert_eq!(loads(&kernel_of(&trace(&lines, |x| vec![x[0].gather(1, &x[1])]), 4)), 1);
    let each = [ty(&[3, 7], F32), ty(&[3, 5], DType::U8)];
    assert_eq!(loads(&kernel_of(&trace(&each, |x| vec![x[0].gather(1, &x[1]) * 2.0]), 7)), 1);
    // An embedding with positions and a norm: the rows of the table are read where the norm needs them.
    let tokens = [ty(&[50, 16], F32), ty(&[2, 6], DType::I64), ty(&[6, 16], F32), ty(&[16], F32)];
    let embedding = trace(&tokens, |x| {
        let norm = Op::Norm { kind: NormKind::Rms, axes: 1, epsilon: Real(1e-5) };
        let sum = x[0].apply(Op::Take { axis: 0 }, &[&x[1]]) + x[2].broadcast([2, 6, 16]);
        vec![sum.apply(norm, &[&x[3]])]
    });
    let lowered = kernel_of(&embedding, 50);
    assert_eq!((lowered.kernel.kind, loads(&lowered)), (KernelKind::RowReduce, 1));
    let columns = [ty(&[4, 9], DType::I16), ty(&[3], DType::U64)];
    let read_twice = trace(&columns, |x| {
        let taken = x[0].apply(Op::Take { axis: 1 }, &[&x[1]]);
        vec![&taken + x[0].apply(Op::Take { axis: 1 }, &[&x[1]])]
    });
    assert_eq!(loads(&kernel_of(&read_twice, 9)), 1);
}

#[test]
fn what_a_region_computes_is_not_read_by_index() {
    let inputs = [ty(&[4, 9], F32), ty(&[3], DType::I32)];
    let program = trace(&inputs, |x| vec![x[0].exp().apply(Op::Take { axis: 1 }, &[&x[1]])]);
    assert_eq!(Nest::of_program(&program, &[]).unwrap_err(), (1, Refusal::NoKernel));
    let square = [ty(&[6, 6], F32), ty(&[4], DType::I32)];
    let along_both = trace(&square, |x| {
        let taken = |axis| x[0].apply(Op::Take { axis }, &[&x[1]]);
        vec![taken(0) + taken(1).permute(&[1, 0])]
    });
    assert_eq!(Nest::of_program(&along_both, &[]).unwrap_err(), (1, Refusal::Diagonal));
}

#[test]
fn column_and_full_reductions() {
    let program = trace(&[ty(&[16, 24], F32)], |x| vec![x[0].square().sum(&[0])]);
    assert_eq!(kernel_of(&program, 1).kernel.kind, KernelKind::ColReduce);
    let program = trace(&[ty(&[16, 24], F32)], |x| vec![x[0].square().sum(&[0, 1])]);
    let lowered = kernel_of(&program, 1);
    assert_eq!((lowered.kernel.kind, lowered.launch.extents), (KernelKind::FullReduce, vec![384]));
}

#[test]
fn broadcast_elements_count_in_reductions() {
    // No tensor in memory has the reduced axis.
    let program = trace(&[ty(&[4, 1], F32)], |x| vec![x[0].broadcast([4, 8]).sum(&[1])]);
    let lowered = kernel_of(&program, 1);
    assert_eq!(lowered.launch.extents, [4, 8]);
}

#[test]
fn matmuls_with_prologue_and_epilogue() {
    let inputs = [ty(&[6, 8], F32), ty(&[8, 10], F32), ty(&[10], F32)];
    let program = trace(&inputs, |x| vec![(x[0].tanh().matmul(&x[1]) + &x[2]).tanh()]);
    let lowered = kernel_of(&program, 1);
    assert!(matches!(lowered.kernel.kind, KernelKind::MatMul(_)));
    assert_eq!(lowered.launch.extents, [6, 10, 8]);
    for dtype in [DType::F16, DType::BF16, DType::F64, DType::I8, DType::I32] {
        let inputs = [ty(&[3, 4, 6], dtype), ty(&[3, 6, 5], dtype)];
        let program = trace(&inputs, |x| vec![x[0].matmul(&x[1])]);
        let lowered = kernel_of(&program, 5);
        assert!(matches!(lowered.kernel.kind, KernelKind::MatMul(_)));
        assert_eq!(lowered.launch.extents, [3, 4, 5, 6]);
    }
}

#[test]
fn matvecs_and_dot_products_are_reductions() {
    let kinds = [
        ([1, 8, 6], KernelKind::ColReduce),
        ([6, 8, 1], KernelKind::RowReduce),
        ([6, 1, 5], KernelKind::Map),
        ([1, 8, 1], KernelKind::FullReduce),
    ];
    for ([m, k, n], kind) in kinds {
        let program = trace(&[ty(&[m, k], F32), ty(&[k, n], F32)], |x| vec![x[0].matmul(&x[1]).tanh()]);
        assert_eq!(kernel_of(&program, 1).kernel.kind, kind, "{m} {k} {n}");
    }
}

#[test]
fn operands_of_one_shape_share_loops() {
    let inputs = [ty(&[4, 8], F32), ty(&[4, 8], F32)];
    let program = trace(&inputs, |x| vec![x[0].exp() + x[1].exp(), x[0].exp()]);
    assert_eq!(kernel_of(&program, 1).launch.extents, [32]);
    let program = trace(&inputs, |x| vec![x[0].sum(&[1]), x[1].square().sum(&[1])]);
    assert_eq!(kernel_of(&program, 1).launch.extents, [4, 8]);
}

#[test]
fn a_tensor_and_its_own_transpose_do_not_fuse() {
    let program = trace(&[ty(&[4, 4], F32)], |x| vec![&x[0] + &x[0].transpose()]);
    assert_eq!(Nest::of_program(&program, &[]).unwrap_err(), (1, Refusal::Diagonal));
}

#[test]
fn transposed_operands_select_a_transpose_kernel() {
    let inputs = [ty(&[16, 24], F32), ty(&[24, 16], F32)];
    let program = trace(&inputs, |x| vec![&x[0] + &x[1].transpose()]);
    assert_eq!(kernel_of(&program, 1).kernel.kind, KernelKind::Transpose);
}

#[test]
fn optimizer_steps_take_scalar_operands() {
    let numbers = [false, false, true];
    let inputs = [ty(&[5, 7], F32), ty(&[5, 7], F32), ty(&[], F32)];
    let program = trace(&inputs, |x| vec![&x[0] - &(&x[1] * &x[2].broadcast([5, 7]))]);
    let (nest, outputs) = Nest::of_program(&program, &numbers).unwrap();
    let mut random = Random::new(3);
    let sources = [
        Source::contiguous(&mut random, inputs[0], Fill::Quarters),
        Source::contiguous(&mut random, inputs[1], Fill::Quarters),
        Source::number(&mut random, F32),
    ];
    let lowered = check(&nest, &outputs, &program, &sources, &[0.0]).unwrap();
    assert_eq!(lowered.launch.extents, [35]);
}

#[test]
fn scans() {
    for (reverse, exclusive) in [(false, false), (false, true), (true, false), (true, true)] {
        let program = trace(&[ty(&[6, 8], F32)], |x| {
            vec![x[0].exp().scan(Reduction::Sum, 1, reverse, exclusive) * 2.0]
        });
        let lowered = kernel_of(&program, 1);
        assert_eq!((lowered.kernel.kind, lowered.launch.extents), (KernelKind::Scan, vec![6, 8]));
    }
}

#[test]
fn common_subexpressions_are_eliminated() {
    let program = trace(&[ty(&[8], F32)], |x| vec![x[0].exp() * 2.0 + x[0].exp() * 2.0]);
    let lowered = kernel_of(&program, 1);
    let exps = lowered.kernel.body.iter();
    let exps = exps.filter(|i| matches!(i.compute, kiln_kernel::Compute::Unary(Unary::Exp, _))).count();
    assert_eq!(exps, 1);
}
