//! In which order the values of a kernel with reductions come about.

use crate::{Axis, AxisSet, Compute, Hero, Kernel, ParamKind, StrideClass, ValueId};
use alloc::vec::Vec;
use kiln_ir::Binary;

/// One crossing of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pass {
    /// Values that do not change along the row, to be computed before it is crossed.
    pub(crate) row: Vec<ValueId>,
    /// Values that change along the row, and are needed for what follows.
    pub(crate) along: Vec<ValueId>,
    /// The reductions that end with it.
    pub(crate) reduces: Vec<ValueId>,
    /// The stores of whole rows.
    pub(crate) stores: Vec<ValueId>,
}

impl Kernel {
    /// The passes over each row, in order: one for each reduction that must end before another begins, and one more for stores
    /// behind the last.
    pub(crate) fn passes(&self) -> Vec<Pass> {
        let (stages, reduced, dependence) = (self.stages(), self.reduced(), self.dependence());
        let last = stages.iter().copied().max().unwrap_or(0);
        let mut passes: Vec<Pass> = (0..=last).map(|_| Pass::default()).collect();
        for (number, instruction) in self.body.iter().enumerate() {
            match instruction.compute {
                Compute::Reduce(_, operand) => {
                    passes[stages[operand as usize]].reduces.push(number as ValueId)
                }
                Compute::Store(param, _) if self.crossed_by(param) & reduced != 0 => {
                    passes[stages[number]].stores.push(number as ValueId);
                }
                Compute::Store(..) => {}
                Compute::Load(_)
                | Compute::Number(_)
                | Compute::Constant(_)
                | Compute::Index(_)
                | Compute::Unary(..)
                | Compute::Binary(..)
                | Compute::Compare(..)
                | Compute::Select(..)
                | Compute::Cast(_)
                | Compute::Bitcast(_)
                | Compute::Scan { .. }
                | Compute::Checked(..) => {
                    if dependence[number] & reduced == 0 {
                        passes[stages[number]].row.push(number as ValueId);
                    }
                }
            }
        }
        for pass in &mut passes {
            let goals: Vec<ValueId> = pass.reduces.iter().chain(&pass.stores).copied().collect();
            let along = |value: ValueId| dependence[value as usize] & reduced != 0;
            let is_goal = |value: &ValueId| goals.contains(value);
            pass.along = self.needed_for(&goals).into_iter().filter(|v| along(*v) && !is_goal(v)).collect();
        }
        passes
    }

    /// How often a row is crossed.
    pub(crate) fn num_stages(&self) -> usize {
        self.passes().iter().filter(|pass| !pass.reduces.is_empty() || !pass.stores.is_empty()).count()
    }

    /// All values that some values need, those among them, in order.
    pub(crate) fn needed_for(&self, goals: &[ValueId]) -> Vec<ValueId> {
        let mut needed = alloc::vec![false; self.body.len()];
        goals.iter().for_each(|&goal| needed[goal as usize] = true);
        for number in (0..self.body.len()).rev() {
            // What lies behind a reduction belongs to an earlier pass.
            let computed = matches!(self.body[number].compute, Compute::Reduce(..))
                && !goals.contains(&(number as ValueId));
            if needed[number] && !computed {
                self.body[number].compute.operands().iter().for_each(|&value| needed[value as usize] = true);
            }
        }
        (0..self.body.len()).filter(|&number| needed[number]).map(|number| number as ValueId).collect()
    }

    /// How many reductions come one after the other before each value.
    fn stages(&self) -> Vec<usize> {
        let mut stages: Vec<usize> = Vec::with_capacity(self.body.len());
        for instruction in &self.body {
            let operands = instruction.compute.operands();
            let before = operands.iter().map(|&value| stages[value as usize]).max().unwrap_or(0);
            stages.push(before + usize::from(matches!(instruction.compute, Compute::Reduce(..))));
        }
        stages
    }

    /// The axes that a parameter crosses.
    pub(crate) fn crossed_by(&self, param: u32) -> AxisSet {
        let strides = self.params[param as usize].strides.iter().enumerate();
        strides.filter(|(_, class)| **class != StrideClass::Zero).fold(0, |set, (axis, _)| set | 1 << axis)
    }

    /// For a transpose: the axis along which an operand lies in memory, and the innermost one.
    pub(crate) fn tile_axes(&self) -> Option<(usize, usize)> {
        let inner = self.axes.len().checked_sub(1)?;
        let turned = self.params.iter().filter(|param| param.kind == ParamKind::Input);
        let outer = turned
            .filter(|param| param.strides[inner] == StrideClass::Any)
            .find_map(|param| param.strides[..inner].iter().position(|class| *class == StrideClass::One))?;
        Some((outer, inner))
    }

    /// For a product of matrices: the axes that both factors or none cross, those of the rows, and those of the columns.
    pub(crate) fn product_axes(&self) -> [AxisSet; 3] {
        let parallel = (0..self.axes.len()).filter(|&axis| self.axes[axis] == Axis::Parallel);
        let parallel = parallel.fold(0, |set, axis| set | 1 << axis);
        let Some([a, b]) = self.factors() else { return [parallel, 0, 0] };
        let dependence = self.dependence();
        let (a, b) = (dependence[a as usize] & parallel, dependence[b as usize] & parallel);
        [parallel & !(a ^ b), a & !b, b & !a]
    }

    /// The factors of the product of matrices.
    pub(crate) fn factors(&self) -> Option<[ValueId; 2]> {
        let Hero::MatMul(product) = self.hero else { return None };
        let Compute::Reduce(_, term) = self.body.get(product as usize)?.compute else { return None };
        let Compute::Binary(Binary::Mul, a, b) = self.body[term as usize].compute else { return None };
        Some([a, b])
    }
}
