//! The inner loops of attention: small matmuls, and exponentials of scores.

use crate::contraction::simd::{Float, Kernel, Simd};
use crate::copy::transpose::TransposeBlock;

/// The number of columns that loops over scores process at once.
pub(super) const LANES: usize = 16;

/// `c = a · b` or, with `accumulate`, `c += a · b`: `[m, depth] x [depth, n] -> [m, n]`. Rows of `b` and `c` are
/// contiguous, and `n` is a multiple of [`LANES`]; `a` may have any strides.
pub(super) struct Product<T> {
    pub(super) sizes: [usize; 3],
    pub(super) a: *const T,
    /// The row stride of `a`, and its stride along the depth.
    pub(super) a_strides: [isize; 2],
    pub(super) b: *const T,
    pub(super) b_row: usize,
    pub(super) c: *mut T,
    pub(super) c_row: usize,
    pub(super) accumulate: bool,
}

impl<T: Float> Kernel<T> for Product<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        let [_, _, n] = self.sizes;
        let mut column = 0;
        // SAFETY: the creator of the product guarantees its matrices; the columns are within them.
        unsafe {
            if S::REGISTERS >= 32 {
                while column + 4 * S::LANES <= n {
                    self.columns::<S, 4>(column);
                    column += 4 * S::LANES;
                }
            }
            while column + 2 * S::LANES <= n {
                self.columns::<S, 2>(column);
                column += 2 * S::LANES;
            }
            while column < n {
                self.columns::<S, 1>(column);
                column += S::LANES;
            }
        }
    }
}

impl<T: Float> Product<T> {
    /// # Safety
    /// As [`block`](Self::block).
    #[inline(always)]
    unsafe fn columns<S: Simd<T>, const VECTORS: usize>(&self, column: usize) {
        let [m, _, _] = self.sizes;
        let mut row = 0;
        // SAFETY: as the caller promises.
        unsafe {
            while row + 6 <= m {
                self.block::<S, 6, VECTORS>(row, column);
                row += 6;
            }
            while row + 2 <= m {
                self.block::<S, 2, VECTORS>(row, column);
                row += 2;
            }
            if row < m {
                self.block::<S, 1, VECTORS>(row, column);
            }
        }
    }

    /// Computes some rows and vectors of the result in registers.
    ///
    /// # Safety
    /// The matrices have the sizes, and nothing else uses the result; rows and columns are within it.
    #[inline(always)]
    unsafe fn block<S: Simd<T>, const ROWS: usize, const VECTORS: usize>(&self, row: usize, column: usize) {
        let [_, depth, _] = self.sizes;
        // SAFETY: as the caller promises.
        unsafe {
            let c = self.c.add(row * self.c_row + column);
            let mut sums = [[S::splat(T::ZERO); VECTORS]; ROWS];
            if self.accumulate {
                for r in 0..ROWS {
                    for v in 0..VECTORS {
                        sums[r][v] = S::load(c.add(r * self.c_row + v * S::LANES));
                    }
                }
            }
            let mut a = self.a.offset(row as isize * self.a_strides[0]);
            let mut b = self.b.add(column);
            for _ in 0..depth {
                let mut y = [S::splat(T::ZERO); VECTORS];
                for v in 0..VECTORS {
                    y[v] = S::load(b.add(v * S::LANES));
                }
                for r in 0..ROWS {
                    let x = S::splat(*a.offset(r as isize * self.a_strides[0]));
                    for v in 0..VECTORS {
                        sums[r][v] = S::mul_add(x, y[v], sums[r][v]);
                    }
                }
                a = a.wrapping_offset(self.a_strides[1]);
                b = b.wrapping_add(self.b_row);
            }
            for r in 0..ROWS {
                for v in 0..VECTORS {
                    S::store(c.add(r * self.c_row + v * S::LANES), sums[r][v]);
                }
            }
        }
    }
}

/// Additional float operations for attention.
pub(in crate::composite) trait Score: Float {
    /// The unsigned integer of its size.
    type Bits: TransposeBlock;

    /// 1 / ln 2.
    const LOG2_E: Self;
    const LN_2: Self;
    const INFINITY: Self;

    /// `2^x` for `x` up to 127, and 0 below -126; `fused`: whether the unit has fused multiply-add.
    fn two_to(self, fused: bool) -> Self;
}

impl Score for f32 {
    type Bits = u32;

    const LOG2_E: f32 = core::f32::consts::LOG2_E;
    const LN_2: f32 = core::f32::consts::LN_2;
    const INFINITY: f32 = f32::INFINITY;

    /// A polynomial through the Chebyshev nodes of `-½..½`, with an error of 2e-8 apart from rounding.
    #[inline(always)]
    fn two_to(self, fused: bool) -> f32 {
        /// Adding and subtracting this rounds to an integer: 1.5 · 2²³.
        const ROUND: f32 = 12_582_912.0;
        const C: [f32; 7] = [
            1.0,
            core::f32::consts::LN_2,
            0.240_226_5,
            0.055_503_27,
            0.009_618_057,
            0.001_340_042_8,
            0.000_154_614_45,
        ];
        let x = if self > 127.0 { 127.0 } else { self };
        let shifted = x + ROUND;
        let fraction = x - (shifted - ROUND);
        let mut power = C[6];
        let mut i = 6;
        while i > 0 {
            i -= 1;
            power = multiply_add(power, fraction, C[i], fused);
        }
        // The lowest bits of `shifted` are the integer part, which is added to the exponent.
        let power = f32::from_bits(power.to_bits().wrapping_add(shifted.to_bits() << 23));
        let power = if x < -126.0 { 0.0 } else { power };
        // The exponent arithmetic would turn a NaN into a number.
        if x.is_nan() { x } else { power }
    }
}

#[inline(always)]
fn multiply_add(a: f32, b: f32, c: f32, fused: bool) -> f32 {
    #[cfg(feature = "std")]
    if fused {
        return a.mul_add(b, c);
    }
    let _ = fused;
    a * b + c
}

impl Score for f64 {
    type Bits = u64;

    const LOG2_E: f64 = core::f64::consts::LOG2_E;
    const LN_2: f64 = core::f64::consts::LN_2;
    const INFINITY: f64 = f64::INFINITY;

    #[inline(always)]
    fn two_to(self, _fused: bool) -> f64 {
        Float::exp(self * core::f64::consts::LN_2)
    }
}

/// Whether the unit has fused multiply-add.
#[inline(always)]
pub(super) fn is_fused<T: Float, S: Simd<T>>() -> bool {
    cfg!(target_arch = "aarch64") || S::LANES * size_of::<T>() > 16
}

/// The online-softmax state of a block of queries, per query, in base 2.
pub(super) struct SoftmaxState<'a, T> {
    /// The running maximum of scores.
    pub(super) greatest: &'a mut [T],
    /// The sum of weights relative to that maximum.
    pub(super) total: &'a mut [T],
    /// The rescaling factor for everything before the last tile.
    pub(super) factor: &'a mut [T],
}

/// Converts the scores of a tile, `[keys, width]`, to weights relative to the running maximum. Returns whether any
/// rescaling factor is not 1.
pub(super) struct SoftmaxWeights<'a, T> {
    pub(super) tile: &'a mut [T],
    pub(super) width: usize,
    pub(super) seen: SoftmaxState<'a, T>,
}

impl<T: Score> Kernel<T> for SoftmaxWeights<'_, T> {
    type Output = bool;

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) -> bool {
        let fused = is_fused::<T, S>();
        let SoftmaxState { greatest, total, factor } = self.seen;
        let mut any = false;
        for column in (0..self.width).step_by(LANES) {
            let mut best = [T::NEG_INFINITY; LANES];
            for row in self.tile.chunks_exact(self.width) {
                let scores = lanes(row, column);
                for lane in 0..LANES {
                    best[lane] = if scores[lane] > best[lane] { scores[lane] } else { best[lane] };
                }
            }
            let (mut shift, mut scale, mut sum) = ([T::ZERO; LANES], [T::ZERO; LANES], [T::ZERO; LANES]);
            let before = lanes_mut(greatest, column);
            for lane in 0..LANES {
                let new = if best[lane] > before[lane] { best[lane] } else { before[lane] };
                // While no key is visible, any finite shift works.
                shift[lane] = if new == T::NEG_INFINITY { T::ZERO } else { new };
                let changed = (before[lane] - shift[lane]).two_to(fused);
                scale[lane] = if before[lane] == new { T::ONE } else { changed };
                any |= before[lane] != new;
                before[lane] = new;
            }
            for row in self.tile.chunks_exact_mut(self.width) {
                let scores = lanes_mut(row, column);
                for lane in 0..LANES {
                    let weight = (scores[lane] - shift[lane]).two_to(fused);
                    scores[lane] = weight;
                    sum[lane] += weight;
                }
            }
            let (total, factor) = (lanes_mut(total, column), lanes_mut(factor, column));
            for lane in 0..LANES {
                total[lane] = total[lane] * scale[lane] + sum[lane];
                factor[lane] = scale[lane];
            }
        }
        any
    }
}

/// Multiplies each row of `[rows, width]` by the factors.
pub(super) struct Rescale<'a, T> {
    pub(super) rows: &'a mut [T],
    pub(super) factor: &'a [T],
}

impl<T: Float> Kernel<T> for Rescale<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        for row in self.rows.chunks_exact_mut(self.factor.len()) {
            for (x, &factor) in row.iter_mut().zip(self.factor) {
                *x *= factor;
            }
        }
    }
}

/// In tiles `[keys, width]`: scores become weights `p = 2^(s - lse)`, and `slopes` become `p (slope - mean) scale`.
pub(super) struct ScoreGradients<'a, T> {
    pub(super) scores: &'a mut [T],
    pub(super) slopes: &'a mut [T],
    pub(super) width: usize,
    pub(super) lse: &'a [T],
    pub(super) mean: &'a [T],
    pub(super) scale: T,
}

impl<T: Score> Kernel<T> for ScoreGradients<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        let fused = is_fused::<T, S>();
        let rows = self.scores.chunks_exact_mut(self.width).zip(self.slopes.chunks_exact_mut(self.width));
        for (scores, slopes) in rows {
            for column in (0..self.width).step_by(LANES) {
                let (scores, slopes) = (lanes_mut(scores, column), lanes_mut(slopes, column));
                let (lse, mean) = (lanes(self.lse, column), lanes(self.mean, column));
                for lane in 0..LANES {
                    let weight = (scores[lane] - lse[lane]).two_to(fused);
                    slopes[lane] = weight * (slopes[lane] - mean[lane]) * self.scale;
                    scores[lane] = weight;
                }
            }
        }
    }
}

/// The dot product `Σ a b`.
pub(super) fn dot<T: Float>(a: &[T], b: &[T]) -> T {
    let mut sums = [T::ZERO; LANES];
    let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let total = sums.iter().fold(T::ZERO, |total, &sum| total + sum);
    rest_a.iter().zip(rest_b).fold(total, |total, (&a, &b)| total + a * b)
}

#[inline(always)]
fn lanes<T>(row: &[T], column: usize) -> &[T; LANES] {
    let row = &row[column..column + LANES];
    // SAFETY: the slice has that many elements.
    unsafe { &*row.as_ptr().cast() }
}

#[inline(always)]
fn lanes_mut<T>(row: &mut [T], column: usize) -> &mut [T; LANES] {
    let row = &mut row[column..column + LANES];
    // SAFETY: the slice has that many elements.
    unsafe { &mut *row.as_mut_ptr().cast() }
}

#[cfg(test)]
mod tests {
    use super::Score;

    #[test]
    fn exp2_is_accurate() {
        for fused in [false, cfg!(feature = "std")] {
            let mut x = -130.0f32;
            while x < 1.0 {
                let (got, want) = (x.two_to(fused), libm::exp2(f64::from(x)));
                if x < -126.0 {
                    assert_eq!(got, 0.0);
                } else {
                    assert!((f64::from(got) - want).abs() <= 1.5e-7 * want, "2^{x} = {got:e}, not {want:e}");
                }
                x += 0.0137;
            }
            assert_eq!(0.0f32.two_to(fused), 1.0);
            assert_eq!(f32::NEG_INFINITY.two_to(fused), 0.0);
            assert!(f32::NAN.two_to(fused).is_nan());
        }
    }
}
