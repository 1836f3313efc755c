//! The compiler of the tile machine: from a kernel to code.

mod arithmetic;
mod in_place;
mod load;
mod prefetch;

use super::code::{Action, Code, Fold, Form, Number, Param, Slot, SlotKind, Stage, Step};
use super::cost::function_cost;
use super::fold::folding;
use super::layout::Tiling;
use super::pairs::Arithmetic;
use super::registers;
use super::scan::scan;
use super::stages::{last_stages, stages};
use crate::half_float::HalfFloat;
use crate::kernels::{self, Conversion, Loop1};
use crate::reduce::order::{COLUMN_SLOTS, LANES};
use crate::scalar::scalar_bytes;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use half::{bf16, f16};
use in_place::InPlace;
pub(super) use in_place::Taken;
use kiln_ir::{DType, Reduction, Scalar};
use kiln_kernel::{AxisSet, Compute, Kernel, Launch, ParamKind, ValueId};

/// The maximum and minimum elements of a tile: the live registers and their operands stay in the L1 cache.
const MAX_LANES: usize = 2048;
const MIN_LANES: usize = 256;
const TILE_BYTES: usize = 20 << 10;

/// The memory limit of the values that a row keeps between stages, or of a scan's row.
const MAX_BYTES: usize = 64 << 20;

/// Compiles a kernel for one launch, with results in the memory of the taken operands. `None` for kernels that the
/// machine does not support.
pub(super) fn compile(kernel: &Kernel, launch: &Launch, taken: &[Taken]) -> Option<Code> {
    if kernel.has_columns() {
        return None;
    }
    let code = Compiler::compiled(kernel, launch, taken, MAX_LANES / 2)?;
    let streams = code.slots.iter().filter(|slot| matches!(slot, SlotKind::AtTile(_))).count();
    let lanes = (code.group * code.chunks.size).max(1);
    let bytes = code.register_bytes.div_ceil(lanes) + 4 * streams;
    let fit = (TILE_BYTES / bytes.max(1)).clamp(MIN_LANES, MAX_LANES);
    let wanted = 1 << fit.ilog2();
    if wanted == MAX_LANES / 2 {
        return Some(code);
    }
    Compiler::compiled(kernel, launch, taken, wanted)
}

/// The dtype of a value in registers.
pub(super) fn register(dtype: DType) -> DType {
    if is_narrow(dtype) { DType::F32 } else { dtype }
}

fn is_narrow(dtype: DType) -> bool {
    dtype == DType::F16 || dtype == DType::BF16
}

/// A plain number in the dtype of registers.
pub(super) fn number_bytes(scalar: Scalar, dtype: DType) -> [u8; 8] {
    let wide = |x: f32| scalar_bytes(Scalar::Float(f64::from(x)), DType::F32);
    if dtype == DType::F16 {
        wide(scalar.element::<f16>().widen())
    } else if dtype == DType::BF16 {
        wide(scalar.element::<bf16>().widen())
    } else {
        scalar_bytes(scalar, dtype)
    }
}

/// The variation of a value over a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Uniform: constant for the launch.
    Uniform,
    /// Varies by row.
    Row,
    /// Varies by element.
    Full,
}

/// The location of a value.
#[derive(Clone, Copy, Debug)]
struct Located {
    slot: Slot,
    class: Class,
    stage: usize,
    /// The dtype of the register.
    dtype: DType,
    /// The load instruction, if the value is one.
    load: Option<ValueId>,
}

/// A list of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Once,
    Hoisted,
    Rows(usize),
    Spread(usize),
    Tiles(usize),
}

/// An operand of a step.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// As many elements as the step has.
    Lanes(Slot),
    /// One element.
    Number(Slot),
}

impl Source {
    /// The slot, and whether it is a single number.
    fn slot(self) -> (Slot, bool) {
        match self {
            Source::Lanes(slot) => (slot, false),
            Source::Number(slot) => (slot, true),
        }
    }
}

/// The number of uses of each value.
fn uses(kernel: &Kernel) -> Vec<usize> {
    let mut uses = alloc::vec![0; kernel.body.len()];
    for operand in kernel.body.iter().flat_map(|instruction| instruction.compute.operands()) {
        uses[operand as usize] += 1;
    }
    uses
}

struct Compiler<'a> {
    kernel: &'a Kernel,
    launch: &'a Launch,
    in_place: InPlace<'a>,
    tiling: Tiling,
    dependence: Vec<AxisSet>,
    stages: Vec<usize>,
    /// The last stage that uses each value.
    last: Vec<usize>,
    located: Vec<Located>,
    /// Values that are broadcast over a stage's tiles, or loaded again for it.
    spread: BTreeMap<(ValueId, usize, bool), Slot>,
    constants: Vec<Option<Scalar>>,
    /// The number of uses of each value.
    uses: Vec<usize>,
    /// Values of `f32` tiles that an arithmetic step computes: the operation, its operand slots, and whether the other
    /// operand is a number.
    arithmetic: BTreeMap<ValueId, (Arithmetic, [Slot; 2], bool)>,
    code: Code,
}

impl<'a> Compiler<'a> {
    fn new(
        kernel: &'a Kernel,
        launch: &'a Launch,
        in_place: InPlace<'a>,
        lanes: usize,
    ) -> Option<Compiler<'a>> {
        let tiling = Tiling::new(kernel, launch, lanes)?;
        let stages = stages(kernel, &tiling);
        let last = last_stages(kernel, &stages);
        let count = stages.iter().max().map_or(1, |&last| last + 1);
        let count = if tiling.form == Form::Columns { count.max(2) } else { count };
        if tiling.form == Form::Columns && count > 2 {
            return None;
        }
        let code = Code {
            form: tiling.form,
            outer: tiling.outer,
            rows: tiling.rows,
            group: tiling.group,
            chunks: tiling.chunks,
            accesses: Vec::new(),
            params: Vec::new(),
            uniforms: Vec::new(),
            numbers: Vec::new(),
            once: Vec::new(),
            hoisted: Vec::new(),
            stages: alloc::vec![Stage::default(); count],
            folds: Vec::new(),
            slots: Vec::new(),
            row_bytes: 0,
            register_bytes: 0,
            wide_bytes: 0,
            total_bytes: 0,
            partial_bytes: 0,
            streams: false,
            wide_elements: kernel.body.iter().any(|instruction| instruction.dtype.size() == 8),
            cost: 1,
        };
        Some(Compiler {
            dependence: kernel.dependence(),
            located: Vec::with_capacity(kernel.body.len()),
            spread: BTreeMap::new(),
            constants: Vec::with_capacity(kernel.body.len()),
            uses: uses(kernel),
            arithmetic: BTreeMap::new(),
            kernel,
            launch,
            in_place,
            tiling,
            stages,
            last,
            code,
        })
    }

    /// Emits all steps; registers have no memory yet.
    fn emit_all(&mut self) {
        for (param, binding) in self.kernel.params.iter().zip(&self.launch.bindings) {
            let none = alloc::vec![0; self.kernel.axes.len()];
            let (strides, memory) = match param.kind {
                ParamKind::Number => (&none, Param::None),
                ParamKind::Input => (&binding.strides, Param::Input(binding.place)),
                ParamKind::Output => (&binding.strides, Param::Output(binding.place)),
            };
            self.code.accesses.push(self.tiling.access(strides, param.dtype.size()));
            self.code.params.push(memory);
        }
        for value in 0..self.kernel.body.len() {
            let located = self.instruction(value);
            self.located.push(located);
        }
    }

    fn finish(mut self) -> Option<Code> {
        self.find_prefetches();
        registers::allocate(&mut self.code, self.tiling.lanes());
        let wide = self.code.wide_bytes.saturating_mul(self.tiling.chunks.length);
        (wide.saturating_add(self.code.register_bytes) <= MAX_BYTES).then_some(self.code)
    }

    /// Emits the steps that compute a value.
    fn instruction(&mut self, value: usize) -> Located {
        let instruction = self.kernel.body[value];
        let dtype = instruction.dtype;
        let mut constant = None;
        let located = match instruction.compute {
            Compute::Load(param) => self.load(value, param as usize, self.stages[value]),
            Compute::LoadWhere(param, condition) => self.load_where(value, param as usize, condition),
            Compute::LoadAt { param, offset, condition } => {
                self.load_at(value, param as usize, offset, condition)
            }
            Compute::Number(param) => {
                let place = self.launch.bindings[param as usize].place;
                let uniform = self.uniform([0; 8]);
                self.code.numbers.push(Number { place, dtype, uniform });
                self.at_uniform(uniform, dtype)
            }
            Compute::Constant(scalar) => {
                constant = Some(scalar);
                let uniform = self.uniform(number_bytes(scalar, dtype));
                self.at_uniform(uniform, dtype)
            }
            Compute::Index(axis) => {
                let mut strides = alloc::vec![0; self.kernel.axes.len()];
                strides[axis as usize] = 1;
                let access = self.code.accesses.len();
                self.code.accesses.push(self.tiling.access(&strides, 1));
                self.code.params.push(Param::None);
                self.emit(value, Action::Index(access, register(dtype)))
            }
            Compute::Unary(function, a) => {
                let a = self.lanes_of(a, value);
                let cost = function_cost(function.info(), dtype);
                self.emit_costly(value, Action::One(kernels::unary(function, register(dtype)), a), cost)
            }
            Compute::Binary(function, a, b) => self.binary(value, function, a, b),
            Compute::Compare(comparison, a, b) => self.compare(value, comparison, a, b),
            Compute::Select(condition, a, b) => self.select(value, [condition, a, b]),
            Compute::Cast(a) => self.cast(value, a),
            Compute::Bitcast(a) => self.alias(value, a),
            Compute::Reduce(reduction, a) => self.reduce(value, reduction, a),
            Compute::ColumnReduce(..) => unreachable!("kernels with columns are refused"),
            Compute::Scan { reduction, reverse, exclusive, value: a } => {
                let a = self.lanes_of(a, value);
                let action = Action::Scan(scan(reduction, register(dtype)), a, [reverse, exclusive]);
                self.emit_costly(value, action, 8)
            }
            Compute::Checked(a, bound) => {
                let (x, bound) = (self.lanes_of(a, value), self.located[bound as usize].slot);
                let located = self.alias(value, a);
                let (list, by_row) = self.list(value);
                self.push(list, Action::Check(register(dtype), [x, bound]), x, by_row);
                located
            }
            Compute::Store(param, a) => self.store(value, param as usize, a),
        };
        self.constants.push(constant);
        located
    }

    fn class(&self, value: usize) -> Class {
        self.class_of(self.dependence[value], self.stages[value])
    }

    fn class_of(&self, dependence: AxisSet, stage: usize) -> Class {
        if dependence & self.tiling.inner_set() != 0 {
            Class::Full
        } else if dependence != 0 || stage > 0 {
            Class::Row
        } else {
            Class::Uniform
        }
    }

    /// Whether a tile value is the same for all groups of rows.
    fn is_hoisted(&self, value: usize) -> bool {
        let once = self.dependence[value] & self.tiling.row_set() == 0 && self.stages[value] == 0;
        once && match self.tiling.form {
            Form::Columns => true,
            Form::Map | Form::Rows => self.tiling.is_whole() && self.tiling.rows > self.tiling.group,
            Form::Parts => false,
        }
    }

    /// The list that computes a value, and whether once per row.
    fn list(&self, value: usize) -> (List, bool) {
        let stage = self.stages[value];
        match self.class(value) {
            Class::Uniform => (List::Once, true),
            Class::Row => (List::Rows(stage), true),
            Class::Full if self.is_hoisted(value) => (List::Hoisted, false),
            Class::Full => (List::Tiles(stage), false),
        }
    }

    /// Rows per tile in a stage: one after a column reduction.
    fn group(&self, stage: usize) -> usize {
        if self.tiling.form == Form::Columns && stage > 0 { 1 } else { self.tiling.group }
    }

    fn push(&mut self, list: List, action: Action, to: Slot, by_row: bool) {
        let steps = match list {
            List::Once => &mut self.code.once,
            List::Hoisted => &mut self.code.hoisted,
            List::Rows(stage) => &mut self.code.stages[stage].rows,
            List::Spread(stage) => &mut self.code.stages[stage].spread,
            List::Tiles(stage) => &mut self.code.stages[stage].tiles,
        };
        steps.push(Step { action, to, by_row });
    }

    fn slot(&mut self, place: SlotKind) -> Slot {
        self.code.slots.push(place);
        (self.code.slots.len() - 1) as Slot
    }

    fn uniform(&mut self, bytes: [u8; 8]) -> usize {
        self.code.uniforms.push(bytes);
        self.code.uniforms.len() - 1
    }

    fn at_uniform(&mut self, uniform: usize, dtype: DType) -> Located {
        let slot = self.slot(SlotKind::Uniform(uniform));
        Located { slot, class: Class::Uniform, stage: 0, dtype: register(dtype), load: None }
    }

    fn row_slot(&mut self) -> Slot {
        let at = self.code.row_bytes;
        self.code.row_bytes += 1;
        self.slot(SlotKind::Row(at))
    }

    fn register_slot(&mut self) -> Slot {
        self.slot(registers::FREE)
    }

    /// Allocates a slot for a value.
    fn new_slot(&mut self, value: usize) -> Slot {
        match self.class(value) {
            Class::Uniform => {
                let uniform = self.uniform([0; 8]);
                self.slot(SlotKind::Uniform(uniform))
            }
            Class::Row => self.row_slot(),
            Class::Full => {
                let lasts = !self.tiling.is_whole() && self.last[value] > self.stages[value];
                if lasts && self.tiling.form != Form::Columns {
                    let before = self.code.wide_bytes;
                    self.code.wide_bytes += 8;
                    self.slot(SlotKind::Wide(before, register(self.kernel.body[value].dtype).size()))
                } else {
                    self.register_slot()
                }
            }
        }
    }

    /// Allocates a slot for an intermediate of a value, in the same stage.
    fn intermediate_slot(&mut self, value: usize) -> Slot {
        match self.class(value) {
            Class::Uniform => {
                let uniform = self.uniform([0; 8]);
                self.slot(SlotKind::Uniform(uniform))
            }
            Class::Row => self.row_slot(),
            Class::Full => self.register_slot(),
        }
    }

    fn emit(&mut self, value: usize, action: Action) -> Located {
        self.emit_costly(value, action, 1)
    }

    fn emit_costly(&mut self, value: usize, action: Action, cost: usize) -> Located {
        let to = self.new_slot(value);
        let (list, by_row) = self.list(value);
        self.push(list, action, to, by_row);
        if !by_row {
            self.code.cost += cost;
        }
        self.located(value, to)
    }

    fn located(&self, value: usize, slot: Slot) -> Located {
        let dtype = register(self.kernel.body[value].dtype);
        Located { slot, class: self.class(value), stage: self.stages[value], dtype, load: None }
    }

    fn alias(&self, value: usize, of: ValueId) -> Located {
        let Located { slot, load, .. } = self.located[of as usize];
        Located { load, ..self.located(value, slot) }
    }

    /// An operand of the instruction `user`.
    fn source(&mut self, operand: ValueId, user: usize) -> Source {
        let (list, by_row) = self.list(user);
        let stage = self.stages[user];
        self.source_in(operand, stage, by_row, list == List::Hoisted)
    }

    fn source_in(&mut self, operand: ValueId, stage: usize, by_row: bool, hoisted: bool) -> Source {
        let located = self.located[operand as usize];
        match located.class {
            Class::Full => Source::Lanes(self.reload(operand, stage)),
            Class::Row if by_row => Source::Lanes(located.slot),
            // Values outside of tiles are the same for all rows of a hoisted tile.
            Class::Row if self.group(stage) == 1 || hoisted => Source::Number(located.slot),
            Class::Row => {
                let size = located.dtype.size();
                let action = Action::Repeat(size, located.slot);
                Source::Lanes(self.spread(operand, stage, false, action))
            }
            Class::Uniform if by_row && self.group(stage) == 1 => Source::Lanes(located.slot),
            Class::Uniform => Source::Number(located.slot),
        }
    }

    /// A register in a stage: values that are loaded chunk by chunk are loaded again.
    fn reload(&mut self, operand: ValueId, stage: usize) -> Slot {
        let located = self.located[operand as usize];
        if let Some(operand) = located.load
            && let Compute::Load(param) = self.kernel.body[operand as usize].compute
            && stage > 0
            && !self.tiling.is_whole()
            && self.tiling.form != Form::Columns
            && !matches!(self.code.slots[usize::from(located.slot)], SlotKind::AtTile(_))
        {
            if let Some(&slot) = self.spread.get(&(operand, stage, false)) {
                return slot;
            }
            let again = self.load(operand as usize, param as usize, stage);
            self.spread.insert((operand, stage, false), again.slot);
            return again.slot;
        }
        located.slot
    }

    /// Broadcasts or reloads a value into a register (or a row slot) of a stage.
    fn spread(&mut self, operand: ValueId, stage: usize, by_row: bool, action: Action) -> Slot {
        if let Some(&slot) = self.spread.get(&(operand, stage, by_row)) {
            return slot;
        }
        let slot = if by_row { self.row_slot() } else { self.register_slot() };
        let list = if by_row { List::Rows(stage) } else { List::Spread(stage) };
        self.push(list, action, slot, by_row);
        self.spread.insert((operand, stage, by_row), slot);
        slot
    }

    /// The slot of an operand with as many elements as the step has.
    fn lanes_of(&mut self, operand: ValueId, user: usize) -> Slot {
        let source = self.source(operand, user);
        let (list, by_row) = self.list(user);
        self.filled(operand, source, self.stages[user], by_row, list)
    }

    fn filled(&mut self, operand: ValueId, source: Source, stage: usize, by_row: bool, list: List) -> Slot {
        let slot = match source {
            Source::Lanes(slot) => return slot,
            Source::Number(slot) => slot,
        };
        if list == List::Once {
            return slot;
        }
        let action = Action::Fill(self.located[operand as usize].dtype.size(), slot);
        if list == List::Hoisted {
            let to = self.register_slot();
            self.push(List::Hoisted, action, to, false);
            return to;
        }
        self.spread(operand, stage, by_row, action)
    }

    fn cast(&mut self, value: usize, a: ValueId) -> Located {
        let to = self.kernel.body[value].dtype;
        let from = self.kernel.body[a as usize].dtype;
        // A cast to the same 16-bit float rounds, since registers are wider.
        if (from == to && !is_narrow(to)) || (is_narrow(from) && to == DType::F32) {
            return self.alias(value, a);
        }
        let x = self.lanes_of(a, value);
        let rounded = self.converted(value, x, register(from), to);
        match kernels::half_loops(to) {
            Some((widen, _)) => self.emit(value, Action::One(widen, rounded)),
            None => self.located(value, rounded),
        }
    }

    /// Converts a register to the memory format of a dtype.
    fn converted(&mut self, value: usize, x: Slot, from: DType, to: DType) -> Slot {
        match kernels::conversion(from, to) {
            Conversion::Direct(convert) => self.converted_by(value, x, convert, is_narrow(to)),
            Conversion::Through(widen, narrow) => {
                self.code.wide_elements = true;
                let wide = self.converted_by(value, x, widen, true);
                self.converted_by(value, wide, narrow, is_narrow(to))
            }
        }
    }

    /// One step of a conversion, into a separate slot if it is intermediate.
    fn converted_by(&mut self, value: usize, x: Slot, convert: Loop1, on_the_way: bool) -> Slot {
        if !on_the_way {
            return self.emit(value, Action::One(convert, x)).slot;
        }
        let to = self.intermediate_slot(value);
        let (list, by_row) = self.list(value);
        self.push(list, Action::One(convert, x), to, by_row);
        to
    }

    fn reduce(&mut self, value: usize, reduction: Reduction, a: ValueId) -> Located {
        let dtype = register(self.kernel.body[value].dtype);
        let stage = self.stages[a as usize];
        let source = self.source_in(a, stage, false, false);
        let x = self.filled(a, source, stage, false, List::Tiles(stage));
        let loops = folding(reduction, dtype);
        let columns = self.tiling.chunks.size;
        let (totals, partials) = match self.tiling.form {
            Form::Columns if self.tiling.group > 1 => (columns, LANES * columns),
            Form::Columns => (columns, COLUMN_SLOTS * columns),
            Form::Map | Form::Rows | Form::Parts => (self.tiling.group, LANES),
        };
        let fold = self.code.folds.len();
        self.code.folds.push(Fold {
            stage,
            loops,
            element: dtype.size(),
            total_at: self.code.total_bytes,
            partial_at: self.code.partial_bytes,
        });
        self.code.total_bytes += (loops.total * totals).next_multiple_of(64);
        self.code.partial_bytes += (loops.partial * partials).next_multiple_of(64);
        self.push(List::Tiles(stage), Action::Fold(fold, x), x, false);
        self.code.cost += 1;
        self.emit(value, Action::Finish(fold))
    }

    fn store(&mut self, value: usize, param: usize, a: ValueId) -> Located {
        let dtype = self.kernel.body[value].dtype;
        let stage = self.stages[value];
        let access = &self.code.accesses[param];
        let crossed = self.crossed_axes(param);
        let class = if crossed & self.tiling.inner_set() != 0 { Class::Full } else { Class::Row };
        let by_row = class == Class::Row;
        let list = if by_row { List::Rows(stage) } else { List::Tiles(stage) };
        let memory = match class {
            Class::Full => self.tiling.is_flat(access, self.group(stage)).then_some(SlotKind::AtTile(param)),
            Class::Row | Class::Uniform => {
                self.tiling.is_flat_by_row(access).then_some(SlotKind::AtRow(param))
            }
        };
        let narrow = kernels::half_loops(dtype).map(|(_, narrow)| narrow);
        let source = self.source_in(a, stage, by_row, false);
        let located = self.located[a as usize];
        if let (Some(SlotKind::AtTile(_)), Source::Lanes(slot), None, true) =
            (memory, source, narrow, self.bypasses_cache(param))
        {
            let to = self.slot(SlotKind::AtTile(param));
            self.push(list, Action::Stream(dtype.size(), slot), to, by_row);
            self.code.streams = true;
            return located;
        }
        if let (Some(place), Source::Lanes(slot), None) = (memory, source, narrow)
            && self.is_free(slot, a)
        {
            self.code.slots[usize::from(slot)] = place;
            return located;
        }
        let mut x = self.filled(a, source, stage, by_row, list);
        let convert = narrow.unwrap_or_else(|| kernels::copy(dtype.size()));
        match memory {
            Some(place) => {
                let to = self.slot(place);
                self.push(list, Action::One(convert, x), to, by_row);
            }
            None => {
                if let Some(narrow) = narrow {
                    let to = if by_row { self.row_slot() } else { self.register_slot() };
                    self.push(list, Action::One(narrow, x), to, by_row);
                    x = to;
                }
                self.push(list, Action::Scatter(param, x), x, by_row);
            }
        }
        self.code.cost += 1;
        located
    }

    /// The axes along which a parameter has a nonzero stride.
    fn crossed_axes(&self, param: usize) -> AxisSet {
        let strides = self.launch.bindings[param].strides.iter().enumerate();
        strides.filter(|(_, stride)| **stride != 0).fold(0, |set, (axis, _)| set | 1 << axis)
    }

    /// Whether a register is computed by a tile step, so that the step can write to memory directly.
    fn is_free(&self, slot: Slot, value: ValueId) -> bool {
        let located = self.located[value as usize];
        let tiles = &self.code.stages[located.stage].tiles;
        let computed = tiles.iter().position(|step| {
            step.to == slot
                && !matches!(step.action, Action::Fold(..) | Action::Scatter(..) | Action::Check(..))
        });
        // Memory that a result reuses from an operand is written after the operand is read.
        let takes =
            |step: &Step| matches!(step.action, Action::Gather(param) if self.in_place.contains(param));
        let is_read_later = |at: usize| {
            tiles[at + 1..].iter().any(takes)
                || self.code.stages[located.stage + 1..].iter().any(|stage| stage.tiles.iter().any(takes))
        };
        let computed = computed.is_some_and(|at| !is_read_later(at));
        located.slot == slot
            && registers::is_free(&self.code.slots[usize::from(slot)])
            && located.class == Class::Full
            && computed
    }
}
