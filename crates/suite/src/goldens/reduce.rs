//! Reductions and scans, by the methods.

use super::call::{Call, Outputs, one};
use kiln_tensor::{AnyTensor, Result};

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let x = || call.input("x").clone();
    let over = |reduce: &dyn Fn(AnyTensor, &[usize]) -> Result<AnyTensor>| {
        let axes = axes(call);
        one(shaped(call, done(reduce(x(), &axes)), &axes))
    };
    let along = |result: Result<AnyTensor>| one(done(result));
    let axis = || call.count("axis");
    match &*call.op {
        "sum" => over(&|x, axes| x.sum_dims(axes)),
        "mean" => over(&|x, axes| x.mean_dims(axes)),
        "amin" => over(&|x, axes| x.min_dims(axes)),
        "amax" => over(&|x, axes| x.max_dims(axes)),
        "prod" => over(&|x, axes| x.prod_dims(axes)),
        "logsumexp" => over(&|x, axes| x.logsumexp_dims(axes)),
        "var" => over(&|x, axes| x.var_dims(axes, call.real("correction"))),
        "std" => over(&|x, axes| x.std_dims(axes, call.real("correction"))),
        "vector_norm" => over(&|x, axes| vector_norm(x, call.real("order"), axes)),
        "max" => with_indices(call, x().max_dim_with_indices(axis())),
        "min" => with_indices(call, x().min_dim_with_indices(axis())),
        "median" => with_indices(call, x().median_with_indices(axis())),
        "cumsum" => along(x().cumsum(axis())),
        "cumprod" => along(x().cumprod(axis())),
        "logcumsumexp" => along(x().logcumsumexp(axis())),
        "cummax" => both(x().cummax_with_indices(axis())),
        "cummin" => both(x().cummin_with_indices(axis())),
        "any" => one(shaped(call, done(x().any_dim(axis())), &[axis()])),
        "all" => one(shaped(call, done(x().all_dim(axis())), &[axis()])),
        "diff" => along(x().diff(call.count("n"), axis())),
        op => panic!("unknown op {op}"),
    }
}

fn done<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn axes(call: &Call<'_>) -> Vec<usize> {
    let mut axes = call.optional_counts("axes").unwrap_or_else(|| (0..call.input("x").rank()).collect());
    axes.sort_unstable();
    axes
}

/// Removes the reduced axes, unless the case has `keepdim`.
fn shaped(call: &Call<'_>, reduced: AnyTensor, axes: &[usize]) -> AnyTensor {
    let keep = call.attributes["keep"].as_bool().unwrap_or(false);
    if keep { reduced } else { done(reduced.squeeze_dims(axes)) }
}

fn with_indices(call: &Call<'_>, results: Result<(AnyTensor, AnyTensor)>) -> Outputs {
    let (y, indices) = done(results);
    let axis = [call.count("axis")];
    Ok(vec![Some(shaped(call, y, &axis)), Some(shaped(call, indices, &axis))])
}

fn both(results: Result<(AnyTensor, AnyTensor)>) -> Outputs {
    let (y, indices) = done(results);
    Ok(vec![Some(y), Some(indices)])
}

/// Over several axes, the norm of the vector of all their elements.
fn vector_norm(x: AnyTensor, order: f64, axes: &[usize]) -> Result<AnyTensor> {
    match axes {
        [axis] => x.vector_norm(order, *axis),
        _ => x.vector_norm_dims(order, axes),
    }
}
