//! Processors and memory of Linux, from the files of the kernel.
//!
//! Formats: `proc(5)` of the Linux manual, and `Documentation/hwmon/sysfs-interface` and
//! `Documentation/driver-api/thermal/sysfs-api` of the kernel.

use std::fs;
use std::path::{Path, PathBuf};

use super::SystemSample;

/// The files of the kernel, with the counters of the last sample.
pub(super) struct Linux {
    proc: PathBuf,
    sys: PathBuf,
    last: Option<CpuTimes>,
}

/// Counters of processor time, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CpuTimes {
    total: u64,
    idle: u64,
    process: Option<u64>,
}

impl Linux {
    pub(super) fn new(proc: PathBuf, sys: PathBuf) -> Linux {
        Linux { proc, sys, last: None }
    }

    pub(super) fn sample(&mut self) -> SystemSample {
        let now = self.times();
        let elapsed = self.last.zip(now).filter(|(last, now)| now.total > last.total);
        self.last = now;
        let share =
            |ticks: u64, (last, now): (CpuTimes, CpuTimes)| ticks as f64 / (now.total - last.total) as f64;
        let idle = |(last, now): (CpuTimes, CpuTimes)| now.idle.saturating_sub(last.idle);
        let process = |(last, now): (CpuTimes, CpuTimes)| {
            let ticks = now.process?.saturating_sub(last.process?);
            Some(share(ticks, (last, now)).min(1.0))
        };
        let memory = self.read("meminfo");
        let field = |name| memory.as_deref().and_then(|text| kilobytes(text, name));
        let total = field("MemTotal");
        SystemSample {
            cpu: elapsed.map(|times| (1.0 - share(idle(times), times)).clamp(0.0, 1.0)),
            process_cpu: elapsed.and_then(process),
            memory_bytes: total.zip(field("MemAvailable")).map(|(total, free)| total.saturating_sub(free)),
            memory_total_bytes: total,
            process_memory_bytes: self.read("self/status").and_then(|text| kilobytes(&text, "VmRSS")),
            cpu_temperature: cpu_temperature(&self.sys),
            gpus: Vec::new(),
        }
    }

    fn times(&self) -> Option<CpuTimes> {
        let (total, idle) = cpu_times(&self.read("stat")?)?;
        Some(CpuTimes { total, idle, process: self.read("self/stat").and_then(|text| process_ticks(&text)) })
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.proc.join(name)).ok()
    }
}

/// The peak of the resident memory of this process, in bytes.
pub(super) fn peak_process_memory() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM")
}

/// The ticks of all processors, and those without work, of `/proc/stat`.
fn cpu_times(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // user nice system idle iowait irq softirq steal; the ticks of guests are also those of users.
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|number| number.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4).copied().unwrap_or(0);
    Some((ticks.iter().sum(), idle))
}

/// The ticks of a process, of `/proc/self/stat`.
fn process_ticks(text: &str) -> Option<u64> {
    // The name of the program, in parentheses, may contain spaces and parentheses.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(ticks()? + ticks()?)
}

/// A field of `/proc/meminfo` or `/proc/self/status`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kilobytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The drivers of the sensors of processors.
const CPU_SENSORS: [&str; 5] = ["coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal"];

/// The greatest temperature of a sensor of processors; of a thermal zone if there is none.
fn cpu_temperature(sys: &Path) -> Option<f64> {
    let sensors = folders(&sys.join("class/hwmon"))
        .filter(|folder| CPU_SENSORS.contains(&text(&folder.join("name")).unwrap_or_default().as_str()))
        .flat_map(|folder| {
            (1..=64).map_while(move |place| degrees(&folder.join(format!("temp{place}_input"))))
        });
    let zones = folders(&sys.join("class/thermal")).filter(|folder| {
        let kind = text(&folder.join("type")).unwrap_or_default();
        kind == "x86_pkg_temp" || kind.starts_with("cpu")
    });
    let zones = zones.filter_map(|folder| degrees(&folder.join("temp")));
    sensors.reduce(f64::max).or_else(|| zones.reduce(f64::max))
}

fn folders(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn degrees(path: &Path) -> Option<f64> {
    Some(text(path)?.parse::<f64>().ok()? / 1000.0)
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 20 30 800 40 5 5 0 50 0\ncpu0 50 10 15 400 20 3 2 0 25 0\nintr 1\n";
    const LATER: &str = "cpu  160 20 50 900 60 5 5 0 90 0\ncpu0 80 10 25 450 30 3 2 0 45 0\nintr 2\n";
    const SELF: &str = "4242 (a (b) c) R 1 1 1 0 -1 4194304 100 0 0 0 30 10 0 0 20 0 4 0 100 1000 200";
    const SELF_LATER: &str = "4242 (a (b) c) R 1 1 1 0 -1 4194304 100 0 0 0 60 20 0 0 20 0 4 0 100 1000 200";
    const MEMINFO: &str = "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    6000 kB\n";
    const STATUS: &str = "Name:\tx\nVmPeak:\t  500 kB\nVmRSS:\t  300 kB\nThreads:\t4\n";

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn counters_are_parsed() {
        assert_eq!(cpu_times(STAT), Some((1000, 840)));
        assert_eq!(process_ticks(SELF), Some(40));
        assert_eq!(kilobytes(MEMINFO, "MemAvailable"), Some(6000 << 10));
        assert_eq!(kilobytes(MEMINFO, "Mem"), None);
        for damaged in ["", "cpu", "cpu  a b", "MemTotal: many kB", "1 (x"] {
            assert_eq!(cpu_times(damaged), None);
            assert_eq!(process_ticks(damaged), None);
            assert_eq!(kilobytes(damaged, "MemTotal"), None);
        }
    }

    #[test]
    fn a_sample_is_of_the_time_since_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, sys) = (folder.path().join("proc"), folder.path().join("sys"));
        write(&proc, "stat", STAT);
        write(&proc, "self/stat", SELF);
        write(&proc, "meminfo", MEMINFO);
        write(&proc, "self/status", STATUS);
        write(&sys, "class/hwmon/hwmon0/name", "nvme\n");
        write(&sys, "class/hwmon/hwmon0/temp1_input", "99000\n");
        write(&sys, "class/hwmon/hwmon1/name", "k10temp\n");
        write(&sys, "class/hwmon/hwmon1/temp1_input", "41500\n");
        write(&sys, "class/hwmon/hwmon1/temp2_input", "47250\n");
        let mut linux = Linux::new(proc.clone(), sys);
        let first = linux.sample();
        assert_eq!((first.cpu, first.process_cpu), (None, None));
        assert_eq!(first.memory_total_bytes, Some(16000 << 10));
        assert_eq!(first.memory_bytes, Some(10000 << 10));
        assert_eq!(first.process_memory_bytes, Some(300 << 10));
        assert_eq!(first.cpu_temperature, Some(47.25));
        write(&proc, "stat", LATER);
        write(&proc, "self/stat", SELF_LATER);
        let second = linux.sample();
        // 80 of 200 ticks, of which this process used 40.
        assert!((second.cpu.unwrap() - 0.4).abs() < 1e-12, "{second:?}");
        assert_eq!(second.process_cpu, Some(0.2));
    }

    #[test]
    fn thermal_zones_are_read_without_sensors_and_missing_files_are_none() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "class/thermal/thermal_zone0/type", "acpitz\n");
        write(folder.path(), "class/thermal/thermal_zone0/temp", "20000\n");
        write(folder.path(), "class/thermal/thermal_zone1/type", "x86_pkg_temp\n");
        write(folder.path(), "class/thermal/thermal_zone1/temp", "52000\n");
        assert_eq!(cpu_temperature(folder.path()), Some(52.0));
        let nothing = folder.path().join("nothing");
        assert_eq!(Linux::new(nothing.clone(), nothing).sample(), SystemSample::default());
    }
}
