//! Lowering of a loop nest to a kernel: axes ordered and merged where every parameter agrees, strides classified.

use crate::nest::push::holding;
use crate::nest::{AtomId, IndexCheck, IndexedLoad, Nest, NestValue, Origin, Slot, SlotState};
use crate::{
    Axis, Binding, Compute, Instruction, Kernel, KernelKind, Launch, Param, ParamKind, StrideClass, ValueId,
};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use kiln_ir::{Binary, DType, Scalar, Shape};

/// The strides of an operand of a region, in elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout(pub Vec<isize>);

impl Layout {
    /// The row-major contiguous layout of a shape.
    pub fn row_major(shape: &Shape) -> Layout {
        Layout(shape.row_major_strides()[..shape.rank()].iter().map(|&stride| stride as isize).collect())
    }
}

/// A kernel with its launch parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// The kernel.
    pub kernel: Kernel,
    /// Extents and strides.
    pub launch: Launch,
    /// The bounds checks of the kernel, in the order of its [`Compute::Checked`] instructions.
    pub checks: Vec<Check>,
}

/// A bounds check of a kernel: an index along an axis of a tensor, and the length of the axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The [`Compute::Checked`] instruction.
    pub value: ValueId,
    /// The op that reads or writes by index.
    pub op: &'static str,
    /// The indexed axis.
    pub axis: usize,
    /// The length of the axis.
    pub length: usize,
    /// The rank of the index tensor.
    rank: usize,
    terms: Vec<Term>,
}

/// One mixed-radix digit of a point number, and its contribution to the index along an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    divisor: usize,
    extent: usize,
    axis: usize,
    factor: usize,
}

impl Check {
    /// The coordinates of a point in the index tensor. Points are numbered in row-major order along the axes that the
    /// checked value [depends on](Kernel::dependence).
    pub fn position(&self, point: usize) -> Shape {
        let mut position: Shape = core::iter::repeat_n(0, self.rank).collect();
        for Term { divisor, extent, axis, factor } in &self.terms {
            position[*axis] += point / divisor % extent * factor;
        }
        position
    }
}

/// The reason why a region has no kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotLowered {
    /// An output cannot be stored: it is a view, or lacks axes of the index space.
    Output(usize),
    /// The region has more axes or parameters than a kernel may have.
    TooLarge,
}

impl fmt::Display for NotLowered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotLowered::Output(place) => write!(f, "output {place} is not computed by the region"),
            NotLowered::TooLarge => f.write_str("the region has too many axes or parameters"),
        }
    }
}

/// An axis during lowering: its role, extent, and stride in each parameter.
#[derive(Clone, Debug)]
struct Loop {
    atom: AtomId,
    /// The outer atoms that were merged into it, innermost first.
    outer: Vec<AtomId>,
    role: Axis,
    extent: usize,
    strides: Vec<isize>,
}

impl Nest {
    /// The maximum number of axes of a kernel.
    pub const MAX_AXES: usize = 16;

    /// The maximum number of parameters of a kernel.
    pub const MAX_PARAMS: usize = 64;

    /// Lowers the region to a kernel that computes these outputs from operands with the given layouts (plain numbers
    /// have an empty layout). Results are row-major and contiguous.
    ///
    /// # Errors
    /// When an output is not [storable](Nest::is_storable), when outputs computed from numbers and indices alone have
    /// other axes than the rest, or when the kernel would be too large.
    ///
    /// # Panics
    /// When the number of layouts differs from the number of inputs and numbers.
    pub fn lower(&self, outputs: &[Slot], layouts: &[Layout]) -> Result<Lowered, NotLowered> {
        let row_major: Vec<Layout> =
            outputs.iter().map(|&slot| Layout::row_major(&self.ty(slot).shape)).collect();
        self.lower_to(outputs, layouts, &row_major)
    }

    /// As [`lower`](Nest::lower), with given result layouts: contiguous, in [any order](Nest::result_layouts) of their
    /// axes.
    ///
    /// # Errors
    /// As [`lower`](Nest::lower).
    ///
    /// # Panics
    /// When the number of layouts differs from the number of inputs and numbers, or that of results from the number of
    /// outputs.
    pub fn lower_to(
        &self,
        outputs: &[Slot],
        layouts: &[Layout],
        results: &[Layout],
    ) -> Result<Lowered, NotLowered> {
        assert_eq!(layouts.len(), self.num_inputs(), "[kernel] one layout for each input and number");
        assert_eq!(results.len(), outputs.len(), "[kernel] one layout for each output");
        if let Some(place) = outputs.iter().position(|&slot| !self.is_storable(slot)) {
            return Err(NotLowered::Output(place));
        }
        let needed = self.needed(outputs);
        let columns = self.has_columns(outputs);
        let of_rows: Vec<Slot> =
            outputs.iter().copied().filter(|&slot| self.state(slot).origin != Origin::Column).collect();
        let mixed = !self.agree(&of_rows, false);
        let reducing = mixed || columns || self.reducing(&needed);
        if mixed && !self.agree(&of_rows, true) {
            return Err(NotLowered::Output(outputs.len() - 1));
        }
        let params = self.params(outputs, layouts, results, &needed);
        let mut loops = self.loops(&params, reducing, columns);
        // Outputs of whole rows beside outputs with one element per row are rows, even if nothing is reduced.
        let resident = (mixed && !self.reducing(&needed))
            || columns
            || self.resident(&needed, outputs.iter().map(|&slot| self.state(slot)));
        let product = self.product.filter(|&value| needed[value as usize]);
        order(&mut loops, resident || product.is_some() || self.scans());
        if self.exact {
            self.order_reduced(&mut loops);
        }
        let indexed: Vec<AtomId> = self.indexed(&needed);
        merge(&mut loops, &indexed);
        if loops.len() > Nest::MAX_AXES || params.len() > Nest::MAX_PARAMS {
            return Err(NotLowered::TooLarge);
        }
        let (body, renamed) = self.body(&params, &loops, &needed);
        let product = product.map(|value| renamed[value as usize]);
        let kind = kind(&loops, &params, &body, product, resident);
        let kernel = Kernel {
            kind,
            axes: loops.iter().map(|axis| axis.role).collect(),
            params: params.iter().enumerate().map(|(i, param)| param.described(i, &loops)).collect(),
            body,
        };
        let binding = |(i, param): (usize, &Bound<'_>)| Binding {
            place: param.place,
            offset: param.offset,
            strides: match param.kind {
                ParamKind::Number => Vec::new(),
                ParamKind::Input | ParamKind::Output => loops.iter().map(|axis| axis.strides[i]).collect(),
            },
        };
        let launch = Launch {
            extents: loops.iter().map(|axis| axis.extent).collect(),
            bindings: params.iter().enumerate().map(binding).collect(),
        };
        let checks = self.described_checks(&kernel, &loops, &renamed);
        Ok(Lowered { kernel, launch, checks })
    }

    /// Puts the reduced axes in the order of the operand's axes, in which an op alone adds.
    fn order_reduced(&self, loops: &mut [Loop]) {
        let order = self.reduced_in_order();
        let is_reduced = |axis: &Loop| axis.role == Axis::Reduce;
        let mut reduced: Vec<Loop> = loops.iter().filter(|axis| is_reduced(axis)).cloned().collect();
        reduced.sort_by_key(|axis| order.iter().position(|&atom| atom == axis.atom));
        let places = loops.iter_mut().filter(|axis| is_reduced(axis));
        places.zip(reduced).for_each(|(place, axis)| *place = axis);
    }

    /// The bounds checks of a kernel, in its order.
    fn described_checks(&self, kernel: &Kernel, loops: &[Loop], renamed: &[ValueId]) -> Vec<Check> {
        if self.checks.is_empty() {
            return Vec::new();
        }
        let dependence = kernel.dependence();
        let mut checks: Vec<Check> = Vec::new();
        for check in &self.checks {
            let value = renamed[check.value as usize];
            if value == ValueId::MAX || checks.iter().any(|other| other.value == value) {
                continue;
            }
            let crossed = loops.iter().enumerate().filter(|(i, _)| dependence[value as usize] & 1 << i != 0);
            let (mut divisors, mut divisor): (Vec<(AtomId, usize)>, usize) = (Vec::new(), 1);
            for (_, axis) in crossed.rev() {
                for &atom in core::iter::once(&axis.atom).chain(&axis.outer) {
                    divisors.push((atom, divisor));
                    divisor *= self.atoms.extent(atom);
                }
            }
            let index = self.state(check.index);
            let (mut terms, mut inner) = (Vec::new(), (usize::MAX, 1));
            for &(axis, atom) in self.leaves(index).iter().rev() {
                let (axis, extent) = (axis as usize, self.atoms.extent(atom));
                let factor = if inner.0 == axis { inner.1 } else { 1 };
                if let Some(&(_, divisor)) = divisors.iter().find(|(other, _)| *other == atom) {
                    terms.push(Term { divisor, extent, axis, factor });
                }
                inner = (axis, factor * extent);
            }
            let IndexCheck { op, axis, length, .. } = *check;
            checks.push(Check { value, op, axis, length, rank: index.ty.shape.rank(), terms });
        }
        checks.sort_by_key(|check| check.value);
        checks
    }

    /// The parameters: inputs and numbers that an output needs, in order, then outputs.
    fn params(
        &self,
        outputs: &[Slot],
        layouts: &[Layout],
        results: &[Layout],
        needed: &[bool],
    ) -> Vec<Bound<'_>> {
        let mut params = self.operands(layouts, needed);
        for (place, (&slot, layout)) in outputs.iter().zip(results).enumerate() {
            let slot = self.state(slot);
            params.push(Bound {
                kind: ParamKind::Output,
                place,
                value: slot.value,
                slot,
                offset: 0,
                strides: layout.0.clone(),
            });
        }
        params
    }

    /// The inputs and plain numbers that an output needs, in order.
    pub(crate) fn operands(&self, layouts: &[Layout], needed: &[bool]) -> Vec<Bound<'_>> {
        let mut params = Vec::new();
        for slot in &self.slots {
            if !needed[slot.value as usize] || slot.origin != Origin::Input {
                continue;
            }
            let compute = self.values[slot.value as usize].compute;
            let (place, kind) = match (compute.load(), compute.param()) {
                (Some(place), _) => (place as usize, ParamKind::Input),
                (None, Some(place)) => (place as usize, ParamKind::Number),
                (None, None) => continue,
            };
            let strides = layouts[place].0.clone();
            let before =
                self.low_padding(slot.value).iter().zip(&strides).map(|(&low, stride)| low as isize * stride);
            let offset = -before.sum::<isize>();
            params.push(Bound { kind, place, value: slot.value, slot, offset, strides });
        }
        params.sort_by_key(|param| param.place);
        params
    }

    /// For each value, whether an output depends on it.
    pub(crate) fn needed(&self, outputs: &[Slot]) -> Vec<bool> {
        let mut needed = alloc::vec![false; self.values.len()];
        for &slot in outputs {
            needed[self.state(slot).value as usize] = true;
        }
        for value in (0..self.values.len()).rev() {
            if needed[value] {
                for operand in self.values[value].compute.operands() {
                    needed[operand as usize] = true;
                }
            }
        }
        needed
    }

    /// Whether the outputs need a reduction or a scan. If not, reduced axes are treated like any other.
    fn reducing(&self, needed: &[bool]) -> bool {
        let combines = |value: &NestValue| value.compute.is_reduction() || value.compute.is_scan();
        self.values.iter().zip(needed).any(|(value, &needed)| needed && combines(value))
    }

    /// Whether all outputs have the same axes, or the same parallel axes.
    fn agree(&self, outputs: &[Slot], parallel: bool) -> bool {
        let crossed = |slot: Slot| {
            let leaves = self.leaves(self.state(slot)).into_iter().map(|(_, atom)| atom);
            let mut atoms: Vec<AtomId> =
                leaves.filter(|&atom| !parallel || !self.atoms.is_reduced(atom)).collect();
            atoms.sort_unstable();
            atoms
        };
        outputs.windows(2).all(|pair| crossed(pair[0]) == crossed(pair[1]))
    }

    /// The atoms of the index space as loops: in the memory order of the largest output, then of the largest operand.
    fn loops(&self, params: &[Bound<'_>], reducing: bool, columns: bool) -> Vec<Loop> {
        let largest = |kind: ParamKind| {
            let of_kind = params.iter().filter(move |param| param.kind == kind);
            of_kind.max_by_key(|param| (param.slot.ty.num_elements(), Reverse(param.place)))
        };
        let mut atoms: Vec<AtomId> = Vec::new();
        let mut add = |atom: AtomId| {
            if !atoms.contains(&atom) {
                atoms.push(atom);
            }
        };
        let output = largest(ParamKind::Output);
        let input = largest(ParamKind::Input);
        let elements = |param: Option<&Bound<'_>>| param.map_or(0, |param| param.slot.ty.num_elements());
        // The axes of a matmul keep the order of its result.
        if elements(input) > elements(output)
            && self.product.is_none()
            && let Some(input) = input
        {
            self.in_memory(input)
                .into_iter()
                .filter(|&(_, stride)| stride != 0)
                .for_each(|(atom, _)| add(atom));
        }
        if let Some(output) = output {
            self.in_memory(output).into_iter().for_each(|(atom, _)| add(atom));
        }
        for param in params {
            self.in_memory(param).into_iter().for_each(|(atom, _)| add(atom));
        }
        if columns {
            self.space().into_iter().for_each(&mut add);
        }
        if reducing {
            // No parameter needs to have these axes.
            self.atoms.reduced().for_each(add);
        }
        let steps: Vec<Vec<(AtomId, isize)>> = params.iter().map(|param| self.steps(param)).collect();
        let stride = |steps: &Vec<(AtomId, isize)>, atom| {
            steps.iter().find(|(other, _)| *other == atom).map_or(0, |&(_, stride)| stride)
        };
        atoms
            .into_iter()
            .map(|atom| Loop {
                atom,
                outer: Vec::new(),
                role: if reducing && self.atoms.is_reduced(atom) { Axis::Reduce } else { Axis::Parallel },
                extent: self.atoms.extent(atom),
                strides: steps.iter().map(|steps| stride(steps, atom)).collect(),
            })
            .collect()
    }

    /// The atoms of a parameter with the stride along each, in memory order.
    pub(crate) fn in_memory(&self, param: &Bound<'_>) -> Vec<(AtomId, isize)> {
        let mut leaves = self.steps(param);
        leaves.sort_by_key(|&(_, stride)| Reverse(stride.unsigned_abs()));
        leaves
    }

    /// The atoms of a parameter with the stride along each.
    fn steps(&self, param: &Bound<'_>) -> Vec<(AtomId, isize)> {
        if param.kind == ParamKind::Number {
            return Vec::new();
        }
        let leaves = self.leaves(param.slot);
        let mut steps: Vec<(AtomId, isize)> = Vec::with_capacity(leaves.len());
        let mut inner: Option<(u8, isize)> = None;
        for &(axis, atom) in leaves.iter().rev() {
            let stride = match inner {
                Some((same, stride)) if same == axis => stride,
                _ => param.strides[axis as usize],
            };
            steps.push((atom, stride));
            inner = Some((axis, stride * self.atoms.extent(atom) as isize));
        }
        steps.reverse();
        steps
    }

    /// The leaves that index values need, which must stay separate axes.
    fn indexed(&self, needed: &[bool]) -> Vec<AtomId> {
        let mut indexed = Vec::new();
        for (value, _) in self.values.iter().zip(needed).filter(|(_, needed)| **needed) {
            if let Compute::Index(atom) = value.compute {
                indexed.extend(self.atoms.leaves_of(atom as AtomId));
            }
        }
        indexed
    }

    /// The instructions that the outputs need, and the new number of each value.
    fn body(
        &self,
        params: &[Bound<'_>],
        loops: &[Loop],
        needed: &[bool],
    ) -> (Vec<Instruction>, Vec<ValueId>) {
        let mut body: Vec<Instruction> = Vec::new();
        let mut renamed: Vec<ValueId> = alloc::vec![ValueId::MAX; self.values.len()];
        for (old, value) in self.values.iter().enumerate().filter(|&(old, _)| needed[old]) {
            let param_of = || {
                let is_read =
                    |param: &Bound<'_>| param.value as usize == old && param.kind != ParamKind::Output;
                params.iter().position(is_read).expect("all inputs that are needed are parameters") as u32
            };
            let to = |old: ValueId| renamed[old as usize];
            let compute = match value.compute {
                Compute::Load(_) => Compute::Load(param_of()),
                Compute::LoadWhere(_, condition) => Compute::LoadWhere(param_of(), to(condition)),
                Compute::LoadAt { offset, condition, .. } => {
                    let (param, load) = (param_of(), self.indexed_load(old as ValueId));
                    let offset = params[param as usize].offset_along(load, to(offset), &mut body);
                    Compute::LoadAt { param, offset, condition: to(condition) }
                }
                Compute::Number(_) => Compute::Number(param_of()),
                Compute::Constant(scalar) => Compute::Constant(scalar),
                Compute::Index(atom) => {
                    renamed[old] = self.index(atom as AtomId, value.dtype, loops, &mut body);
                    continue;
                }
                Compute::Unary(function, a) => Compute::Unary(function, to(a)),
                Compute::Binary(function, a, b) => Compute::Binary(function, to(a), to(b)),
                Compute::Compare(comparison, a, b) => Compute::Compare(comparison, to(a), to(b)),
                Compute::Select(condition, a, b) => Compute::Select(to(condition), to(a), to(b)),
                Compute::Cast(a) => Compute::Cast(to(a)),
                Compute::Bitcast(a) => Compute::Bitcast(to(a)),
                Compute::Reduce(reduction, a) => Compute::Reduce(reduction, to(a)),
                Compute::ColumnReduce(reduction, a) => Compute::ColumnReduce(reduction, to(a)),
                Compute::Scan { reduction, reverse, exclusive, value } => {
                    Compute::Scan { reduction, reverse, exclusive, value: to(value) }
                }
                Compute::Checked(a, bound) => Compute::Checked(to(a), to(bound)),
                Compute::Store(param, a) => Compute::Store(param, to(a)),
            };
            renamed[old] = emit(&mut body, compute, value.dtype);
            if self.is_seen_rounded(old, params, needed) {
                renamed[old] = emit(&mut body, Compute::Cast(renamed[old]), value.dtype);
            }
        }
        for (i, param) in params.iter().enumerate() {
            if param.kind == ParamKind::Output {
                emit(&mut body, Compute::Store(i as u32, renamed[param.value as usize]), param.slot.ty.dtype);
            }
        }
        (body, renamed)
    }

    fn indexed_load(&self, value: ValueId) -> &IndexedLoad {
        let found = self.indexed.iter().find(|load| load.value == value);
        found.expect("every load by index is listed")
    }

    /// Whether a value is the result of an op.
    fn is_result(&self, value: ValueId) -> bool {
        self.slots.iter().any(|slot| slot.value == value && slot.origin != Origin::Input)
    }

    /// Whether a value is a 16-bit float that is both stored and used, or an op's result in an exact region. Other kernels use the stored, rounded value, so
    /// this one does too. Recomputed values must be bitwise equal, or an element would not equal the maximum of its
    /// row.
    fn is_seen_rounded(&self, value: usize, params: &[Bound<'_>], needed: &[bool]) -> bool {
        let is_stored = |param: &Bound<'_>| param.kind == ParamKind::Output && param.value as usize == value;
        let uses = |(user, other): (usize, &NestValue)| {
            needed[user] && other.compute.operands().contains(&(value as ValueId))
        };
        !self.is_exact(value as ValueId)
            && (self.exact && self.is_result(value as ValueId)
                || params.iter().any(is_stored) && self.values.iter().enumerate().any(uses))
    }

    /// The index along an atom, computed from its leaves if it was split.
    fn index(&self, atom: AtomId, dtype: DType, loops: &[Loop], body: &mut Vec<Instruction>) -> ValueId {
        let mut sum: Option<ValueId> = None;
        for leaf in self.atoms.leaves_of(atom) {
            let axis = loops.iter().position(|axis| axis.atom == leaf);
            let axis = axis.expect("an index is computed at every point of its axis");
            if let Some(outer) = sum {
                let extent = Scalar::Int(self.atoms.extent(leaf) as i64);
                let extent = emit(body, Compute::Constant(extent), dtype);
                sum = Some(emit(body, Compute::Binary(Binary::Mul, outer, extent), dtype));
            }
            let index = emit(body, Compute::Index(axis as u32), dtype);
            sum = Some(match sum {
                Some(outer) => emit(body, Compute::Binary(Binary::Add, outer, index), dtype),
                None => index,
            });
        }
        sum.unwrap_or_else(|| emit(body, Compute::Constant(Scalar::Int(0)), dtype))
    }
}

/// Returns an existing equal instruction, or appends a new one.
fn emit(body: &mut Vec<Instruction>, compute: Compute, dtype: DType) -> ValueId {
    let instruction = Instruction { compute, dtype };
    let is_store = compute.store().is_some();
    if let Some(value) = body.iter().position(|other| *other == instruction && !is_store) {
        return value as ValueId;
    }
    body.push(instruction);
    (body.len() - 1) as ValueId
}

/// A parameter with the index of its operand or result.
pub(crate) struct Bound<'a> {
    pub(crate) kind: ParamKind,
    place: usize,
    value: ValueId,
    pub(crate) slot: &'a SlotState,
    /// The offset of the element at index 0 of each axis.
    offset: isize,
    /// The stride along each axis of the tensor.
    strides: Vec<isize>,
}

impl Bound<'_> {
    /// The offset of an index along an axis, in a dtype that can represent every offset within the tensor.
    fn offset_along(&self, load: &IndexedLoad, index: ValueId, body: &mut Vec<Instruction>) -> ValueId {
        let IndexedLoad { axis, length, .. } = *load;
        let lengths = self.slot.ty.shape.with(axis, length);
        let reach =
            |(&length, stride): (&usize, &isize)| (length as u128 - 1) * stride.unsigned_abs() as u128;
        let span: u128 = lengths.iter().zip(&self.strides).map(reach).sum();
        let dtype = holding(DType::I32, usize::try_from(span).unwrap_or(usize::MAX));
        let index = match body[index as usize].dtype == dtype {
            true => index,
            false => emit(body, Compute::Cast(index), dtype),
        };
        let stride = emit(body, Compute::Constant(Scalar::Int(self.strides[axis] as i64)), dtype);
        emit(body, Compute::Binary(Binary::Mul, index, stride), dtype)
    }

    fn described(&self, place: usize, loops: &[Loop]) -> Param {
        let class = |axis: &Loop| match axis.strides[place] {
            0 => StrideClass::Zero,
            1 => StrideClass::One,
            _ => StrideClass::Any,
        };
        let strides = match self.kind {
            ParamKind::Number => Vec::new(),
            ParamKind::Input | ParamKind::Output => loops.iter().map(class).collect(),
        };
        Param { kind: self.kind, dtype: self.slot.ty.dtype, strides }
    }
}

/// Moves reduced axes innermost if rows must stay resident, or if the innermost axis is reduced anyway.
fn order(loops: &mut [Loop], resident: bool) {
    if resident || loops.last().is_some_and(|axis| axis.role == Axis::Reduce) {
        loops.sort_by_key(|axis| axis.role == Axis::Reduce);
    }
}

/// Merges adjacent axes whose strides match in every parameter.
fn merge(loops: &mut Vec<Loop>, indexed: &[AtomId]) {
    let mut i = 1;
    while i < loops.len() {
        let (outer, inner) = (&loops[i - 1], &loops[i]);
        let alike = outer.role == inner.role
            && !indexed.contains(&outer.atom)
            && !indexed.contains(&inner.atom)
            && outer.strides.iter().zip(&inner.strides).all(|(&a, &b)| a == b * inner.extent as isize);
        if alike {
            let outer = loops.remove(i - 1);
            loops[i - 1].extent *= outer.extent;
            loops[i - 1].outer.push(outer.atom);
            loops[i - 1].outer.extend(outer.outer);
        } else {
            i += 1;
        }
    }
}

fn kind(
    loops: &[Loop],
    params: &[Bound<'_>],
    body: &[Instruction],
    product: Option<ValueId>,
    resident: bool,
) -> KernelKind {
    if body.iter().any(|instruction| instruction.compute.is_scan()) {
        return KernelKind::Scan;
    }
    if let Some(product) = product {
        return KernelKind::MatMul(product);
    }
    let reduces = |axis: &Loop| axis.role == Axis::Reduce;
    if !loops.iter().any(reduces) {
        return if is_transposed(loops, params) { KernelKind::Transpose } else { KernelKind::Map };
    }
    if resident {
        return KernelKind::RowReduce;
    }
    if loops.iter().all(reduces) {
        return KernelKind::FullReduce;
    }
    if loops.last().is_some_and(reduces) { KernelKind::RowReduce } else { KernelKind::ColReduce }
}

/// Whether an operand is contiguous along another axis than the last one.
fn is_transposed(loops: &[Loop], params: &[Bound<'_>]) -> bool {
    let Some((last, outer)) = loops.split_last() else { return false };
    let inputs = params.iter().enumerate().filter(|(_, param)| param.kind == ParamKind::Input);
    inputs.into_iter().any(|(i, _)| {
        let step = last.strides[i].unsigned_abs();
        step > 1 && outer.iter().any(|axis| axis.strides[i].unsigned_abs() == 1)
    })
}
