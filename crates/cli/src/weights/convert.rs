//! Conversion between formats.

use std::fs;
use std::path::{Path, PathBuf};

use kiln_store::gguf::{self, GgufFile, Metadata};
use kiln_store::{SaveOptions, StoreError, WeightFormat, Weights};
use kiln_tensor::DType;
use serde_json::Value;

use super::info::grouped;
use super::progress::Progress;
use crate::table::printable;

/// A conversion.
pub(super) struct Conversion<'a> {
    pub(super) weights: Weights,
    /// The path that the user named.
    pub(super) input: &'a Path,
    pub(super) dtype: Option<DType>,
    pub(super) max_shard_size: Option<u64>,
}

impl Conversion<'_> {
    /// Writes the output and returns a line about it.
    pub(super) fn write(&self, output: &Path) -> Result<String, String> {
        let is_gguf = output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
        if self.max_shard_size.is_some() && output.extension().is_some() && !output.is_dir() {
            return Err("--max-shard-size needs a folder as OUTPUT: a path without an extension".to_owned());
        }
        let mut options = SaveOptions::new();
        if let Some(dtype) = self.dtype {
            options = options.dtype(dtype);
        }
        if let Some(bytes) = self.max_shard_size {
            options = options.max_shard_bytes(bytes);
        }
        let progress = Progress::new(self.weights.len());
        let weights = progress.watch(self.weights.clone());
        let written = match is_gguf {
            true => write_gguf(&weights, self.input, output, &options, self.dtype),
            false => weights.save(output, &options).map_err(|error| error.to_string()),
        };
        progress.finish();
        written?;
        Ok(summary(output, self.weights.len()))
    }
}

/// A line about the output.
pub(super) fn summary(output: &Path, tensors: usize) -> String {
    let bytes = fs::metadata(output).ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len());
    let size = bytes.map_or(String::new(), |bytes| format!(", {} bytes", grouped(bytes)));
    format!("{}: {tensors} tensors{size}\n", printable(&output.display().to_string()))
}

/// Writes a GGUF file: of a GGUF file with its metadata, of a Hugging Face model with those of its configuration, of
/// others without.
pub(super) fn write_gguf(
    weights: &Weights,
    input: &Path,
    output: &Path,
    options: &SaveOptions,
    dtype: Option<DType>,
) -> Result<(), String> {
    let failed = |error: StoreError| error.to_string();
    match Origin::of(weights, input)? {
        Origin::HuggingFace { config, metadata } => {
            let tensors = gguf::export(weights.source(), &metadata, &config, dtype).map_err(failed)?;
            gguf::save(output, &metadata, tensors).map_err(failed)
        }
        Origin::Gguf(metadata) => weights.save_gguf(output, &metadata, options).map_err(failed),
        Origin::Other => weights.save(output, options).map_err(failed),
    }
}

/// Where weights come from.
pub(super) enum Origin {
    /// A model of Hugging Face with its configuration, and the metadata for llama.cpp.
    HuggingFace { config: Value, metadata: Metadata },
    /// A GGUF file with its metadata.
    Gguf(Metadata),
    /// Neither.
    Other,
}

impl Origin {
    /// Finds the configuration beside the weights.
    pub(super) fn of(weights: &Weights, input: &Path) -> Result<Origin, String> {
        let failed = |error: StoreError| error.to_string();
        if weights.format() == WeightFormat::Gguf {
            let file = GgufFile::open(weights.path()).map_err(failed)?;
            return Ok(Origin::Gguf(file.metadata().clone()));
        }
        let folder = if input.is_dir() { Some(input) } else { input.parent() };
        let Some(folder) = folder else { return Ok(Origin::Other) };
        let Some(config) = json(&folder.join("config.json"))? else { return Ok(Origin::Other) };
        if config.get("model_type").is_none() {
            return Ok(Origin::Other);
        }
        let mut metadata = gguf::metadata_from_config(&config)
            .map_err(|error| format!("{}: {error}", folder.join("config.json").display()))?;
        if let Some(tokenizer) = json(&folder.join("tokenizer.json"))? {
            let tokenizer_config = json(&folder.join("tokenizer_config.json"))?;
            let tokenizer = gguf::tokenizer_metadata(&tokenizer, tokenizer_config.as_ref(), None)
                .map_err(|error| format!("{}: {error}", folder.join("tokenizer.json").display()))?;
            metadata.extend(tokenizer);
        }
        Ok(Origin::HuggingFace { config, metadata })
    }
}

/// Reads a JSON file; `None` if there is none.
fn json(path: &PathBuf) -> Result<Option<Value>, String> {
    if !path.is_file() {
        return Ok(None);
    }
    let text =
        fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    serde_json::from_str(&text).map(Some).map_err(|error| format!("{}: {error}", path.display()))
}
