//! Passes over a row: the schedule of values in kernels with reductions.

use crate::{Axis, AxisSet, Compute, Kernel, KernelKind, ParamKind, StrideClass, ValueId};
use alloc::vec::Vec;
use kiln_ir::{Binary, DType, Reduction};

/// One pass over a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Values that are constant along the row, computed before the pass.
    pub(crate) row: Vec<ValueId>,
    /// Values that change along the row and are needed by this pass.
    pub(crate) along: Vec<ValueId>,
    /// The row reductions that end with the pass.
    pub(crate) totals: Vec<Total>,
    /// Column reductions of its values.
    pub(crate) across: Vec<Total>,
    /// The stores of whole rows.
    pub(crate) stores: Vec<ValueId>,
}

/// A reduction or scan instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Total {
    /// The value of the instruction.
    pub(crate) value: ValueId,
    pub(crate) reduction: Reduction,
    /// The reduced operand.
    pub(crate) operand: ValueId,
    pub(crate) dtype: DType,
}

/// A matmul: a sum of products of two factors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) total: Total,
    pub(crate) factors: [ValueId; 2],
}

impl Kernel {
    /// The passes over each row, in order: one for each reduction that must end before another begins, and one more for
    /// stores after the last reduction.
    pub(crate) fn passes(&self) -> Vec<Pass> {
        let (stages, reduced, dependence) = (self.stages(), self.reduced(), self.dependence());
        let (in_rows, mut across) = (self.in_rows(), self.column_totals());
        let last = stages.iter().copied().max().unwrap_or(0);
        let mut passes: Vec<Pass> = (0..=last).map(|_| Pass::default()).collect();
        for (number, instruction) in self.body.iter().enumerate() {
            let value = number as ValueId;
            if !in_rows[number] {
                continue;
            }
            if let Some(total) = self.total(value) {
                passes[stages[total.operand as usize]].totals.push(total);
            } else if let Some((param, _)) = instruction.compute.store() {
                if self.crossed(param) & reduced != 0 {
                    passes[stages[number]].stores.push(value);
                }
            } else if dependence[number] & reduced == 0 {
                passes[stages[number]].row.push(value);
            }
        }
        for total in across.drain(..) {
            passes[stages[total.operand as usize]].across.push(total);
        }
        for pass in &mut passes {
            let totals = pass.totals.iter().chain(&pass.across).map(|total| total.value);
            let goals: Vec<ValueId> = totals.chain(pass.stores.iter().copied()).collect();
            let along = |value: ValueId| dependence[value as usize] & reduced != 0;
            let is_goal = |value: &ValueId| goals.contains(value);
            pass.along = self.needed_for(&goals).into_iter().filter(|v| along(*v) && !is_goal(v)).collect();
        }
        passes
    }

    /// The reduction of an instruction; `None` if it is none.
    pub(crate) fn total(&self, value: ValueId) -> Option<Total> {
        let instruction = self.body.get(value as usize)?;
        let (reduction, operand) = instruction.compute.reduction()?;
        Some(Total { value, reduction, operand, dtype: instruction.dtype })
    }

    /// All values that the goals depend on, including the goals, in order. The values before a reduction that is no goal
    /// do not count: an earlier pass computes them.
    pub fn needed_for(&self, goals: &[ValueId]) -> Vec<ValueId> {
        let mut needed = alloc::vec![false; self.body.len()];
        goals.iter().for_each(|&goal| needed[goal as usize] = true);
        for number in (0..self.body.len()).rev() {
            // Operands of a reduction belong to an earlier pass.
            let compute = self.body[number].compute;
            let combines = compute.is_reduction() || compute.column_reduce().is_some();
            let computed = combines && !goals.contains(&(number as ValueId));
            if needed[number] && !computed {
                self.body[number].compute.operands().iter().for_each(|&value| needed[value as usize] = true);
            }
        }
        (0..self.body.len()).filter(|&number| needed[number]).map(|number| number as ValueId).collect()
    }

    /// For each value, the length of the longest chain of reductions before it.
    fn stages(&self) -> Vec<usize> {
        let mut stages: Vec<usize> = Vec::with_capacity(self.body.len());
        for instruction in &self.body {
            let operands = instruction.compute.operands();
            let before = operands.iter().map(|&value| stages[value as usize]).max().unwrap_or(0);
            stages.push(before + usize::from(instruction.compute.is_reduction()));
        }
        stages
    }

    /// For a transpose: the axis along which an operand is contiguous, and the innermost axis.
    pub(crate) fn tile_axes(&self) -> Option<(usize, usize)> {
        let inner = self.axes.len().checked_sub(1)?;
        let turned = self.params.iter().filter(|param| param.kind == ParamKind::Input);
        let outer = turned
            .filter(|param| param.strides[inner] == StrideClass::Any)
            .find_map(|param| param.strides[..inner].iter().position(|class| *class == StrideClass::One))?;
        Some((outer, inner))
    }

    /// The stores of one element per row.
    pub(crate) fn row_stores(&self) -> Vec<ValueId> {
        let is_of_row = |&(_, param): &(ValueId, u32)| self.crossed(param) & self.reduced() == 0;
        self.stores().filter(is_of_row).map(|(value, _)| value).collect()
    }

    /// The column reductions.
    pub(crate) fn column_totals(&self) -> Vec<Total> {
        let all = self.body.iter().enumerate();
        let totals = all.filter_map(|(number, instruction)| {
            let (reduction, operand) = instruction.compute.column_reduce()?;
            Some(Total { value: number as ValueId, reduction, operand, dtype: instruction.dtype })
        });
        totals.collect()
    }

    /// Whether the kernel has column reductions or stores values that are constant across rows.
    pub fn has_columns(&self) -> bool {
        !self.column_stores().is_empty()
    }

    /// The stores of values that are constant across rows.
    pub(crate) fn column_stores(&self) -> Vec<ValueId> {
        let parallel = self.all_axes() & !self.reduced();
        let is_of_columns = |&(_, param): &(ValueId, u32)| self.crossed(param) & parallel != parallel;
        self.stores().filter(is_of_columns).map(|(value, _)| value).collect()
    }

    /// For each value, whether it is needed before all rows are processed.
    pub(crate) fn in_rows(&self) -> Vec<bool> {
        let behind = self.column_stores();
        let mut needed = alloc::vec![false; self.body.len()];
        for (number, instruction) in self.body.iter().enumerate().rev() {
            let value = number as ValueId;
            needed[number] |= instruction.compute.store().is_some() && !behind.contains(&value);
            // Its result is only available after all rows.
            let across = instruction.compute.column_reduce().is_some();
            if needed[number] || across {
                instruction.compute.operands().iter().for_each(|&value| needed[value as usize] = true);
            }
        }
        needed
    }

    /// For a matmul: the axes of both factors or of neither, the row axes, and the column axes.
    pub(crate) fn product_axes(&self) -> [AxisSet; 3] {
        let parallel = (0..self.axes.len()).filter(|&axis| self.axes[axis] == Axis::Parallel);
        let parallel = parallel.fold(0, |set, axis| set | 1 << axis);
        let Some(Product { factors: [a, b], .. }) = self.product() else { return [parallel, 0, 0] };
        let dependence = self.dependence();
        let (a, b) = (dependence[a as usize] & parallel, dependence[b as usize] & parallel);
        [parallel & !(a ^ b), a & !b, b & !a]
    }

    /// The matmul, if the kernel is one.
    pub(crate) fn product(&self) -> Option<Product> {
        let KernelKind::MatMul(product) = self.kind else { return None };
        let total = self.total(product).filter(|total| total.reduction == Reduction::Sum)?;
        let Compute::Binary(Binary::Mul, a, b) = self.body[total.operand as usize].compute else {
            return None;
        };
        Some(Product { total, factors: [a, b] })
    }
}
