//! Pooling.

use crate::call::{Call, Outputs, array};
use kiln_tensor::module::{self, PoolOptions};

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    macro_rules! pool {
        ($function:ident, $axes:literal, $rank:literal $(, $rest:expr)?) => {
            module::$function(call.tensor::<$rank>("x"), &options::<$axes>(call) $(, $rest)?).into_any()
        };
    }
    macro_rules! adaptive {
        ($function:ident, $rank:literal) => {
            module::$function(call.tensor::<$rank>("x"), array(&call.counts("output_size"))).into_any()
        };
    }
    let include = || call.flag("count_include_pad");
    let y = match &*call.op {
        "max_pool1d" => pool!(max_pool1d, 1, 3),
        "max_pool2d" => pool!(max_pool2d, 2, 4),
        "max_pool3d" => pool!(max_pool3d, 3, 5),
        "avg_pool1d" => pool!(avg_pool1d, 1, 3, include()),
        "avg_pool2d" => pool!(avg_pool2d, 2, 4, include()),
        "avg_pool3d" => pool!(avg_pool3d, 3, 5, include()),
        "adaptive_avg_pool1d" => adaptive!(adaptive_avg_pool1d, 3),
        "adaptive_avg_pool2d" => adaptive!(adaptive_avg_pool2d, 4),
        "adaptive_avg_pool3d" => adaptive!(adaptive_avg_pool3d, 5),
        "adaptive_max_pool1d" | "adaptive_max_pool2d" => {
            return Err("kiln-tensor has no adaptive maximum pooling yet");
        }
        op => panic!("unknown op {op}"),
    };
    // The positions of maxima are not offered.
    Ok(vec![Some(y), None])
}

fn options<const N: usize>(call: &Call<'_>) -> PoolOptions<N> {
    let list = |name: &str| array::<N, usize>(&call.counts(name));
    let dilation = call.optional_counts("dilation").map_or([1; N], |list| array(&list));
    PoolOptions {
        window: list("kernel"),
        stride: list("stride"),
        padding: list("padding"),
        dilation,
        ceil_mode: call.flag("ceil_mode"),
    }
}
