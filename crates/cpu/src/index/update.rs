//! The combination of written and existing elements, with code for each mode and dtype.

use crate::lane::Lane;
use crate::scalar::with_size;
use kiln_ir::{DType, UpdateMode};

/// A combination of two elements.
pub(crate) trait Combine<T> {
    fn combine(present: T, written: T) -> T;

    /// The neutral element, if elements may be combined in any grouping.
    fn neutral() -> Option<T> {
        None
    }
}

/// The written element replaces the existing one.
pub(crate) struct Replace;
pub(crate) struct Sum;
pub(crate) struct Product;
/// Minimum; NaN if either is NaN.
pub(crate) struct Min;
/// Maximum; NaN if either is NaN.
pub(crate) struct Max;

impl<T> Combine<T> for Replace {
    #[inline(always)]
    fn combine(_: T, written: T) -> T {
        written
    }
}

macro_rules! combine {
    ($($name:ident: $method:ident $(, $neutral:expr)?;)*) => {$(
        impl<T: Lane> Combine<T> for $name {
            #[inline(always)]
            fn combine(present: T, written: T) -> T {
                present.$method(written)
            }
            $(
                fn neutral() -> Option<T> {
                    Some($neutral)
                }
            )?
        }
    )*};
}

combine! { Sum: add, T::default().neg(); Product: mul; Min: min; Max: max; }

/// Runs code with the accumulator type of a dtype. 16-bit floats combine in `f32`; the caller has converted them.
/// Signed integers run as the named types.
macro_rules! with_combined {
    ($dtype:expr, [$i64:ty, $i32:ty, $i16:ty, $i8:ty], $T:ident => $body:expr) => {
        match $dtype {
            DType::F64 => {
                type $T = f64;
                $body
            }
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F16 | DType::BF16 => unreachable!("16-bit floats combine in f32"),
            DType::I64 => {
                type $T = $i64;
                $body
            }
            DType::I32 => {
                type $T = $i32;
                $body
            }
            DType::I16 => {
                type $T = $i16;
                $body
            }
            DType::I8 => {
                type $T = $i8;
                $body
            }
            DType::U64 => {
                type $T = u64;
                $body
            }
            DType::U32 => {
                type $T = u32;
                $body
            }
            DType::U16 => {
                type $T = u16;
                $body
            }
            DType::U8 | DType::Bool => {
                type $T = u8;
                $body
            }
        }
    };
}

/// Work on elements of a dtype with a combination.
pub(super) trait Job {
    /// # Safety
    /// `T` has the size of the job's dtype; the job documents the other conditions.
    unsafe fn run<T: Copy + Sync, C: Combine<T>>(&self);
}

/// Runs the job with the types of the mode and the dtype.
///
/// # Safety
/// As the job says.
pub(super) unsafe fn run(job: &impl Job, mode: UpdateMode, dtype: DType) {
    // SAFETY: as the caller promises.
    unsafe {
        match mode {
            UpdateMode::Set => with_size!(dtype.size(), T => job.run::<T, Replace>()),
            UpdateMode::Add => with_combined!(dtype, [u64, u32, u16, u8], T => job.run::<T, Sum>()),
            UpdateMode::Mul => with_combined!(dtype, [u64, u32, u16, u8], T => job.run::<T, Product>()),
            UpdateMode::Min => with_combined!(dtype, [i64, i32, i16, i8], T => job.run::<T, Min>()),
            UpdateMode::Max => with_combined!(dtype, [i64, i32, i16, i8], T => job.run::<T, Max>()),
        }
    }
}
