//! Fractional max pooling: windows at random positions.

use super::pool::places_of;
use crate::{AnyTensor, Distribution, Result, Shape, TensorType};
use alloc::format;
use kiln_ir::{Comparison, DType, Reduction, Var};

const OP: &str = "fractional_max_pool";

impl AnyTensor {
    /// Computes the maximum of windows at random positions over the spatial dimensions of `[batch, channels, space..]`.
    /// See [`module::fractional_max_pool2d`](crate::module::fractional_max_pool2d).
    ///
    /// # Errors
    /// When the dtype is not a float, there are fewer than three axes, `window` and `size` do not have one entry above
    /// 0 for each spatial dimension, the windows do not fit (`size + window - 1` elements), or the samples are not
    /// floats of shape `[batch, channels, dimensions]`.
    pub fn fractional_max_pool(
        self,
        window: &[usize],
        size: &[usize],
        samples: Option<AnyTensor>,
    ) -> Result<AnyTensor> {
        self.check_windows(window, size)?;
        let samples = self.samples(samples)?;
        (0..window.len()).try_fold(self, |x, axis| {
            let sample = samples.clone().narrow(2, axis, 1)?;
            let result = x.shape().with(axis + 2, size[axis]);
            let windows = x.windows_at_starts(axis + 2, window[axis], size[axis], sample)?;
            windows.reduce(Reduction::Max, &[axis + 3])?.reshape(result)
        })
    }

    /// Like [`fractional_max_pool`](AnyTensor::fractional_max_pool), and returns the position of each maximum: row-major
    /// indices into the spatial dimensions. See
    /// [`module::fractional_max_pool2d_with_indices`](crate::module::fractional_max_pool2d_with_indices).
    ///
    /// # Errors
    /// As [`fractional_max_pool`](AnyTensor::fractional_max_pool).
    pub fn fractional_max_pool_with_indices(
        self,
        window: &[usize],
        size: &[usize],
        samples: Option<AnyTensor>,
    ) -> Result<(AnyTensor, AnyTensor)> {
        self.check_windows(window, size)?;
        let samples = self.samples(samples)?;
        let shape = *self.shape();
        let count: usize = shape[2..].iter().product();
        self.check_places(OP, count)?;
        let dtype = self.stack().int_dtype();
        let places = self.clone().expression(|x| places_of(&x, dtype).broadcast(shape));
        // The last axis first: of equal maxima, the first in row-major order is found.
        let start = (self.clone().detach(), places);
        let (_, indices) = (0..window.len()).rev().try_fold(start, |(x, places), axis| {
            let sample = samples.clone().narrow(2, axis, 1)?;
            let result = x.shape().with(axis + 2, size[axis]);
            let windows =
                |x: AnyTensor| x.windows_at_starts(axis + 2, window[axis], size[axis], sample.clone());
            let (greatest, winner) = windows(x)?.max_dim_with_indices(axis + 3)?;
            let places = windows(places)?.gather(axis + 3, winner)?;
            Ok::<_, crate::Error>((greatest.reshape(result)?, places.reshape(result)?))
        })?;
        let pooled = *indices.shape();
        let flat = [shape[0], shape[1], size.iter().product()];
        let rows = self.reshape([shape[0], shape[1], count])?;
        let y = rows.gather(2, indices.clone().reshape(flat)?)?.reshape(pooled)?;
        Ok((y, indices))
    }

    fn check_windows(&self, window: &[usize], size: &[usize]) -> Result<()> {
        self.check_rank(OP, 3, "[batch, channels, space..]")?;
        self.check_float(OP)?;
        let axes = self.rank() - 2;
        super::check_entries(self, OP, "`window`", window.len(), axes)?;
        super::check_entries(self, OP, "`size`", size.len(), axes)?;
        for axis in 0..axes {
            let length = self.shape()[axis + 2];
            let fits = size[axis] > 0
                && window[axis] > 0
                && (window[axis] - 1).checked_add(size[axis]).is_some_and(|needed| needed <= length);
            if !fits {
                let problem = format!(
                    "{} windows of {} elements do not fit into axis {} of length {length}",
                    size[axis],
                    window[axis],
                    axis + 2
                );
                return Err(self
                    .wrong(OP, problem)
                    .hint("`size + window - 1` is at most the length, and both are above 0"));
            }
        }
        Ok(())
    }

    /// The given samples, or new ones: `[batch, channels, axes]`.
    fn samples(&self, samples: Option<AnyTensor>) -> Result<AnyTensor> {
        let shape = [self.shape()[0], self.shape()[1], self.rank() - 2];
        match samples {
            Some(samples) if samples.shape()[..] == shape && samples.dtype().is_float() => {
                Ok(samples.detach())
            }
            Some(samples) => {
                Err(self.unlike(OP, format!("samples must be floats of shape {shape:?}"), &samples))
            }
            None => {
                let ty = TensorType::new(shape, DType::F32);
                AnyTensor::random(ty, Distribution::Uniform(0.0, 1.0), self.stack())
            }
        }
    }

    /// Splits one axis into windows, `[.., size, window, ..]`, whose starts depend on `sample`, `[batch, channels, 1]`.
    fn windows_at_starts(
        self,
        axis: usize,
        window: usize,
        size: usize,
        sample: AnyTensor,
    ) -> Result<AnyTensor> {
        let length = self.shape()[axis];
        let places = sample.cast(DType::F32)?.expression(|sample| places(&sample, length, window, size));
        // [batch, channels, size * window] as indices for all elements beside the axis.
        let index: Shape = (0..self.rank())
            .map(|a| {
                if a < 2 {
                    self.shape()[a]
                } else if a == axis {
                    size * window
                } else {
                    1
                }
            })
            .collect();
        let picked_shape = self.shape().with(axis, size * window);
        let places = places.reshape(index)?.expand(picked_shape)?;
        let windows = picked_shape.with(axis, size).inserted(axis + 1, window);
        self.gather(axis, places)?.reshape(windows)
    }
}

/// Returns the positions of the elements of all windows, `[batch, channels, size * window]`: window `i` of `n` starts
/// at `⌊(i + u) α⌋ - ⌊u α⌋` with `α = (length - window) / (n - 1)`, and the last window ends with the axis.
fn places<'e>(sample: &Var<'e>, length: usize, window: usize, size: usize) -> Var<'e> {
    let [batch, channels] = [sample.shape()[0], sample.shape()[1]];
    let starts = TensorType::new([batch, channels, size], DType::F32);
    let last = sample.scalar(length - window);
    let number = Var::iota(sample.engine(), starts, 2);
    let sample = sample.broadcast(starts.shape);
    let step = if size > 1 { (length - window) as f64 / (size - 1) as f64 } else { 0.0 };
    let start = ((&number + &sample) * step).floor() - (sample * step).floor();
    let is_last = number.compare(Comparison::Eq, &number.scalar(size - 1));
    let start = is_last.select(&last, &start).cast(DType::I32);
    let all = TensorType::new([batch, channels, size, window], DType::I32);
    let start = start.reshape([batch, channels, size, 1]).broadcast(all.shape);
    (start + Var::iota(number.engine(), all, 3)).reshape([batch, channels, size * window])
}
