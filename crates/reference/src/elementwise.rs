//! Elementwise ops.

use crate::call::{Call, data_of};
use crate::numbers::{Number, Numbers, integers};
use crate::places::pick;
use kiln_ir::{Binary, Comparison, DType, Operand, Operands, Result, TensorData, Unary, select_unpoisoned};

pub(crate) fn cast(x: &TensorData, dtype: DType) -> Result<TensorData> {
    if x.dtype() == dtype {
        return Ok(x.clone());
    }
    Numbers::of(x).into_data(x.ty().with_dtype(dtype))
}

pub(crate) fn unary(x: &TensorData, function: Unary) -> Result<TensorData> {
    let dtype = x.dtype();
    let numbers = match Numbers::of(x) {
        Numbers::Real(x) => Numbers::Real(x.into_iter().map(|x| x.unary(function, dtype)).collect()),
        Numbers::Integer(x) => Numbers::Integer(x.into_iter().map(|x| x.unary(function, dtype)).collect()),
    };
    numbers.into_data(x.ty())
}

pub(crate) fn binary(call: &Call<'_>, function: Binary) -> Result<TensorData> {
    let ty = call.ty();
    let (a, b) = (call.filled(0, ty)?, call.filled(1, ty)?);
    let numbers = match (Numbers::of(&a), Numbers::of(&b)) {
        (Numbers::Real(a), Numbers::Real(b)) => {
            Numbers::Real(a.into_iter().zip(b).map(|(a, b)| a.binary(function, b, ty.dtype)).collect())
        }
        (Numbers::Integer(a), Numbers::Integer(b)) => {
            Numbers::Integer(a.into_iter().zip(b).map(|(a, b)| a.binary(function, b, ty.dtype)).collect())
        }
        (Numbers::Real(_), Numbers::Integer(_)) | (Numbers::Integer(_), Numbers::Real(_)) => {
            unreachable!("inference refuses operands of different dtypes")
        }
    };
    numbers.into_data(ty)
}

pub(crate) fn compare(call: &Call<'_>, comparison: Comparison) -> Result<TensorData> {
    let ty = call.common(0..2);
    let (a, b) = (call.filled(0, ty)?, call.filled(1, ty)?);
    let truths = match (Numbers::of(&a), Numbers::of(&b)) {
        (Numbers::Real(a), Numbers::Real(b)) => {
            a.into_iter().zip(b).map(|(a, b)| a.compares(comparison, b)).collect()
        }
        (Numbers::Integer(a), Numbers::Integer(b)) => {
            a.into_iter().zip(b).map(|(a, b)| a.compares(comparison, b)).collect()
        }
        (Numbers::Real(_), Numbers::Integer(_)) | (Numbers::Integer(_), Numbers::Real(_)) => {
            unreachable!("inference refuses operands of different dtypes")
        }
    };
    TensorData::from_elements(kiln_ir::Elements::Bool(truths), ty.shape)
}

/// The operand that a select picks for all elements, if the other operand is poisoned.
pub(crate) fn past_poison(inputs: &Operands) -> Option<&Operand> {
    select_unpoisoned(inputs, |condition| {
        let condition = integers(data_of(condition).ok()?);
        let (first, rest) = condition.split_first()?;
        rest.iter().all(|other| other == first).then_some(*first != 0)
    })
}

pub(crate) fn select(call: &Call<'_>) -> Result<TensorData> {
    let ty = call.ty();
    let condition = integers(call.data(0)?);
    let (a, b) = (call.filled(1, ty)?, call.filled(2, ty)?);
    let count = condition.len();
    let places = condition.iter().enumerate().map(|(i, &holds)| if holds != 0 { i } else { count + i });
    pick(&[&a, &b], places, ty.shape)
}
