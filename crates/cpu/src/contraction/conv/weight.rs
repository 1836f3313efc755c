//! The weight pass: sums over batch and positions.
//!
//! The kernel is the tile of the other passes with exchanged roles: the rows are steps (channels of `x` and taps), and
//! the sum is over positions, with `y` transposed to `[positions, channels]`.

use super::gather::{Band, bands};
use super::geometry::Geometry;
use super::rows::{self, Dots};
use super::source::Source;
use super::tile::{MAX_ROWS, Tiles, Unit};
use crate::Cpu;
use crate::array::Array;
use crate::contraction::scratch::Scratch;
use crate::contraction::simd::Float;
use crate::copy::Shared;
use alloc::vec::Vec;
use core::ops::Range;
use kiln_ir::Result;

/// The number of parts of the work. It is independent of the number of threads, so that the order of summation and
/// every bit of the result are too.
const PARTS: usize = 16;

/// The wanted number of tasks: if the batch has fewer, the steps are split too.
const TASKS: usize = 32;

/// The minimum number of steps of such a slice: every slice transposes `y` again.
const SLICE: usize = 256;

/// The maximum number of elements of partial sums.
const PARTIAL: usize = 1 << 23;

/// Positions per block: enough to amortize reading and writing the sums, and few enough for the L2 cache.
const POSITIONS: usize = 384;

/// The minimum multiplications per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 18;

/// The weight pass from `x`, the source, and `y`, contiguous.
pub(super) struct WeightPass<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) batch: usize,
    pub(super) groups: usize,
    pub(super) channels_in: usize,
    pub(super) channels_out: usize,
}

impl WeightPass<'_> {
    /// Writes `[groups * channels_out, channels_in, taps]`. The batch is not empty.
    ///
    /// # Errors
    /// When there is not enough memory.
    ///
    /// # Safety
    /// The operands have the sizes that the fields state; `result` has room and has no other writer.
    pub(super) unsafe fn run<T: Float>(
        &self,
        cpu: &Cpu,
        x: &Array,
        y: *const T,
        result: *mut T,
    ) -> Result<()> {
        // SAFETY: no requirements.
        let (lanes, _) = unsafe { T::dispatch(cpu.level, Unit) };
        let source = Source::new(&cpu.pool, self.geometry, x, false)?;
        let phase = &self.geometry.phases[0];
        let channel = |c: usize| phase.offsets.iter().map(move |&offset| c * source.plane + offset);
        let steps: Vec<usize> = (0..self.channels_in).flat_map(channel).collect();
        // SAFETY: the caller upholds the conditions.
        unsafe {
            if rows::suits(self.channels_out, lanes) {
                self.by_rows(cpu, &source, &steps, y, result);
            } else {
                self.tiled(cpu, &source, &steps, lanes, y, result);
            }
        }
        Ok(())
    }

    /// The number of parts of the batch, with `size` elements of partial sums per part.
    fn parts(&self, size: usize) -> usize {
        let wanted = PARTS.div_ceil(self.groups.max(1)).min(self.batch);
        wanted.min(PARTIAL / size.max(1)).max(1)
    }

    fn images(&self, part: usize, parts: usize) -> Range<usize> {
        part * self.batch / parts..(part + 1) * self.batch / parts
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn tiled<T: Float>(
        &self,
        cpu: &Cpu,
        source: &Source<T>,
        steps: &[usize],
        lanes: usize,
        y: *const T,
        result: *mut T,
    ) {
        let phase = &self.geometry.phases[0];
        let bands = bands(self.channels_out, lanes);
        let width: usize = bands.iter().map(|band| band.width(lanes)).sum();
        // Room for whole tiles, whatever their number of rows.
        let wanted = TASKS.div_ceil(self.groups * self.batch);
        let slices = wanted.min(steps.len() / SLICE).max(1);
        let slice = steps.len().div_ceil(slices);
        let room = slice + MAX_ROWS;
        let parts = self.parts(self.groups * slices * room * width);
        let mut partial = Scratch::<T>::new(parts * self.groups * slices * room * width);
        let sums = Shared::new(partial.as_mut_ptr());
        let y = Shared::new(y.cast_mut());
        let positions = phase.base.len();
        let work = (self.batch.div_ceil(parts) * positions * slice * width).max(1);
        cpu.pool.parallel_for(parts * self.groups * slices, GRAIN.div_ceil(work), |tasks| {
            let mut transposed =
                Scratch::<T>::new(POSITIONS * bands.first().map_or(0, |band| band.width(lanes)));
            let mut places = Vec::with_capacity(POSITIONS);
            for task in tasks {
                let (part, group, number) =
                    (task / slices / self.groups, task / slices % self.groups, task % slices);
                let rows = &steps[(number * slice).min(steps.len())..((number + 1) * slice).min(steps.len())];
                let images = self.images(part, parts);
                let all = images.start * positions..images.end * positions;
                for start in all.clone().step_by(POSITIONS) {
                    let block = start..(start + POSITIONS).min(all.end);
                    places.clear();
                    places.extend(
                        block.clone().map(|f| f / positions * source.image + phase.base[f % positions]),
                    );
                    let mut to = sums.get().wrapping_add(task * room * width);
                    for band in &bands {
                        // SAFETY: the channels of `y` of this band; steps and positions are within the group's channels
                        // of the source; every task has its own sums.
                        unsafe {
                            let channel = group * self.channels_out + band.first;
                            let image = self.groups * self.channels_out * positions;
                            let from = y.get().add(channel * positions);
                            transpose(from, image, positions, &block, band, lanes, transposed.as_mut_ptr());
                            let tiles = Tiles {
                                source: source.start.get().add(group * self.channels_in * source.plane),
                                rows,
                                steps: &places,
                                weights: transposed.as_mut_ptr(),
                                vectors: band.vectors,
                                sums: to,
                                accumulate: start != all.start,
                            };
                            T::dispatch(cpu.level, tiles);
                        }
                        to = to.wrapping_add(room * band.width(lanes));
                    }
                }
            }
        });
        let total = Total { parts, slices, slice, room, width };
        // SAFETY: the caller upholds the conditions.
        unsafe { self.add_up(cpu, &total, &bands, lanes, sums, steps.len(), result) };
    }

    /// Adds up the parts, in order, and converts the sums to the weight's layout.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn add_up<T: Float>(
        &self,
        cpu: &Cpu,
        total: &Total,
        bands: &[Band],
        lanes: usize,
        sums: Shared<T>,
        steps: usize,
        result: *mut T,
    ) {
        let result = Shared::new(result);
        let &Total { parts, slices, slice, room, width } = total;
        let blocks = steps.div_ceil(16);
        let work = (16 * self.channels_out * parts).max(1);
        cpu.pool.parallel_for(self.groups * blocks, (GRAIN / 8).div_ceil(work), |tasks| {
            for task in tasks {
                let (group, block) = (task / blocks, task % blocks);
                for k in block * 16..(block * 16 + 16).min(steps) {
                    for band in bands {
                        let wide = band.width(lanes);
                        for lane in 0..band.channels {
                            let mut sum = T::ZERO;
                            for part in 0..parts {
                                let task = (part * self.groups + group) * slices + k / slice;
                                let row = (task * width + band.first) * room + k % slice * wide;
                                // SAFETY: a sum of this band; bands before it are full.
                                sum += unsafe { *sums.get().add(row + lane) };
                            }
                            let channel = group * self.channels_out + band.first + lane;
                            // SAFETY: this task's element of the result.
                            unsafe { *result.get().add(channel * steps + k) = sum };
                        }
                    }
                }
            }
        });
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn by_rows<T: Float>(
        &self,
        cpu: &Cpu,
        source: &Source<T>,
        steps: &[usize],
        y: *const T,
        result: *mut T,
    ) {
        let phase = &self.geometry.phases[0];
        let channels = self.groups * self.channels_out;
        let size = channels * steps.len();
        let parts = self.parts(size);
        let mut partial = Scratch::<T>::new(parts * size);
        partial.as_mut_slice().fill(T::ZERO);
        let (sums, y) = (Shared::new(partial.as_mut_ptr()), Shared::new(y.cast_mut()));
        let work = (self.batch.div_ceil(parts) * phase.base.len() * steps.len()).max(1);
        cpu.pool.parallel_for(parts * channels, (GRAIN / 4).div_ceil(work), |tasks| {
            for task in tasks {
                let (part, channel) = (task / channels, task % channels);
                let group = channel / self.channels_out;
                for n in self.images(part, parts) {
                    let start = n * source.image + group * self.channels_in * source.plane;
                    // SAFETY: sums of this task alone; a channel of `y`; the group's channels of the source.
                    unsafe {
                        let to = sums.get().add(task * steps.len());
                        let dots = Dots {
                            source: source.start.get().add(start),
                            steps,
                            phase,
                            y: y.get().add((n * channels + channel) * phase.base.len()),
                            sums: core::slice::from_raw_parts_mut(to, steps.len()),
                        };
                        T::dispatch(cpu.level, dots);
                    }
                }
            }
        });
        for i in 0..size {
            let mut sum = T::ZERO;
            for part in 0..parts {
                // SAFETY: within the partial sums.
                sum += unsafe { *sums.get().add(part * size + i) };
            }
            // SAFETY: within the result.
            unsafe { *result.add(i) = sum };
        }
    }
}

/// The layout of partial sums: `[parts, groups, slices, bands, room, lanes of the band]`.
struct Total {
    parts: usize,
    slices: usize,
    /// Steps per slice.
    slice: usize,
    /// Rows per slice.
    room: usize,
    /// The lanes of all bands.
    width: usize,
}

/// Transposes a block of positions, counted through all images, from `[channels of the band, positions]` per image to
/// `[block, lanes]`, with zeros in the lanes past the last channel.
///
/// # Safety
/// `from` is the band's first channel in the first image, and `to` has room.
unsafe fn transpose<T: Float>(
    from: *const T,
    image: usize,
    positions: usize,
    block: &Range<usize>,
    band: &Band,
    lanes: usize,
    to: *mut T,
) {
    let width = band.width(lanes);
    let mut start = block.start;
    while start < block.end {
        let (n, p) = (start / positions, start % positions);
        let len = (block.end - start).min(64).min(positions - p);
        // SAFETY: channels of the band; rows of the block.
        unsafe {
            let to = to.add((start - block.start) * width);
            for lane in 0..band.channels {
                let from = from.add(n * image + lane * positions + p);
                (0..len).for_each(|i| *to.add(i * width + lane) = *from.add(i));
            }
            for lane in band.channels..width {
                (0..len).for_each(|i| *to.add(i * width + lane) = T::ZERO);
            }
        }
        start += len;
    }
}
