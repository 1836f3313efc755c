//! Running statistics of batch normalisation, recomputed.

use crate::error::{OptimError, Result};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;
use kiln_nn::{Module, ParamId, Parameter, Path, Visitor, VisitorMut};
use kiln_tensor::{AnyTensor, TensorData, TensorType};

/// Recomputes the running statistics of batch normalisation: the means, over batches, of each batch's mean and unbiased
/// variance. Call it for an [averaged](crate::ModelAverage) model, whose statistics are those of other weights.
///
/// `forward` runs the model on a batch in training mode: on a backend with automatic differentiation. The definition is
/// that of `torch.optim.swa_utils.update_bn`. Statistics are those of all modules with buffers `running_mean` and
/// `running_var` and a number `momentum`, as [`BatchNorm`](kiln_nn::BatchNorm) has. A layer may run once per batch; a
/// layer that does not run keeps its statistics. Waits for the device after each batch.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{BatchNorm, BatchNormConfig};
/// use kiln_optim::update_batch_norm;
/// use kiln_tensor::{Autodiff, Tensor};
///
/// type B = Autodiff<Flex>;
///
/// let device = Default::default();
/// let mut model: BatchNorm<B> = BatchNormConfig::new(1).init(&device);
/// let batches = [[[1.0], [3.0]], [[5.0], [9.0]]].map(|rows| Tensor::<B, 2>::from_floats(rows, &device));
/// update_batch_norm(&mut model, batches, |model, batch| drop(model.forward(batch)))?;
/// assert_eq!(model.running_mean.value().to_vec::<f32>(), [4.5]);
/// assert_eq!(model.running_var.value().to_vec::<f32>(), [5.0]);
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
///
/// # Errors
/// The statistics are then unchanged.
///
/// * No layer updated its statistics on a batch: the model did not run in training mode.
/// * The momentum of a layer is 0.
/// * The device failed.
pub fn update_batch_norm<M: Module, T>(
    module: &mut M,
    batches: impl IntoIterator<Item = T>,
    mut forward: impl FnMut(&M, T),
) -> Result<()> {
    let mut statistics = Statistics::of(module)?;
    if statistics.layers.is_empty() {
        return Ok(());
    }
    let result = batches.into_iter().try_for_each(|batch| {
        statistics.clear(module);
        forward(module, batch);
        statistics.add(module)
    });
    let new = result.and_then(|()| statistics.means());
    let (new, result) = match new {
        Ok(new) => (new, Ok(())),
        Err(error) => (BTreeMap::new(), Err(error)),
    };
    statistics.write(module, &new);
    result
}

/// The layers of batch normalisation.
struct Statistics {
    layers: Vec<Layer>,
    /// The values of their buffers at the start.
    before: BTreeMap<ParamId, AnyTensor>,
}

struct Layer {
    buffers: [Buffer; 2],
    momentum: f64,
    /// The number of batches on which the layer ran.
    batches: u64,
}

/// A running mean or variance.
struct Buffer {
    id: ParamId,
    ty: TensorType,
    /// The sum over batches.
    sum: Vec<f64>,
}

impl Statistics {
    fn of(module: &dyn Module) -> Result<Statistics> {
        let mut found = Found::default();
        module.visit(&mut Path::new(), &mut found);
        let Found { buffers, momenta } = found;
        let mut statistics = Statistics { layers: Vec::new(), before: BTreeMap::new() };
        for (path, momentum) in momenta {
            let buffer = |name: &str| buffers.get(&join(&path, name));
            let (Some(mean), Some(variance)) = (buffer("running_mean"), buffer("running_var")) else {
                continue;
            };
            if !(momentum.is_finite() && momentum > 0.0) {
                let requirement = "greater than 0: the statistics of a batch are unknown otherwise";
                return Err(OptimError::option(NAME, "the momentum of a layer", momentum, requirement));
            }
            if statistics.before.contains_key(&mean.id) {
                continue;
            }
            for buffer in [mean, variance] {
                statistics.before.insert(buffer.id, buffer.value.clone().inner());
            }
            let buffers = [mean, variance].map(|buffer| {
                let sum = vec![0.0; buffer.value.shape().num_elements()];
                Buffer { id: buffer.id, ty: *buffer.value.ty(), sum }
            });
            statistics.layers.push(Layer { buffers, momentum, batches: 0 });
        }
        Ok(statistics)
    }

    /// Sets the statistics to 0, so that a batch adds only its own, times the momentum.
    fn clear(&self, module: &mut dyn Module) {
        let zeros = |buffer: &Buffer| (buffer.id, TensorData::zeros(buffer.ty));
        let zeros = self.layers.iter().flat_map(|layer| &layer.buffers).map(zeros).collect();
        module.visit_mut(&mut Path::new(), &mut Write { data: &zeros, tensors: &BTreeMap::new() });
    }

    /// Adds the statistics of a batch.
    fn add(&mut self, module: &dyn Module) -> Result<()> {
        let mut found = Found::default();
        module.visit(&mut Path::new(), &mut found);
        let values: BTreeMap<ParamId, Parameter> =
            found.buffers.into_values().map(|buffer| (buffer.id, buffer)).collect();
        let mut any = false;
        for Layer { buffers, momentum, batches } in &mut self.layers {
            let mut read = Vec::new();
            for buffer in buffers.iter() {
                read.push(values[&buffer.id].value.clone().inner().into_vec_as::<f64>()?);
            }
            // A layer that did not run left the zeros.
            if read.iter().flatten().all(|&value| value == 0.0) {
                continue;
            }
            for (buffer, values) in buffers.iter_mut().zip(read) {
                buffer.sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value / *momentum);
            }
            *batches += 1;
            any = true;
        }
        if any { Ok(()) } else { Err(not_training()) }
    }

    /// The means over the batches, for the layers that ran.
    fn means(&self) -> Result<BTreeMap<ParamId, TensorData>> {
        let mut means = BTreeMap::new();
        for Layer { buffers, batches, .. } in self.layers.iter().filter(|layer| layer.batches > 0) {
            for buffer in buffers {
                let mean = buffer.sum.iter().map(|sum| sum / *batches as f64).collect::<Vec<f64>>();
                let data = TensorData::new(mean, buffer.ty.shape)?.convert(buffer.ty.dtype);
                means.insert(buffer.id, data);
            }
        }
        Ok(means)
    }

    /// Writes new statistics, and the former ones where there are none.
    fn write(&self, module: &mut dyn Module, new: &BTreeMap<ParamId, TensorData>) {
        module.visit_mut(&mut Path::new(), &mut Write { data: new, tensors: &self.before });
    }
}

const NAME: &str = "update_batch_norm";

fn not_training() -> OptimError {
    let problem = "no layer updated its running statistics: `forward` must run the model in training mode, on a backend \
                   with automatic differentiation";
    OptimError::InvalidState {
        optimizer: NAME,
        parameter: "running_mean".to_string(),
        problem: problem.to_string(),
    }
}

/// The buffers by path, and the numbers named `momentum` by the path of their module.
#[derive(Default)]
struct Found {
    buffers: BTreeMap<String, Parameter>,
    momenta: BTreeMap<String, f64>,
}

impl Visitor for Found {
    fn attribute(&mut self, path: &Path, value: &dyn Debug) {
        if path.name() != "momentum" {
            return;
        }
        // The `Debug` of an `f64` is the shortest text that is read as the same number.
        if let Ok(momentum) = format!("{value:?}").parse() {
            self.momenta.insert(parent(path), momentum);
        }
    }

    fn parameter(&mut self, path: &Path, parameter: Parameter) {
        if parameter.is_buffer() {
            self.buffers.insert(path.to_string(), parameter);
        }
    }
}

/// The path without its last component.
fn parent(path: &Path) -> String {
    path.as_str().rsplit_once('.').map_or("", |(parent, _)| parent).to_string()
}

fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_string() } else { format!("{parent}.{name}") }
}

/// Replaces buffers by data, or else by tensors.
struct Write<'a> {
    data: &'a BTreeMap<ParamId, TensorData>,
    tensors: &'a BTreeMap<ParamId, AnyTensor>,
}

impl VisitorMut for Write<'_> {
    fn parameter(&mut self, _path: &Path, parameter: Parameter) -> Parameter {
        let Parameter { id, .. } = parameter;
        if let Some(data) = self.data.get(&id) {
            return parameter.map(|value| AnyTensor::from_data(data.clone(), value.stack()));
        }
        match self.tensors.get(&id) {
            Some(tensor) => parameter.map(|_| tensor.clone()),
            None => parameter,
        }
    }
}
