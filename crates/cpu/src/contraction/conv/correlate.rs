//! The weight pass by dot products: `x` and `y` have the same layout, so each element of the result is the dot product
//! of two lines. A tile of results needs few loads for many multiplications.
//!
//! Between the lines `y` is zero and `x` is arbitrary: an infinity of `x` would become a NaN outside of any product. If
//! a sum is not finite, [`Correlation::run`] returns that, and the caller uses another algorithm.

use super::flat::Flat;
use super::lines::Map;
use super::share::share;
use crate::Cpu;
use crate::array::Array;
use crate::contraction::scratch::Scratch;
use crate::contraction::simd::{Float, Kernel, Simd};
use crate::copy::Shared;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use kiln_ir::Result;

/// The number of parts of the images, unless partial sums are too large. It is independent of the number of threads, so
/// that the order of summation and every bit of the result are too.
const PARTS: usize = 16;

/// The wanted number of tasks: if there are fewer images, the steps are split too.
const TASKS: usize = 32;

/// The minimum number of steps of such a slice.
const SLICE: usize = 16;

/// The maximum number of elements of partial sums.
const PARTIAL: usize = 1 << 22;

/// Positions that are summed in registers: enough that the sum over lanes takes little time, and few enough that lines
/// of a few channels stay in the L1 cache.
const POSITIONS: usize = 1536;

/// The minimum multiplications per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 18;

/// The minimum copied elements per task: fewer are not worth waking a thread.
const COPIED: usize = 1 << 15;

/// The weight pass from `x`, the source of `flat`, and `y`, contiguous; the result is
/// `[groups * channels_out, channels_in, taps]`.
pub(super) struct Correlation<'a> {
    pub(super) flat: Flat<'a>,
}

/// Adjacent positions of some images in both operands.
struct Segment {
    x: usize,
    y: usize,
    vectors: usize,
}

/// The lines of `y`.
#[derive(Clone, Copy)]
struct Grads<T> {
    start: Shared<T>,
    /// Elements of a channel's lines.
    plane: usize,
}

impl Correlation<'_> {
    fn map(&self) -> &Map {
        &self.flat.lines.maps[0]
    }

    /// Whether few positions are zeros between lines. The batch is not empty.
    pub(super) fn suits(&self, lanes: usize) -> bool {
        3 * self.map().count >= 2 * self.flat.vectors(lanes) * lanes
    }

    /// Writes the result, and returns whether all sums are finite.
    ///
    /// # Errors
    /// When there is not enough memory.
    ///
    /// # Safety
    /// The operands have the sizes that the fields state; `result` has room and has no other writer.
    pub(super) unsafe fn run<T: Float>(
        &self,
        cpu: &Cpu,
        lanes: usize,
        x: &Array,
        y: *const T,
        result: *mut T,
    ) -> Result<bool> {
        let Flat { batch, groups, channels_in, channels_out, .. } = self.flat;
        let (map, taps) = (self.map(), self.map().offsets.len());
        let steps = channels_in * taps;
        let size = groups * channels_out * steps;
        let parts = PARTS.div_ceil(groups).min(batch).min(PARTIAL / size.max(1)).max(1);
        let slices = TASKS.div_ceil(parts * groups).min(steps / SLICE).max(1);
        let slice = steps.div_ceil(slices);
        // Lines without gaps are the operands themselves.
        let dense = map.length(&self.flat.lines.axes) == map.count && map.count % lanes == 0;
        let bare = if dense { self.flat.bare::<T>(x, lanes) } else { None };
        let mut copies = [Scratch::<T>::new(0), Scratch::<T>::new(0)];
        if bare.is_none() {
            copies[0] = Scratch::try_new(self.flat.copied())?;
        }
        if !dense {
            let plane = self.flat.vectors(lanes) * lanes;
            copies[1] = Scratch::try_new((batch * groups * channels_out).saturating_mul(plane))?;
        }
        let mut partial = Scratch::<T>::new(if parts > 1 { parts * size } else { 0 });
        let sums = Shared::new(if parts > 1 { partial.as_mut_ptr() } else { result });
        let infinite = AtomicBool::new(false);
        // SAFETY: the caller upholds the conditions; every task has its own sums.
        unsafe {
            let x = match bare {
                Some(planes) => planes,
                None => self.flat.laid_out(cpu, x, copies[0].as_mut_ptr()),
            };
            let y = if dense {
                Grads { start: Shared::new(y.cast_mut()), plane: map.count }
            } else {
                self.spaced(cpu, lanes, Shared::new(y.cast_mut()), copies[1].as_mut_ptr())
            };
            let channel = |c: usize| map.offsets.iter().map(move |&offset| c * x.plane + offset);
            let offsets: Vec<usize> = (0..channels_in).flat_map(channel).collect();
            let work = batch.div_ceil(parts) * self.flat.vectors(lanes) * lanes * slice * channels_out;
            share(&cpu.pool, parts * groups * slices, GRAIN.div_ceil(work.max(1)), |tasks| {
                let mut segments = Vec::new();
                for task in tasks {
                    let (number, rest) = (task % slices, task / slices);
                    let (group, part) = (rest % groups, rest / groups);
                    let chosen = (number * slice).min(steps)..((number + 1) * slice).min(steps);
                    if chosen.is_empty() {
                        continue;
                    }
                    let channels = group * channels_out..(group + 1) * channels_out;
                    let sums = sums.get().add(part * size + channels.start * steps + chosen.start);
                    for o in 0..channels_out {
                        sums.add(o * steps).write_bytes(0, chosen.len());
                    }
                    let images = part * batch / parts..(part + 1) * batch / parts;
                    for block in self.blocks(lanes, images, x.image, y.plane) {
                        segments.clear();
                        segments.extend(block);
                        let products = Products {
                            x: x.start.get().add(group * channels_in * x.plane),
                            y: y.start.get().add(channels.start * y.plane),
                            y_row: y.plane,
                            segments: &segments,
                            offsets: &offsets[chosen.clone()],
                            rows: channels_out,
                            sums,
                            sums_row: steps,
                        };
                        if !T::dispatch(cpu.level, products) {
                            infinite.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
            if parts > 1 {
                add_up(cpu, sums, parts, size, Shared::new(result));
            }
        }
        Ok(!infinite.load(Ordering::Relaxed))
    }

    /// The positions of some images, in blocks.
    fn blocks(
        &self,
        lanes: usize,
        images: Range<usize>,
        x_image: usize,
        y_plane: usize,
    ) -> impl Iterator<Item = Vec<Segment>> {
        let vectors = self.flat.vectors(lanes);
        let y_image = self.flat.groups * self.flat.channels_out * y_plane;
        // Several whole images if they are small, parts of one image if they are large.
        let (together, most) = ((POSITIONS / (vectors * lanes)).max(1), POSITIONS / lanes);
        let pieces = vectors.div_ceil(most);
        let piece = vectors.div_ceil(pieces);
        let end = images.end;
        images.step_by(together).flat_map(move |first| {
            (0..pieces).map(move |number| {
                let start = number * piece;
                let segment = |n: usize| Segment {
                    x: n * x_image + start * lanes,
                    y: n * y_image + start * lanes,
                    vectors: piece.min(vectors - start.min(vectors)),
                };
                (first..(first + together).min(end)).map(segment).collect()
            })
        })
    }

    /// Copies `y` into lines like those of `x`, with zeros between them.
    ///
    /// # Safety
    /// `y` is contiguous; `to` has room.
    unsafe fn spaced<T: Float>(&self, cpu: &Cpu, lanes: usize, y: Shared<T>, to: *mut T) -> Grads<T> {
        let plane = self.flat.vectors(lanes) * lanes;
        let (map, axes) = (self.map(), &self.flat.lines.axes);
        let planes = self.flat.batch * self.flat.groups * self.flat.channels_out;
        let (&row, outer) = map.grid.split_last().unwrap_or((&1, &[]));
        let start = |index: &Vec<usize>| index.iter().zip(axes).map(|(i, axis)| i * axis.stride).sum();
        let starts: Vec<usize> = super::geometry::indices(outer).iter().map(start).collect();
        let to = Shared::new(to);
        share(&cpu.pool, planes, COPIED.div_ceil(plane), |range| {
            for i in range {
                // SAFETY: a channel of `y`; its place among the lines.
                unsafe {
                    let (from, to) = (y.get().add(i * map.count), to.get().add(i * plane));
                    to.write_bytes(0, plane);
                    for (number, &start) in starts.iter().enumerate() {
                        to.add(start).copy_from_nonoverlapping(from.add(number * row), row);
                    }
                }
            }
        });
        Grads { start: to, plane }
    }
}

/// Adds up partial sums, in order.
///
/// # Safety
/// There are that many parts of that size, and room for one.
unsafe fn add_up<T: Float>(cpu: &Cpu, sums: Shared<T>, parts: usize, size: usize, result: Shared<T>) {
    const BLOCK: usize = 1 << 10;
    share(&cpu.pool, size.div_ceil(BLOCK), (COPIED / BLOCK).div_ceil(parts), |blocks| {
        for block in blocks {
            let first = block * BLOCK;
            let len = (size - first).min(BLOCK);
            // SAFETY: elements of the parts; elements of the result of their own.
            unsafe {
                let result = core::slice::from_raw_parts_mut(result.get().add(first), len);
                result.copy_from_slice(core::slice::from_raw_parts(sums.get().add(first), len));
                for part in 1..parts {
                    let more = core::slice::from_raw_parts(sums.get().add(part * size + first), len);
                    result.iter_mut().zip(more).for_each(|(sum, &more)| *sum += more);
                }
            }
        }
    });
}

/// `sums[o][k] += Σ_p y[o][p] · x[offsets[k] + p]` over the positions of the segments. Returns whether all sums are
/// finite.
struct Products<'a, T> {
    x: *const T,
    y: *const T,
    y_row: usize,
    segments: &'a [Segment],
    offsets: &'a [usize],
    rows: usize,
    sums: *mut T,
    sums_row: usize,
}

impl<T: Float> Kernel<T> for Products<'_, T> {
    type Output = bool;

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) -> bool {
        let mut row = 0;
        let mut finite = true;
        // SAFETY: rows of `y` and of the sums.
        unsafe {
            while row < self.rows {
                let left = self.rows - row;
                let (taken, all) = if S::REGISTERS < 32 {
                    match left {
                        0..3 => (1, self.steps::<S, 1, 3>(row)),
                        _ => (3, self.steps::<S, 3, 3>(row)),
                    }
                } else {
                    match left {
                        1 => (1, self.steps::<S, 1, 4>(row)),
                        2 | 3 => (2, self.steps::<S, 2, 4>(row)),
                        4 | 5 | 8 => (4, self.steps::<S, 4, 4>(row)),
                        _ => (6, self.steps::<S, 6, 4>(row)),
                    }
                };
                finite &= all;
                row += taken;
            }
        }
        finite
    }
}

impl<T: Float> Products<'_, T> {
    /// Computes `R` rows with all steps, `V` at a time.
    #[inline(always)]
    unsafe fn steps<S: Simd<T>, const R: usize, const V: usize>(&self, row: usize) -> bool {
        let mut finite = T::ZERO;
        let mut lanes = [T::ZERO; 32 * 16];
        let mut transposed = [T::ZERO; 16 * 16];
        for first in (0..self.offsets.len()).step_by(V) {
            let count = (self.offsets.len() - first).min(V);
            // SAFETY: rows of `y`, steps of `x`, and their sums.
            unsafe {
                let sums = self.tile::<S, R, V>(row, first, &mut lanes, &mut transposed);
                for r in 0..R {
                    for v in 0..count {
                        let sum = self.sums.add((row + r) * self.sums_row + first + v);
                        *sum += sums[r * V + v];
                        finite += *sum * T::ZERO;
                    }
                }
            }
        }
        finite == T::ZERO
    }

    #[inline(always)]
    unsafe fn tile<S: Simd<T>, const R: usize, const V: usize>(
        &self,
        row: usize,
        first: usize,
        lanes: &mut [T; 32 * 16],
        transposed: &mut [T; 16 * 16],
    ) -> [T; 32] {
        // SAFETY: every offset plus every segment is within `x`, every row plus every segment within `y`.
        unsafe {
            let mut acc = [[S::splat(T::ZERO); V]; R];
            for segment in self.segments {
                let last = self.offsets.len() - 1;
                let mut xs = [self.x; V];
                for v in 0..V {
                    // Past the last step it is repeated, and its sums are discarded.
                    xs[v] = self.x.add(self.offsets[(first + v).min(last)] + segment.x);
                }
                let y = self.y.add(row * self.y_row + segment.y);
                for vector in 0..segment.vectors {
                    let p = vector * S::LANES;
                    let mut x = [S::splat(T::ZERO); V];
                    for v in 0..V {
                        x[v] = S::load(xs[v].add(p));
                    }
                    for r in 0..R {
                        let y = S::load(y.add(r * self.y_row + p));
                        for v in 0..V {
                            acc[r][v] = S::mul_add(x[v], y, acc[r][v]);
                        }
                    }
                }
            }
            for r in 0..R {
                for v in 0..V {
                    S::store(lanes.as_mut_ptr().add((r * V + v) * S::LANES), acc[r][v]);
                }
            }
            // Reduces lanes: as many vectors at a time as there are lanes.
            let mut sums = [T::ZERO; 32];
            for start in (0..R * V).step_by(S::LANES) {
                let from = lanes.as_ptr().add(start * S::LANES);
                S::transpose(from, S::LANES as isize, transposed.as_mut_ptr(), S::LANES as isize);
                let mut sum = S::load(transposed.as_ptr());
                for lane in 1..S::LANES {
                    sum = S::add(sum, S::load(transposed.as_ptr().add(lane * S::LANES)));
                }
                S::store(sums.as_mut_ptr().add(start), sum);
            }
            sums
        }
    }
}
