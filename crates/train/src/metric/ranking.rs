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

mod measure;

use std::collections::HashMap;
use std::marker::PhantomData;

use measure::{AtK, Document, Kind, Measure, OverAll};

use super::shape::{require_shape_of, wide, wrong_shape};
use super::{Accumulated, Accumulator, MetricRule, MetricValues};
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

/// The rule of metrics that are the mean of a measure over queries. `K` separates their types.
#[derive(Clone, Debug)]
pub struct RankingRule<K> {
    measure: Measure,
    k: Option<usize>,
    empty: EmptyQueries,
    kind: PhantomData<K>,
}

impl<K: Kind> RankingRule<K> {
    fn new(k: Option<usize>) -> RankingRule<K> {
        let k = k.map(|k| k.max(1));
        RankingRule { measure: K::MEASURE, k, empty: EmptyQueries::Zero, kind: PhantomData }
    }
}

impl<K: OverAll> Default for RankingRule<K> {
    fn default() -> RankingRule<K> {
        RankingRule::new(None)
    }
}

impl<K: AtK> Accumulated<RankingRule<K>> {
    /// Returns the metric over the `k` highest scores, named such as `mrr@10`. A `k` of 0 is 1.
    pub fn at(k: usize) -> Self {
        Self::of(RankingRule::new(Some(k))).named(format!("{}@{k}", K::NAME))
    }
}

impl<K: Kind> Accumulated<RankingRule<K>> {
    kiln_ir::setters! {
        /// Sets the value of queries without relevant documents. Default: 0.
        empty_queries(empty: EmptyQueries) => rule.empty = empty;
    }
}

const SCORES: &str = "scores";
const RELEVANCES: &str = "relevances";
const QUERY_ROWS: &str = "queries";
const ROW_SCORES: &str = "row scores";
const ROW_RELEVANCES: &str = "row relevances";
const ROW_LENGTHS: &str = "row lengths";

impl<K: Kind> MetricRule for RankingRule<K> {
    fn name(&self) -> String {
        K::NAME.to_owned()
    }

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let (scores, relevances) = (wide(observation.tensor(PREDICTIONS)?)?, observation.tensor(TARGETS)?);
        require_shape_of(TARGETS, &relevances, (PREDICTIONS, &scores))?;
        if observation.tensors.contains_key(QUERIES) {
            let queries = observation.tensor(QUERIES)?;
            require_shape_of(QUERIES, &queries, (PREDICTIONS, &scores))?;
            if queries.dtype().is_float() {
                let problem = format!("has dtype {}, expected integers", queries.dtype());
                return Err(MetricError::Input { name: QUERIES, problem });
            }
            sums.append(QUERY_ROWS, queries)?;
            sums.append(SCORES, scores)?;
            return sums.append(RELEVANCES, relevances);
        }
        if scores.rank() != 2 {
            let expected = format!("[queries, documents], or `{QUERIES}` with the query of each document");
            return Err(wrong_shape(PREDICTIONS, &scores, &expected));
        }
        let [queries, documents] = [scores.shape()[0], scores.shape()[1]];
        sums.append_all(ROW_LENGTHS, &vec![documents as f64; queries])?;
        sums.append(ROW_SCORES, scores)?;
        sums.append(ROW_RELEVANCES, relevances)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let (mut sum, mut count) = (0.0, 0.0);
        for mut query in queries(sums)? {
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
        Ok(MetricValues::scalar(name, sum / count))
    }
}

/// Returns the documents of each query, in the order in which they were added.
fn queries(sums: &mut Accumulator) -> Result<Vec<Vec<Document>>, MetricError> {
    let rows = documents(sums, ROW_SCORES, ROW_RELEVANCES)?;
    let mut rest = rows.as_slice();
    let mut queries: Vec<Vec<Document>> = Vec::new();
    for &length in sums.numbers(ROW_LENGTHS)? {
        let (row, after) = rest.split_at(length as usize);
        queries.push(row.to_vec());
        rest = after;
    }
    let documents = documents(sums, SCORES, RELEVANCES)?;
    let mut places = HashMap::new();
    for (document, query) in documents.into_iter().zip(sums.numbers(QUERY_ROWS)?) {
        let place = *places.entry(*query as i64).or_insert_with(|| {
            queries.push(Vec::new());
            queries.len() - 1
        });
        queries[place].push(document);
    }
    Ok(queries)
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

macro_rules! ranking_metrics {
    ($($(#[$meta:meta])* $metric:ident, $name:literal, $measure:expr, $($scope:ident),+;)*) => {
        mod kind {$(
            #[derive(Clone, Copy, Debug)]
            pub struct $metric;
        )*}

        $(
            $(#[$meta])*
            pub type $metric = Accumulated<RankingRule<kind::$metric>>;

            impl Kind for kind::$metric {
                const NAME: &'static str = $name;
                const MEASURE: Measure = $measure;
            }

            $(impl $scope for kind::$metric {})+
        )*
    };
}

ranking_metrics! {
    /// Mean reciprocal rank (MRR), `mrr`: the mean over queries of `1 / rank` of the first relevant document, from 0 to
    /// 1. The first of equal scores ranks first. Inputs: see the [module](self).
    MeanReciprocalRank, "mrr", Measure::ReciprocalRank, OverAll, AtK;

    /// Normalized discounted cumulative gain, `ndcg`: `DCG / ideal DCG` with `DCG = Σ gain / log₂(rank + 1)`, from 0 to
    /// 1, the mean over queries. Documents with equal scores share the mean of their gains, as in scikit-learn. Inputs:
    /// see the [module](self); relevances may be any numbers ≥ 0.
    Ndcg, "ndcg", Measure::Ndcg { exponential: false }, OverAll, AtK;

    /// Hit rate, named such as `hit rate@10`: the fraction of queries with a relevant document among the `k` highest
    /// scores. Inputs: see the [module](self).
    HitRate, "hit rate", Measure::HitRate, AtK;

    /// Recall at k, named such as `recall@10`: the fraction of the relevant documents of a query that are among the `k`
    /// highest scores, the mean over queries. Inputs: see the [module](self).
    RecallAtK, "recall", Measure::Recall, AtK;

    /// Precision at k, named such as `precision@10`: the number of relevant documents among the `k` highest scores,
    /// divided by `k`, the mean over queries. Inputs: see the [module](self).
    PrecisionAtK, "precision", Measure::Precision, AtK;

    /// Mean average precision of rankings (MAP), `map`: the mean, over the ranks of the relevant documents, of the
    /// precision at this rank; then the mean over queries. From 0 to 1. With `k`, over the relevant documents among the
    /// `k` highest scores. Inputs: see the [module](self).
    RetrievalAveragePrecision, "map", Measure::AveragePrecision, OverAll, AtK;

    /// R-precision, `r-precision`: the precision at the number of relevant documents of a query, the mean over queries.
    /// Inputs: see the [module](self).
    RPrecision, "r-precision", Measure::RPrecision, OverAll;
}

impl Ndcg {
    kiln_ir::setters! {
        /// Uses the gain `2^relevance − 1` (Burges et al., 2005). Default: the relevance.
        exponential_gain() => rule.measure = Measure::Ndcg { exponential: true };
    }
}
