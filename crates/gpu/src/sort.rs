//! Sorting and top-k.

use crate::Gpu;
use crate::array::Array;
use crate::block::counting_sort::{CountingSort, KEYS, counted_tile};
use crate::block::sort::{self, SortTiles};
use crate::driver::{Argument, Arguments, Driver};
use crate::memory::Block;
use crate::native::{Native, length};
use crate::view::tensor;
use kiln_ir::{Axes, DType, Engine, Op, Operand, Operands, Reduction, Result, Shape, TensorType, Values};
use kiln_kernel::print::memory_type;
use smallvec::{SmallVec, smallvec};

const SOURCE: &str = include_str!("native/sort.cu");

/// Elements that one block of a hand-written kernel sorts: `KILN_TILE` of the source.
const TILE: usize = 2048;

/// The number of chunks of an 8-bit line from which chunks grow instead.
const MOST_CHUNKS: usize = 512;

/// The maximum number of tiles per chunk.
const MOST_TILES: usize = 16;

/// Whether a counting sort is used: 8-bit elements, too many results for one tile, and a length that 32-bit counts
/// hold.
fn is_counted(dtype: DType, len: usize, keep: usize) -> bool {
    dtype.size() == 1 && len > TILE && keep * 2 > TILE && u32::try_from(len).is_ok()
}

/// An operand as contiguous lines.
pub(crate) struct Lines<D: Driver> {
    pub(crate) array: Array<D>,
    pub(crate) count: usize,
    pub(crate) length: usize,
    /// The permutation of the result that puts the sorted axis last.
    order: Axes,
}

/// Sort keys and element indices, equally many for each line.
struct Sorted<D: Driver> {
    keys: Block<D>,
    places: Block<D>,
    length: usize,
}

/// The input and outputs of a sort.
struct Sort<'a, D: Driver> {
    lines: &'a Lines<D>,
    dtype: DType,
    key: DType,
    /// Elements that one block sorts.
    tile: usize,
    descending: bool,
    /// Elements to keep per line.
    keep: usize,
    values: &'a Array<D>,
    indices: &'a Array<D>,
    index: DType,
}

impl<D: Driver> Gpu<D> {
    /// [`Op::Sort`] and [`Op::TopK`]; the first result's length is the number of kept elements.
    pub(crate) fn sort(
        &self,
        op: &Op,
        axis: usize,
        descending: bool,
        inputs: Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let (x, ty) = tensor::<D>(&inputs, 0)?;
        let dtype = ty.dtype;
        let keep = results[0].shape[axis];
        let counts = is_counted(dtype, ty.shape[axis], keep);
        if !counts && (i32::try_from(ty.shape[axis]).is_err() || ty.shape[axis] == i32::MAX as usize) {
            return self.expanded(op, inputs, results);
        }
        let lines = self.lines(x, dtype, axis)?;
        let (values, indices) = (self.uninit(&results[0])?, self.uninit(&results[1])?);
        if results[0].num_elements() > 0 {
            let key = if counts { DType::U8 } else { sort::key_dtype(dtype) };
            let index = results[1].dtype;
            let sort = Sort {
                lines: &lines,
                dtype,
                key,
                tile: self.sort_tile(key),
                descending,
                keep,
                values: &values,
                indices: &indices,
                index,
            };
            if counts { self.sort_by_counts(&sort)? } else { self.sort_lines(&sort)? }
        }
        let values = lines.result(values, &results[0].shape);
        let indices = lines.result(indices, &results[1].shape);
        Ok(smallvec![values.into_value(results[0]), indices.into_value(results[1])])
    }

    /// An operand with an axis moved to the end.
    pub(crate) fn lines(&self, x: &Array<D>, dtype: DType, axis: usize) -> Result<Lines<D>> {
        let shape = x.layout.shape;
        let others = (0..shape.rank()).filter(|&other| other != axis).chain([axis]);
        let order = Axes::new(&others.collect::<SmallVec<[usize; 12]>>());
        let array = self.contiguous(&x.with_layout(x.layout.permute(&order)), dtype)?;
        let length = shape[axis];
        let count = shape.with(axis, 1).num_elements();
        Ok(Lines { array, count, length, order })
    }

    /// Elements that one block sorts by these keys; those of 8 bits are counted.
    fn sort_tile(&self, key: DType) -> usize {
        let shared = self.driver.info().shared_bytes;
        if self.has_native() {
            TILE
        } else if key == DType::U8 {
            counted_tile(shared)
        } else {
            sort::tile_length(key, shared)
        }
    }

    fn sort_lines(&self, sort: &Sort<'_, D>) -> Result<()> {
        let Lines { count, length: len, .. } = *sort.lines;
        if len <= sort.tile {
            return self.tiles(sort, None, len, len.next_power_of_two(), None);
        }
        if sort.keep * 2 <= sort.tile {
            return self.first_of_tiles(sort);
        }
        let sorted = || self.sorted(sort.key, count, len);
        let (mut from, mut to) = (sorted()?, sorted()?);
        self.tiles(sort, None, len, sort.tile, Some(&from))?;
        let mut run = sort.tile;
        while run < len {
            self.merge(sort, &from, &to, run)?;
            (from, to) = (to, from);
            run *= 2;
        }
        self.ordered(sort, &from)
    }

    /// Writes the kept elements of each line from their indices.
    fn ordered(&self, sort: &Sort<'_, D>, from: &Sorted<D>) -> Result<()> {
        let total = sort.lines.count * sort.keep;
        let arguments = smallvec![
            sort.lines.array.place(sort.dtype),
            from.places(),
            sort.values.place(sort.dtype),
            sort.indices.place(sort.index),
            length(total),
            length(sort.lines.length),
            length(sort.keep),
        ];
        if self.has_native() {
            return self.native(sort.native("kiln_ordered", "KILN_ORDERED"), total, arguments);
        }
        let key = sort::ordered_key(sort.dtype, sort.index);
        self.run_points(key, || sort::ordered(sort.dtype, sort.index), total, arguments)
    }

    /// Counting sort of long lines of 8-bit elements. The histogram of each chunk determines where its elements are
    /// written. It needs a few bytes of scratch memory per [`TILE`].
    fn sort_by_counts(&self, sort: &Sort<'_, D>) -> Result<()> {
        let Lines { count, length: len, .. } = *sort.lines;
        let tile = sort.tile;
        let chunk = tile * (len / (MOST_CHUNKS * tile)).clamp(1, MOST_TILES);
        let chunks = len.div_ceil(chunk);
        let ty = TensorType::new([count, KEYS * chunks], DType::U32);
        let counts = self.uninit(&ty)?;
        let arguments = smallvec![
            sort.lines.array.place(sort.dtype),
            counts.place(ty.dtype),
            length(len),
            length(chunks),
            length(chunk),
        ];
        let kernels = sort.counting();
        if self.has_native() {
            self.native_blocks(sort.native_counting("kiln_count", "KILN_COUNT"), count * chunks, arguments)?;
        } else {
            self.run_blocks(kernels.count_key(), || kernels.count(), count * chunks, arguments)?;
        }
        let scan = Op::Scan { reduction: Reduction::Sum, axis: 1, reverse: false, exclusive: true };
        let starts = self.execute(&scan, smallvec![Operand::Value(counts.into_value(ty))], &[ty]).remove(0);
        let starts = self.contiguous(Array::<D>::of(&starts)?, ty.dtype)?;
        let arguments = smallvec![
            sort.lines.array.place(sort.dtype),
            starts.place(ty.dtype),
            sort.values.place(sort.dtype),
            sort.indices.place(sort.index),
            length(len),
            length(chunks),
            length(chunk),
            length(sort.keep),
        ];
        if self.has_native() {
            self.native_blocks(sort.native_counting("kiln_spread", "KILN_SPREAD"), count * chunks, arguments)
        } else {
            self.run_blocks(kernels.spread_key(), || kernels.spread(), count * chunks, arguments)
        }
    }

    /// Top-k of many: the first elements of each tile, repeatedly, until one tile holds them all.
    fn first_of_tiles(&self, sort: &Sort<'_, D>) -> Result<()> {
        let mut from: Option<Sorted<D>> = None;
        let mut len = sort.lines.length;
        while len > sort.tile {
            let rest = len % sort.tile;
            let kept = len / sort.tile * sort.keep + rest.min(sort.keep);
            let to = self.sorted(sort.key, sort.lines.count, kept)?;
            self.tiles(sort, from.as_ref(), len, sort.tile, Some(&to))?;
            (from, len) = (Some(to), kept);
        }
        self.tiles(sort, from.as_ref(), len, len.next_power_of_two(), None)
    }

    fn sorted(&self, key: DType, count: usize, length: usize) -> Result<Sorted<D>> {
        let elements = count.saturating_mul(length);
        let keys = self.block(elements.saturating_mul(key.size()))?;
        Ok(Sorted { keys, places: self.block(elements.saturating_mul(4))?, length })
    }

    /// Sorts segments of that many elements of the operand or of partly sorted data, into the results or into scratch
    /// memory.
    fn tiles(
        &self,
        sort: &Sort<'_, D>,
        from: Option<&Sorted<D>>,
        len: usize,
        segment: usize,
        to: Option<&Sorted<D>>,
    ) -> Result<()> {
        let lines = sort.lines;
        let segments = len.div_ceil(segment);
        // Whole segments are merged later; otherwise only the kept elements are.
        let keep = match to {
            Some(to) if to.length == len => segment,
            Some(_) | None => sort.keep,
        };
        let kept = to.map_or(sort.keep, |to| to.length);
        let lengths = [lines.count, len, segments, segment, keep, kept, lines.length].map(length);
        let blocks = (lines.count * segments).div_ceil(sort.tile / segment);
        if self.has_native() {
            let arguments = sort.native_tensors(from, to).into_iter().chain(lengths).collect();
            return self.native_blocks(sort.native_tiles(from, to), blocks, arguments);
        }
        let kernel = SortTiles {
            dtype: sort.dtype,
            index: sort.index,
            descending: sort.descending,
            tile: sort.tile,
            from_elements: from.is_none(),
            to_results: to.is_none(),
        };
        let arguments = sort.tensors(from, to).into_iter().chain(lengths).collect();
        self.run_blocks(kernel.key(), || kernel.kernel(), blocks, arguments)
    }

    fn merge(&self, sort: &Sort<'_, D>, from: &Sorted<D>, to: &Sorted<D>, run: usize) -> Result<()> {
        let tiles = from.length.div_ceil(sort.tile);
        let arguments = smallvec![
            from.keys(),
            from.places(),
            to.keys(),
            to.places(),
            length(from.length),
            length(tiles),
            length(run),
        ];
        let blocks = sort.lines.count * tiles;
        if self.has_native() {
            return self.native_blocks(sort.native("kiln_merge", "KILN_MERGE"), blocks, arguments);
        }
        let key = sort::merge_key(sort.key, sort.tile);
        self.run_blocks(key, || sort::merge(sort.key, sort.tile), blocks, arguments)
    }
}

impl<D: Driver> Lines<D> {
    /// The result of a per-line computation, `[lines.., axis]` without gaps, permuted to the axes of the result.
    pub(crate) fn result(&self, array: Array<D>, shape: &Shape) -> Array<D> {
        let moved: Shape = self.order.iter().map(|axis| shape[axis]).collect();
        let layout = kiln_ir::Layout::contiguous(moved).permute(&self.order.inverse());
        Array { layout, suspicions: self.array.suspicions.clone(), ..array }
    }
}

impl<D: Driver> Sorted<D> {
    fn keys(&self) -> Argument<D::Memory> {
        Argument::Pointer(self.keys.at(0))
    }

    fn places(&self) -> Argument<D::Memory> {
        Argument::Pointer(self.places.at(0))
    }
}

impl<D: Driver> Sort<'_, D> {
    /// The tensors that a [`SortTiles`] binds.
    fn tensors(&self, from: Option<&Sorted<D>>, to: Option<&Sorted<D>>) -> Arguments<D::Memory> {
        let mut tensors = Arguments::new();
        if from.is_none() || to.is_none() {
            tensors.push(self.lines.array.place(self.dtype));
        }
        tensors.extend(from.into_iter().flat_map(|from| [from.keys(), from.places()]));
        match to {
            Some(to) => tensors.extend([to.keys(), to.places()]),
            None => tensors.extend([self.values.place(self.dtype), self.indices.place(self.index)]),
        }
        tensors
    }

    /// The tensors of the hand-written kernel, which has all parameters in each form. Any pointer takes the place of
    /// those that it does not use.
    fn native_tensors(&self, from: Option<&Sorted<D>>, to: Option<&Sorted<D>>) -> Arguments<D::Memory> {
        let x = || self.lines.array.place(self.dtype);
        smallvec![
            x(),
            from.map_or_else(x, Sorted::keys),
            from.map_or_else(x, Sorted::places),
            to.map_or_else(x, Sorted::keys),
            to.map_or_else(x, Sorted::places),
            self.values.place(self.dtype),
            self.indices.place(self.index),
        ]
    }

    fn counting(&self) -> CountingSort {
        CountingSort { dtype: self.dtype, index: self.index, descending: self.descending, tile: self.tile }
    }

    fn native_counting(&self, entry: &'static str, part: &'static str) -> Native {
        self.native(entry, part).name("FROM_ELEMENTS", "")
    }

    fn native_tiles(&self, from: Option<&Sorted<D>>, to: Option<&Sorted<D>>) -> Native {
        let mut native = self.native("kiln_tiles", "KILN_TILES");
        if from.is_none() {
            native = native.name("FROM_ELEMENTS", "");
        }
        if to.is_none() {
            native = native.name("TO_RESULTS", "");
        }
        native
    }

    fn native(&self, entry: &'static str, part: &'static str) -> Native {
        let native = Native::new(SOURCE, entry)
            .name(part, "")
            .name("KEY", memory_type(self.key))
            .name("DESCENDING", self.descending)
            .dtype("T", self.dtype)
            .dtype("I", self.index);
        if self.dtype.is_float() {
            native.name("KEY_OF_FLOAT", "")
        } else if self.dtype.is_signed_int() {
            native.name("KEY_OF_SIGNED", "")
        } else {
            native
        }
    }
}
