//! A tracing engine: records ops as a program and runs nothing.

use crate::{
    BoxFuture, Caps, DTypeSet, Engine, Error, Instruction, Machine, Op, OpSet, Operand, Operands, Program,
    ProgramOperand, Result, TensorData, TensorType, Value, Values, Var,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use spin::Mutex;

/// An engine whose values are slots of a [`Program`]: executing an op appends it.
///
/// Expansions and gradient rules run on it to become programs, which can then be printed, checked and counted. Data
/// cannot be written into a program, unless the recorder [keeps constants](Recorder::with_constants): each constant is
/// then an additional input.
pub struct Recorder {
    caps: Caps,
    keeps_constants: bool,
    recording: Mutex<Recording>,
}

/// The program recorded so far. Inputs may still be added, so results are numbered from [`FIRST_RESULT`] until the end.
struct Recording {
    program: Program,
    constants: Vec<TensorData>,
    num_results: usize,
}

/// The payload of a recorder's value: its slot in the program.
struct Slot(usize);

/// The first slot number of results.
const FIRST_RESULT: usize = usize::MAX / 2;

impl Recorder {
    /// Creates a recorder for programs with inputs of these types.
    pub fn new(inputs: &[TensorType]) -> Recorder {
        Recorder {
            caps: Caps {
                name: "recorder".into(),
                dtypes: DTypeSet::ALL,
                native: OpSet::ALL,
                machine: Machine::processor(),
            },
            keeps_constants: false,
            recording: Mutex::new(Recording {
                program: Program { inputs: inputs.to_vec(), ..Program::default() },
                constants: Vec::new(),
                num_results: 0,
            }),
        }
    }

    /// Creates a recorder to which data can be written. The program has an additional input for each constant, after
    /// the others and in the order of [`constants`](Recorder::constants).
    pub fn with_constants(inputs: &[TensorType]) -> Recorder {
        Recorder { keeps_constants: true, ..Recorder::new(inputs) }
    }

    /// Returns the data written so far.
    pub fn constants(&self) -> Vec<TensorData> {
        self.recording.lock().constants.clone()
    }

    /// Traces `body` with inputs of these types into a program.
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

    /// Returns the inputs, as values.
    pub fn inputs(&self) -> Vec<Value> {
        let recording = self.recording.lock();
        let num_constants = recording.constants.len();
        let inputs = &recording.program.inputs[..recording.program.inputs.len() - num_constants];
        inputs.iter().enumerate().map(|(slot, ty)| Value::new(*ty, Slot(slot))).collect()
    }

    /// Returns the program recorded so far, returning these operands.
    pub fn finish(&self, outputs: &[Operand]) -> Program {
        let mut program = self.recording.lock().program.clone();
        program.outputs = outputs.iter().map(operand).collect();
        let num_inputs = program.inputs.len();
        let operands = program.instructions.iter_mut().flat_map(|instruction| &mut instruction.operands);
        for operand in operands.chain(&mut program.outputs) {
            if let ProgramOperand::Slot(slot) = operand
                && *slot >= FIRST_RESULT
            {
                *slot = *slot - FIRST_RESULT + num_inputs;
            }
        }
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
        let first = FIRST_RESULT + recording.num_results;
        recording.num_results += results.len();
        recording.program.instructions.push(Instruction {
            op: op.clone(),
            operands,
            results: results.to_vec(),
        });
        results.iter().enumerate().map(|(i, ty)| Value::new(*ty, Slot(first + i))).collect()
    }

    fn write(&self, data: TensorData) -> Value {
        let ty = data.ty();
        if self.keeps_constants {
            let mut recording = self.recording.lock();
            let slot = recording.program.inputs.len();
            recording.program.inputs.push(ty);
            recording.constants.push(data);
            return Value::new(ty, Slot(slot));
        }
        let error = Error::unsupported("recorder", "data cannot be written into a program");
        Value::poisoned(ty, error.hint("pass it as an input of the program"))
    }

    fn read(&self, _value: Value) -> BoxFuture<'_, Result<TensorData>> {
        Box::pin(async { Err(Error::unsupported("recorder", "a recorded value has no data")) })
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
