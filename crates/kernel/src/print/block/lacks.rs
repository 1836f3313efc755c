//! The features that a block kernel needs and a device or the languages lack.

use super::{atomic_name, atomics, param_name, place_dtype, place_name, vectors};
use crate::block::{
    Atomic, BlockKernel, BlockParamKind, Cooperative, Function, Kind, MatrixMemory, Place, Statement, Type,
    has_vectors,
};
use crate::print::{Dialect, Target};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use kiln_ir::{Binary, DType, Unary};

/// The lacking features, without duplicates.
pub(super) fn lacks(kernel: &BlockKernel, target: &Target) -> Vec<String> {
    let mut lacks = of_dtypes(kernel, target);
    if target.dialect != Dialect::Wgsl && kernel.is_cooperative() {
        lacks.push("cooperative matrices".into());
    }
    kernel.for_each_statement(|statement| {
        // Words of a written tensor may be atomic.
        if let Statement::Cooperative(Cooperative::Fetch { param, .. }) = statement
            && kernel.params[*param as usize].kind != BlockParamKind::Input
        {
            lacks.push(format!("cooperative fetch of the written tensor `{}`", param_name(kernel, *param)));
        }
    });
    for (place, operation) in atomics(kernel) {
        lacks.extend(of_atomic(kernel, target, place, operation));
    }
    lacks.extend(of_vectors(kernel));
    kernel.for_each_expression(|expression| {
        if let Kind::Call(function, operands) = expression.kind()
            && let Some(operand) = &operands[0]
        {
            lacks.extend(of_function(*function, operand.ty(), expression.ty()));
        }
    });
    let mut known = Vec::new();
    lacks.retain(|lack| {
        let is_new = !known.contains(lack);
        known.push(lack.clone());
        is_new
    });
    lacks
}

/// The dtypes of 64 bits that the kernel uses and the device does not have. Others are computed in 32 bits.
fn of_dtypes(kernel: &BlockKernel, target: &Target) -> Vec<String> {
    let mut used = Vec::new();
    used.extend(kernel.params.iter().map(|param| param.dtype));
    used.extend(kernel.shared.iter().map(|array| array.ty.dtype()));
    kernel.for_each_expression(|expression| used.push(expression.dtype()));
    kernel.for_each_statement(|statement| {
        if let Statement::Array(_, array) = statement {
            used.push(array.ty.dtype());
        }
    });
    if target.dialect == Dialect::Wgsl && used.contains(&DType::F64) {
        // The bits of numbers and constants.
        used.push(DType::U64);
    }
    let is_lacking =
        |dtype: &DType| dtype.size() == 8 && !target.dtypes.contains(*dtype) && used.contains(dtype);
    DType::ALL.into_iter().filter(is_lacking).map(|dtype| dtype.name().into()).collect()
}

/// Vectors of dtypes or of atomic tensors, which have none, and memory that is accessed by vectors and otherwise too.
fn of_vectors(kernel: &BlockKernel) -> Vec<String> {
    let places = vectors(kernel);
    let mut lacks = Vec::new();
    for &place in &places {
        let dtype = place_dtype(kernel, place);
        if !has_vectors(dtype) {
            lacks.push(format!("vectors of {}", dtype.name()));
        }
        if let Place::Param(param) = place
            && matches!(kernel.params[param as usize].kind, BlockParamKind::Atomic | BlockParamKind::Flag)
        {
            lacks.push(format!("vectors of the atomic tensor `{}`", param_name(kernel, param)));
        }
    }
    let mut accesses = |place: Place| {
        if places.contains(&place) {
            lacks.push(format!("both elements and vectors of `{}`", place_name(kernel, place)));
        }
    };
    kernel.for_each_expression(|expression| {
        if let Kind::Load(param, _) = expression.kind() {
            accesses(Place::Param(*param));
        }
    });
    kernel.for_each_statement(|statement| {
        if let Some(place) = accessed(statement) {
            accesses(place);
        }
    });
    lacks
}

/// The memory that a statement accesses in a form that excludes vectors: elements of a tensor, or a matrix.
fn accessed(statement: &Statement) -> Option<Place> {
    match statement {
        Statement::Store(param, ..)
        | Statement::Cooperative(Cooperative::Fetch { param, .. } | Cooperative::StorePair { param, .. }) => {
            Some(Place::Param(*param))
        }
        Statement::Atomic { place, .. } => Some(*place),
        Statement::Cooperative(
            Cooperative::Load { from: matrix, .. } | Cooperative::Store { to: matrix, .. },
        ) => match matrix.memory {
            MatrixMemory::Shared(array) => Some(Place::Shared(array)),
            MatrixMemory::Tile(_) => None,
        },
        Statement::Cooperative(
            Cooperative::Subgroup(_) | Cooperative::MultiplyAdd { .. } | Cooperative::Unpack { .. },
        )
        | Statement::Let(..)
        | Statement::Var(..)
        | Statement::Assign(..)
        | Statement::Array(..)
        | Statement::StoreShared(..)
        | Statement::StoreArray(..)
        | Statement::LoadVector { .. }
        | Statement::StoreVector { .. }
        | Statement::Fail(..)
        | Statement::If(..)
        | Statement::For { .. }
        | Statement::While(..)
        | Statement::Break
        | Statement::Continue
        | Statement::Barrier => None,
    }
}

fn of_atomic(kernel: &BlockKernel, target: &Target, place: Place, operation: Atomic) -> Option<String> {
    let dtype = place_dtype(kernel, place);
    let is_atomic = match place {
        Place::Param(param) => kernel.params[param as usize].kind == BlockParamKind::Atomic,
        Place::Shared(array) => kernel.shared[array as usize].is_atomic,
    };
    let in_shared_memory = matches!(place, Place::Shared(_)) && target.dialect == Dialect::Wgsl;
    let has_size = match dtype.size() {
        4 => true,
        8 => target.atomics_64 && !in_shared_memory,
        _ => false,
    };
    let is_defined = dtype.is_int() || (dtype.is_float() && operation != Atomic::Or);
    if is_atomic && has_size && is_defined {
        return None;
    }
    let memory = if matches!(place, Place::Shared(_)) { " in shared memory" } else { "" };
    Some(format!("atomic {} of {}{memory}", atomic_name(operation), dtype.name()))
}

/// The functions without a form for their operands.
fn of_function(function: Function, operand: Type, result: Type) -> Option<String> {
    let is_index = operand == Type::Index;
    match function {
        Function::Unary(Unary::Neg | Unary::Abs | Unary::Sign | Unary::Not) => None,
        Function::Unary(function) if is_index => Some(format!("{} of an index", function.name())),
        Function::Binary(Binary::Atan2) if is_index => Some("atan2 of an index".into()),
        Function::Bitcast if is_index || result == Type::Index => Some("bitcast of an index".into()),
        Function::Bitcast if !has_same_bits(operand.dtype(), result.dtype()) => {
            Some(format!("bitcast of {} to {}", operand.dtype().name(), result.dtype().name()))
        }
        Function::MulHigh if operand != Type::Value(DType::U32) => {
            Some(format!("upper half of a product of {operand:?}"))
        }
        Function::Unary(_)
        | Function::Binary(_)
        | Function::Compare(_)
        | Function::Select
        | Function::Cast
        | Function::Bitcast
        | Function::MulHigh => None,
    }
}

/// Whether values of both dtypes have the bits of their elements, equally many. `bool` and 16-bit floats, which are held
/// as `f32`, do not.
fn has_same_bits(a: DType, b: DType) -> bool {
    let has_bits = |dtype: DType| !(dtype.is_bool() || dtype.is_float() && dtype.size() == 2);
    a.size() == b.size() && has_bits(a) && has_bits(b)
}
