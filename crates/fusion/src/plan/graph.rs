//! The dataflow graph of a recording: producers, users, and dead values.

use super::Structure;
use crate::record::{Entry, Source};
use alloc::vec::Vec;
use kiln_ir::{Op, OpClass, Program, ProgramOperand, Role, TensorType};
use smallvec::SmallVec;

/// The index of a value: externals first, then the results of all entries.
pub(crate) type ValueNumber = u32;

pub(crate) struct Graph<'a> {
    pub(crate) structure: &'a Structure,
    /// The entry that produces each value, with the result index; `None` for externals.
    pub(crate) producers: Vec<Option<(u32, u32)>>,
    pub(crate) types: Vec<TensorType>,
    /// The first result of each entry.
    pub(crate) first: Vec<ValueNumber>,
    /// For each entry, whether it must run.
    pub(crate) needed: Vec<bool>,
    /// The base of each value: for a view the value at the start of its chain of views; for any other value itself.
    pub(crate) roots: Vec<ValueNumber>,
    /// The entries that use each value, directly or through views. Views count only if they are live.
    pub(crate) users: Vec<Vec<u32>>,
}

impl<'a> Graph<'a> {
    pub(crate) fn new(structure: &'a Structure) -> Graph<'a> {
        let externals = structure.externals.len();
        let mut producers = alloc::vec![None; externals];
        let mut types = structure.externals.clone();
        let mut first = Vec::with_capacity(structure.entries.len());
        for (number, entry) in structure.entries.iter().enumerate() {
            first.push(types.len() as ValueNumber);
            for (place, ty) in entry.results.iter().enumerate() {
                producers.push(Some((number as u32, place as u32)));
                types.push(*ty);
            }
        }
        let mut graph = Graph {
            structure,
            producers,
            types,
            first,
            needed: Vec::new(),
            roots: Vec::new(),
            users: Vec::new(),
        };
        graph.needed = graph.find_needed();
        graph.roots = graph.find_roots();
        graph.users = graph.find_users();
        graph
    }

    pub(crate) fn entry(&self, entry: u32) -> &Entry {
        &self.structure.entries[entry as usize]
    }

    /// The value of an operand; `None` for plain numbers.
    pub(crate) fn value(&self, source: Source) -> Option<ValueNumber> {
        match source {
            Source::External(place) => Some(place),
            Source::Result(result) => Some(self.structure.externals.len() as u32 + result),
            Source::Number(_) | Source::Constant(_) => None,
        }
    }

    /// The values among an entry's operands; plain numbers are left out.
    pub(crate) fn operands(&self, entry: u32) -> SmallVec<[ValueNumber; 4]> {
        self.entry(entry).operands.iter().filter_map(|&source| self.value(source)).collect()
    }

    /// The entry and op that produce a value.
    pub(crate) fn producer(&self, value: ValueNumber) -> Option<(u32, &Op)> {
        let (entry, _) = self.producers[value as usize]?;
        Some((entry, &self.entry(entry).op))
    }

    /// Whether a region of these entries computes a value without loading it. It computes the value or the base of its
    /// view, or the base is a constant, which every kernel recomputes.
    pub(crate) fn is_made_by(&self, value: ValueNumber, has: impl Fn(u32) -> bool) -> bool {
        let maker = self.producer(self.roots[value as usize]);
        maker.is_some_and(|(entry, op)| op.info().role == Role::Constant || has(entry))
    }

    pub(crate) fn is_alive(&self, value: ValueNumber) -> bool {
        let result = (value as usize).checked_sub(self.structure.externals.len());
        result.is_some_and(|result| self.structure.alive[result])
    }

    /// Finds the entries that must run: those with a result that is live or used by a needed entry, and those with side
    /// effects.
    fn find_needed(&self) -> Vec<bool> {
        let entries = &self.structure.entries;
        let mut used: Vec<bool> = (0..self.types.len()).map(|value| self.is_alive(value as u32)).collect();
        let mut needed = alloc::vec![false; entries.len()];
        for number in (0..entries.len()).rev() {
            let first = self.first[number] as usize;
            let results = first..first + entries[number].results.len();
            needed[number] =
                used[results].contains(&true) || entries[number].op.info().class == OpClass::Collective;
            if needed[number] {
                for value in self.operands(number as u32) {
                    used[value as usize] = true;
                }
            }
        }
        needed
    }

    fn find_users(&self) -> Vec<Vec<u32>> {
        let mut users = alloc::vec![Vec::new(); self.types.len()];
        for entry in 0..self.structure.entries.len() as u32 {
            if self.needed[entry as usize] && self.entry(entry).op.info().role != Role::View {
                for value in self.operands(entry) {
                    users[self.roots[value as usize] as usize].push(entry);
                }
            }
        }
        for value in 0..self.types.len() {
            // A live value may have any use outside of the plan.
            if self.is_alive(value as u32)
                && let Some((entry, _)) = self.producers[value]
                && self.roots[value] as usize != value
            {
                users[self.roots[value] as usize].push(entry);
            }
        }
        users
    }

    fn find_roots(&self) -> Vec<ValueNumber> {
        let mut roots: Vec<ValueNumber> = (0..self.types.len() as u32).collect();
        for value in 0..self.types.len() {
            if let Some((entry, op)) = self.producer(value as u32)
                && op.is_view()
                && let Some(&operand) = self.operands(entry).first()
            {
                roots[value] = roots[operand as usize];
            }
        }
        roots
    }
}

/// Whether the plain numbers among an op's operands are part of the structure. The padding value of a tensor hardly
/// ever changes, and kernels read it out of bounds.
pub(crate) fn is_constant_of(op: &Op) -> bool {
    matches!(op, Op::Pad(_))
}

impl Structure {
    /// Converts a program to a recording.
    pub(crate) fn of_program(program: &Program) -> Structure {
        let mut numbers = 0;
        let mut source = |op: &Op, operand: &ProgramOperand| match *operand {
            ProgramOperand::Scalar(scalar) if is_constant_of(op) => Source::Constant(scalar),
            ProgramOperand::Scalar(_) => {
                numbers += 1;
                Source::Number(numbers - 1)
            }
            ProgramOperand::Slot(slot) => match slot.checked_sub(program.inputs.len()) {
                None => Source::External(slot as u32),
                Some(result) => Source::Result(result as u32),
            },
        };
        let entries = program.instructions.iter().map(|instruction| Entry {
            op: instruction.op.clone(),
            operands: instruction.operands.iter().map(|operand| source(&instruction.op, operand)).collect(),
            results: instruction.results.iter().copied().collect(),
        });
        let entries: Vec<Entry> = entries.collect();
        let mut alive = alloc::vec![false; program.num_slots() - program.inputs.len()];
        for output in &program.outputs {
            if let ProgramOperand::Slot(slot) = output
                && let Some(result) = slot.checked_sub(program.inputs.len())
            {
                alive[result] = true;
            }
        }
        Structure { entries, externals: program.inputs.clone(), alive }
    }
}
