//! The parts that the kernels of attention share: the matrices of a head, and products of their tiles.

use super::super::contraction::zero;
use super::{Form, MAX_COLUMNS, PITCH, SIDE};
use kiln_ir::{Binary, DType};
use kiln_kernel::block::{Array, Buffer, Builder, Expression, Variable, index, select};

/// The side whose results a block computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The stacked queries of all heads that share keys.
    Queries,
    /// The keys.
    Keys,
}

/// The parameters of an attention, the head and the rows of the block, and the place of the thread.
pub(super) struct Problem {
    pub(super) form: Form,
    /// The number of query heads that share keys.
    pub(super) group: Expression,
    pub(super) queries: Expression,
    pub(super) keys: Expression,
    /// Query `i` sees key `j` where `j <= i + offset`.
    pub(super) offset: Expression,
    pub(super) scale: Expression,
    /// Batch and key head as one number.
    pub(super) head: Expression,
    batch: Expression,
    kv_head: Expression,
    /// The number of stacked queries of the head.
    pub(super) stacked: Expression,
    /// The block's first row, of its side.
    pub(super) first: Expression,
    /// The number of the thread's row of threads in the block, and its number there.
    pub(super) line: Expression,
    pub(super) lane: Expression,
    /// Rows of the operands.
    part: Array,
    /// Weights of a tile, or numbers that the threads of a row exchange.
    weights: Array,
}

/// A tensor of rows: the matrices of the block's head.
pub(super) struct Matrix {
    pub(super) x: Buffer,
    first: Expression,
    /// The strides of heads that share keys, of rows and of columns.
    strides: [Expression; 3],
}

/// A row of a matrix.
pub(super) struct Row {
    /// The head among those that share keys; 0 in matrices of keys.
    head: Expression,
    pub(super) number: Expression,
    /// Whether the row exists. The block must not use the elements of other rows.
    pub(super) is_inside: Expression,
}

/// The rows of a matrix that a thread loads into shared memory.
pub(super) struct Rows<'a> {
    matrix: &'a Matrix,
    columns: usize,
    /// The first element of each row, and whether the row exists.
    rows: Vec<(Expression, Expression)>,
}

impl Matrix {
    /// The first element of a row, at this point of the kernel.
    pub(super) fn start(&self, k: &Builder, row: &Row) -> Expression {
        let [of_head, of_row, _] = &self.strides;
        k.bind(&(&self.first + &row.head * of_head + &(&row.number * of_row)))
    }

    /// The place of an element of the row with that first element.
    pub(super) fn place(&self, start: &Expression, column: &Expression) -> Expression {
        start + column * &self.strides[2]
    }

    /// The element as an operand of sums.
    pub(super) fn at(&self, start: &Expression, column: &Expression, wide: DType) -> Expression {
        self.x.at(&self.place(start, column)).cast(wide)
    }

    /// Rows of `columns` elements.
    pub(super) fn rows(&self, k: &Builder, rows: &[Row], columns: usize) -> Rows<'_> {
        let rows = rows.iter().map(|row| (self.start(k, row), row.is_inside.clone())).collect();
        Rows { matrix: self, columns, rows }
    }
}

impl Rows<'_> {
    /// An element of one of the rows; 0 outside of the matrix.
    fn element(&self, number: usize, column: &Expression, wide: DType) -> Expression {
        let (start, is_inside) = &self.rows[number];
        let is_inside = match self.columns.is_multiple_of(SIDE) {
            true => is_inside.clone(),
            false => is_inside & column.lt(&index(self.columns)),
        };
        select(&is_inside, &self.matrix.at(start, column, wide), &zero(wide))
    }
}

impl Problem {
    /// Adds the sizes, the causal offset and the scale as parameters: the numbers of query heads, key heads, queries
    /// and keys, the offset, and the scale.
    pub(super) fn new(k: &Builder, form: Form, side: Side) -> Problem {
        let [heads, kv_heads, queries, keys, offset] =
            k.lengths(["heads", "kv_heads", "queries", "keys", "offset"]);
        let scale = k.number("scale", form.wide());
        let group = k.bind(&(&heads / &kv_heads));
        let stacked = k.bind(&(&group * &queries));
        let rows = match side {
            Side::Queries => &stacked,
            Side::Keys => &keys,
        };
        let of_block = index(form.tile.rows());
        let tiles = k.bind(&((rows + index(form.tile.rows() - 1)) / &of_block));
        let first = k.bind(&(k.block() % &tiles * &of_block));
        let head = k.bind(&(k.block() / &tiles));
        let [batch, kv_head] = [k.bind(&(&head / &kv_heads)), k.bind(&(&head % &kv_heads))];
        let [line, lane] = [k.bind(&(k.thread() / &index(SIDE))), k.bind(&(k.thread() % &index(SIDE)))];
        let part = k.shared(form.wide(), form.tile.part_elements());
        let weights = k.shared(form.wide(), form.tile.weights_elements());
        Problem {
            form,
            group,
            queries,
            keys,
            offset,
            scale,
            head,
            batch,
            kv_head,
            stacked,
            first,
            line,
            lane,
            part,
            weights,
        }
    }

    /// A tensor of that side. Adds its four strides as parameters.
    pub(super) fn matrix(&self, k: &Builder, x: Buffer, side: Side) -> Matrix {
        let [of_batch, of_head, of_row, of_column] =
            k.lengths(["batch_stride", "head_stride", "row_stride", "column_stride"]);
        let head = match side {
            Side::Queries => &self.kv_head * &self.group,
            Side::Keys => self.kv_head.clone(),
        };
        let first = k.bind(&(&self.batch * &of_batch + &(head * &of_head)));
        Matrix { x, first, strides: [of_head, of_row, of_column] }
    }

    /// The thread's rows among the stacked queries of the block.
    pub(super) fn stacked_rows(&self, k: &Builder) -> Vec<Row> {
        let row = |number: usize| {
            let row = k.bind(&self.stacked_place(number));
            Row {
                head: k.bind(&(&row / &self.queries)),
                number: k.bind(&(&row % &self.queries)),
                is_inside: k.bind(&row.lt(&self.stacked)),
            }
        };
        (0..self.form.tile.tall).map(row).collect()
    }

    /// The place of one of the thread's rows among the stacked queries of the head.
    pub(super) fn stacked_place(&self, row: usize) -> Expression {
        &self.first + &self.line + &index(row * SIDE)
    }

    /// Whether the thread is the first of those that share a row, and a condition is true.
    pub(super) fn is_first_lane(&self, condition: &Expression) -> Expression {
        self.lane.eq(&index(0)) & condition
    }

    /// Every 16th row of a head below `end`, from `start` plus `lane`.
    pub(super) fn rows(
        &self,
        k: &Builder,
        head: &Expression,
        [start, lane, end]: [&Expression; 3],
        count: usize,
    ) -> Vec<Row> {
        let row = |place: usize| {
            let number = k.bind(&(start + lane + &index(place * SIDE)));
            let is_inside = k.bind(&number.lt(end));
            Row { head: head.clone(), number, is_inside }
        };
        (0..count).map(row).collect()
    }

    /// The thread's keys of a tile that starts at a key: those that it loads, and those whose weights it computes.
    pub(super) fn keys_of_tile(&self, k: &Builder, start: &Expression) -> [Vec<Row>; 2] {
        [&self.line, &self.lane]
            .map(|lane| self.rows(k, &index(0), [start, lane, &self.keys], self.form.tile.wide))
    }

    /// Loops over the keys that the stacked queries of the block see, in tiles; `body` gets the first key of each.
    pub(super) fn for_seen_keys(&self, k: &Builder, body: impl FnOnce(Expression)) {
        // The last query of the block sees the most keys. It is the last of its head if the block also has the next
        // head.
        let last = (&self.first % &self.queries + index(self.form.tile.rows())).min(&self.queries);
        let end = k.bind(&(last + &self.offset).min(&self.keys));
        k.for_range(&index(0), &end, &index(self.form.tile.others()), body);
    }

    /// Sums of products of the thread's pairs of rows: of each of its rows on the block's side with each on the other
    /// side. All threads of the block must call it.
    pub(super) fn products(&self, k: &Builder, rows: &Rows<'_>, others: &Rows<'_>) -> Vec<Variable> {
        let (tile, wide, columns) = (self.form.tile, self.form.wide(), rows.columns);
        let sums: Vec<Variable> = (0..tile.tall * tile.wide).map(|_| k.var(&zero(wide))).collect();
        let first_other = tile.rows() * PITCH;
        k.for_range(&index(0), &index(columns), &index(SIDE), |start| {
            let column = k.bind(&(&start + &self.lane));
            let to = k.bind(&(&self.line * index(PITCH) + &self.lane));
            for (operand, first) in [(rows, 0), (others, first_other)] {
                for number in 0..operand.rows.len() {
                    let place = &to + index(first + number * SIDE * PITCH);
                    k.put(&self.part, &place, &operand.element(number, &column, wide));
                }
            }
            k.barrier();
            let row = k.bind(&(&self.line * index(PITCH)));
            let other = k.bind(&(&self.lane * index(PITCH) + &index(first_other)));
            k.for_each(&index(columns.min(SIDE)), |inner| {
                let elements = |first: &Expression, count: usize| -> Vec<Expression> {
                    let place = |number: usize| first + &inner + &index(number * SIDE * PITCH);
                    (0..count).map(|number| k.bind(&self.part.at(&place(number)))).collect()
                };
                let (a, b) = (elements(&row, tile.tall), elements(&other, tile.wide));
                for (number, sum) in sums.iter().enumerate() {
                    k.update(sum, Binary::Add, &(&a[number / tile.wide] * &b[number % tile.wide]));
                }
            });
            k.barrier();
        });
        sums
    }

    /// The pairs of a row of the thread and a row of the other side, in the order of [`products`](Problem::products).
    pub(super) fn pairs(&self) -> impl Iterator<Item = [usize; 2]> + use<> {
        let wide = self.form.tile.wide;
        (0..self.form.tile.tall * wide).map(move |number| [number / wide, number % wide])
    }

    /// Writes statements for a pair whose key the query sees. `body` gets the score, of the product of query and key.
    /// The mask comes with the first element of its row of the query.
    pub(super) fn when_seen(
        &self,
        k: &Builder,
        mask: Option<(&Matrix, &Expression)>,
        [query, key]: [&Row; 2],
        product: &Variable,
        body: impl FnOnce(Expression),
    ) {
        let is_before = key.number.le(&(&query.number + &self.offset));
        let is_seen = &query.is_inside & &key.is_inside & &is_before;
        k.when(&is_seen, || {
            let score = product.get() * &self.scale;
            match mask {
                None => body(score),
                Some((mask, start)) if mask.x.dtype().is_bool() => {
                    k.when(&mask.x.at(&mask.place(start, &key.number)), || body(score));
                }
                Some((mask, start)) => body(score + &mask.at(start, &key.number, self.form.wide())),
            }
        });
    }

    /// Stores the weight of a pair. A barrier follows in [`add_weighted`](Problem::add_weighted).
    pub(super) fn put_weight(&self, k: &Builder, [row, other]: [usize; 2], weight: &Expression) {
        let pitch = self.form.tile.weights_pitch();
        let place = &self.line * index(pitch) + &self.lane + &index(row * SIDE * pitch + other * SIDE);
        k.put(&self.weights, &place, weight);
    }

    /// Variables for the sums of the thread: every 16th column of each of its rows.
    pub(super) fn sums(&self, k: &Builder, columns: usize) -> Vec<Variable> {
        let count = self.form.tile.tall * columns.div_ceil(SIDE);
        (0..count).map(|_| k.var(&zero(self.form.wide()))).collect()
    }

    /// Adds the rows of the other side, with their weights, to [`sums`](Problem::sums). All threads of the block must
    /// call it after the weights are put.
    pub(super) fn add_weighted(&self, k: &Builder, others: &Rows<'_>, sums: &[Variable]) {
        let columns = others.columns.div_ceil(SIDE);
        // Parts of equal size.
        let most = columns.div_ceil(columns.div_ceil(MAX_COLUMNS));
        for number in 0..others.rows.len() {
            for first in (0..columns).step_by(most) {
                let count = most.min(columns - first);
                self.add_part(k, (others, number), [first, count], [columns, count * SIDE], sums);
            }
        }
    }

    /// Adds some columns of 16 rows. `columns` are those of a row of `sums`.
    fn add_part(
        &self,
        k: &Builder,
        (others, number): (&Rows<'_>, usize),
        [first, count]: [usize; 2],
        [columns, pitch]: [usize; 2],
        sums: &[Variable],
    ) {
        let (tile, wide) = (self.form.tile, self.form.wide());
        let to = k.bind(&(&self.line * index(pitch) + &self.lane));
        for place in 0..count {
            let column = k.bind(&(&self.lane + index((first + place) * SIDE)));
            let element = others.element(number, &column, wide);
            k.put(&self.part, &(&to + index(place * SIDE)), &element);
        }
        k.barrier();
        let of_line = k.bind(&(&self.line * index(tile.weights_pitch()) + &index(number * SIDE)));
        k.for_each(&index(SIDE), |other| {
            let weight = |row: usize| &of_line + &other + &index(row * SIDE * tile.weights_pitch());
            let weights: Vec<Expression> =
                (0..tile.tall).map(|row| k.bind(&self.weights.at(&weight(row)))).collect();
            let from = k.bind(&(&other * index(pitch) + &self.lane));
            for place in 0..count {
                let element = k.bind(&self.part.at(&(&from + index(place * SIDE))));
                for (row, weight) in weights.iter().enumerate() {
                    k.update(&sums[row * columns + first + place], Binary::Add, &(weight * &element));
                }
            }
        });
        k.barrier();
    }

    /// Combines one number per row of each of the 16 threads that share rows. All threads of the block must call it.
    pub(super) fn combined(&self, k: &Builder, numbers: &[Expression], function: Binary) -> Vec<Expression> {
        for (row, number) in numbers.iter().enumerate() {
            self.put_weight(k, [row, 0], number);
        }
        k.barrier();
        let pitch = self.form.tile.weights_pitch();
        let combine = |row: usize| {
            let from = k.bind(&(&self.line * index(pitch) + &index(row * SIDE * pitch)));
            let all = k.var(&self.weights.at(&from));
            k.for_range(&index(1), &index(SIDE), &index(1), |lane| {
                k.update(&all, function, &self.weights.at(&(&from + &lane)));
            });
            k.bind(&all.get())
        };
        let found = (0..numbers.len()).map(combine).collect();
        k.barrier();
        found
    }

    /// Stores the thread's sums to rows of a matrix, after a function of each row's number and sum.
    pub(super) fn store(
        &self,
        k: &Builder,
        rows: &Rows<'_>,
        sums: &[Variable],
        result: impl Fn(usize, Expression) -> Expression,
    ) {
        let columns = rows.columns.div_ceil(SIDE);
        for (row, (start, is_inside)) in rows.rows.iter().enumerate() {
            for place in 0..columns {
                let column = k.bind(&(&self.lane + index(place * SIDE)));
                let is_inside = is_inside & column.lt(&index(rows.columns));
                k.when(&is_inside, || {
                    let result = result(row, sums[row * columns + place].get()).cast(self.form.dtype);
                    k.store(&rows.matrix.x, &rows.matrix.place(start, &column), &result);
                });
            }
        }
    }
}
