//! Kernels of scans.
//!
//! Elements are combined in a fixed order: each thread combines neighbouring elements, and the totals of threads follow
//! by the Hillis-Steele scan.

use super::BlockKey;
use crate::index::combined_in;
use kiln_ir::{DType, Reduction};
use kiln_kernel::block::{Array, BlockKernel, Buffer, Builder, Expression, index};

/// Threads per block.
const THREADS: usize = 256;

/// The most elements that one thread of a tile scans.
const MOST_ITEMS: usize = 8;

/// The parameters of the kernels of one scan. All kernels have a number parameter for the identity.
#[derive(Clone, Copy)]
pub(crate) struct ScanKernels {
    /// The operator.
    pub(crate) reduction: Reduction,
    /// The dtype of elements.
    pub(crate) dtype: DType,
    /// Whether the scan runs from the last element to the first.
    pub(crate) reverse: bool,
    /// Whether the scan is exclusive.
    pub(crate) exclusive: bool,
    /// Elements of a tile per thread.
    pub(crate) items: usize,
}

/// The kernels of a scan.
#[derive(Clone, Copy)]
pub(crate) enum ScanKernel {
    /// One thread scans each line, one point for each. Parameters: `x`, `y`, the identity, and the numbers of lines, of
    /// elements of a line, and of elements from one element of a line to the next.
    Columns,
    /// A block computes the total of each tile. Parameters: `x`, totals, the identity, and the numbers of elements and
    /// of tiles of a line.
    Totals,
    /// A block scans each tile, where a line is one tile. Parameters: `x`, `y`, the identity, and the numbers of
    /// elements and of tiles of a line.
    Tiles,
    /// As above, with the totals of earlier tiles, which follow `x`.
    CarriedTiles,
}

/// A tile in shared memory, and a total for each thread.
struct Tile {
    elements: Array,
    totals: Array,
    /// The offset of the tile's line.
    start: Expression,
    /// The number of elements of the line before the tile.
    first: Expression,
}

/// Elements of a tile per thread, so that a tile and totals of threads fit in shared memory.
pub(crate) fn items(dtype: DType, shared_bytes: usize) -> usize {
    let fitting = shared_bytes / (THREADS * combined_in(dtype).size());
    1 << fitting.saturating_sub(1).clamp(1, MOST_ITEMS).ilog2()
}

impl ScanKernels {
    /// Elements of a tile.
    pub(crate) fn tile(self) -> usize {
        self.items * THREADS
    }

    pub(crate) fn key(self, kernel: ScanKernel) -> BlockKey {
        BlockKey::new(kernel.name())
            .dtype(self.dtype)
            .with(self.reduction as usize)
            .with(self.reverse)
            .with(self.exclusive)
            .with(self.items)
            .with(matches!(kernel, ScanKernel::CarriedTiles))
    }

    pub(crate) fn kernel(self, kernel: ScanKernel) -> BlockKernel {
        let k = Builder::new(kernel.name(), THREADS as u32);
        let x = k.input("x", self.dtype);
        match kernel {
            ScanKernel::Columns => self.columns(&k, x),
            ScanKernel::Totals => self.totals(&k, x),
            ScanKernel::Tiles => self.tiles(&k, x, None),
            ScanKernel::CarriedTiles => {
                let carried = k.input("carried", self.accumulator());
                self.tiles(&k, x, Some(carried));
            }
        }
        k.finish()
    }

    fn accumulator(self) -> DType {
        combined_in(self.dtype)
    }

    fn combine(self, a: &Expression, b: &Expression) -> Expression {
        a.binary(self.reduction.binary(), b)
    }

    /// The offset in its line of the element at a position of the scan.
    fn at(self, length: &Expression, position: &Expression) -> Expression {
        if self.reverse { length - index(1) - position } else { position.clone() }
    }

    fn columns(self, k: &Builder, x: Buffer) {
        let y = k.output("y", self.dtype);
        let identity = k.number("identity", self.accumulator());
        let [lines, length, after] = k.lengths(["lines", "length", "after"]);
        k.for_points(&lines, |line| {
            let start = k.bind(&(&line / &after * &length * &after + &line % &after));
            let total = k.var(&identity);
            k.for_each(&length, |position| {
                let at = k.bind(&(&start + self.at(&length, &position) * &after));
                let before = k.bind(&total.get());
                let including = k.bind(&self.combine(&before, &x.at(&at).cast(self.accumulator())));
                k.set(&total, &including);
                let result = if self.exclusive { before } else { including };
                k.store(&y, &at, &result.cast(self.dtype));
            });
        });
    }

    fn totals(self, k: &Builder, x: Buffer) {
        let totals = k.output("totals", self.accumulator());
        let identity = k.number("identity", self.accumulator());
        let [length, tiles] = k.lengths(["length", "tiles"]);
        let tile = self.load(k, x, &identity, [&length, &tiles]);
        let inclusive = self.totals_of_threads(k, &tile, &identity);
        k.when(&k.thread().eq(&index(THREADS - 1)), || k.store(&totals, &k.block(), &inclusive));
    }

    fn tiles(self, k: &Builder, x: Buffer, carried: Option<Buffer>) {
        let y = k.output("y", self.dtype);
        let identity = k.number("identity", self.accumulator());
        let [length, tiles] = k.lengths(["length", "tiles"]);
        let tile = self.load(k, x, &identity, [&length, &tiles]);
        let inclusive = self.totals_of_threads(k, &tile, &identity);
        k.put(&tile.totals, &k.thread(), &inclusive);
        k.barrier();
        let total = k.var(&carried.map_or(identity, |carried| carried.at(&k.block())));
        k.when(&index(0).lt(&k.thread()), || {
            let before = tile.totals.at(&(k.thread() - index(1)));
            k.set(&total, &self.combine(&total.get(), &before));
        });
        self.for_items(k, |at| {
            let before = k.bind(&total.get());
            let including = k.bind(&self.combine(&before, &tile.elements.at(at)));
            k.set(&total, &including);
            k.put(&tile.elements, at, if self.exclusive { &before } else { &including });
        });
        k.barrier();
        k.for_threads(&index(self.tile()), |e| {
            let position = k.bind(&(&tile.first + &e));
            k.when(&position.lt(&length), || {
                let result = tile.elements.at(&e).cast(self.dtype);
                k.store(&y, &(&tile.start + self.at(&length, &position)), &result);
            });
        });
    }

    /// Loads the tile of this block; the identity past the end of its line. It ends with a barrier.
    fn load(self, k: &Builder, x: Buffer, identity: &Expression, [length, tiles]: [&Expression; 2]) -> Tile {
        let tile = Tile {
            elements: k.shared(self.accumulator(), self.tile()),
            totals: k.shared(self.accumulator(), THREADS),
            start: k.bind(&(k.block() / tiles * length)),
            first: k.bind(&(k.block() % tiles * index(self.tile()))),
        };
        k.for_threads(&index(self.tile()), |e| {
            let position = k.bind(&(&tile.first + &e));
            let element = k.var(identity);
            k.when(&position.lt(length), || {
                let at = &tile.start + self.at(length, &position);
                k.set(&element, &x.at(&at).cast(self.accumulator()));
            });
            k.put(&tile.elements, &e, &element.get());
        });
        k.barrier();
        tile
    }

    /// Executes the body for the index in the tile of each element of this thread.
    fn for_items(self, k: &Builder, body: impl FnOnce(&Expression)) {
        let begin = k.bind(&(k.thread() * index(self.items)));
        k.for_each(&index(self.items), |item| {
            let at = k.bind(&(&begin + &item));
            body(&at);
        });
    }

    /// The total of all elements of a tile up to the last one of this thread. It ends with a barrier.
    fn totals_of_threads(self, k: &Builder, tile: &Tile, identity: &Expression) -> Expression {
        let own = k.var(identity);
        self.for_items(k, |at| k.set(&own, &self.combine(&own.get(), &tile.elements.at(at))));
        let mut distance = 1;
        while distance < THREADS {
            k.put(&tile.totals, &k.thread(), &own.get());
            k.barrier();
            k.when(&index(distance).le(&k.thread()), || {
                let before = tile.totals.at(&(k.thread() - index(distance)));
                k.set(&own, &self.combine(&before, &own.get()));
            });
            k.barrier();
            distance *= 2;
        }
        own.get()
    }
}

impl ScanKernel {
    fn name(self) -> &'static str {
        match self {
            ScanKernel::Columns => "scan_columns",
            ScanKernel::Totals => "scan_totals",
            ScanKernel::Tiles | ScanKernel::CarriedTiles => "scan_tiles",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::limits::{WEBGPU_SHARED, assert_within};

    #[test]
    fn kernels_of_all_dtypes_print() {
        let kernels = [ScanKernel::Columns, ScanKernel::Totals, ScanKernel::Tiles, ScanKernel::CarriedTiles];
        for dtype in DType::ALL {
            for reduction in [Reduction::Sum, Reduction::Prod, Reduction::Min, Reduction::Max] {
                for flags in [false, true] {
                    let items = items(dtype, WEBGPU_SHARED);
                    let scan = ScanKernels { reduction, dtype, reverse: flags, exclusive: !flags, items };
                    for kernel in kernels {
                        assert_within(&scan.kernel(kernel), WEBGPU_SHARED);
                    }
                }
            }
        }
    }

    #[test]
    fn tiles_fit_in_shared_memory() {
        assert_eq!(items(DType::F16, WEBGPU_SHARED), 8);
        assert_eq!(items(DType::I64, WEBGPU_SHARED), 4);
        assert_eq!(items(DType::F64, 48 << 10), 8);
    }
}
