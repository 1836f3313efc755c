//! Metrics that are functions of an [`Accumulator`].

use std::fmt::Debug;

use super::{Accumulator, Metric, MetricState, MetricValues};
use crate::error::MetricError;
use crate::observation::Observation;

/// The rule of an [`Accumulated`] metric: the sums and rows of a batch, and the values that are computed from those of
/// all batches. See the [module](super) for an example.
pub trait MetricRule: Clone + Debug + Send + 'static {
    /// Returns the default name of the metric and of its main value.
    fn name(&self) -> String;

    /// Adds a batch to the sums and rows.
    ///
    /// # Errors
    /// When the observation does not contain an input that the metric needs, or an op fails.
    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError>;

    /// Computes the values from the sums and rows, the main value first, which has the given name.
    ///
    /// # Errors
    /// When the device failed.
    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError>;

    /// Returns whether a greater value is better. Default: yes.
    fn higher_is_better(&self) -> bool {
        true
    }

    /// Formats the main value. Default: four decimal places.
    fn format(&self, value: f64) -> String {
        format!("{value:.4}")
    }

    /// Called before the sums are reset, saved, loaded or merged: the next batch does not follow the last one without a
    /// pause. For rules that measure time. Default: nothing.
    fn pause(&mut self) {}
}

/// A metric that adds the sums and rows of each batch by a [`MetricRule`], and computes its values from them.
#[derive(Clone, Debug)]
pub struct Accumulated<R> {
    name: String,
    pub(crate) rule: R,
    pub(crate) sums: Accumulator,
}

impl<R: MetricRule> Accumulated<R> {
    /// Returns the metric of a rule.
    pub fn of(rule: R) -> Accumulated<R> {
        Accumulated { name: rule.name(), rule, sums: Accumulator::new() }
    }

    kiln_ir::setters! {
        /// Sets the name of the metric and of its main value.
        named(name: impl Into<String>) => name = name.into();
    }

    /// Returns the rule.
    pub fn rule(&self) -> &R {
        &self.rule
    }

    /// Changes an option of the rule.
    pub(crate) fn set(mut self, change: impl FnOnce(&mut R)) -> Accumulated<R> {
        change(&mut self.rule);
        self
    }

    fn paused(&mut self) -> &mut Accumulator {
        self.rule.pause();
        &mut self.sums
    }
}

impl<R: MetricRule + Default> Accumulated<R> {
    /// Returns the metric with the default options.
    pub fn new() -> Accumulated<R> {
        Accumulated::of(R::default())
    }
}

impl<R: MetricRule + Default> Default for Accumulated<R> {
    fn default() -> Accumulated<R> {
        Accumulated::of(R::default())
    }
}

impl<R: MetricRule> Metric for Accumulated<R> {
    fn name(&self) -> &str {
        &self.name
    }

    fn fresh(&self) -> Box<dyn Metric> {
        let mut fresh = self.clone();
        fresh.reset();
        Box::new(fresh)
    }

    fn reset(&mut self) {
        self.paused().reset();
    }

    fn update(&mut self, observation: &Observation) -> Result<(), MetricError> {
        self.rule.add(&mut self.sums, observation)
    }

    fn values(&mut self) -> Result<MetricValues, MetricError> {
        self.rule.result(&mut self.sums, &self.name)
    }

    fn state(&mut self) -> Result<MetricState, MetricError> {
        self.paused().state()
    }

    fn load_state(&mut self, state: &MetricState) -> Result<(), MetricError> {
        let mut loaded = Accumulator::default();
        loaded.merge(state)?;
        *self.paused() = loaded;
        Ok(())
    }

    fn merge(&mut self, state: &MetricState) -> Result<(), MetricError> {
        self.paused().merge(state)
    }

    fn higher_is_better(&self) -> bool {
        self.rule.higher_is_better()
    }

    fn format(&self, value: f64) -> String {
        self.rule.format(value)
    }
}

/// Declares metrics without options, of one number: for each a unit struct in the module `rule` and an alias.
macro_rules! plain_metrics {
    ($(
        $(#[$meta:meta])*
        $metric:ident, $name:literal, higher is better: $higher:literal, $add:expr, $value:expr;
    )*) => {
        pub(crate) mod rule {$(
            #[derive(Clone, Copy, Debug, Default)]
            pub struct $metric;
        )*}

        $(
            $(#[$meta])*
            pub type $metric = $crate::metric::Accumulated<rule::$metric>;

            impl $crate::metric::MetricRule for rule::$metric {
                $crate::metric::facts!($name, higher is better: $higher);

                fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
                    let add: fn(&mut Accumulator, &Observation) -> Result<(), MetricError> = $add;
                    add(sums, observation)
                }

                fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
                    let value: fn(&mut Accumulator) -> Result<f64, MetricError> = $value;
                    Ok(MetricValues::scalar(name, value(sums)?))
                }
            }
        )*
    };
}

pub(super) use plain_metrics;

/// Declares the name of a [`MetricRule`], whether a greater value is better, and the sums whose ratio the value is.
macro_rules! facts {
    ($name:literal $(, higher is better: $higher:literal)? $(, $sum:literal / $count:literal)?) => {
        fn name(&self) -> String {
            $name.to_owned()
        }

        $(fn higher_is_better(&self) -> bool {
            $higher
        })?

        $(fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
            Ok(MetricValues::scalar(name, sums.ratio($sum, $count)?))
        })?
    };
}

pub(crate) use facts;
