//! Language models with their tokenizers, from Hugging Face folders and GGUF files.

use std::fmt;
use std::path::Path;

use kiln_backends::Dyn;
use kiln_store::gguf::{self, GgufFile, HuggingFaceGguf};
use kiln_store::{WeightFormat, Weights};
use kiln_tensor::{Backend, Tensor};
use kiln_text::{
    Chat, ChatTemplate, GenerateConfig, GenerationDefaults, GgufVocabulary, LanguageModel, TextGenerator,
    TokenInput, Tokenizer,
};

use crate::decoding::DecoderCache;
use crate::error::{ModelError, Result};
use crate::gpt2::{Gpt2, Gpt2Config};
use crate::hugging_face::{Fields, parse, unsupported, wrong};
use crate::llama::{LLAMA_MODEL_TYPES, Llama, LlamaConfig};
use crate::loading::{OpenOptions, configuration};

/// A causal language model of any supported architecture.
#[derive(Clone, Debug)]
pub enum CausalLanguageModel<B: Backend = Dyn> {
    /// The Llama family.
    Llama(Box<Llama<B>>),
    /// GPT-2.
    Gpt2(Box<Gpt2<B>>),
}

/// Evaluates an expression of the model of either architecture.
macro_rules! each {
    ($self:expr, $model:ident => $value:expr) => {
        match $self {
            CausalLanguageModel::Llama($model) => $value,
            CausalLanguageModel::Gpt2($model) => $value,
        }
    };
}

/// A language model with its tokenizer, chat template and settings of generation.
///
/// ```no_run
/// use kiln_backends::Cpu;
/// use kiln_models::PretrainedLanguageModel;
///
/// let device = Default::default();
/// let model = PretrainedLanguageModel::<Cpu>::open("SmolLM2-135M-Instruct.Q4_1.gguf", &device)?;
/// let reply = model.chat()?.send("What is the capital of France?", |text| print!("{text}"))?;
/// println!("\n{:?}", reply.finish);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PretrainedLanguageModel<B: Backend = Dyn> {
    /// The model.
    pub model: CausalLanguageModel<B>,
    /// The tokenizer.
    pub tokenizer: Tokenizer,
    /// The template that renders the messages of a chat; `None` for models that were not trained to chat.
    pub chat_template: Option<ChatTemplate>,
    /// The settings of generation that the authors recommend: [`GenerationDefaults::config`] of the folder. Default:
    /// greedy decoding.
    pub generation: GenerateConfig,
}

impl<B: Backend> PretrainedLanguageModel<B> {
    /// Opens a Hugging Face folder, which contains `config.json`, the weights and `tokenizer.json`, or a GGUF file. The
    /// field `model_type` of the configuration, or the architecture of the GGUF file, selects the model.
    ///
    /// Quantised weights of a GGUF file stay quantised.
    ///
    /// # Errors
    /// When a file cannot be read, the architecture or a setting is not supported, the weights do not match the
    /// configuration, or the tokenizer is invalid. An error of an architecture lists the supported ones.
    pub fn open(path: impl AsRef<Path>, device: &B::Device) -> Result<Self> {
        PretrainedLanguageModel::open_with(path, &OpenOptions::new(), device)
    }

    /// Opens a model like [`open`](PretrainedLanguageModel::open), with options.
    ///
    /// # Errors
    /// See [`open`](PretrainedLanguageModel::open).
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions, device: &B::Device) -> Result<Self> {
        let path = path.as_ref();
        let parts = if path.is_dir() { Parts::of_folder(path)? } else { Parts::of_file(path)? };
        let model = CausalLanguageModel::new(&parts.config, &parts.weights, options, device)?;
        let chat_template = parts.tokenizer.chat_template().map(ChatTemplate::new).transpose()?;
        Ok(PretrainedLanguageModel {
            model,
            tokenizer: parts.tokenizer,
            chat_template,
            generation: parts.generation,
        })
    }

    /// Returns a generator of text.
    pub fn generator(&self) -> TextGenerator<'_, B, CausalLanguageModel<B>> {
        TextGenerator::new(&self.model, &self.tokenizer)
    }

    /// Returns a chat without messages, with the recommended settings of generation.
    ///
    /// # Errors
    /// When the model has no chat template.
    pub fn chat(&self) -> Result<Chat<'_, B, CausalLanguageModel<B>>> {
        let template = self.chat_template.as_ref().ok_or_else(no_template)?;
        let template = ChatTemplate::new(template.source())?;
        let chat = Chat::with_template(&self.model, &self.tokenizer, template);
        Ok(chat.with_config(self.generation.clone()))
    }
}

fn no_template() -> ModelError {
    ModelError::Missing {
        path: "chat template".into(),
        problem: "the model has none".to_owned(),
        hint: "it was trained to continue text: use `generator`, or pass a template to `Chat::with_template`"
            .to_owned(),
    }
}

/// The parts of a model in files.
struct Parts {
    /// `config.json`.
    config: String,
    weights: Weights,
    tokenizer: Tokenizer,
    generation: GenerateConfig,
}

impl Parts {
    fn of_folder(folder: &Path) -> Result<Parts> {
        let generation = GenerationDefaults::from_folder(folder)?.config();
        if !folder.join("config.json").exists() {
            return Ok(Parts { generation, ..Parts::of_gguf_in(folder)? });
        }
        Ok(Parts {
            config: configuration(folder)?,
            weights: Weights::open(folder)?,
            tokenizer: Tokenizer::from_folder(folder)?,
            generation,
        })
    }

    /// Opens the only GGUF file of a folder.
    fn of_gguf_in(folder: &Path) -> Result<Parts> {
        let weights = Weights::open(folder)?;
        match weights.format() == WeightFormat::Gguf {
            true => Parts::of_file(weights.path()),
            false => configuration(folder).and(Err(needs_folder(folder))),
        }
    }

    fn of_file(path: &Path) -> Result<Parts> {
        if Weights::open(path)?.format() != WeightFormat::Gguf {
            return Err(needs_folder(path));
        }
        let file = GgufFile::open(path)?;
        let config = gguf::config(&file)?.to_string();
        let tokenizer = Tokenizer::from_gguf(GgufVocabulary::try_from(&file)?)?;
        let weights = Weights::from_source(HuggingFaceGguf::new(file)?.transpose(false));
        Ok(Parts { config, weights, tokenizer, generation: GenerateConfig::new() })
    }
}

/// The error of a file of weights without configuration and tokenizer.
fn needs_folder(path: &Path) -> ModelError {
    ModelError::Missing {
        path: path.to_owned(),
        problem: "the file contains weights, but neither a configuration nor a tokenizer".to_owned(),
        hint: "open a GGUF file, or the folder with config.json and tokenizer.json".to_owned(),
    }
}

impl<B: Backend> CausalLanguageModel<B> {
    /// Loads a model from weights. `config` is the contents of `config.json`.
    fn new(config: &str, weights: &Weights, options: &OpenOptions, device: &B::Device) -> Result<Self> {
        let map = parse(config)?;
        let supported = || format!("{}, gpt2", LLAMA_MODEL_TYPES.join(", "));
        match Fields::new(&map).text("model_type")? {
            Some("gpt2") => {
                let config = Gpt2Config::from_hugging_face(config)?;
                Ok(CausalLanguageModel::Gpt2(Box::new(Gpt2::load(&config, weights, options, device)?)))
            }
            Some(other) if LLAMA_MODEL_TYPES.contains(&other) => {
                let config = LlamaConfig::from_hugging_face(config)?;
                Ok(CausalLanguageModel::Llama(Box::new(Llama::load(&config, weights, options, device)?)))
            }
            Some(other) => Err(unsupported("model_type", other, &supported())),
            None => Err(wrong("model_type", None, &supported())),
        }
    }
}

impl<B: Backend> LanguageModel<B> for CausalLanguageModel<B> {
    type Cache = DecoderCache<B>;

    #[track_caller]
    fn new_cache(&self, batch: usize, max_length: usize) -> DecoderCache<B> {
        each!(self, model => model.new_cache(batch, max_length))
    }

    #[track_caller]
    fn forward(&self, input: TokenInput<B>, cache: &mut DecoderCache<B>) -> Tensor<B, 3> {
        each!(self, model => model.forward_cache(input, cache))
    }

    fn vocabulary_size(&self) -> usize {
        each!(self, model => model.vocabulary_size())
    }

    fn max_length(&self) -> usize {
        each!(self, model => model.max_length())
    }

    fn device(&self) -> B::Device {
        each!(self, model => model.device())
    }
}

impl<B: Backend> fmt::Display for CausalLanguageModel<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        each!(self, model => fmt::Display::fmt(model, f))
    }
}
