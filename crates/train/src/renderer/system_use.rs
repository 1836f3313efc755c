//! The use of processor, memory and devices, as a dashboard shows it.

use crate::system::{GpuSample, SystemSample};

/// The use of the system at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SystemUse {
    /// The share of the processor that is in use, from 0 to 1 over all cores. `None` if it is unknown.
    pub cpu: Option<f64>,
    /// The main memory. `None` if it is unknown.
    pub memory: Option<MemoryUse>,
    /// The GPUs, in order.
    pub devices: Vec<DeviceUse>,
}

/// The use of a memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// The bytes in use.
    pub used: u64,
    /// The bytes in total.
    pub total: u64,
}

/// The use of a GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceUse {
    /// The name, such as `GPU 0`.
    pub name: String,
    /// The share of the time in which it computed, from 0 to 1. `None` if it is unknown.
    pub compute: Option<f64>,
    /// Its memory. `None` if it is unknown.
    pub memory: Option<MemoryUse>,
}

impl From<SystemSample> for SystemUse {
    fn from(sample: SystemSample) -> SystemUse {
        let memory = |used: Option<u64>, total: Option<u64>| Some(MemoryUse { used: used?, total: total? });
        let device = |(index, gpu): (usize, GpuSample)| DeviceUse {
            name: format!("GPU {index}"),
            compute: gpu.utilization,
            memory: memory(gpu.memory_bytes, gpu.memory_total_bytes),
        };
        SystemUse {
            cpu: sample.cpu,
            memory: memory(sample.memory_bytes, sample.memory_total_bytes),
            devices: sample.gpus.into_iter().enumerate().map(device).collect(),
        }
    }
}
