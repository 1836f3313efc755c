//! Constructors and options that metrics of classification share.

use super::Task;
use super::count::Counter;
use crate::metric::{Accumulated, MetricRule};

/// A rule of metrics of one label or of several classes.
pub trait TaskRule: MetricRule {
    /// Returns the rule with the default options.
    fn of_task(task: Task) -> Self;
}

/// A rule of metrics that several labels have too.
pub trait LabelsRule: TaskRule {}

/// A rule with the options of a [`Counter`].
pub trait CounterRule: MetricRule {
    /// Returns the options.
    fn counter(&mut self) -> &mut Counter;
}

impl<R: TaskRule> Accumulated<R> {
    /// Returns the metric of one label of 0 or 1.
    pub fn binary() -> Accumulated<R> {
        Accumulated::of(R::of_task(Task::Binary))
    }

    /// Returns the metric of a number of classes.
    pub fn multiclass(classes: usize) -> Accumulated<R> {
        Accumulated::of(R::of_task(Task::Multiclass { classes }))
    }
}

impl<R: LabelsRule> Accumulated<R> {
    /// Returns the metric of a number of labels of 0 or 1.
    pub fn multilabel(labels: usize) -> Accumulated<R> {
        Accumulated::of(R::of_task(Task::Multilabel { labels }))
    }
}

impl<R: CounterRule> Accumulated<R> {
    /// Sets the probability above which a label is predicted. Default: 0.5.
    #[must_use]
    pub fn threshold(self, threshold: f64) -> Accumulated<R> {
        self.set(|rule| rule.counter().threshold = threshold)
    }

    /// Leaves out targets of this value. Default: none.
    #[must_use]
    pub fn ignore_index(self, index: i64) -> Accumulated<R> {
        self.set(|rule| rule.counter().ignore_index = Some(index))
    }
}
