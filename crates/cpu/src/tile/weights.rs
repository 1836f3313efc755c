//! Matmuls with quantized weights: the weights stay integers, and the matmul reads these.

use super::split::{is_anchor, slot as slot_in};
use alloc::vec::Vec;
use kiln_ir::{DType, Instruction, Op, Program, ProgramOperand, QuantizedMatMul, Shape, TensorType};

/// Rewrites the program so that the matmul reads integers. Its operands are then the left factor, the integers, the
/// scales and, if there are any, the zero points as `f32`. `None` if the kernel does not support them. It supports only
/// 8-bit integers, `f32`, blocks of the matmul's factor, and a matmul that is the last [anchor op](is_anchor).
pub(super) fn with_integers(program: &Program, pattern: &QuantizedMatMul) -> Option<Program> {
    let inputs = program.inputs.len();
    let types = program.slot_types();
    // Every instruction here has one result, so slots and instructions have equal numbers.
    let (place, dequantize) = (pattern.product - inputs, pattern.dequantized - inputs);
    let product = &program.instructions[place];
    let integers = types[pattern.values];
    if !matches!(integers.dtype, DType::I8 | DType::U8)
        || [pattern.x, pattern.scale].iter().any(|&slot| types[slot].dtype != DType::F32)
        || [integers, product.results[0]].iter().any(|ty| ty.num_elements() == 0)
        || program.instructions[place + 1..].iter().any(is_anchor)
    {
        return None;
    }
    // The views between the weights and the matmul.
    let mut way = Vec::new();
    let mut slot = slot_in(&product.operands[1])?;
    while slot != pattern.dequantized {
        way.push(slot - inputs);
        slot = slot_in(&program.instructions[slot - inputs].operands[0])?;
    }
    way.reverse();

    let mut before = program.instructions[..place].to_vec();
    // Replaces the dequantization by the integers.
    before[dequantize] = Instruction {
        op: Op::Broadcast(integers.shape),
        operands: alloc::vec![ProgramOperand::Slot(pattern.values)],
        results: alloc::vec![integers],
    };
    for &at in &way {
        before[at].results[0].dtype = integers.dtype;
    }
    let mut operands: Vec<ProgramOperand> = product.operands.to_vec();
    for part in core::iter::once(pattern.scale).chain(pattern.zero) {
        let mut now = ProgramOperand::Slot(part);
        let mut ty = types[part];
        if ty.dtype != DType::F32 {
            ty = ty.with_dtype(DType::F32);
            now = push(&mut before, inputs, Op::Cast(DType::F32), now, ty);
        }
        let mut whole = integers.shape;
        for &at in &way {
            let step = &program.instructions[at];
            let op = alike(&step.op, &whole, &ty.shape)?;
            ty = ty.with_shape(shape_after(&op, &ty.shape));
            whole = step.results[0].shape;
            now = push(&mut before, inputs, op, now, ty);
        }
        // The matmul does not support blocks that span several matrices of a batch.
        let outer = whole.rank() - 2;
        let mut lengths = ty.shape[..outer].iter().zip(&whole[..outer]);
        if lengths.any(|(&blocks, &length)| blocks != 1 && blocks != length) {
            return None;
        }
        operands.push(now);
    }
    let moved = before.len() - place;
    let mut instructions = before;
    instructions.push(Instruction { operands: operands.into_iter().collect(), ..product.clone() });
    let shifted = |operand: &ProgramOperand| match *operand {
        ProgramOperand::Slot(slot) if slot >= inputs + place => ProgramOperand::Slot(slot + moved),
        ProgramOperand::Slot(_) | ProgramOperand::Scalar(_) => *operand,
    };
    instructions.extend(program.instructions[place + 1..].iter().map(|after| Instruction {
        operands: after.operands.iter().map(shifted).collect(),
        ..after.clone()
    }));
    let outputs = program.outputs.iter().map(shifted).collect();
    Some(Program { inputs: program.inputs.clone(), instructions, outputs })
}

fn push(
    instructions: &mut Vec<Instruction>,
    inputs: usize,
    op: Op,
    operand: ProgramOperand,
    ty: TensorType,
) -> ProgramOperand {
    let operands = core::iter::once(operand).collect();
    instructions.push(Instruction { op, operands, results: alloc::vec![ty] });
    ProgramOperand::Slot(inputs + instructions.len() - 1)
}

/// The view of quantization scales (shape `blocks`) that matches a view of their weights (shape `whole`). Returns
/// `None` if the view does not keep blocks whole.
fn alike(op: &Op, whole: &Shape, blocks: &Shape) -> Option<Op> {
    if let Op::Permute(axes) = op {
        return Some(Op::Permute(*axes));
    }
    if let Op::Reshape(to) = op {
        // More or fewer leading axes of length 1.
        let ones = |shape: &Shape| shape.iter().take_while(|&&length| length == 1).count();
        let same = whole[ones(whole)..] == to[ones(to)..];
        let front = core::iter::repeat_n(1, ones(to));
        let reshaped = || Op::Reshape(front.chain(blocks[ones(whole)..].iter().copied()).collect());
        return same.then(reshaped);
    }
    // A batch of the same matrix.
    let Op::Broadcast(to) = op else { return None };
    let outer = to.rank().checked_sub(2)?;
    if to.rank() != whole.rank() || to[outer..] != whole[outer..] {
        return None;
    }
    let axis = |axis: usize| if to[axis] == whole[axis] { blocks[axis] } else { to[axis] };
    Some(Op::Broadcast((0..outer).map(axis).chain(blocks[outer..].iter().copied()).collect()))
}

fn shape_after(op: &Op, shape: &Shape) -> Shape {
    if let Op::Permute(axes) = op {
        return axes.iter().map(|axis| shape[axis]).collect();
    }
    if let Op::Reshape(to) | Op::Broadcast(to) = op { *to } else { *shape }
}
