//! Loops over the vectorized elementary functions.

use super::single;
use super::vector::{self, Single, Work};
use crate::isa::Level;
use crate::kernels::{Atan2, Map1, Map2, Pow, each1, each2, read, written};
use core::marker::PhantomData;

/// A function of one `f32` with a vector form.
pub(crate) trait Vector1: Map1<f32, f32> {
    /// The function in each lane.
    fn vector<V: Single>(x: V) -> V;
}

/// A function of two `f32` with a vector form.
pub(crate) trait Vector2: Map2<f32, f32> {
    /// The function in each lane.
    fn vector<V: Single>(a: V, b: V) -> V;
}

macro_rules! functions {
    ($($trait:ident: $($name:ident($($arg:ident),*) $function:ident),*;)*) => {$($(
        impl $trait for $name {
            #[inline(always)]
            fn vector<V: Single>($($arg: V),*) -> V {
                single::$function($($arg),*)
            }
        }
    )*)*};
}

functions! {
    Vector2: Atan2(a, b) atan2, Pow(a, b) pow;
}

/// The loop of a function, as [`Loop1`](crate::kernels::Loop1).
///
/// # Safety
/// `n` elements of `f32` may be read and written; they do not overlap.
pub(crate) unsafe fn loop1<F: Vector1>(level: Level, x: *const u8, y: *mut u8, n: usize) {
    let work = Each1::<F> { x: x.cast(), y: y.cast(), n, function: PhantomData };
    // SAFETY: as the caller promises.
    unsafe {
        if vector::run(level, work).is_err() {
            each1::<f32, f32, F>(level, read(x, n), written(y, n));
        }
    }
}

/// The loop of a function, as [`Loop2`](crate::kernels::Loop2).
///
/// # Safety
/// As [`loop1`].
pub(crate) unsafe fn loop2<F: Vector2>(level: Level, a: *const u8, b: *const u8, y: *mut u8, n: usize) {
    let work = Each2::<F> { a: a.cast(), b: b.cast(), y: y.cast(), n, function: PhantomData };
    // SAFETY: as the caller promises.
    unsafe {
        if vector::run(level, work).is_err() {
            each2::<f32, f32, F>(level, read(a, n), read(b, n), written(y, n));
        }
    }
}

/// Applies a function to each of `n` elements that may be read and written, and do not overlap.
struct Each1<F> {
    x: *const f32,
    y: *mut f32,
    n: usize,
    function: PhantomData<F>,
}

impl<F: Vector1> Work for Each1<F> {
    #[inline(always)]
    unsafe fn run<V: Single>(self) {
        let Each1 { x, y, n, .. } = self;
        let whole = n - n % V::LANES;
        // SAFETY: as the fields say.
        unsafe {
            for i in (0..whole).step_by(V::LANES) {
                F::vector(V::load(x.add(i))).store(y.add(i));
            }
            if whole < n {
                F::vector(V::load_some(x.add(whole), n - whole)).store_some(y.add(whole), n - whole);
            }
        }
    }
}

/// As [`Each1`], with two operands.
struct Each2<F> {
    a: *const f32,
    b: *const f32,
    y: *mut f32,
    n: usize,
    function: PhantomData<F>,
}

impl<F: Vector2> Work for Each2<F> {
    #[inline(always)]
    unsafe fn run<V: Single>(self) {
        let Each2 { a, b, y, n, .. } = self;
        let whole = n - n % V::LANES;
        // SAFETY: as the fields say.
        unsafe {
            for i in (0..whole).step_by(V::LANES) {
                F::vector(V::load(a.add(i)), V::load(b.add(i))).store(y.add(i));
            }
            if whole < n {
                let rest = n - whole;
                let (a, b) = (V::load_some(a.add(whole), rest), V::load_some(b.add(whole), rest));
                F::vector(a, b).store_some(y.add(whole), rest);
            }
        }
    }
}
