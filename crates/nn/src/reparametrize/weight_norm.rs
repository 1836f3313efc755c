//! Weight normalisation.

use super::{Parametrization, Reparametrized};
use crate::module::{AnyParam, ReplaceParameter};
use crate::{BackendModule, Config, Module, ModuleOn, Parameter, Path, Visitor, VisitorMut};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use kiln_ir::Reduction;
use kiln_tensor::{AnyTensor, Backend, Error, Result, TensorType};
use serde::{Deserialize, Serialize};

/// Settings of weight normalisation ([Salimans & Kingma 2016](https://arxiv.org/abs/1602.07868)): a weight is
/// `g · v / ‖v‖`, so that its length and its direction are trained separately. As in
/// `torch.nn.utils.parametrizations.weight_norm`, with the parameters `parametrizations.weight.original0` (`g`) and
/// `parametrizations.weight.original1` (`v`).
///
/// The weights of a module do not change when it is wrapped.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::reparametrize::WeightNormConfig;
/// use kiln_nn::{Conv1d, Module, conv::Conv1dConfig};
/// use kiln_tensor::Autodiff;
///
/// let layer: Conv1d<Autodiff<Flex>> = Conv1dConfig::new([2, 4], [3]).init(&Default::default());
/// let layer = WeightNormConfig::new().init(layer)?;
/// let names: Vec<String> = layer.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["parametrizations.weight.original1", "parametrizations.weight.original0", "bias"]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WeightNormConfig {
    /// [Patterns](crate::Pattern) of the parameters. Parameters of fewer than two dimensions are ignored. Default:
    /// `**.weight`.
    pub targets: Vec<String>,
    /// The dimension with one norm for each index; `None` for one norm of the whole weight. Default: 0, the outputs.
    pub dim: Option<usize>,
}

impl Config for WeightNormConfig {}

impl Default for WeightNormConfig {
    fn default() -> Self {
        WeightNormConfig { targets: every_weight(), dim: Some(0) }
    }
}

/// The default targets.
pub(super) fn every_weight() -> Vec<String> {
    vec!["**.weight".into()]
}

impl WeightNormConfig {
    /// Returns the default settings.
    pub fn new() -> WeightNormConfig {
        WeightNormConfig::default()
    }

    /// Sets the patterns of the parameters.
    #[must_use]
    pub fn with_targets<T: Into<String>>(mut self, targets: impl IntoIterator<Item = T>) -> WeightNormConfig {
        self.targets = targets.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the dimension with one norm for each index; `None` for one norm of the whole weight.
    #[must_use]
    pub fn with_dim(mut self, dim: impl Into<Option<usize>>) -> WeightNormConfig {
        self.dim = dim.into();
        self
    }

    /// Wraps a module. The computed weights equal the present ones, up to rounding.
    ///
    /// # Errors
    /// When a pattern matches no parameter, or a parameter has no dimension `dim`.
    pub fn init<M: Module>(&self, module: M) -> Result<Reparametrized<M, WeightNorm>> {
        let init = |path: &Path, parameter: &Parameter| {
            check_dim("weight_norm", path, parameter, self.dim.unwrap_or(0))?;
            let value = parameter.value.clone().detach();
            let norm = norm_except(wide(value)?, self.dim)?.cast(parameter.value.dtype())?;
            Ok(WeightNorm { g: AnyParam::new(norm), dim: self.dim })
        };
        Reparametrized::new(module, self.targets.iter(), init)
    }
}

/// # Errors
/// When a parameter has no dimension `dim`.
pub(super) fn check_dim(op: &str, path: &Path, parameter: &Parameter, dim: usize) -> Result<()> {
    let ty = parameter.value.ty();
    match dim < ty.shape.rank() {
        true => Ok(()),
        false => Err(Error::type_error(op, format!("`{path}` has no dimension {dim}"), &[ty.into()])
            .hint("`with_dim` sets the dimension of the outputs")),
    }
}

/// Weight normalisation of one weight. Created by [`WeightNormConfig`].
#[derive(Clone, Debug)]
pub struct WeightNorm {
    /// The norms: of length 1 in all dimensions but `dim`, or a scalar without `dim`.
    g: AnyParam,
    dim: Option<usize>,
}

/// In at least `f32`: squares of 16-bit floats exceed their range.
fn wide(x: AnyTensor) -> Result<AnyTensor> {
    let dtype = x.dtype().accumulator();
    x.cast(dtype)
}

/// The norm over all dimensions but one, which are kept with length 1; a scalar over all dimensions.
fn norm_except(v: AnyTensor, dim: Option<usize>) -> Result<AnyTensor> {
    let axes: Vec<usize> = (0..v.shape().rank()).filter(|axis| Some(*axis) != dim).collect();
    let norm = v.square()?.reduce(Reduction::Sum, &axes)?.sqrt()?;
    match dim {
        Some(_) => Ok(norm),
        None => norm.reshape([0; 0]),
    }
}

impl Parametrization for WeightNorm {
    fn weight(&self, original: AnyTensor) -> Result<AnyTensor> {
        let (dtype, v) = (original.dtype(), wide(original)?);
        let scale = wide(self.g.val())?.div(norm_except(v.clone(), self.dim)?)?;
        v.mul(scale)?.cast(dtype)
    }

    fn accepts(ty: &TensorType) -> bool {
        ty.dtype.is_float() && ty.shape.rank() >= 2
    }

    fn original_path(path: &Path) -> Path {
        path.with_last(&["parametrizations", path.name(), "original1"])
    }

    fn own_path(path: &Path) -> Path {
        path.with_last(&["parametrizations", path.name(), "original0"])
    }
}

impl Module for WeightNorm {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        self.g.visit(path, visitor);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        self.g.visit_mut(path, visitor);
    }
}

impl<B: Backend> BackendModule<B> for WeightNorm {}

impl<B: Backend> ModuleOn<B> for WeightNorm {
    type On = WeightNorm;

    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> WeightNorm {
        WeightNorm { g: ModuleOn::<B>::on(&self.g, path, place), dim: self.dim }
    }
}
