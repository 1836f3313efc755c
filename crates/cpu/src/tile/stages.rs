//! Stages: the number of reductions before each instruction.

use super::code::Form;
use super::layout::Tiling;
use alloc::vec::Vec;
use kiln_kernel::{Compute, Kernel};

/// The number of consecutive reductions before each value. In a column reduction, stores of constants belong to the
/// stage of its other results.
pub(super) fn stages(kernel: &Kernel, tiling: &Tiling) -> Vec<usize> {
    let mut stages: Vec<usize> = Vec::with_capacity(kernel.body.len());
    for instruction in &kernel.body {
        let operands = instruction.compute.operands();
        let stage = operands.iter().map(|&operand| stages[operand as usize]).max().unwrap_or(0);
        let strides = |param: u32| &kernel.params[param as usize].strides;
        stages.push(match instruction.compute {
            Compute::Reduce(..) => stage + 1,
            Compute::Store(param, _) if tiling.form == Form::Columns => {
                let along = |(axis, class): (usize, &kiln_kernel::StrideClass)| {
                    *class != kiln_kernel::StrideClass::Zero && tiling.row_set() >> axis & 1 == 1
                };
                if strides(param).iter().enumerate().any(along) { stage } else { stage.max(1) }
            }
            Compute::Store(..)
            | Compute::Load(_)
            | Compute::LoadWhere(..)
            | Compute::LoadAt { .. }
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
            | Compute::ColumnReduce(..)
            | Compute::Checked(..) => stage,
        });
    }
    stages
}

pub(super) fn last_stages(kernel: &Kernel, stages: &[usize]) -> Vec<usize> {
    let mut last = stages.to_vec();
    for (value, instruction) in kernel.body.iter().enumerate().rev() {
        let reduces = matches!(instruction.compute, Compute::Reduce(..));
        let used = if reduces { stages[value] - 1 } else { stages[value] };
        let passed_on =
            matches!(instruction.compute, Compute::Cast(_) | Compute::Bitcast(_) | Compute::Checked(..));
        let used = if passed_on { used.max(last[value]) } else { used };
        for operand in instruction.compute.operands() {
            last[operand as usize] = last[operand as usize].max(used);
        }
    }
    last
}
