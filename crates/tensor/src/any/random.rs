//! Random tensors. Where a key is `None`, the next key of the device is used.

use crate::random::{Key, sample};
use crate::{AnyTensor, Axis, DType, Distribution, Error, Result, Scalar, Shape, Stack, TensorType};
use alloc::format;
use core::ops::Range;
use kiln_ir::{Binary, Comparison, Op, RandomKind, Var};
use smallvec::smallvec;

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
    pub fn randint(
        ty: TensorType,
        range: Range<i64>,
        key: impl Into<Option<Key>>,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        let Some(count) = range.end.checked_sub(range.start).filter(|&count| count > 0) else {
            let problem = format!("{}..{} contains no integers, or too many", range.start, range.end);
            return Err(Error::value("randint", problem).hint("the end of the range must be above its start"));
        };
        let outside = [range.start, range.end - 1].into_iter().find(|x| !Scalar::Int(*x).fits(ty.dtype));
        if !ty.dtype.is_int() || outside.is_some() {
            let problem = match outside {
                Some(x) => format!("the number {x} of the range is out of bounds for {}", ty.dtype),
                None => "needs an integer dtype".into(),
            };
            return Err(Error::type_error("randint", problem, &[(&ty).into()])
                .hint("use an integer dtype that can represent the range"));
        }
        let bits = bits(ty.shape, key.into().unwrap_or_else(|| Key::next(device)), device.as_ref())?;
        let (first, rest) = (range.start, bits.binary_scalar(Binary::Rem, count)?);
        // The sum wraps into the range if a remainder does not fit the dtype.
        rest.cast(ty.dtype)?.binary_scalar(Binary::Add, first)
    }

    /// Draws a uniform random permutation of the integers `0..count`. See
    /// [`Tensor::randperm`](crate::Tensor::randperm).
    pub fn randperm(
        count: usize,
        key: impl Into<Option<Key>>,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        let stack = device.as_ref();
        let key = key.into().unwrap_or_else(|| Key::next(device));
        let sort = Op::Sort { axis: 0, descending: false, index: stack.int_dtype() };
        Ok(bits(Shape::new([count]), key, stack)?.apply_many(&sort, [])?.swap_remove(1))
    }

    /// Shuffles the slices along an axis. See [`Tensor::shuffle`](crate::Tensor::shuffle).
    pub fn shuffle(self, axis: impl Into<Axis>, key: impl Into<Option<Key>>) -> Result<AnyTensor> {
        let axis = axis.into().of("shuffle", self.ty())?;
        let order = AnyTensor::randperm(self.shape()[axis], key, self.stack())?;
        self.take(axis, order)
    }

    /// Draws Bernoulli samples. See [`Tensor::bernoulli`](crate::Tensor::bernoulli).
    pub fn bernoulli(self, key: impl Into<Option<Key>>) -> Result<AnyTensor> {
        let dtype = self.dtype();
        self.sampled("bernoulli", key.into(), |p, key| {
            sample::uniform(p, key).compare(Comparison::Lt, p).cast(dtype.accumulator())
        })
    }

    /// Draws Poisson samples whose rates are the elements. See [`Tensor::poisson`](crate::Tensor::poisson).
    pub fn poisson(self, key: impl Into<Option<Key>>) -> Result<AnyTensor> {
        self.sampled("poisson", key.into(), sample::poisson)
    }

    /// Draws gamma samples of scale 1 whose shape parameters are the elements. See
    /// [`Tensor::standard_gamma`](crate::Tensor::standard_gamma).
    pub fn standard_gamma(self, key: impl Into<Option<Key>>) -> Result<AnyTensor> {
        self.sampled("standard_gamma", key.into(), sample::gamma)
    }

    /// Draws Dirichlet samples along the last axis, with the elements as concentrations. See
    /// [`Tensor::dirichlet`](crate::Tensor::dirichlet).
    pub fn dirichlet(self, key: impl Into<Option<Key>>) -> Result<AnyTensor> {
        self.check_has_axes("dirichlet")?;
        self.sampled("dirichlet", key.into(), sample::dirichlet)
    }

    /// Draws class indices by weight, `[.., classes]` to `[.., count]`. See
    /// [`Tensor::multinomial`](crate::Tensor::multinomial). Weights that do not allow a draw are an error of the value,
    /// reported when it is read.
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
        if !replacement {
            let noisy = weights.expression(|weights| sample::noisy_logits(&weights, key));
            let top = Op::TopK { axis, k: count, largest: true, index };
            return Ok(noisy.apply_many(&top, [])?.swap_remove(1));
        }
        // A row of noise for each draw.
        let shape = *weights.shape();
        let lengths =
            |middle: usize| -> Shape { shape[..axis].iter().copied().chain([middle, classes]).collect() };
        let rows = weights.reshape(lengths(1))?.expand(lengths(count))?;
        let noisy = rows.expression(|weights| sample::noisy_logits(&weights, key));
        let extremum = kiln_ir::Extremum::Max;
        let chosen = noisy.apply(&Op::ArgReduce { extremum, axis: axis + 1, index })?;
        let drawn: Shape = shape[..axis].iter().copied().chain([count]).collect();
        chosen.reshape(drawn)
    }

    /// Draws class indices by weight with replacement, `[.., classes]` to `[.., count]`. See
    /// [`Tensor::categorical`](crate::Tensor::categorical).
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

/// Draws uniform 64-bit words.
fn bits(shape: Shape, key: Key, stack: &Stack) -> Result<AnyTensor> {
    let op = Op::Random { ty: TensorType::new(shape, DType::U64), distribution: RandomKind::Bits };
    let results = AnyTensor::emit(stack, &op, smallvec![Scalar::UInt(key.bits()).into()])?;
    AnyTensor::only(stack.clone(), &op, results)
}
