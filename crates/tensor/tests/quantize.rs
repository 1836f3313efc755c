//! Quantization: schemes, granularities, exact zero, range limits, matmuls.

use kiln_backends::{Device, Dyn};
use kiln_tensor::quantize::{QuantGranularity, QuantMode, QuantParams, QuantScheme, Quantized};
use kiln_tensor::{AnyTensor, DType, Distribution, Tensor, TensorType};

fn random(shape: &[usize]) -> AnyTensor {
    AnyTensor::random(TensorType::new(shape, DType::F32), Distribution::Normal(0.5, 1.0), &Device::cpu())
        .unwrap()
}

fn values(any: AnyTensor) -> Vec<f64> {
    any.into_data().unwrap().convert(DType::F64).to_vec::<f64>()
}

#[test]
fn quantization_errors_are_within_half_a_step() {
    let x = random(&[4, 6]);
    let granularities = [
        QuantGranularity::Tensor,
        QuantGranularity::Channel(1),
        QuantGranularity::Block { axis: 1, size: 3 },
    ];
    let dtypes = [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32];
    for granularity in granularities {
        for dtype in dtypes {
            for mode in [QuantMode::Symmetric, QuantMode::Asymmetric] {
                let scheme = QuantScheme { dtype, mode, granularity };
                let unsigned = matches!(dtype, DType::U8 | DType::U16);
                if unsigned && mode == QuantMode::Symmetric {
                    assert!(x.clone().quantize_dynamic(&scheme).is_err());
                    continue;
                }
                let q = x.clone().quantize_dynamic(&scheme).unwrap();
                assert_eq!(q.values.dtype(), dtype);
                let step = values(q.params.scale.clone()).into_iter().fold(0.0, f64::max);
                let back = values(q.dequantize().unwrap());
                for (x, y) in values(x.clone()).into_iter().zip(back) {
                    assert!((x - y).abs() <= step * 0.5001 + 1e-6, "{scheme:?}: {x} became {y}");
                }
            }
        }
    }
}

#[test]
fn zero_is_quantized_exactly() {
    for (mode, dtype) in [(QuantMode::Symmetric, DType::I8), (QuantMode::Asymmetric, DType::U8)] {
        let scheme = QuantScheme { dtype, mode, ..QuantScheme::default() };
        for data in [[0.0f32, 0.3, 7.7], [-5.1, -1.0, 0.0], [0.0, 0.0, 0.0]] {
            let q = AnyTensor::from_data(data, &Device::cpu()).quantize_dynamic(&scheme).unwrap();
            let back = values(q.dequantize().unwrap());
            let place = data.iter().position(|&x| x == 0.0).unwrap();
            assert_eq!(back[place], 0.0, "{data:?}");
        }
    }
}

#[test]
fn values_out_of_range_saturate() {
    let device = Device::cpu();
    let params = QuantParams { scale: AnyTensor::from_data([0.1f32], &device), zero: None };
    let x = AnyTensor::from_data([1e9f32, -1e9, f32::INFINITY, f32::NAN, 0.25], &device);
    let q = x.quantize(&params, DType::I8).unwrap();
    assert_eq!(q.values.into_data().unwrap().to_vec::<i8>(), [127, -128, 127, 0, 2]);
}

#[test]
fn fake_quantization_rounds_and_passes_gradients_in_range() {
    let device = Device::cpu().autodiff();
    let scheme = QuantScheme {
        dtype: DType::U8,
        mode: QuantMode::Asymmetric,
        granularity: QuantGranularity::Block { axis: 0, size: 2 },
    };
    let x = AnyTensor::from_data([0.21f32, 0.8, f32::INFINITY, -3.0], &device).require_grad().unwrap();
    let range = AnyTensor::from_data([0.0f32, 1.0, 0.0, 2.0], &device).quant_range(&scheme).unwrap();
    let params = range.params(&scheme).unwrap();
    let y = x.clone().fake_quantize(&params, &scheme).unwrap();
    let real = x.clone().quantize(&params, scheme.dtype).unwrap().dequantize().unwrap();
    assert_eq!(values(y.clone()), values(real));
    let sum: Tensor<Dyn, 1> = y.sum().unwrap().try_into_tensor().unwrap();
    assert_eq!(values(sum.backward().get(&x).unwrap()), [1.0, 1.0, 0.0, 0.0]);
}

#[test]
fn quantized_matmuls_match_dequantized_matmuls() {
    let (a, b) = (random(&[2, 3, 8]), random(&[2, 8, 5]));
    let scheme = |dtype, granularity, mode| QuantScheme { dtype, mode, granularity };
    let (rows, columns) = (QuantGranularity::Channel(1), QuantGranularity::Channel(2));
    let blocks = QuantGranularity::Block { axis: 2, size: 4 };
    use QuantMode::{Asymmetric, Symmetric};
    let cases = [
        (scheme(DType::I8, QuantGranularity::Tensor, Symmetric), scheme(DType::I8, columns, Symmetric)),
        (scheme(DType::U8, rows, Asymmetric), scheme(DType::U8, columns, Asymmetric)),
        (scheme(DType::U8, rows, Asymmetric), scheme(DType::I8, QuantGranularity::Tensor, Symmetric)),
        (scheme(DType::I8, blocks, Symmetric), scheme(DType::I8, columns, Asymmetric)),
        (scheme(DType::I16, rows, Symmetric), scheme(DType::I8, columns, Symmetric)),
    ];
    for (for_a, for_b) in cases {
        let a = a.clone().quantize_dynamic(&for_a).unwrap();
        let b = b.clone().quantize_dynamic(&for_b).unwrap();
        let float = |x: &Quantized| x.clone().dequantize().unwrap();
        let expected = values(float(&a).matmul(float(&b)).unwrap());
        let found = values(a.matmul(b).unwrap());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-4, "{for_a:?} x {for_b:?}: {found} {expected}");
        }
    }
}

#[test]
fn errors_of_invalid_schemes() {
    let scheme =
        QuantScheme { granularity: QuantGranularity::Block { axis: 1, size: 4 }, ..Default::default() };
    let error = random(&[2, 6]).quantize_dynamic(&scheme).unwrap_err().to_string();
    assert_eq!(
        error,
        "[compute_range] cannot be split by Block { axis: 1, size: 4 }: f32[2, 6]\n  hint: the axis exists, and blocks \
         divide it"
    );
    let scheme = QuantScheme { dtype: DType::U8, ..Default::default() };
    let error = random(&[2]).quantize_dynamic(&scheme).unwrap_err().to_string();
    assert!(error.starts_with("[compute_range] u8 has no negative numbers: f32[2]"), "{error}");
}
