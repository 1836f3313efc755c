//! Linear algebra without decompositions.

use super::{Method, away, distinct, floats, ints, normal, one, uniform};
use crate::case::Fill;
use kiln_tensor::linalg::Norm;

const PIECEWISE: &str = "piecewise linear";

pub(super) fn rows() -> Vec<Method> {
    [products(), norms()].concat()
}

fn products() -> Vec<Method> {
    vec![
        Method::new("matmul", |x| one(x[0].clone().matmul(x[1].clone())))
            .on(&[normal(&[2, 3]), normal(&[3, 4])])
            .on(&[normal(&[2, 1, 2, 3]), normal(&[4, 3, 2])])
            .on(&[normal(&[3]), normal(&[3])])
            .on(&[normal(&[3]), normal(&[2, 3, 2])])
            .on(&[normal(&[2, 2, 3]), normal(&[3])])
            .on(&[normal(&[2, 0]), normal(&[0, 3])]),
        Method::new("outer", |x| one(x[0].clone().outer(x[1].clone())))
            .on(&[normal(&[2]), normal(&[3])])
            .on(&[normal(&[0]), normal(&[3])]),
        Method::new("outer_dim", |x| one(x[0].clone().outer_dim(x[1].clone(), -1)))
            .on(&[normal(&[2, 3]), normal(&[2, 2])])
            .on(&[normal(&[2, 3]), normal(&[1, 2])]),
        Method::new("dot", |x| one(x[0].clone().dot(x[1].clone())))
            .on(&[normal(&[4]), normal(&[4])])
            .on(&[normal(&[0]), normal(&[0])])
            .on(&[ints(-3, 3, &[4]), ints(-3, 3, &[4])]),
        Method::new("vecdot", |x| one(x[0].clone().vecdot(x[1].clone(), 1)))
            .on(&[normal(&[2, 3]), normal(&[2, 3])])
            .on(&[normal(&[2, 3, 2]), normal(&[3, 1])]),
        Method::new("matvec", |x| one(x[0].clone().matvec(x[1].clone())))
            .on(&[normal(&[2, 3]), normal(&[3])])
            .on(&[normal(&[2, 2, 3]), normal(&[2, 3])])
            .on(&[normal(&[2, 3]), normal(&[4, 3])]),
        Method::new("inner_product", |x| one(x[0].clone().inner_product(x[1].clone())))
            .on(&[normal(&[2, 3]), normal(&[4, 2, 3])])
            .on(&[normal(&[3]), normal(&[3])])
            .on(&[normal(&[]), normal(&[2])]),
        Method::new("tensordot", |x| one(x[0].clone().tensordot(x[1].clone(), 2)))
            .on(&[normal(&[2, 3, 2]), normal(&[3, 2, 4])])
            .on(&[normal(&[2, 0, 2]), normal(&[0, 2, 4])]),
        Method::new("tensordot", |x| one(x[0].clone().tensordot(x[1].clone(), ([0, -1], [2, 0]))))
            .variant("lists")
            .on(&[normal(&[2, 3, 4]), normal(&[4, 2, 2])]),
        Method::new("kron", |x| one(x[0].clone().kron(x[1].clone())))
            .on(&[normal(&[2, 2]), normal(&[2, 3])])
            .on(&[normal(&[2]), normal(&[2, 3])])
            .on(&[normal(&[]), normal(&[2])]),
        Method::new("addmm", |x| one(x[0].clone().addmm(x[1].clone(), x[2].clone(), 0.5, -2)))
            .on(&[normal(&[2, 4]), normal(&[2, 3]), normal(&[3, 4])])
            .on(&[normal(&[4]), normal(&[2, 3]), normal(&[3, 4])])
            .on(&[normal(&[2, 1]), normal(&[2, 0]), normal(&[0, 4])]),
        Method::new("addmm", |x| one(x[0].clone().addmm(x[1].clone(), x[2].clone(), 0, 1)))
            .variant("beta 0")
            .on(&[normal(&[2, 4]), normal(&[2, 3]), normal(&[3, 4])]),
        Method::new("addbmm", |x| one(x[0].clone().addbmm(x[1].clone(), x[2].clone(), 1, 2)))
            .on(&[normal(&[2, 4]), normal(&[3, 2, 3]), normal(&[3, 3, 4])])
            .on(&[normal(&[2, 4]), normal(&[0, 2, 3]), normal(&[0, 3, 4])]),
        Method::new("baddbmm", |x| one(x[0].clone().baddbmm(x[1].clone(), x[2].clone(), 1, 2)))
            .on(&[normal(&[3, 2, 4]), normal(&[3, 2, 3]), normal(&[3, 3, 4])])
            .on(&[normal(&[1, 4]), normal(&[3, 2, 3]), normal(&[3, 3, 4])]),
        Method::new("trace", |x| one(x[0].clone().trace())).on(&[normal(&[3, 3])]).on(&[normal(&[2, 2, 3])]),
        Method::new("cross", |x| one(x[0].clone().cross(x[1].clone(), 1)))
            .on(&[normal(&[2, 3]), normal(&[2, 3])])
            .on(&[normal(&[1, 3, 2]), normal(&[2, 3, 1])]),
    ]
}

const SMALL: &str = "that of smaller operands is checked";

fn norms() -> Vec<Method> {
    // The squares of these operands exceed the range of `f16`, the results do not.
    let large = || uniform(250.0, 300.0, &[3, 16]);
    let zeros = floats(&[2, 3], Fill::Among(&[0.0, 0.0, 1.5, -2.0]));
    vec![
        Method::new("vector_norm", |x| one(x[0].clone().vector_norm(2, -1)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[2, 0])]),
        Method::new("vector_norm_dims", |x| one(x[0].clone().vector_norm_dims(2, [0, -1])))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[2, 3, 4])])
            .on(&[normal(&[2, 0])]),
        Method::new("vector_norm_dims", |x| one(x[0].clone().vector_norm_dims(3, [] as [i32; 0])))
            .variant("all")
            .on(&[away(&[2, 3])])
            .on(&[away(&[])]),
        Method::new("vector_norm_dims", |x| one(x[0].clone().vector_norm_dims(Norm::MaxAbs, [0, 1])))
            .variant("max")
            .on(&[distinct(&[2, 3])])
            .once(PIECEWISE),
        Method::new("vector_norm_dims", |x| one(x[0].clone().vector_norm_dims(Norm::MinAbs, [0, 1])))
            .variant("min")
            .on(&[distinct(&[2, 3])])
            .once(PIECEWISE),
        Method::new("vector_norm_dims", |x| one(x[0].clone().vector_norm_dims(Norm::L0, [0, 1])))
            .variant("l0")
            .on(&[zeros])
            .no_gradient("counts"),
        Method::new("renorm", |x| one(x[0].clone().renorm(1.0, 1, 1.0))).variant("1").on(&[away(&[2, 3, 2])]),
        Method::new("renorm", |x| one(x[0].clone().renorm(3.5, 1, 1.0)))
            .variant("3.5")
            .on(&[away(&[2, 3, 2])])
            .within(64.0),
        Method::new("renorm", |x| one(x[0].clone().renorm(f64::INFINITY, 1, 1.0)))
            .variant("max")
            .on(&[distinct(&[2, 3, 2])])
            .once(PIECEWISE),
        Method::new("renorm", |x| one(x[0].clone().renorm(2.0, 1, 1.0)))
            .on(&[away(&[2, 3])])
            .on(&[away(&[2, 3, 2])])
            .on(&[away(&[2, 0])]),
        Method::new("vector_norm", |x| one(x[0].clone().vector_norm(Norm::L0, 1)))
            .variant("l0")
            .on(&[zeros])
            .no_gradient("counts"),
        Method::new("vector_norm", |x| one(x[0].clone().vector_norm(1, 1)))
            .variant("l1")
            .on(&[away(&[2, 3])]),
        Method::new("vector_norm", |x| one(x[0].clone().vector_norm(Norm::MaxAbs, 1)))
            .variant("max")
            .on(&[distinct(&[2, 3])])
            .once(PIECEWISE),
        Method::new("vector_norm", |x| one(x[0].clone().vector_norm(Norm::MinAbs, 1)))
            .variant("min")
            .on(&[distinct(&[2, 3])])
            .once(PIECEWISE),
        Method::new("vector_norm", |x| one(x[0].clone().vector_norm(3.5, 1)))
            .variant("lp")
            .on(&[away(&[2, 3])])
            .within(64.0),
        Method::new("vector_normalize", |x| one(x[0].clone().vector_normalize(2, 1, 1e-12)))
            .on(&[normal(&[2, 3])]),
        Method::new("cosine_similarity", |x| one(x[0].clone().cosine_similarity(x[1].clone(), 1, 1e-8)))
            .on(&[away(&[2, 3]), away(&[2, 3])])
            .on(&[away(&[2, 3]), away(&[1, 3])]),
        Method::new("pairwise_distance", |x| one(x[0].clone().pairwise_distance(x[1].clone(), 2, 1e-6)))
            .on(&[normal(&[2, 3]), normal(&[2, 3])]),
        Method::new("vector_norm", |x| one(x[0].clone().vector_norm(2, -1)))
            .variant("l2 of large operands")
            .on(&[large()])
            .no_gradient(SMALL),
        Method::new("cosine_similarity", |x| one(x[0].clone().cosine_similarity(x[1].clone(), 1, 1e-8)))
            .variant("large operands")
            .on(&[large(), large()])
            .no_gradient(SMALL),
    ]
}
