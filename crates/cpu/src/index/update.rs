//! How written and present elements combine, and code for each mode and dtype.

use crate::lane::Lane;
use crate::scalar::{with_number, with_size};
use kiln_ir::{DType, UpdateMode};

/// A way to combine two elements.
pub(crate) trait Combine<T> {
    fn combine(present: T, written: T) -> T;
}

/// The written replaces the present.
pub(crate) struct Replace;
pub(crate) struct Sum;
pub(crate) struct Product;
/// NaN if either is.
pub(crate) struct Least;
/// NaN if either is.
pub(crate) struct Greatest;

impl<T> Combine<T> for Replace {
    #[inline(always)]
    fn combine(_: T, written: T) -> T {
        written
    }
}

macro_rules! combine {
    ($($name:ident: $method:ident;)*) => {$(
        impl<T: Lane> Combine<T> for $name {
            #[inline(always)]
            fn combine(present: T, written: T) -> T {
                present.$method(written)
            }
        }
    )*};
}

combine! { Sum: add; Product: mul; Least: min; Greatest: max; }

/// Something to do with elements of a dtype and a way to combine them.
pub(super) trait Job {
    /// # Safety
    /// `T` has the size of the dtype that the job is about; what else, the job says.
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
            UpdateMode::Add => with_number!(dtype, T => job.run::<T, Sum>()),
            UpdateMode::Mul => with_number!(dtype, T => job.run::<T, Product>()),
            UpdateMode::Min => with_number!(dtype, T => job.run::<T, Least>()),
            UpdateMode::Max => with_number!(dtype, T => job.run::<T, Greatest>()),
        }
    }
}
