//! Statistics.

use super::{Method, ints, normal, one, two};
use kiln_tensor::stats::CdistMode;

pub(super) fn rows() -> Vec<Method> {
    vec![
        Method::new("cov", |x| one(x[0].clone().cov(1, 1.0)))
            .on(&[normal(&[3, 5])])
            .on(&[normal(&[1, 2])])
            .within(64.0),
        Method::new("cov", |x| one(x[0].clone().cov(0, 0.0)))
            .variant("columns")
            .on(&[normal(&[4, 2])])
            .within(64.0),
        Method::new("corrcoef", |x| one(x[0].clone().corrcoef(1)))
            .on(&[normal(&[3, 5])])
            .within(64.0)
            .no_half("the cut at 1 falls on rounded values"),
        Method::new("histc", |x| one(x[0].clone().histc(4, Some((-1.0, 1.0)))))
            .on(&[normal(&[3, 4])])
            .on(&[normal(&[0])])
            .no_gradient("counts")
            .no_half("the edges are rounded"),
        Method::new("histc", |x| one(x[0].clone().histc(3, None)))
            .variant("of all")
            .on(&[normal(&[3, 4])])
            .on(&[normal(&[])])
            .no_gradient("counts")
            .no_half("the edges are rounded"),
        Method::new("histogram", |x| two(x[0].clone().histogram(4, None, None, true)))
            .on(&[normal(&[3, 4])])
            .no_gradient("counts")
            .no_half("the edges are rounded"),
        Method::new("histogram", |x| {
            two(x[0].clone().histogram(3, Some((-1.0, 1.5)), Some(x[1].clone()), false))
        })
        .variant("weighted")
        .on(&[normal(&[5]), normal(&[5])])
        .no_gradient("finite differences step over edges; tests of the tensor crate look at the weights")
        .no_half("the edges are rounded"),
        Method::new("histogram_between", |x| {
            one(x[0].clone().histogram_between(x[1].clone().sort(0)?, None, false))
        })
        .on(&[normal(&[6]), normal(&[4])])
        .no_gradient("counts"),
        Method::new("bincount", |x| one(x[0].clone().bincount(None, 3)))
            .on(&[ints(0, 5, &[7])])
            .on(&[ints(0, 1, &[0])])
            .no_gradient("counts"),
        Method::new("bincount", |x| one(x[0].clone().bincount(Some(x[1].clone()), 0)))
            .variant("weighted")
            .on(&[ints(0, 4, &[7]), normal(&[7])]),
        Method::new("bincount", |x| one(x[0].clone().bincount(Some(x[1].clone()), 8)))
            .variant("weighted, at least 8")
            .on(&[ints(0, 4, &[7]), normal(&[7])])
            .on(&[ints(0, 1, &[0]), normal(&[0])]),
        Method::new("cdist", |x| one(x[0].clone().cdist(x[1].clone(), 2.0)))
            .on(&[normal(&[2, 3]), normal(&[4, 3])])
            .on(&[normal(&[2, 2, 3]), normal(&[1, 4, 3])])
            .on(&[normal(&[0, 3]), normal(&[2, 3])])
            .within(64.0),
        Method::new("cdist", |x| one(x[0].clone().cdist(x[1].clone(), 1.0)))
            .variant("1")
            .on(&[normal(&[2, 3]), normal(&[4, 3])])
            .on(&[normal(&[2, 2, 3]), normal(&[1, 4, 3])])
            .on(&[normal(&[0, 3]), normal(&[2, 3])])
            .within(64.0),
        Method::new("cdist", |x| one(x[0].clone().cdist(x[1].clone(), f64::INFINITY)))
            .variant("inf")
            .on(&[normal(&[2, 3]), normal(&[4, 3])])
            .on(&[normal(&[2, 2, 3]), normal(&[1, 4, 3])])
            .on(&[normal(&[0, 3]), normal(&[2, 3])])
            .within(64.0),
        Method::new("cdist", |x| one(x[0].clone().cdist(x[1].clone(), 3.0)))
            .variant("3")
            .on(&[normal(&[2, 3]), normal(&[4, 3])])
            .on(&[normal(&[2, 2, 3]), normal(&[1, 4, 3])])
            .on(&[normal(&[0, 3]), normal(&[2, 3])])
            .within(64.0),
        Method::new("cdist", |x| one(x[0].clone().cdist(x[1].clone(), 3.5)))
            .variant("3.5")
            .on(&[normal(&[2, 3]), normal(&[4, 3])])
            .within(64.0),
        Method::new("cdist", |x| one(x[0].clone().cdist(x[1].clone(), 1.5)))
            .variant("1.5")
            .on(&[normal(&[2, 3]), normal(&[4, 3])])
            .within(64.0),
        Method::new("cdist", |x| one(x[0].clone().cdist(x[1].clone(), 0.0)))
            .variant("0")
            .on(&[normal(&[2, 3]), normal(&[4, 3])])
            .no_gradient("counts"),
        Method::new("cdist_with_mode", |x| {
            one(x[0].clone().cdist_with_mode(x[1].clone(), 2.0, CdistMode::Matmul))
        })
        .on(&[normal(&[2, 3]), normal(&[4, 3])])
        .on(&[normal(&[2, 2, 3]), normal(&[1, 4, 3])])
        .on(&[normal(&[0, 3]), normal(&[2, 3])])
        .no_half("rows that nearly coincide cancel")
        .within(64.0),
        Method::new("cdist_with_mode", |x| {
            one(x[0].clone().cdist_with_mode(x[1].clone(), 2.0, CdistMode::Direct))
        })
        .variant("direct")
        .on(&[normal(&[26, 3]), normal(&[2, 3])])
        .within(64.0),
        Method::new("pdist", |x| one(x[0].clone().pdist(2.0)))
            .on(&[normal(&[4, 3])])
            .on(&[normal(&[1, 3])])
            .on(&[normal(&[0, 3])])
            .within(64.0),
        Method::new("pdist", |x| one(x[0].clone().pdist(1.5)))
            .variant("1.5")
            .on(&[normal(&[4, 3])])
            .within(64.0),
    ]
}
