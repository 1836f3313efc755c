//! Slice ranges, with negative ends and steps.

use alloc::format;
use alloc::vec::Vec;
use core::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};
use kiln_ir::{Error, Result, SliceAxis};

/// A range of one axis: `1..3`, `..`, `-2..`, a single index, or a range with a step by [`s!`](crate::s).
///
/// As in [NumPy](https://numpy.org/doc/stable/user/basics.indexing.html#slicing-and-striding), negative ends count from
/// the end of the axis, and ends beyond the axis are clamped. Three rules differ. A single index keeps its axis with
/// length 1. A negative step visits the range from its last element to its first, as NumPy's `x[a:b][::-1]` does, so
/// the ends are not swapped. A range that starts beyond its axis is an error.
///
/// ```
/// use kiln_tensor::{SliceArg, s};
///
/// let ranges = s![.., 1..3, -2..;2, 0];
/// assert_eq!(ranges[2], SliceArg { start: -2, end: None, step: 2 });
/// assert_eq!(ranges[3], SliceArg::from(0..1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceArg {
    /// Index of the first element; negative counts from the end.
    pub start: i64,
    /// Index after the last element; negative counts from the end, `None` is the end.
    pub end: Option<i64>,
    /// Distance between elements; negative reverses the range. Not 0.
    pub step: i64,
}

impl SliceArg {
    /// The whole axis.
    pub const FULL: SliceArg = SliceArg { start: 0, end: None, step: 1 };

    /// Returns the range with a step.
    #[must_use]
    pub fn step(self, step: i64) -> SliceArg {
        SliceArg { step, ..self }
    }

    /// Resolves the range on an axis of this length.
    ///
    /// # Errors
    /// When the step is 0, or the range starts beyond the axis.
    pub fn resolve(self, axis: usize, length: usize) -> Result<SliceAxis> {
        if self.step == 0 {
            return Err(Error::type_error("slice", format!("the step along axis {axis} is 0"), &[])
                .hint("a step of 1 selects every element, -1 reverses"));
        }
        let size = length as i64;
        let place = |x: i64| if x < 0 { (x + size).max(0) } else { x };
        let start = place(self.start);
        if start > size {
            let problem =
                format!("the range along axis {axis} starts at {start}, beyond its length {length}");
            return Err(Error::type_error("slice", problem, &[])
                .hint(format!("ranges start from 0 to {length}; negative numbers count from the end")));
        }
        let end = self.end.map_or(size, place).min(size).max(start);
        let len = ((end - start) as u64).div_ceil(self.step.unsigned_abs()) as usize;
        let first = if self.step > 0 || len == 0 { start } else { end - 1 };
        Ok(SliceAxis { start: first as usize, len, step: self.step as isize })
    }
}

/// Converts a position to `i64`. A position beyond `i64` stays beyond every axis, instead of counting from the end.
fn place(place: impl TryInto<i64>) -> i64 {
    place.try_into().unwrap_or(i64::MAX)
}

macro_rules! ranges {
    ($($ty:ty),*) => {$(
        impl From<Range<$ty>> for SliceArg {
            fn from(range: Range<$ty>) -> SliceArg {
                SliceArg { start: place(range.start), end: Some(place(range.end)), step: 1 }
            }
        }

        impl From<RangeInclusive<$ty>> for SliceArg {
            fn from(range: RangeInclusive<$ty>) -> SliceArg {
                // One past the last element, -1, is the end.
                let end = place(*range.end()).saturating_add(1);
                SliceArg { start: place(*range.start()), end: (end != 0).then_some(end), step: 1 }
            }
        }

        impl From<RangeFrom<$ty>> for SliceArg {
            fn from(range: RangeFrom<$ty>) -> SliceArg {
                SliceArg { start: place(range.start), ..SliceArg::FULL }
            }
        }

        impl From<RangeTo<$ty>> for SliceArg {
            fn from(range: RangeTo<$ty>) -> SliceArg {
                SliceArg { end: Some(place(range.end)), ..SliceArg::FULL }
            }
        }

        impl From<RangeToInclusive<$ty>> for SliceArg {
            fn from(range: RangeToInclusive<$ty>) -> SliceArg {
                (0 as $ty..=range.end).into()
            }
        }

        impl From<$ty> for SliceArg {
            /// Creates the range of one element; the axis is kept with length 1.
            fn from(index: $ty) -> SliceArg {
                (index..=index).into()
            }
        }
    )*};
}

ranges!(usize, i64, i32);

/// The ranges of [`Tensor::slice`](crate::Tensor::slice): one range or index, of the first axis; an array or slice with
/// one per axis; or [`s!`](crate::s) for ranges of different types.
pub trait SliceArgs {
    /// The container of the ranges.
    type Ranges: AsRef<[SliceArg]>;

    /// Returns one range for each of the first axes.
    fn ranges(self) -> Self::Ranges;
}

impl<R: Into<SliceArg>, const N: usize> SliceArgs for [R; N] {
    type Ranges = [SliceArg; N];

    #[inline]
    fn ranges(self) -> [SliceArg; N] {
        self.map(Into::into)
    }
}

impl<R: Clone + Into<SliceArg>, const N: usize> SliceArgs for &[R; N] {
    type Ranges = [SliceArg; N];

    #[inline]
    fn ranges(self) -> [SliceArg; N] {
        self.clone().ranges()
    }
}

impl<R: Clone + Into<SliceArg>> SliceArgs for &[R] {
    type Ranges = Vec<SliceArg>;

    fn ranges(self) -> Vec<SliceArg> {
        self.iter().cloned().map(Into::into).collect()
    }
}

macro_rules! one_range {
    (of $($ty:ty),*) => {$(
        one_range!(Range<$ty>, RangeInclusive<$ty>, RangeFrom<$ty>, RangeTo<$ty>, RangeToInclusive<$ty>, $ty);
    )*};
    ($($ty:ty),* $(,)?) => {$(
        impl SliceArgs for $ty {
            type Ranges = [SliceArg; 1];

            #[inline]
            fn ranges(self) -> [SliceArg; 1] {
                [self.into()]
            }
        }
    )*};
}

one_range!(of usize, i64, i32);
one_range!(SliceArg, RangeFull);

impl From<RangeFull> for SliceArg {
    fn from(_: RangeFull) -> SliceArg {
        SliceArg::FULL
    }
}

/// Creates ranges for [`Tensor::slice`](crate::Tensor::slice), one per axis, each with an optional step:
/// `s![.., 1..3, ..;2, -1]`. Ranges such as `1..-1`, which clippy reports as empty elsewhere, are allowed.
#[macro_export]
macro_rules! s {
    (@ [$($done:expr,)*] $range:expr; $step:expr, $($rest:tt)+) => {
        $crate::s!(@ [$($done,)* $crate::SliceArg::from($range).step($step),] $($rest)+)
    };
    (@ [$($done:expr,)*] $range:expr; $step:expr $(,)?) => {
        [$($done,)* $crate::SliceArg::from($range).step($step)]
    };
    (@ [$($done:expr,)*] $range:expr, $($rest:tt)+) => {
        $crate::s!(@ [$($done,)* $crate::SliceArg::from($range),] $($rest)+)
    };
    (@ [$($done:expr,)*] $range:expr $(,)?) => {
        [$($done,)* $crate::SliceArg::from($range)]
    };
    ($($all:tt)+) => {{
        #[allow(clippy::reversed_empty_ranges, reason = "`1..-1` ends before the last element")]
        let ranges = $crate::s!(@ [] $($all)+);
        ranges
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(arg: impl Into<SliceArg>, length: usize) -> (usize, usize, isize) {
        let axis = arg.into().resolve(0, length).unwrap();
        (axis.start, axis.len, axis.step)
    }

    #[test]
    fn ranges_resolve() {
        assert_eq!(resolved(.., 5), (0, 5, 1));
        assert_eq!(resolved(1..3, 5), (1, 2, 1));
        assert_eq!(resolved(-2.., 5), (3, 2, 1));
        assert_eq!(resolved(..-1, 5), (0, 4, 1));
        assert_eq!(resolved(-1, 5), (4, 1, 1));
        assert_eq!(resolved(1..=9, 5), (1, 4, 1));
        assert_eq!(resolved(1..=i64::MAX, 5), (1, 4, 1));
        assert_eq!(resolved(..=-1, 5), (0, 5, 1));
        assert_eq!(resolved(..=-2, 5), (0, 4, 1));
        assert_eq!(resolved(i64::MIN.., 5), (0, 5, 1));
        assert_eq!(resolved(SliceArg::FULL.step(2), 5), (0, 3, 2));
        assert_eq!(resolved(SliceArg::FULL.step(-2), 5), (4, 3, -2));
        let reversed = SliceArg { start: 3, end: Some(1), step: 1 };
        assert_eq!(resolved(reversed, 5), (3, 0, 1));
        assert_eq!(s![.., 1..3, ..;2].len(), 3);
    }

    #[test]
    fn bad_ranges_are_errors() {
        assert!(SliceArg::FULL.step(0).resolve(0, 5).is_err());
        assert!(SliceArg::from(6..).resolve(0, 5).is_err());
    }
}
