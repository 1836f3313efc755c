//! Matching of detections and precision by the rules of COCO.
//!
//! A detection is matched to the unmatched object of its class with the greatest overlap above a threshold, in the
//! order of the scores. Matches with ignored objects (crowds, and objects outside of an area range) count as neither
//! right nor wrong, as do unmatched detections outside of the range.

/// The number of thresholds of intersection over union: 0.5 to 0.95.
pub(super) const THRESHOLDS: usize = 10;
/// The number of recall values at which precision is interpolated: 0 to 1.
const RECALLS: usize = 101;
/// The greatest numbers of detections of an image and class that count.
pub(super) const MAX_DETECTIONS: [usize; 3] = [1, 10, 100];
/// The area ranges in pixels: all, small, medium, large.
pub(super) const AREAS: [(f64, f64); 4] =
    [(0.0, 1e10), (0.0, 32.0 * 32.0), (32.0 * 32.0, 96.0 * 96.0), (96.0 * 96.0, 1e10)];

/// A detected or true box.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    /// The corners `(x1, y1, x2, y2)`.
    pub(super) corners: [f64; 4],
    pub(super) area: f64,
}

/// The detections and objects of one class in one image.
#[derive(Clone, Debug, Default)]
pub(super) struct ClassInImage {
    /// Boxes with their scores.
    pub(super) detections: Vec<(Region, f64)>,
    /// Boxes, and whether each is a crowd.
    pub(super) objects: Vec<(Region, bool)>,
}

/// The outcome of a detection for one threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Right,
    Wrong,
    Ignored,
}

/// The detections of an image in the order of their scores, for one area range.
struct Evaluated {
    scores: Vec<f64>,
    /// The outcomes for each threshold.
    outcomes: Vec<Vec<Outcome>>,
    /// The number of objects that are not ignored.
    objects: usize,
}

/// Precision and recall of one class and area range, for each threshold. NaN without objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassResult {
    /// The mean of the precision over the recall values.
    pub(super) precision: [f64; THRESHOLDS],
    pub(super) recall: [f64; THRESHOLDS],
}

impl ClassInImage {
    /// Keeps the best detections, in the order of their scores.
    pub(super) fn sort(&mut self) {
        self.detections.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        self.detections.truncate(MAX_DETECTIONS[2]);
    }
}

/// The result of a class over all images, whose detections are sorted.
pub(super) fn evaluate(
    images: &[ClassInImage],
    (low, high): (f64, f64),
    max_detections: usize,
) -> ClassResult {
    let outside = |region: &Region| region.area < low || region.area > high;
    let evaluated: Vec<Evaluated> = images.iter().map(|image| matched(image, &outside)).collect();
    let objects: usize = evaluated.iter().map(|image| image.objects).sum();
    let mut result = ClassResult { precision: [f64::NAN; THRESHOLDS], recall: [f64::NAN; THRESHOLDS] };
    if objects == 0 {
        return result;
    }
    for threshold in 0..THRESHOLDS {
        let outcomes = ranked(&evaluated, threshold, max_detections);
        (result.precision[threshold], result.recall[threshold]) = curve(&outcomes, objects);
    }
    result
}

/// The outcomes of all images in the order of the scores.
fn ranked(images: &[Evaluated], threshold: usize, max_detections: usize) -> Vec<Outcome> {
    let of = |image: &Evaluated| -> Vec<(f64, Outcome)> {
        let outcomes = image.outcomes[threshold].iter().copied();
        image.scores.iter().copied().zip(outcomes).take(max_detections).collect()
    };
    let mut all: Vec<(f64, Outcome)> = images.iter().flat_map(of).collect();
    all.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    all.into_iter().map(|(_, outcome)| outcome).collect()
}

/// The mean precision over the recall values, and the recall.
fn curve(outcomes: &[Outcome], objects: usize) -> (f64, f64) {
    let (mut right, mut wrong) = (0.0, 0.0);
    let (mut recalls, mut precisions) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Outcome::Right => right += 1.0,
            Outcome::Wrong => wrong += 1.0,
            Outcome::Ignored => {}
        }
        recalls.push(right / objects as f64);
        precisions.push(right / (right + wrong + f64::EPSILON));
    }
    for place in (1..precisions.len()).rev() {
        precisions[place - 1] = f64::max(precisions[place - 1], precisions[place]);
    }
    let at = |step: usize| {
        let recall = if step + 1 == RECALLS { 1.0 } else { step as f64 * 0.01 };
        let place = recalls.partition_point(|&reached| reached < recall);
        precisions.get(place).copied().unwrap_or(0.0)
    };
    ((0..RECALLS).map(at).sum::<f64>() / RECALLS as f64, recalls.last().copied().unwrap_or(0.0))
}

fn matched(image: &ClassInImage, outside: &dyn Fn(&Region) -> bool) -> Evaluated {
    // Objects that count come first.
    let mut objects: Vec<(Region, bool, bool)> =
        image.objects.iter().map(|&(region, crowd)| (region, crowd, crowd || outside(&region))).collect();
    objects.sort_by_key(|&(_, _, ignored)| ignored);
    let overlaps: Vec<Vec<f64>> = image
        .detections
        .iter()
        .map(|(detection, _)| {
            objects.iter().map(|(object, crowd, _)| overlap(detection, object, *crowd)).collect()
        })
        .collect();
    let outcomes = |threshold: usize| {
        let mut taken = vec![false; objects.len()];
        let least = iou_threshold(threshold).min(1.0 - 1e-10);
        let outcome = |(row, (detection, _)): (&Vec<f64>, &(Region, f64))| {
            let Some(object) = best_match(row, &objects, &taken, least) else {
                return if outside(detection) { Outcome::Ignored } else { Outcome::Wrong };
            };
            taken[object] = true;
            if objects[object].2 { Outcome::Ignored } else { Outcome::Right }
        };
        overlaps.iter().zip(&image.detections).map(outcome).collect()
    };
    Evaluated {
        scores: image.detections.iter().map(|&(_, score)| score).collect(),
        outcomes: (0..THRESHOLDS).map(outcomes).collect(),
        objects: objects.iter().filter(|(_, _, ignored)| !ignored).count(),
    }
}

/// The object of the greatest overlap of at least `least`. Ignored objects are matched only without others, and crowds
/// any number of times.
fn best_match(
    overlaps: &[f64],
    objects: &[(Region, bool, bool)],
    taken: &[bool],
    least: f64,
) -> Option<usize> {
    let (mut best, mut greatest): (Option<usize>, f64) = (None, least);
    for (place, &(_, crowd, ignored)) in objects.iter().enumerate() {
        if taken[place] && !crowd {
            continue;
        }
        if ignored && best.is_some_and(|best| !objects[best].2) {
            break;
        }
        if overlaps[place] >= greatest {
            (best, greatest) = (Some(place), overlaps[place]);
        }
    }
    best
}

/// The threshold of a number in `0..THRESHOLDS`.
fn iou_threshold(threshold: usize) -> f64 {
    if threshold + 1 == THRESHOLDS { 0.95 } else { 0.5 + threshold as f64 * ((0.95 - 0.5) / 9.0) }
}

/// Intersection over union. The union with a crowd is the detection.
fn overlap(detection: &Region, object: &Region, crowd: bool) -> f64 {
    let (a, b) = (detection.corners, object.corners);
    let width = a[2].min(b[2]) - a[0].max(b[0]);
    let height = a[3].min(b[3]) - a[1].max(b[1]);
    if width <= 0.0 || height <= 0.0 {
        return 0.0;
    }
    let area = |corners: [f64; 4]| (corners[2] - corners[0]) * (corners[3] - corners[1]);
    let both = width * height;
    both / if crowd { area(a) } else { area(a) + area(b) - both }
}
