//! Random typed programs.
//!
//! The generator adds one op after another. For each op it draws attributes and operands: a value of the program or a
//! new input. Inputs often pass through a chain of views, so that engines with strides see every memory layout. Each
//! program has a style: a few dtypes and lengths, so that operand types match by chance, and the fill of its inputs.

mod case;
mod chain;
mod composite;
mod contraction;
mod edge;
mod elementwise;
mod index;
mod nothing;
mod order;
mod style;
mod view;

pub(crate) use case::case_of;
pub use edge::Cubed;
pub use style::Style;

use crate::random::Random;
use crate::trial::Trial;
use kiln_ir::{
    DType, Instruction, Op, OpKind, OperandType, Program, ProgramOperand, Scalar, TensorData, TensorType,
    infer,
};
use kiln_suite::case::Fill;
use kiln_suite::fill::{Random as Numbers, filled};

/// Generates the trial of a seed and a number. With `only`, the first op is of that kind if possible.
///
/// ```
/// use kiln_fuzz::generate::trial;
///
/// let first = trial(1, 7, None);
/// assert_eq!(first, trial(1, 7, None));
/// assert_ne!(first.program, trial(1, 8, None).program);
/// ```
pub fn trial(seed: u64, number: u64, only: Option<OpKind>) -> Trial {
    let mut random = Random::new(seed, number);
    let style = Style::draw(&mut random);
    let mut generator = Generator::new(&mut random, style);
    // The first op cycles through all kinds, so that rare kinds are generated as often as others.
    let first = only.unwrap_or(OpKind::ALL[(number % OpKind::ALL.len() as u64) as usize]);
    for _ in 0..16 {
        if generator.add(first).is_some() {
            break;
        }
    }
    if generator.style.chains {
        generator.chain();
    }
    let more = generator.random.below(9);
    for _ in 0..more {
        let kind = generator.random.pick(&OpKind::ALL);
        generator.add(kind);
    }
    let smooth = generator.style.smooth;
    let (program, inputs) = generator.finish();
    Trial { program, inputs: inputs.into_iter().map(|input| input.data).collect(), smooth }
}

/// The kinds that no program contains.
///
/// An engine may round an operand of a matmul with quantized blocks to 8 bits; the error exceeds that of all noisy runs.
/// The suite compares these matmuls.
///
/// The noisy engine runs a loop as one op of its inner engine: it changes the results,
/// but not the values between steps, whose rounding the next steps amplify. Such a difference of two engines is outside
/// the range of all noisy runs; each comparison then makes all of them, also for each candidate of the shrinker. The suite
/// and the tests of loops compare loops with unrolled computations.
pub const NOT_GENERATED: [OpKind; 2] = [OpKind::MatMulBlocks, OpKind::Loop];

/// A function that adds an op of its kind.
type Draw<G> = fn(&mut G) -> Option<()>;

/// A program under construction. Slots are numbered in order of creation.
pub(crate) struct Generator<'r> {
    pub(crate) random: &'r mut Random,
    pub(crate) style: Style,
    slots: Vec<TensorType>,
    /// Whether the shape of each slot is data-dependent.
    is_open: Vec<bool>,
    inputs: Vec<Input>,
    instructions: Vec<DrawnInstruction>,
}

/// An input of the program.
pub(crate) struct Input {
    slot: usize,
    /// The data of the input.
    pub(crate) data: TensorData,
    /// Whether the data is arbitrary. Indices, for example, must be in range.
    pub(crate) is_free: bool,
}

/// An instruction by the generator's slots, which `finish` renumbers.
struct DrawnInstruction {
    op: Op,
    operands: Vec<ProgramOperand>,
    first_result: usize,
    num_results: usize,
}

/// The contents that an operand needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wanted {
    /// Any data of the type.
    Free,
    /// A new input filled by this rule, at most with views in between.
    Filled(Fill),
}

impl<'r> Generator<'r> {
    pub(crate) fn new(random: &'r mut Random, style: Style) -> Generator<'r> {
        Generator {
            random,
            style,
            slots: Vec::new(),
            is_open: Vec::new(),
            inputs: Vec::new(),
            instructions: Vec::new(),
        }
    }

    /// Adds an op of a kind. Returns `None` and adds nothing if the drawn attributes or operands are invalid, or if the
    /// style excludes the op.
    pub(crate) fn add(&mut self, kind: OpKind) -> Option<()> {
        let (slots, inputs, instructions) = (self.slots.len(), self.inputs.len(), self.instructions.len());
        let added = self.draw(kind);
        if added.is_none() {
            self.slots.truncate(slots);
            self.is_open.truncate(slots);
            self.inputs.truncate(inputs);
            self.instructions.truncate(instructions);
        }
        added
    }

    /// Draws by the kind's generator. A kind without one is drawn from the suite's cases.
    fn draw(&mut self, kind: OpKind) -> Option<()> {
        let generators: [(OpKind, Draw<Self>); 48] = [
            (OpKind::Full, Self::full),
            (OpKind::Iota, Self::iota),
            (OpKind::Random, Self::random_numbers),
            (OpKind::Unary, Self::unary),
            (OpKind::Binary, Self::binary),
            (OpKind::Compare, Self::compare),
            (OpKind::Select, Self::select),
            (OpKind::Cast, Self::cast),
            (OpKind::Bitcast, Self::bitcast),
            (OpKind::Reshape, Self::reshape),
            (OpKind::Permute, Self::permute),
            (OpKind::Broadcast, Self::broadcast),
            (OpKind::Slice, Self::slice),
            (OpKind::Pad, Self::pad),
            (OpKind::Concat, Self::concat),
            (OpKind::Windows, Self::windows),
            (OpKind::Copy, Self::copy),
            (OpKind::Reduce, Self::reduce),
            (OpKind::ArgReduce, Self::arg_reduce),
            (OpKind::Scan, Self::scan),
            (OpKind::Sort, Self::sort),
            (OpKind::TopK, Self::topk),
            (OpKind::Take, Self::take),
            (OpKind::Gather, Self::gather),
            (OpKind::Put, Self::put),
            (OpKind::Scatter, Self::scatter),
            (OpKind::SliceUpdate, Self::slice_update),
            (OpKind::NonZero, Self::nonzero),
            (OpKind::CheckIndex, Self::check_index),
            (OpKind::Recover, Self::recover),
            (OpKind::MatMul, Self::matmul),
            (OpKind::MatMulFloat8, Self::matmul_float8),
            (OpKind::Conv, Self::conv),
            (OpKind::Pool, Self::pool),
            (OpKind::PoolGrad, Self::pool_grad),
            (OpKind::Softmax, Self::softmax),
            (OpKind::LogSumExp, Self::log_sum_exp),
            (OpKind::Norm, Self::norm),
            (OpKind::Attention, Self::attention),
            (OpKind::AttentionGrad, Self::attention_grad),
            (OpKind::Resize, Self::resize),
            (OpKind::Fft, Self::fft),
            (OpKind::Quantize, Self::quantize),
            (OpKind::Dequantize, Self::dequantize),
            (OpKind::DequantizeBlocks, Self::dequantize_blocks),
            (OpKind::Collective, Self::collective),
            (OpKind::Custom, Self::custom),
            (OpKind::Fused, Self::fused),
        ];
        match generators.into_iter().find(|(of, _)| *of == kind) {
            Some((_, draw)) => draw(self),
            None if NOT_GENERATED.contains(&kind) => None,
            None => self.draw_case(kind),
        }
    }

    /// Adds an op with these operands, if it accepts them and its results are not too large. Returns the result slots.
    pub(crate) fn emit(&mut self, op: Op, operands: &[ProgramOperand]) -> Option<Vec<usize>> {
        let operand_types: Vec<OperandType<'_>> = operands
            .iter()
            .map(|operand| match operand {
                ProgramOperand::Slot(slot) => OperandType::Tensor(&self.slots[*slot]),
                ProgramOperand::Scalar(scalar) => OperandType::Scalar(*scalar),
            })
            .collect();
        let types = infer(&op, &operand_types).ok()?;
        if types.iter().any(|ty| ty.num_elements() > 4 * self.style.most_elements) {
            return None;
        }
        let first_result = self.slots.len();
        let open = matches!(op, Op::NonZero { .. })
            || operands.iter().any(|operand| match operand {
                ProgramOperand::Slot(slot) => self.is_open[*slot],
                ProgramOperand::Scalar(_) => false,
            });
        self.slots.extend(types.iter().copied());
        self.is_open.resize(self.slots.len(), open);
        let instruction =
            DrawnInstruction { op, operands: operands.to_vec(), first_result, num_results: types.len() };
        self.instructions.push(instruction);
        Some((first_result..self.slots.len()).collect())
    }

    /// Adds an op on tensors.
    pub(crate) fn emit_on(&mut self, op: Op, operands: &[usize]) -> Option<Vec<usize>> {
        let operands: Vec<ProgramOperand> = operands.iter().map(|&slot| ProgramOperand::Slot(slot)).collect();
        self.emit(op, &operands)
    }

    /// Whether the shape of a value is data-dependent, after [`Op::NonZero`].
    pub(crate) fn is_open(&self, slot: usize) -> bool {
        self.is_open[slot]
    }

    pub(crate) fn ty(&self, slot: usize) -> TensorType {
        self.slots[slot]
    }

    /// A value of the program, often a recent one, so that chains grow.
    fn existing_value(&mut self, ok: impl Fn(&TensorType) -> bool) -> Option<usize> {
        let suitable: Vec<usize> = (0..self.slots.len()).filter(|&slot| ok(&self.slots[slot])).collect();
        if suitable.is_empty() {
            return None;
        }
        let newest = if self.random.chance(50) { suitable.len().saturating_sub(2) } else { 0 };
        Some(suitable[newest + self.random.below(suitable.len() - newest)])
    }

    /// A tensor with `low..=high` axes of an accepted dtype.
    pub(crate) fn tensor(&mut self, low: usize, high: usize, ok: impl Fn(DType) -> bool) -> usize {
        let usually = if self.style.chains { 92 } else { 70 };
        if self.random.chance(usually)
            && let Some(slot) = self.existing_value(|ty| (low..=high).contains(&ty.rank()) && ok(ty.dtype))
        {
            return slot;
        }
        let dtype = self.dtype(ok);
        let rank = self.random.between(low, high.min(low + 3).max(low));
        let ty = TensorType::new(self.shape(rank), dtype);
        self.fresh(ty, Wanted::Free)
    }

    /// A tensor of a type.
    pub(crate) fn exact(&mut self, ty: TensorType, wanted: Wanted) -> usize {
        if wanted == Wanted::Free
            && self.random.chance(60)
            && let Some(slot) = self.existing_value(|present| *present == ty)
        {
            return slot;
        }
        self.fresh(ty, wanted)
    }

    /// A new input of a type, possibly through views of an input of another type.
    pub(crate) fn fresh(&mut self, ty: TensorType, wanted: Wanted) -> usize {
        let viewed = match self.random.below(8) {
            0 => self.behind_permute(ty, wanted),
            1 => self.behind_slice(ty, wanted),
            2 => self.behind_broadcast(ty, wanted),
            3 => self.behind_reshape(ty, wanted),
            _ => None,
        };
        viewed.unwrap_or_else(|| self.input(ty, wanted))
    }

    fn input(&mut self, ty: TensorType, wanted: Wanted) -> usize {
        let fill = match wanted {
            Wanted::Free => self.fill(ty.dtype),
            Wanted::Filled(fill) => fill,
        };
        let data = filled(ty, fill, &mut Numbers::new("fuzz", self.random.bits()));
        self.add_input(data, wanted == Wanted::Free)
    }

    pub(crate) fn add_input(&mut self, data: TensorData, is_free: bool) -> usize {
        let slot = self.slots.len();
        self.slots.push(data.ty());
        self.is_open.push(false);
        self.inputs.push(Input { slot, data, is_free });
        slot
    }

    /// A scalar operand for tensors of a dtype.
    pub(crate) fn scalar(&mut self, dtype: DType) -> Scalar {
        const REALS: [f64; 12] = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -2.5, 0.1, 1e-3, 10.0, 1e4];
        const SPECIAL: [f64; 6] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, 1e-310, 65520.0];
        let special = self.style.special && self.random.chance(40);
        if dtype.is_bool() {
            return Scalar::Bool(self.random.chance(50));
        }
        if dtype.is_float() {
            return match self.random.below(4) {
                0 => Scalar::Int(self.random.below(7) as i64 - 3),
                1 if special => Scalar::Float(self.random.pick(&SPECIAL)),
                _ => Scalar::Float(self.random.pick(&REALS)),
            };
        }
        let number = match self.random.below(6) {
            0 => Scalar::Float(self.random.below(5) as f64),
            1 => Scalar::UInt(self.random.below(9) as u64),
            2 if special => Scalar::Int(self.random.pick(&[i64::MIN, i64::MAX, 127, 128, -129, 1 << 31])),
            3 if special => Scalar::UInt(self.random.pick(&[u64::MAX, 1 << 63, 255, 256])),
            4 if dtype.is_signed_int() => Scalar::Int(-(self.random.below(9) as i64)),
            _ => Scalar::Int(self.random.below(9) as i64),
        };
        // Replace a scalar out of range of the dtype by one in range of every dtype.
        if number.fits(dtype) { number } else { Scalar::Int(self.random.below(9) as i64) }
    }

    /// The program, with inputs first, and the input data.
    pub(crate) fn finish(mut self) -> (Program, Vec<Input>) {
        let outputs = self.outputs();
        let is_used = |slot: usize| {
            let operands =
                self.instructions.iter().flat_map(|instruction| &instruction.operands).chain(&outputs);
            operands.into_iter().any(|&operand| operand == ProgramOperand::Slot(slot))
        };
        let (inputs, _): (Vec<Input>, Vec<Input>) =
            std::mem::take(&mut self.inputs).into_iter().partition(|input| is_used(input.slot));
        let mut numbers = vec![usize::MAX; self.slots.len()];
        let results = self.instructions.iter().flat_map(|d| d.first_result..d.first_result + d.num_results);
        for (number, slot) in inputs.iter().map(|input| input.slot).chain(results).enumerate() {
            numbers[slot] = number;
        }
        let renumbered = |operand: &ProgramOperand| match operand {
            ProgramOperand::Slot(slot) => ProgramOperand::Slot(numbers[*slot]),
            ProgramOperand::Scalar(scalar) => ProgramOperand::Scalar(*scalar),
        };
        let numbered = |instruction: &DrawnInstruction| Instruction {
            op: instruction.op.clone(),
            operands: instruction.operands.iter().map(renumbered).collect(),
            results: self.slots[instruction.first_result..instruction.first_result + instruction.num_results]
                .to_vec(),
        };
        let program = Program {
            inputs: inputs.iter().map(|input| input.data.ty()).collect(),
            instructions: self.instructions.iter().map(numbered).collect(),
            outputs: outputs.iter().map(renumbered).collect(),
        };
        (program, inputs)
    }

    /// The outputs: most unused values, and sometimes another value or a scalar.
    fn outputs(&mut self) -> Vec<ProgramOperand> {
        let used: Vec<ProgramOperand> =
            self.instructions.iter().flat_map(|instruction| instruction.operands.iter().copied()).collect();
        let results: Vec<usize> = self
            .instructions
            .iter()
            .flat_map(|instruction| {
                instruction.first_result..instruction.first_result + instruction.num_results
            })
            .collect();
        let mut outputs = Vec::new();
        for &slot in &results {
            let slot = ProgramOperand::Slot(slot);
            if !used.contains(&slot) && self.random.chance(92) || self.random.chance(6) {
                outputs.push(slot);
            }
        }
        if !self.slots.is_empty() && self.random.chance(5) {
            outputs.push(ProgramOperand::Slot(self.random.below(self.slots.len())));
        }
        if self.random.chance(1) {
            outputs.push(ProgramOperand::Scalar(self.scalar(DType::F32)));
        }
        if outputs.is_empty() {
            outputs.extend(results.last().map(|&slot| ProgramOperand::Slot(slot)));
        }
        outputs
    }
}
