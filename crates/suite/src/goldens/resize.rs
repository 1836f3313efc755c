//! Resizing, by the method of `AnyTensor`.

use super::call::{Call, Outputs, one};
use kiln_tensor::module::{InterpolateMode, InterpolateOptions, InterpolateSize};

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let mode = match call.text("mode") {
        "nearest" => InterpolateMode::Nearest,
        "nearest-exact" => InterpolateMode::NearestExact,
        "linear" | "bilinear" | "trilinear" => InterpolateMode::Linear,
        "bicubic" => InterpolateMode::Cubic,
        "area" => InterpolateMode::Area,
        mode => panic!("unknown mode {mode}"),
    };
    let align_corners = call.attributes["align_corners"].as_bool().unwrap_or(false);
    let options = InterpolateOptions { mode, align_corners, antialias: call.flag("antialias") };
    let size = match (call.optional_counts("size"), call.optional_reals("scale_factor")) {
        (Some(size), _) => InterpolateSize::Sizes(size),
        (None, Some(factors)) => InterpolateSize::Factors(factors),
        (None, None) => panic!("{}: neither size nor factor", call.name),
    };
    one(call.input("x").clone().interpolate(size, options).unwrap_or_else(|error| panic!("{error}")))
}
