//! The features that a block kernel needs and a device or the languages lack.

use super::{atomic_name, atomics, param_name, place_dtype, vectors};
use crate::block::{
    Atomic, BlockKernel, BlockParamKind, Function, Kind, Place, Statement, Type, has_vectors,
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

/// Vectors of dtypes that have none, and tensors that are accessed both by vectors and by elements.
fn of_vectors(kernel: &BlockKernel) -> Vec<String> {
    let places = vectors(kernel);
    let mut lacks = Vec::new();
    for &place in &places {
        let dtype = place_dtype(kernel, place);
        if !has_vectors(dtype) {
            lacks.push(format!("vectors of {}", dtype.name()));
        }
    }
    let mut reads = |param: u32| {
        if places.contains(&Place::Param(param)) {
            lacks.push(format!("both elements and vectors of `{}`", param_name(kernel, param)));
        }
    };
    kernel.for_each_expression(|expression| {
        if let Kind::Load(param, _) = expression.kind() {
            reads(*param);
        }
    });
    kernel.for_each_statement(|statement| {
        if let Statement::Store(param, ..) | Statement::Atomic { place: Place::Param(param), .. } = statement
        {
            reads(*param);
        }
    });
    lacks
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
