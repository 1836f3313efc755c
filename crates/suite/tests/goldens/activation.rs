//! Activations: by `kiln_tensor::activation` where it has the function, otherwise the formula in ops.

use crate::call::{Call, Outputs, by_rank, one};
use kiln_ir::{Comparison, Op, Var};
use kiln_tensor::activation;

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    macro_rules! typed {
        ($function:ident $(, $rest:expr)*) => {
            one(by_rank!(call.input("x").clone(), |x| activation::$function(x $(, $rest)*)))
        };
    }
    match &*call.op {
        "relu" => typed!(relu),
        "silu" => typed!(silu),
        "tanh" => typed!(tanh),
        "sigmoid" => typed!(sigmoid),
        "log_sigmoid" => typed!(log_sigmoid),
        "gelu" if call.text("approximate") == "none" => typed!(gelu),
        "gelu" => typed!(gelu_approximate),
        "softmax" => typed!(softmax, call.count("axis")),
        "log_softmax" => typed!(log_softmax, call.count("axis")),
        "leaky_relu" => typed!(leaky_relu, call.real("negative_slope")),
        "elu" => typed!(elu, call.real("alpha")),
        "softplus" if call.real("threshold") == 20.0 => typed!(softplus, call.real("beta")),
        _ => one(call.done(formula(call))),
    }
}

fn formula<'c>(call: &'c Call<'_>) -> Var<'c> {
    let x = call.var("x");
    let real = |name: &str| call.real(name);
    match &*call.op {
        "relu6" => clamp(&x, 0.0, 6.0),
        "hard_sigmoid" => clamp(&(&x + 3.0), 0.0, 6.0) / 6.0,
        "hard_swish" => hard_swish(&x),
        "mish" => &x * softplus(&x).tanh(),
        "selu" => elu(&x, 1.673_263_242_354_377_2) * 1.050_700_987_355_480_5,
        "celu" => where_positive(&x, &x, &((min_0(&x) / real("alpha")).expm1() * real("alpha"))),
        "softsign" => &x / (x.abs() + 1.0),
        "tanh_shrink" => &x - x.tanh(),
        "softmin" => call.emit(Op::Softmax { axis: call.count("axis"), log: false }, &[&-&x]).remove(0),
        "glu" => glu(&x, call.count("axis")),
        "prelu" => prelu(&x, &call.var("weight")),
        "softplus" => {
            let (beta, threshold) = (real("beta"), real("threshold"));
            let scaled = &x * beta;
            let linear = x.scalar(threshold).less(&scaled);
            linear.select(&x, &(softplus(&scaled) / beta))
        }
        "hard_tanh" => clamp(&x, real("min"), real("max")),
        "hard_shrink" => x.scalar(real("lambda")).less(&x.abs()).select(&x, &x.scalar(0.0)),
        "soft_shrink" => {
            let beyond = x.scalar(real("lambda")).less(&x.abs());
            beyond.select(&(&x - x.sign() * real("lambda")), &x.scalar(0.0))
        }
        "threshold" => x.scalar(real("threshold")).less(&x).select(&x, &x.scalar(real("value"))),
        op => panic!("unknown op {op}"),
    }
}

/// With no gradient at the bounds.
fn clamp<'e>(x: &Var<'e>, low: f64, high: f64) -> Var<'e> {
    x.max(&x.scalar(low)).min(&x.scalar(high))
}

fn min_0<'e>(x: &Var<'e>) -> Var<'e> {
    x.min(&x.scalar(0.0))
}

fn where_positive<'e>(x: &Var<'e>, yes: &Var<'e>, no: &Var<'e>) -> Var<'e> {
    x.scalar(0.0).less(x).select(yes, no)
}

/// With the gradients of the negative side at 0: the choice is made first.
fn elu<'e>(x: &Var<'e>, alpha: f64) -> Var<'e> {
    let negative = x.compare(Comparison::Le, &x.scalar(0.0));
    let bounded = negative.select(x, &x.scalar(0.0));
    negative.select(&(bounded.expm1() * alpha), x)
}

fn hard_swish<'e>(x: &Var<'e>) -> Var<'e> {
    let inner = x * (x + 3.0) / 6.0;
    let high = x.scalar(3.0).compare(Comparison::Le, x);
    let low = x.compare(Comparison::Le, &x.scalar(-3.0));
    high.select(x, &low.select(&x.scalar(0.0), &inner))
}

/// `max(x, 0) + log1p(exp(-|x|))`.
fn softplus<'e>(x: &Var<'e>) -> Var<'e> {
    x.max(&x.scalar(0.0)) + (-x.abs()).exp().log1p()
}

fn glu<'e>(x: &Var<'e>, axis: usize) -> Var<'e> {
    let half = x.shape()[axis] / 2;
    let part = |start| x.slice_axis(axis, kiln_ir::SliceAxis { start, len: half, step: 1 });
    part(0) * crate::module::sigmoid(&part(half))
}

fn prelu<'e>(x: &Var<'e>, weight: &Var<'e>) -> Var<'e> {
    let mut shape = vec![1; x.rank()];
    if x.rank() > 1 {
        shape[1] = weight.shape()[0];
    }
    where_positive(x, x, &(x * weight.reshape(shape)))
}
