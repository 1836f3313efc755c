//! The best weights, kept in memory.

use std::collections::BTreeMap;

use kiln_nn::{Module, Parameter, Path, Visitor, VisitorMut};
use kiln_tensor::{AnyTensor, TensorData};

use super::{Callback, Context, Event};
use crate::error::Result;
use crate::monitor::{Monitor, Monitored};
use crate::observation::below;
use crate::task::{StateTensors, StateVisitor, Task};

/// Keeps the weights of the best evaluation in memory, and puts them back into the models when training ends, after the
/// last checkpoint.
///
/// The weights stay on their device: a second set of weights needs as much memory as the models. Buffers, such as running
/// statistics, are restored too; optimizers are not. Checkpoints contain the best weights, so that a resumed run restores
/// the same.
///
/// ```
/// use kiln_train::RestoreBest;
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
/// let mut learner = Learner::new(task).epochs(3).callback(RestoreBest::new()).silent();
/// learner.fit(&loader, &loader)?;
/// # Ok::<(), kiln_train::TrainError>(())
/// ```
#[derive(Debug, Default)]
pub struct RestoreBest {
    monitored: Monitored,
    /// By the name of the model and the path of the parameter.
    weights: BTreeMap<String, Weight>,
}

#[derive(Debug)]
enum Weight {
    Device(AnyTensor),
    /// Loaded from a checkpoint.
    Host(TensorData),
}

impl RestoreBest {
    /// Returns the callback with the [monitor](crate::Learner::monitor) of the learner.
    pub fn new() -> RestoreBest {
        RestoreBest::default()
    }

    kiln_ir::setters! {
        /// Sets the monitored value. Default: the monitor of the learner.
        monitor(monitor: Monitor) => monitored.monitor = Some(monitor);
    }
}

impl<T: Task> Callback<T> for RestoreBest {
    fn name(&self) -> &str {
        "restore_best"
    }

    fn on(&mut self, event: Event<'_>, context: &mut Context<'_, T>) -> Result<()> {
        if self.monitored.on(event, context.control, 0.0)? {
            self.weights.clear();
            context.task.state(&mut Take(&mut self.weights))?;
        }
        if let Event::Closing = event {
            if let Some(epoch) = self.monitored.best.epoch {
                context.control.info(format!("restored the weights of epoch {}", epoch + 1));
            }
            context.task.state(&mut Restore(&self.weights))?;
        }
        Ok(())
    }

    /// Runs before callbacks that save checkpoints, which then contain the best weights.
    fn order(&self) -> i32 {
        -10
    }

    fn state(&mut self, _task: &mut T, visitor: &mut dyn StateVisitor) -> Result<()> {
        visitor.value("best", &mut self.monitored.best)?;
        visitor.tensors("weights", &mut Stored(&mut self.weights))
    }
}

/// The key of a parameter.
fn key(model: &str, path: &Path) -> String {
    format!("{model}.{path}")
}

/// Takes the weights of all models.
struct Take<'a>(&'a mut BTreeMap<String, Weight>);

impl StateVisitor for Take<'_> {
    fn module(&mut self, name: &str, module: &mut dyn Module) -> Result<()> {
        struct Each<'a>(&'a str, &'a mut BTreeMap<String, Weight>);
        impl Visitor for Each<'_> {
            fn parameter(&mut self, path: &Path, parameter: Parameter) {
                self.1.insert(key(self.0, path), Weight::Device(below(parameter.value)));
            }
        }
        module.visit(&mut Path::new(), &mut Each(name, self.0));
        Ok(())
    }
}

/// Puts the weights into all models.
struct Restore<'a>(&'a BTreeMap<String, Weight>);

impl StateVisitor for Restore<'_> {
    fn replica(&mut self, _rank: usize) -> bool {
        true
    }

    fn module(&mut self, name: &str, module: &mut dyn Module) -> Result<()> {
        struct Each<'a>(&'a str, &'a BTreeMap<String, Weight>);
        impl VisitorMut for Each<'_> {
            fn parameter(&mut self, path: &Path, parameter: Parameter) -> Parameter {
                match self.1.get(&key(self.0, path)) {
                    Some(Weight::Device(value)) => parameter.map(|_| value.clone()),
                    Some(Weight::Host(data)) => {
                        let data = data.clone();
                        parameter.map(|old| AnyTensor::from_data(data, old.stack()))
                    }
                    None => parameter,
                }
            }
        }
        module.visit_mut(&mut Path::new(), &mut Each(name, self.0));
        Ok(())
    }
}

struct Stored<'a>(&'a mut BTreeMap<String, Weight>);

impl StateTensors for Stored<'_> {
    fn save(&mut self) -> Result<BTreeMap<String, TensorData>> {
        let read = |(name, weight): (&String, &Weight)| {
            let data = match weight {
                Weight::Device(tensor) => tensor.to_data()?,
                Weight::Host(data) => data.clone(),
            };
            Ok((name.clone(), data))
        };
        self.0.iter().map(read).collect()
    }

    fn load(&mut self, tensors: BTreeMap<String, TensorData>) -> Result<()> {
        *self.0 = tensors.into_iter().map(|(name, data)| (name, Weight::Host(data))).collect();
        Ok(())
    }
}
