//! Metrics of training and validation.
//!
//! A [`Metric`] reads the [`Observation`] of each batch and has named [values](MetricValue): numbers, numbers per
//! class, matrices, histograms, images or text. A metric that is a function of sums or of collected rows is an
//! [`Accumulated`] metric, of which a [`MetricRule`] states the sums and their function:
//!
//! ```
//! use kiln_train::metric::{Accumulated, Accumulator, MetricRule, MetricValues};
//! use kiln_train::{MetricError, Observation, PREDICTIONS, TARGETS};
//!
//! /// The mean of prediction minus target.
//! #[derive(Clone, Debug, Default)]
//! struct Bias;
//!
//! impl MetricRule for Bias {
//!     fn name(&self) -> String {
//!         "bias".to_owned()
//!     }
//!
//!     fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
//!         let difference = observation.tensor(PREDICTIONS)?.sub(observation.tensor(TARGETS)?)?;
//!         sums.count("items", difference.shape().num_elements() as f64);
//!         sums.sum("difference", difference.sum()?)
//!     }
//!
//!     fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
//!         Ok(MetricValues::scalar(name, sums.ratio("difference", "items")?))
//!     }
//! }
//!
//! let metric = Accumulated::of(Bias).named("valid bias");
//! ```

mod accumulated;
mod accumulator;
mod accuracy;
pub mod calibration;
pub mod classification;
mod detection;
pub mod general;
mod generative;
pub mod language;
mod perceptual;
pub mod ranking;
pub mod regression;
mod reinforcement;
mod shape;
mod state;
mod value;
mod vision;

use std::fmt::Debug;

pub(crate) use accumulated::facts;
pub use accumulated::{Accumulated, MetricRule};
pub use accumulator::Accumulator;
pub use accuracy::{Accuracy, AccuracyMetric};
pub use calibration::{BrierScore, CalibrationError, CalibrationNorm};
pub use classification::{
    AucPr, AucPrMetric, Auroc, AurocMetric, Average, AveragePrecision, ClassCounts, CohenKappa,
    ConfusionMatrix, ExactMatch, F1Score, FBetaScore, FBetaScoreMetric, HammingDistance, HammingScore,
    JaccardIndex, KappaWeights, MatthewsCorrelationCoefficient, NegativePredictiveValue, Normalization,
    Precision, PrecisionMetric, PrecisionRecallCurve, Recall, RecallMetric, RocCurve, Specificity,
    StatScores, Task,
};
pub use detection::{
    BOXES, LABELS, MeanAveragePrecision, MeanAveragePrecisionMetric, NUM_BOXES, NUM_TARGET_BOXES, SCORES,
    TARGET_AREAS, TARGET_BOXES, TARGET_CROWDS, TARGET_LABELS, box_iou,
};
pub use general::{LearningRateMetric, LossMetric, MeanMetric};
pub use generative::{
    Features, FrechetInceptionDistance, FrechetInceptionDistanceMetric, InceptionScore, InceptionScoreMetric,
    KernelInceptionDistance, KernelInceptionDistanceMetric,
};
pub use language::{
    Bleu, BleuScore, CharErrorRate, ChrF, EditDistance, MatchErrorRate, Perplexity, PerplexityMetric, RougeL,
    RougeLScore, RougeLSum, RougeN, WordErrorRate, WordInformationLost, WordInformationPreserved,
};
pub use perceptual::{
    Afine, AfineAdapter, AfineFidelity, AfineHeads, AfineMetric, AfineNaturalness, AfineNet, AfineScale,
    Backbone, BackboneBlock, ClipBlock, ClipMlp, ClipTransformer, ClipVision, ClipVisionConfig, Dists,
    DistsMetric, DistsNet, DistsWeights, Fire, Lpips, LpipsHead, LpipsMetric, LpipsNet, Network,
};
pub use ranking::{
    EmptyQueries, HitRate, MeanReciprocalRank, Ndcg, PrecisionAtK, QUERIES, RPrecision, RecallAtK,
    RetrievalAveragePrecision,
};
pub use regression::{
    ConcordanceCorrelation, CosineSimilarity, ExplainedVariance, LogCoshError, MeanAbsoluteError,
    MeanAbsolutePercentageError, MeanSquaredError, MeanSquaredLogError, OutputAverage, PearsonCorrelation,
    R2Score, RootMeanSquaredError, SpearmanCorrelation, SymmetricMeanAbsolutePercentageError,
    WeightedMeanAbsolutePercentageError,
};
pub use reinforcement::{
    CumulativeReward, EPISODE_LENGTHS, EPISODE_REWARDS, EXPLORATION_RATES, EpisodeLength, ExplorationRate,
};
pub(crate) use shape::wide;
pub use state::MetricState;
pub use value::{MetricValue, MetricValues};
pub use vision::{
    Aggregation, ClassAverage, ClassWeight, Dice, DiceMetric, GeneralizedDice, MeanIou, MeanIouMetric,
    MsSsim, MsSsimMetric, Psnr, PsnrMetric, Ssim, SsimMetric,
};

pub use crate::system::{
    CpuMemory, CpuTemperature, CpuUse, CudaMetric, GpuUse, IterationSpeed, IterationSpeedMetric,
};

use crate::error::MetricError;
use crate::observation::Observation;

/// A metric over the batches of an epoch.
///
/// Training and each validation set have a metric of their own, made by [`fresh`](Metric::fresh). `update` should not
/// wait for the device; [`values`](Metric::values) and [`state`](Metric::state) may.
pub trait Metric: Debug + Send {
    /// Returns the name of the metric and of its main value, such as `accuracy`.
    fn name(&self) -> &str;

    /// Returns a metric with the same options and no batches.
    fn fresh(&self) -> Box<dyn Metric>;

    /// Removes all batches.
    fn reset(&mut self);

    /// Adds a batch.
    ///
    /// # Errors
    /// When the observation does not contain an input that the metric needs, or an op fails.
    fn update(&mut self, observation: &Observation) -> Result<(), MetricError>;

    /// Returns the values over all batches since the last reset, the main value first. A value without batches is NaN.
    ///
    /// # Errors
    /// When the device failed.
    fn values(&mut self) -> Result<MetricValues, MetricError>;

    /// Returns the state, from which another metric with the same options continues bit for bit.
    ///
    /// # Errors
    /// When the device failed.
    fn state(&mut self) -> Result<MetricState, MetricError>;

    /// Replaces the state.
    ///
    /// # Errors
    /// When the state belongs to another metric. The metric is then unchanged.
    fn load_state(&mut self, state: &MetricState) -> Result<(), MetricError>;

    /// Adds the batches of another metric with the same options, such as that of another worker.
    ///
    /// # Errors
    /// When the state belongs to another metric. The metric is then unchanged.
    fn merge(&mut self, state: &MetricState) -> Result<(), MetricError>;

    /// Returns whether a greater value is better. Default: yes.
    fn higher_is_better(&self) -> bool {
        true
    }

    /// Formats the main value. Default: four decimal places.
    fn format(&self, value: f64) -> String {
        format!("{value:.4}")
    }
}
