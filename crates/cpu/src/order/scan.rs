//! Scans (cumulative sum, product, maximum).
//!
//! A long line is split into parts: the carry into each part, and the scan within it. Parts may be processed in
//! parallel; the result is the same if they are not.

mod part;

use super::lines::{Lines, Tile};
use crate::Cpu;
use crate::array::{Array, is_reusable};
use crate::copy::Shared;
use crate::half_float::HalfFloat;
use crate::index::{Combine, Max, Min, Product, Sum};
use crate::isa::Level;
use crate::lane::Lane;
use alloc::vec::Vec;
use core::convert::identity;
use half::{bf16, f16};
use kiln_ir::{DType, Element, Error, Operand, Operands, Reduction, Result, Scalar, Values};
use part::{COLUMNS, Part};
use smallvec::smallvec;

/// Elements of a line per part.
const PART: usize = 1 << 14;

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
            part: PART,
        };
        // SAFETY: the lines are those of `x` and of the result, which is fresh or `x` itself.
        unsafe { job.of_dtype(reduction, ty.dtype) };
    }
    Ok(smallvec![match fresh {
        Some(array) => array.into_value(ty),
        None => value,
    }])
}

/// A dtype with the accumulator type of its sums and products: `f64` for `f32`, `f32` for 16-bit floats.
trait ScanElement: Lane {
    type Total: Lane;
    fn widen(self) -> Self::Total;
    fn narrow(total: Self::Total) -> Self;
}

/// The accumulator type of a scan.
trait Form<T> {
    type Total: Copy + Send + Sync + Element;
    fn widen(x: T) -> Self::Total;
    fn narrow(total: Self::Total) -> T;

    /// Scans a part with contiguous elements, if there is a faster way than one element at a time; returns whether
    /// there is.
    ///
    /// # Safety
    /// As [`Part::run`].
    unsafe fn lines(_level: Level, _part: &Part<T, Self::Total>, _before: &mut [Self::Total]) -> bool {
        false
    }
}

/// Accumulates sums of `f32` in `f64`, vectorized.
struct Sums;

impl Form<f32> for Sums {
    type Total = f64;
    #[inline(always)]
    fn widen(x: f32) -> f64 {
        f64::from(x)
    }
    #[inline(always)]
    fn narrow(total: f64) -> f32 {
        total as f32
    }
    unsafe fn lines(level: Level, part: &Part<f32, f64>, before: &mut [f64]) -> bool {
        // SAFETY: as the caller promises.
        unsafe { part::sums(level, part, before) }
    }
}

/// Accumulates in the wide type.
struct Wide;

impl<T: ScanElement> Form<T> for Wide {
    type Total = T::Total;
    #[inline(always)]
    fn widen(x: T) -> T::Total {
        x.widen()
    }
    #[inline(always)]
    fn narrow(total: T::Total) -> T {
        T::narrow(total)
    }
}

/// Accumulates in the element type.
struct Same;

impl<T: Lane> Form<T> for Same {
    type Total = T;
    #[inline(always)]
    fn widen(x: T) -> T {
        x
    }
    #[inline(always)]
    fn narrow(total: T) -> T {
        total
    }
}

macro_rules! running {
    ($($ty:ty => $total:ty: $widen:expr, $narrow:expr;)*) => {$(
        impl ScanElement for $ty {
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
    f16 => f32: HalfFloat::widen, HalfFloat::narrow;
    bf16 => f32: HalfFloat::widen, HalfFloat::narrow;
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
    /// Elements of a line per part.
    part: usize,
}

impl Scan<'_> {
    /// # Safety
    /// The lines stay within source and target, which nothing else writes; if the two overlap, they are the same.
    unsafe fn of_dtype(&self, reduction: Reduction, dtype: DType) {
        // SAFETY: as the caller promises.
        unsafe {
            match dtype {
                DType::F64 => self.float::<f64>(reduction),
                DType::F32 if reduction == Reduction::Sum => self.run::<f32, Sums, Sum>(),
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

    unsafe fn float<T: ScanElement>(&self, reduction: Reduction) {
        // SAFETY: as the caller promises.
        unsafe {
            match reduction {
                Reduction::Sum => self.run::<T, Wide, Sum>(),
                // The product of a part may exceed the range of floats while that of the whole does not: one part.
                Reduction::Prod => self.in_parts_of(usize::MAX).run::<T, Wide, Product>(),
                Reduction::Min => self.run::<T, Same, Min>(),
                Reduction::Max => self.run::<T, Same, Max>(),
            }
        }
    }

    /// Sums and products do not depend on the sign, so they are computed in the unsigned type.
    unsafe fn integer<T: Lane, U: ScanElement<Total = U>>(&self, reduction: Reduction) {
        // SAFETY: as the caller promises.
        unsafe {
            match reduction {
                Reduction::Sum => self.run::<U, Wide, Sum>(),
                Reduction::Prod => self.run::<U, Wide, Product>(),
                Reduction::Min => self.run::<T, Same, Min>(),
                Reduction::Max => self.run::<T, Same, Max>(),
            }
        }
    }

    fn in_parts_of(&self, part: usize) -> Scan<'_> {
        let Scan { cpu, lines, source, target, identity, reverse, exclusive, .. } = *self;
        Scan { cpu, lines, source, target, identity, reverse, exclusive, part }
    }

    /// # Safety
    /// As [`of_dtype`](Self::of_dtype), with elements of type `T`.
    unsafe fn run<T: Lane, F: Form<T>, C: Combine<F::Total>>(&self) {
        let lines = &self.lines;
        let parts = lines.len.div_ceil(self.part);
        if parts > 1 && lines.count().div_ceil(COLUMNS) < self.cpu.pool.threads() {
            // SAFETY: as the caller promises.
            return unsafe { self.shared::<T, F, C>(parts) };
        }
        lines.for_each_of::<COLUMNS>(&self.cpu.pool, &|tile| {
            let mut before = [self.identity.element::<F::Total>(); COLUMNS];
            for part in 0..parts {
                // SAFETY: as the caller promises.
                unsafe { self.part::<T, F, C>(tile, part, &mut before[..tile.count], true) };
            }
        });
    }

    /// Scans few long lines, whose parts are split between threads: first the totals of each part, then the carries,
    /// then the results.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn shared<T: Lane, F: Form<T>, C: Combine<F::Total>>(&self, parts: usize) {
        let first = self.identity.element::<F::Total>();
        let tiles: Vec<Tile<2>> = self.lines.tiles::<COLUMNS>().collect();
        let mut totals = alloc::vec![first; tiles.len() * parts * COLUMNS];
        let slots = Shared::new(totals.as_mut_ptr());
        let each = |store: bool| {
            self.cpu.pool.parallel_for(tiles.len() * parts, 1, |range| {
                for task in range {
                    let (tile, part) = (tiles[task / parts], task % parts);
                    // SAFETY: each task has its own slots and its own part of the lines.
                    unsafe {
                        let slots = slots.get().add(task * COLUMNS);
                        let before = core::slice::from_raw_parts_mut(slots, tile.count);
                        self.part::<T, F, C>(tile, part, before, store);
                    }
                }
            });
        };
        each(false);
        for tile in totals.chunks_exact_mut(parts * COLUMNS) {
            let mut before = [first; COLUMNS];
            for part in tile.chunks_exact_mut(COLUMNS) {
                for (before, total) in before.iter_mut().zip(part) {
                    let after = C::combine(*before, *total);
                    *total = core::mem::replace(before, after);
                }
            }
        }
        each(true);
    }

    /// Scans one part of the lines of a tile. `before` contains the carry into this part, and then the carry into the
    /// next one.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn part<T: Lane, F: Form<T>, C: Combine<F::Total>>(
        &self,
        tile: Tile<2>,
        part: usize,
        before: &mut [F::Total],
        store: bool,
    ) {
        let Lines { len, along, .. } = self.lines;
        let start = part * self.part;
        // In reverse, the first element is the last.
        let (first, step) = if self.reverse { (len - 1 - start, -1) } else { (start, 1) };
        let at = |n: usize| tile.start[n] + first as isize * along[n];
        let part = Part {
            x: self.source.get().cast::<T>().wrapping_offset(at(0)),
            y: self.target.get().cast::<T>().wrapping_offset(at(1)),
            len: self.part.min(len - start),
            along: along.map(|stride| stride * step),
            across: tile.across,
            identity: self.identity.element::<F::Total>(),
            exclusive: self.exclusive,
            store,
        };
        // SAFETY: as the caller promises.
        unsafe { part.run::<F, C>(self.cpu.level, before) };
    }
}
