//! Metrics of rankings, as in search and recommendation.
//!
//! Scores are the [`PREDICTIONS`] of the observation, relevances its [`TARGETS`]; both have the shape
//! `[queries, documents]`, or `[documents]` with the query of each document as [`QUERIES`]. The documents of a query
//! may then come in several batches. All scores are kept until the metric is reset.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::{Int, Tensor};
//! use kiln_train::metric::MeanReciprocalRank;
//! use kiln_train::{Metric, Observation, PREDICTIONS, TARGETS};
//!
//! let device = Default::default();
//! let scores = Tensor::<Flex, 2>::from_floats([[0.9, 0.2, 0.5], [0.1, 0.8, 0.3]], &device);
//! let relevant = Tensor::<Flex, 2, Int>::from_ints([[0, 0, 1], [0, 1, 0]], &device);
//! let batch = Observation::new(2).with(PREDICTIONS, scores.into_any()).with(TARGETS, relevant.into_any());
//!
//! let mut mrr = MeanReciprocalRank::new();
//! mrr.update(&batch)?;
//! assert_eq!(mrr.values()?.main(), Some(0.75));
//! # Ok::<(), kiln_train::MetricError>(())
//! ```

use std::collections::HashMap;

use super::shape::{require_shape_of, wide, wrong_shape};
use super::{AccumulatedMetric, Accumulator, MetricValues};
use crate::error::MetricError;
use crate::observation::{Observation, PREDICTIONS, TARGETS};

/// The name of the queries of documents in an [`Observation`]: integers `[documents]`.
pub const QUERIES: &str = "queries";

/// The value of queries without relevant documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmptyQueries {
    /// 0.
    #[default]
    Zero,
    /// 1.
    One,
    /// The mean is over the other queries.
    Skip,
}

#[derive(Clone, Copy, Debug)]
enum Measure {
    ReciprocalRank,
    HitRate,
    Recall,
    Precision,
    AveragePrecision,
    RPrecision,
    Ndcg { exponential: bool },
}

/// The mean of a measure over queries.
#[derive(Clone, Debug)]
struct Ranker {
    name: String,
    measure: Measure,
    k: Option<usize>,
    empty: EmptyQueries,
    accumulator: Accumulator,
}

/// A document of a query.
#[derive(Clone, Copy)]
struct Document {
    score: f64,
    relevance: f64,
}

const SCORES: &str = "scores";
const RELEVANCES: &str = "relevances";
const QUERY_ROWS: &str = "queries";
const ROW_SCORES: &str = "row scores";
const ROW_RELEVANCES: &str = "row relevances";
const ROW_LENGTHS: &str = "row lengths";

impl Ranker {
    fn new(name: String, measure: Measure, k: Option<usize>) -> Ranker {
        let k = k.map(|k| k.max(1));
        Ranker { name, measure, k, empty: EmptyQueries::Zero, accumulator: Accumulator::new() }
    }

    fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
        let (scores, relevances) = (wide(observation.tensor(PREDICTIONS)?)?, observation.tensor(TARGETS)?);
        require_shape_of(TARGETS, &relevances, (PREDICTIONS, &scores))?;
        if observation.tensors.contains_key(QUERIES) {
            let queries = observation.tensor(QUERIES)?;
            require_shape_of(QUERIES, &queries, (PREDICTIONS, &scores))?;
            if queries.dtype().is_float() {
                let problem = format!("has dtype {}, expected integers", queries.dtype());
                return Err(MetricError::Input { name: QUERIES, problem });
            }
            self.accumulator.append(QUERY_ROWS, queries)?;
            self.accumulator.append(SCORES, scores)?;
            return self.accumulator.append(RELEVANCES, relevances);
        }
        if scores.rank() != 2 {
            let expected = format!("[queries, documents], or `{QUERIES}` with the query of each document");
            return Err(wrong_shape(PREDICTIONS, &scores, &expected));
        }
        let [queries, documents] = [scores.shape()[0], scores.shape()[1]];
        self.accumulator.append_all(ROW_LENGTHS, &vec![documents as f64; queries])?;
        self.accumulator.append(ROW_SCORES, scores)?;
        self.accumulator.append(ROW_RELEVANCES, relevances)
    }

    /// Returns the documents of each query, in the order in which they were added.
    fn queries(&mut self) -> Result<Vec<Vec<Document>>, MetricError> {
        let rows = documents(&mut self.accumulator, ROW_SCORES, ROW_RELEVANCES)?;
        let mut rest = rows.as_slice();
        let mut queries: Vec<Vec<Document>> = Vec::new();
        for &length in self.accumulator.numbers(ROW_LENGTHS)? {
            let (row, after) = rest.split_at(length as usize);
            queries.push(row.to_vec());
            rest = after;
        }
        let documents = documents(&mut self.accumulator, SCORES, RELEVANCES)?;
        let mut places = HashMap::new();
        for (document, query) in documents.into_iter().zip(self.accumulator.numbers(QUERY_ROWS)?) {
            let place = *places.entry(*query as i64).or_insert_with(|| {
                queries.push(Vec::new());
                queries.len() - 1
            });
            queries[place].push(document);
        }
        Ok(queries)
    }

    fn result(&mut self) -> Result<MetricValues, MetricError> {
        let (mut sum, mut count) = (0.0, 0.0);
        for mut query in self.queries()? {
            let is_empty = query.iter().all(|document| document.relevance <= 0.0);
            sum += match self.empty {
                EmptyQueries::Zero | EmptyQueries::One | EmptyQueries::Skip if !is_empty => {
                    self.measure.of(&mut query, self.k)
                }
                EmptyQueries::Zero => 0.0,
                EmptyQueries::One => 1.0,
                EmptyQueries::Skip => continue,
            };
            count += 1.0;
        }
        Ok(MetricValues::scalar(self.name.clone(), sum / count))
    }
}

fn documents(
    accumulator: &mut Accumulator,
    scores: &'static str,
    relevances: &'static str,
) -> Result<Vec<Document>, MetricError> {
    let relevances = accumulator.numbers(relevances)?.to_vec();
    let scores = accumulator.numbers(scores)?;
    if scores.iter().any(|score| score.is_nan()) {
        let problem = "contains NaN, which has no place in a ranking".to_owned();
        return Err(MetricError::Input { name: PREDICTIONS, problem });
    }
    let pairs = scores.iter().zip(relevances);
    Ok(pairs.map(|(&score, relevance)| Document { score, relevance }).collect())
}

impl Measure {
    /// Returns the measure of a query with at least one relevant document.
    fn of(self, query: &mut [Document], k: Option<usize>) -> f64 {
        query.sort_by(|a, b| b.score.total_cmp(&a.score));
        let k = k.unwrap_or(query.len());
        let is_relevant = |document: &Document| document.relevance > 0.0;
        let relevant = query.iter().filter(|document| is_relevant(document)).count();
        let hits = |k: usize| query.iter().take(k).filter(|document| is_relevant(document)).count() as f64;
        match self {
            Measure::ReciprocalRank => {
                let first = query.iter().take(k).position(is_relevant);
                first.map_or(0.0, |place| 1.0 / (place + 1) as f64)
            }
            Measure::HitRate => hits(k).min(1.0),
            Measure::Recall => hits(k) / relevant as f64,
            Measure::Precision => hits(k) / k as f64,
            Measure::RPrecision => hits(relevant) / relevant as f64,
            Measure::AveragePrecision => {
                let ranks = query.iter().take(k).enumerate().filter(|(_, document)| is_relevant(document));
                let precisions =
                    ranks.enumerate().map(|(before, (place, _))| (before + 1) as f64 / (place + 1) as f64);
                precisions.sum::<f64>() / hits(k).max(1.0)
            }
            Measure::Ndcg { exponential } => ndcg(query, k, exponential),
        }
    }
}

fn ndcg(query: &[Document], k: usize, exponential: bool) -> f64 {
    let gain = |relevance: f64| if exponential { relevance.exp2() - 1.0 } else { relevance };
    let discount = |place: usize| if place < k { 1.0 / ((place + 2) as f64).log2() } else { 0.0 };
    let (mut actual, mut place) = (0.0, 0);
    for tied in query.chunk_by(|a, b| a.score == b.score) {
        let mean = tied.iter().map(|document| gain(document.relevance)).sum::<f64>() / tied.len() as f64;
        actual += mean * (place..place + tied.len()).map(discount).sum::<f64>();
        place += tied.len();
    }
    let mut gains: Vec<f64> = query.iter().map(|document| gain(document.relevance)).collect();
    gains.sort_by(|a, b| b.total_cmp(a));
    let ideal: f64 = gains.iter().enumerate().map(|(place, gain)| gain * discount(place)).sum();
    actual / ideal
}

macro_rules! ranking_metrics {
    ($($(#[$meta:meta])* $metric:ident;)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $metric(Ranker);

        impl $metric {
            /// Sets the name.
            #[must_use]
            pub fn named(mut self, name: impl Into<String>) -> $metric {
                self.0.name = name.into();
                self
            }

            /// Sets the value of queries without relevant documents. Default: 0.
            #[must_use]
            pub fn empty_queries(mut self, empty: EmptyQueries) -> $metric {
                self.0.empty = empty;
                self
            }
        }

        impl AccumulatedMetric for $metric {
            fn name(&self) -> &str {
                &self.0.name
            }

            fn accumulator(&mut self) -> &mut Accumulator {
                &mut self.0.accumulator
            }

            fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
                self.0.add(observation)
            }

            fn result(&mut self) -> Result<MetricValues, MetricError> {
                self.0.result()
            }
        }
    )*};
}

ranking_metrics! {
    /// Mean reciprocal rank (MRR): the mean over queries of `1 / rank` of the first relevant document, from 0 to 1. The
    /// first of equal scores ranks first. Inputs: see the [module](self).
    MeanReciprocalRank;

    /// Normalized discounted cumulative gain: `DCG / ideal DCG` with `DCG = Σ gain / log₂(rank + 1)`, from 0 to 1, the
    /// mean over queries. Documents with equal scores share the mean of their gains, as in scikit-learn. Inputs: see
    /// the [module](self); relevances may be any numbers ≥ 0.
    Ndcg;

    /// Hit rate: the fraction of queries with a relevant document among the `k` highest scores. Inputs: see the
    /// [module](self).
    HitRate;

    /// Recall at k: the fraction of the relevant documents of a query that are among the `k` highest scores, the mean
    /// over queries. Inputs: see the [module](self).
    RecallAtK;

    /// Precision at k: the number of relevant documents among the `k` highest scores, divided by `k`, the mean over
    /// queries. Inputs: see the [module](self).
    PrecisionAtK;

    /// Mean average precision of rankings (MAP): the mean, over the ranks of the relevant documents, of the precision
    /// at this rank; then the mean over queries. From 0 to 1. With `k`, over the relevant documents among the `k`
    /// highest scores. Inputs: see the [module](self).
    RetrievalAveragePrecision;

    /// R-precision: the precision at the number of relevant documents of a query, the mean over queries. Inputs: see
    /// the [module](self).
    RPrecision;
}

impl MeanReciprocalRank {
    /// Returns the metric, named `mrr`.
    pub fn new() -> MeanReciprocalRank {
        MeanReciprocalRank(Ranker::new("mrr".to_owned(), Measure::ReciprocalRank, None))
    }

    /// Returns the metric over the `k` highest scores, named such as `mrr@10`. A `k` of 0 is 1.
    pub fn at(k: usize) -> MeanReciprocalRank {
        MeanReciprocalRank(Ranker::new(format!("mrr@{k}"), Measure::ReciprocalRank, Some(k)))
    }
}

impl Default for MeanReciprocalRank {
    fn default() -> MeanReciprocalRank {
        MeanReciprocalRank::new()
    }
}

impl Ndcg {
    /// Returns the metric over all documents, named `ndcg`. The gain is the relevance.
    pub fn new() -> Ndcg {
        Ndcg(Ranker::new("ndcg".to_owned(), Measure::Ndcg { exponential: false }, None))
    }

    /// Returns the metric over the `k` highest scores, named such as `ndcg@10`. A `k` of 0 is 1.
    pub fn at(k: usize) -> Ndcg {
        Ndcg(Ranker::new(format!("ndcg@{k}"), Measure::Ndcg { exponential: false }, Some(k)))
    }

    /// Uses the gain `2^relevance − 1` (Burges et al., 2005). Default: the relevance.
    #[must_use]
    pub fn exponential_gain(mut self) -> Ndcg {
        self.0.measure = Measure::Ndcg { exponential: true };
        self
    }
}

impl Default for Ndcg {
    fn default() -> Ndcg {
        Ndcg::new()
    }
}

impl HitRate {
    /// Returns the metric over the `k` highest scores, named such as `hit rate@10`. A `k` of 0 is 1.
    pub fn at(k: usize) -> HitRate {
        HitRate(Ranker::new(format!("hit rate@{k}"), Measure::HitRate, Some(k)))
    }
}

impl RecallAtK {
    /// Returns the metric over the `k` highest scores, named such as `recall@10`. A `k` of 0 is 1.
    pub fn at(k: usize) -> RecallAtK {
        RecallAtK(Ranker::new(format!("recall@{k}"), Measure::Recall, Some(k)))
    }
}

impl PrecisionAtK {
    /// Returns the metric over the `k` highest scores, named such as `precision@10`. A `k` of 0 is 1.
    pub fn at(k: usize) -> PrecisionAtK {
        PrecisionAtK(Ranker::new(format!("precision@{k}"), Measure::Precision, Some(k)))
    }
}

impl RetrievalAveragePrecision {
    /// Returns the metric over all documents, named `map`.
    pub fn new() -> RetrievalAveragePrecision {
        RetrievalAveragePrecision(Ranker::new("map".to_owned(), Measure::AveragePrecision, None))
    }

    /// Returns the metric over the `k` highest scores, named such as `map@10`. A `k` of 0 is 1.
    pub fn at(k: usize) -> RetrievalAveragePrecision {
        RetrievalAveragePrecision(Ranker::new(format!("map@{k}"), Measure::AveragePrecision, Some(k)))
    }
}

impl Default for RetrievalAveragePrecision {
    fn default() -> RetrievalAveragePrecision {
        RetrievalAveragePrecision::new()
    }
}

impl RPrecision {
    /// Returns the metric, named `r-precision`.
    pub fn new() -> RPrecision {
        RPrecision(Ranker::new("r-precision".to_owned(), Measure::RPrecision, None))
    }
}

impl Default for RPrecision {
    fn default() -> RPrecision {
        RPrecision::new()
    }
}
