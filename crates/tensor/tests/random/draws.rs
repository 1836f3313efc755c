//! Bernoulli samples, dropout and classes have their probabilities in every dtype.

use super::chi_square;
use kiln_backends::{Cpu, Device};
use kiln_tensor::random::Key;
use kiln_tensor::{AnyTensor, Backend, DType, Distribution, Tensor, TensorData, TensorType};
use std::sync::Arc;

const MANY: usize = 1 << 20;

/// Asserts that a count of [`MANY`] draws is within five standard deviations.
#[track_caller]
fn is_binomial(count: usize, p: f64, what: &str) {
    let expected = MANY as f64 * p;
    let limit = 5.0 * (expected * (1.0 - p)).sqrt();
    assert!((count as f64 - expected).abs() <= limit, "{what}: {count} of {expected}");
}

fn count(x: AnyTensor, counts: impl Fn(&f64) -> bool) -> usize {
    x.into_data().unwrap().to_vec::<f64>().iter().filter(|x| counts(x)).count()
}

/// Small probabilities, and those near 1, which 8 and 11 bits cannot represent.
const CASES: [(DType, f64); 9] = [
    (DType::BF16, 0.001),
    (DType::BF16, 0.999),
    (DType::BF16, 0.3),
    (DType::F16, 0.0002),
    (DType::F16, 0.9998),
    (DType::F32, 1e-6),
    (DType::F64, 1e-6),
    (DType::I32, 0.001),
    (DType::Bool, 0.001),
];

#[test]
fn bernoulli_samples_have_their_probability() {
    for (dtype, p) in CASES {
        let ty = TensorType::new([MANY], dtype);
        let x = AnyTensor::random_with_key(ty, Distribution::Bernoulli(p), Key::new(2), &Device::cpu());
        is_binomial(count(x.unwrap(), |x| *x == 1.0), p, &format!("{dtype} {p}"));
    }
}

/// The probabilities are the elements, as the dtype represents them.
#[test]
fn bernoulli_of_a_tensor_of_probabilities() {
    for (dtype, p) in CASES.into_iter().filter(|(dtype, _)| dtype.is_float()) {
        let p = AnyTensor::full(TensorType::new([MANY], dtype), p, &Device::cpu()).unwrap();
        let represented = p.clone().narrow(0, 0, 1).unwrap().into_data().unwrap().to_vec::<f64>()[0];
        let x = p.bernoulli(Key::new(2)).unwrap();
        is_binomial(count(x, |x| *x == 1.0), represented, &format!("{dtype} {represented}"));
    }
}

#[test]
fn extreme_probabilities_are_certain() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (p, expected) in [(0.0, 0), (1.0, MANY)] {
            let ty = TensorType::new([MANY], dtype);
            let x = AnyTensor::random(ty, Distribution::Bernoulli(p), &Device::cpu()).unwrap();
            assert_eq!(count(x, |x| *x == 1.0), expected, "{dtype} {p}");
        }
    }
}

/// Masks in 16 bits are those of `f32`.
#[test]
fn dropout_drops_with_its_probability() {
    for device in [Device::cpu(), Device::cpu().autodiff(), Device::flex()] {
        for (dtype, p) in CASES.into_iter().filter(|(dtype, p)| dtype.is_float() && *p < 0.5) {
            let x = AnyTensor::full(TensorType::new([MANY], dtype), 1.0, &device).unwrap();
            let dropped = count(x.clone().dropout(p, true).unwrap(), |x| *x == 0.0);
            is_binomial(dropped, p, &format!("dropout in {dtype} of {p}"));
            let dropped = count(x.alpha_dropout(p, true).unwrap(), |x| *x < 0.0);
            is_binomial(dropped, p, &format!("alpha dropout in {dtype} of {p}"));
        }
    }
}

/// Products are rounded once. The factor itself, 1 / 0.9, is 1.1094 in bf16 and 1.1113 in f16.
#[test]
fn dropout_keeps_the_mean_in_16_bits() {
    for (dtype, most) in [(DType::BF16, 3e-4), (DType::F16, 5e-5)] {
        let ty = TensorType::new([MANY], dtype);
        let x = AnyTensor::random_with_key(ty, Distribution::Uniform(1.0, 2.0), Key::new(1), &Device::cpu());
        let x = x.unwrap();
        let y = x.clone().dropout(0.1, true).unwrap();
        let [before, after] = [x, y].map(|x| x.into_data().unwrap().to_vec::<f64>());
        let kept = before.iter().zip(&after).filter(|(_, y)| **y != 0.0);
        let (before, after) = kept.fold((0.0, 0.0), |(before, after), (x, y)| (before + x, after + y));
        let error = after / before * 0.9 - 1.0;
        assert!(error.abs() < most, "{dtype}: {error}");
    }
}

/// The probabilities of `f32` also where results are stored in 16 bits.
#[test]
fn autocast_does_not_narrow_probabilities() {
    use kiln_backends::LowPrecision;
    for precision in [LowPrecision::BF16, LowPrecision::F16] {
        let device = Device::cpu().autocast(precision);
        let ty = TensorType::new([MANY], DType::F32);
        let mask = AnyTensor::random(ty, Distribution::Bernoulli(0.0002), &device).unwrap();
        is_binomial(count(mask, |x| *x == 1.0), 0.0002, "bernoulli below autocast");
        // A matmul's result is stored in 16 bits.
        let ones = AnyTensor::ones(TensorType::new([1024, 1], DType::F32), &device).unwrap();
        let x = ones.clone().matmul(ones.transpose().unwrap()).unwrap();
        let dropped = count(x.dropout(0.0002, true).unwrap(), |x| *x == 0.0);
        is_binomial(dropped, 0.0002, "dropout below autocast");
    }
}

fn classes(weights: impl Into<TensorData>, count: usize, key: u64, device: &Device) -> Vec<i32> {
    let weights = AnyTensor::from_data(weights, device);
    weights.multinomial(count, true, Key::new(key)).unwrap().into_data().unwrap().to_vec()
}

/// The counts are those of uniform numbers in the shares 0.3, 0.1 and 0.6, drawn by a Philox generator written in NumPy.
#[test]
fn classes_follow_unnormalised_weights() {
    const DRAWS: usize = 100_000;
    let weights: [f64; 6] = [0.0, 3.0, 0.0, 1.0, 6.0, 0.0];
    let cases = [
        (DType::F64, 1.0),
        (DType::F64, 1e-300),
        (DType::F64, 1e307),
        (DType::F32, 1.0),
        (DType::F16, 1.0),
        (DType::BF16, 1.0),
    ];
    for (dtype, scale) in cases {
        let data = TensorData::from(weights.map(|weight| weight * scale)).convert(dtype);
        let mut counts = [0; 6];
        classes(data, DRAWS, 7, &Device::cpu()).into_iter().for_each(|class| counts[class as usize] += 1);
        assert_eq!(counts, [0, 30_096, 0, 10_027, 59_877, 0], "{dtype} {scale}");
    }
}

/// Rows have their own weights and numbers; a row of one class, and of classes of which one has a weight.
#[test]
fn rows_of_classes() {
    let weights = [[[0.0f32, 0.0, 1.0], [1.0, 0.0, 0.0]], [[0.0, 1e-30, 0.0], [1.0, 1.0, 1.0]]];
    let drawn = classes(weights, 50, 1, &Device::cpu());
    assert_eq!(drawn[..50], [2; 50]);
    assert_eq!(drawn[50..100], [0; 50]);
    assert_eq!(drawn[100..150], [1; 50]);
    assert!((0..3).all(|class| drawn[150..].contains(&class)));
    assert_eq!(classes([0.25f32], 3, 1, &Device::cpu()), [0; 3]);
    assert_eq!(classes([[1.0f32, 2.0]], 0, 1, &Device::cpu()), [0; 0]);
}

/// Many classes: each tenth of them, and classes of weight 0 between them.
#[test]
fn many_classes_are_equally_likely() {
    const CLASSES: usize = 50_000;
    const DRAWS: usize = 100_000;
    let weights: Vec<f32> = (0..CLASSES).map(|class| if class % 2 == 0 { 0.0 } else { 0.1 }).collect();
    for device in [Device::cpu(), Device::cpu_with_threads(4), Device::flex()] {
        let mut counts = [0; 10];
        for class in classes(TensorData::new(weights.clone(), [CLASSES]).unwrap(), DRAWS, 3, &device) {
            assert_eq!(class % 2, 1);
            counts[class as usize * 10 / CLASSES] += 1;
        }
        let found = chi_square(&counts, &[DRAWS as f64 / 10.0; 10]);
        assert!(found < 27.9, "{counts:?}");
    }
}

/// A number for each draw and class would take 1 GB.
#[test]
fn draws_with_replacement_store_no_number_for_each_class_and_draw() {
    let device = Default::default();
    let weights = Tensor::<Cpu, 1>::ones([50_000], &device);
    let _ = weights.clone().into_data();
    Cpu::reset_peak_memory(&device);
    let before = Cpu::memory(&device).unwrap().live_bytes;
    let drawn = weights.multinomial_with_key(2560, true, Key::new(1)).into_data().to_vec::<i32>();
    assert!(drawn.iter().all(|class| (0..50_000).contains(class)));
    let peak = Cpu::memory(&device).unwrap().peak_live_bytes - before;
    assert!(peak < 8 << 20, "{peak}");
}

/// Ops per draw grow with the logarithm of the classes: a binary search.
#[test]
fn draws_with_replacement_are_a_binary_search() {
    let ran = |classes: usize, draws: usize| {
        let limited = Arc::new(super::ranges::limited());
        let device = Device::from_engine(limited.clone(), "logged");
        let weights = AnyTensor::ones(TensorType::new([classes], DType::F32), &device).unwrap();
        weights.multinomial(draws, true, Key::new(1)).unwrap().into_data().unwrap();
        limited.take_ran().len()
    };
    assert_eq!(ran(1000, 3), ran(1000, 4000));
    let (few, many) = (ran(1 << 10, 3), ran(1 << 16, 3));
    assert!(many - few <= 6 * 12, "{few} {many}");
}

/// Engines without `f64` draw by sums in `f32`.
#[test]
fn classes_without_64_bits() {
    let weights = [1.0f32, 0.0, 2.0, 5.0, 0.0];
    let [wide, narrow] =
        [Device::cpu(), super::ranges::browser()].map(|device| classes(weights, 1000, 9, &device));
    assert_eq!(wide, narrow);
}
