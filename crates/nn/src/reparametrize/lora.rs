//! Low-rank adaptation.

use super::{Parametrization, Reparametrized};
use crate::module::{AnyParam, ReplaceParameter};
use crate::{BackendModule, Config, Mode, Module, ModuleOn, ParamId, Parameter, Path, Visitor, VisitorMut};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kiln_tensor::{AnyTensor, Backend, Distribution, Error, Result, TensorType};
use serde::{Deserialize, Serialize};

/// A module with LoRA adapters; see [`LoraConfig`].
pub type LoraModel<M> = Reparametrized<M, Lora>;

/// Settings of low-rank adaptation (LoRA), which fine-tunes a model by small additions to its weights
/// ([Hu et al. 2021](https://arxiv.org/abs/2106.09685)).
///
/// The weight `W` of a target becomes `W + α/r · B A`. `W` and all other parameters of the model are frozen. `A` is
/// `[r, in]`, initialized as a linear layer's weight, and `B` is `[out, r]`, initially zero: the model's output does not
/// change until the first training step. The weight of a convolution, `[out, in, kernel..]`, is seen as the matrix
/// `[out, in · product(kernel)]`; its `A` is `[r, in, kernel..]` and its `B` `[out, r, 1..]`.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::reparametrize::{LoraConfig, LoraModel};
/// use kiln_nn::{Linear, LinearConfig, Module};
/// use kiln_tensor::Autodiff;
///
/// let layer: Linear<Autodiff<Flex>> = LinearConfig::new(64, 32).init(&Default::default());
/// let model = LoraConfig::new(4).with_alpha(8.0).with_targets(["**.weight"]).init(layer)?;
/// assert_eq!(model.num_trainable_parameters(), 4 * 64 + 32 * 4);
///
/// // Saves and loads only the adapters.
/// let adapters = model.adapter_parameters();
/// assert_eq!(adapters.keys().collect::<Vec<_>>(), ["lora_A.weight", "lora_B.weight"]);
/// let model: LoraModel<_> = model.load_adapters(adapters)?;
///
/// // An ordinary layer, for inference.
/// let merged: Linear<Autodiff<Flex>> = model.merge();
/// assert_eq!(merged.num_trainable_parameters(), 64 * 32 + 32);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
///
/// # Memory
/// [`module`](Reparametrized::module) computes the adapted weights: while they are used, each target takes the memory of
/// `W` twice. Gradients and optimizer states exist only for `A` and `B`.
///
/// # Dropout
/// PEFT applies dropout to the input of the adapter. Here, where the adapter is part of the weight, dropout omits input
/// features (columns of `A`) for all examples of the step at once. It is active in training [mode](Mode).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraConfig {
    /// The rank `r` of the adapters.
    pub rank: usize,
    /// The scale `α`: the adapter is multiplied by `α / rank`. Default: 8, as in PEFT.
    #[serde(default = "default_alpha")]
    pub alpha: f64,
    /// The probability of omitting an input feature from the adapters. Default: 0.
    #[serde(default)]
    pub dropout: f64,
    /// Whether to multiply by `α / √rank` instead (rank-stabilized LoRA,
    /// [Kalajdzievski 2023](https://arxiv.org/abs/2312.03732)). Default: false.
    #[serde(default)]
    pub rank_stabilized: bool,
    /// [Patterns](crate::Pattern) of the parameters to adapt. Parameters of fewer than two dimensions are ignored.
    /// Default: `**.weight`.
    #[serde(default = "super::weight_norm::every_weight")]
    pub targets: Vec<String>,
}

fn default_alpha() -> f64 {
    8.0
}

impl Config for LoraConfig {}

impl LoraConfig {
    /// Returns settings with this rank and the defaults of all others.
    pub fn new(rank: usize) -> LoraConfig {
        LoraConfig {
            rank,
            alpha: default_alpha(),
            dropout: 0.0,
            rank_stabilized: false,
            targets: super::weight_norm::every_weight(),
        }
    }

    /// Sets the scale `α`.
    #[must_use]
    pub fn with_alpha(mut self, alpha: f64) -> LoraConfig {
        self.alpha = alpha;
        self
    }

    /// Sets the dropout probability.
    #[must_use]
    pub fn with_dropout(mut self, dropout: f64) -> LoraConfig {
        self.dropout = dropout;
        self
    }

    /// Sets whether the scale is `α / √rank`.
    #[doc(alias = "use_rslora")]
    #[must_use]
    pub fn with_rank_stabilized(mut self, rank_stabilized: bool) -> LoraConfig {
        self.rank_stabilized = rank_stabilized;
        self
    }

    /// Sets the patterns of the parameters to adapt.
    #[must_use]
    pub fn with_targets<T: Into<String>>(mut self, targets: impl IntoIterator<Item = T>) -> LoraConfig {
        self.targets = targets.into_iter().map(Into::into).collect();
        self
    }

    /// Adds adapters to a model and freezes its parameters.
    ///
    /// # Errors
    /// When the rank is 0, the dropout probability is not in `[0, 1)`, or a pattern matches no parameter.
    pub fn init<M: Module>(&self, model: M) -> Result<LoraModel<M>> {
        if self.rank == 0 {
            return Err(Error::value("lora", "the rank is 0").hint("ranks of 4 to 64 are usual"));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            let problem = format!("the dropout probability {} is not in [0, 1)", self.dropout);
            return Err(Error::value("lora", problem).hint("0 turns dropout off"));
        }
        let adapter = |_: &Path, parameter: &Parameter| self.adapter(&parameter.value);
        Ok(Reparametrized::new(model, self.targets.iter(), adapter)?.with_frozen_base())
    }

    fn adapter(&self, weight: &AnyTensor) -> Result<Lora> {
        let (ty, stack) = (weight.ty(), weight.stack());
        let fan_in: usize = ty.shape[1..].iter().product();
        let bound = 1.0 / libm::sqrt(fan_in.max(1) as f64);
        let mut column = ty.shape.iter().map(|_| 1).collect::<Vec<_>>();
        column[..2].copy_from_slice(&[ty.shape[0], self.rank]);
        let a = TensorType::new(ty.shape.with(0, self.rank), ty.dtype);
        let a = AnyTensor::random(a, Distribution::Uniform(-bound, bound), stack)?;
        let b = AnyTensor::zeros(TensorType::new(column, ty.dtype), stack)?;
        Ok(Lora {
            a: AnyParam::new(a),
            b: AnyParam::new(b),
            scale: self.scale(),
            dropout: self.dropout,
            mode: Mode::Auto,
        })
    }

    fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.rank_stabilized { libm::sqrt(rank) } else { rank }
    }
}

/// The adapter of one weight: adds `scale · B A`. Created by [`LoraConfig`].
#[derive(Clone, Debug)]
pub struct Lora {
    /// `[r, in, kernel..]`.
    a: AnyParam,
    /// `[out, r, 1..]`.
    b: AnyParam,
    scale: f64,
    dropout: f64,
    mode: Mode,
}

impl Lora {
    /// `A` with the columns of some input features set to zero, in training mode.
    fn dropped(&self) -> Result<AnyTensor> {
        let a = self.a.val();
        if self.dropout == 0.0 || !self.mode.is_training(a.stack()) {
            return Ok(a);
        }
        let features = a.shape().iter().enumerate().map(|(dim, &length)| if dim == 1 { length } else { 1 });
        // In 16 bits the factor of the others would be rounded, to 1 for small probabilities.
        let (dtype, wide) = (a.dtype(), a.dtype().accumulator());
        let ty = TensorType::new(features.collect::<Vec<_>>(), wide);
        let keep = 1.0 - self.dropout;
        let mask = AnyTensor::random(ty, Distribution::Bernoulli(keep), a.stack())?;
        a.cast(wide)?.mul(mask.mul_scalar(1.0 / keep)?)?.cast(dtype)
    }

    fn path_of(matrix: &str, path: &Path) -> Path {
        path.with_last(&[matrix, path.name()])
    }
}

/// The tensor as a matrix of its first dimension and all others.
fn matrix(x: AnyTensor) -> Result<AnyTensor> {
    let rows = x.shape()[0];
    let columns: usize = x.shape()[1..].iter().product();
    x.reshape([rows, columns])
}

/// The names are those of PEFT: `linear.lora_A.weight` and `linear.lora_B.weight` for `linear.weight`.
impl Parametrization for Lora {
    fn weight(&self, original: AnyTensor) -> Result<AnyTensor> {
        let shape = *original.shape();
        let product = matrix(self.b.val())?.matmul(matrix(self.dropped()?)?)?;
        original.add(product.mul_scalar(self.scale)?.reshape(shape)?)
    }

    fn accepts(ty: &TensorType) -> bool {
        ty.dtype.is_float() && ty.shape.rank() >= 2
    }

    fn original_path(path: &Path) -> Path {
        path.clone()
    }

    fn own_path(path: &Path) -> Path {
        path.clone()
    }
}

impl Module for Lora {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        self.a.visit(&mut Lora::path_of("lora_A", path), visitor);
        self.b.visit(&mut Lora::path_of("lora_B", path), visitor);
        self.mode.visit(&mut Lora::path_of("lora_mode", path), visitor);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        self.a.visit_mut(&mut Lora::path_of("lora_A", path), visitor);
        self.b.visit_mut(&mut Lora::path_of("lora_B", path), visitor);
        self.mode.visit_mut(&mut Lora::path_of("lora_mode", path), visitor);
    }
}

impl<B: Backend> BackendModule<B> for Lora {}

impl<B: Backend> ModuleOn<B> for Lora {
    type On = Lora;

    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Lora {
        let a = ModuleOn::<B>::on(&self.a, &mut Lora::path_of("lora_A", path), place);
        let b = ModuleOn::<B>::on(&self.b, &mut Lora::path_of("lora_B", path), place);
        Lora { a, b, ..self.clone() }
    }
}

/// The prefix of names in PEFT's adapter files.
const PEFT_PREFIX: &str = "base_model.model.";

impl<M: Module> LoraModel<M> {
    /// Returns the tensors of the adapters by name: all that a fine-tuned model needs beside its base. Write their data to
    /// a file with `save_tensors` of the `kiln-store` crate.
    pub fn adapter_parameters(&self) -> BTreeMap<String, AnyTensor> {
        let ids = self.adapter_ids();
        let parameters = self.named_parameters().into_iter();
        parameters
            .filter(|(_, parameter)| ids.contains(&parameter.id))
            .map(|(name, p)| (name, p.value))
            .collect()
    }

    /// Replaces the tensors of all adapters. They may be on another device and of another float dtype. Names may have the
    /// prefix of PEFT's files, `base_model.model.`.
    ///
    /// # Errors
    /// When an adapter is missing, a name is unknown, or a shape differs.
    pub fn load_adapters(
        mut self,
        tensors: impl IntoIterator<Item = (String, AnyTensor)>,
    ) -> Result<LoraModel<M>> {
        let plain = |name: String| name.strip_prefix(PEFT_PREFIX).map(ToString::to_string).unwrap_or(name);
        let mut tensors: BTreeMap<_, _> =
            tensors.into_iter().map(|(name, tensor)| (plain(name), tensor)).collect();
        for (name, own) in self.adapter_parameters() {
            let Some(tensor) = tensors.get_mut(&name) else {
                return Err(Error::value("lora", format!("there is no tensor `{name}`"))
                    .hint("`adapter_parameters` lists the names"));
            };
            if tensor.shape() != own.shape() {
                let problem = format!("`{name}` has another shape than the adapter");
                return Err(Error::type_error("lora", problem, &[tensor.ty().into(), own.ty().into()])
                    .hint("load adapters of the same rank and base model"));
            }
            *tensor = tensor.clone().cast(own.dtype())?.to_stack(own.stack())?;
        }
        let ids = self.adapter_ids();
        self.map_parameters(|path, parameter| match ids.contains(&parameter.id) {
            true => match tensors.remove(path.as_str()) {
                Some(value) => Parameter { value: value.inner(), ..parameter },
                None => parameter,
            },
            false => parameter,
        });
        match tensors.keys().next() {
            None => Ok(self),
            Some(name) => Err(Error::value("lora", format!("the model has no adapter `{name}`"))
                .hint("`adapter_parameters` lists the names")),
        }
    }

    fn adapter_ids(&self) -> BTreeSet<ParamId> {
        let parameters = self.parametrizations.values().flat_map(Module::named_parameters);
        parameters.map(|(_, parameter)| parameter.id).collect()
    }
}
