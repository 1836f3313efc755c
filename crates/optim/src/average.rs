//! Averages of a model's weights over the steps.

mod batch_norm;
mod state;

pub use batch_norm::update_batch_norm;
pub use state::AverageState;

use crate::config::{check_ranges, init};
use crate::error::{OptimError, Result};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kiln_nn::{Config, Module, ParamId, Parameter, Path, Visitor, VisitorMut};
use kiln_tensor::{AnyTensor, DType, Stack, TensorType};

const NAME: &str = "average";

/// Options of an exponential moving average of the weights (EMA), a [`ModelAverage`]:
/// `average = decay · average + (1 - decay) · weights` at each update.
///
/// The formula is that of `torch.optim.swa_utils.get_ema_multi_avg_fn`.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct EmaConfig {
    /// The decay rate. Default: 0.999.
    #[config(range = "[0, 1]", default = 0.999)]
    pub decay: f64,
    /// Whether the decay of update `n`, counted from 0, is at most `(1 + n) / (10 + n)`, so that early weights are
    /// forgotten soon, as in TensorFlow's `ExponentialMovingAverage` with `num_updates`. Default: no.
    #[config(default = false)]
    pub decay_warmup: bool,
    /// Whether to average buffers too, such as running statistics. Default: no.
    #[config(default = false)]
    pub use_buffers: bool,
}

init!(EmaConfig, ModelAverage, "average");

impl EmaConfig {
    /// Returns the average, or the error of an invalid option.
    ///
    /// # Errors
    /// When an option is out of range.
    pub fn try_init(&self) -> Result<ModelAverage> {
        check_ranges("ema", self)?;
        let method = Method::Ema { decay: self.decay, warmup: self.decay_warmup };
        Ok(ModelAverage::new(method, self.use_buffers))
    }
}

impl Default for EmaConfig {
    fn default() -> EmaConfig {
        EmaConfig::new()
    }
}

/// Options of stochastic weight averaging (SWA), a [`ModelAverage`]: the mean of the weights at all updates
/// ([Izmailov et al. 2018](https://arxiv.org/abs/1803.05407)), as `torch.optim.swa_utils.AveragedModel` computes.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct SwaConfig {
    /// Whether to average buffers too, such as running statistics. Default: no.
    #[config(default = false)]
    pub use_buffers: bool,
}

impl SwaConfig {
    /// Returns the average.
    pub fn init(&self) -> ModelAverage {
        ModelAverage::new(Method::Swa, self.use_buffers)
    }
}

impl Default for SwaConfig {
    fn default() -> SwaConfig {
        SwaConfig::new()
    }
}

/// An average of a model's weights over the steps: EMA, created by [`EmaConfig`], or SWA, created by [`SwaConfig`].
///
/// The first update copies the weights. The average is below automatic differentiation and keeps no tape alive. 16-bit
/// floats are averaged in `f32`, since a small change of a 16-bit average rounds to none.
///
/// Buffers are averaged with `use_buffers`; buffers of integers are then those of the last update. Otherwise the
/// averaged model keeps its own buffers, and [`update_batch_norm`] recomputes its running statistics.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{GradientsParams, Linear, LinearConfig};
/// use kiln_optim::{EmaConfig, Optimizer, SgdConfig};
/// use kiln_tensor::{Autodiff, Tensor};
///
/// let device = Default::default();
/// let mut model: Linear<Autodiff<Flex>> = LinearConfig::new(2, 1).init(&device);
/// let mut optimizer = SgdConfig::new().init();
/// let mut average = EmaConfig::new().with_decay(0.9).init();
/// for _ in 0..20 {
///     let loss = model.forward(Tensor::<_, 2>::ones([4, 2], &device)).square().mean();
///     let gradients = GradientsParams::from_grads(loss.backward(), &model);
///     model = optimizer.step(0.1, model, gradients);
///     average.update(&model)?;
/// }
/// // Evaluate the averaged model; training continues with `model`.
/// let averaged = average.averaged(model.clone());
/// # let _ = averaged;
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ModelAverage {
    method: Method,
    use_buffers: bool,
    updates: u64,
    averages: BTreeMap<ParamId, AnyTensor>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Method {
    Ema { decay: f64, warmup: bool },
    Swa,
}

impl Method {
    /// The weight of the model in its update `updates`, counted from 0.
    fn weight(self, updates: u64) -> f64 {
        let count = updates as f64;
        if updates == 0 {
            return 1.0;
        }
        match self {
            Method::Ema { decay, warmup: true } => 1.0 - decay.min((1.0 + count) / (10.0 + count)),
            Method::Ema { decay, warmup: false } => 1.0 - decay,
            Method::Swa => 1.0 / (count + 1.0),
        }
    }
}

impl ModelAverage {
    fn new(method: Method, use_buffers: bool) -> ModelAverage {
        ModelAverage { method, use_buffers, updates: 0, averages: BTreeMap::new() }
    }

    /// Returns the number of updates (`n_averaged` in PyTorch).
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Adds the present weights of a model to the average. Call it after an optimizer step. Does not wait for the
    /// device.
    ///
    /// # Errors
    /// When the model has other parameters than at the first update: other ids or types. The average is then unchanged.
    pub fn update(&mut self, module: &dyn Module) -> Result<()> {
        let mut entries = self.entries(module);
        entries.retain({
            let mut seen = BTreeSet::new();
            move |entry| seen.insert(entry.parameter.id)
        });
        if self.updates > 0 {
            entries.iter().try_for_each(|entry| self.check(entry))?;
        }
        let weight = self.method.weight(self.updates);
        let mut stacks: Vec<Stack> = Vec::new();
        for Entry { parameter, .. } in entries {
            // With two layers of automatic differentiation, the lower one may track the value.
            let value = parameter.value.inner().detach();
            if !stacks.iter().any(|stack| stack.same(value.stack())) {
                stacks.push(value.stack().clone());
            }
            let new = match self.averages.remove(&parameter.id) {
                Some(average) if value.dtype().is_float() => blend(average, value, weight)?,
                Some(_) | None => stored(value)?,
            };
            self.averages.insert(parameter.id, new);
        }
        stacks.iter().for_each(|stack| stack.engine().submit());
        self.updates += 1;
        Ok(())
    }

    /// Returns the model with the average in place of its weights. Before the first update the model is unchanged.
    ///
    /// The model may be a clone of the trained one, or its inference copy from
    /// [`valid`](kiln_nn::AutodiffModule::valid).
    ///
    /// # Panics
    /// With the error of [`apply`](ModelAverage::apply).
    #[must_use]
    #[track_caller]
    pub fn averaged<M: Module>(&self, mut module: M) -> M {
        match self.apply(&mut module) {
            Ok(()) => module,
            Err(error) => panic!("{error}"),
        }
    }

    /// Replaces the weights of a model by the average, and returns errors where [`averaged`](ModelAverage::averaged)
    /// panics.
    ///
    /// # Errors
    /// When the model has parameters that are not in the average, or of another type. The model is then unchanged.
    pub fn apply(&self, module: &mut dyn Module) -> Result<()> {
        if self.updates == 0 {
            return Ok(());
        }
        self.entries(module).iter().try_for_each(|entry| self.check(entry))?;
        module.visit_mut(&mut Path::new(), &mut Replace(self));
        Ok(())
    }

    /// Returns the state for a checkpoint, by the dotted names of a model's parameters. Waits for the device.
    ///
    /// # Errors
    /// When the model has other parameters than the average, or the device failed.
    pub fn state(&self, module: &dyn Module) -> Result<AverageState> {
        let mut tensors = BTreeMap::new();
        if self.updates > 0 {
            for entry in self.entries(module) {
                self.check(&entry)?;
                let average = self.averages[&entry.parameter.id].to_data()?;
                tensors.insert(entry.path, average);
            }
        }
        Ok(AverageState::new(self.updates, tensors))
    }

    /// Replaces the state. With the same options as when it was saved, averaging continues bit for bit.
    ///
    /// # Errors
    /// When the state does not match the model. The average is then unchanged.
    pub fn load_state(&mut self, state: AverageState, module: &dyn Module) -> Result<()> {
        let (updates, mut tensors) = state.into_parts();
        let mut averages = BTreeMap::new();
        for Entry { path, parameter, others } in self.entries(module) {
            if updates == 0 {
                break;
            }
            // PyTorch saves a tied parameter under all of its names.
            let all: Vec<_> =
                [&path].into_iter().chain(&others).filter_map(|name| tensors.remove(name)).collect();
            let Some(data) = all.into_iter().next() else {
                return Err(invalid(&path, "is missing".into()));
            };
            let expected = stored_type(*parameter.value.ty());
            if data.ty() != expected {
                return Err(invalid(&path, format!("is {}, but should be {expected}", data.ty())));
            }
            let stack = parameter.value.inner().stack().clone();
            averages.insert(parameter.id, AnyTensor::from_data(data, &stack));
        }
        // PyTorch also saves buffers that are not averaged.
        let ignored = self.all_entries(module);
        tensors.retain(|name, _| {
            !ignored.iter().any(|entry| entry.path == *name || entry.others.contains(name))
        });
        if !tensors.is_empty() {
            return Err(OptimError::UnknownParameters {
                optimizer: NAME,
                names: tensors.into_keys().collect(),
            });
        }
        self.averages = averages;
        self.updates = updates;
        Ok(())
    }

    /// The parameters that are averaged.
    fn entries(&self, module: &dyn Module) -> Vec<Entry> {
        let mut entries = self.all_entries(module);
        entries.retain(|entry| self.use_buffers || !entry.parameter.is_buffer());
        entries
    }

    fn all_entries(&self, module: &dyn Module) -> Vec<Entry> {
        let mut list = List(Vec::new());
        module.visit(&mut Path::new(), &mut list);
        list.0
    }

    /// Checks that a parameter has an average of its type.
    fn check(&self, entry: &Entry) -> Result<()> {
        let expected = stored_type(*entry.parameter.value.ty());
        match self.averages.get(&entry.parameter.id) {
            Some(average) if *average.ty() == expected => Ok(()),
            Some(average) => {
                Err(invalid(&entry.path, format!("is {}, but should be {expected}", average.ty())))
            }
            None => Err(invalid(&entry.path, "is missing: the model is not that of the first update".into())),
        }
    }
}

/// A parameter, the path of its first place, and those of further places.
struct Entry {
    path: String,
    parameter: Parameter,
    others: Vec<String>,
}

struct List(Vec<Entry>);

impl Visitor for List {
    fn parameter(&mut self, path: &Path, parameter: Parameter) {
        self.0.push(Entry { path: path.to_string(), parameter, others: Vec::new() });
    }

    fn tied(&mut self, path: &Path, parameter: Parameter) {
        let first = self.0.iter_mut().find(|entry| entry.parameter.id == parameter.id);
        first.into_iter().for_each(|entry| entry.others.push(path.to_string()));
    }
}

/// Replaces parameters by their averages.
struct Replace<'a>(&'a ModelAverage);

impl VisitorMut for Replace<'_> {
    fn parameter(&mut self, _path: &Path, parameter: Parameter) -> Parameter {
        let Some(average) = self.0.averages.get(&parameter.id) else { return parameter };
        let dtype = parameter.value.dtype();
        parameter.map(|_| match average.clone().cast(dtype) {
            Ok(value) => value,
            Err(error) => panic!("{error}"),
        })
    }
}

/// `average + weight (value - average)`, on the device of the value.
fn blend(average: AnyTensor, value: AnyTensor, weight: f64) -> Result<AnyTensor> {
    let average = average.to_stack(value.stack())?;
    Ok(average.lerp_scalar(stored(value)?, weight)?)
}

/// The value as it is stored: 16-bit floats as `f32`.
fn stored(value: AnyTensor) -> Result<AnyTensor> {
    let dtype = stored_dtype(value.dtype());
    if dtype == value.dtype() { Ok(value) } else { Ok(value.cast(dtype)?) }
}

fn stored_type(ty: TensorType) -> TensorType {
    TensorType { dtype: stored_dtype(ty.dtype), ..ty }
}

fn stored_dtype(dtype: DType) -> DType {
    if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype }
}

fn invalid(parameter: &str, problem: String) -> OptimError {
    OptimError::InvalidState {
        optimizer: NAME,
        parameter: parameter.into(),
        problem: format!("the average {problem}"),
    }
}
