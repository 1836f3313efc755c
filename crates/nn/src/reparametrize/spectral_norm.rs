//! Spectral normalisation.

use super::weight_norm::{check_dim, every_weight};
use super::{Parametrization, Reparametrized};
use crate::module::ReplaceParameter;
use crate::{
    BackendModule, Config, Mode, Module, ModuleOn, Parameter, Path, RunningState, Visitor, VisitorMut,
};
use alloc::string::String;
use alloc::vec::Vec;
use core::iter::once;
use kiln_backends::Dyn;
use kiln_tensor::{AnyTensor, Backend, Distribution, Result, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// Iterations of the power method at the start, as in PyTorch.
const FIRST_ITERATIONS: usize = 15;

/// Settings of spectral normalisation ([Miyato et al. 2018](https://arxiv.org/abs/1802.05957)): a weight is divided by
/// its largest singular value, which bounds the Lipschitz constant of the layer. As in
/// `torch.nn.utils.parametrizations.spectral_norm`, with the parameter `parametrizations.weight.original` and the
/// buffers `parametrizations.weight.0._u` and `parametrizations.weight.0._v`.
///
/// The power method estimates the singular vectors `u` and `v`: 15 iterations at the start, and
/// [`iterations`](SpectralNormConfig::iterations) for each [`Reparametrized::module`] in training [mode](Mode). The
/// weight is seen as a matrix of the dimension `dim` and all others.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::reparametrize::SpectralNormConfig;
/// use kiln_nn::{ForwardModule, Linear, LinearConfig};
/// use kiln_tensor::{Autodiff, Tensor};
///
/// type B = Autodiff<Flex>;
///
/// let layer: Linear<B> = LinearConfig::new(2, 2).with_bias(false).init(&Default::default());
/// let mut layer = layer;
/// layer.weight.set(Tensor::from([[3.0, 0.0], [0.0, 0.5]]));
/// let layer = SpectralNormConfig::new().init(layer)?;
/// let y = layer.forward(Tensor::<B, 2>::from([[1.0, 0.0]]));
/// assert!((y.into_data().to_vec::<f32>()[0] - 1.0).abs() < 1e-5);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpectralNormConfig {
    /// [Patterns](crate::Pattern) of the parameters. Parameters of fewer than two dimensions are ignored. Default:
    /// `**.weight`.
    pub targets: Vec<String>,
    /// The dimension of the outputs: the rows of the matrix. Default: 0. It is 1 for transposed convolutions.
    pub dim: usize,
    /// Iterations of the power method for each computation of the weight in training mode. Default: 1.
    pub iterations: usize,
    /// The lower bound of the norms that vectors are divided by. Default: 1e-12.
    pub epsilon: f64,
}

impl Config for SpectralNormConfig {}

impl Default for SpectralNormConfig {
    fn default() -> Self {
        SpectralNormConfig { targets: every_weight(), dim: 0, iterations: 1, epsilon: 1e-12 }
    }
}

impl SpectralNormConfig {
    /// Returns the default settings.
    pub fn new() -> SpectralNormConfig {
        SpectralNormConfig::default()
    }

    /// Sets the patterns of the parameters.
    #[must_use]
    pub fn with_targets<T: Into<String>>(
        mut self,
        targets: impl IntoIterator<Item = T>,
    ) -> SpectralNormConfig {
        self.targets = targets.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the dimension of the outputs.
    #[must_use]
    pub fn with_dim(mut self, dim: usize) -> SpectralNormConfig {
        self.dim = dim;
        self
    }

    /// Sets the iterations of the power method in training mode.
    #[doc(alias = "n_power_iterations")]
    #[must_use]
    pub fn with_iterations(mut self, iterations: usize) -> SpectralNormConfig {
        self.iterations = iterations;
        self
    }

    /// Sets the lower bound of the norms that vectors are divided by.
    #[must_use]
    pub fn with_epsilon(mut self, epsilon: f64) -> SpectralNormConfig {
        self.epsilon = epsilon;
        self
    }

    /// Wraps a module. The first singular vectors are random, from the device's random stream ([`Backend::seed`]).
    ///
    /// # Errors
    /// When a pattern matches no parameter, or a parameter has no dimension `dim`.
    pub fn init<M: Module>(&self, module: M) -> Result<Reparametrized<M, SpectralNorm>> {
        let init = |path: &Path, parameter: &Parameter| {
            check_dim("spectral_norm", path, parameter, self.dim)?;
            self.parametrization(parameter.value.clone().detach())
        };
        Reparametrized::new(module, self.targets.iter(), init)
    }

    fn parametrization(&self, weight: AnyTensor) -> Result<SpectralNorm> {
        let &SpectralNormConfig { dim, iterations, epsilon, .. } = self;
        let matrix = as_matrix(weight, dim)?;
        let random = |length| {
            let ty = TensorType::new([length], matrix.dtype());
            AnyTensor::random(ty, Distribution::Normal(0.0, 1.0), matrix.stack())?
                .vector_normalize(2, 0, epsilon)
        };
        let first = (random(matrix.shape()[0])?, random(matrix.shape()[1])?);
        let (u, v) = power_method(&matrix, first, FIRST_ITERATIONS, epsilon)?;
        let state = |x| RunningState::new(Tensor::<Dyn, 1>::from_any(x));
        Ok(SpectralNorm { u: state(u), v: state(v), dim, iterations, epsilon, mode: Mode::Auto })
    }
}

/// Spectral normalisation of one weight. Created by [`SpectralNormConfig`].
#[derive(Clone, Debug)]
pub struct SpectralNorm {
    /// The left singular vector, as long as `dim`.
    u: RunningState<Tensor<Dyn, 1>>,
    /// The right singular vector, as long as all other dimensions.
    v: RunningState<Tensor<Dyn, 1>>,
    dim: usize,
    iterations: usize,
    epsilon: f64,
    mode: Mode,
}

impl SpectralNorm {
    #[track_caller]
    fn update(&self, matrix: &AnyTensor) {
        self.u.update_both(&self.v, |u, v| {
            let vectors = (u.into_any(), v.into_any());
            match power_method(matrix, vectors, self.iterations, self.epsilon) {
                Ok((u, v)) => (Tensor::from_any(u), Tensor::from_any(v)),
                Err(error) => panic!("{error}"),
            }
        });
    }
}

/// The weight as a matrix of one dimension and all others.
fn as_matrix(weight: AnyTensor, dim: usize) -> Result<AnyTensor> {
    let rank = weight.shape().rank();
    let rows = weight.shape()[dim];
    let columns =
        weight.shape().iter().enumerate().filter(|(axis, _)| *axis != dim).map(|(_, n)| n).product();
    let axes: Vec<usize> = once(dim).chain((0..rank).filter(|axis| *axis != dim)).collect();
    weight.permute(&axes)?.reshape([rows, columns])
}

/// Improves the singular vectors `(u, v)`: `u = W v / ‖W v‖`, `v = Wᵀ u / ‖Wᵀ u‖`.
fn power_method(
    matrix: &AnyTensor,
    (mut u, mut v): (AnyTensor, AnyTensor),
    iterations: usize,
    epsilon: f64,
) -> Result<(AnyTensor, AnyTensor)> {
    for _ in 0..iterations {
        u = matrix_vector(matrix.clone(), v)?.vector_normalize(2, 0, epsilon)?;
        v = matrix_vector(matrix.clone().swap_dims(0, 1)?, u.clone())?.vector_normalize(2, 0, epsilon)?;
    }
    Ok((u, v))
}

fn matrix_vector(matrix: AnyTensor, vector: AnyTensor) -> Result<AnyTensor> {
    let (rows, columns) = (matrix.shape()[0], vector.shape()[0]);
    matrix.matmul(vector.reshape([columns, 1])?)?.reshape([rows])
}

impl Parametrization for SpectralNorm {
    fn weight(&self, original: AnyTensor) -> Result<AnyTensor> {
        let matrix = as_matrix(original.clone(), self.dim)?;
        if self.mode.is_training(original.stack()) {
            self.update(&matrix.clone().detach());
        }
        let (u, v) = (self.u.value().into_any(), self.v.value().into_any());
        let sigma = matrix_vector(matrix, v)?.dot(u)?;
        original.div(sigma)
    }

    fn accepts(ty: &TensorType) -> bool {
        ty.dtype.is_float() && ty.shape.rank() >= 2
    }
}

impl Module for SpectralNorm {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        path.within("_u", |path| self.u.visit(path, visitor));
        path.within("_v", |path| self.v.visit(path, visitor));
        path.within("mode", |path| self.mode.visit(path, visitor));
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        path.within("_u", |path| self.u.visit_mut(path, visitor));
        path.within("_v", |path| self.v.visit_mut(path, visitor));
        path.within("mode", |path| self.mode.visit_mut(path, visitor));
    }
}

impl<B: Backend> BackendModule<B> for SpectralNorm {}

impl<B: Backend> ModuleOn<B> for SpectralNorm {
    type On = SpectralNorm;

    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> SpectralNorm {
        let u = path.within("_u", |path| ModuleOn::<Dyn>::on(&self.u, path, place));
        let v = path.within("_v", |path| ModuleOn::<Dyn>::on(&self.v, path, place));
        SpectralNorm { u, v, ..self.clone() }
    }
}
