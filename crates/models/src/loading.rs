//! Loading of models from files of weights.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use kiln_nn::Module;
use kiln_store::{DTypePolicy, LoadOptions, Weights, load_module_from};
use kiln_tensor::DType;

use crate::error::{ModelError, Result};
use crate::hugging_face::unsupported;

/// Settings of loading; see [`PretrainedLanguageModel::open_with`](crate::PretrainedLanguageModel::open_with).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// The dtype of parameters and activations. Default: that of the embeddings in the file, or `f32` if they are
    /// quantised.
    pub dtype: Option<DType>,
    /// Whether to expand quantised weights to the dtype, instead of multiplying them as they are. Default: no.
    pub dequantize: bool,
}

impl OpenOptions {
    /// Returns the default settings.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Sets the dtype of parameters and activations.
    #[must_use]
    pub fn with_dtype(mut self, dtype: Option<DType>) -> OpenOptions {
        self.dtype = dtype;
        self
    }

    /// Sets whether to expand quantised weights.
    #[must_use]
    pub fn with_dequantize(mut self, dequantize: bool) -> OpenOptions {
        self.dequantize = dequantize;
        self
    }

    /// Returns the dtype of a model, by that of its embeddings.
    ///
    /// # Errors
    /// When the dtype of the options is not a float dtype.
    pub(crate) fn dtype_of(&self, weights: &Weights, embeddings: &str) -> Result<DType> {
        if let Some(dtype) = self.dtype {
            let error = || unsupported("dtype", &dtype.to_string(), "float dtypes");
            return dtype.is_float().then_some(dtype).ok_or_else(error);
        }
        let stored = stored_name(weights, embeddings).and_then(|name| weights.info(name));
        let plain = stored.filter(|info| info.blocks.is_none()).and_then(|info| info.dtype);
        Ok(plain.filter(|dtype| dtype.is_float()).unwrap_or(DType::F32))
    }
}

/// Limit on the length of a JSON file of settings.
const MAX_JSON: u64 = 16 << 20;

/// Reads the `config.json` of a folder.
pub(crate) fn configuration(folder: &Path) -> Result<String> {
    let path = folder.join("config.json");
    optional_json(&path)?.ok_or_else(|| ModelError::Missing {
        path,
        problem: "there is no such file".to_owned(),
        hint: "pass the folder of a Hugging Face model".to_owned(),
    })
}

/// Reads the configuration of a Hugging Face folder by `read`, and opens its weights.
pub(crate) fn open_folder<C>(folder: &Path, read: fn(&str) -> Result<C>) -> Result<(C, Weights)> {
    Ok((read(&configuration(folder)?)?, Weights::open(folder)?))
}

/// Loads a module from a file without configuration. Parameters keep the dtype of the file.
pub(crate) fn load_file<M: Module>(module: M, path: &Path) -> Result<M> {
    load(module, &Weights::open(path)?, DTypePolicy::Keep)
}

/// Reads a JSON file; `None` if there is none.
pub(crate) fn optional_json(path: &Path) -> Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ModelError::io(path, error)),
    };
    let mut text = String::new();
    file.take(MAX_JSON + 1).read_to_string(&mut text).map_err(|error| ModelError::io(path, error))?;
    if text.len() as u64 > MAX_JSON {
        let error = std::io::Error::new(ErrorKind::InvalidData, "the file is longer than 16 MiB");
        return Err(ModelError::io(path, error));
    }
    Ok(Some(text))
}

/// Returns the tensor of a file that becomes a parameter; `None` if there is none.
pub(crate) fn stored_name<'a>(weights: &'a Weights, parameter: &str) -> Option<&'a str> {
    let wanted = canonical(parameter);
    weights.names().into_iter().find(|name| canonical(name) == wanted)
}

/// Loads a module. `dtypes` is the policy for parameters whose dtype differs in the file.
pub(crate) fn load<M: Module>(mut module: M, weights: &Weights, dtypes: DTypePolicy) -> Result<M> {
    let names = module.named_parameters().into_iter().map(|(name, _)| name);
    let parameters: BTreeMap<String, String> =
        names.filter_map(|name| Some((canonical(&name)?, name))).collect();
    let rename = move |name: &str| {
        match parameters.get(&canonical(name)?) {
            Some(name) => Some(name.clone()),
            // Tied to the embeddings.
            None if name == "lm_head.weight" => None,
            None => Some(name.to_owned()),
        }
    };
    load_module_from(&mut module, weights.source(), &LoadOptions::new().dtype(dtypes).rename(rename))?;
    Ok(module)
}

/// Returns a name without the differences between files of one model; `None` for tables that models compute, and for
/// heads of tasks that they do not have.
fn canonical(name: &str) -> Option<String> {
    let last = name.rsplit('.').next().unwrap_or(name);
    let computed = matches!(last, "inv_freq" | "position_ids" | "masked_bias" | "num_batches_tracked");
    let causal_mask = name.ends_with(".attn.bias");
    if computed || causal_mask || name.starts_with("cls.") {
        return None;
    }
    let prefixes = ["model.", "transformer.", "bert."];
    let name = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    // Files of BERT from TensorFlow.
    let renamed = |from: &str, to: &str| Some(format!("{}{to}", name.strip_suffix(from)?));
    renamed(".gamma", ".weight").or_else(|| renamed(".beta", ".bias")).or_else(|| Some(name.to_owned()))
}

/// Casts the float parameters and buffers of a module, such as those of a 16-bit file to `f32` for a CPU.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_models::{LlamaConfig, cast};
/// use kiln_tensor::DType;
///
/// let model = LlamaConfig::new(100, 32, 64, 2, 4, 2).init::<Flex>(&Default::default());
/// let model = cast(model, DType::F16);
/// assert_eq!(model.model.norm.weight.dtype(), DType::F16);
/// ```
///
/// # Panics
/// When the dtype is not a float dtype.
#[track_caller]
pub fn cast<M: Module>(mut module: M, dtype: DType) -> M {
    assert!(dtype.is_float(), "[cast] {dtype} is not a float dtype");
    module.map_parameters(|_, parameter| {
        if !parameter.value.dtype().is_float() {
            return parameter;
        }
        parameter.map(|value| match value.cast(dtype) {
            Ok(value) => value,
            Err(error) => panic!("{error}"),
        })
    });
    module
}
