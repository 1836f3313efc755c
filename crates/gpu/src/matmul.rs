//! Matmul: by the vendor's BLAS and a GEMV kernel for few rows, by block kernels, or by a generated kernel.

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::driver::{Driver, Epilogue, Matrices, Products};
use crate::view::tensor;
use kiln_ir::{DType, Layout, Op, Operand, Operands, Result, TensorType, Value, Values};
use smallvec::smallvec;

/// The BLAS layout of an operand's matrices: transposition, leading dimension, batch stride.
#[derive(Clone, Copy)]
pub(crate) struct MatrixLayout {
    pub(crate) transposed: bool,
    /// Elements from one row to the next; from one column to the next if `transposed`.
    pub(crate) leading_dim: usize,
    /// The batch stride in elements; 0 if all matrices are the same.
    pub(crate) step: usize,
}

impl<D: Driver> Gpu<D> {
    pub(crate) fn matmul(&self, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        let (ty, inner) = (results[0], inputs[0].value().map_or(0, |a| *a.shape().last().unwrap_or(&0)));
        if ty.num_elements() == 0 || inner == 0 {
            return self.computed(&Op::MatMul, inputs, results);
        }
        let result = self.uninit(&ty)?;
        let mut factors = [inputs[0].clone(), inputs[1].clone()];
        if let Some(products) = self.products(&mut factors, &ty, &result)?
            && self.run_products(products)?
        {
            return Ok(smallvec![Array { suspicions: suspicions::<D>(&inputs), ..result }.into_value(ty)]);
        }
        drop((result, factors));
        self.computed(&Op::MatMul, inputs, results)
    }

    /// Queues matmuls; `false` if there is a library that does not support them.
    fn run_products(&self, products: Products<D::Memory>) -> Result<bool> {
        // The block kernel takes the place of the hand-written GEMV kernel.
        let is_slim_by_block = !self.has_native() && Self::is_slim(&products);
        if self.driver.library().is_none() || is_slim_by_block {
            self.multiply_by_kernel(&products)?;
            return Ok(true);
        }
        Ok((self.has_native() && self.multiply_slim(&products)?) || self.multiply(products)?)
    }

    /// The description of the matmul of two factors, of that type and into that memory; `None` if a factor is no
    /// tensor. Factors without a [`MatrixLayout`] are copied; the copies must live until the matmul is queued.
    pub(crate) fn products(
        &self,
        factors: &mut [Operand; 2],
        ty: &TensorType,
        result: &Array<D>,
    ) -> Result<Option<Products<D::Memory>>> {
        let mut layouts = [None; 2];
        for (factor, matrix) in factors.iter_mut().zip(&mut layouts) {
            *matrix = self.layout_of(factor)?;
        }
        let [Some(left), Some(right)] = layouts else { return Ok(None) };
        let (a, a_ty) = tensor::<D>(factors, 0)?;
        let (b, b_ty) = tensor::<D>(factors, 1)?;
        let rank = ty.shape.rank();
        Ok(Some(Products {
            count: ty.shape[..rank - 2].iter().product(),
            rows: ty.shape[rank - 2],
            columns: ty.shape[rank - 1],
            inner: a_ty.shape[rank - 1],
            dtype: a_ty.dtype,
            result: ty.dtype,
            float8: None,
            factors: [left.matrices(a, a_ty.dtype), right.matrices(b, b_ty.dtype)],
            to: result.at(ty.dtype.size()),
            epilogue: Epilogue::default(),
        }))
    }

    /// The layout of an operand's matrices. Replaces the operand by a contiguous copy where BLAS could not read it.
    fn layout_of(&self, operand: &mut Operand) -> Result<Option<MatrixLayout>> {
        let Operand::Value(value) = operand else { return Ok(None) };
        let array = Array::<D>::of(value)?;
        if let Some(matrix) = MatrixLayout::of(&array.layout) {
            return Ok(Some(matrix));
        }
        let ty = *value.ty();
        let copy = self.contiguous(array, ty.dtype)?;
        let matrix = MatrixLayout::of(&copy.layout);
        *operand = Operand::Value(Value::new(ty, copy));
        Ok(matrix)
    }
}

impl MatrixLayout {
    fn matrices<D: Driver>(self, array: &Array<D>, dtype: DType) -> Matrices<D::Memory> {
        let MatrixLayout { transposed, leading_dim, step } = self;
        Matrices { at: array.at(dtype.size()), transposed, leading_dim, step }
    }

    /// The BLAS layout of a strided layout; `None` if both rows and columns have gaps, or if batch strides differ.
    pub(crate) fn of(layout: &Layout) -> Option<MatrixLayout> {
        let rank = layout.rank();
        let (shape, strides) = (&layout.shape, layout.strides());
        let [rows, columns] = [shape[rank - 2], shape[rank - 1]];
        let [down, across] = [strides[rank - 2], strides[rank - 1]];
        let fits = |leading_dim: isize, least: usize| {
            usize::try_from(leading_dim).ok().filter(|leading_dim| *leading_dim >= least)
        };
        let (transposed, leading_dim) = if (across == 1 || columns == 1)
            && let Some(leading_dim) = fits(if rows == 1 { columns as isize } else { down }, columns)
        {
            (false, leading_dim)
        } else if (down == 1 || rows == 1)
            && let Some(leading_dim) = fits(if columns == 1 { rows as isize } else { across }, rows)
        {
            (true, leading_dim)
        } else {
            return None;
        };
        // Merges the batch axes into one.
        let mut merged: Option<(usize, isize)> = None;
        for axis in (0..rank - 2).rev().filter(|&axis| shape[axis] != 1) {
            merged = match merged {
                None => Some((shape[axis], strides[axis])),
                Some((length, step)) if strides[axis] == step * length as isize => {
                    Some((length * shape[axis], step))
                }
                Some(_) => return None,
            };
        }
        let step = usize::try_from(merged.map_or(0, |(_, step)| step)).ok()?;
        Some(MatrixLayout { transposed, leading_dim, step })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::{Axes, Shape};

    fn matrix(layout: &Layout) -> Option<(bool, usize, usize)> {
        MatrixLayout::of(layout).map(|matrix| (matrix.transposed, matrix.leading_dim, matrix.step))
    }

    #[test]
    fn contiguous_rows_or_columns_have_a_matrix_layout() {
        let plain = Layout::contiguous(Shape::from([2, 3, 4, 5]));
        assert_eq!(matrix(&plain), Some((false, 5, 20)));
        assert_eq!(matrix(&plain.permute(&Axes::new(&[0, 1, 3, 2]))), Some((true, 5, 20)));
        assert_eq!(matrix(&plain.permute(&Axes::new(&[0, 2, 1, 3]))), None);
        assert_eq!(matrix(&plain.permute(&Axes::new(&[1, 0, 2, 3]))), None);
        let one = Layout::contiguous(Shape::from([1, 4, 5]));
        assert_eq!(matrix(&one.broadcast(&Shape::from([7, 4, 5]))), Some((false, 5, 0)));
        let row = Layout::contiguous(Shape::from([1, 5]));
        assert_eq!(matrix(&row), Some((false, 5, 0)));
        assert_eq!(matrix(&row.permute(&Axes::new(&[1, 0]))), Some((false, 1, 0)));
    }
}
