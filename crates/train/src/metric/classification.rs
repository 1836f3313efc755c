//! Metrics of classification.
//!
//! Each metric has a constructor for each task:
//!
//! | constructor | scores | targets |
//! |---|---|---|
//! | `binary()` | `[batch, ..]`, or `[batch, 2]` with the positive class second | `[batch, ..]` of 0 and 1 |
//! | `multiclass(classes)` | `[batch, classes, ..]` | `[batch, ..]` of class indices |
//! | `multilabel(labels)` | `[batch, labels, ..]` | `[batch, labels, ..]` of 0 and 1 |
//!
//! Scores are the [`LOGITS`](crate::LOGITS) of the observation, or without these its
//! [`PREDICTIONS`](crate::PREDICTIONS): probabilities in floating point, or predicted classes (integers, `bool`) of the
//! shape of the [`TARGETS`](crate::TARGETS). Probabilities of logits are their sigmoid, for classes their softmax. A
//! class is predicted if it has the highest score, the first of several; a label if its probability is above a
//! threshold, 0.5 by default. All positions count as items of their own.
//!
//! Targets that equal the ignored index are left out. Other targets out of range are an error when the value is read.
//! Definitions and names are those of [torchmetrics](https://lightning.ai/docs/torchmetrics/stable/), which the tests
//! compare.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::{Int, Tensor};
//! use kiln_train::metric::{Average, F1Score};
//! use kiln_train::{LOGITS, Metric, Observation, TARGETS};
//!
//! let device = Default::default();
//! let logits = Tensor::<Flex, 2>::from_floats([[2.0, 0.1, 0.3], [0.2, 1.5, 0.1], [0.3, 0.9, 0.8]], &device);
//! let targets = Tensor::<Flex, 1, Int>::from_ints([0, 1, 2], &device);
//! let batch = Observation::new(3).with(LOGITS, logits.into_any()).with(TARGETS, targets.into_any());
//!
//! let mut f1 = F1Score::multiclass(3).average(Average::Macro);
//! f1.update(&batch)?;
//! assert!((f1.values()?.main().unwrap() - 5.0 / 9.0).abs() < 1e-12);
//! # Ok::<(), kiln_train::MetricError>(())
//! ```

mod confusion;
pub(super) mod count;
mod curve;
pub(super) mod input;
pub(super) mod rule;
mod score;

pub use confusion::{
    CohenKappa, ConfusionMatrix, KappaWeights, MatthewsCorrelationCoefficient, Normalization,
};
pub use count::ClassCounts;
pub use curve::{AucPr, AucPrMetric, Auroc, AurocMetric, AveragePrecision, PrecisionRecallCurve, RocCurve};
pub use score::{
    ExactMatch, F1Score, FBetaScore, FBetaScoreMetric, HammingDistance, HammingScore, JaccardIndex,
    NegativePredictiveValue, Precision, PrecisionMetric, Recall, RecallMetric, Specificity, StatScores,
};

/// The kind of labels that a classifier predicts; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// One label of 0 or 1.
    Binary,
    /// One of several classes.
    Multiclass {
        /// The number of classes.
        classes: usize,
    },
    /// Several labels of 0 or 1.
    Multilabel {
        /// The number of labels.
        labels: usize,
    },
}

impl Task {
    /// Returns the number of values that a target can have.
    fn label_range(self) -> usize {
        match self {
            Task::Binary | Task::Multilabel { .. } => 2,
            Task::Multiclass { classes } => classes,
        }
    }
}

/// The average of a score over classes or labels. It has no effect on binary classification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Average {
    /// The mean of the scores of the classes. A class that is neither predicted nor a target is left out.
    #[default]
    Macro,
    /// The score of the counts of all classes together.
    Micro,
    /// The mean of the scores of the classes, weighted by their number of targets.
    Weighted,
    /// No average: a value for each class.
    None,
}
