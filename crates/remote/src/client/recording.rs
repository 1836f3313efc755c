//! Ops that were executed and not yet sent.

use crate::message::{Argument, SentOp, Source, Step, Template};
use kiln_ir::{FxBuildHasher, Op, Scalar, TensorType};
use std::collections::HashMap;

/// A batch is sent at this number of ops: the server then works while the program goes on.
const FULL_STEPS: usize = 256;

/// A batch is sent at this number of operands.
const FULL_OPERANDS: usize = 8192;

/// A batch is sent before the next written value, once the server keeps this number of bytes of dropped values for it.
const FULL_BYTES: u64 = 16 << 20;

/// The batch that ops are added to, and the numbering of values.
///
/// Results have even ids and written values odd ones, so that the results of a batch have consecutive ids whatever is
/// written meanwhile.
#[derive(Default)]
pub(super) struct Recording {
    template: Template,
    arguments: Vec<Argument>,
    /// The number of each input, by id.
    inputs: HashMap<u64, u32, FxBuildHasher>,
    numbers: Vec<Scalar>,
    operands: usize,
    /// The types of the results so far, and whether the program still holds each.
    types: Vec<TensorType>,
    is_live: Vec<bool>,
    /// The id of result number 0.
    first: u64,
    written: u64,
    /// Values of earlier batches that were dropped.
    dropped: Vec<u64>,
    /// The bytes of values that were dropped, and that the server keeps for this batch.
    kept_bytes: u64,
    /// Counts changes, so that a pause is noticed.
    pub(super) changes: u64,
}

/// A batch to be sent.
pub(super) struct Batch {
    pub(super) template: Template,
    pub(super) arguments: Vec<Argument>,
    pub(super) numbers: Vec<Scalar>,
    pub(super) first: u64,
    pub(super) types: Vec<TensorType>,
}

impl Recording {
    /// An id for a value that is written.
    pub(super) fn next_written(&mut self) -> u64 {
        self.written += 1;
        2 * self.written - 1
    }

    /// The operand that stands for a value.
    pub(super) fn source(&mut self, id: u64, ty: &TensorType) -> Source {
        if self.is_pending(id) {
            return Source::Result(((id - self.first) / 2) as u32);
        }
        let (arguments, template) = (&mut self.arguments, &mut self.template);
        Source::Input(*self.inputs.entry(id).or_insert_with(|| {
            arguments.push(Argument { id, is_last: false });
            template.inputs.push(*ty);
            (arguments.len() - 1) as u32
        }))
    }

    /// The operand that stands for a number.
    pub(super) fn number(&mut self, number: Scalar) -> Source {
        self.numbers.push(number);
        Source::Number
    }

    /// How many numbers there are.
    pub(super) fn count_numbers(&self) -> usize {
        self.numbers.len()
    }

    /// Drops the numbers of an op that is not added after all.
    pub(super) fn forget_numbers(&mut self, count: usize) {
        self.numbers.truncate(count);
    }

    /// Adds an op. Returns the id of its first result; the others follow in steps of 2.
    pub(super) fn push(&mut self, op: &Op, operands: Vec<Source>, results: &[TensorType]) -> u64 {
        let id = self.first + 2 * self.types.len() as u64;
        self.operands += operands.len();
        self.template.steps.push(Step { op: SentOp(op.clone()), operands });
        self.types.extend(results);
        self.is_live.resize(self.types.len(), true);
        self.changes += 1;
        id
    }

    /// Notes that the program dropped a value.
    pub(super) fn drop_value(&mut self, id: u64) {
        self.changes += 1;
        if self.is_pending(id) {
            self.is_live[((id - self.first) / 2) as usize] = false;
        } else if let Some(input) = self.inputs.get(&id) {
            self.arguments[*input as usize].is_last = true;
            let bytes = self.template.inputs[*input as usize].num_bytes() as u64;
            self.kept_bytes = self.kept_bytes.saturating_add(bytes);
        } else {
            self.dropped.push(id);
        }
    }

    /// Whether the batch is to be sent.
    pub(super) fn is_full(&self) -> bool {
        self.template.steps.len() >= FULL_STEPS || self.operands >= FULL_OPERANDS
    }

    /// Whether the batch is to be sent before another value is written, since the server keeps much memory for it.
    pub(super) fn keeps_much(&self) -> bool {
        self.kept_bytes >= FULL_BYTES
    }

    /// Whether there is nothing to send.
    pub(super) fn is_empty(&self) -> bool {
        self.template.steps.is_empty() && self.dropped.is_empty()
    }

    /// The batch, if the program holds a result of it. Dead batches are never sent.
    pub(super) fn take_batch(&mut self) -> Option<Batch> {
        let types = std::mem::take(&mut self.types);
        let is_live = std::mem::take(&mut self.is_live);
        let mut template = std::mem::take(&mut self.template);
        let (arguments, numbers) = (std::mem::take(&mut self.arguments), std::mem::take(&mut self.numbers));
        let first = self.first;
        self.first += 2 * types.len() as u64;
        self.operands = 0;
        self.kept_bytes = 0;
        self.inputs.clear();
        let live = is_live.iter().enumerate().filter(|(_, is_live)| **is_live);
        template.outputs = live.map(|(result, _)| result as u32).collect();
        if template.outputs.is_empty() {
            self.dropped
                .extend(arguments.iter().filter(|argument| argument.is_last).map(|argument| argument.id));
            return None;
        }
        Some(Batch { template, arguments, numbers, first, types })
    }

    /// The values of earlier batches that were dropped since the last call.
    pub(super) fn take_dropped(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.dropped)
    }

    fn is_pending(&self, id: u64) -> bool {
        id.is_multiple_of(2) && id >= self.first
    }
}

/// The programs that the server knows, by structure. The oldest is replaced.
#[derive(Default)]
pub(super) struct Programs {
    numbers: HashMap<Template, u32, FxBuildHasher>,
    templates: Vec<Template>,
    next: usize,
}

impl Programs {
    /// The number of a template, and whether the server must be told of it. The server keeps `most`.
    pub(super) fn number(&mut self, template: &Template, most: usize) -> (u32, bool) {
        if let Some(number) = self.numbers.get(template) {
            return (*number, false);
        }
        let number = self.next;
        self.next = (self.next + 1) % most.max(1);
        match self.templates.get_mut(number) {
            Some(old) => {
                let old = std::mem::replace(old, template.clone());
                self.numbers.remove(&old);
            }
            None => self.templates.push(template.clone()),
        }
        self.numbers.insert(template.clone(), number as u32);
        (number as u32, true)
    }

    /// Forgets a template that could not be sent.
    pub(super) fn forget(&mut self, template: &Template) {
        self.numbers.remove(template);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::{DType, Unary};

    const TY: fn() -> TensorType = || TensorType::new([2], DType::F32);

    fn exp(recording: &mut Recording, id: u64) -> u64 {
        let source = recording.source(id, &TY());
        recording.push(&Op::Unary(Unary::Exp), vec![source], &[TY()])
    }

    #[test]
    fn outputs_are_the_live_results() {
        let mut recording = Recording::default();
        let x = recording.next_written();
        let y = exp(&mut recording, x);
        let z = exp(&mut recording, y);
        recording.drop_value(y);
        recording.drop_value(x);
        let batch = recording.take_batch().unwrap();
        assert_eq!((batch.template.outputs, batch.first), (vec![1], 0));
        assert_eq!(batch.arguments, [Argument { id: x, is_last: true }]);
        recording.drop_value(z);
        assert_eq!(recording.take_dropped(), [z]);
    }

    #[test]
    fn a_batch_without_results_is_not_sent() {
        let mut recording = Recording::default();
        let x = recording.next_written();
        let y = exp(&mut recording, x);
        recording.drop_value(x);
        recording.drop_value(y);
        assert!(recording.take_batch().is_none());
        assert_eq!(recording.take_dropped(), [x]);
        assert!(recording.is_empty());
    }

    #[test]
    fn large_values_that_were_dropped_end_a_batch() {
        let mut recording = Recording::default();
        let half = TensorType::new([FULL_BYTES as usize / 8], DType::F32);
        for expected in [false, true] {
            let x = recording.next_written();
            let source = recording.source(x, &half);
            recording.push(&Op::Unary(Unary::Exp), vec![source], &[half]);
            assert!(!recording.keeps_much(), "the program holds the value");
            recording.drop_value(x);
            assert_eq!(recording.keeps_much(), expected);
        }
        recording.take_batch().unwrap();
        assert!(!recording.keeps_much());
    }

    #[test]
    fn equal_batches_are_one_program() {
        let mut recording = Recording::default();
        let mut programs = Programs::default();
        let mut number = |recording: &mut Recording, x: u64| {
            let y = exp(recording, x);
            let found = programs.number(&recording.take_batch().unwrap().template, 2);
            recording.drop_value(y);
            found
        };
        assert_eq!(number(&mut recording, 1), (0, true));
        assert_eq!(number(&mut recording, 3), (0, false));
    }

    #[test]
    fn the_oldest_program_is_replaced() {
        let mut programs = Programs::default();
        let template = |length: usize| Template {
            inputs: vec![TensorType::new([length], DType::F32)],
            ..Template::default()
        };
        let found: Vec<_> = [1, 2, 3, 2, 1].map(|length| programs.number(&template(length), 2)).to_vec();
        assert_eq!(found, [(0, true), (1, true), (0, true), (1, false), (1, true)]);
    }
}
