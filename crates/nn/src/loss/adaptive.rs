//! Adaptive softmax: classification over large vocabularies.

use crate::{Config, Initializer, Linear, LinearConfig, Module};
use alloc::vec::Vec;
use core::ops::Range;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Int, Tensor, TensorData, activation};

/// Settings of an [`AdaptiveLogSoftmaxWithLoss`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct AdaptiveLogSoftmaxWithLossConfig {
    /// Number of input features.
    pub in_features: usize,
    /// Number of classes, ordered by frequency: the most frequent first.
    pub n_classes: usize,
    /// The first class of each cluster: increasing, above 0 and below `n_classes`. Classes before the first cutoff are
    /// in the head.
    pub cutoffs: Vec<usize>,
    /// Cluster `i`, counted from 0, has `in_features / div_value^(i + 1)` features, rounded down. Default: 4.
    #[config(default = 4.0)]
    pub div_value: f64,
    /// Whether the head has a bias. Default: no.
    #[config(default = false)]
    pub head_bias: bool,
    /// The initializer of all weights. Default: [`Initializer::LINEAR`].
    #[config(default = Initializer::LINEAR)]
    pub initializer: Initializer,
}

/// Adaptive softmax ([Grave et al. 2017](https://arxiv.org/abs/1609.04309)): an approximation of a softmax over many
/// classes of unequal frequency, with its loss.
///
/// The head has a score for each frequent class and for each cluster of rarer classes; each cluster has scores of its
/// own, computed from fewer features, only for examples whose target is in it. Parameters have PyTorch's names:
/// `head.weight`, `tail.0.0.weight` (the projection of the first cluster) and `tail.0.1.weight` (its scores).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::loss::AdaptiveLogSoftmaxWithLossConfig;
/// use kiln_tensor::{Int, Tensor};
///
/// let device = Default::default();
/// let model = AdaptiveLogSoftmaxWithLossConfig::new(8, 100, vec![10, 40]).init::<Flex>(&device);
/// let x = Tensor::<Flex, 2>::ones([3, 8], &device);
/// let output = model.forward(x.clone(), Tensor::<Flex, 1, Int>::from([3, 25, 99]));
/// assert_eq!(output.output.dims(), [3]);
/// assert_eq!(model.log_prob(x).dims(), [3, 100]);
/// ```
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveLogSoftmaxWithLoss.html)
#[derive(Module, Clone, Debug)]
pub struct AdaptiveLogSoftmaxWithLoss<B: Backend = Dyn> {
    /// Scores of the frequent classes, then of the clusters.
    pub head: Linear<B>,
    /// The projection and the scores of each cluster.
    pub tail: Vec<(Linear<B>, Linear<B>)>,
    /// The first class of each cluster, then the number of classes.
    #[module(attribute)]
    pub cutoffs: Vec<usize>,
}

/// The result of [`AdaptiveLogSoftmaxWithLoss::forward`].
#[derive(Clone, Debug)]
pub struct AdaptiveLogSoftmaxOutput<B: Backend = Dyn> {
    /// The log-probability of each target, `[batch]`.
    pub output: Tensor<B, 1>,
    /// The mean of the negative log-probabilities, `[1]`.
    pub loss: Tensor<B, 1>,
}

impl AdaptiveLogSoftmaxWithLossConfig {
    /// Returns the module with initialized parameters on a device.
    ///
    /// # Panics
    /// When there is no cutoff, the cutoffs are not increasing, one is 0 or not below `n_classes`, or `div_value` is
    /// not positive.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> AdaptiveLogSoftmaxWithLoss<B> {
        self.check();
        let linear = |input, output, bias| {
            let config = LinearConfig::new(input, output).with_bias(bias);
            config.with_initializer(self.initializer).init(device)
        };
        let mut cutoffs = self.cutoffs.clone();
        cutoffs.push(self.n_classes);
        let mut tail = Vec::new();
        let mut divisor = 1.0;
        for classes in cutoffs.windows(2) {
            divisor *= self.div_value;
            let hidden = (self.in_features as f64 / divisor) as usize;
            let cluster = classes[1] - classes[0];
            tail.push((linear(self.in_features, hidden, false), linear(hidden, cluster, false)));
        }
        let head = linear(self.in_features, cutoffs[0] + tail.len(), self.head_bias);
        AdaptiveLogSoftmaxWithLoss { head, tail, cutoffs }
    }

    #[track_caller]
    fn check(&self) {
        let (cutoffs, classes) = (&self.cutoffs, self.n_classes);
        let increasing = cutoffs.windows(2).all(|pair| pair[0] < pair[1]);
        let within = cutoffs.first().is_some_and(|&first| first > 0)
            && cutoffs.last().is_some_and(|&last| last < classes);
        assert!(
            increasing && within,
            "[adaptive_log_softmax] the cutoffs {cutoffs:?} for {classes} classes: use increasing classes above 0 and \
             below {classes}"
        );
        let divisor = self.div_value;
        assert!(divisor > 0.0, "[adaptive_log_softmax] div_value is {divisor}: use a number above 0");
    }
}

/// The rows of a batch whose targets are in one cluster, and their classes counted from its first class.
#[derive(Clone, Default)]
struct Members {
    rows: Vec<i64>,
    classes: Vec<i64>,
}

impl<B: Backend> AdaptiveLogSoftmaxWithLoss<B> {
    /// Computes the log-probability of each target and the mean loss, for inputs `[batch, in_features]` and class
    /// indices `[batch]`.
    ///
    /// Waits for the targets, to compute each cluster only for its rows. A class out of range poisons the result:
    /// reading it returns the error.
    ///
    /// # Panics
    /// When the shapes are incompatible, or the computation of the targets failed.
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 2>, targets: Tensor<B, 1, Int>) -> AdaptiveLogSoftmaxOutput<B> {
        let [batch, features] = x.dims();
        assert!(
            targets.dims() == [batch],
            "[adaptive_log_softmax] inputs [{batch}, {features}] and targets {:?}: targets are [batch], one class for \
             each input",
            targets.dims()
        );
        let device = x.device();
        let (columns, members) = self.members(&targets.into_data().to_vec::<i64>());
        let mut output = self.head_log(x.clone()).gather(1, indices(columns, &device).reshape([batch, 1]));
        for (cluster, Members { rows, classes }) in members.into_iter().enumerate() {
            let count = rows.len();
            if count == 0 {
                continue;
            }
            let rows = indices(rows, &device);
            let log = self.tail_log(cluster, x.clone().select(0, rows.clone()));
            let picked = log.gather(1, indices(classes, &device).reshape([count, 1]));
            output = output.select_assign(0, rows, picked);
        }
        let output = output.reshape([batch]);
        AdaptiveLogSoftmaxOutput { loss: -output.clone().mean(), output }
    }

    /// Computes the log-probabilities of all classes, `[batch, n_classes]`, for inputs `[batch, in_features]`.
    ///
    /// # Panics
    /// When the last dim is not `in_features`.
    #[track_caller]
    pub fn log_prob(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let head = self.head_log(x.clone());
        let frequent = self.cutoffs[0];
        let mut parts = Vec::from([head.clone().narrow(1, 0, frequent)]);
        for cluster in 0..self.tail.len() {
            parts.push(self.tail_log(cluster, x.clone()) + head.clone().narrow(1, frequent + cluster, 1));
        }
        Tensor::cat(parts, 1)
    }

    /// Returns the most probable class of each input `[batch, in_features]`, `[batch]`.
    ///
    /// # Panics
    /// When the last dim is not `in_features`.
    #[track_caller]
    pub fn predict(&self, x: Tensor<B, 2>) -> Tensor<B, 1, Int> {
        self.log_prob(x).argmax(1).squeeze_dim(1)
    }

    #[track_caller]
    fn head_log(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        activation::log_softmax(self.head.forward(x), 1)
    }

    #[track_caller]
    fn tail_log(&self, cluster: usize, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let (projection, scores) = &self.tail[cluster];
        activation::log_softmax(scores.forward(projection.forward(x)), 1)
    }

    /// Returns the column of the head for each target, and the rows of each cluster.
    ///
    /// A negative target keeps its column, and one that is too great is in the last cluster: both indices are out of
    /// range.
    fn members(&self, targets: &[i64]) -> (Vec<i64>, Vec<Members>) {
        let mut members = alloc::vec![Members::default(); self.tail.len()];
        let frequent = self.cutoffs[0] as i64;
        let column = |(row, &target): (usize, &i64)| {
            if target < frequent {
                return target;
            }
            let last = self.tail.len() - 1;
            let cluster =
                (0..last).find(|&cluster| target < self.classes(cluster).end as i64).unwrap_or(last);
            members[cluster].rows.push(row as i64);
            members[cluster].classes.push(target - self.classes(cluster).start as i64);
            frequent + cluster as i64
        };
        (targets.iter().enumerate().map(column).collect(), members)
    }

    /// The classes of a cluster.
    fn classes(&self, cluster: usize) -> Range<usize> {
        self.cutoffs[cluster]..self.cutoffs[cluster + 1]
    }
}

fn indices<B: Backend>(indices: Vec<i64>, device: &B::Device) -> Tensor<B, 1, Int> {
    Tensor::from_data(TensorData::from(indices), device)
}
