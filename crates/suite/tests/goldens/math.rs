//! Functions of one or two elements, through the typed methods where there are some.

use crate::call::{Call, Outputs, by_rank, one};
use kiln_ir::{Binary, Comparison, Op, Unary, Var};
use std::f64::consts::{LN_2, LN_10};

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    macro_rules! typed {
        ($method:ident) => {
            one(by_rank!(call.input("x").clone(), |x| x.$method()))
        };
    }
    let x = || call.var("x");
    let (a, b) = (|| call.var("a"), || call.var("b"));
    let var = match &*call.op {
        "neg" => return typed!(neg),
        "abs" => return typed!(abs),
        "sign" => return typed!(sign),
        "recip" => return typed!(recip),
        "sqrt" => return typed!(sqrt),
        "rsqrt" => return typed!(rsqrt),
        "square" => return typed!(square),
        "exp" => return typed!(exp),
        "expm1" => return typed!(expm1),
        "ln" => return typed!(log),
        "log1p" => return typed!(log1p),
        "sin" => return typed!(sin),
        "cos" => return typed!(cos),
        "tan" => return typed!(tan),
        "atan" => return typed!(atan),
        "tanh" => return typed!(tanh),
        "erf" => return typed!(erf),
        "floor" => return typed!(floor),
        "ceil" => return typed!(ceil),
        "round" => return typed!(round),
        "trunc" => return typed!(trunc),
        "log2" => x().ln() / LN_2,
        "log10" => x().ln() / LN_10,
        "sinh" | "cosh" | "asin" | "acos" | "asinh" | "acosh" | "atanh" => {
            return Err("kiln-tensor has no inverse or hyperbolic functions yet but tanh and atan");
        }
        "add" => a() + b(),
        "sub" => a() - b(),
        "mul" => a() * b(),
        "div" => a() / b(),
        "fmod" => a().binary(Binary::Rem, &b()),
        "remainder" => remainder(call),
        "pow" => a().pow(&b()),
        "minimum" => a().min(&b()),
        "maximum" => a().max(&b()),
        "atan2" => a().binary(Binary::Atan2, &b()),
        "where" => call.var("condition").select(&a(), &b()),
        "clamp" => clamp(call),
        op => panic!("unknown op {op}"),
    };
    one(call.done(var))
}

/// The remainder with the sign of the divisor, by the typed method where ranks agree.
fn remainder<'c>(call: &'c Call<'_>) -> Var<'c> {
    let (a, b) = (call.var("a"), call.var("b"));
    let quotient = (&a / &b).unary(Unary::Floor);
    &a - quotient * b
}

/// PyTorch passes the gradient at the bounds, where `max` beside a number does not: a choice does.
fn clamp<'c>(call: &'c Call<'_>) -> Var<'c> {
    let mut x = call.var("x");
    if let Some(low) = call.optional_real("min") {
        let low = x.scalar(low);
        x = x.apply(Op::Compare(Comparison::Lt), &[&low]).select(&low, &x);
    }
    if let Some(high) = call.optional_real("max") {
        let high = x.scalar(high);
        x = high.less(&x).select(&high, &x);
    }
    x
}
