//! Sampling of a token from logits.

use super::config::GenerateConfig;
use super::random::SplitMix64;
use crate::Result;
use std::collections::{HashMap, HashSet};

/// The tokens of a row so far, for penalties.
#[derive(Clone, Debug, Default)]
pub struct TokenHistory {
    seen: HashSet<u32>,
    generated: HashMap<u32, u32>,
}

impl TokenHistory {
    /// Returns the history of a prompt.
    pub fn of_prompt(prompt: &[u32]) -> Self {
        TokenHistory { seen: prompt.iter().copied().collect(), generated: HashMap::new() }
    }

    /// Adds a new token.
    pub fn push(&mut self, id: u32) {
        self.seen.insert(id);
        *self.generated.entry(id).or_default() += 1;
    }
}

/// Samples tokens by the settings of a [`GenerateConfig`].
///
/// The steps have the order and the rules of Hugging Face's `transformers`: repetition penalty, temperature, top-k,
/// top-p, min-p. Frequency and presence penalties follow the repetition penalty.
///
/// ```
/// use kiln_text::{GenerateConfig, Sampler, TokenHistory};
///
/// let config = GenerateConfig::new().with_temperature(1.0).with_top_k(Some(2));
/// let mut sampler = Sampler::new(&config, 0)?;
/// let mut logits = [1.0, 3.0, 2.0, 0.0];
/// sampler.process(&mut logits, &TokenHistory::default());
/// assert_eq!(logits, [f32::NEG_INFINITY, 3.0, 2.0, f32::NEG_INFINITY]);
/// # Ok::<(), kiln_text::TextError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sampler {
    config: GenerateConfig,
    random: SplitMix64,
    /// Memory of a step, kept for the next.
    scratch: Vec<(f32, u32)>,
}

impl Sampler {
    /// Returns a sampler. Samplers with different `row` numbers have different random numbers.
    ///
    /// # Errors
    /// When a setting is invalid.
    pub fn new(config: &GenerateConfig, row: usize) -> Result<Self> {
        config.validate()?;
        let random = SplitMix64::new(config.seed, row as u64);
        Ok(Sampler { config: config.clone(), random, scratch: Vec::new() })
    }

    /// Changes logits by the penalties and the temperature, and sets those of tokens that cannot be sampled to -∞.
    pub fn process(&mut self, logits: &mut [f32], history: &TokenHistory) {
        self.penalize(logits, history);
        let config = &self.config;
        if config.temperature == 0.0 {
            return;
        }
        if config.temperature != 1.0 {
            let temperature = config.temperature as f32;
            logits.iter_mut().for_each(|logit| *logit /= temperature);
        }
        if let Some(k) = config.top_k {
            keep_top_k(logits, k, &mut self.scratch);
        }
        if let Some(p) = config.top_p.filter(|&p| p < 1.0) {
            keep_top_p(logits, p, &mut self.scratch);
        }
        if let Some(p) = config.min_p.filter(|&p| p > 0.0) {
            keep_min_p(logits, p);
        }
    }

    /// Samples a token; `None` if no logit is finite. The logits are changed as by [`process`](Sampler::process).
    pub fn sample(&mut self, logits: &mut [f32], history: &TokenHistory) -> Option<u32> {
        self.process(logits, history);
        let (greatest, max) = greatest(logits)?;
        if self.config.temperature == 0.0 {
            return Some(greatest);
        }
        let weight = |logit: f32| f64::from(logit - max).exp();
        let finite = || (0_u32..).zip(logits.iter()).filter(|(_, logit)| logit.is_finite());
        let total: f64 = finite().map(|(_, &logit)| weight(logit)).sum();
        let mut rest = self.random.uniform() * total;
        for (id, &logit) in finite() {
            rest -= weight(logit);
            if rest < 0.0 {
                return Some(id);
            }
        }
        Some(greatest)
    }

    fn penalize(&self, logits: &mut [f32], history: &TokenHistory) {
        let config = &self.config;
        if config.repetition_penalty != 1.0 {
            let penalty = config.repetition_penalty as f32;
            for &id in &history.seen {
                if let Some(logit) = logits.get_mut(id as usize) {
                    *logit = if *logit < 0.0 { *logit * penalty } else { *logit / penalty };
                }
            }
        }
        if config.frequency_penalty != 0.0 || config.presence_penalty != 0.0 {
            for (&id, &count) in &history.generated {
                if let Some(logit) = logits.get_mut(id as usize) {
                    *logit -= (config.frequency_penalty * f64::from(count) + config.presence_penalty) as f32;
                }
            }
        }
    }
}

/// The token with the greatest finite logit, the first of equals.
fn greatest(logits: &[f32]) -> Option<(u32, f32)> {
    let finite = (0_u32..).zip(logits).filter(|(_, logit)| logit.is_finite());
    finite.fold(None, |best: Option<(u32, f32)>, (id, &logit)| match best {
        Some((_, max)) if max >= logit => best,
        _ => Some((id, logit)),
    })
}

/// Keeps the `k` greatest logits, and those equal to the least of them.
fn keep_top_k(logits: &mut [f32], k: usize, scratch: &mut Vec<(f32, u32)>) {
    if k >= logits.len() {
        return;
    }
    scratch.clear();
    scratch.extend(logits.iter().map(|&logit| (logit, 0)));
    let (_, &mut (least, _), _) = scratch.select_nth_unstable_by(k - 1, |a, b| b.0.total_cmp(&a.0));
    logits.iter_mut().filter(|logit| **logit < least).for_each(|logit| *logit = f32::NEG_INFINITY);
}

/// Removes the least probable tokens whose total probability is at most `1 - p`.
fn keep_top_p(logits: &mut [f32], p: f64, scratch: &mut Vec<(f32, u32)>) {
    let Some((first, max)) = greatest(logits) else { return };
    // Tokens below this logit have a total probability under 1 - p, so that they need no sorting.
    let below = max - ((logits.len() as f64 / (1.0 - p)).ln() as f32 + 1.0);
    let mut total = 0.0;
    scratch.clear();
    for (id, logit) in (0_u32..).zip(logits.iter_mut()) {
        if logit.is_finite() {
            total += f64::from(*logit - max).exp();
        }
        if *logit >= below {
            scratch.push((*logit, id));
        }
    }
    let kept: f64 = scratch.iter().map(|(logit, _)| f64::from(logit - max).exp()).sum();
    scratch.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut cumulative = total - kept;
    let is_removed = |&&(logit, id): &&(f32, u32)| {
        cumulative += f64::from(logit - max).exp();
        id != first && cumulative / total <= 1.0 - p
    };
    let removed = scratch.iter().take_while(is_removed).count();
    logits.iter_mut().filter(|logit| **logit < below).for_each(|logit| *logit = f32::NEG_INFINITY);
    scratch[..removed].iter().for_each(|&(_, id)| logits[id as usize] = f32::NEG_INFINITY);
}

/// Removes tokens whose probability is less than `p` times the greatest.
fn keep_min_p(logits: &mut [f32], p: f64) {
    let Some((_, max)) = greatest(logits) else { return };
    let least = f64::from(max) + p.ln();
    logits.iter_mut().filter(|logit| f64::from(**logit) < least).for_each(|logit| *logit = f32::NEG_INFINITY);
}
