//! Activations, by `kiln_tensor::activation`.

use super::call::{Call, Outputs, by_rank, one};
use kiln_tensor::activation;

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    macro_rules! typed {
        ($function:ident $(, $rest:expr)*) => {
            one(by_rank!(call.input("x").clone(), |x| activation::$function(x $(, $rest)*)))
        };
    }
    let real = |name: &str| call.real(name);
    match &*call.op {
        "relu" => typed!(relu),
        "relu6" => typed!(relu6),
        "silu" => typed!(silu),
        "tanh" => typed!(tanh),
        "sigmoid" => typed!(sigmoid),
        "log_sigmoid" => typed!(log_sigmoid),
        "hard_sigmoid" => typed!(hard_sigmoid, 1.0 / 6.0, 0.5),
        "hard_swish" => typed!(hard_swish),
        "hard_tanh" => typed!(hardtanh, real("min"), real("max")),
        "mish" => typed!(mish),
        "selu" => typed!(selu),
        "softsign" => typed!(softsign),
        "tanh_shrink" => typed!(tanhshrink),
        "gelu" if call.text("approximate") == "none" => typed!(gelu),
        "gelu" => typed!(gelu_approximate),
        "softmax" => typed!(softmax, call.count("axis")),
        "log_softmax" => typed!(log_softmax, call.count("axis")),
        "softmin" => typed!(softmin, call.count("axis")),
        "glu" => typed!(glu, call.count("axis")),
        "leaky_relu" => typed!(leaky_relu, real("negative_slope")),
        "prelu" => typed!(prelu, call.tensor::<1>("weight")),
        "elu" => typed!(elu, real("alpha")),
        "celu" => typed!(celu, real("alpha")),
        "softplus" => typed!(softplus_with_threshold, real("beta"), real("threshold")),
        "hard_shrink" => typed!(hard_shrink, real("lambda")),
        "soft_shrink" => typed!(soft_shrink, real("lambda")),
        "threshold" => typed!(threshold, real("threshold"), real("value")),
        op => panic!("unknown op {op}"),
    }
}
