//! Pooling, by the methods of `AnyTensor`: values, gradients and indices of maxima.

use super::call::{Call, Outputs, one};
use kiln_tensor::module::Pooling;
use kiln_tensor::{AnyTensor, Result};

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    pool(call).unwrap_or_else(|error| panic!("{error}"))
}

fn pool(call: &Call<'_>) -> Result<Outputs> {
    let x = call.input("x").clone();
    let both = |(y, indices): (AnyTensor, AnyTensor)| Ok(vec![Some(y), Some(indices)]);
    Ok(match &*call.op {
        "max_pool1d" | "max_pool2d" | "max_pool3d" => both(x.max_pool_with_indices(&pooling(call))?),
        "avg_pool1d" | "avg_pool2d" | "avg_pool3d" => {
            one(x.avg_pool(&pooling(call), call.flag("count_include_pad"))?)
        }
        "lp_pool1d" | "lp_pool2d" => one(x.lp_pool(call.real("p"), &pooling(call))?),
        "max_unpool2d" => one(x.max_unpool(call.input("indices").clone(), &call.counts("output_size"))?),
        "adaptive_avg_pool1d" | "adaptive_avg_pool2d" | "adaptive_avg_pool3d" => {
            one(x.adaptive_avg_pool(&call.counts("output_size"))?)
        }
        "adaptive_max_pool1d" | "adaptive_max_pool2d" | "adaptive_max_pool3d" => {
            both(x.adaptive_max_pool_with_indices(&call.counts("output_size"))?)
        }
        op => panic!("unknown op {op}"),
    })
}

fn pooling(call: &Call<'_>) -> Pooling {
    let window = call.counts("kernel");
    let padding = call.optional_counts("padding").unwrap_or_else(|| vec![0; window.len()]);
    let ones = || vec![1; window.len()];
    Pooling {
        stride: call.counts("stride"),
        padding: padding.into_iter().map(|zeros| (zeros, zeros)).collect(),
        dilation: call.optional_counts("dilation").unwrap_or_else(ones),
        ceil_mode: call.flag("ceil_mode"),
        window,
    }
}
