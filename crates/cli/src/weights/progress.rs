//! A progress bar over tensors.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kiln_store::{StoreError, TensorContents, TensorInfo, TensorSource, WeightFormat, Weights};

use crate::table::printable;

/// A progress bar on standard error, which is drawn only on a terminal.
#[derive(Clone)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new(tensors: usize) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(tensors as u64), ProgressDrawTarget::stderr());
        if let Ok(style) =
            ProgressStyle::with_template("{bar:30} {pos}/{len} tensors, {eta} left  {wide_msg}")
        {
            bar.set_style(style);
        }
        Progress(bar)
    }

    /// Counts a tensor.
    pub(super) fn step(&self, name: &str) {
        self.0.set_message(printable(name));
        self.0.inc(1);
    }

    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }

    /// The weights, whose tensors are counted when they are read.
    pub(super) fn watch(&self, weights: Weights) -> Weights {
        Weights::from_source(Watched { weights, progress: Arc::new(self.clone()) })
    }
}

/// Weights with a progress bar.
struct Watched {
    weights: Weights,
    progress: Arc<Progress>,
}

impl TensorSource for Watched {
    fn path(&self) -> &Path {
        self.weights.path()
    }

    fn format(&self) -> WeightFormat {
        self.weights.format()
    }

    fn names(&self) -> Vec<&str> {
        self.weights.names()
    }

    fn info(&self, name: &str) -> Option<TensorInfo> {
        self.weights.info(name)
    }

    fn contents(&self, name: &str) -> Result<TensorContents, StoreError> {
        let contents = self.weights.source().contents(name);
        self.progress.step(name);
        contents
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        self.weights.metadata()
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.weights.fmt(f)
    }
}
