//! Renderers: they show a run to people.
//!
//! [`automatic`] chooses one: a `Dashboard` with live curves on a terminal, else [`Lines`] on standard error.
//!
//! ```
//! use kiln_train::renderer;
//!
//! let mut renderer = renderer::automatic();
//! // Pass each `Record` to `renderer.record`.
//! renderer.close();
//! ```

#[cfg(feature = "dashboard")]
mod dashboard;
pub(crate) mod format;
mod lines;
#[cfg_attr(
    not(feature = "dashboard"),
    allow(dead_code, reason = "the dashboard alone shows curves and messages")
)]
mod model;
mod system_use;

#[cfg(feature = "dashboard")]
pub use dashboard::{Dashboard, restore_terminal};
pub use lines::Lines;
pub use system_use::{DeviceUse, MemoryUse, SystemUse};

use crate::record::Record;
use crate::system::SystemSampler;

/// Shows the records of a run. A renderer never fails: it shows as much as it can.
///
/// The learner passes every record to it. A renderer limits the rate of its drawing itself.
pub trait Renderer: Send {
    /// Shows a record.
    fn record(&mut self, record: &Record);

    /// Returns whether the user asked for a stop, such as by a key. The learner asks after each step.
    fn is_stop_requested(&mut self) -> bool {
        false
    }

    /// Restores the terminal. The learner calls it before it returns, also after an error. Default: does nothing.
    fn close(&mut self) {}
}

/// Returns a `Dashboard` where standard output and standard error are a terminal, else [`Lines`].
///
/// It also returns lines where `TERM` is unset or `dumb`, where the terminal cannot be opened, and without the feature
/// `dashboard`.
pub fn automatic() -> Box<dyn Renderer> {
    let mut sampler = SystemSampler::new();
    automatic_with(move || sampler.sample().into())
}

/// Returns the renderer of [`automatic`]. A dashboard shows the use of the system that `sample` returns once a second.
pub fn automatic_with(sample: impl FnMut() -> SystemUse + Send + 'static) -> Box<dyn Renderer> {
    #[cfg(feature = "dashboard")]
    if dashboard::is_possible()
        && let Ok(dashboard) = Dashboard::open()
    {
        return Box::new(dashboard.system(sample));
    }
    #[cfg(not(feature = "dashboard"))]
    drop(sample);
    Box::new(Lines::new())
}
