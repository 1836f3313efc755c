//! Comparisons. Operands of different dtypes are promoted ([`DType::promote`]); shapes broadcast.

#[cfg(doc)]
use crate::DType;
use crate::{AnyTensor, Number, Result};
use kiln_ir::{Binary, Comparison, TensorType};

macro_rules! comparisons {
    ($($(#[$attribute:meta])* $method:ident $with_number:ident $comparison:ident $swapped:literal;)*) => {
        impl AnyTensor {$(
            #[doc = concat!("See [`Tensor::", stringify!($method), "`](crate::Tensor::", stringify!($method), ").")]
            ///
            /// # Errors
            /// When the shapes do not broadcast.
            $(#[$attribute])*
            pub fn $method(self, other: AnyTensor) -> Result<AnyTensor> {
                if $swapped {
                    other.compare(Comparison::$comparison, self)
                } else {
                    self.compare(Comparison::$comparison, other)
                }
            }

            #[doc = concat!("[`", stringify!($method), "`](AnyTensor::", stringify!($method), ") with a number.")]
            ///
            /// # Errors
            /// When the number is `bool` and the tensor is not.
            pub fn $with_number(self, x: impl Number) -> Result<AnyTensor> {
                let tensor = self.promoted_for(x)?;
                if $swapped {
                    tensor.scalar_compare(x, Comparison::$comparison)
                } else {
                    tensor.compare_scalar(Comparison::$comparison, x)
                }
            }
        )*}
    };
}

comparisons! {
    #[doc(alias = "eq")]
    equal equal_elem Eq false;
    #[doc(alias = "ne")]
    not_equal not_equal_elem Ne false;
    #[doc(alias = "lt")]
    #[doc(alias = "less")]
    lower lower_elem Lt false;
    #[doc(alias = "le")]
    #[doc(alias = "less_equal")]
    lower_equal lower_equal_elem Le false;
    #[doc(alias = "gt")]
    greater greater_elem Lt true;
    #[doc(alias = "ge")]
    greater_equal greater_equal_elem Le true;
}

impl AnyTensor {
    /// Returns `true` where an element is NaN. See [`Tensor::is_nan`](crate::Tensor::is_nan). False for integers and
    /// `bool`.
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    #[doc(alias = "isnan")]
    pub fn is_nan(self) -> Result<AnyTensor> {
        self.clone().compare(Comparison::Ne, self)
    }

    /// Returns `true` where an element is infinite. See [`Tensor::is_inf`](crate::Tensor::is_inf).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    #[doc(alias = "isinf")]
    pub fn is_inf(self) -> Result<AnyTensor> {
        if self.dtype().is_float() { self.abs()?.equal_elem(f64::INFINITY) } else { self.never() }
    }

    /// Returns `true` where an element is +∞. See [`Tensor::is_pos_inf`](crate::Tensor::is_pos_inf).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn is_pos_inf(self) -> Result<AnyTensor> {
        if self.dtype().is_float() { self.equal_elem(f64::INFINITY) } else { self.never() }
    }

    /// Returns `true` where an element is -∞. See [`Tensor::is_neg_inf`](crate::Tensor::is_neg_inf).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn is_neg_inf(self) -> Result<AnyTensor> {
        if self.dtype().is_float() { self.equal_elem(f64::NEG_INFINITY) } else { self.never() }
    }

    /// Returns `true` where an element is neither NaN nor infinite. See
    /// [`Tensor::is_finite`](crate::Tensor::is_finite).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    #[doc(alias = "isfinite")]
    pub fn is_finite(self) -> Result<AnyTensor> {
        if self.dtype().is_float() {
            self.abs()?.lower_elem(f64::INFINITY)
        } else {
            self.never()?.bitwise_not()
        }
    }

    fn never(self) -> Result<AnyTensor> {
        AnyTensor::zeros(TensorType::new(*self.shape(), kiln_ir::DType::Bool), self.stack())
    }

    /// Returns whether any element is NaN, of shape `[1]`. See [`Tensor::contains_nan`](crate::Tensor::contains_nan).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn contains_nan(self) -> Result<AnyTensor> {
        self.is_nan()?.any()
    }

    /// Returns `true` where `|self - other| <= absolute + relative * |other|`, both are the same infinity, or both are
    /// NaN. See [`Tensor::is_close`](crate::Tensor::is_close).
    ///
    /// # Errors
    /// When the shapes do not broadcast.
    #[doc(alias = "isclose")]
    pub fn is_close(
        self,
        other: AnyTensor,
        relative: Option<f64>,
        absolute: Option<f64>,
    ) -> Result<AnyTensor> {
        let (a, b) = AnyTensor::promoted("is_close", self, other)?;
        let same = a.clone().equal(b.clone())?;
        if !a.dtype().is_float() {
            let float = a.stack().float_dtype();
            return a.cast(float)?.is_close(b.cast(float)?, relative, absolute);
        }
        let bound =
            b.clone().abs()?.mul_scalar(relative.unwrap_or(1e-5))?.add_scalar(absolute.unwrap_or(1e-8))?;
        let both_nan = a.clone().is_nan()?.binary(Binary::And, b.clone().is_nan()?)?;
        let finite = b.clone().is_finite()?;
        let near = a.sub(b)?.abs()?.lower_equal(bound)?.binary(Binary::And, finite)?;
        near.binary(Binary::Or, same)?.binary(Binary::Or, both_nan)
    }

    /// Returns whether all elements are close, by `is_close`. See [`Tensor::all_close`](crate::Tensor::all_close).
    /// Waits for the device.
    ///
    /// # Errors
    /// When the shapes do not broadcast, or a computation failed.
    #[doc(alias = "allclose")]
    pub fn all_close(self, other: AnyTensor, relative: Option<f64>, absolute: Option<f64>) -> Result<bool> {
        let close = self.is_close(other, relative, absolute)?.reduce_all(kiln_ir::Reduction::Min)?;
        Ok(close.wait("await `all_close_async`")?.to_vec::<bool>() == [true])
    }

    /// Like [`all_close`](AnyTensor::all_close), without blocking the thread.
    ///
    /// # Errors
    /// When the shapes do not broadcast, or a computation failed.
    pub async fn all_close_async(
        self,
        other: AnyTensor,
        relative: Option<f64>,
        absolute: Option<f64>,
    ) -> Result<bool> {
        let close = self.is_close(other, relative, absolute)?.reduce_all(kiln_ir::Reduction::Min)?;
        Ok(close.into_data_async().await?.to_vec::<bool>() == [true])
    }
}
