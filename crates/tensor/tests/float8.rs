//! 8-bit floats: conversions, matmuls, gradients, mixed precision and batches.

use kiln_backends::{Autocast, Cpu, Device, Flex};
use kiln_tensor::float8::{self, Float8, Float8Tensor};
use kiln_tensor::transform::vmap;
use kiln_tensor::{AnyTensor, Autodiff, DType, Tensor, TensorData, Vmap};

fn devices() -> [Device; 2] {
    [Device::flex(), Device::cpu()]
}

fn values<const D: usize>(shape: [usize; D], seed: u64) -> TensorData {
    let count: usize = shape.iter().product();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    TensorData::new((0..count).map(|_| next()).collect::<Vec<f32>>(), shape).unwrap()
}

/// Numbers that cover rounding: every float of the format, numbers between them, huge numbers, and zero.
fn places(format: Float8) -> Vec<f32> {
    let finite = (0..=255u8).map(|bits| format.decode(bits)).filter(|x| x.is_finite());
    let beside = finite.flat_map(|x| {
        let half = f32::midpoint(x, format.decode(format.encode(x).wrapping_add(1)));
        [x, x.next_up(), x.next_down(), half, half.next_up(), half.next_down()]
    });
    let far = [
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
        -0.0,
    ];
    beside.chain(far).chain((0..1000).map(|i| (i as f32 - 500.0) * 1.7)).collect()
}

#[test]
fn conversions_match_the_format() {
    for device in devices() {
        for &format in Float8::ALL {
            let places = places(format);
            let x = AnyTensor::from_data(TensorData::new(places.clone(), [places.len()]).unwrap(), &device);
            let expected: Vec<u8> = places.iter().map(|&x| format.encode(x)).collect();
            let bits = x.encode_float8(format).unwrap();
            let is_nan = |bits: u8| format.decode(bits).is_nan();
            for ((x, actual), expected) in
                places.iter().zip(bits.to_data().unwrap().to_vec::<u8>()).zip(expected)
            {
                let same = actual == expected || is_nan(actual) && is_nan(expected);
                assert!(same, "{format:?} {x:e}: {actual:#x} instead of {expected:#x}");
            }
            let all: Vec<u8> = (0..=255).collect();
            let bits = AnyTensor::from_data(TensorData::new(all, [256]).unwrap(), &device);
            let numbers = bits.decode_float8(format, DType::F32).unwrap().to_data().unwrap().to_vec::<f32>();
            for (bits, actual) in (0..=255u8).zip(numbers) {
                let expected = format.decode(bits);
                let same = actual.to_bits() == expected.to_bits() || actual.is_nan() && expected.is_nan();
                assert!(same, "{format:?} {bits:#x}: {actual} instead of {expected}");
            }
        }
    }
}

#[test]
fn quantized_matmuls_match_dequantized_matmuls() {
    for device in devices() {
        let tensor = |shape: [usize; 3], seed| AnyTensor::from_data(values(shape, seed), &device);
        for formats in [[Float8::E4M3; 2], [Float8::E5M2, Float8::E4M3], [Float8::E5M2; 2]] {
            let a = tensor([2, 17, 33], 1).quantize_float8(formats[0]).unwrap();
            let b = tensor([2, 19, 33], 2).quantize_float8(formats[1]).unwrap().transpose().unwrap();
            let plain = |q: &Float8Tensor| q.clone().dequantize(DType::F64).unwrap();
            let expected = plain(&a).matmul(plain(&b)).unwrap().to_data().unwrap().to_vec::<f64>();
            let actual = a.matmul(b, DType::F32).unwrap().to_data().unwrap().to_vec::<f64>();
            let far = expected.iter().zip(&actual).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(far < 1e-4, "{formats:?}: {far}");
        }
    }
}

#[test]
fn zeros_nan_and_extreme_values_are_quantized() {
    let device = Device::cpu();
    let q = |data: Vec<f32>| {
        let len = data.len();
        let x = AnyTensor::from_data(TensorData::new(data, [len]).unwrap(), &device);
        let q = x.quantize_float8(Float8::E4M3).unwrap();
        (
            q.scale.to_data().unwrap().to_vec::<f32>()[0],
            q.dequantize(DType::F32).unwrap().to_data().unwrap().to_vec::<f32>(),
        )
    };
    assert_eq!(q(vec![0.0, -0.0]), (1.0, vec![0.0, 0.0]));
    assert_eq!(q(vec![-3.0]), (3.0 / 448.0, vec![-3.0]));
    assert!(q(vec![1.0, f32::NAN]).1.iter().all(|x| x.is_nan()));
    let (scale, numbers) = q(vec![3e38, -1.0]);
    assert!(scale.is_finite() && (numbers[0] / 3e38 - 1.0).abs() < 1e-6);
}

/// The RMS error relative to the RMS of the expected numbers.
fn error(actual: &[f32], expected: &[f32]) -> f64 {
    let square = |x: f32| f64::from(x) * f64::from(x);
    let difference: f64 = actual.iter().zip(expected).map(|(a, b)| square(a - b)).sum();
    (difference / expected.iter().map(|&x| square(x)).sum::<f64>()).sqrt()
}

type Training = Autodiff<Cpu>;

#[test]
fn float8_matmuls_and_gradients_approximate_f32() {
    let device = Default::default();
    let x = Tensor::<Training, 3>::from_data(values([3, 20, 40], 1), &device).require_grad();
    let w = Tensor::<Training, 3>::from_data(values([1, 40, 24], 2), &device).require_grad();
    let g = Tensor::<Training, 3>::from_data(values([3, 20, 24], 3), &device);
    let run = |product: fn(Tensor<Training, 3>, Tensor<Training, 3>) -> Tensor<Training, 3>| {
        let y = product(x.clone(), w.clone());
        let gradients = (y.clone() * g.clone()).sum().backward();
        let of = |tensor: &Tensor<Training, 3>| tensor.grad(&gradients).unwrap().into_data().to_vec::<f32>();
        [y.into_data().to_vec::<f32>(), of(&x), of(&w)]
    };
    let (rough, exact) = (run(float8::matmul), run(Tensor::matmul));
    for (rough, exact) in rough.iter().zip(&exact) {
        let error = error(rough, exact);
        assert!((1e-4..0.08).contains(&error), "{error}");
    }
}

#[test]
fn a_shared_matrix_merges_batch_dims_into_one_matmul() {
    let device = Device::cpu();
    let x = AnyTensor::from_data(values([2, 3, 5, 8], 1), &device);
    let w = AnyTensor::from_data(values([8, 6], 2), &device);
    let y = x.clone().matmul_float8(w.clone()).unwrap();
    assert_eq!(y.shape(), &[2, 3, 5, 6].into());
    let rows = x.reshape([30, 8]).unwrap().matmul_float8(w).unwrap();
    assert_eq!(y.to_data().unwrap().to_vec::<f32>(), rows.to_data().unwrap().to_vec::<f32>());
    for (rows, inner, columns) in [(0, 4, 3), (2, 0, 3), (2, 4, 0)] {
        let a = AnyTensor::from_data(values([rows, inner], 1), &device);
        let b = AnyTensor::from_data(values([inner, columns], 1), &device);
        let y = a.matmul_float8(b).unwrap().to_data().unwrap();
        assert_eq!((y.shape(), y.to_vec::<f32>()), (&[rows, columns].into(), vec![0.0; rows * columns]));
    }
}

#[test]
fn mixed_precision_stores_the_result_in_16_bits() {
    type Mixed = Autodiff<Autocast<Flex>>;
    let device = Default::default();
    let x = Tensor::<Mixed, 2>::from_data(values([16, 32], 1), &device).require_grad();
    let w = Tensor::<Mixed, 2>::from_data(values([32, 16], 2), &device).require_grad();
    let y = float8::matmul(x.clone(), w.clone());
    let plain = Tensor::<Flex, 2>::from_data(values([16, 32], 1), &Default::default());
    let other = Tensor::<Flex, 2>::from_data(values([32, 16], 2), &Default::default());
    let expected = float8::matmul(plain, other).into_data().to_vec::<f32>();
    let rounded: Vec<f32> = expected.iter().map(|&x| kiln_tensor::bf16::from_f32(x).to_f32()).collect();
    assert_eq!(y.clone().into_data().to_vec::<f32>(), rounded);
    let gradients = y.sum().backward();
    assert_eq!(x.grad(&gradients).unwrap().into_data().dtype(), DType::F32);
}

#[test]
fn examples_of_a_batch_have_their_own_scales() {
    let device = Default::default();
    let x = || Tensor::<Cpu, 3>::from_data(values([4, 5, 8], 1), &device);
    let w = || Tensor::<Cpu, 2>::from_data(values([8, 6], 2), &device);
    let examples = |x: Tensor<Vmap<Cpu>, 2>| {
        let w = x.lift(w());
        float8::matmul(x, w)
    };
    let y: Tensor<Cpu, 3> = vmap(examples)(x());
    let y = y.into_data().to_vec::<f32>();
    let mut one_by_one = Vec::new();
    for example in 0..4 {
        let x = x().select_dim::<2>(0, example);
        one_by_one.extend(float8::matmul(x, w()).into_data().to_vec::<f32>());
    }
    assert!(error(&y, &one_by_one) < 1e-6);
}

#[test]
fn errors_name_the_op_and_the_types() {
    let device = Device::cpu();
    let floats = AnyTensor::from_data(values([2, 3], 1), &device);
    let ints = AnyTensor::from_data(TensorData::new(vec![1i32, 2], [2]).unwrap(), &device);
    let message = |result: kiln_tensor::Result<AnyTensor>| result.unwrap_err().to_string();
    let text = message(floats.clone().matmul_float8(floats.clone()));
    assert!(text.contains("[matmul_as_float8] inner sizes differ: f32[2, 3] x f32[2, 3]"), "{text}");
    let text = message(ints.clone().encode_float8(Float8::E4M3));
    assert!(text.contains("[encode] needs floats"), "{text}");
    let text = message(floats.clone().decode_float8(Float8::E4M3, DType::F32));
    assert!(text.contains("[decode] needs bits in u8"), "{text}");
    let q = floats.clone().quantize_float8(Float8::E4M3).unwrap();
    let text = message(q.clone().matmul(q.clone(), DType::F32));
    assert!(text.contains("[matmul_float8] inner sizes differ: u8[2, 3] x u8[2, 3]"), "{text}");
    let text = message(q.clone().matmul(q.transpose().unwrap(), DType::I32));
    assert!(text.contains("needs f32, f16 or bf16 for the result, not i32"), "{text}");
}

#[test]
fn scales_have_gradients() {
    type B = Autodiff<Cpu>;
    let device = Default::default();
    let q = |seed| float8::quantize(Tensor::<B, 2>::from_data(values([5, 7], seed), &device), Float8::E4M3);
    let (a, b) = (q(1), q(2).transpose().unwrap());
    let scale = Tensor::<B, 1>::from_data([0.5f32], &device).require_grad();
    let scaled = Float8Tensor { scale: scale.clone().into_any().reshape([]).unwrap(), ..a };
    let y: Tensor<B, 2> = float8::matmul_quantized(scaled, b);
    let gradients = y.clone().sum().backward();
    let slope = scale.grad(&gradients).unwrap().into_scalar::<f32>();
    let expected = y.sum().into_scalar::<f32>() / 0.5;
    assert!((slope - expected).abs() < 1e-4 * expected.abs().max(1.0), "{slope} instead of {expected}");
}
