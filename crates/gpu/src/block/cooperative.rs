//! Matmuls by cooperative matrices, the tensor cores of devices without a vendor's library.
//!
//! A block computes a tile of the result. Its threads copy tiles of both factors to shared memory in the order of the
//! factors' memory, with zeros beyond the edges. Each subgroup multiplies matrices of these tiles, while the registers
//! of its threads receive the next ones. The sums are `f32`; they reach memory through shared memory, where threads
//! convert them and leave out the elements beyond the edges.

#[cfg(test)]
mod interpret;
#[cfg(test)]
mod tests;

use super::BlockKey;
use super::contraction::zero;
use crate::Gpu;
use crate::driver::{Argument, Arguments, CooperativeMatrix, DeviceInfo, Driver, Matrices, Products};
use crate::native::length;
use kiln_ir::{DType, Result};
use kiln_kernel::block::{
    Array, BlockKernel, Buffer, Builder, Expression, FactorTile, Matrix, MatrixRole, Packed, index,
};

/// The fewest rows, columns and inner positions for which most of a tile is not padding.
const FEWEST: [usize; 3] = [32, 32, 16];

/// Rows and columns of the tiles of large and of small results.
const EXTENTS: [usize; 2] = [128, 64];

/// Inner positions in shared memory at a time.
const DEEP: usize = 32;

/// The bytes by which rows in shared memory are longer, against bank conflicts. Matrices must start at multiples of it.
const PADDING: usize = 16;

/// The tile of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    /// Rows and columns of the tile.
    extent: usize,
    /// Rows and columns of a cooperative matrix.
    size: usize,
    /// Threads of a subgroup.
    lanes: usize,
    /// Subgroups along the rows and along the columns.
    subgroups: [usize; 2],
}

/// The dtypes and layouts of a matmul, on which the source of the kernel depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    dtype: DType,
    result: DType,
    /// Whether the left and the right factor are column-major.
    transposed: [bool; 2],
    /// Elements of the left and of the right factor that a thread reads at a time.
    read: [usize; 2],
    /// Results that a thread writes at a time.
    written: usize,
}

impl<D: Driver> Gpu<D> {
    /// Queues matmuls without an epilogue by cooperative matrices; `false` if the device has none for them, or if the
    /// matrices are too small.
    ///
    /// # Errors
    /// When the kernel does not compile, there are too many blocks, or the device failed.
    pub(crate) fn multiply_cooperatively(&self, products: &Products<D::Memory>) -> Result<bool> {
        let Some((form, tile)) = choose(products, self.driver.info()) else { return Ok(false) };
        let blocks = tile.blocks(products.count, [products.rows, products.columns]);
        self.run_blocks(key(form, tile), || matmul(form, tile), blocks, arguments(products))?;
        Ok(true)
    }
}

/// The kernel for matmuls; `None` if cooperative matrices do not compute them.
fn choose<M>(products: &Products<M>, info: &DeviceInfo) -> Option<(Form, Tile)> {
    let Products { count, rows, columns, inner, dtype, result, .. } = *products;
    let is_large = [rows, columns, inner].iter().zip(FEWEST).all(|(extent, fewest)| *extent >= fewest);
    let has_result = result == DType::F32 || (result == DType::F16 && dtype == DType::F16);
    let unit = info.cooperative_matrices.iter().find(|unit| is_usable(unit, dtype))?;
    if !is_large || !has_result || products.float8.is_some() {
        return None;
    }
    let fits =
        |tile: &Tile| tile.threads() <= info.block_threads && tile.shared_bytes(dtype) <= info.shared_bytes;
    let [large, small] = EXTENTS.map(|extent| Tile::new(extent, unit));
    let fills = large.blocks(count, [rows, columns]) >= info.multiprocessors;
    let tile = fills.then_some(large).filter(fits).or(Some(small).filter(fits))?;
    Some((Form::of(products), tile))
}

/// Whether matrices are square, as WGSL's are, and have that dtype with sums in `f32`.
fn is_usable(unit: &CooperativeMatrix, dtype: DType) -> bool {
    let CooperativeMatrix { rows, columns, inner, factors, sums, threads } = *unit;
    let is_square = rows == columns && columns == inner && matches!(rows, 8 | 16);
    let has_dtypes = matches!(dtype, DType::F16 | DType::F32) && factors == dtype && sums == DType::F32;
    // Then the threads of a block divide the elements that they share.
    is_square && has_dtypes && threads.is_power_of_two() && threads <= 128
}

fn key(form: Form, tile: Tile) -> BlockKey {
    let Form { dtype, result, transposed: [a, b], read, written } = form;
    let key = BlockKey::new("matmul_cooperative").dtype(dtype).dtype(result).with(a).with(b);
    let numbers = [read[0], read[1], written, tile.extent, tile.size, tile.lanes];
    numbers.into_iter().fold(key, |key, number| key.with(number))
}

/// In the order of the parameters of [`matmul`].
fn arguments<M>(products: &Products<M>) -> Arguments<M> {
    let Products { rows, columns, inner, factors: [a, b], to, .. } = products;
    let mut arguments = Arguments::<M>::new();
    arguments.extend([&a.at, &b.at, to].map(|place| Argument::Pointer(place.clone())));
    arguments.extend([*rows, *columns, *inner].map(length));
    arguments.extend([a.leading_dim, a.step, b.leading_dim, b.step].map(length));
    arguments
}

impl Form {
    fn of<M>(products: &Products<M>) -> Form {
        let Products { rows, columns, inner, dtype, result, factors: [a, b], to, .. } = products;
        let line = |matrices: &Matrices<M>, [down, across]: [usize; 2]| {
            if matrices.transposed { down } else { across }
        };
        let read =
            [words(a, line(a, [*rows, *inner]), *dtype), words(b, line(b, [*inner, *columns]), *dtype)];
        let is_paired = *result == DType::F16 && to.offset.is_multiple_of(4) && columns.is_multiple_of(2);
        Form {
            dtype: *dtype,
            result: *result,
            transposed: [a.transposed, b.transposed],
            read,
            written: if is_paired { 2 } else { 1 },
        }
    }
}

/// The elements that a thread reads at a time: those of a word, if all words of the matrices' lines are whole.
fn words<M>(matrices: &Matrices<M>, line: usize, dtype: DType) -> usize {
    let has_words = matrices.at.offset.is_multiple_of(4)
        && [matrices.leading_dim, matrices.step, line].iter().all(|length| length.is_multiple_of(2));
    if dtype == DType::F16 && has_words { 2 } else { 1 }
}

impl Tile {
    fn new(extent: usize, unit: &CooperativeMatrix) -> Tile {
        let subgroups = if extent == EXTENTS[0] { [2, 4] } else { [2, 2] };
        Tile { extent, size: unit.rows, lanes: unit.threads, subgroups }
    }

    fn threads(self) -> usize {
        self.lanes * self.subgroups[0] * self.subgroups[1]
    }

    /// The number of blocks for a batch of results.
    fn blocks(self, count: usize, [rows, columns]: [usize; 2]) -> usize {
        count * rows.div_ceil(self.extent) * columns.div_ceil(self.extent)
    }

    /// Rows and columns of the part of one subgroup.
    fn part(self) -> [usize; 2] {
        self.subgroups.map(|count| self.extent / count)
    }

    /// Elements of shared memory from one row of sums to the next.
    fn sums_pitch(self) -> usize {
        self.size + PADDING / 4
    }

    /// The number of sums in shared memory: a matrix of each subgroup.
    fn sums(self) -> usize {
        self.subgroups[0] * self.subgroups[1] * self.size * self.sums_pitch()
    }

    /// The most bytes of shared memory, over all layouts of the factors.
    fn shared_bytes(self, dtype: DType) -> usize {
        let padding = PADDING / dtype.size();
        let side = (self.extent * (DEEP + padding)).max(DEEP * (self.extent + padding));
        2 * side * dtype.size() + self.sums() * 4
    }
}

/// The expressions that all parts of the kernel share.
struct Block<'a> {
    k: &'a Builder,
    tile: Tile,
    form: Form,
    inner: Expression,
    batch: Expression,
    /// The first row and column of the block.
    first: [Expression; 2],
    /// The numbers of rows and columns.
    sizes: [Expression; 2],
    /// The place of the thread's subgroup along rows and columns.
    subgroup: [Expression; 2],
}

/// The kernel.
fn matmul(form: Form, tile: Tile) -> BlockKernel {
    let k = Builder::new("matmul_cooperative", tile.threads() as u32);
    let [a, b] = ["a", "b"].map(|name| k.input(name, form.dtype));
    let y = k.output("y", form.result);
    let [rows, columns, inner] = k.lengths(["rows", "columns", "inner"]);
    let [a_leading_dim, a_step, b_leading_dim, b_step] =
        k.lengths(["a_leading_dim", "a_step", "b_leading_dim", "b_step"]);
    let block = Block::new(&k, form, tile, [rows, columns, inner]);
    let left = Side::new(&block, 0, a, [a_leading_dim, a_step]);
    let right = Side::new(&block, 1, b, [b_leading_dim, b_step]);
    let staging = k.shared(DType::F32, tile.sums());
    let sums = block.zeros(&staging);
    left.fetch(&block, &index(0));
    right.fetch(&block, &index(0));
    k.for_range(&index(0), &block.inner, &index(DEEP), |start| {
        // The matrices of the previous tiles are multiplied.
        k.barrier();
        left.unpack(&k);
        right.unpack(&k);
        k.barrier();
        let next = k.bind(&(start + index(DEEP)));
        left.fetch(&block, &next);
        right.fetch(&block, &next);
        for inner in (0..DEEP).step_by(tile.size) {
            let (a, b) = (left.matrices(&block, inner), right.matrices(&block, inner));
            for (number, sum) in sums.iter().enumerate() {
                k.multiply_add(&a[number / b.len()], &b[number % b.len()], sum);
            }
        }
    });
    block.store(&sums, &staging, &y);
    k.finish()
}

impl<'a> Block<'a> {
    fn new(k: &'a Builder, form: Form, tile: Tile, [rows, columns, inner]: [Expression; 3]) -> Block<'a> {
        let tiles = |length: &Expression| k.bind(&((length + index(tile.extent - 1)) / &index(tile.extent)));
        let [row_tiles, column_tiles] = [tiles(&rows), tiles(&columns)];
        let batch = k.bind(&(k.block() / &(&row_tiles * &column_tiles)));
        let row_tile = k.block() / &column_tiles % &row_tiles;
        let first_row = k.bind(&(row_tile * &index(tile.extent)));
        let first_column = k.bind(&(k.block() % &column_tiles * &index(tile.extent)));
        let number = k.subgroup();
        let across = index(tile.subgroups[1]);
        let subgroup = [k.bind(&(&number / &across)), k.bind(&(&number % &across))];
        let (first, sizes) = ([first_row, first_column], [rows, columns]);
        Block { k, tile, form, inner, batch, first, sizes, subgroup }
    }

    /// The sums of this subgroup, row by row: zeros.
    fn zeros(&self, staging: &Array) -> Vec<Matrix> {
        let (k, tile) = (self.k, self.tile);
        k.for_threads(&index(tile.sums()), |number| k.put(staging, &number, &zero(DType::F32)));
        k.barrier();
        let region = self.region();
        let [down, across] = tile.part().map(|extent| extent / tile.size);
        (0..down * across).map(|_| k.load_sums(tile.size, staging, &region, tile.sums_pitch())).collect()
    }

    /// The first of this subgroup's sums in shared memory.
    fn region(&self) -> Expression {
        let number = &self.subgroup[0] * index(self.tile.subgroups[1]) + &self.subgroup[1];
        self.k.bind(&(number * &index(self.tile.size * self.tile.sums_pitch())))
    }

    /// Stores the sums, one matrix of each subgroup at a time.
    fn store(&self, sums: &[Matrix], staging: &Array, y: &Buffer) {
        let (k, tile) = (self.k, self.tile);
        let (region, across) = (self.region(), tile.part()[1] / tile.size);
        for (number, sum) in sums.iter().enumerate() {
            // The previous matrices are written.
            k.barrier();
            k.store_sums(sum, staging, &region, tile.sums_pitch());
            k.barrier();
            self.store_matrices([number / across * tile.size, number % across * tile.size], staging, y);
        }
    }

    /// Writes the matrices in shared memory, which start at that row and column of the part of each subgroup.
    fn store_matrices(&self, offset: [usize; 2], staging: &Array, y: &Buffer) {
        let (k, tile, written) = (self.k, self.tile, self.form.written);
        let pieces = tile.size / written;
        let lines = tile.subgroups[0] * tile.subgroups[1] * tile.size;
        k.for_threads(&index(lines * pieces), |number| {
            let line = k.bind(&(&number / index(pieces)));
            let place = k.bind(&(number % index(pieces) * &index(written)));
            let [owner, row] = [k.bind(&(&line / index(tile.size))), &line % index(tile.size)];
            let across = index(tile.subgroups[1]);
            let [rows, columns] = tile.part().map(index);
            let row = &self.first[0] + (&owner / &across) * rows + row + index(offset[0]);
            let column = &self.first[1] + (owner % &across) * columns + &place + index(offset[1]);
            let [row, column] = [k.bind(&row), k.bind(&column)];
            let at = k.bind(&(line * index(tile.sums_pitch()) + place));
            let [rows, columns] = &self.sizes;
            k.when(&(row.lt(rows) & column.lt(columns)), || {
                let to = k.bind(&((&self.batch * rows + row) * columns + column));
                self.store_sums_at(&to, &at, staging, y);
            });
        });
    }

    /// Writes one or two sums in shared memory.
    fn store_sums_at(&self, to: &Expression, at: &Expression, staging: &Array, y: &Buffer) {
        let sum = staging.at(at);
        if self.form.written == 2 {
            let next = staging.at(&(at + index(1)));
            self.k.store_pair(y, to, [sum, next]);
        } else {
            self.k.store(y, to, &sum.cast(self.form.result));
        }
    }
}

/// The tile of a factor.
struct Side {
    /// 0 for the left factor, whose lines are rows, and 1 for the right one, whose lines are columns.
    number: usize,
    x: Buffer,
    leading_dim: Expression,
    shared: FactorTile,
    /// Elements of shared memory from one line to the next, or from one inner position to the next.
    pitch: usize,
    /// Whether neighbouring inner positions are neighbours in memory, and in shared memory.
    is_inner_contiguous: bool,
    pieces: Vec<Piece>,
}

/// The elements of a tile that a thread copies at a time.
struct Piece {
    packed: Packed,
    /// The index of the line's element at inner position 0.
    first: Expression,
    /// Whether the line exists.
    is_inside: Expression,
    /// The inner position within the tile.
    inner: Expression,
    /// The index in shared memory.
    place: Expression,
}

impl Side {
    fn new(block: &Block<'_>, number: usize, x: Buffer, [leading_dim, step]: [Expression; 2]) -> Side {
        let (k, tile, form) = (block.k, block.tile, block.form);
        let is_inner_contiguous = form.transposed[number] == (number == 1);
        let padding = PADDING / form.dtype.size();
        let (pitch, len) = if is_inner_contiguous {
            (DEEP + padding, tile.extent * (DEEP + padding))
        } else {
            (tile.extent + padding, DEEP * (tile.extent + padding))
        };
        let start = k.bind(&(&block.batch * &step));
        let count = form.read[number];
        let piece = |[line, inner]: [Expression; 2]| {
            let [slow, fast] = if is_inner_contiguous { [&line, &inner] } else { [&inner, &line] };
            let place = k.bind(&(slow * index(pitch) + fast));
            let line = k.bind(&(&block.first[number] + line));
            let offset = if is_inner_contiguous { &line * &leading_dim } else { line.clone() };
            let first = k.bind(&(&start + offset));
            let is_inside = k.bind(&line.lt(&block.sizes[number]));
            Piece { packed: k.packed(form.dtype, count), first, is_inside, inner, place }
        };
        let pieces = places(k, tile, is_inner_contiguous, count).into_iter().map(piece).collect();
        let shared = k.factor_tile(form.dtype, len);
        Side { number, x, leading_dim, shared, pitch, is_inner_contiguous, pieces }
    }

    /// Reads the tile that starts at an inner position into registers, with zeros beyond the edges.
    fn fetch(&self, block: &Block<'_>, start: &Expression) {
        let k = block.k;
        for Piece { packed, first, is_inside, inner, .. } in &self.pieces {
            let inner = k.bind(&(start + inner));
            let offset = if self.is_inner_contiguous { inner.clone() } else { &inner * &self.leading_dim };
            k.fetch(packed, &self.x, &(first + offset), &(is_inside & inner.lt(&block.inner)));
        }
    }

    /// Stores the registers to shared memory.
    fn unpack(&self, k: &Builder) {
        for Piece { packed, place, .. } in &self.pieces {
            k.unpack(packed, &self.shared, place);
        }
    }

    /// The matrices of this subgroup that start at an inner position of the tile.
    fn matrices(&self, block: &Block<'_>, inner: usize) -> Vec<Matrix> {
        let (k, size, extent) = (block.k, block.tile.size, block.tile.part()[self.number]);
        let role = if self.number == 0 { MatrixRole::Left } else { MatrixRole::Right };
        let matrix = |offset: usize| {
            let line = &block.subgroup[self.number] * index(extent) + index(offset);
            let at = if self.is_inner_contiguous {
                line * index(self.pitch) + index(inner)
            } else {
                line + index(inner * self.pitch)
            };
            // The left factor's lines are rows, the right one's are columns.
            let is_column_major = self.is_inner_contiguous == (self.number == 1);
            k.load_factor(role, size, &self.shared, &at, self.pitch, is_column_major)
        };
        (0..extent).step_by(size).map(matrix).collect()
    }
}

/// The lines and inner positions of the first elements that a thread copies. Neighbouring threads copy neighbours in
/// memory.
fn places(k: &Builder, tile: Tile, is_inner_contiguous: bool, count: usize) -> Vec<[Expression; 2]> {
    let threads = tile.threads();
    let neighbours = if is_inner_contiguous { DEEP } else { tile.extent };
    let fast = neighbours / count;
    let place = |number: usize| {
        let [slow, fast] = if threads.is_multiple_of(fast) {
            let slow = k.thread() / index(fast) + index(number * (threads / fast));
            [slow, k.thread() % index(fast)]
        } else {
            let point = k.bind(&(k.thread() + index(number * threads)));
            [&point / index(fast), point % index(fast)]
        };
        let [slow, fast] = [k.bind(&slow), k.bind(&(fast * index(count)))];
        if is_inner_contiguous { [slow, fast] } else { [fast, slow] }
    };
    (0..tile.extent * DEEP / count / threads).map(place).collect()
}
