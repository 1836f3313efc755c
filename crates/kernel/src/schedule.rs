//! How the axes of a kernel are spread over a machine.
//!
//! A schedule is data beside the kernel: the same kernel runs with any schedule that [suits](GpuSchedule::suits) it, and the
//! printers give the same text for the same kernel and schedule. The functions that choose one look at the kernel and at
//! the magnitude of the extents, never at a clock.

use crate::{Axis, Hero, Kernel, Launch, ParamKind, StrideClass};
use core::fmt;

/// How a kernel runs on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GpuSchedule {
    /// Threads of a block: a power of two, 32 to 1024.
    pub block: u32,
    /// Neighbouring elements that a thread of a [`Hero::Map`] handles at once, with accesses of up to 16 bytes. With more
    /// than 1, the innermost extent, the offsets and all outer strides are multiples of it.
    pub vector: u32,
    /// Threads that share a row: a power of two up to `block`. A block handles `block / row_threads` rows at a time.
    pub row_threads: u32,
    /// Elements of a row that each thread keeps in registers between passes; rows of up to `row_threads * resident`
    /// elements are read once. 0: rows are read again in each pass.
    pub resident: u32,
    /// Blocks of the first pass of a [`Hero::FullReduce`]; with 1 there is no second pass.
    pub splits: u32,
    /// Whether indices need 64 bits.
    pub wide: bool,
}

/// How a kernel runs on the tile machine of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileSchedule {
    /// Elements that one instruction handles: tiles of all live values fit the first-level cache.
    pub lanes: usize,
    /// Rows that are handled together where a row is shorter than the lanes.
    pub rows: usize,
    /// Points per task of a thread.
    pub grain: usize,
}

impl GpuSchedule {
    /// The default schedule of a kernel for launches of about this size.
    ///
    /// ```
    /// use kiln_kernel::{GpuSchedule, Kernel, Launch};
    ///
    /// let kernel: Kernel = "kernel map [p] (%0: f32 in [one], %1: f32 out [one]) {
    ///   v0: f32 = load %0
    ///   v1: f32 = store %1, v0
    /// }".parse()?;
    /// let launch: Launch = "launch [4096] (%0: 0 [1], %1: 0 [1])".parse()?;
    /// let schedule = GpuSchedule::choose(&kernel, &launch);
    /// assert_eq!((schedule.block, schedule.vector), (256, 4));
    /// # Ok::<(), kiln_ir::Error>(())
    /// ```
    pub fn choose(kernel: &Kernel, launch: &Launch) -> GpuSchedule {
        let row = row_len(kernel, launch);
        let rows = num_points(launch).checked_div(row).unwrap_or(0);
        let block = match kernel.hero {
            Hero::RowReduce | Hero::Scan => power_of_two(row.div_ceil(4)).clamp(128, 512),
            Hero::Map | Hero::Transpose | Hero::ColReduce | Hero::FullReduce | Hero::MatMul(_) => 256,
        } as u32;
        let row_threads = match kernel.hero {
            Hero::RowReduce if row <= 1024 && rows >= 512 => 32,
            Hero::Map
            | Hero::Transpose
            | Hero::RowReduce
            | Hero::ColReduce
            | Hero::FullReduce
            | Hero::Scan
            | Hero::MatMul(_) => block,
        };
        GpuSchedule {
            block,
            vector: vector(kernel, launch),
            row_threads,
            resident: resident(kernel, row, row_threads as usize),
            splits: match kernel.hero {
                Hero::FullReduce => row.div_ceil(16 * 256).clamp(1, 1024) as u32,
                Hero::Map
                | Hero::Transpose
                | Hero::RowReduce
                | Hero::ColReduce
                | Hero::Scan
                | Hero::MatMul(_) => 1,
            },
            wide: is_wide(launch),
        }
    }

    /// Whether a launch of the kernel may run with this schedule. Pointers must be multiples of 16 bytes where
    /// [`vector`](GpuSchedule::vector) is more than 1; that is for the caller to know.
    pub fn suits(&self, kernel: &Kernel, launch: &Launch) -> bool {
        let threads = |count: u32| count.is_power_of_two() && (32..=1024).contains(&count);
        let whole = self.vector == 1
            || (kernel.hero == Hero::Map
                && self.vector.is_power_of_two()
                && vector(kernel, launch) >= self.vector);
        let kept = self.resident == 0
            || (kernel.hero == Hero::RowReduce
                && row_len(kernel, launch) <= self.resident as usize * self.row_threads as usize);
        threads(self.block)
            && threads(self.row_threads)
            && self.row_threads <= self.block
            && self.splits >= 1
            && whole
            && kept
            && (self.wide || !is_wide(launch))
    }

    /// The blocks of each pass, in order. Only a [`Hero::FullReduce`] with more than one split has a second.
    pub fn grid(&self, kernel: &Kernel, launch: &Launch) -> [usize; 2] {
        let extent = |axis: usize| launch.extents[axis];
        let points = num_points(launch);
        let row = row_len(kernel, launch).max(1);
        match kernel.hero {
            Hero::Map => [points.div_ceil(self.block as usize * self.vector as usize), 0],
            Hero::Transpose => {
                let Some((outer, inner)) = kernel.tile_axes() else {
                    return [points.div_ceil(self.block as usize), 0];
                };
                let tiles = extent(outer).div_ceil(TILE) * extent(inner).div_ceil(TILE);
                [tiles * (points / (extent(outer) * extent(inner)).max(1)), 0]
            }
            Hero::RowReduce => [(points / row).div_ceil((self.block / self.row_threads) as usize), 0],
            Hero::Scan => [points / row, 0],
            Hero::ColReduce => [(points / row).div_ceil(COLUMNS), 0],
            Hero::FullReduce => [self.splits as usize, usize::from(self.splits > 1)],
            Hero::MatMul(_) => {
                let count = |axes: crate::AxisSet| -> usize {
                    launch
                        .extents
                        .iter()
                        .enumerate()
                        .filter(|(i, _)| axes >> i & 1 == 1)
                        .map(|(_, e)| e)
                        .product()
                };
                let [batch, rows, columns] = kernel.product_axes();
                [count(batch) * count(rows).div_ceil(PRODUCT_TILE) * count(columns).div_ceil(PRODUCT_TILE), 0]
            }
        }
    }
}

impl TileSchedule {
    /// The default schedule of a kernel for launches of about this size, with so many bytes of first-level cache.
    ///
    /// ```
    /// use kiln_kernel::{Kernel, Launch, TileSchedule};
    ///
    /// let kernel: Kernel = "kernel map [p] (%0: f32 in [one], %1: f32 out [one]) {
    ///   v0: f32 = load %0
    ///   v1: f32 = store %1, v0
    /// }".parse()?;
    /// let launch: Launch = "launch [64] (%0: 0 [1], %1: 0 [1])".parse()?;
    /// assert_eq!(TileSchedule::choose(&kernel, &launch, 32 << 10).lanes, 64);
    /// # Ok::<(), kiln_ir::Error>(())
    /// ```
    pub fn choose(kernel: &Kernel, launch: &Launch, cache: usize) -> TileSchedule {
        let widest = kernel.body.iter().map(|i| i.dtype.accumulator().size()).max().unwrap_or(4);
        let live = kernel.registers().max(1) as usize;
        // Half of the cache, since operands stream through it as well.
        let fitting = power_of_two((cache / 2 / (live * widest)).max(1));
        let fitting = if fitting * live * widest > cache / 2 { fitting / 2 } else { fitting };
        let inner = launch.extents.last().copied().unwrap_or(1).max(1);
        let lanes = fitting.clamp(16, 1024).min(inner);
        let cost = kernel.cost(launch);
        let per_point = (cost.flops + 16 * cost.transcendentals) as usize / num_points(launch).max(1);
        TileSchedule {
            lanes,
            rows: (fitting.clamp(16, 1024) / lanes).max(1),
            // About 100 microseconds of work on one core.
            grain: (400_000 / (per_point + 2)).max(4096),
        }
    }
}

/// The side of the tile through which a [`Hero::Transpose`] turns its operands.
pub(crate) const TILE: usize = 32;

/// The columns that a block of a [`Hero::ColReduce`] handles.
pub(crate) const COLUMNS: usize = 32;

/// The side of the tiles of a [`Hero::MatMul`].
pub(crate) const PRODUCT_TILE: usize = 16;

/// The points along the reduced axes.
fn row_len(kernel: &Kernel, launch: &Launch) -> usize {
    let reduced = kernel.axes.iter().zip(&launch.extents).filter(|(axis, _)| **axis == Axis::Reduce);
    reduced.map(|(_, &extent)| extent).product()
}

fn num_points(launch: &Launch) -> usize {
    launch.extents.iter().product()
}

fn power_of_two(x: usize) -> usize {
    x.max(1).next_power_of_two()
}

/// The widest access, in elements, that all parameters of a map allow.
fn vector(kernel: &Kernel, launch: &Launch) -> u32 {
    if kernel.hero != Hero::Map || kernel.axes.is_empty() {
        return 1;
    }
    let inner = kernel.axes.len() - 1;
    let tensors = || {
        let params = kernel.params.iter().zip(&launch.bindings);
        params.filter(|(param, _)| param.kind != ParamKind::Number)
    };
    let widest = tensors().map(|(param, _)| param.dtype.size()).max().unwrap_or(16);
    let mut vector = 16 / widest;
    let allowed = |vector: usize| {
        launch.extents[inner].is_multiple_of(vector)
            && tensors().all(|(param, binding)| match param.strides[inner] {
                StrideClass::Zero => true,
                StrideClass::One => {
                    binding.strides[..inner].iter().all(|stride| stride.unsigned_abs().is_multiple_of(vector))
                }
                StrideClass::Any => false,
            })
    };
    while vector > 1 && !allowed(vector) {
        vector /= 2;
    }
    vector as u32
}

/// Elements per thread, where a row is read more than once and is short enough for registers.
fn resident(kernel: &Kernel, row: usize, row_threads: usize) -> u32 {
    let each = row.div_ceil(row_threads.max(1)).next_power_of_two();
    let reduced = kernel.reduced();
    let dependence = kernel.dependence();
    let loads = kernel
        .body
        .iter()
        .zip(&dependence)
        .filter(|(instruction, set)| instruction.compute.plain_load().is_some() && **set & reduced != 0);
    let kept = loads.count() * each;
    if kernel.hero == Hero::RowReduce && kernel.num_stages() > 1 && each <= 32 && kept <= 64 {
        each as u32
    } else {
        0
    }
}

/// Whether some place or point needs more than 31 bits.
fn is_wide(launch: &Launch) -> bool {
    const LIMIT: u128 = 1 << 31;
    let points = launch.extents.iter().fold(1u128, |product, &extent| product.saturating_mul(extent as u128));
    let reach = |strides: &[isize]| -> u128 {
        let axes = strides.iter().zip(&launch.extents);
        axes.map(|(stride, &extent)| stride.unsigned_abs() as u128 * extent as u128).sum()
    };
    points >= LIMIT || launch.bindings.iter().any(|binding| reach(&binding.strides) >= LIMIT)
}

impl fmt::Display for GpuSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GpuSchedule { block, vector, row_threads, resident, splits, wide } = self;
        write!(
            f,
            "block {block}, vector {vector}, row_threads {row_threads}, resident {resident}, splits {splits}"
        )?;
        f.write_str(if *wide { ", 64-bit indices" } else { "" })
    }
}
