//! ROUGE.

use std::collections::HashMap;

use super::{common, ngrams, texts};
use crate::error::MetricError;
use crate::metric::{AccumulatedMetric, Accumulator, MetricValues};
use crate::observation::{Observation, TARGETS};

/// Precision, recall and F1 score of an item.
#[derive(Clone, Copy)]
struct Overlap {
    precision: f64,
    recall: f64,
}

impl Overlap {
    fn new(common: f64, predicted: f64, expected: f64) -> Overlap {
        let ratio = |a: f64, b: f64| if b == 0.0 { 0.0 } else { a / b };
        Overlap { precision: ratio(common, predicted), recall: ratio(common, expected) }
    }

    fn f1(self) -> f64 {
        let sum = self.precision + self.recall;
        if sum == 0.0 { 0.0 } else { 2.0 * self.precision * self.recall / sum }
    }
}

/// The mean of overlaps over items.
#[derive(Clone, Debug)]
struct Rouge {
    name: String,
    references: Vec<&'static str>,
    accumulator: Accumulator,
}

const OVERLAPS: &str = "overlaps";

impl Rouge {
    fn new(name: String) -> Rouge {
        Rouge { name, references: vec![TARGETS], accumulator: Accumulator::new() }
    }

    fn add(
        &mut self,
        observation: &Observation,
        overlap: impl Fn(&str, &str) -> Overlap,
    ) -> Result<(), MetricError> {
        // Summed for the batch first, so that merged states have the same bits.
        let mut sums = [0.0; 4];
        for (prediction, references) in texts(observation, &self.references)? {
            let overlaps = references.into_iter().map(|reference| overlap(prediction, reference));
            let best = overlaps.reduce(|best, other| if other.f1() > best.f1() { other } else { best });
            if let Some(best) = best {
                let item = [1.0, best.f1(), best.precision, best.recall];
                sums.iter_mut().zip(item).for_each(|(sum, number)| *sum += number);
            }
        }
        self.accumulator.sum_all(OVERLAPS, &sums)
    }

    fn result(&mut self) -> Result<MetricValues, MetricError> {
        let [f1, precision, recall] = match *self.accumulator.totals(OVERLAPS)? {
            [items, f1, precision, recall] => [f1, precision, recall].map(|sum| sum / items),
            _ => [f64::NAN; 3],
        };
        let values = MetricValues::scalar(self.name.clone(), f1);
        Ok(values
            .with(format!("{} precision", self.name), crate::MetricValue::Scalar(precision))
            .with(format!("{} recall", self.name), crate::MetricValue::Scalar(recall)))
    }
}

/// Returns the lower-case words of letters and digits.
fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

macro_rules! rouge_metric {
    ($metric:ident, |$rouge:ident, $prediction:ident, $reference:ident| $overlap:expr) => {
        impl $metric {
            /// Sets the name.
            #[must_use]
            pub fn named(mut self, name: impl Into<String>) -> $metric {
                self.rouge.name = name.into();
                self
            }

            /// Sets the names of the texts with references, each with one for every item; the reference with the
            /// highest F1 score counts. Default: [`TARGETS`] alone.
            #[must_use]
            pub fn references(mut self, names: &[&'static str]) -> $metric {
                self.rouge.references = names.to_vec();
                self
            }
        }

        impl AccumulatedMetric for $metric {
            fn name(&self) -> &str {
                &self.rouge.name
            }

            fn accumulator(&mut self) -> &mut Accumulator {
                &mut self.rouge.accumulator
            }

            fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
                let $rouge = self.clone();
                self.rouge.add(observation, |$prediction, $reference| $overlap)
            }

            fn result(&mut self) -> Result<MetricValues, MetricError> {
                self.rouge.result()
            }
        }
    };
}

/// ROUGE-N: the F1 score of the n-grams of words that a prediction shares with its reference, the mean over the items,
/// from 0 to 1 (Lin, 2004). Further values: `NAME precision` and `NAME recall`. Words are lower-case runs of letters
/// and digits of any script, without stemming. Inputs: see the [module](super).
#[derive(Clone, Debug)]
pub struct RougeN {
    n: usize,
    rouge: Rouge,
}

impl RougeN {
    /// Returns the metric of n-grams of `n` words, named such as `rouge-2`. An `n` of 0 is 1.
    pub fn new(n: usize) -> RougeN {
        RougeN { n: n.max(1), rouge: Rouge::new(format!("rouge-{n}")) }
    }
}

rouge_metric!(RougeN, |metric, prediction, reference| {
    let (prediction, reference) = (words(prediction), words(reference));
    let (predicted, expected) = (ngrams(&prediction, metric.n), ngrams(&reference, metric.n));
    Overlap::new(common(&predicted, &expected), predicted.values().sum(), expected.values().sum())
});

/// ROUGE-L: the F1 score of the longest common subsequence of the words of a prediction and its reference, the mean
/// over the items, from 0 to 1 (Lin, 2004). Further values: `NAME precision` and `NAME recall`. Words as in [`RougeN`].
/// Inputs: see the [module](super).
#[derive(Clone, Debug)]
pub struct RougeL {
    rouge: Rouge,
}

/// [`RougeL`] under the name that Burn uses.
pub type RougeLScore = RougeL;

impl RougeL {
    /// Returns the metric, named `rouge-l`.
    pub fn new() -> RougeL {
        RougeL { rouge: Rouge::new("rouge-l".to_owned()) }
    }
}

impl Default for RougeL {
    fn default() -> RougeL {
        RougeL::new()
    }
}

rouge_metric!(RougeL, |_metric, prediction, reference| {
    let (prediction, reference) = (words(prediction), words(reference));
    let common = subsequence(&reference, &prediction).len() as f64;
    Overlap::new(common, prediction.len() as f64, reference.len() as f64)
});

/// ROUGE-Lsum: as [`RougeL`], but the lines of a text are its sentences, and the words of a sentence of the reference
/// that are in a longest common subsequence with any sentence of the prediction count, each word as often as both texts
/// contain it (as in Google's `rouge-score`).
#[derive(Clone, Debug)]
pub struct RougeLSum {
    rouge: Rouge,
}

impl RougeLSum {
    /// Returns the metric, named `rouge-lsum`.
    pub fn new() -> RougeLSum {
        RougeLSum { rouge: Rouge::new("rouge-lsum".to_owned()) }
    }
}

impl Default for RougeLSum {
    fn default() -> RougeLSum {
        RougeLSum::new()
    }
}

rouge_metric!(RougeLSum, |_metric, prediction, reference| {
    let sentences = |text: &str| text.lines().map(words).collect::<Vec<_>>();
    summary_overlap(&sentences(prediction), &sentences(reference))
});

fn summary_overlap(prediction: &[Vec<String>], reference: &[Vec<String>]) -> Overlap {
    let mut predicted = word_counts(prediction);
    let mut expected = word_counts(reference);
    let totals = [&predicted, &expected].map(|counts| counts.values().sum::<f64>());
    let mut hits = 0.0;
    for sentence in reference {
        let mut places: Vec<usize> =
            prediction.iter().flat_map(|predicted| subsequence(sentence, predicted)).collect();
        places.sort_unstable();
        places.dedup();
        for word in places.into_iter().map(|place| sentence[place].as_str()) {
            let counts = (predicted.get_mut(word), expected.get_mut(word));
            let (Some(predicted), Some(expected)) = counts else { continue };
            if *predicted > 0.0 && *expected > 0.0 {
                hits += 1.0;
                *predicted -= 1.0;
                *expected -= 1.0;
            }
        }
    }
    Overlap::new(hits, totals[0], totals[1])
}

fn word_counts(sentences: &[Vec<String>]) -> HashMap<&str, f64> {
    let mut counts = HashMap::new();
    for word in sentences.iter().flatten() {
        *counts.entry(word.as_str()).or_insert(0.0) += 1.0;
    }
    counts
}

/// Returns the places in `a` of a longest common subsequence of `a` and `b`.
fn subsequence(a: &[String], b: &[String]) -> Vec<usize> {
    let width = b.len() + 1;
    let mut lengths = vec![0_usize; (a.len() + 1) * width];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            let (above, left) = (lengths[i * width + j + 1], lengths[(i + 1) * width + j]);
            let common = if x == y { lengths[i * width + j] + 1 } else { above.max(left) };
            lengths[(i + 1) * width + j + 1] = common;
        }
    }
    let (mut i, mut j) = (a.len(), b.len());
    let mut places = Vec::new();
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            (i, j) = (i - 1, j - 1);
            places.push(i);
        } else if lengths[i * width + j - 1] > lengths[(i - 1) * width + j] {
            j -= 1;
        } else {
            i -= 1;
        }
    }
    places.reverse();
    places
}
