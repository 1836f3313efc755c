//! Resizing (interpolation): one axis after the other; each output sample is a weighted sum along the axis.

use crate::Cpu;
use crate::array::Array;
use crate::buffer::vector;
use crate::contraction::simd::Float;
use crate::copy::Shared;
use crate::isa::{Widest, multiversion};
use alloc::vec::Vec;
use kiln_ir::{ResizeMode, Result, TensorType};
use smallvec::{SmallVec, smallvec};

/// The minimum elements per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 14;

/// Resizes the last `size.len()` axes.
///
/// # Errors
/// When there is not enough memory.
pub(super) fn resize<T: Float>(
    cpu: &Cpu,
    mode: ResizeMode,
    size: &[usize],
    align_corners: bool,
    (x, x_ty): (&Array, &TensorType),
) -> Result<Array> {
    let mut ty = *x_ty;
    let mut steps: SmallVec<[_; 3]> = SmallVec::new();
    for (axis, &to) in (2..).zip(size) {
        let from = ty.shape[axis];
        if from != to {
            ty = ty.with_shape(ty.shape.with(axis, to));
            // All results are allocated before the first is computed: the last may be too large.
            steps.push((axis, Grid { mode, align_corners, from, to }, ty, Array::uninit(&ty)?));
        }
    }
    let mut array = cpu.contiguous(x, x_ty)?;
    for (axis, grid, target, output) in steps {
        if target.num_elements() > 0 {
            along_axis(cpu, &grid.taps::<T>()?, &array, &output, &target, axis, grid.from);
        }
        array = output;
    }
    Ok(array)
}

fn along_axis<T: Float>(
    cpu: &Cpu,
    taps: &Taps<T>,
    x: &Array,
    y: &Array,
    ty: &TensorType,
    axis: usize,
    from: usize,
) {
    let to = ty.shape[axis];
    let inner: usize = ty.shape[axis + 1..].iter().product();
    let outer = ty.num_elements() / to / inner;
    let (x, y) = (Shared::new(x.as_mut_ptr::<T>()), Shared::new(y.as_mut_ptr::<T>()));
    cpu.pool.parallel_for(outer, GRAIN.div_ceil(to * inner), |range| {
        for i in range {
            // SAFETY: this part of operand and result; only this task writes it.
            let (x, y) = unsafe {
                (
                    core::slice::from_raw_parts(x.get().add(i * from * inner), from * inner),
                    core::slice::from_raw_parts_mut(y.get().add(i * to * inner), to * inner),
                )
            };
            weigh(cpu.level, taps, x, y, inner);
        }
    });
}

/// For each output sample, `count` input samples with their weights.
struct Taps<T> {
    count: usize,
    places: Vec<usize>,
    weights: Vec<T>,
}

multiversion! {
    fn weigh[T: Float]<T> in { Widest::Avx2 } (taps: &Taps<T>, x: &[T], y: &mut [T], inner: usize) {
        let count = taps.count;
        for (i, y) in y.chunks_exact_mut(inner).enumerate() {
            let places = &taps.places[i * count..][..count];
            let weights = &taps.weights[i * count..][..count];
            for (tap, (&place, &weight)) in places.iter().zip(weights).enumerate() {
                let x = &x[place * inner..][..inner];
                if tap == 0 {
                    y.iter_mut().zip(x).for_each(|(y, &x)| *y = x * weight);
                } else {
                    y.iter_mut().zip(x).for_each(|(y, &x)| *y += x * weight);
                }
            }
        }
    }
}

/// The input and output lengths of one axis.
struct Grid {
    mode: ResizeMode,
    align_corners: bool,
    from: usize,
    to: usize,
}

impl Grid {
    /// The taps of all output samples, of which there is at least one.
    fn taps<T: Float>(&self) -> Result<Taps<T>> {
        let count = self.taps_of(0).len();
        let all = self.to.saturating_mul(count);
        let mut taps = Taps { count, places: vector(all)?, weights: vector(all)? };
        for (place, weight) in (0..self.to).flat_map(|index| self.taps_of(index)) {
            taps.places.push(place);
            taps.weights.push(T::from_f64(weight));
        }
        Ok(taps)
    }

    /// The input samples of the output at that index, with their weights.
    fn taps_of(&self, index: usize) -> SmallVec<[(usize, f64); 4]> {
        let last = self.from - 1;
        match self.mode {
            ResizeMode::Nearest => {
                smallvec![((index as u128 * self.from as u128 / self.to as u128) as usize, 1.0)]
            }
            ResizeMode::Linear => {
                let source = self.source(index).max(0.0);
                let below = (libm::floor(source) as usize).min(last);
                let part = (source - below as f64).min(1.0);
                smallvec![(below, 1.0 - part), ((below + 1).min(last), part)]
            }
            ResizeMode::Cubic => {
                let source = self.source(index);
                let below = libm::floor(source);
                let tap = |offset: f64| {
                    let sample = below + offset;
                    (sample.clamp(0.0, last as f64) as usize, cubic(libm::fabs(sample - source)))
                };
                smallvec![tap(-1.0), tap(0.0), tap(1.0), tap(2.0)]
            }
        }
    }

    /// The coordinate of an output sample in the input.
    fn source(&self, index: usize) -> f64 {
        let (from, to, index) = (self.from as f64, self.to as f64, index as f64);
        match (self.align_corners, self.to) {
            (true, 1) => 0.0,
            (true, _) => index * (from - 1.0) / (to - 1.0),
            (false, _) => (index + 0.5) * from / to - 0.5,
        }
    }
}

/// The weight of a sample at that distance, at most 2: Keys' kernel with `a = -0.75`.
fn cubic(distance: f64) -> f64 {
    let (d, a) = (distance, -0.75);
    if d <= 1.0 { (d * (a + 2.0) - (a + 3.0)) * d * d + 1.0 } else { a * (((d - 5.0) * d + 8.0) * d - 4.0) }
}
