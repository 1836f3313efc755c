//! The time and the memory of a call of `fit`.

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::renderer::format;

/// The time and the memory that a call of [`fit`](crate::Learner::fit) used. `Display` prints a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The time of each activity of the training thread, in the order of [`Activity`]. They exclude each other; their sum
    /// is the duration of the call.
    pub times: Vec<ActivityTime>,
    /// The peak of resident memory of the process since it started, in bytes. `None` where the operating system does not
    /// report it; Linux does.
    pub process_peak_bytes: Option<u64>,
    /// The memory of each device of the task's models.
    pub devices: Vec<DeviceMemory>,
}

/// The time of an activity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActivityTime {
    /// The activity.
    pub activity: Activity,
    /// The time in total.
    pub time: Duration,
    /// The number of times that the activity ran.
    pub count: u64,
}

/// An activity of the training thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Activity {
    /// Waiting for the next batch of the loader.
    Loading,
    /// Steps of the task: forward and backward passes, and updates. On devices that compute asynchronously, only the
    /// launches.
    Steps,
    /// Reading losses and logged numbers, which waits for the device.
    Reading,
    /// Validation.
    Validation,
    /// Taking checkpoints. Their writing in the background does not count.
    Checkpoints,
    /// Callbacks.
    Callbacks,
    /// Loggers and the renderer.
    Outputs,
    /// Everything else, such as training metrics.
    Other,
}

/// The peak memory of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceMemory {
    /// The name of the device.
    pub device: String,
    /// The peak of bytes in live tensors since the process started, or since the peak was reset.
    pub peak_live_bytes: u64,
}

impl Activity {
    const ALL: [Activity; 8] = [
        Activity::Loading,
        Activity::Steps,
        Activity::Reading,
        Activity::Validation,
        Activity::Checkpoints,
        Activity::Callbacks,
        Activity::Outputs,
        Activity::Other,
    ];

    fn title(self) -> &'static str {
        match self {
            Activity::Loading => "waiting for batches",
            Activity::Steps => "steps",
            Activity::Reading => "reading from the device",
            Activity::Validation => "validation",
            Activity::Checkpoints => "checkpoints",
            Activity::Callbacks => "callbacks",
            Activity::Outputs => "loggers and renderer",
            Activity::Other => "other",
        }
    }
}

impl Usage {
    /// Returns the time of an activity.
    pub fn time(&self, activity: Activity) -> Duration {
        self.times.iter().find(|row| row.activity == activity).map_or(Duration::ZERO, |row| row.time)
    }

    /// Returns the sum of all times.
    pub fn total(&self) -> Duration {
        self.times.iter().map(|row| row.time).sum()
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        writeln!(f, "{:<24} {:>10} {:>8} {:>10}", "activity", "time", "share", "count")?;
        for ActivityTime { activity, time, count } in self.times.iter().filter(|row| !row.time.is_zero()) {
            let share = 100.0 * time.as_secs_f64() / total.as_secs_f64();
            let time = seconds(*time);
            writeln!(f, "{:<24} {time:>10} {share:>6.1} % {count:>10}", activity.title())?;
        }
        write!(f, "{:<24} {:>10}", "total", seconds(total))?;
        if let Some(bytes) = self.process_peak_bytes {
            write!(f, "\n{:<24} {:>10}", "peak memory: process", format::bytes(bytes))?;
        }
        for DeviceMemory { device, peak_live_bytes } in &self.devices {
            let name = format!("peak memory: {device}");
            write!(f, "\n{name:<24} {:>10}", format::bytes(*peak_live_bytes))?;
        }
        Ok(())
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

/// Measures the times of activities, which exclude each other: entering one ends the other.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    activity: Activity,
    since: Instant,
    times: [Duration; Activity::ALL.len()],
    counts: [u64; Activity::ALL.len()],
}

impl Stopwatch {
    pub(crate) fn new() -> Stopwatch {
        let none = [Duration::ZERO; Activity::ALL.len()];
        let counts = [0; Activity::ALL.len()];
        Stopwatch { activity: Activity::Other, since: Instant::now(), times: none, counts }
    }

    /// Starts an activity, and returns the one that it interrupts.
    pub(crate) fn enter(&mut self, activity: Activity) -> Activity {
        self.counts[activity as usize] += 1;
        self.go_on(activity)
    }

    /// Continues an activity that another one interrupted.
    pub(crate) fn go_on(&mut self, activity: Activity) -> Activity {
        let now = Instant::now();
        self.times[self.activity as usize] += now - self.since;
        self.since = now;
        std::mem::replace(&mut self.activity, activity)
    }

    /// Returns the times so far.
    pub(crate) fn times(&mut self) -> Vec<ActivityTime> {
        self.go_on(self.activity);
        let row = |activity: Activity| ActivityTime {
            activity,
            time: self.times[activity as usize],
            count: self.counts[activity as usize],
        };
        Activity::ALL.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activities_exclude_each_other() {
        let started = Instant::now();
        let mut stopwatch = Stopwatch::new();
        let before = stopwatch.enter(Activity::Callbacks);
        let inner = stopwatch.enter(Activity::Checkpoints);
        std::thread::sleep(Duration::from_millis(20));
        stopwatch.go_on(inner);
        stopwatch.go_on(before);
        let usage = Usage { times: stopwatch.times(), ..Usage::default() };
        assert!(usage.time(Activity::Checkpoints) >= Duration::from_millis(20));
        assert!(usage.total() <= started.elapsed());
        let counts: Vec<u64> = usage.times.iter().map(|row| row.count).collect();
        assert_eq!(counts, [0, 0, 0, 0, 1, 1, 0, 0]);
    }

    #[test]
    fn the_table_has_a_row_for_each_activity_with_time() {
        let row =
            |activity, millis, count| ActivityTime { activity, time: Duration::from_millis(millis), count };
        let usage = Usage {
            times: vec![
                row(Activity::Loading, 250, 10),
                row(Activity::Steps, 750, 10),
                row(Activity::Validation, 0, 0),
            ],
            process_peak_bytes: Some(3 << 30),
            devices: vec![DeviceMemory { device: "cpu".to_owned(), peak_live_bytes: 5 << 20 }],
        };
        let expected = "\
activity                       time    share      count
waiting for batches         0.250 s   25.0 %         10
steps                       0.750 s   75.0 %         10
total                       1.000 s
peak memory: process        3.0 GiB
peak memory: cpu            5.0 MiB";
        assert_eq!(usage.to_string(), expected);
    }
}
