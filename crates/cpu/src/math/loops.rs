//! Loops over the functions of vectors.

#[cfg(target_arch = "x86_64")]
use super::single;
#[cfg(target_arch = "x86_64")]
use super::vector::Single;
#[cfg(target_arch = "x86_64")]
use super::x86::{F32x8, F32x16};
use crate::isa::Level;
use crate::kernels::{
    Atan, Atan2, Cos, Erf, Exp, Expm1, Ln, Log1p, Map1, Map2, Pow, Sin, Tan, Tanh, each1, each2, read,
    written,
};

/// A function of one `f32` that has a form for vectors.
pub(crate) trait Vector1: Map1<f32, f32> {
    /// The function in each lane.
    #[cfg(target_arch = "x86_64")]
    fn vector<V: Single>(x: V) -> V;
}

/// A function of two `f32` that has a form for vectors.
pub(crate) trait Vector2: Map2<f32, f32> {
    /// The function in each lane.
    #[cfg(target_arch = "x86_64")]
    fn vector<V: Single>(a: V, b: V) -> V;
}

macro_rules! functions {
    ($($trait:ident: $($name:ident($($arg:ident),*) $function:ident),*;)*) => {$($(
        impl $trait for $name {
            #[cfg(target_arch = "x86_64")]
            #[inline(always)]
            fn vector<V: Single>($($arg: V),*) -> V {
                single::$function($($arg),*)
            }
        }
    )*)*};
}

functions! {
    Vector1: Exp(x) exp, Expm1(x) expm1, Ln(x) ln, Log1p(x) log1p, Sin(x) sin, Cos(x) cos, Tan(x) tan, Tanh(x) tanh,
        Atan(x) atan, Erf(x) erf;
    Vector2: Atan2(a, b) atan2, Pow(a, b) pow;
}

/// The loop of a function, as [`Loop1`](crate::kernels::Loop1).
///
/// # Safety
/// `n` elements of `f32` may be read and written; they do not overlap.
pub(crate) unsafe fn loop1<F: Vector1>(level: Level, x: *const u8, y: *mut u8, n: usize) {
    /// # Safety
    /// As [`each_vector1`], with AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn avx512<F: Vector1>(x: *const f32, y: *mut f32, n: usize) {
        // SAFETY: as the caller promises.
        unsafe { each_vector1::<F, F32x16>(x, y, n) }
    }

    /// # Safety
    /// As [`each_vector1`], with AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2<F: Vector1>(x: *const f32, y: *mut f32, n: usize) {
        // SAFETY: as the caller promises.
        unsafe { each_vector1::<F, F32x8>(x, y, n) }
    }

    // SAFETY: the caller vouches for the elements; the level is chosen only where the processor has its instructions.
    unsafe {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => avx512::<F>(x.cast(), y.cast(), n),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2::<F>(x.cast(), y.cast(), n),
            Level::Baseline => each1::<f32, f32, F>(level, read(x, n), written(y, n)),
        }
    }
}

/// The loop of a function, as [`Loop2`](crate::kernels::Loop2).
///
/// # Safety
/// As [`loop1`].
pub(crate) unsafe fn loop2<F: Vector2>(level: Level, a: *const u8, b: *const u8, y: *mut u8, n: usize) {
    /// # Safety
    /// As [`each_vector2`], with AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn avx512<F: Vector2>(a: *const f32, b: *const f32, y: *mut f32, n: usize) {
        // SAFETY: as the caller promises.
        unsafe { each_vector2::<F, F32x16>(a, b, y, n) }
    }

    /// # Safety
    /// As [`each_vector2`], with AVX2 and FMA.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2<F: Vector2>(a: *const f32, b: *const f32, y: *mut f32, n: usize) {
        // SAFETY: as the caller promises.
        unsafe { each_vector2::<F, F32x8>(a, b, y, n) }
    }

    // SAFETY: as in `loop1`.
    unsafe {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => avx512::<F>(a.cast(), b.cast(), y.cast(), n),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => avx2::<F>(a.cast(), b.cast(), y.cast(), n),
            Level::Baseline => each2::<f32, f32, F>(level, read(a, n), read(b, n), written(y, n)),
        }
    }
}

#[cfg(target_arch = "x86_64")]
/// # Safety
/// `n` elements may be read and written; they do not overlap. The processor has the unit.
#[inline(always)]
unsafe fn each_vector1<F: Vector1, V: Single>(x: *const f32, y: *mut f32, n: usize) {
    let whole = n - n % V::LANES;
    // SAFETY: as the caller promises.
    unsafe {
        for i in (0..whole).step_by(V::LANES) {
            F::vector(V::load(x.add(i))).store(y.add(i));
        }
        if whole < n {
            F::vector(V::load_some(x.add(whole), n - whole)).store_some(y.add(whole), n - whole);
        }
    }
}

#[cfg(target_arch = "x86_64")]
/// # Safety
/// As [`each_vector1`].
#[inline(always)]
unsafe fn each_vector2<F: Vector2, V: Single>(a: *const f32, b: *const f32, y: *mut f32, n: usize) {
    let whole = n - n % V::LANES;
    // SAFETY: as the caller promises.
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
