//! Quantization.

use super::{Method, normal, one, two, uniform};
use kiln_ir::{BlockFormat, DType, Float8};
use kiln_tensor::AnyTensor;
use kiln_tensor::quantize::{QuantGranularity, QuantMode, QuantParams, QuantScheme, Quantized};

const INTEGERS: &str = "integers have no gradient";
const ROUNDED: &str = "a number rounded to 16 bits before it is rounded to an integer may cross a half";

const BY_CHANNEL: QuantScheme =
    QuantScheme { dtype: DType::U8, mode: QuantMode::Asymmetric, granularity: QuantGranularity::Channel(0) };
const BY_BLOCK: QuantScheme = QuantScheme {
    dtype: DType::I8,
    mode: QuantMode::Symmetric,
    granularity: QuantGranularity::Block { axis: 1, size: 2 },
};

fn parts(quantized: Quantized) -> (AnyTensor, AnyTensor) {
    (quantized.values, quantized.params.scale)
}

pub(super) fn rows() -> Vec<Method> {
    vec![
        Method::new("quant_range", |x| {
            two(x[0].clone().quant_range(&BY_BLOCK).map(|range| (range.min, range.max)))
        })
        .on(&[super::distinct(&[3, 4])]),
        Method::new("quantize", |x| {
            let params = QuantParams { scale: x[1].clone(), zero: None };
            two(x[0].clone().quantize(&params, DType::I16).map(parts))
        })
        .on(&[normal(&[3, 4]), uniform(0.01, 0.02, &[3, 1])])
        .on(&[normal(&[0, 4]), uniform(0.01, 0.02, &[1, 1])])
        .no_half(ROUNDED)
        .no_gradient(INTEGERS),
        Method::new("quantize_dynamic", |x| two(x[0].clone().quantize_dynamic(&BY_BLOCK).map(parts)))
            .on(&[normal(&[3, 4])])
            .no_half(ROUNDED)
            .no_gradient(INTEGERS),
        Method::new("fake_quantize", |x| {
            let params = x[0].clone().quant_range(&BY_CHANNEL)?.params(&BY_CHANNEL)?;
            one(x[0].clone().fake_quantize(&params, &BY_CHANNEL))
        })
        .on(&[normal(&[3, 4])])
        .no_half(ROUNDED)
        .no_gradient("straight-through: the gradient is that of another function, by intent"),
        Method::new("encode_float8", |x| one(x[0].clone().encode_float8(Float8::E4M3)))
            .on(&[uniform(-500.0, 500.0, &[3, 40])])
            .on(&[normal(&[0, 4])])
            .no_half(ROUNDED)
            .no_gradient(INTEGERS),
        Method::new("encode_float8", |x| one(x[0].clone().encode_float8(Float8::E5M2)))
            .variant("e5m2")
            .on(&[uniform(-70_000.0, 70_000.0, &[3, 40])])
            .no_half(ROUNDED)
            .no_gradient(INTEGERS),
        Method::new("decode_float8", |x| {
            one(x[0].clone().encode_float8(Float8::E4M3)?.decode_float8(Float8::E4M3, x[0].dtype()))
        })
        .on(&[normal(&[3, 40])])
        .no_half(ROUNDED)
        .no_gradient(INTEGERS),
        Method::new("quantize_float8", |x| {
            two(x[0].clone().quantize_float8(Float8::E4M3).map(|q| (q.bits, q.scale)))
        })
        .on(&[normal(&[3, 40])])
        .no_half(ROUNDED)
        .no_gradient(INTEGERS),
        Method::new("quantize_blocks", |x| one(x[0].clone().quantize_blocks(BlockFormat::Q4_1)))
            .on(&[normal(&[3, 64])])
            .no_half(ROUNDED)
            .no_gradient(INTEGERS),
        Method::new("dequantize_blocks", |x| {
            let blocks = x[0].clone().quantize_blocks(BlockFormat::Q5_0)?;
            one(blocks.dequantize_blocks(BlockFormat::Q5_0, x[0].dtype()))
        })
        .on(&[normal(&[3, 64])])
        .no_half(ROUNDED)
        .no_gradient(INTEGERS),
        Method::new("matmul_blocks", |x| {
            let weight = x[1].clone().quantize_blocks(BlockFormat::Q8_0)?;
            one(x[0].clone().matmul_blocks(weight, BlockFormat::Q8_0))
        })
        .on(&[normal(&[2, 3, 32]), normal(&[5, 32])])
        .no_half(ROUNDED)
        // An engine may round `x` to two bytes, except in `f64`: 6 standard deviations of a sum are 0.00004 · 6 · √32.
        .within(12e3)
        .no_gradient("the weight is rounded on the host"),
        Method::new("matmul_float8", |x| {
            // Products are summed in `f32` for every dtype.
            let [a, b] = [x[0].clone().cast(DType::F32)?, x[1].clone().cast(DType::F32)?];
            one(a.matmul_float8(b))
        })
        .on(&[normal(&[6, 16]), normal(&[16, 5])])
        .on(&[normal(&[2, 3, 4]), normal(&[4, 5])])
        .no_half(ROUNDED)
        .no_gradient("gradients are rounded to 8 bits as well, by intent"),
        Method::new("linear_float8", |x| {
            let [a, b, bias] = [0, 1, 2].map(|place| x[place].clone().cast(DType::F32));
            one(a?.linear_float8(b?, Some(bias?)))
        })
        .on(&[normal(&[2, 3, 16]), normal(&[5, 16]), normal(&[5])])
        .no_half(ROUNDED)
        .no_gradient("gradients are rounded to 8 bits as well, by intent"),
    ]
}
