//! The attacks by ops with huge and empty sizes: each returns an error or a right result, soon, and in little memory.

use crate::attack::Attack;
use kiln_backends::{Cpu, CpuDevice, Flex, FlexDevice};
use kiln_ir::{
    Axes, ConvPass, ConvSpec, DType, Op, Operand, OperandType, PoolKind, PoolSpec, Reduction, ResizeMode,
    TensorData, TensorType, block_on, infer,
};
use kiln_tensor::{Backend, Tensor};

pub(crate) fn attacks() -> Vec<Attack> {
    let attack = |name, run| Attack { name, seconds: 10, megabytes: 256, short: true, run };
    vec![
        attack("ops/resize_huge", resize_huge),
        attack("ops/resize_of_unallocatable_rows", resize_of_unallocatable_rows),
        attack("ops/iota_of_zero_elements", iota_of_zero_elements),
        attack("ops/tril_of_zero_elements", tril_of_zero_elements),
        attack("ops/sum_over_zero_elements", sum_over_zero_elements),
        attack("ops/pool_gradient_of_huge_steps", pool_gradient_of_huge_steps),
        attack("ops/pool_gradient_of_wide_padding", pool_gradient_of_wide_padding),
        attack("ops/pool_of_huge_padding", pool_of_huge_padding),
        attack("ops/weight_gradient_of_no_images", weight_gradient_of_no_images),
        attack("ops/weight_gradient_of_huge_padding", weight_gradient_of_huge_padding),
        attack("ops/lengths_that_wrap", lengths_that_wrap),
    ]
}

/// Runs an op on tensors of zeros, alone and behind fusion, as a server runs one from a client. Returns the bytes of the
/// first result.
fn run(op: &Op, operands: &[TensorType]) -> Result<Vec<u8>, String> {
    let types: Vec<OperandType<'_>> = operands.iter().map(OperandType::Tensor).collect();
    let results = infer(op, &types).map_err(|error| error.to_string())?;
    let stacks = [Flex::stack(&FlexDevice), Cpu::stack(&CpuDevice)];
    let bytes = stacks.map(|stack| {
        let engine = stack.engine();
        let zeros = operands.iter().map(|ty| Operand::Value(engine.write(TensorData::zeros(*ty))));
        let values = engine.execute(op, zeros.collect(), &results);
        let data = values.into_iter().map(|value| block_on(engine.read(value)));
        let first = data.reduce(|first, _| first).ok_or("no result".to_owned())?;
        first.map(|data| data.bytes().to_vec()).map_err(|error| error.to_string())
    });
    let [alone, fused] = bytes;
    if alone.is_ok() == fused.is_ok() {
        fused
    } else {
        Err(format!("{alone:?} alone, {fused:?} behind fusion"))
    }
}

/// Checks that an op returns the bytes.
fn returns(op: &Op, operands: &[TensorType], expected: &[u8]) -> Result<(), String> {
    let found = run(op, operands)?;
    if found == expected { Ok(()) } else { Err(format!("{op:?} returned {found:?}")) }
}

/// Checks that an op, or its inference, is an error with this text.
fn is_refused(op: &Op, operands: &[TensorType], text: &str) -> Result<(), String> {
    match run(op, operands) {
        Err(error) if error.contains(text) => Ok(()),
        other => Err(format!("{op:?}: {other:?}, expected an error with `{text}`")),
    }
}

fn f32s(lengths: &[usize]) -> TensorType {
    TensorType::new(lengths, DType::F32)
}

fn resized(size: Vec<usize>) -> Op {
    Op::Resize { mode: ResizeMode::Nearest, size, align_corners: false }
}

/// The result has no elements, but the rows of the first axis would have 80 GiB.
fn resize_huge() -> Result<(), String> {
    returns(&resized(vec![1 << 32, 0]), &[f32s(&[1, 1, 5, 1])], &[])
}

/// The bytes of the result, and of the intermediates, fit no memory, and wrap.
fn resize_of_unallocatable_rows() -> Result<(), String> {
    is_refused(&resized(vec![1 << 44, 1]), &[f32s(&[1, 1, 5, 5])], "out of memory")?;
    // The intermediate of 60 MiB fits, the result does not.
    is_refused(&resized(vec![1 << 20, 1 << 36]), &[f32s(&[3, 1, 5, 5])], "out of memory")?;
    is_refused(&resized(vec![1 << 62, 1]), &[f32s(&[1, 1, 5, 1])], "too large")
}

fn iota_of_zero_elements() -> Result<(), String> {
    returns(&Op::Iota { ty: f32s(&[1 << 40, 0]), axis: 0 }, &[], &[])
}

fn tril_of_zero_elements() -> Result<(), String> {
    let alone = Tensor::<Flex, 2>::zeros([1 << 40, 0], &Default::default()).tril(0).into_data();
    let fused = Tensor::<Cpu, 2>::zeros([1 << 40, 0], &Default::default()).tril(0).into_data();
    if alone.num_elements() + fused.num_elements() == 0 { Ok(()) } else { Err("there are elements".into()) }
}

fn sum_over_zero_elements() -> Result<(), String> {
    let op = Op::Reduce { reduction: Reduction::Sum, axes: Axes::all(3) };
    returns(&op, &[f32s(&[1 << 30, 1 << 20, 0])], &0f32.to_ne_bytes())
}

/// A list for each element of a step would have 2^40 of them.
fn pool_gradient_of_huge_steps() -> Result<(), String> {
    let spec = PoolSpec {
        stride: vec![1 << 40],
        ..PoolSpec::new(PoolKind::Average { include_padding: false }, &[2])
    };
    returns(&Op::PoolGrad { spec, size: vec![2] }, &[f32s(&[1, 1, 1])], &[0; 8])
}

/// A row of sums for each element of the padding would be cleared for each of a million planes.
fn pool_gradient_of_wide_padding() -> Result<(), String> {
    let spec = PoolSpec {
        stride: vec![1 << 31],
        padding: vec![(1, 1 << 20)],
        ..PoolSpec::new(PoolKind::Average { include_padding: false }, &[2])
    };
    let planes = 1 << 20;
    returns(&Op::PoolGrad { spec, size: vec![1] }, &[f32s(&[planes, 1, 1])], &vec![0; 4 * planes])
}

/// One window of 2^40 elements, all of them padding but one.
fn pool_of_huge_padding() -> Result<(), String> {
    let spec = PoolSpec { padding: vec![((1 << 40) - 1, 0)], ..PoolSpec::new(PoolKind::Max, &[1 << 40]) };
    is_refused(&Op::Pool(spec), &[f32s(&[1, 1, 1])], "padding")
}

/// Operands without elements, whose planes would have 16 GiB, and a result with elements.
fn weight_gradient_of_no_images() -> Result<(), String> {
    let spec = ConvSpec { stride: vec![1], padding: vec![(1 << 20, 7)], dilation: vec![1], groups: 1 };
    let op = Op::Conv { spec, pass: ConvPass::Weight { size: vec![3] } };
    let length = (1 << 32) + (1 << 20) + 5;
    returns(&op, &[f32s(&[0, 2, 1 << 32]), f32s(&[0, 1, length])], &[0; 24])
}

/// Small operands and a small result, of which a padded copy would have 380 GB.
fn weight_gradient_of_huge_padding() -> Result<(), String> {
    let spec = ConvSpec {
        stride: vec![2, 2],
        padding: vec![(3, 1), (2, 1 << 24)],
        dilation: vec![3, 1 << 24],
        groups: 1,
    };
    let op = Op::Conv { spec, pass: ConvPass::Weight { size: vec![2, 2] } };
    is_refused(&op, &[f32s(&[16, 17, 17, 1]), f32s(&[16, 3, 9, 2])], "out of memory")
}

/// Types without elements, the product of whose other lengths wraps.
fn lengths_that_wrap() -> Result<(), String> {
    for lengths in [[1 << 40, 1 << 40, 0], [0, 1 << 40, 1 << 40], [usize::MAX, 0, 2]] {
        is_refused(&Op::Iota { ty: f32s(&lengths), axis: 0 }, &[], "too large")?;
    }
    Ok(())
}
