//! The result of a profile.

use std::fmt;
use std::time::Duration;

use kiln_ir::profile::{Measured, Part, PartKind, Profile};
use serde::{Deserialize, Serialize};

use super::Peaks;

/// The time and the work of each part of a training step: means over the profiled steps. `Display` prints a table.
///
/// All numbers are finite, and the JSON has the fields of the struct.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProfileReport {
    /// The name of the device.
    pub device: String,
    /// The number of profiled steps.
    pub steps: u64,
    /// The time of a step: the sum of the parts.
    pub step_ms: f64,
    /// The peak of the device in arithmetic operations per second. `None` if it was not measured.
    pub flops_per_second: Option<f64>,
    /// The peak of the device in bytes per second. `None` if it was not measured.
    pub bytes_per_second: Option<f64>,
    /// The parts, those with the greatest time first. Each module with parameters that was used is a part.
    pub parts: Vec<PartReport>,
}

/// A part of a training step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PartReport {
    /// The name: the path of a module, such as `model.conv1`, that of a [scope](super::scope), `optimizer model`,
    /// `input` or `other`.
    pub name: String,
    /// `module`, `scope`, `optimizer`, `input` or `other`.
    pub kind: String,
    /// Forward passes per step.
    pub calls: f64,
    /// The forward pass. Of an optimizer the update.
    pub forward: PassReport,
    /// The backward pass.
    pub backward: PassReport,
    /// Both passes.
    pub total: PassReport,
    /// The time in percent of the step.
    pub percent_of_step: f64,
}

/// A pass of a part, per step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PassReport {
    /// The time in milliseconds.
    pub ms: f64,
    /// Arithmetic operations.
    pub flops: f64,
    /// Bytes that enter or leave the part.
    pub bytes: f64,
    /// The least time by the peaks, in milliseconds. `None` without peaks.
    pub floor_ms: Option<f64>,
    /// The least time in percent of the time: 100 is the roofline. `None` without peaks.
    pub percent_of_roofline: Option<f64>,
}

/// The sums over the profiled steps.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) device: String,
    pub(super) steps: u64,
    parts: Vec<Part>,
}

impl ProfileReport {
    /// Returns the part with a name.
    pub fn part(&self, name: &str) -> Option<&PartReport> {
        self.parts.iter().find(|part| part.name == name)
    }

    /// The sums of the parts.
    fn total(&self) -> PartReport {
        let sum = |pass: fn(&PartReport) -> PassReport| {
            self.parts.iter().map(pass).reduce(PassReport::plus).unwrap_or_default()
        };
        PartReport {
            name: "total".to_owned(),
            forward: sum(|part| part.forward),
            backward: sum(|part| part.backward),
            total: sum(|part| part.total),
            percent_of_step: 100.0,
            ..PartReport::default()
        }
    }
}

impl PassReport {
    fn new(measured: &Measured, steps: f64, peaks: Option<Peaks>) -> PassReport {
        let ms = measured.time.as_secs_f64() * 1e3 / steps;
        let (flops, bytes) = (measured.work.flops as f64 / steps, measured.work.bytes as f64 / steps);
        let floor = |peaks: Peaks| 1e3 * (flops / peaks.flops_per_second).max(bytes / peaks.bytes_per_second);
        let floor_ms = peaks.map(floor).filter(|floor| floor.is_finite());
        PassReport { ms, flops, bytes, floor_ms, percent_of_roofline: percent(floor_ms, ms) }
    }

    fn plus(self, other: PassReport) -> PassReport {
        let ms = self.ms + other.ms;
        let floor_ms = self.floor_ms.zip(other.floor_ms).map(|(a, b)| a + b);
        let (flops, bytes) = (self.flops + other.flops, self.bytes + other.bytes);
        PassReport { ms, flops, bytes, floor_ms, percent_of_roofline: percent(floor_ms, ms) }
    }
}

fn percent(floor_ms: Option<f64>, ms: f64) -> Option<f64> {
    floor_ms.filter(|_| ms > 0.0).map(|floor| 100.0 * floor / ms)
}

impl Totals {
    /// Adds the profile of a step.
    pub(super) fn add(&mut self, profile: &Profile) {
        self.steps += 1;
        for part in &profile.parts {
            let same = |known: &&mut Part| known.name == part.name && known.kind == part.kind;
            match self.parts.iter_mut().find(same) {
                Some(known) => {
                    known.calls += part.calls;
                    known.forward = sum(known.forward, part.forward);
                    known.backward = sum(known.backward, part.backward);
                }
                None => self.parts.push(part.clone()),
            }
        }
    }

    pub(super) fn report(self, peaks: Option<Peaks>) -> ProfileReport {
        let steps = self.steps as f64;
        let time: Duration = self.parts.iter().map(Part::time).sum();
        let step_ms = time.as_secs_f64() * 1e3 / steps;
        let is_used = |part: &&Part| part.calls > 0 || part.time() > Duration::ZERO;
        let mut parts: Vec<PartReport> = self
            .parts
            .iter()
            .filter(is_used)
            .map(|part| {
                let forward = PassReport::new(&part.forward, steps, peaks);
                let backward = PassReport::new(&part.backward, steps, peaks);
                let total = forward.plus(backward);
                PartReport {
                    name: part.name.clone(),
                    kind: kind(part.kind).to_owned(),
                    calls: part.calls as f64 / steps,
                    forward,
                    backward,
                    total,
                    percent_of_step: if step_ms > 0.0 { 100.0 * total.ms / step_ms } else { 0.0 },
                }
            })
            .collect();
        parts.sort_by(|a, b| b.total.ms.total_cmp(&a.total.ms));
        ProfileReport {
            device: self.device,
            steps: self.steps,
            step_ms,
            flops_per_second: peaks.map(|peaks| peaks.flops_per_second),
            bytes_per_second: peaks.map(|peaks| peaks.bytes_per_second),
            parts,
        }
    }
}

fn sum(a: Measured, b: Measured) -> Measured {
    Measured { time: a.time + b.time, work: a.work + b.work }
}

fn kind(kind: PartKind) -> &'static str {
    match kind {
        PartKind::Module => "module",
        PartKind::Scope => "scope",
        PartKind::Optimizer => "optimizer",
        PartKind::Input => "input",
        PartKind::Other => "other",
    }
}

const HEADINGS: [&str; 10] = [
    "module",
    "calls",
    "forward ms",
    "backward ms",
    "total ms",
    "% of step",
    "GFLOP",
    "GB",
    "floor ms",
    "% of roofline",
];

impl fmt::Display for ProfileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProfileReport { device, steps, step_ms, .. } = self;
        write!(f, "profile of {steps} steps on {device}, {step_ms:.3} ms each")?;
        if let (Some(flops), Some(bytes)) = (self.flops_per_second, self.bytes_per_second) {
            write!(f, "; peaks: {:.1} GFLOP/s, {:.1} GB/s", flops / 1e9, bytes / 1e9)?;
        }
        let mut rows = vec![HEADINGS.map(str::to_owned)];
        rows.extend(self.parts.iter().map(cells));
        rows.push(cells(&self.total()));
        let widths: Vec<usize> = (0..HEADINGS.len())
            .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        for row in rows {
            write!(f, "\n{:<width$}", row[0], width = widths[0])?;
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                write!(f, "  {cell:>width$}")?;
            }
        }
        Ok(())
    }
}

fn cells(part: &PartReport) -> [String; 10] {
    let optional = |number: Option<f64>, digits: usize| {
        number.map_or_else(|| "-".to_owned(), |number| format!("{number:.digits$}"))
    };
    let passes = match part.kind.as_str() {
        "optimizer" => ["-".to_owned(), "-".to_owned()],
        _ => [part.forward, part.backward].map(|pass| format!("{:.3}", pass.ms)),
    };
    let [forward, backward] = passes;
    [
        part.name.clone(),
        if part.calls > 0.0 { format!("{:.0}", part.calls) } else { "-".to_owned() },
        forward,
        backward,
        format!("{:.3}", part.total.ms),
        format!("{:.1}", part.percent_of_step),
        format!("{:.4}", part.total.flops / 1e9),
        format!("{:.4}", part.total.bytes / 1e9),
        optional(part.total.floor_ms, 3),
        optional(part.total.percent_of_roofline, 1),
    ]
}
