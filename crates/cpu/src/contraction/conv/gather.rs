//! The forward and the input pass by tiles of channels: a map from a padded source to a grid per phase.

use super::geometry::{Geometry, Phase};
use super::rows;
use super::source::Source;
use super::tile::{MAX_ROWS, MAX_VECTORS, Tiles, Unit};
use crate::Cpu;
use crate::array::Array;
use crate::contraction::scratch::Scratch;
use crate::contraction::simd::Float;
use crate::copy::Shared;
use alloc::vec::Vec;
use core::ops::Range;
use kiln_ir::Result;

/// Positions per block, whose sums stay in the L2 cache.
const POSITIONS: usize = 192;

/// Steps per block, whose weights stay in the L1 cache.
const STEPS: usize = 96;

/// The minimum multiplications per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 18;

/// Elements of the weight per packing task.
const PACKED: usize = 1 << 15;

/// One convolution from a source to a result.
pub(super) struct Gather<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) batch: usize,
    pub(super) groups: usize,
    /// Channels of the source and of the result, per group.
    pub(super) channels_in: usize,
    pub(super) channels_out: usize,
    /// Elements of one channel of the result.
    pub(super) plane_out: usize,
    /// The strides of the contiguous weight between channels of the result and of the source.
    pub(super) weight_out: usize,
    pub(super) weight_in: usize,
    /// Elements of the kernel per pair of channels.
    pub(super) taps: usize,
}

impl Gather<'_> {
    /// Writes the whole result.
    ///
    /// # Errors
    /// When there is not enough memory.
    ///
    /// # Safety
    /// Source and weight have the sizes that the fields state; `result` has room for
    /// `[batch, groups * channels_out, plane_out]` and has no other writer.
    pub(super) unsafe fn run<T: Float>(
        &self,
        cpu: &Cpu,
        source: &Array,
        weight: *const T,
        result: *mut T,
    ) -> Result<()> {
        // SAFETY: no requirements.
        let (lanes, _) = unsafe { T::dispatch(cpu.level, Unit) };
        let by_rows = rows::suits(self.channels_out, lanes);
        let source = Source::new(&cpu.pool, self.geometry, source, by_rows)?;
        let covered: usize = self.geometry.phases.iter().map(|phase| phase.base.len()).sum();
        if covered < self.plane_out {
            let planes = self.batch * self.groups * self.channels_out;
            // SAFETY: the size of the result.
            unsafe { result.write_bytes(0, planes * self.plane_out) };
        }
        for phase in &self.geometry.phases {
            // SAFETY: the caller upholds the conditions.
            unsafe {
                if by_rows {
                    rows::gather(self, cpu, &source, phase, weight, result);
                } else {
                    self.tiled(cpu, &source, phase, lanes, weight, result);
                }
            }
        }
        Ok(())
    }

    /// The source offset of each step, relative to a position: channels, and taps within them.
    pub(super) fn steps(&self, phase: &Phase, plane: usize) -> Vec<usize> {
        let channel = |c: usize| phase.offsets.iter().map(move |&offset| c * plane + offset);
        (0..self.channels_in).flat_map(channel).collect()
    }

    /// The weight offset of each step, within one channel of the result.
    pub(super) fn weight_steps(&self, phase: &Phase) -> Vec<usize> {
        let channel = |c: usize| phase.taps.iter().map(move |&tap| c * self.weight_in + tap);
        (0..self.channels_in).flat_map(channel).collect()
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn tiled<T: Float>(
        &self,
        cpu: &Cpu,
        source: &Source<T>,
        phase: &Phase,
        lanes: usize,
        weight: *const T,
        result: *mut T,
    ) {
        let steps = self.steps(phase, source.plane);
        let bands = bands(self.channels_out, lanes);
        let width: usize = bands.iter().map(|band| band.width(lanes)).sum();
        let mut packed = Scratch::new(self.groups * steps.len() * width);
        // SAFETY: the caller upholds the conditions.
        unsafe { self.pack(cpu, phase, &bands, lanes, weight, packed.as_mut_ptr()) };
        let packed = Shared::new(packed.as_mut_ptr());
        let result = Shared::new(result);
        let positions = self.batch * phase.base.len();
        let blocks = positions.div_ceil(POSITIONS);
        let work = (POSITIONS * steps.len() * width).max(1);
        cpu.pool.parallel_for(self.groups * blocks, GRAIN.div_ceil(work), |tasks| {
            let mut sums = Scratch::new((POSITIONS + MAX_ROWS) * MAX_VECTORS * lanes);
            let mut rows = Vec::with_capacity(POSITIONS);
            for task in tasks {
                let (group, block) = (task / blocks, task % blocks);
                let range = block * POSITIONS..((block + 1) * POSITIONS).min(positions);
                rows.clear();
                rows.extend(range.clone().map(|f| {
                    let (n, p) = (f / phase.base.len(), f % phase.base.len());
                    n * source.image + phase.base[p]
                }));
                let mut weights = packed.get().wrapping_add(group * steps.len() * width);
                for band in &bands {
                    // SAFETY: rows and steps are within the group's channels of the source; the tasks write disjoint
                    // positions of the result.
                    unsafe {
                        let tiles = Tiles {
                            source: source.start.get().add(group * self.channels_in * source.plane),
                            rows: &rows,
                            steps: &steps,
                            weights,
                            vectors: band.vectors,
                            sums: sums.as_mut_ptr(),
                            accumulate: false,
                        };
                        sum_blocks(cpu, tiles, band.width(lanes));
                        let channel = group * self.channels_out + band.first;
                        self.scatter(phase, &range, band, lanes, sums.as_mut_ptr(), channel, result.get());
                    }
                    weights = weights.wrapping_add(steps.len() * band.width(lanes));
                }
            }
        });
    }

    /// Packs the weight: per group and band `[steps, lanes of the band]`, with zeros in the lanes past the last
    /// channel.
    ///
    /// # Safety
    /// As [`run`](Self::run); `packed` has room.
    unsafe fn pack<T: Float>(
        &self,
        cpu: &Cpu,
        phase: &Phase,
        bands: &[Band],
        lanes: usize,
        weight: *const T,
        packed: *mut T,
    ) {
        let steps = self.weight_steps(phase);
        let (weight, packed) = (Shared::new(weight.cast_mut()), Shared::new(packed));
        let width: usize = bands.iter().map(|band| band.width(lanes)).sum();
        let group_size = self.channels_in * self.channels_out * self.taps;
        let starts: Vec<usize> = bands.iter().map(|band| band.first).collect();
        let parts = steps.len().div_ceil(16);
        cpu.pool.parallel_for(self.groups * parts, PACKED.div_ceil(16 * width), |range| {
            for task in range {
                let (group, part) = (task / parts, task % parts);
                let some = part * 16..(part * 16 + 16).min(steps.len());
                for (band, first) in bands.iter().zip(&starts) {
                    let wide = band.width(lanes);
                    // Bands before this one are full, so their lanes are the channels before it.
                    let to = packed.get().wrapping_add((group * width + first) * steps.len());
                    for lane in 0..wide {
                        let channel = band.first + lane;
                        let from = weight.get().wrapping_add(group * group_size + channel * self.weight_out);
                        for k in some.clone() {
                            // SAFETY: an element of the weight, where the channel exists; a place of its own.
                            unsafe {
                                let element =
                                    if lane < band.channels { *from.add(steps[k]) } else { T::ZERO };
                                *to.add(k * wide + lane) = element;
                            }
                        }
                    }
                }
            }
        });
    }

    /// Writes the sums of a block, `[positions, lanes]`, to the channels of the result.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn scatter<T: Float>(
        &self,
        phase: &Phase,
        range: &Range<usize>,
        band: &Band,
        lanes: usize,
        sums: *const T,
        channel: usize,
        result: *mut T,
    ) {
        let count = phase.base.len();
        let width = band.width(lanes);
        let image = self.groups * self.channels_out * self.plane_out;
        let mut from = range.start;
        while from < range.end {
            // Sixteen sums of one channel at a time: their cache lines of `sums` stay in the L1 cache.
            let (n, p) = (from / count, from % count);
            let len = (range.end - from).min(16).min(count - p);
            let start = n * image + channel * self.plane_out;
            for lane in 0..band.channels {
                // SAFETY: positions of this channel.
                unsafe {
                    let source = sums.add((from - range.start) * width + lane);
                    let target = result.add(start + lane * self.plane_out);
                    match &phase.out {
                        None => (0..len).for_each(|i| *target.add(p + i) = *source.add(i * width)),
                        Some(out) => (0..len).for_each(|i| *target.add(out[p + i]) = *source.add(i * width)),
                    }
                }
            }
            from += len;
        }
    }
}

/// Sums over all steps, in blocks whose weights stay in the L1 cache.
///
/// # Safety
/// As the fields of [`Tiles`] state.
unsafe fn sum_blocks<T: Float>(cpu: &Cpu, tiles: Tiles<'_, T>, width: usize) {
    let mut accumulate = tiles.accumulate;
    let mut start = 0;
    loop {
        let end = (start + STEPS).min(tiles.steps.len());
        let block = Tiles {
            steps: &tiles.steps[start..end],
            weights: tiles.weights.wrapping_add(start * width),
            accumulate,
            ..tiles
        };
        // SAFETY: as the caller promises.
        unsafe { T::dispatch(cpu.level, block) };
        accumulate = true;
        start = end;
        if start == tiles.steps.len() {
            return;
        }
    }
}

/// Adjacent channels that share a tile.
pub(super) struct Band {
    pub(super) first: usize,
    pub(super) channels: usize,
    pub(super) vectors: usize,
}

impl Band {
    /// The number of lanes, including those past the last channel.
    pub(super) fn width(&self, lanes: usize) -> usize {
        self.vectors * lanes
    }
}

/// Splits channels into bands, which are full except for the last.
pub(super) fn bands(channels: usize, lanes: usize) -> Vec<Band> {
    let mut bands = Vec::new();
    let mut first = 0;
    while first < channels {
        let left = channels - first;
        // Five vectors become two bands of three and two rather than of four and one.
        let wanted = left.div_ceil(lanes);
        let vectors = if wanted == MAX_VECTORS + 1 { 3 } else { wanted.min(MAX_VECTORS) };
        let channels = left.min(vectors * lanes);
        bands.push(Band { first, channels, vectors });
        first += channels;
    }
    bands
}
