//! General matrix multiplication (GEMM): cache blocking, register tiles, and hooks for prologues and epilogues.
//!
//! `b` is packed once into panels as wide as a tile, which all threads share. With few rows, each thread packs the
//! panels of its own pieces, or reads `b` in place. Each thread then computes pieces of the result in turn. For a piece
//! it iterates over `k` in blocks. It packs the needed rows of `a` into a block that fits the L2 cache, and runs the
//! tiles over all panels. The L1 cache holds a tile's rows of `a` while the panel streams through it. The sums stay in
//! registers for a whole block of `k`.
//!
//! The order of summation depends on `k` alone, so results are the same for every number of threads and every split.

use super::gemv::Gemv;
use super::matrix::Matrix;
use super::pack::{PackPanels, PackRows};
use super::tile::{PanelWidth, Tiles, max_depth, row_stride};
use crate::contraction::scratch::Scratch;
use crate::contraction::simd::{Float, Source};
use crate::copy::Shared;
use crate::isa::Level;
use crate::threads::Pool;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

/// A function of a block of a matrix: its rows and columns in the whole, the pointer to its first element, and its row
/// stride (columns are contiguous). It is called on the threads that do the work, once per block, in any order.
///
/// As an operand it writes the block's elements; as an epilogue it receives finished elements and may change them in
/// place.
pub(crate) type Block<'a, T> = &'a (dyn Fn(Range<usize>, Range<usize>, *mut T, usize) + Sync);

/// The source of an operand's elements.
#[derive(Clone, Copy)]
pub(crate) enum Operand<'a, T: Float> {
    /// Memory, with any strides: a transposed operand costs no more than a plain one.
    Matrix(Matrix<T>),
    /// `f16` elements in memory, converted when blocks are packed.
    F16(Matrix<T::F16>),
    /// `bf16` elements in memory, converted when blocks are packed.
    BF16(Matrix<T::BF16>),
    /// A prologue: a function that computes elements, block by block, where the GEMM would pack them from memory. For
    /// the left operand `[m, k]` it is called with blocks of at most 96 rows and 512 columns (256 of `f64`), possibly
    /// more than once, for several ranges of columns of the result. For the right one `[k, n]` it is called once per
    /// block, which is as wide as a tile (32 columns or fewer).
    Computed(Block<'a, T>),
}

impl<T: Float> Operand<'_, T> {
    /// The part that starts at that row and column, if the operand is in memory.
    fn at(self, row: usize, column: usize) -> Option<Self> {
        match self {
            Operand::Matrix(matrix) => Some(Operand::Matrix(matrix.at(row, column))),
            Operand::F16(matrix) => Some(Operand::F16(matrix.at(row, column))),
            Operand::BF16(matrix) => Some(Operand::BF16(matrix.at(row, column))),
            Operand::Computed(_) => None,
        }
    }

    /// The transposed operand, if it is in memory.
    pub(super) fn transposed(self) -> Option<Self> {
        match self {
            Operand::Matrix(matrix) => Some(Operand::Matrix(matrix.transposed())),
            Operand::F16(matrix) => Some(Operand::F16(matrix.transposed())),
            Operand::BF16(matrix) => Some(Operand::BF16(matrix.transposed())),
            Operand::Computed(_) => None,
        }
    }

    /// The row stride and the column stride, if it is in memory.
    pub(super) fn strides(&self) -> Option<[isize; 2]> {
        match self {
            Operand::Matrix(matrix) => Some([matrix.row, matrix.column]),
            Operand::F16(matrix) => Some([matrix.row, matrix.column]),
            Operand::BF16(matrix) => Some([matrix.row, matrix.column]),
            Operand::Computed(_) => None,
        }
    }
}

/// A GEMM `c = scale · a · b`, `[m, k] x [k, n] -> [m, n]`.
///
/// ```text
/// // y = relu(x · w + bias), with bias and relu applied while a block of y is in cache.
/// let finish = |rows: Range<usize>, columns: Range<usize>, start: *mut f32, stride: usize| {
///     for i in 0..rows.len() {
///         // SAFETY: a row of the block, which is this call's alone.
///         let y = unsafe { core::slice::from_raw_parts_mut(start.add(i * stride), columns.len()) };
///         y.iter_mut().zip(&bias[columns.clone()]).for_each(|(y, b)| *y = (*y + b).max(0.0));
///     }
/// };
/// let gemm = Gemm { epilogue: Some(&finish), ..Gemm::new([m, k, n], x, w, Some(y)) };
/// unsafe { gemm.run(cpu.level, &cpu.pool) };
/// ```
#[derive(Clone, Copy)]
pub(crate) struct Gemm<'a, T: Float> {
    /// `m`, `k` and `n`.
    pub(crate) sizes: [usize; 3],
    /// The left operand, `[m, k]`.
    pub(crate) a: Operand<'a, T>,
    /// The right operand, `[k, n]`.
    pub(crate) b: Operand<'a, T>,
    /// The destination of the result, with contiguous columns (`column == 1`, or at most one column). With `None` only
    /// the epilogue receives it, in blocks of at most 96 rows and 256 columns of thread-local memory.
    pub(crate) c: Option<Matrix<T>>,
    /// Whether to add to the contents of `c`.
    pub(crate) accumulate: bool,
    /// The factor of all elements (alpha).
    pub(crate) scale: T,
    /// The epilogue, called with each finished block while it is in cache: at most 96 rows and at most 256 columns,
    /// starting at multiples of 256 within a task's part. Every element of the result is in exactly one block.
    pub(crate) epilogue: Option<Block<'a, T>>,
}

/// The maximum number of rows of a piece of the result: a block of `a` takes 198 KiB.
const MAX_ROWS: usize = 96;

/// Panels that are packed together, and finished together before the epilogue runs on them.
const GROUP: usize = 8;

/// Bytes of `b` that are packed at a time: together with everything else they fit the L3 cache.
const PACKED: usize = 16 << 20;

/// Steps of `k` that are packed at a time.
const MAX_PACKED_DEPTH: usize = 1 << 15;

/// The minimum number of rows for which panels are reused often enough to be packed for all threads.
const MIN_PACKED_ROWS: usize = 40;

/// The minimum number of rows for which each thread packs panels of `b` for its own pieces: the tiles of a piece read a
/// panel several times, and rows of `b` whose distance is a power of two map to the same cache sets.
const MIN_REPACKED_ROWS: usize = 16;

/// The minimum multiplications per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 19;

impl<'a, T: Float> Gemm<'a, T> {
    /// The plain product of two operands.
    pub(crate) fn new(
        sizes: [usize; 3],
        a: Operand<'a, T>,
        b: Operand<'a, T>,
        c: Option<Matrix<T>>,
    ) -> Gemm<'a, T> {
        Gemm { sizes, a, b, c, accumulate: false, scale: T::ONE, epilogue: None }
    }

    /// Runs the GEMM, multithreaded if worthwhile.
    ///
    /// # Safety
    /// Operands and result have these sizes and no other users meanwhile. The result overlaps neither operand, and its
    /// columns are contiguous. The functions stay within their blocks.
    pub(crate) unsafe fn run(&self, level: Level, pool: &Pool) {
        if let Some(gemv) = Gemv::of(self) {
            // SAFETY: as the caller promises.
            return unsafe { gemv.run(self, level, pool) };
        }
        // SAFETY: as the caller promises.
        #[cfg(feature = "blas")]
        if unsafe { super::vendor::run(self, pool) } {
            return;
        }
        let [m, k, n] = self.sizes;
        let work = m.saturating_mul(n).saturating_mul(k.max(1));
        let threads = if work < 2 * GRAIN { 1 } else { pool.threads().min(work / GRAIN) };
        // SAFETY: as the caller promises.
        unsafe { self.split(level, pool, threads) }
    }

    /// As [`run`](Self::run), by this module alone.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[cfg(all(test, feature = "blas"))]
    pub(super) unsafe fn split_alone(&self, level: Level, pool: &Pool) {
        // SAFETY: as the caller promises.
        unsafe { self.split(level, pool, pool.threads()) }
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn split(&self, level: Level, pool: &Pool, threads: usize) {
        let [m, k, n] = self.sizes;
        if m == 0 || n == 0 {
            return;
        }
        if k > MAX_PACKED_DEPTH {
            // SAFETY: as the caller promises.
            return unsafe { self.in_stretches(level, pool, threads) };
        }
        // SAFETY: the level is this machine's.
        let width = unsafe { T::dispatch(level, PanelWidth) };
        let depths = k.div_ceil(max_depth::<T>()).max(1);
        let direct = self.direct();
        let most = PACKED / size_of::<T>() / k.max(1) / (GROUP * width) * (GROUP * width);
        let room = if direct.is_some() { n } else { most.max(GROUP * width) };
        for start in (0..n).step_by(room) {
            let columns = start..(start + room).min(n);
            let grid = Grid::new(m, columns.len(), width, threads, self.c.is_none());
            let part =
                Part { gemm: self, level, width, depth: k.div_ceil(depths), depths, columns, grid, direct };
            // SAFETY: as the caller promises.
            unsafe { part.run(pool, threads) };
        }
    }

    /// Runs in ranges of `k`, each added to the previous ones, so that packed panels stay small.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn in_stretches(&self, level: Level, pool: &Pool, threads: usize) {
        let [m, k, n] = self.sizes;
        let mut local = Scratch::<T>::new(if self.c.is_none() { m * n } else { 0 });
        let c = self.c.unwrap_or_else(|| Matrix::new(local.as_mut_ptr(), n as isize, 1));
        for start in (0..k).step_by(MAX_PACKED_DEPTH) {
            let end = (start + MAX_PACKED_DEPTH).min(k);
            let left = |rows: Range<usize>, depth: Range<usize>, to: *mut T, stride: usize| {
                if let Operand::Computed(compute) = self.a {
                    compute(rows, start + depth.start..start + depth.end, to, stride);
                }
            };
            let right = |depth: Range<usize>, columns: Range<usize>, to: *mut T, stride: usize| {
                if let Operand::Computed(compute) = self.b {
                    compute(start + depth.start..start + depth.end, columns, to, stride);
                }
            };
            let part = Gemm {
                sizes: [m, end - start, n],
                a: self.a.at(0, start).unwrap_or(Operand::Computed(&left)),
                b: self.b.at(start, 0).unwrap_or(Operand::Computed(&right)),
                c: Some(c),
                accumulate: start > 0 || (self.accumulate && self.c.is_some()),
                scale: self.scale,
                epilogue: self.epilogue.filter(|_| end == k),
            };
            // SAFETY: as the caller promises.
            unsafe { part.split(level, pool, threads) };
        }
    }

    /// The right operand, if it is not packed for all threads.
    fn direct(&self) -> Option<Matrix<T>> {
        match self.b {
            Operand::Matrix(b) if b.column == 1 && self.sizes[0] < MIN_PACKED_ROWS => Some(b),
            Operand::Matrix(_) | Operand::F16(_) | Operand::BF16(_) | Operand::Computed(_) => None,
        }
    }
}

/// The pieces of a range of columns of the result.
#[derive(Clone, Copy)]
struct Grid {
    /// Rows and columns of a piece, and the number of pieces along each.
    rows: usize,
    columns: usize,
    down: usize,
    across: usize,
}

impl Grid {
    /// The split with the least estimated time: balanced between the threads, with pieces as large as possible.
    fn new(m: usize, n: usize, width: usize, threads: usize, narrow: bool) -> Grid {
        const TILE: usize = 12;
        let (tiles, panels) = (m.div_ceil(TILE), n.div_ceil(width));
        let least_down = tiles.div_ceil(MAX_ROWS / TILE);
        let least_across = if narrow { panels.div_ceil(GROUP) } else { 1 };
        let cut = |down: usize, across: usize| {
            let (rows, columns) = (tiles.div_ceil(down), panels.div_ceil(across));
            let (down, across) = (tiles.div_ceil(rows), panels.div_ceil(columns));
            Grid { rows: rows * TILE, columns: columns * width, down, across }
        };
        // Per step of `k`: the multiplications of a tile, and the cost of packing a tile's rows or loading a panel.
        let time = |grid: &Grid| {
            let (rows, columns) = (grid.rows / TILE, grid.columns / width);
            let rounds = (grid.down * grid.across).div_ceil(threads);
            rounds * (rows * columns * 24 + rows * 4 + columns * 8)
        };
        let mut best = cut(least_down, least_across);
        if threads == 1 {
            return best;
        }
        for factor in [1, 2, 3, 4, 6, 8, 12, 16, 32, 64] {
            let across = least_across * factor;
            for more in [0, 1, 2, 3, least_down, 3 * least_down, 7 * least_down] {
                let grid = cut(least_down + more, across.min(panels));
                if time(&grid) < time(&best) {
                    best = grid;
                }
            }
            if across >= panels {
                break;
            }
        }
        best
    }

    fn len(&self) -> usize {
        self.down * self.across
    }

    /// Rows and columns of piece `i`; adjacent pieces share rows.
    fn piece(&self, i: usize, m: usize, n: usize) -> (Range<usize>, Range<usize>) {
        let (down, across) = (i / self.across, i % self.across);
        let rows = down * self.rows..((down + 1) * self.rows).min(m);
        let columns = across * self.columns..((across + 1) * self.columns).min(n);
        (rows, columns)
    }
}

/// The columns of a GEMM that are computed together.
struct Part<'a, T: Float> {
    gemm: &'a Gemm<'a, T>,
    level: Level,
    /// Columns per panel.
    width: usize,
    /// Blocks of `k` have `depth` steps.
    depth: usize,
    depths: usize,
    columns: Range<usize>,
    grid: Grid,
    direct: Option<Matrix<T>>,
}

impl<T: Float> Part<'_, T> {
    /// # Safety
    /// As [`Gemm::run`].
    unsafe fn run(&self, pool: &Pool, threads: usize) {
        let k = self.gemm.sizes[1];
        let groups = self.columns.len().div_ceil(GROUP * self.width);
        let packs = if self.direct.is_some() { 0 } else { groups * self.depths };
        let mut panels = Scratch::<T>::new(if packs > 0 { k * self.padded() } else { 0 });
        let panels = Shared::new(panels.as_mut_ptr());
        let (next_pack, packed, next_piece) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let threads = threads.min(self.grid.len().max(packs));
        pool.parallel_for(threads, 1, |_| {
            let take = |next: &AtomicUsize| next.fetch_add(1, Ordering::Relaxed);
            loop {
                let i = take(&next_pack);
                if i >= packs {
                    break;
                }
                // If a function panics, the other threads must not keep waiting.
                let _done = CompletionGuard(&packed);
                // SAFETY: as the caller promises; each group and block is packed once.
                unsafe { self.pack(i / groups, i % groups, panels.get()) };
            }
            wait_for(&packed, packs);
            let mut rows = Scratch::<T>::new(self.grid.rows * row_stride::<T>());
            let local = if self.gemm.c.is_none() { self.grid.rows * self.grid.columns } else { 0 };
            let mut local = Scratch::<T>::new(local);
            let own = if self.packs_own_panels() { GROUP * self.width * self.depth } else { 0 };
            let mut own = Scratch::<T>::new(own);
            let memory =
                Memory { rows: rows.as_mut_ptr(), panels: own.as_mut_ptr(), local: local.as_mut_ptr() };
            loop {
                let i = take(&next_piece);
                if i >= self.grid.len() {
                    break;
                }
                // SAFETY: as the caller promises; all panels are packed; each piece is computed once.
                unsafe { self.piece(i, panels.get(), &memory) };
            }
        });
    }

    /// Whether `b` is packed piece by piece instead of once for all threads.
    fn packs_own_panels(&self) -> bool {
        self.direct.is_some() && self.gemm.sizes[0] >= MIN_REPACKED_ROWS
    }

    /// Columns, rounded up to whole panels.
    fn padded(&self) -> usize {
        self.columns.len().next_multiple_of(self.width)
    }

    /// The range of a block of `k`.
    fn depth(&self, block: usize) -> Range<usize> {
        let k = self.gemm.sizes[1];
        (block * self.depth).min(k)..((block + 1) * self.depth).min(k)
    }

    /// Packs a group of panels, in a block of `k`.
    ///
    /// # Safety
    /// As [`Gemm::run`]; nothing else accesses these panels.
    unsafe fn pack(&self, block: usize, group: usize, panels: *mut T) {
        let depth = self.depth(block);
        let first = group * GROUP * self.width;
        let columns = (self.columns.len() - first).min(GROUP * self.width);
        let panel = depth.len() * self.width;
        let to = panels.wrapping_add(depth.start * self.padded() + first * depth.len());
        let column = self.columns.start + first;
        // SAFETY: as the caller promises.
        unsafe {
            match self.gemm.b {
                Operand::Matrix(from) => {
                    self.pack_from(from.at(depth.start, column), columns, depth.len(), to)
                }
                Operand::F16(from) => self.pack_from(from.at(depth.start, column), columns, depth.len(), to),
                Operand::BF16(from) => self.pack_from(from.at(depth.start, column), columns, depth.len(), to),
                Operand::Computed(compute) => {
                    for start in (0..columns).step_by(self.width) {
                        let range = column + start..column + (start + self.width).min(columns);
                        compute(depth.clone(), range, to.add(start / self.width * panel), self.width);
                    }
                }
            }
        }
    }

    /// # Safety
    /// As [`pack`](Self::pack).
    unsafe fn pack_from<N: Source<T>>(&self, from: Matrix<N>, columns: usize, depth: usize, to: *mut T) {
        let pack = PackPanels { from, depth, columns, to, panel: depth * self.width };
        // SAFETY: as the caller promises.
        unsafe { T::dispatch(self.level, pack) }
    }

    /// Computes a piece of the result.
    ///
    /// # Safety
    /// As [`Gemm::run`]; the panels are packed, and nothing else accesses the piece.
    unsafe fn piece(&self, i: usize, panels: *const T, memory: &Memory<T>) {
        let gemm = self.gemm;
        let (rows, columns) = self.grid.piece(i, gemm.sizes[0], self.columns.len());
        let first = self.columns.start + columns.start;
        let (c, c_row) = match gemm.c {
            Some(c) => (c.at(rows.start, first).start, c.row),
            None => (memory.local, self.grid.columns as isize),
        };
        for number in 0..self.depths {
            let depth = self.depth(number);
            // SAFETY: as the caller promises.
            unsafe { self.pack_rows(rows.clone(), depth.clone(), memory.rows) };
            let last = number + 1 == self.depths;
            let in_groups = self.packs_own_panels() || (last && gemm.epilogue.is_some());
            let step = if in_groups { GROUP * self.width } else { columns.len() };
            for start in (0..columns.len()).step_by(step) {
                let len = (columns.len() - start).min(step);
                let place = columns.start + start;
                let (b, b_row, panel) = match self.direct {
                    Some(b) if self.packs_own_panels() => {
                        let from = b.at(depth.start, self.columns.start + place);
                        // SAFETY: as the caller promises.
                        unsafe { self.pack_from(from, len, depth.len(), memory.panels) };
                        (memory.panels.cast_const(), self.width as isize, depth.len() * self.width)
                    }
                    Some(b) => {
                        (b.at(depth.start, self.columns.start + place).start.cast_const(), b.row, self.width)
                    }
                    None => {
                        let offset = depth.start * self.padded() + place * depth.len();
                        (panels.wrapping_add(offset), self.width as isize, depth.len() * self.width)
                    }
                };
                let tiles = Tiles {
                    a: memory.rows,
                    rows: rows.len(),
                    depth: depth.len(),
                    b,
                    b_row,
                    panel,
                    columns: len,
                    c: c.wrapping_add(start),
                    c_row,
                    accumulate: number > 0 || (gemm.accumulate && gemm.c.is_some()),
                    scale: gemm.scale,
                };
                // SAFETY: as the caller promises.
                unsafe { T::dispatch(self.level, tiles) };
                if let (true, Some(finish)) = (last, gemm.epilogue) {
                    finish(
                        rows.clone(),
                        first + start..first + start + len,
                        c.wrapping_add(start),
                        c_row as usize,
                    );
                }
            }
        }
    }

    /// Packs a block of `a`.
    ///
    /// # Safety
    /// As [`Gemm::run`]; `to` has room for the block.
    unsafe fn pack_rows(&self, rows: Range<usize>, depth: Range<usize>, to: *mut T) {
        // SAFETY: as the caller promises.
        unsafe {
            match self.gemm.a {
                Operand::Matrix(from) => self.pack_rows_from(from, rows, depth, to),
                Operand::F16(from) => self.pack_rows_from(from, rows, depth, to),
                Operand::BF16(from) => self.pack_rows_from(from, rows, depth, to),
                Operand::Computed(compute) => compute(rows, depth, to, row_stride::<T>()),
            }
        }
    }

    /// # Safety
    /// As [`pack_rows`](Self::pack_rows).
    unsafe fn pack_rows_from<N: Source<T>>(
        &self,
        from: Matrix<N>,
        rows: Range<usize>,
        depth: Range<usize>,
        to: *mut T,
    ) {
        let from = from.at(rows.start, depth.start);
        // SAFETY: as the caller promises.
        unsafe {
            T::dispatch(
                self.level,
                PackRows { from, rows: rows.len(), depth: depth.len(), to, stride: row_stride::<T>() },
            )
        }
    }
}

/// The memory of a thread.
struct Memory<T> {
    /// A packed block of `a`.
    rows: *mut T,
    /// Packed panels of `b` of a piece, with [`Part::packs_own_panels`].
    panels: *mut T,
    /// The piece itself, if the result has no other place.
    local: *mut T,
}

/// Counts a task at its end, even after a panic.
struct CompletionGuard<'a>(&'a AtomicUsize);

impl Drop for CompletionGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Waits for tasks that other threads are running.
fn wait_for(done: &AtomicUsize, count: usize) {
    let mut turns = 0u32;
    while done.load(Ordering::Acquire) < count {
        turns = turns.wrapping_add(1);
        #[cfg(feature = "std")]
        if turns > 2000 {
            std::thread::yield_now();
            continue;
        }
        core::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests;
