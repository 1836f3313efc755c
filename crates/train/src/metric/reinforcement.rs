//! Metrics of reinforcement learning.

use super::{AccumulatedMetric, Accumulator, MeanMetric, MetricValues};
use crate::error::MetricError;
use crate::observation::Observation;

/// The name of the sums of rewards of the episodes that ended in a step: `[episodes]`, without discount.
pub const EPISODE_REWARDS: &str = "episode_rewards";

/// The name of the lengths, in environment steps, of the episodes that ended in a step: `[episodes]`.
pub const EPISODE_LENGTHS: &str = "episode_lengths";

/// The name of the probabilities of a random action, in each environment step: `[steps]`.
pub const EXPLORATION_RATES: &str = "exploration_rates";

macro_rules! mean_metrics {
    ($($(#[$doc:meta])* $metric:ident = $tensor:ident, $name:literal, $higher_is_better:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $metric(MeanMetric);

        impl $metric {
            #[doc = concat!("Returns the metric, named `", $name, "`.")]
            pub fn new() -> $metric {
                $metric(MeanMetric::new($tensor).named($name))
            }
        }

        impl Default for $metric {
            fn default() -> $metric {
                $metric::new()
            }
        }

        impl AccumulatedMetric for $metric {
            fn name(&self) -> &str {
                $name
            }

            fn accumulator(&mut self) -> &mut Accumulator {
                self.0.accumulator()
            }

            fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
                // Steps in which no episode ends have an empty tensor.
                self.0.add(observation)
            }

            fn result(&mut self) -> Result<MetricValues, MetricError> {
                self.0.result()
            }

            fn higher_is_better(&self) -> bool {
                $higher_is_better
            }
        }
    )*};
}

mean_metrics! {
    /// The mean sum of rewards of an episode, over the episodes that ended: the undiscounted return.
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
    CumulativeReward = EPISODE_REWARDS, "cumulative reward", true;

    /// The mean length of an episode in environment steps, over the episodes that ended. It reads [`EPISODE_LENGTHS`].
    ///
    /// A greater length counts as better, as in tasks that end on failure.
    #[doc(alias = "EpisodeLengthMetric")]
    EpisodeLength = EPISODE_LENGTHS, "episode length", true;

    /// The mean probability of a random action over environment steps. It reads [`EXPLORATION_RATES`]. Lower counts as
    /// better: exploration decreases while the policy learns.
    #[doc(alias = "ExplorationRateMetric")]
    ExplorationRate = EXPLORATION_RATES, "exploration rate", false;
}
