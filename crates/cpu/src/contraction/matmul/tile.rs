//! The micro-kernel of GEMM: a tile of sums in registers.
//!
//! A tile is some rows by two vectors of columns. Each step broadcasts one element of `a` per row and multiplies it by
//! two vectors of `b`. The sums take most registers, and there are far fewer loads than multiplications.

use crate::contraction::simd::{Float, Kernel, Simd};

/// The row stride of a packed block of `a`. It is an odd number of cache lines, so that the rows of a tile do not map
/// to the same cache sets. It is a constant, so that one register addresses all rows.
pub(super) const fn row_stride<T>() -> usize {
    2112 / size_of::<T>()
}

/// The maximum number of steps of `k` between two writes of the sums; a row of a packed block of `a` has as many
/// elements.
pub(super) const fn max_depth<T>() -> usize {
    2048 / size_of::<T>()
}

/// Columns per tile.
pub(super) struct PanelWidth;

impl<T: Float> Kernel<T> for PanelWidth {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) -> usize {
        2 * S::LANES
    }
}

/// `c = scale · a · b`, or `c += ..`, for a packed block of `a` and panels of `b`.
pub(super) struct Tiles<T> {
    /// `[rows, depth]` with the row stride [`row_stride`].
    pub(super) a: *const T,
    pub(super) rows: usize,
    pub(super) depth: usize,
    /// The first panel: the columns of a tile, with row stride `b_row`.
    pub(super) b: *const T,
    pub(super) b_row: isize,
    /// The distance between panels.
    pub(super) panel: usize,
    /// The total number of columns; the last panel may have fewer than the others.
    pub(super) columns: usize,
    /// The result, with contiguous columns.
    pub(super) c: *mut T,
    pub(super) c_row: isize,
    pub(super) accumulate: bool,
    pub(super) scale: T,
}

impl<T: Float> Kernel<T> for Tiles<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        let width = 2 * S::LANES;
        for start in (0..self.columns).step_by(width) {
            let columns = (self.columns - start).min(width);
            let b = self.b.wrapping_add(start / width * self.panel);
            let c = self.c.wrapping_add(start);
            // SAFETY: the caller upholds the conditions.
            unsafe {
                if columns == width {
                    self.panel::<S, 2, false>(b, c, columns);
                } else if columns > S::LANES {
                    self.panel::<S, 2, true>(b, c, columns);
                } else {
                    self.panel::<S, 1, true>(b, c, columns);
                }
            }
        }
    }
}

impl<T: Float> Tiles<T> {
    /// Computes all rows of a panel, in tiles as high as the registers allow.
    #[inline(always)]
    unsafe fn panel<S: Simd<T>, const VECTORS: usize, const PARTIAL: bool>(
        &self,
        b: *const T,
        c: *mut T,
        columns: usize,
    ) {
        let mut row = 0;
        // SAFETY: the caller upholds the conditions.
        unsafe {
            if S::REGISTERS == 32 {
                while row + 12 <= self.rows {
                    self.tile::<S, 12, VECTORS, PARTIAL>(row, b, c, columns);
                    row += 12;
                }
                if row + 8 <= self.rows {
                    self.tile::<S, 8, VECTORS, PARTIAL>(row, b, c, columns);
                    row += 8;
                }
            } else {
                while row + 6 <= self.rows {
                    self.tile::<S, 6, VECTORS, PARTIAL>(row, b, c, columns);
                    row += 6;
                }
            }
            if row + 4 <= self.rows {
                self.tile::<S, 4, VECTORS, PARTIAL>(row, b, c, columns);
                row += 4;
            }
            if row + 2 <= self.rows {
                self.tile::<S, 2, VECTORS, PARTIAL>(row, b, c, columns);
                row += 2;
            }
            if row < self.rows {
                self.tile::<S, 1, VECTORS, PARTIAL>(row, b, c, columns);
            }
        }
    }

    #[inline(always)]
    unsafe fn tile<S: Simd<T>, const ROWS: usize, const VECTORS: usize, const PARTIAL: bool>(
        &self,
        row: usize,
        mut b: *const T,
        c: *mut T,
        columns: usize,
    ) {
        let last = VECTORS - 1;
        let rest = columns - last * S::LANES;
        // SAFETY: rows of the block, `depth` rows of the panel, and a tile of the result, as the fields state; nothing
        // beyond the columns is accessed.
        unsafe {
            let mut a = self.a.add(row * row_stride::<T>());
            let c = c.offset(row as isize * self.c_row);
            for r in 0..ROWS {
                S::prefetch(c.offset(r as isize * self.c_row));
                S::prefetch(c.wrapping_offset(r as isize * self.c_row + S::LANES as isize));
            }
            let mut sums = [[S::splat(T::ZERO); VECTORS]; ROWS];
            for _ in 0..self.depth {
                let mut y = [S::splat(T::ZERO); VECTORS];
                for v in 0..VECTORS {
                    let from = b.add(v * S::LANES);
                    y[v] = if PARTIAL && v == last { S::load_some(from, rest) } else { S::load(from) };
                }
                for r in 0..ROWS {
                    let x = S::splat(*a.add(r * row_stride::<T>()));
                    for v in 0..VECTORS {
                        sums[r][v] = S::mul_add(x, y[v], sums[r][v]);
                    }
                }
                a = a.add(1);
                b = b.wrapping_offset(self.b_row);
            }
            let scale = S::splat(self.scale);
            let zero = S::splat(T::ZERO);
            for r in 0..ROWS {
                for v in 0..VECTORS {
                    let to = c.offset(r as isize * self.c_row).add(v * S::LANES);
                    let partial = PARTIAL && v == last;
                    let before = match (self.accumulate, partial) {
                        (false, _) => zero,
                        (true, false) => S::load(to),
                        (true, true) => S::load_some(to, rest),
                    };
                    let sum = S::mul_add(sums[r][v], scale, before);
                    if partial { S::store_some(to, sum, rest) } else { S::store(to, sum) }
                }
            }
        }
    }
}
