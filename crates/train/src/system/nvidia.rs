//! NVIDIA GPUs, through the library of the driver (NVML), loaded at run time.

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;

use super::GpuSample;

/// The library of the driver.
pub(super) struct Nvidia(Nvml);

impl Nvidia {
    /// Loads the library; `None` if there is none, or no driver.
    pub(super) fn open() -> Option<Nvidia> {
        // The name without a version exists only with the development package.
        let named = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init();
        named.or_else(|_| Nvml::init()).ok().map(Nvidia)
    }

    pub(super) fn sample(&self) -> Vec<GpuSample> {
        (0..self.0.device_count().unwrap_or(0)).map(|index| self.gpu(index)).collect()
    }

    fn gpu(&self, index: u32) -> GpuSample {
        let Ok(gpu) = self.0.device_by_index(index) else { return GpuSample::default() };
        let memory = gpu.memory_info().ok();
        GpuSample {
            name: gpu.name().ok(),
            utilization: gpu.utilization_rates().ok().map(|rates| f64::from(rates.gpu) / 100.0),
            memory_bytes: memory.as_ref().map(|memory| memory.used),
            memory_total_bytes: memory.as_ref().map(|memory| memory.total),
            temperature: gpu.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
            power: gpu.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1000.0),
        }
    }
}
