//! Activation functions.

use super::{ModuleRow, Twin, one, row, t};
use crate::methods::{away, normal};
use kiln_nn::{
    EluConfig, Gelu, LeakyReluConfig, LogSoftmax, Relu, Sigmoid, Silu, Softmax, SoftplusConfig, Tanh,
};

const KINK: &str = "piecewise linear";

pub(super) fn rows() -> Vec<ModuleRow> {
    vec![
        row!(
            "Relu",
            Twin::Golden("activation", "relu"),
            |_| Relu::new(),
            |m, x| one(m.forward(t::<2, _>(&x[0]))),
            [away(&[2, 3])]
        )
        .with(|method| method.once(KINK)),
        row!(
            "Silu",
            Twin::Golden("activation", "silu"),
            |_| Silu::new(),
            |m, x| one(m.forward(t::<2, _>(&x[0]))),
            [normal(&[2, 3])]
        ),
        row!(
            "Tanh",
            Twin::Golden("math", "tanh"),
            |_| Tanh::new(),
            |m, x| one(m.forward(t::<2, _>(&x[0]))),
            [normal(&[2, 3])]
        ),
        row!(
            "Sigmoid",
            Twin::Golden("activation", "sigmoid"),
            |_| Sigmoid::new(),
            |m, x| one(m.forward(t::<2, _>(&x[0]))),
            [normal(&[2, 3])]
        ),
        row!(
            "Gelu",
            Twin::Golden("activation", "gelu"),
            |_| Gelu::new(),
            |m, x| one(m.forward(t::<2, _>(&x[0]))),
            [normal(&[2, 3])]
        ),
        row!(
            "Softmax",
            Twin::Golden("activation", "softmax"),
            |_| Softmax::new(1),
            |m, x| one(m.forward(t::<2, _>(&x[0]))),
            [normal(&[2, 3])]
        ),
        row!(
            "LogSoftmax",
            Twin::Golden("activation", "log_softmax"),
            |_| LogSoftmax::new(1),
            |m, x| one(m.forward(t::<2, _>(&x[0]))),
            [normal(&[2, 3])]
        ),
        row!(
            "LeakyRelu",
            Twin::Golden("activation", "leaky_relu"),
            |_| LeakyReluConfig::new().init(),
            |m, x| one(m.forward(t::<2, _>(&x[0]))),
            [away(&[2, 3])]
        )
        .with(|method| method.once(KINK)),
        row!(
            "Elu",
            Twin::Golden("activation", "elu"),
            |_| EluConfig::new().init(),
            |m, x| one(m.forward(t::<2, _>(&x[0]))),
            [away(&[2, 3])]
        ),
        row!(
            "Softplus",
            Twin::Golden("activation", "softplus"),
            |_| SoftplusConfig::new().init(),
            |m, x| one(m.forward(t::<2, _>(&x[0]))),
            [normal(&[2, 3])]
        ),
    ]
}
