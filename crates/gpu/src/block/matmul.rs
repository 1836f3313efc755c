//! Matmuls without a vendor's library: by tiles in shared memory, or by reductions where there are few rows or one
//! column.

use super::BlockKey;
use super::contraction::{Contraction, Element, Plan, THREADS, Tile, sum_dtype, tiled, zero};
use super::tuning::Class;
use crate::Gpu;
use crate::driver::{Argument, Arguments, DevicePtr, Driver, Matrices, Products};
use crate::native::length;
use kiln_ir::{Binary, DType, Result, TensorType};
use kiln_kernel::block::{BlockKernel, Buffer, Builder, Expression, LANES, Variable, has_vectors, index};

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
    /// Whether the left factor, the right factor and the result are accessed by vectors.
    vectors: [bool; 3],
    /// Whether blocks sum parts of the inner dimension, which the result holds one after the other.
    is_split: bool,
}

/// The sizes and factors of a launch.
pub(super) struct Call<'a, M> {
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
        let Call { count, rows, columns, inner, form, .. } = call;
        if rows <= MOST_ROWS {
            let arguments = call.arguments(&products.to, 0);
            let blocks = count * columns.div_ceil(form.columns_of_block());
            let key = form.key("matmul_rows").with(rows);
            return self.run_blocks(key, || few_rows(form, rows), blocks, arguments);
        }
        let (sizes, sums) = ([rows, columns], sum_dtype(form.result));
        let class = Class::new(form.dtype, form.result, form.transposed, [count, rows, columns, inner]);
        let measured = self.tuning.plan(class, [count, rows, columns, inner]);
        let plan = measured.filter(|plan| plan.suits(sizes, inner, sums));
        let multiprocessors = self.driver.info().multiprocessors;
        let plan = plan.unwrap_or_else(|| Plan::of(count, sizes, inner, sums, multiprocessors));
        self.multiply_by_plan(&call, plan, &products.to)
    }

    /// Queues matmuls by the tiled kernel. The results are row-major from `to`.
    ///
    /// # Errors
    /// As [`multiply_by_kernel`](Gpu::multiply_by_kernel).
    pub(super) fn multiply_by_plan(
        &self,
        call: &Call<'_, D::Memory>,
        plan: Plan,
        to: &DevicePtr<D::Memory>,
    ) -> Result<()> {
        if plan.parts > 1 {
            return self.multiply_by_parts(call, plan, to);
        }
        let form = Form { vectors: self.vectors(call, call.form.result, to), ..call.form };
        self.run_tiles(call, form, plan, call.arguments(to, 0))
    }

    /// Stores the sums of parts of the inner dimension in a workspace, and adds them in order.
    fn multiply_by_parts(
        &self,
        call: &Call<'_, D::Memory>,
        plan: Plan,
        to: &DevicePtr<D::Memory>,
    ) -> Result<()> {
        let Call { count, rows, columns, form, .. } = *call;
        let (sums, total) = (sum_dtype(form.result), count * rows * columns);
        let workspace = self.uninit(&TensorType::new([plan.parts, total], sums))?;
        let place = workspace.at(sums.size());
        let vectors = self.vectors(call, sums, &place);
        let split = Form { result: sums, vectors, is_split: true, ..form };
        let part = plan.part(call.inner);
        self.run_tiles(call, split, plan, call.arguments(&place, part))?;
        let mut arguments = Arguments::<D::Memory>::new();
        arguments.extend([place, to.clone()].map(Argument::Pointer));
        arguments.extend([total, plan.parts].map(length));
        let key = BlockKey::new("matmul_sum").dtype(sums).dtype(form.result);
        self.run_points(key, || sum_of_parts(sums, form.result), total, arguments)
    }

    /// Whether the left factor, the right factor and a result of that dtype and place are accessed by vectors.
    fn vectors(&self, call: &Call<'_, D::Memory>, result: DType, to: &DevicePtr<D::Memory>) -> [bool; 3] {
        let [a, b] = call.factors;
        let has_vectors = call.vectors(result, to);
        let is_bound = [&a.at, &b.at, to].map(|at| self.is_one_binding(at));
        core::array::from_fn(|place| has_vectors[place] && is_bound[place])
    }

    fn run_tiles(
        &self,
        call: &Call<'_, D::Memory>,
        form: Form,
        Plan { tile, parts }: Plan,
        arguments: Arguments<D::Memory>,
    ) -> Result<()> {
        let blocks = parts * tile.blocks(call.count, [call.rows, call.columns]);
        let key = tile.key().into_iter().fold(form.key("matmul"), |key, number| key.with(number));
        self.run_blocks(key, || matmul(form, tile), blocks, arguments)
    }
}

impl<'a, M> Call<'a, M> {
    /// One column is computed as one row, by the transposed matmul.
    pub(super) fn of(products: &'a Products<M>) -> Call<'a, M> {
        let Products { count, rows, columns, inner, dtype, result, factors: [a, b], .. } = products;
        let turns = *columns == 1 && *rows > MOST_ROWS;
        let [rows, columns] = if turns { [1, *rows] } else { [*rows, *columns] };
        let factors = if turns { [b, a] } else { [a, b] };
        let transposed = factors.map(|matrices| matrices.transposed != turns);
        let form = Form { dtype: *dtype, result: *result, transposed, vectors: [false; 3], is_split: false };
        Call { count: *count, rows, columns, inner: *inner, factors, form }
    }

    /// In the order of the parameters of [`MatMul::new`]. `part`: the inner positions of a part.
    fn arguments(&self, to: &DevicePtr<M>, part: usize) -> Arguments<M> {
        let [a, b] = self.factors;
        let mut arguments = Arguments::<M>::new();
        arguments.extend([&a.at, &b.at, to].map(|place| Argument::Pointer(place.clone())));
        arguments.extend([self.rows, self.columns, self.inner].map(length));
        arguments.extend([a.leading_dim, a.step, b.leading_dim, b.step].map(length));
        arguments.extend([self.count, part].map(length));
        arguments
    }

    /// Whether the left factor, the right factor and a result of that dtype and place have aligned vectors.
    fn vectors(&self, result: DType, to: &DevicePtr<M>) -> [bool; 3] {
        let Call { rows, columns, inner, form, .. } = *self;
        let [a, b] = self.factors;
        let is_vector = |dtype: DType, at: &DevicePtr<M>, lengths: [usize; 3]| {
            has_vectors(dtype)
                && at.offset.is_multiple_of(LANES * dtype.size())
                && lengths.iter().all(|length| length.is_multiple_of(LANES))
        };
        let factor = |factor: &Matrices<M>, is_transposed: bool, [lines, length]: [usize; 2]| {
            let length = if is_transposed { lines } else { length };
            is_vector(form.dtype, &factor.at, [factor.leading_dim, factor.step, length])
        };
        [
            factor(a, form.transposed[0], [rows, inner]),
            factor(b, form.transposed[1], [inner, columns]),
            is_vector(result, to, [columns; 3]),
        ]
    }
}

impl Form {
    fn key(self, name: &'static str) -> BlockKey {
        let [a, b] = self.transposed;
        let key = BlockKey::new(name).dtype(self.dtype).dtype(self.result).with(a).with(b);
        self.vectors.into_iter().fold(key.with(self.is_split), |key, is_vector| key.with(is_vector))
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
    /// The batch size, and the inner positions of a part.
    count: Expression,
    part: Expression,
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
        let [count, part] = k.lengths(["count", "part"]);
        MatMul { form, rows, columns, inner, factors, y, count, part }
    }

    /// The matrix of a member of the batch.
    fn matrix(&self, batch: &Expression) -> Expression {
        if self.form.is_split { batch % &self.count } else { batch.clone() }
    }
}

impl Contraction for MatMul {
    fn sum_dtype(&self) -> DType {
        sum_dtype(self.form.result)
    }

    fn sizes(&self) -> [Expression; 2] {
        [self.rows.clone(), self.columns.clone()]
    }

    /// All matrices of the first part come before those of the second.
    fn inner_range(&self, k: &Builder, batch: &Expression) -> [Expression; 2] {
        if !self.form.is_split {
            return [index(0), self.inner.clone()];
        }
        let first = k.bind(&(batch / &self.count * &self.part));
        let end = (&first + &self.part).min(&self.inner);
        [first, end]
    }

    fn is_inner_contiguous(&self) -> [bool; 2] {
        let [a, b] = self.form.transposed;
        [!a, b]
    }

    fn has_vectors(&self) -> [bool; 3] {
        self.form.vectors
    }

    fn buffers(&self) -> [Buffer; 3] {
        let [a, b] = &self.factors;
        [a.x, b.x, self.y]
    }

    fn row(&self, k: &Builder, batch: &Expression, row: &Expression) -> Vec<Expression> {
        let a = &self.factors[0];
        vec![k.bind(&(self.matrix(batch) * &a.step + &(row * &a.strides[0])))]
    }

    fn left(&self, _: &Builder, row: &[Expression], inner: &Expression) -> Element {
        Element { at: inner * &self.factors[0].strides[1] + &row[0], is_inside: None }
    }

    fn column(&self, k: &Builder, batch: &Expression, column: &Expression) -> Vec<Expression> {
        let b = &self.factors[1];
        vec![k.bind(&(self.matrix(batch) * &b.step + &(column * &b.strides[1])))]
    }

    fn right(&self, _: &Builder, column: &[Expression], inner: &Expression) -> Element {
        Element { at: inner * &self.factors[1].strides[0] + &column[0], is_inside: None }
    }

    fn result(&self, _: &Builder, batch: &Expression, row: &Expression, column: &Expression) -> Expression {
        let line = batch * &self.rows + row;
        line * &self.columns + column
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
    let [left, right, result] = call.buffers();
    let shared = k.shared(dtype, THREADS * rows);
    let sums: Vec<Variable> = (0..rows).map(|_| k.var(&zero(dtype))).collect();
    let column = k.bind(&(&first_column + &place));
    k.when(&column.lt(&call.columns), || {
        let column = call.column(&k, &batch, &column);
        let states: Vec<Vec<Expression>> = (0..rows).map(|row| call.row(&k, &batch, &index(row))).collect();
        k.for_range(&lane, &call.inner, &index(lanes), |inner| {
            let right = k.bind(&call.right(&k, &column, &inner).value(&right, dtype));
            for (sum, row) in sums.iter().zip(&states) {
                let left = call.left(&k, row, &inner).value(&left, dtype);
                k.update(sum, Binary::Add, &(left * &right));
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
        k.when(&column.lt(&call.columns), || {
            let at = call.result(&k, &batch, &row, &column);
            k.store(&result, &at, &sum.get().cast(result.dtype()));
        });
    });
    k.finish()
}

/// The kernel that adds the sums of parts, in order.
fn sum_of_parts(sums: DType, result: DType) -> BlockKernel {
    let k = Builder::new("matmul_sum", THREADS as u32);
    let (x, y) = (k.input("x", sums), k.output("y", result));
    let [total, parts] = k.lengths(["total", "parts"]);
    k.for_points(&total, |point| {
        let sum = k.var(&zero(sums));
        k.for_each(&parts, |part| {
            k.update(&sum, Binary::Add, &x.at(&(part * &total + &point)));
        });
        k.store(&y, &point, &sum.get().cast(result));
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

    /// Sizes of results with each tile.
    const SIZES: [[usize; 2]; 5] = [[8, 1000], [1000, 8], [100, 100], [256, 256], [2048, 2048]];

    #[test]
    fn kernels_print_for_all_dtypes_and_tiles() {
        for (dtype, result) in DTYPES {
            for transposed in [[false, false], [true, true]] {
                let form = Form { dtype, result, transposed, vectors: [false; 3], is_split: transposed[0] };
                for sizes in SIZES {
                    assert_within(&matmul(form, Tile::of(1, sizes, sum_dtype(result), 8)), WEBGPU_SHARED);
                }
                for rows in [1, MOST_ROWS] {
                    assert_within(&few_rows(form, rows), WEBGPU_SHARED);
                }
            }
            assert_within(&sum_of_parts(sum_dtype(result), result), WEBGPU_SHARED);
        }
    }

    #[test]
    fn kernels_with_vectors_print_for_all_tiles() {
        let dtypes = DTYPES.iter().filter(|(dtype, result)| has_vectors(*dtype) && has_vectors(*result));
        for &(dtype, result) in dtypes {
            for transposed in [[false, false], [false, true], [true, false]] {
                for vectors in [[true; 3], [true, false, false], [false, true, true]] {
                    let form = Form { dtype, result, transposed, vectors, is_split: false };
                    for sizes in SIZES {
                        let tile = Tile::of(1, sizes, sum_dtype(result), 8);
                        assert_within(&matmul(form, tile), WEBGPU_SHARED);
                    }
                }
            }
        }
    }

    /// Matmuls of contiguous factors at an offset in bytes.
    fn products([rows, inner, columns]: [usize; 3], offset: usize) -> Products<()> {
        let at = |offset: usize| DevicePtr::new(Arc::new(()), offset);
        let matrices = |leading_dim, step| Matrices { at: at(offset), transposed: false, leading_dim, step };
        Products {
            count: 2,
            rows,
            columns,
            inner,
            dtype: DType::F32,
            result: DType::F32,
            float8: None,
            factors: [matrices(inner, rows * inner), matrices(columns, 0)],
            to: at(0),
            epilogue: Epilogue::default(),
        }
    }

    #[test]
    fn vectors_are_aligned() {
        let vectors = |sizes: [usize; 3], offset: usize| {
            let products = products(sizes, offset);
            let call = Call::of(&products);
            call.vectors(DType::F32, &products.to)
        };
        assert_eq!(vectors([7, 8, 12], 32), [true; 3]);
        assert_eq!(vectors([7, 8, 12], 4), [false, false, true]);
        assert_eq!(vectors([7, 6, 12], 0), [false, true, true]);
        assert_eq!(vectors([7, 8, 11], 0), [true, false, false]);
        let products = products([7, 8, 12], 0);
        let call = Call::of(&products);
        assert_eq!(call.vectors(DType::F64, &products.to), [true, true, false]);
    }

    #[test]
    fn one_column_is_computed_as_one_row() {
        let products = products([7, 5, 1], 0);
        let call = Call::of(&products);
        assert_eq!((call.rows, call.columns, call.inner), (1, 7, 5));
        assert_eq!(call.form.transposed, [true, true]);
        assert_eq!(call.factors.map(|factor| factor.step), [0, 35]);
    }
}
