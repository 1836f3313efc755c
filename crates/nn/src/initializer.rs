//! Initializers of parameters.

mod matrix;

use crate::{Config, Param};
use kiln_tensor::{Backend, Distribution, Tensor};

/// Initializer of a parameter: the distribution of its first values. Random values come from the device's random stream
/// ([`Backend::seed`]). Uniform initializers exclude their upper bound in every dtype.
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
    /// Kaiming (He) uniform: uniform over `[-bound, bound)` with the bound `gain √(3 / fan)`
    /// ([He et al. 2015](https://arxiv.org/abs/1502.01852)).
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
    /// Xavier (Glorot) uniform: uniform over `[-bound, bound)` with the bound `gain √(6 / (fan in + fan out))`
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
    /// Normal distribution, truncated to `[min, max)`.
    TruncNormal {
        /// The mean before truncation.
        mean: f64,
        /// The standard deviation before truncation.
        std: f64,
        /// The lower bound. PyTorch's default is -2.
        min: f64,
        /// The upper bound. PyTorch's default is 2.
        max: f64,
    },
    /// The identity matrix, for a linear layer that starts as the identity: 1 on the diagonal, 0 elsewhere.
    Eye,
    /// The Dirac delta function, for a convolution that starts as the identity of as many channels as possible: weights
    /// `[out, in, kernel..]` are 1 where input and output channel of a group agree, in the middle of the kernel, and 0
    /// elsewhere.
    Dirac {
        /// The number of groups of the convolution.
        groups: usize,
    },
    /// A sparse matrix ([Martens 2010](https://www.cs.toronto.edu/~jmartens/docs/Deep_HessianFree.pdf)): in each
    /// column, a fraction of the rows (rounded up) is 0, the others are normal with mean 0.
    Sparse {
        /// The fraction of zeros in each column.
        sparsity: f64,
        /// The standard deviation of the other elements. PyTorch's default is 0.01.
        std: f64,
    },
}

impl Initializer {
    /// The default initializer of linear and convolution layers, as in PyTorch: uniform over `[-bound, bound)` with
    /// the bound `1 / √(fan in)`.
    // With gain √(1/3), the bound of Kaiming uniform is 1 / √(fan in).
    pub const LINEAR: Initializer =
        Initializer::KaimingUniform { gain: 0.577_350_269_189_625_8, fan_out_only: false };

    /// Returns a trainable parameter of this shape. The fans follow from the shape.
    ///
    /// # Panics
    /// When the initializer depends on fans and the shape has fewer than two dimensions. When the shape of an `Eye` or
    /// `Sparse` is not a matrix, or that of a `Dirac` does not have three to five dimensions and a first dimension that
    /// its groups divide.
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
        let uniform = |bound: f64| match bound {
            0.0 => Tensor::zeros(shape, device),
            bound => Tensor::random(shape, Distribution::Uniform(-bound, bound), device),
        };
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
            Initializer::Orthogonal { gain } => matrix::orthogonal(shape, gain, device),
            Initializer::TruncNormal { mean, std, min, max } => {
                let distribution =
                    Distribution::TruncatedNormal { mean, deviation: std, low: min, high: max };
                Tensor::random(shape, distribution, device)
            }
            Initializer::Eye => matrix::eye(shape, device),
            Initializer::Dirac { groups } => matrix::dirac(shape, groups, device),
            Initializer::Sparse { sparsity, std } => matrix::sparse(shape, sparsity, std, device),
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

#[cfg(test)]
mod tests {
    use super::matrix::transposed;
    use super::*;
    use alloc::vec::Vec;
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

    #[test]
    fn truncated_normals_stay_within_their_bounds() {
        let values =
            values(Initializer::TruncNormal { mean: 0.5, std: 1.0, min: -0.5, max: 1.0 }, [100, 100]);
        assert!(values.iter().all(|x| (-0.5..1.0).contains(x)));
        // The mean of a normal distribution truncated to -1 .. 0.5 standard deviations.
        let mean = values.iter().sum::<f64>() / 1e4;
        assert!((mean - 0.5 - (-0.206_7)).abs() < 0.02, "{mean}");
    }

    #[test]
    fn identities() {
        assert_eq!(values(Initializer::Eye, [2, 3]), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
        let kernel = values(Initializer::Dirac { groups: 1 }, [2, 2, 3]);
        assert_eq!(kernel, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
        let grouped = values(Initializer::Dirac { groups: 2 }, [4, 1, 1, 2]);
        assert_eq!(grouped, [0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn columns_of_sparse_matrices_have_zeros() {
        let matrix = values(Initializer::Sparse { sparsity: 0.25, std: 0.5 }, [10, 40]);
        for column in 0..40 {
            let zeros = (0..10).filter(|row| matrix[row * 40 + column] == 0.0).count();
            assert_eq!(zeros, 3);
        }
        let others: Vec<f64> = matrix.iter().copied().filter(|x| *x != 0.0).collect();
        assert!((deviation(&others) - 0.5).abs() < 0.1);
    }

    #[test]
    #[should_panic(expected = "[initializer] `Eye` is for matrices, not [3]")]
    fn an_identity_is_a_matrix() {
        values(Initializer::Eye, [3]);
    }

    #[test]
    #[should_panic(expected = "[initializer] 3 groups do not divide 4 output channels")]
    fn groups_of_a_dirac_divide_the_channels() {
        values(Initializer::Dirac { groups: 3 }, [4, 1, 1]);
    }
}
