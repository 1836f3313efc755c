//! Metrics of curves over all thresholds: AUROC and average precision, exact.

use std::fmt::Debug;

use kiln_tensor::DType;

use super::input::{ClassInput, refuse_invalid};
use super::rule::{LabelsRule, TaskRule};
use super::{Average, Task};
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValue, MetricValues};
use crate::observation::{LOGITS, Observation};

/// The values of a metric of curves over all thresholds.
pub trait Curve: Clone + Debug + Default + Send + 'static {
    /// The name of the metric.
    const NAME: &'static str;

    /// Computes the values from the ranking of each class or label.
    fn values(&self, options: &CurveOptions, rankings: &[Ranking], name: &str) -> MetricValues;
}

/// A curve whose area is the value.
pub trait Area: Curve {}

/// The options of all curves.
#[derive(Clone, Debug)]
pub struct CurveOptions {
    task: Task,
    average: Average,
    ignore_index: Option<i64>,
}

/// The rule of metrics of curves: collects the probabilities and targets of all items.
#[derive(Clone, Debug)]
pub struct CurveRule<C> {
    curve: C,
    options: CurveOptions,
}

const PROBABILITIES: &str = "probabilities";
const TARGET_ROWS: &str = "targets";

/// The target in collected rows of an item that does not count.
const DROPPED: f64 = -1.0;

impl<C: Curve> TaskRule for CurveRule<C> {
    fn of_task(task: Task) -> CurveRule<C> {
        let options = CurveOptions { task, average: Average::Macro, ignore_index: None };
        CurveRule { curve: C::default(), options }
    }
}

impl<C: Curve> LabelsRule for CurveRule<C> {}

impl<C: Curve> Accumulated<CurveRule<C>> {
    kiln_ir::setters! {
        /// Leaves out targets of this value. Default: none.
        ignore_index(index: i64) => rule.options.ignore_index = Some(index);
    }
}

impl<C: Area> Accumulated<CurveRule<C>> {
    kiln_ir::setters! {
        /// Sets the average over classes or labels. Default: macro. Classes whose value is NaN are left out of averages.
        /// `Average::Micro` ranks the items of all classes together.
        average(average: Average) => rule.options.average = average;
    }
}

impl<C: Curve> MetricRule for CurveRule<C> {
    fn name(&self) -> String {
        C::NAME.to_owned()
    }

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let input = ClassInput::read(observation, self.options.task, self.options.ignore_index)?;
        let probabilities = input.probabilities()?;
        input.count_invalid(sums)?;
        let dropped = input.valid.logical_not()?;
        let targets = dropped.if_else_number(DROPPED as i32, input.targets.cast(DType::I32)?)?;
        sums.append(PROBABILITIES, probabilities)?;
        sums.append(TARGET_ROWS, targets)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        Ok(self.curve.values(&self.options, &self.options.rankings(sums)?, name))
    }
}

impl CurveOptions {
    fn columns(&self) -> usize {
        match self.task {
            Task::Binary => 1,
            Task::Multiclass { classes } => classes,
            Task::Multilabel { labels } => labels,
        }
    }

    /// Returns the ranking of each class or label.
    fn rankings(&self, sums: &mut Accumulator) -> Result<Vec<Ranking>, MetricError> {
        refuse_invalid(sums, self.task, self.ignore_index)?;
        let columns = self.columns();
        let targets = sums.numbers(TARGET_ROWS)?.to_vec();
        let probabilities = sums.numbers(PROBABILITIES)?;
        if probabilities.iter().any(|p| p.is_nan()) {
            let problem = "contains NaN, which has no place in a ranking".to_owned();
            return Err(MetricError::Input { name: LOGITS, problem });
        }
        let target = |item: usize, column: usize| match self.task {
            Task::Multiclass { .. } if targets[item] == DROPPED => DROPPED,
            Task::Multiclass { .. } => f64::from(u8::from(targets[item] == column as f64)),
            Task::Binary | Task::Multilabel { .. } => targets[item * columns + column],
        };
        let items = probabilities.len().checked_div(columns).unwrap_or(0);
        let mut pairs = vec![Vec::new(); columns];
        for item in 0..items {
            for (column, pairs) in pairs.iter_mut().enumerate() {
                let target = target(item, column);
                if target != DROPPED {
                    pairs.push((probabilities[item * columns + column], target == 1.0));
                }
            }
        }
        if self.average == Average::Micro {
            pairs = vec![pairs.concat()];
        }
        Ok(pairs.into_iter().map(Ranking::new).collect())
    }

    fn averaged(&self, rankings: &[Ranking], name: &str, area: impl Fn(&Ranking) -> f64) -> MetricValues {
        let areas: Vec<f64> = rankings.iter().map(area).collect();
        let mean = |weight: &dyn Fn(&Ranking) -> f64| {
            let defined = || areas.iter().zip(rankings).filter(|(area, _)| !area.is_nan());
            let total: f64 = defined().map(|(_, ranking)| weight(ranking)).sum();
            MetricValue::Scalar(defined().map(|(area, ranking)| area * weight(ranking)).sum::<f64>() / total)
        };
        let value = match self.average {
            Average::None if self.task != Task::Binary => MetricValue::PerClass(areas),
            Average::Weighted if self.task != Task::Binary => mean(&Ranking::positives),
            Average::None | Average::Weighted | Average::Macro | Average::Micro => mean(&|_| 1.0),
        };
        MetricValues::new().with(name, value)
    }

    fn points(
        &self,
        rankings: &[Ranking],
        name: &str,
        points: impl Fn(&Ranking) -> Vec<[f64; 3]>,
    ) -> MetricValues {
        rankings.iter().enumerate().fold(MetricValues::new(), |values, (number, ranking)| {
            let points = points(ranking);
            let name = match self.task {
                Task::Binary => name.to_owned(),
                Task::Multiclass { .. } | Task::Multilabel { .. } => format!("{name} {number}"),
            };
            let (rows, elements) = (points.len(), points.into_iter().flatten().collect());
            values.with(name, MetricValue::Matrix { rows, columns: 3, elements })
        })
    }
}

/// The numbers of positive and negative items above each distinct score, in descending order of the scores.
pub struct Ranking {
    steps: Vec<Step>,
}

#[derive(Clone, Copy)]
struct Step {
    score: f64,
    /// Positive items with at least this score.
    positives: f64,
    /// Negative items with at least this score.
    negatives: f64,
}

impl Ranking {
    fn new(mut pairs: Vec<(f64, bool)>) -> Ranking {
        pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut steps: Vec<Step> = Vec::new();
        let (mut positives, mut negatives) = (0.0, 0.0);
        for (score, is_positive) in pairs {
            *(if is_positive { &mut positives } else { &mut negatives }) += 1.0;
            let step = Step { score, positives, negatives };
            match steps.last_mut() {
                Some(last) if last.score == score => *last = step,
                Some(_) | None => steps.push(step),
            }
        }
        Ranking { steps }
    }

    fn positives(&self) -> f64 {
        self.steps.last().map_or(0.0, |step| step.positives)
    }

    fn negatives(&self) -> f64 {
        self.steps.last().map_or(0.0, |step| step.negatives)
    }

    /// Returns the points of the ROC curve: false positive rate, true positive rate and threshold.
    fn roc(&self) -> Vec<[f64; 3]> {
        let (positives, negatives) = (self.positives(), self.negatives());
        let point = |step: &Step| [step.negatives / negatives, step.positives / positives, step.score];
        let first = [0.0, 0.0, f64::INFINITY];
        std::iter::once(first).chain(self.steps.iter().map(point)).collect()
    }

    /// Returns the points of the precision-recall curve: precision, recall and threshold, by ascending recall.
    fn precision_recall(&self) -> Vec<[f64; 3]> {
        let positives = self.positives();
        let precision = |step: &Step| step.positives / (step.positives + step.negatives);
        self.steps.iter().map(|step| [precision(step), step.positives / positives, step.score]).collect()
    }

    /// Returns the area under the ROC curve up to a false positive rate, NaN without positive or negative items. An
    /// area up to a rate below 1 is scaled so that 0.5 is chance and 1 the maximum (McClish, 1989).
    fn roc_area(&self, max_rate: f64) -> f64 {
        if self.positives() == 0.0 || self.negatives() == 0.0 {
            return f64::NAN;
        }
        let mut area = 0.0;
        for edge in self.roc().windows(2) {
            let ([x0, y0, _], [x1, y1, _]) = (edge[0], edge[1]);
            if x0 >= max_rate {
                break;
            }
            let end = x1.min(max_rate);
            let y = if x1 > max_rate { y0 + (y1 - y0) * (max_rate - x0) / (x1 - x0) } else { y1 };
            area += (end - x0) * (y0 + y) / 2.0;
        }
        if max_rate >= 1.0 {
            return area;
        }
        let chance = max_rate * max_rate / 2.0;
        0.5 * (1.0 + (area - chance) / (max_rate - chance))
    }

    /// Returns the average precision, NaN without positive items.
    fn average_precision(&self) -> f64 {
        if self.positives() == 0.0 {
            return f64::NAN;
        }
        let (mut area, mut before) = (0.0, 0.0);
        for [precision, recall, _] in self.precision_recall() {
            area += (recall - before) * precision;
            before = recall;
        }
        area
    }
}

/// Area under the receiver operating characteristic, `auroc`: the probability that a positive item has a higher score
/// than a negative one, ties counted half. From 0 to 1; 0.5 is chance. It is exact: the scores of all items are kept
/// until the metric is reset. Of several classes, it is that of each class against all others. A class without positive
/// or without negative items has the value NaN; NaN scores are an error. Inputs and tasks: see the [module](super).
pub type Auroc = Accumulated<CurveRule<RocArea>>;

/// The curve of [`Auroc`].
#[derive(Clone, Copy, Debug)]
pub struct RocArea {
    max_rate: f64,
}

impl Default for RocArea {
    fn default() -> RocArea {
        RocArea { max_rate: 1.0 }
    }
}

impl Auroc {
    kiln_ir::setters! {
        /// Restricts the area to false positive rates up to `rate`, in (0, 1], scaled so that 0.5 is chance and 1 the
        /// maximum (McClish, 1989). Default: 1.
        max_false_positive_rate(rate: f64) => rule.curve.max_rate = rate;
    }
}

impl Area for RocArea {}

impl Curve for RocArea {
    const NAME: &'static str = "auroc";

    fn values(&self, options: &CurveOptions, rankings: &[Ranking], name: &str) -> MetricValues {
        options.averaged(rankings, name, |ranking| ranking.roc_area(self.max_rate))
    }
}

macro_rules! curves {
    ($($(#[$meta:meta])* $metric:ident, $name:literal, $values:ident, $of_ranking:expr;)*) => {
        mod kind {$(
            #[derive(Clone, Copy, Debug, Default)]
            pub struct $metric;
        )*}

        $(
            $(#[$meta])*
            pub type $metric = Accumulated<CurveRule<kind::$metric>>;

            impl Curve for kind::$metric {
                const NAME: &'static str = $name;

                fn values(&self, options: &CurveOptions, rankings: &[Ranking], name: &str) -> MetricValues {
                    options.$values(rankings, name, $of_ranking)
                }
            }
        )*
    };
}

curves! {
    /// Average precision, `average precision`, the area under the precision-recall curve: `Σ (Rₙ − Rₙ₋₁) Pₙ` over the
    /// distinct thresholds in descending order, without interpolation, from 0 to 1. It is exact: the scores of all
    /// items are kept until the metric is reset. Of several classes, it is that of each class against all others. A
    /// class without positive items has the value NaN; NaN scores are an error. Inputs and tasks: see the
    /// [module](super).
    AveragePrecision, "average precision", averaged, Ranking::average_precision;

    /// The receiver operating characteristic, `roc`: a matrix with a row for each distinct score, by descending score,
    /// and the columns false positive rate, true positive rate and threshold. The first row is `0, 0, ∞`. Of several
    /// classes or labels, the values are one matrix for each, named such as `roc 3`. Inputs and tasks: see the
    /// [module](super).
    RocCurve, "roc", points, Ranking::roc;

    /// The precision-recall curve, `precision-recall`: a matrix with a row for each distinct score, by descending
    /// score, and the columns precision, recall and threshold. Of several classes or labels, the values are one matrix
    /// for each, named such as `precision-recall 3`. Inputs and tasks: see the [module](super).
    PrecisionRecallCurve, "precision-recall", points, Ranking::precision_recall;
}

impl Area for kind::AveragePrecision {}

/// [`AveragePrecision`] under the name of the curve.
pub type AucPr = AveragePrecision;

/// [`Auroc`] under the name that Burn uses.
pub type AurocMetric = Auroc;

/// [`AveragePrecision`] under the name that Burn uses.
pub type AucPrMetric = AveragePrecision;
