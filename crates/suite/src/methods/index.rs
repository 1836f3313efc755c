//! Indexing and masking.

use super::{Argument, Method, away, bools, distinct, floats, ints, normal, one};
use crate::case::Fill;
use kiln_tensor::{ScatterReduction, UpdateMode};

const NUMBERS: &str = "the result holds no floats";

/// Floats with ties, NaN and infinities.
fn floats_among(shape: &'static [usize]) -> Argument {
    floats(shape, Fill::Among(&[-1.0, 0.0, 0.5, 1.0, f64::NAN, f64::INFINITY]))
}

pub(super) fn rows() -> Vec<Method> {
    vec![
        Method::new("take", |x| one(x[0].clone().take(1, x[1].clone())))
            .on(&[normal(&[2, 3]), ints(0, 2, &[2, 2])])
            .on(&[normal(&[2, 3]), ints(0, 2, &[0])]),
        Method::new("select", |x| one(x[0].clone().select(0, x[1].clone())))
            .on(&[normal(&[3, 2]), ints(0, 2, &[4])]),
        Method::new("gather", |x| one(x[0].clone().gather(1, x[1].clone())))
            .on(&[normal(&[2, 3]), ints(0, 2, &[2, 4])])
            .on(&[normal(&[3, 3]), ints(0, 2, &[2, 2])]),
        Method::new("take_along_dim", |x| one(x[0].clone().take_along_dim(1, x[1].clone())))
            .on(&[normal(&[2, 3]), ints(0, 2, &[1, 4])])
            .on(&[normal(&[1, 3]), ints(0, 2, &[2, 2])]),
        Method::new("gather_nd", |x| one(x[0].clone().gather_nd(x[1].clone())))
            .on(&[normal(&[2, 3, 4]), ints(0, 1, &[3, 2])])
            .on(&[normal(&[2, 2]), ints(0, 1, &[2, 2])])
            .on(&[normal(&[2, 2]), ints(0, 1, &[3, 0])]),
        Method::new("scatter_nd", |x| {
            one(x[0].clone().scatter_nd(x[1].clone(), x[2].clone(), UpdateMode::Add))
        })
        .on(&[normal(&[2, 2, 3]), ints(0, 1, &[3, 2]), normal(&[3, 3])]),
        Method::new("scatter_nd", |x| {
            one(x[0].clone().scatter_nd(x[1].clone(), x[2].clone(), UpdateMode::Set))
        })
        .variant("set")
        .on(&[normal(&[2, 2]), ints(0, 1, &[3, 1]), normal(&[3, 2])]),
        Method::new("select_assign", |x| one(x[0].clone().select_assign(1, x[1].clone(), x[2].clone())))
            .on(&[normal(&[2, 3]), ints(0, 2, &[4]), normal(&[2, 4])]),
        Method::new("index_fill", |x| one(x[0].clone().index_fill(1, x[1].clone(), 0.5)))
            .on(&[normal(&[2, 3]), ints(0, 2, &[2])]),
        Method::new("scatter", |x| one(x[0].clone().scatter(1, x[1].clone(), x[2].clone())))
            .on(&[normal(&[2, 3]), ints(0, 2, &[2, 4]), normal(&[2, 4])])
            .on(&[normal(&[3, 3]), ints(0, 2, &[2, 2]), normal(&[2, 3])]),
        Method::new("scatter_reduce", |x| {
            one(x[0].clone().scatter_reduce(1, x[1].clone(), x[2].clone(), ScatterReduction::Sum, true))
        })
        .variant("sum")
        .on(&[normal(&[2, 3]), ints(0, 2, &[2, 4]), normal(&[2, 4])]),
        Method::new("scatter_reduce", |x| {
            one(x[0].clone().scatter_reduce(1, x[1].clone(), x[2].clone(), ScatterReduction::Sum, false))
        })
        .variant("sum alone")
        .on(&[normal(&[2, 3]), ints(0, 2, &[2, 4]), normal(&[2, 4])]),
        Method::new("scatter_reduce", |x| {
            one(x[0].clone().scatter_reduce(1, x[1].clone(), x[2].clone(), ScatterReduction::Prod, true))
        })
        .variant("prod")
        .on(&[away(&[2, 3]), ints(0, 2, &[2, 4]), away(&[2, 4])]),
        Method::new("scatter_reduce", |x| {
            one(x[0].clone().scatter_reduce(1, x[1].clone(), x[2].clone(), ScatterReduction::Prod, false))
        })
        .variant("prod alone")
        .on(&[away(&[2, 3]), ints(0, 2, &[2, 4]), away(&[2, 4])]),
        Method::new("scatter_reduce", |x| {
            one(x[0].clone().scatter_reduce(1, x[1].clone(), x[2].clone(), ScatterReduction::Mean, true))
        })
        .variant("mean")
        .on(&[normal(&[2, 3]), ints(0, 2, &[2, 4]), normal(&[2, 4])]),
        Method::new("scatter_reduce", |x| {
            one(x[0].clone().scatter_reduce(1, x[1].clone(), x[2].clone(), ScatterReduction::Mean, false))
        })
        .variant("mean alone")
        .on(&[normal(&[2, 3]), ints(0, 2, &[2, 4]), normal(&[2, 4])]),
        Method::new("scatter_reduce", |x| {
            one(x[0].clone().scatter_reduce(1, x[1].clone(), x[2].clone(), ScatterReduction::Max, true))
        })
        .variant("max")
        .on(&[distinct(&[2, 3]), ints(0, 2, &[2, 4]), distinct(&[2, 4])]),
        Method::new("scatter_reduce", |x| {
            one(x[0].clone().scatter_reduce(1, x[1].clone(), x[2].clone(), ScatterReduction::Max, false))
        })
        .variant("max alone")
        .on(&[distinct(&[2, 3]), ints(0, 2, &[2, 4]), distinct(&[2, 4])]),
        Method::new("scatter_reduce", |x| {
            one(x[0].clone().scatter_reduce(1, x[1].clone(), x[2].clone(), ScatterReduction::Min, true))
        })
        .variant("min")
        .on(&[distinct(&[2, 3]), ints(0, 2, &[2, 4]), distinct(&[2, 4])]),
        Method::new("scatter_reduce", |x| {
            one(x[0].clone().scatter_reduce(1, x[1].clone(), x[2].clone(), ScatterReduction::Min, false))
        })
        .variant("min alone")
        .on(&[distinct(&[2, 3]), ints(0, 2, &[2, 4]), distinct(&[2, 4])]),
        Method::new("index_reduce", |x| {
            one(x[0].clone().index_reduce(1, x[1].clone(), x[2].clone(), ScatterReduction::Prod, true))
        })
        .variant("prod")
        .on(&[away(&[2, 3]), ints(0, 2, &[4]), away(&[2, 4])]),
        Method::new("index_reduce", |x| {
            one(x[0].clone().index_reduce(0, x[1].clone(), x[2].clone(), ScatterReduction::Mean, false))
        })
        .variant("mean alone")
        .on(&[normal(&[3, 2]), ints(0, 2, &[4]), normal(&[4, 2])])
        .on(&[normal(&[3, 2]), ints(0, 2, &[0]), normal(&[0, 2])]),
        Method::new("index_reduce", |x| {
            one(x[0].clone().index_reduce(0, x[1].clone(), x[2].clone(), ScatterReduction::Max, true))
        })
        .variant("max")
        .on(&[distinct(&[3, 2]), ints(0, 2, &[4]), distinct(&[4, 2])]),
        Method::new("index_reduce", |x| {
            one(x[0].clone().index_reduce(0, x[1].clone(), x[2].clone(), ScatterReduction::Mean, true))
        })
        .variant("mean")
        .on(&[normal(&[3, 2]), ints(0, 2, &[4]), normal(&[4, 2])]),
        Method::new("index_reduce", |x| {
            one(x[0].clone().index_reduce(0, x[1].clone(), x[2].clone(), ScatterReduction::Min, false))
        })
        .variant("min alone")
        .on(&[distinct(&[3, 2]), ints(0, 2, &[4]), distinct(&[4, 2])]),
        Method::new("as_strided", |x| one(x[0].clone().as_strided(&[2, 3, 2], &[4, 1, 1], 1)))
            .variant("windows")
            .on(&[normal(&[9])]),
        Method::new("as_strided", |x| one(x[0].clone().as_strided(&[3, 2], &[1, 2], 1)))
            .on(&[normal(&[6])])
            .on(&[normal(&[2, 3])]),
        Method::new("as_strided", |x| one(x[0].clone().as_strided(&[2, 3], &[0, 0], 0)))
            .variant("one element")
            .on(&[normal(&[1])]),
        Method::new("masked_scatter", |x| one(x[0].clone().masked_scatter(x[1].clone(), x[2].clone())))
            .on(&[normal(&[2, 3]), bools(&[2, 3]), normal(&[7])])
            .on(&[normal(&[2, 3]), bools(&[3]), normal(&[6])]),
        Method::new("mask_where", |x| one(x[0].clone().mask_where(x[1].clone(), x[2].clone()))).on(&[
            normal(&[2, 3]),
            bools(&[3]),
            normal(&[2, 1]),
        ]),
        Method::new("mask_fill", |x| one(x[0].clone().mask_fill(x[1].clone(), 0.5)))
            .on(&[normal(&[2, 3]), bools(&[2, 1])]),
        Method::new("mask_select", |x| one(x[0].clone().mask_select(x[1].clone())))
            .on(&[normal(&[2, 3]), bools(&[2, 3])])
            .on(&[normal(&[2, 1]), bools(&[3])])
            .on(&[normal(&[0, 3]), bools(&[3])]),
        Method::new("argwhere", |x| one(x[0].clone().argwhere()))
            .on(&[bools(&[2, 3])])
            .on(&[bools(&[])])
            .on(&[bools(&[0, 2])])
            .no_gradient(NUMBERS),
        Method::new("nonzero", |x| x[0].clone().nonzero()).on(&[bools(&[2, 3])]).no_gradient(NUMBERS),
        Method::new("count_nonzero", |x| one(x[0].clone().count_nonzero()))
            .on(&[floats_among(&[2, 3])])
            .on(&[floats_among(&[0])])
            .no_gradient(NUMBERS),
        Method::new("count_nonzero_dim", |x| one(x[0].clone().count_nonzero_dim(1)))
            .on(&[floats_among(&[2, 3])])
            .no_gradient(NUMBERS),
        Method::new("searchsorted", |x| one(x[0].clone().sort(-1)?.searchsorted(x[1].clone(), false)))
            .on(&[floats_among(&[2, 5]), floats_among(&[2, 4])])
            .on(&[floats_among(&[7]), floats_among(&[2, 3])])
            .on(&[floats_among(&[0]), floats_among(&[2])])
            .no_gradient(NUMBERS),
        Method::new("searchsorted", |x| one(x[0].clone().sort(-1)?.searchsorted(x[1].clone(), true)))
            .variant("right")
            .on(&[floats_among(&[2, 5]), floats_among(&[2, 4])])
            .no_gradient(NUMBERS),
        Method::new("bucketize", |x| one(x[0].clone().bucketize(x[1].clone().sort(0)?, false)))
            .on(&[floats_among(&[2, 3]), floats_among(&[4])])
            .no_gradient(NUMBERS),
    ]
}
