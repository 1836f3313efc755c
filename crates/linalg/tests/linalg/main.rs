//! Linear algebra: the rows of the suite, properties of every result, and error messages.

mod complex;
mod goldens;
mod gradients;
mod ldl;
mod messages;
mod numbers;
mod programs;
mod properties;
mod rows;
mod transforms;

use kiln_backends::Device;
use kiln_tensor::{AnyTensor, DType, Result, TensorData};

/// Reproducible pseudorandom numbers between -1 and 1.
fn noise(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x1234_5678_9ABC_DEF1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// A tensor of these numbers in `f64`.
fn tensor(numbers: Vec<f64>, shape: &[usize], device: &Device) -> AnyTensor {
    AnyTensor::from_data(TensorData::new(numbers, shape).expect("numbers that fill the shape"), device)
}

/// A tensor of [`noise`].
fn random(seed: u64, shape: &[usize]) -> AnyTensor {
    tensor(noise(seed, shape.iter().product()), shape, &Device::cpu())
}

/// A multiple of the identity plus noise, well-conditioned.
fn regular(seed: u64, shape: &[usize]) -> AnyTensor {
    let n = shape[shape.len() - 1];
    let mut numbers = noise(seed, shape.iter().product());
    for (place, number) in numbers.iter_mut().enumerate() {
        if place % n == (place / n) % n {
            *number += 2.0 * (n as f64).sqrt();
        }
    }
    tensor(numbers, shape, &Device::cpu())
}

fn transposed(x: &AnyTensor) -> AnyTensor {
    x.clone().swap_dims(x.rank() - 2, x.rank() - 1).expect("matrices")
}

fn product(a: &AnyTensor, b: &AnyTensor) -> AnyTensor {
    a.clone().matmul(b.clone()).expect("sizes that suit")
}

/// `x xᵀ + 1`.
fn positive(seed: u64, shape: &[usize]) -> AnyTensor {
    let x = random(seed, shape);
    let square = product(&x, &transposed(&x));
    let one = kiln_linalg::any::matrix_power(square.clone(), 0).expect("square matrices");
    square.add(one).expect("the same shape")
}

fn numbers_of(x: &AnyTensor) -> Vec<f64> {
    x.to_data().unwrap_or_else(|error| panic!("{error}")).convert(DType::F64).to_vec::<f64>()
}

#[track_caller]
fn assert_near(what: &str, actual: &AnyTensor, expected: &AnyTensor, tolerance: f64) {
    assert_eq!(actual.shape(), expected.shape(), "{what}");
    for (place, (a, e)) in numbers_of(actual).into_iter().zip(numbers_of(expected)).enumerate() {
        let near = (a - e).abs() <= tolerance * (1.0 + e.abs());
        assert!(near, "{what}: element {place} is {a}, not {e}");
    }
}

/// Values along the last axis descend and are not negative.
#[track_caller]
fn assert_singular_values(what: &str, s: &AnyTensor) {
    let k = s.shape()[s.rank() - 1];
    for values in numbers_of(s).chunks(k.max(1)) {
        assert!(values.is_sorted_by(|a, b| a >= b) && values.iter().all(|&s| s >= 0.0), "{what}");
    }
}

#[track_caller]
fn says<T>(result: Result<T>, expected: &str) {
    match result {
        Ok(_) => panic!("accepted, instead of: {expected}"),
        Err(error) => assert_eq!(error.to_string(), expected),
    }
}
