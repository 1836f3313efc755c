//! Results in the memory of operands.

use crate::array::Array;
use crate::driver::Driver;
use kiln_ir::{Operand, TensorType};
use kiln_kernel::{Binding, Compute, Instruction, Kernel, KernelKind, Launch, Param, ParamKind, ValueId};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// The operands whose memory a result may reuse: every point must read the operand's element exactly where it writes
/// its own. Threads past the last point compute it again without a store, perhaps from a stored result. So no bounds
/// check may depend on the operand.
pub(super) fn reusable_operands(kernel: &Kernel, launch: &Launch, result: usize) -> SmallVec<[usize; 2]> {
    let all = || kernel.params.iter().zip(&launch.bindings).zip(0u32..);
    let output = all()
        .find(|((param, binding), _)| param.kind == ParamKind::Output && binding.place == result)
        .filter(|_| kernel.kind == KernelKind::Map);
    let Some(((output, target), _)) = output else { return SmallVec::new() };
    let is_whole =
        launch.extents.iter().zip(&target.strides).all(|(&extent, &stride)| extent <= 1 || stride != 0);
    let values = || (0..).zip(&kernel.body);
    let is_check =
        |(_, instruction): &(ValueId, &Instruction)| matches!(instruction.compute, Compute::Checked(..));
    let checks: Vec<ValueId> = values().filter(is_check).map(|(value, _)| value).collect();
    let checked = kernel.needed_for(&checks);
    let is_read_there = |param: &Param, binding: &Binding, number: u32| {
        let mut reads = values().filter(|(_, instruction)| instruction.compute.load() == Some(number));
        let is_free = |(value, read): (ValueId, &Instruction)| {
            read.compute.plain_load().is_some() && !checked.contains(&value)
        };
        let once = reads.next().is_some_and(is_free) && reads.next().is_none();
        once && param.kind == ParamKind::Input
            && param.dtype == output.dtype
            && (binding.offset, &binding.strides) == (target.offset, &target.strides)
    };
    let is_only = |place: usize| {
        let inputs =
            all().filter(|((param, binding), _)| param.kind == ParamKind::Input && binding.place == place);
        inputs.count() == 1
    };
    let found = all().filter(|((param, binding), number)| {
        is_whole && is_read_there(param, binding, *number) && is_only(binding.place)
    });
    found.map(|((_, binding), _)| binding.place).collect()
}

/// The array of an operand without aliases, if its memory has the size of a result of that type.
pub(super) fn reusable<'a, D: Driver>(operand: &'a Operand, ty: &TensorType) -> Option<&'a Array<D>> {
    let value = operand.value().filter(|value| value.is_unique())?;
    let array = Array::<D>::of(value).ok()?;
    // Accesses through clones that other threads dropped happen before the steps queued now.
    fence(Ordering::Acquire);
    let is_alone = Arc::strong_count(&array.block) == 1 && array.layout.offset == 0;
    (is_alone && value.ty().num_bytes() == ty.num_bytes()).then_some(array)
}
