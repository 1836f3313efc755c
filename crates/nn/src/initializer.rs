//! Initializers of parameters.

use crate::{Config, Param};
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::{Backend, Distribution, Shape, Tensor, TensorData};

/// Initializer of a parameter: the distribution of its first values. Random values come from the device's random stream
/// ([`Backend::seed`]).
///
/// *Fan in* is the number of inputs that one output depends on, and *fan out* the number of outputs that one input
/// affects. Weights `[out, in, kernel..]`, the layout of layers, have the fan in `in * product(kernel)` and the fan out
/// `out * product(kernel)`.
#[derive(Config, Clone, Copy, Debug, PartialEq)]
pub enum Initializer {
    /// A constant.
    Constant {
        /// The value of each element.
        value: f64,
    },
    /// Ones.
    Ones,
    /// Zeros.
    Zeros,
    /// Uniform distribution over `[min, max)`.
    Uniform {
        /// The lower bound.
        min: f64,
        /// The exclusive upper bound.
        max: f64,
    },
    /// Normal distribution.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        std: f64,
    },
    /// Kaiming (He) uniform: uniform over `±gain √(3 / fan)` ([He et al. 2015](https://arxiv.org/abs/1502.01852)).
    KaimingUniform {
        /// The gain of the activation: `√2` for ReLU, 1 without activation.
        gain: f64,
        /// Whether to use the fan out instead of the fan in.
        fan_out_only: bool,
    },
    /// Kaiming (He) normal: mean 0, standard deviation `gain / √fan`
    /// ([He et al. 2015](https://arxiv.org/abs/1502.01852)).
    KaimingNormal {
        /// The gain of the activation: `√2` for ReLU, 1 without activation.
        gain: f64,
        /// Whether to use the fan out instead of the fan in.
        fan_out_only: bool,
    },
    /// Xavier (Glorot) uniform: uniform over `±gain √(6 / (fan in + fan out))`
    /// ([Glorot and Bengio 2010](https://proceedings.mlr.press/v9/glorot10a.html)).
    XavierUniform {
        /// The gain of the activation: 1 without activation.
        gain: f64,
    },
    /// Xavier (Glorot) normal: mean 0, standard deviation `gain √(2 / (fan in + fan out))`
    /// ([Glorot and Bengio 2010](https://proceedings.mlr.press/v9/glorot10a.html)).
    XavierNormal {
        /// The gain of the activation: 1 without activation.
        gain: f64,
    },
    /// A random orthogonal matrix times `gain` ([Saxe et al. 2014](https://arxiv.org/abs/1312.6120)), computed on the
    /// host. The shape is seen as `[first dimension, product of the others]`; its rows are orthonormal, or its columns
    /// if there are fewer columns than rows.
    Orthogonal {
        /// The scale factor.
        gain: f64,
    },
}

impl Initializer {
    /// The default initializer of linear and convolution layers, as in PyTorch: uniform over `±1 / √(fan in)`.
    // With gain √(1/3), the bound of Kaiming uniform is 1 / √(fan in).
    pub const LINEAR: Initializer =
        Initializer::KaimingUniform { gain: 0.577_350_269_189_625_8, fan_out_only: false };

    /// Returns a trainable parameter of this shape. The fans follow from the shape.
    ///
    /// # Panics
    /// When the initializer depends on fans and the shape has fewer than two dimensions.
    #[track_caller]
    pub fn init<B: Backend, const D: usize>(
        &self,
        shape: [usize; D],
        device: &B::Device,
    ) -> Param<Tensor<B, D>> {
        Param::from_tensor(self.tensor(shape, fans(&shape), device))
    }

    /// Returns a trainable parameter with explicit fans. A bias has the fans of its weight.
    #[track_caller]
    pub fn init_with<B: Backend, const D: usize>(
        &self,
        shape: [usize; D],
        fan_in: usize,
        fan_out: usize,
        device: &B::Device,
    ) -> Param<Tensor<B, D>> {
        Param::from_tensor(self.tensor(shape, Some((fan_in, fan_out)), device))
    }

    #[track_caller]
    fn tensor<B: Backend, const D: usize>(
        &self,
        shape: [usize; D],
        fans: Option<(usize, usize)>,
        device: &B::Device,
    ) -> Tensor<B, D> {
        let uniform = |bound: f64| Tensor::random(shape, Distribution::Uniform(-bound, bound), device);
        let normal = |std: f64| Tensor::random(shape, Distribution::Normal(0.0, std), device);
        match *self {
            Initializer::Constant { value } => Tensor::full(shape, value, device),
            Initializer::Ones => Tensor::ones(shape, device),
            Initializer::Zeros => Tensor::zeros(shape, device),
            Initializer::Uniform { min, max } => {
                Tensor::random(shape, Distribution::Uniform(min, max), device)
            }
            Initializer::Normal { mean, std } => {
                Tensor::random(shape, Distribution::Normal(mean, std), device)
            }
            Initializer::KaimingUniform { gain, fan_out_only } => {
                uniform(gain * libm::sqrt(3.0 / one_fan(fans, fan_out_only)))
            }
            Initializer::KaimingNormal { gain, fan_out_only } => {
                normal(gain / libm::sqrt(one_fan(fans, fan_out_only)))
            }
            Initializer::XavierUniform { gain } => uniform(gain * libm::sqrt(6.0 / both_fans(fans))),
            Initializer::XavierNormal { gain } => normal(gain * libm::sqrt(2.0 / both_fans(fans))),
            Initializer::Orthogonal { gain } => orthogonal(shape, gain, device),
        }
    }
}

/// Fan in and fan out of weights `[out, in, kernel..]`.
fn fans(shape: &[usize]) -> Option<(usize, usize)> {
    let &[output, input, ref kernel @ ..] = shape else { return None };
    let size: usize = kernel.iter().product();
    Some((input * size, output * size))
}

const NO_FANS: &str =
    "[initializer] a shape with fewer than two dimensions has no fans\n  hint: pass them to `init_with`";

#[track_caller]
fn one_fan(fans: Option<(usize, usize)>, output: bool) -> f64 {
    let (fan_in, fan_out) = fans.expect(NO_FANS);
    (if output { fan_out } else { fan_in }).max(1) as f64
}

#[track_caller]
fn both_fans(fans: Option<(usize, usize)>) -> f64 {
    let (fan_in, fan_out) = fans.expect(NO_FANS);
    (fan_in + fan_out).max(1) as f64
}

/// Orthonormalises random vectors by the modified Gram-Schmidt process. Each vector is projected twice: after one
/// projection, rounding errors grow with the number of vectors.
#[track_caller]
fn orthogonal<B: Backend, const D: usize>(shape: [usize; D], gain: f64, device: &B::Device) -> Tensor<B, D> {
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
    match TensorData::new(vectors, Shape::from(shape)) {
        Ok(data) => Tensor::from_data(data, device),
        Err(error) => panic!("{error}"),
    }
}

fn transposed(matrix: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let mut result = vec![0.0; matrix.len()];
    for row in 0..rows {
        for column in 0..columns {
            result[column * rows + row] = matrix[row * columns + column];
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_backends::Flex;

    fn values<const D: usize>(initializer: Initializer, shape: [usize; D]) -> Vec<f64> {
        initializer.init::<Flex, D>(shape, &Default::default()).val().into_data().to_vec()
    }

    fn deviation(values: &[f64]) -> f64 {
        (values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64).sqrt()
    }

    #[test]
    fn constants() {
        assert_eq!(values(Initializer::Constant { value: 2.5 }, [3]), [2.5; 3]);
        assert_eq!(values(Initializer::Ones, [2]), [1.0; 2]);
        assert_eq!(values(Initializer::Zeros, [2]), [0.0; 2]);
    }

    #[test]
    fn uniform_initializers_fill_their_bounds() {
        let bounds = [
            (Initializer::Uniform { min: -0.5, max: 0.5 }, 0.5),
            (Initializer::LINEAR, 1.0 / 100f64.sqrt()),
            (Initializer::KaimingUniform { gain: 2f64.sqrt(), fan_out_only: true }, (6.0 / 200f64).sqrt()),
            (Initializer::XavierUniform { gain: 1.0 }, (6.0 / 300f64).sqrt()),
        ];
        for (initializer, bound) in bounds {
            let values = values(initializer, [50, 25, 2, 2]);
            let greatest = values.iter().fold(0.0f64, |greatest, x| greatest.max(x.abs()));
            assert!(
                greatest <= bound * 1.0001 && greatest > bound * 0.99,
                "{initializer:?}: {greatest} {bound}"
            );
            assert!((deviation(&values) - bound / 3f64.sqrt()).abs() < bound * 0.03, "{initializer:?}");
        }
    }

    #[test]
    fn normal_initializers_have_their_standard_deviation() {
        let deviations = [
            (Initializer::Normal { mean: 0.0, std: 0.2 }, 0.2),
            (Initializer::KaimingNormal { gain: 2f64.sqrt(), fan_out_only: false }, (2.0 / 100f64).sqrt()),
            (Initializer::XavierNormal { gain: 2.0 }, 2.0 * (2.0 / 300f64).sqrt()),
        ];
        for (initializer, expected) in deviations {
            let got = deviation(&values(initializer, [50, 25, 2, 2]));
            assert!((got - expected).abs() < expected * 0.05, "{initializer:?}: {got} {expected}");
        }
    }

    #[test]
    fn orthogonal_matrices_are_orthonormal() {
        for shape in [[8, 24], [24, 8], [1, 5], [5, 5]] {
            let [rows, columns] = shape;
            let matrix = values(Initializer::Orthogonal { gain: 2.0 }, shape);
            let matrix = if rows <= columns { matrix } else { transposed(&matrix, rows, columns) };
            let length = rows.max(columns);
            for (i, a) in matrix.chunks_exact(length).enumerate() {
                for (j, b) in matrix.chunks_exact(length).enumerate() {
                    let product: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
                    let expected = if i == j { 4.0 } else { 0.0 };
                    assert!((product - expected).abs() < 1e-5, "{shape:?}: {i} {j} {product}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "fewer than two dimensions")]
    fn fan_in_of_a_vector_panics() {
        values(Initializer::LINEAR, [3]);
    }
}
