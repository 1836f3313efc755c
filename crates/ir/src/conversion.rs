//! Conversions of single numbers between element types.

use crate::number::Number;
use crate::{Element, Scalar};
use half::{bf16, f16};

/// Converts elements of tensors. Implemented for every [`Element`].
///
/// Floats are truncated to integers and rounded to floats. Every number other than zero is `true`.
///
/// ```
/// use kiln_ir::ElementConversion;
///
/// assert_eq!(3i64.elem::<f32>(), 3.0);
/// assert_eq!((-2.7f32).elem::<i32>(), -2);
/// assert_eq!(u8::from_elem(true), 1);
/// ```
pub trait ElementConversion: Sized {
    /// Converts a number to this type.
    ///
    /// # Panics
    /// When this type is an integer that cannot hold the number.
    fn from_elem<E: ToElement>(elem: E) -> Self;

    /// Converts to another element type.
    ///
    /// # Panics
    /// When `E` is an integer that cannot hold the number: `300i64.elem::<u8>()`, or a NaN.
    fn elem<E: Element>(self) -> E;
}

impl<T: Element> ElementConversion for T {
    #[track_caller]
    fn from_elem<E: ToElement>(elem: E) -> T {
        element(elem.into())
    }

    #[track_caller]
    fn elem<E: Element>(self) -> E {
        element(scalar(self))
    }
}

macro_rules! to_element {
    ($($name:ident $ty:ty;)*) => {
        /// Converts a number to one type, by the rules of [`ElementConversion`]. Implemented for all numbers that can be
        /// operands of tensors.
        ///
        /// ```
        /// use kiln_ir::ToElement;
        ///
        /// assert_eq!((3usize.to_f32(), 2.7f64.to_usize(), 0.5f32.to_bool()), (3.0, 2, true));
        /// ```
        pub trait ToElement: Copy + Into<Scalar> {
            $(
                #[doc = concat!("Converts to `", stringify!($ty), "`.")]
                ///
                /// # Panics
                /// When the type is an integer that cannot hold the number.
                #[track_caller]
                fn $name(&self) -> $ty {
                    element((*self).into())
                }
            )*

            /// Converts to `usize`.
            ///
            /// # Panics
            /// When it cannot hold the number.
            #[track_caller]
            fn to_usize(&self) -> usize {
                self.to_u64().try_into().unwrap_or_else(|_| does_not_fit((*self).into(), "usize"))
            }
        }
    };
}

to_element! {
    to_f64 f64; to_f32 f32; to_f16 f16; to_bf16 bf16;
    to_i64 i64; to_i32 i32; to_i16 i16; to_i8 i8;
    to_u64 u64; to_u32 u32; to_u16 u16; to_u8 u8;
    to_bool bool;
}

impl<T: Copy + Into<Scalar>> ToElement for T {}

/// An element as a plain number, exactly.
fn scalar<T: Element>(element: T) -> Scalar {
    if T::DTYPE.is_float() {
        return Scalar::Float(element.to_f64());
    }
    let integer = element.to_i128();
    if T::DTYPE.is_bool() {
        return Scalar::Bool(integer != 0);
    }
    // No element type is outside both ranges.
    i64::try_from(integer).map_or(Scalar::UInt(integer as u64), Scalar::Int)
}

#[track_caller]
fn element<E: Element>(number: Scalar) -> E {
    if E::DTYPE.is_bool() {
        return E::from_i128(number.to_bool().into());
    }
    if E::DTYPE.is_int() {
        let truncated = i128::from_scalar(number);
        let is_nan = matches!(number, Scalar::Float(x) if x.is_nan());
        if is_nan || E::from_i128(truncated).to_i128() != truncated {
            does_not_fit(number, E::DTYPE.name());
        }
    }
    number.element()
}

#[track_caller]
fn does_not_fit(number: Scalar, ty: &str) -> ! {
    panic!(
        "[elem] {number} does not fit into {ty}\n  hint: convert to a wider type, or clamp the number before"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_convert_exactly() {
        assert_eq!(u64::MAX.elem::<u64>(), u64::MAX);
        assert_eq!(i64::MIN.elem::<i64>(), i64::MIN);
        assert_eq!(((1u64 << 60) + 1).elem::<i64>(), (1 << 60) + 1);
        assert_eq!(i64::from_elem(usize::MAX >> 1), i64::MAX);
        assert_eq!(300.7f64.elem::<u16>(), 300);
        assert_eq!((-0.9f32).elem::<u8>(), 0);
    }

    #[test]
    fn floats_round_once() {
        let above = 1.0 + 2f64.powi(-11) + 2f64.powi(-45);
        assert_eq!(above.elem::<f16>().to_f64(), 1.0 + 2f64.powi(-10));
        assert_eq!(1e300f64.elem::<f32>(), f32::INFINITY);
        assert!(f32::NAN.elem::<f64>().is_nan());
        assert_eq!(f16::INFINITY.elem::<bf16>(), bf16::INFINITY);
    }

    #[test]
    fn every_number_but_zero_is_true() {
        assert!(0.5f32.elem::<bool>() && f64::NAN.elem::<bool>() && (-1i8).elem::<bool>());
        assert!(!(-0.0f64).elem::<bool>() && !0u8.elem::<bool>());
        assert_eq!((true.elem::<f16>().to_f64(), true.to_usize()), (1.0, 1));
    }

    fn message<T: core::fmt::Debug>(convert: fn() -> T) -> std::string::String {
        let payload = std::panic::catch_unwind(convert).unwrap_err();
        payload.downcast_ref::<std::string::String>().unwrap().clone()
    }

    #[test]
    fn numbers_outside_the_range_panic() {
        assert!(message(|| 300i64.elem::<u8>()).starts_with("[elem] 300 does not fit into u8"));
        assert!(message(|| (-1i32).elem::<u64>()).contains("-1 does not fit into u64"));
        assert!(message(|| f32::NAN.elem::<i32>()).contains("NaN does not fit into i32"));
        assert!(message(|| f64::INFINITY.to_i64()).contains("inf does not fit into i64"));
        assert!(message(|| 1e20f64.to_i64()).contains("does not fit into i64"));
        assert!(message(|| (-1i8).to_usize()).contains("-1 does not fit"));
        assert!(message(|| u64::MAX.elem::<i64>()).contains("does not fit into i64"));
    }
}
