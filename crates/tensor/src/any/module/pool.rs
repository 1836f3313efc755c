//! Pooling.

use super::check_entries;
use crate::{AnyTensor, Result, Shape, TensorType};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{Binary, Op, PadAxis, PoolKind, PoolSpec, Pooling, Reduction, UpdateMode, Var};

/// Returns the attributes of the op on the spatial dimensions of `x`.
fn spec(pooling: &Pooling, op: &str, kind: PoolKind, x: &AnyTensor) -> Result<PoolSpec> {
    x.check_rank(op, 3, "[batch, channels, space..]")?;
    let lengths = &x.shape()[2..];
    let counts = [
        ("`window`", pooling.window.len()),
        ("`stride`", pooling.stride.len()),
        ("`padding`", pooling.padding.len()),
        ("`dilation`", pooling.dilation.len()),
    ];
    for (name, count) in counts {
        check_entries(x, op, name, count, lengths.len())?;
    }
    Ok(pooling.spec(kind, lengths))
}

impl AnyTensor {
    /// Computes the maximum of each window over the spatial dimensions of `[batch, channels, space..]`. See
    /// [`module::max_pool2d`](crate::module::max_pool2d).
    ///
    /// # Errors
    /// When the tensor is `bool`, there are fewer than three axes, the pooling does not have one entry for each spatial
    /// dimension, window, stride or dilation is 0, no window fits, a window contains padding only, or the padding is
    /// above 2²⁰.
    pub fn max_pool(self, pooling: &Pooling) -> Result<AnyTensor> {
        let spec = spec(pooling, "max_pool", PoolKind::Max, &self)?;
        self.apply(&Op::Pool(spec))
    }

    /// Like [`max_pool`](AnyTensor::max_pool), and returns the position of each maximum: row-major indices into the
    /// spatial dimensions. See [`module::max_pool2d_with_indices`](crate::module::max_pool2d_with_indices).
    ///
    /// # Errors
    /// As [`max_pool`](AnyTensor::max_pool).
    ///
    /// # Panics
    /// When the dtype is an integer.
    pub fn max_pool_with_indices(self, pooling: &Pooling) -> Result<(AnyTensor, AnyTensor)> {
        let spec = spec(pooling, "max_pool", PoolKind::Max, &self)?;
        self.check_places("max_pool", self.shape()[2..].iter().product())?;
        let y = self.clone().apply(&Op::Pool(spec.clone()))?;
        let index = self.stack().int_dtype();
        let indices = self.expression(|x| {
            let places = places_of(&x, index);
            let outside = x.scalar(x.shape()[2..].iter().product::<usize>());
            let values = windows(&x, &spec, &x.scalar(f64::NEG_INFINITY));
            let places = windows(&places, &spec, &outside);
            first_greatest(&values, &places, &outside)
        });
        Ok((y, indices))
    }

    /// Computes the gradient of [`max_pool`](AnyTensor::max_pool) for its operand `x` from the output gradient, `self`:
    /// each element flows to the first maximum of its window. See
    /// [`module::max_pool2d_gradient`](crate::module::max_pool2d_gradient).
    ///
    /// # Errors
    /// As [`max_pool`](AnyTensor::max_pool) of `x`, and when the gradient differs from the result in shape or dtype.
    pub fn max_pool_gradient(self, x: AnyTensor, pooling: &Pooling) -> Result<AnyTensor> {
        self.in_same_domain("max_pool", &x)?;
        let spec = spec(pooling, "max_pool", PoolKind::Max, &x)?;
        let size = x.shape()[2..].to_vec();
        self.apply_with(&Op::PoolGrad { spec, size }, [x.into_value().into()])
    }

    /// Scatters elements of `[batch, channels, space..]` to the indices of max pooling, in spatial dimensions of these
    /// lengths, with zeros elsewhere. See [`module::max_unpool2d`](crate::module::max_unpool2d).
    ///
    /// # Errors
    /// When there are fewer than three axes, the indices are not integers of the same shape, or `size` does not have
    /// one entry for each spatial dimension.
    pub fn max_unpool(self, indices: AnyTensor, size: &[usize]) -> Result<AnyTensor> {
        const OP: &str = "max_unpool";
        self.check_rank(OP, 3, "[batch, channels, space..]")?;
        self.in_same_domain(OP, &indices)?;
        indices.check_int(OP)?;
        if indices.shape() != self.shape() {
            return Err(self.unlike(OP, "elements and indices differ in shape", &indices));
        }
        check_entries(&self, OP, "the size", size.len(), self.rank() - 2)?;
        let (batch, channels) = (self.shape()[0], self.shape()[1]);
        let count: usize = self.shape()[2..].iter().product();
        let flat =
            [batch, channels, size.iter().fold(1, |count: usize, &length| count.saturating_mul(length))];
        let base = AnyTensor::zeros(TensorType::new(flat, self.dtype()), self.stack())?;
        let (elements, places) = ([batch, channels, count], indices.reshape([batch, channels, count])?);
        let y = base.scatter_mode(2, places, self.reshape(elements)?, UpdateMode::Set)?;
        y.reshape([batch, channels].iter().chain(size).copied().collect::<Shape>())
    }

    /// Computes the mean of each window over the spatial dimensions of `[batch, channels, space..]`; `include_padding`
    /// counts padding in the divisor. See [`module::avg_pool2d`](crate::module::avg_pool2d).
    ///
    /// # Errors
    /// When the dtype is not a float or the dilation not 1, and as [`max_pool`](AnyTensor::max_pool).
    pub fn avg_pool(self, pooling: &Pooling, include_padding: bool) -> Result<AnyTensor> {
        let spec = spec(pooling, "avg_pool", PoolKind::Average { include_padding }, &self)?;
        self.apply(&Op::Pool(spec))
    }

    /// Computes the sum of each window over the spatial dimensions of `[batch, channels, space..]`, divided by
    /// `divisor`. See [`module::avg_pool2d_with_divisor`](crate::module::avg_pool2d_with_divisor).
    ///
    /// # Errors
    /// As [`avg_pool`](AnyTensor::avg_pool), and when the divisor is 0.
    pub fn avg_pool_with_divisor(self, pooling: &Pooling, divisor: usize) -> Result<AnyTensor> {
        const OP: &str = "avg_pool";
        if divisor == 0 {
            return Err(self.wrong(OP, "the divisor is 0").hint("use a number above 0"));
        }
        let lengths = self.shape().get(2..).unwrap_or_default().to_vec();
        let mut sums = self.avg_pool(pooling, true)?;
        for (axis, &length) in lengths.iter().enumerate() {
            let counts = pooling.counts(axis, length, sums.shape()[axis + 2]);
            let shape: Shape =
                (0..sums.rank()).map(|a| if a == axis + 2 { counts.len() } else { 1 }).collect();
            sums = match counts.first() {
                Some(&count) if counts.iter().all(|&other| other == count) => sums.mul_scalar(count)?,
                _ => {
                    let counts: Vec<f32> = counts.iter().map(|&count| count as f32).collect();
                    let counts = AnyTensor::from_data(counts, sums.stack()).cast(sums.dtype())?;
                    sums.binary(Binary::Mul, counts.reshape(shape)?)?
                }
            };
        }
        sums.div_scalar(divisor)
    }

    /// Computes the gradient of [`avg_pool`](AnyTensor::avg_pool) for its operand, with spatial dimensions `size`, from
    /// the output gradient, `self`. See [`module::avg_pool2d_gradient`](crate::module::avg_pool2d_gradient).
    ///
    /// # Errors
    /// As [`avg_pool`](AnyTensor::avg_pool) of an operand of `size`, and when the gradient does not have the shape of
    /// the result.
    pub fn avg_pool_gradient(
        self,
        size: &[usize],
        pooling: &Pooling,
        include_padding: bool,
    ) -> Result<AnyTensor> {
        self.check_rank("avg_pool", 3, "[batch, channels, space..]")?;
        check_entries(&self, "avg_pool", "the size", size.len(), self.rank() - 2)?;
        // The overhang is that of the operand.
        let shape: Shape = self.shape()[..2].iter().chain(size).copied().collect();
        let operand = AnyTensor::zeros(self.ty().with_shape(shape), self.stack())?;
        let spec = spec(pooling, "avg_pool", PoolKind::Average { include_padding }, &operand)?;
        self.apply(&Op::PoolGrad { spec, size: size.to_vec() })
    }

    /// Computes power-average pooling, `(Σ x^p)^(1/p)` of each window. See
    /// [`module::lp_pool2d`](crate::module::lp_pool2d).
    ///
    /// # Errors
    /// As [`avg_pool`](AnyTensor::avg_pool), and when `p` is not finite and positive.
    pub fn lp_pool(self, p: f64, pooling: &Pooling) -> Result<AnyTensor> {
        const OP: &str = "lp_pool";
        self.check_float(OP)?;
        if !(p.is_finite() && p > 0.0) {
            return Err(self
                .wrong(OP, format!("p is {p}"))
                .hint("use a number above 0; for infinity use max_pool"));
        }
        let elements: f64 = pooling.window.iter().map(|&length| length as f64).product();
        let dtype = self.dtype();
        let means = self.widened()?.binary_scalar(Binary::Pow, p)?.avg_pool(pooling, true)?;
        let norms = means.expression(|mean| {
            let sum = mean * elements;
            // The root at 0 has no gradient; it is 0 here.
            let none = sum.compare(kiln_ir::Comparison::Le, &sum.scalar(0.0));
            let held = none.select(&sum.scalar(1.0), &sum);
            none.select(&sum.scalar(0.0), &held.pow(&held.scalar(1.0 / p)))
        });
        norms.cast(dtype)
    }
}

/// Returns the row-major indices of the spatial dimensions, `[1, 1, space..]`.
pub(super) fn places_of<'e>(x: &Var<'e>, index: kiln_ir::DType) -> Var<'e> {
    let space: Vec<usize> = x.shape()[2..].to_vec();
    let count: usize = space.iter().product();
    let shape: Shape = [1, 1].into_iter().chain(space).collect();
    Var::iota(x.engine(), TensorType::new([count], index), 0).reshape(shape)
}

/// Returns the windows of a padded tensor, `[batch, channels, windows.., elements]`.
fn windows<'e>(x: &Var<'e>, spec: &PoolSpec, padding: &Var<'e>) -> Var<'e> {
    let axes = spec.window.len();
    let around = |axis: usize| PadAxis::new(spec.padding[axis].0, spec.padding[axis].1 + spec.overhang[axis]);
    let pads: Vec<PadAxis> = [PadAxis::default(); 2].into_iter().chain((0..axes).map(around)).collect();
    let padded = x.apply(Op::Pad(pads), &[padding]);
    let windows = (0..axes).fold(padded, |var, axis| {
        var.windows(axis + 2, spec.window[axis], spec.stride[axis], spec.dilation[axis])
    });
    let elements: usize = spec.window.iter().product();
    let shape = windows.shape();
    windows.reshape(shape[..axes + 2].iter().copied().chain([elements]).collect::<Shape>())
}

/// Returns the least position of the maximum along the last axis, which is removed; NaN is the maximum, and `outside`
/// is ignored.
pub(super) fn first_greatest<'e>(values: &Var<'e>, places: &Var<'e>, outside: &Var<'e>) -> Var<'e> {
    let last = values.rank() - 1;
    let greatest = values.equal(&values.reduce(Reduction::Max, &[last]));
    let greatest = greatest.or(&values.compare(kiln_ir::Comparison::Ne, values));
    let candidates = greatest.select(&places.broadcast(values.shape()), outside);
    let shape = values.shape().without(last);
    candidates.reduce(Reduction::Min, &[last]).reshape(shape)
}
