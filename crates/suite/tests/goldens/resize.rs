//! Resizing.

use crate::call::{Call, Outputs, array, one};
use kiln_ir::{Op, ResizeMode};
use kiln_tensor::module;

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let x = call.input("x");
    let space = &x.shape()[2..];
    if call.flag("antialias") {
        return Err("the op does not antialias");
    }
    let mode = match call.text("mode") {
        "nearest" => ResizeMode::Nearest,
        "linear" | "bilinear" | "trilinear" => ResizeMode::Linear,
        "bicubic" => ResizeMode::Cubic,
        "nearest-exact" => return Err("the op has no `nearest-exact`"),
        mode => panic!("unknown mode {mode}"),
    };
    let align_corners = call.attributes["align_corners"].as_bool().unwrap_or(false);
    let size = match (call.optional_counts("size"), call.optional_reals("scale_factor")) {
        (Some(size), _) => size,
        (None, Some(factors)) => {
            let exact = |(&length, factor): (&usize, &f64)| (length as f64 * factor).fract() == 0.0;
            if !align_corners && !space.iter().zip(&factors).all(exact) {
                return Err("the op takes sizes; a factor that gives no whole size steps differently");
            }
            space.iter().zip(&factors).map(|(&length, factor)| (length as f64 * factor) as usize).collect()
        }
        (None, None) => panic!("{}: neither size nor factor", call.name),
    };
    if x.rank() == 4 {
        let y = module::interpolate(call.tensor::<4>("x"), array(&size), mode, align_corners);
        return one(y.into_any());
    }
    let op = Op::Resize { mode, size, align_corners };
    one(call.done(call.emit(op, &[&call.var("x")]).remove(0)))
}
