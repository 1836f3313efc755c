//! Initializers of matrices, computed on the host.

use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::{AnyTensor, Backend, DType, Distribution, Shape, Tensor, TensorData, TensorType};

/// Orthonormalises random vectors by the modified Gram-Schmidt process. Each vector is projected twice: after one
/// projection, rounding errors grow with the number of vectors.
#[track_caller]
pub(super) fn orthogonal<B: Backend, const D: usize>(
    shape: [usize; D],
    gain: f64,
    device: &B::Device,
) -> Tensor<B, D> {
    let random = Tensor::<B, D>::random(shape, Distribution::Normal(0.0, 1.0), device);
    let rows = shape.first().copied().unwrap_or(1);
    let columns: usize = shape.iter().skip(1).product();
    let (count, length) = (rows.min(columns), rows.max(columns));
    let mut vectors: Vec<f64> = random.into_data().to_vec();
    for current in 0..count {
        let (before, rest) = vectors.split_at_mut(current * length);
        let vector = &mut rest[..length];
        for other in before.chunks_exact(length).chain(before.chunks_exact(length)) {
            let product: f64 = vector.iter().zip(other).map(|(a, b)| a * b).sum();
            vector.iter_mut().zip(other).for_each(|(a, b)| *a -= product * b);
        }
        let norm = libm::sqrt(vector.iter().map(|a| a * a).sum());
        vector.iter_mut().for_each(|a| *a /= norm);
    }
    vectors.iter_mut().for_each(|a| *a *= gain);
    let vectors = if rows <= columns { vectors } else { transposed(&vectors, count, length) };
    from_values(vectors, shape, device)
}

pub(super) fn transposed(matrix: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let mut result = vec![0.0; matrix.len()];
    for row in 0..rows {
        for column in 0..columns {
            result[column * rows + row] = matrix[row * columns + column];
        }
    }
    result
}

/// The identity matrix.
#[track_caller]
pub(super) fn eye<B: Backend, const D: usize>(shape: [usize; D], device: &B::Device) -> Tensor<B, D> {
    let [rows, columns] = matrix("Eye", &shape);
    let mut values = vec![0.0; rows * columns];
    for place in 0..rows.min(columns) {
        values[place * columns + place] = 1.0;
    }
    from_values(values, shape, device)
}

/// The kernel of a convolution that is the identity.
#[track_caller]
pub(super) fn dirac<B: Backend, const D: usize>(
    shape: [usize; D],
    groups: usize,
    device: &B::Device,
) -> Tensor<B, D> {
    assert!((3..=5).contains(&D), "[initializer] `Dirac` is for weights [out, in, kernel..], not {shape:?}");
    let (output, input, kernel) = (shape[0], shape[1], &shape[2..]);
    assert!(
        groups > 0 && output.is_multiple_of(groups),
        "[initializer] {groups} groups do not divide {output} output channels"
    );
    let size: usize = kernel.iter().product();
    let middle = kernel.iter().fold(0, |place, length| place * length + length / 2);
    let mut values = vec![0.0; output * input * size];
    let outputs = output / groups;
    for group in 0..groups {
        for channel in 0..outputs.min(input) {
            let row = (group * outputs + channel) * input + channel;
            values[row * size + middle] = 1.0;
        }
    }
    from_values(values, shape, device)
}

/// A normal matrix with zeros at random rows of each column.
#[track_caller]
pub(super) fn sparse<B: Backend, const D: usize>(
    shape: [usize; D],
    sparsity: f64,
    std: f64,
    device: &B::Device,
) -> Tensor<B, D> {
    let [rows, columns] = matrix("Sparse", &shape);
    assert!((0.0..=1.0).contains(&sparsity), "[initializer] the sparsity {sparsity} is not between 0 and 1");
    let zeros = libm::ceil(sparsity * rows as f64) as usize;
    let normal = Tensor::<B, D>::random(shape, Distribution::Normal(0.0, std), device);
    let mut values = normal.into_data().to_vec::<f64>();
    // In `f32` also where new tensors have 16 bits, with which most keys would be equal.
    let ty = TensorType::new(shape, DType::F32);
    let keys = match AnyTensor::random(ty, Distribution::Default, &B::stack(device)) {
        Ok(keys) => Tensor::<B, D>::from_any(keys).into_data().to_vec::<f64>(),
        Err(error) => panic!("{error}"),
    };
    for column in 0..columns {
        let mut order: Vec<usize> = (0..rows).collect();
        order.sort_by(|&a, &b| keys[a * columns + column].total_cmp(&keys[b * columns + column]));
        for &row in &order[..zeros.min(rows)] {
            values[row * columns + column] = 0.0;
        }
    }
    from_values(values, shape, device)
}

#[track_caller]
fn matrix(name: &str, shape: &[usize]) -> [usize; 2] {
    match *shape {
        [rows, columns] => [rows, columns],
        _ => panic!("[initializer] `{name}` is for matrices, not {shape:?}"),
    }
}

#[track_caller]
fn from_values<B: Backend, const D: usize>(
    values: Vec<f64>,
    shape: [usize; D],
    device: &B::Device,
) -> Tensor<B, D> {
    match TensorData::new(values, Shape::from(shape)) {
        Ok(data) => Tensor::from_data(data, device),
        Err(error) => panic!("{error}"),
    }
}
