//! The cost model of ops: arithmetic operations and bytes moved.

use crate::{
    CollectiveKind, ConvPass, Fact, FftKind, Flops, NormKind, Op, OperandType, Program, ProgramOperand,
    ResizeMode, TensorType, Traffic, UpdateMode,
};
use alloc::vec::Vec;
use core::iter::Sum;
use core::ops::Add;

/// The cost of an op or program: arithmetic operations and bytes moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Arithmetic operations, of floats or integers.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

impl Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost { flops: self.flops.saturating_add(other.flops), bytes: self.bytes.saturating_add(other.bytes) }
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        costs.fold(Cost::default(), Add::add)
    }
}

/// Computes the cost of an op on operands and results of these types. Counts saturate.
///
/// Conventions of operations:
/// * elementwise ops, including transcendental functions and casts, count 1 per element of the result, and so does each
///   random number; reductions, scans and searches 1 per element of the operand; sorting `log2(length)`;
/// * a matmul counts `2 m n k` for each matrix of the batch; the three passes of a convolution count 2 per element of
///   `y` and element of the kernel that it meets, padding included; pooling 1;
/// * softmax counts 5 per element, layer norm 5 and RMS norm 3, weight and bias 1 more each; attention its matmuls and
///   5 per score, its gradient its five matmuls and 5 per score, regardless of masks;
/// * a Fourier transform counts `5 n log2(n)` per line, interpolation 3 (linear) or 7 (cubic) per element and axis;
/// * quantization counts 3 per element, dequantization 1, of blocks 2, a zero point 1 more;
/// * a loop counts its body once for each step;
/// * pure data movement counts 0; so does a custom op, whose cost is unknown.
///
/// Conventions of bytes: each tensor operand is read once and each result written once, with these exceptions. Views
/// (reshape, permute, broadcast, slice, windows, bitcast) move no bytes. Take and gather read only the selected
/// elements. A fused region moves its operands and results only, and so does a loop.
pub fn cost(op: &Op, inputs: &[OperandType<'_>], results: &[TensorType]) -> Cost {
    Cost { flops: flops(op, inputs, results), bytes: bytes(op, inputs, results) }
}

impl Program {
    /// Computes the sum of the [`cost`](fn@cost) of all instructions. The program must be valid
    /// ([`verify`](mod@crate::verify)).
    pub fn cost(&self) -> Cost {
        let slots = self.slot_types();
        let instruction = |instruction: &crate::Instruction| {
            let operand = |operand: &ProgramOperand| match operand {
                ProgramOperand::Slot(slot) => slots.get(*slot).map(OperandType::Tensor),
                ProgramOperand::Scalar(scalar) => Some(OperandType::Scalar(*scalar)),
            };
            let operands: Vec<OperandType<'_>> = instruction.operands.iter().filter_map(operand).collect();
            cost(&instruction.op, &operands, &instruction.results)
        };
        self.instructions.iter().map(instruction).sum()
    }
}

/// The function that reads the attributes of an op, and the types of its operands and results.
pub type FlopsOf = fn(&Op, &[OperandType<'_>], &[TensorType]) -> u64;

fn flops(op: &Op, inputs: &[OperandType<'_>], results: &[TensorType]) -> u64 {
    match op.info().flops {
        Fact::Fixed(Flops::PerResult(count)) => times(&[count, first(results)]),
        Fact::Fixed(Flops::PerOperand(count)) => times(&[count, operand(inputs, 0)]),
        Fact::By(read) => read(op, inputs, results),
    }
}

fn tensor<'a>(inputs: &'a [OperandType<'_>], place: usize) -> Option<&'a TensorType> {
    inputs.get(place).and_then(|input| input.tensor())
}

/// The elements of an operand.
fn operand(inputs: &[OperandType<'_>], place: usize) -> u64 {
    tensor(inputs, place).map_or(0, elements)
}

/// The elements of the first result.
fn first(results: &[TensorType]) -> u64 {
    results.first().map_or(0, elements)
}

pub(crate) fn sort(op: &Op, inputs: &[OperandType<'_>], _: &[TensorType]) -> u64 {
    let (Op::Sort { axis, .. } | Op::TopK { axis, .. }) = op else { return 0 };
    let len = tensor(inputs, 0).map_or(1, |ty| ty.shape[*axis]);
    times(&[operand(inputs, 0), log2(len)])
}

/// Counts the elements of the source, which is the last operand.
pub(crate) fn update(op: &Op, inputs: &[OperandType<'_>], _: &[TensorType]) -> u64 {
    let combines = op.update_mode().and_then(UpdateMode::binary).is_some();
    if combines { operand(inputs, inputs.len().saturating_sub(1)) } else { 0 }
}

pub(crate) fn matmul(_: &Op, inputs: &[OperandType<'_>], results: &[TensorType]) -> u64 {
    let k = tensor(inputs, 0).and_then(|ty| ty.shape.last().copied()).unwrap_or(0);
    times(&[2, first(results), k as u64])
}

pub(crate) fn conv(op: &Op, inputs: &[OperandType<'_>], results: &[TensorType]) -> u64 {
    let Op::Conv { pass, .. } = op else { return 0 };
    let (y, w) = match pass {
        ConvPass::Forward => (results.first(), tensor(inputs, 1)),
        ConvPass::Input { .. } => (tensor(inputs, 0), tensor(inputs, 1)),
        ConvPass::Weight { .. } => (tensor(inputs, 1), results.first()),
    };
    let kernel = w.map_or(0, |ty| product(&ty.shape[1..]));
    times(&[2, y.map_or(0, elements), kernel])
}

pub(crate) fn pool(op: &Op, inputs: &[OperandType<'_>], results: &[TensorType]) -> u64 {
    let windows = if let Op::Pool(_) = op { first(results) } else { operand(inputs, 0) };
    times(&[windows, op.pooling().map_or(0, |spec| product(&spec.window))])
}

pub(crate) fn norm(op: &Op, inputs: &[OperandType<'_>], results: &[TensorType]) -> u64 {
    let Op::Norm { kind, .. } = op else { return 0 };
    let normalisation = match kind {
        NormKind::Layer => 5,
        NormKind::Rms => 3,
    };
    times(&[normalisation + inputs.len().saturating_sub(1) as u64, first(results)])
}

pub(crate) fn attention(_: &Op, inputs: &[OperandType<'_>], _: &[TensorType]) -> u64 {
    scored(inputs, [2, 2])
}

pub(crate) fn attention_grad(_: &Op, inputs: &[OperandType<'_>], _: &[TensorType]) -> u64 {
    scored(inputs.get(1..).unwrap_or_default(), [6, 4])
}

pub(crate) fn resize(op: &Op, _: &[OperandType<'_>], results: &[TensorType]) -> u64 {
    let Op::Resize { mode, size, .. } = op else { return 0 };
    let per_axis = match mode {
        ResizeMode::Nearest => 0,
        ResizeMode::Linear => 3,
        ResizeMode::Cubic => 7,
    };
    times(&[per_axis, size.len() as u64, first(results)])
}

/// The count of a complex transform; one with a real side takes half.
pub(crate) fn fft(op: &Op, inputs: &[OperandType<'_>], _: &[TensorType]) -> u64 {
    let (Op::Fft { kind, axis, .. }, Some(ty)) = (op, tensor(inputs, 0)) else { return 0 };
    let points = kind.points(ty.shape[*axis]);
    let all = times(&[5, elements(&ty.with_shape(ty.shape.with(*axis, points))), log2(points)]);
    if *kind == FftKind::Complex { all } else { all / 2 }
}

pub(crate) fn quantize(_: &Op, inputs: &[OperandType<'_>], results: &[TensorType]) -> u64 {
    times(&[1 + inputs.len() as u64, first(results)])
}

pub(crate) fn dequantize(_: &Op, inputs: &[OperandType<'_>], results: &[TensorType]) -> u64 {
    times(&[(inputs.len() as u64).saturating_sub(1), first(results)])
}

pub(crate) fn collective(op: &Op, inputs: &[OperandType<'_>], _: &[TensorType]) -> u64 {
    let Op::Collective(collective) = op else { return 0 };
    match collective.kind {
        CollectiveKind::AllReduce(_) | CollectiveKind::ReduceScatter { .. } => {
            times(&[operand(inputs, 0), collective.size.saturating_sub(1) as u64])
        }
        CollectiveKind::AllGather { .. }
        | CollectiveKind::Broadcast { .. }
        | CollectiveKind::Send { .. }
        | CollectiveKind::Recv { .. } => 0,
    }
}

pub(crate) fn program(op: &Op, _: &[OperandType<'_>], _: &[TensorType]) -> u64 {
    if let Op::Fused(fused) = op {
        fused.program().cost().flops
    } else if let Op::Loop(looped) = op {
        times(&[looped.attributes().steps as u64, looped.body().cost().flops])
    } else {
        0
    }
}

fn bytes(op: &Op, inputs: &[OperandType<'_>], results: &[TensorType]) -> u64 {
    let size = |ty: &TensorType| times(&[elements(ty), ty.dtype.size() as u64]);
    let sum = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(0, u64::saturating_add);
    let written = sum(&mut results.iter().map(size));
    let read = |from: usize| sum(&mut inputs.iter().filter_map(|input| input.tensor()).skip(from).map(size));
    match op.info().traffic {
        Traffic::Free => 0,
        Traffic::Read => read(0),
        Traffic::All => written.saturating_add(read(0)),
        Traffic::Picked => written.saturating_add(written).saturating_add(read(1)),
    }
}

fn elements(ty: &TensorType) -> u64 {
    product(&ty.shape)
}

fn product(lengths: &[usize]) -> u64 {
    lengths.iter().fold(1, |product, &length| product.saturating_mul(length as u64))
}

fn times(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product, &factor| product.saturating_mul(factor))
}

/// Counts 5 per score of queries and keys, and matmul operations per score and element of a query and of a value.
fn scored(inputs: &[OperandType<'_>], products: [u64; 2]) -> u64 {
    let (Some(q), Some(k), Some(v)) = (tensor(inputs, 0), tensor(inputs, 1), tensor(inputs, 2)) else {
        return 0;
    };
    let of_query = times(&[products[0], q.shape[3] as u64]);
    let of_value = times(&[products[1], v.shape[3] as u64]);
    let per_score = of_query.saturating_add(of_value).saturating_add(5);
    times(&[product(&q.shape[..3]), k.shape[2] as u64, per_score])
}

/// The logarithm to base 2, rounded up; 0 for lengths below 2.
fn log2(len: usize) -> u64 {
    u64::from(len.max(1).next_power_of_two().trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn of(op: &Op, inputs: &[TensorType]) -> Cost {
        let inputs: Vec<OperandType<'_>> = inputs.iter().map(OperandType::Tensor).collect();
        cost(op, &inputs, &crate::infer(op, &inputs).unwrap())
    }

    fn f32s(shape: &[usize]) -> TensorType {
        TensorType::new(shape, DType::F32)
    }

    #[test]
    fn a_matmul_costs_two_m_n_k_flops() {
        let cost = of(&Op::MatMul, &[f32s(&[5, 2, 3]), f32s(&[5, 3, 4])]);
        assert_eq!(cost, Cost { flops: 5 * 2 * 2 * 3 * 4, bytes: 4 * 5 * (6 + 12 + 8) });
    }

    #[test]
    fn the_three_passes_of_a_convolution_cost_the_same() {
        let spec = crate::ConvSpec { groups: 2, ..crate::ConvSpec::new(1) };
        let [x, w, y] = [f32s(&[3, 4, 9]), f32s(&[6, 2, 3]), f32s(&[3, 6, 7])];
        let conv = |pass| Op::Conv { spec: spec.clone(), pass };
        let forward = of(&conv(ConvPass::Forward), &[x, w]);
        assert_eq!(forward.flops, 2 * 3 * 6 * 7 * 2 * 3);
        assert_eq!(forward, of(&conv(ConvPass::Input { size: [9].into() }), &[y, w]));
        assert_eq!(forward, of(&conv(ConvPass::Weight { size: [3].into() }), &[x, y]));
    }

    #[test]
    fn views_are_free_and_program_costs_add_up() {
        let program = crate::Recorder::trace(&[f32s(&[2, 3])], |x| alloc::vec![x[0].transpose().exp() + 1.0]);
        assert_eq!(program.cost(), Cost { flops: 12, bytes: 4 * 4 * 6 });
        let region = Op::Fused(crate::FusedOp::new(program));
        assert_eq!(of(&region, &[f32s(&[2, 3])]), Cost { flops: 12, bytes: 2 * 4 * 6 });
    }

    #[test]
    fn counts_saturate() {
        let huge = f32s(&[1 << 40, 1 << 20]);
        assert_eq!(of(&Op::Softmax { axis: 0, log: false }, &[huge]).bytes, 2 << 62);
        let flops = cost(&Op::MatMul, &[(&huge).into(), (&huge).into()], &[huge]).flops;
        assert_eq!(flops, u64::MAX);
    }
}
