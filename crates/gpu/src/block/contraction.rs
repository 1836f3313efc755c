//! Sums of products by tiles in shared memory, which matmuls and convolutions have in common.
//!
//! A [`Contraction`] describes batched matmuls whose elements have computed addresses: strides of a matmul, or the
//! window of a convolution (implicit GEMM).

use kiln_ir::{Binary, DType, Scalar};
use kiln_kernel::block::{Array, Builder, Expression, Variable, constant, index, select};

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

    /// The values from which [`left`](Contraction::left) computes the addresses of one row.
    fn row(&self, k: &Builder, batch: &Expression, row: &Expression) -> Vec<Expression>;

    /// An element of the left factor. The value is not used where the row or the position is out of range.
    fn left(&self, k: &Builder, row: &[Expression], inner: &Expression) -> Expression;

    /// The values from which [`right`](Contraction::right) computes the addresses of one column.
    fn column(&self, k: &Builder, batch: &Expression, column: &Expression) -> Vec<Expression>;

    /// An element of the right factor. The value is not used where the column or the position is out of range.
    fn right(&self, k: &Builder, column: &[Expression], inner: &Expression) -> Expression;

    /// Stores a sum.
    fn store(&self, k: &Builder, batch: &Expression, row: &Expression, column: &Expression, sum: &Expression);
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
    const LARGE: Tile = Tile { tall: 4, wide: 4, deep: 16 };
    const SMALL: Tile = Tile { tall: 2, wide: 2, deep: 32 };
    const FEW_ROWS: Tile = Tile { tall: 1, wide: 4, deep: 32 };
    const FEW_COLUMNS: Tile = Tile { tall: 4, wide: 1, deep: 32 };

    /// The tile for that many results of that size, on a device with that many multiprocessors.
    pub(crate) fn of(count: usize, [rows, columns]: [usize; 2], sums: DType, multiprocessors: usize) -> Tile {
        let tile = if rows <= SIDE {
            Tile::FEW_ROWS
        } else if columns <= SIDE {
            Tile::FEW_COLUMNS
        } else if rows.min(columns) <= 2 * SIDE
            || Tile::LARGE.blocks(count, [rows, columns]) < multiprocessors
        {
            Tile::SMALL
        } else {
            Tile::LARGE
        };
        // Tiles of 64-bit elements have the same number of bytes.
        Tile { deep: if sums.size() == 8 { tile.deep / 2 } else { tile.deep }, ..tile }
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

/// One of the elements of a factor's tile that a thread loads.
struct Piece {
    /// The state of the element's row or column.
    state: Vec<Expression>,
    /// Whether the row or column exists.
    is_inside: Expression,
    /// The row or column within the tile.
    place: Expression,
    /// The inner position within the tile.
    inner: Expression,
}

/// The tile of one factor.
struct Side {
    shared: Array,
    /// Elements from one inner position to the next: one more than rows or columns, against bank conflicts.
    pitch: usize,
    pieces: Vec<Piece>,
}

impl Side {
    /// `state` returns the state of a row or column of the tile, and whether it exists.
    fn new(
        k: &Builder,
        dtype: DType,
        [extent, deep]: [usize; 2],
        is_inner_contiguous: bool,
        state: impl Fn(&Expression) -> (Vec<Expression>, Expression),
    ) -> Side {
        // Neighbouring threads read neighbouring elements.
        let fast = if is_inner_contiguous { deep } else { extent };
        let first = k.bind(&(k.thread() % &index(fast)));
        let rest = k.bind(&(k.thread() / &index(fast)));
        let mut pieces: Vec<Piece> = Vec::new();
        for number in 0..extent * deep / THREADS {
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
        let pitch = extent + 1;
        Side { shared: k.shared(dtype, deep * pitch), pitch, pieces }
    }

    /// Loads the tile that starts at an inner position; elements from the end are 0.
    fn load(
        &self,
        k: &Builder,
        [start, end]: [&Expression; 2],
        dtype: DType,
        element: impl Fn(&[Expression], &Expression) -> Expression,
    ) {
        for Piece { state, is_inside, place, inner } in &self.pieces {
            let at = k.bind(&(start + inner));
            let is_inside = is_inside & at.lt(end);
            let value = select(&is_inside, &element(state, &at), &zero(dtype));
            k.put(&self.shared, &(inner * index(self.pitch) + place), &value);
        }
    }

    /// The elements of a thread at an inner position of the tile.
    fn elements(&self, k: &Builder, lane: &Expression, inner: &Expression, count: usize) -> Vec<Expression> {
        let first = k.bind(&(inner * index(self.pitch) + lane));
        (0..count).map(|number| k.bind(&self.shared.at(&(&first + index(number * SIDE))))).collect()
    }
}

/// Writes the statements of a block that computes one tile of the results. The kernel has [`THREADS`] threads per
/// block, and [`Tile::blocks`] blocks.
pub(crate) fn tiled(k: &Builder, form: &impl Contraction, tile: Tile) {
    let dtype = form.sum_dtype();
    let [rows, columns] = form.sizes().map(|size| k.bind(&size));
    let tiles = |length: &Expression, size: usize| k.bind(&((length + index(size - 1)) / &index(size)));
    let [row_tiles, column_tiles] = [tiles(&rows, tile.rows()), tiles(&columns, tile.columns())];
    let batch = k.bind(&(k.block() / &(&row_tiles * &column_tiles)));
    let row_tile = k.block() / &column_tiles % &row_tiles;
    let first_row = k.bind(&(row_tile * &index(tile.rows())));
    let first_column = k.bind(&(k.block() % &column_tiles * &index(tile.columns())));
    let [is_left_contiguous, is_right_contiguous] = form.is_inner_contiguous();
    let left = Side::new(k, dtype, [tile.rows(), tile.deep], is_left_contiguous, |place| {
        let row = k.bind(&(&first_row + place));
        (form.row(k, &batch, &row), k.bind(&row.lt(&rows)))
    });
    let right = Side::new(k, dtype, [tile.columns(), tile.deep], is_right_contiguous, |place| {
        let column = k.bind(&(&first_column + place));
        (form.column(k, &batch, &column), k.bind(&column.lt(&columns)))
    });
    let row_lane = k.bind(&(k.thread() / &index(SIDE)));
    let column_lane = k.bind(&(k.thread() % &index(SIDE)));
    let sums: Vec<Variable> = (0..tile.tall * tile.wide).map(|_| k.var(&zero(dtype))).collect();
    let [from, end] = form.inner_range(k, &batch);
    k.for_range(&from, &end, &index(tile.deep), |start| {
        left.load(k, [&start, &end], dtype, |row, inner| form.left(k, row, inner));
        right.load(k, [&start, &end], dtype, |column, inner| form.right(k, column, inner));
        k.barrier();
        k.for_each(&index(tile.deep), |inner| {
            let a = left.elements(k, &row_lane, &inner, tile.tall);
            let b = right.elements(k, &column_lane, &inner, tile.wide);
            for (number, sum) in sums.iter().enumerate() {
                k.update(sum, Binary::Add, &(&a[number / tile.wide] * &b[number % tile.wide]));
            }
        });
        k.barrier();
    });
    for (number, sum) in sums.iter().enumerate() {
        let row = k.bind(&(&first_row + &row_lane + &index(number / tile.wide * SIDE)));
        let column = k.bind(&(&first_column + &column_lane + &index(number % tile.wide * SIDE)));
        let is_inside = row.lt(&rows) & &column.lt(&columns);
        k.when(&is_inside, || form.store(k, &batch, &row, &column, &sum.get()));
    }
}

/// Writes the statements of a kernel whose threads compute single elements, for results of few rows. The threads
/// share the elements as [points](Builder::for_points).
pub(crate) fn direct(k: &Builder, form: &impl Contraction, total: &Expression) {
    let [rows, columns] = form.sizes().map(|size| k.bind(&size));
    k.for_points(total, |point| {
        let column = k.bind(&(&point % &columns));
        let line = k.bind(&(&point / &columns));
        let [row, batch] = [k.bind(&(&line % &rows)), k.bind(&(&line / &rows))];
        let [row_state, column_state] = [form.row(k, &batch, &row), form.column(k, &batch, &column)];
        let sum = k.var(&zero(form.sum_dtype()));
        let [from, end] = form.inner_range(k, &batch);
        k.for_range(&from, &end, &index(1), |inner| {
            let a = form.left(k, &row_state, &inner);
            let b = form.right(k, &column_state, &inner);
            k.update(&sum, Binary::Add, &(&a * &b));
        });
        form.store(k, &batch, &row, &column, &sum.get());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fit_16_kib_of_shared_memory_and_are_loaded_whole() {
        for tile in [Tile::LARGE, Tile::SMALL, Tile::FEW_ROWS, Tile::FEW_COLUMNS] {
            for (deep, size) in [(tile.deep, 4), (tile.deep / 2, 8)] {
                assert!((tile.rows() + 1 + tile.columns() + 1) * deep * size <= 16 << 10, "{tile:?}");
                for extent in [tile.rows(), tile.columns()] {
                    assert!((extent * deep).is_multiple_of(THREADS), "{tile:?}");
                    assert!(THREADS.is_multiple_of(extent) && THREADS.is_multiple_of(deep), "{tile:?}");
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
        assert_eq!(tile(1000, 1000), Tile::LARGE);
        assert_eq!(Tile::LARGE.blocks(3, [65, 64]), 6);
    }
}
