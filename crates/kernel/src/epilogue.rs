//! Pattern matching of matmul epilogues (bias, activation) that vendors' BLAS libraries fuse. Gradient epilogues of
//! BLAS libraries are not used: they took as long as a kernel, or longer.
//!
//! A region is matched from its end: an activation, as the ops that tensors record for it; before it a bias; before
//! that the matmul. Plain numbers of a region are operands, so the match lists the values that they must have.
//!
//! In mixed precision a `bf16` matmul result is widened to `f32` and the epilogue's result is narrowed again. Libraries
//! do that too, but take a `bf16` bias as well. They round the bias where kernels round the matmul result, and so are
//! no less exact. An `f16` bias might overflow.

use alloc::vec::Vec;
use core::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
use kiln_ir::{
    Activation, Binary, DType, Epilogue, Instruction, Op, Program, ProgramOperand, Recorder, Scalar,
    TensorType, Var,
};

/// Matches a region that is a matmul with a bias, an activation, or both; `None` for any other region. `None` also
/// where libraries would be less accurate than kernels: their `f32` GELU has an error of 5e-6. Their `f64` matmuls have
/// no epilogue.
///
/// ```
/// use kiln_ir::{Activation, DType, Recorder, TensorType};
/// use kiln_kernel::match_epilogue;
///
/// let types = [[4, 3], [3, 5], [4, 5]].map(|shape| TensorType::new(shape, DType::F32));
/// let region = Recorder::trace(&types, |inputs| {
///     let sum = inputs[0].matmul(&inputs[1]) + &inputs[2];
///     vec![sum.max(&sum.scalar(0.0))]
/// });
/// let epilogue = match_epilogue(&region).expect("libraries compute it");
/// assert_eq!((epilogue.factors, epilogue.bias), ([0, 1], Some(2)));
/// assert_eq!(epilogue.activation, Some(Activation::Relu));
/// ```
pub fn match_epilogue(program: &Program) -> Option<Epilogue> {
    let &[ProgramOperand::Slot(result)] = program.outputs.as_slice() else { return None };
    if program.instructions.iter().any(|instruction| instruction.results.len() != 1) {
        return None;
    }
    let mut reader = Reader { program, widens: false, numbers: Vec::new() };
    let (product, factors) = reader.product()?;
    let ty = reader.ty(product);
    let narrowed = reader.narrowed(result).filter(|_| ty.dtype == DType::BF16);
    reader.widens = narrowed.is_some();
    let (activation, argument) = reader.activation(narrowed.unwrap_or(result));
    let bias = reader.bias(argument, product);
    let begin = bias.map_or(argument, |_| product);
    let is_exact = match activation {
        Some(Activation::Gelu) => matches!(ty.dtype, DType::F16 | DType::BF16),
        Some(Activation::Relu) | None => matches!(ty.dtype, DType::F32 | DType::F16 | DType::BF16),
    };
    let does_something = bias.is_some() || activation.is_some();
    let ends = reader.is_product(begin, product) && does_something && is_exact;
    ends.then_some(Epilogue { product, factors, bias, activation, numbers: reader.numbers })
}

/// Matches a program from its end.
struct Reader<'a> {
    program: &'a Program,
    /// Whether the ops after the matmul compute in `f32`.
    widens: bool,
    numbers: Vec<(usize, Scalar)>,
}

impl Reader<'_> {
    /// The only matmul, and the inputs that are its factors.
    fn product(&self) -> Option<(usize, [usize; 2])> {
        let count = self.program.inputs.len();
        let is_product = |slot: &usize| self.maker(*slot).is_some_and(|it| it.op == Op::MatMul);
        let mut products = (count..self.program.num_slots()).filter(is_product);
        let (product, None) = (products.next()?, products.next()) else { return None };
        let operands = self.maker(product)?.operands.as_slice();
        let &[ProgramOperand::Slot(a), ProgramOperand::Slot(b)] = operands else { return None };
        let alike = a < count && b < count && self.ty(a).dtype == self.ty(b).dtype;
        (alike && self.ty(a).dtype == self.ty(product).dtype).then_some((product, [a, b]))
    }

    /// The `f32` value before the narrowing cast that defines a `bf16` slot.
    fn narrowed(&self, slot: usize) -> Option<usize> {
        self.cast_of(slot, DType::BF16).filter(|&of| self.ty(of).dtype == DType::F32)
    }

    /// The operand of a slot's cast to `dtype`; `None` if the slot is no such cast.
    fn cast_of(&self, slot: usize, dtype: DType) -> Option<usize> {
        let cast = self.maker(self.seen(slot)).filter(|it| it.op == Op::Cast(dtype))?;
        let &[ProgramOperand::Slot(of)] = cast.operands.as_slice() else { return None };
        Some(of)
    }

    /// Whether a slot is the matmul result, seen through casts.
    fn is_product(&self, slot: usize, product: usize) -> bool {
        let narrow = if self.widens { self.cast_of(slot, DType::F32) } else { None };
        self.seen(narrow.unwrap_or(slot)) == product
    }

    /// The activation at the end, with its argument; no activation and the end itself if there is none.
    fn activation(&mut self, end: usize) -> (Option<Activation>, usize) {
        for (activation, function) in [(Activation::Relu, relu as Function), (Activation::Gelu, gelu)] {
            let pattern = pattern(function);
            let mut slots = alloc::vec![None; pattern.num_slots()];
            let known = self.numbers.len();
            if self.agrees(&pattern, &pattern.outputs[0], &ProgramOperand::Slot(end), &mut slots)
                && let Some(argument) = slots[0]
            {
                return (Some(activation), argument);
            }
            self.numbers.truncate(known);
        }
        (None, end)
    }

    /// The input that is added to the matmul's result.
    fn bias(&self, sum: usize, product: usize) -> Option<usize> {
        let adding = self.maker(self.seen(sum)).filter(|it| it.op == Op::Binary(Binary::Add))?;
        let &[ProgramOperand::Slot(a), ProgramOperand::Slot(b)] = adding.operands.as_slice() else {
            return None;
        };
        let bias = match [a, b].map(|slot| self.is_product(slot, product)) {
            [true, false] => b,
            [false, true] => a,
            [true, true] | [false, false] => return None,
        };
        let last = |slot: usize| self.ty(slot).shape.last().copied();
        (bias < self.program.inputs.len() && last(bias) == last(product)).then_some(bias)
    }

    /// Whether an operand of a pattern matches an operand of the region. `slots` maps the pattern's slots to the
    /// region's.
    fn agrees(
        &mut self,
        pattern: &Program,
        wanted: &ProgramOperand,
        found: &ProgramOperand,
        slots: &mut [Option<usize>],
    ) -> bool {
        let (&ProgramOperand::Slot(wanted), &ProgramOperand::Slot(found)) = (wanted, found) else {
            let ProgramOperand::Scalar(number) = wanted else { return false };
            return self.is_number(found, *number);
        };
        let found = self.seen(found);
        if let Some(known) = slots[wanted] {
            return known == found;
        }
        slots[wanted] = Some(found);
        let Some(of_pattern) = maker(pattern, wanted) else { return true };
        let Some(own) = self.maker(found).cloned() else { return false };
        own.op == of_pattern.op
            && own.operands.len() == of_pattern.operands.len()
            && of_pattern
                .operands
                .iter()
                .zip(&own.operands)
                .all(|(wanted, found)| self.agrees(pattern, wanted, found, slots))
    }

    /// Whether an operand is that number. A number passed at run time is recorded as a condition.
    fn is_number(&mut self, operand: &ProgramOperand, number: Scalar) -> bool {
        let slot = match *operand {
            ProgramOperand::Scalar(scalar) => return scalar.to_f64() == number.to_f64(),
            ProgramOperand::Slot(slot) => slot,
        };
        let broadcast = self.maker(slot).filter(|it| matches!(it.op, Op::Broadcast(_)));
        let input = match broadcast.map(|it| it.operands.as_slice()) {
            Some(&[ProgramOperand::Slot(input)]) => input,
            Some(_) | None => slot,
        };
        let is_input = input < self.program.inputs.len() && self.ty(input).shape.rank() == 0;
        if is_input {
            self.numbers.push((input, number));
        }
        is_input
    }

    /// The value before reshapes.
    fn seen(&self, mut slot: usize) -> usize {
        while let Some(Instruction { op: Op::Reshape(_), operands, .. }) = self.maker(slot)
            && let Some(&ProgramOperand::Slot(of)) = operands.first()
        {
            slot = of;
        }
        slot
    }

    fn maker(&self, slot: usize) -> Option<&Instruction> {
        maker(self.program, slot)
    }

    fn ty(&self, slot: usize) -> TensorType {
        match self.maker(slot) {
            Some(instruction) => instruction.results[0],
            None => self.program.inputs[slot],
        }
    }
}

/// The instruction that defines a slot; all instructions have one result.
fn maker(program: &Program, slot: usize) -> Option<&Instruction> {
    slot.checked_sub(program.inputs.len()).and_then(|number| program.instructions.get(number))
}

/// A function of one tensor.
type Function = for<'e> fn(&Var<'e>) -> Var<'e>;

/// Traces a function of one tensor as a program.
fn pattern(function: Function) -> Program {
    Recorder::trace(&[TensorType::new([1], DType::F32)], |inputs| alloc::vec![function(&inputs[0])])
}

fn relu<'e>(x: &Var<'e>) -> Var<'e> {
    x.max(&x.scalar(0.0))
}

/// GELU by its `tanh` approximation, as tensors record it.
fn gelu<'e>(x: &Var<'e>) -> Var<'e> {
    /// For arguments below its negative, GELU is 0 in every dtype.
    const FAR: f64 = 30.0;
    let near = x.max(&x.scalar(-FAR));
    let inner = &near + near.square() * &near * 0.044715;
    let share = ((inner * (FRAC_2_SQRT_PI * FRAC_1_SQRT_2)).tanh() + 1.0) * 0.5;
    &near * share
}
