//! Vector units, selected at run time.
//!
//! A kernel is a value of [`Kernel`]; [`Float::dispatch`] runs it with the [`Simd`] of a [`Level`]. The body of
//! [`Kernel::run`] is compiled once per vector unit, so plain loops inside it are vectorized for that unit too, if
//! everything they call is `#[inline(always)]`.

use crate::half_float::HalfFloat;
use crate::isa::Level;
use crate::math;
use core::fmt::Debug;
use core::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub};

/// Work that is compiled once per vector unit.
pub(crate) trait Kernel<T> {
    /// The return type.
    type Output;

    /// Runs the work with this unit. Mark the implementation `#[inline(always)]`.
    ///
    /// # Safety
    /// The machine has the unit; and whatever the kernel itself demands of its fields.
    unsafe fn run<S: Simd<T>>(self) -> Self::Output;
}

/// A vector unit for elements of type `T`.
pub(crate) trait Simd<T>: Copy {
    /// Elements per vector.
    const LANES: usize;
    /// The number of vector registers: 32 or 16.
    const REGISTERS: usize;
    /// A vector.
    type Vector: Copy;

    /// Reads [`LANES`](Self::LANES) elements; no alignment is needed.
    ///
    /// # Safety
    /// The machine has the unit, and the elements may be read.
    unsafe fn load(from: *const T) -> Self::Vector;

    /// Writes [`LANES`](Self::LANES) elements; no alignment is needed.
    ///
    /// # Safety
    /// The machine has the unit, and the elements may be written.
    unsafe fn store(to: *mut T, vector: Self::Vector);

    /// Loads the first `count` elements, at most [`LANES`](Self::LANES). The other lanes are zero, and their memory is
    /// not accessed.
    ///
    /// # Safety
    /// The machine has the unit, and these elements may be read.
    unsafe fn load_some(from: *const T, count: usize) -> Self::Vector;

    /// Writes the first `count` lanes, at most [`LANES`](Self::LANES), and nothing beyond.
    ///
    /// # Safety
    /// The machine has the unit, and these elements may be written.
    unsafe fn store_some(to: *mut T, vector: Self::Vector, count: usize);

    /// Transposes a square of [`LANES`](Self::LANES) rows and columns: `to[j][i] = from[i][j]`, with row strides in
    /// elements.
    ///
    /// # Safety
    /// The machine has the unit; one square may be read, the other written, and they do not overlap.
    #[inline(always)]
    unsafe fn transpose(from: *const T, from_row: isize, to: *mut T, to_row: isize)
    where
        T: Copy,
    {
        for i in 0..Self::LANES as isize {
            for j in 0..Self::LANES as isize {
                // SAFETY: elements of the squares.
                unsafe { *to.offset(j * to_row + i) = *from.offset(i * from_row + j) };
            }
        }
    }

    /// Reads [`LANES`](Self::LANES) elements of a narrower type.
    ///
    /// # Safety
    /// The machine has the unit, and the elements may be read.
    #[inline(always)]
    unsafe fn load_narrow<N: Widen>(from: *const N) -> Self::Vector
    where
        T: Float,
    {
        let mut lanes = [T::ZERO; 16];
        for lane in 0..Self::LANES {
            // SAFETY: as the caller promises.
            lanes[lane] = T::from_f32(unsafe { *from.add(lane) }.widen());
        }
        // SAFETY: no unit has more lanes; the caller guarantees the unit.
        unsafe { Self::load(lanes.as_ptr()) }
    }

    /// Prefetches the cache line at an address, which need not exist, into the L1 cache.
    ///
    /// # Safety
    /// The machine has the unit.
    #[inline(always)]
    unsafe fn prefetch(_at: *const T) {}

    /// Broadcasts the element to all lanes.
    ///
    /// # Safety
    /// The machine has the unit.
    unsafe fn splat(element: T) -> Self::Vector;

    /// `a * b + c`, with one rounding if the unit has FMA.
    ///
    /// # Safety
    /// The machine has the unit.
    unsafe fn mul_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// `a + b`.
    ///
    /// # Safety
    /// The machine has the unit.
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// `a - b`.
    ///
    /// # Safety
    /// The machine has the unit.
    unsafe fn sub(a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Compress-stores the lanes whose bits are set in `lanes`, contiguously, and nothing else.
    ///
    /// # Safety
    /// The machine has the unit, and that many elements may be written.
    #[inline(always)]
    unsafe fn store_lanes(to: *mut T, vector: Self::Vector, lanes: u32)
    where
        T: Float,
    {
        let mut all = [T::ZERO; 16];
        // SAFETY: no unit has more lanes; the caller vouches for the unit and the elements.
        unsafe {
            Self::store(all.as_mut_ptr(), vector);
            let mut place = to;
            for lane in 0..Self::LANES {
                if lanes >> lane & 1 == 1 {
                    *place = all[lane];
                    place = place.add(1);
                }
            }
        }
    }

    /// The sum of all lanes.
    ///
    /// # Safety
    /// The machine has the unit.
    #[inline(always)]
    unsafe fn sum(vector: Self::Vector) -> T
    where
        T: Float,
    {
        let mut lanes = [T::ZERO; 16];
        // SAFETY: no unit has more lanes; the caller vouches for the unit.
        unsafe { Self::store(lanes.as_mut_ptr(), vector) };
        let mut width = Self::LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] += lanes[lane + width];
            }
            width /= 2;
        }
        lanes[0]
    }
}

/// A type that `f32` represents exactly, in fewer bits.
pub(crate) trait Widen: Copy + Send + Sync + 'static {
    /// Converts to `f32`.
    fn widen(self) -> f32;

    /// The format, for units with instructions for it.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    const FORMAT: Format;
}

/// The number format of a [`Widen`].
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
#[derive(Clone, Copy)]
pub(crate) enum Format {
    F32,
    F16,
    BF16,
    I8,
    U8,
}

macro_rules! widen {
    ($($ty:ty: $format:ident, $x:ident => $wide:expr;)*) => {$(
        impl Widen for $ty {
            const FORMAT: Format = Format::$format;

            #[inline(always)]
            fn widen(self) -> f32 {
                let $x = self;
                $wide
            }
        }
    )*};
}

widen! {
    f32: F32, x => x;
    half::f16: F16, x => HalfFloat::widen(x);
    half::bf16: BF16, x => HalfFloat::widen(x);
    i8: I8, x => f32::from(x);
    u8: U8, x => f32::from(x);
}

/// An element type of an operand of a matmul in `T`.
pub(crate) trait Source<T>: Copy + Send + Sync + 'static {
    /// Converts to `T`.
    fn widen(self) -> T;

    /// Reads a vector.
    ///
    /// # Safety
    /// The machine has the unit, and the elements may be read.
    unsafe fn load<S: Simd<T>>(from: *const Self) -> S::Vector;

    /// The same pointer if the elements are already `T`s.
    fn as_is(from: *const Self) -> Option<*const T>;
}

impl<T: Float> Source<T> for T {
    #[inline(always)]
    fn widen(self) -> T {
        self
    }

    #[inline(always)]
    unsafe fn load<S: Simd<T>>(from: *const T) -> S::Vector {
        // SAFETY: as the caller promises.
        unsafe { S::load(from) }
    }

    #[inline(always)]
    fn as_is(from: *const T) -> Option<*const T> {
        Some(from)
    }
}

macro_rules! narrow_sources {
    ($($ty:ty),*) => {$(
        impl<T: Float> Source<T> for $ty {
            #[inline(always)]
            fn widen(self) -> T {
                T::from_f32(Widen::widen(self))
            }

            #[inline(always)]
            unsafe fn load<S: Simd<T>>(from: *const $ty) -> S::Vector {
                // SAFETY: as the caller promises.
                unsafe { S::load_narrow(from) }
            }

            #[inline(always)]
            fn as_is(_from: *const $ty) -> Option<*const T> {
                None
            }
        }
    )*};
}

narrow_sources!(half::f16, half::bf16);

/// The floats that kernels compute with: `f32` and `f64`.
pub(crate) trait Float:
    super::scratch::Plain
    + Send
    + Sync
    + Debug
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + MulAssign
    + 'static
{
    const ZERO: Self;
    const ONE: Self;
    const NEG_INFINITY: Self;

    /// The `f16` operands of matmuls that accumulate in this type. `f64` has none: there it is `f64` again, so that no
    /// kernels are compiled for it.
    type F16: Source<Self>;

    /// The `bf16` operands, as [`F16`](Self::F16).
    type BF16: Source<Self>;

    /// Rounds to the nearest float.
    fn from_f64(x: f64) -> Self;

    /// Converts exactly.
    fn from_f32(x: f32) -> Self;

    /// Converts exactly.
    fn to_f64(self) -> f64;

    /// Runs the kernel with the vector unit of the level.
    ///
    /// # Safety
    /// The safety conditions of the kernel's fields.
    unsafe fn dispatch<K: Kernel<Self>>(level: Level, kernel: K) -> K::Output;

    /// `e^x`, with the bits of [`Unary::Exp`](kiln_ir::Unary::Exp) where there are no vectors.
    fn exp(self) -> Self;

    /// Natural logarithm.
    fn ln(self) -> Self;

    /// Square root.
    fn sqrt(self) -> Self;

    /// The nearest integer, ties to even.
    fn round_even(self) -> Self;

    /// The function of the vendor's BLAS.
    #[cfg(feature = "blas")]
    fn gemm_of(blas: &crate::blas::Blas) -> crate::blas::Gemm<Self>;
}

/// The unit of machines without another one here: arrays that the compiler maps to the available vectors.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

macro_rules! portable {
    ($ty:ty, $lanes:literal) => {
        impl Simd<$ty> for Portable {
            const LANES: usize = $lanes;
            const REGISTERS: usize = if cfg!(target_arch = "aarch64") { 32 } else { 16 };
            type Vector = [$ty; $lanes];

            #[inline(always)]
            unsafe fn load(from: *const $ty) -> Self::Vector {
                // SAFETY: the caller vouches for these elements; the read is unaligned.
                unsafe { from.cast::<Self::Vector>().read_unaligned() }
            }

            #[inline(always)]
            unsafe fn store(to: *mut $ty, vector: Self::Vector) {
                // SAFETY: the caller vouches for these elements; the write is unaligned.
                unsafe { to.cast::<Self::Vector>().write_unaligned(vector) }
            }

            #[inline(always)]
            unsafe fn load_some(from: *const $ty, count: usize) -> Self::Vector {
                let mut vector = [0.0; $lanes];
                for lane in 0..$lanes {
                    if lane < count {
                        // SAFETY: the caller vouches for these elements.
                        vector[lane] = unsafe { *from.add(lane) };
                    }
                }
                vector
            }

            #[inline(always)]
            unsafe fn store_some(to: *mut $ty, vector: Self::Vector, count: usize) {
                for lane in 0..$lanes {
                    if lane < count {
                        // SAFETY: the caller vouches for these elements.
                        unsafe { *to.add(lane) = vector[lane] };
                    }
                }
            }

            #[inline(always)]
            unsafe fn splat(element: $ty) -> Self::Vector {
                [element; $lanes]
            }

            #[inline(always)]
            unsafe fn mul_add(a: Self::Vector, b: Self::Vector, mut c: Self::Vector) -> Self::Vector {
                for lane in 0..$lanes {
                    c[lane] += a[lane] * b[lane];
                }
                c
            }

            #[inline(always)]
            unsafe fn add(mut a: Self::Vector, b: Self::Vector) -> Self::Vector {
                for lane in 0..$lanes {
                    a[lane] += b[lane];
                }
                a
            }

            #[inline(always)]
            unsafe fn sub(mut a: Self::Vector, b: Self::Vector) -> Self::Vector {
                for lane in 0..$lanes {
                    a[lane] -= b[lane];
                }
                a
            }
        }
    };
}

portable!(f32, 4);
portable!(f64, 2);

#[cfg(target_arch = "x86_64")]
mod x86;

macro_rules! float {
    ($ty:ident, [$f16:ty, $bf16:ty], $gemm:ident, $exp:path, $ln:path, $sqrt:path, $round:path) => {
        impl Float for $ty {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEG_INFINITY: Self = <$ty>::NEG_INFINITY;
            type F16 = $f16;
            type BF16 = $bf16;

            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $ty
            }

            #[inline(always)]
            fn from_f32(x: f32) -> Self {
                x.into()
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            unsafe fn dispatch<K: Kernel<Self>>(level: Level, kernel: K) -> K::Output {
                match level {
                    // SAFETY: every machine has this one; the caller vouches for the kernel.
                    Level::Baseline => unsafe { kernel.run::<Portable>() },
                    // SAFETY: the level is chosen only where the processor has its instructions.
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => unsafe { x86::avx2(kernel) },
                    // SAFETY: as above.
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => unsafe { x86::avx512(kernel) },
                }
            }

            #[inline(always)]
            fn exp(self) -> Self {
                $exp(self)
            }

            #[inline(always)]
            fn ln(self) -> Self {
                $ln(self)
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                $sqrt(self)
            }

            #[inline(always)]
            fn round_even(self) -> Self {
                $round(self)
            }

            #[cfg(feature = "blas")]
            fn gemm_of(blas: &crate::blas::Blas) -> crate::blas::Gemm<Self> {
                blas.$gemm
            }
        }
    };
}

#[cfg(feature = "std")]
float!(f32, [half::f16, half::bf16], sgemm, math::exp, math::ln, f32::sqrt, f32::round_ties_even);
#[cfg(feature = "std")]
float!(f64, [f64, f64], dgemm, f64::exp, f64::ln, f64::sqrt, f64::round_ties_even);
#[cfg(not(feature = "std"))]
float!(f32, [half::f16, half::bf16], sgemm, math::exp, math::ln, libm::sqrtf, libm::rintf);
#[cfg(not(feature = "std"))]
float!(f64, [f64, f64], dgemm, libm::exp, libm::log, libm::sqrt, libm::rint);
