//! The history of a number, in bounded memory.

use std::collections::VecDeque;

/// The greatest number of buckets of the lifelong history.
const BUCKETS: usize = 1024;
/// The number of samples of the recent window.
const RECENT: usize = 400;

/// The samples of a number over steps. Memory does not grow with the number of samples: the lifelong history keeps
/// minimum and maximum of groups of samples, whose size doubles when there are too many groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    buckets: Vec<Bucket>,
    /// Number of samples of a full bucket, minus 1.
    extra: u64,
    recent: VecDeque<(f64, f64)>,
}

/// A group of consecutive samples.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bucket {
    first_step: u64,
    last_step: u64,
    count: u64,
    min: f64,
    max: f64,
    /// The mean, which stays finite where the sum would not.
    mean: f64,
    last: f64,
}

impl Series {
    /// Adds a sample. Values that are not finite are left out, since no chart can show them.
    pub(crate) fn push(&mut self, step: u64, value: f64) {
        if !value.is_finite() {
            return;
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((step as f64, value));
        let sample = Bucket {
            first_step: step,
            last_step: step,
            count: 1,
            min: value,
            max: value,
            mean: value,
            last: value,
        };
        match self.buckets.last_mut() {
            Some(bucket) if bucket.count <= self.extra => *bucket = bucket.merged(&sample),
            Some(_) | None => self.buckets.push(sample),
        }
        if self.buckets.len() > BUCKETS {
            self.halve();
        }
    }

    /// Returns the points of the whole history: two for a group of samples, its minimum and maximum.
    pub(crate) fn lifelong(&self) -> Vec<(f64, f64)> {
        let mut points = Vec::with_capacity(2 * self.buckets.len());
        for bucket in &self.buckets {
            let (first, last) = (bucket.first_step as f64, bucket.last_step as f64);
            if bucket.count == 1 {
                points.push((first, bucket.last));
            } else {
                // The order follows the last value, so that the line to the next group is short.
                let falls = bucket.last - bucket.min < bucket.max - bucket.last;
                let (from, to) = if falls { (bucket.max, bucket.min) } else { (bucket.min, bucket.max) };
                points.extend([(first, from), (last, to)]);
            }
        }
        points
    }

    /// Returns the means of the groups of samples of the whole history.
    pub(crate) fn lifelong_means(&self) -> Vec<(f64, f64)> {
        let middle = |bucket: &Bucket| (bucket.first_step as f64 + bucket.last_step as f64) / 2.0;
        self.buckets.iter().map(|bucket| (middle(bucket), bucket.mean)).collect()
    }

    /// Returns the last samples.
    pub(crate) fn recent(&self) -> Vec<(f64, f64)> {
        self.recent.iter().copied().collect()
    }

    /// Merges pairs of buckets.
    fn halve(&mut self) {
        self.buckets = self
            .buckets
            .chunks(2)
            .map(|pair| match pair {
                [first, second] => first.merged(second),
                rest => rest[0],
            })
            .collect();
        self.extra = 2 * self.extra + 1;
    }
}

impl Bucket {
    fn merged(&self, next: &Bucket) -> Bucket {
        let share = next.count as f64 / (self.count + next.count) as f64;
        Bucket {
            first_step: self.first_step,
            last_step: next.last_step,
            count: self.count + next.count,
            min: self.min.min(next.min),
            max: self.max.max(next.max),
            mean: self.mean * (1.0 - share) + next.mean * share,
            last: next.last,
        }
    }
}

/// Returns the exponential moving average of points, as TensorBoard's smoothing: the weight of the average so far is `weight`
/// in `[0, 1)`, and the first averages are corrected for their start at 0.
pub(crate) fn smoothed(points: &[(f64, f64)], weight: f64) -> Vec<(f64, f64)> {
    let (mut average, mut start) = (0.0, 1.0);
    let next = |&(step, value): &(f64, f64)| {
        average = average * weight + value * (1.0 - weight);
        start *= weight;
        (step, average / (1.0 - start))
    };
    points.iter().map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_samples_are_kept_as_they_are() {
        let mut series = Series::default();
        for step in 0..1000 {
            series.push(step, step as f64 / 10.0);
        }
        let points = series.lifelong();
        assert_eq!(points.len(), 1000);
        assert_eq!(points[999], (999.0, 99.9));
        assert_eq!(series.recent().first(), Some(&(600.0, 60.0)));
    }

    #[test]
    fn a_million_samples_keep_extremes_in_bounded_memory() {
        let mut series = Series::default();
        for step in 0..1_000_000 {
            let value = match step {
                123_456 => 9.0,
                654_321 => -9.0,
                _ => (step as f64 / 1000.0).sin(),
            };
            series.push(step, value);
        }
        let points = series.lifelong();
        assert!(series.buckets.len() <= BUCKETS && series.buckets.len() > BUCKETS / 4);
        assert_eq!(series.buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 1_000_000);
        assert!(points.iter().any(|point| point.1 == 9.0) && points.iter().any(|point| point.1 == -9.0));
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0));
        assert_eq!(points.last().unwrap().0, 999_999.0);
        assert_eq!(series.recent.len(), RECENT);
    }

    /// The values are those of TensorBoard's `resmooth` with the weight 0.6.
    #[test]
    fn smoothing_is_that_of_tensorboard() {
        let points = [(0.0, 1.0), (1.0, 0.0), (2.0, 2.0), (5.0, 2.0)];
        let expected =
            [(0.0, 1.0), (1.0, 0.375), (2.0, 1.204_081_632_653_061), (5.0, 1.569_852_941_176_470_7)];
        for ((step, value), (expected_step, expected)) in smoothed(&points, 0.6).into_iter().zip(expected) {
            assert!(step == expected_step && (value - expected).abs() < 1e-14, "{value} {expected}");
        }
        assert_eq!(smoothed(&points, 0.0), points);
        let constant = [(0.0, 3.0), (1.0, 3.0)];
        assert!(smoothed(&constant, 0.9).iter().all(|(_, value)| (value - 3.0).abs() < 1e-9));
    }

    #[test]
    fn means_of_groups_are_those_of_their_samples() {
        let mut series = Series::default();
        for step in 0..3000 {
            series.push(step, step as f64);
        }
        assert_eq!(series.extra, 3);
        assert_eq!(series.lifelong_means()[..2], [(1.5, 1.5), (5.5, 5.5)]);
    }

    #[test]
    fn values_that_are_not_finite_are_left_out() {
        let mut series = Series::default();
        for value in [1.0, f64::NAN, f64::INFINITY, 2.0] {
            series.push(0, value);
        }
        assert_eq!(series.lifelong(), [(0.0, 1.0), (0.0, 2.0)]);
    }
}
