//! GPU schedules: block size, vector width, unrolling and split reductions of a kernel.
//!
//! A schedule is separate from the kernel: the same kernel runs with any schedule that [suits](GpuSchedule::suits) it,
//! and the printed text depends only on the kernel and the schedule. Schedules are chosen by the kernel and the
//! magnitude of the extents, never by timing.

use crate::{Axis, Compute, Instruction, Kernel, KernelKind, Launch, Param, ParamKind, StrideClass};
use core::fmt;
use kiln_ir::DType;

/// The GPU schedule of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GpuSchedule {
    /// Threads per block: a power of two, 32 to 1024.
    pub block: u32,
    /// Vector width: contiguous elements per thread, with accesses of up to 16 bytes. If it is more than 1, the
    /// innermost extent, the offsets and all outer strides are multiples of it. Only in a [`KernelKind::Map`] and in
    /// reductions.
    pub vector: u32,
    /// Vectors that a thread of a [`KernelKind::Map`] loads before the first use.
    pub unroll: u32,
    /// Threads that share a row, or a column of a [`KernelKind::ColReduce`]: a power of two up to `block`. A block
    /// processes `block / row_threads` rows or vectors of columns at a time.
    pub row_threads: u32,
    /// Elements of a row that each thread keeps in registers, a multiple of `vector`. Rows of up to
    /// `row_threads * resident` elements are read once. 0: rows are read again in each pass.
    pub resident: u32,
    /// Blocks that share a row, or a column of a [`KernelKind::ColReduce`]. If more than 1, a second pass combines
    /// their totals. A kernel [with columns](Kernel::has_columns) always has a second pass: there it is the number of
    /// blocks that share all rows.
    pub splits: u32,
    /// Whether indices need 64 bits.
    pub wide: bool,
}

/// The schedule of a kernel on the CPU's tile machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileSchedule {
    /// Elements per instruction: tiles of all live values fit the L1 cache.
    pub lanes: usize,
    /// Rows processed together if a row is shorter than the lanes.
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
        let vector = vector(kernel, launch);
        let plain = GpuSchedule {
            block: 256,
            vector,
            unroll: 1,
            row_threads: 256,
            resident: 0,
            splits: 1,
            wide: is_wide(kernel, launch),
        };
        match kernel.kind {
            KernelKind::Map => of_map(kernel, launch, plain),
            KernelKind::RowReduce if kernel.has_columns() => {
                through_rows(kernel, row, plain).filling(kernel, launch, MULTIPROCESSORS)
            }
            KernelKind::RowReduce => of_rows(kernel, row, rows, plain),
            KernelKind::FullReduce => {
                let splits = row.div_ceil(16 * 256 * vector as usize).clamp(1, BLOCKS) as u32;
                GpuSchedule { splits, ..plain }
            }
            KernelKind::ColReduce => of_columns(kernel, row, rows, plain),
            KernelKind::Scan => {
                let block = power_of_two(row.div_ceil(4)).clamp(128, 512) as u32;
                GpuSchedule { block, row_threads: block, ..plain }
            }
            KernelKind::Transpose | KernelKind::MatMul(_) => plain,
        }
    }

    /// Whether a launch of the kernel may run with this schedule. If [`vector`](GpuSchedule::vector) is more than 1,
    /// the caller must align pointers to 16 bytes.
    pub fn suits(&self, kernel: &Kernel, launch: &Launch) -> bool {
        let threads = |count: u32| count.is_power_of_two() && (32..=1024).contains(&count);
        let whole = self.vector == 1
            || (takes_vectors(kernel.kind)
                && self.vector.is_power_of_two()
                && vector(kernel, launch) >= self.vector);
        let kept = self.resident == 0
            || (kernel.kind == KernelKind::RowReduce
                && self.resident.is_multiple_of(self.vector)
                && row_len(kernel, launch) <= self.resident as usize * self.row_threads as usize);
        threads(self.block)
            && self.shares_rows(kernel)
            && self.splits >= 1
            && (self.splits == 1 || splits(kernel))
            && (!kernel.has_columns() || self.is_row_parallel(kernel, launch))
            && self.unroll >= 1
            && (self.unroll == 1 || (kernel.kind == KernelKind::Map && self.vector > 1))
            && whole
            && kept
            && (self.wide || !is_wide(kernel, launch))
    }

    /// The same schedule for operands that are not aligned to 16 bytes.
    #[must_use]
    pub fn unaligned(self, kernel: &Kernel, launch: &Launch) -> GpuSchedule {
        let plain = GpuSchedule { vector: 1, unroll: 1, ..self };
        if kernel.kind != KernelKind::ColReduce {
            return plain;
        }
        let row = row_len(kernel, launch);
        of_columns(kernel, row, num_points(launch).checked_div(row).unwrap_or(0), plain)
    }

    /// The same schedule for a device with that many multiprocessors: the rows of a kernel [with
    /// columns](Kernel::has_columns) are split among as many blocks as run at once.
    #[must_use]
    pub fn filling(self, kernel: &Kernel, launch: &Launch, multiprocessors: usize) -> GpuSchedule {
        /// The minimum number of rows per block: each block writes column sums, which the second pass reads.
        const MIN_ROWS: usize = 8;
        if !kernel.has_columns() {
            return self;
        }
        let rows = num_points(launch).checked_div(row_len(kernel, launch)).unwrap_or(0);
        let splits =
            (multiprocessors * self.resident_blocks(kernel) as usize).min(rows.div_ceil(MIN_ROWS)).max(1);
        GpuSchedule { splits: splits as u32, ..self }
    }

    /// The same schedule within the limits of a device: threads per block, bytes of shared memory per block, and storage
    /// buffers per kernel. Shared memory is counted for a language without shuffles, such as WGSL.
    ///
    /// Blocks shrink to the number of threads, with more elements per thread where a block holds a row. Then vectors of
    /// column reductions and blocks shrink until shared memory suffices. If the partial results of a split reduction would
    /// need more buffers than the device binds, the reduction is not split. `None` if the kernel does not fit at all; its
    /// ops then need separate kernels.
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
    /// assert_eq!(schedule.limited(&kernel, &launch, 128, 16 << 10, Some(8)).unwrap().block, 128);
    /// assert_eq!(schedule.limited(&kernel, &launch, 128, 16 << 10, Some(1)), None);
    /// # Ok::<(), kiln_ir::Error>(())
    /// ```
    #[must_use]
    pub fn limited(
        self,
        kernel: &Kernel,
        launch: &Launch,
        threads: u32,
        shared_bytes: usize,
        bindings: Option<usize>,
    ) -> Option<GpuSchedule> {
        /// The fewest threads of a block.
        const MIN_THREADS: u32 = 32;
        let most = if threads.is_power_of_two() { threads } else { threads.next_power_of_two() / 2 };
        if most < MIN_THREADS {
            return None;
        }
        let mut schedule = self.with_block(kernel, launch, self.block.min(most), self.vector)?;
        while schedule.shared_bytes(kernel) > shared_bytes {
            let GpuSchedule { block, vector, .. } = schedule;
            let (block, vector) = match kernel.kind {
                KernelKind::ColReduce if vector > 1 => (block, vector / 2),
                KernelKind::Map
                | KernelKind::RowReduce
                | KernelKind::ColReduce
                | KernelKind::FullReduce
                | KernelKind::Transpose
                | KernelKind::Scan
                | KernelKind::MatMul(_) => (block / 2, vector),
            };
            if block < MIN_THREADS {
                return None;
            }
            schedule = schedule.with_block(kernel, launch, block, vector)?;
        }
        let fits = |schedule: &GpuSchedule| bindings.is_none_or(|most| schedule.buffers(kernel) <= most);
        if !fits(&schedule) && !kernel.has_columns() {
            schedule.splits = 1;
        }
        fits(&schedule).then_some(schedule)
    }

    /// The same schedule with that many threads per block, at most as many as before, and that vector width.
    fn with_block(self, kernel: &Kernel, launch: &Launch, block: u32, vector: u32) -> Option<GpuSchedule> {
        if block == self.block && vector == self.vector {
            return Some(self);
        }
        let row = row_len(kernel, launch);
        let plain = GpuSchedule { block, vector, row_threads: self.row_threads.min(block), ..self };
        let each = || row.div_ceil((plain.row_threads * vector) as usize) as u32 * vector;
        match kernel.kind {
            KernelKind::Map | KernelKind::Scan | KernelKind::FullReduce => Some(plain),
            KernelKind::RowReduce if kernel.has_columns() => Some(GpuSchedule { resident: each(), ..plain }),
            KernelKind::RowReduce if self.resident > 0 => {
                let resident = resident(kernel, row, plain.row_threads as usize, vector as usize);
                Some(GpuSchedule { resident, ..plain })
            }
            KernelKind::RowReduce => Some(plain),
            KernelKind::ColReduce => {
                let columns = num_points(launch).checked_div(row).unwrap_or(0);
                Some(of_columns(kernel, row, columns, plain))
            }
            // Their tiles have a fixed number of threads.
            KernelKind::Transpose | KernelKind::MatMul(_) => None,
        }
    }

    /// Bytes of shared memory per block of the pass that needs most, in a language without shuffles. Elements have at
    /// least 32 bits.
    fn shared_bytes(&self, kernel: &Kernel) -> usize {
        let size = |dtype: DType| dtype.size().max(4);
        let block = self.block as usize;
        let sum = |is_shared: &dyn Fn(&Compute) -> bool| -> usize {
            kernel.body.iter().filter(|i| is_shared(&i.compute)).map(|i| size(i.dtype)).sum()
        };
        match kernel.kind {
            KernelKind::Map => 0,
            KernelKind::Transpose => {
                let Some((outer, inner)) = kernel.tile_axes() else { return 0 };
                let turned = |compute: &Compute| {
                    compute.plain_load().is_some_and(|param| {
                        let strides = &kernel.params[param as usize].strides;
                        strides[outer] == StrideClass::One && strides[inner] == StrideClass::Any
                    })
                };
                TILE * (TILE + 1) * sum(&turned)
            }
            KernelKind::Scan => block * sum(&Compute::is_scan),
            KernelKind::MatMul(_) => 2 * PRODUCT_TILE * (PRODUCT_TILE + 1) * sum(&Compute::is_reduction),
            KernelKind::ColReduce => block * self.vector as usize * sum(&Compute::is_reduction),
            KernelKind::RowReduce | KernelKind::FullReduce => {
                block
                    * sum(&Compute::is_reduction)
                        .max(sum(&|compute: &Compute| compute.column_reduce().is_some()))
            }
        }
    }

    /// The buffers that the kernel binds: tensors, scratch memory and the flags of checks.
    fn buffers(&self, kernel: &Kernel) -> usize {
        let tensors = kernel.params.iter().filter(|param| param.kind != ParamKind::Number).count();
        let columns = kernel.has_columns();
        let is_total = |compute: &Compute| {
            if columns { compute.column_reduce().is_some() } else { compute.is_reduction() }
        };
        let totals = kernel.body.iter().filter(|i| self.finishes(kernel) && is_total(&i.compute)).count();
        let checks = kernel.body.iter().any(|i| matches!(i.compute, Compute::Checked(..)));
        tensors + totals + usize::from(checks)
    }

    /// The blocks of a kernel with columns that fit one multiprocessor at once, by registers and threads (occupancy).
    pub(crate) fn resident_blocks(&self, kernel: &Kernel) -> u32 {
        self.resident_blocks_for(bytes_of_columns(kernel, self.vector as usize)).max(1)
    }

    /// Whether a thread of a kernel with columns has enough registers to prefetch the next row.
    pub(crate) fn reads_ahead(&self, kernel: &Kernel) -> bool {
        let bytes = bytes_of_columns(kernel, self.vector as usize);
        let parallel = kernel.all_axes() & !kernel.reduced();
        let streams = |param: u32| kernel.crossed(param) & parallel != 0;
        let ahead = bytes_read(kernel, self.vector as usize, streams);
        self.resident_blocks_for(bytes + ahead) == self.resident_blocks_for(bytes).max(1)
    }

    /// The occupancy with `bytes` per resident element in registers; 0 if registers do not suffice.
    fn resident_blocks_for(&self, bytes: usize) -> u32 {
        /// Registers per multiprocessor.
        const REGISTERS: u32 = 1 << 16;
        /// Threads per multiprocessor.
        const THREADS: u32 = 2048;
        /// Registers per thread, except for resident elements.
        const OTHERS: u32 = 24;
        let held = (self.resident * bytes as u32).div_ceil(4);
        (REGISTERS / ((OTHERS + held) * self.block)).min(THREADS / self.block)
    }

    /// Whether each block of a kernel with columns iterates over rows, its threads holding one row.
    fn is_row_parallel(&self, kernel: &Kernel, launch: &Launch) -> bool {
        self.block == self.row_threads
            && row_len(kernel, launch) <= self.resident as usize * self.row_threads as usize
    }

    /// Whether a second pass combines the partial results of blocks.
    pub(crate) fn finishes(&self, kernel: &Kernel) -> bool {
        self.splits > 1 || kernel.has_columns()
    }

    /// Columns per block of the second pass. With many parts to combine, more threads share a column, since each waits
    /// for memory once for every few parts. The minimum is the number of columns that one memory access reads. At most
    /// 32 threads share a column; their totals are combined sequentially.
    pub(crate) fn columns_at_end(&self) -> u32 {
        const MIN_COLUMNS: u32 = 8;
        const MAX_THREADS: u32 = 32;
        let most = COLUMNS as u32;
        let fewest = (self.block / MAX_THREADS).clamp(MIN_COLUMNS, most);
        (self.block / self.splits.next_power_of_two()).clamp(fewest, most)
    }

    /// Whether `row_threads` is a valid group size.
    pub(crate) fn shares_rows(&self, kernel: &Kernel) -> bool {
        let least = if kernel.kind == KernelKind::ColReduce { 1 } else { 32 };
        self.row_threads.is_power_of_two() && (least..=self.block).contains(&self.row_threads)
    }

    /// The number of elements of [scratch memory](crate::print::GpuArgument::Scratch) for each reduction.
    pub fn scratch_len(&self, kernel: &Kernel, launch: &Launch) -> usize {
        let row = row_len(kernel, launch);
        let totals =
            if kernel.has_columns() { row } else { num_points(launch).checked_div(row).unwrap_or(0) };
        self.splits as usize * totals
    }

    /// The number of blocks of each pass, in order. Only reductions with more than one split or with columns have a
    /// second pass.
    pub fn grid(&self, kernel: &Kernel, launch: &Launch) -> [usize; 2] {
        let extent = |axis: usize| launch.extents[axis];
        let points = num_points(launch);
        let row = row_len(kernel, launch).max(1);
        match kernel.kind {
            KernelKind::Map => [points.div_ceil((self.block * self.vector * self.unroll) as usize), 0],
            KernelKind::Transpose => {
                let Some((outer, inner)) = kernel.tile_axes() else {
                    return [points.div_ceil(self.block as usize), 0];
                };
                let tiles = extent(outer).div_ceil(TILE) * extent(inner).div_ceil(TILE);
                [tiles * (points / (extent(outer) * extent(inner)).max(1)), 0]
            }
            KernelKind::RowReduce if kernel.has_columns() => {
                [self.splits as usize, row.div_ceil(self.columns_at_end() as usize)]
            }
            KernelKind::RowReduce | KernelKind::FullReduce if self.splits > 1 => {
                [points / row * self.splits as usize, points / row]
            }
            KernelKind::RowReduce => [(points / row).div_ceil((self.block / self.row_threads) as usize), 0],
            KernelKind::Scan => [points / row, 0],
            KernelKind::ColReduce => {
                let columns = points / row;
                let second =
                    if self.splits > 1 { columns.div_ceil(self.columns_at_end() as usize) } else { 0 };
                let side = (self.block / self.row_threads * self.vector) as usize;
                [columns.div_ceil(side) * self.splits as usize, second]
            }
            KernelKind::FullReduce => [1, 0],
            KernelKind::MatMul(_) => {
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
    /// The default schedule of a kernel for launches of about this size, with an L1 cache of `cache` bytes.
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
        // Half of the cache, since operands stream through it too.
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

/// The tile size of a [`KernelKind::Transpose`].
pub(crate) const TILE: usize = 32;

/// The maximum number of threads side by side in a block of a [`KernelKind::ColReduce`]; each processes a vector of
/// columns.
pub(crate) const COLUMNS: usize = 32;

/// The number of blocks that keeps a GPU busy with little tail effect.
const BLOCKS: usize = 1024;

/// The typical number of multiprocessors of a GPU.
const MULTIPROCESSORS: usize = 128;

/// The tile size of a [`KernelKind::MatMul`].
pub(crate) const PRODUCT_TILE: usize = 16;

/// The number of points along the reduced axes.
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

/// Whether kernels of a kind load and store vectors.
pub(crate) fn takes_vectors(kind: KernelKind) -> bool {
    match kind {
        KernelKind::Map | KernelKind::RowReduce | KernelKind::ColReduce | KernelKind::FullReduce => true,
        KernelKind::Transpose | KernelKind::Scan | KernelKind::MatMul(_) => false,
    }
}

/// The widest access, in elements, that all parameters allow.
fn vector(kernel: &Kernel, launch: &Launch) -> u32 {
    if !takes_vectors(kernel.kind) || kernel.axes.is_empty() {
        return 1;
    }
    let inner = kernel.axes.len() - 1;
    let tensors = || {
        let params = kernel.params.iter().zip(&launch.bindings).enumerate();
        params.filter(|(_, (param, _))| param.kind != ParamKind::Number)
    };
    let along = |param: &Param| param.strides[inner] == StrideClass::One;
    let sizes = tensors()
        .filter(|(i, (param, _))| along(param) && streams(kernel, *i))
        .map(|(_, (param, _))| param.dtype.size());
    let mut vector = 16 / sizes.max().unwrap_or(16);
    let allowed = |vector: usize| {
        launch.extents[inner].is_multiple_of(vector)
            && tensors().all(|(_, (param, binding))| match param.strides[inner] {
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
    vector.min(8) as u32
}

/// Whether a parameter streams from memory. One that is constant along rows or columns stays in caches.
fn streams(kernel: &Kernel, param: usize) -> bool {
    let all = kernel.all_axes();
    let others = match kernel.kind {
        KernelKind::ColReduce => kernel.reduced(),
        KernelKind::Map => all & !(1 << (kernel.axes.len() - 1)),
        KernelKind::RowReduce
        | KernelKind::FullReduce
        | KernelKind::Transpose
        | KernelKind::Scan
        | KernelKind::MatMul(_) => all & !kernel.reduced(),
    };
    others == 0 || kernel.crossed(param as u32) & others != 0
}

/// Whether the rows or columns of a kernel can be split among blocks.
pub(crate) fn splits(kernel: &Kernel) -> bool {
    match kernel.kind {
        KernelKind::FullReduce | KernelKind::ColReduce => true,
        KernelKind::RowReduce => kernel.has_columns() || kernel.combines_once(),
        KernelKind::Map | KernelKind::Transpose | KernelKind::Scan | KernelKind::MatMul(_) => false,
    }
}

/// The schedule of a map. With 16-bit elements, two vectors per thread hide the conversion cost.
fn of_map(kernel: &Kernel, launch: &Launch, plain: GpuSchedule) -> GpuSchedule {
    let tensors = kernel.params.iter().enumerate().filter(|(_, param)| param.kind != ParamKind::Number);
    let widest = tensors.filter(|(place, _)| streams(kernel, *place)).map(|(_, param)| param.dtype.size());
    let many = num_points(launch) >= 256 * BLOCKS * plain.vector as usize;
    if plain.vector > 1 && widest.max() <= Some(2) && many {
        GpuSchedule { block: 128, row_threads: 128, unroll: 2, ..plain }
    } else {
        plain
    }
}

/// The schedule of a column reduction: the fewer columns, the more threads share each.
fn of_columns(kernel: &Kernel, length: usize, columns: usize, plain: GpuSchedule) -> GpuSchedule {
    /// Bytes of shared memory per block.
    const SHARED: usize = 48 << 10;
    /// The minimum number of threads side by side.
    const MIN_THREADS: usize = 8;
    let totals = kernel.body.iter().filter(|instruction| instruction.compute.is_reduction());
    let each: usize = totals.map(|total| total.dtype.accumulator().size()).sum();
    let mut vector = plain.vector;
    while vector > 1 && each * (plain.block * vector) as usize > SHARED {
        vector /= 2;
    }
    let side = power_of_two(columns.div_ceil(vector as usize)).clamp(MIN_THREADS, COLUMNS);
    let groups = plain.block as usize / side;
    let across = columns.div_ceil(side * vector as usize).max(1);
    let splits = BLOCKS.div_ceil(across).min(length / (4 * groups));
    let splits = power_of_two(splits.max(1)) as u32;
    GpuSchedule { vector, row_threads: groups as u32, splits, ..plain }
}

/// The schedule of a row reduction.
fn of_rows(kernel: &Kernel, row: usize, rows: usize, plain: GpuSchedule) -> GpuSchedule {
    /// Elements of a row per thread.
    const EACH: usize = 16;
    let vector = plain.vector as usize;
    let many = rows >= 512;
    let parts = row / (16 * 256 * vector);
    if rows < 256 && parts > 1 && splits(kernel) {
        let splits = BLOCKS.div_ceil(rows.max(1)).min(parts);
        return GpuSchedule { splits: power_of_two(splits) as u32, ..plain };
    }
    let threads = if many && row <= 1024 {
        32
    } else if many {
        power_of_two(row.div_ceil(EACH)).clamp(32, 512)
    } else {
        power_of_two(row.div_ceil(vector)).clamp(32, 1024)
    };
    let resident = resident(kernel, row, threads, vector);
    let threads = if resident > 0 { threads } else { power_of_two(row.div_ceil(4 * vector)).clamp(128, 512) };
    let resident = if resident > 0 { resident } else { self::resident(kernel, row, threads, vector) };
    GpuSchedule { block: threads.max(128) as u32, row_threads: threads as u32, resident, ..plain }
}

/// The schedule of a row kernel with column reductions: the threads of a block hold a row and as many totals.
fn through_rows(kernel: &Kernel, row: usize, plain: GpuSchedule) -> GpuSchedule {
    /// Elements of a row per thread.
    const EACH: usize = 8;
    /// Registers per thread for elements, beyond which more threads share a row.
    const MAX_REGISTERS: usize = 64;
    let vector = plain.vector as usize;
    let resident = |threads: usize| row.div_ceil(threads * vector) * vector;
    let mut threads = power_of_two(row.div_ceil(EACH)).clamp(32, 512);
    if resident(threads) * bytes_of_columns(kernel, vector) > MAX_REGISTERS * 4 {
        threads = power_of_two(row.div_ceil(vector)).clamp(threads, 1024);
    }
    let (block, resident) = (threads as u32, resident(threads) as u32);
    GpuSchedule { block, row_threads: block, resident, ..plain }
}

/// Bytes per resident element of a row, including its column totals.
fn bytes_of_columns(kernel: &Kernel, vector: usize) -> usize {
    let totals = kernel.column_totals();
    held(kernel, vector) + totals.iter().map(|total| total.dtype.accumulator().size()).sum::<usize>()
}

/// Bytes per resident element of a row.
fn held(kernel: &Kernel, vector: usize) -> usize {
    let kept = kernel.kept().iter().filter(|kept| kept.is_some()).count() * 4;
    kept + bytes_read(kernel, vector, |_| true)
}

/// Bytes per resident element of a row that a thread loads from some parameters.
fn bytes_read(kernel: &Kernel, vector: usize, of: impl Fn(u32) -> bool) -> usize {
    let size = |dtype: DType| if vector > 1 { dtype.size() } else { dtype.size().max(4) };
    let loads = kernel.row_loads();
    loads.iter().filter(|(_, param, _)| of(*param)).map(|(_, _, dtype)| size(*dtype)).sum()
}

/// Resident elements per thread; 0 if a row is too long for registers.
fn resident(kernel: &Kernel, row: usize, threads: usize, vector: usize) -> u32 {
    /// Registers per thread for elements.
    const MAX_REGISTERS: usize = 64;
    let each = row.div_ceil(threads * vector) * vector;
    if each <= 32 && each * held(kernel, vector) <= MAX_REGISTERS * 4 { each as u32 } else { 0 }
}

/// Whether offsets or point numbers need more than 31 bits.
fn is_wide(kernel: &Kernel, launch: &Launch) -> bool {
    // Threads past the last point have larger numbers.
    const LIMIT: u128 = (1 << 31) - (1 << 20);
    let points = launch.extents.iter().fold(1u128, |product, &extent| product.saturating_mul(extent as u128));
    let reach = |strides: &[isize]| -> u128 {
        let axes = strides.iter().zip(&launch.extents);
        axes.map(|(stride, &extent)| stride.unsigned_abs() as u128 * extent as u128).sum()
    };
    // The dtype of an offset can represent the span of its tensor.
    let has_far_offset = |instruction: &Instruction| matches!(instruction.compute, Compute::LoadAt { offset, .. } if kernel.body[offset as usize].dtype.size() == 8);
    points >= LIMIT
        || kernel.body.iter().any(has_far_offset)
        || launch.bindings.iter().any(|binding| reach(&binding.strides) >= LIMIT)
}

impl fmt::Display for GpuSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GpuSchedule { block, vector, unroll, row_threads, resident, splits, wide } = self;
        write!(
            f,
            "block {block}, vector {vector}, unroll {unroll}, row_threads {row_threads}, resident {resident}, splits {splits}"
        )?;
        f.write_str(if *wide { ", 64-bit indices" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    /// A bias row stays in caches, so only 16-bit elements stream and threads hold two vectors. A bias as large as the
    /// other tensors would stream too, and threads would hold one vector.
    #[test]
    fn threads_process_two_vectors_of_16_bit_elements() {
        let schedule = |bias: [&str; 2]| {
            let [classes, strides] = bias;
            let kernel = format!(
                "kernel map [p, p] (%0: bf16 in [any, one], %1: f32 in [{classes}], %2: bf16 out [any, one]) {{
                   v0: bf16 = load %0
                   v1: f32 = load %1
                   v2: f32 = cast v0
                   v3: f32 = add v2, v1
                   v4: bf16 = cast v3
                   v5: bf16 = store %2, v4
                 }}"
            );
            let launch = format!("launch [4096, 1024] (%0: 0 [1024, 1], %1: 0 [{strides}], %2: 0 [1024, 1])");
            GpuSchedule::choose(&kernel.parse().unwrap(), &launch.parse().unwrap())
        };
        let added_to_rows = schedule(["zero, one", "0, 1"]);
        assert_eq!((added_to_rows.block, added_to_rows.unroll, added_to_rows.vector), (128, 2, 8));
        let as_long = schedule(["any, one", "1024, 1"]);
        assert_eq!((as_long.block, as_long.unroll, as_long.vector), (256, 1, 4));
    }
}
