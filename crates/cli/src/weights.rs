//! `kiln weights`: shows, compares, converts, quantises and evaluates files of weights.

mod convert;
mod diff;
mod info;
mod perplexity;
mod progress;
mod quantize;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use kiln_store::gguf::{GgufFile, HuggingFaceGguf};
use kiln_store::{Mapping, StoreError, WeightFormat, Weights};
use kiln_tensor::{BlockFormat, DType};

use perplexity::{Evaluation, Windows};

/// Options of `kiln weights`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the tensors of a file or a folder, with their types, sizes and metadata.
    Info {
        /// A file of any format, or a folder with a model.
        file: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        names: Names,
    },
    /// Compare two files. The status is 1 if they differ.
    Diff {
        /// A file of any format, or a folder with a model.
        left: PathBuf,
        /// The other one.
        right: PathBuf,
        /// The greatest absolute difference of equal elements.
        #[arg(long, default_value_t = 0.0)]
        tolerance: f64,
        /// Rules for the names of both files.
        #[command(flatten)]
        names: Names,
    },
    /// Convert a file to another format, by the extension of OUTPUT.
    ///
    /// `.safetensors`, `.pt`, `.pth`, `.bin`, `.npz` and `.gguf` are files. OUTPUT without an extension is a folder of
    /// safetensors files. A folder of Hugging Face with `config.json` becomes a GGUF file that llama.cpp reads.
    Convert {
        /// A file of any format, or a folder with a model.
        input: PathBuf,
        /// The file or folder, which is replaced atomically.
        output: PathBuf,
        /// Cast floats: f64, f32, f16 or bf16.
        #[arg(long, value_parser = dtype)]
        dtype: Option<DType>,
        /// The size limit of a file in a folder, such as 2GB or 500MB.
        #[arg(long, value_name = "SIZE", value_parser = size)]
        max_shard_size: Option<u64>,
        #[command(flatten)]
        names: Names,
    },
    /// Quantise the matrices of a model to a GGUF file.
    ///
    /// Matrices whose rows consist of whole blocks are quantised, round-to-nearest; other tensors stay as they are. A
    /// folder of Hugging Face with `config.json` becomes a file that llama.cpp reads.
    ///
    /// With --perplexity, both models predict a text, and a table compares them; see `kiln weights perplexity`.
    Quantize {
        /// A file of any format, or a folder with a model.
        input: PathBuf,
        /// The GGUF file, which is replaced atomically.
        output: PathBuf,
        /// The format: q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, q8_k, iq4_nl or iq4_xs.
        #[arg(long, value_parser = block_format)]
        format: BlockFormat,
        /// Keep tensors whose names match this pattern.
        #[arg(long, value_name = "PATTERN")]
        keep: Vec<String>,
        /// Quantise tensors that are quantised in another format already.
        #[arg(long)]
        requantize: bool,
        /// Compare the perplexities of INPUT and OUTPUT on this text, a file in UTF-8.
        #[arg(long, value_name = "TEXT")]
        perplexity: Option<PathBuf>,
        #[command(flatten)]
        windows: Windows,
        #[command(flatten)]
        names: Names,
    },
    /// Compare the perplexities of language models on a text.
    ///
    /// The perplexity is the exponential of the mean negative log likelihood of the tokens of the text: lower is better.
    /// It is computed in windows. Each token is predicted once, from the tokens before it in the first window that
    /// contains it; the first token of a window without overlap is not predicted. Weights of 16 bits are computed in
    /// f32, quantised weights as they are. The ratio is that to the first model, for models with equal tokens.
    Perplexity {
        /// GGUF files, or folders of Hugging Face with a tokenizer.
        #[arg(required = true)]
        models: Vec<PathBuf>,
        /// The text, a file in UTF-8 of at most 16 MiB.
        #[arg(long)]
        text: PathBuf,
        #[command(flatten)]
        windows: Windows,
    },
}

/// Rules for the names of tensors.
#[derive(Debug, Default, Args)]
struct Names {
    /// Rename tensors whose names match a pattern, such as `encoder.layer.*.**=layers.$1.$2`: `*` is any text within a
    /// component, `**` any number of components, `{weight,bias}` one of several texts, and `$1` the text of the first of
    /// these. Applies after --preset, in order.
    #[arg(long, value_name = "PATTERN=REPLACEMENT", value_parser = renaming)]
    rename: Vec<(String, String)>,
    /// Keep only tensors whose names, after renaming, match one of these patterns.
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,
    /// Leave out tensors whose names, after renaming, match.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Transpose matrices whose names, after renaming, match.
    #[arg(long, value_name = "PATTERN")]
    transpose: Vec<String>,
    /// The conventions of a framework for names and layouts.
    #[arg(long, value_enum)]
    preset: Option<Preset>,
}

/// The conventions of a framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Preset {
    Pytorch,
    /// Also the names of Hugging Face for a GGUF file.
    HuggingFace,
    Burn,
    Flax,
}

/// The result of a command.
pub(crate) struct Outcome {
    /// The text to print.
    pub(crate) text: String,
    /// Whether a comparison found differences.
    pub(crate) differs: bool,
}

/// Runs a command.
///
/// # Errors
/// When a file cannot be read or written, or an option is invalid.
pub(crate) fn run(options: Options) -> Result<Outcome, String> {
    let failed = |error: StoreError| error.to_string();
    let done = |text: String| Outcome { text, differs: false };
    match options.command {
        Command::Info { file, json, names } => {
            let weights = open(&file, &names).map_err(failed)?;
            Ok(done(if json { info::json(&weights) } else { info::table(&weights) }))
        }
        Command::Diff { left, right, tolerance, names } => {
            let (left, unmatched) = mapped(&left, &names).map_err(failed)?;
            let (right, of_right) = mapped(&right, &names).map_err(failed)?;
            // A rule may be for one of the files.
            warn(&unmatched.into_iter().filter(|rule| of_right.contains(rule)).collect::<Vec<String>>());
            diff::diff(&left, &right, tolerance).map_err(failed)
        }
        Command::Convert { input, output, dtype, max_shard_size, names } => {
            let weights = open(&input, &names).map_err(failed)?;
            let conversion = convert::Conversion { weights, input: &input, dtype, max_shard_size };
            conversion.write(&output).map(done)
        }
        Command::Quantize { input, output, format, keep, requantize, perplexity, windows, names } => {
            let weights = open(&input, &names).map_err(failed)?;
            let quantization = quantize::Quantization { weights, input: &input, format, keep, requantize };
            let written = match &perplexity {
                Some(text) => quantization.write_and_evaluate(&output, Evaluation::new(text, &windows)?),
                None => windows.refuse().and_then(|()| quantization.write(&output)),
            };
            written.map(done)
        }
        Command::Perplexity { models, text, windows } => {
            let mut evaluation = Evaluation::new(&text, &windows)?;
            models.iter().try_for_each(|model| evaluation.evaluate(model))?;
            Ok(done(evaluation.report()))
        }
    }
}

/// Opens a file under the names of the rules, and warns of rules that match nothing.
fn open(path: &Path, names: &Names) -> Result<Weights, StoreError> {
    let (weights, unmatched) = mapped(path, names)?;
    warn(&unmatched);
    Ok(weights)
}

/// A file under the names of the rules, and the rules that match nothing.
fn mapped(path: &Path, names: &Names) -> Result<(Weights, Vec<String>), StoreError> {
    let weights = Weights::open(path)?;
    let (weights, mapping) = match (names.preset, weights.format()) {
        (Some(Preset::HuggingFace), WeightFormat::Gguf) => {
            let renamed = HuggingFaceGguf::new(GgufFile::open(weights.path())?)?;
            (Weights::from_source(renamed), names.rules()?)
        }
        _ => (weights, names.preset().then(names.rules()?)),
    };
    Ok((weights.mapped(&mapping)?, mapping.unmatched(&weights)?))
}

fn warn(unmatched: &[String]) {
    for rule in unmatched {
        eprintln!("kiln: no tensor matches the rule: {rule}");
    }
}

impl Names {
    fn preset(&self) -> Mapping {
        match self.preset {
            None => Mapping::new(),
            Some(Preset::Pytorch) => Mapping::pytorch(),
            Some(Preset::HuggingFace) => Mapping::hugging_face(),
            Some(Preset::Burn) => Mapping::burn(),
            Some(Preset::Flax) => Mapping::flax(),
        }
    }

    fn rules(&self) -> Result<Mapping, StoreError> {
        let mut mapping = Mapping::new();
        for (pattern, replacement) in &self.rename {
            mapping = mapping.rename(pattern, replacement)?;
        }
        for pattern in &self.include {
            mapping = mapping.include(pattern)?;
        }
        for pattern in &self.exclude {
            mapping = mapping.exclude(pattern)?;
        }
        for pattern in &self.transpose {
            mapping = mapping.transpose(pattern)?;
        }
        Ok(mapping)
    }
}

fn renaming(text: &str) -> Result<(String, String), String> {
    match text.rsplit_once('=') {
        Some((pattern, replacement)) => Ok((pattern.to_owned(), replacement.to_owned())),
        None => Err("expected PATTERN=REPLACEMENT".to_owned()),
    }
}

fn dtype(text: &str) -> Result<DType, String> {
    let floats = DType::ALL.into_iter().filter(|dtype| dtype.is_float());
    let found = floats.into_iter().find(|dtype| dtype.name().eq_ignore_ascii_case(text));
    found.ok_or_else(|| "expected f64, f32, f16 or bf16".to_owned())
}

fn block_format(text: &str) -> Result<BlockFormat, String> {
    BlockFormat::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = BlockFormat::ALL.iter().map(|format| format.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// A number of bytes with a decimal unit, as in Hugging Face: `5GB`.
fn size(text: &str) -> Result<u64, String> {
    let upper = text.trim().to_uppercase();
    let units = [("KB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("B", 1), ("", 1)];
    let parsed = units.iter().find_map(|(unit, factor)| {
        let number: u64 = upper.strip_suffix(unit)?.trim().parse().ok()?;
        number.checked_mul(*factor)
    });
    parsed.filter(|bytes| *bytes > 0).ok_or_else(|| "expected a size such as 2GB or 500MB".to_owned())
}
