//! chrF.

use super::{common, ngrams, text_pairs};
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValues};
use crate::observation::Observation;

/// chrF of a corpus, `chrf`: the mean, over n-grams of 1 to 6 characters, of the F-score with β = 2 of the n-grams that
/// predictions share with their targets, from 0 to 1 (Popović, 2015). The counts of all items are summed first. White
/// space is not counted. [`words`](ChrF::words) adds n-grams of words: chrF++ has 2. Inputs: see the [module](super).
pub type ChrF = Accumulated<ChrFRule>;

/// The rule of [`ChrF`].
#[derive(Clone, Debug)]
pub struct ChrFRule {
    chars: usize,
    words: usize,
    beta: f64,
}

impl Default for ChrFRule {
    fn default() -> ChrFRule {
        ChrFRule { chars: 6, words: 0, beta: 2.0 }
    }
}

impl ChrF {
    kiln_ir::setters! {
        /// Sets the number of characters in the longest n-grams. A number of 0 is 1. Default: 6.
        chars(chars: usize) => rule.chars = chars.max(1);

        /// Sets the number of words in the longest n-grams of words. A punctuation mark at the start or end of a word is a
        /// word of its own. Default: 0.
        words(words: usize) => rule.words = words;

        /// Sets β, the weight of recall. Default: 2.
        beta(beta: f64) => rule.beta = beta;
    }
}

impl MetricRule for ChrFRule {
    crate::metric::facts!("chrf");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        for (prediction, target) in text_pairs(observation)? {
            let chars = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<Vec<char>>();
            let mut counts = overlaps(&chars(prediction), &chars(target), self.chars);
            counts.extend(overlaps(&words(prediction), &words(target), self.words));
            sums.sum_all("n-grams", &counts)?;
        }
        Ok(())
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let square = self.beta * self.beta;
        let orders = sums.totals("n-grams")?.chunks_exact(3);
        let count = orders.len() as f64;
        let score = |order: &[f64]| {
            let [common, predicted, expected] = [order[0], order[1], order[2]];
            if common == 0.0 {
                return 0.0;
            }
            let (precision, recall) = (common / predicted, common / expected);
            (1.0 + square) * precision * recall / (square * precision + recall)
        };
        Ok(MetricValues::scalar(name, orders.map(score).sum::<f64>() / count))
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
