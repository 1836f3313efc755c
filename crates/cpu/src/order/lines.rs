//! The lines of tensors along one axis, distributed to threads.

use crate::threads::Pool;
use crate::walk::Walk;
use kiln_ir::MAX_RANK;

/// The minimum elements per task.
const GRAIN: usize = 1 << 14;

/// Adjacent lines that are processed together.
pub(crate) const TILE: usize = 64;

/// The lines along one axis of `N` tensors that agree in all others.
#[derive(Clone, Copy)]
pub(crate) struct Lines<const N: usize> {
    outer: Walk<N>,
    columns: usize,
    across: [isize; N],
    /// The length of a line in the first tensor.
    pub(crate) len: usize,
    /// The stride along a line, per tensor.
    pub(crate) along: [isize; N],
}

/// Adjacent lines, up to [`TILE`] or a requested number.
#[derive(Clone, Copy)]
pub(crate) struct Tile<const N: usize> {
    /// The offset of the first line, per tensor.
    pub(crate) start: [isize; N],
    /// The number of lines.
    pub(crate) count: usize,
    /// The distance to the next line, per tensor.
    pub(crate) across: [isize; N],
}

impl<const N: usize> Lines<N> {
    /// The lines of tensors with these strides; `shape` is the first one's.
    pub(crate) fn new(shape: &[usize], axis: usize, strides: [&[isize]; N]) -> Lines<N> {
        let others = || (0..shape.len()).filter(|&other| other != axis);
        let mut lengths = [1; MAX_RANK];
        let mut steps = [[0; MAX_RANK]; N];
        for (to, from) in others().enumerate() {
            lengths[to] = shape[from];
            for n in 0..N {
                steps[n][to] = strides[n][from];
            }
        }
        let rank = shape.len() - 1;
        let mut outer = Walk::new(&lengths[..rank], core::array::from_fn(|n| &steps[n][..rank]));
        let (columns, across) = match outer.rank {
            0 => (1, [0; N]),
            rank => outer.remove(rank - 1),
        };
        let along = core::array::from_fn(|n| strides[n][axis]);
        Lines { outer, columns, across, len: shape[axis], along }
    }

    /// The total number of lines.
    pub(crate) fn count(&self) -> usize {
        self.outer.num_elements() * self.columns
    }

    /// The offset of each line, per tensor.
    pub(crate) fn each(&self) -> impl Iterator<Item = [isize; N]> {
        (0..self.count()).map(|line| self.start(line))
    }

    fn start(&self, line: usize) -> [isize; N] {
        let (place, column) = (self.outer.at(line / self.columns), (line % self.columns) as isize);
        core::array::from_fn(|n| place.offsets[n] + column * self.across[n])
    }

    /// All lines in tiles of up to `SIZE`.
    pub(crate) fn tiles<const SIZE: usize>(&self) -> impl Iterator<Item = Tile<N>> {
        let parts = self.columns.div_ceil(SIZE);
        (0..parts * self.outer.num_elements()).map(move |tile| {
            let (place, first) = (self.outer.at(tile / parts), tile % parts * SIZE);
            let start = core::array::from_fn(|n| place.offsets[n] + first as isize * self.across[n]);
            Tile { start, count: SIZE.min(self.columns - first), across: self.across }
        })
    }

    /// Whether the stride along a line of the first tensor exceeds the distance between adjacent lines: tiles are then
    /// processed across lines.
    pub(crate) fn is_across(&self) -> bool {
        self.columns > 1 && self.along[0].unsigned_abs() > self.across[0].unsigned_abs()
    }

    /// Calls `body` with tiles that cover all lines once; in parallel if there are enough elements.
    pub(crate) fn for_each(&self, pool: &Pool, body: &(dyn Fn(Tile<N>) + Sync)) {
        self.for_each_of::<TILE>(pool, body);
    }

    /// As [`for_each`](Lines::for_each), with tiles of up to `SIZE` lines.
    pub(crate) fn for_each_of<const SIZE: usize>(&self, pool: &Pool, body: &(dyn Fn(Tile<N>) + Sync)) {
        let size = self.tile_size(SIZE, pool.threads());
        let parts = self.columns.div_ceil(size);
        let grain = (GRAIN / (self.len * self.columns.min(size)).max(1)).max(1);
        pool.parallel_for(parts * self.outer.num_elements(), grain, |range| {
            let mut place = self.outer.at(range.start / parts);
            let mut part = range.start % parts;
            for _ in range {
                let first = part * size;
                let start = core::array::from_fn(|n| place.offsets[n] + first as isize * self.across[n]);
                body(Tile { start, count: size.min(self.columns - first), across: self.across });
                part += 1;
                if part == parts {
                    part = 0;
                    place.advance(&self.outer, 1);
                }
            }
        });
    }

    /// The number of lines per tile: fewer if each thread would otherwise not get a few tiles of enough elements.
    fn tile_size(&self, most: usize, threads: usize) -> usize {
        let mut size = most.min(self.columns).max(1);
        // Fewer than a cache line of neighbours only if lines are not interleaved.
        let least = if self.is_across() { 16 } else { 1 };
        let is_enough = |size: usize| self.columns.div_ceil(size) * self.outer.num_elements() >= 2 * threads;
        while threads > 1 && size > least && !is_enough(size) && size * self.len > GRAIN {
            size = size.div_ceil(2);
        }
        size
    }
}

impl<const N: usize> Tile<N> {
    /// The offset of a line of the tile, per tensor.
    #[inline(always)]
    pub(crate) fn line(&self, line: usize) -> [isize; N] {
        core::array::from_fn(|n| self.start[n] + line as isize * self.across[n])
    }
}
