//! The mixed-radix algorithm in Stockham's self-sorting form, on several lines at once: one line per vector lane.

use crate::contraction::simd::{Float, Simd};
use alloc::vec::Vec;
use core::f64::consts::TAU;

/// The greatest prime factor of the mixed-radix algorithm; a pass costs the square of its radix.
const MAX_RADIX: usize = 31;

/// The plan for lines of one length, with a negative exponent.
pub(super) struct Plan<T> {
    /// The number of complex elements of a line.
    pub(super) length: usize,
    passes: Vec<Pass>,
    /// The real and imaginary parts of all roots and twiddle factors of the passes.
    factors: Vec<T>,
}

/// One pass: combines `done` transforms of the previous passes, `radix` at a time.
struct Pass {
    radix: usize,
    /// The product of the remaining radices.
    left: usize,
    /// The product of the previous radices.
    done: usize,
    /// The offset of the radix's roots of unity among the factors.
    roots: usize,
    /// The offset of the twiddle factors: `radix - 1` for each of `left`.
    twiddles: usize,
}

/// The radices of a length; `None` if a prime factor is too great.
fn radices(length: usize) -> Option<Vec<usize>> {
    let mut rest = length;
    let mut radices = Vec::new();
    for radix in [8, 4].into_iter().chain(2..=MAX_RADIX) {
        while rest > 1 && rest.is_multiple_of(radix) {
            radices.push(radix);
            rest /= radix;
        }
    }
    (rest == 1).then_some(radices)
}

/// Two factors of a length, as close to each other as its radices allow.
pub(super) fn halves(length: usize) -> Option<[usize; 2]> {
    let mut primes = Vec::new();
    for radix in radices(length)? {
        if radix.is_multiple_of(2) {
            primes.extend((0..radix.trailing_zeros()).map(|_| 2));
        } else {
            primes.push(radix);
        }
    }
    primes.sort_unstable();
    let mut halves = [1, 1];
    for prime in primes.into_iter().rev() {
        let smaller = usize::from(halves[0] > halves[1]);
        halves[smaller] *= prime;
    }
    Some(halves)
}

/// `exp(-2πi turn / length)`.
pub(super) fn root(turn: usize, length: usize) -> (f64, f64) {
    let (sin, cos) = libm::sincos(TAU * turn as f64 / length as f64);
    (cos, -sin)
}

/// All roots of unity of a length in order, computed from one eighth of the circle if it divides the length.
pub(super) fn roots(length: usize) -> Vec<(f64, f64)> {
    let mut roots = alloc::vec![(1.0, 0.0); length];
    if length.is_multiple_of(8) {
        let quarter = length / 4;
        for turn in 0..=length / 8 {
            let (re, im) = root(turn, length);
            roots[turn] = (re, im);
            roots[quarter - turn] = (-im, -re);
        }
        for turn in quarter..length {
            let (re, im) = roots[turn - quarter];
            roots[turn] = (im, -re);
        }
    } else {
        for turn in 1..=length / 2 {
            let (re, im) = root(turn, length);
            roots[turn] = (re, im);
            roots[length - turn] = (re, -im);
        }
    }
    roots
}

impl<T: Float> Plan<T> {
    /// Creates the plan; `None` if a prime factor is too great.
    pub(super) fn new(length: usize) -> Option<Plan<T>> {
        let radices = radices(length)?;
        let all = roots(length);
        let (mut passes, mut factors) = (Vec::new(), Vec::new());
        let (mut left, mut done) = (length, 1);
        for radix in radices {
            left /= radix;
            let mut push = |turn: usize| {
                let (re, im) = all[turn % length];
                factors.extend([T::from_f64(re), T::from_f64(im)]);
                factors.len() - 2
            };
            let at = (0..radix).map(|turn| push(turn * (length / radix))).min().unwrap_or_default();
            let twiddles = at + 2 * radix;
            for p in 0..left {
                for v in 1..radix {
                    push(p * v * done);
                }
            }
            passes.push(Pass { radix, left, done, roots: at, twiddles });
            done *= radix;
        }
        Some(Plan { length, passes, factors })
    }

    /// Transforms one line per lane. Element `i` has its real parts at `2 i LANES`, followed by its imaginary parts.
    /// Returns the pointer to the result: one of the two arguments.
    ///
    /// # Safety
    /// The machine has the unit, and both hold `2 LANES` elements for each complex element.
    #[inline(always)]
    pub(super) unsafe fn run<S: Simd<T>>(&self, mut from: *mut T, mut scratch: *mut T) -> *mut T {
        for pass in &self.passes {
            // SAFETY: as the caller promises; a pass reads and writes each element once.
            unsafe { pass.run::<T, S>(self.factors.as_ptr(), from, scratch) };
            (from, scratch) = (scratch, from);
        }
        from
    }
}

impl Pass {
    /// # Safety
    /// As [`Plan::run`]; the factors are the plan's.
    #[inline(always)]
    unsafe fn run<T: Float, S: Simd<T>>(&self, factors: *const T, x: *const T, y: *mut T) {
        let row = 2 * S::LANES;
        let wide = self.done * row;
        // A closure would not be compiled for the unit's instructions.
        macro_rules! each {
            ($radix:literal, $z:ident => $butterfly:expr) => {
                for p in 0..self.left {
                    let twiddles = factors.add(self.twiddles + 2 * ($radix - 1) * p);
                    for q in 0..self.done {
                        let from = x.add(p * wide + q * row);
                        let to = y.add(p * $radix * wide + q * row);
                        let mut $z = [Complex { re: S::splat(T::ZERO), im: S::splat(T::ZERO) }; $radix];
                        for u in 0..$radix {
                            $z[u] = Complex::load::<T, S>(from.add(u * self.left * wide));
                        }
                        let $z = $butterfly;
                        $z[0].store::<T, S>(to);
                        if p == 0 {
                            for v in 1..$radix {
                                $z[v].store::<T, S>(to.add(v * wide));
                            }
                        } else {
                            for v in 1..$radix {
                                let product = $z[v].times::<T, S>(twiddles.add(2 * (v - 1)));
                                product.store::<T, S>(to.add(v * wide));
                            }
                        }
                    }
                }
            };
        }
        // SAFETY: as the caller promises. The plan has that many factors from there, and `p`, `q` and `u` stay below
        // the factors of the length.
        unsafe {
            let roots = factors.add(self.roots);
            match self.radix {
                2 => each!(2, z => two::<T, S>(z)),
                3 => each!(3, z => odd::<T, S, 3>(roots, z)),
                4 => each!(4, z => four::<T, S>(z)),
                5 => each!(5, z => odd::<T, S, 5>(roots, z)),
                7 => each!(7, z => odd::<T, S, 7>(roots, z)),
                8 => each!(8, z => eight::<T, S>(z)),
                radix => self.any::<T, S>(radix, factors, x, y),
            }
        }
    }

    /// The generic pass for odd radices without a specialized function.
    ///
    /// # Safety
    /// As [`Pass::run`].
    #[inline(always)]
    unsafe fn any<T: Float, S: Simd<T>>(&self, radix: usize, factors: *const T, x: *const T, y: *mut T) {
        let row = 2 * S::LANES;
        let wide = self.done * row;
        // SAFETY: `p`, `q` and `u` stay below the factors of the length.
        unsafe {
            let zero = Complex { re: S::splat(T::ZERO), im: S::splat(T::ZERO) };
            let roots = factors.add(self.roots);
            for p in 0..self.left {
                let twiddles = factors.add(self.twiddles + 2 * (radix - 1) * p);
                for q in 0..self.done {
                    let from = x.add(p * wide + q * row);
                    let to = y.add(p * radix * wide + q * row);
                    let first = Complex::load::<T, S>(from);
                    let (mut sums, mut differences) = ([zero; MAX_RADIX / 2 + 1], [zero; MAX_RADIX / 2 + 1]);
                    let mut total = first;
                    for u in 1..=radix / 2 {
                        let a = Complex::load::<T, S>(from.add(u * self.left * wide));
                        let b = Complex::load::<T, S>(from.add((radix - u) * self.left * wide));
                        (sums[u], differences[u]) = (a.plus::<T, S>(b), a.minus::<T, S>(b));
                        total = total.plus::<T, S>(sums[u]);
                    }
                    total.store::<T, S>(to);
                    for v in 1..=radix / 2 {
                        let (mut even, mut odd) = (first, zero);
                        for u in 1..=radix / 2 {
                            let root = roots.add(2 * (u * v % radix));
                            even = even.add_scaled::<T, S>(sums[u], S::splat(*root));
                            odd = odd.add_scaled::<T, S>(differences[u], S::splat(*root.add(1)));
                        }
                        for (v, z) in [(v, even.plus_i::<T, S>(odd)), (radix - v, even.minus_i::<T, S>(odd))]
                        {
                            z.times::<T, S>(twiddles.add(2 * (v - 1))).store::<T, S>(to.add(v * wide));
                        }
                    }
                }
            }
        }
    }
}

/// One complex element per lane.
#[derive(Clone, Copy)]
pub(super) struct Complex<V> {
    pub(super) re: V,
    pub(super) im: V,
}

impl<V: Copy> Complex<V> {
    /// # Safety
    /// The machine has the unit; two vectors may be read.
    #[inline(always)]
    pub(super) unsafe fn load<T, S: Simd<T, Vector = V>>(from: *const T) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Complex { re: S::load(from), im: S::load(from.add(S::LANES)) } }
    }

    /// # Safety
    /// The machine has the unit; two vectors may be written.
    #[inline(always)]
    pub(super) unsafe fn store<T, S: Simd<T, Vector = V>>(self, to: *mut T) {
        // SAFETY: as the caller promises.
        unsafe {
            S::store(to, self.re);
            S::store(to.add(S::LANES), self.im);
        }
    }

    /// # Safety
    /// The machine has the unit.
    #[inline(always)]
    pub(super) unsafe fn plus<T, S: Simd<T, Vector = V>>(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Complex { re: S::add(self.re, other.re), im: S::add(self.im, other.im) } }
    }

    /// # Safety
    /// The machine has the unit.
    #[inline(always)]
    pub(super) unsafe fn minus<T, S: Simd<T, Vector = V>>(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Complex { re: S::sub(self.re, other.re), im: S::sub(self.im, other.im) } }
    }

    /// `self + i other`.
    ///
    /// # Safety
    /// The machine has the unit.
    #[inline(always)]
    pub(super) unsafe fn plus_i<T, S: Simd<T, Vector = V>>(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Complex { re: S::sub(self.re, other.im), im: S::add(self.im, other.re) } }
    }

    /// `self - i other`.
    ///
    /// # Safety
    /// The machine has the unit.
    #[inline(always)]
    pub(super) unsafe fn minus_i<T, S: Simd<T, Vector = V>>(self, other: Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Complex { re: S::add(self.re, other.im), im: S::sub(self.im, other.re) } }
    }

    /// `self + other factor`, the factor being real.
    ///
    /// # Safety
    /// The machine has the unit.
    #[inline(always)]
    unsafe fn add_scaled<T, S: Simd<T, Vector = V>>(self, other: Self, factor: V) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            Complex { re: S::mul_add(other.re, factor, self.re), im: S::mul_add(other.im, factor, self.im) }
        }
    }

    /// Multiplies by a real number.
    ///
    /// # Safety
    /// The machine has the unit.
    #[inline(always)]
    pub(super) unsafe fn scaled<T: Float, S: Simd<T, Vector = V>>(self, factor: V) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            let zero = S::splat(T::ZERO);
            Complex { re: S::mul_add(self.re, factor, zero), im: S::mul_add(self.im, factor, zero) }
        }
    }

    /// Multiplies by a complex number.
    ///
    /// # Safety
    /// The machine has the unit; a real and an imaginary part may be read.
    #[inline(always)]
    pub(super) unsafe fn times<T: Float, S: Simd<T, Vector = V>>(self, factor: *const T) -> Self {
        // SAFETY: as the caller promises.
        unsafe {
            let zero = S::splat(T::ZERO);
            let (re, im, minus) = (S::splat(*factor), S::splat(*factor.add(1)), S::splat(-*factor.add(1)));
            Complex {
                re: S::mul_add(self.re, re, S::mul_add(self.im, minus, zero)),
                im: S::mul_add(self.re, im, S::mul_add(self.im, re, zero)),
            }
        }
    }
}

#[inline(always)]
fn two<T: Float, S: Simd<T>>([a, b]: [Complex<S::Vector>; 2]) -> [Complex<S::Vector>; 2] {
    // SAFETY: called by passes only, which run on machines that have the unit.
    unsafe { [a.plus::<T, S>(b), a.minus::<T, S>(b)] }
}

#[inline(always)]
fn four<T: Float, S: Simd<T>>([a, b, c, d]: [Complex<S::Vector>; 4]) -> [Complex<S::Vector>; 4] {
    // SAFETY: called by passes only, which run on machines that have the unit.
    unsafe {
        let (s, t) = (a.plus::<T, S>(c), a.minus::<T, S>(c));
        let (u, v) = (b.plus::<T, S>(d), b.minus::<T, S>(d));
        [s.plus::<T, S>(u), t.minus_i::<T, S>(v), s.minus::<T, S>(u), t.plus_i::<T, S>(v)]
    }
}

#[inline(always)]
fn eight<T: Float, S: Simd<T>>(z: [Complex<S::Vector>; 8]) -> [Complex<S::Vector>; 8] {
    let even = four::<T, S>([z[0], z[2], z[4], z[6]]);
    let [o0, o1, o2, o3] = four::<T, S>([z[1], z[3], z[5], z[7]]);
    // SAFETY: called by passes only, which run on machines that have the unit.
    unsafe {
        let half = S::splat(T::from_f64(core::f64::consts::FRAC_1_SQRT_2));
        // Multiplies by (1 - i) / √2.
        let o1 = Complex { re: S::add(o1.re, o1.im), im: S::sub(o1.im, o1.re) }.scaled::<T, S>(half);
        // Multiplies by -(1 + i) / √2, without the factor -i, which the sum applies.
        let o3 = Complex { re: S::add(o3.re, o3.im), im: S::sub(o3.im, o3.re) }.scaled::<T, S>(half);
        [
            even[0].plus::<T, S>(o0),
            even[1].plus::<T, S>(o1),
            even[2].minus_i::<T, S>(o2),
            even[3].minus_i::<T, S>(o3),
            even[0].minus::<T, S>(o0),
            even[1].minus::<T, S>(o1),
            even[2].plus_i::<T, S>(o2),
            even[3].plus_i::<T, S>(o3),
        ]
    }
}

/// An odd radix: sums and differences of the pairs that share cosine and sine.
///
/// # Safety
/// The machine has the unit, and there are `R` roots.
#[inline(always)]
unsafe fn odd<T: Float, S: Simd<T>, const R: usize>(
    roots: *const T,
    z: [Complex<S::Vector>; R],
) -> [Complex<S::Vector>; R] {
    // SAFETY: as the caller promises.
    unsafe {
        let zero = Complex { re: S::splat(T::ZERO), im: S::splat(T::ZERO) };
        let (mut sums, mut differences, mut y) = ([zero; R], [zero; R], [zero; R]);
        y[0] = z[0];
        for u in 1..=R / 2 {
            (sums[u], differences[u]) = (z[u].plus::<T, S>(z[R - u]), z[u].minus::<T, S>(z[R - u]));
            y[0] = y[0].plus::<T, S>(sums[u]);
        }
        for v in 1..=R / 2 {
            let (mut even, mut odd) = (z[0], zero);
            for u in 1..=R / 2 {
                let root = roots.add(2 * (u * v % R));
                even = even.add_scaled::<T, S>(sums[u], S::splat(*root));
                odd = odd.add_scaled::<T, S>(differences[u], S::splat(*root.add(1)));
            }
            (y[v], y[R - v]) = (even.plus_i::<T, S>(odd), even.minus_i::<T, S>(odd));
        }
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_factored_into_radices() {
        assert_eq!(radices(1), Some(alloc::vec![]));
        assert_eq!(radices(2048), Some(alloc::vec![8, 8, 8, 4]));
        assert_eq!(radices(8 * 3 * 31), Some(alloc::vec![8, 3, 31]));
        assert_eq!(radices(37), None);
        assert_eq!(halves(1 << 15), Some([256, 128]));
        assert_eq!(halves(1000), Some([25, 40]));
        assert_eq!(halves(37), None);
    }

    #[test]
    fn roots_of_unity_match_their_definition() {
        for length in [1, 2, 3, 8, 12, 24, 1000, 1021] {
            for (turn, found) in roots(length).into_iter().enumerate() {
                let (re, im) = root(turn, length);
                assert!((found.0 - re).abs() + (found.1 - im).abs() < 1e-14, "{turn} of {length}");
            }
        }
    }
}
