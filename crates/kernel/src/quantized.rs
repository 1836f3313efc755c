//! Pattern matching of matmuls with a dequantized right factor: an engine may read the integers instead of floats,
//! which take four times as many bytes.

use kiln_ir::{Instruction, Op, Program, ProgramOperand, QuantizedMatMul, REARRANGES};

/// Matches a region with a matmul whose right factor is dequantized, possibly behind views that permute, reshape or
/// broadcast it. `None` if there is no such matmul, if there are several matmuls, or if the floats have another use.
///
/// ```
/// use kiln_ir::{DType, Op, Recorder, TensorType};
/// use kiln_kernel::match_quantized_matmul;
///
/// let types = [([2, 6], DType::F32), ([4, 6], DType::I8), ([4, 1], DType::F32)];
/// let region = Recorder::trace(&types.map(|(shape, dtype)| TensorType::new(shape, dtype)), |inputs| {
///     let weight = inputs[1].apply(Op::Dequantize, &[&inputs[2]]);
///     vec![inputs[0].matmul(&weight.transpose())]
/// });
/// let found = match_quantized_matmul(&region).expect("the weight is dequantised");
/// assert_eq!((found.x, found.values, found.scale, found.zero), (0, 1, 2, None));
/// ```
pub fn match_quantized_matmul(program: &Program) -> Option<QuantizedMatMul> {
    if program.instructions.iter().any(|instruction| instruction.results.len() != 1) {
        return None;
    }
    let count = program.inputs.len();
    let mut products = program.instructions.iter().enumerate().filter(|(_, it)| it.op == Op::MatMul);
    let (Some((number, product)), None) = (products.next(), products.next()) else { return None };
    let &[ProgramOperand::Slot(x), ProgramOperand::Slot(right)] = product.operands.as_slice() else {
        return None;
    };
    let mut seen = right;
    let parts = loop {
        if uses(program, seen) != 1 {
            return None;
        }
        let Instruction { op, operands, .. } = program.instructions.get(seen.checked_sub(count)?)?;
        if *op == Op::Dequantize {
            break operands.as_slice();
        }
        let &[ProgramOperand::Slot(before)] = operands.as_slice() else { return None };
        if !op.is(REARRANGES) || before >= seen {
            return None;
        }
        seen = before;
    };
    let (values, scale, zero) = match *parts {
        [ProgramOperand::Slot(values), ProgramOperand::Slot(scale)] => (values, scale, None),
        [ProgramOperand::Slot(values), ProgramOperand::Slot(scale), ProgramOperand::Slot(zero)] => {
            (values, scale, Some(zero))
        }
        _ => return None,
    };
    Some(QuantizedMatMul { product: count + number, x, dequantized: seen, values, scale, zero })
}

/// The number of uses of a slot as an operand or an output.
fn uses(program: &Program, slot: usize) -> usize {
    let operands = program.instructions.iter().flat_map(|instruction| &instruction.operands);
    operands.chain(&program.outputs).filter(|&&operand| operand == ProgramOperand::Slot(slot)).count()
}
