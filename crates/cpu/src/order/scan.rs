//! Running reductions.

use super::lines::{Lines, TILE, Tile};
use crate::Cpu;
use crate::array::{Array, is_reusable};
use crate::copy::Shared;
use crate::index::{Combine, Greatest, Least, Product, Sum};
use crate::lane::Lane;
use crate::narrow::Narrow;
use crate::scalar::element;
use core::convert::identity;
use half::{bf16, f16};
use kiln_ir::{DType, Error, Operand, Operands, Reduction, Result, Scalar, Values};
use smallvec::smallvec;

pub(crate) fn scan(
    cpu: &Cpu,
    reduction: Reduction,
    axis: usize,
    reverse: bool,
    exclusive: bool,
    mut inputs: Operands,
) -> Result<Values> {
    let value = match inputs.pop() {
        Some(Operand::Value(value)) => value,
        Some(Operand::Scalar(_)) | None => {
            return Err(Error::unsupported("cpu", "a tensor operand is missing"));
        }
    };
    let ty = *value.ty();
    let fresh = if is_reusable(&value) { None } else { Some(Array::uninit(&ty)?) };
    let x = Array::of(&value)?;
    if ty.num_elements() > 0 {
        let y = fresh.as_ref().unwrap_or(x);
        let job = Scan {
            cpu,
            lines: Lines::new(&ty.shape, axis, [x.strides(), y.strides()]),
            source: Shared::new(x.address(ty.dtype.size())),
            target: Shared::new(y.address(ty.dtype.size())),
            identity: reduction.identity(ty.dtype),
            reverse,
            exclusive,
        };
        // SAFETY: the lines are those of `x` and of the result, which is fresh or `x` itself.
        unsafe { job.of_dtype(reduction, ty.dtype) };
    }
    Ok(smallvec![match fresh {
        Some(array) => array.into_value(ty),
        None => value,
    }])
}

/// A dtype with the type in which its sums and products run: `f64` for `f32`, `f32` for 16-bit floats.
trait Running: Lane {
    type Total: Lane;
    fn widen(self) -> Self::Total;
    fn narrow(total: Self::Total) -> Self;
}

macro_rules! running {
    ($($ty:ty => $total:ty: $widen:expr, $narrow:expr;)*) => {$(
        impl Running for $ty {
            type Total = $total;
            #[inline(always)]
            fn widen(self) -> $total {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(total: $total) -> $ty {
                $narrow(total)
            }
        }
    )*};
}

running! {
    f64 => f64: identity, identity;
    f32 => f64: f64::from, |total| total as f32;
    f16 => f32: Narrow::widen, Narrow::narrow;
    bf16 => f32: Narrow::widen, Narrow::narrow;
    u64 => u64: identity, identity;
    u32 => u32: identity, identity;
    u16 => u16: identity, identity;
    u8 => u8: identity, identity;
}

struct Scan<'a> {
    cpu: &'a Cpu,
    lines: Lines<2>,
    source: Shared<u8>,
    target: Shared<u8>,
    identity: Scalar,
    reverse: bool,
    exclusive: bool,
}

impl Scan<'_> {
    /// # Safety
    /// The lines stay within source and target, which nobody else writes; if the two overlap, they are the same.
    unsafe fn of_dtype(&self, reduction: Reduction, dtype: DType) {
        // SAFETY: as the caller promises.
        unsafe {
            match dtype {
                DType::F64 => self.float::<f64>(reduction),
                DType::F32 => self.float::<f32>(reduction),
                DType::F16 => self.float::<f16>(reduction),
                DType::BF16 => self.float::<bf16>(reduction),
                DType::I64 => self.integer::<i64, u64>(reduction),
                DType::I32 => self.integer::<i32, u32>(reduction),
                DType::I16 => self.integer::<i16, u16>(reduction),
                DType::I8 => self.integer::<i8, u8>(reduction),
                DType::U64 => self.integer::<u64, u64>(reduction),
                DType::U32 => self.integer::<u32, u32>(reduction),
                DType::U16 => self.integer::<u16, u16>(reduction),
                DType::U8 | DType::Bool => self.integer::<u8, u8>(reduction),
            }
        }
    }

    unsafe fn float<T: Running>(&self, reduction: Reduction) {
        // SAFETY: as the caller promises.
        unsafe {
            match reduction {
                Reduction::Sum => self.widened::<T, Sum>(),
                Reduction::Prod => self.widened::<T, Product>(),
                Reduction::Min => self.plain::<T, Least>(),
                Reduction::Max => self.plain::<T, Greatest>(),
            }
        }
    }

    /// Sums and products do not look at the sign, so they are computed in the unsigned type.
    unsafe fn integer<T: Lane, U: Running<Total = U>>(&self, reduction: Reduction) {
        // SAFETY: as the caller promises.
        unsafe {
            match reduction {
                Reduction::Sum => self.widened::<U, Sum>(),
                Reduction::Prod => self.widened::<U, Product>(),
                Reduction::Min => self.plain::<T, Least>(),
                Reduction::Max => self.plain::<T, Greatest>(),
            }
        }
    }

    unsafe fn widened<T: Running, C: Combine<T::Total>>(&self) {
        let first: T::Total = element(self.identity);
        let next = |total, x: T| C::combine(total, x.widen());
        // SAFETY: as the caller promises.
        unsafe { self.run(first, next, T::narrow) };
    }

    unsafe fn plain<T: Lane, C: Combine<T>>(&self) {
        let first: T = element(self.identity);
        // SAFETY: as the caller promises.
        unsafe { self.run(first, |total, x: T| C::combine(total, x), |total| total) };
    }

    /// # Safety
    /// As [`of_dtype`](Self::of_dtype), with elements of type `T`.
    #[inline(always)]
    unsafe fn run<T: Copy, A: Copy + Sync>(
        &self,
        first: A,
        next: impl Fn(A, T) -> A + Sync + Copy,
        value: impl Fn(A) -> T + Sync + Copy,
    ) {
        let lines = &self.lines;
        lines.for_each(&self.cpu.pool, &|tile| {
            // SAFETY: as the caller promises.
            unsafe {
                if lines.is_across() {
                    return self.tile(tile, first, next, value);
                }
                for line in 0..tile.count {
                    let start = tile.line(line);
                    self.tile(Tile { start, count: 1, across: tile.across }, first, next, value);
                }
            }
        });
    }

    /// # Safety
    /// As [`run`](Self::run).
    #[inline(never)]
    unsafe fn tile<T: Copy, A: Copy>(
        &self,
        tile: Tile<2>,
        first: A,
        next: impl Fn(A, T) -> A,
        value: impl Fn(A) -> T,
    ) {
        let Lines { len, along, .. } = self.lines;
        let mut totals = [first; TILE];
        let totals = &mut totals[..tile.count];
        for i in 0..len {
            let i = if self.reverse { len - 1 - i } else { i } as isize;
            // SAFETY: as the caller promises; each element is read before its result is written.
            unsafe {
                let x = self.source.get().cast::<T>().offset(tile.start[0] + i * along[0]);
                let y = self.target.get().cast::<T>().offset(tile.start[1] + i * along[1]);
                for (line, total) in totals.iter_mut().enumerate() {
                    let before = *total;
                    *total = next(before, *x.offset(line as isize * tile.across[0]));
                    let result = if self.exclusive { before } else { *total };
                    *y.offset(line as isize * tile.across[1]) = value(result);
                }
            }
        }
    }
}
