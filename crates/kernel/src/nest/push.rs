//! Taking ops into a region.

use super::{AtomId, AxisAtoms, Nest, Operand, Origin, Refusal, Slot, SlotState};
use crate::{Compute, ValueId};
use alloc::vec::Vec;
use kiln_ir::{Axes, Binary, DType, NormKind, Op, Reduction, Scalar, Shape, TensorType, Unary};

/// The atoms of each axis, one run per axis.
fn runs(axes: &AxisAtoms, rank: usize) -> Vec<Vec<AtomId>> {
    let mut runs = alloc::vec![Vec::new(); rank];
    for &(axis, atom) in axes {
        runs[axis as usize].push(atom);
    }
    runs
}

impl Nest {
    /// Takes an op with one result into the region. A refused op leaves the region as it was.
    ///
    /// # Errors
    /// When the op has no form in kernels, or its axes do not match the region's.
    pub fn push(&mut self, op: &Op, operands: &[Operand], results: &[TensorType]) -> Result<Slot, Refusal> {
        let [result] = results else { return Err(Refusal::NoKernel) };
        let before = self.clone();
        let pushed = self.try_push(op, operands, *result).and_then(|slot| self.check().map(|()| slot));
        if pushed.is_err() {
            *self = before;
        }
        pushed
    }

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
                let x = self.tensor(&operands[0])?;
                if self.reduces() {
                    return Err(Refusal::Reduction);
                }
                self.mark(x, &[*axis])?;
                let value = Compute::Scan {
                    reduction: *reduction,
                    reverse: *reverse,
                    exclusive: *exclusive,
                    value: self.state(x).value,
                };
                let value = self.value(value, ty.dtype);
                self.like(x, ty, value)
            }
            Op::Softmax { axis, log } => {
                let x = self.tensor(&operands[0])?;
                self.softmax(x, *axis, *log)
            }
            Op::Norm { kind, axes, epsilon } => self.norm(operands, *kind, *axes, epsilon.0),
            Op::MatMul => self.matmul(operands, ty),
            Op::Random { .. }
            | Op::Slice(_)
            | Op::Pad(_)
            | Op::Concat { .. }
            | Op::Windows { .. }
            | Op::ArgReduce { .. }
            | Op::Sort { .. }
            | Op::TopK { .. }
            | Op::Take { .. }
            | Op::Gather { .. }
            | Op::Put { .. }
            | Op::Scatter { .. }
            | Op::SliceUpdate { .. }
            | Op::NonZero { .. }
            | Op::Conv { .. }
            | Op::Pool(_)
            | Op::PoolGrad { .. }
            | Op::Attention(_)
            | Op::AttentionGrad(_)
            | Op::Resize { .. }
            | Op::Fft { .. }
            | Op::Quantize { .. }
            | Op::Dequantize
            | Op::Collective(_)
            | Op::Custom(_)
            | Op::Fused(_) => Err(Refusal::NoKernel),
        }
    }

    fn has_empty(&self, operands: &[Operand]) -> bool {
        operands.iter().any(|operand| match operand {
            Operand::Slot(slot) => self.ty(*slot).num_elements() == 0,
            Operand::Scalar(_) => false,
        })
    }

    /// What holds for every region: no tensor crosses an atom twice, and everything that may be stored is computed at every
    /// point of the index space, reduced axes aside.
    fn check(&self) -> Result<(), Refusal> {
        if self.values.len() > Nest::MAX_VALUES {
            return Err(Refusal::NoKernel);
        }
        let mut space: Vec<AtomId> = Vec::new();
        for slot in &self.slots {
            let leaves = self.leaves(slot);
            for (i, (_, atom)) in leaves.iter().enumerate() {
                if leaves[..i].iter().any(|(_, other)| other == atom) {
                    return Err(Refusal::Diagonal);
                }
                if slot.origin == Origin::Computed && !space.contains(atom) {
                    space.push(*atom);
                }
            }
        }
        let parallel = space.iter().filter(|&&atom| !self.atoms.is_reduced(atom)).count();
        let reduced = self.atoms.reduced().count();
        for slot in self.slots.iter().filter(|slot| slot.origin == Origin::Computed) {
            let leaves = self.leaves(slot);
            let along = leaves.iter().filter(|(_, atom)| self.atoms.is_reduced(*atom)).count();
            if leaves.len() - along != parallel || (along != 0 && along != reduced) {
                return Err(Refusal::Space);
            }
        }
        Ok(())
    }

    fn tensor(&self, operand: &Operand) -> Result<Slot, Refusal> {
        match operand {
            Operand::Slot(slot) => Ok(*slot),
            Operand::Scalar(_) => Err(Refusal::NoKernel),
        }
    }

    /// The value of a number, or of a tensor without axes.
    fn constant_of(&mut self, operand: &Operand, dtype: DType) -> ValueId {
        match *operand {
            Operand::Slot(slot) => self.state(slot).value,
            Operand::Scalar(scalar) => self.value(Compute::Constant(scalar), dtype),
        }
    }

    /// Two operands of the same shape, of which one may be a number: their values, and a tensor with the result's axes.
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

    fn same_axes(&mut self, a: Slot, b: Slot) -> Result<(), Refusal> {
        if a == b {
            return Ok(());
        }
        let rank = self.ty(a).shape.rank();
        let (left, right) = (runs(&self.state(a).axes, rank), runs(&self.state(b).axes, rank));
        for (left, right) in left.iter().zip(&right) {
            self.atoms.unify(left, right)?;
        }
        Ok(())
    }

    fn like(&mut self, x: Slot, ty: TensorType, value: ValueId) -> Result<Slot, Refusal> {
        let axes = self.state(x).axes.clone();
        Ok(self.computed(ty, value, axes))
    }

    fn computed(&mut self, ty: TensorType, value: ValueId, axes: AxisAtoms) -> Slot {
        self.slot(SlotState { ty, value, axes, origin: Origin::Computed })
    }

    fn view(&mut self, x: Slot, ty: TensorType, axes: AxisAtoms) -> Slot {
        let value = self.state(x).value;
        self.slot(SlotState { ty, value, axes, origin: Origin::View })
    }

    fn cast(&mut self, value: ValueId, dtype: DType) -> ValueId {
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
        // What is left to hand out, outermost last.
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
                None => axes.push((axis as u8, self.atoms.add(length))),
            }
        }
        axes
    }

    /// Marks axes of a tensor as those that the region reduces along.
    fn mark(&mut self, x: Slot, axes: &[usize]) -> Result<(), Refusal> {
        let leaves = self.leaves(self.state(x));
        let along: Vec<AtomId> = leaves
            .iter()
            .filter(|(axis, _)| axes.contains(&(*axis as usize)))
            .map(|&(_, atom)| atom)
            .collect();
        let marked: Vec<AtomId> = self.atoms.reduced().collect();
        if marked.is_empty() {
            along.iter().for_each(|&atom| self.atoms.set_reduced(atom));
            return Ok(());
        }
        let same = along.len() == marked.len() && along.iter().all(|atom| marked.contains(atom));
        // Other reduced axes would have to be among those that stay.
        if same { Ok(()) } else { Err(Refusal::Reduction) }
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
            return Ok(self.computed(ty, state.value, kept));
        }
        self.mark(x, &along)?;
        let value = self.value(Compute::Reduce(reduction, state.value), state.ty.dtype);
        Ok(self.computed(ty, value, kept))
    }

    fn unary(&mut self, function: Unary, x: Slot) -> Slot {
        let state = self.state(x).clone();
        let value = self.value(Compute::Unary(function, state.value), state.ty.dtype);
        self.computed(state.ty, value, state.axes)
    }

    /// A function of two tensors, of which the second has length 1 where the first is longer, or no axis.
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
        // An operand that lacks axes of the region is no result of it, also in another dtype.
        let origin = if state.origin == Origin::Computed { Origin::Computed } else { Origin::View };
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

    /// `[.., m, k] x [.., k, n]`: a product summed over `k`.
    fn matmul(&mut self, operands: &[Operand], ty: TensorType) -> Result<Slot, Refusal> {
        if self.product.is_some() || self.reduces() {
            return Err(Refusal::Product);
        }
        let (a, b) = (self.tensor(&operands[0])?, self.tensor(&operands[1])?);
        for slot in &mut self.slots {
            if slot.origin == Origin::Computed {
                slot.origin = Origin::Prologue;
            }
        }
        let rank = ty.shape.rank();
        let (left, right) = (runs(&self.state(a).axes, rank), runs(&self.state(b).axes, rank));
        for axis in 0..rank - 2 {
            self.atoms.unify(&left[axis], &right[axis])?;
        }
        self.atoms.unify(&left[rank - 1], &right[rank - 2])?;
        self.mark(a, &[rank - 1])?;
        let mut axes: AxisAtoms =
            self.state(a).axes.iter().filter(|(axis, _)| (*axis as usize) < rank - 1).copied().collect();
        axes.extend(self.state(b).axes.iter().filter(|(axis, _)| *axis as usize == rank - 1).copied());
        let narrow = matches!(self.ty(a).dtype, DType::F16 | DType::BF16);
        let working = if narrow { DType::F32 } else { ty.dtype };
        let (a, b) = (self.state(a).value, self.state(b).value);
        let (a, b) = (self.cast(a, working), self.cast(b, working));
        let product = self.value(Compute::Binary(Binary::Mul, a, b), working);
        let sum = self.value(Compute::Reduce(Reduction::Sum, product), working);
        self.product = Some(sum);
        let value = self.cast(sum, ty.dtype);
        Ok(self.computed(ty, value, axes))
    }
}
