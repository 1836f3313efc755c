//! Activation functions.

use super::{Method, distinct, floats, normal, one};
use crate::case::Fill;

/// Numbers in every piece of piecewise functions, away from their kinks.
const PIECES: Fill = Fill::Among(&[-7.3, -4.1, -2.2, -0.7, -0.3, 0.3, 0.7, 2.2, 4.1, 7.3]);

pub(super) fn rows() -> Vec<Method> {
    let mut rows = pointwise();
    rows.extend(along_an_axis());
    rows.extend(drawn());
    rows
}

fn pointwise() -> Vec<Method> {
    vec![
        Method::new("relu", |x| one(x[0].clone().relu())).elementwise(PIECES),
        Method::new("relu6", |x| one(x[0].clone().relu6())).elementwise(PIECES),
        Method::new("hardtanh", |x| one(x[0].clone().hardtanh(-1.0, 1.0))).elementwise(PIECES),
        Method::new("tanhshrink", |x| one(x[0].clone().tanhshrink())).elementwise(Fill::Normal),
        Method::new("leaky_relu", |x| one(x[0].clone().leaky_relu(0.1))).elementwise(PIECES),
        Method::new("prelu", |x| one(x[0].clone().prelu(x[1].clone())))
            .on(&[floats(&[2, 3, 4], PIECES), normal(&[3])])
            .on(&[floats(&[2, 3], PIECES), normal(&[1])])
            .on(&[floats(&[], PIECES), normal(&[1])])
            .on(&[floats(&[0, 3], PIECES), normal(&[3])]),
        Method::new("gelu", |x| one(x[0].clone().gelu())).elementwise(Fill::Normal),
        Method::new("gelu_approximate", |x| one(x[0].clone().gelu_approximate())).elementwise(Fill::Normal),
        Method::new("log_sigmoid", |x| one(x[0].clone().log_sigmoid())).elementwise(Fill::Away),
        Method::new("hard_sigmoid", |x| one(x[0].clone().hard_sigmoid(0.2, 0.5))).elementwise(PIECES),
        Method::new("silu", |x| one(x[0].clone().silu())).elementwise(Fill::Away),
        Method::new("hard_swish", |x| one(x[0].clone().hard_swish())).elementwise(PIECES),
        Method::new("mish", |x| one(x[0].clone().mish())).elementwise(Fill::Away),
        Method::new("softplus", |x| one(x[0].clone().softplus(1.5))).elementwise(Fill::Away),
        Method::new("softplus_with_threshold", |x| one(x[0].clone().softplus_with_threshold(2.0, 3.0)))
            .elementwise(PIECES),
        Method::new("elu", |x| one(x[0].clone().elu(1.5))).elementwise(PIECES),
        Method::new("celu", |x| one(x[0].clone().celu(1.5))).elementwise(PIECES),
        Method::new("selu", |x| one(x[0].clone().selu())).elementwise(PIECES),
        Method::new("thresholded_relu", |x| one(x[0].clone().thresholded_relu(1.0))).elementwise(PIECES),
        Method::new("threshold", |x| one(x[0].clone().threshold(1.0, -2.0))).elementwise(PIECES),
        Method::new("softsign", |x| one(x[0].clone().softsign())).elementwise(PIECES),
        Method::new("hard_shrink", |x| one(x[0].clone().hard_shrink(0.5))).elementwise(PIECES),
        Method::new("soft_shrink", |x| one(x[0].clone().soft_shrink(0.5))).elementwise(PIECES),
        Method::new("shrink", |x| one(x[0].clone().shrink(0.5, 0.25))).elementwise(PIECES),
    ]
}

fn along_an_axis() -> Vec<Method> {
    vec![
        Method::new("softmax", |x| one(x[0].clone().softmax(-1)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[5])])
            .on(&[normal(&[0, 3])]),
        Method::new("log_softmax", |x| one(x[0].clone().log_softmax(0)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[5])])
            .on(&[normal(&[2, 0])]),
        Method::new("softmin", |x| one(x[0].clone().softmin(1)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[0, 3])]),
        Method::new("quiet_softmax", |x| one(x[0].clone().quiet_softmax(-1)))
            .on(&[normal(&[2, 3])])
            .on(&[normal(&[2, 0])]),
        Method::new("glu", |x| one(x[0].clone().glu(-1))).on(&[distinct(&[2, 6])]).on(&[distinct(&[2, 0])]),
        Method::new("reglu", |x| one(x[0].clone().reglu(0)))
            .on(&[floats(&[4, 3], PIECES)])
            .on(&[floats(&[4, 0], PIECES)]),
        Method::new("geglu", |x| one(x[0].clone().geglu(1))).on(&[normal(&[2, 4])]).on(&[normal(&[0, 4])]),
        Method::new("swiglu", |x| one(x[0].clone().swiglu(1)))
            .on(&[distinct(&[2, 4])])
            .on(&[normal(&[0, 4])]),
    ]
}

fn drawn() -> Vec<Method> {
    vec![
        Method::new("rrelu", |x| one(x[0].clone().rrelu(0.1, 0.3, true)))
            .variant("training")
            .elementwise(PIECES),
        Method::new("rrelu", |x| one(x[0].clone().rrelu(0.1, 0.3, false))).elementwise(PIECES),
        Method::new("gumbel_softmax", |x| one(x[0].clone().gumbel_softmax(0.7, false, -1)))
            .on(&[normal(&[2, 3])])
            .no_half("the noise of a rounded uniform number is far from that of its neighbour"),
        Method::new("gumbel_softmax", |x| one(x[0].clone().gumbel_softmax(0.7, true, -1)))
            .variant("hard")
            .on(&[normal(&[2, 3])])
            .no_half("the noise of a rounded uniform number is far from that of its neighbour")
            .no_gradient("straight-through: the gradient is that of another function, by intent"),
    ]
}
