//! Reductions.

use super::{Argument, Method, bools, distinct, floats, normal, one, two};
use crate::case::Fill;

const NUMBERS: &str = "the result holds no floats";
const NANS: &str = "finite differences do not exist at NaN; tests of the tensor crate look at the gradient";

/// Floats with ties, NaN and infinities.
fn floats_among(shape: &'static [usize]) -> Argument {
    floats(shape, Fill::Among(&[-1.0, 0.0, 0.5, 1.0, f64::NAN, f64::INFINITY]))
}

/// Floats, among them NaN.
fn nans(shape: &'static [usize]) -> Argument {
    floats(shape, Fill::Among(&[-1.0, 0.25, 1.5, f64::NAN]))
}

/// Floats, among them infinities.
fn infinite(shape: &'static [usize]) -> Argument {
    floats(shape, Fill::Among(&[-1.0, 2.0, f64::NEG_INFINITY, f64::INFINITY]))
}

/// Floats, many of them zero.
fn zeros_among(shape: &'static [usize]) -> Argument {
    floats(shape, Fill::Among(&[0.0, 0.0, 1.5, -0.5, 2.0]))
}

pub(super) fn rows() -> Vec<Method> {
    vec![
        Method::new("sum", |x| one(x[0].clone().sum()))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[])])
            .on(&[normal(&[0, 3])]),
        Method::new("sum_dim", |x| one(x[0].clone().sum_dim(-1)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[2, 0])]),
        Method::new("sum_dims", |x| one(x[0].clone().sum_dims([0, -1]))).on(&[normal(&[2, 3, 2])]),
        Method::new("prod", |x| one(x[0].clone().prod()))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[])])
            .on(&[normal(&[0, 3])]),
        Method::new("prod_dim", |x| one(x[0].clone().prod_dim(-1)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[2, 0])]),
        Method::new("prod_dims", |x| one(x[0].clone().prod_dims([0, -1]))).on(&[normal(&[2, 3, 2])]),
        Method::new("mean", |x| one(x[0].clone().mean())).on(&[normal(&[2, 3])]).on(&[normal(&[])]),
        Method::new("mean_dim", |x| one(x[0].clone().mean_dim(-1)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[2, 0])]),
        Method::new("mean_dims", |x| one(x[0].clone().mean_dims([0, -1]))).on(&[normal(&[2, 3, 2])]),
        Method::new("max", |x| one(x[0].clone().max())).on(&[distinct(&[2, 3])]).on(&[distinct(&[])]),
        Method::new("max_dim", |x| one(x[0].clone().max_dim(-1))).on(&[distinct(&[2, 3])]),
        Method::new("max_dims", |x| one(x[0].clone().max_dims([0, -1]))).on(&[distinct(&[2, 3, 2])]),
        Method::new("min", |x| one(x[0].clone().min())).on(&[distinct(&[2, 3])]).on(&[distinct(&[])]),
        Method::new("min_dim", |x| one(x[0].clone().min_dim(-1))).on(&[distinct(&[2, 3])]),
        Method::new("min_dims", |x| one(x[0].clone().min_dims([0, -1]))).on(&[distinct(&[2, 3, 2])]),
        Method::new("max_abs", |x| one(x[0].clone().max_abs())).on(&[distinct(&[2, 3])]).on(&[distinct(&[])]),
        Method::new("max_abs_dim", |x| one(x[0].clone().max_abs_dim(-1))).on(&[distinct(&[2, 3])]),
        Method::new("max_abs_dims", |x| one(x[0].clone().max_abs_dims([0, -1]))).on(&[distinct(&[2, 3, 2])]),
        Method::new("prod_dim", |x| one(x[0].clone().prod_dim(1)))
            .variant("zeros")
            .on(&[zeros_among(&[3, 4])]),
        Method::new("prod_dims", |x| one(x[0].clone().prod_dims([0, 2])))
            .variant("zeros")
            .on(&[zeros_among(&[2, 2, 3])]),
        Method::new("sum_dims_squeeze", |x| one(x[0].clone().sum_dims_squeeze([0, 2])))
            .on(&[normal(&[2, 3, 4])]),
        Method::new("nansum", |x| one(x[0].clone().nansum())).on(&[normal(&[2, 3])]),
        Method::new("nansum_dim", |x| one(x[0].clone().nansum_dim(1))).on(&[normal(&[2, 3])]),
        Method::new("nansum_dim", |x| one(x[0].clone().nansum_dim(1)))
            .variant("nan")
            .on(&[nans(&[3, 4])])
            .no_gradient(NANS),
        Method::new("nanmean", |x| one(x[0].clone().nanmean())).on(&[normal(&[2, 3])]),
        Method::new("nanmean_dim", |x| one(x[0].clone().nanmean_dim(1))).on(&[normal(&[2, 3])]),
        Method::new("nanmean_dim", |x| one(x[0].clone().nanmean_dim(1)))
            .variant("nan")
            .on(&[nans(&[3, 4])])
            .no_gradient(NANS),
        Method::new("logsumexp", |x| one(x[0].clone().logsumexp(1)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[0, 3])])
            .on(&[normal(&[2, 0])]),
        Method::new("logsumexp", |x| one(x[0].clone().logsumexp(1)))
            .variant("infinite")
            .on(&[infinite(&[3, 4])])
            .no_gradient("finite differences do not exist at infinities"),
        Method::new("logsumexp_dims", |x| one(x[0].clone().logsumexp_dims([0, 1]))).on(&[normal(&[2, 3])]),
        Method::new("all", |x| one(x[0].clone().all()))
            .on(&[bools(&[2, 3])])
            .on(&[bools(&[0])])
            .on(&[floats_among(&[3])])
            .no_gradient(NUMBERS),
        Method::new("all_dim", |x| one(x[0].clone().all_dim(1)))
            .on(&[bools(&[3, 2])])
            .on(&[bools(&[2, 0])])
            .no_gradient(NUMBERS),
        Method::new("all_dims", |x| one(x[0].clone().all_dims([0, 1])))
            .on(&[bools(&[2, 1, 3])])
            .no_gradient(NUMBERS),
        Method::new("any", |x| one(x[0].clone().any()))
            .on(&[bools(&[2, 3])])
            .on(&[bools(&[0])])
            .on(&[floats_among(&[3])])
            .no_gradient(NUMBERS),
        Method::new("any_dim", |x| one(x[0].clone().any_dim(1)))
            .on(&[bools(&[3, 2])])
            .on(&[bools(&[2, 0])])
            .no_gradient(NUMBERS),
        Method::new("any_dims", |x| one(x[0].clone().any_dims([0, 1])))
            .on(&[bools(&[2, 1, 3])])
            .no_gradient(NUMBERS),
        Method::new("aminmax", |x| two(x[0].clone().aminmax(1))).on(&[distinct(&[2, 3])]),
        Method::new("argmax", |x| one(x[0].clone().argmax(1)))
            .on(&[distinct(&[2, 3])])
            .on(&[floats_among(&[3, 4])])
            .no_gradient(NUMBERS),
        Method::new("argmin", |x| one(x[0].clone().argmin(1)))
            .on(&[distinct(&[2, 3])])
            .on(&[floats_among(&[3, 4])])
            .no_gradient(NUMBERS),
        Method::new("max_dim_with_indices", |x| two(x[0].clone().max_dim_with_indices(1)))
            .on(&[distinct(&[2, 3])])
            .on(&[distinct(&[0, 3])]),
        Method::new("min_dim_with_indices", |x| two(x[0].clone().min_dim_with_indices(1)))
            .on(&[distinct(&[2, 3])])
            .on(&[distinct(&[0, 3])]),
        Method::new("var", |x| one(x[0].clone().var(1)))
            .on(&[normal(&[2, 4])])
            .on(&[normal(&[0, 3])])
            .within(64.0),
        Method::new("var_bias", |x| one(x[0].clone().var_bias(1)))
            .on(&[normal(&[2, 4])])
            .on(&[normal(&[0, 3])])
            .within(64.0),
        Method::new("std", |x| one(x[0].clone().std(1)))
            .on(&[normal(&[2, 4])])
            .on(&[normal(&[0, 3])])
            .within(64.0),
        Method::new("var_mean", |x| two(x[0].clone().var_mean(-1))).on(&[normal(&[2, 4])]).within(64.0),
        Method::new("var_mean_bias", |x| two(x[0].clone().var_mean_bias(-1)))
            .on(&[normal(&[2, 4])])
            .within(64.0),
        Method::new("std_mean", |x| two(x[0].clone().std_mean(-1))).on(&[normal(&[2, 4])]).within(64.0),
        Method::new("var_dims", |x| one(x[0].clone().var_dims([0, 2], 0.5)))
            .on(&[normal(&[2, 3, 2])])
            .within(64.0),
        Method::new("std_dims", |x| one(x[0].clone().std_dims([0, 2], 0.0)))
            .on(&[normal(&[2, 3, 2])])
            .within(64.0),
        Method::new("cumsum", |x| one(x[0].clone().cumsum(1))).on(&[normal(&[2, 4])]).on(&[normal(&[2, 0])]),
        Method::new("cumprod", |x| one(x[0].clone().cumprod(1)))
            .on(&[normal(&[2, 4])])
            .on(&[zeros_among(&[2, 5])]),
        Method::new("cummax", |x| one(x[0].clone().cummax(1))).on(&[distinct(&[2, 4])]),
        Method::new("cummax_with_indices", |x| two(x[0].clone().cummax_with_indices(1)))
            .on(&[distinct(&[2, 4])]),
        Method::new("cummax_with_indices", |x| two(x[0].clone().cummax_with_indices(1)))
            .variant("ties")
            .on(&[floats_among(&[3, 5])])
            .no_gradient("ties"),
        Method::new("cummin", |x| one(x[0].clone().cummin(1))).on(&[distinct(&[2, 4])]),
        Method::new("cummin_with_indices", |x| two(x[0].clone().cummin_with_indices(1)))
            .on(&[distinct(&[2, 4])]),
        Method::new("cummin_with_indices", |x| two(x[0].clone().cummin_with_indices(1)))
            .variant("ties")
            .on(&[floats_among(&[3, 5])])
            .no_gradient("ties"),
        Method::new("logcumsumexp", |x| one(x[0].clone().logcumsumexp(1)))
            .on(&[normal(&[2, 5])])
            .on(&[normal(&[2, 0])])
            .on(&[normal(&[1, 1])]),
        Method::new("diff", |x| one(x[0].clone().diff(2, 1)))
            .on(&[normal(&[2, 5])])
            .on(&[normal(&[2, 1])])
            .on(&[normal(&[2, 0])]),
        Method::new("diff_with", |x| {
            one(x[0].clone().diff_with(1, 1, Some(x[1].clone()), Some(x[2].clone())))
        })
        .on(&[normal(&[2, 3]), normal(&[2, 1]), normal(&[2, 2])]),
        Method::new("trapezoid", |x| one(x[0].clone().trapezoid(0.5, 1)))
            .on(&[normal(&[2, 4])])
            .on(&[normal(&[2, 1])])
            .on(&[normal(&[2, 0])]),
        Method::new("trapezoid_at", |x| one(x[0].clone().trapezoid_at(x[1].clone(), 1)))
            .on(&[normal(&[2, 4]), normal(&[4])])
            .on(&[normal(&[2, 4]), normal(&[2, 4])]),
        Method::new("cumulative_trapezoid", |x| one(x[0].clone().cumulative_trapezoid(0.5, 1)))
            .on(&[normal(&[2, 4])])
            .on(&[normal(&[2, 1])])
            .on(&[normal(&[2, 0])]),
        Method::new("cumulative_trapezoid_at", |x| {
            one(x[0].clone().cumulative_trapezoid_at(x[1].clone(), 1))
        })
        .on(&[normal(&[2, 4]), normal(&[4])])
        .on(&[normal(&[2, 4]), normal(&[2, 4])]),
    ]
}
