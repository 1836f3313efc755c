//! Sorting, sets and quantiles.

use super::{Argument, Method, distinct, floats, one, two};
use crate::case::Fill;
use kiln_tensor::Interpolation;

const NUMBERS: &str = "the result holds no floats";

/// Floats with ties, NaN and infinities.
fn floats_among(shape: &'static [usize]) -> Argument {
    floats(shape, Fill::Among(&[-1.0, 0.0, 0.5, 1.0, f64::NAN, f64::INFINITY]))
}

/// Floats with ties.
fn among(shape: &'static [usize]) -> Argument {
    floats(shape, Fill::Among(&[-1.0, 0.5, 2.0]))
}

pub(super) fn rows() -> Vec<Method> {
    vec![
        Method::new("sort", |x| one(x[0].clone().sort(1))).on(&[distinct(&[2, 4])]).on(&[distinct(&[2, 0])]),
        Method::new("sort_with_indices", |x| two(x[0].clone().sort_with_indices(-1)))
            .on(&[distinct(&[2, 4])])
            .on(&[distinct(&[3])]),
        Method::new("sort_with_indices", |x| two(x[0].clone().sort_with_indices(-1)))
            .variant("ties")
            .on(&[floats_among(&[2, 5])])
            .no_gradient("ties"),
        Method::new("sort_descending", |x| one(x[0].clone().sort_descending(1)))
            .on(&[distinct(&[2, 4])])
            .on(&[distinct(&[2, 0])]),
        Method::new("sort_descending_with_indices", |x| two(x[0].clone().sort_descending_with_indices(-1)))
            .on(&[distinct(&[2, 4])])
            .on(&[distinct(&[3])]),
        Method::new("sort_descending_with_indices", |x| two(x[0].clone().sort_descending_with_indices(-1)))
            .variant("ties")
            .on(&[floats_among(&[2, 5])])
            .no_gradient("ties"),
        Method::new("msort", |x| one(x[0].clone().msort())).on(&[distinct(&[3, 2])]),
        Method::new("argsort", |x| one(x[0].clone().argsort(0)))
            .on(&[distinct(&[4, 2])])
            .on(&[floats_among(&[5])])
            .no_gradient(NUMBERS),
        Method::new("argsort_descending", |x| one(x[0].clone().argsort_descending(0)))
            .on(&[distinct(&[4, 2])])
            .on(&[floats_among(&[5])])
            .no_gradient(NUMBERS),
        Method::new("topk", |x| one(x[0].clone().topk(2, 1))).on(&[distinct(&[2, 4])]),
        Method::new("topk_with_indices", |x| two(x[0].clone().topk_with_indices(2, -1)))
            .on(&[distinct(&[2, 4])]),
        Method::new("topk_smallest", |x| one(x[0].clone().topk_smallest(2, 1))).on(&[distinct(&[2, 4])]),
        Method::new("topk_smallest_with_indices", |x| two(x[0].clone().topk_smallest_with_indices(2, -1)))
            .on(&[distinct(&[2, 4])]),
        Method::new("argtopk", |x| one(x[0].clone().argtopk(2, 1)))
            .on(&[distinct(&[2, 4])])
            .on(&[floats_among(&[2, 5])])
            .no_gradient(NUMBERS),
        Method::new("kthvalue", |x| two(x[0].clone().kthvalue(2, 1))).on(&[distinct(&[2, 4])]),
        Method::new("median", |x| one(x[0].clone().median(1)))
            .on(&[distinct(&[2, 4])])
            .on(&[distinct(&[2, 5])]),
        Method::new("median_with_indices", |x| two(x[0].clone().median_with_indices(1)))
            .on(&[distinct(&[2, 4])]),
        Method::new("median_with_indices", |x| two(x[0].clone().median_with_indices(1)))
            .variant("nan")
            .on(&[floats_among(&[4, 5])])
            .no_gradient("ties and NaN"),
        Method::new("nanmedian", |x| one(x[0].clone().nanmedian(1)))
            .on(&[distinct(&[2, 4])])
            .on(&[distinct(&[2, 5])]),
        Method::new("nanmedian_with_indices", |x| two(x[0].clone().nanmedian_with_indices(1)))
            .on(&[distinct(&[2, 4])]),
        Method::new("nanmedian_with_indices", |x| two(x[0].clone().nanmedian_with_indices(1)))
            .variant("nan")
            .on(&[floats_among(&[4, 5])])
            .no_gradient("ties and NaN"),
        Method::new("mode", |x| two(x[0].clone().mode(1))).on(&[among(&[3, 6])]).no_gradient("ties"),
        Method::new("quantile", |x| {
            one(x[0].clone().quantile(&[0.0, 0.3, 0.5, 1.0], 1, Interpolation::Linear))
        })
        .on(&[distinct(&[2, 5])])
        .on(&[distinct(&[2, 1])]),
        Method::new("quantile", |x| {
            one(x[0].clone().quantile(&[0.0, 0.3, 0.5, 1.0], 1, Interpolation::Lower))
        })
        .variant("lower")
        .on(&[distinct(&[2, 5])])
        .on(&[distinct(&[2, 1])]),
        Method::new("quantile", |x| {
            one(x[0].clone().quantile(&[0.0, 0.3, 0.5, 1.0], 1, Interpolation::Higher))
        })
        .variant("higher")
        .on(&[distinct(&[2, 5])])
        .on(&[distinct(&[2, 1])]),
        Method::new("quantile", |x| {
            one(x[0].clone().quantile(&[0.0, 0.3, 0.5, 1.0], 1, Interpolation::Nearest))
        })
        .variant("nearest")
        .on(&[distinct(&[2, 5])])
        .on(&[distinct(&[2, 1])]),
        Method::new("quantile", |x| {
            one(x[0].clone().quantile(&[0.0, 0.3, 0.5, 1.0], 1, Interpolation::Midpoint))
        })
        .variant("midpoint")
        .on(&[distinct(&[2, 5])])
        .on(&[distinct(&[2, 1])]),
        Method::new("quantile", |x| one(x[0].clone().quantile(&[0.4, 0.75], 1, Interpolation::Linear)))
            .variant("nan")
            .on(&[floats_among(&[4, 6])])
            .no_gradient("ties and NaN"),
        Method::new("nanquantile", |x| {
            one(x[0].clone().nanquantile(&[0.0, 0.3, 0.5, 1.0], 1, Interpolation::Linear))
        })
        .on(&[distinct(&[2, 5])])
        .on(&[distinct(&[2, 1])]),
        Method::new("nanquantile", |x| {
            one(x[0].clone().nanquantile(&[0.0, 0.3, 0.5, 1.0], 1, Interpolation::Lower))
        })
        .variant("lower")
        .on(&[distinct(&[2, 5])])
        .on(&[distinct(&[2, 1])]),
        Method::new("nanquantile", |x| {
            one(x[0].clone().nanquantile(&[0.0, 0.3, 0.5, 1.0], 1, Interpolation::Higher))
        })
        .variant("higher")
        .on(&[distinct(&[2, 5])])
        .on(&[distinct(&[2, 1])]),
        Method::new("nanquantile", |x| {
            one(x[0].clone().nanquantile(&[0.0, 0.3, 0.5, 1.0], 1, Interpolation::Nearest))
        })
        .variant("nearest")
        .on(&[distinct(&[2, 5])])
        .on(&[distinct(&[2, 1])]),
        Method::new("nanquantile", |x| {
            one(x[0].clone().nanquantile(&[0.0, 0.3, 0.5, 1.0], 1, Interpolation::Midpoint))
        })
        .variant("midpoint")
        .on(&[distinct(&[2, 5])])
        .on(&[distinct(&[2, 1])]),
        Method::new("nanquantile", |x| one(x[0].clone().nanquantile(&[0.4, 0.75], 1, Interpolation::Linear)))
            .variant("nan")
            .on(&[floats_among(&[4, 6])])
            .no_gradient("ties and NaN"),
        Method::new("unique", |x| one(x[0].clone().unique()))
            .on(&[among(&[2, 4])])
            .on(&[among(&[0])])
            .on(&[floats_among(&[6])])
            .no_gradient("ties"),
        Method::new("unique_with_counts", |x| {
            x[0].clone().unique_with_counts().map(|unique| vec![unique.values, unique.inverse, unique.counts])
        })
        .on(&[among(&[2, 4])])
        .on(&[among(&[0])])
        .on(&[floats_among(&[6])])
        .no_gradient("ties"),
        Method::new("unique_consecutive", |x| {
            x[0].clone().unique_consecutive().map(|unique| vec![unique.values, unique.inverse, unique.counts])
        })
        .on(&[among(&[2, 4])])
        .on(&[among(&[0])])
        .on(&[floats_among(&[6])])
        .no_gradient("ties"),
        Method::new("unique_dim", |x| {
            x[0].clone().unique_dim(1).map(|unique| vec![unique.values, unique.inverse, unique.counts])
        })
        .on(&[among(&[2, 6])])
        .on(&[among(&[2, 0])])
        .on(&[among(&[0, 3])])
        .no_gradient("ties"),
        Method::new("unique_consecutive_dim", |x| {
            x[0].clone()
                .unique_consecutive_dim(1)
                .map(|unique| vec![unique.values, unique.inverse, unique.counts])
        })
        .on(&[among(&[2, 6])])
        .on(&[among(&[2, 0])])
        .on(&[among(&[0, 3])])
        .no_gradient("ties"),
        Method::new("isin", |x| one(x[0].clone().isin(x[1].clone())))
            .on(&[floats_among(&[2, 3]), floats_among(&[4])])
            .on(&[floats_among(&[2]), floats_among(&[0])])
            .no_gradient(NUMBERS),
    ]
}
