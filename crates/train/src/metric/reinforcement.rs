//! Metrics of reinforcement learning.

use super::accumulated::plain_metrics;
use super::general::{add_mean, mean};
use super::{Accumulator, MetricValues};
use crate::error::MetricError;
use crate::observation::Observation;

/// The name of the sums of rewards of the episodes that ended in a step: `[episodes]`, without discount.
pub const EPISODE_REWARDS: &str = "episode_rewards";

/// The name of the lengths, in environment steps, of the episodes that ended in a step: `[episodes]`.
pub const EPISODE_LENGTHS: &str = "episode_lengths";

/// The name of the probabilities of a random action, in each environment step: `[steps]`.
pub const EXPLORATION_RATES: &str = "exploration_rates";

plain_metrics! {
    /// The mean sum of rewards of an episode, `cumulative reward`, over the episodes that ended: the undiscounted
    /// return.
    ///
    /// It reads [`EPISODE_REWARDS`], which is empty for a step in which no episode ends. Without any episode it is NaN.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::Tensor;
    /// use kiln_train::metric::{CumulativeReward, EPISODE_REWARDS};
    /// use kiln_train::{Metric, Observation};
    ///
    /// let mut reward = CumulativeReward::new();
    /// for rewards in [vec![200.0, 100.0], vec![], vec![30.0]] {
    ///     let rewards = Tensor::<Flex, 1>::from_floats(rewards, &Default::default());
    ///     reward.update(&Observation::new(1).with(EPISODE_REWARDS, rewards.into_any()))?;
    /// }
    /// assert_eq!(reward.values()?.main(), Some(110.0));
    /// # Ok::<(), kiln_train::MetricError>(())
    /// ```
    #[doc(alias = "CumulativeRewardMetric")]
    CumulativeReward, "cumulative reward", higher is better: true,
        |sums, observation| add_mean(sums, observation, EPISODE_REWARDS), mean;

    /// The mean length of an episode in environment steps, `episode length`, over the episodes that ended. It reads
    /// [`EPISODE_LENGTHS`].
    ///
    /// A greater length counts as better, as in tasks that end on failure.
    #[doc(alias = "EpisodeLengthMetric")]
    EpisodeLength, "episode length", higher is better: true,
        |sums, observation| add_mean(sums, observation, EPISODE_LENGTHS), mean;

    /// The mean probability of a random action over environment steps, `exploration rate`. It reads
    /// [`EXPLORATION_RATES`]. Lower counts as better: exploration decreases while the policy learns.
    #[doc(alias = "ExplorationRateMetric")]
    ExplorationRate, "exploration rate", higher is better: false,
        |sums, observation| add_mean(sums, observation, EXPLORATION_RATES), mean;
}
