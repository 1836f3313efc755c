//! Measures of the ranking of a query.

use std::fmt::Debug;

/// A measure of the ranking of a query.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    ReciprocalRank,
    HitRate,
    Recall,
    Precision,
    AveragePrecision,
    RPrecision,
    Ndcg { exponential: bool },
}

/// A metric of this module.
pub trait Kind: Clone + Debug + Send + 'static {
    /// The name of the metric over all documents.
    const NAME: &'static str;
    /// The measure of a query.
    const MEASURE: Measure;
}

/// A metric over all documents.
pub trait OverAll: Kind {}

/// A metric over the highest scores.
pub trait AtK: Kind {}

/// A document of a query.
#[derive(Clone, Copy)]
pub(super) struct Document {
    pub score: f64,
    pub relevance: f64,
}

impl Measure {
    /// Returns the measure of a query with at least one relevant document.
    pub(super) fn of(self, query: &mut [Document], k: Option<usize>) -> f64 {
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
