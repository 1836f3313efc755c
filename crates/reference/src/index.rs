//! Indexing ops: take, gather, put, scatter and nonzero.
//!
//! Reading and writing share one computation: the position in the base of each element of the result (or of the
//! source).

use crate::call::Call;
use crate::numbers::{Number, Numbers, integers};
use crate::places::{pick, place, position, positions};
use crate::view::slice_places;
use alloc::vec::Vec;
use kiln_ir::{
    DType, Error, IndexUser, Reduction, Result, Shape, SliceAxis, TensorData, TensorType, UpdateMode,
};

pub(crate) fn take(call: &Call<'_>, axis: usize) -> Result<TensorData> {
    pick(&[call.data(0)?], take_places(call, axis)?, call.ty().shape)
}

pub(crate) fn gather(call: &Call<'_>, axis: usize) -> Result<TensorData> {
    pick(&[call.data(0)?], gather_places(call, axis)?, call.ty().shape)
}

pub(crate) fn put(call: &Call<'_>, axis: usize, mode: UpdateMode) -> Result<TensorData> {
    update(call.data(0)?, call.data(2)?, &take_places(call, axis)?, mode)
}

pub(crate) fn scatter(call: &Call<'_>, axis: usize, mode: UpdateMode) -> Result<TensorData> {
    update(call.data(0)?, call.data(2)?, &gather_places(call, axis)?, mode)
}

pub(crate) fn slice_update(call: &Call<'_>, slices: &[SliceAxis], mode: UpdateMode) -> Result<TensorData> {
    let (base, source) = (call.data(0)?, call.data(1)?);
    update(base, source, &slice_places(base.shape(), slices), mode)
}

/// For each element of the result of `Take`, its position in the first operand; the second is the index.
fn take_places(call: &Call<'_>, axis: usize) -> Result<Vec<usize>> {
    let (x, index) = (call.data(0)?.shape(), call.data(1)?);
    let indices = checked_indices(call, index, axis, x[axis])?;
    let after = axis + index.shape().rank();
    let shape: Shape = x[..axis].iter().chain(index.shape().iter()).chain(&x[axis + 1..]).copied().collect();
    let source = |position: Shape| {
        let chosen = indices[place(index.shape(), &position[axis..after])];
        let source: Shape =
            position[..axis].iter().chain([&chosen]).chain(&position[after..]).copied().collect();
        place(x, &source)
    };
    Ok(positions(shape).map(source).collect())
}

/// For each element of the result of `Gather`, its position in the first operand; the second is the index.
fn gather_places(call: &Call<'_>, axis: usize) -> Result<Vec<usize>> {
    let (x, index) = (call.data(0)?.shape(), call.data(1)?);
    let indices = checked_indices(call, index, axis, x[axis])?;
    let source = |(position, &chosen): (Shape, &usize)| place(x, &position.with(axis, chosen));
    Ok(positions(*index.shape()).zip(&indices).map(source).collect())
}

/// The indices, after a bounds check against the length of the axis.
fn checked_indices(call: &Call<'_>, index: &TensorData, axis: usize, length: usize) -> Result<Vec<usize>> {
    let check = |(place, index_here): (usize, i128)| {
        usize::try_from(index_here).ok().filter(|&i| i < length).ok_or_else(|| {
            let at = position(index.shape(), place);
            Error::index_out_of_range(call.name(), index_here, &at, axis, length)
        })
    };
    integers(index).into_iter().enumerate().map(check).collect()
}

/// The index tensor, after a bounds check against the length.
pub(crate) fn check(index: &TensorData, length: usize, user: IndexUser) -> Result<TensorData> {
    let wrong = |&(_, index): &(usize, i128)| usize::try_from(index).map_or(true, |index| index >= length);
    match integers(index).into_iter().enumerate().find(wrong) {
        Some((place, number)) => {
            Err(user.out_of_range(Some((&number, &position(index.shape(), place))), length))
        }
        None => Ok(index.clone()),
    }
}

/// The base with each source element written at its position, in order: with duplicate positions the last one wins.
fn update(base: &TensorData, source: &TensorData, places: &[usize], mode: UpdateMode) -> Result<TensorData> {
    let reduction = match mode {
        UpdateMode::Set => return replace(base, source, places),
        UpdateMode::Add => Reduction::Sum,
        UpdateMode::Mul => Reduction::Prod,
        UpdateMode::Min => Reduction::Min,
        UpdateMode::Max => Reduction::Max,
    };
    let numbers = match (Numbers::of(base), Numbers::of(source)) {
        (Numbers::Real(base), Numbers::Real(source)) => {
            Numbers::Real(combined(base, &source, places, reduction))
        }
        (Numbers::Integer(base), Numbers::Integer(source)) => {
            Numbers::Integer(combined(base, &source, places, reduction))
        }
        (Numbers::Real(_), Numbers::Integer(_)) | (Numbers::Integer(_), Numbers::Real(_)) => {
            unreachable!("inference refuses a source of another dtype")
        }
    };
    numbers.into_data(base.ty())
}

fn replace(base: &TensorData, source: &TensorData, places: &[usize]) -> Result<TensorData> {
    let mut origins: Vec<usize> = (0..base.num_elements()).collect();
    for (written, &place) in places.iter().enumerate() {
        origins[place] = base.num_elements() + written;
    }
    pick(&[base, source], origins, *base.shape())
}

fn combined<N: Number>(mut base: Vec<N>, source: &[N], places: &[usize], reduction: Reduction) -> Vec<N> {
    for (&written, &place) in source.iter().zip(places) {
        base[place] = base[place].combined(reduction, written);
    }
    base
}

/// The positions of the nonzero elements. NaN counts as nonzero.
pub(crate) fn nonzero(x: &TensorData, index: DType) -> Result<TensorData> {
    let found: Vec<bool> = match Numbers::of(x) {
        Numbers::Real(n) => n.iter().map(|&x| x != 0.0).collect(),
        Numbers::Integer(n) => n.iter().map(|&x| x != 0).collect(),
    };
    let rows: Vec<Shape> = positions(*x.shape()).zip(&found).filter(|(_, f)| **f).map(|(p, _)| p).collect();
    let indices = rows.iter().flat_map(|row| row.iter().map(|&i| i as i128)).collect();
    Numbers::Integer(indices).into_data(TensorType::new([rows.len(), x.shape().rank()], index))
}
