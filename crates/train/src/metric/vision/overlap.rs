//! Overlap of segmentations.

use std::fmt::Debug;
use std::marker::PhantomData;

use kiln_tensor::{AnyTensor, DType, TensorType};

use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValue, MetricValues};
use crate::observation::{Observation, PREDICTIONS, TARGETS};

/// Dice coefficient of segmentations: `2 |P ∩ T| / (|P| + |T|)` of the predicted and the true pixels of a class, where
/// a class without pixels in both has no value.
///
/// Inputs: [`PREDICTIONS`](crate::PREDICTIONS), either classes `[batch, ..]` or scores `[batch, classes, ..]`, whose
/// greatest is the class, and [`TARGETS`](crate::TARGETS), classes `[batch, ..]`. Pixels whose target is not in
/// `0..classes`, such as 255, are ignored.
///
/// Values: `dice`, from 0 to 1, by default the mean over classes of each image, averaged over images; and
/// `dice_per_class`, the mean over images for each class, NaN for a class that never occurs. Equivalent to
/// `torchmetrics.segmentation.DiceScore`.
///
/// ```
/// use kiln_train::metric::{Aggregation, ClassAverage, Dice};
///
/// let metric = Dice::new(21).average(ClassAverage::Micro).aggregation(Aggregation::Global).background(false);
/// ```
pub type Dice = Accumulated<OverlapRule<kind::Dice>>;

/// Mean intersection over union of segmentations: `|P ∩ T| / |P ∪ T|` of the predicted and the true pixels of a class,
/// averaged over the classes that occur (Everingham et al., "The Pascal visual object classes challenge", 2010).
///
/// Inputs are those of [`Dice`]. Values: `mean_iou`, from 0 to 1, by default of the pixels of all images; and
/// `iou_per_class`, NaN for a class that never occurs. Equivalent to `torchmetrics.JaccardIndex` of multiclass
/// segmentations with `average="macro"`.
pub type MeanIou = Accumulated<OverlapRule<kind::MeanIou>>;

/// Generalized Dice coefficient of segmentations (Sudre et al., "Generalised Dice overlap as a deep learning loss
/// function for highly unbalanced segmentations", 2017): `2 Σ w |P ∩ T| / Σ w (|P| + |T|)` over the classes of an
/// image, with a weight `w` of each class by its size, averaged over images.
///
/// Inputs are those of [`Dice`]. A class that an image does not contain has the greatest weight that it has in the
/// batch, or 0. Values: `generalized_dice`, from 0 to 1, and `generalized_dice_per_class`, where a class without pixels
/// in both segmentations of an image counts as 0. Equivalent to `torchmetrics.segmentation.GeneralizedDiceScore`.
pub type GeneralizedDice = Accumulated<GeneralizedDiceRule>;

/// The rule of [`GeneralizedDice`].
#[derive(Clone, Debug)]
pub struct GeneralizedDiceRule {
    classes: usize,
    background: bool,
    weight: ClassWeight,
}

/// [`Dice`] under the name that Burn uses.
pub type DiceMetric = Dice;

/// [`MeanIou`] under the name that Burn would use.
pub type MeanIouMetric = MeanIou;

/// The average over classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassAverage {
    /// The mean of the values of classes.
    Macro,
    /// The value of the summed counts of all classes.
    Micro,
    /// The mean of the values of classes, weighted by the number of true pixels.
    Weighted,
}

/// The average over images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregation {
    /// The mean of the values of images.
    PerImage,
    /// The value of the counts of all images.
    Global,
}

/// The weight of a class in [`GeneralizedDice`], from its number `n` of true pixels in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassWeight {
    /// `1 / n²`
    Square,
    /// `1 / n`
    Simple,
    /// 1
    Linear,
}

/// Counts of pixels of one class.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    both: f64,
    predicted: f64,
    actual: f64,
}

/// A metric that is a ratio of counts.
pub trait Kind: Clone + Debug + Send + 'static {
    /// The name of the metric.
    const NAME: &'static str;
    /// The name of the values of classes.
    const PER_CLASS: &'static str;
    /// The default of [`OverlapRule`]'s average over images.
    const AGGREGATION: Aggregation;

    /// Returns the ratio.
    fn ratio(counts: Counts) -> f64;
}

/// The rule of metrics that are a ratio of counts for each class. `K` separates their types.
#[derive(Clone, Debug)]
pub struct OverlapRule<K> {
    classes: usize,
    background: bool,
    average: ClassAverage,
    aggregation: Aggregation,
    kind: PhantomData<K>,
}

impl<K: Kind> Accumulated<OverlapRule<K>> {
    /// Returns the metric of segmentations into a number of classes.
    pub fn new(classes: usize) -> Self {
        let (average, aggregation) = (ClassAverage::Macro, K::AGGREGATION);
        Self::of(OverlapRule { classes, background: true, average, aggregation, kind: PhantomData })
    }

    kiln_ir::setters! {
        /// Sets the average over classes. Default: [`ClassAverage::Macro`].
        average(average: ClassAverage) => rule.average = average;

        /// Sets the average over images. Default: [`Aggregation::PerImage`] of [`Dice`], [`Aggregation::Global`] of
        /// [`MeanIou`].
        aggregation(aggregation: Aggregation) => rule.aggregation = aggregation;

        /// Sets whether class 0, the background, is one of the classes. Default: yes.
        background(background: bool) => rule.background = background;
    }
}

mod kind {
    #[derive(Clone, Copy, Debug)]
    pub struct Dice;

    #[derive(Clone, Copy, Debug)]
    pub struct MeanIou;
}

impl Kind for kind::Dice {
    const NAME: &'static str = "dice";
    const PER_CLASS: &'static str = "dice_per_class";
    const AGGREGATION: Aggregation = Aggregation::PerImage;

    fn ratio(counts: Counts) -> f64 {
        2.0 * counts.both / (counts.predicted + counts.actual)
    }
}

impl Kind for kind::MeanIou {
    const NAME: &'static str = "mean_iou";
    const PER_CLASS: &'static str = "iou_per_class";
    const AGGREGATION: Aggregation = Aggregation::Global;

    fn ratio(counts: Counts) -> f64 {
        counts.both / (counts.predicted + counts.actual - counts.both)
    }
}

impl<K: Kind> MetricRule for OverlapRule<K> {
    fn name(&self) -> String {
        K::NAME.to_owned()
    }

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let counts = pixel_counts(observation, self.classes, self.background)?.stacked()?;
        match self.aggregation {
            Aggregation::PerImage => sums.append("images", counts),
            Aggregation::Global => {
                let images = counts.shape()[0];
                sums.count("count", images as f64);
                sums.sum("total", counts.cast(DType::F64)?.sum_dim(0)?)
            }
        }
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let classes = self.classes - usize::from(!self.background && self.classes > 0);
        let numbers = match self.aggregation {
            Aggregation::PerImage => sums.numbers("images")?,
            Aggregation::Global => sums.totals("total")?,
        };
        let images: Vec<Vec<Counts>> = numbers.chunks(3 * classes.max(1)).map(counts_of).collect();
        let value = mean(images.iter().map(|counts| averaged(counts, self.average, K::ratio)));
        let per_class = (0..classes).map(|class| mean(images.iter().map(|counts| K::ratio(counts[class]))));
        Ok(MetricValues::scalar(name, value).with(K::PER_CLASS, MetricValue::PerClass(per_class.collect())))
    }
}

/// The counts of the classes of an image: intersections, then predictions, then targets.
fn counts_of(numbers: &[f64]) -> Vec<Counts> {
    let classes = numbers.len() / 3;
    let of = |class: usize| Counts {
        both: numbers[class],
        predicted: numbers[classes + class],
        actual: numbers[2 * classes + class],
    };
    (0..classes).map(of).collect()
}

fn averaged(counts: &[Counts], average: ClassAverage, ratio: fn(Counts) -> f64) -> f64 {
    let ratios = counts.iter().map(|&counts| ratio(counts));
    match average {
        ClassAverage::Macro => mean(ratios),
        ClassAverage::Micro => ratio(counts.iter().fold(Counts::default(), |sum, counts| Counts {
            both: sum.both + counts.both,
            predicted: sum.predicted + counts.predicted,
            actual: sum.actual + counts.actual,
        })),
        ClassAverage::Weighted => {
            let total: f64 = counts.iter().map(|counts| counts.actual).sum();
            let weighted = ratios.zip(counts).map(|(ratio, counts)| ratio * counts.actual / total);
            let (sum, any) = present(weighted).fold((0.0, false), |(sum, _), value| (sum + value, true));
            if any { sum } else { f64::NAN }
        }
    }
}

/// The mean of all values but NaN; NaN without any.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = present(values).fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

fn present(values: impl Iterator<Item = f64>) -> impl Iterator<Item = f64> {
    values.filter(|value| !value.is_nan())
}

impl GeneralizedDice {
    /// Returns the metric `generalized_dice` of segmentations into a number of classes.
    pub fn new(classes: usize) -> GeneralizedDice {
        let weight = ClassWeight::Square;
        GeneralizedDice::of(GeneralizedDiceRule { classes, background: true, weight })
    }

    kiln_ir::setters! {
        /// Sets the weight of classes. Default: [`ClassWeight::Square`].
        weight(weight: ClassWeight) => rule.weight = weight;

        /// Sets whether class 0, the background, is one of the classes. Default: yes.
        background(background: bool) => rule.background = background;
    }
}

impl GeneralizedDiceRule {
    /// The weights `[batch, classes]`.
    fn weights(&self, actual: AnyTensor) -> Result<AnyTensor, kiln_tensor::Error> {
        let weights = match self.weight {
            ClassWeight::Linear => return actual.ones_like(),
            ClassWeight::Simple => actual.clone().recip()?,
            ClassWeight::Square => actual.clone().square()?.recip()?,
        };
        let absent = actual.equal_elem(0.0)?;
        let weights = absent.clone().if_else_number(0.0, weights)?;
        let greatest = weights.clone().max_dim(0)?;
        absent.if_else(greatest, weights)
    }
}

impl MetricRule for GeneralizedDiceRule {
    crate::metric::facts!("generalized_dice");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let counts = pixel_counts(observation, self.classes, self.background)?;
        let weights = self.weights(counts.actual.clone())?;
        let shares = counts.both.mul(weights.clone())?.mul_scalar(2.0)?;
        let sizes = counts.predicted.add(counts.actual)?.mul(weights)?;
        let scores = zero_or_ratio(shares.clone().sum_dim(1)?, sizes.clone().sum_dim(1)?)?;
        sums.count("images", shares.shape()[0] as f64);
        sums.sum("scores", scores.sum()?)?;
        sums.sum("class_scores", zero_or_ratio(shares, sizes)?.sum_dim(0)?)
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let images = sums.total("images")?;
        let value = sums.total("scores")? / images;
        let classes = sums.totals("class_scores")?.iter().map(|score| score / images).collect();
        Ok(MetricValues::scalar(name, value)
            .with("generalized_dice_per_class", MetricValue::PerClass(classes)))
    }
}

/// `a / b`, and 0 where `b` is 0.
fn zero_or_ratio(a: AnyTensor, b: AnyTensor) -> Result<AnyTensor, kiln_tensor::Error> {
    let none = b.clone().equal_elem(0.0)?;
    none.if_else_number(0.0, a.div(b)?)
}

/// The number of pixels for each image and class: each `f32[batch, classes]`.
struct PixelCounts {
    both: AnyTensor,
    predicted: AnyTensor,
    actual: AnyTensor,
}

impl PixelCounts {
    /// `[batch, 3 · classes]`
    fn stacked(self) -> Result<AnyTensor, kiln_tensor::Error> {
        AnyTensor::cat(vec![self.both, self.predicted, self.actual], 1)
    }
}

fn pixel_counts(
    observation: &Observation,
    classes: usize,
    background: bool,
) -> Result<PixelCounts, MetricError> {
    let (predictions, targets) = (observation.tensor(PREDICTIONS)?, observation.tensor(TARGETS)?);
    let predictions = predicted_classes(predictions, &targets, classes)?;
    let batch = targets.shape().first().copied().unwrap_or(1);
    let pixels = targets.shape().num_elements() / batch.max(1);
    let known = targets
        .clone()
        .greater_equal_elem(0)?
        .logical_and(targets.clone().lower_elem(classes)?)?
        .reshape([batch, 1, pixels])?;
    let actual = masks(targets, [batch, pixels], classes)?;
    let predicted = masks(predictions, [batch, pixels], classes)?.logical_and(known)?;
    let first = usize::from(!background && classes > 0);
    let count = |mask: AnyTensor| {
        let counts = mask.cast(DType::F32)?.sum_dim(2)?.reshape([batch, classes])?;
        counts.narrow(1, first, classes - first)
    };
    Ok(PixelCounts {
        both: count(actual.clone().logical_and(predicted.clone())?)?,
        predicted: count(predicted)?,
        actual: count(actual)?,
    })
}

/// Classes of the targets' shape, from classes or scores.
fn predicted_classes(
    predictions: AnyTensor,
    targets: &AnyTensor,
    classes: usize,
) -> Result<AnyTensor, MetricError> {
    if predictions.shape() == targets.shape() {
        return Ok(predictions);
    }
    let shape = predictions.shape();
    let scores = predictions.rank() == targets.rank() + 1
        && shape[0] == targets.shape()[0]
        && shape[1] == classes
        && shape[2..] == targets.shape()[1..];
    if !scores {
        let problem = format!(
            "has shape {:?}, expected {:?} or [batch, {classes}, ..] scores for it",
            &shape[..],
            &targets.shape()[..]
        );
        return Err(MetricError::Input { name: PREDICTIONS, problem });
    }
    Ok(predictions.argmax(1)?.reshape(*targets.shape())?)
}

/// One mask for each class: `bool[batch, classes, pixels]`.
fn masks(
    indices: AnyTensor,
    [batch, pixels]: [usize; 2],
    classes: usize,
) -> Result<AnyTensor, kiln_tensor::Error> {
    let numbers = AnyTensor::iota(TensorType::new([1, classes, 1], DType::I32), 1, indices.stack())?;
    indices.reshape([batch, 1, pixels])?.cast(DType::I32)?.equal(numbers)
}
