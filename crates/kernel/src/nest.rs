//! Loop nests of fused regions: ops are pushed one by one, and their axes matched.
//!
//! The axes of all tensors consist of *atoms*: the finest factors of the index space that any tensor of the region
//! needs. A tensor's axis is a run of atoms, outermost first. Where an op identifies two axes, both runs are split
//! until they agree. A reshape regroups the atoms. A broadcast creates new ones, which a later op identifies with those
//! of another operand. No index is ever divided.

mod atom;
mod column;
mod contract;
mod indexed;
mod pad;
mod place;
pub(crate) mod push;
mod savepoint;

use crate::{Compute, ValueId};
use alloc::string::String;
use alloc::vec::Vec;
pub(crate) use atom::{AtomId, Atoms};
pub use savepoint::Savepoint;

use core::fmt;
use kiln_ir::{DType, Program, ProgramOperand, Scalar, Shape, TensorType};
use smallvec::SmallVec;

/// The loop nest of a region under construction.
///
/// ```
/// use kiln_ir::{Binary, DType, Op, TensorType, Unary};
/// use kiln_kernel::Nest;
///
/// let ty = TensorType::new([8, 32], DType::F32);
/// let mut nest = Nest::default();
/// let x = nest.input(ty);
/// let y = nest.push(&Op::Unary(Unary::Exp), &[x.into()], &[ty]).unwrap();
/// let z = nest.push(&Op::Binary(Binary::Mul), &[x.into(), y.into()], &[ty]).unwrap();
/// assert_eq!(nest.ty(z), ty);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Nest {
    pub(crate) atoms: Atoms,
    pub(crate) values: Vec<NestValue>,
    pub(crate) slots: Vec<SlotState>,
    /// The value of the matmul, if there is one.
    pub(crate) product: Option<ValueId>,
    num_inputs: usize,
    /// Whether column reductions are allowed.
    columns: bool,
    /// Whether results have the bits of the ops run one by one.
    pub(crate) exact: bool,
    /// The reduced axes, in the order of the first reduction's operand. Later ops may split them.
    reduced: SmallVec<[AtomId; 4]>,
    /// Padded operands.
    padded: Vec<pad::Padded>,
    /// Operands that are read by index.
    pub(crate) indexed: Vec<IndexedLoad>,
    /// The slots that a matmul demoted to [`Origin::Prologue`], in that order.
    demoted: Vec<usize>,
    checked: Checked,
    /// The bounds checks of the region.
    pub(crate) checks: Vec<IndexCheck>,
}

/// A bounds check: an index that must be below the length of an axis.
#[derive(Clone, Debug)]
pub(crate) struct IndexCheck {
    /// The value of the [`Compute::Checked`] instruction.
    pub(crate) value: ValueId,
    pub(crate) op: &'static str,
    pub(crate) axis: usize,
    pub(crate) length: usize,
    /// The index tensor.
    pub(crate) index: Slot,
}

/// A load by index.
#[derive(Clone, Debug)]
pub(crate) struct IndexedLoad {
    /// The [`Compute::LoadAt`] instruction. In a region, its offset is an index along the axis.
    pub(crate) value: ValueId,
    /// The axis of the operand.
    pub(crate) axis: usize,
    /// The length of that axis.
    pub(crate) length: usize,
}

/// The result of the last check, which lets the next check skip unchanged slots.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checked {
    pub(crate) slots: usize,
    /// The parallel atoms of the computed slots; `None` before the first computed slot.
    pub(crate) space: Option<Vec<AtomId>>,
}

/// A tensor of the region, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub(crate) u32);

/// An operand of a pushed op.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// A tensor of the region.
    Slot(Slot),
    /// A constant.
    Scalar(Scalar),
}

impl From<Slot> for Operand {
    fn from(slot: Slot) -> Operand {
        Operand::Slot(slot)
    }
}

impl From<Scalar> for Operand {
    fn from(scalar: Scalar) -> Operand {
        Operand::Scalar(scalar)
    }
}

/// One scalar instruction of the region. Loads and numbers name the input, indices an atom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NestValue {
    pub(crate) compute: Compute,
    pub(crate) dtype: DType,
    /// Whether it depends on plain numbers and indices alone.
    free: bool,
    /// Whether it depends on a column reduction.
    across: bool,
    /// Whether it depends on a row reduction.
    reduces: bool,
}

/// A tensor of the region: a value, and the atoms of each of its axes.
#[derive(Clone, Debug)]
pub(crate) struct SlotState {
    pub(crate) ty: TensorType,
    pub(crate) value: ValueId,
    pub(crate) axes: AxisAtoms,
    pub(crate) origin: Origin,
}

/// `(axis, atom)`, outermost first.
pub(crate) type AxisAtoms = SmallVec<[(u8, AtomId); 6]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// An input, loaded from memory.
    Input,
    /// A view of a slot, a constant or an index, which is free to recompute.
    View,
    /// The result of an op; it can be stored.
    Computed,
    /// A value computed from numbers and indices alone, or a padded operand. It is recomputed at each use, so it may
    /// lack axes of the region. It can be stored if it has all of them.
    Free,
    /// The result of an op that is constant across the rows of a region with columns.
    Column,
    /// A matmul prologue: the result of an op before a matmul. It lacks an axis of the matmul and cannot be stored.
    Prologue,
}

/// The reason why an op cannot join a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The op has no kernel form.
    NoKernel,
    /// The axes of its operands, or of its operands and the region, do not split into the same factors.
    Axes,
    /// It would read one element of a tensor at two points, or the diagonal of a tensor.
    Diagonal,
    /// The region already reduces along other axes.
    Reduction,
    /// The result has another index space than the rest of the region.
    Space,
    /// A tensor of the region has no elements.
    Empty,
    /// The region already has a matmul, or reduces where a matmul does not allow it.
    Product,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NoKernel => "the op has no kernel form",
            Refusal::Axes => "the axes do not split into the same factors",
            Refusal::Diagonal => "one tensor would be read at two places for one point",
            Refusal::Reduction => "the region reduces along other axes",
            Refusal::Space => "the result has another index space than the region",
            Refusal::Empty => "a tensor has no elements",
            Refusal::Product => "the region already has a matmul",
        })
    }
}

impl Nest {
    /// The maximum number of instructions in a region: kernel compilers keep each value in registers or memory.
    pub const MAX_VALUES: usize = 256;

    /// Builds the region of a program, and its outputs. `numbers` marks the inputs that are plain numbers.
    ///
    /// # Errors
    /// When an op has no kernel form, or the axes do not match: the index of the instruction, and the reason.
    pub fn of_program(program: &Program, numbers: &[bool]) -> Result<(Nest, Vec<Slot>), (usize, Refusal)> {
        Nest::default().and_program(program, numbers)
    }

    /// As [`of_program`](Nest::of_program), for an [exact](Nest::exact) region.
    ///
    /// # Errors
    /// As [`of_program`](Nest::of_program).
    pub fn of_program_exactly(
        program: &Program,
        numbers: &[bool],
    ) -> Result<(Nest, Vec<Slot>), (usize, Refusal)> {
        Nest::exact().and_program(program, numbers)
    }

    /// As [`of_program`](Nest::of_program), for a region that may have [columns](Nest::with_columns).
    ///
    /// # Errors
    /// As [`of_program`](Nest::of_program).
    pub fn of_program_with_columns(
        program: &Program,
        numbers: &[bool],
    ) -> Result<(Nest, Vec<Slot>), (usize, Refusal)> {
        Nest::with_columns().and_program(program, numbers)
    }

    fn and_program(self, program: &Program, numbers: &[bool]) -> Result<(Nest, Vec<Slot>), (usize, Refusal)> {
        let mut nest = self;
        let mut slots: Vec<Slot> = Vec::with_capacity(program.num_slots());
        for (place, ty) in program.inputs.iter().enumerate() {
            slots.push(if numbers.get(place) == Some(&true) {
                nest.number(ty.dtype)
            } else {
                nest.input(*ty)
            });
        }
        let last = program.instructions.len();
        for (number, instruction) in program.instructions.iter().enumerate() {
            if instruction.results.len() != 1 {
                return Err((number, Refusal::NoKernel));
            }
            let operand = |operand: &ProgramOperand| match *operand {
                ProgramOperand::Slot(slot) => Operand::Slot(slots[slot]),
                ProgramOperand::Scalar(scalar) => Operand::Scalar(scalar),
            };
            let operands: SmallVec<[Operand; 4]> = instruction.operands.iter().map(operand).collect();
            let pushed = nest.push(&instruction.op, &operands, &instruction.results);
            slots.push(pushed.map_err(|refusal| (number, refusal))?);
        }
        let output = |output: &ProgramOperand| match *output {
            ProgramOperand::Slot(slot) => Ok(slots[slot]),
            ProgramOperand::Scalar(_) => Err((last, Refusal::NoKernel)),
        };
        let outputs = program.outputs.iter().map(output).collect::<Result<Vec<_>, _>>()?;
        Ok((nest, outputs))
    }

    /// An empty region whose results have the bits of its ops run one by one: 16-bit results are rounded after each op,
    /// and the reduced axes are the innermost ones of the loops, in the order of the operand's axes.
    pub fn exact() -> Nest {
        Nest { exact: true, ..Nest::default() }
    }

    /// Adds an input tensor.
    pub fn input(&mut self, ty: TensorType) -> Slot {
        let value = self.value(Compute::Load(self.num_inputs as u32), ty.dtype);
        self.num_inputs += 1;
        let axes = self.fresh(&ty.shape);
        self.slot(SlotState { ty, value, axes, origin: Origin::Input })
    }

    /// Adds a plain number that each launch passes: a rank-0 tensor. Inputs and numbers share one numbering.
    pub fn number(&mut self, dtype: DType) -> Slot {
        let value = self.value(Compute::Number(self.num_inputs as u32), dtype);
        self.num_inputs += 1;
        let ty = TensorType::new([], dtype);
        self.slot(SlotState { ty, value, axes: AxisAtoms::new(), origin: Origin::Input })
    }

    /// The number of inputs and plain numbers.
    pub fn num_inputs(&self) -> usize {
        self.num_inputs
    }

    /// The type of a tensor of the region.
    pub fn ty(&self, slot: Slot) -> TensorType {
        self.state(slot).ty
    }

    /// Whether the region may store this tensor: it is computed at every point of the parallel index space. A later op
    /// may revoke this for tensors computed from numbers and indices alone, for padded operands, and for matmul
    /// operands.
    pub fn is_storable(&self, slot: Slot) -> bool {
        let state = self.state(slot);
        match state.origin {
            Origin::Computed | Origin::Column => true,
            Origin::Free => {
                let alone = self.slots.iter().all(|slot| slot.origin != Origin::Computed);
                let space = if alone { self.parallel_leaves(state) } else { self.space() };
                self.covers(state, &space)
            }
            Origin::Input | Origin::View | Origin::Prologue => false,
        }
    }

    /// Whether the tensor is an input, loaded without changes.
    pub fn is_input(&self, slot: Slot) -> bool {
        self.state(slot).origin == Origin::Input
    }

    /// Whether some axes are reduced.
    pub fn reduces(&self) -> bool {
        self.atoms.any_reduced()
    }

    /// Whether a reduction's result is combined again with values that change along the reduced axes. Such rows must
    /// stay resident.
    pub fn is_resident(&self) -> bool {
        let computed = self.slots.iter().filter(|slot| slot.origin == Origin::Computed);
        self.resident(&alloc::vec![true; self.values.len()], computed)
    }

    /// As [`is_resident`](Nest::is_resident), for these values and outputs only.
    pub(crate) fn resident<'a>(
        &'a self,
        needed: &[bool],
        mut outputs: impl Iterator<Item = &'a SlotState>,
    ) -> bool {
        let levels = self.levels();
        let combined = |(i, value): (usize, &NestValue)| match value.compute.reduction() {
            Some((_, operand)) => levels[operand as usize].stage > 0,
            None => levels[i].stage > 0 && levels[i].along,
        };
        // A reduction's result may also be broadcast along the row.
        let repeated = |slot: &SlotState| {
            levels[slot.value as usize].stage > 0
                && self.leaves(slot).iter().any(|&(_, atom)| self.atoms.is_reduced(atom))
        };
        self.values.iter().enumerate().filter(|(i, _)| needed[*i]).any(combined) || outputs.any(repeated)
    }

    /// Whether the innermost axis of the largest tensor with reduced axes is reduced. Rows are then contiguous in
    /// memory if the tensor is.
    pub fn rows_are_innermost(&self) -> bool {
        self.reduced_of_largest().last() == Some(&true)
    }

    /// Whether the reduced axes of that tensor are its innermost ones. A row is then one contiguous piece of memory if
    /// the tensor is row-major.
    pub fn rows_are_whole(&self) -> bool {
        self.rows_are_innermost() && self.reduced_of_largest().is_sorted()
    }

    /// For each axis factor of the largest tensor with reduced axes, whether it is reduced, outermost first.
    fn reduced_of_largest(&self) -> Vec<bool> {
        let reduced = |slot: &SlotState| -> Vec<bool> {
            self.leaves(slot).iter().map(|&(_, atom)| self.atoms.is_reduced(atom)).collect()
        };
        let along = |slot: &&SlotState| slot.origin != Origin::View && reduced(slot).contains(&true);
        let largest = self.slots.iter().filter(along).max_by_key(|slot| slot.ty.num_elements());
        largest.map(reduced).unwrap_or_default()
    }

    /// The number of points of one row: the size of the reduced index space. 1 without reductions.
    pub fn row_len(&self) -> usize {
        self.atoms.reduced_len()
    }

    /// The number of points of the region's index space, reduced axes included.
    pub fn num_points(&self) -> usize {
        let mut space: Vec<AtomId> = self.atoms.reduced().collect();
        for slot in self.slots.iter().filter(|slot| slot.origin == Origin::Computed) {
            for (_, atom) in self.leaves(slot) {
                if !space.contains(&atom) {
                    space.push(atom);
                }
            }
        }
        space.into_iter().map(|atom| self.atoms.extent(atom)).product()
    }

    /// The current number of instructions.
    pub fn num_values(&self) -> usize {
        self.values.len()
    }

    /// For each value, the length of the longest chain of reductions before it, and whether it changes along reduced
    /// axes.
    pub(crate) fn levels(&self) -> Vec<Level> {
        let mut levels: Vec<Level> = Vec::with_capacity(self.values.len());
        let loads = self.loads();
        for (i, value) in self.values.iter().enumerate() {
            let operands = value.compute.operands();
            let mut level = Level { stage: 0, along: false };
            for &operand in &operands {
                let of = levels[operand as usize];
                level = Level { stage: level.stage.max(of.stage), along: level.along || of.along };
            }
            match value.compute {
                Compute::Load(_) | Compute::LoadWhere(..) | Compute::LoadAt { .. } => level.along |= loads[i],
                Compute::Index(atom) => {
                    level.along =
                        self.atoms.leaves_of(atom as AtomId).iter().any(|&a| self.atoms.is_reduced(a))
                }
                Compute::Reduce(..) => level = Level { stage: level.stage + 1, along: false },
                Compute::ColumnReduce(..) => level = Level { stage: 0, along: true },
                Compute::Scan { .. } => level.along = true,
                Compute::Number(_)
                | Compute::Constant(_)
                | Compute::Unary(..)
                | Compute::Binary(..)
                | Compute::Compare(..)
                | Compute::Select(..)
                | Compute::Cast(_)
                | Compute::Bitcast(_)
                | Compute::Checked(..)
                | Compute::Store(..) => {}
            }
            levels.push(level);
        }
        levels
    }

    /// For each value, whether it is a load that changes along a reduced axis.
    fn loads(&self) -> Vec<bool> {
        let mut loads = alloc::vec![false; self.values.len()];
        for slot in self.slots.iter().filter(|slot| slot.origin == Origin::Input) {
            loads[slot.value as usize] =
                self.leaves(slot).iter().any(|&(_, atom)| self.atoms.is_reduced(atom));
        }
        loads
    }

    /// The finest atoms of a slot's axes.
    pub(crate) fn leaves(&self, slot: &SlotState) -> AxisAtoms {
        let mut leaves = AxisAtoms::new();
        for &(axis, atom) in &slot.axes {
            leaves.extend(self.atoms.leaves_of(atom).into_iter().map(|leaf| (axis, leaf)));
        }
        leaves
    }

    pub(crate) fn state(&self, slot: Slot) -> &SlotState {
        &self.slots[slot.0 as usize]
    }

    /// Returns an existing equal instruction, or adds a new one.
    fn value(&mut self, compute: Compute, dtype: DType) -> ValueId {
        let same = |value: &NestValue| value.compute == compute && value.dtype == dtype;
        if let Some(value) = self.values.iter().position(same) {
            return value as ValueId;
        }
        let of_free = compute.operands().iter().all(|&value| self.values[value as usize].free);
        let free = of_free && compute.load().is_none() && compute.column_reduce().is_none();
        let comes_from = |is: fn(&NestValue) -> bool| {
            compute.operands().iter().any(|&value| is(&self.values[value as usize]))
        };
        let across = compute.column_reduce().is_some() || comes_from(|value| value.across);
        let reduces = compute.is_reduction()
            || (compute.column_reduce().is_none() && comes_from(|value| value.reduces));
        self.values.push(NestValue { compute, dtype, free, across, reduces });
        (self.values.len() - 1) as ValueId
    }

    fn slot(&mut self, state: SlotState) -> Slot {
        self.slots.push(state);
        Slot((self.slots.len() - 1) as u32)
    }

    /// New atoms for each axis of a shape.
    fn fresh(&mut self, shape: &Shape) -> AxisAtoms {
        let mut axes = AxisAtoms::new();
        for (axis, &length) in shape.iter().enumerate() {
            if length != 1 {
                axes.push((axis as u8, self.atoms.add(length)));
            }
        }
        axes
    }
}

/// The position of a value in the passes over a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level {
    /// The length of the longest chain of reductions before it.
    pub(crate) stage: usize,
    /// Whether it changes along the reduced axes.
    pub(crate) along: bool,
}

impl Refusal {
    /// The reason as a sentence, for reports.
    pub fn reason(&self) -> String {
        alloc::format!("{self}")
    }
}
