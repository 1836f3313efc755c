//! Scores of counts: precision, recall and their relatives.

use std::fmt::Debug;
use std::marker::PhantomData;

use kiln_tensor::DType;

use super::count::{ClassCounts, Counter, averaged};
use super::input::{ClassInput, refuse_invalid};
use super::rule::{CounterRule, LabelsRule, TaskRule};
use super::{Average, Task};
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValue, MetricValues};
use crate::observation::Observation;

/// A score of the counts of a class.
#[derive(Clone, Copy, Debug)]
pub enum Score {
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
    fn name(self) -> String {
        match self {
            Score::Precision => "precision",
            Score::Recall => "recall",
            Score::FBeta(beta) => return format!("f{beta}"),
            Score::Specificity => "specificity",
            Score::NegativePredictiveValue => "negative predictive value",
            Score::Hamming => "hamming score",
            Score::HammingDistance => "hamming distance",
            Score::Jaccard => "jaccard index",
        }
        .to_owned()
    }

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

/// The rule of the metrics that are a [`Score`] of the counts. `K` separates their types.
#[derive(Clone, Debug)]
pub struct ScoreRule<K> {
    score: Score,
    average: Average,
    zero_division: f64,
    counter: Counter,
    kind: PhantomData<K>,
}

impl<K> ScoreRule<K> {
    fn new(score: Score, task: Task) -> ScoreRule<K> {
        let counter = Counter::new(task);
        ScoreRule { score, average: Average::Macro, zero_division: 0.0, counter, kind: PhantomData }
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

impl<K: Kind> MetricRule for ScoreRule<K> {
    fn name(&self) -> String {
        self.score.name()
    }

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        self.counter.add(sums, observation)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let mut counts = self.counter.counts(sums)?;
        if let (Score::Jaccard, Some(ignored)) = (self.score, self.ignored_class()) {
            // Predictions of the ignored class are no errors of any class.
            if let Some(counts) = counts.get_mut(ignored) {
                *counts = ClassCounts::default();
            }
        }
        let score = |c: &ClassCounts| self.score.of(c, self.counter.task, self.zero_division);
        let value = averaged(&counts, self.average, &self.counter, score);
        Ok(MetricValues::new().with(name, value))
    }

    fn higher_is_better(&self) -> bool {
        !matches!(self.score, Score::HammingDistance)
    }
}

/// A metric of this module.
pub trait Kind: Clone + Debug + Send + 'static {}

/// A metric whose score has no parameter.
pub trait PlainKind: Kind {
    /// The score.
    const SCORE: Score;
}

impl<K: PlainKind> TaskRule for ScoreRule<K> {
    fn of_task(task: Task) -> ScoreRule<K> {
        ScoreRule::new(K::SCORE, task)
    }
}

impl<K: PlainKind> LabelsRule for ScoreRule<K> {}

impl<K: Kind> CounterRule for ScoreRule<K> {
    fn counter(&mut self) -> &mut Counter {
        &mut self.counter
    }
}

impl<K: PlainKind> Accumulated<ScoreRule<K>> {
    /// Returns the metric of a task.
    pub fn new(task: Task) -> Self {
        Self::of(ScoreRule::of_task(task))
    }
}

impl<K: Kind> Accumulated<ScoreRule<K>> {
    kiln_ir::setters! {
        /// Sets the average over classes or labels. Default: macro.
        average(average: Average) => rule.average = average;

        /// Counts an item of several classes as correct if its class is among the `k` highest scores; otherwise the class
        /// with the highest score is predicted. Default: 1.
        top_k(k: usize) => rule.counter.top_k = k.max(1);

        /// Sets the score of a class whose denominator is 0. Default: 0.
        zero_division(score: f64) => rule.zero_division = score;
    }
}

macro_rules! scores {
    ($($(#[$meta:meta])* $metric:ident, $score:expr;)*) => {
        mod kind {
            $(
                #[derive(Clone, Copy, Debug)]
                pub struct $metric;
            )*

            #[derive(Clone, Copy, Debug)]
            pub struct FBeta;
        }

        $(
            $(#[$meta])*
            pub type $metric = Accumulated<ScoreRule<kind::$metric>>;

            impl Kind for kind::$metric {}

            impl PlainKind for kind::$metric {
                const SCORE: Score = $score;
            }
        )*
    };
}

scores! {
    /// Precision, `precision`: `TP / (TP + FP)`, from 0 to 1. Inputs and tasks: see the [module](super).
    Precision, Score::Precision;

    /// Recall (sensitivity), `recall`: `TP / (TP + FN)`, from 0 to 1. Its macro average is the balanced accuracy.
    /// Inputs and tasks: see the [module](super).
    Recall, Score::Recall;

    /// F1 score, `f1`: `2 TP / (2 TP + FN + FP)`, the harmonic mean of precision and recall, from 0 to 1. Inputs and
    /// tasks: see the [module](super).
    F1Score, Score::FBeta(1.0);

    /// Specificity, `specificity`: `TN / (TN + FP)`, from 0 to 1. Inputs and tasks: see the [module](super).
    Specificity, Score::Specificity;

    /// Negative predictive value, `negative predictive value`: `TN / (TN + FN)`, from 0 to 1. Inputs and tasks: see the
    /// [module](super).
    NegativePredictiveValue, Score::NegativePredictiveValue;

    /// Hamming score, `hamming score`: the fraction of labels that are predicted correctly, `(TP + TN) / items`, from 0
    /// to 1; of several classes, the fraction of items of a class that are predicted correctly. Inputs and tasks: see
    /// the [module](super).
    HammingScore, Score::Hamming;

    /// Hamming distance (Hamming loss), `hamming distance`: 1 − [`HammingScore`], from 0 to 1. Inputs and tasks: see
    /// the [module](super).
    HammingDistance, Score::HammingDistance;

    /// Jaccard index (intersection over union), `jaccard index`: `TP / (TP + FP + FN)`, from 0 to 1. Its macro average
    /// over the classes of pixels is the mIoU of segmentation. An ignored class is left out of averages. Inputs and
    /// tasks: see the [module](super).
    JaccardIndex, Score::Jaccard;
}

/// F-beta score, named such as `f2`: `(1 + β²) TP / ((1 + β²) TP + β² FN + FP)`, from 0 to 1. A β above 1 weights
/// recall more than precision. Inputs and tasks: see the [module](super).
pub type FBetaScore = Accumulated<ScoreRule<kind::FBeta>>;

impl Kind for kind::FBeta {}

impl FBetaScore {
    /// Returns the metric of one label of 0 or 1.
    pub fn binary(beta: f64) -> FBetaScore {
        FBetaScore::new(Task::Binary, beta)
    }

    /// Returns the metric of a number of classes.
    pub fn multiclass(classes: usize, beta: f64) -> FBetaScore {
        FBetaScore::new(Task::Multiclass { classes }, beta)
    }

    /// Returns the metric of a number of labels of 0 or 1.
    pub fn multilabel(labels: usize, beta: f64) -> FBetaScore {
        FBetaScore::new(Task::Multilabel { labels }, beta)
    }

    /// Returns the metric of a task.
    pub fn new(task: Task, beta: f64) -> FBetaScore {
        FBetaScore::of(ScoreRule::new(Score::FBeta(beta), task))
    }
}

/// [`Precision`] under the name that Burn uses.
pub type PrecisionMetric = Precision;

/// [`Recall`] under the name that Burn uses.
pub type RecallMetric = Recall;

/// [`FBetaScore`] under the name that Burn uses.
pub type FBetaScoreMetric = FBetaScore;

/// The counts of each class, `stat scores`: a matrix with a row for each class and the columns true positives, false
/// positives, true negatives, false negatives and support (the number of targets). Inputs and tasks: see the
/// [module](super).
pub type StatScores = Accumulated<StatRule>;

/// The rule of [`StatScores`].
#[derive(Clone, Debug)]
pub struct StatRule {
    counter: Counter,
}

impl StatScores {
    /// Returns the metric of a task.
    pub fn new(task: Task) -> StatScores {
        StatScores::of(StatRule { counter: Counter::new(task) })
    }

    kiln_ir::setters! {
        /// Counts an item of several classes as correct if its class is among the `k` highest scores. Default: 1.
        top_k(k: usize) => rule.counter.top_k = k.max(1);
    }

    /// Returns the counts of each class; none without items. Waits for the device.
    ///
    /// # Errors
    /// When labels were out of range, or the device failed.
    pub fn counts(&mut self) -> Result<Vec<ClassCounts>, MetricError> {
        self.rule.counter.counts(&mut self.sums)
    }
}

impl CounterRule for StatRule {
    fn counter(&mut self) -> &mut Counter {
        &mut self.counter
    }
}

impl MetricRule for StatRule {
    crate::metric::facts!("stat scores");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        self.counter.add(sums, observation)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let counts = self.counter.counts(sums)?;
        let row = |c: &ClassCounts| {
            [c.true_positives, c.false_positives, c.true_negatives, c.false_negatives, c.support()]
        };
        let elements = counts.iter().flat_map(row).collect();
        let matrix = MetricValue::Matrix { rows: counts.len(), columns: 5, elements };
        Ok(MetricValues::new().with(name, matrix))
    }
}

/// Exact match (subset accuracy), `exact match`: the fraction of items whose labels are all predicted correctly, from 0
/// to 1. Ignored labels count as correct. Inputs: see the [module](super) under `multilabel`.
pub type ExactMatch = Accumulated<ExactMatchRule>;

/// The rule of [`ExactMatch`].
#[derive(Clone, Debug)]
pub struct ExactMatchRule {
    counter: Counter,
}

impl ExactMatch {
    /// Returns the metric of a number of labels.
    pub fn multilabel(labels: usize) -> ExactMatch {
        ExactMatch::of(ExactMatchRule { counter: Counter::new(Task::Multilabel { labels }) })
    }
}

impl CounterRule for ExactMatchRule {
    fn counter(&mut self) -> &mut Counter {
        &mut self.counter
    }
}

impl MetricRule for ExactMatchRule {
    crate::metric::facts!("exact match");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let Counter { task, threshold, ignore_index, .. } = self.counter;
        let input = ClassInput::read(observation, task, ignore_index)?;
        let decisions = input.decisions(threshold, 1)?;
        input.count_invalid(sums)?;
        let items = input.targets.shape()[0];
        let correct = decisions.equal(input.targets.cast(DType::Bool)?)?;
        let matches = correct.logical_or(input.valid.logical_not()?)?.all_dim(1)?;
        sums.count("items", items as f64);
        sums.sum("matches", matches.cast(DType::I32)?.sum()?)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        refuse_invalid(sums, self.counter.task, self.counter.ignore_index)?;
        Ok(MetricValues::scalar(name, sums.ratio("matches", "items")?))
    }
}
