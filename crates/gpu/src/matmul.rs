//! Products of matrices: by a kernel for few rows, by the vendor's library, or by a kernel that is printed.

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::driver::{Driver, Epilogue, Matrices, Products};
use crate::view::tensor;
use kiln_ir::{DType, Layout, Op, Operand, Operands, Result, TensorType, Value, Values};
use smallvec::smallvec;

/// How the matrices of an operand lie.
#[derive(Clone, Copy)]
pub(crate) struct Lie {
    pub(crate) transposed: bool,
    pub(crate) pitch: usize,
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
            && (self.multiply_slim(&products)? || self.multiply(products)?)
        {
            return Ok(smallvec![Array { suspicions: suspicions::<D>(&inputs), ..result }.into_value(ty)]);
        }
        drop((result, factors));
        self.computed(&Op::MatMul, inputs, results)
    }

    /// The product of two factors as libraries are asked for it, of that type and into that memory; `None` where factors are no
    /// tensors. Those that libraries could not read become copies, which must be kept until the product is queued.
    pub(crate) fn products(
        &self,
        factors: &mut [Operand; 2],
        ty: &TensorType,
        result: &Array<D>,
    ) -> Result<Option<Products<D::Memory>>> {
        let mut lies = [None; 2];
        for (factor, lie) in factors.iter_mut().zip(&mut lies) {
            *lie = self.lying(factor)?;
        }
        let [Some(left), Some(right)] = lies else { return Ok(None) };
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

    /// How an operand's matrices lie; it is copied where libraries could not read it.
    fn lying(&self, operand: &mut Operand) -> Result<Option<Lie>> {
        let Operand::Value(value) = operand else { return Ok(None) };
        let array = Array::<D>::of(value)?;
        if let Some(lie) = Lie::of(&array.layout) {
            return Ok(Some(lie));
        }
        let ty = *value.ty();
        let copy = self.contiguous(array, ty.dtype)?;
        let lie = Lie::of(&copy.layout);
        *operand = Operand::Value(Value::new(ty, copy));
        Ok(lie)
    }
}

impl Lie {
    fn matrices<D: Driver>(self, array: &Array<D>, dtype: DType) -> Matrices<D::Memory> {
        let Lie { transposed, pitch, step } = self;
        Matrices { at: array.at(dtype.size()), transposed, pitch, step }
    }

    /// `None` where rows or columns have gaps, or matrices do not follow each other at one distance.
    pub(crate) fn of(layout: &Layout) -> Option<Lie> {
        let rank = layout.rank();
        let (shape, strides) = (&layout.shape, layout.strides());
        let [rows, columns] = [shape[rank - 2], shape[rank - 1]];
        let [down, across] = [strides[rank - 2], strides[rank - 1]];
        let fits = |pitch: isize, least: usize| usize::try_from(pitch).ok().filter(|pitch| *pitch >= least);
        let (transposed, pitch) = if (across == 1 || columns == 1)
            && let Some(pitch) = fits(if rows == 1 { columns as isize } else { down }, columns)
        {
            (false, pitch)
        } else if (down == 1 || rows == 1)
            && let Some(pitch) = fits(if columns == 1 { rows as isize } else { across }, rows)
        {
            (true, pitch)
        } else {
            return None;
        };
        // The axes before, seen as one.
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
        Some(Lie { transposed, pitch, step })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::{Axes, Shape};

    fn lie(layout: &Layout) -> Option<(bool, usize, usize)> {
        Lie::of(layout).map(|lie| (lie.transposed, lie.pitch, lie.step))
    }

    #[test]
    fn rows_or_columns_without_gaps_are_read_where_they_lie() {
        let plain = Layout::contiguous(Shape::from([2, 3, 4, 5]));
        assert_eq!(lie(&plain), Some((false, 5, 20)));
        assert_eq!(lie(&plain.permute(&Axes::new(&[0, 1, 3, 2]))), Some((true, 5, 20)));
        assert_eq!(lie(&plain.permute(&Axes::new(&[0, 2, 1, 3]))), None);
        assert_eq!(lie(&plain.permute(&Axes::new(&[1, 0, 2, 3]))), None);
        let one = Layout::contiguous(Shape::from([1, 4, 5]));
        assert_eq!(lie(&one.broadcast(&Shape::from([7, 4, 5]))), Some((false, 5, 0)));
        let row = Layout::contiguous(Shape::from([1, 5]));
        assert_eq!(lie(&row), Some((false, 5, 0)));
        assert_eq!(lie(&row.permute(&Axes::new(&[1, 0]))), Some((false, 1, 0)));
    }
}
