//! Error rates by edit distance.

use super::text_pairs;
use crate::error::MetricError;
use crate::metric::{AccumulatedMetric, Accumulator, MetricValues};
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

#[derive(Clone, Copy)]
enum Unit {
    Char,
    Word,
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

fn add_edits(
    accumulator: &mut Accumulator,
    unit: Unit,
    observation: &Observation,
) -> Result<(), MetricError> {
    for (prediction, target) in text_pairs(observation)? {
        let [edits, targets, predictions] = match unit {
            Unit::Char => {
                let (target, prediction): (Vec<char>, Vec<char>) =
                    (target.chars().collect(), prediction.chars().collect());
                [edit_distance(&prediction, &target), target.len(), prediction.len()]
            }
            Unit::Word => {
                let target: Vec<&str> = target.split_whitespace().collect();
                let prediction: Vec<&str> = prediction.split_whitespace().collect();
                [edit_distance(&prediction, &target), target.len(), prediction.len()]
            }
        };
        let longer = targets.max(predictions);
        let numbers = [1, edits, targets, predictions, longer].map(|number| number as f64);
        accumulator.sum_all(EDITS, &numbers)?;
    }
    Ok(())
}

fn edits(accumulator: &mut Accumulator) -> Result<Edits, MetricError> {
    Ok(match *accumulator.totals(EDITS)? {
        [items, edits, targets, predictions, longer] => Edits { items, edits, targets, predictions, longer },
        _ => Edits { items: 0.0, edits: 0.0, targets: 0.0, predictions: 0.0, longer: 0.0 },
    })
}

macro_rules! edit_metrics {
    ($(
        $(#[$meta:meta])*
        $metric:ident, $name:literal, $unit:ident, higher is better: $higher:literal, $rate:expr;
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $metric {
            name: String,
            accumulator: Accumulator,
        }

        impl $metric {
            #[doc = concat!("Returns the metric, named `", $name, "`.")]
            pub fn new() -> $metric {
                $metric { name: $name.to_owned(), accumulator: Accumulator::new() }
            }

            /// Sets the name.
            #[must_use]
            pub fn named(mut self, name: impl Into<String>) -> $metric {
                self.name = name.into();
                self
            }
        }

        impl Default for $metric {
            fn default() -> $metric {
                $metric::new()
            }
        }

        impl AccumulatedMetric for $metric {
            fn name(&self) -> &str {
                &self.name
            }

            fn accumulator(&mut self) -> &mut Accumulator {
                &mut self.accumulator
            }

            fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
                add_edits(&mut self.accumulator, Unit::$unit, observation)
            }

            fn result(&mut self) -> Result<MetricValues, MetricError> {
                let rate: fn(Edits) -> f64 = $rate;
                Ok(MetricValues::scalar(self.name.clone(), rate(edits(&mut self.accumulator)?)))
            }

            fn higher_is_better(&self) -> bool {
                $higher
            }
        }
    )*};
}

edit_metrics! {
    /// Character error rate (CER): edits of characters divided by the characters of the targets, over all items. From
    /// 0; above 1 for long predictions. Characters are Unicode scalar values. Inputs: see the [module](super).
    CharErrorRate, "cer", Char, higher is better: false, |e| e.edits / e.targets;

    /// Word error rate (WER): edits of words divided by the words of the targets, over all items. From 0; above 1 for
    /// long predictions. Words are separated by white space. Inputs: see the [module](super).
    WordErrorRate, "wer", Word, higher is better: false, |e| e.edits / e.targets;

    /// Match error rate (MER): edits of words divided by the words of the longer text of each item, from 0 to 1.
    /// Inputs: see the [module](super).
    MatchErrorRate, "mer", Word, higher is better: false, |e| e.edits / e.longer;

    /// Word information preserved (WIP): `hits² / (words of targets · words of predictions)` with
    /// `hits = words of the longer text − edits`, from 0 to 1 (Morris et al., 2004). Inputs: see the [module](super).
    WordInformationPreserved, "wip", Word, higher is better: true, |e| {
        (e.hits() / e.targets) * (e.hits() / e.predictions)
    };

    /// Word information lost (WIL): 1 − [`WordInformationPreserved`], from 0 to 1. Inputs: see the [module](super).
    WordInformationLost, "wil", Word, higher is better: false, |e| {
        1.0 - (e.hits() / e.targets) * (e.hits() / e.predictions)
    };

    /// Edit distance (Levenshtein distance) of characters, the mean over the items. Inputs: see the [module](super).
    EditDistance, "edit distance", Char, higher is better: false, |e| e.edits / e.items;
}
