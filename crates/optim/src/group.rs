//! Parameter groups with their own options.

use crate::error::{Result, no_momentum, not_negative};
use crate::{GradientClipping, LearningRate, UpdateRule};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use kiln_nn::{Module, ParamId, Parameter, Path, Pattern, Visitor};

/// A parameter group: parameters, selected by their dotted names, with their own options and update rule. It contains a
/// [tied](kiln_nn::Param#tied-parameters) parameter if it contains any one of its names.
///
/// If several groups of an optimizer contain a parameter, the first one added applies. A group without parameters is a
/// [warning](crate::StepReport::warning) and in [`unmatched_groups`](crate::StepReport::unmatched_groups) of the report.
///
/// ```
/// use kiln_optim::{AdamWConfig, ParameterGroup, SgdConfig};
///
/// let head = SgdConfig::new().with_momentum(0.9).rule()?;
/// let optimizer = AdamWConfig::new()
///     .init()
///     .with_group(ParameterGroup::matching("**.bias").weight_decay(0.0))?
///     .with_group(ParameterGroup::matching("backbone.**").learning_rate_factor(0.1))?
///     .with_group(ParameterGroup::new(|path| path.starts_with("head.")).rule(head))?;
/// # Ok::<(), kiln_optim::OptimError>(())
/// ```
#[derive(Clone)]
pub struct ParameterGroup {
    members: Members,
    rule: Option<Arc<dyn UpdateRule + Sync>>,
    learning_rate: Option<Arc<dyn LearningRate>>,
    learning_rate_factor: f64,
    weight_decay: Option<f64>,
    clipping: Option<GradientClipping>,
}

/// The condition on the names of a group's parameters.
#[derive(Clone)]
enum Members {
    Predicate(Arc<dyn Fn(&str) -> bool + Send + Sync>),
    Pattern(Pattern),
    Invalid(kiln_tensor::Error),
}

impl ParameterGroup {
    /// Returns the group of the parameters whose dotted names (`layers.0.weight`) satisfy the predicate.
    pub fn new(contains: impl Fn(&str) -> bool + Send + Sync + 'static) -> ParameterGroup {
        ParameterGroup::with_members(Members::Predicate(Arc::new(contains)))
    }

    /// Returns the group of the parameters whose dotted names match a [pattern](Pattern): `**.bias`,
    /// `layers.*.norm*.weight`. An invalid pattern is an error where an optimizer gets the group.
    pub fn matching(pattern: impl Into<String>) -> ParameterGroup {
        ParameterGroup::with_members(Pattern::new(pattern).map_or_else(Members::Invalid, Members::Pattern))
    }

    fn with_members(members: Members) -> ParameterGroup {
        ParameterGroup {
            members,
            rule: None,
            learning_rate: None,
            learning_rate_factor: 1.0,
            weight_decay: None,
            clipping: None,
        }
    }

    /// Sets the update rule. Default: that of the optimizer.
    #[must_use]
    pub fn rule(mut self, rule: impl UpdateRule + Sync + 'static) -> ParameterGroup {
        self.rule = Some(Arc::new(rule));
        self
    }

    /// Sets the learning rate, a number or a schedule over the updates of each parameter, in place of the rate that the
    /// optimizer's step receives. The schedule's [momentum](LearningRate::momentum_at) applies too, and the
    /// [factor](ParameterGroup::learning_rate_factor).
    #[must_use]
    pub fn learning_rate(mut self, learning_rate: impl LearningRate + 'static) -> ParameterGroup {
        self.learning_rate = Some(Arc::new(learning_rate));
        self
    }

    /// Sets the factor of the learning rate: finite and at least 0. Default: 1.
    #[must_use]
    pub fn learning_rate_factor(mut self, factor: f64) -> ParameterGroup {
        self.learning_rate_factor = factor;
        self
    }

    /// Sets the weight decay: finite and at least 0. Default: that of the rule.
    #[must_use]
    pub fn weight_decay(mut self, weight_decay: f64) -> ParameterGroup {
        self.weight_decay = Some(weight_decay);
        self
    }

    /// Sets gradient clipping in place of the optimizer's. A global norm is that of the group's gradients. Default: the
    /// optimizer's.
    #[must_use]
    pub fn grad_clipping(mut self, clipping: GradientClipping) -> ParameterGroup {
        self.clipping = Some(clipping);
        self
    }

    /// Checks the options. `rule` is the optimizer's.
    pub(crate) fn check(&self, rule: &dyn UpdateRule) -> Result<()> {
        if let Members::Invalid(error) = &self.members {
            return Err(error.clone().into());
        }
        let owner = rule.name();
        not_negative(owner, "the learning rate factor of a group", self.learning_rate_factor)?;
        if let Some(clipping) = self.clipping {
            clipping.check(owner)?;
        }
        let momentum = self.learning_rate.as_ref().and_then(|rate| rate.momentum_at(0));
        let has_momentum = self.rule.as_ref().map_or(rule.has_momentum(), |rule| rule.has_momentum());
        if let (Some(momentum), false) = (momentum, has_momentum) {
            return Err(no_momentum(owner, momentum));
        }
        match self.weight_decay {
            Some(decay) => not_negative(owner, "the weight decay of a group", decay).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Returns the group of a parameter and its index: the first that contains one of its names.
    pub(crate) fn of<'a>(
        names: Names<'_>,
        groups: &'a [ParameterGroup],
    ) -> Option<(usize, &'a ParameterGroup)> {
        let contains = |group: &ParameterGroup| {
            group.contains(names.first) || names.others.iter().any(|name| group.contains(name))
        };
        groups.iter().enumerate().find(|(_, group)| contains(group))
    }

    /// Returns whether the name of a parameter is one of the group's.
    fn contains(&self, path: &str) -> bool {
        match &self.members {
            Members::Predicate(contains) => contains(path),
            Members::Pattern(pattern) => pattern.matches(path),
            Members::Invalid(_) => false,
        }
    }

    /// Returns the name of the group in reports: its pattern, or its index.
    pub(crate) fn label(&self, index: usize) -> String {
        match &self.members {
            Members::Pattern(pattern) => pattern.to_string(),
            Members::Predicate(_) | Members::Invalid(_) => format!("group {index}"),
        }
    }

    /// Returns the reason why no parameter belongs to the group. `names` are those of all parameters.
    pub(crate) fn why_unmatched(&self, names: &[String]) -> String {
        if names.iter().any(|name| self.contains(name)) {
            return "has no parameters: an earlier group contains each of them, and the first one applies"
                .to_string();
        }
        let all = names.iter().map(String::as_str);
        let (which, shown) = match &self.members {
            Members::Pattern(pattern) => ("near names", pattern.near(all)),
            Members::Predicate(_) | Members::Invalid(_) => ("the first names", all.take(3).collect()),
        };
        let shown: Vec<_> = shown.into_iter().map(|name| format!("`{name}`")).collect();
        match shown.is_empty() {
            true => "matches no parameter: the module has none".to_string(),
            false => format!("matches no parameter; {which}: {}", shown.join(", ")),
        }
    }

    /// Returns the update rule, if the group has its own.
    pub(crate) fn own_rule(&self) -> Option<&(dyn UpdateRule + Sync)> {
        self.rule.as_deref()
    }

    /// Returns the gradient clipping, if the group has its own.
    pub(crate) fn own_clipping(&self) -> Option<GradientClipping> {
        self.clipping
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Members::Predicate(_) => f.write_str("predicate"),
            Members::Pattern(pattern) => write!(f, "`{pattern}`"),
            Members::Invalid(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Debug for ParameterGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParameterGroup")
            .field("members", &self.members)
            .field("rule", &self.rule)
            .field("learning_rate", &self.learning_rate)
            .field("learning_rate_factor", &self.learning_rate_factor)
            .field("weight_decay", &self.weight_decay)
            .field("grad_clipping", &self.clipping)
            .finish()
    }
}

/// The names of a parameter: that of its first place and, if it is tied, those of the others.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) first: &'a str,
    pub(crate) others: &'a [String],
}

/// The names of tied parameters beside the first.
#[derive(Default)]
pub(crate) struct OtherNames(BTreeMap<ParamId, Vec<String>>);

impl OtherNames {
    /// The names that groups need: none without groups.
    pub(crate) fn of(module: &dyn Module, groups: &[ParameterGroup]) -> OtherNames {
        let mut names = OtherNames::default();
        if !groups.is_empty() {
            module.visit(&mut Path::new(), &mut names);
        }
        names
    }

    /// The names of a parameter.
    pub(crate) fn with<'a>(&'a self, first: &'a Path, id: ParamId) -> Names<'a> {
        Names { first: first.as_str(), others: self.0.get(&id).map_or(&[], Vec::as_slice) }
    }
}

impl Visitor for OtherNames {
    fn parameter(&mut self, _path: &Path, _parameter: Parameter) {}

    fn tied(&mut self, path: &Path, parameter: Parameter) {
        self.0.entry(parameter.id).or_default().push(path.to_string());
    }
}

/// The hyperparameters of one parameter in one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOptions {
    /// The learning rate, with the factor of the parameter's group.
    pub learning_rate: f64,
    /// The weight decay of the parameter's group, or of its rule.
    pub weight_decay: f64,
    /// The momentum in place of that of the rule, such as `beta_1` of Adam. Only rules with
    /// [`has_momentum`](UpdateRule::has_momentum) receive one.
    pub momentum: Option<f64>,
}

impl StepOptions {
    /// Returns the options of a parameter in a group. `step` is the index of its update, counted from 0.
    pub(crate) fn in_group(self, group: Option<&ParameterGroup>, step: u64) -> StepOptions {
        let Some(group) = group else { return self };
        let own_rate = group.learning_rate.as_ref().map(|rate| rate.at(step));
        let own_momentum = group.learning_rate.as_ref().and_then(|rate| rate.momentum_at(step));
        let own_decay = group.weight_decay.or(group.rule.as_ref().map(|rule| rule.weight_decay()));
        StepOptions {
            learning_rate: own_rate.unwrap_or(self.learning_rate) * group.learning_rate_factor,
            weight_decay: own_decay.unwrap_or(self.weight_decay),
            momentum: own_momentum.or(self.momentum),
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
            ParameterGroup::matching("head.**").learning_rate_factor(10.0),
            ParameterGroup::matching("neck.*").learning_rate(0.125).learning_rate_factor(2.0),
        ];
        let own = StepOptions { learning_rate: 0.5, weight_decay: 0.1, momentum: None };
        let of = |first| {
            let group = ParameterGroup::of(Names { first, others: &[] }, &groups);
            own.in_group(group.map(|(_, group)| group), 0)
        };
        assert_eq!(of("body.weight"), own);
        assert_eq!(of("head.weight"), StepOptions { learning_rate: 5.0, weight_decay: 0.1, ..own });
        assert_eq!(of("head.bias"), StepOptions { learning_rate: 0.5, weight_decay: 0.0, ..own });
        assert_eq!(of("neck.weight"), StepOptions { learning_rate: 0.25, weight_decay: 0.1, ..own });
    }
}
