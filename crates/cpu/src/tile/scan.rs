//! Scans of the rows of a tile.

use crate::lane::Lane;
use crate::reduce::Reducer;
use crate::reduce::{Max, Min, Product, Sum};
use kiln_ir::{DType, Reduction};

/// `(x, y, rows, columns, reverse, exclusive)`: writes the scans of rows.
pub(super) type ScanLoop = unsafe fn(*const u8, *mut u8, usize, usize, bool, bool);

/// The loop for a register dtype. Floats accumulate in `f64`.
///
/// # Panics
/// For 16-bit floats, which registers do not store.
pub(super) fn scan(reduction: Reduction, dtype: DType) -> ScanLoop {
    match dtype {
        DType::F64 => of::<f64, f64>(reduction),
        DType::F32 => of::<f32, f32>(reduction),
        DType::F16 | DType::BF16 => unreachable!("16-bit floats are computed in f32"),
        DType::I64 => of::<i64, u64>(reduction),
        DType::I32 => of::<i32, u32>(reduction),
        DType::I16 => of::<i16, u16>(reduction),
        DType::I8 => of::<i8, u8>(reduction),
        DType::U64 => of::<u64, u64>(reduction),
        DType::U32 => of::<u32, u32>(reduction),
        DType::U16 => of::<u16, u16>(reduction),
        DType::U8 | DType::Bool => of::<u8, u8>(reduction),
    }
}

/// Sign-independent scans are computed in the unsigned type `U`.
fn of<T: Lane, U: Lane>(reduction: Reduction) -> ScanLoop
where
    Sum: Reducer<U>,
    Product: Reducer<U>,
    Min: Reducer<T>,
    Max: Reducer<T>,
{
    match reduction {
        Reduction::Sum => run::<U, Sum>,
        Reduction::Prod => run::<U, Product>,
        Reduction::Min => run::<T, Min>,
        Reduction::Max => run::<T, Max>,
    }
}

/// # Safety
/// `rows * columns` elements of `T` may be read and written; they do not overlap.
unsafe fn run<T: Lane, R: Reducer<T>>(
    x: *const u8,
    y: *mut u8,
    rows: usize,
    columns: usize,
    reverse: bool,
    exclusive: bool,
) {
    for row in 0..rows {
        let (x, y) = (x.cast::<T>().wrapping_add(row * columns), y.cast::<T>().wrapping_add(row * columns));
        let mut total = R::empty();
        for i in 0..columns {
            let i = if reverse { columns - 1 - i } else { i };
            // SAFETY: as the caller promises.
            unsafe {
                let next = R::join(total, R::combine(R::identity(), R::load(*x.add(i))));
                *y.add(i) = R::finish(if exclusive { total } else { next });
                total = next;
            }
        }
    }
}
