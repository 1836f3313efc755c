//! Elementwise functions over contiguous ranges: one loop per function and dtype, in tables.
//!
//! A loop reads contiguous operands and writes a result that overlaps none of them. The caller handles strides, scalars
//! and in-place results.

use crate::functions;
use crate::half_float::HalfFloat;
use crate::isa::{Level, Widest, multiversion};
use crate::lane::{Bits, FloatLane, Lane};
use crate::math::{self, loops::Vector1};
use core::hint::select_unpredictable;
use core::mem::MaybeUninit;
use half::{bf16, f16};
use kiln_ir::{Binary, Comparison, DType, Element, Unary};

/// `(level, x, y, n)`: writes `n` elements at `y` from `n` at `x`.
///
/// # Safety
/// `n` elements of the loop's dtypes may be read and written; they do not overlap.
pub(crate) type Loop1 = unsafe fn(Level, *const u8, *mut u8, usize);

/// `(level, a, b, y, n)`: as [`Loop1`], with two operands.
pub(crate) type Loop2 = unsafe fn(Level, *const u8, *const u8, *mut u8, usize);

/// `(level, condition, a, b, y, n)`: as [`Loop1`], with three operands.
pub(crate) type Loop3 = unsafe fn(Level, *const u8, *const u8, *const u8, *mut u8, usize);

/// A function of one element.
pub(crate) trait Map1<X, Y> {
    const WIDEST: Widest;
    fn map(x: X) -> Y;
}

/// A function of two elements.
pub(crate) trait Map2<X, Y> {
    const WIDEST: Widest;
    fn map(a: X, b: X) -> Y;
}

multiversion! {
    pub(crate) fn each1[X: Copy, Y, F: Map1<X, Y>]<X, Y, F> in { F::WIDEST } (x: &[X], y: &mut [MaybeUninit<Y>]) {
        for (y, x) in y.iter_mut().zip(x) {
            y.write(F::map(*x));
        }
    }

    pub(crate) fn each2[X: Copy, Y, F: Map2<X, Y>]<X, Y, F> in { F::WIDEST } (a: &[X], b: &[X], y: &mut [MaybeUninit<Y>]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            y.write(F::map(*a, *b));
        }
    }

    /// Whether no magnitude exceeds a bound; NaN has none.
    fn all_within[]<> in { Widest::Avx512 } (x: &[f32], bound: f32) -> bool {
        x.iter().fold(0, |count, x| count + (x.abs() > bound) as u32) == 0
    }

    // `if` selects between two addresses for each element.
    fn each_select[T: Copy]<T> in { Widest::Avx2 } (condition: &[u8], a: &[T], b: &[T], y: &mut [MaybeUninit<T>]) {
        for (((y, c), a), b) in y.iter_mut().zip(condition).zip(a).zip(b) {
            y.write(select_unpredictable(*c != 0, *a, *b));
        }
    }
}

/// # Safety
/// As [`Loop1`].
#[inline(always)]
pub(crate) unsafe fn read<'a, T>(pointer: *const u8, n: usize) -> &'a [T] {
    // SAFETY: as the caller promises.
    unsafe { core::slice::from_raw_parts(pointer.cast(), n) }
}

/// # Safety
/// As [`Loop1`].
#[inline(always)]
pub(crate) unsafe fn written<'a, T>(pointer: *mut u8, n: usize) -> &'a mut [MaybeUninit<T>] {
    // SAFETY: as the caller promises.
    unsafe { core::slice::from_raw_parts_mut(pointer.cast(), n) }
}

pub(crate) unsafe fn loop1<X: Copy, Y, F: Map1<X, Y>>(level: Level, x: *const u8, y: *mut u8, n: usize) {
    // SAFETY: as the caller promises.
    let (x, y) = unsafe { (read(x, n), written(y, n)) };
    each1::<X, Y, F>(level, x, y);
}

unsafe fn loop2<X: Copy, Y, F: Map2<X, Y>>(level: Level, a: *const u8, b: *const u8, y: *mut u8, n: usize) {
    // SAFETY: as the caller promises.
    let (a, b, y) = unsafe { (read(a, n), read(b, n), written(y, n)) };
    each2::<X, Y, F>(level, a, b, y);
}

unsafe fn loop_select<T: Copy>(
    level: Level,
    condition: *const u8,
    a: *const u8,
    b: *const u8,
    y: *mut u8,
    n: usize,
) {
    // SAFETY: as the caller promises.
    let (condition, a, b, y) = unsafe { (read(condition, n), read(a, n), read(b, n), written(y, n)) };
    each_select::<T>(level, condition, a, b, y);
}

/// Trigonometric functions of `f32`. Angles beyond the range of the vectorized reduction are reduced exactly in `f64`.
pub(crate) unsafe fn loop_angle<F: Vector1 + Map1<f64, f64>>(
    level: Level,
    x: *const u8,
    y: *mut u8,
    n: usize,
) {
    // SAFETY: as the caller promises.
    let (x, y) = unsafe {
        math::loops::loop1::<F>(level, x, y, n);
        (read::<f32>(x, n), written(y, n))
    };
    if !all_within(level, x, math::MAX_ANGLE) {
        for (y, x) in y.iter_mut().zip(x).filter(|(_, x)| x.abs() > math::MAX_ANGLE) {
            y.write(F::map(f64::from(*x)) as f32);
        }
    }
}

macro_rules! maps {
    ($([$widest:expr] for $bound:ident: $($name:ident($($arg:ident),*) $method:ident),*;)*) => {$($(
        pub(crate) struct $name;
        maps!(@impl $name($($arg),*) $bound $method $widest);
    )*)*};
    (@impl $name:ident($x:ident) $bound:ident $method:ident $widest:expr) => {
        impl<T: $bound> Map1<T, T> for $name {
            const WIDEST: Widest = $widest;
            #[inline(always)]
            fn map($x: T) -> T {
                $x.$method()
            }
        }
    };
    (@impl $name:ident($a:ident, $b:ident) $bound:ident $method:ident $widest:expr) => {
        impl<T: $bound> Map2<T, T> for $name {
            const WIDEST: Widest = $widest;
            #[inline(always)]
            fn map($a: T, $b: T) -> T {
                $a.$method($b)
            }
        }
    };
}

maps! {
    [T::WIDEST] for Lane: Neg(x) neg, Abs(x) abs, Sign(x) sign;
    [T::WIDEST] for FloatLane: Recip(x) recip, Sqrt(x) sqrt, Rsqrt(x) rsqrt, Floor(x) floor, Ceil(x) ceil,
        Round(x) round, Trunc(x) trunc;
    [Widest::Baseline] for FloatLane: Atan2(a, b) atan2;
    [T::WIDEST] for Lane: Add(a, b) add, Sub(a, b) sub, Mul(a, b) mul, Min(a, b) min, Max(a, b) max;
    [T::WIDEST] for FloatLane: DivFloat(a, b) div;
    [Widest::Baseline] for Bits: DivInt(a, b) div;
    [Widest::Baseline] for Lane: Rem(a, b) rem, Pow(a, b) pow;
    [Widest::Avx2] for Bits: Not(x) not, And(a, b) and, Or(a, b) or, Xor(a, b) xor, Shl(a, b) shl, Shr(a, b) shr;
}

/// The complement of a `bool`.
struct NotBool;

impl Map1<u8, u8> for NotBool {
    const WIDEST: Widest = Widest::Avx2;
    #[inline(always)]
    fn map(x: u8) -> u8 {
        x ^ 1
    }
}

macro_rules! comparisons {
    ($($name:ident |$a:ident, $b:ident| $test:expr;)*) => {$(
        pub(crate) struct $name;

        impl<T: Lane> Map2<T, u8> for $name {
            const WIDEST: Widest = Widest::Avx2;
            #[inline(always)]
            fn map($a: T, $b: T) -> u8 {
                $test as u8
            }
        }
    )*};
}

comparisons! {
    Equal |a, b| Lane::eq(a, b);
    Different |a, b| !Lane::eq(a, b);
    Less |a, b| Lane::lt(a, b);
    LessEqual |a, b| Lane::le(a, b);
}

/// The loops that convert a 16-bit float dtype to `f32` and back; its functions are computed in `f32`.
pub(crate) fn half_loops(dtype: DType) -> Option<(Loop1, Loop1)> {
    match dtype {
        DType::F16 => Some((loop1::<f16, f32, Convert>, loop1::<f32, f16, Convert>)),
        DType::BF16 => Some((loop1::<bf16, f32, Convert>, loop1::<f32, bf16, Convert>)),
        DType::F64
        | DType::F32
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => None,
    }
}

/// The loop of a unary function; not for 16-bit floats, see [`half_loops`].
pub(crate) fn unary(function: Unary, dtype: DType) -> Loop1 {
    match dtype {
        DType::F64 => functions::double(function),
        DType::F32 => functions::single(function),
        DType::F16 | DType::BF16 => unreachable!("16-bit floats are computed in f32"),
        DType::I64 => functions::whole::<i64>(function),
        DType::I32 => functions::whole::<i32>(function),
        DType::I16 => functions::whole::<i16>(function),
        DType::I8 => functions::whole::<i8>(function),
        DType::U64 => functions::whole::<u64>(function),
        DType::U32 => functions::whole::<u32>(function),
        DType::U16 => functions::whole::<u16>(function),
        DType::U8 => functions::whole::<u8>(function),
        DType::Bool => loop1::<u8, u8, NotBool>,
    }
}

/// The loop of a binary function; not for 16-bit floats, see [`half_loops`].
pub(crate) fn binary(function: Binary, dtype: DType) -> Loop2 {
    match dtype {
        DType::F32 if function == Binary::Pow => math::loops::loop2::<Pow>,
        DType::F32 if function == Binary::Atan2 => math::loops::loop2::<Atan2>,
        DType::F32 => binary_float::<f32>(function),
        DType::F64 => binary_float::<f64>(function),
        DType::F16 | DType::BF16 => unreachable!("16-bit floats are computed in f32"),
        DType::I64 => binary_int::<i64, u64>(function),
        DType::I32 => binary_int::<i32, u32>(function),
        DType::I16 => binary_int::<i16, u16>(function),
        DType::I8 => binary_int::<i8, u8>(function),
        DType::U64 => binary_int::<u64, u64>(function),
        DType::U32 => binary_int::<u32, u32>(function),
        DType::U16 => binary_int::<u16, u16>(function),
        DType::U8 | DType::Bool => binary_int::<u8, u8>(function),
    }
}

fn binary_float<T: FloatLane>(function: Binary) -> Loop2 {
    match function {
        Binary::Add => loop2::<T, T, Add>,
        Binary::Sub => loop2::<T, T, Sub>,
        Binary::Mul => loop2::<T, T, Mul>,
        Binary::Div => loop2::<T, T, DivFloat>,
        Binary::Rem => loop2::<T, T, Rem>,
        Binary::Pow => loop2::<T, T, Pow>,
        Binary::Min => loop2::<T, T, Min>,
        Binary::Max => loop2::<T, T, Max>,
        Binary::Atan2 => loop2::<T, T, Atan2>,
        Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => {
            unreachable!("inference refuses this function of floats")
        }
    }
}

/// Functions that do not depend on the sign share the code of the unsigned type `U` of the same width.
fn binary_int<T: Bits, U: Bits>(function: Binary) -> Loop2 {
    match function {
        Binary::Add => loop2::<U, U, Add>,
        Binary::Sub => loop2::<U, U, Sub>,
        Binary::Mul => loop2::<U, U, Mul>,
        Binary::Div => loop2::<T, T, DivInt>,
        Binary::Rem => loop2::<T, T, Rem>,
        Binary::Pow => loop2::<T, T, Pow>,
        Binary::Min => loop2::<T, T, Min>,
        Binary::Max => loop2::<T, T, Max>,
        Binary::And => loop2::<U, U, And>,
        Binary::Or => loop2::<U, U, Or>,
        Binary::Xor => loop2::<U, U, Xor>,
        Binary::Shl => loop2::<U, U, Shl>,
        Binary::Shr => loop2::<T, T, Shr>,
        Binary::Atan2 => unreachable!("inference refuses the angle of integers"),
    }
}

/// The loop of a comparison; the result is `bool`. Not for 16-bit floats, see [`half_loops`].
pub(crate) fn compare(comparison: Comparison, dtype: DType) -> Loop2 {
    // Integer equality does not depend on the sign: `U` is the unsigned type of the same width.
    fn of<T: Lane, U: Lane>(comparison: Comparison) -> Loop2 {
        match comparison {
            Comparison::Eq => loop2::<U, u8, Equal>,
            Comparison::Ne => loop2::<U, u8, Different>,
            Comparison::Lt => loop2::<T, u8, Less>,
            Comparison::Le => loop2::<T, u8, LessEqual>,
        }
    }
    match dtype {
        DType::F64 => of::<f64, f64>(comparison),
        DType::F32 => of::<f32, f32>(comparison),
        DType::F16 | DType::BF16 => unreachable!("16-bit floats are computed in f32"),
        DType::I64 => of::<i64, u64>(comparison),
        DType::I32 => of::<i32, u32>(comparison),
        DType::I16 => of::<i16, u16>(comparison),
        DType::I8 => of::<i8, u8>(comparison),
        DType::U64 => of::<u64, u64>(comparison),
        DType::U32 => of::<u32, u32>(comparison),
        DType::U16 => of::<u16, u16>(comparison),
        DType::U8 | DType::Bool => of::<u8, u8>(comparison),
    }
}

/// The loop that selects between elements of `size` bytes.
pub(crate) fn select(size: usize) -> Loop3 {
    match size {
        1 => loop_select::<u8>,
        2 => loop_select::<u16>,
        4 => loop_select::<u32>,
        _ => loop_select::<u64>,
    }
}

/// The loop that copies elements of `size` bytes.
pub(crate) fn copy(size: usize) -> Loop1 {
    unsafe fn bytes<const SIZE: usize>(_: Level, x: *const u8, y: *mut u8, n: usize) {
        // SAFETY: as `Loop1` says.
        unsafe { y.copy_from_nonoverlapping(x, n * SIZE) }
    }
    match size {
        1 => bytes::<1>,
        2 => bytes::<2>,
        4 => bytes::<4>,
        _ => bytes::<8>,
    }
}

/// The conversion between two dtypes.
#[derive(Clone, Copy)]
pub(crate) enum Conversion {
    /// One loop.
    Direct(Loop1),
    /// One loop to 8-byte elements (`f64`, or the low 64 bits of an integer), and another from there.
    Through(Loop1, Loop1),
}

/// The conversion from one dtype to another.
pub(crate) fn conversion(from: DType, to: DType) -> Conversion {
    match direct(from, to) {
        Some(function) => Conversion::Direct(function),
        None if from.is_float() || to.is_float() => {
            Conversion::Through(widening_f64(from), narrowing_f64(to))
        }
        None => Conversion::Through(widening_i64(from), narrowing_i64(to)),
    }
}

/// Direct loops for the most frequent pairs of dtypes.
fn direct(from: DType, to: DType) -> Option<Loop1> {
    Some(match (from, to) {
        (DType::F32, DType::F64) => loop1::<f32, f64, Convert>,
        (DType::F64, DType::F32) => loop1::<f64, f32, Convert>,
        (DType::F32, DType::F16) => loop1::<f32, f16, Convert>,
        (DType::F16, DType::F32) => loop1::<f16, f32, Convert>,
        (DType::F32, DType::BF16) => loop1::<f32, bf16, Convert>,
        (DType::BF16, DType::F32) => loop1::<bf16, f32, Convert>,
        (DType::F32, DType::I32) => loop1::<f32, i32, Convert>,
        (DType::I32, DType::F32) => loop1::<i32, f32, Convert>,
        (DType::U8 | DType::Bool, DType::F32) => loop1::<u8, f32, Convert>,
        (DType::I32, DType::I64) => loop1::<i32, i64, Convert>,
        (DType::I64, DType::I32) => loop1::<i64, i32, Convert>,
        (DType::F32, DType::Bool) => loop1::<f32, u8, IsTrue>,
        (DType::I64, DType::Bool) => loop1::<i64, u8, IsTrue>,
        (DType::F64, DType::Bool) => loop1::<f64, u8, IsTrue>,
        _ => return None,
    })
}

macro_rules! through {
    ($wide:ty, $widening:ident, $narrowing:ident, [$($float:ident: $f:ty),*]) => {
        fn $widening(from: DType) -> Loop1 {
            match from {
                $(DType::$float => loop1::<$f, $wide, Convert>,)*
                DType::I64 => loop1::<i64, $wide, Convert>,
                DType::I32 => loop1::<i32, $wide, Convert>,
                DType::I16 => loop1::<i16, $wide, Convert>,
                DType::I8 => loop1::<i8, $wide, Convert>,
                DType::U64 => loop1::<u64, $wide, Convert>,
                DType::U32 => loop1::<u32, $wide, Convert>,
                DType::U16 => loop1::<u16, $wide, Convert>,
                DType::U8 | DType::Bool => loop1::<u8, $wide, Convert>,
            }
        }

        fn $narrowing(to: DType) -> Loop1 {
            match to {
                $(DType::$float => loop1::<$wide, $f, Convert>,)*
                DType::I64 => loop1::<$wide, i64, Convert>,
                DType::I32 => loop1::<$wide, i32, Convert>,
                DType::I16 => loop1::<$wide, i16, Convert>,
                DType::I8 => loop1::<$wide, i8, Convert>,
                DType::U64 => loop1::<$wide, u64, Convert>,
                DType::U32 => loop1::<$wide, u32, Convert>,
                DType::U16 => loop1::<$wide, u16, Convert>,
                DType::U8 => loop1::<$wide, u8, Convert>,
                DType::Bool => loop1::<$wide, u8, IsTrue>,
            }
        }
    };
}

through!(f64, widening_f64, narrowing_f64, [F64: f64, F32: f32, F16: f16, BF16: bf16]);
// Between integers; the rows of floats are never used and complete the table.
through!(i64, widening_i64, narrowing_i64, [F64: f64, F32: f64, F16: f64, BF16: f64]);

/// Conversion as [`Op::Cast`](kiln_ir::Op::Cast) defines it; `bool` counts as `u8`.
pub(crate) struct Convert;

/// Whether an element is nonzero.
struct IsTrue;

impl<T: Lane> Map1<T, u8> for IsTrue {
    const WIDEST: Widest = Widest::Avx2;
    #[inline(always)]
    fn map(x: T) -> u8 {
        !Lane::eq(x, T::default()) as u8
    }
}

macro_rules! convert_as {
    ($($from:ty => $($to:ty)*;)*) => {$($(
        impl Map1<$from, $to> for Convert {
            const WIDEST: Widest = Widest::Avx2;
            #[inline(always)]
            fn map(x: $from) -> $to {
                x as $to
            }
        }
    )*)*};
}

convert_as! {
    f64 => f64 f32 i64 i32 i16 i8 u64 u32 u16 u8;
    f32 => f64 i64 i32;
    i64 => f64 i64 i32 i16 i8 u64 u32 u16 u8;
    i32 => f64 f32 i64;
    i16 => f64 i64;
    i8 => f64 i64;
    u64 => f64 i64;
    u32 => f64 i64;
    u16 => f64 i64;
    u8 => f64 i64 f32;
}

macro_rules! convert_narrow {
    ($($ty:ty),*) => {$(
        impl Map1<$ty, f32> for Convert {
            const WIDEST: Widest = Widest::Avx512;
            #[inline(always)]
            fn map(x: $ty) -> f32 {
                x.widen()
            }
        }

        impl Map1<f32, $ty> for Convert {
            const WIDEST: Widest = Widest::Avx512;
            #[inline(always)]
            fn map(x: f32) -> $ty {
                <$ty>::narrow(x)
            }
        }

        impl Map1<$ty, f64> for Convert {
            const WIDEST: Widest = Widest::Avx2;
            #[inline(always)]
            fn map(x: $ty) -> f64 {
                f64::from(x.widen())
            }
        }

        impl Map1<f64, $ty> for Convert {
            const WIDEST: Widest = Widest::Baseline;
            fn map(x: f64) -> $ty {
                // The inherent `from_f64` rounds to `f32` first, and therefore twice.
                <$ty as Element>::from_f64(x)
            }
        }
    )*};
}

convert_narrow!(f16, bf16);
