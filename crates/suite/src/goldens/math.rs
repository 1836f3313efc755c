//! Functions of one or two elements, through the typed methods where there are some.

use super::call::{Call, Outputs, by_rank, one};
use kiln_ir::{Binary, Comparison, Op, Var};

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    macro_rules! typed {
        ($method:ident) => {
            one(by_rank!(call.input("x").clone(), |x| x.$method()))
        };
    }
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
        "log2" => return typed!(log2),
        "log10" => return typed!(log10),
        "sinh" => return typed!(sinh),
        "cosh" => return typed!(cosh),
        "asin" => return typed!(asin),
        "acos" => return typed!(acos),
        "asinh" => return typed!(asinh),
        "acosh" => return typed!(acosh),
        "atanh" => return typed!(atanh),
        "add" => a() + b(),
        "sub" => a() - b(),
        "mul" => a() * b(),
        "div" => a() / b(),
        "fmod" => a().binary(Binary::Rem, &b()),
        "remainder" => {
            return call
                .input("a")
                .clone()
                .remainder(call.input("b").clone())
                .map_or(Err("operands do not suit"), one);
        }
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
