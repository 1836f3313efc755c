//! Weights that are computed from other parameters: LoRA adapters, weight normalisation, spectral normalisation.
//!
//! A [`Reparametrized`] module wraps any module and computes some of its parameters by a [`Parametrization`]. The
//! wrapped layers do not change: [`Reparametrized::module`] returns the module with the computed weights in place, and
//! gradients pass through them to the parameters of the wrapper.
//!
//! | configuration | weight | parameters of `linear.weight` |
//! |---|---|---|
//! | [`LoraConfig`] | `W + α/r · B A` | `linear.weight` (frozen), `linear.lora_A.weight`, `linear.lora_B.weight` |
//! | [`WeightNormConfig`] | `g v / ‖v‖` | `linear.parametrizations.weight.original0` (`g`), `….original1` (`v`) |
//! | [`SpectralNormConfig`] | `W / σ(W)` | `linear.parametrizations.weight.original`, buffers `….0._u`, `….0._v` |
//!
//! The names are those of PyTorch's parametrizations and, for LoRA, of [PEFT](https://github.com/huggingface/peft).
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_nn::reparametrize::LoraConfig;
//! use kiln_nn::{GradientsParams, LinearConfig, Module, Relu};
//! use kiln_tensor::{Autodiff, Tensor};
//!
//! type B = Autodiff<Flex>;
//!
//! let device = Default::default();
//! let base = (LinearConfig::new(16, 8).init::<B>(&device), Relu::new(), LinearConfig::new(8, 4).init::<B>(&device));
//! let model = LoraConfig::new(2).with_alpha(16.0).with_targets(["2.weight"]).init(base)?;
//! assert_eq!((model.num_parameters(), model.num_trainable_parameters()), (172 + 24, 2 * 8 + 4 * 2));
//!
//! // Only the adapters have gradients.
//! let adapted = model.module();
//! let loss = kiln_nn::ForwardModule::forward(&adapted, Tensor::<B, 2>::ones([3, 16], &device)).square().mean();
//! let gradients = GradientsParams::from_grads(loss.backward(), &model);
//! assert_eq!(gradients.len(), 2);
//! # Ok::<(), kiln_tensor::Error>(())
//! ```

mod lora;
mod spectral_norm;
mod targets;
mod traversal;
mod weight_norm;

pub use lora::{Lora, LoraConfig, LoraModel};
pub use spectral_norm::{SpectralNorm, SpectralNormConfig};
pub use weight_norm::{WeightNorm, WeightNormConfig};

use crate::{Mode, Module, ModuleOn, ParamId, Parameter, ParameterRole, Path, set_mode};
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use kiln_backends::Dyn;
use kiln_tensor::{AnyTensor, Backend, Result, TensorType};

/// A function that computes a parameter from a tensor of the same shape and from parameters of its own.
///
/// Its type has no backend: its parameters are on [`Dyn`], whose tensors may be of any stack.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::reparametrize::{Parametrization, Reparametrized};
/// use kiln_nn::{Linear, LinearConfig, Module};
/// use kiln_tensor::{AnyTensor, Result};
///
/// /// Symmetric matrices: the upper triangle is mirrored.
/// #[derive(Clone, Debug, Module)]
/// struct Symmetric;
///
/// impl Parametrization for Symmetric {
///     fn weight(&self, original: AnyTensor) -> Result<AnyTensor> {
///         let upper = original.clone().triu(0)?;
///         upper.add(original.triu(1)?.swap_dims(0, 1)?)
///     }
/// }
///
/// let layer: Linear<Flex> = LinearConfig::new(3, 3).init(&Default::default());
/// let layer = Reparametrized::new(layer, ["weight"], |_, _| Ok(Symmetric))?;
/// let weight = layer.module().weight.val();
/// assert_eq!(weight.clone().transpose().into_data(), weight.into_data());
/// assert_eq!(layer.named_parameters()[0].0, "parametrizations.weight.original");
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
pub trait Parametrization: Module + ModuleOn<Dyn, On = Self> + Clone {
    /// Computes the parameter. `original` is the tensor of the wrapped module's own parameter. The result has its shape
    /// and device.
    ///
    /// # Errors
    /// When an op fails.
    fn weight(&self, original: AnyTensor) -> Result<AnyTensor>;

    /// Returns whether parameters of this type can be computed; others are no targets. Default: floats.
    fn accepts(ty: &TensorType) -> bool {
        ty.dtype.is_float()
    }

    /// Returns the path of the original tensor, for the path of the parameter. Default:
    /// `layer.parametrizations.weight.original` for `layer.weight`.
    fn original_path(path: &Path) -> Path {
        path.with_last(&["parametrizations", path.name(), "original"])
    }

    /// Returns the path of the parametrization, for the path of the parameter. Default:
    /// `layer.parametrizations.weight.0` for `layer.weight`.
    fn own_path(path: &Path) -> Path {
        path.with_last(&["parametrizations", path.name(), "0"])
    }
}

/// A module some of whose parameters are computed by a [`Parametrization`].
///
/// It is a module: it has the parameters of the wrapped module, with the original tensors in place of the computed ones,
/// and those of the parametrizations. Optimizers, records, devices and [`valid`](crate::AutodiffModule::valid) apply to
/// it. Call the layers of [`module`](Reparametrized::module), once per training step.
///
/// A [tied](crate::Param#tied-parameters) parameter has one parametrization, which computes it at all of its places.
#[derive(Clone, Debug)]
pub struct Reparametrized<M, P> {
    base: M,
    parametrizations: BTreeMap<ParamId, P>,
    /// The parameters that [`with_frozen_base`](Reparametrized::with_frozen_base) froze.
    frozen: BTreeSet<ParamId>,
}

impl<M: Module, P: Parametrization> Reparametrized<M, P> {
    /// Wraps a module. `targets` are [patterns](crate::Pattern) of dotted parameter names. `init` returns the
    /// parametrization of a parameter.
    ///
    /// A pattern may match any name of a [tied](crate::Param#tied-parameters) parameter. Buffers, and parameters that the
    /// parametrization does not [accept](Parametrization::accepts), are no targets.
    ///
    /// # Errors
    /// When a pattern is invalid or matches no parameter, or `init` fails.
    pub fn new<T: Into<String>>(
        base: M,
        targets: impl IntoIterator<Item = T>,
        mut init: impl FnMut(&Path, &Parameter) -> Result<P>,
    ) -> Result<Reparametrized<M, P>> {
        let targets: Vec<String> = targets.into_iter().map(Into::into).collect();
        let mut parametrizations = BTreeMap::new();
        for (path, parameter) in targets::select(&base, &targets, P::accepts)? {
            if let Entry::Vacant(entry) = parametrizations.entry(parameter.id) {
                entry.insert(init(&path, &parameter)?);
            }
        }
        Ok(Reparametrized { base, parametrizations, frozen: BTreeSet::new() })
    }

    /// Freezes the parameters of the wrapped module, including the original tensors: only the parameters of the
    /// parametrizations are trained. [`merge`](Reparametrized::merge) and [`into_base`](Reparametrized::into_base) make
    /// them trainable again.
    #[must_use]
    pub fn with_frozen_base(mut self) -> Self {
        let frozen = &mut self.frozen;
        self.base.map_parameters(|_, parameter| match parameter.role {
            ParameterRole::Trainable => {
                frozen.insert(parameter.id);
                Parameter { role: ParameterRole::Frozen, ..parameter }
            }
            ParameterRole::Frozen | ParameterRole::Buffer => parameter,
        });
        self
    }

    /// Returns the wrapped module with the computed weights. Its weights are not leaves: gradients pass through them to
    /// the parameters of the wrapper, so compute [`GradientsParams`](crate::GradientsParams) for the wrapper.
    ///
    /// The weights are computed by this call and held by the result (and by the tape), in addition to the originals. In
    /// training [mode](Mode), each call updates the state of parametrizations.
    ///
    /// The result has its own copy of running statistics. If it updates them, keep them by
    /// [`with_buffers_of`](Reparametrized::with_buffers_of).
    ///
    /// # Panics
    /// When a weight cannot be computed, because of a parametrization that fails.
    #[track_caller]
    pub fn module<B: Backend>(&self) -> M
    where
        M: ModuleOn<B, On = M>,
    {
        computed(&self.base, &self.parametrizations)
    }

    /// Returns the wrapped module with the computed weights as its own parameters: an ordinary module. The weights are
    /// those of evaluation [mode](Mode). Parameters that the wrapper froze are trainable again.
    ///
    /// # Panics
    /// As [`module`](Reparametrized::module).
    #[doc(alias = "merge_and_unload")]
    #[doc(alias = "remove_parametrizations")]
    #[track_caller]
    pub fn merge<B: Backend>(&self) -> M
    where
        M: ModuleOn<B, On = M>,
    {
        let mut parametrizations = self.parametrizations.clone();
        parametrizations.values_mut().for_each(|parametrization| set_mode(parametrization, Mode::Eval));
        self.with_own_roles(computed(&self.base, &parametrizations))
    }

    /// Returns the wrapped module with the original tensors, bit by bit, without parametrizations. Parameters that the
    /// wrapper froze are trainable again.
    #[doc(alias = "unload")]
    #[doc(alias = "unmerge")]
    pub fn into_base(mut self) -> M {
        let frozen = core::mem::take(&mut self.frozen);
        thawed(self.base, &frozen)
    }

    /// Returns the wrapped module with the original tensors.
    pub fn base(&self) -> &M {
        &self.base
    }

    /// Returns the number of parametrizations: the parameters that are computed.
    pub fn num_parametrizations(&self) -> usize {
        self.parametrizations.len()
    }

    /// Copies the buffers of the wrapped module, such as running statistics, from the result of
    /// [`module`](Reparametrized::module) after a training step.
    #[must_use]
    pub fn with_buffers_of(mut self, module: &M) -> Self {
        let mut buffers = BTreeMap::new();
        for (name, parameter) in module.named_parameters() {
            if parameter.is_buffer() {
                buffers.insert(name, parameter.value.inner());
            }
        }
        self.base.map_parameters(|path, parameter| match buffers.get(path.as_str()) {
            Some(value) => Parameter { value: value.clone(), ..parameter },
            None => parameter,
        });
        self
    }

    fn with_own_roles(&self, module: M) -> M {
        thawed(module, &self.frozen)
    }
}

/// The module with its own parameters as leaves, and those of `frozen` trainable again.
fn thawed<M: Module>(mut module: M, frozen: &BTreeSet<ParamId>) -> M {
    module.map_parameters(|_, parameter| match frozen.contains(&parameter.id) {
        true => Parameter { role: ParameterRole::Trainable, ..parameter },
        false => parameter,
    });
    module
}

#[track_caller]
fn computed<B: Backend, M: ModuleOn<B, On = M>, P: Parametrization>(
    base: &M,
    parametrizations: &BTreeMap<ParamId, P>,
) -> M {
    let mut weights: BTreeMap<ParamId, AnyTensor> = BTreeMap::new();
    base.on(&mut Path::new(), &mut |path, parameter| {
        let Some(parametrization) = parametrizations.get(&parameter.id) else { return parameter.value };
        if let Some(weight) = weights.get(&parameter.id) {
            return weight.clone();
        }
        match parametrization.weight(parameter.value) {
            Ok(weight) => {
                weights.insert(parameter.id, weight.clone());
                weight
            }
            Err(error) => panic!("[reparametrize] the parameter `{path}` cannot be computed: {error}"),
        }
    })
}

impl<M: Module, P: Parametrization> fmt::Display for Reparametrized<M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::module::display(self, f)
    }
}
