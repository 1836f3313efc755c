//! Error rates by edit distance.

use super::text_pairs;
use crate::error::MetricError;
use crate::metric::accumulated::plain_metrics;
use crate::metric::{Accumulator, MetricValues};
use crate::observation::Observation;

/// Returns the Levenshtein distance: the least number of insertions, deletions and substitutions.
fn edit_distance<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn chars(text: &str) -> Vec<char> {
    text.chars().collect()
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// The sums over all items.
#[derive(Clone, Copy)]
struct Edits {
    items: f64,
    edits: f64,
    /// Units of the targets, of the predictions, and of the longer of both.
    targets: f64,
    predictions: f64,
    longer: f64,
}

impl Edits {
    /// The number of units that agree.
    fn hits(self) -> f64 {
        self.longer - self.edits
    }
}

const EDITS: &str = "edits";

/// Adds the edits of units of texts, such as words.
fn add_edits<'a, T: PartialEq>(
    sums: &mut Accumulator,
    observation: &'a Observation,
    units: fn(&'a str) -> Vec<T>,
) -> Result<(), MetricError> {
    for (prediction, target) in text_pairs(observation)? {
        let (prediction, target) = (units(prediction), units(target));
        let edits = edit_distance(&prediction, &target);
        let longer = target.len().max(prediction.len());
        let numbers = [1, edits, target.len(), prediction.len(), longer].map(|number| number as f64);
        sums.sum_all(EDITS, &numbers)?;
    }
    Ok(())
}

fn edits(sums: &mut Accumulator) -> Result<Edits, MetricError> {
    Ok(match *sums.totals(EDITS)? {
        [items, edits, targets, predictions, longer] => Edits { items, edits, targets, predictions, longer },
        _ => Edits { items: 0.0, edits: 0.0, targets: 0.0, predictions: 0.0, longer: 0.0 },
    })
}

plain_metrics! {
    /// Character error rate (CER), `cer`: edits of characters divided by the characters of the targets, over all items.
    /// From 0; above 1 for long predictions. Characters are Unicode scalar values. Inputs: see the [module](super).
    CharErrorRate, "cer", higher is better: false,
        |sums, batch| add_edits(sums, batch, chars),
        |sums| edits(sums).map(|e| e.edits / e.targets);

    /// Word error rate (WER), `wer`: edits of words divided by the words of the targets, over all items. From 0; above
    /// 1 for long predictions. Words are separated by white space. Inputs: see the [module](super).
    WordErrorRate, "wer", higher is better: false,
        |sums, batch| add_edits(sums, batch, words),
        |sums| edits(sums).map(|e| e.edits / e.targets);

    /// Match error rate (MER), `mer`: edits of words divided by the words of the longer text of each item, from 0 to 1.
    /// Inputs: see the [module](super).
    MatchErrorRate, "mer", higher is better: false,
        |sums, batch| add_edits(sums, batch, words),
        |sums| edits(sums).map(|e| e.edits / e.longer);

    /// Word information preserved (WIP), `wip`: `hits² / (words of targets · words of predictions)` with
    /// `hits = words of the longer text − edits`, from 0 to 1 (Morris et al., 2004). Inputs: see the [module](super).
    WordInformationPreserved, "wip", higher is better: true,
        |sums, batch| add_edits(sums, batch, words),
        |sums| edits(sums).map(|e| (e.hits() / e.targets) * (e.hits() / e.predictions));

    /// Word information lost (WIL), `wil`: 1 − [`WordInformationPreserved`], from 0 to 1. Inputs: see the
    /// [module](super).
    WordInformationLost, "wil", higher is better: false,
        |sums, batch| add_edits(sums, batch, words),
        |sums| edits(sums).map(|e| 1.0 - (e.hits() / e.targets) * (e.hits() / e.predictions));

    /// Edit distance (Levenshtein distance) of characters, `edit distance`: the mean over the items. Inputs: see
    /// the [module](super).
    EditDistance, "edit distance", higher is better: false,
        |sums, batch| add_edits(sums, batch, chars),
        |sums| edits(sums).map(|e| e.edits / e.items);
}
