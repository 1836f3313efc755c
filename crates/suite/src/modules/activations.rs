//! Activation functions.

use super::{ModuleRow, Twin, one, row, t};
use crate::methods::{Method, away, distinct, normal};
use kiln_backends::Dyn;
use kiln_nn::*;

const KINK: &str = "piecewise linear: the second derivative is 0";
const ABSENT: &str = "PyTorch has no such module";
const PARTS: &str = "a composition of modules with rows";

fn golden(op: &'static str) -> Twin {
    Twin::Golden("activation", op)
}

fn once(method: Method) -> Method {
    method.once(KINK)
}

pub(super) fn rows() -> Vec<ModuleRow> {
    let mut rows = smooth();
    rows.extend(piecewise());
    rows.extend(along_an_axis());
    rows.extend(with_parameters());
    rows
}

fn smooth() -> Vec<ModuleRow> {
    vec![
        row!("Silu", golden("silu"), |_| Silu::new(), 2, normal(&[2, 3])),
        row!("Tanh", golden("tanh"), |_| Tanh::new(), 2, normal(&[2, 3])),
        row!("Tanhshrink", golden("tanh_shrink"), |_| Tanhshrink::new(), 2, normal(&[2, 3])),
        row!("Sigmoid", golden("sigmoid"), |_| Sigmoid::new(), 2, normal(&[2, 3])),
        row!("LogSigmoid", golden("log_sigmoid"), |_| LogSigmoid::new(), 2, normal(&[2, 3])),
        row!("Mish", golden("mish"), |_| Mish::new(), 2, normal(&[2, 3])),
        row!("Selu", golden("selu"), |_| Selu::new(), 2, away(&[2, 3])),
        row!("Softsign", golden("softsign"), |_| Softsign::new(), 2, away(&[2, 3])),
        row!("Gelu", golden("gelu"), |_| Gelu::new(), 2, normal(&[2, 3])),
        row!("Gelu", golden("gelu"), |_| Gelu::approximate(), 2, normal(&[2, 3])).variant("approximate"),
        row!("Elu", golden("elu"), |_| EluConfig::new().init(), 2, away(&[2, 3])),
        row!("Celu", golden("celu"), |_| CeluConfig::new().init(), 2, away(&[2, 3])),
        row!("Softplus", golden("softplus"), |_| SoftplusConfig::new().init(), 2, normal(&[2, 3])),
        row!("HardSwish", golden("hard_swish"), |_| HardSwish::new(), 2, away(&[2, 3])),
    ]
}

fn piecewise() -> Vec<ModuleRow> {
    vec![
        row!("Relu", golden("relu"), |_| Relu::new(), 2, away(&[2, 3])).with(once),
        row!("Relu6", golden("relu6"), |_| Relu6::new(), 2, away(&[2, 3])).with(once),
        row!("LeakyRelu", golden("leaky_relu"), |_| LeakyReluConfig::new().init(), 2, away(&[2, 3]))
            .with(once),
        row!("HardSigmoid", golden("hard_sigmoid"), |_| HardSigmoidConfig::new().init(), 2, normal(&[2, 3]))
            .with(once),
        row!("Hardtanh", golden("hard_tanh"), |_| HardtanhConfig::new().init(), 2, normal(&[2, 3]))
            .with(once),
        row!("HardShrink", golden("hard_shrink"), |_| HardShrinkConfig::new().init(), 2, normal(&[2, 3]))
            .with(once),
        row!("SoftShrink", golden("soft_shrink"), |_| SoftShrinkConfig::new().init(), 2, normal(&[2, 3]))
            .with(once),
        row!("Shrink", Twin::None(ABSENT), |_| ShrinkConfig::new().init(), 2, normal(&[2, 3])).with(once),
        row!(
            "Threshold",
            golden("threshold"),
            |_| ThresholdConfig::new(0.1, -2.0).init(),
            2,
            normal(&[2, 3])
        )
        .with(once),
        row!(
            "ThresholdedRelu",
            Twin::None(ABSENT),
            |_| ThresholdedReluConfig::new().init(),
            2,
            normal(&[2, 3])
        )
        .with(once),
        row!(
            "RRelu",
            Twin::Golden("nn_layer", "rrelu"),
            |_| RReluConfig::new().init().eval(),
            2,
            away(&[2, 3])
        )
        .with(once),
    ]
}

fn along_an_axis() -> Vec<ModuleRow> {
    vec![
        row!("Softmax", golden("softmax"), |_| Softmax::new(1), 2, normal(&[2, 3])),
        row!("LogSoftmax", golden("log_softmax"), |_| LogSoftmax::new(1), 2, normal(&[2, 3])),
        row!("Softmin", golden("softmin"), |_| Softmin::new(1), 2, normal(&[2, 3])),
        row!("QuietSoftmax", Twin::None(ABSENT), |_| QuietSoftmax::new(1), 2, distinct(&[2, 3])),
        row!(
            "Softmax2d",
            Twin::Golden("nn_layer", "softmax2d"),
            |_| Softmax2d::new(),
            4,
            normal(&[1, 3, 2, 2])
        ),
        row!("Glu", golden("glu"), |_| Glu::new(1), 2, normal(&[2, 4])),
    ]
}

fn with_parameters() -> Vec<ModuleRow> {
    vec![
        row!("PRelu", golden("prelu"), |d| PReluConfig::new().init::<Dyn>(d), 2, away(&[2, 3])),
        row!("SwiGlu", Twin::None(PARTS), |d| SwiGluConfig::new(3, 2).init::<Dyn>(d), 2, normal(&[2, 3])),
        row!("GeGlu", Twin::None(PARTS), |d| GeGluConfig::new(3, 2).init::<Dyn>(d), 2, normal(&[2, 3])),
        row!("ReGlu", Twin::None(PARTS), |d| ReGluConfig::new(3, 2).init::<Dyn>(d), 2, normal(&[2, 3])),
        row!(
            "Activation",
            Twin::None(PARTS),
            |d| ActivationConfig::Mish.init::<Dyn>(d),
            |m, x| one(m.forward(t::<2, _>(&x[0]))),
            [normal(&[2, 3])]
        ),
    ]
}
