//! Random tensors. Where a key is `None`, the next key of the device is used.

use crate::random::{Key, numbers, range, sample};
use crate::{AnyTensor, Axis, DType, Distribution, Error, Result, Stack, TensorType};
use alloc::format;
use core::ops::Range;
use kiln_ir::{Binary, Comparison, Op, RandomKind, Reduction, Var};

impl AnyTensor {
    /// Creates a random tensor with the next key of the device; see [`Distribution`].
    ///
    /// # Errors
    /// When a parameter of the distribution is invalid ([`Distribution::check`]).
    #[doc(alias = "rand")]
    #[doc(alias = "randn")]
    pub fn random(
        ty: TensorType,
        distribution: Distribution,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        distribution.draw(ty, Key::next(device), device.as_ref())
    }

    /// Creates a random tensor that depends on the key only.
    ///
    /// # Errors
    /// As [`random`](AnyTensor::random).
    pub fn random_with_key(
        ty: TensorType,
        distribution: Distribution,
        key: Key,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        distribution.draw(ty, key, device.as_ref())
    }

    /// Draws uniform integers from a range. See [`Tensor::randint`](crate::Tensor::randint).
    ///
    /// # Errors
    /// When the range is empty, or the dtype is not an integer that represents the range.
    pub fn randint(
        ty: TensorType,
        range: Range<i64>,
        key: impl Into<Option<Key>>,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        if range.is_empty() {
            let problem = format!("{}..{} contains no integers", range.start, range.end);
            return Err(Error::value("randint", problem).hint("the end of the range must be above its start"));
        }
        let key = key.into().unwrap_or_else(|| Key::next(device));
        let bounds = [range.start.into(), i128::from(range.end) - 1];
        range::integers("randint", ty, bounds, key, device.as_ref())
    }

    /// Draws a uniform random permutation of the integers `0..count`. See
    /// [`Tensor::randperm`](crate::Tensor::randperm).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn randperm(
        count: usize,
        key: impl Into<Option<Key>>,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        let stack = device.as_ref();
        let key = key.into().unwrap_or_else(|| Key::next(device));
        let sort = Op::Sort { axis: 0, descending: false, index: stack.int_dtype() };
        let bits = numbers(TensorType::new([count], DType::U64), RandomKind::Bits, key, stack)?;
        Ok(bits.apply_many(&sort, [])?.swap_remove(1))
    }

    /// Shuffles the slices along an axis. See [`Tensor::shuffle`](crate::Tensor::shuffle).
    ///
    /// # Errors
    /// When the axis is out of range.
    pub fn shuffle(self, axis: impl Into<Axis>, key: impl Into<Option<Key>>) -> Result<AnyTensor> {
        let axis = axis.into().of("shuffle", self.ty())?;
        let order = AnyTensor::randperm(self.shape()[axis], key, self.stack())?;
        self.take(axis, order)
    }

    /// Draws Bernoulli samples. See [`Tensor::bernoulli`](crate::Tensor::bernoulli).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn bernoulli(self, key: impl Into<Option<Key>>) -> Result<AnyTensor> {
        let dtype = self.dtype();
        self.sampled("bernoulli", key.into(), |p, key| {
            sample::uniform(p, key).compare(Comparison::Lt, p).cast(dtype.accumulator())
        })
    }

    /// Draws Poisson samples whose rates are the elements. See [`Tensor::poisson`](crate::Tensor::poisson).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn poisson(self, key: impl Into<Option<Key>>) -> Result<AnyTensor> {
        self.sampled("poisson", key.into(), sample::poisson)
    }

    /// Draws gamma samples of scale 1 whose shape parameters are the elements. See
    /// [`Tensor::standard_gamma`](crate::Tensor::standard_gamma).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn standard_gamma(self, key: impl Into<Option<Key>>) -> Result<AnyTensor> {
        self.sampled("standard_gamma", key.into(), sample::gamma)
    }

    /// Draws Dirichlet samples along the last axis, with the elements as concentrations. See
    /// [`Tensor::dirichlet`](crate::Tensor::dirichlet).
    ///
    /// # Errors
    /// When the dtype is not a float, or the tensor has no axes.
    pub fn dirichlet(self, key: impl Into<Option<Key>>) -> Result<AnyTensor> {
        self.check_has_axes("dirichlet")?;
        self.sampled("dirichlet", key.into(), sample::dirichlet)
    }

    /// Draws class indices by weight, `[.., classes]` to `[.., count]`. See
    /// [`Tensor::multinomial`](crate::Tensor::multinomial). Weights that do not allow a draw are an error of the value,
    /// reported when it is read.
    ///
    /// # Errors
    /// When the dtype is not a float, the tensor has no axes or no classes, or there are more draws than classes
    /// without replacement.
    pub fn multinomial(
        self,
        count: usize,
        replacement: bool,
        key: impl Into<Option<Key>>,
    ) -> Result<AnyTensor> {
        self.check_has_axes("multinomial")?;
        self.require_float("multinomial")?;
        let axis = self.rank() - 1;
        let (index, classes) = (self.stack().int_dtype(), self.shape()[axis]);
        if classes == 0 || (!replacement && count > classes) {
            let problem = format!("cannot draw {count} of {classes} without replacement");
            return Err(Error::type_error("multinomial", problem, &[self.ty().into()])
                .hint("draw fewer, or with replacement"));
        }
        let key = key.into().unwrap_or_else(|| Key::next(self.stack()));
        let wide = self.dtype().accumulator();
        let least = if replacement { count.min(1) } else { count };
        let weights = self.detach().cast(wide)?.checked_weights(least)?;
        if replacement {
            return weights.drawn_with_replacement(count, key);
        }
        let noisy = weights.expression(|weights| sample::noisy_logits(&weights, key));
        let top = Op::TopK { axis, k: count, largest: true, index };
        Ok(noisy.apply_many(&top, [])?.swap_remove(1))
    }

    /// Draws class indices by weights, `[.., classes]` to `[.., count]`: searches uniform numbers in the cumulative
    /// sums, in `f64`, or in `f32` where the engine lacks it.
    fn drawn_with_replacement(self, count: usize, key: Key) -> Result<AnyTensor> {
        let (axis, stack) = (self.rank() - 1, self.stack().clone());
        let (classes, shape) = (self.shape()[axis], self.shape().with(axis, count));
        let is_exact = stack.engine().caps().dtypes.contains(DType::F64);
        let dtype = if is_exact { DType::F64 } else { DType::F32 };
        // Divided by the greatest weight, sums neither overflow nor underflow.
        let greatest = self.clone().reduce(Reduction::Max, &[axis])?.cast(dtype)?;
        let weights = self.cast(dtype)?.binary(Binary::Div, greatest)?;
        let none = weights.clone().compare_scalar(Comparison::Le, 0.0)?;
        let sums = weights.scan(Reduction::Sum, axis)?;
        // The sum at a class of weight 0 is exactly that before it, so that no number is between them.
        let ends = none.if_else_number(0.0, sums)?.scan(Reduction::Max, axis)?;
        let total = ends.clone().narrow(axis, classes - 1, 1)?;
        // A fraction of at most 1 - 2⁻⁵³ (1 - 2⁻²⁴ in `f32`) of the total is below it also when rounded.
        let points = fractions(TensorType::new(shape, dtype), key, &stack)?.binary(Binary::Mul, total)?;
        ends.searchsorted(points, true)
    }

    /// Draws class indices by weight with replacement, `[.., classes]` to `[.., count]`. See
    /// [`Tensor::categorical`](crate::Tensor::categorical).
    ///
    /// # Errors
    /// When the dtype is not a float, or the tensor has no axes or no classes.
    pub fn categorical(self, count: usize, key: impl Into<Option<Key>>) -> Result<AnyTensor> {
        self.multinomial(count, true, key)
    }

    /// Runs a sampler whose parameter is this tensor. It computes in at least `f32`, and no gradient flows through it.
    fn sampled(
        self,
        name: &str,
        key: Option<Key>,
        f: impl for<'e> FnOnce(&Var<'e>, Key) -> Var<'e>,
    ) -> Result<AnyTensor> {
        self.require_float(name)?;
        let key = key.unwrap_or_else(|| Key::next(self.stack()));
        let dtype = self.dtype();
        self.detach().cast(dtype.accumulator())?.expression(|x| f(&x, key)).cast(dtype)
    }

    fn check_has_axes(&self, op: &str) -> Result<()> {
        if self.rank() > 0 {
            return Ok(());
        }
        Err(Error::type_error(op, "needs at least one axis", &[self.ty().into()])
            .hint("the last axis counts the classes"))
    }
}

/// Draws uniform numbers in `[0, 1)`: in `f32` those of `f64`, rounded down, without an op in 64 bits.
fn fractions(ty: TensorType, key: Key, stack: &Stack) -> Result<AnyTensor> {
    if ty.dtype == DType::F64 {
        return numbers(ty, RandomKind::Uniform, key, stack);
    }
    let words = TensorType::new([ty.num_elements(), 2], DType::U32);
    let upper = numbers(words, RandomKind::Bits, key, stack)?.narrow(1, 1, 1)?.reshape(ty.shape)?;
    let upper = upper.binary_scalar(Binary::Shr, 8)?.cast(ty.dtype)?;
    upper.binary_scalar(Binary::Mul, 1.0 / 16_777_216.0)
}
