//! The cost model of a kernel launch: bytes and operations.

use crate::{AxisSet, Compute, Instruction, Kernel, Launch, ParamKind};
use alloc::vec::Vec;
use kiln_ir::{Effort, FunctionInfo};

/// The cost of one launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCost {
    /// Cheap operations such as additions, multiplications and comparisons. Each counts once per point of the axes that
    /// it depends on; a reduction once per point that it combines.
    pub flops: u64,
    /// Expensive functions: exponentials, logarithms, trigonometric functions, powers, divisions and roots.
    pub transcendentals: u64,
    /// Bytes read from memory; each element of an operand counts once.
    pub bytes_read: u64,
    /// Bytes written to memory.
    pub bytes_written: u64,
    /// Bytes per row of the operands that change along the reduced axes: the working set if a row is read again. 0
    /// without reductions.
    pub row_bytes: u64,
    /// The maximum number of live values.
    pub registers: u32,
}

impl Kernel {
    /// The cost of one launch with these extents.
    ///
    /// ```
    /// use kiln_ir::{DType, Op, TensorType, Unary};
    /// use kiln_kernel::{Layout, Nest};
    ///
    /// let ty = TensorType::new([100], DType::F32);
    /// let mut nest = Nest::default();
    /// let x = nest.input(ty);
    /// let y = nest.push(&Op::Unary(Unary::Exp), &[x.into()], &[ty]).unwrap();
    /// let lowered = nest.lower(&[y], &[Layout(vec![1])]).unwrap();
    /// let cost = lowered.kernel.cost(&lowered.launch);
    /// assert_eq!((cost.transcendentals, cost.bytes_read, cost.bytes_written), (100, 400, 400));
    /// ```
    pub fn cost(&self, launch: &Launch) -> KernelCost {
        let mut cost = KernelCost { registers: self.registers(), ..KernelCost::default() };
        let points = |set: AxisSet| {
            let extents = launch.extents.iter().enumerate().filter(|(axis, _)| set >> axis & 1 == 1);
            extents.fold(1u64, |product, (_, &extent)| product.saturating_mul(extent as u64))
        };
        let dependence = self.dependence();
        for (instruction, &set) in self.body.iter().zip(&dependence) {
            match instruction.compute {
                Compute::Unary(function, _) if is_long(function.info()) => {
                    cost.transcendentals += points(set)
                }
                Compute::Binary(function, ..) if is_long(function.info()) => {
                    cost.transcendentals += points(set);
                }
                Compute::Unary(..)
                | Compute::Binary(..)
                | Compute::Compare(..)
                | Compute::Select(..)
                | Compute::Checked(..)
                | Compute::Scan { .. } => cost.flops += points(set),
                // Over all points, even where the operand is constant along some axes.
                Compute::Reduce(..) => cost.flops += points(set | self.reduced()),
                Compute::ColumnReduce(_, a) => {
                    let reduced = self.reduced();
                    cost.flops += points(dependence[a as usize] | (self.all_axes() & !reduced));
                }
                Compute::Load(_)
                | Compute::LoadWhere(..)
                | Compute::LoadAt { .. }
                | Compute::Number(_)
                | Compute::Constant(_)
                | Compute::Index(_)
                | Compute::Cast(_)
                | Compute::Bitcast(_)
                | Compute::Store(..) => {}
            }
        }
        for (number, (param, binding)) in self.params.iter().zip(&launch.bindings).enumerate() {
            let crossed = binding.strides.iter().enumerate().filter(|(_, stride)| **stride != 0);
            let crossed: AxisSet = crossed.fold(0, |set, (axis, _)| set | 1 << axis);
            // A load by index reads another element for each index.
            let is_indexed = |(i, _): &(&Instruction, &AxisSet)| matches!(i.compute, Compute::LoadAt { param, .. } if param as usize == number);
            let crossed = self.body.iter().zip(&dependence).find(is_indexed).map_or(crossed, |(_, set)| *set);
            let bytes = points(crossed) * param.dtype.size() as u64;
            match param.kind {
                ParamKind::Input => cost.bytes_read += bytes,
                ParamKind::Output => cost.bytes_written += bytes,
                ParamKind::Number => {}
            }
            let along = crossed & self.reduced();
            if param.kind == ParamKind::Input && along != 0 {
                cost.row_bytes += points(along) * param.dtype.size() as u64;
            }
        }
        cost
    }

    /// The maximum number of live values of the body, without constants and plain numbers.
    pub fn registers(&self) -> u32 {
        let mut last = alloc::vec![0usize; self.body.len()];
        for (number, instruction) in self.body.iter().enumerate() {
            instruction.compute.operands().iter().for_each(|&value| last[value as usize] = number);
        }
        let held = |number: usize| {
            let alive = |value: &usize| *value <= number && last[*value] > number;
            let constant =
                |value: usize| matches!(self.body[value].compute, Compute::Constant(_) | Compute::Number(_));
            (0..self.body.len()).filter(alive).filter(|&value| !constant(value)).count()
        };
        let counts: Vec<usize> = (0..self.body.len()).map(held).collect();
        counts.into_iter().max().unwrap_or(0) as u32
    }
}

/// Whether a function takes many instructions.
pub(crate) fn is_long(function: &FunctionInfo) -> bool {
    function.effort > Effort::Arithmetic
}
