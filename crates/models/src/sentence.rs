//! Sentence embeddings ([Reimers and Gurevych 2019](https://arxiv.org/abs/1908.10084)).

use std::path::Path;

use kiln_backends::Dyn;
use kiln_nn::{Module, plain_data};
use kiln_tensor::{Backend, Int, Tensor, linalg, module};
use kiln_text::{BatchOptions, Tokenizer};

use crate::bert::Bert;
use crate::error::Result;
use crate::hugging_face::{Fields, parse, unsupported};
use crate::loading::optional_json;

/// The pooling of the features of tokens into one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over the tokens.
    Mean,
    /// The features of the first token.
    First,
}

plain_data!(Pooling);

/// An encoder of sentences: [`Bert`] with pooling. The cosine similarity of two embeddings measures how similar the
/// meanings of the sentences are.
///
/// ```no_run
/// use kiln_backends::Cpu;
/// use kiln_models::SentenceEncoder;
/// use kiln_text::Tokenizer;
///
/// let device = Default::default();
/// let encoder = SentenceEncoder::<Cpu>::from_pretrained("all-MiniLM-L6-v2", &device)?;
/// let tokenizer = Tokenizer::from_folder("all-MiniLM-L6-v2")?;
/// let embeddings = encoder.encode(&tokenizer, &["A man is eating.", "Someone has a meal."])?;
/// let similarities = embeddings.clone().matmul(embeddings.transpose());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Module, Clone, Debug)]
pub struct SentenceEncoder<B: Backend = Dyn> {
    /// The encoder of tokens.
    pub bert: Bert<B>,
    /// The pooling.
    pub pooling: Pooling,
    /// Whether the embeddings have the norm 1.
    pub normalize: bool,
    /// The maximum number of tokens of a sentence. Longer ones are cut when they are tokenized.
    pub max_length: usize,
}

impl<B: Backend> SentenceEncoder<B> {
    /// Returns an encoder with mean pooling and normalised embeddings.
    pub fn new(bert: Bert<B>) -> Self {
        let max_length = bert.config.max_position_embeddings;
        SentenceEncoder { bert, pooling: Pooling::Mean, normalize: true, max_length }
    }

    /// Loads an encoder from a folder of the `sentence-transformers` library. It reads the pooling from
    /// `1_Pooling/config.json`, whether to normalise from `modules.json`, and the maximum length from
    /// `sentence_bert_config.json`. Without these files: mean pooling, normalised, the length of the model.
    ///
    /// # Errors
    /// When a file cannot be read, the configuration is not supported, or the weights do not match it.
    pub fn from_pretrained(folder: impl AsRef<Path>, device: &B::Device) -> Result<Self> {
        let folder = folder.as_ref();
        let mut encoder = SentenceEncoder::new(Bert::from_pretrained(folder, device)?);
        if let Some(json) = optional_json(&folder.join("1_Pooling").join("config.json"))? {
            encoder.pooling = pooling(&json)?;
        }
        if let Some(json) = optional_json(&folder.join("modules.json"))? {
            encoder.normalize = json.contains("sentence_transformers.models.Normalize");
        }
        if let Some(json) = optional_json(&folder.join("sentence_bert_config.json"))? {
            let map = parse(&json)?;
            if let Some(length) = Fields::new(&map).integer("max_seq_length")? {
                encoder.max_length = length.min(encoder.max_length);
            }
        }
        Ok(encoder)
    }

    /// Computes the embeddings `[texts, hidden_size]` of texts. Long texts lose their end.
    ///
    /// # Errors
    /// When a text cannot be tokenized, or there are no texts.
    pub fn encode<T: AsRef<str>>(&self, tokenizer: &Tokenizer, texts: &[T]) -> Result<Tensor<B, 2>> {
        let options = BatchOptions { max_length: Some(self.max_length), ..BatchOptions::default() };
        let batch = tokenizer.encode_batch(texts, &options)?;
        let device = self.bert.embeddings.word_embeddings.weight.device();
        let ids = batch.ids_tensor::<B>(&device)?;
        let lengths: Vec<i64> = batch.lengths().iter().map(|&length| length as i64).collect();
        let is_padded = lengths.iter().any(|&length| length != batch.columns() as i64);
        Ok(self.forward(ids, is_padded.then(|| Tensor::<B, 1, Int>::from_ints(lengths.as_slice(), &device))))
    }

    /// Computes the embeddings `[batch, hidden_size]` of token ids `[batch, length]`. `lengths`, `[batch]`, are the
    /// numbers of tokens of each row before its padding; `None` if no row has padding.
    ///
    /// # Panics
    /// When the length exceeds that of the model.
    #[track_caller]
    pub fn forward(&self, ids: Tensor<B, 2, Int>, lengths: Option<Tensor<B, 1, Int>>) -> Tensor<B, 2> {
        let features = self.bert.forward(ids, lengths.clone());
        let [batch, _, width] = features.dims();
        let pooled = match self.pooling {
            Pooling::First => features.narrow(1, 0, 1).reshape([batch, width]),
            Pooling::Mean => mean(features, lengths),
        };
        if !self.normalize {
            return pooled;
        }
        linalg::vector_normalize(pooled, 2, 1, 1e-12)
    }
}

/// The mean of `[batch, length, features]` over the tokens of each row.
fn mean<B: Backend>(features: Tensor<B, 3>, lengths: Option<Tensor<B, 1, Int>>) -> Tensor<B, 2> {
    let [batch, length, width] = features.dims();
    let Some(lengths) = lengths else {
        return features.mean_dim(1).reshape([batch, width]);
    };
    let dtype = features.dtype();
    let is_token = module::padding_mask(lengths.clone(), length).reshape([batch, length, 1]);
    let sum = features.mask_fill(is_token.bool_not(), 0.0).sum_dim(1).reshape([batch, width]);
    sum / lengths.float().cast(dtype).reshape([batch, 1]).clamp_min(1.0)
}

fn pooling(json: &str) -> Result<Pooling> {
    let map = parse(json)?;
    let fields = Fields::new(&map);
    let mut found = None;
    for mode in map.keys().filter(|name| name.starts_with("pooling_mode_")) {
        if fields.flag(mode)? != Some(true) {
            continue;
        }
        let pooling = match mode.as_str() {
            "pooling_mode_mean_tokens" => Pooling::Mean,
            "pooling_mode_cls_token" => Pooling::First,
            other => return Err(unsupported(other, "true", "mean or first token")),
        };
        if found.replace(pooling).is_some() {
            return Err(unsupported(mode, "true", "one pooling mode"));
        }
    }
    Ok(found.unwrap_or(Pooling::Mean))
}
