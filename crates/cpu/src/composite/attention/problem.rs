//! The operands of attention: rows of queries, their visible keys, and packed blocks for the inner loops.

use super::kernel::{LANES, Score};
use crate::array::Array;
use crate::copy::Shared;
use crate::copy::transpose::TransposeBlock;
use kiln_ir::{AttentionSpec, DType, TensorType};

/// Queries per block, as adjacent lanes of the tiles.
pub(super) const QUERIES: usize = 64;

/// Keys per tile. Its scores, a block of queries and as many keys stay in the L1 and L2 caches.
pub(super) const KEYS: usize = 64;

/// A strided operand with four axes, `[batch, heads, length, dim]`.
#[derive(Clone, Copy)]
pub(super) struct Heads<T> {
    start: Shared<T>,
    strides: [isize; 4],
}

impl<T: Copy> Heads<T> {
    pub(super) fn new(array: &Array) -> Heads<T> {
        let mut strides = [0; 4];
        strides[..array.strides().len()].copy_from_slice(array.strides());
        Heads { start: Shared::new(array.as_mut_ptr()), strides }
    }

    /// The pointer to a row of a head.
    pub(super) fn row(&self, batch: usize, head: usize, row: usize) -> *const T {
        let [b, h, r, _] = self.strides;
        let offset = batch as isize * b + head as isize * h + row as isize * r;
        self.start.get().wrapping_offset(offset)
    }

    /// The row stride and the element stride.
    pub(super) fn steps(&self) -> [isize; 2] {
        [self.strides[2], self.strides[3]]
    }
}

/// An attention mask: none, boolean, or additive.
#[derive(Clone, Copy)]
enum Mask<T> {
    None,
    /// Elements are 0 or 1; 1 is visible.
    Visible(Heads<u8>),
    Added(Heads<T>),
}

impl<T: Copy> Mask<T> {
    /// Axes of length 1 are broadcast.
    fn new(mask: Option<(&Array, &TensorType)>) -> Mask<T> {
        fn repeated<U: Copy>((array, ty): (&Array, &TensorType)) -> Heads<U> {
            let mut heads = Heads::new(array);
            for axis in 0..4 {
                if ty.shape[axis] == 1 {
                    heads.strides[axis] = 0;
                }
            }
            heads
        }
        match mask {
            None => Mask::None,
            Some(mask) if mask.1.dtype == DType::Bool => Mask::Visible(repeated(mask)),
            Some(mask) => Mask::Added(repeated(mask)),
        }
    }
}

/// Sizes and operands shared by the forward and the backward pass.
pub(super) struct Problem<T> {
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) dim: usize,
    pub(super) dim_v: usize,
    pub(super) scale: T,
    causal: Option<i64>,
    pub(super) q: Heads<T>,
    pub(super) k: Heads<T>,
    pub(super) v: Heads<T>,
    mask: Mask<T>,
}

/// Queries that share keys: from row `first` of `head` on, continuing with the queries of the following heads.
#[derive(Clone, Copy)]
pub(super) struct Block {
    pub(super) batch: usize,
    pub(super) head: usize,
    pub(super) first: usize,
    pub(super) len: usize,
}

impl Block {
    /// The width of tiles: the queries, padded to whole vectors.
    pub(super) fn width(&self) -> usize {
        self.len.next_multiple_of(LANES)
    }
}

impl<T: Score> Problem<T> {
    pub(super) fn new(
        spec: &AttentionSpec,
        [q, k, v]: [(&Array, &TensorType); 3],
        mask: Option<(&Array, &TensorType)>,
    ) -> Problem<T> {
        let (qs, ks) = (q.1.shape, k.1.shape);
        Problem {
            batch: qs[0],
            heads: qs[1],
            kv_heads: ks[1],
            queries: qs[2],
            keys: ks[2],
            dim: qs[3],
            dim_v: v.1.shape[3],
            scale: T::from_f64(spec.scale.0),
            causal: spec.causal,
            q: Heads::new(q.0),
            k: Heads::new(k.0),
            v: Heads::new(v.0),
            mask: Mask::new(mask),
        }
    }

    /// The number of query heads per key head.
    pub(super) fn shared_by(&self) -> usize {
        self.heads / self.kv_heads.max(1)
    }

    /// The number of adjacent heads whose queries share blocks: all that share keys, if each has few.
    fn joined(&self) -> usize {
        if self.queries <= QUERIES / 2 { self.shared_by() } else { 1 }
    }

    fn blocks_per_group(&self) -> usize {
        (self.joined() * self.queries).div_ceil(QUERIES)
    }

    /// The number of query blocks per key head.
    pub(super) fn blocks(&self) -> usize {
        self.shared_by() / self.joined().max(1) * self.blocks_per_group()
    }

    /// One of the [`blocks`](Self::blocks) of a key head.
    pub(super) fn block(&self, batch: usize, kv_head: usize, number: usize) -> Block {
        let group = number / self.blocks_per_group();
        let first = number % self.blocks_per_group() * QUERIES;
        let len = (self.joined() * self.queries - first).min(QUERIES);
        Block { batch, head: kv_head * self.shared_by() + group * self.joined(), first, len }
    }

    /// The index of the block's first row among all queries of all heads.
    pub(super) fn row(&self, block: Block) -> usize {
        (block.batch * self.heads + block.head) * self.queries + block.first
    }

    pub(super) fn kv_head(&self, block: Block) -> usize {
        block.head / self.shared_by()
    }

    /// The head and the index of a query of the block.
    fn query(&self, block: Block, i: usize) -> (usize, usize) {
        let row = block.first + i;
        (block.head + row / self.queries, row % self.queries)
    }

    /// The number of visible keys of each query of the block.
    pub(super) fn visible(&self, block: Block) -> [usize; QUERIES] {
        let mut visible = [self.keys; QUERIES];
        if let Some(offset) = self.causal {
            for (i, visible) in visible.iter_mut().enumerate().take(block.len) {
                let end = self.query(block, i).1 as i128 + 1 + i128::from(offset);
                *visible = end.clamp(0, self.keys as i128) as usize;
            }
        }
        visible
    }

    /// The maximum number of visible keys of the block.
    pub(super) fn reach(&self, block: Block, visible: &[usize; QUERIES]) -> usize {
        visible[..block.len].iter().copied().max().unwrap_or(0)
    }

    /// The rows of a block of an operand.
    pub(super) fn rows(&self, heads: &Heads<T>, block: Block) -> Rows<T> {
        let mut starts = [core::ptr::null(); QUERIES];
        for (i, start) in starts.iter_mut().enumerate().take(block.len) {
            let (head, query) = self.query(block, i);
            *start = heads.row(block.batch, head, query);
        }
        Rows { starts, len: block.len, column: heads.steps()[1] }
    }

    /// Adds the mask to a tile of scores, `[keys, width]`, from the given key on; masked scores become `-inf`.
    ///
    /// # Safety
    /// The tile has these sizes, as does `spare`.
    pub(super) unsafe fn mask(
        &self,
        block: Block,
        visible: &[usize; QUERIES],
        key: usize,
        tile: &mut [T],
        spare: *mut T,
    ) {
        let width = block.width();
        let keys = tile.len() / width;
        match &self.mask {
            Mask::None => {}
            Mask::Visible(mask) => {
                for i in 0..block.len {
                    let (head, query) = self.query(block, i);
                    let m = mask.row(block.batch, head, query);
                    for (j, row) in tile.chunks_exact_mut(width).enumerate() {
                        // SAFETY: the mask broadcasts to the shape of the scores.
                        let seen = unsafe { *m.offset((key + j) as isize * mask.steps()[1]) };
                        row[i] = if seen == 0 { T::NEG_INFINITY } else { row[i] };
                    }
                }
            }
            Mask::Added(mask) => {
                let mut rows = self.rows(mask, block);
                rows.starts.iter_mut().for_each(|start| {
                    *start = start.wrapping_offset(key as isize * mask.steps()[1]);
                });
                // SAFETY: the mask broadcasts to the shape of the scores; the caller guarantees the memory.
                let added = unsafe {
                    rows.transposed(keys, T::LOG2_E, spare, width);
                    core::slice::from_raw_parts(spare, keys * width)
                };
                tile.iter_mut().zip(added).for_each(|(score, &added)| *score += added);
            }
        }
        let least = visible[..block.len].iter().copied().min().unwrap_or(0);
        for (j, row) in tile.chunks_exact_mut(width).enumerate().skip(least.saturating_sub(key)) {
            for (score, &visible) in row.iter_mut().zip(visible) {
                *score = if visible <= key + j { T::NEG_INFINITY } else { *score };
            }
        }
    }
}

/// Rows at any addresses, with the same element stride.
pub(super) struct Rows<T> {
    starts: [*const T; QUERIES],
    len: usize,
    column: isize,
}

impl<T: Score> Rows<T> {
    /// The pointer to a row.
    pub(super) fn start(&self, row: usize) -> *const T {
        self.starts[row]
    }

    /// Transposes the first `columns` elements of each row, scaled, into a matrix with `width` elements per row; pads
    /// with zeros.
    ///
    /// # Safety
    /// The rows are that long, and the matrix has workspace.
    pub(super) unsafe fn transposed(&self, columns: usize, scale: T, to: *mut T, width: usize) {
        let side = T::Bits::SIDE;
        let (whole, straight) = (self.len / side * side, columns / side * side);
        // SAFETY: as the caller promises.
        let matrix = unsafe {
            to.write_bytes(0, columns * width);
            core::slice::from_raw_parts_mut(to, columns * width)
        };
        for row in 0..self.len {
            let group = row / side * side;
            let turned = if row < whole && self.is_even(group, side) { straight } else { 0 };
            if turned > 0 && row == group {
                for column in (0..turned).step_by(side) {
                    // SAFETY: a block of the rows, evenly spaced; elements are copied bitwise.
                    unsafe {
                        T::Bits::transpose(
                            self.starts[row].add(column).cast(),
                            self.step(row),
                            to.add(column * width + row).cast(),
                            width as isize,
                        );
                    }
                }
            }
            for column in turned..columns {
                // SAFETY: as the caller promises.
                matrix[column * width + row] =
                    unsafe { *self.starts[row].offset(column as isize * self.column) };
            }
        }
        if scale != T::ONE {
            matrix.iter_mut().for_each(|x| *x *= scale);
        }
    }

    /// The distance to the next row.
    fn step(&self, row: usize) -> isize {
        (self.starts[row + 1] as isize).wrapping_sub(self.starts[row] as isize) / size_of::<T>() as isize
    }

    /// Whether `count` rows from the given one on are contiguous and evenly spaced.
    fn is_even(&self, row: usize, count: usize) -> bool {
        self.column == 1 && (row..row + count - 1).all(|next| self.step(next) == self.step(row))
    }

    /// Copies the rows one after the other with row stride `width`; pads rows, and the rest of `count` rows, with
    /// zeros.
    ///
    /// # Safety
    /// The rows have that many columns, and there is workspace.
    pub(super) unsafe fn straight(&self, columns: usize, to: *mut T, width: usize, count: usize) {
        // SAFETY: as the caller promises.
        unsafe {
            to.write_bytes(0, count * width);
            for row in 0..self.len {
                let to = to.add(row * width);
                if self.column == 1 {
                    to.copy_from_nonoverlapping(self.starts[row], columns);
                    continue;
                }
                for column in 0..columns {
                    *to.add(column) = *self.starts[row].offset(column as isize * self.column);
                }
            }
        }
    }
}

/// Transposes a matrix `[columns, width]` back to rows, the first `count` of them.
///
/// # Safety
/// The matrix has these sizes, and there is room for the rows.
pub(super) unsafe fn transpose_back<T: Score>(
    matrix: *const T,
    [columns, width]: [usize; 2],
    count: usize,
    rows: *mut T,
) {
    let side = T::Bits::SIDE;
    let (whole, straight) = (count / side * side, columns / side * side);
    // SAFETY: as the caller promises.
    unsafe {
        for row in (0..whole).step_by(side) {
            for column in (0..straight).step_by(side) {
                T::Bits::transpose(
                    matrix.add(column * width + row).cast(),
                    width as isize,
                    rows.add(row * columns + column).cast(),
                    columns as isize,
                );
            }
        }
        for row in 0..count {
            for column in if row < whole { straight } else { 0 }..columns {
                *rows.add(row * columns + column) = *matrix.add(column * width + row);
            }
        }
    }
}

/// The start pointers of consecutive regions of these sizes.
pub(super) fn one_after_another<T, const N: usize>(mut start: *mut T, sizes: [usize; N]) -> [*mut T; N] {
    sizes.map(|size| {
        let next = start.wrapping_add(size);
        core::mem::replace(&mut start, next)
    })
}
