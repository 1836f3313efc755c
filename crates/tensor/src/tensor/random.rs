//! Random tensors. Methods accept a [`Key`], or `None` for the next key of the device.

use super::ok;
use crate::random::Key;
use crate::tensor::forward::forward;
use crate::{AnyTensor, Axis, Backend, Distribution, Float, Int, Kind, Shape, Tensor, TensorType};
use core::ops::Range;

impl<B: Backend, const D: usize, K: Kind> Tensor<B, D, K> {
    /// Creates a tensor of random elements that depend on the key only: equal on every engine, independent of earlier
    /// draws.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Distribution, Tensor, random::Key};
    /// # let device = Default::default();
    /// let draw = || Tensor::<Flex, 1>::random_with_key([4], Distribution::Default, Key::new(1), &device);
    /// assert!(draw().all_close(draw(), Some(0.0), Some(0.0)));
    /// ```
    ///
    /// # Panics
    /// When a parameter of the distribution is invalid.
    #[track_caller]
    pub fn random_with_key(
        shape: impl Into<Shape>,
        distribution: Distribution,
        key: Key,
        device: &B::Device,
    ) -> Self {
        let stack = B::stack(device);
        let ty = TensorType::new(shape, K::default_dtype(&stack));
        Tensor::from_any(ok(AnyTensor::random_with_key(ty, distribution, key, &stack)))
    }

    /// Shuffles the slices along an axis.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor, random::Key};
    /// # let device = Default::default();
    /// let x = Tensor::<Flex, 1, Int>::from_ints([1, 2, 3, 4], &device);
    /// let mut y = x.shuffle(0, Key::new(3)).into_data().to_vec::<i32>();
    /// y.sort();
    /// assert_eq!(y, [1, 2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// When the axis is out of range.
    #[track_caller]
    pub fn shuffle(self, axis: impl Into<Axis>, key: impl Into<Option<Key>>) -> Self {
        self.map(|any| any.shuffle(axis, key))
    }
}

impl<B: Backend, const D: usize> Tensor<B, D, Int> {
    /// Draws uniform integers from a range, as [`Distribution::Uniform`] does, and for every range of `i64`. The
    /// probabilities of two integers differ by a relative bias below 2⁻³². Defined as
    /// [`torch.randint`](https://docs.pytorch.org/docs/stable/generated/torch.randint.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor};
    /// # let device = Default::default();
    /// let dice = Tensor::<Flex, 1, Int>::randint([100], 1..7, None, &device).into_data().to_vec::<i32>();
    /// assert!(dice.iter().all(|eyes| (1..7).contains(eyes)));
    /// ```
    ///
    /// # Panics
    /// When the range is empty, or an integer of it does not fit the default integer dtype.
    #[track_caller]
    pub fn randint(
        shape: impl Into<Shape>,
        range: Range<i64>,
        key: impl Into<Option<Key>>,
        device: &B::Device,
    ) -> Self {
        let stack = B::stack(device);
        let ty = TensorType::new(shape, stack.int_dtype());
        Tensor::from_any(ok(AnyTensor::randint(ty, range, key, &stack)))
    }
}

impl<B: Backend> Tensor<B, 1, Int> {
    /// Draws a uniform random permutation of the integers `0..count`. Defined as
    /// [`torch.randperm`](https://docs.pytorch.org/docs/stable/generated/torch.randperm.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Int, Tensor, random::Key};
    /// # let device = Default::default();
    /// let mut order = Tensor::<Flex, 1, Int>::randperm(5, Key::new(1), &device).into_data().to_vec::<i32>();
    /// order.sort();
    /// assert_eq!(order, [0, 1, 2, 3, 4]);
    /// ```
    #[track_caller]
    pub fn randperm(count: usize, key: impl Into<Option<Key>>, device: &B::Device) -> Self {
        Tensor::from_any(ok(AnyTensor::randperm(count, key, &B::stack(device))))
    }
}

forward! {
    impl[B: Backend, const D: usize] Tensor<B, D, Float>;

    /// Draws Bernoulli samples: 1 with the probability that the element states, otherwise 0. Probabilities have steps of
    /// 2⁻²⁴ (2⁻⁵³ for `f64`), rounded up. Defined as
    /// [`torch.bernoulli`](https://docs.pytorch.org/docs/stable/generated/torch.bernoulli.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let p = Tensor::<Flex, 1>::from_floats([0.0, 1.0], &device);
    /// assert_eq!(p.bernoulli(None).into_data().to_vec::<f32>(), [0.0, 1.0]);
    /// ```
    pub fn bernoulli(self, key: impl Into<Option<Key>>) -> Self;

    /// Draws Poisson samples whose rates are the elements; NaN for negative rates. See [`Distribution::Poisson`].
    /// Defined as [`torch.poisson`](https://docs.pytorch.org/docs/stable/generated/torch.poisson.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Tensor, random::Key};
    /// # let device = Default::default();
    /// let rates = Tensor::<Flex, 1>::from_floats([0.0, 100.0], &device);
    /// let counts = rates.poisson(Key::new(1)).into_data().to_vec::<f32>();
    /// assert!(counts[0] == 0.0 && (50.0..150.0).contains(&counts[1]));
    /// ```
    pub fn poisson(self, key: impl Into<Option<Key>>) -> Self;

    /// Draws gamma samples of scale 1 whose shape parameters are the elements; NaN where they are not positive. See
    /// [`Distribution::Gamma`]. Defined as NumPy's
    /// [`standard_gamma`](https://numpy.org/doc/stable/reference/random/generated/numpy.random.Generator.standard_gamma.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Tensor, random::Key};
    /// # let device = Default::default();
    /// let shapes = Tensor::<Flex, 1>::from_floats([0.5, 20.0], &device);
    /// assert!(shapes.standard_gamma(Key::new(1)).into_data().to_vec::<f32>().iter().all(|x| *x > 0.0));
    /// ```
    pub fn standard_gamma(self, key: impl Into<Option<Key>>) -> Self;

    /// Draws Dirichlet samples along the last axis, with the elements as concentrations; each sample sums to 1. Defined
    /// as NumPy's
    /// [`dirichlet`](https://numpy.org/doc/stable/reference/random/generated/numpy.random.Generator.dirichlet.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Tensor, random::Key};
    /// # let device = Default::default();
    /// let concentration = Tensor::<Flex, 1>::from_floats([1.0, 2.0, 3.0], &device);
    /// let sum = concentration.dirichlet(Key::new(1)).sum().into_data().to_vec::<f32>()[0];
    /// assert!((sum - 1.0).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// Without axes.
    pub fn dirichlet(self, key: impl Into<Option<Key>>) -> Self;
}

impl<B: Backend, const D: usize> Tensor<B, D, Float> {
    /// Draws class indices by weight, `[.., classes]` to `[.., count]`, with the next key of the device. Weights need
    /// not sum to 1. Without replacement each class is drawn at most once. With replacement, each draw is a binary
    /// search in the cumulative sums of the weights: in `f64`, or in `f32` on devices without it, where classes with less
    /// than 2⁻²⁴ of the weights may never be drawn. Defined as
    /// [`torch.multinomial`](https://docs.pytorch.org/docs/stable/generated/torch.multinomial.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let weights = Tensor::<Flex, 1>::from_floats([0.0, 1.0, 3.0], &device);
    /// let mut drawn = weights.multinomial(2, false).into_data().to_vec::<i32>();
    /// drawn.sort();
    /// assert_eq!(drawn, [1, 2]);
    /// ```
    ///
    /// # Panics
    /// Without axes or classes, or for more draws than classes without replacement.
    ///
    /// # Errors of the value
    /// Reading the result is an error where a weight is negative, NaN or infinite, or all weights of a row are 0. It is
    /// also an error where, without replacement, fewer than `count` weights are above 0.
    #[track_caller]
    pub fn multinomial(self, count: usize, replacement: bool) -> Tensor<B, D, Int> {
        self.convert(|any| any.multinomial(count, replacement, None))
    }

    /// Like [`multinomial`](Tensor::multinomial), with this key: equal classes on every engine, independent of earlier
    /// draws.
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::{Tensor, random::Key};
    /// # let device = Default::default();
    /// let weights = Tensor::<Flex, 1>::from_floats([0.5, 1.0, 3.0], &device);
    /// let draw = || weights.clone().multinomial_with_key(5, true, Key::new(1)).into_data();
    /// assert_eq!(draw(), draw());
    /// ```
    ///
    /// # Panics
    /// As [`multinomial`](Tensor::multinomial).
    #[track_caller]
    pub fn multinomial_with_key(self, count: usize, replacement: bool, key: Key) -> Tensor<B, D, Int> {
        self.convert(|any| any.multinomial(count, replacement, key))
    }

    /// Draws class indices by weight with replacement, `[.., classes]` to `[.., count]`: see
    /// [`multinomial`](Tensor::multinomial).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let weights = Tensor::<Flex, 1>::from_floats([0.0, 1.0, 0.0], &device);
    /// assert_eq!(weights.categorical(3, None).into_data().to_vec::<i32>(), [1, 1, 1]);
    /// ```
    ///
    /// # Panics
    /// Without axes or classes.
    #[track_caller]
    pub fn categorical(self, count: usize, key: impl Into<Option<Key>>) -> Tensor<B, D, Int> {
        self.convert(|any| any.categorical(count, key))
    }
}
