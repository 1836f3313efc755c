//! Statistics of gradients.

use kiln_nn::{Module, Parameter, Path, Visitor};
use kiln_tensor::{AnyTensor, Error};

use super::{Callback, Context, Event};
use crate::error::{Result, TrainError};
use crate::metric::wide;
use crate::observation::below;
use crate::step::GradientsEvent;
use crate::trainable::MODEL;

/// Logs statistics of the gradients of each model, before clipping and without the loss scale:
///
/// * `gradient norm`: the L2 norm over all parameters,
/// * `gradient max`: the largest absolute value,
/// * and [per parameter](GradientStatistics::per_parameter) `gradient norm of PATH` and `relative gradient of PATH`: the
///   norm, and the norm divided by that of the parameter.
///
/// The names of models other than `model` come first: `critic gradient norm`. The numbers are computed on the device, and
/// read one step later as other logged numbers: the device does not wait.
///
/// ```
/// use kiln_train::GradientStatistics;
/// # use kiln_backends::Flex;
/// # use kiln_nn::{Linear, LinearConfig};
/// # use kiln_optim::SgdConfig;
/// # use kiln_tensor::{Autodiff, Tensor};
/// # use kiln_train::{Learner, StepOutput, Supervised, loader::TensorLoader};
/// # type B = Autodiff<Flex>;
/// # let model: Linear<B> = LinearConfig::new(1, 1).init(&Default::default());
/// # let loss = |model: &Linear<B>, x: Tensor<B, 2>| StepOutput::new(model.forward(x).square().mean(), 4);
/// # let task = Supervised::new(model, SgdConfig::new().init(), 0.1, loss);
/// # let loader = TensorLoader::new(Tensor::<B, 2>::ones([8, 1], &Default::default())).batch_size(4);
/// let mut learner = Learner::new(task).callback(GradientStatistics::new().per_parameter(true)).silent();
/// let history = learner.fit(&loader, &loader)?;
/// assert_eq!(history.values["gradient norm"].len(), 2);
/// assert_eq!(history.values["relative gradient of weight"].len(), 2);
/// # Ok::<(), kiln_train::TrainError>(())
/// ```
#[derive(Clone, Debug)]
pub struct GradientStatistics {
    every: u64,
    per_parameter: bool,
    step: u64,
}

impl GradientStatistics {
    /// Returns the callback, for each step.
    pub fn new() -> GradientStatistics {
        GradientStatistics { every: 1, per_parameter: false, step: 0 }
    }

    kiln_ir::setters! {
        /// Sets the number of steps between two measurements: at least 1. Default: 1.
        every(steps: u64) => every = steps;

        /// Sets whether to log the statistics of each parameter. Default: no.
        per_parameter(per_parameter: bool) => per_parameter = per_parameter;
    }
}

impl Default for GradientStatistics {
    fn default() -> GradientStatistics {
        GradientStatistics::new()
    }
}

impl<T> Callback<T> for GradientStatistics {
    fn name(&self) -> &str {
        "gradient_statistics"
    }

    fn on(&mut self, event: Event<'_>, context: &mut Context<'_, T>) -> Result<()> {
        if self.every == 0 {
            return Err(TrainError::InvalidOption {
                option: "the interval of gradient statistics",
                value: "0".to_owned(),
                requirement: "at least 1",
            });
        }
        if let Event::StepStarted = event {
            self.step = context.control.position().step;
        }
        Ok(())
    }

    fn gradients(&mut self, event: &mut GradientsEvent<'_>) -> Result<()> {
        if !self.step.is_multiple_of(self.every) {
            return Ok(());
        }
        Ok(self.log(event)?)
    }

    /// Runs after callbacks that change gradients.
    fn order(&self) -> i32 {
        50
    }
}

impl GradientStatistics {
    fn log(&self, event: &mut GradientsEvent<'_>) -> Result<(), Error> {
        let prefix = if event.name() == MODEL { String::new() } else { format!("{} ", event.name()) };
        let scale = event.scale();
        let mut squares = Vec::new();
        let mut maxima = Vec::new();
        for (path, parameter, gradient) in pairs(event) {
            let square = gradient.clone().square()?.sum()?;
            if self.per_parameter {
                let norm = square.clone().sqrt()?.mul_scalar(1.0 / scale)?;
                let weights = wide(below(parameter))?.square()?.sum()?.sqrt()?;
                event.log(&format!("{prefix}relative gradient of {path}"), norm.clone().div(weights)?);
                event.log(&format!("{prefix}gradient norm of {path}"), norm);
            }
            squares.push(square);
            maxima.push(gradient.abs()?.max()?);
        }
        if squares.is_empty() {
            return Ok(());
        }
        let norm = AnyTensor::cat(squares, 0)?.sum()?.sqrt()?.mul_scalar(1.0 / scale)?;
        event.log(&format!("{prefix}gradient norm"), norm);
        let maximum = AnyTensor::cat(maxima, 0)?.max()?.mul_scalar(1.0 / scale)?;
        event.log(&format!("{prefix}gradient max"), maximum);
        Ok(())
    }
}

/// The path, value and gradient (in at least 32 bits) of each parameter with a gradient that is not empty.
fn pairs(event: &GradientsEvent<'_>) -> Vec<(String, AnyTensor, AnyTensor)> {
    struct Pairs<'a, 'b>(&'a GradientsEvent<'b>, Vec<(String, AnyTensor, AnyTensor)>);
    impl Visitor for Pairs<'_, '_> {
        fn parameter(&mut self, path: &Path, parameter: Parameter) {
            let gradient = self.0.gradients().get(parameter.id).cloned();
            let gradient = gradient.filter(|gradient| gradient.shape().num_elements() > 0);
            if let Some(gradient) = gradient.and_then(|gradient| wide(below(gradient)).ok()) {
                self.1.push((path.to_string(), parameter.value, gradient));
            }
        }
    }
    let mut pairs = Pairs(event, Vec::new());
    let module: &dyn Module = event.module();
    module.visit(&mut Path::new(), &mut pairs);
    pairs.1
}
