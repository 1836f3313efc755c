//! Block kernels as source.

mod cooperative;
mod cpp;
mod lacks;
mod walk;
mod wgsl;

use super::{Dialect, Entry, EntryParameter, Target, Unprintable};
use crate::block::{Atomic, BlockKernel, BlockParam, BlockParamKind, Place, Statement};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use kiln_ir::{Binary, DType};

/// Prints a block kernel for a device. The result is the source of a module, and its one entry point, whose name is
/// `kiln_` and the kernel's name. In C++, lengths have 64 bits.
///
/// ```
/// use kiln_ir::DType;
/// use kiln_kernel::block::Builder;
/// use kiln_kernel::print::{Dialect, Target, block};
///
/// let k = Builder::new("twice", 256);
/// let (x, y) = (k.input("x", DType::F32), k.output("y", DType::F32));
/// let total = k.length("total");
/// k.for_points(&total, |p| k.store(&y, &p, &(x.at(&p) + x.at(&p))));
/// let (text, entry) = block(&k.finish(), &Target::new(Dialect::Wgsl)).unwrap();
/// assert!(text.contains("fn kiln_twice("));
/// assert_eq!((entry.threads, entry.parameters.len()), (256, 3));
/// ```
///
/// # Errors
/// When the device does not have a dtype or an atomic operation of the kernel.
pub fn block(kernel: &BlockKernel, target: &Target) -> Result<(String, Entry), Unprintable> {
    let lacks = lacks::lacks(kernel, target);
    if !lacks.is_empty() {
        return Err(Unprintable { lacks });
    }
    let text = match target.dialect {
        Dialect::Cuda | Dialect::Hip => cpp::print(kernel),
        Dialect::Wgsl => wgsl::print(kernel),
    };
    let parameters = kernel.params.iter().map(parameter).collect();
    let name = Cow::Owned(entry_name(kernel));
    Ok((text, Entry { name, threads: kernel.threads, parameters, is_guarded: false }))
}

fn entry_name(kernel: &BlockKernel) -> String {
    format!("kiln_{}", kernel.name)
}

fn parameter(param: &BlockParam) -> EntryParameter {
    match param.kind {
        BlockParamKind::Input => EntryParameter::Tensor { dtype: param.dtype, is_written: false },
        BlockParamKind::Output | BlockParamKind::Atomic | BlockParamKind::Flag => {
            EntryParameter::Tensor { dtype: param.dtype, is_written: true }
        }
        BlockParamKind::Number => EntryParameter::Word(param.dtype),
        BlockParamKind::Length => EntryParameter::Index,
    }
}

/// The name of a parameter in the source. No keyword or builtin has such a name.
fn param_name(kernel: &BlockKernel, param: u32) -> String {
    format!("{}_{param}", kernel.params[param as usize].name)
}

/// The name of an array in shared memory.
fn shared_name(array: u32) -> String {
    format!("s{array}")
}

/// The name of a variable.
fn variable_name(variable: u32) -> String {
    format!("v{variable}")
}

/// The name of an atomic operation.
fn atomic_name(operation: Atomic) -> &'static str {
    match operation {
        Atomic::Add => "add",
        Atomic::Mul => "mul",
        Atomic::Min => "min",
        Atomic::Max => "max",
        Atomic::Or => "or",
    }
}

/// The function that an atomic operation applies to the element and the operand.
fn atomic_function(operation: Atomic) -> Binary {
    match operation {
        Atomic::Add => Binary::Add,
        Atomic::Mul => Binary::Mul,
        Atomic::Min => Binary::Min,
        Atomic::Max => Binary::Max,
        Atomic::Or => Binary::Or,
    }
}

/// The dtype of the elements at a place.
fn place_dtype(kernel: &BlockKernel, place: Place) -> DType {
    match place {
        Place::Param(param) => kernel.params[param as usize].dtype,
        Place::Shared(array) => kernel.shared[array as usize].ty.dtype(),
    }
}

/// The name of the memory of a place.
fn place_name(kernel: &BlockKernel, place: Place) -> String {
    match place {
        Place::Param(param) => param_name(kernel, param),
        Place::Shared(array) => shared_name(array),
    }
}

/// The memory that a kernel accesses by vectors, without duplicates.
fn vectors(kernel: &BlockKernel) -> Vec<Place> {
    let mut list = Vec::new();
    kernel.for_each_statement(|statement| {
        if let Statement::LoadVector { place, .. } | Statement::StoreVector { place, .. } = statement
            && !list.contains(place)
        {
            list.push(*place);
        }
    });
    list
}

/// The atomic operations of a kernel and their places, without duplicates.
fn atomics(kernel: &BlockKernel) -> Vec<(Place, Atomic)> {
    let mut list = Vec::new();
    kernel.for_each_statement(|statement| {
        if let Statement::Atomic { place, operation, .. } = statement
            && !list.contains(&(*place, *operation))
        {
            list.push((*place, *operation));
        }
    });
    list
}
