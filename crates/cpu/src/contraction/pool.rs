//! Pooling and its gradient: row by row, with the windows of a result row processed together.

mod gradient;

use super::{no_number, tensor, through_f32};
use crate::Cpu;
use crate::array::Array;
use crate::copy::Shared;
use crate::isa::{Widest, multiversion};
use alloc::vec;
use alloc::vec::Vec;
use gradient::{AverageGradient, MaxGradient};
use kiln_ir::{DType, Element, Op, Operands, PoolKind, PoolSpec, Result, TensorType, Values};
use smallvec::smallvec;

/// The minimum window elements per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 15;

/// An element type that pooling compares and adds.
trait Number: Element {
    /// The minimum of the type.
    const LOWEST: Self;

    /// The widest instruction set for loops over the type.
    const WIDEST: Widest;

    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;

    /// The quotient of floats; integers are never averaged.
    fn over(self, divisor: Self) -> Self;

    /// Converts a count.
    fn count(n: usize) -> Self;
}

macro_rules! floats {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            const LOWEST: Self = <$ty>::NEG_INFINITY;
            const WIDEST: Widest = Widest::Avx512;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn over(self, divisor: Self) -> Self {
                self / divisor
            }

            #[inline(always)]
            fn count(n: usize) -> Self {
                n as $ty
            }
        }
    )*};
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            const LOWEST: Self = <$ty>::MIN;
            const WIDEST: Widest = Widest::Baseline;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn over(self, divisor: Self) -> Self {
                self.checked_div(divisor).unwrap_or(0)
            }

            #[inline(always)]
            fn count(n: usize) -> Self {
                n as $ty
            }
        }
    )*};
}

floats!(f64, f32);
integers!(i64, i32, i16, i8, u64, u32, u16, u8);

/// Runs `$run::<T>` for the type of a dtype; 16-bit floats are computed in `f32`.
macro_rules! by_dtype {
    ($dtype:expr, $half:expr, $run:ident($($arg:expr),*)) => {
        match $dtype {
            DType::F64 => $run::<f64>($($arg),*),
            DType::F32 => $run::<f32>($($arg),*),
            DType::F16 | DType::BF16 => return $half,
            DType::I64 => $run::<i64>($($arg),*),
            DType::I32 => $run::<i32>($($arg),*),
            DType::I16 => $run::<i16>($($arg),*),
            DType::I8 => $run::<i8>($($arg),*),
            DType::U64 => $run::<u64>($($arg),*),
            DType::U32 => $run::<u32>($($arg),*),
            DType::U16 => $run::<u16>($($arg),*),
            DType::U8 => $run::<u8>($($arg),*),
            DType::Bool => return Err(no_number("pool")),
        }
    };
}

pub(super) fn forward(
    cpu: &Cpu,
    spec: &PoolSpec,
    inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    let (x, x_ty) = tensor(&inputs, 0)?;
    let ty = results[0];
    let output = by_dtype!(
        ty.dtype,
        through_f32(cpu, &Op::Pool(spec.clone()), inputs, results),
        pooled(cpu, spec, x, x_ty, &ty)
    )?;
    Ok(smallvec![output.into_value(ty)])
}

pub(super) fn backward(
    cpu: &Cpu,
    spec: &PoolSpec,
    size: &[usize],
    inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    let ty = results[0];
    let x = if spec.kind == PoolKind::Max { Some(tensor(&inputs, 1)?) } else { None };
    let op = || Op::PoolGrad { spec: spec.clone(), size: size.to_vec() };
    let output = by_dtype!(
        ty.dtype,
        through_f32(cpu, &op(), inputs, results),
        spread(cpu, spec, tensor(&inputs, 0)?, x, &ty)
    )?;
    Ok(smallvec![output.into_value(ty)])
}

fn pooled<T: Number>(
    cpu: &Cpu,
    spec: &PoolSpec,
    x: &Array,
    x_ty: &TensorType,
    ty: &TensorType,
) -> Result<Array> {
    let output = Array::uninit(ty)?;
    let x = cpu.contiguous(x, x_ty)?;
    let windows = Windows::new(spec, &x_ty.shape[2..], &ty.shape[2..]);
    let (from, to) = (Shared::new(x.as_mut_ptr::<T>()), Shared::new(output.as_mut_ptr::<T>()));
    let planes = ty.shape[0] * ty.shape[1];
    cpu.pool.parallel_for(planes, GRAIN.div_ceil(windows.work()), |range| {
        for plane in range {
            // SAFETY: planes of operand and result; every plane of the result is written once.
            let (x, y) = unsafe { (windows.input(from, plane), windows.output(to, plane)) };
            match spec.kind {
                PoolKind::Max => greatest(cpu.level, &windows, x, y),
                PoolKind::Average { .. } => mean(cpu.level, &windows, x, y),
            }
        }
    });
    Ok(output)
}

fn spread<T: Number>(
    cpu: &Cpu,
    spec: &PoolSpec,
    grad: (&Array, &TensorType),
    x: Option<(&Array, &TensorType)>,
    ty: &TensorType,
) -> Result<Array> {
    let output = Array::uninit(ty)?;
    let grad = (cpu.contiguous(grad.0, grad.1)?, grad.1);
    let x = x.map(|(x, ty)| cpu.contiguous(x, ty)).transpose()?;
    let windows = Windows::new(spec, &ty.shape[2..], &grad.1.shape[2..]);
    let from = Shared::new(grad.0.as_mut_ptr::<T>());
    let x = x.as_ref().map(|x| Shared::new(x.as_mut_ptr::<T>()));
    let to = Shared::new(output.as_mut_ptr::<T>());
    let planes = ty.shape[0] * ty.shape[1];
    cpu.pool.parallel_for(planes, GRAIN.div_ceil(windows.work()), |range| {
        let (mut greatest, mut shares) = (MaxGradient::new(&windows), AverageGradient::new(&windows));
        for plane in range {
            // SAFETY: planes of operands and result; every plane of the result is written once.
            let (grad, dx) = unsafe { (&*windows.output(from, plane), windows.input(to, plane)) };
            dx.fill(T::default());
            match x {
                Some(x) => {
                    // SAFETY: as above.
                    let x = unsafe { &*windows.input(x, plane) };
                    gradient::to_greatest(cpu.level, &windows, x, grad, dx, &mut greatest);
                }
                None => gradient::to_all(cpu.level, &windows, grad, dx, &mut shares),
            }
        }
    });
    Ok(output)
}

/// The geometry of the windows of a plane.
struct Windows {
    /// Elements of a plane of the operand and of the result.
    input: usize,
    output: usize,
    /// The length of the last axis of the result.
    row: usize,
    /// For each row of the result, the rows of the operand that its windows contain, in order, and the divisor of an
    /// average along the outer axes.
    rows: Vec<(Vec<usize>, usize)>,
    /// For each element of a window along the last axis, in order, the windows for which it is inside the operand.
    columns: Vec<Column>,
    /// The strides along the last axis between windows, and between elements of a window.
    step: usize,
    dilation: usize,
    /// Padding before the last axis, and its length.
    low: usize,
    length: usize,
    /// For each window along the last axis, the divisor of an average.
    divisors: Vec<usize>,
}

/// One element of a window along the last axis.
struct Column {
    /// The range of windows for which it is inside the operand.
    first: usize,
    end: usize,
    /// Its index for the first window.
    start: usize,
}

impl Windows {
    fn new(spec: &PoolSpec, x: &[usize], y: &[usize]) -> Windows {
        let last = x.len() - 1;
        let (low, high) = spec.padding[last];
        let mut rows: Vec<(Vec<usize>, usize)> = vec![(vec![0], 1)];
        for axis in 0..last {
            let places: Vec<Vec<usize>> = (0..y[axis]).map(|i| inside(spec, axis, x[axis], i)).collect();
            let within = |(starts, divisor): &(Vec<usize>, usize)| {
                let joined = |i: usize| {
                    let all = starts
                        .iter()
                        .flat_map(|&start| places[i].iter().map(move |&place| start * x[axis] + place));
                    (all.collect(), divisor * divisor_of(spec, axis, x[axis], i))
                };
                (0..y[axis]).map(joined).collect::<Vec<_>>()
            };
            rows = rows.iter().flat_map(within).collect();
        }
        for (starts, _) in &mut rows {
            starts.iter_mut().for_each(|start| *start *= x[last]);
        }
        Windows {
            input: x.iter().product(),
            output: y.iter().product(),
            row: y[last],
            rows,
            columns: (0..spec.window[last]).map(|k| Column::new(spec, last, x[last], y[last], k)).collect(),
            // A step beyond the padded row means a single window; positions must not wrap.
            step: spec.stride[last].min(x[last] + low + high + spec.overhang[last]),
            dilation: spec.dilation[last],
            low,
            length: x[last],
            divisors: (0..y[last]).map(|i| divisor_of(spec, last, x[last], i)).collect(),
        }
    }

    /// The approximate number of elements of all windows of a plane; at least 1.
    fn work(&self) -> usize {
        let rows: usize = self.rows.iter().map(|(starts, _)| starts.len()).sum();
        (rows * self.row * self.columns.len()).max(self.input).max(1)
    }

    /// # Safety
    /// There is such a plane of an operand at that address; a caller that writes is the only user of the plane.
    unsafe fn input<'a, T>(&self, start: Shared<T>, plane: usize) -> &'a mut [T] {
        // SAFETY: as the caller promises.
        unsafe { core::slice::from_raw_parts_mut(start.get().add(plane * self.input), self.input) }
    }

    /// # Safety
    /// There is such a plane of a result at that address; a caller that writes is the only user of the plane.
    unsafe fn output<'a, T>(&self, start: Shared<T>, plane: usize) -> &'a mut [T] {
        // SAFETY: as the caller promises.
        unsafe { core::slice::from_raw_parts_mut(start.get().add(plane * self.output), self.output) }
    }
}

impl Column {
    fn new(spec: &PoolSpec, axis: usize, x: usize, y: usize, k: usize) -> Column {
        let (low, step) = (spec.padding[axis].0, spec.stride[axis]);
        let place = k * spec.dilation[axis];
        let first = low.saturating_sub(place).div_ceil(step).min(y);
        let end = (x + low).saturating_sub(place).div_ceil(step).clamp(first, y);
        let start = if first < end { first * step + place - low } else { 0 };
        Column { first, end, start }
    }
}

/// The indices of the elements of window `i` that are inside an axis of length `x`.
fn inside(spec: &PoolSpec, axis: usize, x: usize, i: usize) -> Vec<usize> {
    let place =
        |k: usize| (i * spec.stride[axis] + k * spec.dilation[axis]).checked_sub(spec.padding[axis].0);
    (0..spec.window[axis]).filter_map(place).filter(|&place| place < x).collect()
}

/// The divisor of an average along an axis, for window `i`.
fn divisor_of(spec: &PoolSpec, axis: usize, x: usize, i: usize) -> usize {
    let (low, high) = spec.padding[axis];
    match spec.kind {
        PoolKind::Average { include_padding: true } => {
            let start = i * spec.stride[axis];
            (start + spec.window[axis]).min(low + x + high) - start
        }
        PoolKind::Average { include_padding: false } | PoolKind::Max => inside(spec, axis, x, i).len(),
    }
}

/// Whether `x` replaces `best`: it is greater, or the first NaN.
#[inline(always)]
#[allow(clippy::eq_op)]
fn beats<T: Number>(x: T, best: T) -> bool {
    (x > best) | ((x != x) & (best == best))
}

/// Calls `body(target, element)` for the windows of a row for which this element is inside, each with its target.
#[inline(always)]
fn along<T: Copy, U>(
    row: &[T],
    column: &Column,
    step: usize,
    targets: &mut [U],
    mut body: impl FnMut(&mut U, T),
) {
    let source = &row[column.start..];
    let targets = &mut targets[column.first..column.end];
    match step {
        1 => targets.iter_mut().zip(source).for_each(|(target, &x)| body(target, x)),
        2 => {
            // Pairs turn the loads of adjacent windows into vector loads. The last pair may lack its second half.
            let (pairs, rest) = source.as_chunks::<2>();
            let (whole, odd) = targets.split_at_mut(targets.len().min(pairs.len()));
            whole.iter_mut().zip(pairs).for_each(|(target, pair)| body(target, pair[0]));
            odd.iter_mut().zip(rest).for_each(|(target, &x)| body(target, x));
        }
        _ => targets.iter_mut().zip(source.iter().step_by(step)).for_each(|(target, &x)| body(target, x)),
    }
}

multiversion! {
    /// The maximum of each window.
    fn greatest[T: Number]<T> in { T::WIDEST } (windows: &Windows, x: &[T], y: &mut [T]) {
        for ((starts, _), y) in windows.rows.iter().zip(y.chunks_exact_mut(windows.row)) {
            y.fill(T::LOWEST);
            for &start in starts {
                for column in windows.columns.iter().filter(|column| column.first < column.end) {
                    along(&x[start..], column, windows.step, y, |best, x| {
                        *best = if beats(x, *best) { x } else { *best };
                    });
                }
            }
        }
    }

    /// The mean of each window.
    fn mean[T: Number]<T> in { T::WIDEST } (windows: &Windows, x: &[T], y: &mut [T]) {
        for ((starts, outer), y) in windows.rows.iter().zip(y.chunks_exact_mut(windows.row)) {
            y.fill(T::default());
            for &start in starts {
                for column in windows.columns.iter().filter(|column| column.first < column.end) {
                    along(&x[start..], column, windows.step, y, |y, x| *y = y.plus(x));
                }
            }
            for (y, &inner) in y.iter_mut().zip(&windows.divisors) {
                *y = y.over(T::count(outer * inner));
            }
        }
    }
}
