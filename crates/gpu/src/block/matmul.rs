//! Matmuls without a vendor's library: by tiles in shared memory, or by reductions where there are few rows or one
//! column.

use super::BlockKey;
use super::contraction::{Contraction, THREADS, Tile, sum_dtype, tiled, zero};
use crate::Gpu;
use crate::driver::{Argument, Arguments, Driver, Matrices, Products};
use crate::native::length;
use kiln_ir::{Binary, DType, Result};
use kiln_kernel::block::{BlockKernel, Buffer, Builder, Expression, Variable, index};

/// The maximum number of rows that the reducing kernel holds in registers.
const MOST_ROWS: usize = 4;

/// The columns of a block of the reducing kernel.
const COLUMNS: usize = 32;

/// The same where columns are contiguous, so that more threads read one column.
const CONTIGUOUS_COLUMNS: usize = 8;

/// The dtypes and layouts of a matmul, on which the source of a kernel depends.
#[derive(Clone, Copy)]
struct Form {
    dtype: DType,
    result: DType,
    /// Whether the left and the right factor are column-major.
    transposed: [bool; 2],
}

/// The sizes and factors of a launch.
struct Call<'a, M> {
    count: usize,
    rows: usize,
    columns: usize,
    inner: usize,
    factors: [&'a Matrices<M>; 2],
    form: Form,
}

impl<D: Driver> Gpu<D> {
    /// Queues matmuls without an epilogue by a block kernel, which supports all dtypes and layouts.
    ///
    /// # Errors
    /// When the kernel does not compile, there are too many blocks, or the device failed.
    pub(crate) fn multiply_by_kernel(&self, products: &Products<D::Memory>) -> Result<()> {
        if self.multiply_cooperatively(products)? {
            return Ok(());
        }
        let call = Call::of(products);
        let arguments = call.arguments(products);
        let Call { count, rows, columns, form, .. } = call;
        if rows <= MOST_ROWS {
            let blocks = count * columns.div_ceil(form.columns_of_block());
            let key = form.key("matmul_rows").with(rows);
            return self.run_blocks(key, || few_rows(form, rows), blocks, arguments);
        }
        let sizes = [rows, columns];
        let tile = Tile::of(count, sizes, sum_dtype(form.result), self.driver.info().multiprocessors);
        let key = tile.key().into_iter().fold(form.key("matmul"), |key, number| key.with(number));
        self.run_blocks(key, || matmul(form, tile), tile.blocks(count, sizes), arguments)
    }
}

impl<'a, M> Call<'a, M> {
    /// One column is computed as one row, by the transposed matmul.
    fn of(products: &'a Products<M>) -> Call<'a, M> {
        let Products { count, rows, columns, inner, dtype, result, factors: [a, b], .. } = products;
        let turns = *columns == 1 && *rows > MOST_ROWS;
        let [rows, columns] = if turns { [1, *rows] } else { [*rows, *columns] };
        let factors = if turns { [b, a] } else { [a, b] };
        let transposed = factors.map(|matrices| matrices.transposed != turns);
        let form = Form { dtype: *dtype, result: *result, transposed };
        Call { count: *count, rows, columns, inner: *inner, factors, form }
    }

    /// In the order of the parameters of [`MatMul::new`].
    fn arguments(&self, products: &Products<M>) -> Arguments<M> {
        let [a, b] = self.factors;
        let mut arguments = Arguments::<M>::new();
        arguments.extend([&a.at, &b.at, &products.to].map(|place| Argument::Pointer(place.clone())));
        arguments.extend([self.rows, self.columns, self.inner].map(length));
        arguments.extend([a.leading_dim, a.step, b.leading_dim, b.step].map(length));
        arguments
    }
}

impl Form {
    fn key(self, name: &'static str) -> BlockKey {
        let [a, b] = self.transposed;
        BlockKey::new(name).dtype(self.dtype).dtype(self.result).with(a).with(b)
    }

    /// Columns per block of the reducing kernel.
    fn columns_of_block(self) -> usize {
        if self.transposed[1] { CONTIGUOUS_COLUMNS } else { COLUMNS }
    }
}

/// The parameters of both kernels.
struct MatMul {
    form: Form,
    rows: Expression,
    columns: Expression,
    inner: Expression,
    factors: [Factor; 2],
    y: Buffer,
}

/// A factor.
struct Factor {
    x: Buffer,
    /// The batch stride.
    step: Expression,
    /// The strides of rows and columns.
    strides: [Expression; 2],
}

impl Factor {
    fn new(x: Buffer, leading_dim: &Expression, step: &Expression, transposed: bool) -> Factor {
        let (leading_dim, one) = (leading_dim.clone(), index(1));
        let strides = if transposed { [one, leading_dim] } else { [leading_dim, one] };
        Factor { x, step: step.clone(), strides }
    }
}

impl MatMul {
    fn new(k: &Builder, form: Form) -> MatMul {
        let [a, b] = ["a", "b"].map(|name| k.input(name, form.dtype));
        let y = k.output("y", form.result);
        let [rows, columns, inner] = k.lengths(["rows", "columns", "inner"]);
        let [a_leading_dim, a_step, b_leading_dim, b_step] =
            k.lengths(["a_leading_dim", "a_step", "b_leading_dim", "b_step"]);
        let factors = [
            Factor::new(a, &a_leading_dim, &a_step, form.transposed[0]),
            Factor::new(b, &b_leading_dim, &b_step, form.transposed[1]),
        ];
        MatMul { form, rows, columns, inner, factors, y }
    }
}

impl Contraction for MatMul {
    fn sum_dtype(&self) -> DType {
        sum_dtype(self.form.result)
    }

    fn sizes(&self) -> [Expression; 2] {
        [self.rows.clone(), self.columns.clone()]
    }

    fn inner_range(&self, _: &Builder, _: &Expression) -> [Expression; 2] {
        [index(0), self.inner.clone()]
    }

    fn is_inner_contiguous(&self) -> [bool; 2] {
        let [a, b] = self.form.transposed;
        [!a, b]
    }

    fn row(&self, k: &Builder, batch: &Expression, row: &Expression) -> Vec<Expression> {
        let a = &self.factors[0];
        vec![k.bind(&(batch * &a.step + &(row * &a.strides[0])))]
    }

    fn left(&self, _: &Builder, row: &[Expression], inner: &Expression) -> Expression {
        let a = &self.factors[0];
        a.x.at(&(inner * &a.strides[1] + &row[0])).cast(self.sum_dtype())
    }

    fn column(&self, k: &Builder, batch: &Expression, column: &Expression) -> Vec<Expression> {
        let b = &self.factors[1];
        vec![k.bind(&(batch * &b.step + &(column * &b.strides[1])))]
    }

    fn right(&self, _: &Builder, column: &[Expression], inner: &Expression) -> Expression {
        let b = &self.factors[1];
        b.x.at(&(inner * &b.strides[0] + &column[0])).cast(self.sum_dtype())
    }

    fn store(
        &self,
        k: &Builder,
        batch: &Expression,
        row: &Expression,
        column: &Expression,
        sum: &Expression,
    ) {
        let line = batch * &self.rows + row;
        k.store(&self.y, &(line * &self.columns + column), &sum.cast(self.form.result));
    }
}

/// The tiled kernel.
fn matmul(form: Form, tile: Tile) -> BlockKernel {
    let k = Builder::new("matmul", THREADS as u32);
    let call = MatMul::new(&k, form);
    tiled(&k, &call, tile);
    k.finish()
}

/// The kernel for few rows: the threads of a block share the inner dimension, and then add their sums.
fn few_rows(form: Form, rows: usize) -> BlockKernel {
    let k = Builder::new("matmul_rows", THREADS as u32);
    let call = MatMul::new(&k, form);
    let (wide, dtype) = (form.columns_of_block(), call.sum_dtype());
    let lanes = THREADS / wide;
    let tiles = k.bind(&((&call.columns + index(wide - 1)) / &index(wide)));
    let batch = k.bind(&(k.block() / &tiles));
    let first_column = k.bind(&(k.block() % &tiles * &index(wide)));
    // Neighbouring threads read neighbouring elements.
    let fast = index(if form.transposed[1] { lanes } else { wide });
    let [fast, slow] = [k.bind(&(k.thread() % &fast)), k.bind(&(k.thread() / &fast))];
    let [place, lane] = if form.transposed[1] { [slow, fast] } else { [fast, slow] };
    let shared = k.shared(dtype, THREADS * rows);
    let sums: Vec<Variable> = (0..rows).map(|_| k.var(&zero(dtype))).collect();
    let column = k.bind(&(&first_column + &place));
    k.when(&column.lt(&call.columns), || {
        let column = call.column(&k, &batch, &column);
        let states: Vec<Vec<Expression>> = (0..rows).map(|row| call.row(&k, &batch, &index(row))).collect();
        k.for_range(&lane, &call.inner, &index(lanes), |inner| {
            let right = k.bind(&call.right(&k, &column, &inner));
            for (sum, row) in sums.iter().zip(&states) {
                k.update(sum, Binary::Add, &(call.left(&k, row, &inner) * &right));
            }
        });
    });
    for (row, sum) in sums.iter().enumerate() {
        let at = &lane * index(wide) + &place + &index(row * THREADS);
        k.put(&shared, &at, &sum.get());
    }
    k.barrier();
    k.for_threads(&index(rows * wide), |number| {
        let [row, place] = [k.bind(&(&number / index(wide))), k.bind(&(&number % index(wide)))];
        let column = k.bind(&(&first_column + &place));
        let first = k.bind(&(&row * index(THREADS) + &place));
        let sum = k.var(&zero(dtype));
        k.for_each(&index(lanes), |lane| {
            k.update(&sum, Binary::Add, &shared.at(&(lane * &index(wide) + &first)));
        });
        k.when(&column.lt(&call.columns), || call.store(&k, &batch, &row, &column, &sum.get()));
    });
    k.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::limits::{WEBGPU_SHARED, assert_within};
    use crate::driver::{DevicePtr, Epilogue};
    use std::sync::Arc;

    const DTYPES: [(DType, DType); 12] = [
        (DType::F64, DType::F64),
        (DType::F32, DType::F32),
        (DType::F16, DType::F16),
        (DType::BF16, DType::BF16),
        (DType::I64, DType::I64),
        (DType::I32, DType::I32),
        (DType::I16, DType::I16),
        (DType::I8, DType::I32),
        (DType::U64, DType::U64),
        (DType::U32, DType::U32),
        (DType::U16, DType::U16),
        (DType::U8, DType::I32),
    ];

    #[test]
    fn kernels_print_for_all_dtypes_and_tiles() {
        for (dtype, result) in DTYPES {
            for transposed in [[false, false], [true, true]] {
                let form = Form { dtype, result, transposed };
                for sizes in [[8, 1000], [1000, 8], [100, 100], [1000, 1000]] {
                    assert_within(&matmul(form, Tile::of(1, sizes, sum_dtype(result), 8)), WEBGPU_SHARED);
                }
                for rows in [1, MOST_ROWS] {
                    assert_within(&few_rows(form, rows), WEBGPU_SHARED);
                }
            }
        }
    }

    #[test]
    fn one_column_is_computed_as_one_row() {
        let at = || DevicePtr::new(Arc::new(()), 0);
        let matrices = |leading_dim, step| Matrices { at: at(), transposed: false, leading_dim, step };
        let products = Products {
            count: 2,
            rows: 7,
            columns: 1,
            inner: 5,
            dtype: DType::F32,
            result: DType::F32,
            float8: None,
            factors: [matrices(5, 35), matrices(1, 0)],
            to: at(),
            epilogue: Epilogue::default(),
        };
        let call = Call::of(&products);
        assert_eq!((call.rows, call.columns, call.inner), (1, 7, 5));
        assert_eq!(call.form.transposed, [true, true]);
        assert_eq!(call.factors.map(|factor| factor.step), [0, 35]);
    }
}
