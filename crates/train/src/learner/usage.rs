//! The random numbers and the memory of the devices of a task.

use kiln_nn::{Module, Parameter, Path, Visitor};
use kiln_tensor::Stack;
use kiln_tensor::random::KeyState;

use super::Learner;
use crate::error::Result;
use crate::task::{StateVisitor, Task};
use crate::usage::{DeviceMemory, Usage};

impl<T: Task> Learner<T> {
    /// Seeds the devices before the first step, if the option is set.
    pub(super) fn seed_devices(&mut self) -> Result<()> {
        let Some(seed) = self.options.seed.filter(|_| self.position.step == 0) else { return Ok(()) };
        for (index, device) in self.devices()?.iter().enumerate() {
            for stack in std::iter::successors(Some(device), |stack| stack.below()) {
                stack.keys().seed(seed.wrapping_add(index as u64));
            }
        }
        Ok(())
    }

    /// The random streams of all devices, with their positions.
    pub(super) fn random_streams(&mut self) -> Result<Vec<(Stack, KeyState)>> {
        let devices = self.devices()?;
        let stacks =
            devices.iter().flat_map(|device| std::iter::successors(Some(device), |stack| stack.below()));
        Ok(stacks.map(|stack| (stack.clone(), stack.keys().state())).collect())
    }

    /// The time and the memory of this call so far.
    pub(super) fn usage(&mut self) -> Usage {
        let memory = |stack: Stack| {
            let peak_live_bytes = stack.memory()?.usage().peak_live_bytes as u64;
            Some(DeviceMemory { device: stack.device_name().to_owned(), peak_live_bytes })
        };
        // A task whose state cannot be visited has failed before.
        let devices = self.devices().unwrap_or_default();
        Usage {
            times: self.stopwatch.times(),
            process_peak_bytes: crate::system::peak_process_memory(),
            devices: devices.into_iter().filter_map(memory).collect(),
        }
    }

    /// The stacks of the parameters of all models, without duplicates.
    fn devices(&mut self) -> Result<Vec<Stack>> {
        let mut devices = Devices(Vec::new());
        self.task.state(&mut devices)?;
        Ok(devices.0)
    }
}

struct Devices(Vec<Stack>);

impl StateVisitor for Devices {
    fn replica(&mut self, _rank: usize) -> bool {
        true
    }

    fn module(&mut self, _name: &str, module: &mut dyn Module) -> Result<()> {
        module.visit(&mut Path::new(), self);
        Ok(())
    }
}

impl Visitor for Devices {
    fn parameter(&mut self, _path: &Path, parameter: Parameter) {
        if !self.0.contains(&parameter.stack) {
            self.0.push(parameter.stack);
        }
    }
}
