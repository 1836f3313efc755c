//! Perplexities of language models on a text.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use kiln_backends::{Device, Dyn};
use kiln_models::{OpenOptions, PretrainedLanguageModel};
use kiln_store::{WeightFormat, Weights};
use kiln_tensor::DType;
use kiln_text::{LanguageModel, Perplexity, PerplexityOptions, perplexity_with_progress};

use super::info::grouped;
use super::progress::Progress;
use crate::devices;
use crate::table::{columns, printable};

/// Limit on the length of the text, in bytes. The test split of WikiText-103 has 1.3 MB.
const MAX_TEXT: u64 = 16 << 20;

/// The default window, in tokens.
const WINDOW: usize = 512;

/// The windows of a perplexity, and the device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(super) struct Windows {
    /// Number of tokens that the model sees at once. Default: 512, or the context of the model if that is shorter.
    #[arg(long, value_name = "TOKENS")]
    window: Option<usize>,
    /// Number of tokens from one window to the next. Below the window, windows overlap: tokens have more context, and
    /// the evaluation takes longer. Default: the window.
    #[arg(long, value_name = "TOKENS")]
    stride: Option<usize>,
    /// Evaluate only this number of tokens at the start of the text.
    #[arg(long, value_name = "TOKENS")]
    max_tokens: Option<usize>,
    /// Kind of the device, as `kiln devices` lists them. Default: cpu.
    #[arg(long)]
    device: Option<String>,
    /// Number of threads of the CPU. Default: one for each core.
    #[arg(long)]
    threads: Option<usize>,
}

impl Windows {
    /// Refuses options that have no effect because there is no text.
    pub(super) fn refuse(&self) -> Result<(), String> {
        match *self == Windows::default() {
            true => Ok(()),
            false => Err(
                "--window, --stride, --max-tokens, --device and --threads are settings of the perplexity\n  \
                          hint: add --perplexity TEXT"
                    .to_owned(),
            ),
        }
    }

    fn options(&self, context: usize) -> PerplexityOptions {
        let window = self.window.unwrap_or(WINDOW.min(context));
        PerplexityOptions::new(window).with_stride(self.stride.unwrap_or(window))
    }
}

/// Perplexities of models on one text.
#[derive(Debug)]
pub(super) struct Evaluation<'a> {
    text: String,
    text_path: &'a Path,
    windows: &'a Windows,
    device: Device,
    results: Vec<Measurement>,
}

/// The perplexity of a model.
#[derive(Debug)]
struct Measurement {
    path: String,
    /// Bytes and elements of the tensors.
    bytes: u64,
    elements: u64,
    ids: Vec<u32>,
    options: PerplexityOptions,
    perplexity: Perplexity,
    time: Duration,
}

impl<'a> Evaluation<'a> {
    /// Reads the text.
    ///
    /// # Errors
    /// When the text cannot be read, is not UTF-8 or too long, or there is no such device.
    pub(super) fn new(text_path: &'a Path, windows: &'a Windows) -> Result<Self, String> {
        let device = devices::open(windows.device.as_deref().unwrap_or("cpu"), windows.threads.unwrap_or(0))?;
        Ok(Evaluation { text: read_text(text_path)?, text_path, windows, device, results: Vec::new() })
    }

    /// Evaluates a model, in `f32`. Quantised weights stay quantised.
    ///
    /// # Errors
    /// When it is no language model with a tokenizer, the text is too short, or a window does not fit in its context.
    pub(super) fn evaluate(&mut self, path: &Path) -> Result<(), String> {
        let name = printable(&path.display().to_string());
        let failed = |error: &dyn std::fmt::Display| format!("cannot evaluate {name}: {error}");
        let weights = Weights::open(path).map_err(|error| failed(&error))?;
        let (bytes, elements) = size(&weights);
        let options = OpenOptions::new().with_dtype(Some(DType::F32));
        let model_path = model_path(path, &weights);
        let model = PretrainedLanguageModel::<Dyn>::open_with(&model_path, &options, &self.device);
        let model = model.map_err(|error| failed(&error))?;
        let mut ids = model.tokenizer.encode(&self.text, true).map_err(|error| failed(&error))?;
        ids.truncate(self.windows.max_tokens.unwrap_or(usize::MAX));
        if ids.len() < 2 {
            let text = printable(&self.text_path.display().to_string());
            let problem = format!("{text} has {} tokens, and a perplexity needs 2", ids.len());
            return Err(format!("{}\n  hint: use a text of some thousand words", failed(&problem)));
        }
        let options = self.windows.options(model.model.max_length());
        let progress = Progress::of_tokens(ids.len(), &name);
        let started = Instant::now();
        let perplexity =
            perplexity_with_progress(&model.model, &ids, &options, |covered| progress.reach(covered));
        let time = started.elapsed();
        progress.finish();
        let perplexity = perplexity.map_err(|error| failed(&error))?;
        self.results.push(Measurement { path: name, bytes, elements, ids, options, perplexity, time });
        Ok(())
    }

    /// A table of the results. The ratio is that to the first model.
    pub(super) fn report(&self) -> String {
        let titles = [
            "model",
            "bytes",
            "bits per weight",
            "perplexity",
            "tokens",
            "window",
            "stride",
            "ratio",
            "time",
        ];
        let mut rows = vec![titles.map(str::to_owned).to_vec()];
        let Some(first) = self.results.first() else { return String::new() };
        rows.extend(self.results.iter().map(|result| result.row(first)));
        let mut text = columns(&rows);
        for result in self.results.iter().filter(|result| !result.is_comparable(first)) {
            text += &format!(
                "{} has no ratio: its tokens or windows differ from those of {}\n",
                result.path, first.path
            );
        }
        text
    }
}

impl Measurement {
    fn row(&self, first: &Measurement) -> Vec<String> {
        let (value, error) = (self.perplexity.value(), self.perplexity.standard_error());
        let ratio = match self.is_comparable(first) {
            true => format!("{:.4}", value / first.perplexity.value()),
            false => "-".to_owned(),
        };
        vec![
            self.path.clone(),
            grouped(self.bytes),
            format!("{:.2}", self.bytes as f64 * 8.0 / self.elements.max(1) as f64),
            format!("{value:.4} ± {error:.4}"),
            grouped(self.perplexity.losses.len() as u64),
            self.options.window.to_string(),
            self.options.stride.to_string(),
            ratio,
            format!("{:.1} s", self.time.as_secs_f64()),
        ]
    }

    /// Perplexities of different tokens do not compare.
    fn is_comparable(&self, other: &Measurement) -> bool {
        self.ids == other.ids && self.options == other.options
    }
}

/// The bytes and elements of the tensors.
fn size(weights: &Weights) -> (u64, u64) {
    let infos = weights.names().into_iter().filter_map(|name| weights.info(name));
    infos.fold((0, 0), |(bytes, elements), info| {
        let count = info.shape.checked_num_elements().unwrap_or(0) as u64;
        (u64::saturating_add(bytes, info.num_bytes().unwrap_or(0)), u64::saturating_add(elements, count))
    })
}

/// The path by which a language model opens: for a file of weights in a folder with `config.json`, the folder.
fn model_path(path: &Path, weights: &Weights) -> PathBuf {
    let is_complete = path.is_dir() || weights.format() == WeightFormat::Gguf;
    let folder = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return path.to_owned(),
    };
    if is_complete || !folder.join("config.json").is_file() {
        return path.to_owned();
    }
    // The folder may contain several files of weights, and opens by one of them.
    let is_opened_file = Weights::open(folder)
        .is_ok_and(|opened| opened.path().canonicalize().ok() == path.canonicalize().ok());
    if is_opened_file { folder.to_owned() } else { path.to_owned() }
}

/// Reads a text in UTF-8.
fn read_text(path: &Path) -> Result<String, String> {
    let name = printable(&path.display().to_string());
    let failed = |error: std::io::Error| {
        format!("cannot read {name}: {}", kiln_ir::read_error(path, &error, "a text in UTF-8"))
    };
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(MAX_TEXT + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_TEXT {
        return Err(format!("{name} is longer than 16 MiB\n  hint: evaluate a part of it"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        format!("{name}: byte {offset} is not UTF-8\n  hint: a perplexity needs plain text in UTF-8")
    })
}
