//! The search for the scale, or scale and minimum, of a group with the least weighted squared error.
//!
//! With the levels `l` of all elements `x` fixed, the best scale is that of weighted least squares. So each search
//! rounds the elements by some scales around the one that the greatest element fixes, solves for the best scale of
//! each set of levels, and keeps the best of all.

use super::{NONLINEAR, greatest, nonlinear_level, reciprocal};

/// Groups of lesser magnitudes are zero: no 16-bit scale is as small.
const NEGLIGIBLE: f32 = 1e-9;

/// The nearest integer of a magnitude below 2²², ties to even.
pub(super) fn nearest(x: f32) -> f32 {
    const ULP_IS_ONE: f32 = 12_582_912.0;
    (x + ULP_IS_ONE) - ULP_IS_ONE
}

/// The nearest integer from `least` to `most`.
pub(super) fn level(x: f32, least: f32, most: f32) -> i8 {
    nearest(x.clamp(least, most)) as i8
}

/// The weight of each element of a group.
fn weights<const N: usize>(values: &[f32; N]) -> [f32; N] {
    let square = values.iter().map(|x| x * x).sum::<f32>() / N as f32;
    let typical = libm::sqrtf(square);
    values.map(|x| typical + x.abs())
}

/// A scale of signed levels: `x ≈ scale · l` with `-half ≤ l < half`.
pub(super) struct Symmetric;

impl Symmetric {
    /// The best scale. It is negative where the element of the greatest magnitude is positive, since the negative
    /// levels reach further.
    pub(super) fn scale<const N: usize>(values: &[f32; N], half: f32) -> f32 {
        let most = greatest(values);
        if most.abs() < NEGLIGIBLE {
            return 0.0;
        }
        let weights = weights(values);
        let inverses = (-9..=9).map(|step| -(half + 0.1 * step as f32) / most);
        best(inverses, |inverse| fit(values, &weights, |x| nearest((x * inverse).clamp(-half, half - 1.0))))
    }

    /// The nearest levels of a group.
    pub(super) fn levels<const N: usize>(values: &[f32; N], scale: f32, half: f32) -> [i8; N] {
        let inverse = reciprocal(scale);
        values.map(|x| level(x * inverse, -half, half - 1.0))
    }
}

/// The best scale of 32 elements with indices into the table of nonlinear values.
pub(super) fn nonlinear_scale(values: &[f32; 32]) -> f32 {
    let most = greatest(values);
    if most.abs() < NEGLIGIBLE {
        return 0.0;
    }
    let weights = weights(values);
    let outermost = f32::from(NONLINEAR[0]);
    let inverses = (-7..=7).map(|step| (outermost + step as f32) / most);
    best(inverses, |inverse| {
        fit(values, &weights, |x| f32::from(NONLINEAR[usize::from(nonlinear_level(x * inverse))]))
    })
}

/// A set of levels: `Σwxl` and `Σwl²`. The best scale is their quotient, which reduces the squared error by
/// `(Σwxl)² / Σwl²`.
struct Fit {
    products: f32,
    squares: f32,
}

fn fit<const N: usize>(values: &[f32; N], weights: &[f32; N], level: impl Fn(f32) -> f32) -> Fit {
    let mut fit = Fit { products: 0.0, squares: 0.0 };
    for (x, w) in values.iter().zip(weights) {
        let l = level(*x);
        fit.products += w * x * l;
        fit.squares += w * l * l;
    }
    fit
}

/// The scale of the set of levels with the least error.
fn best(inverses: impl Iterator<Item = f32>, fit: impl Fn(f32) -> Fit) -> f32 {
    let mut best = (0.0, 0.0);
    for inverse in inverses {
        let Fit { products, squares } = fit(inverse);
        let gain = products * products * reciprocal(squares);
        if gain > best.0 {
            best = (gain, products / squares);
        }
    }
    best.1
}

/// A scale and a minimum of unsigned levels: `x ≈ scale · l - minimum` with `0 ≤ l ≤ most`, neither negative.
#[derive(Clone, Copy)]
pub(super) struct Affine {
    scale: f32,
    minimum: f32,
}

impl Affine {
    /// The best scale and minimum of a group.
    pub(super) fn search<const N: usize>(values: &[f32; N], most: f32) -> Affine {
        let least = values.iter().copied().fold(0.0, f32::min);
        let width = values.iter().copied().fold(f32::MIN, f32::max) - least;
        if width < NEGLIGIBLE {
            return Affine { scale: 0.0, minimum: -least };
        }
        let weights = weights(values);
        let mut best = Affine { scale: width / most, minimum: -least };
        let mut least_error = best.error(values, &weights, &Affine::levels(values, best.scale, -least, most));
        for step in -10..=10 {
            let inverse = (most + 0.1 * step as f32) / width;
            let levels = values.map(|x| nearest(((x - least) * inverse).clamp(0.0, most)) as u8);
            let found = Affine::least_squares(values, &weights, &levels);
            let error = found.error(values, &weights, &levels);
            if found.scale > 0.0 && error < least_error {
                (best, least_error) = (found, error);
            }
        }
        best
    }

    /// The scale and the minimum with the least weighted squared error, of given levels.
    fn least_squares<const N: usize>(values: &[f32; N], weights: &[f32; N], levels: &[u8; N]) -> Affine {
        let (mut w0, mut l1, mut l2, mut x1, mut xl) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for ((x, w), level) in values.iter().zip(weights).zip(levels) {
            let l = f32::from(*level);
            w0 += w;
            l1 += w * l;
            l2 += w * l * l;
            x1 += w * x;
            xl += w * x * l;
        }
        let determinant = w0 * l2 - l1 * l1;
        let minimum = if determinant > 0.0 { (l1 * xl - l2 * x1) / determinant } else { 0.0 };
        if minimum > 0.0 {
            Affine { scale: (w0 * xl - l1 * x1) / determinant, minimum }
        } else {
            Affine { scale: xl * reciprocal(l2), minimum: 0.0 }
        }
    }

    fn error<const N: usize>(&self, values: &[f32; N], weights: &[f32; N], levels: &[u8; N]) -> f32 {
        let elements = values.iter().zip(weights).zip(levels);
        elements
            .map(|((x, w), level)| {
                let difference = self.scale * f32::from(*level) - self.minimum - x;
                w * difference * difference
            })
            .sum()
    }

    /// The units of scales and minima, such that the greatest of a block are `most` units.
    pub(super) fn units(fits: &[Affine], most: f32) -> (f32, f32) {
        let scale = fits.iter().map(|fit| fit.scale).fold(0.0, f32::max);
        let minimum = fits.iter().map(|fit| fit.minimum).fold(0.0, f32::max);
        (scale / most, minimum / most)
    }

    /// Scale and minimum in units, at most `most` each.
    pub(super) fn rounded(&self, unit: f32, minimum_unit: f32, most: f32) -> (u8, u8) {
        let units = |x: f32, unit: f32| nearest((x * reciprocal(unit)).clamp(0.0, most)) as u8;
        (units(self.scale, unit), units(self.minimum, minimum_unit))
    }

    /// The nearest levels of a group.
    pub(super) fn levels<const N: usize>(values: &[f32; N], scale: f32, minimum: f32, most: f32) -> [u8; N] {
        let inverse = reciprocal(scale);
        values.map(|x| nearest(((x + minimum) * inverse).clamp(0.0, most)) as u8)
    }
}
