//! Special functions.

use crate::special::*;
use crate::{AnyTensor, Result};

macro_rules! functions {
    ($($method:ident $function:ident;)*) => {
        impl AnyTensor {$(
            #[doc = concat!("See [`Tensor::", stringify!($method), "`](crate::Tensor::", stringify!($method), ").")]
            pub fn $method(self) -> Result<AnyTensor> {
                self.special(&$function)
            }
        )*}
    };
}

functions! {
    asin ASIN;
    acos ACOS;
    sinc SINC;
    sinh SINH;
    cosh COSH;
    asinh ASINH;
    acosh ACOSH;
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
}

impl AnyTensor {
    /// See [`Tensor::polygamma`](crate::Tensor::polygamma).
    pub fn polygamma(self, order: u32) -> Result<AnyTensor> {
        if order == 0 { self.digamma() } else { self.polygamma_of_order(order) }
    }
}
