//! Fused regions: a program that runs as one op, with the pattern that the fusion planner found in it.

use crate::op::named_enum;
use crate::{
    Binary, DType, Error, Instruction, Op, OpSet, Program, ProgramOperand, REARRANGES, Result, Scalar,
    TensorType, Unary,
};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A region of ops that runs as one op: a program and its [`Pattern`], shared. A clone copies one pointer.
///
/// The program defines the semantics. An engine that compiles regions caches the compiled kernel by the program; every
/// other engine runs the program op by op ([`Program::run_region`]). The pattern names the parts of the program for an
/// engine that has a kernel for the whole; an engine may ignore it.
///
/// The operands are the program's inputs, in order. A plain number may be passed for a rank-0 input, so a number that
/// changes from step to step does not change the program.
///
/// The pattern of a `FusedOp` always [fits](Pattern::check) its program. Deserializing and parsing check it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FusedOp(Arc<Fused>);

#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Fused {
    program: Arc<Program>,
    pattern: Pattern,
    /// The kinds of the program's ops.
    #[serde(skip)]
    kinds: OpSet,
    /// Whether a slot has no elements.
    #[serde(skip)]
    has_empty_slots: bool,
}

impl FusedOp {
    /// Creates the region of this program, owned or shared, with the pattern [`Pattern::Loop`].
    pub fn new(program: impl Into<Arc<Program>>) -> FusedOp {
        FusedOp::of(program.into(), Pattern::Loop)
    }

    /// Creates the region of this program, owned or shared, with a pattern.
    ///
    /// # Errors
    /// When the pattern does not [fit](Pattern::check) the program.
    ///
    /// ```
    /// use kiln_ir::{DType, Epilogue, FusedOp, Pattern, Recorder, TensorType};
    ///
    /// let types = [[4, 3], [3, 5], [4, 5]].map(|shape| TensorType::new(shape, DType::F32));
    /// let program = Recorder::trace(&types, |inputs| vec![inputs[0].matmul(&inputs[1]) + &inputs[2]]);
    /// let epilogue =
    ///     Epilogue { product: 3, factors: [0, 1], bias: Some(2), activation: None, numbers: Vec::new() };
    /// assert!(FusedOp::with_pattern(program.clone(), Pattern::Epilogue(epilogue.clone())).is_ok());
    /// let other = Epilogue { bias: Some(7), ..epilogue };
    /// assert!(FusedOp::with_pattern(program, Pattern::Epilogue(other)).is_err());
    /// ```
    pub fn with_pattern(program: impl Into<Arc<Program>>, pattern: Pattern) -> Result<FusedOp> {
        let program = program.into();
        pattern.check(&program)?;
        Ok(FusedOp::of(program, pattern))
    }

    fn of(program: Arc<Program>, pattern: Pattern) -> FusedOp {
        let kinds = program.kinds();
        let has_empty_slots = program.slot_types().iter().any(|ty| ty.shape.has_no_elements());
        FusedOp(Arc::new(Fused { program, pattern, kinds, has_empty_slots }))
    }

    /// Returns whether an operand, a result or an intermediate of the program has no elements. An engine runs such a
    /// region op by op: kernels may loop over the other axes, which can be of any length.
    #[inline]
    pub fn has_empty_slots(&self) -> bool {
        self.0.has_empty_slots
    }

    /// Returns the program.
    pub fn program(&self) -> &Program {
        &self.0.program
    }

    /// Returns the program, shared: engines that cache compiled kernels hold a reference to it.
    pub fn shared(&self) -> &Arc<Program> {
        &self.0.program
    }

    /// Returns the kinds of the [program's](Program::kinds) ops: an engine that runs the region as a whole supports all
    /// of them.
    #[inline]
    pub fn kinds(&self) -> OpSet {
        self.0.kinds
    }

    /// Returns the pattern that the planner found in the program.
    pub fn pattern(&self) -> &Pattern {
        &self.0.pattern
    }
}

impl Serialize for FusedOp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FusedOp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FusedOp, D::Error> {
        let Fused { program, pattern, .. } = Fused::deserialize(deserializer)?;
        FusedOp::with_pattern(program, pattern).map_err(serde::de::Error::custom)
    }
}

/// The pattern of a fused region, for engines that have a kernel for it. Slots are those of the region's [`Program`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// No particular pattern: one compiled loop, or an anchor op with elementwise ops around it.
    #[default]
    Loop,
    /// A matmul with a bias, an activation, or both.
    Epilogue(Epilogue),
    /// A matmul whose right factor is dequantized.
    #[serde(rename = "quantized_matmul")]
    QuantizedMatMul(QuantizedMatMul),
}

/// The form `activation(a · b + bias)`: the epilogue of a vendor library's matmul.
///
/// The result has the matmul's dtype and its elements in the same order, possibly in another shape. The pattern
/// contains no lengths, so a program of other lengths has the same pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Epilogue {
    /// The slot of the matmul's result.
    pub product: usize,
    /// The inputs that are multiplied, of the matmul's dtype.
    pub factors: [usize; 2],
    /// The input that is added, if any. Its last axis has the length of the matmul's last axis. A library may add it
    /// only if its strides along all other axes are 0. It has the matmul's dtype, or `f32` with a `bf16` matmul: it is
    /// then rounded to `bf16` first.
    pub bias: Option<usize>,
    /// The activation after the bias.
    pub activation: Option<Activation>,
    /// Rank-0 inputs, each with the plain number that it must equal. The pattern holds for these numbers alone.
    pub numbers: Vec<(usize, Scalar)>,
}

/// The form `x · dequantize(values, scale, zero)`, with any ops on the result.
///
/// The right factor is the dequantized tensor, or a chain of [`Op::Permute`], [`Op::Reshape`] and [`Op::Broadcast`] of
/// it. Each tensor of the chain has one use. The pattern contains no lengths, so a program of other lengths has the
/// same pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QuantizedMatMul {
    /// The slot of the matmul's result.
    pub product: usize,
    /// The slot of the left factor: an input, or a constant.
    pub x: usize,
    /// The slot of the result of [`Op::Dequantize`].
    pub dequantized: usize,
    /// The slot of the integers.
    pub values: usize,
    /// The slot of the scales, one per block.
    pub scale: usize,
    /// The slot of the zero points, one per block, if there are any.
    pub zero: Option<usize>,
}

named_enum! {
    /// An activation function of a matmul's epilogue.
    Activation {
        /// `max(x, 0)`; NaN for NaN.
        Relu = "relu",
        /// `x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2`.
        Gelu = "gelu",
    }
}

impl Pattern {
    /// Returns the name in the text form.
    pub fn name(&self) -> &'static str {
        match self {
            Pattern::Loop => "loop",
            Pattern::Epilogue(_) => "epilogue",
            Pattern::QuantizedMatMul(_) => "quantized_matmul",
        }
    }

    /// Checks that a program contains the parts of the pattern. Slots must be in range and defined before use, with the
    /// ops of the pattern; declared dtypes and lengths must agree. The ops of an activation are not compared one by
    /// one. The program need not be [valid](mod@crate::verify).
    ///
    /// # Errors
    /// When a part is missing. The message names it.
    pub fn check(&self, program: &Program) -> Result<()> {
        let checked = match self {
            Pattern::Loop => Ok(()),
            Pattern::Epilogue(epilogue) => Parts::of(program).and_then(|parts| epilogue.check(&parts)),
            Pattern::QuantizedMatMul(matmul) => Parts::of(program).and_then(|parts| matmul.check(&parts)),
        };
        checked.map_err(|problem| {
            Error::program(format!("the pattern `{}` does not fit the program: {problem}", self.name()))
        })
    }
}

impl Epilogue {
    fn check(&self, parts: &Parts<'_>) -> Result<(), String> {
        let product = parts.made_by(self.product, &Op::MatMul, &self.factors)?;
        if parts.program.instructions.iter().filter(|it| it.op == Op::MatMul).count() != 1 {
            return Err("it has several matmuls".into());
        }
        for factor in self.factors {
            if parts.input(factor)?.dtype != product.dtype {
                return Err(format!("the factor %{factor} does not have the matmul's dtype"));
            }
        }
        let &[ProgramOperand::Slot(result)] = parts.program.outputs.as_slice() else {
            return Err("its output is not one tensor".into());
        };
        let result = parts.ty(result)?;
        let sizes = [result, product].map(|ty| ty.shape.checked_num_elements());
        if result.dtype != product.dtype || sizes[0] != sizes[1] {
            return Err(format!("the result {result} is not a view of {product}"));
        }
        if let Some(bias) = self.bias {
            let ty = parts.input(bias)?;
            let is_wide = ty.dtype == DType::F32 && product.dtype == DType::BF16;
            let last = product.shape.last();
            if last.is_none() || ty.shape.last() != last || (ty.dtype != product.dtype && !is_wide) {
                return Err(format!("the bias %{bias}, {ty}, is not a bias of {product}"));
            }
            let adds = |it: &Instruction| it.operands.contains(&ProgramOperand::Slot(bias));
            if !parts.has(Op::Binary(Binary::Add), adds) {
                return Err(format!("the bias %{bias} is not added"));
            }
        }
        if self.bias.is_none() && self.activation.is_none() {
            return Err("an epilogue has a bias or an activation".into());
        }
        let [max, tanh] = [Op::Binary(Binary::Max), Op::Unary(Unary::Tanh)].map(|op| parts.has(op, |_| true));
        let computes = match (max, tanh) {
            (false, false) => None,
            (_, false) => Some(Activation::Relu),
            (_, true) => Some(Activation::Gelu),
        };
        if computes != self.activation {
            return Err("its ops are not those of the activation".into());
        }
        for &(number, _) in &self.numbers {
            if parts.input(number)?.rank() != 0 {
                return Err(format!("the number %{number} has axes"));
            }
        }
        Ok(())
    }
}

impl QuantizedMatMul {
    fn check(&self, parts: &Parts<'_>) -> Result<(), String> {
        let product = parts.maker(self.product)?;
        let right = product.operands.get(1).and_then(slot).ok_or("the matmul has no right operand")?;
        parts.made_by(self.product, &Op::MatMul, &[self.x, right])?;
        let mut seen = right;
        loop {
            if parts.uses(seen) != 1 {
                return Err(format!("%{seen} has uses other than the matmul"));
            }
            if seen == self.dequantized {
                break;
            }
            let view = parts.maker(seen)?;
            let before = view.operands.first().and_then(slot).filter(|&before| before < seen);
            seen = before
                .filter(|_| view.op.is(REARRANGES))
                .ok_or_else(|| format!("%{right} is not a view of %{}", self.dequantized))?;
        }
        let operands: Vec<usize> = [self.values, self.scale].into_iter().chain(self.zero).collect();
        parts.made_by(self.dequantized, &Op::Dequantize, &operands)?;
        Ok(())
    }
}

/// A program whose instructions have one result each, so that slots and instructions have equal numbers.
struct Parts<'a> {
    program: &'a Program,
}

impl<'a> Parts<'a> {
    fn of(program: &'a Program) -> Result<Parts<'a>, String> {
        if program.instructions.iter().any(|instruction| instruction.results.len() != 1) {
            return Err("an instruction does not have exactly one result".into());
        }
        Ok(Parts { program })
    }

    /// The instruction that defines a slot.
    fn maker(&self, slot: usize) -> Result<&'a Instruction, String> {
        let number = slot.checked_sub(self.program.inputs.len());
        let maker = number.and_then(|number| self.program.instructions.get(number));
        maker.ok_or_else(|| format!("%{slot} is not a result"))
    }

    fn input(&self, slot: usize) -> Result<TensorType, String> {
        self.program.inputs.get(slot).copied().ok_or_else(|| format!("%{slot} is not an input"))
    }

    fn ty(&self, slot: usize) -> Result<TensorType, String> {
        self.input(slot).or_else(|_| Ok(self.maker(slot)?.results[0]))
    }

    /// The type of a slot, after checking that the op defines it from these slots, which are defined earlier.
    fn made_by(&self, result: usize, op: &Op, operands: &[usize]) -> Result<TensorType, String> {
        let maker = self.maker(result)?;
        let is_from = maker.operands.iter().map(slot).eq(operands.iter().copied().map(Some));
        if maker.op != *op || !is_from || operands.iter().any(|&operand| operand >= result) {
            return Err(format!("%{result} is not `{}` of the slots {operands:?}", op.name()));
        }
        Ok(maker.results[0])
    }

    /// Whether an instruction has that op and satisfies the predicate.
    fn has(&self, op: Op, is_one: impl Fn(&Instruction) -> bool) -> bool {
        self.program.instructions.iter().any(|instruction| instruction.op == op && is_one(instruction))
    }

    fn uses(&self, slot: usize) -> usize {
        let instructions = self.program.instructions.iter();
        let operands = instructions.flat_map(|instruction| &instruction.operands);
        let is_use = |operand: &&ProgramOperand| **operand == ProgramOperand::Slot(slot);
        operands.chain(&self.program.outputs).filter(is_use).count()
    }
}

fn slot(operand: &ProgramOperand) -> Option<usize> {
    match *operand {
        ProgramOperand::Slot(slot) => Some(slot),
        ProgramOperand::Scalar(_) => None,
    }
}
