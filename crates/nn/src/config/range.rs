//! The ranges of options, which `#[config(range = "[0, 1)")]` declares.

use alloc::string::{String, ToString};
use core::ops::{Bound, RangeBounds};

/// An option of a configuration is outside of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option} is {value}\n  hint: it must be {expected}")]
pub struct OutOfRange {
    /// The field.
    pub option: &'static str,
    /// Its value.
    pub value: String,
    /// The valid range in words.
    pub expected: &'static str,
}

/// A number, or several, whose range a configuration can declare: integers, floats, and options, arrays and pairs of
/// them.
#[diagnostic::on_unimplemented(message = "`{Self}` has no range", label = "expected numbers")]
pub trait InRange {
    /// Returns the text of the first number outside of the bounds. NaN is outside of all bounds.
    fn outside(&self, bounds: (Bound<f64>, Bound<f64>)) -> Option<String>;
}

/// A field, its name, its bounds, and these in words.
type Check<'a> = (&'a dyn InRange, &'static str, (Bound<f64>, Bound<f64>), &'static str);

/// Implements [`Config::check_ranges`](crate::Config::check_ranges) of derived configurations.
///
/// # Errors
/// When a field is out of range: the first one.
#[doc(hidden)]
pub fn check_ranges(checks: &[Check<'_>]) -> Result<(), OutOfRange> {
    let outside = checks.iter().find_map(|&(field, option, bounds, expected)| {
        let value = field.outside(bounds)?;
        Some(OutOfRange { option, value, expected })
    });
    outside.map_or(Ok(()), Err)
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl InRange for $number {
            fn outside(&self, bounds: (Bound<f64>, Bound<f64>)) -> Option<String> {
                (!bounds.contains(&(*self as f64))).then(|| self.to_string())
            }
        }
    )*};
}

numbers!(f32 f64 i8 i16 i32 i64 isize u8 u16 u32 u64 usize);

impl<T: InRange> InRange for Option<T> {
    fn outside(&self, bounds: (Bound<f64>, Bound<f64>)) -> Option<String> {
        self.as_ref()?.outside(bounds)
    }
}

impl<T: InRange, const N: usize> InRange for [T; N] {
    fn outside(&self, bounds: (Bound<f64>, Bound<f64>)) -> Option<String> {
        self.iter().find_map(|number| number.outside(bounds))
    }
}

impl<S: InRange, T: InRange> InRange for (S, T) {
    fn outside(&self, bounds: (Bound<f64>, Bound<f64>)) -> Option<String> {
        self.0.outside(bounds).or_else(|| self.1.outside(bounds))
    }
}
