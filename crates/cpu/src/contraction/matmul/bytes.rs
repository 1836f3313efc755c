//! Exact matmul of 8-bit integers, accumulated in 32 bits.
//!
//! With VNNI, which adds four products of unsigned and signed bytes to a sum, four steps of `k` at a time. One operand
//! is then shifted into the other's range by adding or subtracting 128, and the initial sum compensates for that.
//! Otherwise two steps at a time, as pairs of 16-bit integers.

mod unit;

use crate::contraction::scratch::Scratch;
use crate::copy::Shared;
use crate::isa::Level;
use crate::threads::Pool;
use core::ops::Range;
use unit::{Form, Unit, Work, dispatch, form, width};

/// Rows of the result per task, and panels.
const ROWS: usize = 48;
const PANELS: usize = 8;

/// The minimum multiplications per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 20;

/// `c = a · b` for contiguous row-major matrices, `[m, k] x [k, n] -> [m, n]`; sums wrap. Elements are `i8` if
/// `signed`, else `u8`.
///
/// # Safety
/// The matrices have these sizes; `c` overlaps neither other and nothing else uses it.
pub(super) unsafe fn multiply(
    level: Level,
    pool: &Pool,
    sizes: [usize; 3],
    signed: bool,
    a: *const u8,
    b: *const u8,
    c: *mut i32,
) {
    let [m, k, n] = sizes;
    let (form, width) = (form(level), width(level));
    let words = k.div_ceil(form.steps());
    let panels = n.div_ceil(width);
    let mut packed = Scratch::<u8>::new(panels * words * width * 4);
    let mut starts = Scratch::<i32>::new(panels * width);
    let product = Product {
        sizes,
        signed,
        form,
        width,
        words,
        a: Shared::new(a.cast_mut()),
        b: Shared::new(b.cast_mut()),
        c: Shared::new(c),
        packed: Shared::new(packed.as_mut_ptr()),
        starts: Shared::new(starts.as_mut_ptr()),
    };
    let grain = (1usize << 16).div_ceil(k.max(1) * width);
    // SAFETY: as the caller promises; each panel is packed once, each piece computed once.
    pool.parallel_for(panels, grain, |range| unsafe {
        dispatch(level, Pack { product: &product, panels: range })
    });
    let (down, across) = (m.div_ceil(ROWS), panels.div_ceil(PANELS));
    let grain = GRAIN.div_ceil(k.max(1) * ROWS.min(m) * PANELS * width);
    pool.parallel_for(down * across, grain, |range| {
        for piece in range {
            let (row, panel) = (piece / across * ROWS, piece % across * PANELS);
            let rows = row..(row + ROWS).min(m);
            let panels = panel..(panel + PANELS).min(panels);
            // SAFETY: as above.
            unsafe { dispatch(level, Piece { product: &product, rows, panels }) };
        }
    });
}

/// The operands, the result and the packed right operand.
struct Product {
    sizes: [usize; 3],
    signed: bool,
    form: Form,
    /// Columns per panel.
    width: usize,
    /// Words of four bytes per column: the steps of `k`, rounded up.
    words: usize,
    a: Shared<u8>,
    b: Shared<u8>,
    c: Shared<i32>,
    /// `[panel, word, column, 4 bytes]`.
    packed: Shared<u8>,
    /// The initial sum of each column.
    starts: Shared<i32>,
}

impl Product {
    /// An element as it is multiplied; `toggle` shifts it between the ranges of `u8` and `i8`.
    #[inline(always)]
    fn wide(&self, x: u8) -> i16 {
        if self.signed { i16::from(x as i8) } else { i16::from(x) }
    }
}

/// Packs panels of the right operand.
struct Pack<'a> {
    product: &'a Product,
    panels: Range<usize>,
}

impl Work for Pack<'_> {
    #[inline(always)]
    unsafe fn run<U: Unit>(self) {
        for panel in self.panels.clone() {
            // SAFETY: the caller upholds the conditions.
            unsafe {
                match U::FORM {
                    Form::Quads => self.quads::<U>(panel),
                    Form::Pairs => self.pairs::<U>(panel),
                }
            }
        }
    }
}

impl Pack<'_> {
    #[inline(always)]
    unsafe fn quads<U: Unit>(&self, panel: usize) {
        let Product { sizes: [_, k, n], width, words, .. } = *self.product;
        let columns = (n - panel * width).min(width);
        let toggle = if self.product.signed { 0 } else { 0x80 };
        // SAFETY: a panel, and the rows of the operand that it is packed from.
        unsafe {
            let to = self.product.packed.get().add(panel * words * width * 4);
            let mut sums = [0i32; 32];
            for word in 0..words {
                let mut rows = [[0u8; 32]; 4];
                for (step, row) in rows.iter_mut().enumerate() {
                    let p = word * 4 + step;
                    if p < k {
                        let from = self.product.b.get().add(p * n + panel * width);
                        for j in 0..columns {
                            row[j] = *from.add(j) ^ toggle;
                        }
                    }
                }
                let to = to.add(word * width * 4);
                for j in 0..2 * U::LANES {
                    for step in 0..4 {
                        *to.add(j * 4 + step) = rows[step][j];
                        sums[j] += i32::from(rows[step][j] as i8);
                    }
                }
            }
            let starts = self.product.starts.get().add(panel * width);
            for j in 0..2 * U::LANES {
                *starts.add(j) = if self.product.signed { sums[j].wrapping_mul(-128) } else { 0 };
            }
        }
    }

    #[inline(always)]
    unsafe fn pairs<U: Unit>(&self, panel: usize) {
        let Product { sizes: [_, k, n], width, words, .. } = *self.product;
        let columns = (n - panel * width).min(width);
        // SAFETY: a panel, and the rows of the operand that it is packed from.
        unsafe {
            let to = self.product.packed.get().add(panel * words * width * 4).cast::<i16>();
            for word in 0..words {
                let mut rows = [[0i16; 32]; 2];
                for (step, row) in rows.iter_mut().enumerate() {
                    let p = word * 2 + step;
                    if p < k {
                        let from = self.product.b.get().add(p * n + panel * width);
                        for j in 0..columns {
                            row[j] = self.product.wide(*from.add(j));
                        }
                    }
                }
                let to = to.add(word * width * 2);
                for j in 0..2 * U::LANES {
                    *to.add(j * 2) = rows[0][j];
                    *to.add(j * 2 + 1) = rows[1][j];
                }
            }
            let starts = self.product.starts.get().add(panel * width);
            core::slice::from_raw_parts_mut(starts, width).fill(0);
        }
    }
}

/// Computes some rows of some panels.
struct Piece<'a> {
    product: &'a Product,
    rows: Range<usize>,
    panels: Range<usize>,
}

impl Work for Piece<'_> {
    #[inline(always)]
    unsafe fn run<U: Unit>(self) {
        let count = self.rows.len();
        let mut block = Scratch::<u8>::new(count * self.product.words * 4);
        let block = block.as_mut_ptr();
        let mut starts = [0i32; ROWS];
        // SAFETY: the caller upholds the conditions; the block has room for the rows.
        unsafe {
            self.copy_rows(block, &mut starts);
            for panel in self.panels.clone() {
                let mut row = 0;
                while U::LANES == 16 && row + 12 <= count {
                    self.tile::<U, 12>(panel, row, block, &starts);
                    row += 12;
                }
                while row + 4 <= count {
                    self.tile::<U, 4>(panel, row, block, &starts);
                    row += 4;
                }
                while row < count {
                    self.tile::<U, 1>(panel, row, block, &starts);
                    row += 1;
                }
            }
        }
    }
}

impl Piece<'_> {
    /// Packs rows of the left operand in words of four bytes, and computes their initial sums.
    #[inline(always)]
    unsafe fn copy_rows(&self, block: *mut u8, starts: &mut [i32; ROWS]) {
        let Product { sizes: [_, k, _], words, signed, form, .. } = *self.product;
        for (i, row) in self.rows.clone().enumerate() {
            // SAFETY: a row of the operand and a row of the block.
            let (from, to) = unsafe {
                (
                    core::slice::from_raw_parts(self.product.a.get().add(row * k), k),
                    core::slice::from_raw_parts_mut(block.add(i * words * 4), words * 4),
                )
            };
            match form {
                Form::Quads => {
                    let toggle = if signed { 0x80 } else { 0 };
                    let mut sum = 0i32;
                    for (to, &x) in to.iter_mut().zip(from) {
                        *to = x ^ toggle;
                        sum = sum.wrapping_add(i32::from(x));
                    }
                    to[k..].fill(0);
                    starts[i] = if signed { 0 } else { sum.wrapping_mul(128) };
                }
                Form::Pairs => {
                    for (to, &x) in to.chunks_exact_mut(2).zip(from) {
                        to.copy_from_slice(&self.product.wide(x).to_ne_bytes());
                    }
                    to[2 * k..].fill(0);
                }
            }
        }
    }

    /// # Safety
    /// As [`multiply`]; the panel is packed, the rows are copied.
    #[inline(always)]
    unsafe fn tile<U: Unit, const R: usize>(
        &self,
        panel: usize,
        row: usize,
        block: *const u8,
        starts: &[i32; ROWS],
    ) {
        let Product { sizes: [_, _, n], width, words, .. } = *self.product;
        // SAFETY: the caller upholds the conditions.
        unsafe {
            let mut b = self.product.packed.get().cast_const().add(panel * words * width * 4);
            let mut a = block.add(row * words * 4);
            let start = self.product.starts.get().cast_const().add(panel * width);
            let mut sums = [[U::splat(0); 2]; R];
            for r in 0..R {
                for v in 0..2 {
                    let column = U::load(start.add(v * U::LANES).cast());
                    sums[r][v] = U::add(column, U::splat(starts[row + r]));
                }
            }
            for _ in 0..words {
                let y = [U::load(b), U::load(b.add(U::LANES * 4))];
                for r in 0..R {
                    let x = U::splat(a.add(r * words * 4).cast::<i32>().read_unaligned());
                    for v in 0..2 {
                        sums[r][v] = U::dot(sums[r][v], x, y[v]);
                    }
                }
                a = a.add(4);
                b = b.add(width * 4);
            }
            let columns = (n - panel * width).min(width);
            for r in 0..R {
                let to = self.product.c.get().add((self.rows.start + row + r) * n + panel * width);
                let mut lanes = [0i32; 32];
                U::store(lanes.as_mut_ptr(), sums[r][0]);
                U::store(lanes.as_mut_ptr().add(U::LANES), sums[r][1]);
                to.copy_from_nonoverlapping(lanes.as_ptr(), columns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn integer_matmuls_are_exact_on_every_simd_level() {
        for name in ["scalar", "avx2", "avx512"] {
            let Some(level) = Level::from_name(name).filter(|level| *level <= Level::of_processor()) else {
                continue;
            };
            for [m, k, n] in [[1, 1, 1], [5, 7, 9], [50, 130, 70], [13, 1001, 33], [100, 64, 300], [3, 0, 5]]
            {
                // Including extremes: 16-bit sums of their products would overflow.
                let bytes = |seed: usize, count: usize| -> Vec<u8> {
                    (0..count)
                        .map(|i| if i % 5 == 0 { 128 } else { ((i * 7919 + seed) % 256) as u8 })
                        .collect()
                };
                let (a, b) = (bytes(1, m * k), bytes(2, k * n));
                for signed in [true, false] {
                    let wide = |x: u8| if signed { i64::from(x as i8) } else { i64::from(x) };
                    for threads in [1, 2] {
                        let mut c = vec![-1i32; m * n];
                        let pool = Pool::new(threads);
                        // SAFETY: sizes as said.
                        unsafe {
                            multiply(level, &pool, [m, k, n], signed, a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
                        }
                        for (at, &got) in c.iter().enumerate() {
                            let (i, j) = (at / n, at % n);
                            let wanted: i64 = (0..k).map(|p| wide(a[i * k + p]) * wide(b[p * n + j])).sum();
                            assert_eq!(i64::from(got), wanted, "{name} {signed} [{m}, {k}, {n}] at {i}, {j}");
                        }
                    }
                }
            }
        }
    }
}
