//! Parameter groups with their own options.

use crate::error::{Result, not_negative};
use alloc::sync::Arc;
use core::fmt;

/// A parameter group: parameters, selected by their dotted names, with their own options.
///
/// ```
/// use kiln_optim::{AdamWConfig, ParameterGroup};
///
/// let optimizer = AdamWConfig::new()
///     .init()
///     .with_group(ParameterGroup::new(|path| path.ends_with("bias")).weight_decay(0.0))?
///     .with_group(ParameterGroup::new(|path| path.starts_with("backbone.")).learning_rate_factor(0.1))?;
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Clone)]
pub struct ParameterGroup {
    contains: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    learning_rate_factor: f64,
    weight_decay: Option<f64>,
}

impl ParameterGroup {
    /// Returns the group of the parameters whose dotted names (`layers.0.weight`) satisfy the predicate.
    pub fn new(contains: impl Fn(&str) -> bool + Send + Sync + 'static) -> ParameterGroup {
        ParameterGroup { contains: Arc::new(contains), learning_rate_factor: 1.0, weight_decay: None }
    }

    /// Sets the factor of the learning rate: finite and at least 0. Default: 1.
    #[must_use]
    pub fn learning_rate_factor(mut self, factor: f64) -> ParameterGroup {
        self.learning_rate_factor = factor;
        self
    }

    /// Sets the weight decay: finite and at least 0. Default: that of the optimizer.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> ParameterGroup {
        self.weight_decay = Some(weight_decay);
        self
    }

    pub(crate) fn check(&self, owner: &'static str) -> Result<()> {
        not_negative(owner, "the learning rate factor of a group", self.learning_rate_factor)?;
        match self.weight_decay {
            Some(decay) => not_negative(owner, "the weight decay of a group", decay).map(|_| ()),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for ParameterGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParameterGroup")
            .field("learning_rate_factor", &self.learning_rate_factor)
            .field("weight_decay", &self.weight_decay)
            .finish_non_exhaustive()
    }
}

/// The hyperparameters of one parameter in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOptions {
    /// The learning rate, with the factor of the parameter's group.
    pub learning_rate: f64,
    /// The weight decay of the parameter's group, or of the optimizer.
    pub weight_decay: f64,
}

impl StepOptions {
    /// Returns the options of a parameter: those of the first group that contains it.
    pub(crate) fn of(self, path: &str, groups: &[ParameterGroup]) -> StepOptions {
        let Some(group) = groups.iter().find(|group| (group.contains)(path)) else { return self };
        StepOptions {
            learning_rate: self.learning_rate * group.learning_rate_factor,
            weight_decay: group.weight_decay.unwrap_or(self.weight_decay),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_parameter_group_applies() {
        let groups = [
            ParameterGroup::new(|path| path.ends_with(".bias")).weight_decay(0.0),
            ParameterGroup::new(|path| path.starts_with("head.")).learning_rate_factor(10.0),
        ];
        let own = StepOptions { learning_rate: 0.5, weight_decay: 0.1 };
        assert_eq!(own.of("body.weight", &groups), own);
        assert_eq!(own.of("head.weight", &groups), StepOptions { learning_rate: 5.0, weight_decay: 0.1 });
        assert_eq!(own.of("head.bias", &groups), StepOptions { learning_rate: 0.5, weight_decay: 0.0 });
    }
}
