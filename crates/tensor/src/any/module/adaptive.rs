//! Adaptive pooling into a given number of parts: part `i` of `n` covers
//! `floor(i length / n) .. ceil((i + 1) length / n)`.

use super::super::data::check_table;
use super::check_entries;
use super::pool::{first_greatest, places_of};
use crate::{AnyTensor, Result, Shape, TensorData};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{DType, Op, PoolKind, PoolSpec, Var};

impl AnyTensor {
    /// Computes the mean of each part of the spatial dimensions of `[batch, channels, space..]`. See
    /// [`module::adaptive_avg_pool2d`](crate::module::adaptive_avg_pool2d).
    ///
    /// # Errors
    /// When the dtype is not a float, there are fewer than three axes, `size` does not have one entry above 0 for each
    /// spatial dimension, or a spatial dimension is empty or needs more than 2²⁸ indices.
    pub fn adaptive_avg_pool(self, size: &[usize]) -> Result<AnyTensor> {
        let op = "adaptive_avg_pool";
        self.check_float(op)?;
        self.check_parts(op, size)?;
        let lengths = &self.shape()[2..];
        if lengths.iter().zip(size).all(|(length, parts)| length.is_multiple_of(*parts)) {
            let window: Vec<usize> = lengths.iter().zip(size).map(|(length, parts)| length / parts).collect();
            let spec = PoolSpec::new(PoolKind::Average { include_padding: true }, &window);
            return self.apply(&Op::Pool(spec));
        }
        (0..size.len()).try_fold(self, |any, axis| any.average_of_parts(axis + 2, size[axis]))
    }

    /// Averages the parts of one axis, which differ in length: each is read at the length of the longest, and surplus
    /// elements are counted as 0.
    fn average_of_parts(self, axis: usize, parts: usize) -> Result<AnyTensor> {
        let parts = Parts::new(self.shape()[axis], parts);
        let shape = *self.shape();
        let dtype = self.dtype();
        let axis_of = |data: TensorData, len: usize| {
            let shape: Shape = (0..shape.rank() + 1)
                .map(|place| {
                    if place == axis {
                        parts.ranges.len()
                    } else if place == axis + 1 {
                        len
                    } else {
                        1
                    }
                })
                .collect();
            AnyTensor::from_data(data, self.stack()).reshape(shape)
        };
        let inside = axis_of(parts.inside()?, parts.longest)?;
        let counts = axis_of(parts.counts()?.convert(dtype), 1)?;
        let index = AnyTensor::from_data(parts.index()?, self.stack());
        let y = self.expression_with([index, inside, counts], |x, [index, inside, counts]| {
            let read = x.take(axis, &index);
            let read = inside.broadcast(read.shape()).select(&read, &read.scalar(0.0));
            (read.sum(&[axis + 1]) / counts).reshape(shape.with(axis, parts.ranges.len()))
        });
        Ok(y)
    }

    /// Computes the maximum of each part of the spatial dimensions of `[batch, channels, space..]`, and its position:
    /// row-major indices into the spatial dimensions. See
    /// [`module::adaptive_max_pool2d_with_indices`](crate::module::adaptive_max_pool2d_with_indices).
    ///
    /// # Errors
    /// As [`adaptive_avg_pool`](AnyTensor::adaptive_avg_pool).
    pub fn adaptive_max_pool_with_indices(self, size: &[usize]) -> Result<(AnyTensor, AnyTensor)> {
        let op = "adaptive_max_pool";
        self.check_float(op)?;
        self.check_parts(op, size)?;
        let shape = *self.shape();
        let count: usize = shape[2..].iter().product();
        let parts: Vec<Parts> =
            shape[2..].iter().zip(size).map(|(&len, &parts)| Parts::new(len, parts)).collect();
        let index: Vec<AnyTensor> = parts
            .iter()
            .map(|parts| Ok(AnyTensor::from_data(parts.index()?, self.stack())))
            .collect::<Result<_>>()?;
        let dtype = self.stack().int_dtype();
        let indices = self.clone().expression(|x| {
            let index: Vec<Var<'_>> =
                index.iter().map(|any| Var::new(x.engine(), any.value().clone())).collect();
            let (values, places) = (parts_of(&x, &index), parts_of(&places_of(&x, dtype), &index));
            first_greatest(&values, &places, &x.scalar(count))
        });
        let pooled = *indices.shape();
        let flat = [shape[0], shape[1], size.iter().product()];
        let rows = self.reshape([shape[0], shape[1], count])?;
        let y = rows.gather(2, indices.clone().reshape(flat)?)?.reshape(pooled)?;
        Ok((y, indices))
    }

    /// Like [`adaptive_max_pool_with_indices`](AnyTensor::adaptive_max_pool_with_indices), without indices. See
    /// [`module::adaptive_max_pool2d`](crate::module::adaptive_max_pool2d).
    ///
    /// # Errors
    /// As [`adaptive_avg_pool`](AnyTensor::adaptive_avg_pool).
    pub fn adaptive_max_pool(self, size: &[usize]) -> Result<AnyTensor> {
        Ok(self.adaptive_max_pool_with_indices(size)?.0)
    }

    fn check_parts(&self, op: &str, size: &[usize]) -> Result<()> {
        self.check_rank(op, 3, "[batch, channels, space..]")?;
        check_entries(self, op, "the size", size.len(), self.rank() - 2)?;
        if size.contains(&0) || self.shape()[2..].contains(&0) {
            return Err(self
                .wrong(op, format!("cannot split axes into {size:?} parts"))
                .hint("each spatial dimension gets at least 1 part, and has at least 1 element"));
        }
        for (length, &parts) in self.shape()[2..].iter().zip(size) {
            check_table(op, &[parts, (length / parts).saturating_add(2)])?;
        }
        Ok(())
    }
}

/// The parts of an axis.
struct Parts {
    ranges: Vec<(usize, usize)>,
    longest: usize,
}

impl Parts {
    fn new(length: usize, parts: usize) -> Parts {
        let place = |part: usize| part as u128 * length as u128;
        let range = |part: usize| {
            ((place(part) / parts as u128) as usize, place(part + 1).div_ceil(parts as u128) as usize)
        };
        let ranges: Vec<(usize, usize)> = (0..parts).map(range).collect();
        let longest = ranges.iter().map(|(start, end)| end - start).max().unwrap_or(0);
        Parts { ranges, longest }
    }

    fn of_each<T>(&self, f: impl Fn(usize, usize, usize) -> T) -> Vec<T> {
        let places =
            self.ranges.iter().flat_map(|&(start, end)| (0..self.longest).map(move |i| (start, end, i)));
        places.map(|(start, end, i)| f(start, end, i)).collect()
    }

    /// Returns the indices to read, `[parts, longest]`; shorter parts repeat their last index.
    fn index(&self) -> Result<TensorData> {
        let places = self.of_each(|start, end, i| (start + i).min(end - 1) as i64);
        Ok(TensorData::new(places, [self.ranges.len(), self.longest])?.convert(DType::I32))
    }

    /// Returns the mask of the entries of [`index`](Parts::index) that are inside their part.
    fn inside(&self) -> Result<TensorData> {
        TensorData::new(self.of_each(|start, end, i| start + i < end), [self.ranges.len(), self.longest])
    }

    fn counts(&self) -> Result<TensorData> {
        let counts = self.ranges.iter().map(|(start, end)| (end - start) as f64).collect();
        TensorData::new(counts, [self.ranges.len()])
    }
}

/// Splits `x` into `[batch, channels, parts.., elements]`: each spatial dimension becomes its parts and their elements.
/// The elements are merged into the last axis.
fn parts_of<'e>(x: &Var<'e>, index: &[Var<'e>]) -> Var<'e> {
    let axes = index.len();
    // Spatial dimension `a` is axis `2 + 2 a` once those before it are split.
    let read = index.iter().enumerate().fold(x.clone(), |x, (a, index)| x.take(2 + 2 * a, index));
    let order: Vec<usize> =
        [0, 1].into_iter().chain((0..axes).map(|a| 2 + 2 * a)).chain((0..axes).map(|a| 3 + 2 * a)).collect();
    let parts = read.permute(&order);
    let elements: usize = parts.shape()[2 + axes..].iter().product();
    let shape: Shape = parts.shape()[..2 + axes].iter().copied().chain([elements]).collect();
    parts.reshape(shape)
}
