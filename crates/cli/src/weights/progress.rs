//! A progress bar over tensors or tokens.

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
        Progress::with_unit(tensors, "tensors")
    }

    /// A bar over the tokens of a text. `name` is that of the model.
    pub(super) fn of_tokens(tokens: usize, name: &str) -> Progress {
        let progress = Progress::with_unit(tokens, "tokens");
        progress.0.set_message(name.to_owned());
        progress
    }

    fn with_unit(count: usize, unit: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(count as u64), ProgressDrawTarget::stderr());
        let template = format!("{{bar:30}} {{pos}}/{{len}} {unit}, {{eta}} left  {{wide_msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Progress(bar)
    }

    /// Sets the number of tokens that are done.
    pub(super) fn reach(&self, tokens: usize) {
        self.0.set_position(tokens as u64);
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
