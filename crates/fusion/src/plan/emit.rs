//! Emission of plan steps from fusion groups: execution order, region programs, last uses.

use super::external_uses::ExternalUses;
use super::graph::{Graph, ValueNumber};
use super::group::{Group, Groups, Kind, number_dtype};
use super::{Reference, Step};
use crate::record::Source;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use kiln_ir::{DType, FusedOp, Instruction, Op, Program, ProgramOperand, Scalar, Shape, TensorType};
use smallvec::{SmallVec, smallvec};

pub(crate) struct Emitted {
    pub(crate) steps: Vec<Step>,
    /// For each step, the number of its last entry or a later one; it never decreases from step to step.
    pub(crate) last_entries: Vec<u32>,
    /// For each step, the entry that it is, or the last entry of a region.
    pub(crate) step_entries: Vec<u32>,
    pub(crate) num_slots: usize,
    /// `(result, slot)`.
    pub(crate) outputs: Vec<(usize, usize)>,
}

/// Emits the steps that compute all live values.
pub(crate) fn emit(graph: &Graph<'_>, groups: Groups) -> Emitted {
    let external_uses = ExternalUses::new(graph, &groups.groups);
    let order = ordered(&groups.groups);
    let externals = graph.structure.externals.len();
    let mut slots = alloc::vec![None; graph.types.len()];
    for (place, slot) in slots.iter_mut().enumerate().take(externals) {
        *slot = Some(place);
    }
    let (steps, last_entries, step_entries) = (Vec::new(), Vec::new(), Vec::new());
    let mut emitter = Emitter { graph, steps, last_entries, step_entries, slots, next: externals };
    let mut groups: Vec<Option<Group>> = groups.groups.into_iter().map(Some).collect();
    for number in order {
        let Some(group) = groups[number].take() else { continue };
        match (group.kind, group.members.as_slice()) {
            (Kind::Gone, _) => {}
            (_, &[entry]) => emitter.alone(entry, group.notes),
            (Kind::Kernel | Kind::Anchor(_) | Kind::Alone, _) => emitter.region(group, &external_uses),
        }
    }
    emitter.finish()
}

/// The program of a region of these entries with these outputs, and the value of each input; `None` for plain numbers.
pub(super) fn program_of(
    graph: &Graph<'_>,
    members: &[u32],
    outputs: &[ValueNumber],
) -> (Program, Vec<Option<ValueNumber>>) {
    let mut region = Region::new(graph, members);
    members.iter().for_each(|&entry| region.add(entry));
    let value = |input: &Input| match *input {
        Input::Value(value) => Some(value),
        Input::Number(..) => None,
    };
    (region.finish(outputs), region.inputs.iter().map(value).collect())
}

/// The groups in topological order; of the ready groups, the one whose last op was recorded first comes first.
fn ordered(groups: &[Group]) -> Vec<usize> {
    let mut waits: Vec<usize> = groups.iter().map(|group| group.before().len()).collect();
    let mut after: Vec<Vec<usize>> = alloc::vec![Vec::new(); groups.len()];
    for (number, group) in groups.iter().enumerate() {
        for &before in group.before() {
            after[before].push(number);
        }
    }
    let last = |group: usize| groups[group].last_of_rows();
    let mut ready: BTreeSet<(u32, usize)> =
        (0..groups.len()).filter(|&group| waits[group] == 0).map(|group| (last(group), group)).collect();
    let mut order = Vec::with_capacity(groups.len());
    while let Some((_, group)) = ready.pop_first() {
        order.push(group);
        for &later in &after[group] {
            waits[later] -= 1;
            if waits[later] == 0 {
                ready.insert((last(later), later));
            }
        }
    }
    order
}

struct Emitter<'a> {
    graph: &'a Graph<'a>,
    steps: Vec<Step>,
    last_entries: Vec<u32>,
    step_entries: Vec<u32>,
    /// The slot of each computed value.
    slots: Vec<Option<usize>>,
    next: usize,
}

impl Emitter<'_> {
    /// Emits a single op as a step.
    fn alone(&mut self, entry: u32, notes: Vec<alloc::string::String>) {
        let graph = self.graph;
        let recorded = graph.entry(entry);
        let mut operands: SmallVec<[Reference; 4]> = SmallVec::new();
        for &source in &recorded.operands {
            operands.push(match source {
                Source::Number(number) => Reference::Number(number),
                Source::Constant(scalar) => Reference::Constant(scalar),
                Source::External(_) | Source::Result(_) => {
                    let value = graph.value(source).expect("no number");
                    Reference::Slot { slot: self.materialised(value), last: false }
                }
            });
        }
        let first = self.next;
        self.next += recorded.results.len();
        for place in 0..recorded.results.len() {
            self.slots[graph.first[entry as usize] as usize + place] = Some(first + place);
        }
        let step = Step {
            op: recorded.op.clone(),
            operands,
            results: recorded.results.to_vec(),
            first,
            used: Vec::new(),
            notes,
        };
        self.push(step, entry);
    }

    /// Appends a step whose last entry is `last`.
    fn push(&mut self, step: Step, last: u32) {
        self.steps.push(step);
        self.step_entries.push(last);
        self.last_entries.push(self.last_entries.last().map_or(last, |&before| before.max(last)));
    }

    /// The slot of a value; emits the views or constants that compute it if it has none.
    fn materialised(&mut self, value: ValueNumber) -> usize {
        // In a long chain of views, each is emitted after its operand.
        let mut missing: SmallVec<[u32; 4]> = SmallVec::new();
        let mut seen = Some(value);
        while let Some(value) = seen.filter(|&value| self.slots[value as usize].is_none()) {
            let (entry, _) = self.graph.producers[value as usize].expect("externals are there");
            missing.push(entry);
            seen = self.graph.operands(entry).first().copied();
        }
        missing.into_iter().rev().for_each(|entry| self.alone(entry, Vec::new()));
        self.slots[value as usize].expect("the entry has run")
    }

    fn region(&mut self, group: Group, external_uses: &ExternalUses) {
        let mut region = Region::new(self.graph, &group.members);
        let is_repeated = |entry: &u32| group.repeated.binary_search(entry).is_ok();
        for entry in group.in_order() {
            region.add(entry);
            let result = self.graph.first[entry as usize];
            if is_repeated(&entry) && external_uses.has(result) {
                region.round(result);
            }
        }
        // A recomputed member is stored by its owning group, if another group reads it.
        let own = group.members.iter().filter(|&entry| !is_repeated(entry));
        let results = own.flat_map(|&entry| {
            let first = self.graph.first[entry as usize];
            first..first + self.graph.entry(entry).results.len() as u32
        });
        let outputs: Vec<ValueNumber> = results.filter(|&value| external_uses.has(value)).collect();
        let mut operands: SmallVec<[Reference; 4]> = SmallVec::new();
        for input in &region.inputs {
            operands.push(match *input {
                Input::Number(number, _) => Reference::Number(number),
                Input::Value(value) => Reference::Slot { slot: self.materialised(value), last: false },
            });
        }
        let first = self.next;
        self.next += outputs.len();
        for (place, &value) in outputs.iter().enumerate() {
            self.slots[value as usize] = Some(first + place);
        }
        let types = outputs.iter().map(|&value| self.graph.types[value as usize]).collect();
        let program = region.finish(&outputs);
        let pattern = (group.pattern)(&program);
        let fused = FusedOp::with_pattern(program, pattern).expect("the pattern was found in this program");
        let step = Step {
            op: Op::Fused(fused),
            operands,
            results: types,
            first,
            used: Vec::new(),
            notes: group.notes,
        };
        self.push(step, group.members.iter().copied().max().unwrap_or(0));
    }

    fn finish(mut self) -> Emitted {
        let externals = self.graph.structure.externals.len();
        let mut outputs = Vec::new();
        for (result, &alive) in self.graph.structure.alive.iter().enumerate() {
            if alive {
                let slot = self.materialised((externals + result) as ValueNumber);
                outputs.push((result, slot));
            }
        }
        let mut used = alloc::vec![false; self.next];
        for &(_, slot) in &outputs {
            used[slot] = true;
        }
        for step in self.steps.iter_mut().rev() {
            step.used = (0..step.results.len()).map(|place| used[step.first + place]).collect();
            for operand in step.operands.iter_mut().rev() {
                if let Reference::Slot { slot, last } = operand {
                    *last = !used[*slot];
                    used[*slot] = true;
                }
            }
        }
        let Emitter { steps, last_entries, step_entries, next: num_slots, .. } = self;
        Emitted { steps, last_entries, step_entries, num_slots, outputs }
    }
}

/// Builder of a region's program.
struct Region<'a> {
    graph: &'a Graph<'a>,
    members: &'a [u32],
    inputs: Vec<Input>,
    /// The index of each input.
    input_places: BTreeMap<Input, usize>,
    instructions: Vec<(Op, SmallVec<[SlotRef; 3]>, TensorType)>,
    places: BTreeMap<ValueNumber, SlotRef>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Input {
    Value(ValueNumber),
    Number(u32, DType),
}

/// A slot of the program. Inputs are numbered separately until all are known.
#[derive(Clone, Copy)]
enum SlotRef {
    Input(usize),
    Result(usize),
    Constant(Scalar),
}

impl<'a> Region<'a> {
    fn new(graph: &'a Graph<'a>, members: &'a [u32]) -> Region<'a> {
        Region {
            graph,
            members,
            inputs: Vec::new(),
            input_places: BTreeMap::new(),
            instructions: Vec::new(),
            places: BTreeMap::new(),
        }
    }

    fn add(&mut self, entry: u32) {
        let recorded = self.graph.entry(entry);
        let shape = match recorded.operands.iter().find_map(|&source| self.graph.value(source)) {
            Some(value) => self.graph.types[value as usize].shape,
            None => recorded.results[0].shape,
        };
        let mut operands: SmallVec<[SlotRef; 3]> = SmallVec::new();
        for &source in &recorded.operands {
            operands.push(match source {
                Source::Number(number) => self.number(number, number_dtype(self.graph, entry), shape),
                Source::Constant(scalar) => SlotRef::Constant(scalar),
                Source::External(_) | Source::Result(_) => {
                    self.value(self.graph.value(source).expect("no number"))
                }
            });
        }
        let place = self.emit(recorded.op.clone(), operands, recorded.results[0]);
        self.places.insert(self.graph.first[entry as usize], place);
    }

    /// Rounds a recomputed 16-bit float that is also stored for other groups. Those groups and the storing group
    /// compute with the stored, rounded value, so all use the same number.
    fn round(&mut self, value: ValueNumber) {
        let ty = self.graph.types[value as usize];
        if !matches!(ty.dtype, DType::F16 | DType::BF16) {
            return;
        }
        let exact = self.places[&value];
        let wide = self.emit(Op::Cast(DType::F32), smallvec![exact], ty.with_dtype(DType::F32));
        let rounded = self.emit(Op::Cast(ty.dtype), smallvec![wide], ty);
        self.places.insert(value, rounded);
    }

    /// Emits a plain number, broadcast to the shape of the other operands.
    fn number(&mut self, number: u32, dtype: DType, shape: Shape) -> SlotRef {
        let input = self.input(Input::Number(number, dtype));
        if shape.rank() == 0 {
            return input;
        }
        self.emit(Op::Broadcast(shape), [input].into_iter().collect(), TensorType::new(shape, dtype))
    }

    fn value(&mut self, value: ValueNumber) -> SlotRef {
        let inside = self.graph.is_made_by(value, |entry| self.members.binary_search(&entry).is_ok());
        // Views of a value inside the region, last first.
        let mut views: SmallVec<[(ValueNumber, u32); 4]> = SmallVec::new();
        let mut seen = value;
        let mut place = loop {
            if let Some(&place) = self.places.get(&seen) {
                break place;
            }
            let Some((entry, op)) = self.graph.producer(seen).filter(|_| inside) else {
                break self.input(Input::Value(seen));
            };
            match self.graph.operands(entry).first() {
                Some(&operand) if op.is_view() => {
                    views.push((seen, entry));
                    seen = operand;
                }
                Some(_) | None => break self.inlined(entry, op),
            }
        };
        self.places.insert(seen, place);
        for (value, entry) in views.into_iter().rev() {
            let recorded = self.graph.entry(entry);
            place = self.emit(recorded.op.clone(), smallvec![place], recorded.results[0]);
            self.places.insert(value, place);
        }
        place
    }

    /// Emits a constant, which every region recomputes.
    fn inlined(&mut self, entry: u32, op: &Op) -> SlotRef {
        let recorded = self.graph.entry(entry);
        let ty = recorded.results[0];
        if let (Op::Full(_), Some(&Source::Number(number))) = (op, recorded.operands.first()) {
            return self.number(number, ty.dtype, ty.shape);
        }
        let operands = self.graph.operands(entry).iter().map(|&value| self.value(value)).collect();
        self.emit(op.clone(), operands, ty)
    }

    fn input(&mut self, input: Input) -> SlotRef {
        let next = self.inputs.len();
        let place = *self.input_places.entry(input).or_insert(next);
        if place == next {
            self.inputs.push(input);
        }
        SlotRef::Input(place)
    }

    fn emit(&mut self, op: Op, operands: SmallVec<[SlotRef; 3]>, ty: TensorType) -> SlotRef {
        self.instructions.push((op, operands, ty));
        SlotRef::Result(self.instructions.len() - 1)
    }

    fn finish(&self, outputs: &[ValueNumber]) -> Program {
        let operand = |place: &SlotRef| match *place {
            SlotRef::Input(input) => ProgramOperand::Slot(input),
            SlotRef::Result(result) => ProgramOperand::Slot(self.inputs.len() + result),
            SlotRef::Constant(scalar) => ProgramOperand::Scalar(scalar),
        };
        let input = |input: &Input| match *input {
            Input::Value(value) => self.graph.types[value as usize],
            Input::Number(_, dtype) => TensorType::new([], dtype),
        };
        let instruction = |(op, operands, ty): &(Op, SmallVec<[SlotRef; 3]>, TensorType)| Instruction {
            op: op.clone(),
            operands: operands.iter().map(operand).collect(),
            results: alloc::vec![*ty],
        };
        Program {
            inputs: self.inputs.iter().map(input).collect(),
            instructions: self.instructions.iter().map(instruction).collect(),
            outputs: outputs.iter().map(|value| operand(&self.places[value])).collect(),
        }
    }
}
