//! The profiler: the time of each module against its roofline.

mod modules;
mod peaks;
mod report;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use kiln_ir::profile;

pub use kiln_ir::profile::{PartKind, scope};
pub use peaks::Peaks;
pub use report::{PartReport, PassReport, ProfileReport};

use self::modules::Modules;
use self::report::Totals;
use super::{Callback, Context, Event};
use crate::error::Result;
use crate::task::Task;

/// Measures the device time of each module, forward and backward, and of each optimizer, and compares it with the
/// roofline: the least time in which the device could do the arithmetic operations and move the bytes of the module.
///
/// ```
/// # use kiln_backends::Flex;
/// # use kiln_nn::{Linear, LinearConfig};
/// # use kiln_optim::SgdConfig;
/// # use kiln_tensor::{Autodiff, Tensor};
/// # use kiln_train::{StepOutput, Supervised, loader::TensorLoader};
/// use kiln_train::{Learner, Profiler};
///
/// # type B = Autodiff<Flex>;
/// # let device = Default::default();
/// # let model: Linear<B> = LinearConfig::new(4, 1).init(&device);
/// # let task = Supervised::new(model, SgdConfig::new().init(), 0.1, |model: &Linear<B>, x: Tensor<B, 2>| {
/// #     StepOutput::new(model.forward(x).square().mean(), 8)
/// # });
/// # let loader = TensorLoader::new(Tensor::<B, 2>::ones([64, 4], &device)).batch_size(8);
/// let profiler = Profiler::new().steps(3..6).with_peaks(5e10, 1e10);
/// let handle = profiler.handle();
/// let mut learner = Learner::new(task).callback(profiler).silent();
/// learner.fit_without_validation(&loader)?;
///
/// let report = handle.report().expect("steps 3 to 5 ran");
/// println!("{report}");
/// let model = report.part("model").unwrap();
/// assert!(model.forward.flops > 2.0 * 8.0 * 4.0, "a product of 8 x 4 by 4 x 1, and the loss");
/// assert!(model.backward.ms > 0.0);
/// # Ok::<(), kiln_train::TrainError>(())
/// ```
///
/// **Parts.** The module of an op is the one whose parameter was read last ([`Param::val`](kiln_nn::Param::val)). An
/// activation after a convolution thus counts with the convolution, and a loss with the last module. Ops before the
/// first parameter are `input`; those after a backward pass or an update, such as metrics and callbacks, are `other`. A
/// [`scope`] gives a function a part of its own:
///
/// ```
/// use kiln_train::callback::profiler::scope;
///
/// # let loss = || ();
/// let loss = scope("loss", || loss());
/// ```
///
/// **Time.** Between two parts the profiler waits for the device, so that a time is that of the device and of launching
/// the ops. Ops fuse within a part, and not across parts: profiled steps are slower than others, and the sum of the
/// parts is the time of a profiled step. The two steps before the profiled ones run in the same way and do not count,
/// since kernels are compiled in them.
///
/// **Work.** Each op counts once, before fusion, by the conventions of [`kiln_ir::cost`](mod@kiln_ir::cost). Custom ops
/// count the ops of their expansion, or nothing. The bytes of a part are those of the values that it reads from other
/// parts and that other parts read from it; values within a part count nothing, as if all of its ops were one kernel.
/// The floor of a pass is the greater of its operations and its bytes, each over the peak of the device. The peaks are
/// measured before the first profiled step, by matmuls and additions of `f32`, in about a second.
///
/// Loading of batches and validation are outside of the profile, and so are other threads. Where several threads train
/// replicas, the profile is that of the thread of the learner.
#[derive(Debug)]
pub struct Profiler {
    steps: Range<u64>,
    peaks: Option<Peaks>,
    json: Option<PathBuf>,
    handle: ProfileHandle,
    totals: Totals,
    /// Whether a step is profiled now.
    is_running: bool,
}

/// The result of a [`Profiler`], for programs. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ProfileHandle(Arc<Mutex<Option<ProfileReport>>>);

impl ProfileHandle {
    /// Returns the report. `None` until the last profiled step has ended.
    pub fn report(&self) -> Option<ProfileReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Default for Profiler {
    fn default() -> Profiler {
        Profiler::new()
    }
}

/// Steps that run as profiled ones before the first of these.
const WARM_UP: u64 = 2;

impl Profiler {
    /// Returns a profiler of steps 5 to 14.
    pub fn new() -> Profiler {
        Profiler {
            steps: 5..15,
            peaks: None,
            json: None,
            handle: ProfileHandle::default(),
            totals: Totals::default(),
            is_running: false,
        }
    }

    kiln_ir::setters! {
        /// Sets the steps to profile, counted from 0 over all epochs. Default: `5..15`. If training ends before, the report
        /// is of the steps that ran.
        steps(steps: Range<u64>) => steps = steps;

        /// Sets the peaks of the device: arithmetic operations and bytes per second. Default: they are measured.
        with_peaks(flops_per_second: f64, bytes_per_second: f64) =>
            peaks = Some(Peaks { flops_per_second, bytes_per_second });

        /// Writes the report to a file as JSON: the fields of [`ProfileReport`].
        json(path: impl Into<PathBuf>) => json = Some(path.into());
    }

    /// Returns a handle to the report.
    pub fn handle(&self) -> ProfileHandle {
        self.handle.clone()
    }

    /// Starts the profile of a step.
    fn start<T: Task>(&mut self, task: &mut T) -> Result<()> {
        let modules = Modules::of(task)?;
        if self.totals.device.is_empty()
            && let Some(stack) = modules.stacks.first()
        {
            self.totals.device = stack.device_name().to_owned();
            if self.peaks.is_none() {
                self.peaks = peaks::measure(stack)?;
            }
        }
        let engines = modules.stacks.iter().map(|stack| stack.shared_engine()).collect();
        profile::start(engines, modules.modules);
        self.is_running = true;
        Ok(())
    }

    fn stop(&mut self) -> Option<profile::Profile> {
        if std::mem::take(&mut self.is_running) { profile::stop() } else { None }
    }

    /// Writes the report. Does nothing where it is written already.
    fn finish<T>(&mut self, context: &mut Context<'_, T>) -> Result<()> {
        if self.totals.steps == 0 {
            return Ok(());
        }
        let report = std::mem::take(&mut self.totals).report(self.peaks);
        context.control.info(report.to_string());
        if let Some(path) = &self.json {
            write_json(path, &report)?;
        }
        *self.handle.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        Ok(())
    }
}

impl<T: Task> Callback<T> for Profiler {
    fn name(&self) -> &str {
        "profiler"
    }

    /// The last: ops of other callbacks at the start of a step do not count.
    fn order(&self) -> i32 {
        i32::MAX
    }

    fn on(&mut self, event: Event<'_>, context: &mut Context<'_, T>) -> Result<()> {
        let step = context.control.position().step;
        if let Event::StepStarted = event {
            self.stop();
            let first = self.steps.start.saturating_sub(WARM_UP);
            if (first..self.steps.end).contains(&step) {
                self.start(context.task)?;
            }
        } else if let Event::StepEnded = event {
            if let Some(profile) = self.stop()
                && self.steps.contains(&step)
            {
                self.totals.add(&profile);
                if step + 1 == self.steps.end {
                    self.finish(context)?;
                }
            }
        } else if let Event::Ended(_) = event {
            self.stop();
            self.finish(context)?;
        }
        Ok(())
    }
}

impl Drop for Profiler {
    /// Ends the profile of a step that failed.
    fn drop(&mut self) {
        self.stop();
    }
}

fn write_json(path: &Path, report: &ProfileReport) -> Result<()> {
    let failed = |source| kiln_store::StoreError::Io { path: path.to_owned(), action: "write", source };
    kiln_store::atomic::write_file(path, |file| {
        serde_json::to_writer_pretty(&mut *file, report).map_err(|error| failed(error.into()))?;
        file.write_all(b"\n").map_err(failed)
    })?;
    Ok(())
}
