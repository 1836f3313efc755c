//! Metrics of the machine and of the speed of training.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{SystemSample, SystemSampler};
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValue, MetricValues};
use crate::observation::Observation;

/// The least time between two samples.
const INTERVAL: Duration = Duration::from_millis(250);

/// Samples of the machine, at the updates of a metric.
#[derive(Clone, Debug, Default)]
struct Samples {
    sampler: Arc<Mutex<SystemSampler>>,
    last: Option<Instant>,
}

impl Samples {
    /// Adds the numbers of a sample by name, unless the last sample is recent.
    fn add(
        &mut self,
        sums: &mut Accumulator,
        numbers: impl Fn(&SystemSample) -> Vec<(&'static str, Option<f64>)>,
    ) -> Result<(), MetricError> {
        if self.last.is_some_and(|last| last.elapsed() < INTERVAL) {
            return Ok(());
        }
        self.last = Some(Instant::now());
        let sample = self.sampler.lock().unwrap_or_else(PoisonError::into_inner).sample();
        // Each number has a count of its own: the first sample has no use of processors.
        let mut known = numbers(&sample).into_iter().filter_map(|(name, number)| Some((name, number?)));
        known.try_for_each(|(name, number)| sums.append_all(name, &[number]))
    }
}

fn mean(sums: &mut Accumulator, name: &'static str) -> Result<f64, MetricError> {
    let numbers = sums.numbers(name)?;
    Ok(numbers.iter().sum::<f64>() / numbers.len() as f64)
}

fn greatest(sums: &mut Accumulator, name: &'static str) -> Result<f64, MetricError> {
    Ok(sums.numbers(name)?.iter().copied().fold(f64::NAN, f64::max))
}

macro_rules! system_metrics {
    ($($(#[$doc:meta])* $metric:ident
        [$name:literal $main:ident $main_number:expr $(, $value:literal $statistic:ident $number:expr)*]
        $format:literal $scale:literal;)*) => {
        mod rule {$(
            #[derive(Clone, Debug, Default)]
            pub struct $metric(pub(super) super::Samples);
        )*}

        $(
            $(#[$doc])*
            ///
            /// The machine is sampled at updates, at most four times a second. A value is NaN where the operating
            /// system does not report it.
            pub type $metric = Accumulated<rule::$metric>;

            impl MetricRule for rule::$metric {
                crate::metric::facts!($name, higher is better: false);

                fn add(&mut self, sums: &mut Accumulator, _: &Observation) -> Result<(), MetricError> {
                    let of = |number: fn(&SystemSample) -> Option<f64>, sample: &SystemSample| number(sample);
                    self.0.add(sums, |sample| vec![($name, of($main_number, sample)) $(, ($value, of($number, sample)))*])
                }

                fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
                    let values = MetricValues::scalar(name, $main(sums, $name)?);
                    $(let values = values.with($value, MetricValue::Scalar($statistic(sums, $value)?));)*
                    Ok(values)
                }

                fn format(&self, value: f64) -> String {
                    format!($format, value * $scale)
                }
            }
        )*
    };
}

system_metrics! {
    /// Use of processors, `cpu_use`: the mean fraction of time in which the cores of the machine worked, from 0 to 1;
    /// and `process_cpu_use`, the part of this process.
    CpuUse
        ["cpu_use" mean |sample| sample.cpu, "process_cpu_use" mean |sample| sample.process_cpu]
        "{:.0} %" 100.0;
    /// Memory in use on the machine, `cpu_memory`, and by this process, `process_memory`: the greatest of the samples,
    /// in GiB.
    CpuMemory
        ["cpu_memory" greatest |sample| gibibytes(sample.memory_bytes),
         "process_memory" greatest |sample| gibibytes(sample.process_memory_bytes)]
        "{:.1} GiB" 1.0;
    /// The temperature of processors, `cpu_temperature`: the mean of the samples, in degrees Celsius.
    CpuTemperature
        ["cpu_temperature" mean |sample| sample.cpu_temperature]
        "{:.0} °C" 1.0;
    /// Use of NVIDIA GPUs with the feature `nvml`: `gpu_use`, the mean fraction of time in which a kernel ran, from 0
    /// to 1; `gpu_memory`, the greatest sum of memory in use, in GiB; `gpu_temperature`, the greatest, in degrees
    /// Celsius; and `gpu_power`, the mean sum, in watts. Values are over all GPUs of the machine.
    GpuUse
        ["gpu_use" mean |sample| {
            let uses = sample.gpus.iter().filter_map(|gpu| gpu.utilization);
            let (sum, count) = uses.fold((0.0, 0.0), |(sum, count), used| (sum + used, count + 1.0));
            (count > 0.0).then_some(sum / count)
         },
         "gpu_memory" greatest |sample| {
            gibibytes(sample.gpus.iter().filter_map(|gpu| gpu.memory_bytes).reduce(|a, b| a + b))
         },
         "gpu_temperature" greatest |sample| sample.gpus.iter().filter_map(|gpu| gpu.temperature).reduce(f64::max),
         "gpu_power" mean |sample| sample.gpus.iter().filter_map(|gpu| gpu.power).reduce(|a, b| a + b)]
        "{:.0} %" 100.0;
}

/// [`GpuUse`] under the name that Burn uses.
pub type CudaMetric = GpuUse;

fn gibibytes(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64 / (1u64 << 30) as f64)
}

/// The speed of training, `items_per_second`: items of batches over the time between their updates. The first batch
/// after a reset is not counted, since its start is not known.
pub type IterationSpeed = Accumulated<IterationSpeedRule>;

/// The rule of [`IterationSpeed`].
#[derive(Clone, Debug, Default)]
pub struct IterationSpeedRule {
    last: Option<Instant>,
}

/// [`IterationSpeed`] under the name that Burn uses.
pub type IterationSpeedMetric = IterationSpeed;

impl MetricRule for IterationSpeedRule {
    crate::metric::facts!("items_per_second", "items" / "seconds");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            sums.count("items", observation.num_items as f64);
            sums.count("seconds", (now - last).as_secs_f64());
        }
        Ok(())
    }

    fn format(&self, value: f64) -> String {
        format!("{value:.1} items/s")
    }

    fn pause(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;

    #[test]
    fn speed_is_items_over_time() {
        let mut speed = IterationSpeed::new();
        for _ in 0..3 {
            speed.update(&Observation::new(10)).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        let value = speed.values().unwrap().main().unwrap();
        assert!(value > 0.0 && value <= 20.0 / 0.01, "{value}");
        speed.reset();
        speed.update(&Observation::new(10)).unwrap();
        assert!(speed.values().unwrap().main().unwrap().is_nan());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_machine_has_memory() {
        let mut memory = CpuMemory::new();
        memory.update(&Observation::new(1)).unwrap();
        let values = memory.values().unwrap();
        let process = values.get("process_memory").and_then(MetricValue::as_scalar).unwrap();
        assert!(process > 0.0 && values.main().unwrap() >= process);
        let mut gpu = GpuUse::new();
        gpu.update(&Observation::new(1)).unwrap();
        assert_eq!(gpu.values().unwrap().iter().count(), 4);
    }
}
