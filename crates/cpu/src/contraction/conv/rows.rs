//! Convolution with few result channels per group (mainly depthwise): lanes are adjacent elements of a row.

use super::gather::Gather;
use super::geometry::Phase;
use super::source::Source;
use crate::Cpu;
use crate::contraction::simd::{Float, Kernel, Simd};
use crate::copy::Shared;
use alloc::vec::Vec;

/// The minimum multiplications per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 16;

/// The maximum number of elements of a row that are summed at once: four vectors of the widest unit.
const CHUNK: usize = 64;

/// Whether the channels are so few that most lanes of a tile would be empty.
pub(super) fn suits(channels: usize, lanes: usize) -> bool {
    channels * 4 <= lanes
}

/// Writes one phase of the result.
///
/// # Safety
/// As [`Gather::run`]; the source has slack.
pub(super) unsafe fn gather<T: Float>(
    gather: &Gather<'_>,
    cpu: &Cpu,
    source: &Source<T>,
    phase: &Phase,
    weight: *const T,
    result: *mut T,
) {
    let steps = gather.steps(phase, source.plane);
    let weight_steps = gather.weight_steps(phase);
    let (weight, result) = (Shared::new(weight.cast_mut()), Shared::new(result));
    let channels = gather.groups * gather.channels_out;
    let work = (steps.len() * phase.base.len()).max(1);
    cpu.pool.parallel_for(gather.batch * channels, GRAIN.div_ceil(work), |range| {
        let mut weights = Vec::with_capacity(steps.len());
        for task in range {
            let (n, channel) = (task / channels, task % channels);
            let (group, o) = (channel / gather.channels_out, channel % gather.channels_out);
            let first =
                group * gather.channels_in * gather.channels_out * gather.taps + o * gather.weight_out;
            weights.clear();
            // SAFETY: the weight of this channel; its channels of the source; its plane of the result.
            unsafe {
                weights.extend(weight_steps.iter().map(|&step| *weight.get().add(first + step)));
                let start = n * source.image + group * gather.channels_in * source.plane;
                let rows = Rows {
                    source: source.start.get().add(start),
                    steps: &steps,
                    weights: &weights,
                    phase,
                    result: result.get().add((n * channels + channel) * gather.plane_out),
                };
                T::dispatch(cpu.level, rows);
            }
        }
    });
}

/// One channel of the result, row by row.
struct Rows<'a, T> {
    source: *const T,
    steps: &'a [usize],
    weights: &'a [T],
    phase: &'a Phase,
    result: *mut T,
}

impl<T: Float> Kernel<T> for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        let row = self.phase.row;
        if row == 0 {
            return;
        }
        for first in (0..self.phase.base.len()).step_by(row) {
            for start in (0..row).step_by(CHUNK) {
                let len = (row - start).min(CHUNK);
                let mut sums = [T::ZERO; CHUNK];
                // SAFETY: positions of the grid. Full vectors read at most the slack, since a row's base plus any step
                // plus its length is within the source.
                unsafe {
                    let source = self.source.add(self.phase.base[first + start]);
                    if self.phase.row_step == 1 {
                        self.sum::<S>(source, len, &mut sums);
                    } else {
                        self.sum_strided(source, len, &mut sums);
                    }
                    let target = self.result.add(self.phase.out(first + start));
                    for i in 0..len {
                        *target.add(i * self.phase.out_step) = sums[i];
                    }
                }
            }
        }
    }
}

impl<T: Float> Rows<'_, T> {
    #[inline(always)]
    unsafe fn sum<S: Simd<T>>(&self, source: *const T, len: usize, sums: &mut [T; CHUNK]) {
        let sums = sums.as_mut_ptr();
        let mut from = 0;
        // SAFETY: the caller guarantees the source; `sums` contains whole vectors.
        unsafe {
            while from < len {
                let mut acc = [S::splat(T::ZERO); 2];
                let two = len - from > S::LANES;
                for (&step, &weight) in self.steps.iter().zip(self.weights) {
                    let weight = S::splat(weight);
                    let x = source.add(step + from);
                    acc[0] = S::mul_add(S::load(x), weight, acc[0]);
                    if two {
                        acc[1] = S::mul_add(S::load(x.add(S::LANES)), weight, acc[1]);
                    }
                }
                S::store(sums.add(from), acc[0]);
                if two {
                    S::store(sums.add(from + S::LANES), acc[1]);
                }
                from += 2 * S::LANES;
            }
        }
    }

    #[inline(always)]
    unsafe fn sum_strided(&self, source: *const T, len: usize, sums: &mut [T; CHUNK]) {
        for (&step, &weight) in self.steps.iter().zip(self.weights) {
            for (i, sum) in sums[..len].iter_mut().enumerate() {
                // SAFETY: positions of the row.
                *sum += weight * unsafe { *source.add(step + i * self.phase.row_step) };
            }
        }
    }
}

/// Dot products of one channel of the result's gradient with the steps of one image:
/// `sums[k] += Σ_p y[p] · source[base[p] + steps[k]]`.
pub(super) struct Dots<'a, T> {
    pub(super) source: *const T,
    pub(super) steps: &'a [usize],
    pub(super) phase: &'a Phase,
    /// One channel, contiguous.
    pub(super) y: *const T,
    pub(super) sums: &'a mut [T],
}

impl<T: Float> Kernel<T> for Dots<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        let row = self.phase.row;
        if row == 0 {
            return;
        }
        for (&step, sum) in self.steps.iter().zip(self.sums) {
            // SAFETY: positions of the grid.
            unsafe {
                let mut acc = S::splat(T::ZERO);
                let mut tail = T::ZERO;
                for first in (0..self.phase.base.len()).step_by(row) {
                    let x = self.source.add(self.phase.base[first] + step);
                    let y = self.y.add(first);
                    let mut from = 0;
                    if self.phase.row_step == 1 {
                        while from + S::LANES <= row {
                            acc = S::mul_add(S::load(x.add(from)), S::load(y.add(from)), acc);
                            from += S::LANES;
                        }
                    }
                    for i in from..row {
                        tail += *x.add(i * self.phase.row_step) * *y.add(i);
                    }
                }
                tail += S::sum(acc);
                *sum += tail;
            }
        }
    }
}
