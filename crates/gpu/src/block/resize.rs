//! The block kernel of interpolation over `[rows, space..]` with any number of spatial dimensions.
//!
//! Coordinates are exact fractions of integers, so that devices without `f64` find the same samples as all others.

use crate::block::pool::{joined, product, split};
use crate::index::combined_in;
use kiln_ir::{Binary, DType, ResizeMode};
use kiln_kernel::block::{BlockKernel, Builder, Expression, constant, index, select};

/// Threads per block.
const THREADS: u32 = 256;

/// The parameter of the cubic convolution kernel.
const CUBIC: f64 = -0.75;

/// An interpolation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampling {
    pub(crate) mode: ResizeMode,
    pub(crate) align_corners: bool,
    pub(crate) dtype: DType,
    /// Whether products of coordinates and lengths may exceed 31 bits.
    pub(crate) is_wide: bool,
}

/// An input sample along one dimension, and its weight.
struct Tap {
    at: Expression,
    weight: Expression,
}

/// The coordinate of an output sample in the input: an index, possibly -1, and the fraction above it.
struct Coordinate {
    below: Expression,
    part: Expression,
}

/// Resizes a tensor. Parameters: the tensor and the result, the number of points, and the lengths before and after
/// along each dimension, alternately.
pub(crate) fn resize(sampling: &Sampling, axes: usize) -> BlockKernel {
    let k = Builder::new("resize", THREADS);
    let (x, y) = (k.input("x", sampling.dtype), k.output("y", sampling.dtype));
    let total = k.length("total");
    let (mut from, mut to) = (Vec::new(), Vec::new());
    for axis in 0..axes {
        from.push(k.length(&format!("x{axis}")));
        to.push(k.length(&format!("y{axis}")));
    }
    k.for_points(&total, |p| {
        let (row, places) = split(&k, &p, &to);
        let start = k.bind(&(row * product(&from)));
        if sampling.mode == ResizeMode::Nearest {
            let nearest =
                (0..axes).map(|axis| sampling.quotient(&k, &places[axis], &from[axis], &to[axis]).0);
            let at = &start + &joined(&nearest.collect::<Vec<_>>(), &from);
            return k.store(&y, &p, &x.at(&at));
        }
        let taps: Vec<Vec<Tap>> =
            (0..axes).map(|axis| sampling.taps(&k, &places[axis], &from[axis], &to[axis])).collect();
        let computed = combined_in(sampling.dtype);
        let sum = k.var(&constant(0.0, computed));
        for choice in choices(&taps) {
            let at: Vec<Expression> = choice.iter().map(|tap| tap.at.clone()).collect();
            let weight =
                choice[1..].iter().fold(choice[0].weight.clone(), |weight, tap| weight * &tap.weight);
            let sample = x.at(&(&start + &joined(&at, &from))).cast(computed);
            k.set(&sum, &(sum.get() + sample * weight));
        }
        k.store(&y, &p, &sum.get().cast(sampling.dtype));
    });
    k.finish()
}

/// All choices of one sample along each dimension; the last dimension changes first.
fn choices(taps: &[Vec<Tap>]) -> Vec<Vec<&Tap>> {
    let mut all: Vec<Vec<&Tap>> = vec![Vec::new()];
    for along in taps {
        let longer = all.iter().flat_map(|choice| {
            along.iter().map(move |tap| choice.iter().copied().chain([tap]).collect::<Vec<&Tap>>())
        });
        all = longer.collect();
    }
    all
}

impl Sampling {
    fn number(&self, value: f64) -> Expression {
        constant(value, combined_in(self.dtype))
    }

    /// Quotient and remainder of a product of two integers by a third that is not less than the first.
    fn quotient(
        &self,
        k: &Builder,
        a: &Expression,
        b: &Expression,
        divisor: &Expression,
    ) -> (Expression, Expression) {
        if self.is_wide {
            return long_division(k, [a, b, divisor]);
        }
        let all = k.bind(&(a * b));
        (k.bind(&(&all / divisor)), k.bind(&(&all % divisor)))
    }

    fn coordinate(&self, k: &Builder, place: &Expression, from: &Expression, to: &Expression) -> Coordinate {
        let computed = combined_in(self.dtype);
        if self.align_corners {
            let gaps = k.bind(&(to - &index(1)).max(&index(1)));
            let (below, rest) = self.quotient(k, place, &(from - &index(1)), &gaps);
            return Coordinate { below, part: k.bind(&(rest.cast(computed) / gaps.cast(computed))) };
        }
        // The coordinate is (2 place + 1) from / (2 to) - 1/2.
        let halves = k.bind(&(to * &index(2)));
        let (above, rest) = self.quotient(k, &(place * &index(2) + index(1)), from, &halves);
        let is_upper = k.bind(&rest.ge(to));
        let below = select(&is_upper, &above, &(&above - &index(1)));
        let rest = select(&is_upper, &(&rest - to), &(&rest + to));
        Coordinate { below: k.bind(&below), part: k.bind(&(rest.cast(computed) / halves.cast(computed))) }
    }

    /// The input samples of an output sample.
    fn taps(&self, k: &Builder, place: &Expression, from: &Expression, to: &Expression) -> Vec<Tap> {
        let Coordinate { below, part } = self.coordinate(k, place, from, to);
        let last = k.bind(&(from - &index(1)));
        let inside = |at: &Expression| k.bind(&at.max(&index(0)).min(&last));
        let one = self.number(1.0);
        if self.mode == ResizeMode::Linear {
            let part = k.bind(&select(&below.lt(&index(0)), &self.number(0.0), &part));
            let next = inside(&(&below + &index(1)));
            // Before the first sample, the coordinate is that of the first sample.
            let far = select(&below.lt(&index(0)), &last.min(&index(1)), &next);
            return vec![
                Tap { at: inside(&below), weight: k.bind(&(one - &part)) },
                Tap { at: k.bind(&far), weight: part },
            ];
        }
        let distances = [&one + &part, part.clone(), &one - &part, self.number(2.0) - &part];
        let taps = distances.iter().enumerate().map(|(i, distance)| {
            let at = inside(&(&below + &index(i) - index(1)));
            let is_near = i == 1 || i == 2;
            Tap { at, weight: k.bind(&self.cubic(&k.bind(distance), is_near)) }
        });
        taps.collect()
    }

    /// The cubic convolution kernel at a distance of at most 1 (`is_near`), or between 1 and 2.
    fn cubic(&self, distance: &Expression, is_near: bool) -> Expression {
        let number = |value| self.number(value);
        if is_near {
            let inner = number(CUBIC + 2.0) * distance - number(CUBIC + 3.0);
            return inner * distance * distance + number(1.0);
        }
        let inner = number(CUBIC) * distance - number(5.0 * CUBIC);
        (inner * distance + number(8.0 * CUBIC)) * distance - number(4.0 * CUBIC)
    }
}

/// Quotient and remainder of `a b / divisor` for `a <= divisor`, bit by bit of `b`, in unsigned 32-bit integers.
fn long_division(k: &Builder, operands: [&Expression; 3]) -> (Expression, Expression) {
    let [a, b, divisor] = operands.map(|operand| k.bind(&operand.cast(DType::U32)));
    let word = |value: u32| constant(value, DType::U32);
    let (quotient, rest) = (k.var(&word(0)), k.var(&word(0)));
    let reduce = || {
        k.when(&rest.get().ge(&divisor), || {
            k.set(&rest, &(rest.get() - &divisor));
            k.set(&quotient, &(quotient.get() + word(1)));
        });
    };
    k.for_each(&index(31), |bit| {
        let shift = k.bind(&(index(30) - bit).cast(DType::U32));
        k.set(&quotient, &quotient.get().shl(1));
        k.set(&rest, &rest.get().shl(1));
        reduce();
        let is_set = (b.binary(Binary::Shr, &shift) & word(1)).eq(&word(1));
        k.when(&is_set, || {
            k.set(&rest, &(rest.get() + &a));
            reduce();
        });
    });
    (k.bind(&quotient.get().to_index()), k.bind(&rest.get().to_index()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::printed::assert_printed;

    #[test]
    fn interpolations_are_printed() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
            for mode in [ResizeMode::Nearest, ResizeMode::Linear, ResizeMode::Cubic] {
                for (align_corners, is_wide) in [(false, false), (true, false), (false, true), (true, true)] {
                    for axes in 1..=3 {
                        let sampling = Sampling { mode, align_corners, dtype, is_wide };
                        assert_printed(&resize(&sampling, axes));
                    }
                }
            }
        }
    }
}
