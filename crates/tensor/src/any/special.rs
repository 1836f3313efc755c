//! Special functions.

use crate::special::*;
use crate::{AnyTensor, Result};

macro_rules! functions {
    ($($(#[$attribute:meta])* $method:ident $function:ident;)*) => {
        impl AnyTensor {$(
            #[doc = concat!("See [`Tensor::", stringify!($method), "`](crate::Tensor::", stringify!($method), ").")]
            ///
            /// # Errors
            /// When the dtype is not a float.
            $(#[$attribute])*
            pub fn $method(self) -> Result<AnyTensor> {
                self.special(&$function)
            }
        )*}
    };
}

functions! {
    #[doc(alias = "arcsin")]
    asin ASIN;
    #[doc(alias = "arccos")]
    acos ACOS;
    sinc SINC;
    sinh SINH;
    cosh COSH;
    #[doc(alias = "arcsinh")]
    asinh ASINH;
    #[doc(alias = "arccosh")]
    acosh ACOSH;
    #[doc(alias = "arctanh")]
    atanh ATANH;
    exp2 EXP2;
    log2 LOG2;
    log10 LOG10;
    cbrt CBRT;
    sigmoid SIGMOID;
    logit LOGIT;
    erfc ERFC;
    erfinv ERFINV;
    lgamma LGAMMA;
    digamma DIGAMMA;
    i0 I0;
    i0e I0E;
    i1 I1;
    i1e I1E;
    ndtri NDTRI;
    bessel_j0 BESSEL_J0;
    bessel_j1 BESSEL_J1;
    bessel_y0 BESSEL_Y0;
    bessel_y1 BESSEL_Y1;
    modified_bessel_k0 K0;
    modified_bessel_k1 K1;
    scaled_modified_bessel_k0 K0E;
    scaled_modified_bessel_k1 K1E;
    spherical_bessel_j0 SPHERICAL_BESSEL_J0;
}

impl AnyTensor {
    /// Computes the regularised lower incomplete gamma function `P(self, x)`, the cumulative distribution function of
    /// the gamma distribution of shape `self`. See [`Tensor::gammainc`](crate::Tensor::gammainc).
    ///
    /// # Errors
    /// When the shapes do not broadcast, or neither dtype is a float.
    pub fn gammainc(self, x: AnyTensor) -> Result<AnyTensor> {
        self.special_pair(&GAMMAINC, x)
    }

    /// Computes the regularised upper incomplete gamma function `Q(self, x) = 1 - P(self, x)`, without cancellation.
    /// See [`Tensor::gammaincc`](crate::Tensor::gammaincc).
    ///
    /// # Errors
    /// As [`gammainc`](AnyTensor::gammainc).
    pub fn gammaincc(self, x: AnyTensor) -> Result<AnyTensor> {
        self.special_pair(&GAMMAINCC, x)
    }

    /// Computes the Hurwitz zeta function, `Σ 1 / (q + k)^self` over all `k >= 0`. See
    /// [`Tensor::zeta`](crate::Tensor::zeta).
    ///
    /// # Errors
    /// As [`gammainc`](AnyTensor::gammainc).
    pub fn zeta(self, q: AnyTensor) -> Result<AnyTensor> {
        self.special_pair(&ZETA, q)
    }

    /// Computes the derivative of `digamma` of this order. See [`Tensor::polygamma`](crate::Tensor::polygamma).
    ///
    /// # Errors
    /// When the dtype is not a float.
    pub fn polygamma(self, order: u32) -> Result<AnyTensor> {
        if order == 0 { self.digamma() } else { self.polygamma_of_order(order) }
    }
}
