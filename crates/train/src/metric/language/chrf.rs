//! chrF.

use super::{common, ngrams, text_pairs};
use crate::error::MetricError;
use crate::metric::{AccumulatedMetric, Accumulator, MetricValues};
use crate::observation::Observation;

/// chrF of a corpus: the mean, over n-grams of 1 to 6 characters, of the F-score with β = 2 of the n-grams that
/// predictions share with their targets, from 0 to 1 (Popović, 2015). The counts of all items are summed first. White
/// space is not counted. [`words`](ChrF::words) adds n-grams of words: chrF++ has 2. Inputs: see the [module](super).
#[derive(Clone, Debug)]
pub struct ChrF {
    name: String,
    chars: usize,
    words: usize,
    beta: f64,
    accumulator: Accumulator,
}

impl ChrF {
    /// Returns the metric, named `chrf`.
    pub fn new() -> ChrF {
        ChrF { name: "chrf".to_owned(), chars: 6, words: 0, beta: 2.0, accumulator: Accumulator::new() }
    }

    /// Sets the name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> ChrF {
        self.name = name.into();
        self
    }

    /// Sets the number of characters in the longest n-grams. A number of 0 is 1. Default: 6.
    #[must_use]
    pub fn chars(mut self, chars: usize) -> ChrF {
        self.chars = chars.max(1);
        self
    }

    /// Sets the number of words in the longest n-grams of words. A punctuation mark at the start or end of a word is a
    /// word of its own. Default: 0.
    #[must_use]
    pub fn words(mut self, words: usize) -> ChrF {
        self.words = words;
        self
    }

    /// Sets β, the weight of recall. Default: 2.
    #[must_use]
    pub fn beta(mut self, beta: f64) -> ChrF {
        self.beta = beta;
        self
    }
}

impl Default for ChrF {
    fn default() -> ChrF {
        ChrF::new()
    }
}

impl AccumulatedMetric for ChrF {
    fn name(&self) -> &str {
        &self.name
    }

    fn accumulator(&mut self) -> &mut Accumulator {
        &mut self.accumulator
    }

    fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
        for (prediction, target) in text_pairs(observation)? {
            let chars = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<Vec<char>>();
            let mut counts = overlaps(&chars(prediction), &chars(target), self.chars);
            counts.extend(overlaps(&words(prediction), &words(target), self.words));
            self.accumulator.sum_all("n-grams", &counts)?;
        }
        Ok(())
    }

    fn result(&mut self) -> Result<MetricValues, MetricError> {
        let square = self.beta * self.beta;
        let orders = self.accumulator.totals("n-grams")?.chunks_exact(3);
        let count = orders.len() as f64;
        let score = |order: &[f64]| {
            let [common, predicted, expected] = [order[0], order[1], order[2]];
            if common == 0.0 {
                return 0.0;
            }
            let (precision, recall) = (common / predicted, common / expected);
            (1.0 + square) * precision * recall / (square * precision + recall)
        };
        Ok(MetricValues::scalar(self.name.clone(), orders.map(score).sum::<f64>() / count))
    }
}

/// Returns for n-grams of each length up to `longest` the numbers of common, predicted and expected ones.
fn overlaps<T: Eq + std::hash::Hash>(prediction: &[T], target: &[T], longest: usize) -> Vec<f64> {
    let of_length = |length| {
        let (predicted, expected) = (ngrams(prediction, length), ngrams(target, length));
        [common(&predicted, &expected), predicted.values().sum(), expected.values().sum()]
    };
    (1..=longest).flat_map(of_length).collect()
}

/// Returns the words, without the punctuation mark at their end or start, which is a word of its own.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().flat_map(split_punctuation).collect()
}

fn split_punctuation(word: &str) -> Vec<&str> {
    let mark = |c: Option<char>| c.filter(char::is_ascii_punctuation).map_or(0, char::len_utf8);
    let (first, last) = (mark(word.chars().next()), mark(word.chars().next_back()));
    if word.chars().nth(1).is_none() || (first == 0 && last == 0) {
        return vec![word];
    }
    let (start, end) = word.split_at(if last > 0 { word.len() - last } else { first });
    vec![start, end]
}
