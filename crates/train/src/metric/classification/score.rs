//! Scores of counts: precision, recall and their relatives.

use kiln_tensor::DType;

use super::count::{ClassCounts, Counter, averaged};
use super::input::{ClassInput, refuse_invalid};
use super::{Average, Task};
use crate::error::MetricError;
use crate::metric::{AccumulatedMetric, Accumulator, MetricValue, MetricValues};
use crate::observation::Observation;

/// A score of the counts of a class.
#[derive(Clone, Copy, Debug)]
enum Score {
    Precision,
    Recall,
    FBeta(f64),
    Specificity,
    NegativePredictiveValue,
    Hamming,
    HammingDistance,
    Jaccard,
}

impl Score {
    fn of(self, c: &ClassCounts, task: Task, zero_division: f64) -> f64 {
        let ratio = |a: f64, b: f64| if b == 0.0 { zero_division } else { a / b };
        let (hits, correct) = (c.true_positives, c.true_positives + c.true_negatives);
        match self {
            Score::Precision => ratio(hits, c.predicted()),
            Score::Recall => ratio(hits, c.support()),
            Score::FBeta(beta) => {
                let square = beta * beta;
                let errors = square * c.false_negatives + c.false_positives;
                ratio((1.0 + square) * hits, (1.0 + square) * hits + errors)
            }
            Score::Specificity => ratio(c.true_negatives, c.true_negatives + c.false_positives),
            Score::NegativePredictiveValue => ratio(c.true_negatives, c.true_negatives + c.false_negatives),
            Score::Hamming => match task {
                Task::Binary | Task::Multilabel { .. } => ratio(correct, c.items()),
                Task::Multiclass { .. } => ratio(hits, c.support()),
            },
            Score::HammingDistance => 1.0 - Score::Hamming.of(c, task, zero_division),
            Score::Jaccard => ratio(hits, c.support() + c.false_positives),
        }
    }
}

/// The options and counts of a score.
#[derive(Clone, Debug)]
struct Scorer {
    name: String,
    score: Score,
    average: Average,
    zero_division: f64,
    counter: Counter,
}

impl Scorer {
    fn new(name: String, score: Score, task: Task) -> Scorer {
        Scorer { name, score, average: Average::Macro, zero_division: 0.0, counter: Counter::new(task) }
    }

    fn result(&mut self) -> Result<MetricValues, MetricError> {
        let mut counts = self.counter.counts()?;
        let (score, task, zero_division) = (self.score, self.counter.task, self.zero_division);
        if let (Score::Jaccard, Some(ignored)) = (score, self.ignored_class()) {
            // Predictions of the ignored class are no errors of any class.
            if let Some(counts) = counts.get_mut(ignored) {
                *counts = ClassCounts::default();
            }
        }
        let value = averaged(&counts, self.average, &self.counter, |c| score.of(c, task, zero_division));
        Ok(MetricValues::new().with(self.name.clone(), value))
    }

    fn ignored_class(&self) -> Option<usize> {
        match self.counter.task {
            Task::Multiclass { .. } => {
                self.counter.ignore_index.and_then(|index| usize::try_from(index).ok())
            }
            Task::Binary | Task::Multilabel { .. } => None,
        }
    }
}

macro_rules! scores {
    ($($(#[$meta:meta])* $metric:ident, $name:literal, $score:expr, higher is better: $higher:literal;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $metric(Scorer);

        impl $metric {
            #[doc = concat!("Returns the metric of one label of 0 or 1, named `", $name, "`.")]
            pub fn binary() -> $metric {
                $metric::new(Task::Binary)
            }

            #[doc = concat!("Returns the metric of a number of classes, named `", $name, "`.")]
            pub fn multiclass(classes: usize) -> $metric {
                $metric::new(Task::Multiclass { classes })
            }

            #[doc = concat!("Returns the metric of a number of labels of 0 or 1, named `", $name, "`.")]
            pub fn multilabel(labels: usize) -> $metric {
                $metric::new(Task::Multilabel { labels })
            }

            #[doc = concat!("Returns the metric of a task, named `", $name, "`.")]
            pub fn new(task: Task) -> $metric {
                $metric(Scorer::new($name.to_owned(), $score, task))
            }
        }

        score_options!($metric, $higher);
    )*};
}

macro_rules! score_options {
    ($metric:ident, $higher:literal) => {
        impl $metric {
            /// Sets the name.
            #[must_use]
            pub fn named(mut self, name: impl Into<String>) -> $metric {
                self.0.name = name.into();
                self
            }

            /// Sets the average over classes or labels. Default: macro.
            #[must_use]
            pub fn average(mut self, average: Average) -> $metric {
                self.0.average = average;
                self
            }

            /// Sets the probability above which a label is predicted. Default: 0.5.
            #[must_use]
            pub fn threshold(mut self, threshold: f64) -> $metric {
                self.0.counter.threshold = threshold;
                self
            }

            /// Counts an item of several classes as correct if its class is among the `k` highest scores; otherwise the
            /// class with the highest score is predicted. Default: 1.
            #[must_use]
            pub fn top_k(mut self, k: usize) -> $metric {
                self.0.counter.top_k = k.max(1);
                self
            }

            /// Leaves out targets of this value. Default: none.
            #[must_use]
            pub fn ignore_index(mut self, index: i64) -> $metric {
                self.0.counter.ignore_index = Some(index);
                self
            }

            /// Sets the score of a class whose denominator is 0. Default: 0.
            #[must_use]
            pub fn zero_division(mut self, score: f64) -> $metric {
                self.0.zero_division = score;
                self
            }
        }

        impl AccumulatedMetric for $metric {
            fn name(&self) -> &str {
                &self.0.name
            }

            fn accumulator(&mut self) -> &mut Accumulator {
                &mut self.0.counter.accumulator
            }

            fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
                self.0.counter.add(observation)
            }

            fn result(&mut self) -> Result<MetricValues, MetricError> {
                self.0.result()
            }

            fn higher_is_better(&self) -> bool {
                $higher
            }
        }
    };
}

scores! {
    /// Precision: `TP / (TP + FP)`, from 0 to 1. Inputs and tasks: see the [module](super).
    Precision, "precision", Score::Precision, higher is better: true;

    /// Recall (sensitivity): `TP / (TP + FN)`, from 0 to 1. Its macro average is the balanced accuracy. Inputs and
    /// tasks: see the [module](super).
    Recall, "recall", Score::Recall, higher is better: true;

    /// F1 score: `2 TP / (2 TP + FN + FP)`, the harmonic mean of precision and recall, from 0 to 1. Inputs and tasks:
    /// see the [module](super).
    F1Score, "f1", Score::FBeta(1.0), higher is better: true;

    /// Specificity: `TN / (TN + FP)`, from 0 to 1. Inputs and tasks: see the [module](super).
    Specificity, "specificity", Score::Specificity, higher is better: true;

    /// Negative predictive value: `TN / (TN + FN)`, from 0 to 1. Inputs and tasks: see the [module](super).
    NegativePredictiveValue, "negative predictive value", Score::NegativePredictiveValue, higher is better: true;

    /// Hamming score: the fraction of labels that are predicted correctly, `(TP + TN) / items`, from 0 to 1; of several
    /// classes, the fraction of items of a class that are predicted correctly. Inputs and tasks: see the
    /// [module](super).
    HammingScore, "hamming score", Score::Hamming, higher is better: true;

    /// Hamming distance (Hamming loss): 1 − [`HammingScore`], from 0 to 1. Inputs and tasks: see the [module](super).
    HammingDistance, "hamming distance", Score::HammingDistance, higher is better: false;

    /// Jaccard index (intersection over union): `TP / (TP + FP + FN)`, from 0 to 1. Its macro average over the classes
    /// of pixels is the mIoU of segmentation. An ignored class is left out of averages. Inputs and tasks: see the
    /// [module](super).
    JaccardIndex, "jaccard index", Score::Jaccard, higher is better: true;
}

/// F-beta score: `(1 + β²) TP / ((1 + β²) TP + β² FN + FP)`, from 0 to 1. A β above 1 weights recall more than
/// precision. Inputs and tasks: see the [module](super).
#[derive(Clone, Debug)]
pub struct FBetaScore(Scorer);

impl FBetaScore {
    /// Returns the metric of one label of 0 or 1, named such as `f2`.
    pub fn binary(beta: f64) -> FBetaScore {
        FBetaScore::new(Task::Binary, beta)
    }

    /// Returns the metric of a number of classes, named such as `f2`.
    pub fn multiclass(classes: usize, beta: f64) -> FBetaScore {
        FBetaScore::new(Task::Multiclass { classes }, beta)
    }

    /// Returns the metric of a number of labels of 0 or 1, named such as `f2`.
    pub fn multilabel(labels: usize, beta: f64) -> FBetaScore {
        FBetaScore::new(Task::Multilabel { labels }, beta)
    }

    /// Returns the metric of a task, named such as `f2`.
    pub fn new(task: Task, beta: f64) -> FBetaScore {
        FBetaScore(Scorer::new(format!("f{beta}"), Score::FBeta(beta), task))
    }
}

score_options!(FBetaScore, true);

/// [`Precision`] under the name that Burn uses.
pub type PrecisionMetric = Precision;

/// [`Recall`] under the name that Burn uses.
pub type RecallMetric = Recall;

/// [`FBetaScore`] under the name that Burn uses.
pub type FBetaScoreMetric = FBetaScore;

/// The counts of each class: a matrix with a row for each class and the columns true positives, false positives, true
/// negatives, false negatives and support (the number of targets). Inputs and tasks: see the [module](super).
#[derive(Clone, Debug)]
pub struct StatScores {
    name: String,
    counter: Counter,
}

impl StatScores {
    /// Returns the metric of a task, named `stat scores`.
    pub fn new(task: Task) -> StatScores {
        StatScores { name: "stat scores".to_owned(), counter: Counter::new(task) }
    }

    /// Sets the probability above which a label is predicted. Default: 0.5.
    #[must_use]
    pub fn threshold(mut self, threshold: f64) -> StatScores {
        self.counter.threshold = threshold;
        self
    }

    /// Counts an item of several classes as correct if its class is among the `k` highest scores. Default: 1.
    #[must_use]
    pub fn top_k(mut self, k: usize) -> StatScores {
        self.counter.top_k = k.max(1);
        self
    }

    /// Leaves out targets of this value. Default: none.
    #[must_use]
    pub fn ignore_index(mut self, index: i64) -> StatScores {
        self.counter.ignore_index = Some(index);
        self
    }

    /// Returns the counts of each class; none without items. Waits for the device.
    ///
    /// # Errors
    /// When labels were out of range, or the device failed.
    pub fn counts(&mut self) -> Result<Vec<ClassCounts>, MetricError> {
        self.counter.counts()
    }
}

impl AccumulatedMetric for StatScores {
    fn name(&self) -> &str {
        &self.name
    }

    fn accumulator(&mut self) -> &mut Accumulator {
        &mut self.counter.accumulator
    }

    fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
        self.counter.add(observation)
    }

    fn result(&mut self) -> Result<MetricValues, MetricError> {
        let counts = self.counter.counts()?;
        let row = |c: &ClassCounts| {
            [c.true_positives, c.false_positives, c.true_negatives, c.false_negatives, c.support()]
        };
        let elements = counts.iter().flat_map(row).collect();
        let matrix = MetricValue::Matrix { rows: counts.len(), columns: 5, elements };
        Ok(MetricValues::new().with(self.name.clone(), matrix))
    }
}

/// Exact match (subset accuracy): the fraction of items whose labels are all predicted correctly, from 0 to 1. Ignored
/// labels count as correct. Inputs: see the [module](super) under `multilabel`.
#[derive(Clone, Debug)]
pub struct ExactMatch {
    name: String,
    counter: Counter,
}

impl ExactMatch {
    /// Returns the metric of a number of labels, named `exact match`.
    pub fn multilabel(labels: usize) -> ExactMatch {
        ExactMatch { name: "exact match".to_owned(), counter: Counter::new(Task::Multilabel { labels }) }
    }

    /// Sets the probability above which a label is predicted. Default: 0.5.
    #[must_use]
    pub fn threshold(mut self, threshold: f64) -> ExactMatch {
        self.counter.threshold = threshold;
        self
    }

    /// Leaves out targets of this value. Default: none.
    #[must_use]
    pub fn ignore_index(mut self, index: i64) -> ExactMatch {
        self.counter.ignore_index = Some(index);
        self
    }
}

impl AccumulatedMetric for ExactMatch {
    fn name(&self) -> &str {
        &self.name
    }

    fn accumulator(&mut self) -> &mut Accumulator {
        &mut self.counter.accumulator
    }

    fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
        let Counter { task, threshold, ignore_index, .. } = self.counter;
        let input = ClassInput::read(observation, task, ignore_index)?;
        let decisions = input.decisions(threshold, 1)?;
        input.count_invalid(&mut self.counter.accumulator)?;
        let items = input.targets.shape()[0];
        let correct = decisions.equal(input.targets.cast(DType::Bool)?)?;
        let matches = correct.logical_or(input.valid.logical_not()?)?.all_dim(1)?;
        self.counter.accumulator.count("items", items as f64);
        self.counter.accumulator.sum("matches", matches.cast(DType::I32)?.sum()?)
    }

    fn result(&mut self) -> Result<MetricValues, MetricError> {
        let Counter { task, ignore_index, .. } = self.counter;
        let accumulator = &mut self.counter.accumulator;
        refuse_invalid(accumulator, task, ignore_index)?;
        let score = accumulator.total("matches")? / accumulator.total("items")?;
        Ok(MetricValues::scalar(self.name.clone(), score))
    }
}
