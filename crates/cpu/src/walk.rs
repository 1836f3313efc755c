//! Iteration over the elements of several strided arrays of one shape.

use kiln_ir::MAX_RANK;

/// The loops over a shape, with one stride per operand and axis. Axes of length 1 are dropped and adjacent axes merged
/// where all strides allow, so that most walks have one or two axes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk<const N: usize> {
    pub(crate) rank: usize,
    pub(crate) lengths: [usize; MAX_RANK],
    /// The strides in elements, per axis and operand.
    pub(crate) strides: [[isize; N]; MAX_RANK],
}

impl<const N: usize> Walk<N> {
    /// The walk over `shape` in row-major order. Each list of strides has one entry per axis.
    pub(crate) fn new(shape: &[usize], strides: [&[isize]; N]) -> Walk<N> {
        let mut walk = Walk { rank: 0, lengths: [1; MAX_RANK], strides: [[0; N]; MAX_RANK] };
        for (axis, &length) in shape.iter().enumerate() {
            walk.push(length, core::array::from_fn(|n| strides[n][axis]));
        }
        walk
    }

    /// The same elements, with the axes in descending order of the strides of operand `by`.
    pub(crate) fn ordered(&self, by: usize) -> Walk<N> {
        let mut order: [usize; MAX_RANK] = core::array::from_fn(|axis| axis);
        order[..self.rank].sort_by_key(|&axis| core::cmp::Reverse(self.strides[axis][by].unsigned_abs()));
        let mut walk = Walk { rank: 0, lengths: [1; MAX_RANK], strides: [[0; N]; MAX_RANK] };
        for &axis in &order[..self.rank] {
            walk.push(self.lengths[axis], self.strides[axis]);
        }
        walk
    }

    /// Adds an innermost axis.
    fn push(&mut self, length: usize, strides: [isize; N]) {
        if length == 1 {
            return;
        }
        if let Some(last) = self.rank.checked_sub(1) {
            let merges = (0..N).all(|n| self.strides[last][n] == strides[n].wrapping_mul(length as isize));
            if merges && length != 0 {
                self.lengths[last] *= length;
                self.strides[last] = strides;
                return;
            }
        }
        self.lengths[self.rank] = length;
        self.strides[self.rank] = strides;
        self.rank += 1;
    }

    /// Removes an axis: returns its length and strides.
    pub(crate) fn remove(&mut self, axis: usize) -> (usize, [isize; N]) {
        let taken = (self.lengths[axis], self.strides[axis]);
        self.lengths.copy_within(axis + 1..self.rank, axis);
        self.strides.copy_within(axis + 1..self.rank, axis);
        self.rank -= 1;
        taken
    }

    pub(crate) fn num_elements(&self) -> usize {
        self.lengths[..self.rank].iter().product()
    }

    /// The offset of element number `start` in the first operand.
    #[inline]
    pub(crate) fn offset(&self, start: usize) -> isize {
        let (mut offset, mut rest) = (0, start);
        for axis in (0..self.rank).rev() {
            let (index, outer) = match axis {
                0 => (rest, 0),
                _ => (rest % self.lengths[axis], rest / self.lengths[axis]),
            };
            offset += index as isize * self.strides[axis][0];
            rest = outer;
        }
        offset
    }

    /// The cursor at element number `start`, in row-major order.
    pub(crate) fn at(&self, start: usize) -> Cursor<N> {
        let mut place = Cursor { index: [0; MAX_RANK], offsets: [0; N] };
        let mut rest = start;
        for axis in (0..self.rank).rev() {
            place.index[axis] = rest % self.lengths[axis];
            rest /= self.lengths[axis];
            for n in 0..N {
                place.offsets[n] += place.index[axis] as isize * self.strides[axis][n];
            }
        }
        place
    }
}

/// One element of a [`Walk`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<const N: usize> {
    index: [usize; MAX_RANK],
    /// The offset of the element in each operand, relative to its first element.
    pub(crate) offsets: [isize; N],
}

impl<const N: usize> Default for Cursor<N> {
    /// The cursor at the first element.
    fn default() -> Cursor<N> {
        Cursor { index: [0; MAX_RANK], offsets: [0; N] }
    }
}

impl<const N: usize> Cursor<N> {
    /// The index along an axis of the walk.
    #[inline]
    pub(crate) fn along(&self, axis: usize) -> usize {
        self.index[axis]
    }

    /// Moves `steps` along the innermost axis, not past its end; at the end it continues with the next row.
    #[inline]
    pub(crate) fn advance(&mut self, walk: &Walk<N>, steps: usize) {
        let Some(mut axis) = walk.rank.checked_sub(1) else { return };
        self.index[axis] += steps;
        for n in 0..N {
            self.offsets[n] += steps as isize * walk.strides[axis][n];
        }
        while self.index[axis] == walk.lengths[axis] {
            for n in 0..N {
                self.offsets[n] -= walk.lengths[axis] as isize * walk.strides[axis][n];
            }
            self.index[axis] = 0;
            if axis == 0 {
                return;
            }
            axis -= 1;
            self.index[axis] += 1;
            for n in 0..N {
                self.offsets[n] += walk.strides[axis][n];
            }
        }
    }
}
