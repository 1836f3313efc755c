//! Sort keys: unsigned integers in the order of the elements.

use crate::lane::Lane;
use half::{bf16, f16};

/// An unsigned integer.
pub(crate) trait Key: Copy + Ord + Send + Sync + 'static {
    const BITS: u32;
    const MIN: Self;
    const MAX: Self;
    /// Converts an index that fits.
    fn from_place(place: usize) -> Self;
    /// Reverses the order.
    fn complement(self) -> Self;
    fn wide(self) -> u64;
}

macro_rules! keys {
    ($($ty:ty),*) => {$(
        impl Key for $ty {
            const BITS: u32 = <$ty>::BITS;
            const MIN: $ty = 0;
            const MAX: $ty = <$ty>::MAX;
            #[inline(always)]
            fn from_place(place: usize) -> $ty {
                place as $ty
            }
            #[inline(always)]
            fn complement(self) -> $ty {
                !self
            }
            #[inline(always)]
            fn wide(self) -> u64 {
                self as u64
            }
        }
    )*};
}

keys!(u64, u32, u16, u8);

/// An element with a sort key. `u8` also represents `bool`.
pub(crate) trait Ordered: Lane {
    type Key: Key;

    /// The key in the order of the elements: NaN equals NaN and is greater than every number, and both zeros are equal.
    fn key(self) -> Self::Key;
}

macro_rules! unsigned {
    ($($ty:ty),*) => {$(
        impl Ordered for $ty {
            type Key = $ty;
            #[inline(always)]
            fn key(self) -> $ty {
                self
            }
        }
    )*};
}

unsigned!(u64, u32, u16, u8);

macro_rules! signed {
    ($($ty:ty: $key:ty),*) => {$(
        impl Ordered for $ty {
            type Key = $key;
            #[inline(always)]
            fn key(self) -> $key {
                // The minimum becomes 0.
                (self ^ <$ty>::MIN) as $key
            }
        }
    )*};
}

signed!(i64: u64, i32: u32, i16: u16, i8: u8);

macro_rules! floats {
    ($($ty:ty: $key:ty, $signed:ty, $infinity:expr;)*) => {$(
        impl Ordered for $ty {
            type Key = $key;
            #[inline(always)]
            fn key(self) -> $key {
                const SIGN: $key = 1 << (<$key>::BITS - 1);
                let bits = self.to_bits();
                let magnitude = bits & !SIGN;
                let bits = if magnitude == 0 { 0 } else { bits };
                // The bits of a negative float grow away from zero, so all are flipped; for a positive float only the
                // sign.
                let turned = (bits as $signed >> (<$key>::BITS - 1)) as $key | SIGN;
                if magnitude > $infinity { <$key>::MAX } else { bits ^ turned }
            }
        }
    )*};
}

floats! {
    f64: u64, i64, 0x7ff0_0000_0000_0000;
    f32: u32, i32, 0x7f80_0000;
    f16: u16, i16, 0x7c00;
    bf16: u16, i16, 0x7f80;
}
