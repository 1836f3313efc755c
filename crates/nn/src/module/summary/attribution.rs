//! The layer of each op of a recorded forward pass.

use super::{FunctionSummary, LayerSummary, Summary};
use crate::module::table::LayerTable;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use kiln_ir::{Binary, Instruction, Op, OperandType, Program, ProgramOperand, TensorType, Traffic, cost};

/// The ops of a program by layer, in order of execution.
pub(super) struct Attribution<'p> {
    program: &'p Program,
    calls: Vec<Call>,
    /// The layer and the arithmetic operations of ops that depend only on its parameters, such as transposing a weight.
    constants: Vec<(usize, u64)>,
}

/// Consecutive ops of one layer, and the ops without parameters after them.
#[derive(Default)]
struct Call {
    /// `None` before the first layer.
    row: Option<usize>,
    /// Instructions from the first to the last that reads a parameter of the layer.
    own: Vec<usize>,
    then: Vec<usize>,
    /// Whether the first instruction is a reshape: such a layer reshapes its result too.
    is_reshaped: bool,
}

/// Attributes each instruction to a row. `owners` has the rows of the program's first inputs.
pub(super) fn attribute<'p>(program: &'p Program, owners: &[usize]) -> Attribution<'p> {
    let mut attribution = Attribution { program, calls: vec![Call::default()], constants: Vec::new() };
    // The row of each slot that depends only on the parameters of that row.
    let mut rows: Vec<Option<usize>> = owners.iter().copied().map(Some).collect();
    rows.resize(program.inputs.len(), None);
    let types = program.slot_types();
    for (place, instruction) in program.instructions.iter().enumerate() {
        let operands: Vec<Option<usize>> = instruction.slots().map(|slot| rows[slot]).collect();
        let row = operands.iter().copied().flatten().next();
        let constant = row.filter(|_| operands.iter().all(Option::is_some));
        rows.resize(rows.len() + instruction.results.len(), constant);
        match (constant, row) {
            (Some(row), _) => attribution.constants.push((row, flops(instruction, &types))),
            (None, Some(row)) => attribution.read_parameter(row, place),
            (None, None) => attribution.read_none(place),
        }
    }
    attribution
}

fn flops(instruction: &Instruction, types: &[TensorType]) -> u64 {
    let operand = |operand: &ProgramOperand| match operand {
        ProgramOperand::Slot(slot) => types.get(*slot).map(OperandType::Tensor),
        ProgramOperand::Scalar(scalar) => Some(OperandType::Scalar(*scalar)),
    };
    let operands: Vec<_> = instruction.operands.iter().filter_map(operand).collect();
    cost(&instruction.op, &operands, &instruction.results).flops
}

impl Attribution<'_> {
    fn last(&mut self) -> &mut Call {
        if self.calls.is_empty() {
            self.calls.push(Call::default());
        }
        let last = self.calls.len() - 1;
        &mut self.calls[last]
    }

    fn read_parameter(&mut self, row: usize, place: usize) {
        let leading = self.leading_op(place);
        let call = self.last();
        if call.row == Some(row) {
            let then = core::mem::take(&mut call.then);
            call.own.extend(then);
            call.own.push(place);
            return;
        }
        if leading.is_some() {
            call.then.pop();
        }
        let own = leading.into_iter().chain([place]).collect();
        let is_reshaped = leading.is_some_and(|leading| self.is_reshape(leading));
        self.calls.push(Call { row: Some(row), own, then: Vec::new(), is_reshaped });
    }

    fn is_reshape(&self, place: usize) -> bool {
        matches!(self.program.instructions[place].op, Op::Reshape(_))
    }

    /// The op before the instruction, if a layer applies it to its input: a linear layer merges the leading dimensions,
    /// an embedding checks its indices.
    fn leading_op(&mut self, place: usize) -> Option<usize> {
        let last = *self.last().then.last()?;
        let is_leading =
            self.is_reshape(last) || matches!(self.program.instructions[last].op, Op::CheckIndex { .. });
        let result = self.first_result(last);
        (is_leading && self.program.instructions[place].slots().any(|slot| slot == result)).then_some(last)
    }

    fn first_result(&self, place: usize) -> usize {
        let before = &self.program.instructions[..place];
        self.program.inputs.len() + before.iter().map(|instruction| instruction.results.len()).sum::<usize>()
    }

    fn read_none(&mut self, place: usize) {
        let is_reshape = self.is_reshape(place);
        let call = self.last();
        if call.is_reshaped && is_reshape && call.then.is_empty() {
            call.own.push(place);
            call.is_reshaped = false;
        } else {
            call.then.push(place);
        }
    }

    pub(super) fn into_summary(self, table: LayerTable, outputs: Vec<TensorType>, flops: u64) -> Summary {
        let mut rows: Vec<LayerSummary> = table.summary_rows();
        let types = self.program.slot_types();
        let count = |places: &[usize]| -> u64 {
            places.iter().map(|&place| self::flops(&self.program.instructions[place], &types)).sum()
        };
        let mut before = None;
        for (row, flops) in &self.constants {
            add_flops(&mut rows, *row, *flops, true);
        }
        for call in &self.calls {
            let then = self.functions(&call.then, count(&call.then));
            let Some(row) = call.row else {
                before = then;
                continue;
            };
            rows[row].calls += 1;
            rows[row].output = self.result(&call.own);
            add_flops(&mut rows, row, count(&call.own), true);
            let last = then.as_ref().map(|then| then.output).or(rows[row].output);
            for around in enclosing(&rows, row) {
                rows[around].output = last;
            }
            if let Some(then) = then {
                add_flops(&mut rows, row, then.flops, false);
                rows[row].then = Some(joined(rows[row].then.take(), then));
            }
        }
        let totals = table.totals();
        rows.retain(|row| row.depth == 0 || row.parameters > 0 || row.output.is_some());
        Summary { rows, before, outputs, totals, flops }
    }

    fn result(&self, places: &[usize]) -> Option<TensorType> {
        let place = places.last()?;
        self.program.instructions[*place].results.first().copied()
    }

    fn functions(&self, places: &[usize], flops: u64) -> Option<FunctionSummary> {
        let computed = |place: &usize| self.program.instructions[*place].slots().next().is_some();
        let places: Vec<usize> = places.iter().copied().filter(computed).collect();
        let output = self.result(&places)?;
        let mut ops: Vec<String> = Vec::new();
        for &place in &places {
            let instruction = &self.program.instructions[place];
            let is_view = matches!(instruction.op.info().traffic, Traffic::Free);
            if !is_view && !ops.iter().any(|present| present == name(instruction)) {
                ops.push(name(instruction).to_string());
            }
        }
        if ops.is_empty() {
            ops.push(name(&self.program.instructions[*places.last()?]).to_string());
        }
        Some(FunctionSummary { ops, output, flops })
    }
}

/// The name of an op. ReLU is recorded as the maximum with 0.
fn name(instruction: &Instruction) -> &str {
    let with_zero = instruction
        .operands
        .iter()
        .any(|operand| matches!(operand, ProgramOperand::Scalar(scalar) if scalar.to_f64() == 0.0));
    let is_relu = with_zero && instruction.op == Op::Binary(Binary::Max);
    if is_relu { "relu" } else { instruction.op.name() }
}

/// The functions after two calls of one layer.
fn joined(first: Option<FunctionSummary>, second: FunctionSummary) -> FunctionSummary {
    match first {
        None => second,
        Some(first) => FunctionSummary { flops: first.flops.saturating_add(second.flops), ..second },
    }
}

/// Adds operations to the rows around a row, and to the row itself.
fn add_flops(rows: &mut [LayerSummary], row: usize, flops: u64, itself: bool) {
    for row in enclosing(rows, row).into_iter().chain(itself.then_some(row)) {
        rows[row].flops = rows[row].flops.saturating_add(flops);
    }
}

/// The rows of the modules around a row, from the inside out.
fn enclosing(rows: &[LayerSummary], row: usize) -> Vec<usize> {
    let mut depth = rows[row].depth;
    let mut around = Vec::new();
    for other in (0..row).rev() {
        if rows[other].depth < depth {
            depth = rows[other].depth;
            around.push(other);
        }
    }
    around
}
