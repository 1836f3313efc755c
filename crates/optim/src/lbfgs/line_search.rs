//! The line search for the strong Wolfe conditions, as in `torch.optim.LBFGS`
//! ([Nocedal and Wright 2006](https://doi.org/10.1007/978-0-387-40065-5), algorithms 3.5 and 3.6).

use super::{Point, dot, largest};
use crate::error::Result;
use kiln_tensor::AnyTensor;

/// The factor of the sufficient decrease condition.
const C1: f64 = 1e-4;

/// The factor of the curvature condition.
const C2: f64 = 0.9;

/// The start of a search.
pub(super) struct Search {
    /// The first length to try.
    pub(super) length: f64,
    /// The slope of the loss at length 0: less than 0.
    pub(super) slope: f64,
    /// The greatest number of evaluations after the first.
    pub(super) limit: u64,
    /// The search ends when no parameter changes by more.
    pub(super) tolerance_change: f64,
}

/// The loss at a length.
#[derive(Clone, Debug)]
struct Trial {
    length: f64,
    point: Point,
    slope: f64,
}

/// Returns a length and its point. `at` evaluates the loss at a length.
pub(super) fn strong_wolfe(
    search: Search,
    start: Point,
    direction: &AnyTensor,
    at: &mut dyn FnMut(f64) -> Result<Point>,
) -> Result<(Point, f64)> {
    let mut trial = |length: f64| -> Result<Trial> {
        let point = at(length)?;
        let slope = dot(&point.gradient, direction)?;
        Ok(Trial { length, point, slope })
    };
    let loss = start.loss;
    let origin = Trial { length: 0.0, point: start, slope: search.slope };
    let is_flat = |trial: &Trial| trial.slope.abs() <= -C2 * search.slope;
    let is_high = |trial: &Trial| trial.point.loss > loss + C1 * trial.length * search.slope;

    let mut previous = origin.clone();
    let mut new = trial(search.length)?;
    let mut count = 0;
    let (mut low, mut high) = loop {
        if count >= search.limit {
            break (origin, new);
        }
        if is_high(&new) || (count > 1 && new.point.loss >= previous.point.loss) {
            break (previous, new);
        }
        if is_flat(&new) {
            return Ok((new.point, new.length));
        }
        if new.slope >= 0.0 {
            break (previous, new);
        }
        let bounds = (new.length + 0.01 * (new.length - previous.length), new.length * 10.0);
        let length = interpolated(&previous, &new, bounds);
        previous = new;
        new = trial(length)?;
        count += 1;
    };
    if low.point.loss > high.point.loss {
        core::mem::swap(&mut low, &mut high);
    }

    let width = largest(direction)?;
    let mut is_stuck = false;
    while count < search.limit && (high.length - low.length).abs() * width >= search.tolerance_change {
        let bounds = (f64::min(low.length, high.length), f64::max(low.length, high.length));
        let length = interpolated(&low, &high, bounds);
        let length = inside(length, bounds, &mut is_stuck);
        let new = trial(length)?;
        count += 1;
        if is_high(&new) || new.point.loss >= low.point.loss {
            high = new;
            if low.point.loss > high.point.loss {
                core::mem::swap(&mut low, &mut high);
            }
            continue;
        }
        let is_done = is_flat(&new);
        if !is_done && new.slope * (high.length - low.length) >= 0.0 {
            high = low;
        }
        low = new;
        if is_done {
            break;
        }
    }
    Ok((low.point, low.length))
}

/// Moves a length away from the bounds, if the search makes too little progress.
fn inside(length: f64, (least, greatest): (f64, f64), is_stuck: &mut bool) -> f64 {
    let margin = 0.1 * (greatest - least);
    if f64::min(greatest - length, length - least) >= margin {
        *is_stuck = false;
        return length;
    }
    if !*is_stuck && length < greatest && length > least {
        *is_stuck = true;
        return length;
    }
    *is_stuck = false;
    if (length - greatest).abs() < (length - least).abs() { greatest - margin } else { least + margin }
}

/// The minimum of the cubic through two trials, within bounds.
fn interpolated(a: &Trial, b: &Trial, (least, greatest): (f64, f64)) -> f64 {
    let (a, b) = if a.length <= b.length { (a, b) } else { (b, a) };
    let secant = (a.point.loss - b.point.loss) / (a.length - b.length);
    let d1 = a.slope + b.slope - 3.0 * secant;
    let square = d1 * d1 - a.slope * b.slope;
    if square >= 0.0 {
        let d2 = libm::sqrt(square);
        let share = (b.slope + d2 - d1) / (b.slope - a.slope + 2.0 * d2);
        let length = b.length - (b.length - a.length) * share;
        return f64::min(f64::max(length, least), greatest);
    }
    (least + greatest) / 2.0
}
