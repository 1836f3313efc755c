//! Winograd convolution: 3 × 3 kernels with stride 1 by F(2 × 2, 3 × 3). It needs 16 multiplications for four sums
//! instead of 36 (Lavin and Gray, *Fast Algorithms for Convolutional Neural Networks*, 2015,
//! <https://arxiv.org/abs/1509.09308>).
//!
//! The source is split into tiles of 4 × 4 that overlap by two. Tiles and kernels are transformed. Their products are
//! summed over the channels, as 16 matmuls, and the sums are transformed back to 2 × 2 elements of the result. The
//! transforms only add, subtract and halve.
//!
//! Rounding errors are about twice those of the direct sum, but relative to the greatest element of the tile rather
//! than of the window. An infinity or a NaN would affect the whole tile. If a sum is not finite, [`Winograd::run`]
//! returns that, and the caller uses the direct algorithm.

use super::flat::{Flat, Planes};
use super::lines::{Lines, Map};
use super::share::share;
use super::strip::{MaskedStore, Strip, VECTORS};
use crate::Cpu;
use crate::array::Array;
use crate::contraction::scratch::Scratch;
use crate::contraction::simd::{Float, Kernel, Simd};
use crate::copy::Shared;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use kiln_ir::{ConvSpec, Result};

/// Elements of a transformed tile.
const TILE: usize = 16;

/// Channels of the result whose products stay in the L1 cache.
const ROWS: usize = 8;

/// The minimum multiplications per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 18;

/// The number of tile blocks from which the thread that transforms a block also multiplies it.
const BLOCKS: usize = 12;

/// The layout of the kernels: the element for a result channel, a source channel and a tap is at
/// `out * o + inner * c + tap`, or with reversed taps.
#[derive(Clone, Copy)]
pub(super) struct Kernels<T> {
    pub(super) start: Shared<T>,
    pub(super) out: usize,
    pub(super) inner: usize,
    pub(super) reversed: bool,
    /// The number of elements of all kernels.
    pub(super) len: usize,
}

/// A Winograd convolution. The lines of `flat` are those of [`lines`].
pub(super) struct Winograd<'a> {
    pub(super) flat: Flat<'a>,
    /// The height and width of the result.
    pub(super) size: [usize; 2],
}

/// Whether the algorithm supports such kernels.
pub(super) fn takes(spec: &ConvSpec, kernel: &[usize]) -> bool {
    kernel == [3, 3] && spec.stride == [1, 1] && spec.dilation == [1, 1]
}

/// The layout of a source whose tiles are positions: a convolution with kernels of 4 × 4 and stride 2, whose grid is
/// half the result's. `low` zeros are before each axis of the source; if negative, that many elements are skipped.
pub(super) fn lines(source: &[usize], low: [isize; 2], size: [usize; 2]) -> Lines {
    Lines::reading(source, &low, [&[4, 4], &[2, 2], &[1, 1]], &size.map(|length| length.div_ceil(2)))
}

impl Winograd<'_> {
    fn map(&self) -> &Map {
        &self.flat.lines.maps[0]
    }

    /// Whether this is faster than the direct sum over strips of `plain` vectors per channel.
    pub(super) fn pays(&self, lanes: usize, plain: usize) -> bool {
        let Flat { batch, groups, channels_in, channels_out, .. } = self.flat;
        let vectors = self.map().length(&self.flat.lines.axes).div_ceil(lanes);
        // Estimated cycles of multiplications, and of transforms of kernels, sources and results.
        let pairs = channels_in * channels_out;
        let transforms = 100 * channels_in + 60 * channels_out;
        let cost = groups * (8 * pairs + batch * vectors * (TILE * pairs + transforms));
        channels_in >= 16 && channels_out >= 16 && 11 * cost < 10 * 9 * groups * batch * plain * pairs
    }

    /// Writes the whole result, and returns whether all sums are finite.
    ///
    /// # Errors
    /// When there is not enough memory.
    ///
    /// # Safety
    /// Source and kernels have the sizes that the fields state; `result` has room and has no other writer.
    pub(super) unsafe fn run<T: Float>(
        &self,
        cpu: &Cpu,
        lanes: usize,
        source: &Array,
        kernels: Kernels<T>,
        result: *mut T,
    ) -> Result<bool> {
        let Flat { batch, groups, channels_in, channels_out, .. } = self.flat;
        let blocks = self.blocks(lanes);
        let chunks = channels_out.div_ceil(ROWS);
        let mut transformed = Scratch::<T>::new(groups * chunks * ROWS * TILE * channels_in);
        let mut copy = Scratch::<T>::try_new(self.flat.copied())?;
        let result = Shared::new(result);
        let infinite = AtomicBool::new(false);
        // SAFETY: the caller upholds the conditions.
        unsafe {
            self.transform_kernels(cpu, kernels, Shared::new(transformed.as_mut_ptr()));
            let planes = self.flat.laid_out(cpu, source, copy.as_mut_ptr());
            let transformed = Shared::new(transformed.as_mut_ptr());
            let all = batch * groups * blocks.len();
            let panel = TILE * channels_in * VECTORS * lanes;
            let job = Job { blocks: &blocks, planes, transformed, result, lanes, infinite: &infinite };
            if all >= BLOCKS {
                share(&cpu.pool, all, 1, |tasks| {
                    let mut tiles = Scratch::<T>::new(panel);
                    for task in tasks {
                        self.transform_block(cpu, &job, task, tiles.as_mut_ptr());
                        self.multiply(cpu, &job, task, tiles.as_mut_ptr(), 0..chunks);
                    }
                });
            } else {
                let mut tiles = Scratch::<T>::new(panel * all);
                let tiles = Shared::new(tiles.as_mut_ptr());
                let parts = channels_in.div_ceil(ROWS);
                let work = ROWS * TILE * VECTORS * lanes * 4;
                share(&cpu.pool, all * parts, GRAIN / work, |tasks| {
                    for task in tasks {
                        let first = task % parts * ROWS;
                        let channels = first..(first + ROWS).min(channels_in);
                        self.transform_channels(
                            cpu,
                            &job,
                            task / parts,
                            channels,
                            tiles.get().add(task / parts * panel),
                        );
                    }
                });
                // Chunk by chunk, so that the next block finds the kernels in cache.
                let work = ROWS * TILE * channels_in * VECTORS * lanes;
                share(&cpu.pool, all * chunks, GRAIN.div_ceil(work), |tasks| {
                    for task in tasks {
                        let (chunk, block) = (task / all, task % all);
                        self.multiply(cpu, &job, block, tiles.get().add(block * panel), chunk..chunk + 1);
                    }
                });
            }
        }
        Ok(!infinite.load(Ordering::Relaxed))
    }

    /// Blocks of tiles of one image.
    fn blocks(&self, lanes: usize) -> Vec<Block> {
        let (map, axes) = (self.map(), &self.flat.lines.axes);
        let length = map.length(axes);
        let width = VECTORS * lanes;
        let block = |position: usize| {
            let runs = (0..map.grid[0]).filter_map(|row| {
                let start = row * axes[0].stride;
                let (from, to) = (start.max(position), (start + map.grid[1]).min(position + width));
                (from < to).then(|| Run { lane: from - position, len: to - from, row, column: from - start })
            });
            let vectors = (length - position).div_ceil(lanes).min(VECTORS);
            Block { position, vectors, runs: runs.collect() }
        };
        (0..length).step_by(width).map(block).collect()
    }

    /// Transforms all kernels: `[groups, chunks, TILE, ROWS, channels_in]`, with zeros past the last channel.
    ///
    /// # Safety
    /// As [`run`](Self::run); there is room.
    unsafe fn transform_kernels<T: Float>(&self, cpu: &Cpu, kernels: Kernels<T>, to: Shared<T>) {
        let Flat { groups, channels_in, channels_out, .. } = self.flat;
        let rows = channels_out.div_ceil(ROWS) * ROWS;
        share(&cpu.pool, groups * rows, (1usize << 12).div_ceil(channels_in), |tasks| {
            for task in tasks {
                let (group, row) = (task / rows, task % rows);
                let to = to.get().wrapping_add((task / ROWS * TILE * ROWS + task % ROWS) * channels_in);
                // SAFETY: kernels of this channel of the result; a place of its own.
                unsafe {
                    if row < channels_out {
                        let group = group * channels_in * channels_out * 9;
                        let first = group + row * kernels.out;
                        let transform = TransformKernels {
                            kernels,
                            first,
                            count: channels_in,
                            to,
                            plane: ROWS * channels_in,
                        };
                        T::dispatch(cpu.level, transform);
                    } else {
                        (0..TILE).for_each(|i| to.add(i * ROWS * channels_in).write_bytes(0, channels_in));
                    }
                }
            }
        });
    }

    /// # Safety
    /// As [`transform_channels`](Self::transform_channels).
    unsafe fn transform_block<T: Float>(&self, cpu: &Cpu, job: &Job<'_, T>, task: usize, to: *mut T) {
        // SAFETY: as the caller promises.
        unsafe { self.transform_channels(cpu, job, task, 0..self.flat.channels_in, to) }
    }

    /// Transforms the tiles of a block: `[TILE, channels_in, VECTORS * lanes]`.
    ///
    /// # Safety
    /// As [`run`](Self::run); there is room.
    unsafe fn transform_channels<T: Float>(
        &self,
        cpu: &Cpu,
        job: &Job<'_, T>,
        task: usize,
        channels: Range<usize>,
        to: *mut T,
    ) {
        let (block, n, group) = job.place(task, self.flat.batch);
        let offset = n * job.planes.image + group * self.flat.channels_in * job.planes.plane;
        let width = VECTORS * job.lanes;
        for c in channels {
            // SAFETY: a channel of the source; its place among the tiles.
            unsafe {
                let transform = TransformTiles {
                    source: job.planes.start.get().add(offset + c * job.planes.plane + block.position),
                    offsets: &self.map().offsets,
                    vectors: block.vectors,
                    to: to.add(c * width),
                    plane: self.flat.channels_in * width,
                };
                T::dispatch(cpu.level, transform);
            }
        }
    }

    /// Multiplies a block with chunks of kernels, and transforms the sums back.
    ///
    /// # Safety
    /// As [`run`](Self::run); the tiles are those of the block.
    unsafe fn multiply<T: Float>(
        &self,
        cpu: &Cpu,
        job: &Job<'_, T>,
        task: usize,
        tiles: *const T,
        chunks: Range<usize>,
    ) {
        let Flat { groups, channels_in, channels_out, plane_out, .. } = self.flat;
        let (block, n, group) = job.place(task, self.flat.batch);
        let width = VECTORS * job.lanes;
        let offsets: Vec<usize> = (0..channels_in).map(|c| c * width).collect();
        let all = (1u32 << job.lanes) - 1;
        let places: [MaskedStore; VECTORS] =
            core::array::from_fn(|v| MaskedStore { lanes: all, start: v * job.lanes });
        let mut sums = Scratch::<T>::new(TILE * ROWS * width);
        let group_chunks = channels_out.div_ceil(ROWS);
        for chunk in chunks {
            let first = chunk * ROWS;
            let rows = (channels_out - first).min(ROWS);
            // SAFETY: kernels and tiles are complete; channels of the result that are this task's alone.
            unsafe {
                for i in 0..TILE {
                    let product = Strip {
                        source: tiles.add(i * channels_in * width),
                        offsets: &offsets,
                        weights: job
                            .transformed
                            .get()
                            .add(((group * group_chunks + chunk) * TILE + i) * ROWS * channels_in),
                        weight_row: channels_in,
                        rows,
                        places: &places[..block.vectors],
                        target: sums.as_mut_ptr().add(i * ROWS * width),
                        target_row: width,
                    };
                    T::dispatch(cpu.level, product);
                }
                let channel = (n * groups + group) * channels_out + first;
                let inverse = InverseTransform {
                    sums: sums.as_mut_ptr(),
                    plane: ROWS * width,
                    row: width,
                    rows,
                    block,
                    result: job.result.get().add(channel * plane_out),
                    plane_out,
                    size: self.size,
                };
                if !T::dispatch(cpu.level, inverse) {
                    job.infinite.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

/// State shared by all tasks.
struct Job<'a, T> {
    blocks: &'a [Block],
    planes: Planes<T>,
    transformed: Shared<T>,
    result: Shared<T>,
    lanes: usize,
    infinite: &'a AtomicBool,
}

impl<T> Job<'_, T> {
    /// The block of a task, its image and its group.
    fn place(&self, task: usize, batch: usize) -> (&Block, usize, usize) {
        let (block, rest) = (task % self.blocks.len(), task / self.blocks.len());
        (&self.blocks[block], rest % batch, rest / batch)
    }
}

/// Tiles that are processed together.
struct Block {
    /// The position of the first tile, counted through the lines.
    position: usize,
    vectors: usize,
    runs: Vec<Run>,
}

/// Adjacent tiles of one row of tiles.
struct Run {
    /// The lane of the first, counted through the vectors of the block.
    lane: usize,
    len: usize,
    row: usize,
    column: usize,
}

/// The kernel transform `G g Gᵀ` for one channel of the result.
struct TransformKernels<T> {
    kernels: Kernels<T>,
    /// The offset of the first kernel.
    first: usize,
    count: usize,
    to: *mut T,
    /// The distance between elements of a transformed kernel.
    plane: usize,
}

impl<T: Float> Kernel<T> for TransformKernels<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        let Kernels { start, inner, reversed, len, .. } = self.kernels;
        // Kernels as rows of 16 elements, of which 9 are valid, and transposed.
        let mut rows = [T::ZERO; 16 * 16];
        let mut transposed = [T::ZERO; 16 * 16];
        for first in (0..self.count).step_by(S::LANES) {
            let count = (self.count - first).min(S::LANES);
            let from = self.first + first * inner;
            // SAFETY: kernels of this channel; elements past a kernel's last are within the buffer, or in `rows`.
            unsafe {
                let mut source = start.get().cast_const().add(from);
                let mut step = inner as isize;
                if count < S::LANES || from + (count - 1) * inner + 16 > len {
                    for i in 0..count {
                        (0..9).for_each(|tap| rows[16 * i + tap] = *source.add(i * inner + tap));
                    }
                    (source, step) = (rows.as_ptr(), 16);
                }
                for tap in (0..9).step_by(S::LANES) {
                    let to = transposed.as_mut_ptr().add(tap * S::LANES);
                    S::transpose(source.add(tap), step, to, S::LANES as isize);
                }
                let tap = |tap: usize| {
                    let tap = if reversed { 8 - tap } else { tap };
                    S::load(transposed.as_ptr().add(tap * S::LANES))
                };
                let mut half = [[S::splat(T::ZERO); 3]; 4];
                for j in 0..3 {
                    let column = transform_kernel::<T, S>([tap(j), tap(3 + j), tap(6 + j)]);
                    (0..4).for_each(|i| half[i][j] = column[i]);
                }
                for i in 0..4 {
                    for (j, value) in transform_kernel::<T, S>(half[i]).into_iter().enumerate() {
                        S::store_some(self.to.add((4 * i + j) * self.plane + first), value, count);
                    }
                }
            }
        }
    }
}

/// The one-dimensional kernel transform: three elements to four.
///
/// # Safety
/// The machine has the unit.
#[inline(always)]
unsafe fn transform_kernel<T: Float, S: Simd<T>>([a, b, c]: [S::Vector; 3]) -> [S::Vector; 4] {
    // SAFETY: as the caller promises.
    unsafe {
        let half = S::splat(T::from_f64(0.5));
        let zero = S::splat(T::ZERO);
        let outer = S::add(a, c);
        [a, S::mul_add(S::add(outer, b), half, zero), S::mul_add(S::sub(outer, b), half, zero), c]
    }
}

/// The tile transform `Bᵀ d B` of a block in one channel.
struct TransformTiles<'a, T> {
    source: *const T,
    /// The offset of each element of a tile, relative to the tile's position.
    offsets: &'a [usize],
    vectors: usize,
    to: *mut T,
    /// The distance between elements of a transformed tile.
    plane: usize,
}

impl<T: Float> Kernel<T> for TransformTiles<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        for v in 0..self.vectors {
            let first = v * S::LANES;
            // SAFETY: tiles of the block, and the elements after it in the layout; room for full vectors.
            unsafe {
                let mut half = [[S::splat(T::ZERO); 4]; 4];
                for j in 0..4 {
                    let element = |i: usize| S::load(self.source.add(self.offsets[4 * i + j] + first));
                    let column = transform_tile::<T, S>([element(0), element(1), element(2), element(3)]);
                    (0..4).for_each(|i| half[i][j] = column[i]);
                }
                for i in 0..4 {
                    for (j, value) in transform_tile::<T, S>(half[i]).into_iter().enumerate() {
                        S::store(self.to.add((4 * i + j) * self.plane + first), value);
                    }
                }
            }
        }
    }
}

/// # Safety
/// The machine has the unit.
#[inline(always)]
unsafe fn transform_tile<T: Float, S: Simd<T>>([a, b, c, d]: [S::Vector; 4]) -> [S::Vector; 4] {
    // SAFETY: as the caller promises.
    unsafe { [S::sub(a, c), S::add(b, c), S::sub(c, b), S::sub(b, d)] }
}

/// The inverse transform `Aᵀ m A` of the sums of a block, written to the result. Returns whether all are finite.
struct InverseTransform<'a, T> {
    /// `[TILE, rows, VECTORS * lanes]`, with these strides.
    sums: *mut T,
    plane: usize,
    row: usize,
    rows: usize,
    block: &'a Block,
    result: *mut T,
    plane_out: usize,
    size: [usize; 2],
}

impl<T: Float> Kernel<T> for InverseTransform<'_, T> {
    type Output = bool;

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) -> bool {
        // SAFETY: sums of the block; elements of the result under its tiles.
        unsafe {
            let mut finite = S::splat(T::ZERO);
            for r in 0..self.rows {
                let sums = self.sums.add(r * self.row);
                for v in 0..self.block.vectors {
                    let sums = sums.add(v * S::LANES);
                    let mut half = [[S::splat(T::ZERO); 4]; 2];
                    for j in 0..4 {
                        let element = |i: usize| S::load(sums.add((4 * i + j) * self.plane));
                        let column =
                            inverse_transform::<T, S>([element(0), element(1), element(2), element(3)]);
                        (half[0][j], half[1][j]) = (column[0], column[1]);
                    }
                    for i in 0..2 {
                        let [left, right] = inverse_transform::<T, S>(half[i]);
                        let product = S::mul_add(left, S::splat(T::ZERO), S::splat(T::ZERO));
                        finite = S::add(finite, S::mul_add(right, S::splat(T::ZERO), product));
                        // Overwrites sums that have been read: these planes now contain the four elements of each tile.
                        S::store(sums.add(2 * i * self.plane), left);
                        S::store(sums.add((2 * i + 1) * self.plane), right);
                    }
                }
                let result = self.result.add(r * self.plane_out);
                for run in &self.block.runs {
                    self.write(run, sums, result);
                }
            }
            S::sum(finite) == T::ZERO
        }
    }
}

impl<T: Float> InverseTransform<'_, T> {
    /// Writes the result elements of adjacent tiles of a channel.
    ///
    /// # Safety
    /// As for the fields.
    #[inline(always)]
    unsafe fn write(&self, run: &Run, sums: *const T, result: *mut T) {
        let [height, width] = self.size;
        for i in 0..(height - 2 * run.row).min(2) {
            // SAFETY: the caller guarantees sums and result.
            unsafe {
                let left = sums.add(2 * i * self.plane + run.lane);
                let right = left.add(self.plane);
                let to = result.add((2 * run.row + i) * width + 2 * run.column);
                let pairs = (width - 2 * run.column).min(2 * run.len) / 2;
                for tile in 0..pairs {
                    *to.add(2 * tile) = *left.add(tile);
                    *to.add(2 * tile + 1) = *right.add(tile);
                }
                if pairs < run.len {
                    *to.add(2 * pairs) = *left.add(pairs);
                }
            }
        }
    }
}

/// The one-dimensional inverse transform: four sums to two elements.
///
/// # Safety
/// The machine has the unit.
#[inline(always)]
unsafe fn inverse_transform<T: Float, S: Simd<T>>([a, b, c, d]: [S::Vector; 4]) -> [S::Vector; 2] {
    // SAFETY: as the caller promises.
    unsafe { [S::add(S::add(a, b), c), S::sub(S::sub(b, c), d)] }
}
