//! Quantisation to GGUF.

use std::path::Path;

use kiln_nn::Pattern;
use kiln_store::gguf::{self, ElementType};
use kiln_store::{Mapping, SaveOptions, StoreError, TensorInfo, Weights};
use kiln_tensor::{BlockFormat, DType};

use super::convert::{Origin, summary, write_gguf};
use super::perplexity::Evaluation;
use super::progress::Progress;

/// A quantisation.
pub(super) struct Quantization<'a> {
    pub(super) weights: Weights,
    /// The path that the user named.
    pub(super) input: &'a Path,
    pub(super) format: BlockFormat,
    /// Patterns of the names of tensors that stay as they are.
    pub(super) keep: Vec<String>,
    /// Whether tensors in other block formats are quantised again.
    pub(super) requantize: bool,
}

impl Quantization<'_> {
    /// Writes the output and returns a line about it.
    pub(super) fn write(&self, output: &Path) -> Result<String, String> {
        check_extension(output)?;
        let failed = |error: StoreError| error.to_string();
        let choice = self.choice()?;
        // Blocks are along the inputs of a layer.
        let layout = match choice.architecture.as_deref() {
            Some("gpt2") => Mapping::new().transpose_conv1d(),
            Some(_) | None => Mapping::new(),
        };
        let weights = self.weights.mapped(&layout).map_err(failed)?;
        let quantized = weights.quantized(move |name, info| choice.format(name, info)).map_err(failed)?;
        let count = |weights: &Weights| {
            let blocks = |name: &&str| weights.info(name).is_some_and(|info| info.blocks.is_some());
            weights.names().iter().filter(|name| blocks(name)).count()
        };
        let progress = Progress::new(quantized.len());
        let watched = progress.watch(quantized.clone());
        let written = write_gguf(&watched, self.input, output, &SaveOptions::new(), None);
        progress.finish();
        written?;
        let line = summary(output, quantized.len());
        Ok(format!("{}, {} quantised to {}\n", line.trim_end(), count(&quantized), self.format.name()))
    }

    /// Writes the output between the evaluations of both models, and returns their perplexities.
    pub(super) fn write_and_evaluate(
        &self,
        output: &Path,
        mut evaluation: Evaluation<'_>,
    ) -> Result<String, String> {
        check_extension(output)?;
        evaluation.evaluate(self.input)?;
        let line = self.write(output)?;
        evaluation.evaluate(output).map_err(|error| format!("{line}{error}"))?;
        Ok(format!("{line}\n{}", evaluation.report()))
    }

    fn choice(&self) -> Result<Choice, String> {
        let architecture = match Origin::of(&self.weights, self.input)? {
            Origin::HuggingFace { metadata, .. } => {
                Some(metadata.str("general.architecture").unwrap_or_default().to_owned())
            }
            Origin::Gguf(_) | Origin::Other => None,
        };
        let keep = self.keep.iter().map(|text| self.kept(text)).collect::<Result<Vec<Pattern>, String>>()?;
        Ok(Choice { format: self.format, keep, requantize: self.requantize, architecture })
    }

    /// Parses a pattern of `--keep`, which must match a tensor.
    fn kept(&self, text: &str) -> Result<Pattern, String> {
        let pattern = Pattern::new(text).map_err(|error| format!("--keep: {error}"))?;
        let names = self.weights.names();
        if names.iter().any(|name| pattern.matches(name)) {
            return Ok(pattern);
        }
        let near = pattern.near(names).join("`, `");
        Err(format!("--keep: no tensor matches `{pattern}`\n  hint: near names: `{near}`"))
    }
}

fn check_extension(output: &Path) -> Result<(), String> {
    match output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf")) {
        true => Ok(()),
        false => Err(format!("{}: quantised weights are written to .gguf files", output.display())),
    }
}

/// Decides which tensors are quantised.
struct Choice {
    format: BlockFormat,
    keep: Vec<Pattern>,
    requantize: bool,
    /// The architecture in llama.cpp, for names of Hugging Face.
    architecture: Option<String>,
}

impl Choice {
    /// The format of a tensor; `None` keeps it.
    fn format(&self, name: &str, info: &TensorInfo) -> Option<BlockFormat> {
        let is_matrix = info.shape.rank() == 2 && info.dtype.is_some_and(DType::is_float);
        let is_kept = self.keep.iter().any(|pattern| pattern.matches(name));
        if !is_matrix || is_kept || info.blocks.is_some() && !self.requantize {
            return None;
        }
        let stored =
            self.architecture.as_deref().and_then(|architecture| gguf::gguf_name(architecture, name));
        let stored = stored.as_deref().unwrap_or(name);
        match gguf::export_type(stored, &info.shape, ElementType::Blocks(self.format)) {
            ElementType::Blocks(format) if format == self.format => Some(format),
            ElementType::Blocks(_) | ElementType::Plain(_) => None,
        }
    }
}
