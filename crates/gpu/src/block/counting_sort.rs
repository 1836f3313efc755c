//! Kernels of the counting sort of 8-bit elements. A block processes a chunk of a line, which consists of whole tiles.

use super::BlockKey;
use super::sort::{THREADS, Tile, sort_key, tile_length};
use crate::strided::bits;
use kiln_ir::DType;
use kiln_kernel::block::{Atomic, BlockKernel, Builder, Expression, constant, index};

/// The number of different keys.
pub(crate) const KEYS: usize = 256;

/// The kernels of one counting sort.
#[derive(Clone, Copy)]
pub(crate) struct CountingSort {
    /// The dtype of elements, of 8 bits.
    pub(crate) dtype: DType,
    /// The dtype of resulting indices.
    pub(crate) index: DType,
    /// Whether the order is reversed.
    pub(crate) descending: bool,
    /// Elements that a block sorts at once: a power of two.
    pub(crate) tile: usize,
}

/// The part of a line that a block processes.
struct Chunk {
    /// The offset of the line.
    line: Expression,
    /// The offset in `[lines, keys, chunks]` of the smallest key's count.
    count: Expression,
    /// The first element.
    first: Expression,
    /// The exclusive end.
    end: Expression,
}

/// Elements per tile, for which keys, places and two indices for each key fit in shared memory.
pub(crate) fn counted_tile(shared_bytes: usize) -> usize {
    tile_length(DType::U32, shared_bytes.saturating_sub(2 * KEYS * size_of::<i64>()))
}

impl CountingSort {
    pub(crate) fn count_key(self) -> BlockKey {
        BlockKey::new("sort_count").dtype(self.dtype).with(self.descending)
    }

    /// Computes the histogram of each chunk: `[lines, keys, chunks]`.
    ///
    /// Parameters: `x`, counts, and the numbers of elements of a line, of chunks of a line, and of elements of a chunk.
    pub(crate) fn count(self) -> BlockKernel {
        let k = Builder::new("sort_count", THREADS as u32);
        let (x, counts) = (k.input("x", bits(self.dtype)), k.output("counts", DType::U32));
        let lengths = k.lengths(["length", "chunks", "chunk"]);
        let chunk = Chunk::new(&k, &lengths);
        let count = k.shared_atomic(DType::U32, KEYS);
        k.for_threads(&index(KEYS), |key| k.put(&count, &key, &constant(0, DType::U32)));
        k.barrier();
        k.for_range(&(&chunk.first + k.thread()), &chunk.end, &index(THREADS), |at| {
            let element = x.at(&(&chunk.line + &at));
            let key = sort_key(&k, &element, self.dtype, self.descending);
            k.atomic_shared(&count, &key.to_index(), Atomic::Add, &constant(1, DType::U32));
        });
        k.barrier();
        k.for_threads(&index(KEYS), |key| {
            k.store(&counts, &(&chunk.count + &key * &lengths[1]), &count.at(&key));
        });
        k.finish()
    }

    pub(crate) fn spread_key(self) -> BlockKey {
        BlockKey::new("sort_spread").dtype(self.dtype).dtype(self.index).with(self.descending).with(self.tile)
    }

    /// Moves each element to its sorted position, if that is among the first to keep. The position follows smaller
    /// keys, equal keys of earlier chunks, and equal keys of the same chunk.
    ///
    /// Parameters: `x`; starts, values and indices; and the numbers of elements of a line, of chunks of a line, of elements
    /// of a chunk, and of elements of a line to keep. Starts are `[lines, keys, chunks]`: the position in the sorted line
    /// of the chunk's first element with the key.
    pub(crate) fn spread(self) -> BlockKernel {
        let k = Builder::new("sort_spread", THREADS as u32);
        let (x, starts) = (k.input("x", bits(self.dtype)), k.input("starts", DType::U32));
        let (values, indices) = (k.output("values", bits(self.dtype)), k.output("indices", self.index));
        let lengths = k.lengths(["length", "chunks", "chunk"]);
        let keep = k.length("keep");
        let chunk = Chunk::new(&k, &lengths);
        let tile = Tile::new(&k, DType::U32, self.tile);
        // For each key: the position of the next element in the result, and the first element in the tile.
        let (start, first) = (k.shared_indices(KEYS), k.shared_indices(KEYS));
        k.for_threads(&index(KEYS), |key| {
            k.put(&start, &key, &starts.at(&(&chunk.count + &key * &lengths[1])).to_index());
        });
        k.for_range(&chunk.first, &chunk.end, &index(self.tile), |begin| {
            let count = k.bind(&(&chunk.end - &begin).min(&index(self.tile)));
            self.load(&k, &tile, &count, |e| x.at(&(&chunk.line + &begin + e)));
            tile.sort(&k, &index(self.tile));
            tile.for_runs(&k, &count, |key, e, is_first, _| {
                k.when(is_first, || k.put(&first, key, e));
            });
            k.barrier();
            k.for_threads(&count, |e| {
                let key = k.bind(&tile.keys.at(&e).to_index());
                let place = k.bind(&(&begin + tile.places.at(&e).to_index()));
                let to = k.bind(&(start.at(&key) + &e - first.at(&key)));
                k.when(&to.lt(&keep), || {
                    let to = k.bind(&(k.block() / &lengths[1] * &keep + &to));
                    k.store(&values, &to, &x.at(&(&chunk.line + &place)));
                    k.store(&indices, &to, &place.cast(self.index));
                });
            });
            k.barrier();
            tile.for_runs(&k, &count, |key, e, _, is_last| {
                k.when(is_last, || k.put(&start, key, &(start.at(key) + e + index(1) - first.at(key))));
            });
            k.barrier();
        });
        k.finish()
    }

    /// Loads elements into a tile, as keys with their places in the tile. It ends with a barrier.
    fn load(
        self,
        k: &Builder,
        tile: &Tile,
        count: &Expression,
        element: impl FnOnce(&Expression) -> Expression,
    ) {
        k.for_threads(&index(self.tile), |e| {
            // Padding sorts last: its key is greater than all others.
            let key = k.var(&constant(u32::MAX, DType::U32));
            k.when(&e.lt(count), || k.set(&key, &sort_key(k, &element(&e), self.dtype, self.descending)));
            k.put(&tile.keys, &e, &key.get());
            k.put(&tile.places, &e, &e.cast(DType::I32));
        });
        k.barrier();
    }
}

impl Chunk {
    fn new(k: &Builder, [length, chunks, chunk]: &[Expression; 3]) -> Chunk {
        let line = k.bind(&(k.block() / chunks));
        let number = k.bind(&(k.block() % chunks));
        let first = k.bind(&(&number * chunk));
        Chunk {
            count: k.bind(&(&line * index(KEYS) * chunks + &number)),
            line: k.bind(&(&line * length)),
            end: k.bind(&(&first + chunk).min(length)),
            first,
        }
    }
}

impl Tile {
    /// Executes the body for each of the first `count` elements of a sorted tile. The body gets the key, the index, and
    /// whether the element is the first and the last one with this key.
    fn for_runs(
        &self,
        k: &Builder,
        count: &Expression,
        body: impl FnOnce(&Expression, &Expression, &Expression, &Expression),
    ) {
        k.for_threads(count, |e| {
            let key = k.bind(&self.keys.at(&e));
            // The operands of a condition may all be evaluated, so the indices of neighbours are in range.
            let before = self.keys.at(&(&e - index(1)).max(&index(0)));
            let after = self.keys.at(&(&e + index(1)).min(&index(self.length - 1)));
            let is_first = e.eq(&index(0)) | before.ne(&key);
            let is_last = (&e + index(1)).eq(count) | after.ne(&key);
            body(&key.to_index(), &e, &is_first, &is_last);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::limits::{WEBGPU_SHARED, assert_within};

    #[test]
    fn kernels_of_all_dtypes_print() {
        for dtype in [DType::I8, DType::U8, DType::Bool] {
            for descending in [false, true] {
                let index = if descending { DType::I32 } else { DType::I64 };
                let sort = CountingSort { dtype, index, descending, tile: counted_tile(WEBGPU_SHARED) };
                assert_within(&sort.count(), WEBGPU_SHARED);
                assert_within(&sort.spread(), WEBGPU_SHARED);
            }
        }
        assert_eq!([WEBGPU_SHARED, 48 << 10].map(counted_tile), [1024, 2048]);
    }
}
