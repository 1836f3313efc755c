//! Programs: lists of ops as data.

use crate::{
    Engine, Op, OpSet, Operand, OperandType, Operands, Scalar, TensorType, Value, Values, infer, poison_of,
    poisoned,
};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A straight-line program of ops in static single assignment form.
///
/// Slots are numbered: first the inputs, then the results of the instructions in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Program {
    /// The types of the inputs: slots `0..inputs.len()`.
    pub inputs: Vec<TensorType>,
    /// The instructions, in order.
    pub instructions: Vec<Instruction>,
    /// The outputs of the program.
    pub outputs: Vec<ProgramOperand>,
}

/// One op of a [`Program`]. Its results are the next free slots.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Instruction {
    /// The op.
    pub op: Op,
    /// Its operands.
    pub operands: Vec<ProgramOperand>,
    /// The types of its results.
    pub results: Vec<TensorType>,
}

/// An operand within a [`Program`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ProgramOperand {
    /// The value in that slot.
    Slot(usize),
    /// A plain number.
    Scalar(Scalar),
}

impl ProgramOperand {
    /// Returns the slot; `None` for a plain number.
    pub fn slot(&self) -> Option<usize> {
        match self {
            ProgramOperand::Slot(slot) => Some(*slot),
            ProgramOperand::Scalar(_) => None,
        }
    }
}

impl Instruction {
    /// Returns the slots of the operands, without plain numbers.
    pub fn slots(&self) -> impl Iterator<Item = usize> + '_ {
        self.operands.iter().filter_map(ProgramOperand::slot)
    }

    fn run_as_inferred(&self, engine: &dyn Engine, operands: Operands) -> Values {
        let inferred = infer(&self.op, &OperandType::list(&operands));
        match inferred {
            Ok(types) => engine.execute(&self.op, operands, &types),
            Err(error) => poisoned(&self.results, &poison_of(&operands).unwrap_or(error)),
        }
    }
}

impl Program {
    /// Returns the number of slots: inputs and results.
    pub fn num_slots(&self) -> usize {
        self.inputs.len() + self.instructions.iter().map(|i| i.results.len()).sum::<usize>()
    }

    /// Returns the type of every slot, in order.
    pub fn slot_types(&self) -> Vec<TensorType> {
        let results = self.instructions.iter().flat_map(|i| i.results.iter().copied());
        self.inputs.iter().copied().chain(results).collect()
    }

    /// The type of every output. A plain number is a tensor without axes.
    ///
    /// # Errors
    /// The first output slot that does not exist.
    pub(crate) fn output_types(&self) -> Result<Vec<TensorType>, usize> {
        let types = self.slot_types();
        let output = |output: &ProgramOperand| match output {
            ProgramOperand::Slot(slot) => types.get(*slot).copied().ok_or(*slot),
            ProgramOperand::Scalar(scalar) => Ok(TensorType::new([], scalar.default_dtype())),
        };
        self.outputs.iter().map(output).collect()
    }

    /// Returns the kinds of its ops, and of the ops in its fused regions and loops.
    pub fn kinds(&self) -> OpSet {
        let of = |instruction: &Instruction| instruction.op.kinds_inside().with(instruction.op.kind());
        self.instructions.iter().map(of).fold(OpSet::default(), OpSet::union)
    }

    /// Runs the program on an engine. Each value is passed on by value at its last use, so that the engine can
    /// overwrite it. The program must be valid ([`verify`](mod@crate::verify)) and the inputs of its input types.
    ///
    /// If a result has another shape than recorded (after [`Op::NonZero`], or because of an input of another type), the
    /// ops after it are inferred again. An op that no longer accepts its operands returns poisoned results.
    ///
    /// # Panics
    /// When the number of inputs differs from the program's.
    pub fn run(&self, engine: &dyn Engine, inputs: Values) -> Values {
        assert_eq!(inputs.len(), self.inputs.len(), "[program] wrong number of inputs");
        let mut uses = self.count_uses();
        let mut as_recorded = inputs.iter().map(Value::ty).eq(&self.inputs);
        let mut slots: Vec<Option<Value>> = inputs.into_iter().map(Some).collect();
        for instruction in &self.instructions {
            let operands: Operands =
                instruction.operands.iter().map(|operand| take(&mut slots, &mut uses, operand)).collect();
            let results = match as_recorded {
                true => engine.execute(&instruction.op, operands, &instruction.results),
                false => instruction.run_as_inferred(engine, operands),
            };
            as_recorded &= results.iter().map(Value::ty).eq(&instruction.results);
            let first = slots.len();
            slots.extend(results.into_iter().map(Some));
            for slot in first..slots.len() {
                if uses[slot] == 0 {
                    slots[slot] = None;
                }
            }
        }
        self.outputs.iter().map(|output| self.output(engine, &mut slots, &mut uses, output)).collect()
    }

    /// Runs the program as the region of a [`FusedOp`](crate::FusedOp), given the operands of the op. A plain number
    /// may be passed for a rank-0 input.
    ///
    /// # Panics
    /// When the number of operands differs from the number of the program's inputs.
    pub fn run_region(&self, engine: &dyn Engine, operands: Operands) -> Values {
        let types = operands.into_iter().zip(&self.inputs);
        let inputs = types.map(|(operand, ty)| match operand {
            Operand::Value(value) => value,
            Operand::Scalar(scalar) => full(engine, *ty, scalar),
        });
        self.run(engine, inputs.collect())
    }

    fn output(
        &self,
        engine: &dyn Engine,
        slots: &mut [Option<Value>],
        uses: &mut [usize],
        output: &ProgramOperand,
    ) -> Value {
        match take(slots, uses, output) {
            Operand::Value(value) => value,
            Operand::Scalar(scalar) => full(engine, TensorType::new([], scalar.default_dtype()), scalar),
        }
    }

    fn count_uses(&self) -> Vec<usize> {
        let mut uses = alloc::vec![0; self.num_slots()];
        let operands = self.instructions.iter().flat_map(|i| &i.operands).chain(&self.outputs);
        for operand in operands {
            if let ProgramOperand::Slot(slot) = operand {
                uses[*slot] += 1;
            }
        }
        uses
    }
}

fn full(engine: &dyn Engine, ty: TensorType, scalar: Scalar) -> Value {
    engine.execute(&Op::Full(ty), [scalar.into()].into_iter().collect(), &[ty]).remove(0)
}

fn take(slots: &mut [Option<Value>], uses: &mut [usize], operand: &ProgramOperand) -> Operand {
    match *operand {
        ProgramOperand::Scalar(scalar) => scalar.into(),
        ProgramOperand::Slot(slot) => {
            uses[slot] -= 1;
            let value = if uses[slot] == 0 { slots[slot].take() } else { slots[slot].clone() };
            value.expect("a value is used after its last use").into()
        }
    }
}
