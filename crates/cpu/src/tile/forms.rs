//! Loops for operands that are one number for the whole tile.

use crate::isa::{Level, Widest, multiversion};
use crate::kernels::{
    Add, Different, DivFloat, Equal, Less, LessEqual, Loop2, Loop3, Map2, Max, Min, Mul, Sub, read, written,
};
use core::hint::select_unpredictable;
use core::mem::MaybeUninit;
use kiln_ir::{Binary, Comparison, DType};

/// The operand that is a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Left,
    Right,
}

multiversion! {
    fn each_right[X: Copy, Y, F: Map2<X, Y>]<X, Y, F> in { F::WIDEST } (a: &[X], b: X, y: &mut [MaybeUninit<Y>]) {
        for (y, a) in y.iter_mut().zip(a) {
            y.write(F::map(*a, b));
        }
    }

    fn each_left[X: Copy, Y, F: Map2<X, Y>]<X, Y, F> in { F::WIDEST } (a: X, b: &[X], y: &mut [MaybeUninit<Y>]) {
        for (y, b) in y.iter_mut().zip(b) {
            y.write(F::map(a, *b));
        }
    }

    fn select_right[T: Copy]<T> in { Widest::Avx2 } (condition: &[u8], a: &[T], b: T, y: &mut [MaybeUninit<T>]) {
        for ((y, c), a) in y.iter_mut().zip(condition).zip(a) {
            y.write(select_unpredictable(*c != 0, *a, b));
        }
    }

    fn select_left[T: Copy]<T> in { Widest::Avx2 } (condition: &[u8], a: T, b: &[T], y: &mut [MaybeUninit<T>]) {
        for ((y, c), b) in y.iter_mut().zip(condition).zip(b) {
            y.write(select_unpredictable(*c != 0, a, *b));
        }
    }

    fn select_both[T: Copy]<T> in { Widest::Avx2 } (condition: &[u8], a: T, b: T, y: &mut [MaybeUninit<T>]) {
        for (y, c) in y.iter_mut().zip(condition) {
            y.write(select_unpredictable(*c != 0, a, b));
        }
    }
}

unsafe fn right<X: Copy, Y, F: Map2<X, Y>>(level: Level, a: *const u8, b: *const u8, y: *mut u8, n: usize) {
    // SAFETY: as `Loop2` says, with one element at `b`.
    let (a, b, y) = unsafe { (read::<X>(a, n), *b.cast::<X>(), written(y, n)) };
    each_right::<X, Y, F>(level, a, b, y);
}

unsafe fn left<X: Copy, Y, F: Map2<X, Y>>(level: Level, a: *const u8, b: *const u8, y: *mut u8, n: usize) {
    // SAFETY: as `Loop2` says, with one element at `a`.
    let (a, b, y) = unsafe { (*a.cast::<X>(), read::<X>(b, n), written(y, n)) };
    each_left::<X, Y, F>(level, a, b, y);
}

/// The loop of a binary function of a tile and a number, for the most frequent dtypes and functions.
pub(super) fn binary(function: Binary, dtype: DType, number: Side) -> Option<Loop2> {
    macro_rules! of {
        ($T:ty, $F:ty) => {
            Some(match number {
                Side::Left => left::<$T, $T, $F>,
                Side::Right => right::<$T, $T, $F>,
            })
        };
    }
    macro_rules! float {
        ($T:ty) => {
            match function {
                Binary::Add => of!($T, Add),
                Binary::Sub => of!($T, Sub),
                Binary::Mul => of!($T, Mul),
                Binary::Div => of!($T, DivFloat),
                Binary::Min => of!($T, Min),
                Binary::Max => of!($T, Max),
                Binary::Rem
                | Binary::Pow
                | Binary::Atan2
                | Binary::And
                | Binary::Or
                | Binary::Xor
                | Binary::Shl
                | Binary::Shr => None,
            }
        };
    }
    if dtype == DType::F32 {
        float!(f32)
    } else if dtype == DType::F64 {
        float!(f64)
    } else {
        None
    }
}

/// As [`binary`], for comparisons.
pub(super) fn compare(comparison: Comparison, dtype: DType, number: Side) -> Option<Loop2> {
    fn of<T: crate::lane::Lane>(comparison: Comparison, number: Side) -> Loop2 {
        match (comparison, number) {
            (Comparison::Eq, Side::Left) => left::<T, u8, Equal>,
            (Comparison::Eq, Side::Right) => right::<T, u8, Equal>,
            (Comparison::Ne, Side::Left) => left::<T, u8, Different>,
            (Comparison::Ne, Side::Right) => right::<T, u8, Different>,
            (Comparison::Lt, Side::Left) => left::<T, u8, Less>,
            (Comparison::Lt, Side::Right) => right::<T, u8, Less>,
            (Comparison::Le, Side::Left) => left::<T, u8, LessEqual>,
            (Comparison::Le, Side::Right) => right::<T, u8, LessEqual>,
        }
    }
    if dtype == DType::F32 {
        Some(of::<f32>(comparison, number))
    } else if dtype == DType::F64 {
        Some(of::<f64>(comparison, number))
    } else if dtype == DType::I32 {
        Some(of::<i32>(comparison, number))
    } else {
        None
    }
}

/// The loop that selects between elements of `size` bytes, where one or both are a number.
pub(super) fn select(size: usize, number: [bool; 2]) -> Loop3 {
    fn of<T: Copy>(number: [bool; 2]) -> Loop3 {
        match number {
            [true, true] => both::<T>,
            [true, false] => first::<T>,
            [false, true] => second::<T>,
            [false, false] => unreachable!("neither is a number"),
        }
    }
    type Address = *const u8;
    unsafe fn both<T: Copy>(level: Level, c: Address, a: Address, b: Address, y: *mut u8, n: usize) {
        // SAFETY: as `Loop3` says, with one element each at `a` and `b`.
        let (c, a, b, y) = unsafe { (read(c, n), *a.cast::<T>(), *b.cast::<T>(), written(y, n)) };
        select_both::<T>(level, c, a, b, y);
    }
    unsafe fn first<T: Copy>(level: Level, c: Address, a: Address, b: Address, y: *mut u8, n: usize) {
        // SAFETY: as `Loop3` says, with one element at `a`.
        let (c, a, b, y) = unsafe { (read(c, n), *a.cast::<T>(), read(b, n), written(y, n)) };
        select_left::<T>(level, c, a, b, y);
    }
    unsafe fn second<T: Copy>(level: Level, c: Address, a: Address, b: Address, y: *mut u8, n: usize) {
        // SAFETY: as `Loop3` says, with one element at `b`.
        let (c, a, b, y) = unsafe { (read(c, n), read(a, n), *b.cast::<T>(), written(y, n)) };
        select_right::<T>(level, c, a, b, y);
    }
    match size {
        1 => of::<u8>(number),
        2 => of::<u16>(number),
        4 => of::<u32>(number),
        _ => of::<u64>(number),
    }
}
