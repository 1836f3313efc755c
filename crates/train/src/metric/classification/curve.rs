//! Metrics of curves over all thresholds: AUROC and average precision, exact.

use kiln_tensor::DType;

use super::input::{ClassInput, refuse_invalid};
use super::{Average, Task};
use crate::error::MetricError;
use crate::metric::{AccumulatedMetric, Accumulator, MetricValue, MetricValues};
use crate::observation::{LOGITS, Observation};

/// The probabilities and targets of all items.
#[derive(Clone, Debug)]
struct Curves {
    name: String,
    task: Task,
    average: Average,
    ignore_index: Option<i64>,
    accumulator: Accumulator,
}

const PROBABILITIES: &str = "probabilities";
const TARGET_ROWS: &str = "targets";

/// The target in collected rows of an item that does not count.
const DROPPED: f64 = -1.0;

impl Curves {
    fn new(name: &str, task: Task) -> Curves {
        let (average, accumulator) = (Average::Macro, Accumulator::new());
        Curves { name: name.to_owned(), task, average, ignore_index: None, accumulator }
    }

    fn columns(&self) -> usize {
        match self.task {
            Task::Binary => 1,
            Task::Multiclass { classes } => classes,
            Task::Multilabel { labels } => labels,
        }
    }

    fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
        let input = ClassInput::read(observation, self.task, self.ignore_index)?;
        let probabilities = input.probabilities()?;
        input.count_invalid(&mut self.accumulator)?;
        let dropped = input.valid.logical_not()?;
        let targets = dropped.if_else_number(DROPPED as i32, input.targets.cast(DType::I32)?)?;
        self.accumulator.append(PROBABILITIES, probabilities)?;
        self.accumulator.append(TARGET_ROWS, targets)
    }

    /// Returns the ranking of each class or label.
    fn rankings(&mut self) -> Result<Vec<Ranking>, MetricError> {
        refuse_invalid(&mut self.accumulator, self.task, self.ignore_index)?;
        let columns = self.columns();
        let targets = self.accumulator.numbers(TARGET_ROWS)?.to_vec();
        let probabilities = self.accumulator.numbers(PROBABILITIES)?;
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

    fn averaged(&mut self, area: impl Fn(&Ranking) -> f64) -> Result<MetricValues, MetricError> {
        let rankings = self.rankings()?;
        let areas: Vec<f64> = rankings.iter().map(area).collect();
        let mean = |weight: &dyn Fn(&Ranking) -> f64| {
            let defined = || areas.iter().zip(&rankings).filter(|(area, _)| !area.is_nan());
            let total: f64 = defined().map(|(_, ranking)| weight(ranking)).sum();
            MetricValue::Scalar(defined().map(|(area, ranking)| area * weight(ranking)).sum::<f64>() / total)
        };
        let value = match self.average {
            Average::None if self.task != Task::Binary => MetricValue::PerClass(areas),
            Average::Weighted if self.task != Task::Binary => mean(&Ranking::positives),
            Average::None | Average::Weighted | Average::Macro | Average::Micro => mean(&|_| 1.0),
        };
        Ok(MetricValues::new().with(self.name.clone(), value))
    }
}

/// The numbers of positive and negative items above each distinct score, in descending order of the scores.
struct Ranking {
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

macro_rules! curve_metric {
    ($metric:ident, $name:literal, $result:expr) => {
        impl $metric {
            #[doc = concat!("Returns the metric of one label of 0 or 1, named `", $name, "`.")]
            pub fn binary() -> $metric {
                $metric::new(Task::Binary)
            }

            #[doc = concat!("Returns the metric of each class against all others, named `", $name, "`.")]
            pub fn multiclass(classes: usize) -> $metric {
                $metric::new(Task::Multiclass { classes })
            }

            #[doc = concat!("Returns the metric of a number of labels of 0 or 1, named `", $name, "`.")]
            pub fn multilabel(labels: usize) -> $metric {
                $metric::new(Task::Multilabel { labels })
            }

            /// Sets the name.
            #[must_use]
            pub fn named(mut self, name: impl Into<String>) -> $metric {
                self.curves.name = name.into();
                self
            }

            /// Leaves out targets of this value. Default: none.
            #[must_use]
            pub fn ignore_index(mut self, index: i64) -> $metric {
                self.curves.ignore_index = Some(index);
                self
            }
        }

        impl AccumulatedMetric for $metric {
            fn name(&self) -> &str {
                &self.curves.name
            }

            fn accumulator(&mut self) -> &mut Accumulator {
                &mut self.curves.accumulator
            }

            fn add(&mut self, observation: &Observation) -> Result<(), MetricError> {
                self.curves.add(observation)
            }

            fn result(&mut self) -> Result<MetricValues, MetricError> {
                let result: fn(&mut $metric) -> Result<MetricValues, MetricError> = $result;
                result(self)
            }
        }
    };
}

macro_rules! curve_average {
    ($metric:ident) => {
        impl $metric {
            /// Sets the average over classes or labels. Default: macro. Classes whose value is NaN are left out of
            /// averages. `Average::Micro` ranks the items of all classes together.
            #[must_use]
            pub fn average(mut self, average: Average) -> $metric {
                self.curves.average = average;
                self
            }
        }
    };
}

/// Area under the receiver operating characteristic: the probability that a positive item has a higher score than a
/// negative one, ties counted half. From 0 to 1; 0.5 is chance. It is exact: the scores of all items are kept until the
/// metric is reset. A class without positive or without negative items has the value NaN; NaN scores are an error.
/// Inputs and tasks: see the [module](super).
#[derive(Clone, Debug)]
pub struct Auroc {
    curves: Curves,
    max_rate: f64,
}

impl Auroc {
    fn new(task: Task) -> Auroc {
        Auroc { curves: Curves::new("auroc", task), max_rate: 1.0 }
    }

    /// Restricts the area to false positive rates up to `rate`, in (0, 1], scaled so that 0.5 is chance and 1 the
    /// maximum (McClish, 1989). Default: 1.
    #[must_use]
    pub fn max_false_positive_rate(mut self, rate: f64) -> Auroc {
        self.max_rate = rate;
        self
    }
}

curve_metric!(Auroc, "auroc", |metric| {
    let max_rate = metric.max_rate;
    metric.curves.averaged(|ranking| ranking.roc_area(max_rate))
});
curve_average!(Auroc);

/// Average precision, the area under the precision-recall curve: `Σ (Rₙ − Rₙ₋₁) Pₙ` over the distinct thresholds in
/// descending order, without interpolation, from 0 to 1. It is exact: the scores of all items are kept until the metric
/// is reset. A class without positive items has the value NaN; NaN scores are an error. Inputs and tasks: see the
/// [module](super).
#[derive(Clone, Debug)]
pub struct AveragePrecision {
    curves: Curves,
}

impl AveragePrecision {
    fn new(task: Task) -> AveragePrecision {
        AveragePrecision { curves: Curves::new("average precision", task) }
    }
}

curve_metric!(AveragePrecision, "average precision", |metric| {
    metric.curves.averaged(Ranking::average_precision)
});
curve_average!(AveragePrecision);

/// [`AveragePrecision`] under the name of the curve.
pub type AucPr = AveragePrecision;

/// [`Auroc`] under the name that Burn uses.
pub type AurocMetric = Auroc;

/// [`AveragePrecision`] under the name that Burn uses.
pub type AucPrMetric = AveragePrecision;

/// The receiver operating characteristic: a matrix with a row for each distinct score, by descending score, and the
/// columns false positive rate, true positive rate and threshold. The first row is `0, 0, ∞`. Of several classes or
/// labels, the values are one matrix for each, named such as `roc 3`. Inputs and tasks: see the [module](super).
#[derive(Clone, Debug)]
pub struct RocCurve {
    curves: Curves,
}

impl RocCurve {
    fn new(task: Task) -> RocCurve {
        RocCurve { curves: Curves::new("roc", task) }
    }
}

curve_metric!(RocCurve, "roc", |metric| metric.curves.points(Ranking::roc));

/// The precision-recall curve: a matrix with a row for each distinct score, by descending score, and the columns
/// precision, recall and threshold. Of several classes or labels, the values are one matrix for each, named such as
/// `precision-recall 3`. Inputs and tasks: see the [module](super).
#[derive(Clone, Debug)]
pub struct PrecisionRecallCurve {
    curves: Curves,
}

impl PrecisionRecallCurve {
    fn new(task: Task) -> PrecisionRecallCurve {
        PrecisionRecallCurve { curves: Curves::new("precision-recall", task) }
    }
}

curve_metric!(PrecisionRecallCurve, "precision-recall", |metric| {
    metric.curves.points(Ranking::precision_recall)
});

impl Curves {
    fn points(&mut self, points: impl Fn(&Ranking) -> Vec<[f64; 3]>) -> Result<MetricValues, MetricError> {
        let mut values = MetricValues::new();
        for (number, ranking) in self.rankings()?.iter().enumerate() {
            let points = points(ranking);
            let name = match self.task {
                Task::Binary => self.name.clone(),
                Task::Multiclass { .. } | Task::Multilabel { .. } => format!("{} {number}", self.name),
            };
            let matrix = MetricValue::Matrix {
                rows: points.len(),
                columns: 3,
                elements: points.into_iter().flatten().collect(),
            };
            values = values.with(name, matrix);
        }
        Ok(values)
    }
}
