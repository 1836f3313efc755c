//! LDL factorisation of symmetric indefinite matrices.

use super::{
    Gradients, LdlFactor, LdlSolve, LdlUnpack, MatrixOp, Signature, last_two, leading, run_one, with_last,
};
use crate::host::{Matrices, Number, joined, row_major, split};
use crate::kernel::ldl::{self, Block};
use crate::matrix::sum;
use kiln_ir::{DType, Error, Result, ResultTypes, TensorData, TensorType, Var};
use smallvec::smallvec;

impl MatrixOp for LdlFactor {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(1)?;
        let ty = operands.square(0)?;
        Ok(smallvec![*ty, with_last(ty, &[last_two(&ty.shape).0]).with_dtype(DType::I32)])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let a = Matrices::<T::Part>::of(inputs, 0)?;
        let found = a.each(|index| {
            let ldl = ldl::factor(a.get(index).as_ref());
            Ok((row_major(ldl.factors.as_ref()), ldl.pivots))
        })?;
        let (factors, pivots) = split(found);
        Ok(vec![joined(factors, *inputs[0].shape())?, joined(pivots, a.shape_with(&[a.rows]))?])
    }

    /// No gradient is implemented: requesting it returns an error.
    fn vjp<'e>(&self, _x: &[Var<'e>], _y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        if g[0].is_none() { Ok(vec![None]) } else { Err(no_gradient("ldl_factor")) }
    }
}

fn no_gradient(op: &'static str) -> Error {
    Error::gradient(op, "the factorisation has no gradient")
        .hint("use `solve`, `det` or `eigh`, or detach the matrix to differentiate `ldl_solve` by its right sides alone")
}

impl MatrixOp for LdlUnpack {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(2)?;
        let ty = *operands.square(0)?;
        check_pivots(operands)?;
        Ok(smallvec![ty, ty])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let factors = Matrices::<T::Part>::of(inputs, 0)?;
        let pivots = inputs[1].as_slice::<i32>()?;
        let found = factors.each(|index| {
            let (l, d) =
                ldl::unpack(factors.get(index).as_ref(), &blocks("ldl", pivots, index, factors.rows)?);
            Ok((row_major(l.as_ref()), row_major(d.as_ref())))
        })?;
        let (l, d) = split(found);
        Ok(vec![joined(l, *inputs[0].shape())?, joined(d, *inputs[0].shape())?])
    }

    /// No gradient is implemented: requesting it returns an error.
    fn vjp<'e>(&self, _x: &[Var<'e>], _y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        if g.iter().all(Option::is_none) { Ok(vec![None, None]) } else { Err(no_gradient("ldl")) }
    }
}

impl MatrixOp for LdlSolve {
    fn infer(&self, operands: Signature<'_>) -> Result<ResultTypes> {
        operands.count(3)?;
        let (factors, b) = (operands.square(0)?, operands.matrix(2)?);
        check_pivots(operands)?;
        operands.alike(factors, b)?;
        let (n, rows) = (last_two(&factors.shape).0, last_two(&b.shape).0);
        if n != rows {
            return Err(operands
                .error("sizes differ")
                .hint(format!("the matrices have {n} rows and the right sides {rows}: both must be equal")));
        }
        Ok(smallvec![*b])
    }

    fn evaluate<T: Number>(&self, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
        let (factors, b) = (Matrices::<T::Part>::of(inputs, 0)?, Matrices::<T::Part>::of(inputs, 2)?);
        let pivots = inputs[1].as_slice::<i32>()?;
        let solutions = factors.each(|index| {
            let mut x = b.get(index).as_ref().to_owned();
            let blocks = blocks("ldl_solve", pivots, index, factors.rows)?;
            ldl::solve(factors.get(index).as_ref(), &blocks, &mut x);
            Ok(row_major(x.as_ref()))
        })?;
        Ok(vec![joined(solutions, *inputs[2].shape())?])
    }

    /// `B̄ = A⁻¹ X̄`, from the same factors. The gradient of the factors is not implemented: it is NaN, and an error of
    /// [`LdlFactor`] if they come from a matrix that requires a gradient.
    fn vjp<'e>(&self, x: &[Var<'e>], _y: &[Var<'e>], g: &[Option<Var<'e>>]) -> Gradients<'e> {
        let Some(g) = &g[0] else { return Ok(vec![None, None, None]) };
        let unknown = sum(g) * f64::NAN;
        let of_factors = unknown.broadcast(x[0].shape());
        Ok(vec![Some(of_factors), None, Some(run_one(LdlSolve, &[&x[0], &x[1], g])?)])
    }
}

fn check_pivots(operands: Signature<'_>) -> Result<()> {
    let (factors, pivots) = (operands.square(0)?, operands.tensor(1)?);
    if pivots.dtype == DType::I32 && ldl_pivots_fit(factors, pivots) {
        return Ok(());
    }
    Err(operands
        .error("needs i32 pivots, one for each row of the factors")
        .hint("pass the pivots that `ldl_factor` returned with these factors"))
}

/// Whether the dtype and shape of pivots match the factors.
pub(crate) fn ldl_pivots_fit(factors: &TensorType, pivots: &TensorType) -> bool {
    let n = last_two(&factors.shape).0;
    pivots.shape.split_last().is_some_and(|(&k, batch)| k == n && batch == leading(&factors.shape))
}

/// Decodes the blocks of one matrix of a batch.
fn blocks(op: &str, pivots: &[i32], index: usize, rows: usize) -> Result<Vec<Block>> {
    ldl::blocks(&pivots[index * rows..][..rows]).map_err(|pivot| {
        Error::value(op, format!("the pivot {pivot} cannot be where it is, in matrices of {rows} rows"))
            .hint("pass the pivots that `ldl_factor` returned with these factors")
    })
}
