//! Adding ops to a loop nest.

use super::{AtomId, AxisAtoms, Checked, Nest, NestValue, Operand, Origin, Refusal, Slot, SlotState};
use crate::{Compute, ValueId};
use alloc::vec::Vec;
use kiln_ir::{Axes, Binary, DType, NormKind, Op, Reduction, Scalar, Shape, TensorType, Unary};

/// The atoms of each axis, one run per axis.
pub(super) fn runs(axes: &AxisAtoms, rank: usize) -> Vec<Vec<AtomId>> {
    let mut runs = alloc::vec![Vec::new(); rank];
    for &(axis, atom) in axes {
        runs[axis as usize].push(atom);
    }
    runs
}

/// The dtype itself if it can represent the length, otherwise the narrowest common one that can.
pub(crate) fn holding(dtype: DType, length: usize) -> DType {
    let bits = dtype.size() * 8 - usize::from(dtype.is_signed_int());
    let fits = |bits: usize| bits >= usize::BITS as usize || length < 1 << bits;
    match (fits(bits), fits(31)) {
        (true, _) => dtype,
        (false, true) => DType::I32,
        (false, false) => DType::I64,
    }
}

impl Nest {
    /// Adds an op with one result to the region. A refused op leaves the region unchanged.
    ///
    /// If an operand shares no axes with the region yet, its axes are identified with those of a tensor of the same
    /// shape.
    ///
    /// # Errors
    /// When the op has no kernel form, or its axes do not match the region's.
    pub fn push(&mut self, op: &Op, operands: &[Operand], results: &[TensorType]) -> Result<Slot, Refusal> {
        let [result] = results else { return Err(Refusal::NoKernel) };
        let before = self.savepoint();
        let refusal = match self.attempt(op, operands, *result) {
            Ok(slot) => return Ok(slot),
            Err(refusal) => refusal,
        };
        self.rollback(before);
        match refusal {
            Refusal::Space | Refusal::Reduction => self.push_beside(op, operands, *result).ok_or(refusal),
            Refusal::NoKernel | Refusal::Axes | Refusal::Diagonal | Refusal::Empty | Refusal::Product => {
                Err(refusal)
            }
        }
    }

    fn attempt(&mut self, op: &Op, operands: &[Operand], ty: TensorType) -> Result<Slot, Refusal> {
        let slot = self.try_push(op, operands, ty)?;
        self.check()?;
        Ok(slot)
    }

    /// Pushes an op after identifying the axes of an operand with those of another tensor of its shape.
    fn push_beside(&mut self, op: &Op, operands: &[Operand], ty: TensorType) -> Option<Slot> {
        /// The maximum number of tensors that are tried.
        const MAX_TRIED: usize = 8;
        let mut tried: Vec<(Slot, AxisAtoms)> = Vec::new();
        for operand in operands {
            let Operand::Slot(x) = *operand else { continue };
            for other in (0..self.slots.len() as u32).rev().map(Slot) {
                let state = self.state(other);
                let axes = self.leaves(state);
                if other == x
                    || state.ty.shape != self.ty(x).shape
                    || axes == self.leaves(self.state(x))
                    || tried.contains(&(x, axes.clone()))
                {
                    continue;
                }
                if tried.len() == MAX_TRIED {
                    return None;
                }
                tried.push((x, axes));
                let before = self.savepoint();
                let pushed = self.same_axes(other, x).and_then(|()| self.attempt(op, operands, ty));
                match pushed {
                    Ok(slot) => return Some(slot),
                    Err(_) => self.rollback(before),
                }
            }
        }
        None
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "an op without an arm has no kernel form")]
    fn try_push(&mut self, op: &Op, operands: &[Operand], ty: TensorType) -> Result<Slot, Refusal> {
        if ty.num_elements() == 0 || self.has_empty(operands) {
            return Err(Refusal::Empty);
        }
        match op {
            Op::Full(_) => {
                let value = self.constant_of(&operands[0], ty.dtype);
                let axes = self.fresh(&ty.shape);
                Ok(self.slot(SlotState { ty, value, axes, origin: Origin::View }))
            }
            Op::Iota { axis, .. } => self.iota(ty, *axis),
            Op::Unary(function) => {
                let x = self.tensor(&operands[0])?;
                let value = self.value(Compute::Unary(*function, self.state(x).value), ty.dtype);
                self.like(x, ty, value)
            }
            Op::Binary(function) => {
                let (a, b, like) = self.pair(&operands[0], &operands[1])?;
                let value = self.value(Compute::Binary(*function, a, b), ty.dtype);
                self.like(like, ty, value)
            }
            Op::Compare(comparison) => {
                let (a, b, like) = self.pair(&operands[0], &operands[1])?;
                let (a, b) = (self.rounded(a), self.rounded(b));
                let value = self.value(Compute::Compare(*comparison, a, b), ty.dtype);
                self.like(like, ty, value)
            }
            Op::Select => {
                let condition = self.tensor(&operands[0])?;
                let (a, b, like) = self.pair(&operands[1], &operands[2])?;
                self.same_axes(condition, like)?;
                let condition = self.state(condition).value;
                let value = self.value(Compute::Select(condition, a, b), ty.dtype);
                self.like(like, ty, value)
            }
            Op::Cast(_) => {
                let x = self.tensor(&operands[0])?;
                let value = self.cast(self.state(x).value, ty.dtype);
                self.like(x, ty, value)
            }
            Op::Bitcast(_) => {
                let x = self.tensor(&operands[0])?;
                let narrow = |dtype: DType| dtype.is_float() && dtype.size() == 2;
                if narrow(self.ty(x).dtype) || narrow(ty.dtype) {
                    return Err(Refusal::NoKernel);
                }
                let value = self.value(Compute::Bitcast(self.state(x).value), ty.dtype);
                self.like(x, ty, value)
            }
            Op::Copy => {
                let x = self.tensor(&operands[0])?;
                let value = self.state(x).value;
                self.like(x, ty, value)
            }
            Op::Reshape(shape) => self.reshape(operands, shape, ty),
            Op::Permute(axes) => self.permute(operands, axes, ty),
            Op::Broadcast(shape) => self.broadcast(operands, shape, ty),
            Op::Reduce { reduction, axes } => {
                let x = self.tensor(&operands[0])?;
                self.reduce(x, *reduction, &axes.to_vec())
            }
            Op::Scan { reduction, axis, reverse, exclusive } => {
                self.scan(operands, *reduction, *axis, *reverse, *exclusive, ty)
            }
            Op::Softmax { axis, log } => {
                let x = self.tensor(&operands[0])?;
                self.softmax(x, *axis, *log)
            }
            Op::Norm { kind, axes, epsilon } => self.norm(operands, *kind, *axes, epsilon.0),
            Op::MatMul => self.matmul(operands, ty),
            Op::Take { axis } => self.take(operands, *axis, ty),
            Op::Gather { axis } => self.gather(operands, *axis, ty),
            Op::Pad(pads) => self.pad(operands, pads, ty),
            Op::Concat { axis } => self.concat(operands, *axis, ty),
            Op::Scatter { axis, mode } => self.scatter(operands, *axis, *mode, ty),
            _ => Err(Refusal::NoKernel),
        }
    }

    fn has_empty(&self, operands: &[Operand]) -> bool {
        operands.iter().any(|operand| match operand {
            Operand::Slot(slot) => self.ty(*slot).num_elements() == 0,
            Operand::Scalar(_) => false,
        })
    }

    /// Checks the invariants of every region. No tensor has an atom twice. Every value that may be stored is computed
    /// at every point of the parallel index space.
    fn check(&mut self) -> Result<(), Refusal> {
        if self.values.len() > Nest::MAX_VALUES {
            return Err(Refusal::NoKernel);
        }
        if self.atoms.has_changed() {
            self.checked = Checked::default();
        }
        for slot in &self.slots[self.checked.slots..] {
            let leaves = self.leaves(slot);
            let twice =
                |(i, (_, atom)): (usize, &(u8, AtomId))| leaves[..i].iter().any(|(_, other)| other == atom);
            if leaves.iter().enumerate().any(twice) {
                return Err(Refusal::Diagonal);
            }
            self.check_column(slot)?;
        }
        let new = &self.slots[self.checked.slots..];
        let mut computed = new.iter().filter(|slot| slot.origin == Origin::Computed).peekable();
        if computed.peek().is_some() {
            // Slots of earlier checks determined the space.
            let space = self.checked.space.clone().unwrap_or_else(|| self.space());
            if !computed.all(|slot| self.covers(slot, &space)) {
                return Err(Refusal::Space);
            }
            self.checked.space = Some(space);
        }
        self.checked.slots = self.slots.len();
        self.atoms.settle();
        // A scan runs along one axis.
        if self.scans() && self.atoms.reduced().count() != 1 {
            return Err(Refusal::Reduction);
        }
        Ok(())
    }

    pub(crate) fn scans(&self) -> bool {
        self.values.iter().any(|value| value.compute.is_scan())
    }

    /// The parallel atoms of everything that the region must compute.
    pub(crate) fn space(&self) -> Vec<AtomId> {
        let mut space: Vec<AtomId> = Vec::new();
        for slot in self.slots.iter().filter(|slot| slot.origin == Origin::Computed) {
            for atom in self.parallel_leaves(slot) {
                if !space.contains(&atom) {
                    space.push(atom);
                }
            }
        }
        space
    }

    /// The parallel atoms of a slot.
    pub(crate) fn parallel_leaves(&self, slot: &SlotState) -> Vec<AtomId> {
        let leaves = self.leaves(slot).into_iter().map(|(_, atom)| atom);
        leaves.filter(|&atom| !self.atoms.is_reduced(atom)).collect()
    }

    /// Whether a slot has exactly these parallel atoms, and all reduced ones or none.
    pub(crate) fn covers(&self, slot: &SlotState, space: &[AtomId]) -> bool {
        let parallel = self.parallel_leaves(slot);
        let along = self.leaves(slot).len() - parallel.len();
        parallel.len() == space.len()
            && space.iter().all(|atom| parallel.contains(atom))
            && (along == 0 || along == self.atoms.reduced().count())
    }

    pub(super) fn tensor(&self, operand: &Operand) -> Result<Slot, Refusal> {
        match operand {
            Operand::Slot(slot) => Ok(*slot),
            Operand::Scalar(_) => Err(Refusal::NoKernel),
        }
    }

    /// The value of a plain number or of a rank-0 tensor.
    fn constant_of(&mut self, operand: &Operand, dtype: DType) -> ValueId {
        match *operand {
            Operand::Slot(slot) => self.state(slot).value,
            Operand::Scalar(scalar) => self.value(Compute::Constant(scalar), dtype),
        }
    }

    /// The values of two operands of the same shape, one of which may be a plain number, and a tensor with the result's
    /// axes.
    fn pair(&mut self, a: &Operand, b: &Operand) -> Result<(ValueId, ValueId, Slot), Refusal> {
        match (*a, *b) {
            (Operand::Slot(a), Operand::Slot(b)) => {
                self.same_axes(a, b)?;
                Ok((self.state(a).value, self.state(b).value, a))
            }
            (Operand::Slot(a), Operand::Scalar(scalar)) => {
                let number = self.value(Compute::Constant(scalar), self.ty(a).dtype);
                Ok((self.state(a).value, number, a))
            }
            (Operand::Scalar(scalar), Operand::Slot(b)) => {
                let number = self.value(Compute::Constant(scalar), self.ty(b).dtype);
                Ok((number, self.state(b).value, b))
            }
            (Operand::Scalar(_), Operand::Scalar(_)) => Err(Refusal::NoKernel),
        }
    }

    pub(super) fn same_axes(&mut self, a: Slot, b: Slot) -> Result<(), Refusal> {
        if a == b {
            return Ok(());
        }
        self.same_axes_where(a, b, |_| true)
    }

    /// Identifies some axes of two tensors of one rank.
    pub(super) fn same_axes_where(
        &mut self,
        a: Slot,
        b: Slot,
        is_same: impl Fn(usize) -> bool,
    ) -> Result<(), Refusal> {
        let rank = self.ty(a).shape.rank();
        let (left, right) = (runs(&self.state(a).axes, rank), runs(&self.state(b).axes, rank));
        for axis in (0..rank).filter(|&axis| is_same(axis)) {
            self.atoms.unify(&left[axis], &right[axis])?;
        }
        Ok(())
    }

    pub(super) fn like(&mut self, x: Slot, ty: TensorType, value: ValueId) -> Result<Slot, Refusal> {
        let axes = self.state(x).axes.clone();
        Ok(self.computed(ty, value, axes))
    }

    pub(super) fn computed(&mut self, ty: TensorType, value: ValueId, axes: AxisAtoms) -> Slot {
        let free = self.values[value as usize].free;
        let origin = match free {
            true => Origin::Free,
            false if self.is_column(&axes) => Origin::Column,
            false => Origin::Computed,
        };
        self.slot(SlotState { ty, value, axes, origin })
    }

    fn view(&mut self, x: Slot, ty: TensorType, axes: AxisAtoms) -> Slot {
        let value = self.state(x).value;
        self.slot(SlotState { ty, value, axes, origin: Origin::View })
    }

    /// A 16-bit float rounded as in memory. Comparisons need exact equality: an element would otherwise differ from the
    /// maximum of its row, which was stored.
    fn rounded(&mut self, value: ValueId) -> ValueId {
        if self.is_exact(value) {
            return value;
        }
        self.value(Compute::Cast(value), self.values[value as usize].dtype)
    }

    /// Whether a value equals its rounded form in memory.
    pub(crate) fn is_exact(&self, value: ValueId) -> bool {
        let NestValue { compute, dtype, .. } = self.values[value as usize];
        !dtype.is_float()
            || dtype.size() != 2
            || compute.load().is_some()
            || matches!(compute, Compute::Number(_) | Compute::Constant(_) | Compute::Cast(_))
    }

    pub(super) fn cast(&mut self, value: ValueId, dtype: DType) -> ValueId {
        if self.values[value as usize].dtype == dtype {
            return value;
        }
        self.value(Compute::Cast(value), dtype)
    }

    fn iota(&mut self, ty: TensorType, axis: usize) -> Result<Slot, Refusal> {
        let axes = self.fresh(&ty.shape);
        let atom = axes.iter().find(|(at, _)| *at as usize == axis);
        let value = match atom {
            Some(&(_, atom)) => self.value(Compute::Index(u32::from(atom)), ty.dtype),
            None => self.value(Compute::Constant(Scalar::Int(0)), ty.dtype),
        };
        Ok(self.slot(SlotState { ty, value, axes, origin: Origin::View }))
    }

    fn reshape(&mut self, operands: &[Operand], shape: &Shape, ty: TensorType) -> Result<Slot, Refusal> {
        let x = self.tensor(&operands[0])?;
        let leaves = self.leaves(self.state(x));
        // The atoms left to assign, outermost last.
        let mut left: Vec<AtomId> = leaves.iter().rev().map(|&(_, atom)| atom).collect();
        let mut axes = AxisAtoms::new();
        for (axis, &length) in shape.iter().enumerate() {
            let mut wanted = length;
            while wanted != 1 {
                let atom = left.pop().ok_or(Refusal::Axes)?;
                let extent = self.atoms.extent(atom);
                if wanted.is_multiple_of(extent) {
                    axes.push((axis as u8, atom));
                    wanted /= extent;
                    continue;
                }
                let (outer, inner) = self.atoms.split(atom, wanted).ok_or(Refusal::Axes)?;
                axes.push((axis as u8, outer));
                left.push(inner);
                wanted = 1;
            }
        }
        Ok(self.view(x, ty, axes))
    }

    fn permute(&mut self, operands: &[Operand], order: &Axes, ty: TensorType) -> Result<Slot, Refusal> {
        let x = self.tensor(&operands[0])?;
        let old = self.state(x).axes.clone();
        let mut axes = AxisAtoms::new();
        for (to, from) in order.iter().enumerate() {
            let run = old.iter().filter(|(axis, _)| *axis as usize == from);
            axes.extend(run.map(|&(_, atom)| (to as u8, atom)));
        }
        Ok(self.view(x, ty, axes))
    }

    fn broadcast(&mut self, operands: &[Operand], shape: &Shape, ty: TensorType) -> Result<Slot, Refusal> {
        let x = self.tensor(&operands[0])?;
        let axes = self.broadcast_axes(x, shape);
        Ok(self.view(x, ty, axes))
    }

    fn broadcast_axes(&mut self, x: Slot, shape: &Shape) -> AxisAtoms {
        let state = self.state(x);
        let (old, from) = (state.axes.clone(), state.ty.shape);
        let added = shape.rank() - from.rank();
        let mut axes = AxisAtoms::new();
        for (axis, &length) in shape.iter().enumerate() {
            let source = axis.checked_sub(added).filter(|&source| from[source] == length);
            match source {
                Some(source) => {
                    let run = old.iter().filter(|(at, _)| *at as usize == source);
                    axes.extend(run.map(|&(_, atom)| (axis as u8, atom)));
                }
                None if length != 1 => axes.push((axis as u8, self.atoms.add(length))),
                None => {}
            }
        }
        axes
    }

    /// Marks axes of a tensor as the region's reduced axes.
    pub(super) fn mark(&mut self, x: Slot, axes: &[usize]) -> Result<(), Refusal> {
        let leaves = self.leaves(self.state(x));
        let along: Vec<AtomId> = leaves
            .iter()
            .filter(|(axis, _)| axes.contains(&(*axis as usize)))
            .map(|&(_, atom)| atom)
            .collect();
        let marked: Vec<AtomId> = self.atoms.reduced().collect();
        if marked.is_empty() {
            along.iter().for_each(|&atom| self.atoms.set_reduced(atom));
            self.reduced = along.into();
            return Ok(());
        }
        let same = match self.exact {
            true => along == self.reduced_in_order(),
            false => along.len() == marked.len() && along.iter().all(|atom| marked.contains(atom)),
        };
        // Other reduced axes would have to be parallel at the same time.
        if same { Ok(()) } else { Err(Refusal::Reduction) }
    }

    /// The sum of one value. A sum starts with 0, so it is never -0.
    fn plus_zero(&mut self, value: ValueId) -> ValueId {
        let dtype = self.values[value as usize].dtype;
        let zero = self.value(Compute::Constant(Scalar::Float(0.0)), dtype);
        self.value(Compute::Binary(Binary::Add, value, zero), dtype)
    }

    /// The reduced leaves, in the order of the first reduction's operand.
    pub(crate) fn reduced_in_order(&self) -> Vec<AtomId> {
        self.reduced.iter().flat_map(|&atom| self.atoms.leaves_of(atom)).collect()
    }

    fn reduce(&mut self, x: Slot, reduction: Reduction, axes: &[usize]) -> Result<Slot, Refusal> {
        let state = self.state(x).clone();
        let along: Vec<usize> = axes.iter().copied().filter(|&axis| state.ty.shape[axis] != 1).collect();
        let mut shape = state.ty.shape;
        for &axis in axes {
            shape = shape.with(axis, 1);
        }
        let ty = state.ty.with_shape(shape);
        let kept: AxisAtoms =
            state.axes.iter().filter(|(axis, _)| !along.contains(&(*axis as usize))).copied().collect();
        if along.is_empty() {
            let value = match reduction {
                Reduction::Sum if self.exact && state.ty.dtype.is_float() => self.plus_zero(state.value),
                Reduction::Sum | Reduction::Prod | Reduction::Min | Reduction::Max => state.value,
            };
            return Ok(self.computed(ty, value, kept));
        }
        if self.scans() {
            return Err(Refusal::Reduction);
        }
        if self.is_over_rows(&state, &along)? {
            let value = self.value(Compute::ColumnReduce(reduction, state.value), state.ty.dtype);
            return Ok(self.computed(ty, value, kept));
        }
        self.mark(x, &along)?;
        let value = self.value(Compute::Reduce(reduction, state.value), state.ty.dtype);
        Ok(self.computed(ty, value, kept))
    }

    fn scan(
        &mut self,
        operands: &[Operand],
        reduction: Reduction,
        axis: usize,
        reverse: bool,
        exclusive: bool,
        ty: TensorType,
    ) -> Result<Slot, Refusal> {
        let x = self.tensor(&operands[0])?;
        if self.reduces() {
            return Err(Refusal::Reduction);
        }
        let value = self.state(x).value;
        if ty.shape[axis] == 1 {
            let value = match exclusive {
                true => self.value(Compute::Constant(reduction.identity(ty.dtype)), ty.dtype),
                false => value,
            };
            return self.like(x, ty, value);
        }
        self.mark(x, &[axis])?;
        let value = self.value(Compute::Scan { reduction, reverse, exclusive, value }, ty.dtype);
        self.like(x, ty, value)
    }

    fn unary(&mut self, function: Unary, x: Slot) -> Slot {
        let state = self.state(x).clone();
        let value = self.value(Compute::Unary(function, state.value), state.ty.dtype);
        self.computed(state.ty, value, state.axes)
    }

    /// A binary function whose second operand has length 1 or no axis where the first is longer.
    fn binary(&mut self, function: Binary, a: Slot, b: Slot) -> Result<Slot, Refusal> {
        let shape = self.ty(a).shape;
        let ty = self.ty(b).with_shape(shape);
        let axes = self.broadcast_axes(b, &shape);
        let b = self.view(b, ty, axes);
        self.same_axes(a, b)?;
        let state = self.state(a).clone();
        let value = self.value(Compute::Binary(function, state.value, self.state(b).value), state.ty.dtype);
        Ok(self.computed(state.ty, value, state.axes))
    }

    fn with_number(&mut self, function: Binary, x: Slot, number: f64) -> Slot {
        let state = self.state(x).clone();
        let number = self.value(Compute::Constant(Scalar::Float(number)), state.ty.dtype);
        let value = self.value(Compute::Binary(function, state.value, number), state.ty.dtype);
        self.computed(state.ty, value, state.axes)
    }

    fn cast_slot(&mut self, x: Slot, dtype: DType) -> Slot {
        let state = self.state(x).clone();
        if state.ty.dtype == dtype {
            return x;
        }
        let value = self.cast(state.value, dtype);
        let ty = TensorType::new(state.ty.shape, dtype);
        // An operand that lacks axes of the region cannot be its result, in any dtype.
        let origin = match state.origin {
            Origin::Computed | Origin::Free | Origin::Column => state.origin,
            Origin::Input | Origin::View | Origin::Prologue => Origin::View,
        };
        self.slot(SlotState { ty, value, axes: state.axes, origin })
    }

    fn softmax(&mut self, x: Slot, axis: usize, log: bool) -> Result<Slot, Refusal> {
        let dtype = self.ty(x).dtype;
        let x = self.cast_slot(x, dtype.accumulator());
        let greatest = self.reduce(x, Reduction::Max, &[axis])?;
        let shifted = self.binary(Binary::Sub, x, greatest)?;
        let exp = self.unary(Unary::Exp, shifted);
        let sum = self.reduce(exp, Reduction::Sum, &[axis])?;
        let y = if log {
            let sum = self.unary(Unary::Ln, sum);
            self.binary(Binary::Sub, shifted, sum)?
        } else {
            let scale = self.unary(Unary::Recip, sum);
            self.binary(Binary::Mul, exp, scale)?
        };
        Ok(self.cast_slot(y, dtype))
    }

    fn norm(
        &mut self,
        operands: &[Operand],
        kind: NormKind,
        axes: usize,
        epsilon: f64,
    ) -> Result<Slot, Refusal> {
        let x = self.tensor(&operands[0])?;
        let dtype = self.ty(x).dtype;
        let shape = self.ty(x).shape;
        let row: Vec<usize> = (shape.rank() - axes..shape.rank()).collect();
        let length: usize = row.iter().map(|&axis| shape[axis]).product();
        let mut x = self.cast_slot(x, dtype.accumulator());
        if kind == NormKind::Layer {
            let sum = self.reduce(x, Reduction::Sum, &row)?;
            let mean = self.with_number(Binary::Mul, sum, 1.0 / length as f64);
            x = self.binary(Binary::Sub, x, mean)?;
        }
        let square = self.binary(Binary::Mul, x, x)?;
        let sum = self.reduce(square, Reduction::Sum, &row)?;
        let mean = self.with_number(Binary::Mul, sum, 1.0 / length as f64);
        let shifted = self.with_number(Binary::Add, mean, epsilon);
        let scale = self.unary(Unary::Rsqrt, shifted);
        let mut y = self.binary(Binary::Mul, x, scale)?;
        for (operand, function) in operands[1..].iter().zip([Binary::Mul, Binary::Add]) {
            let operand = self.tensor(operand)?;
            let operand = self.cast_slot(operand, dtype.accumulator());
            y = self.binary(function, y, operand)?;
        }
        Ok(self.cast_slot(y, dtype))
    }
}
