//! Unary and binary functions, by the typed methods where they exist.

use super::call::{Call, Outputs, by_rank, one};
use kiln_ir::Binary;
use kiln_tensor::{AnyTensor, Result};

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
        "clamp" => return one(clamp(call).unwrap_or_else(|error| panic!("{error}"))),
        op => panic!("unknown op {op}"),
    };
    one(call.done(var))
}

fn clamp(call: &Call<'_>) -> Result<AnyTensor> {
    let x = call.input("x").clone();
    match (call.optional_real("min"), call.optional_real("max")) {
        (Some(low), Some(high)) => x.clamp(low, high),
        (Some(low), None) => x.clamp_min(low),
        (None, Some(high)) => x.clamp_max(high),
        (None, None) => Ok(x),
    }
}
