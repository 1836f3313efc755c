//! Use of the machine: processors, memory, temperatures and GPUs, for dashboards and logs.
//!
//! ```
//! use kiln_train::system::SystemSampler;
//!
//! let mut sampler = SystemSampler::new();
//! let sample = sampler.sample();
//! if let (Some(used), Some(total)) = (sample.memory_bytes, sample.memory_total_bytes) {
//!     assert!(used <= total);
//! }
//! ```

mod linux;
mod metric;
#[cfg(feature = "nvml")]
mod nvidia;

pub use metric::{
    CpuMemory, CpuTemperature, CpuUse, CudaMetric, GpuUse, IterationSpeed, IterationSpeedMetric,
};

use std::fmt;
use std::path::PathBuf;

/// The use of the machine at a time. A number is `None` where the operating system does not report it. Processors,
/// memory and temperatures are reported on Linux.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SystemSample {
    /// The fraction of the time since the last sample in which processors worked, over all cores: 0 to 1. `None` in the
    /// first sample.
    pub cpu: Option<f64>,
    /// The part of `cpu` that this process used: 0 to 1.
    pub process_cpu: Option<f64>,
    /// Memory in use on the machine, in bytes: memory that is not available to new processes.
    pub memory_bytes: Option<u64>,
    /// Memory of the machine, in bytes.
    pub memory_total_bytes: Option<u64>,
    /// Resident memory of this process, in bytes.
    pub process_memory_bytes: Option<u64>,
    /// The greatest temperature of a processor, in degrees Celsius.
    pub cpu_temperature: Option<f64>,
    /// The GPUs, in the order of the driver. Empty without the feature `nvml` or without an NVIDIA driver.
    pub gpus: Vec<GpuSample>,
}

/// The use of a GPU at a time. A number is `None` where the driver does not report it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuSample {
    /// The name of the model.
    pub name: Option<String>,
    /// The fraction of time in which a kernel ran, over the last period of the driver (up to one second): 0 to 1.
    pub utilization: Option<f64>,
    /// Memory in use, in bytes.
    pub memory_bytes: Option<u64>,
    /// Memory of the GPU, in bytes.
    pub memory_total_bytes: Option<u64>,
    /// The temperature, in degrees Celsius.
    pub temperature: Option<f64>,
    /// The power, in watts.
    pub power: Option<f64>,
}

/// Samples the use of the machine.
pub struct SystemSampler {
    linux: linux::Linux,
    #[cfg(feature = "nvml")]
    nvidia: Option<nvidia::Nvidia>,
}

impl SystemSampler {
    /// Returns a sampler. With the feature `nvml`, it loads the library of the NVIDIA driver if there is one.
    pub fn new() -> SystemSampler {
        SystemSampler {
            linux: linux::Linux::new(PathBuf::from("/proc"), PathBuf::from("/sys")),
            #[cfg(feature = "nvml")]
            nvidia: nvidia::Nvidia::open(),
        }
    }

    /// Samples the use of the machine. Use of processors is over the time since the last sample.
    pub fn sample(&mut self) -> SystemSample {
        SystemSample { gpus: self.gpus(), ..self.linux.sample() }
    }

    #[cfg(feature = "nvml")]
    fn gpus(&self) -> Vec<GpuSample> {
        self.nvidia.as_ref().map(nvidia::Nvidia::sample).unwrap_or_default()
    }

    #[cfg(not(feature = "nvml"))]
    fn gpus(&self) -> Vec<GpuSample> {
        Vec::new()
    }
}

/// Returns the peak of the resident memory of this process since it started, in bytes. `None` where the operating system
/// does not report it; Linux does.
pub fn peak_process_memory() -> Option<u64> {
    linux::peak_process_memory()
}

impl Default for SystemSampler {
    fn default() -> SystemSampler {
        SystemSampler::new()
    }
}

impl fmt::Debug for SystemSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemSampler").finish_non_exhaustive()
    }
}
