//! Special functions. They are expressions of ops with closed-form gradients, the same on every engine; the page
//! `docs/accuracy.md` of the repository lists their accuracy.

use super::elementwise::float_functions;
use crate::tensor::forward::forward;
use crate::{Backend, Float, Tensor};

float_functions! {
    /// Computes the arc sine, in radians; NaN beyond ±1.
    #[doc(alias = "arcsin")]
    asin "[`torch.asin`](https://docs.pytorch.org/docs/stable/generated/torch.asin.html)"
        "[0.5, -1.0]" "[0.5235988, -1.570796]";
    /// Computes the arc cosine, in radians; NaN beyond ±1.
    #[doc(alias = "arccos")]
    acos "[`torch.acos`](https://docs.pytorch.org/docs/stable/generated/torch.acos.html)"
        "[0.5, -1.0]" "[1.047198, 3.141593]";
    /// Computes the normalized sinc, `sin(πx) / (πx)`; 1 at 0.
    sinc "[`torch.sinc`](https://docs.pytorch.org/docs/stable/generated/torch.sinc.html)"
        "[0.0, 0.5]" "[1.0, 0.6366198]";
    /// Computes the hyperbolic sine, accurate near 0.
    sinh "[`torch.sinh`](https://docs.pytorch.org/docs/stable/generated/torch.sinh.html)"
        "[0.5, -1.0]" "[0.5210953, -1.175201]";
    /// Computes the hyperbolic cosine.
    cosh "[`torch.cosh`](https://docs.pytorch.org/docs/stable/generated/torch.cosh.html)"
        "[0.5, -1.0]" "[1.127626, 1.543081]";
    /// Computes the inverse hyperbolic sine, accurate near 0.
    #[doc(alias = "arcsinh")]
    asinh "[`torch.asinh`](https://docs.pytorch.org/docs/stable/generated/torch.asinh.html)"
        "[0.5, -1.0]" "[0.4812118, -0.8813736]";
    /// Computes the inverse hyperbolic cosine, accurate near 1; NaN below.
    #[doc(alias = "arccosh")]
    acosh "[`torch.acosh`](https://docs.pytorch.org/docs/stable/generated/torch.acosh.html)"
        "[1.0, 2.0]" "[0.0, 1.316958]";
    /// Computes the inverse hyperbolic tangent, accurate near 0; ±∞ at ±1, NaN beyond.
    #[doc(alias = "arctanh")]
    atanh "[`torch.atanh`](https://docs.pytorch.org/docs/stable/generated/torch.atanh.html)"
        "[0.5, -0.9]" "[0.5493061, -1.472219]";
    /// Computes `2^x`.
    exp2 "[`torch.exp2`](https://docs.pytorch.org/docs/stable/generated/torch.exp2.html)"
        "[0.5, -1.0]" "[1.414214, 0.5]";
    /// Computes the binary logarithm: -∞ at 0, NaN below.
    log2 "[`torch.log2`](https://docs.pytorch.org/docs/stable/generated/torch.log2.html)"
        "[8.0, 10.0]" "[3.0, 3.321928]";
    /// Computes the decimal logarithm: -∞ at 0, NaN below.
    log10 "[`torch.log10`](https://docs.pytorch.org/docs/stable/generated/torch.log10.html)"
        "[100.0, 2.0]" "[2.0, 0.30103]";
    /// Computes the cube root, with the sign of the element.
    cbrt "NumPy's [`cbrt`](https://numpy.org/doc/stable/reference/generated/numpy.cbrt.html)"
        "[8.0, -27.0]" "[2.0, -3.0]";
    /// Computes the logistic function, `1 / (1 + e^-x)`.
    sigmoid "[`torch.sigmoid`](https://docs.pytorch.org/docs/stable/generated/torch.sigmoid.html)"
        "[0.0, 2.0]" "[0.5, 0.8807971]";
    /// Computes the log-odds, the inverse of [`sigmoid`](Tensor::sigmoid): `ln(x / (1 - x))`; NaN outside 0 to 1.
    logit "[`torch.logit`](https://docs.pytorch.org/docs/stable/generated/torch.logit.html)"
        "[0.5, 0.9]" "[0.0, 2.197225]";
    /// Computes the complementary error function, `1 - erf(x)`, without cancellation.
    erfc "[`torch.special.erfc`](https://docs.pytorch.org/docs/stable/special.html#torch.special.erfc)"
        "[0.0, 2.0]" "[1.0, 0.004677735]";
    /// Computes the inverse of the error function; ±∞ at ±1, NaN beyond.
    erfinv "[`torch.erfinv`](https://docs.pytorch.org/docs/stable/generated/torch.erfinv.html)"
        "[0.0, 0.5]" "[0.0, 0.4769363]";
    /// Computes the logarithm of the magnitude of the gamma function; ∞ at 0 and the negative integers.
    lgamma "[`torch.lgamma`](https://docs.pytorch.org/docs/stable/generated/torch.lgamma.html)"
        "[0.5, 5.0]" "[0.5723649, 3.178054]";
    /// Computes the derivative of [`lgamma`](Tensor::lgamma): -∞ at 0, NaN at the negative integers.
    digamma "[`torch.digamma`](https://docs.pytorch.org/docs/stable/generated/torch.digamma.html)"
        "[1.0, 5.0]" "[-0.5772157, 1.506118]";
    /// Computes the modified Bessel function of the first kind of order 0.
    i0 "[`torch.i0`](https://docs.pytorch.org/docs/stable/generated/torch.i0.html)"
        "[0.0, 2.0]" "[1.0, 2.279585]";
    /// Computes the exponentially scaled [`i0`](Tensor::i0): `i0(x) * exp(-|x|)`.
    i0e "[`torch.special.i0e`](https://docs.pytorch.org/docs/stable/special.html#torch.special.i0e)"
        "[0.0, 20.0]" "[1.0, 0.08978031]";
    /// Computes the modified Bessel function of the first kind of order 1.
    i1 "[`torch.special.i1`](https://docs.pytorch.org/docs/stable/special.html#torch.special.i1)"
        "[0.0, 2.0]" "[0.0, 1.590637]";
    /// Computes the exponentially scaled [`i1`](Tensor::i1): `i1(x) * exp(-|x|)`.
    i1e "[`torch.special.i1e`](https://docs.pytorch.org/docs/stable/special.html#torch.special.i1e)"
        "[0.0, 20.0]" "[0.0, 0.08750622]";
    /// Computes the quantile function of the standard normal distribution, the inverse of its cumulative distribution
    /// function: -∞ at 0, ∞ at 1, NaN outside.
    ndtri "[`torch.special.ndtri`](https://docs.pytorch.org/docs/stable/special.html#torch.special.ndtri)"
        "[0.5, 0.975]" "[0.0, 1.959964]";
    /// Computes the Bessel function of the first kind of order 0. At ±∞ it is 0, where SciPy and PyTorch return NaN.
    bessel_j0 "[`torch.special.bessel_j0`](https://docs.pytorch.org/docs/stable/special.html#torch.special.bessel_j0)"
        "[0.0, 2.0]" "[1.0, 0.2238908]";
    /// Computes the Bessel function of the first kind of order 1. At ±∞ it is 0, where SciPy and PyTorch return NaN.
    bessel_j1 "[`torch.special.bessel_j1`](https://docs.pytorch.org/docs/stable/special.html#torch.special.bessel_j1)"
        "[0.0, 2.0]" "[0.0, 0.5767248]";
    /// Computes the Bessel function of the second kind of order 0: -∞ at 0, NaN below, 0 at ∞, where SciPy and PyTorch
    /// return NaN.
    bessel_y0 "[`torch.special.bessel_y0`](https://docs.pytorch.org/docs/stable/special.html#torch.special.bessel_y0)"
        "[1.0, 2.0]" "[0.08825696, 0.5103757]";
    /// Computes the Bessel function of the second kind of order 1: -∞ at 0, NaN below, 0 at ∞, where SciPy and PyTorch
    /// return NaN.
    bessel_y1 "[`torch.special.bessel_y1`](https://docs.pytorch.org/docs/stable/special.html#torch.special.bessel_y1)"
        "[1.0, 2.0]" "[-0.7812128, -0.1070324]";
    /// Computes the modified Bessel function of the second kind of order 0: ∞ at 0, NaN below.
    modified_bessel_k0 "[`torch.special.modified_bessel_k0`](https://docs.pytorch.org/docs/stable/special.html#torch.special.modified_bessel_k0)"
        "[1.0, 2.0]" "[0.4210244, 0.1138939]";
    /// Computes the modified Bessel function of the second kind of order 1: ∞ at 0, NaN below.
    modified_bessel_k1 "[`torch.special.modified_bessel_k1`](https://docs.pytorch.org/docs/stable/special.html#torch.special.modified_bessel_k1)"
        "[1.0, 2.0]" "[0.6019072, 0.1398659]";
    /// Computes the exponentially scaled [`modified_bessel_k0`](Tensor::modified_bessel_k0): `k0(x) * exp(x)`.
    scaled_modified_bessel_k0 "[`torch.special.scaled_modified_bessel_k0`](https://docs.pytorch.org/docs/stable/special.html#torch.special.scaled_modified_bessel_k0)"
        "[1.0, 20.0]" "[1.144463, 0.2785449]";
    /// Computes the exponentially scaled [`modified_bessel_k1`](Tensor::modified_bessel_k1): `k1(x) * exp(x)`.
    scaled_modified_bessel_k1 "[`torch.special.scaled_modified_bessel_k1`](https://docs.pytorch.org/docs/stable/special.html#torch.special.scaled_modified_bessel_k1)"
        "[1.0, 20.0]" "[1.636153, 0.2854255]";
    /// Computes the spherical Bessel function of the first kind of order 0, `sin(x) / x`; 1 at 0.
    spherical_bessel_j0 "[`torch.special.spherical_bessel_j0`](https://docs.pytorch.org/docs/stable/special.html#torch.special.spherical_bessel_j0)"
        "[0.0, 2.0]" "[1.0, 0.4546487]";
}

forward! {
    impl[B: Backend, const D: usize] Tensor<B, D, Float>;

    /// Computes the regularised lower incomplete gamma function `P(self, x)`, the cumulative distribution function of
    /// the gamma distribution of shape `self`. NaN for negative arguments. Broadcasts; has gradients for both. Defined
    /// as [`torch.special.gammainc`](https://docs.pytorch.org/docs/stable/special.html#torch.special.gammainc).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.0, 4.0], &device);
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 3.0], &device);
    /// let y = Tensor::from_floats([0.6321206, 0.3527681], &device);
    /// assert!(a.gammainc(x).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn gammainc(self, x: Self as any) -> Self;

    /// Computes the regularised upper incomplete gamma function `Q(self, x) = 1 - P(self, x)`, without cancellation.
    /// See [`gammainc`](Tensor::gammainc). Defined as
    /// [`torch.special.gammaincc`](https://docs.pytorch.org/docs/stable/special.html#torch.special.gammaincc).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let a = Tensor::<Flex, 1>::from_floats([1.0, 4.0], &device);
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 3.0], &device);
    /// let y = Tensor::from_floats([0.3678794, 0.6472319], &device);
    /// assert!(a.gammaincc(x).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn gammaincc(self, x: Self as any) -> Self;

    /// Computes the Hurwitz zeta function, `Σ 1 / (q + k)^self` over all `k >= 0`; broadcasts. It is ∞ at an order of 1
    /// and NaN below. It is ∞ where `q` is 0 or a negative integer, and NaN for other negative `q`, where SciPy and
    /// PyTorch sum for integer orders. For an order of ∞ it returns the limit, 0 for `q` above 1, where they return
    /// NaN. Defined as [`torch.special.zeta`](https://docs.pytorch.org/docs/stable/special.html#torch.special.zeta).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let s = Tensor::<Flex, 1>::from_floats([2.0, 3.0], &device);
    /// let q = Tensor::<Flex, 1>::from_floats([1.0, 2.5], &device);
    /// let y = Tensor::from_floats([1.6449341, 0.11810203], &device);
    /// assert!(s.zeta(q).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn zeta(self, q: Self as any) -> Self;

    /// Computes the derivative of [`digamma`](Tensor::digamma) of this order: order 0 is `digamma` itself, order 1 the
    /// trigamma function. From order 1 on it is 0 at ∞, where PyTorch returns NaN from order 2 on. Defined as
    /// [`torch.polygamma`](https://docs.pytorch.org/docs/stable/generated/torch.polygamma.html).
    ///
    /// ```
    /// # use kiln_backends::Flex;
    /// # use kiln_tensor::Tensor;
    /// # let device = Default::default();
    /// let x = Tensor::<Flex, 1>::from_floats([1.0, 2.0], &device);
    /// let y = Tensor::from_floats([1.6449341, 0.6449341], &device);
    /// assert!(x.polygamma(1).all_close(y, None, Some(1e-6)));
    /// ```
    pub fn polygamma(self, order: u32) -> Self;
}
