//! The interface between generation and language models.

use kiln_backends::Dyn;
use kiln_nn::attention::MhaCache;
use kiln_tensor::{Backend, Bool, Int, Tensor};

/// A causal language model: predicts the next token of token sequences.
///
/// Rows of a batch with fewer tokens than others have padding at their start, so that the last token of each row is in
/// the last column. A padded row must have the logits of the same row without padding. For that, a model
/// - hides the keys of padding: [`TokenInput::hidden_keys`] is the mask for
///   [`MhaInput::mask_pad`](kiln_nn::attention::MhaInput::mask_pad);
/// - numbers the tokens of a row from its first token, where positions are absolute (as in GPT-2):
///   [`TokenInput::positions`]. Rotary positions are relative, so models that use them need no correction.
pub trait LanguageModel<B: Backend> {
    /// Keys and values of the tokens so far, usually a [`KeyValueCache`].
    type Cache: GenerationCache;

    /// Returns an empty cache for `batch` rows of at most `max_length` tokens, padding included.
    fn new_cache(&self, batch: usize, max_length: usize) -> Self::Cache;

    /// Returns the logits `[batch, positions, vocabulary_size]` of the token after each position, in a float dtype.
    /// The cache takes up the new tokens. `positions` are those of [`TokenInput::logits`].
    ///
    /// # Panics
    /// When the batch is not that of the cache, or the tokens do not fit in the cache.
    fn forward(&self, input: TokenInput<B>, cache: &mut Self::Cache) -> Tensor<B, 3>;

    /// Returns the number of logits of each position.
    fn vocabulary_size(&self) -> usize;

    /// Returns the length of the context: the maximum number of tokens of a sequence.
    fn max_length(&self) -> usize;

    /// Returns the device of the parameters.
    fn device(&self) -> B::Device;
}

/// The positions whose logits a model computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitsOf {
    /// The last position, as generation needs it.
    Last,
    /// All new positions, as [`perplexity`](crate::perplexity) needs them.
    All,
}

/// New tokens for a [`LanguageModel`].
#[derive(Clone, Debug)]
pub struct TokenInput<B: Backend = Dyn> {
    /// Token ids, `[batch, new]`.
    pub ids: Tensor<B, 2, Int>,
    /// Number of padding tokens at the start of each row, `[batch]`; `None` if no row has padding. It is the same in
    /// each call for one cache.
    pub padding: Option<Tensor<B, 1, Int>>,
    /// The positions whose logits are needed.
    pub logits: LogitsOf,
}

impl<B: Backend> TokenInput<B> {
    /// Returns an input without padding that requests the logits of the last position.
    pub fn new(ids: Tensor<B, 2, Int>) -> Self {
        TokenInput { ids, padding: None, logits: LogitsOf::Last }
    }

    /// Sets the number of padding tokens at the start of each row, `[batch]`.
    #[must_use]
    pub fn with_padding(self, padding: Option<Tensor<B, 1, Int>>) -> Self {
        TokenInput { padding, ..self }
    }

    /// Sets the positions whose logits are needed.
    #[must_use]
    pub fn with_logits(self, logits: LogitsOf) -> Self {
        TokenInput { logits, ..self }
    }

    /// Returns the number of rows.
    pub fn batch(&self) -> usize {
        self.ids.dims()[0]
    }

    /// Returns the number of new tokens of each row.
    pub fn new_tokens(&self) -> usize {
        self.ids.dims()[1]
    }

    /// Returns the mask of padding, `[batch, keys]`: true where the key is padding. `None` without padding. `keys` is
    /// [`KeyValueCache::keys_after`] the new tokens.
    pub fn hidden_keys(&self, keys: usize) -> Option<Tensor<B, 2, Bool>> {
        let padding = self.padding.clone()?;
        let (batch, device) = (padding.dims()[0], padding.device());
        let key = Tensor::<B, 1, Int>::arange(0..keys as i64, &device).cast(padding.dtype());
        Some(key.reshape([1, keys]).lower(padding.reshape([batch, 1])))
    }

    /// Returns the position of each new token within its row, where the first token after the padding is at 0. `slots`
    /// are the positions in the cache, `[new]`: [`KeyValueCache::positions`]. The result is `[batch, new]`, or `[1, new]`
    /// without padding. Padding is at 0.
    pub fn positions(&self, slots: Tensor<B, 1, Int>) -> Tensor<B, 2, Int> {
        let new = slots.dims()[0];
        let slots = slots.reshape([1, new]);
        match self.padding.clone() {
            Some(padding) => {
                let batch = padding.dims()[0];
                let padding = padding.cast(slots.dtype()).reshape([batch, 1]);
                (slots - padding).clamp_min(0)
            }
            None => slots,
        }
    }

    /// Returns the positions of `[batch, new, features]` whose logits are needed, `[batch, positions, features]`. A
    /// model calls it before its output layer.
    pub fn needed<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        match self.logits {
            LogitsOf::Last => {
                let new = x.dims()[1];
                x.narrow(1, new - 1, 1)
            }
            LogitsOf::All => x,
        }
    }
}

/// The state of a [`LanguageModel`] between calls.
pub trait GenerationCache {
    /// Drops all tokens, so that another sequence can start.
    fn reset(&mut self);

    /// Drops the tokens after the first `length` of each row, padding included. Returns false, and changes nothing, if
    /// the cache cannot do so: the caller starts anew.
    fn truncate(&mut self, length: usize) -> bool;
}

/// Keys and values of all layers of a model.
#[derive(Clone, Debug)]
pub struct KeyValueCache<B: Backend = Dyn> {
    layers: Vec<MhaCache<B>>,
    length: usize,
    /// `None`: the caches grow.
    max_length: Option<usize>,
}

impl<B: Backend> KeyValueCache<B> {
    /// Returns an empty cache over static caches of `max_length` positions, one for each layer; see
    /// [`StaticCache`](kiln_nn::attention::StaticCache).
    pub fn of_static(layers: Vec<MhaCache<B>>, max_length: usize) -> Self {
        KeyValueCache { layers, length: 0, max_length: Some(max_length) }
    }

    /// Returns an empty cache that grows with each token.
    pub fn growing(layers: usize) -> Self {
        let layers = (0..layers).map(|_| MhaCache::autoregressive()).collect();
        KeyValueCache { layers, length: 0, max_length: None }
    }

    /// Returns the number of tokens of each row, padding included.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the cache has no tokens.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the number of positions of static caches; `None` if the caches grow.
    pub fn max_length(&self) -> Option<usize> {
        self.max_length
    }

    /// Returns the number of keys that attention sees once `new` tokens are in the cache. Static caches show all their
    /// positions.
    pub fn keys_after(&self, new: usize) -> usize {
        self.max_length.unwrap_or(self.length + new)
    }

    /// Returns the positions `[new]` of the next tokens, on the device.
    ///
    /// # Panics
    /// When the cache has no layers and is static.
    pub fn positions(&self, new: usize, device: &B::Device) -> Tensor<B, 1, Int> {
        match self.max_length {
            Some(_) => self.layers[0].positions(new),
            None => Tensor::arange(self.length as i64..(self.length + new) as i64, device),
        }
    }

    /// Returns the caches of the layers, for a forward pass of `new` tokens. The call counts them: call it once in each
    /// pass, after [`positions`](KeyValueCache::positions) and [`keys_after`](KeyValueCache::keys_after).
    pub fn layers_for(&mut self, new: usize) -> &mut [MhaCache<B>] {
        self.length += new;
        &mut self.layers
    }

    /// Returns the caches of the layers.
    pub fn layers(&self) -> &[MhaCache<B>] {
        &self.layers
    }
}

impl<B: Backend> GenerationCache for KeyValueCache<B> {
    fn reset(&mut self) {
        self.layers.iter_mut().for_each(MhaCache::reset);
        self.length = 0;
    }

    fn truncate(&mut self, length: usize) -> bool {
        if length < self.length {
            self.layers.iter_mut().for_each(|layer| layer.truncate(length));
            self.length = length;
        }
        true
    }
}
