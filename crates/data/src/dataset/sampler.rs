//! Random sampling from a dataset.

use super::Dataset;
use crate::DataError;
use crate::random::{Purpose, Random, permutation};

/// Options of a [`SamplerDataset`]. Default: without replacement, uniform weights, as many draws as items.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    seed: u64,
    replacement: bool,
    size: Option<usize>,
    weights: Option<Vec<f64>>,
}

impl Sampling {
    /// Returns the default options with a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, replacement: false, size: None, weights: None }
    }

    /// Sets whether to sample with replacement. Default: no.
    pub fn replacement(mut self, replacement: bool) -> Self {
        self.replacement = replacement;
        self
    }

    /// Sets the number of draws. Default: the number of items in the dataset.
    pub fn size(mut self, size: usize) -> Self {
        self.size = Some(size);
        self
    }

    /// Sets the weight of each item: the probability of a draw is proportional to it, and items of weight 0 are never
    /// drawn. Weights need not sum to 1. Default: uniform.
    pub fn weights(mut self, weights: Vec<f64>) -> Self {
        self.weights = Some(weights);
        self
    }
}

/// This number of draws with replacement, with seed 0.
impl From<usize> for Sampling {
    fn from(size: usize) -> Self {
        Self::new(0).replacement(true).size(size)
    }
}

/// A random sample of another dataset.
///
/// Items are drawn once, so the sample is the same in each epoch. For another sample, use another seed.
///
/// ```
/// use kiln_data::{Dataset, InMemoryDataset, SamplerDataset, Sampling};
///
/// let rare_and_common = InMemoryDataset::new(vec!["rare", "common"]);
/// let sampling = Sampling::new(1).replacement(true).weights(vec![1.0, 99.0]).size(1000);
/// let sample = SamplerDataset::new(rare_and_common, sampling)?;
/// assert!(sample.iter().filter(|item| *item == "rare").count() < 50);
/// # Ok::<(), kiln_data::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SamplerDataset<D> {
    dataset: D,
    draws: Vec<usize>,
}

impl<D> SamplerDataset<D> {
    /// Draws a sample of `dataset`. A number is one of draws with replacement.
    ///
    /// # Errors
    ///
    /// [`DataError::InvalidArgument`] if more items are requested than can be drawn, or the number of weights differs
    /// from the number of items. The same error if a weight is negative, or a weight or the sum of the weights is not
    /// finite.
    pub fn new<I>(dataset: D, sampling: impl Into<Sampling>) -> Result<Self, DataError>
    where
        D: Dataset<I>,
    {
        let draws = draw(dataset.len(), sampling.into())?;
        Ok(Self { dataset, draws })
    }

    /// Draws `size` items with replacement, with seed 0.
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] if items are requested from an empty dataset.
    pub fn with_replacement<I>(dataset: D, size: usize) -> Result<Self, DataError>
    where
        D: Dataset<I>,
    {
        Self::new(dataset, size)
    }

    /// Draws `size` items without replacement, with seed 0. After all items were drawn, they are drawn again in another
    /// order.
    ///
    /// ```
    /// use kiln_data::{Dataset, InMemoryDataset, SamplerDataset};
    ///
    /// let sample = SamplerDataset::without_replacement(InMemoryDataset::new(vec!['a', 'b', 'c']), 7)?;
    /// let count = |letter| sample.iter().filter(|item| *item == letter).count();
    /// assert_eq!(count('a').min(count('b')).min(count('c')), 2);
    /// assert_eq!(sample.len(), 7);
    /// # Ok::<(), kiln_data::DataError>(())
    /// ```
    ///
    /// # Errors
    /// [`DataError::InvalidArgument`] if items are requested from an empty dataset.
    pub fn without_replacement<I>(dataset: D, size: usize) -> Result<Self, DataError>
    where
        D: Dataset<I>,
    {
        let (len, mut draws) = (dataset.len(), Vec::new());
        for cycle in 0.. {
            let rest = size - draws.len();
            if rest == 0 {
                break;
            }
            let size = if len == 0 { rest } else { rest.min(len) };
            draws.extend(draw(len, Sampling::new(cycle).size(size))?);
        }
        Ok(Self { dataset, draws })
    }
}

impl<I, D: Dataset<I>> Dataset<I> for SamplerDataset<D> {
    fn get(&self, index: usize) -> Option<I> {
        self.dataset.get(*self.draws.get(index)?)
    }

    fn len(&self) -> usize {
        self.draws.len()
    }
}

fn draw(len: usize, sampling: Sampling) -> Result<Vec<usize>, DataError> {
    let Sampling { seed, replacement, size, weights } = sampling;
    let size = size.unwrap_or(len);
    if let Some(weights) = &weights {
        check_weights(weights, len)?;
    }
    let drawable = weights.as_ref().map_or(len, |weights| weights.iter().filter(|w| **w > 0.0).count());
    let most = match (replacement, drawable) {
        (true, 1..) => usize::MAX,
        (true, 0) | (false, _) => drawable,
    };
    if size > most {
        return Err(DataError::argument(
            "sampler",
            format!("{size} draws from {drawable} items that can be drawn"),
            "request fewer draws, or draw with replacement from at least one item of positive weight",
        ));
    }
    Ok(match (replacement, weights) {
        (false, None) => {
            let mut order = permutation(len, seed, Purpose::Sample);
            order.truncate(size);
            order
        }
        (false, Some(weights)) => weighted_without_replacement(&weights, size, seed),
        (true, None) => {
            let mut random = Random::new(seed, Purpose::Sample);
            (0..size).map(|_| random.below(len as u64) as usize).collect()
        }
        (true, Some(weights)) => weighted_with_replacement(&weights, size, seed),
    })
}

fn check_weights(weights: &[f64], len: usize) -> Result<(), DataError> {
    if weights.len() != len {
        let message = format!("{} weights for {len} items", weights.len());
        return Err(DataError::argument("sampler", message, "pass one weight for each item"));
    }
    if let Some(index) = weights.iter().position(|weight| !weight.is_finite() || *weight < 0.0) {
        let message = format!("weight {index} is {}", weights[index]);
        return Err(DataError::argument("sampler", message, "use finite weights of at least 0"));
    }
    if !weights.iter().sum::<f64>().is_finite() {
        let message = "the sum of the weights overflows";
        return Err(DataError::argument("sampler", message, "scale the weights down"));
    }
    Ok(())
}

/// Samples by inverting the cumulative distribution.
fn weighted_with_replacement(weights: &[f64], size: usize, seed: u64) -> Vec<usize> {
    let mut sum = 0.0;
    let (indices, ends): (Vec<usize>, Vec<f64>) = weights
        .iter()
        .enumerate()
        .filter(|(_, weight)| **weight > 0.0)
        .map(|(index, weight)| {
            sum += weight;
            (index, sum)
        })
        .unzip();
    let mut random = Random::new(seed, Purpose::Sample);
    let pick = |_| {
        let point = random.unit() * sum;
        // The product may be rounded up to the sum, past the last end.
        indices[ends.partition_point(|end| *end <= point).min(indices.len() - 1)]
    };
    (0..size).map(pick).collect()
}

/// The items with the largest keys `ln(u) / weight`, with uniform `u`.
///
/// Source: P. S. Efraimidis, P. G. Spirakis, "Weighted random sampling with a reservoir", Information Processing
/// Letters 97(5), 2006. The logarithm of their key is used because it cannot underflow.
fn weighted_without_replacement(weights: &[f64], size: usize, seed: u64) -> Vec<usize> {
    let mut random = Random::new(seed, Purpose::Sample);
    let mut keyed: Vec<(f64, usize)> = weights
        .iter()
        .enumerate()
        .filter(|(_, weight)| **weight > 0.0)
        // 1 - u is in (0, 1], so the logarithm is finite.
        .map(|(index, weight)| ((1.0 - random.unit()).ln() / weight, index))
        .collect();
    keyed.sort_by(|a, b| b.0.total_cmp(&a.0));
    keyed.into_iter().take(size).map(|(_, index)| index).collect()
}
