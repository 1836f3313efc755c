//! Mean average precision.

use std::collections::BTreeMap;

use kiln_tensor::{AnyTensor, DType, TensorType};

use super::coco::{AREAS, ClassInImage, ClassResult, MAX_DETECTIONS, Region, THRESHOLDS, evaluate};
use crate::error::MetricError;
use crate::metric::{Accumulated, Accumulator, MetricRule, MetricValue, MetricValues};
use crate::observation::Observation;

/// The name of detected boxes in an [`Observation`]: `[batch, boxes, 4]`, corners `(x1, y1, x2, y2)` in pixels.
pub const BOXES: &str = "boxes";
/// The name of the scores of detected boxes: `[batch, boxes]`.
pub const SCORES: &str = "scores";
/// The name of the classes of detected boxes: integers `[batch, boxes]`.
pub const LABELS: &str = "labels";
/// The name of the numbers of detected boxes: integers `[batch]`. Later boxes of an image are padding.
pub const NUM_BOXES: &str = "num_boxes";
/// The name of the true boxes: `[batch, target_boxes, 4]`, as [`BOXES`].
pub const TARGET_BOXES: &str = "target_boxes";
/// The name of the classes of true boxes: integers `[batch, target_boxes]`.
pub const TARGET_LABELS: &str = "target_labels";
/// The name of the numbers of true boxes: integers `[batch]`. Later boxes of an image are padding.
pub const NUM_TARGET_BOXES: &str = "num_target_boxes";
/// The name of flags of true boxes, `[batch, target_boxes]`: not 0 for a crowd, whose box holds many objects.
pub const TARGET_CROWDS: &str = "target_crowds";
/// The name of the areas of true objects, `[batch, target_boxes]`, in pixels.
pub const TARGET_AREAS: &str = "target_areas";

/// Mean average precision of object detection, by the rules of COCO (Lin et al., "Microsoft COCO: common objects in
/// context", 2014).
///
/// For a class and a threshold of intersection over union, average precision is the mean of the interpolated precision
/// at 101 values of recall from 0 to 1. The value is the mean over classes and over thresholds from 0.5 to 0.95 in
/// steps of 0.05, with the 100 detections of the greatest scores for each image and class.
///
/// Inputs are padded to one number of boxes in a batch, which may differ between batches: [`BOXES`], [`SCORES`],
/// [`LABELS`] and [`NUM_BOXES`] of the detections; [`TARGET_BOXES`], [`TARGET_LABELS`] and [`NUM_TARGET_BOXES`] of the
/// objects; and optionally [`TARGET_CROWDS`] (default: none) and [`TARGET_AREAS`] (default: of the boxes). Without
/// [`NUM_BOXES`] or [`NUM_TARGET_BOXES`] nothing is padding.
///
/// Values, from 0 to 1, or NaN without an object:
///
/// | name | |
/// |---|---|
/// | `map`, `map_50`, `map_75` | over all thresholds, and at 0.5 and 0.75 |
/// | `map_small`, `map_medium`, `map_large` | of objects with areas up to 32², between, and from 96² pixels |
/// | `mar_1`, `mar_10`, `mar_100` | average recall with this number of detections for each image and class |
/// | `mar_small`, `mar_medium`, `mar_large` | average recall by area |
/// | `map_per_class`, `mar_100_per_class` | a number for each class from 0 to the greatest |
///
/// Equivalent to `pycocotools.cocoeval.COCOeval` and `torchmetrics.detection.MeanAveragePrecision`, whose values
/// without an object are -1.
///
/// ```
/// use kiln_backends::Device;
/// use kiln_tensor::{AnyTensor, TensorData};
/// use kiln_train::metric::{
///     BOXES, LABELS, MeanAveragePrecision, SCORES, TARGET_BOXES, TARGET_LABELS,
/// };
/// use kiln_train::{Metric, Observation};
///
/// let device = Device::cpu();
/// let boxes = |corners: [f32; 4]| AnyTensor::from_data(TensorData::from([[corners]]), &device);
/// let label = || AnyTensor::from_data(TensorData::from([[0i32]]), &device);
/// let observation = Observation::new(1)
///     .with(BOXES, boxes([0.0, 0.0, 10.0, 11.0]))
///     .with(SCORES, AnyTensor::from_data(TensorData::from([[0.9f32]]), &device))
///     .with(LABELS, label())
///     .with(TARGET_BOXES, boxes([0.0, 0.0, 10.0, 10.0]))
///     .with(TARGET_LABELS, label());
/// let mut metric = MeanAveragePrecision::new();
/// metric.update(&observation)?;
/// // The boxes overlap by 10/11, which is at least 9 of the 10 thresholds.
/// assert!((metric.values()?.main().unwrap() - 0.9).abs() < 1e-12);
/// # Ok::<(), kiln_train::MetricError>(())
/// ```
pub type MeanAveragePrecision = Accumulated<MeanAveragePrecisionRule>;

/// The rule of [`MeanAveragePrecision`].
#[derive(Clone, Debug, Default)]
pub struct MeanAveragePrecisionRule;

/// [`MeanAveragePrecision`] under a name like those of Burn's metrics.
pub type MeanAveragePrecisionMetric = MeanAveragePrecision;

/// The detections and objects of each class, by image.
fn classes(sums: &mut Accumulator) -> Result<BTreeMap<i64, Vec<ClassInImage>>, MetricError> {
    let sizes = sums.numbers("sizes")?.to_vec();
    let mut rows = Rows::read(sums)?;
    let mut classes: BTreeMap<i64, Vec<ClassInImage>> = BTreeMap::new();
    for size in sizes.chunks_exact(3) {
        let [batch, boxes, targets] = [size[0] as usize, size[1] as usize, size[2] as usize];
        for _ in 0..batch {
            for (class, image) in rows.image(boxes, targets) {
                classes.entry(class).or_default().push(image);
            }
        }
    }
    Ok(classes)
}

impl MetricRule for MeanAveragePrecisionRule {
    crate::metric::facts!("map");

    fn add(&mut self, sums: &mut Accumulator, observation: &Observation) -> Result<(), MetricError> {
        let boxes = boxes(observation, BOXES)?;
        let targets = self::boxes(observation, TARGET_BOXES)?;
        let (batch, detected, actual) = (boxes.shape()[0], boxes.shape()[1], targets.shape()[1]);
        if targets.shape()[0] != batch {
            let problem = format!("has {} images, but `{BOXES}` has {batch}", targets.shape()[0]);
            return Err(MetricError::Input { name: TARGET_BOXES, problem });
        }
        let (detections, objects) = ([batch, detected], [batch, actual]);
        let scores = sized(observation, SCORES, &detections)?;
        let labels = sized(observation, LABELS, &detections)?;
        let target_labels = sized(observation, TARGET_LABELS, &objects)?;
        let counts =
            optional(observation, NUM_BOXES, &[batch], || filled(&boxes, &[batch], detected as f64))?;
        let target_counts =
            optional(observation, NUM_TARGET_BOXES, &[batch], || filled(&targets, &[batch], actual as f64))?;
        let crowds = optional(observation, TARGET_CROWDS, &objects, || filled(&targets, &objects, 0.0))?;
        let areas = optional(observation, TARGET_AREAS, &objects, || filled(&targets, &objects, OWN_AREA))?;
        let columns = [boxes, scores, labels, counts, targets, target_labels, target_counts, crowds, areas];
        sums.append_all("sizes", &[batch as f64, detected as f64, actual as f64])?;
        COLUMNS.iter().zip(columns).try_for_each(|(name, column)| sums.append(name, column))
    }

    fn result(&self, sums: &mut Accumulator, name: &str) -> Result<MetricValues, MetricError> {
        let mut classes = classes(sums)?;
        classes.values_mut().flatten().for_each(ClassInImage::sort);
        let [all, small, medium, large] =
            AREAS.map(|area| Evaluation::new(&classes, area, MAX_DETECTIONS[2]));
        let [first, ten] = [MAX_DETECTIONS[0], MAX_DETECTIONS[1]]
            .map(|max_detections| Evaluation::new(&classes, AREAS[0], max_detections));
        let scalars = [
            (name, all.precision(0..THRESHOLDS)),
            ("map_50", all.precision(0..1)),
            ("map_75", all.precision(5..6)),
            ("map_small", small.precision(0..THRESHOLDS)),
            ("map_medium", medium.precision(0..THRESHOLDS)),
            ("map_large", large.precision(0..THRESHOLDS)),
            ("mar_1", first.recall()),
            ("mar_10", ten.recall()),
            ("mar_100", all.recall()),
            ("mar_small", small.recall()),
            ("mar_medium", medium.recall()),
            ("mar_large", large.recall()),
        ];
        let values = MetricValues::new()
            .with("map_per_class", MetricValue::PerClass(all.per_class(|result| &result.precision)))
            .with("mar_100_per_class", MetricValue::PerClass(all.per_class(|result| &result.recall)));
        let mut main = scalars
            .into_iter()
            .fold(MetricValues::new(), |values, (name, value)| values.with(name, MetricValue::Scalar(value)));
        main.extend(values);
        Ok(main)
    }
}

/// The results of the classes for an area range and a number of detections.
struct Evaluation(BTreeMap<i64, ClassResult>);

impl Evaluation {
    fn new(
        classes: &BTreeMap<i64, Vec<ClassInImage>>,
        area: (f64, f64),
        max_detections: usize,
    ) -> Evaluation {
        let of =
            |(&class, images): (&i64, &Vec<ClassInImage>)| (class, evaluate(images, area, max_detections));
        Evaluation(classes.iter().map(of).collect())
    }

    fn precision(&self, thresholds: std::ops::Range<usize>) -> f64 {
        mean(self.0.values().flat_map(|result| &result.precision[thresholds.clone()]))
    }

    fn recall(&self) -> f64 {
        mean(self.0.values().flat_map(|result| &result.recall))
    }

    fn per_class(&self, numbers: impl Fn(&ClassResult) -> &[f64; THRESHOLDS]) -> Vec<f64> {
        let classes = self.0.last_key_value().map_or(0, |(&class, _)| class + 1);
        (0..classes)
            .map(|class| self.0.get(&class).map_or(f64::NAN, |result| mean(numbers(result))))
            .collect()
    }
}

/// The mean of all numbers but NaN; NaN without any.
fn mean<'a>(numbers: impl IntoIterator<Item = &'a f64>) -> f64 {
    let present = numbers.into_iter().filter(|number| !number.is_nan());
    let (sum, count) = present.fold((0.0, 0.0), |(sum, count), number| (sum + number, count + 1.0));
    sum / count
}

/// The names of the rows, in the order of [`Rows`].
const COLUMNS: [&str; 9] = [
    BOXES,
    SCORES,
    LABELS,
    NUM_BOXES,
    TARGET_BOXES,
    TARGET_LABELS,
    NUM_TARGET_BOXES,
    TARGET_CROWDS,
    TARGET_AREAS,
];

/// The area of an object whose area is that of its box.
const OWN_AREA: f64 = -1.0;

/// The rows of the accumulator that are not read yet.
struct Rows {
    columns: [std::vec::IntoIter<f64>; COLUMNS.len()],
}

impl Rows {
    fn read(accumulator: &mut Accumulator) -> Result<Rows, MetricError> {
        let mut columns: [std::vec::IntoIter<f64>; COLUMNS.len()] = Default::default();
        for (column, name) in columns.iter_mut().zip(COLUMNS) {
            *column = accumulator.numbers(name)?.to_vec().into_iter();
        }
        Ok(Rows { columns })
    }

    /// The next image, of these numbers of detections and objects with padding, by class.
    fn image(&mut self, detections: usize, objects: usize) -> BTreeMap<i64, ClassInImage> {
        let [boxes, scores, labels, counts, targets, target_labels, target_counts, crowds, areas] =
            &mut self.columns;
        let mut classes: BTreeMap<i64, ClassInImage> = BTreeMap::new();
        let count = counts.next().unwrap_or(0.0);
        for place in 0..detections {
            let detection = (region(boxes, OWN_AREA), scores.next().unwrap_or(0.0));
            let class = labels.next().unwrap_or(0.0) as i64;
            if (place as f64) < count {
                classes.entry(class).or_default().detections.push(detection);
            }
        }
        let count = target_counts.next().unwrap_or(0.0);
        for place in 0..objects {
            let region = region(targets, areas.next().unwrap_or(OWN_AREA));
            let crowd = crowds.next().is_some_and(|flag| flag != 0.0);
            let class = target_labels.next().unwrap_or(0.0) as i64;
            if (place as f64) < count {
                classes.entry(class).or_default().objects.push((region, crowd));
            }
        }
        classes
    }
}

fn region(corners: &mut impl Iterator<Item = f64>, area: f64) -> Region {
    let corners: [f64; 4] = std::array::from_fn(|_| corners.next().unwrap_or(0.0));
    let own = (corners[2] - corners[0]) * (corners[3] - corners[1]);
    Region { corners, area: if area == OWN_AREA { own } else { area } }
}

fn boxes(observation: &Observation, name: &'static str) -> Result<AnyTensor, MetricError> {
    let boxes = observation.tensor(name)?;
    if boxes.rank() != 3 || boxes.shape()[2] != 4 {
        let problem = format!("has shape {:?}, expected [batch, boxes, 4]", &boxes.shape()[..]);
        return Err(MetricError::Input { name, problem });
    }
    Ok(boxes)
}

fn sized(observation: &Observation, name: &'static str, shape: &[usize]) -> Result<AnyTensor, MetricError> {
    let tensor = observation.tensor(name)?;
    if tensor.shape()[..] != *shape {
        let problem = format!("has shape {:?}, expected {shape:?}", &tensor.shape()[..]);
        return Err(MetricError::Input { name, problem });
    }
    Ok(tensor)
}

fn optional(
    observation: &Observation,
    name: &'static str,
    shape: &[usize],
    default: impl FnOnce() -> Result<AnyTensor, kiln_tensor::Error>,
) -> Result<AnyTensor, MetricError> {
    match observation.tensors.contains_key(name) {
        true => sized(observation, name, shape),
        false => Ok(default()?),
    }
}

/// A tensor on the device of `like`.
fn filled(like: &AnyTensor, shape: &[usize], x: f64) -> Result<AnyTensor, kiln_tensor::Error> {
    let shape: kiln_tensor::Shape = shape.iter().copied().collect();
    AnyTensor::full(TensorType::new(shape, DType::F32), x, like.stack())
}
