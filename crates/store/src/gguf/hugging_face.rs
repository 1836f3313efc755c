//! GGUF files under the names and in the layout of Hugging Face's checkpoints, and the inverse.

use std::collections::BTreeMap;
use std::path::Path;

use kiln_tensor::{BlockFormat, DType, Shape};
use serde_json::Value;

use super::layout::{Conversion, conversion, needs_f32};
use super::names::{self, gguf_name, hugging_face_name};
use super::rope::{ROPE_FACTORS, rope_factors};
use super::{ElementType, GgufFile, GgufTensor, Metadata};
use crate::error::{Result, StoreError};
use crate::names::closest;
use crate::source::{TensorContents, TensorInfo, TensorSource, WeightFormat};

/// A GGUF file as a source of tensors with the names, shapes and elements of Hugging Face's checkpoints.
///
/// Rows of query and key projections, scales of Gemma's norms and the matrices of GPT-2 are [converted](Conversion).
/// Quantised matrices of GPT-2 are dequantised for that, unless [`transpose`](HuggingFaceGguf::transpose) is off.
///
/// ```no_run
/// use kiln_store::TensorSource;
/// use kiln_store::gguf::{self, GgufFile, HuggingFaceGguf};
///
/// let file = GgufFile::open("SmolLM2-135M-Instruct.Q4_1.gguf")?;
/// let config = gguf::config(&file)?;
/// let weights = HuggingFaceGguf::new(file)?;
/// let query = weights.contents("model.layers.0.self_attn.q_proj.weight")?;
/// # Ok::<(), kiln_store::StoreError>(())
/// ```
#[derive(Debug)]
pub struct HuggingFaceGguf {
    file: GgufFile,
    /// Names in checkpoints and in GGUF, in the order of the file.
    names: Vec<(String, String)>,
    /// Index into `names` of each name in checkpoints.
    places: BTreeMap<String, usize>,
    left_out: Vec<String>,
    transpose: bool,
}

impl HuggingFaceGguf {
    /// Wraps a file.
    ///
    /// # Errors
    /// When the architecture is not one of [`hugging_face_name`].
    pub fn new(file: GgufFile) -> Result<HuggingFaceGguf> {
        let architecture = file.architecture().unwrap_or_default();
        if names::architecture(architecture).is_none() {
            let problem = format!(
                "the architecture `{}` is not supported; supported: {}",
                architecture.escape_debug(),
                names::supported()
            );
            return Err(StoreError::malformed(file.path(), 0, problem));
        }
        let (mut names, mut left_out) = (Vec::new(), Vec::new());
        for name in file.names() {
            match hugging_face_name(architecture, name) {
                Some(translated) => names.push((translated, name.to_owned())),
                None => left_out.push(name.to_owned()),
            }
        }
        let places = names.iter().enumerate().map(|(place, (name, _))| (name.clone(), place)).collect();
        Ok(HuggingFaceGguf { file, names, places, left_out, transpose: true })
    }

    /// Sets whether the matrices of GPT-2, which GGUF stores as `[outputs, inputs]`, are transposed to the
    /// `[inputs, outputs]` of its checkpoints. Otherwise quantised matrices stay quantised. Default: yes.
    #[must_use]
    pub fn transpose(mut self, transpose: bool) -> HuggingFaceGguf {
        self.transpose = transpose;
        self
    }

    /// Returns the file.
    pub fn file(&self) -> &GgufFile {
        &self.file
    }

    /// Returns the names in GGUF of tensors that checkpoints do not have, such as `rope_freqs.weight`.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    fn stored_name(&self, name: &str) -> Option<&str> {
        self.places.get(name).map(|&place| self.names[place].1.as_str())
    }

    fn conversion(&self, stored: &str) -> Conversion {
        let conversion = conversion(self.file.metadata(), stored);
        let stays = conversion == Conversion::Transposed && !self.transpose;
        if stays { Conversion::None } else { conversion }
    }
}

impl TensorSource for HuggingFaceGguf {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn format(&self) -> WeightFormat {
        WeightFormat::Gguf
    }

    fn names(&self) -> Vec<&str> {
        self.names.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn info(&self, name: &str) -> Option<TensorInfo> {
        let stored = self.stored_name(name)?;
        let info = self.file.info(stored)?;
        let conversion = self.conversion(stored);
        let shape = conversion.shape(info.shape);
        if info.blocks.is_none() || conversion.keeps_blocks() {
            return Some(TensorInfo { shape, ..info });
        }
        let dtype = DType::F32;
        Some(TensorInfo { shape, dtype: Some(dtype), dtype_name: dtype.name().to_uppercase(), blocks: None })
    }

    fn contents(&self, name: &str) -> Result<TensorContents> {
        let Some(stored) = self.stored_name(name) else {
            return Err(StoreError::NotFound {
                file: self.path().to_owned(),
                name: name.to_owned(),
                suggestion: closest(name, self.places.keys().map(String::as_str)).map(str::to_owned),
            });
        };
        let blocks = self.file.info(stored).and_then(|info| info.blocks);
        let contents = self.file.contents(stored)?;
        let converted = self.conversion(stored).from_gguf(contents, blocks);
        converted
            .map_err(|error| StoreError::malformed(self.path(), 0, format!("tensor `{stored}`: {error}")))
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        TensorSource::metadata(&self.file)
    }
}

/// Returns the type in which a tensor is written to a GGUF file, if `wanted` is that of the large matrices.
///
/// llama.cpp needs tensors of one dimension and the embeddings of positions in `f32`. Where rows do not consist of whole
/// blocks, the type is `Q8_0` (rows of a multiple of 32 elements) or `f16`.
pub fn export_type(name: &str, shape: &Shape, wanted: ElementType) -> ElementType {
    if needs_f32(name, shape) {
        return ElementType::Plain(DType::F32);
    }
    let row = shape.last().copied().unwrap_or(1);
    match wanted {
        ElementType::Blocks(format) if !row.is_multiple_of(format.len()) => {
            if row.is_multiple_of(BlockFormat::Q8_0.len()) {
                ElementType::Blocks(BlockFormat::Q8_0)
            } else {
                ElementType::Plain(DType::F16)
            }
        }
        ElementType::Blocks(_) | ElementType::Plain(_) => wanted,
    }
}

/// Returns the tensors of a Hugging Face checkpoint for [`save`](super::save), with the names, order of rows and dtypes
/// of llama.cpp. They are read while the file is written.
///
/// `config` is the checkpoint's `config.json` and `metadata` the result of
/// [`metadata_from_config`](super::metadata_from_config). Matrices are cast to `dtype`; `None` keeps their dtype. Tensors
/// of one dimension are `f32`. Quantised blocks stay as they are. Tied output weights, masks, position ids and the pooling
/// layer of BERT are left out, as in llama.cpp. The matrices of GPT-2 may be `[inputs, outputs]`, as in Hugging Face's
/// files, or `[outputs, inputs]`, as in a module of Kiln; quantised ones must be the latter.
///
/// ```no_run
/// use kiln_store::{ShardedFile, gguf};
/// use kiln_tensor::DType;
///
/// let config = serde_json::from_str(&std::fs::read_to_string("SmolLM2/config.json")?)?;
/// let tokenizer = serde_json::from_str(&std::fs::read_to_string("SmolLM2/tokenizer.json")?)?;
/// let weights = ShardedFile::open("SmolLM2")?;
/// let mut metadata = gguf::metadata_from_config(&config)?;
/// metadata.extend(gguf::tokenizer_metadata(&tokenizer, None, None)?);
/// gguf::save("smollm2.gguf", &metadata, gguf::export(&weights, &metadata, &config, Some(DType::F16))?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When GGUF has no place for a tensor, Kiln does not support its dtype, or its quantised blocks would need to be
/// transposed.
pub fn export<'a>(
    source: &'a dyn TensorSource,
    metadata: &Metadata,
    config: &Value,
    dtype: Option<DType>,
) -> Result<Vec<(String, GgufTensor<'a>)>> {
    let architecture = metadata.str("general.architecture").unwrap_or_default();
    let tied = config.get("tie_word_embeddings").and_then(Value::as_bool);
    let tied = tied.unwrap_or(matches!(architecture, "gpt2" | "gemma" | "gemma2" | "gemma3"));
    let has_output_rows = has_output_rows(source);
    let mut tensors = Vec::new();
    for name in source.names() {
        if is_left_out(name) || tied && name.ends_with("lm_head.weight") {
            continue;
        }
        let Some(stored) = gguf_name(architecture, name) else {
            return Err(StoreError::InvalidArgument {
                argument: format!("{}: tensor `{name}`", source.path().display()),
                problem: format!("the architecture `{architecture}` of llama.cpp has no such tensor"),
            });
        };
        let mut conversion = conversion(metadata, &stored);
        if conversion == Conversion::Transposed && has_output_rows {
            conversion = Conversion::None;
        }
        tensors.push((stored.clone(), tensor(source, name, &stored, conversion, dtype)?));
    }
    if let Some(factors) = rope_factors(config) {
        tensors.push((ROPE_FACTORS.to_owned(), factors.into()));
    }
    Ok(tensors)
}

fn tensor<'a>(
    source: &'a dyn TensorSource,
    name: &str,
    stored: &str,
    conversion: Conversion,
    dtype: Option<DType>,
) -> Result<GgufTensor<'a>> {
    let info = source.info(name).ok_or_else(|| StoreError::NotFound {
        file: source.path().to_owned(),
        name: name.to_owned(),
        suggestion: None,
    })?;
    let Some(own) = info.dtype else {
        return Err(StoreError::UnsupportedDType {
            file: source.path().to_owned(),
            name: name.to_owned(),
            dtype: info.dtype_name,
        });
    };
    let shape = conversion.shape(info.shape);
    let name = name.to_owned();
    if let Some(format) = info.blocks {
        if !conversion.keeps_blocks() {
            return Err(StoreError::InvalidArgument {
                argument: format!("{}: tensor `{name}`", source.path().display()),
                problem: format!(
                    "its blocks of {} are not along the rows of GGUF\n  hint: apply `Mapping::transpose_conv1d` before \
                     the weights are quantised",
                    format.name()
                ),
            });
        }
        let contents = move || conversion.to_gguf(source.contents(&name)?, Some(format));
        return Ok(GgufTensor::deferred(ElementType::Blocks(format), shape, contents));
    }
    let wanted = if own.is_float() { dtype.unwrap_or(own) } else { own };
    let element = export_type(stored, &shape, ElementType::Plain(wanted));
    let contents = move || {
        let contents = conversion.to_gguf(source.contents(&name)?, None)?;
        if contents.ty().dtype == element.dtype() {
            return Ok(contents);
        }
        let data = contents.into_data();
        let data = data
            .map_err(|error| StoreError::malformed(source.path(), 0, format!("tensor `{name}`: {error}")))?;
        Ok(TensorContents::Host(data.convert(element.dtype())))
    };
    Ok(GgufTensor::deferred(element, shape, contents))
}

/// Whether a checkpoint has the matrices of GPT-2 as `[outputs, inputs]`. The projection of queries, keys and values tells:
/// it has three outputs for each input.
fn has_output_rows(source: &dyn TensorSource) -> bool {
    let name = source.names().into_iter().find(|name| name.ends_with(".c_attn.weight"));
    let info = name.and_then(|name| source.info(name));
    info.is_some_and(|info| matches!(&*info.shape, &[rows, columns] if columns.checked_mul(3) == Some(rows)))
}

/// Whether a tensor of a checkpoint is no weight that llama.cpp uses: masks, frequencies of rotary embeddings, position
/// ids, and the pooling and pre-training layers of BERT.
fn is_left_out(name: &str) -> bool {
    const ENDINGS: &[&str] = &[".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq", "position_ids"];
    const STARTS: &[&str] = &["pooler.", "bert.pooler.", "cls."];
    ENDINGS.iter().any(|ending| name.ends_with(ending)) || STARTS.iter().any(|start| name.starts_with(start))
}
