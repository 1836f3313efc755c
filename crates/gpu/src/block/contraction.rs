//! Sums of products by tiles in shared memory, which matmuls and convolutions have in common.
//!
//! A [`Contraction`] describes batched matmuls whose elements have computed addresses: strides of a matmul, or the
//! window of a convolution (implicit GEMM).
//!
//! A block computes a tile of a result. Its threads copy tiles of both factors to shared memory. Each thread multiplies
//! some rows by some columns of them, which it holds in registers.

use kiln_ir::{Binary, DType, Scalar};
use kiln_kernel::block::{
    Array, Buffer, Builder, Expression, LANES, Variable, constant, has_vectors, index, select,
};

/// Threads along each side of a block.
const SIDE: usize = 16;

/// Threads per block.
pub(crate) const THREADS: usize = SIDE * SIDE;

/// Batched matmuls of elements with computed addresses.
pub(crate) trait Contraction {
    /// The dtype of sums.
    fn sum_dtype(&self) -> DType;

    /// The numbers of rows and columns of each result.
    fn sizes(&self) -> [Expression; 2];

    /// The first and the end of the inner positions that one member of the batch sums. Uniform in a block.
    fn inner_range(&self, k: &Builder, batch: &Expression) -> [Expression; 2];

    /// Whether neighbouring inner positions of the left and of the right factor are neighbours in memory.
    fn is_inner_contiguous(&self) -> [bool; 2];

    /// Whether the left factor, the right factor and the result are accessed by [vectors](LANES). A vector of a factor has
    /// neighbouring inner positions if they [are contiguous](Contraction::is_inner_contiguous), else neighbouring rows or
    /// columns. A vector of the result has neighbouring columns. All vectors are aligned and wholly in range.
    fn has_vectors(&self) -> [bool; 3];

    /// The memory of the left factor, the right factor and the result.
    fn buffers(&self) -> [Buffer; 3];

    /// The values from which [`left`](Contraction::left) computes the addresses of one row.
    fn row(&self, k: &Builder, batch: &Expression, row: &Expression) -> Vec<Expression>;

    /// An element of the left factor. Not read where the row or the position is out of range.
    fn left(&self, k: &Builder, row: &[Expression], inner: &Expression) -> Element;

    /// The values from which [`right`](Contraction::right) computes the addresses of one column.
    fn column(&self, k: &Builder, batch: &Expression, column: &Expression) -> Vec<Expression>;

    /// An element of the right factor. Not read where the column or the position is out of range.
    fn right(&self, k: &Builder, column: &[Expression], inner: &Expression) -> Element;

    /// The address of an element of the result.
    fn result(&self, k: &Builder, batch: &Expression, row: &Expression, column: &Expression) -> Expression;
}

/// An element of a factor.
pub(crate) struct Element {
    /// The address in elements.
    pub(crate) at: Expression,
    /// Where it is false, the element is 0. `None`: it is in memory.
    pub(crate) is_inside: Option<Expression>,
}

impl Element {
    /// The value, converted to a dtype.
    pub(crate) fn value(&self, buffer: &Buffer, dtype: DType) -> Expression {
        let value = buffer.at(&self.at).cast(dtype);
        match &self.is_inside {
            Some(is_inside) => select(is_inside, &value, &zero(dtype)),
            None => value,
        }
    }
}

/// The size of the tiles of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    /// Rows of the result per thread.
    tall: usize,
    /// Columns of the result per thread.
    wide: usize,
    /// Inner positions in shared memory at a time.
    deep: usize,
}

impl Tile {
    const HUGE: Tile = Tile { tall: 8, wide: 8, deep: 8 };
    const LARGE: Tile = Tile { tall: 4, wide: 4, deep: 16 };
    const SMALL: Tile = Tile { tall: 2, wide: 2, deep: 32 };
    const FEW_ROWS: Tile = Tile { tall: 1, wide: 4, deep: 16 };
    const FEW_COLUMNS: Tile = Tile { tall: 4, wide: 1, deep: 16 };
    const ALL: [Tile; 5] = [Tile::HUGE, Tile::LARGE, Tile::SMALL, Tile::FEW_ROWS, Tile::FEW_COLUMNS];

    /// The tile for that many results of that size, on a device with that many multiprocessors.
    pub(crate) fn of(count: usize, sizes: [usize; 2], sums: DType, multiprocessors: usize) -> Tile {
        Plan::unsplit(count, sizes, 1, sums, multiprocessors).tile
    }

    /// The tiles that are worth a try for results of that size.
    fn candidates([rows, columns]: [usize; 2], sums: DType) -> &'static [Tile] {
        if rows <= SIDE {
            &[Tile::FEW_ROWS]
        } else if columns <= SIDE {
            &[Tile::FEW_COLUMNS]
        } else if sums.size() == 8 {
            &[Tile::LARGE, Tile::SMALL]
        } else {
            &[Tile::HUGE, Tile::LARGE, Tile::SMALL]
        }
    }

    /// The number of blocks for a batch of results.
    pub(crate) fn blocks(self, count: usize, [rows, columns]: [usize; 2]) -> usize {
        count * rows.div_ceil(self.rows()) * columns.div_ceil(self.columns())
    }

    /// The numbers that identify it.
    pub(crate) fn key(self) -> [usize; 3] {
        [self.tall, self.wide, self.deep]
    }

    fn rows(self) -> usize {
        self.tall * SIDE
    }

    fn columns(self) -> usize {
        self.wide * SIDE
    }

    /// Products per load from shared memory in percent of those of the largest tile, roughly: the speed of a block.
    fn speed(self) -> u64 {
        match self.tall * self.wide {
            64.. => 100,
            16.. => 70,
            _ => 35,
        }
    }
}

/// The tile of a contraction, and the number of parts of its inner dimension that different blocks sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) tile: Tile,
    pub(crate) parts: usize,
}

/// The minimum number of inner positions per part.
const LEAST_PART: usize = 256;

/// The cost of another launch in products of one multiprocessor: some microseconds.
const LAUNCH: u64 = 400_000;

/// The cost of storing and reading one sum, in products of one multiprocessor.
const STORED: u64 = 64;

impl Plan {
    /// The plan for that many results of that size with a length of the inner dimension. Few blocks with a long inner
    /// dimension are split.
    pub(crate) fn of(
        count: usize,
        sizes: [usize; 2],
        inner: usize,
        sums: DType,
        multiprocessors: usize,
    ) -> Plan {
        let whole = Plan::unsplit(count, sizes, inner, sums, multiprocessors);
        let split = Tile::candidates(sizes, sums).iter().map(|&tile| {
            let parts = multiprocessors / tile.blocks(count, sizes).max(1);
            Plan { tile, parts: parts.min(inner / LEAST_PART).max(1) }
        });
        let plans = core::iter::once(whole).chain(split);
        plans.min_by_key(|plan| plan.cost(count, sizes, inner, multiprocessors)).unwrap_or(whole)
    }

    fn unsplit(count: usize, sizes: [usize; 2], inner: usize, sums: DType, multiprocessors: usize) -> Plan {
        let plans = Tile::candidates(sizes, sums).iter().map(|&tile| Plan { tile, parts: 1 });
        let best = plans.min_by_key(|plan| plan.cost(count, sizes, inner, multiprocessors));
        best.unwrap_or(Plan { tile: Tile::SMALL, parts: 1 })
    }

    /// The plans that are worth a measurement.
    pub(crate) fn candidates(
        count: usize,
        sizes: [usize; 2],
        inner: usize,
        sums: DType,
        multiprocessors: usize,
    ) -> Vec<Plan> {
        let mut plans = Vec::new();
        for &tile in Tile::candidates(sizes, sums) {
            let most = inner.min(4 * LEAST_PART * multiprocessors / tile.blocks(count, sizes).max(1));
            for parts in [1, 2, 4, 8, 16, 32] {
                let plan = Plan { tile, parts };
                if parts == 1 || plan.suits(sizes, most, sums) {
                    plans.push(plan);
                }
            }
        }
        plans
    }

    /// Whether it is for results of that size with a length of the inner dimension.
    pub(crate) fn suits(self, sizes: [usize; 2], inner: usize, sums: DType) -> bool {
        let has_parts = self.parts == 1 || self.parts <= inner / LEAST_PART;
        has_parts && Tile::candidates(sizes, sums).contains(&self.tile)
    }

    /// The numbers that identify it: those of the tile, and the number of parts.
    pub(crate) fn numbers(self) -> [usize; 4] {
        let [tall, wide, deep] = self.tile.key();
        [tall, wide, deep, self.parts]
    }

    /// The plan with these [numbers](Plan::numbers); `None` if there is none.
    pub(crate) fn from_numbers([tall, wide, deep, parts]: [usize; 4]) -> Option<Plan> {
        let tile = Tile::ALL.into_iter().find(|tile| tile.key() == [tall, wide, deep])?;
        (parts > 0).then_some(Plan { tile, parts })
    }

    /// The inner positions of a part: whole tiles.
    pub(crate) fn part(self, inner: usize) -> usize {
        inner.div_ceil(self.parts).next_multiple_of(self.tile.deep)
    }

    /// The estimated time, in products of one multiprocessor at full speed.
    fn cost(self, count: usize, sizes: [usize; 2], inner: usize, multiprocessors: usize) -> u64 {
        let Plan { tile, parts } = self;
        let multiprocessors = multiprocessors.max(1);
        let waves = (parts * tile.blocks(count, sizes)).div_ceil(multiprocessors) as u64;
        let block = (tile.rows() * tile.columns()) as u64 * inner.div_ceil(parts) as u64 * 100 / tile.speed();
        if parts == 1 {
            return waves.saturating_mul(block);
        }
        let results = (parts * count) as u64 * sizes[0] as u64 * sizes[1] as u64;
        waves.saturating_mul(block) + LAUNCH + results * STORED / multiprocessors as u64
    }
}

/// The zero of a dtype.
pub(crate) fn zero(dtype: DType) -> Expression {
    constant(if dtype.is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) }, dtype)
}

/// The dtype of sums of products with that result. Small integers wrap only when they are stored.
pub(crate) fn sum_dtype(result: DType) -> DType {
    match result {
        DType::I16 | DType::I8 => DType::I32,
        DType::U16 | DType::U8 => DType::U32,
        DType::F64
        | DType::F32
        | DType::F16
        | DType::BF16
        | DType::I64
        | DType::I32
        | DType::U64
        | DType::U32
        | DType::Bool => result.accumulator(),
    }
}

/// Successive elements of a factor's tile that a thread loads: one, or a vector.
struct Piece {
    /// The state of the row or column of the first element.
    state: Vec<Expression>,
    /// Whether the row or column exists.
    is_inside: Expression,
    /// The row or column of the first element within the tile.
    place: Expression,
    /// The inner position of the first element within the tile.
    inner: Expression,
}

/// Which rows or columns of a tile one thread has: groups of successive ones.
#[derive(Clone, Copy)]
struct Share {
    /// Rows or columns.
    count: usize,
    /// Rows or columns of a group.
    group: usize,
}

impl Share {
    fn new(count: usize) -> Share {
        Share { count, group: count.min(LANES) }
    }

    /// The place in the tile of the first element of a group, for a thread's lane.
    fn first(self, lane: &Expression, group: usize) -> Expression {
        lane * index(self.group) + index(group * SIDE * self.group)
    }

    fn groups(self) -> usize {
        self.count / self.group
    }
}

/// The tile of one factor, as rows of one inner position each.
struct Side {
    buffer: Buffer,
    sums: DType,
    shared: Array,
    /// The number of rows or columns of the tile.
    extent: usize,
    /// The elements of one tile.
    size: usize,
    share: Share,
    is_inner_contiguous: bool,
    /// Whether shared memory is read by vectors.
    has_vectors: bool,
    /// The elements of a piece.
    width: usize,
    pieces: Vec<Piece>,
}

/// The layout of one factor's tile.
struct SideForm {
    buffer: Buffer,
    sums: DType,
    /// Rows or columns of the result per thread.
    count: usize,
    deep: usize,
    is_inner_contiguous: bool,
    /// Whether the factor is read by vectors.
    has_vectors: bool,
}

impl Side {
    /// `state` returns the state of a row or column of the tile, and whether it exists.
    fn new(
        k: &Builder,
        form: &SideForm,
        state: impl Fn(&Expression) -> (Vec<Expression>, Expression),
    ) -> Side {
        let &SideForm { buffer, sums, count, deep, is_inner_contiguous, .. } = form;
        let (extent, share) = (count * SIDE, Share::new(count));
        let size = extent * deep;
        let width = if form.has_vectors && size >= THREADS * LANES { LANES } else { 1 };
        // Neighbouring threads read neighbouring elements.
        let fast = (if is_inner_contiguous { deep } else { extent }) / width;
        let first = k.bind(&(k.thread() % &index(fast) * index(width)));
        let rest = k.bind(&(k.thread() / &index(fast)));
        let mut pieces: Vec<Piece> = Vec::new();
        for number in 0..size / width / THREADS {
            let slow = k.bind(&(&rest + index(number * (THREADS / fast))));
            let [place, inner] =
                if is_inner_contiguous { [slow, first.clone()] } else { [first.clone(), slow] };
            let same = pieces.last().filter(|_| !is_inner_contiguous);
            let (state, is_inside) = match same {
                Some(same) => (same.state.clone(), same.is_inside.clone()),
                None => state(&place),
            };
            pieces.push(Piece { state, is_inside, place, inner });
        }
        let has_vectors = share.group == LANES && has_vectors(sums);
        let shared = k.shared(sums, stages(sums) * size);
        Side { buffer, sums, shared, extent, size, share, is_inner_contiguous, has_vectors, width, pieces }
    }

    /// Reads this thread's elements of the tile that starts at an inner position; elements from the end are 0.
    fn read(
        &self,
        k: &Builder,
        [start, end]: [&Expression; 2],
        element: impl Fn(&[Expression], &Expression) -> Element,
    ) -> Vec<Vec<Expression>> {
        let read = |Piece { state, is_inside, inner, .. }: &Piece| {
            let at = k.bind(&(start + inner));
            let Element { at: address, is_inside: is_element } = element(state, &at);
            let is_inside = is_inside & at.lt(end);
            let is_inside = is_element.map_or(is_inside.clone(), |is_element| is_inside & is_element);
            if self.width == LANES {
                let values = k.load_vector(&self.buffer, &(address / &index(LANES)), &is_inside);
                return Vec::from(values.map(|value| value.cast(self.sums)));
            }
            let element = Element { at: address, is_inside: Some(is_inside) };
            vec![k.bind(&element.value(&self.buffer, self.sums))]
        };
        self.pieces.iter().map(read).collect()
    }

    /// Stores the elements that [`read`](Side::read) returned to a stage of shared memory.
    fn put(&self, k: &Builder, stage: &Expression, elements: Vec<Vec<Expression>>) {
        let base = k.bind(&(stage * index(self.size)));
        for (Piece { place, inner, .. }, elements) in self.pieces.iter().zip(elements) {
            let first = k.bind(&(&base + inner * &index(self.extent) + place));
            let step = if self.is_inner_contiguous { self.extent } else { 1 };
            match <[Expression; LANES]>::try_from(elements) {
                Ok(vector) if self.has_vectors && step == 1 => {
                    k.put_vector(&self.shared, &(first / &index(LANES)), vector);
                }
                Ok(vector) => self.put_each(k, &first, step, &vector),
                Err(elements) => self.put_each(k, &first, step, &elements),
            }
        }
    }

    fn put_each(&self, k: &Builder, first: &Expression, step: usize, elements: &[Expression]) {
        for (number, element) in elements.iter().enumerate() {
            k.put(&self.shared, &(first + index(number * step)), element);
        }
    }

    /// The address of the first of a thread's elements in a stage, in vectors if shared memory is read by them.
    fn base(&self, k: &Builder, stage: &Expression, lane: &Expression) -> Expression {
        let unit = if self.has_vectors { LANES } else { 1 };
        k.bind(&(stage * index(self.size / unit) + lane * index(self.share.group / unit)))
    }

    /// The elements of a thread at an inner position of the tile.
    fn elements(&self, k: &Builder, base: &Expression, inner: usize) -> Vec<Expression> {
        let mut elements = Vec::new();
        for group in 0..self.share.groups() {
            let first = inner * self.extent + group * SIDE * self.share.group;
            if self.has_vectors {
                let at = base + index(first / LANES);
                elements.extend(k.load_shared_vector(&self.shared, &at));
                continue;
            }
            let places = first..first + self.share.group;
            elements.extend(places.map(|place| k.bind(&self.shared.at(&(base + index(place))))));
        }
        elements
    }
}

/// The number of tiles of a factor in shared memory. With two, the next tile is stored while other threads read the
/// present one, which saves a barrier. Two tiles of 8-byte elements do not fit.
fn stages(sums: DType) -> usize {
    if sums.size() == 8 { 1 } else { 2 }
}

/// The rows and columns of a thread among the threads of a block. 32 successive threads form a rectangle of 4 × 8, so
/// that they read few different elements.
fn lanes(k: &Builder) -> [Expression; 2] {
    let thread = k.thread();
    let row = &thread / index(64) * index(4) + &thread % index(32) / index(8);
    let column = &thread / index(32) % index(2) * index(8) + &thread % index(8);
    [k.bind(&row), k.bind(&column)]
}

/// The place of a block: a tile of one member of the batch.
struct Corner {
    batch: Expression,
    row: Expression,
    column: Expression,
}

impl Corner {
    fn new(k: &Builder, [rows, columns]: [&Expression; 2], tile: Tile) -> Corner {
        let tiles = |length: &Expression, size: usize| k.bind(&((length + index(size - 1)) / &index(size)));
        let [row_tiles, column_tiles] = [tiles(rows, tile.rows()), tiles(columns, tile.columns())];
        let batch = k.bind(&(k.block() / &(&row_tiles * &column_tiles)));
        let row_tile = k.block() / &column_tiles % &row_tiles;
        let row = k.bind(&(row_tile * &index(tile.rows())));
        let column = k.bind(&(k.block() % &column_tiles * &index(tile.columns())));
        Corner { batch, row, column }
    }
}

/// Writes the statements of a block that computes one tile of the results. The kernel has [`THREADS`] threads per
/// block, and [`Tile::blocks`] blocks.
///
/// While a tile of the factors is multiplied, the next one is read into registers.
pub(crate) fn tiled(k: &Builder, form: &impl Contraction, tile: Tile) {
    let sums = form.sum_dtype();
    let [rows, columns] = form.sizes().map(|size| k.bind(&size));
    let corner = Corner::new(k, [&rows, &columns], tile);
    let batch = &corner.batch;
    let side = |place: usize, count: usize| SideForm {
        buffer: form.buffers()[place],
        sums,
        count,
        deep: tile.deep,
        is_inner_contiguous: form.is_inner_contiguous()[place],
        has_vectors: form.has_vectors()[place],
    };
    let left = Side::new(k, &side(0, tile.tall), |place| {
        let row = k.bind(&(&corner.row + place));
        (form.row(k, batch, &row), k.bind(&row.lt(&rows)))
    });
    let right = Side::new(k, &side(1, tile.wide), |place| {
        let column = k.bind(&(&corner.column + place));
        (form.column(k, batch, &column), k.bind(&column.lt(&columns)))
    });
    let lanes = lanes(k);
    let results: Vec<Variable> = (0..tile.tall * tile.wide).map(|_| k.var(&zero(sums))).collect();
    let [from, end] = form.inner_range(k, batch).map(|place| k.bind(&place));
    let read = |start: &Expression| {
        let left = left.read(k, [start, &end], |row, inner| form.left(k, row, inner));
        let right = right.read(k, [start, &end], |column, inner| form.right(k, column, inner));
        [left, right]
    };
    let put = |stage: &Expression, [a, b]: [Vec<Vec<Expression>>; 2]| {
        left.put(k, stage, a);
        right.put(k, stage, b);
    };
    let stage = k.var(&index(0));
    put(&index(0), read(&from));
    k.barrier();
    k.for_range(&from, &end, &index(tile.deep), |start| {
        let next = read(&k.bind(&(&start + index(tile.deep))));
        let present = k.bind(&stage.get());
        let bases = [left.base(k, &present, &lanes[0]), right.base(k, &present, &lanes[1])];
        for inner in 0..tile.deep {
            let a = left.elements(k, &bases[0], inner);
            let b = right.elements(k, &bases[1], inner);
            for (number, sum) in results.iter().enumerate() {
                k.update(sum, Binary::Add, &(&a[number / tile.wide] * &b[number % tile.wide]));
            }
        }
        if stages(sums) == 1 {
            k.barrier();
        } else {
            k.set(&stage, &(index(1) - &present));
        }
        put(&k.bind(&stage.get()), next);
        k.barrier();
    });
    store(k, form, &corner, [&rows, &columns], &lanes, [left.share, right.share], &results);
}

/// Stores the sums of a thread.
fn store(
    k: &Builder,
    form: &impl Contraction,
    Corner { batch, row, column }: &Corner,
    [rows, columns]: [&Expression; 2],
    lanes: &[Expression; 2],
    [tall, wide]: [Share; 2],
    sums: &[Variable],
) {
    let [_, _, buffer] = form.buffers();
    let [_, _, has_vectors] = form.has_vectors();
    let value = |sum: &Variable| sum.get().cast(buffer.dtype());
    for (number, sums) in sums.chunks(wide.group).enumerate() {
        let [line, group] = [number / wide.groups(), number % wide.groups()];
        let place = tall.first(&lanes[0], line / tall.group) + index(line % tall.group);
        let row = k.bind(&(row + place));
        let first = k.bind(&(column + wide.first(&lanes[1], group)));
        let is_row = row.lt(rows);
        if has_vectors && let Ok(sums) = <&[Variable; LANES]>::try_from(sums) {
            k.when(&(is_row & first.lt(columns)), || {
                let at = form.result(k, batch, &row, &first) / &index(LANES);
                k.store_vector(&buffer, &at, sums.each_ref().map(value));
            });
            continue;
        }
        for (number, sum) in sums.iter().enumerate() {
            let column = k.bind(&(&first + index(number)));
            k.when(&(&is_row & column.lt(columns)), || {
                k.store(&buffer, &form.result(k, batch, &row, &column), &value(sum));
            });
        }
    }
}

/// Writes the statements of a kernel whose threads compute single elements, for results of few rows. The threads
/// share the elements as [points](Builder::for_points).
pub(crate) fn direct(k: &Builder, form: &impl Contraction, total: &Expression) {
    let dtype = form.sum_dtype();
    let [left, right, result] = form.buffers();
    let [rows, columns] = form.sizes().map(|size| k.bind(&size));
    k.for_points(total, |point| {
        let column = k.bind(&(&point % &columns));
        let line = k.bind(&(&point / &columns));
        let [row, batch] = [k.bind(&(&line % &rows)), k.bind(&(&line / &rows))];
        let [row_state, column_state] = [form.row(k, &batch, &row), form.column(k, &batch, &column)];
        let sum = k.var(&zero(dtype));
        let [from, end] = form.inner_range(k, &batch);
        k.for_range(&from, &end, &index(1), |inner| {
            let a = form.left(k, &row_state, &inner).value(&left, dtype);
            let b = form.right(k, &column_state, &inner).value(&right, dtype);
            k.update(&sum, Binary::Add, &(&a * &b));
        });
        let at = form.result(k, &batch, &row, &column);
        k.store(&result, &at, &sum.get().cast(result.dtype()));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fit_16_kib_of_shared_memory_and_are_loaded_whole() {
        for tile in Tile::ALL {
            for sums in [DType::F32, DType::F64] {
                if tile == Tile::HUGE && sums == DType::F64 {
                    continue;
                }
                let bytes = (tile.rows() + tile.columns()) * tile.deep * stages(sums) * sums.size();
                assert!(bytes <= 16 << 10, "{tile:?}");
            }
            for extent in [tile.rows(), tile.columns()] {
                let size = extent * tile.deep;
                assert!(size.is_multiple_of(THREADS), "{tile:?}");
                let widths = [1, LANES].into_iter().filter(|width| size >= THREADS * width);
                for width in widths {
                    for fast in [extent, tile.deep] {
                        assert!(fast.is_multiple_of(width), "{tile:?}");
                        assert!(THREADS.is_multiple_of(fast / width), "{tile:?}");
                    }
                    assert!((size / width).is_multiple_of(THREADS), "{tile:?}");
                }
            }
        }
    }

    #[test]
    fn few_rows_or_blocks_have_small_tiles() {
        let tile = |rows, columns| Tile::of(1, [rows, columns], DType::F32, 8);
        assert_eq!(tile(8, 1000), Tile::FEW_ROWS);
        assert_eq!(tile(1000, 8), Tile::FEW_COLUMNS);
        assert_eq!(tile(100, 100), Tile::SMALL);
        assert_eq!(tile(256, 256), Tile::LARGE);
        assert_eq!(tile(2048, 2048), Tile::HUGE);
        assert_eq!(Tile::of(1, [2048, 2048], DType::F64, 8), Tile::LARGE);
        assert_eq!(Tile::LARGE.blocks(3, [65, 64]), 6);
    }

    #[test]
    fn long_sums_of_few_blocks_are_split() {
        let plan = |sizes, inner| Plan::of(1, sizes, inner, DType::F32, 64);
        assert_eq!(plan([2048, 2048], 2048), Plan { tile: Tile::HUGE, parts: 1 });
        assert_eq!(plan([64, 64], 300).parts, 1);
        let long = plan([128, 128], 1 << 16);
        assert!(long.parts > 1, "{long:?}");
        assert!(Plan::candidates(1, [128, 128], 1 << 16, DType::F32, 64).len() > 3);
        assert_eq!(Plan::from_numbers(long.numbers()), Some(long));
        let part = long.part(1 << 16);
        assert!(part.is_multiple_of(long.tile.deep) && part * long.parts >= 1 << 16, "{long:?}");
    }
}
