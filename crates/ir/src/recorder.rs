//! An engine that runs nothing and writes down everything.

use crate::{
    BoxFuture, Caps, DTypeSet, Engine, Error, Instruction, Op, OpSet, Operand, Operands, Program,
    ProgramOperand, Result, TensorData, TensorType, Value, Values, Var,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use spin::Mutex;

/// An engine whose values are slots of a [`Program`]: executing an op appends it.
///
/// Expansions and gradient rules run on it to become programs, which can then be printed, checked and counted.
pub struct Recorder {
    caps: Caps,
    recording: Mutex<Recording>,
}

struct Recording {
    program: Program,
    num_slots: usize,
}

/// The payload of a recorder's value: its slot in the program.
struct Slot(usize);

impl Recorder {
    /// A recorder whose programs have inputs of these types.
    pub fn new(inputs: &[TensorType]) -> Recorder {
        Recorder {
            caps: Caps { name: "recorder".into(), dtypes: DTypeSet::ALL, native: OpSet::ALL },
            recording: Mutex::new(Recording {
                program: Program { inputs: inputs.to_vec(), ..Program::default() },
                num_slots: inputs.len(),
            }),
        }
    }

    /// The program of what `body` does with inputs of these types.
    pub fn trace<F>(inputs: &[TensorType], body: F) -> Program
    where
        F: for<'e> FnOnce(&[Var<'e>]) -> Vec<Var<'e>>,
    {
        let recorder = Recorder::new(inputs);
        let variables: Vec<Var<'_>> = recorder.inputs().into_iter().map(|v| Var::new(&recorder, v)).collect();
        let outputs: Vec<Operand> = body(&variables).into_iter().map(Var::into_operand).collect();
        drop(variables);
        recorder.finish(&outputs)
    }

    /// The inputs, as values.
    pub fn inputs(&self) -> Vec<Value> {
        let recording = self.recording.lock();
        recording.program.inputs.iter().enumerate().map(|(slot, ty)| Value::new(*ty, Slot(slot))).collect()
    }

    /// The program recorded so far, returning these operands.
    pub fn finish(&self, outputs: &[Operand]) -> Program {
        let mut program = self.recording.lock().program.clone();
        program.outputs = outputs.iter().map(operand).collect();
        program
    }
}

impl Engine for Recorder {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let operands = inputs.iter().map(operand).collect();
        let mut recording = self.recording.lock();
        let first = recording.num_slots;
        recording.num_slots += results.len();
        recording.program.instructions.push(Instruction {
            op: op.clone(),
            operands,
            results: results.to_vec(),
        });
        results.iter().enumerate().map(|(i, ty)| Value::new(*ty, Slot(first + i))).collect()
    }

    fn write(&self, data: TensorData) -> Value {
        let ty = data.ty();
        let error = Error::unsupported("recorder", "data cannot be written into a program");
        Value::poisoned(ty, error.hint("make it an input of the program"))
    }

    fn read(&self, _value: Value) -> BoxFuture<'_, Result<TensorData>> {
        Box::pin(async { Err(Error::unsupported("recorder", "a recorded value holds no data")) })
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

fn operand(operand: &Operand) -> ProgramOperand {
    match operand {
        Operand::Scalar(scalar) => ProgramOperand::Scalar(*scalar),
        Operand::Value(value) => match value.payload::<Slot>() {
            Some(slot) => ProgramOperand::Slot(slot.0),
            None => panic!("[recorder] {value:?} is not a value of this program"),
        },
    }
}
