//! ROUGE.

use std::collections::HashMap;
use std::fmt::Debug;

use super::{common, ngrams, texts};
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValue, MetricValues};
use crate::observation::{Observation, TARGETS};

/// Precision and recall of an item.
#[derive(Clone, Copy, Debug)]
pub struct Overlap {
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

/// The overlap of a prediction and a reference.
pub trait RougeMeasure: Clone + Debug + Send + 'static {
    /// Returns the name of the metric.
    fn name(&self) -> String;

    /// Returns the overlap of two texts.
    fn overlap(&self, prediction: &str, reference: &str) -> Overlap;
}

/// The rule of ROUGE: the mean of overlaps over items.
#[derive(Clone, Debug)]
pub struct RougeRule<M> {
    measure: M,
    references: Vec<&'static str>,
}

impl<M> RougeRule<M> {
    fn new(measure: M) -> RougeRule<M> {
        RougeRule { measure, references: vec![TARGETS] }
    }
}

impl<M: Default> Default for RougeRule<M> {
    fn default() -> RougeRule<M> {
        RougeRule::new(M::default())
    }
}

const OVERLAPS: &str = "overlaps";

impl<M: RougeMeasure> Accumulated<RougeRule<M>> {
    kiln_ir::setters! {
        /// Sets the names of the texts with references, each with one for every item; the reference with the highest F1
        /// score counts. Default: [`TARGETS`] alone.
        references(names: &[&'static str]) => rule.references = names.to_vec();
    }
}

impl<M: RougeMeasure> MetricRule for RougeRule<M> {
    fn name(&self) -> String {
        self.measure.name()
    }

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        // Summed for the batch first, so that merged states have the same bits.
        let mut batch = [0.0; 4];
        for (prediction, references) in texts(observation, &self.references)? {
            let overlaps =
                references.into_iter().map(|reference| self.measure.overlap(prediction, reference));
            let best = overlaps.reduce(|best, other| if other.f1() > best.f1() { other } else { best });
            if let Some(best) = best {
                let item = [1.0, best.f1(), best.precision, best.recall];
                batch.iter_mut().zip(item).for_each(|(sum, number)| *sum += number);
            }
        }
        sums.sum_all(OVERLAPS, &batch)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let [f1, precision, recall] = match *sums.totals(OVERLAPS)? {
            [items, f1, precision, recall] => [f1, precision, recall].map(|sum| sum / items),
            _ => [f64::NAN; 3],
        };
        Ok(MetricValues::scalar(name, f1)
            .with(format!("{name} precision"), MetricValue::Scalar(precision))
            .with(format!("{name} recall"), MetricValue::Scalar(recall)))
    }
}

/// Returns the lower-case words of letters and digits.
fn words(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// ROUGE-N: the F1 score of the n-grams of words that a prediction shares with its reference, the mean over the items,
/// from 0 to 1 (Lin, 2004). Further values: `NAME precision` and `NAME recall`. Words are lower-case runs of letters
/// and digits of any script, without stemming. Inputs: see the [module](super).
pub type RougeN = Accumulated<RougeRule<NGrams>>;

/// The overlap of [`RougeN`].
#[derive(Clone, Copy, Debug)]
pub struct NGrams {
    n: usize,
}

impl RougeN {
    /// Returns the metric of n-grams of `n` words, named such as `rouge-2`. An `n` of 0 is 1.
    pub fn new(n: usize) -> RougeN {
        RougeN::of(RougeRule::new(NGrams { n: n.max(1) })).named(format!("rouge-{n}"))
    }
}

impl RougeMeasure for NGrams {
    fn name(&self) -> String {
        format!("rouge-{}", self.n)
    }

    fn overlap(&self, prediction: &str, reference: &str) -> Overlap {
        let (prediction, reference) = (words(prediction), words(reference));
        let (predicted, expected) = (ngrams(&prediction, self.n), ngrams(&reference, self.n));
        Overlap::new(common(&predicted, &expected), predicted.values().sum(), expected.values().sum())
    }
}

/// ROUGE-L, `rouge-l`: the F1 score of the longest common subsequence of the words of a prediction and its reference,
/// the mean over the items, from 0 to 1 (Lin, 2004). Further values: `NAME precision` and `NAME recall`. Words as in
/// [`RougeN`]. Inputs: see the [module](super).
pub type RougeL = Accumulated<RougeRule<Sequence>>;

/// [`RougeL`] under the name that Burn uses.
pub type RougeLScore = RougeL;

/// The overlap of [`RougeL`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Sequence;

impl RougeMeasure for Sequence {
    crate::metric::facts!("rouge-l");

    fn overlap(&self, prediction: &str, reference: &str) -> Overlap {
        let (prediction, reference) = (words(prediction), words(reference));
        let common = subsequence(&reference, &prediction).len() as f64;
        Overlap::new(common, prediction.len() as f64, reference.len() as f64)
    }
}

/// ROUGE-Lsum, `rouge-lsum`: as [`RougeL`], but the lines of a text are its sentences, and the words of a sentence of
/// the reference that are in a longest common subsequence with any sentence of the prediction count, each word as often
/// as both texts contain it (as in Google's `rouge-score`).
pub type RougeLSum = Accumulated<RougeRule<Sentences>>;

/// The overlap of [`RougeLSum`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Sentences;

impl RougeMeasure for Sentences {
    crate::metric::facts!("rouge-lsum");

    fn overlap(&self, prediction: &str, reference: &str) -> Overlap {
        let sentences = |text: &str| text.lines().map(words).collect::<Vec<_>>();
        summary_overlap(&sentences(prediction), &sentences(reference))
    }
}

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
