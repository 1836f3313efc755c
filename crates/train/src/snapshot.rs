//! The state of a task in memory.

use std::collections::BTreeMap;

use kiln_nn::{Module, Parameter, Path, Visitor, VisitorMut};
use kiln_optim::lr_scheduler::ScheduleState;
use kiln_optim::{LearningRate, Optimizer, OptimizerState};
use kiln_tensor::{AnyTensor, TensorData};

use crate::error::{Result, TrainError};
use crate::observation::below;
use crate::task::{StateTensors, StateValue, StateVisitor, Task};

/// The state of a task by its names, or the buffers of its modules alone. Tensors are handles: nothing is copied.
#[derive(Default)]
pub(crate) struct Snapshot {
    only_buffers: bool,
    /// The tensors of each module, in the order of a visit.
    modules: BTreeMap<String, BTreeMap<String, AnyTensor>>,
    optimizers: BTreeMap<String, OptimizerState>,
    schedules: BTreeMap<String, ScheduleState>,
    values: BTreeMap<String, serde_json::Value>,
    tensors: BTreeMap<String, BTreeMap<String, TensorData>>,
}

impl Snapshot {
    pub(crate) fn of<T: Task>(task: &mut T) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        task.state(&mut snapshot)?;
        Ok(snapshot)
    }

    pub(crate) fn of_buffers<T: Task>(task: &mut T) -> Result<Snapshot> {
        let mut snapshot = Snapshot { only_buffers: true, ..Snapshot::default() };
        task.state(&mut snapshot)?;
        Ok(snapshot)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.modules.values().all(BTreeMap::is_empty)
    }

    /// Replaces the state of a replica, or of a task with all its replicas.
    pub(crate) fn copy_to<T: Task>(&self, task: &mut T, rank: usize) -> Result<()> {
        task.state(&mut Put { snapshot: self, rank })
    }
}

impl StateVisitor for Snapshot {
    fn module(&mut self, name: &str, module: &mut dyn Module) -> Result<()> {
        struct Take<'a> {
            only_buffers: bool,
            tensors: &'a mut BTreeMap<String, AnyTensor>,
        }
        impl Visitor for Take<'_> {
            fn parameter(&mut self, path: &Path, parameter: Parameter) {
                if parameter.is_buffer() || !self.only_buffers {
                    self.tensors.insert(path.to_string(), below(parameter.value));
                }
            }
        }
        let tensors = self.modules.entry(name.to_owned()).or_default();
        module.visit(&mut Path::new(), &mut Take { only_buffers: self.only_buffers, tensors });
        Ok(())
    }

    fn optimizer(&mut self, name: &str, optimizer: &mut dyn Optimizer, module: &dyn Module) -> Result<()> {
        if !self.only_buffers {
            self.optimizers.insert(name.to_owned(), optimizer.state(module)?);
        }
        Ok(())
    }

    fn schedule(&mut self, name: &str, schedule: &mut dyn LearningRate, _step: u64) -> Result<()> {
        if !self.only_buffers {
            self.schedules.insert(name.to_owned(), schedule.state());
        }
        Ok(())
    }

    fn value(&mut self, name: &str, value: &mut dyn StateValue) -> Result<()> {
        if !self.only_buffers {
            let json =
                value.save().map_err(|error| TrainError::task(format!("the value `{name}`: {error}")))?;
            self.values.insert(name.to_owned(), json);
        }
        Ok(())
    }

    fn tensors(&mut self, name: &str, tensors: &mut dyn StateTensors) -> Result<()> {
        if !self.only_buffers {
            self.tensors.insert(name.to_owned(), tensors.save()?);
        }
        Ok(())
    }
}

/// Replaces the state of a replica.
struct Put<'a> {
    snapshot: &'a Snapshot,
    rank: usize,
}

impl Put<'_> {
    fn find<'m, V>(&self, found: Option<&'m V>, kind: &str, name: &str) -> Result<Option<&'m V>> {
        if found.is_none() && !self.snapshot.only_buffers {
            return Err(self.differs(format!("{kind} `{name}`, which replica 0 lacks")));
        }
        Ok(found)
    }

    fn differs(&self, problem: String) -> TrainError {
        TrainError::task(format!(
            "replica {} has {problem}\n  hint: build all replicas of a data-parallel task alike",
            self.rank
        ))
    }
}

impl StateVisitor for Put<'_> {
    fn replica(&mut self, rank: usize) -> bool {
        self.rank = rank;
        true
    }

    fn module(&mut self, name: &str, module: &mut dyn Module) -> Result<()> {
        let snapshot = self.snapshot;
        let Some(tensors) = self.find(snapshot.modules.get(name), "the module", name)? else { return Ok(()) };
        let mut replace = Replace { tensors, only_buffers: snapshot.only_buffers, problem: None };
        module.visit_mut(&mut Path::new(), &mut replace);
        replace.problem.map_or(Ok(()), |problem| Err(self.differs(problem)))
    }

    fn optimizer(&mut self, name: &str, optimizer: &mut dyn Optimizer, module: &dyn Module) -> Result<()> {
        match self.find(self.snapshot.optimizers.get(name), "the optimizer", name)? {
            Some(state) => Ok(optimizer.load_state(state.clone(), module)?),
            None => Ok(()),
        }
    }

    fn schedule(&mut self, name: &str, schedule: &mut dyn LearningRate, _step: u64) -> Result<()> {
        match self.find(self.snapshot.schedules.get(name), "the schedule", name)? {
            // A schedule without state loads none.
            Some(state) if !state.is_empty() => Ok(schedule.load_state(state)?),
            Some(_) | None => Ok(()),
        }
    }

    fn value(&mut self, name: &str, value: &mut dyn StateValue) -> Result<()> {
        match self.find(self.snapshot.values.get(name), "the value", name)? {
            Some(json) => {
                value.load(json).map_err(|error| self.differs(format!("the value `{name}`: {error}")))
            }
            None => Ok(()),
        }
    }

    fn tensors(&mut self, name: &str, tensors: &mut dyn StateTensors) -> Result<()> {
        match self.find(self.snapshot.tensors.get(name), "the tensors", name)? {
            Some(saved) => tensors.load(saved.clone()),
            None => Ok(()),
        }
    }
}

/// Replaces the tensors of a module by those of replica 0. The module copies them to its device.
struct Replace<'a> {
    tensors: &'a BTreeMap<String, AnyTensor>,
    only_buffers: bool,
    problem: Option<String>,
}

impl VisitorMut for Replace<'_> {
    fn parameter(&mut self, path: &Path, parameter: Parameter) -> Parameter {
        let (ty, path) = (*parameter.value.ty(), path.to_string());
        match self.tensors.get(&path) {
            Some(value) if *value.ty() == ty => {
                let value = value.clone();
                parameter.map(|_| value)
            }
            Some(value) => {
                self.problem =
                    Some(format!("the parameter `{path}` of {ty}, which is {} in replica 0", value.ty()));
                parameter
            }
            None => {
                if !self.only_buffers {
                    self.problem = Some(format!("the parameter `{path}`, which replica 0 lacks"));
                }
                parameter
            }
        }
    }
}
