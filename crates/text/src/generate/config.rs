//! Settings of generation.

use crate::{Result, TextError};
use kiln_nn::{Config, OutOfRange};

/// Settings of generation. The default is greedy decoding: the token with the greatest logit.
///
/// ```
/// use kiln_text::GenerateConfig;
///
/// let config = GenerateConfig::new().with_temperature(0.7).with_top_p(Some(0.9)).with_max_new_tokens(64);
/// assert!(config.validate().is_ok());
/// assert!(config.with_top_p(Some(1.5)).validate().is_err());
/// ```
#[derive(Config, Clone, Debug, PartialEq)]
pub struct GenerateConfig {
    /// Maximum number of new tokens. The context of the model may end earlier. Default: 256.
    #[config(range = "[1, inf]", expected = "generate at least one token", default = 256)]
    pub max_new_tokens: usize,
    /// Maximum number of tokens of the prompt and the new text together. Default: the context of the model.
    #[config(range = "[1, inf]", expected = "at least 1, or `None` for the context of the model")]
    pub max_length: Option<usize>,
    /// The divisor of the logits before sampling. 0 is greedy decoding. Default: 0.
    #[config(range = "[0, inf)", expected = "a finite number that is not negative", default = 0.0)]
    pub temperature: f64,
    /// Number of tokens with the greatest logits that can be sampled. Default: all.
    #[config(range = "[1, inf]", expected = "at least 1, or `None` for all tokens")]
    pub top_k: Option<usize>,
    /// Total probability of the most probable tokens that can be sampled: nucleus sampling
    /// ([Holtzman et al. 2020](https://arxiv.org/abs/1904.09751)). Default: all.
    #[config(range = "(0, 1]", expected = "in (0, 1]")]
    pub top_p: Option<f64>,
    /// Minimum probability of tokens that can be sampled, as a part of the greatest probability
    /// ([Nguyen et al. 2024](https://arxiv.org/abs/2407.01082)). Default: 0.
    #[config(range = "[0, 1]", expected = "in [0, 1]")]
    pub min_p: Option<f64>,
    /// Divisor of positive, and factor of negative, logits of tokens in the prompt and the new text
    /// ([Keskar et al. 2019](https://arxiv.org/abs/1909.05858)). Above 1 discourages repetition. Default: 1.
    #[config(range = "(0, inf)", expected = "a finite number above 0", default = 1.0)]
    pub repetition_penalty: f64,
    /// Subtracted from the logit of a token for each time it is in the new text. Default: 0.
    #[config(range = "(-inf, inf)", default = 0.0)]
    pub frequency_penalty: f64,
    /// Subtracted once from the logit of tokens in the new text. Default: 0.
    #[config(range = "(-inf, inf)", default = 0.0)]
    pub presence_penalty: f64,
    /// The seed of sampling: equal seeds have equal results. Rows of a batch have different random numbers. Default: 0.
    #[config(default = 0)]
    pub seed: u64,
    /// Strings that end the text, which does not contain them. Default: none.
    #[config(default = Vec::new())]
    pub stop: Vec<String>,
    /// Tokens that end a row, beside those of the tokenizer. Default: none.
    #[config(default = Vec::new())]
    pub stop_ids: Vec<u32>,
    /// Whether the tokenizer's tokens that end a generation are ordinary tokens, as for benchmarks. Default: false.
    #[config(default = false)]
    pub ignore_end: bool,
    /// Number of steps of greedy decoding that are started before their tokens are read. 1 hides the latency of devices
    /// that compute asynchronously, such as GPUs, and computes one step more than needed. Default: 0.
    #[config(default = 0)]
    pub run_ahead: usize,
}

impl Default for GenerateConfig {
    fn default() -> Self {
        GenerateConfig::new()
    }
}

impl GenerateConfig {
    /// Checks the settings.
    ///
    /// # Errors
    /// When one is out of range.
    pub fn validate(&self) -> Result<()> {
        self.check_ranges().map_err(|OutOfRange { option, value, expected }| TextError::InvalidSetting {
            setting: option,
            value,
            hint: expected,
        })?;
        let empty = self.stop.iter().any(String::is_empty);
        check("stop", "a list with an empty string", !empty, "an empty string would end every text")
    }

    /// Returns whether tokens depend only on the greatest logit.
    pub(crate) fn is_argmax(&self) -> bool {
        self.temperature == 0.0
            && self.repetition_penalty == 1.0
            && self.frequency_penalty == 0.0
            && self.presence_penalty == 0.0
    }

    /// Refuses stop strings where there is no text.
    pub(crate) fn refuse_stop_strings(&self) -> Result<()> {
        let hint = "stop strings need text: use `TextGenerator`, or `stop_ids`";
        check("stop", format!("{:?}", self.stop), self.stop.is_empty(), hint)
    }
}

fn check(setting: &'static str, value: impl ToString, is_valid: bool, hint: &'static str) -> Result<()> {
    if is_valid {
        return Ok(());
    }
    Err(TextError::InvalidSetting { setting, value: value.to_string(), hint })
}
