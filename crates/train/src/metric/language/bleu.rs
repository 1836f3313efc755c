//! BLEU.

use std::collections::HashMap;

use super::{common, ngrams, texts};
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValues};
use crate::observation::{Observation, TARGETS};

/// BLEU of a corpus, `bleu`: `brevity penalty · exp(mean ln pₙ)` with the precisions `pₙ` of n-grams of 1 to 4 words,
/// from 0 to 1 (Papineni et al., 2002). The counts of all items are summed first. The brevity penalty is
/// `exp(1 − r / c)` where the predictions have `c` words, fewer than the `r` of the references; of several references
/// the length closest to that of the prediction counts. Without a common n-gram of each length BLEU is 0. Words are
/// separated by white space: tokenize the texts as the published figures do.
pub type Bleu = Accumulated<BleuRule>;

/// The rule of [`Bleu`].
#[derive(Clone, Debug)]
pub struct BleuRule {
    longest: usize,
    smooth: bool,
    references: Vec<&'static str>,
}

impl Default for BleuRule {
    fn default() -> BleuRule {
        BleuRule { longest: 4, smooth: false, references: vec![TARGETS] }
    }
}

/// [`Bleu`] under the name that Burn uses.
pub type BleuScore = Bleu;

impl Bleu {
    kiln_ir::setters! {
        /// Sets the number of words in the longest n-grams. A number of 0 is 1. Default: 4.
        longest_ngram(words: usize) => rule.longest = words.max(1);

        /// Adds 1 to numerators and denominators of the precisions of n-grams of 2 and more words (Lin and Och, 2004).
        /// Default: no.
        smooth() => rule.smooth = true;

        /// Sets the names of the texts with references, each with one for every item. Default: [`TARGETS`] alone.
        references(names: &[&'static str]) => rule.references = names.to_vec();
    }
}

impl MetricRule for BleuRule {
    crate::metric::facts!("bleu");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        for (prediction, references) in texts(observation, &self.references)? {
            let prediction = words(prediction);
            let references: Vec<Vec<&str>> = references.into_iter().map(words).collect();
            let (mut matches, mut totals) = (Vec::new(), Vec::new());
            for length in 1..=self.longest {
                let counts = ngrams(&prediction, length);
                matches.push(common(&counts, &most(&references, length)));
                totals.push(counts.values().sum::<f64>());
            }
            sums.sum_all("matches", &matches)?;
            sums.sum_all("totals", &totals)?;
            let lengths = [prediction.len() as f64, closest(&references, prediction.len()) as f64];
            sums.sum_all("lengths", &lengths)?;
        }
        Ok(())
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let matches = sums.totals("matches")?.to_vec();
        let totals = sums.totals("totals")?.to_vec();
        let bleu = match *sums.totals("lengths")? {
            [predicted, expected] => {
                bleu(&matches, &totals, self.smooth) * brevity_penalty(predicted, expected)
            }
            _ => f64::NAN,
        };
        Ok(MetricValues::scalar(name, bleu))
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// Returns for each n-gram the greatest count in a reference.
fn most<'a>(references: &'a [Vec<&'a str>], length: usize) -> HashMap<&'a [&'a str], f64> {
    let mut most = HashMap::new();
    for reference in references {
        for (ngram, count) in ngrams(reference, length) {
            let greatest = most.entry(ngram).or_insert(0.0);
            *greatest = count.max(*greatest);
        }
    }
    most
}

/// Returns the length of the reference that is closest to a length, the first of several.
fn closest(references: &[Vec<&str>], length: usize) -> usize {
    let lengths = references.iter().map(Vec::len);
    lengths.min_by_key(|reference| reference.abs_diff(length)).unwrap_or(0)
}

/// Returns the geometric mean of the precisions.
fn bleu(matches: &[f64], totals: &[f64], smooth: bool) -> f64 {
    if matches.contains(&0.0) {
        return 0.0;
    }
    let precision = |(order, (hits, total)): (usize, (&f64, &f64))| {
        if smooth && order > 0 { (hits + 1.0) / (total + 1.0) } else { hits / total }
    };
    let logarithms = matches.iter().zip(totals).enumerate().map(precision).map(f64::ln);
    (logarithms.sum::<f64>() / matches.len() as f64).exp()
}

fn brevity_penalty(predicted: f64, expected: f64) -> f64 {
    if predicted > expected { 1.0 } else { (1.0 - expected / predicted).exp() }
}
