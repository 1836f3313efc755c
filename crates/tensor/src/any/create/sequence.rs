//! Ranges and triangle indices.

use super::super::data::check_table;
use crate::{AnyTensor, DType, Error, Result, Scalar, Stack, TensorData, TensorType};
use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;
use kiln_ir::{Binary, Comparison};

impl AnyTensor {
    /// Creates a tensor of every `step`th integer of a range; a negative step counts down. See
    /// [`Tensor::arange_step`](crate::Tensor::arange_step).
    ///
    /// # Errors
    /// When the step is 0, or the first or the last number is out of range of the dtype.
    pub fn arange(
        range: Range<i64>,
        step: i64,
        dtype: DType,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        if step == 0 {
            return Err(Error::type_error("arange", "the step must not be 0", &[])
                .hint("1 counts up, -1 counts down"));
        }
        let (low, high) = if step > 0 { (range.start, range.end) } else { (range.end, range.start) };
        let span = (i128::from(high) - i128::from(low)).max(0) as u128;
        let count = span.div_ceil(u128::from(step.unsigned_abs()));
        let (start, by) = (Scalar::Int(range.start), Scalar::Int(step));
        if let Some(steps) = count.checked_sub(1) {
            let last = i128::from(range.start) + steps as i128 * i128::from(step);
            // The last number is within the range, and so fits 64 bits.
            for number in [start, Scalar::Int(last as i64)] {
                if number.beyond(dtype).is_some() {
                    let problem = format!("the number {number} is out of bounds for {dtype}");
                    return Err(Error::type_error("arange", problem, &[])
                        .hint("use a wider dtype: `AnyTensor::arange` accepts one"));
                }
            }
        }
        let Ok(count) = usize::try_from(count) else {
            return Err(Error::type_error("arange", format!("{count} numbers are too many"), &[]));
        };
        // Integers wrap, so that the product of the last index and the step need not fit.
        let fits = |dtype: &DType| dtype.is_int() && start.fits(*dtype) && by.fits(*dtype);
        let is_narrow = i32::try_from(range.start).and(i32::try_from(range.end)).is_ok();
        let narrow = is_narrow.then_some(DType::I32);
        let counted = core::iter::once(dtype).chain(narrow).find(fits).unwrap_or(DType::I64);
        let numbers = AnyTensor::iota(TensorType::new([count], counted), 0, device)?;
        numbers.binary_scalar(Binary::Mul, step)?.binary_scalar(Binary::Add, range.start)?.cast(dtype)
    }

    /// Creates a tensor of values from `range.start`, `step` apart, before `range.end`. See
    /// [`Tensor::arange_float`](crate::Tensor::arange_float).
    ///
    /// # Errors
    /// When a bound or the step is not finite, the step is 0, or there are more than 2⁴⁸ numbers.
    pub fn arange_float(
        range: Range<f64>,
        step: f64,
        dtype: DType,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        let count = libm::ceil((range.end - range.start) / step);
        let is_range = range.start.is_finite() && range.end.is_finite() && step.is_finite() && step != 0.0;
        if !is_range || count > MAX_ELEMENTS {
            let problem = format!("no range: from {} to {} by {step}", range.start, range.end);
            return Err(Error::type_error("arange_float", problem, &[]));
        }
        let numbers = counted(count.max(0.0) as usize, dtype, device.as_ref())?;
        numbers.binary_scalar(Binary::Mul, step)?.binary_scalar(Binary::Add, range.start)?.cast(dtype)
    }

    /// Creates a tensor of `count` evenly spaced values from `start` to `end`. See
    /// [`Tensor::linspace`](crate::Tensor::linspace).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn linspace(
        start: f64,
        end: f64,
        count: usize,
        dtype: DType,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        AnyTensor::evenly("linspace", start, end, count, dtype, device.as_ref())?.cast(dtype)
    }

    /// Creates a tensor of `count` powers of `base` with evenly spaced exponents from `start` to `end`. See
    /// [`Tensor::logspace`](crate::Tensor::logspace).
    ///
    /// # Errors
    /// As [`linspace`](AnyTensor::linspace).
    pub fn logspace(
        start: f64,
        end: f64,
        count: usize,
        base: f64,
        dtype: DType,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        let exponents = AnyTensor::evenly("logspace", start, end, count, dtype, device.as_ref())?;
        exponents.scalar_binary(base, Binary::Pow)?.cast(dtype)
    }

    /// Creates evenly spaced values. Both halves are counted from their own end, so that the last element is exactly
    /// `end`.
    fn evenly(
        op: &str,
        start: f64,
        end: f64,
        count: usize,
        dtype: DType,
        stack: &Stack,
    ) -> Result<AnyTensor> {
        if !dtype.is_float() {
            return Err(Error::type_error(op, format!("creates floats, not {dtype}"), &[])
                .hint("`arange` creates integers"));
        }
        let step = if count > 1 { (end - start) / (count - 1) as f64 } else { 0.0 };
        let places = counted(count, dtype, stack)?;
        let from_start =
            places.clone().binary_scalar(Binary::Mul, step)?.binary_scalar(Binary::Add, start)?;
        if count < 2 {
            return Ok(from_start);
        }
        let left = places.clone().scalar_binary((count - 1) as f64, Binary::Sub)?;
        let from_end = left.binary_scalar(Binary::Mul, -step)?.binary_scalar(Binary::Add, end)?;
        places.compare_scalar(Comparison::Lt, (count / 2) as f64)?.if_else(from_start, from_end)
    }

    /// Returns the row and column indices on and below a diagonal of a matrix, `[2, count]`. See
    /// [`Tensor::tril_indices`](crate::Tensor::tril_indices).
    ///
    /// # Errors
    /// When the matrix has more than 2²⁸ elements.
    pub fn tril_indices(
        rows: usize,
        columns: usize,
        offset: i64,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        check_table("tril_indices", &[rows, columns])?;
        places_where(rows, columns, device.as_ref(), |row, column| column - row <= i128::from(offset))
    }

    /// Returns the row and column indices on and above a diagonal of a matrix, `[2, count]`. See
    /// [`Tensor::triu_indices`](crate::Tensor::triu_indices).
    ///
    /// # Errors
    /// As [`tril_indices`](AnyTensor::tril_indices).
    pub fn triu_indices(
        rows: usize,
        columns: usize,
        offset: i64,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        check_table("triu_indices", &[rows, columns])?;
        places_where(rows, columns, device.as_ref(), |row, column| column - row >= i128::from(offset))
    }
}

/// More elements than any memory holds.
const MAX_ELEMENTS: f64 = (1u64 << 48) as f64;

/// Returns 0, 1, 2, … in the precision in which the elements of a dtype are computed.
fn counted(count: usize, dtype: DType, stack: &Stack) -> Result<AnyTensor> {
    let exact = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    AnyTensor::iota(TensorType::new([count], exact), 0, stack)
}

fn places_where(
    rows: usize,
    columns: usize,
    stack: &Stack,
    holds: impl Fn(i128, i128) -> bool,
) -> Result<AnyTensor> {
    let mut places = [Vec::new(), Vec::new()];
    for row in 0..rows {
        for column in (0..columns).filter(|&column| holds(row as i128, column as i128)) {
            places[0].push(row as i64);
            places[1].push(column as i64);
        }
    }
    let count = places[0].len();
    let data = TensorData::new(places.concat(), [2, count])?;
    Ok(AnyTensor::from_data(data.convert(stack.int_dtype()), stack))
}
