//! Products of several matrices, and structured matrices.

use crate::call::Call;
use crate::matrix::{as_column, columns, eye};
use kiln_ir::{PadAxis, Result, Shape, TensorType, Var};
use kiln_tensor::AnyTensor;

/// Maximum number of columns of a Vandermonde matrix with more columns than elements: each column is an op.
const MAX_POWERS: usize = 1 << 16;

/// See [`multi_dot`](crate::multi_dot). The first and the last tensor may be vectors: a row and a column.
///
/// # Errors
/// When there are fewer than two tensors, a tensor in the middle is not a matrix, or inner sizes or dtypes differ.
#[doc(alias = "chain_matmul")]
pub fn multi_dot(tensors: Vec<AnyTensor>) -> Result<AnyTensor> {
    let operands: Vec<&AnyTensor> = tensors.iter().collect();
    if operands.len() < 2 {
        let types: Vec<_> = operands.iter().map(|tensor| tensor.ty().into()).collect();
        let problem = format!("needs at least 2 tensors, not {}", operands.len());
        return Err(kiln_ir::Error::type_error("multi_dot", problem, &types));
    }
    let call = Call::new("multi_dot", &operands)?;
    let last = operands.len() - 1;
    let mut factors = Vec::with_capacity(operands.len());
    let mut result = Shape::default();
    for (place, &tensor) in operands.iter().enumerate() {
        let x = call.var(tensor);
        let length = x.shape().first().copied().unwrap_or(0);
        factors.push(match x.rank() {
            2 => x,
            1 if place == 0 => x.reshape([1, length]),
            1 if place == last => x.reshape([length, 1]),
            rank => {
                let problem = format!("tensor {place} has {rank} dimensions");
                return Err(call
                    .error(problem)
                    .hint("all are matrices; only the first and the last may have one dimension"));
            }
        });
    }
    if operands[0].rank() == 2 {
        result = result.inserted(0, factors[0].shape()[0]);
    }
    if operands[last].rank() == 2 {
        result = result.inserted(result.rank(), factors[last].shape()[1]);
    }
    if let Some(place) = (0..last).find(|&i| factors[i].shape()[1] != factors[i + 1].shape()[0]) {
        return Err(call.error(format!("inner sizes of tensors {place} and {} differ", place + 1)));
    }
    let mut sizes: Vec<usize> = factors.iter().map(|x| x.shape()[0]).collect();
    sizes.push(factors[last].shape()[1]);
    let splits = best_splits(&sizes);
    Ok(call.done(product(&factors, &splits, 0, last).reshape(result)))
}

/// `splits[i][j]`: the index of the factor after which the product of factors `i..=j` is split to minimise the number
/// of multiplications (T. Cormen and others, *Introduction to Algorithms*, section 14.2). Factor `i` has shape
/// `[sizes[i], sizes[i + 1]]`.
fn best_splits(sizes: &[usize]) -> Vec<Vec<usize>> {
    let count = sizes.len() - 1;
    let mut costs = vec![vec![0u128; count]; count];
    let mut splits = vec![vec![0; count]; count];
    for span in 1..count {
        for i in 0..count - span {
            let j = i + span;
            let cost = |k: usize| {
                let last = sizes[i] as u128 * sizes[k + 1] as u128 * sizes[j + 1] as u128;
                costs[i][k].saturating_add(costs[k + 1][j]).saturating_add(last)
            };
            let best = (i..j).min_by_key(|&k| cost(k)).unwrap_or(i);
            (costs[i][j], splits[i][j]) = (cost(best), best);
        }
    }
    splits
}

fn product<'e>(factors: &[Var<'e>], splits: &[Vec<usize>], i: usize, j: usize) -> Var<'e> {
    if i == j {
        return factors[i].clone();
    }
    let split = splits[i][j];
    product(factors, splits, i, split).matmul(&product(factors, splits, split + 1, j))
}

/// See [`vander`](crate::vander).
///
/// # Errors
/// When the tensor has rank 0, or its dtype is not a float.
pub fn vander(x: AnyTensor, count: Option<usize>) -> Result<AnyTensor> {
    let call = Call::new("vander", &[&x])?;
    if x.rank() == 0 {
        return Err(call.error("needs at least 1 dimension"));
    }
    let x = call.var(&x);
    let length = x.shape()[x.rank() - 1];
    let count = count.unwrap_or(length);
    if count > MAX_POWERS.max(length) {
        return Err(call.error(format!("{count} columns are more than {MAX_POWERS} powers")));
    }
    let column = as_column(&x);
    let mut powers: Vec<Var<'_>> = Vec::with_capacity(count);
    for exponent in 0..count {
        powers.push(match exponent {
            0 => Var::full(column.engine(), column.ty(), 1.0),
            1 => column.clone(),
            _ => &powers[exponent - 1] * &column,
        });
    }
    if powers.is_empty() {
        let shape = column.shape().with(column.rank() - 1, 0);
        return Ok(call.done(Var::zeros(column.engine(), TensorType::new(shape, column.dtype()))));
    }
    Ok(call.done(crate::matrix::beside(&powers)))
}

/// See [`householder_product`](crate::householder_product).
///
/// # Errors
/// When there are more columns than rows, more factors than columns, batch dimensions differ, or dtypes differ.
#[doc(alias = "orgqr")]
pub fn householder_product(a: AnyTensor, tau: AnyTensor) -> Result<AnyTensor> {
    let call = Call::new("householder_product", &[&a, &tau])?;
    let (rows, cols) = call.matrix(0)?;
    let leading = &a.shape()[..a.rank() - 2];
    if cols > rows {
        return Err(call
            .error("more columns than rows")
            .hint("the number of reflections is at most the number of rows"));
    }
    let count = match tau.shape().split_last() {
        Some((&count, batch)) if batch == leading => count,
        Some(_) | None => {
            return Err(call
                .error("batch dimensions differ")
                .hint("`tau` has the batch dimensions of the matrices and one more"));
        }
    };
    if count > cols {
        return Err(call
            .error(format!("{count} factors for {cols} columns"))
            .hint("at most one for each column"));
    }
    let (v, tau) = (call.var(&a), call.var(&tau));
    let mut q = eye(&v, rows, cols).broadcast(v.shape());
    for i in (0..count).rev() {
        let reflector = reflector(&v, i);
        let factor = columns(&crate::matrix::as_row(&tau), i..i + 1);
        let projection = reflector.transpose().matmul(&q);
        q = q - (reflector * factor).matmul(&projection);
    }
    Ok(call.done(q))
}

/// Column `i` with 1 on the diagonal and zeros above: `[.., rows, 1]`.
fn reflector<'e>(v: &Var<'e>, i: usize) -> Var<'e> {
    let (rows, rank) = (v.shape()[v.rank() - 2], v.rank());
    let tail = crate::matrix::block(v, i + 1..rows, i..i + 1);
    let mut pads = vec![PadAxis::default(); rank];
    pads[rank - 2] = PadAxis::new(1, 0);
    let with_one = tail.pad(pads.clone(), 1.0);
    if i == 0 {
        return with_one;
    }
    pads[rank - 2] = PadAxis::new(i, 0);
    with_one.pad(pads, 0.0)
}
