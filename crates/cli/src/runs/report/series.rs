//! The curves of a report, as the script reads them.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::Run;

/// Maximum number of points of a curve. A screen has fewer columns of pixels.
const MAX_POINTS: usize = 2000;

/// Maximum number of curves of a page.
const MAX_SERIES: usize = 400;

/// All charts of a page.
#[derive(Debug, Serialize)]
pub(super) struct Curves {
    pub(super) charts: Vec<Chart>,
    /// The number of series that are left out, because there are too many.
    #[serde(skip)]
    pub(super) left_out: usize,
}

/// A chart: the curves of one metric.
#[derive(Debug, Serialize)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) curves: Vec<Curve>,
}

/// A curve.
#[derive(Debug, Serialize)]
pub(super) struct Curve {
    pub(super) label: String,
    pub(super) points: Vec<(u64, Number)>,
}

/// A number. JSON has no NaN and no infinity: they are strings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Number(pub(super) f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() { serializer.serialize_f64(self.0) } else { serializer.collect_str(&self.0) }
    }
}

/// Returns the charts of runs: one for each metric with its parts, such as `f1/0` and `f1/1`.
pub(super) fn curves(runs: &[Run]) -> Curves {
    let mut charts: BTreeMap<&str, Vec<Curve>> = BTreeMap::new();
    let mut count = 0;
    for run in runs {
        for ((split, name), series) in &run.series {
            count += 1;
            if count > MAX_SERIES {
                continue;
            }
            let label = match runs.len() {
                1 => format!("{split} {name}"),
                _ => format!("{} · {split} {name}", run.name),
            };
            let curve = Curve { label, points: thin(series) };
            charts.entry(name.split('/').next().unwrap_or(name)).or_default().push(curve);
        }
    }
    let chart = |(title, curves): (&str, Vec<Curve>)| Chart { title: title.to_owned(), curves };
    // The loss is what people look at first.
    let (first, rest): (Vec<_>, Vec<_>) = charts.into_iter().partition(|(title, _)| *title == "loss");
    Curves {
        charts: first.into_iter().chain(rest).map(chart).collect(),
        left_out: count.saturating_sub(MAX_SERIES),
    }
}

/// Thins a series to about [`MAX_POINTS`] points. Of each group of neighbours, the first, the least, the greatest and a
/// number that is not finite are kept, so that no spike disappears.
fn thin(series: &[(u64, f64)]) -> Vec<(u64, Number)> {
    let numbered = |index: usize| (series[index].0, Number(series[index].1));
    if series.len() <= MAX_POINTS {
        return (0..series.len()).map(numbered).collect();
    }
    let group = series.len().div_ceil(MAX_POINTS / 4);
    let mut points = Vec::with_capacity(MAX_POINTS + 4);
    for start in (0..series.len()).step_by(group) {
        let range = start..(start + group).min(series.len());
        let by_value = |one: &usize, other: &usize| series[*one].1.total_cmp(&series[*other].1);
        let finite = || range.clone().filter(|&index| series[index].1.is_finite());
        let odd = range.clone().find(|&index| !series[index].1.is_finite());
        let kept = [Some(start), finite().min_by(by_value), finite().max_by(by_value), odd];
        let mut kept: Vec<usize> = kept.into_iter().flatten().collect();
        kept.sort_unstable();
        kept.dedup();
        points.extend(kept.into_iter().map(numbered));
    }
    let last = series.len() - 1;
    if points.last().is_some_and(|(step, _)| *step != series[last].0) {
        points.push(numbered(last));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_series_keep_extremes() {
        let mut series: Vec<(u64, f64)> = (0..100_000).map(|step| (step, 1.0)).collect();
        (series[50_001].1, series[70_003].1, series[9].1) = (99.0, -99.0, f64::NAN);
        let points = thin(&series);
        assert!(points.len() <= MAX_POINTS + 4, "{}", points.len());
        assert!(points.contains(&(50_001, Number(99.0))) && points.contains(&(70_003, Number(-99.0))));
        assert!(points.iter().any(|(step, value)| *step == 9 && value.0.is_nan()));
        assert_eq!((points[0].0, points.last().unwrap().0), (0, 99_999));
        assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(thin(&series[..9]).len(), 9);
    }
}
