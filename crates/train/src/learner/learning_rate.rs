//! The search of a learning rate.

use std::fmt;
use std::panic::Location;

use super::Learner;
use super::fit::{Caller, run_step};
use crate::error::{Result, TrainError, TrainPosition};
use crate::loader::Loader;
use crate::meter::Meter;
use crate::snapshot::Snapshot;
use crate::step::{LOSS, Outcome};
use crate::task::{StateVisitor, Task};

/// The options of a search of the learning rate: the learning-rate range test of Smith, "Cyclical Learning Rates for
/// Training Neural Networks" (2017). The learning rate grows from step to step by a constant factor, until the loss
/// diverges.
///
/// Defaults: 100 steps from 1e-7 to 10, and an end once the smoothed loss exceeds four times its minimum.
#[derive(Clone, Debug, PartialEq)]
pub struct LearningRateFinder {
    start: f64,
    end: f64,
    steps: u64,
    smoothing: f64,
    divergence: f64,
    model: Option<String>,
    value: String,
}

/// The losses of a search. `Display` prints a plot of them, with the suggested learning rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearningRateCurve {
    /// The steps, in order of their learning rates.
    pub points: Vec<LearningRatePoint>,
    /// Whether the loss diverged before the last learning rate.
    pub diverged: bool,
}

/// A step of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearningRatePoint {
    /// The learning rate of the step.
    pub learning_rate: f64,
    /// The loss before the update of the step.
    pub loss: f64,
    /// The exponential moving average of the losses so far, corrected for its start.
    pub smoothed: f64,
}

impl LearningRateFinder {
    /// Returns the default options.
    pub fn new() -> LearningRateFinder {
        LearningRateFinder {
            start: 1e-7,
            end: 10.0,
            steps: 100,
            smoothing: 0.98,
            divergence: 4.0,
            model: None,
            value: LOSS.to_owned(),
        }
    }

    /// Sets the first and the last learning rate: finite, above 0 and in ascending order. Default: 1e-7 and 10.
    #[must_use]
    pub fn range(mut self, start: f64, end: f64) -> LearningRateFinder {
        (self.start, self.end) = (start, end);
        self
    }

    kiln_ir::setters! {
        /// Sets the number of steps: at least 2. Default: 100.
        steps(steps: u64) => steps = steps;

        /// Sets the weight of the past in the smoothed loss: at least 0 and below 1. Default: 0.98.
        smoothing(smoothing: f64) => smoothing = smoothing;

        /// Sets the multiple of the least smoothed loss at which the search ends. Default: 4.
        divergence(divergence: f64) => divergence = divergence;

        /// Searches the learning rate of the [`Trainable`](crate::Trainable) of this name. The others keep that of their
        /// schedules. Default: all of the task have the same one.
        model(name: impl Into<String>) => model = Some(name.into());

        /// Sets the number that the task logs, in place of the loss. Default: `loss`.
        value(name: impl Into<String>) => value = name.into();
    }

    /// The learning rate of a step.
    fn learning_rate(&self, step: u64) -> f64 {
        let fraction = step as f64 / (self.steps - 1) as f64;
        self.start * (self.end / self.start).powf(fraction)
    }

    fn check(&self) -> Result<()> {
        let refuse = |option, value: String, requirement| {
            Err(TrainError::InvalidOption { option, value, requirement })
        };
        if !(self.start > 0.0 && self.end > self.start && self.end.is_finite()) {
            let range = format!("{} to {}", self.start, self.end);
            return refuse("the range of learning rates", range, "finite, above 0 and ascending");
        }
        if self.steps < 2 {
            return refuse("the number of steps of the search", self.steps.to_string(), "at least 2");
        }
        if !(0.0..1.0).contains(&self.smoothing) {
            return refuse("the smoothing", self.smoothing.to_string(), "at least 0 and below 1");
        }
        Ok(())
    }
}

impl Default for LearningRateFinder {
    fn default() -> LearningRateFinder {
        LearningRateFinder::new()
    }
}

impl<T: Task> Learner<T> {
    /// Searches a learning rate: trains for some steps with growing learning rates, and returns the losses and a
    /// [suggestion](LearningRateCurve::suggestion). The task then returns to its state before the search. Callbacks,
    /// loggers and metrics do not take part.
    ///
    /// ```
    /// use kiln_train::LearningRateFinder;
    /// # use kiln_backends::Flex;
    /// # use kiln_nn::{Linear, LinearConfig};
    /// # use kiln_optim::SgdConfig;
    /// # use kiln_tensor::{Autodiff, Tensor};
    /// # use kiln_train::{Learner, StepOutput, Supervised, loader::TensorLoader};
    /// # type B = Autodiff<Flex>;
    /// # let model: Linear<B> = LinearConfig::new(1, 1).init(&Default::default());
    /// # let loss = |model: &Linear<B>, x: Tensor<B, 2>| StepOutput::new((model.forward(x) - 3.0).square().mean(), 4);
    /// # let task = Supervised::new(model, SgdConfig::new().init(), 0.1, loss);
    /// # let loader = TensorLoader::new(Tensor::<B, 2>::ones([64, 1], &Default::default())).batch_size(4);
    /// let mut learner = Learner::new(task).silent();
    /// let curve = learner.find_learning_rate(&loader, &LearningRateFinder::new())?;
    /// println!("{curve}");
    /// if let Some(learning_rate) = curve.suggestion() {
    ///     learner.task_mut().trainable_mut().set_learning_rate(learning_rate);
    /// }
    /// # Ok::<(), kiln_train::TrainError>(())
    /// ```
    ///
    /// # Errors
    /// When an option of the search is invalid, the loader has no batches, the task has no number of the wanted name or no
    /// model of the wanted name, or a step fails. A loss that is not finite ends the search without an error.
    #[track_caller]
    pub fn find_learning_rate(
        &mut self,
        loader: &dyn Loader<T::Batch>,
        finder: &LearningRateFinder,
    ) -> Result<LearningRateCurve> {
        finder.check()?;
        let caller = Location::caller();
        let before = Snapshot::of(&mut self.task)?;
        let random = self.random_streams()?;
        let curve = self.search(loader, finder, caller);
        let restored = self.set_learning_rates(finder, None).and_then(|()| before.copy_to(&mut self.task, 0));
        random.iter().for_each(|(stack, state)| stack.keys().restore(*state));
        let curve = curve?;
        restored.map(|()| curve)
    }

    fn search(
        &mut self,
        loader: &dyn Loader<T::Batch>,
        finder: &LearningRateFinder,
        caller: Caller,
    ) -> Result<LearningRateCurve> {
        let mut curve = LearningRateCurve::default();
        let mut average = 0.0;
        for epoch in 0.. {
            let mut is_empty = true;
            for batch in loader.batches(epoch, 0) {
                let step = curve.points.len() as u64;
                if step == finder.steps {
                    return Ok(curve);
                }
                is_empty = false;
                let place = TrainPosition { epoch, step, ..TrainPosition::default() };
                let batch = batch.map_err(|source| TrainError::Data { place, source })?;
                let learning_rate = finder.learning_rate(step);
                self.set_learning_rates(finder, Some(learning_rate))?;
                let loss = self.searched_step(batch, place, finder, caller)?;
                average = finder.smoothing * average + (1.0 - finder.smoothing) * loss;
                let smoothed = average / (1.0 - finder.smoothing.powi(step as i32 + 1));
                let least = curve.least();
                if !smoothed.is_finite() || smoothed > finder.divergence * least.max(f64::MIN_POSITIVE) {
                    curve.diverged = true;
                    return Ok(curve);
                }
                curve.points.push(LearningRatePoint { learning_rate, loss, smoothed });
            }
            if is_empty {
                return Err(TrainError::InvalidOption {
                    option: "the training loader",
                    value: format!("without batches in epoch {}", epoch + 1),
                    requirement: "a loader with at least one batch",
                });
            }
        }
        Ok(curve)
    }

    /// Runs a step and returns its loss.
    fn searched_step(
        &mut self,
        batch: T::Batch,
        place: TrainPosition,
        finder: &LearningRateFinder,
        caller: Caller,
    ) -> Result<f64> {
        let mut outcome = Outcome::default();
        let Learner { task, options, .. } = self;
        run_step(task, options, batch, place, caller, &mut |_| Ok(()), &mut outcome)?;
        let mut meter = Meter::default();
        meter.add(outcome, place)?;
        let mut values = Vec::new();
        meter.read(0, false, |record| values = record.values)?;
        match values.iter().find(|(name, _)| *name == finder.value) {
            Some((_, loss)) => Ok(*loss),
            None => {
                let known = values.into_iter().map(|(name, _)| name).collect();
                Err(TrainError::UnknownMetric { name: finder.value.clone(), known })
            }
        }
    }

    /// Sets the learning rates that replace those of the schedules.
    fn set_learning_rates(&mut self, finder: &LearningRateFinder, learning_rate: Option<f64>) -> Result<()> {
        let mut set = Fix { model: finder.model.as_deref(), learning_rate, known: Vec::new(), is_set: false };
        self.task.state(&mut set)?;
        if set.is_set {
            return Ok(());
        }
        Err(TrainError::InvalidOption {
            option: "the model of the search",
            value: format!("{:?}, while the task trains {:?}", finder.model, set.known),
            requirement: "the name of a `Trainable` that `Task::state` passes to the visitor",
        })
    }
}

/// Sets the learning rate of a model, or of all.
struct Fix<'a> {
    model: Option<&'a str>,
    learning_rate: Option<f64>,
    known: Vec<String>,
    is_set: bool,
}

impl StateVisitor for Fix<'_> {
    fn replica(&mut self, _rank: usize) -> bool {
        true
    }

    fn fixed_learning_rate(&mut self, name: &str, learning_rate: &mut Option<f64>) {
        self.known.push(name.to_owned());
        if self.model.is_none_or(|model| model == name) {
            *learning_rate = self.learning_rate;
            self.is_set = true;
        }
    }
}

/// Points at the start and at the end of a curve that do not count for the suggestion: the first losses are not yet
/// smooth, and the last ones rise.
const IGNORED_AT_START: usize = 10;
const IGNORED_AT_END: usize = 1;

impl LearningRateCurve {
    /// Returns the suggested learning rate: that with the steepest descent of the smoothed loss over the logarithm of the
    /// learning rate. `None` if the curve is too short or never falls.
    pub fn suggestion(&self) -> Option<f64> {
        let end = self.points.len().saturating_sub(IGNORED_AT_END);
        let points = self.points.get(IGNORED_AT_START.min(end)..end)?;
        let slope = |index: usize| {
            let (before, after) = (points[index - 1], points[index + 1]);
            (after.smoothed - before.smoothed) / (after.learning_rate / before.learning_rate).ln()
        };
        let inner = 1..points.len().saturating_sub(1);
        let steepest = inner.map(|index| (slope(index), points[index].learning_rate));
        steepest.filter(|(slope, _)| *slope < 0.0).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, rate)| rate)
    }

    /// Returns the learning rate with the least smoothed loss.
    pub fn minimum(&self) -> Option<f64> {
        self.points.iter().min_by(|a, b| a.smoothed.total_cmp(&b.smoothed)).map(|point| point.learning_rate)
    }

    /// Returns the plot as text of this many columns and rows, without axes: the smoothed loss over the logarithm of the
    /// learning rate. `*` is the suggestion.
    pub fn plot(&self, columns: usize, rows: usize) -> String {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else {
            return String::new();
        };
        if columns == 0 || rows == 0 {
            return String::new();
        }
        let (least, most) =
            (self.least(), self.points.iter().fold(f64::MIN, |most, point| most.max(point.smoothed)));
        let place = |value: f64, low: f64, high: f64, count: usize| {
            let fraction = if high > low { (value - low) / (high - low) } else { 0.0 };
            ((fraction * (count - 1) as f64).round() as usize).min(count - 1)
        };
        let mut cells = vec![vec![' '; columns]; rows];
        let suggestion = self.suggestion();
        for point in &self.points {
            let (low, high) = (first.learning_rate.ln(), last.learning_rate.ln());
            let column = place(point.learning_rate.ln(), low, high, columns);
            let row = rows - 1 - place(point.smoothed, least, most, rows);
            let is_suggested = suggestion == Some(point.learning_rate);
            let cell = &mut cells[row][column];
            *cell = if is_suggested || *cell == '*' { '*' } else { '.' };
        }
        let lines = cells.into_iter().map(|line| line.into_iter().collect::<String>().trim_end().to_owned());
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The least smoothed loss; infinite without points.
    fn least(&self) -> f64 {
        self.points.iter().fold(f64::INFINITY, |least, point| least.min(point.smoothed))
    }
}

impl fmt::Display for LearningRateCurve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else {
            return f.write_str("no learning rate was tried");
        };
        let most = self.points.iter().fold(f64::MIN, |most, point| most.max(point.smoothed));
        let plot = self.plot(COLUMNS, ROWS);
        for (row, line) in plot.lines().enumerate() {
            let label = match row {
                0 => format!("{most:.4}"),
                row if row == ROWS - 1 => format!("{:.4}", self.least()),
                _ => String::new(),
            };
            writeln!(f, "{label:>10} |{line}")?;
        }
        let axis = format!("{:.1e}", first.learning_rate);
        let end = format!("{:.1e}", last.learning_rate);
        writeln!(f, "{:>10} +{}", "", "-".repeat(COLUMNS))?;
        writeln!(f, "{:>11} {axis}{end:>width$}", "", width = COLUMNS - axis.len())?;
        match self.suggestion() {
            Some(rate) => write!(f, "suggested learning rate: {rate:.1e} (*)"),
            None => f.write_str("no learning rate is suggested: the loss does not fall"),
        }
    }
}

/// The size of the plot.
const COLUMNS: usize = 60;
const ROWS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    /// A loss that is flat, falls steepest at `middle`, and rises after the minimum.
    fn curve(middle: f64) -> LearningRateCurve {
        let points = (0..100).map(|step| {
            let learning_rate = LearningRateFinder::new().learning_rate(step);
            let distance = (learning_rate / middle).log10();
            let smoothed = 2.0 - distance.tanh();
            LearningRatePoint { learning_rate, loss: smoothed, smoothed }
        });
        LearningRateCurve { points: points.collect(), diverged: false }
    }

    #[test]
    fn the_suggestion_has_the_steepest_descent() {
        for middle in [1e-4, 1e-2, 0.3] {
            let suggestion = curve(middle).suggestion().unwrap();
            assert!((suggestion / middle).ln().abs() < 0.2, "{suggestion} is far from {middle}");
        }
        let mut rising = curve(1e-2);
        rising.points.iter_mut().for_each(|point| point.smoothed = 4.0 - point.smoothed);
        assert_eq!(rising.suggestion(), None);
        assert_eq!(LearningRateCurve::default().suggestion(), None);
    }

    #[test]
    fn the_plot_falls_and_marks_the_suggestion() {
        let text = curve(1e-2).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), ROWS + 3);
        assert!(lines[0].contains("|...") && lines[ROWS - 1].trim_end().ends_with("..."), "{text}");
        assert_eq!(text.matches('*').count(), 2, "{text}");
        assert!(lines[ROWS + 1].trim().starts_with("1.0e-7") && lines[ROWS + 1].ends_with("1.0e1"), "{text}");
        assert_eq!(LearningRateCurve::default().to_string(), "no learning rate was tried");
    }
}
