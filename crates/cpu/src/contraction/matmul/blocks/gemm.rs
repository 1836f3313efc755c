//! Many rows of activations times blocks of weights.
//!
//! A panel of weights, some columns of the result wide, is packed in the L1 cache as integers in words of 4 bytes,
//! `[word, column]`. A tile of the result multiplies it with some rows of activations: for each group the sums are
//! integers, which are then scaled and added to `f32` sums.

use super::BlockRows;
use super::activations::{Activations, Integers, RESIDUAL, Rounded};
use super::format::{CHUNK, Class, Line, class_of};
use super::machine::{Machine, TileWork};
use super::unit::Tile;
use crate::contraction::scratch::Scratch;
use crate::copy::Shared;
use crate::threads::Pool;
use core::ops::Range;

/// Rows of activations per task: those of a range of the depth stay in the L2 cache.
const ROWS: usize = 512;

/// The maximum chunks of a packed panel: its words stay in the L1 cache.
const CHUNKS_OF_BYTES: usize = 20;
const CHUNKS_OF_PAIRS: usize = 10;

/// The maximum columns of a panel.
const MAX_WIDTH: usize = 32;

/// The minimum multiplications per task: fewer are not worth waking a thread.
const GRAIN: usize = 1 << 20;

/// `c = x · weightsᵀ` for `n` rows of weights.
///
/// # Safety
/// As [`super::matmul_blocks`]; the activations are pairs if the machine multiplies pairs, else bytes.
pub(super) unsafe fn multiply(
    machine: Machine,
    pool: &Pool,
    x: &mut Activations,
    weights: BlockRows,
    n: usize,
    c: *mut f32,
) {
    let class = class_of(weights.format);
    let pairs = machine.pairs(class.signed());
    let x = x.rounded();
    let parts = if x.layout == Integers::TwoBytes { 2 } else { 1 };
    let product = Product {
        machine,
        class,
        x,
        parts,
        weights,
        n,
        c: Shared::new(c),
        width: machine.width(),
        pairs,
        minima: !class.signed() || !pairs,
    };
    let Rounded { rows, depth, .. } = product.x;
    let (down, across) = (rows.div_ceil(ROWS), n.div_ceil(product.width));
    let grain = GRAIN.div_ceil(depth.max(1) * ROWS.min(rows) * product.width);
    pool.parallel_for(down * across, grain, |range| {
        let mut start = range.start;
        while start < range.end {
            let (block, panel) = (start / across, start % across);
            let end = range.end.min((block + 1) * across);
            let rows = block * ROWS..((block + 1) * ROWS).min(rows);
            // SAFETY: as the caller promises; each part of the result is computed once.
            unsafe { product.block(rows, panel..panel + (end - start)) };
            start = end;
        }
    });
}

/// The operands and the result.
struct Product {
    machine: Machine,
    class: Class,
    x: Rounded,
    /// Bytes of an activation that are multiplied one after the other.
    parts: usize,
    weights: BlockRows,
    n: usize,
    c: Shared<f32>,
    /// Columns per panel.
    width: usize,
    /// Whether integers are packed as pairs of 16 bits, else as four bytes.
    pairs: bool,
    /// Whether there are minima: those of the format, or those that signed bytes get when 128 is added.
    minima: bool,
}

/// A packed panel: some columns and a range of the depth.
#[derive(Clone, Copy)]
struct Panel {
    /// The first column, and the number of columns that exist.
    column: usize,
    columns: usize,
    chunks: [usize; 2],
    /// `[word, width]`
    words: *mut u32,
    /// `[group, width]`
    scales: *mut f32,
    /// `[group, width]`
    minima: *mut f32,
}

impl Product {
    /// Computes some rows of some panels.
    ///
    /// # Safety
    /// As [`multiply`]; nothing else uses this part of the result.
    unsafe fn block(&self, rows: Range<usize>, panels: Range<usize>) {
        let chunks = self.x.depth / CHUNK;
        let step = self.chunks_per_panel(chunks);
        let words = step * self.words_per_chunk() * self.width;
        let floats = step * CHUNK / self.class.group() * self.width;
        let (mut words, mut floats) = (Scratch::<u32>::new(words), Scratch::<f32>::new(2 * floats));
        let mut line = Line::new(step * CHUNK);
        for first in (0..chunks).step_by(step) {
            for panel in panels.clone() {
                let column = panel * self.width;
                let columns = self.width.min(self.n - column);
                if columns < self.width {
                    words.as_mut_slice().fill(0);
                    floats.as_mut_slice().fill(0.0);
                }
                let chunks = [first, (first + step).min(chunks)];
                let scales = floats.as_mut_ptr();
                let minima = scales.wrapping_add(step * CHUNK / self.class.group() * self.width);
                let panel = Panel { column, columns, chunks, words: words.as_mut_ptr(), scales, minima };
                // SAFETY: as the caller promises; the scratch memory has room for the panel.
                unsafe {
                    self.pack(panel, &mut line);
                    self.machine.run_tiles(self.class, Tiles { product: self, panel, rows: rows.clone() });
                }
            }
        }
    }

    /// The chunks of a panel: whole blocks, and about as many in each.
    fn chunks_per_panel(&self, chunks: usize) -> usize {
        let per_block = self.weights.format.len() / CHUNK;
        let most = if self.pairs { CHUNKS_OF_PAIRS } else { CHUNKS_OF_BYTES };
        let most = most / per_block * per_block;
        chunks.div_ceil(chunks.div_ceil(most)).next_multiple_of(per_block)
    }

    fn words_per_chunk(&self) -> usize {
        if self.pairs { CHUNK / 2 } else { CHUNK / 4 }
    }
}

impl Product {
    /// Packs a panel.
    ///
    /// # Safety
    /// As [`Product::block`]; the memory of the panel has room for it.
    unsafe fn pack(&self, panel: Panel, line: &mut Line) {
        let Panel { column, columns, chunks: [first, end], words, scales, minima } = panel;
        let BlockRows { format, .. } = self.weights;
        let elements = (end - first) * CHUNK;
        let line = line.unpacked();
        for i in 0..columns {
            // SAFETY: as the caller promises; unpacking writes an integer for each element, and the floats of each group.
            unsafe {
                let blocks = self.weights.block(column + i, first * CHUNK);
                self.machine.unpack(format, blocks, elements / format.len(), line);
                for group in 0..elements / self.class.group() {
                    let scale = *line.scales.add(group);
                    let at = group * self.width + i;
                    *scales.add(at) = scale;
                    if self.minima {
                        let signed = self.class.signed();
                        *minima.add(at) = if signed { -128.0 * scale } else { *line.minima.add(group) };
                    }
                }
                let integers = core::slice::from_raw_parts(line.integers, elements);
                self.pack_integers(integers, words.add(i));
            }
        }
    }

    /// Writes the words of a column.
    ///
    /// # Safety
    /// The panel has room for them.
    unsafe fn pack_integers(&self, integers: &[u8], to: *mut u32) {
        let (pairs, signed) = (self.pairs, self.class.signed());
        let (fours, _) = integers.as_chunks::<4>();
        for (i, &four) in fours.iter().enumerate() {
            // SAFETY: as the caller promises.
            unsafe {
                if pairs {
                    let to = to.add(2 * i * self.width);
                    *to = pair([four[0], four[1]], signed);
                    *to.add(self.width) = pair([four[2], four[3]], signed);
                } else {
                    // 128 is added to signed bytes.
                    let toggle = if signed { 0x8080_8080 } else { 0 };
                    *to.add(i * self.width) = u32::from_ne_bytes(four) ^ toggle;
                }
            }
        }
    }
}

/// Two integers as the 16-bit halves of a word, in the order in memory that pairs of activations have.
#[inline(always)]
fn pair(bytes: [u8; 2], signed: bool) -> u32 {
    let [a, b] = bytes.map(|byte| if signed { byte as i8 as u16 } else { u16::from(byte) });
    let [low, high] = if cfg!(target_endian = "little") { [a, b] } else { [b, a] };
    u32::from(low) | u32::from(high) << 16
}

/// Multiplies a panel with some rows of activations.
struct Tiles<'a> {
    product: &'a Product,
    panel: Panel,
    rows: Range<usize>,
}

impl TileWork for Tiles<'_> {
    #[inline(always)]
    unsafe fn run<
        U: Tile,
        const V: usize,
        const R: usize,
        const GROUP: usize,
        const RUN: usize,
        const SIGNED: bool,
    >(
        self,
    ) {
        let mut row = self.rows.start;
        // SAFETY: as the caller promises.
        unsafe {
            while row + R <= self.rows.end {
                self.tile::<U, V, R, GROUP, RUN, SIGNED>(row);
                row += R;
            }
            while row < self.rows.end {
                self.tile::<U, V, 1, GROUP, RUN, SIGNED>(row);
                row += 1;
            }
        }
    }
}

impl Tiles<'_> {
    /// Adds the panel's part to `R` rows of the result.
    ///
    /// # Safety
    /// As [`Machine::run_tiles`].
    #[inline(always)]
    unsafe fn tile<
        U: Tile,
        const V: usize,
        const R: usize,
        const GROUP: usize,
        const RUN: usize,
        const SIGNED: bool,
    >(
        &self,
        row: usize,
    ) {
        let Panel { chunks: [first, end], words, scales, .. } = self.panel;
        let Rounded { rows, depth, stride, .. } = self.product.x;
        let pairs = if SIGNED { U::SIGNED_PAIRS } else { U::UNSIGNED_PAIRS };
        let width = U::LANES * V;
        let words_per_group = if pairs { GROUP / 2 } else { GROUP / 4 };
        let x_stride = if pairs { depth / 2 } else { depth / 4 };
        let first_group = first * (CHUNK / GROUP);
        let groups = (end - first) * (CHUNK / GROUP);
        // SAFETY: as the caller promises.
        unsafe {
            let mut sums = self.load::<U, V, R>(row);
            if self.product.minima {
                self.add_minima::<U, V, R>(row, [first_group, groups], &mut sums);
            }
            let x = self.product.x.integers.get().cast_const().cast::<u32>();
            let mut x = x.add(row * x_stride + first_group * words_per_group);
            let x_scales = self.product.x.scales.get().cast_const().add(row * stride + first_group);
            let mut words = words.cast_const();
            for group in 0..groups {
                for part in 0..self.product.parts {
                    let x = x.add(part * rows * x_stride);
                    let totals = totals::<U, V, R, GROUP, RUN, SIGNED>(words, x, x_stride);
                    let unit = U::splat_wide(if pairs || part == 1 { RESIDUAL } else { 1.0 });
                    for v in 0..V {
                        let scale = U::mul_wide(unit, U::wide(scales.add(group * width + v * U::LANES)));
                        for r in 0..R {
                            let scale = U::mul_wide(scale, U::splat_wide(*x_scales.add(r * stride + group)));
                            sums[r][v] = U::mul_add_wide(U::to_floats(totals[r][v]), scale, sums[r][v]);
                        }
                    }
                }
                words = words.add(words_per_group * width);
                x = x.add(words_per_group);
            }
            self.store::<U, V, R>(row, &sums);
        }
    }

    /// Adds the minima times the sums of activations.
    ///
    /// # Safety
    /// As [`tile`](Tiles::tile).
    #[inline(always)]
    unsafe fn add_minima<U: Tile, const V: usize, const R: usize>(
        &self,
        row: usize,
        [first_group, groups]: [usize; 2],
        sums: &mut [[U::Wide; V]; R],
    ) {
        let (width, stride) = (U::LANES * V, self.product.x.stride);
        // SAFETY: as the caller promises.
        unsafe {
            let x = self.product.x.sums.get().cast_const().add(row * stride + first_group);
            for group in 0..groups {
                for v in 0..V {
                    let minima = U::wide(self.panel.minima.add(group * width + v * U::LANES));
                    for r in 0..R {
                        let x = U::splat_wide(*x.add(r * stride + group));
                        sums[r][v] = U::mul_add_wide(minima, x, sums[r][v]);
                    }
                }
            }
        }
    }

    /// The sums of the panels before this one, along the depth.
    ///
    /// # Safety
    /// As [`tile`](Tiles::tile).
    #[inline(always)]
    unsafe fn load<U: Tile, const V: usize, const R: usize>(&self, row: usize) -> [[U::Wide; V]; R] {
        let Panel { column, columns, chunks: [first, _], .. } = self.panel;
        // SAFETY: as the caller promises.
        unsafe {
            let mut sums = [[U::splat_wide(0.0); V]; R];
            if first == 0 {
                return sums;
            }
            for r in 0..R {
                let mut from = self.product.c.get().add((row + r) * self.product.n + column).cast_const();
                let mut copy = [0.0f32; MAX_WIDTH];
                if columns < U::LANES * V {
                    copy.as_mut_ptr().copy_from_nonoverlapping(from, columns);
                    from = copy.as_ptr();
                }
                for v in 0..V {
                    sums[r][v] = U::wide(from.add(v * U::LANES));
                }
            }
            sums
        }
    }

    /// Writes sums.
    ///
    /// # Safety
    /// As [`tile`](Tiles::tile).
    #[inline(always)]
    unsafe fn store<U: Tile, const V: usize, const R: usize>(&self, row: usize, sums: &[[U::Wide; V]; R]) {
        let Panel { column, columns, .. } = self.panel;
        // SAFETY: as the caller promises.
        unsafe {
            for r in 0..R {
                let to = self.product.c.get().add((row + r) * self.product.n + column);
                let mut copy = [0.0f32; MAX_WIDTH];
                let whole = columns == U::LANES * V;
                let line = if whole { to } else { copy.as_mut_ptr() };
                for v in 0..V {
                    U::store_wide(line.add(v * U::LANES), sums[r][v]);
                }
                if !whole {
                    to.copy_from_nonoverlapping(line, columns);
                }
            }
        }
    }
}

/// The sums of products of a group: of the words of a panel, and of `R` rows of activations.
///
/// # Safety
/// As [`Tiles::tile`].
#[inline(always)]
unsafe fn totals<
    U: Tile,
    const V: usize,
    const R: usize,
    const GROUP: usize,
    const RUN: usize,
    const SIGNED: bool,
>(
    words: *const u32,
    x: *const u32,
    x_stride: usize,
) -> [[U::Words; V]; R] {
    let pairs = if SIGNED { U::SIGNED_PAIRS } else { U::UNSIGNED_PAIRS };
    let width = U::LANES * V;
    // SAFETY: as the caller promises.
    unsafe {
        let mut totals = [[U::zero(); V]; R];
        if pairs {
            for word in 0..GROUP / 2 {
                let weights: [U::Words; V] = load_words::<U, V>(words.add(word * width));
                for r in 0..R {
                    let x = U::word(x.add(r * x_stride + word));
                    for v in 0..V {
                        totals[r][v] = U::dot_pairs(totals[r][v], weights[v], x);
                    }
                }
            }
            return totals;
        }
        for run in 0..GROUP / 4 / RUN {
            let mut parts = [[U::zero(); V]; R];
            for word in run * RUN..run * RUN + RUN {
                let weights: [U::Words; V] = load_words::<U, V>(words.add(word * width));
                for r in 0..R {
                    let x = U::word(x.add(r * x_stride + word));
                    for v in 0..V {
                        parts[r][v] = U::dot_bytes(parts[r][v], weights[v], x);
                    }
                }
            }
            for r in 0..R {
                for v in 0..V {
                    let sum = U::finish(parts[r][v]);
                    totals[r][v] = if run == 0 { sum } else { U::add_words(totals[r][v], sum) };
                }
            }
        }
        totals
    }
}

/// The words of `V` vectors of columns.
///
/// # Safety
/// As [`Tiles::tile`].
#[inline(always)]
unsafe fn load_words<U: Tile, const V: usize>(from: *const u32) -> [U::Words; V] {
    // SAFETY: as the caller promises.
    unsafe {
        let mut words = [U::zero(); V];
        for v in 0..V {
            words[v] = U::words(from.add(v * U::LANES));
        }
        words
    }
}
