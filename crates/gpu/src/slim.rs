//! GEMV-like matmuls (few rows), which are bound by memory bandwidth. Each element of the matrix is used once or a few
//! times, and BLAS kernels are tuned for many uses. Consecutive ones with the same left factor, as of queries, keys and
//! values, are fused horizontally.

use crate::Gpu;
use crate::driver::{Argument, Arguments, DevicePtr, Driver, Grid, Products, Step};
use crate::memory::Block;
use crate::native::{Native, length};
use crate::strided::ALIGNMENT;
use crate::trace::Label;
use kiln_ir::{DType, FxBuildHasher, Result};
use kiln_kernel::print::held_type;
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

const SOURCE: &str = include_str!("native/slim.cu");

/// The maximum number of rows, whose sums are held in registers.
const MOST_ROWS: usize = 4;

/// The maximum number of matrices of one kernel.
const MOST_MATRICES: usize = 3;

/// Threads that read one row of a matrix: `LANES` of the source.
const LANES: usize = 8;

/// Threads per block, and rows of a matrix that a block reads at once.
const THREADS: usize = 256;
const TALL: usize = THREADS / LANES;

/// Columns per block for column-major matrices: one per warp.
const WARPS: usize = THREADS / 32;

/// The minimum number of rows per block of a split matrix.
const LEAST_PART: usize = 2 * TALL;

/// The maximum column length that one warp reads fast enough, however few columns there are.
const LONGEST_COLUMN: usize = 1 << 14;

/// Blocks per multiprocessor.
const BLOCKS: usize = 2;

/// The maximum number of blocks of a cluster, and the number of parts up to which a cluster is preferred to filling the
/// device.
const CLUSTER: usize = 8;
const WORTH_A_CLUSTER: usize = 10;

/// GEMV-like matmuls with a common left factor.
pub(crate) struct Slim<M> {
    x: DevicePtr<M>,
    x_leading_dim: usize,
    rows: usize,
    inner: usize,
    dtype: DType,
    transposed: bool,
    matrices: SmallVec<[Matrix<M>; MOST_MATRICES]>,
}

/// A right factor with the result of its matmul.
struct Matrix<M> {
    w: DevicePtr<M>,
    y: DevicePtr<M>,
    leading_dim: usize,
    columns: usize,
}

impl<M> Clone for Matrix<M> {
    fn clone(&self) -> Self {
        Matrix { w: self.w.clone(), y: self.y.clone(), ..*self }
    }
}

impl<M> Clone for Slim<M> {
    fn clone(&self) -> Self {
        Slim { x: self.x.clone(), matrices: self.matrices.clone(), ..*self }
    }
}

/// Per-engine state of GEMV-like matmuls, created at the first one.
pub(crate) struct Slims<D: Driver> {
    functions: Mutex<HashMap<Kind, Arc<D::Function>, FxBuildHasher>>,
    /// Counters of finished blocks for each part of a matmul, 0 between kernels, and the workspace for partial sums.
    scratch: Mutex<Option<Block<D>>>,
}

/// The cache key of a compiled kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    rows: usize,
    dtype: DType,
    transposed: bool,
    matrices: usize,
    cluster: usize,
}

impl<D: Driver> Default for Slims<D> {
    fn default() -> Self {
        Slims { functions: Mutex::default(), scratch: Mutex::new(None) }
    }
}

impl<D: Driver> Gpu<D> {
    /// Queues a matmul of few rows, fused with the previous ones of the same left factor; `false` if no kernel supports
    /// it.
    pub(crate) fn multiply_slim(&self, products: &Products<D::Memory>) -> Result<bool> {
        let Some(slim) = Slim::of(products) else { return Ok(false) };
        let scratch = self.slim_scratch()?;
        self.queue.push_slim(move |before| {
            // Fused matmuls are split among other numbers of blocks, and reads decide which ones are queued before.
            let before = before.filter(|_| !self.deterministic);
            // If the fused kernel does not compile, each runs alone.
            let both = before.and_then(|before| before.with(&slim));
            if let Some(both) = both
                && let Ok(step) = self.slim_step(&both, &scratch)
            {
                return Ok((step, both, true));
            }
            let step = self.slim_step(&slim, &scratch)?;
            self.assert_held(&step);
            Ok((step, slim, false))
        })?;
        Ok(true)
    }

    /// Whether a GEMV kernel supports the matmul.
    pub(crate) fn is_slim(products: &Products<D::Memory>) -> bool {
        Slim::of(products).is_some()
    }

    /// The launch step of fused matmuls.
    fn slim_step(&self, slim: &Slim<D::Memory>, scratch: &[DevicePtr<D::Memory>; 2]) -> Result<Step<D>> {
        let mut arguments = Arguments::<D::Memory>::new();
        arguments.push(Argument::Pointer(slim.x.clone()));
        let mut cluster = 1;
        let blocks = if slim.transposed {
            arguments.extend([slim.x_leading_dim, slim.inner].map(length));
            slim.tiles(WARPS)
        } else {
            let tiles = slim.tiles(LANES * slim.vector());
            let (splits, part) = splits(tiles, slim.inner, self.driver.info().multiprocessors);
            cluster = blocks_of_cluster(splits);
            arguments.extend(scratch.iter().map(|place| Argument::Pointer(place.clone())));
            arguments.extend([slim.x_leading_dim, slim.inner, splits, part].map(length));
            tiles * splits
        };
        for Matrix { w, y, leading_dim, columns } in &slim.matrices {
            arguments.extend([w, y].map(|place| Argument::Pointer(place.clone())));
            arguments.extend([*leading_dim, *columns].map(length));
        }
        let grid = Grid { blocks, threads: THREADS as u32 };
        Ok(Step::Launch { function: self.slim_function(slim, cluster)?, grid, arguments })
    }

    fn slim_function(&self, slim: &Slim<D::Memory>, cluster: usize) -> Result<Arc<D::Function>> {
        let Slim { rows, dtype, transposed, .. } = *slim;
        let kind = Kind { rows, dtype, transposed, matrices: slim.matrices.len(), cluster };
        let functions = || self.slims.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions().get(&kind) {
            return Ok(function.clone());
        }
        let entry = if transposed { "kiln_slim_columns" } else { "kiln_slim" };
        let native = Native::new(SOURCE, entry)
            .dtype("T", dtype)
            .name("A", held_type(dtype.accumulator()))
            .name("VECTOR", slim.vector())
            .name("ROWS", rows)
            .name("MATRICES", kind.matrices)
            .name("CLUSTER", cluster)
            .name("TRANSPOSED", if transposed { "1" } else { "0" })
            .name("FLIGHT", if rows <= 2 { "8" } else { "4" });
        let function = self.loaded(native)?;
        functions().insert(kind, function.clone());
        Ok(function)
    }

    /// The workspace for partial sums, and counters of finished blocks, more than there are multiprocessors.
    pub(crate) fn slim_scratch(&self) -> Result<[DevicePtr<D::Memory>; 2]> {
        /// Bytes of the partial sums of one row of a block.
        const SUMS: usize = LANES * 8 * size_of::<f32>();
        let blocks = 2 * BLOCKS * self.driver.info().multiprocessors;
        let words = (blocks * size_of::<u32>()).next_multiple_of(ALIGNMENT);
        let mut scratch = self.slims.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let block = match scratch.take() {
            Some(block) => block,
            None => {
                let block = self.block(words + blocks * MOST_ROWS * SUMS)?;
                self.queue.push(Step::Fill { to: block.at(0), bytes: words, value: 0 })?;
                block
            }
        };
        let places = [block.at(words), block.at(0)];
        *scratch = Some(block);
        Ok(places)
    }
}

impl<M> Slim<M> {
    /// Matches a matmul; `None` if the library should compute it.
    fn of(products: &Products<M>) -> Option<Slim<M>> {
        let Products { count, rows, columns, inner, dtype, result, factors: [x, w], to, epilogue, float8: _ } =
            products;
        let (&rows, &columns, &inner, &dtype) = (rows, columns, inner, dtype);
        let vector = ALIGNMENT / dtype.size();
        let whole = |elements: usize| elements.is_multiple_of(vector);
        let small = |length: usize| i32::try_from(length).is_ok_and(|length| length < i32::MAX / 2);
        let lies = |place: &DevicePtr<M>| place.offset.is_multiple_of(ALIGNMENT);
        let is_float = dtype.is_float() && *result == dtype;
        let is_simple = *count == 1 && rows <= MOST_ROWS && is_float && epilogue.form().is_plain();
        // One row is always contiguous, and may be declared column-major.
        let x_leading_dim = if rows == 1 { inner } else { x.leading_dim };
        let dense = (!x.transposed || rows == 1 && x.leading_dim == 1) && (!whole(inner) || lies(&x.at));
        let fits = lies(&w.at) && whole(w.leading_dim) && small(columns) && small(inner);
        let suits = match w.transposed {
            false => whole(columns),
            true => whole(inner) && whole(x_leading_dim) && lies(&x.at) && inner <= LONGEST_COLUMN,
        };
        if !(is_simple && dense && fits && suits) {
            return None;
        }
        let matrix = Matrix { w: w.at.clone(), y: to.clone(), leading_dim: w.leading_dim, columns };
        let (x, transposed) = (x.at.clone(), w.transposed);
        Some(Slim { x, x_leading_dim, rows, inner, dtype, transposed, matrices: smallvec![matrix] })
    }

    /// Fuses both matmuls, if they have the same left factor and no write conflicts with the other's operands or
    /// result.
    fn with(&self, after: &Slim<M>) -> Option<Slim<M>> {
        let shape = |slim: &Slim<M>| (slim.x.offset, slim.x_leading_dim, slim.rows, slim.inner);
        let kind = |slim: &Slim<M>| (slim.dtype, slim.transposed);
        let same = |a: &DevicePtr<M>, b: &DevicePtr<M>| Arc::ptr_eq(&a.memory, &b.memory);
        if shape(self) != shape(after) || kind(self) != kind(after) || !same(&self.x, &after.x) {
            return None;
        }
        let meets = |a: &Matrix<M>, b: &Matrix<M>| {
            same(&a.y, &b.y) || same(&a.y, &b.w) || same(&a.w, &b.y) || same(&a.y, &self.x)
        };
        let mut matrices = self.matrices.clone();
        matrices.extend(after.matrices.iter().cloned());
        let apart = |i: usize| (0..matrices.len()).all(|j| i == j || !meets(&matrices[i], &matrices[j]));
        let fits = matrices.len() <= MOST_MATRICES && (0..matrices.len()).all(apart);
        fits.then(|| Slim { matrices, ..self.clone() })
    }

    /// Elements in 16 bytes.
    fn vector(&self) -> usize {
        ALIGNMENT / self.dtype.size()
    }

    /// The number of blocks, at `wide` columns each.
    fn tiles(&self, wide: usize) -> usize {
        self.matrices.iter().map(|matrix| matrix.columns.div_ceil(wide)).sum()
    }

    /// The trace label.
    pub(crate) fn label(&self) -> Label {
        let columns: usize = self.matrices.iter().map(|matrix| matrix.columns).sum();
        let lies = if self.transposed { "ᵀ" } else { "" };
        let list: Vec<String> = self.matrices.iter().map(|matrix| matrix.columns.to_string()).collect();
        let Slim { rows, inner, dtype, .. } = self;
        Label {
            name: format!("kiln_slim {dtype}[{rows}, {inner}] · [{inner}, {}]{lies}", list.join(" + ")),
            read: (rows + columns) * inner * dtype.size(),
            written: rows * columns * dtype.size(),
        }
    }
}

/// Split-k: the number of parts of a matrix's rows, and the rows per part, so that every multiprocessor has work.
fn splits(tiles: usize, inner: usize, multiprocessors: usize) -> (usize, usize) {
    let mut wanted = (BLOCKS * multiprocessors).div_ceil(tiles);
    if wanted <= WORTH_A_CLUSTER {
        wanted = wanted.min(CLUSTER);
    }
    let part = inner.div_ceil(wanted).next_multiple_of(TALL).max(LEAST_PART);
    (inner.div_ceil(part), part)
}

/// Blocks per cluster for a number of parts: all parts, or 1 if they exceed a cluster.
fn blocks_of_cluster(splits: usize) -> usize {
    if splits <= CLUSTER { splits } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_cover_the_inner_dim_and_fit_the_scratch_memory() {
        for tiles in [1, 4, 32, 40, 88, 176, 263, 264, 500] {
            for inner in [1, 31, 64, 100, 2048, 5632, 1 << 20] {
                let (splits, part) = splits(tiles, inner, 132);
                assert_eq!(blocks_of_cluster(splits), if splits <= 8 { splits } else { 1 });
                assert!(splits * part >= inner && (splits - 1) * part < inner, "{tiles} {inner}");
                assert!(splits == 1 || tiles * splits <= 2 * BLOCKS * 132, "{tiles} {inner}");
            }
        }
        for (tiles, inner, parts, cluster) in [
            (32, 2048, (8, 256), 8),
            (32, 5632, (8, 704), 8),
            (4, 2048, (32, 64), 1),
            (500, 2048, (1, 2048), 1),
        ] {
            assert_eq!(splits(tiles, inner, 132), parts);
            assert_eq!(blocks_of_cluster(parts.0), cluster);
        }
    }
}
