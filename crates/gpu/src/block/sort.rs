//! Kernels of sorting and top-k: tiles sorted in shared memory, and merges of sorted runs.
//!
//! Elements are read and copied as unsigned integers. Their sort keys have the order of the elements: NaN is greatest,
//! and both zeros are equal. Equal keys are ordered by index, so the order is total and the sort stable.

use super::BlockKey;
use crate::strided::bits;
use kiln_ir::DType;
use kiln_kernel::block::{Array, BlockKernel, Buffer, Builder, Expression, Type, constant, index, select};

/// Threads per block.
pub(super) const THREADS: usize = 256;

/// The most elements per tile.
const MOST_ELEMENTS: usize = 2048;

/// Sorts tiles of elements, or of keys and places, and keeps the first elements of each.
///
/// Parameters: `x` of elements or for results; `keys` and `places` unless of elements; values and indices, or keys and
/// places; the numbers of lines, elements of a line, tiles of a line, elements of a segment, kept elements of a
/// segment, kept elements of a line, and elements of a line of `x`. A block sorts a tile, which consists of whole
/// segments. The length of a segment is a power of two.
#[derive(Clone, Copy)]
pub(crate) struct SortTiles {
    /// The dtype of elements.
    pub(crate) dtype: DType,
    /// The dtype of resulting indices.
    pub(crate) index: DType,
    /// Whether the order is reversed.
    pub(crate) descending: bool,
    /// Elements per block: a power of two.
    pub(crate) tile: usize,
    /// Whether it reads elements, otherwise keys and places.
    pub(crate) from_elements: bool,
    /// Whether it writes values and indices, otherwise keys and places.
    pub(crate) to_results: bool,
}

/// The source of a tile.
enum Source {
    Elements(Buffer),
    Sorted([Buffer; 2]),
}

/// The target of a tile: values and indices of these elements, or keys and places.
enum Target {
    Results(Buffer, [Buffer; 2]),
    Sorted([Buffer; 2]),
}

/// A tile in shared memory: keys, and indices of their elements.
pub(super) struct Tile {
    pub(super) keys: Array,
    pub(super) places: Array,
    key: DType,
    pub(super) length: usize,
}

/// The dtype of the sort keys of elements.
pub(crate) fn key_dtype(element: DType) -> DType {
    if element.size() == 8 { DType::U64 } else { DType::U32 }
}

/// Elements per tile: the greatest power of two for which keys and places fit in shared memory.
pub(crate) fn tile_length(key: DType, shared_bytes: usize) -> usize {
    let fitting = shared_bytes / (key.size() + DType::I32.size());
    1 << fitting.clamp(THREADS, MOST_ELEMENTS).ilog2()
}

impl SortTiles {
    pub(crate) fn key(self) -> BlockKey {
        BlockKey::new("sort_tiles")
            .dtype(self.dtype)
            .dtype(self.index)
            .with(self.descending)
            .with(self.tile)
            .with(self.from_elements)
            .with(self.to_results)
    }

    pub(crate) fn kernel(self) -> BlockKernel {
        let k = Builder::new("sort_tiles", THREADS as u32);
        let (element, key) = (bits(self.dtype), key_dtype(self.dtype));
        let x = (self.from_elements || self.to_results).then(|| k.input("x", element));
        let from = match x {
            Some(x) if self.from_elements => Source::Elements(x),
            Some(_) | None => Source::Sorted([k.input("keys", key), k.input("places", DType::I32)]),
        };
        let to = match x {
            Some(x) if self.to_results => {
                Target::Results(x, [k.output("values", element), k.output("indices", self.index)])
            }
            Some(_) | None => {
                Target::Sorted([k.output("next_keys", key), k.output("next_places", DType::I32)])
            }
        };
        let [lines, length, tiles, segment, keep, kept, x_length] =
            k.lengths(["lines", "length", "tiles", "segment", "keep", "kept", "x_length"]);
        let tile = Tile::new(&k, key, self.tile);
        let first = k.bind(&(k.block() * (index(self.tile) / &segment)));
        let units = k.bind(&(&lines * &tiles));
        k.for_threads(&index(self.tile), |e| {
            let unit = k.bind(&(&first + &e / &segment));
            let at = k.bind(&(&unit % &tiles * &segment + &e % &segment));
            // Padding sorts last: no element has this index.
            let tile_key = k.var(&constant(mask(key), key));
            let tile_place = k.var(&constant(i32::MAX, DType::I32));
            k.when(&(unit.lt(&units) & at.lt(&length)), || {
                let source = k.bind(&(&unit / &tiles * &length + &at));
                let [own_key, own_place] = match &from {
                    Source::Elements(x) => {
                        [sort_key(&k, &x.at(&source), self.dtype, self.descending), at.cast(DType::I32)]
                    }
                    Source::Sorted([keys, places]) => [keys.at(&source), places.at(&source)],
                };
                k.set(&tile_key, &own_key);
                k.set(&tile_place, &own_place);
            });
            k.put(&tile.keys, &e, &tile_key.get());
            k.put(&tile.places, &e, &tile_place.get());
        });
        k.barrier();
        tile.sort(&k, &segment);
        k.for_threads(&index(self.tile), |e| {
            let unit = k.bind(&(&first + &e / &segment));
            let line = k.bind(&(&unit / &tiles));
            let within = k.bind(&(&e % &segment));
            let at = k.bind(&(&unit % &tiles * &segment + &within));
            k.when(&(unit.lt(&units) & within.lt(&keep) & at.lt(&length)), || {
                let target = k.bind(&(&line * &kept + &unit % &tiles * &keep + &within));
                let place = k.bind(&tile.places.at(&e));
                match &to {
                    Target::Results(x, [values, indices]) => {
                        k.store(values, &target, &x.at(&(&line * &x_length + place.to_index())));
                        k.store(indices, &target, &place.cast(self.index));
                    }
                    Target::Sorted([keys, places]) => {
                        k.store(keys, &target, &tile.keys.at(&e));
                        k.store(places, &target, &place);
                    }
                }
            });
        });
        k.finish()
    }
}

impl Tile {
    pub(super) fn new(k: &Builder, key: DType, length: usize) -> Tile {
        Tile { keys: k.shared(key, length), places: k.shared(DType::I32, length), key, length }
    }

    /// Sorts segments, whose length is a power of two, by a bitonic network. It ends with a barrier.
    pub(super) fn sort(&self, k: &Builder, segment: &Expression) {
        let number = |number: i32| constant(number, DType::I32);
        let segment = k.bind(&segment.cast(DType::I32));
        let width = k.var(&number(2));
        k.while_true(&width.get().le(&segment), || {
            let distance = k.var(&width.get().shr(1));
            k.while_true(&number(0).lt(&distance.get()), || {
                k.for_threads(&index(self.length / 2), |pair| {
                    let pair = k.bind(&pair.cast(DType::I32));
                    // A pair's number is its lower element's without the bit of the distance.
                    let low = k.bind(&(&pair + &pair - (&pair & (distance.get() - number(1)))));
                    let up = (&low & (&segment - number(1)) & width.get()).eq(&number(0));
                    self.exchange(k, &low.to_index(), &(&low + distance.get()).to_index(), &up);
                });
                k.barrier();
                k.set(&distance, &distance.get().shr(1));
            });
            k.set(&width, &width.get().shl(1));
        });
    }

    /// Puts two elements into ascending order, or into descending order.
    fn exchange(&self, k: &Builder, low: &Expression, high: &Expression, ascending: &Expression) {
        let [low, high] = [k.bind(low), k.bind(high)];
        let [key_a, key_b] = [&low, &high].map(|at| k.bind(&self.keys.at(at)));
        let [place_a, place_b] = [&low, &high].map(|at| k.bind(&self.places.at(at)));
        let is_after = key_a.gt(&key_b) | (key_a.eq(&key_b) & place_a.gt(&place_b));
        k.when(&is_after.eq(ascending), || {
            k.put(&self.keys, &low, &key_b);
            k.put(&self.keys, &high, &key_a);
            k.put(&self.places, &low, &place_b);
            k.put(&self.places, &high, &place_a);
        });
    }
}

/// All bits of an unsigned dtype.
fn mask(dtype: DType) -> u64 {
    u64::MAX >> (64 - dtype.size() * 8)
}

/// The sort key of an element, which is given by its bits. It is computed by integer functions: floats of a shader
/// may lose NaN and subnormal numbers.
pub(super) fn sort_key(k: &Builder, element: &Expression, dtype: DType, descending: bool) -> Expression {
    let key = key_dtype(dtype);
    let element = k.bind(&element.cast(key));
    let number = |number: u64| constant(number, key);
    let all = mask(dtype);
    let sign = all ^ (all >> 1);
    let ascending = match infinity(dtype) {
        Some(infinity) => {
            let magnitude = k.bind(&(&element & number(all >> 1)));
            let is_nan = number(infinity).lt(&magnitude);
            let is_negative = number(sign).le(&element) & magnitude.ne(&number(0));
            let of_number = select(&is_negative, &(&element ^ number(all)), &(&magnitude | number(sign)));
            select(&is_nan, &number(all), &of_number)
        }
        None if dtype.is_signed_int() => &element ^ number(sign),
        None => element,
    };
    if descending { ascending ^ number(all) } else { ascending }
}

/// The bits of the positive infinity of a float dtype.
fn infinity(dtype: DType) -> Option<u64> {
    match dtype {
        DType::F64 => Some(0x7ff << 52),
        DType::F32 => Some(0xff << 23),
        DType::F16 => Some(0x1f << 10),
        DType::BF16 => Some(0xff << 7),
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => None,
    }
}

/// The key of [`merge`].
pub(crate) fn merge_key(key: DType, tile: usize) -> BlockKey {
    BlockKey::new("sort_merge").dtype(key).with(tile)
}

/// Merges neighbouring sorted runs of keys and places by merge path. A block writes one tile.
///
/// Parameters: keys and places, their results, the elements of a line, the tiles of a line, and the elements of a run,
/// a multiple of the tile.
pub(crate) fn merge(key: DType, tile: usize) -> BlockKernel {
    let k = Builder::new("sort_merge", THREADS as u32);
    let (keys, places) = (k.input("keys", key), k.input("places", DType::I32));
    let (next_keys, next_places) = (k.output("next_keys", key), k.output("next_places", DType::I32));
    let [length, tiles, run] = k.lengths(["length", "tiles", "run"]);
    let shared = Tile::new(&k, key, tile);
    let thread = k.thread();
    let line = k.bind(&(k.block() / &tiles * &length));
    let to = k.bind(&(k.block() % &tiles * index(tile)));
    let both = k.bind(&(&run + &run));
    let start = k.bind(&(&to / &both * &both));
    let middle = k.bind(&(&start + &run).min(&length));
    let end = k.bind(&(&start + &both).min(&length));
    let from = k.bind(&(&to - &start));
    let count = k.bind(&(&end - &to).min(&index(tile)));
    // The memory of places holds the splits at both ends of the tile until the tile is loaded.
    k.when(&thread.lt(&index(2)), || {
        let diagonal = k.bind(&(&from + &thread * &count));
        let a_at = |at: &Expression| keys.at(&(&line + &start + at));
        let b_at = |at: &Expression| keys.at(&(&line + &middle + at));
        let split = split(&k, [&(&middle - &start), &(&end - &middle)], &diagonal, a_at, b_at);
        k.put(&shared.places, &thread, &split.cast(DType::I32));
    });
    k.barrier();
    let a_first = k.bind(&shared.places.at(&index(0)).to_index());
    let a_count = k.bind(&(shared.places.at(&index(1)).to_index() - &a_first));
    let b_count = k.bind(&(&count - &a_count));
    k.barrier();
    k.for_threads(&count, |e| {
        let in_a = &start + &a_first + &e;
        let in_b = &middle + &from - &a_first + &e - &a_count;
        let at = k.bind(&(&line + select(&e.lt(&a_count), &in_a, &in_b)));
        k.put(&shared.keys, &e, &keys.at(&at));
        k.put(&shared.places, &e, &places.at(&at));
    });
    k.barrier();
    merge_in_tile(&k, &shared, [&a_count, &b_count]);
    k.for_threads(&count, |e| {
        let at = k.bind(&(&line + &to + &e));
        k.store(&next_keys, &at, &shared.keys.at(&e));
        k.store(&next_places, &at, &shared.places.at(&e));
    });
    k.finish()
}

/// Merges two neighbouring sorted runs in shared memory. Each thread merges its own consecutive elements. It ends with
/// a barrier.
fn merge_in_tile(k: &Builder, shared: &Tile, [a_count, b_count]: [&Expression; 2]) {
    let each = shared.length.div_ceil(THREADS);
    let begin = k.bind(&(k.thread() * index(each)));
    let own = k.bind(&(a_count + b_count - &begin).min(&index(each)));
    let own_keys = k.array(Type::Value(shared.key), each);
    let own_places = k.array(Type::Value(DType::I32), each);
    let b_at = |at: &Expression| shared.keys.at(&(a_count + at));
    k.when(&index(0).lt(&own), || {
        let a = k.var(&split(k, [a_count, b_count], &begin, |at| shared.keys.at(at), b_at));
        k.for_each(&own, |i| {
            let at_a = k.bind(&a.get());
            let at_b = k.bind(&(&begin + &i - &at_a));
            // The operands of a condition may all be evaluated, so the indices are in range even at the ends of runs.
            let last = index(shared.length - 1);
            let key_a = shared.keys.at(&at_a.min(&last));
            let key_b = shared.keys.at(&(a_count + &at_b).min(&last));
            let is_a = k.bind(&(b_count.le(&at_b) | (at_a.lt(a_count) & key_a.le(&key_b))));
            let at = k.bind(&select(&is_a, &at_a, &(a_count + &at_b)));
            k.put(&own_keys, &i, &shared.keys.at(&at));
            k.put(&own_places, &i, &shared.places.at(&at));
            k.set(&a, &select(&is_a, &(&at_a + index(1)), &at_a));
        });
    });
    k.barrier();
    k.for_each(&own, |i| {
        k.put(&shared.keys, &(&begin + &i), &own_keys.at(&i));
        k.put(&shared.places, &(&begin + &i), &own_places.at(&i));
    });
    k.barrier();
}

/// Merge path: the number of elements from the first run among the first `diagonal` elements of two merged runs.
fn split(
    k: &Builder,
    [a_length, b_length]: [&Expression; 2],
    diagonal: &Expression,
    a_at: impl Fn(&Expression) -> Expression,
    b_at: impl Fn(&Expression) -> Expression,
) -> Expression {
    let low = k.var(&(diagonal - b_length).max(&index(0)));
    let high = k.var(&diagonal.min(a_length));
    k.while_true(&low.get().lt(&high.get()), || {
        let middle = k.bind(&((low.get() + high.get()) / index(2)));
        let in_b = diagonal - index(1) - &middle;
        let is_a = a_at(&middle).le(&b_at(&in_b));
        k.when_else(&is_a, || k.set(&low, &(&middle + index(1))), || k.set(&high, &middle));
    });
    low.get()
}

/// The key of [`ordered`].
pub(crate) fn ordered_key(dtype: DType, index: DType) -> BlockKey {
    BlockKey::new("sort_ordered").dtype(bits(dtype)).dtype(index)
}

/// Writes the first elements of each line from their indices, one point for each result.
///
/// Parameters: `x`, places, values, indices, the number of points, the elements of a line, and those of them to keep.
pub(crate) fn ordered(dtype: DType, index: DType) -> BlockKernel {
    let k = Builder::new("sort_ordered", THREADS as u32);
    let (x, places) = (k.input("x", bits(dtype)), k.input("places", DType::I32));
    let (values, indices) = (k.output("values", bits(dtype)), k.output("indices", index));
    let [total, length, keep] = k.lengths(["total", "length", "keep"]);
    k.for_points(&total, |p| {
        let line = k.bind(&(&p / &keep * &length));
        let place = k.bind(&places.at(&(&line + &p % &keep)));
        k.store(&values, &p, &x.at(&(&line + place.to_index())));
        k.store(&indices, &p, &place.cast(index));
    });
    k.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::limits::{WEBGPU_SHARED, assert_within};

    #[test]
    fn kernels_of_all_dtypes_print() {
        for dtype in DType::ALL {
            let key = key_dtype(dtype);
            for shared in [WEBGPU_SHARED, 48 << 10] {
                let tile = tile_length(key, shared);
                assert_within(&merge(key, tile), shared);
                for flags in 0..8 {
                    let kernel = SortTiles {
                        dtype,
                        index: if flags % 2 == 0 { DType::I64 } else { DType::I32 },
                        descending: flags % 2 == 1,
                        tile,
                        from_elements: flags & 2 == 0,
                        to_results: flags & 4 == 0,
                    };
                    assert_within(&kernel.kernel(), shared);
                }
            }
            for index in [DType::I64, DType::I32, DType::U8, DType::F32] {
                assert_within(&ordered(dtype, index), WEBGPU_SHARED);
            }
        }
    }

    #[test]
    fn tiles_fit_in_shared_memory() {
        assert_eq!(tile_length(DType::U32, WEBGPU_SHARED), 2048);
        assert_eq!(tile_length(DType::U64, WEBGPU_SHARED), 1024);
        assert_eq!(tile_length(DType::U64, 48 << 10), 2048);
    }

    #[test]
    fn infinities_are_those_of_the_formats() {
        assert_eq!(infinity(DType::F64), Some(f64::INFINITY.to_bits()));
        assert_eq!(infinity(DType::F32), Some(f32::INFINITY.to_bits().into()));
        assert_eq!(infinity(DType::F16), Some(half::f16::INFINITY.to_bits().into()));
        assert_eq!(infinity(DType::BF16), Some(half::bf16::INFINITY.to_bits().into()));
    }
}
