//! Blockwise quantization: small integers with a scale per block.

use crate::Cpu;
use crate::array::Array;
use crate::contraction::simd::Float;
use crate::copy::Shared;
use crate::isa::{Widest, multiversion};
use alloc::vec;
use alloc::vec::Vec;
use core::marker::PhantomData;
use kiln_ir::{Element, Result, TensorType};

/// The minimum elements per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 14;

/// Integer types of quantized elements.
pub(super) trait Quantized: Element {
    /// Converts exactly.
    fn widen(self) -> i64;

    /// Clamps to the range.
    fn saturate(x: i64) -> Self;
}

macro_rules! quantized {
    ($($ty:ty),*) => {$(
        impl Quantized for $ty {
            #[inline(always)]
            fn widen(self) -> i64 {
                i64::from(self)
            }

            #[inline(always)]
            fn saturate(x: i64) -> Self {
                x.clamp(i64::from(<$ty>::MIN), i64::from(<$ty>::MAX)) as $ty
            }
        }
    )*};
}

quantized!(i8, u8, i16, u16, i32);

/// The mapping from elements to scales: rows of elements, with a row of scales each.
struct Blocks {
    /// Elements per row, and scales per row of scales.
    row: usize,
    scales: usize,
    /// For each row, the offset of its scales.
    starts: Vec<usize>,
}

impl Blocks {
    fn new(shape: &[usize], scales: &[usize]) -> Blocks {
        let Some(last) = shape.len().checked_sub(1) else {
            return Blocks { row: 1, scales: 1, starts: vec![0] };
        };
        let mut starts = vec![0usize];
        for axis in 0..last {
            let per_block = (shape[axis] / scales[axis].max(1)).max(1);
            let within = |start: &usize| {
                let start = start * scales[axis];
                (0..shape[axis]).map(move |i| start + i / per_block)
            };
            starts = starts.iter().flat_map(within).collect();
        }
        starts.iter_mut().for_each(|start| *start *= scales[last]);
        Blocks { row: shape[last], scales: scales[last], starts }
    }

    /// Calls `body(elements, scale)` for each run of a row with one scale.
    #[inline(always)]
    fn stretches(&self, mut body: impl FnMut(core::ops::Range<usize>, usize)) {
        let len = self.row / self.scales;
        for scale in 0..self.scales {
            body(scale * len..(scale + 1) * len, scale);
        }
    }
}

/// `clamp(round(x / scale) + zero)`; NaN returns 0.
///
/// # Errors
/// When there is not enough memory.
pub(super) fn quantize<T: Float + Element, Q: Quantized>(
    cpu: &Cpu,
    operands: [Option<(&Array, &TensorType)>; 3],
    ty: &TensorType,
    _: PhantomData<(T, Q)>,
) -> Result<Array> {
    convert::<T, T, Q, Q>(cpu, operands, ty, |blocks, x, scale, zero, q| {
        quantize_row(cpu.level, blocks, x, scale, zero, q);
    })
}

/// `(q - zero) * scale`.
///
/// # Errors
/// When there is not enough memory.
pub(super) fn dequantize<T: Float + Element, Q: Quantized>(
    cpu: &Cpu,
    operands: [Option<(&Array, &TensorType)>; 3],
    ty: &TensorType,
    _: PhantomData<(T, Q)>,
) -> Result<Array> {
    convert::<Q, T, Q, T>(cpu, operands, ty, |blocks, q, scale, zero, x| {
        dequantize_row(cpu.level, blocks, q, scale, zero, x);
    })
}

/// Calls `row(blocks, operand, scales, zeros, result)` for each row.
fn convert<A: Element, S: Element, Z: Element, R: Element>(
    cpu: &Cpu,
    operands: [Option<(&Array, &TensorType)>; 3],
    ty: &TensorType,
    row: impl Fn(&Blocks, &[A], &[S], Option<&[Z]>, &mut [R]) + Sync,
) -> Result<Array> {
    let output = Array::uninit(ty)?;
    let [Some(x), Some(scale), zero] = operands else { return Ok(output) };
    if ty.num_elements() == 0 {
        return Ok(output);
    }
    let blocks = Blocks::new(&ty.shape, &scale.1.shape);
    let contiguous = |operand: (&Array, &TensorType)| cpu.contiguous(operand.0, operand.1);
    let (x, scale) = (contiguous(x)?, contiguous(scale)?);
    let zero = zero.map(contiguous).transpose()?;
    let from = Shared::new(x.as_mut_ptr::<A>());
    let scales = Shared::new(scale.as_mut_ptr::<S>());
    let zeros = zero.as_ref().map(|zero| Shared::new(zero.as_mut_ptr::<Z>()));
    let to = Shared::new(output.as_mut_ptr::<R>());
    cpu.pool.parallel_for(blocks.starts.len(), GRAIN.div_ceil(blocks.row), |range| {
        for i in range {
            let start = blocks.starts[i];
            // SAFETY: rows of operands and result; only this task writes the result's.
            unsafe {
                row(
                    &blocks,
                    core::slice::from_raw_parts(from.get().add(i * blocks.row), blocks.row),
                    core::slice::from_raw_parts(scales.get().add(start), blocks.scales),
                    zeros.map(|zeros| core::slice::from_raw_parts(zeros.get().add(start), blocks.scales)),
                    core::slice::from_raw_parts_mut(to.get().add(i * blocks.row), blocks.row),
                );
            }
        }
    });
    Ok(output)
}

multiversion! {
    fn quantize_row[T: Float, Q: Quantized]<T, Q> in { Widest::Avx2 } (
        blocks: &Blocks,
        x: &[T],
        scales: &[T],
        zeros: Option<&[Q]>,
        q: &mut [Q],
    ) {
        blocks.stretches(|range, block| {
            let (scale, zero) = (scales[block], zeros.map_or(0, |zeros| zeros[block].widen()));
            for (q, &x) in q[range.clone()].iter_mut().zip(&x[range]) {
                let rounded = (x / scale).round_even().to_f64();
                // Exceeds any range, and is small enough that a zero point can be added.
                let whole = rounded.clamp(-1e12, 1e12) as i64;
                *q = if rounded.is_nan() { Q::default() } else { Q::saturate(whole + zero) };
            }
        });
    }

    fn dequantize_row[T: Float, Q: Quantized]<T, Q> in { Widest::Avx2 } (
        blocks: &Blocks,
        q: &[Q],
        scales: &[T],
        zeros: Option<&[Q]>,
        x: &mut [T],
    ) {
        blocks.stretches(|range, block| {
            let (scale, zero) = (scales[block].to_f64(), zeros.map_or(0, |zeros| zeros[block].widen()));
            for (x, &q) in x[range.clone()].iter_mut().zip(&q[range]) {
                *x = T::from_f64((q.widen() - zero) as f64 * scale);
            }
        });
    }
}
