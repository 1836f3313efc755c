//! Attention that does not store the scores (flash attention), for devices without a vendor's library.
//!
//! A block computes a tile of rows of one head. It reads the keys in tiles, and corrects its sums where a tile raises
//! the maximum of a row (online softmax).

use super::BlockKey;
use super::contraction::zero;
use kiln_ir::{Binary, DType, Scalar, Unary};
use kiln_kernel::block::{
    Array, BlockKernel, Buffer, Builder, Expression, Variable, constant, index, select,
};

/// Rows per block, and threads per row.
pub(crate) const ROWS: usize = 16;

/// Threads per block.
const THREADS: usize = ROWS * ROWS;

/// The maximum number of bytes of a row of sums for which a tile has [`ROWS`] keys, and not half as many.
const MOST_BYTES: usize = 384;

/// The properties of an attention on which the source of its kernel depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// The dtype of queries, keys, values and the result.
    pub(crate) dtype: DType,
    /// The dtype of the mask: `bool`, or a float that is added to the scores.
    pub(crate) mask: Option<DType>,
    /// Columns of queries and keys.
    pub(crate) dim: usize,
    /// Columns of values.
    pub(crate) dim_v: usize,
}

impl Form {
    pub(crate) fn key(self) -> BlockKey {
        let Form { dtype, mask, dim, dim_v } = self;
        let key = BlockKey::new("attention").dtype(dtype).with(dim).with(dim_v);
        match mask {
            Some(mask) => key.dtype(mask),
            None => key,
        }
    }

    /// Whether its tiles fit that many bytes of shared memory.
    pub(crate) fn fits(self, shared_bytes: usize) -> bool {
        let tiles = ROWS * (self.dim + 1) + self.tile_elements() + 2 * ROWS * (self.keys() + 1);
        tiles * self.wide().size() <= shared_bytes
    }

    /// The dtype of sums.
    fn wide(self) -> DType {
        self.dtype.accumulator()
    }

    /// Keys per tile.
    fn keys(self) -> usize {
        if self.dim.max(self.dim_v) * self.wide().size() > MOST_BYTES { ROWS / 2 } else { ROWS }
    }

    /// Columns of values per thread.
    fn columns(self) -> usize {
        self.dim_v.div_ceil(ROWS)
    }

    /// Elements of a tile of keys, or of values, in shared memory.
    fn tile_elements(self) -> usize {
        self.keys() * (self.dim.max(self.columns() * ROWS) + 1)
    }
}

/// The kernel. Its parameters are `q`, `k`, `v`, the mask if there is one, `y` and the contiguous log-sum-exp; query
/// heads, key heads, queries, keys, the causal offset and the scale; four strides of each of `q`, `k`, `v`, `y` and the
/// mask. Query `i` sees key `j` where `j <= i + offset`.
pub(crate) fn attention(form: Form) -> BlockKernel {
    let k = Builder::new("attention", THREADS as u32);
    let call = Call::new(&k, form);
    let tiles = Tiles::new(&k, form);
    call.load_rows(&k, &tiles);
    let sums = Sums::new(&k, form);
    // The last row of the block sees the most keys.
    let seen = &call.first_row + index(ROWS) + &call.offset;
    let end = k.bind(&seen.min(&call.keys));
    k.for_range(&index(0), &end, &index(form.keys()), |start| {
        call.load_tile(&k, &tiles, &start, &call.k, form.dim, form.dim + 1);
        k.barrier();
        k.when(&call.lane.lt(&index(form.keys())), || call.put_score(&k, &tiles, &start));
        k.barrier();
        call.load_tile(&k, &tiles, &start, &call.v, form.dim_v, form.columns() * ROWS + 1);
        call.add_tile(&k, &tiles, &sums);
        k.barrier();
    });
    k.when(&call.query.lt(&call.queries), || call.store(&k, &sums));
    k.finish()
}

/// A tensor of rows: the matrix of the block's head.
struct Matrix {
    x: Buffer,
    /// The first element.
    first: Expression,
    /// The strides of rows and columns.
    strides: [Expression; 2],
}

impl Matrix {
    fn place(&self, row: &Expression, column: &Expression) -> Expression {
        row * &self.strides[0] + &self.first + &(column * &self.strides[1])
    }

    /// An element as an operand of sums.
    fn at(&self, row: &Expression, column: &Expression, wide: DType) -> Expression {
        self.x.at(&self.place(row, column)).cast(wide)
    }
}

/// The parameters, and the place of a thread: its row and its number in the row.
struct Call {
    form: Form,
    q: Matrix,
    k: Matrix,
    v: Matrix,
    y: Matrix,
    mask: Option<Matrix>,
    log_sum_exp: Buffer,
    queries: Expression,
    keys: Expression,
    offset: Expression,
    scale: Expression,
    /// Batch and head as one number.
    line: Expression,
    first_row: Expression,
    row: Expression,
    lane: Expression,
    query: Expression,
}

/// The arrays in shared memory.
struct Tiles {
    /// The queries of the block.
    rows: Array,
    /// The keys, and then the values, of a tile.
    keys: Array,
    scores: Array,
    weights: Array,
}

/// The sums of a thread: each thread of a row has the same maximum and sum of weights, and some columns of the result.
struct Sums {
    greatest: Variable,
    sum: Variable,
    columns: Vec<Variable>,
}

impl Tiles {
    fn new(k: &Builder, form: Form) -> Tiles {
        let of = |elements| k.shared(form.wide(), elements);
        let pairs = ROWS * (form.keys() + 1);
        Tiles {
            rows: of(ROWS * (form.dim + 1)),
            keys: of(form.tile_elements()),
            scores: of(pairs),
            weights: of(pairs),
        }
    }
}

impl Sums {
    fn new(k: &Builder, form: Form) -> Sums {
        let zero = zero(form.wide());
        Sums {
            greatest: k.var(&hidden(form.wide())),
            sum: k.var(&zero),
            columns: (0..form.columns()).map(|_| k.var(&zero)).collect(),
        }
    }

    /// The maximum, or 0 if no key is visible: `-inf - -inf` would be NaN.
    fn finite(&self, wide: DType) -> Expression {
        let greatest = self.greatest.get();
        select(&greatest.eq(&hidden(wide)), &zero(wide), &greatest)
    }
}

/// The score of an invisible key.
fn hidden(wide: DType) -> Expression {
    constant(Scalar::Float(f64::NEG_INFINITY), wide)
}

impl Call {
    fn new(k: &Builder, form: Form) -> Call {
        let [q, keys_of, v] = ["q", "k", "v"].map(|name| k.input(name, form.dtype));
        let mask = form.mask.map(|dtype| k.input("mask", dtype));
        let (y, log_sum_exp) = (k.output("y", form.dtype), k.output("log_sum_exp", form.wide()));
        let [heads, kv_heads, queries, keys, offset] =
            k.lengths(["heads", "kv_heads", "queries", "keys", "offset"]);
        let scale = k.number("scale", form.wide());
        let tiles = k.bind(&((&queries + index(ROWS - 1)) / &index(ROWS)));
        let first_row = k.bind(&(k.block() % &tiles * &index(ROWS)));
        let line = k.bind(&(k.block() / &tiles));
        let [head, batch] = [k.bind(&(&line % &heads)), k.bind(&(&line / &heads))];
        let kv_head = k.bind(&(&head / &(&heads / &kv_heads)));
        let matrix = |x: Buffer, head: &Expression| {
            let [of_batch, of_head, of_row, of_column] =
                k.lengths(["batch_stride", "head_stride", "row_stride", "column_stride"]);
            let first = k.bind(&(&batch * &of_batch + &(head * &of_head)));
            Matrix { x, first, strides: [of_row, of_column] }
        };
        let [q, keys_of, v] = [matrix(q, &head), matrix(keys_of, &kv_head), matrix(v, &kv_head)];
        // The strides of a missing mask are parameters, too.
        let (y, of_mask) = (matrix(y, &head), matrix(mask.unwrap_or(y), &head));
        let [row, lane] = [k.bind(&(k.thread() / &index(ROWS))), k.bind(&(k.thread() % &index(ROWS)))];
        let query = k.bind(&(&first_row + &row));
        Call {
            form,
            q,
            k: keys_of,
            v,
            y,
            mask: mask.map(|_| of_mask),
            log_sum_exp,
            queries,
            keys,
            offset,
            scale,
            line,
            first_row,
            row,
            lane,
            query,
        }
    }

    /// Loads the queries of the block.
    fn load_rows(&self, k: &Builder, tiles: &Tiles) {
        let (dim, wide) = (self.form.dim, self.form.wide());
        k.for_threads(&index(ROWS * dim), |at| {
            let [row, column] = [k.bind(&(&at / index(dim))), k.bind(&(&at % index(dim)))];
            let query = k.bind(&(&self.first_row + &row));
            let element = select(&query.lt(&self.queries), &self.q.at(&query, &column, wide), &zero(wide));
            k.put(&tiles.rows, &(row * &index(dim + 1) + &column), &element);
        });
    }

    /// Loads the rows of a matrix for the keys of a tile.
    fn load_tile(
        &self,
        k: &Builder,
        tiles: &Tiles,
        start: &Expression,
        matrix: &Matrix,
        columns: usize,
        pitch: usize,
    ) {
        let wide = self.form.wide();
        k.for_threads(&index(self.form.keys() * columns), |at| {
            let [place, column] = [k.bind(&(&at / index(columns))), k.bind(&(&at % index(columns)))];
            let key = k.bind(&(start + &place));
            let element = select(&key.lt(&self.keys), &matrix.at(&key, &column, wide), &zero(wide));
            k.put(&tiles.keys, &(place * &index(pitch) + &column), &element);
        });
    }

    /// The place of a key of the tile in the thread's row of scores.
    fn score(&self, key: &Expression) -> Expression {
        &self.row * index(self.form.keys() + 1) + key
    }

    /// Computes the score of the thread's row and key.
    fn put_score(&self, k: &Builder, tiles: &Tiles, start: &Expression) {
        let (dim, wide) = (self.form.dim, self.form.wide());
        let dot = k.var(&zero(wide));
        let [left, right] = [&self.row, &self.lane].map(|row| k.bind(&(row * index(dim + 1))));
        k.for_each(&index(dim), |column| {
            let product = tiles.rows.at(&(&left + &column)) * &tiles.keys.at(&(&right + &column));
            k.update(&dot, Binary::Add, &product);
        });
        let key = k.bind(&(start + &self.lane));
        let is_seen =
            key.lt(&self.keys) & &self.query.lt(&self.queries) & &key.le(&(&self.query + &self.offset));
        let score = k.var(&hidden(wide));
        k.when(&is_seen, || {
            let scaled = dot.get() * &self.scale;
            let masked = match &self.mask {
                None => scaled,
                Some(mask) if mask.x.dtype().is_bool() => {
                    select(&mask.x.at(&mask.place(&self.query, &key)), &scaled, &hidden(wide))
                }
                Some(mask) => scaled + &mask.at(&self.query, &key, wide),
            };
            k.set(&score, &masked);
        });
        k.put(&tiles.scores, &self.score(&self.lane), &score.get());
    }

    /// Adds the values of a tile with their weights. All threads of the block must call it.
    fn add_tile(&self, k: &Builder, tiles: &Tiles, sums: &Sums) {
        let (keys, wide) = (index(self.form.keys()), self.form.wide());
        let before = k.bind(&sums.greatest.get());
        k.for_each(&keys, |key| {
            k.update(&sums.greatest, Binary::Max, &tiles.scores.at(&self.score(&key)));
        });
        let finite = k.bind(&sums.finite(wide));
        k.when(&self.lane.lt(&keys), || {
            let at = k.bind(&self.score(&self.lane));
            k.put(&tiles.weights, &at, &(tiles.scores.at(&at) - &finite).unary(Unary::Exp));
        });
        let factor = k.bind(&(before - &finite).unary(Unary::Exp));
        for sum in sums.columns.iter().chain([&sums.sum]) {
            k.update(sum, Binary::Mul, &factor);
        }
        k.barrier();
        k.for_each(&keys, |key| {
            let weight = k.bind(&tiles.weights.at(&self.score(&key)));
            k.update(&sums.sum, Binary::Add, &weight);
            let first = k.bind(&(key * &index(self.form.columns() * ROWS + 1) + &self.lane));
            for (number, sum) in sums.columns.iter().enumerate() {
                // Columns beyond the last have any value, and are not stored.
                let value = tiles.keys.at(&(&first + index(number * ROWS)));
                k.update(sum, Binary::Add, &(&weight * value));
            }
        });
    }

    /// Stores the thread's columns of the result, and the log-sum-exp of its row.
    fn store(&self, k: &Builder, sums: &Sums) {
        let (wide, sum) = (self.form.wide(), sums.sum.get());
        // The numerators of a row without visible keys are 0.
        let divisor = k.bind(&select(&sum.eq(&zero(wide)), &constant(Scalar::Float(1.0), wide), &sum));
        for (number, numerator) in sums.columns.iter().enumerate() {
            let column = k.bind(&(&self.lane + index(number * ROWS)));
            k.when(&column.lt(&index(self.form.dim_v)), || {
                let result = (numerator.get() / &divisor).cast(self.form.dtype);
                k.store(&self.y.x, &self.y.place(&self.query, &column), &result);
            });
        }
        k.when(&self.lane.eq(&index(0)), || {
            let log = sum.unary(Unary::Ln) + &sums.finite(wide);
            k.store(&self.log_sum_exp, &(&self.line * &self.queries + &self.query), &log);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::limits::{WEBGPU_SHARED, assert_within};

    #[test]
    fn kernels_print_for_all_dtypes_and_masks() {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            for mask in [None, Some(DType::Bool), Some(dtype)] {
                for (dim, dim_v) in [(8, 5), (64, 64), (17, 40)] {
                    let form = Form { dtype, mask, dim, dim_v };
                    assert!(form.fits(WEBGPU_SHARED), "{form:?}");
                    assert_within(&attention(form), WEBGPU_SHARED);
                }
            }
        }
        let wide = Form { dtype: DType::F16, mask: None, dim: 128, dim_v: 128 };
        assert_within(&attention(wide), WEBGPU_SHARED);
        assert!(!Form { dtype: DType::F64, ..wide }.fits(WEBGPU_SHARED));
    }
}
