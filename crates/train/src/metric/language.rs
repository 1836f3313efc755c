//! Metrics of language models and of texts.
//!
//! Metrics of texts read the texts [`PREDICTIONS`] and [`TARGETS`], one for each
//! item. They run on the host.
//!
//! ```
//! use kiln_train::metric::WordErrorRate;
//! use kiln_train::{Metric, Observation, PREDICTIONS, TARGETS};
//!
//! let batch = Observation::new(1)
//!     .with_texts(PREDICTIONS, vec!["the cat sat".to_owned()])
//!     .with_texts(TARGETS, vec!["the cat sat down".to_owned()]);
//! let mut wer = WordErrorRate::new();
//! wer.update(&batch)?;
//! assert_eq!(wer.values()?.main(), Some(0.25));
//! # Ok::<(), kiln_train::MetricError>(())
//! ```

mod bleu;
mod chrf;
mod edit;
mod perplexity;
mod rouge;

pub use bleu::{Bleu, BleuScore};
pub use chrf::ChrF;
pub use edit::{
    CharErrorRate, EditDistance, MatchErrorRate, WordErrorRate, WordInformationLost, WordInformationPreserved,
};
pub use perplexity::{Perplexity, PerplexityMetric};
pub use rouge::{RougeL, RougeLScore, RougeLSum, RougeN};

use std::collections::HashMap;
use std::hash::Hash;

use crate::error::MetricError;
use crate::observation::{Observation, PREDICTIONS, TARGETS};

/// Returns the texts of the predictions and of the references of each name, all of equal number.
fn texts<'a>(
    observation: &'a Observation,
    references: &[&'static str],
) -> Result<Vec<(&'a str, Vec<&'a str>)>, MetricError> {
    let predictions = observation.texts(PREDICTIONS)?;
    let mut items: Vec<(&str, Vec<&str>)> =
        predictions.iter().map(|text| (text.as_str(), Vec::new())).collect();
    for &name in references {
        let texts = observation.texts(name)?;
        if texts.len() != items.len() {
            let problem = format!("has {} texts, expected {}, as `{PREDICTIONS}`", texts.len(), items.len());
            return Err(MetricError::Input { name, problem });
        }
        items.iter_mut().zip(texts).for_each(|((_, references), text)| references.push(text));
    }
    Ok(items)
}

/// Returns the text of each prediction and of its target.
fn text_pairs(observation: &Observation) -> Result<impl Iterator<Item = (&str, &str)>, MetricError> {
    let items = texts(observation, &[TARGETS])?;
    Ok(items.into_iter().map(|(prediction, references)| (prediction, references[0])))
}

/// Counts the n-grams of a length.
fn ngrams<T: Eq + Hash>(tokens: &[T], length: usize) -> HashMap<&[T], f64> {
    let mut counts = HashMap::new();
    for ngram in tokens.windows(length) {
        *counts.entry(ngram).or_insert(0.0) += 1.0;
    }
    counts
}

/// Returns the number of n-grams that two texts have in common.
fn common<T: Eq + Hash>(a: &HashMap<&[T], f64>, b: &HashMap<&[T], f64>) -> f64 {
    a.iter().map(|(ngram, count)| b.get(ngram).map_or(0.0, |other| count.min(*other))).sum()
}
