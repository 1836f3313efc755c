//! Convolution and matmul.

use super::call::{Call, Outputs, array, one};
use kiln_tensor::AnyTensor;
use kiln_tensor::module::{self, ConvOptions};

pub(crate) fn conv(call: &Call<'_>) -> Outputs {
    macro_rules! convolve {
        ($function:ident, $axes:literal, $rank:literal $(, $output:expr)?) => {
            one(module::$function(
                call.tensor::<$rank>("x"),
                call.tensor::<$rank>("weight"),
                call.optional_tensor::<1>("bias"),
                &options::<$axes>(call),
                $($output)?
            )
            .into_any())
        };
    }
    let output = |name: &str| call.counts(name);
    match &*call.op {
        "conv1d" => convolve!(conv1d, 1, 3),
        "conv2d" => convolve!(conv2d, 2, 4),
        "conv3d" => convolve!(conv3d, 3, 5),
        "conv_transpose1d" => convolve!(conv_transpose1d, 1, 3, array(&output("output_padding"))),
        "conv_transpose2d" => convolve!(conv_transpose2d, 2, 4, array(&output("output_padding"))),
        "conv_transpose3d" => convolve!(conv_transpose3d, 3, 5, array(&output("output_padding"))),
        op => panic!("unknown op {op}"),
    }
}

fn options<const N: usize>(call: &Call<'_>) -> ConvOptions<N> {
    let list = |name: &str| array::<N, usize>(&call.counts(name));
    ConvOptions::new(list("stride"), list("padding"), list("dilation"), call.count("groups"))
}

pub(crate) fn matmul(call: &Call<'_>) -> Outputs {
    match &*call.op {
        "matmul" => matrix_product(call),
        "linear" => linear(call),
        "bilinear" => {
            let input = |name: &str| call.input(name).clone();
            let bias = call.optional("bias").cloned();
            one(input("a")
                .bilinear(input("b"), input("weight"), bias)
                .unwrap_or_else(|error| panic!("{error}")))
        }
        "einsum" => {
            let operands: Vec<_> = call.inputs.iter().map(|name| call.input(name).clone()).collect();
            one(AnyTensor::einsum(call.text("equation"), operands).unwrap_or_else(|error| panic!("{error}")))
        }
        op => panic!("unknown op {op}"),
    }
}

fn matrix_product(call: &Call<'_>) -> Outputs {
    let product = call.input("a").clone().matmul(call.input("b").clone());
    one(product.unwrap_or_else(|error| panic!("{error}")))
}

fn linear(call: &Call<'_>) -> Outputs {
    let (weight, bias) = (call.tensor::<2>("weight"), call.optional_tensor::<1>("bias"));
    let x = call.input("x").clone();
    if x.rank() == 0 {
        return Err("a scalar has no axis");
    }
    one(crate::goldens::call::by_rank!(x, |x| module::linear(x, weight, bias)))
}
