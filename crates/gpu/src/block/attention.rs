//! Attention that does not store the scores (flash attention), and its gradients, for devices without a vendor's
//! library.
//!
//! The algorithms are those of FlashAttention-2 ([Dao 2023](https://arxiv.org/abs/2307.08691)). A block of 16 × 16
//! threads owns a tile of rows, and reads the rows of the other side in tiles. Query heads that share keys are
//! stacked: they have `heads / kv_heads * queries` rows. Gradients need no atomic operations, so they are
//! deterministic.

mod backward;
mod forward;
mod problem;

pub(crate) use backward::{ROW_TILE, key_gradients, query_gradients, row_numbers};
pub(crate) use forward::attention;

use super::BlockKey;
use kiln_ir::DType;

/// Threads along each side of a block.
const SIDE: usize = 16;

/// Threads per block.
const THREADS: usize = SIDE * SIDE;

/// Elements from one row of a part to the next: one more than columns, against bank conflicts.
const PITCH: usize = SIDE + 1;

/// The most columns per thread that shared memory holds at a time for weighted sums.
const MAX_COLUMNS: usize = 4;

/// The maximum number of 32-bit sums per thread for which a tile has more than 16 rows.
const MOST_SUMS: usize = 32;

/// The size of the tiles of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    /// Rows per thread, of the side whose results the block computes.
    pub(crate) tall: usize,
    /// Rows per thread, of the other side.
    pub(crate) wide: usize,
}

impl Tile {
    /// The tile for `count` matrices of that many rows, where the other side has `others` rows and a row has that
    /// many columns of results.
    pub(crate) fn of(
        sums: DType,
        count: usize,
        [rows, others]: [usize; 2],
        columns: usize,
        multiprocessors: usize,
    ) -> Tile {
        let words = sums.size().div_ceil(4);
        let mut tall = if words == 1 { 4 } else { 2 };
        let is_large = |tall: usize| {
            tall * columns.div_ceil(SIDE) * words > MOST_SUMS
                || tall / 2 * SIDE >= rows
                || count * rows.div_ceil(tall * SIDE) < multiprocessors
        };
        while tall > 1 && is_large(tall) {
            tall /= 2;
        }
        // The greatest tile that fits 16 KiB.
        let mut wide = match (tall, words) {
            (4, _) | (1, 2) => 2,
            (_, 1) => 4,
            (_, _) => 1,
        };
        while wide > 1 && wide / 2 * SIDE >= others {
            wide /= 2;
        }
        Tile { tall, wide }
    }

    /// The number of blocks for `count` matrices of that many rows.
    pub(crate) fn blocks(self, count: usize, rows: usize) -> usize {
        count * rows.div_ceil(self.rows())
    }

    /// Rows of the block's side.
    fn rows(self) -> usize {
        self.tall * SIDE
    }

    /// Rows of the other side that a block reads at a time.
    fn others(self) -> usize {
        self.wide * SIDE
    }

    /// Elements of shared memory for rows of the operands.
    fn part_elements(self) -> usize {
        ((self.rows() + self.others()) * PITCH).max(SIDE * SIDE * MAX_COLUMNS)
    }

    /// Elements from one row of weights to the next.
    fn weights_pitch(self) -> usize {
        self.others() + 1
    }

    /// Elements of shared memory for the weights of a tile, or for a number of each thread and row.
    fn weights_elements(self) -> usize {
        self.rows() * self.weights_pitch()
    }
}

/// The properties of an attention on which the source of its kernels depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// The dtype of queries, keys, values, the result and gradients.
    pub(crate) dtype: DType,
    /// The dtype of the mask: `bool`, or a float that is added to the scores.
    pub(crate) mask: Option<DType>,
    /// Columns of queries and keys.
    pub(crate) dim: usize,
    /// Columns of values.
    pub(crate) dim_v: usize,
    /// The size of tiles.
    pub(crate) tile: Tile,
}

impl Form {
    /// The key of a kernel of that name.
    pub(crate) fn key(self, name: &'static str) -> BlockKey {
        let Form { dtype, mask, dim, dim_v, tile } = self;
        let key = BlockKey::new(name).dtype(dtype).with(dim).with(dim_v).with(tile.tall).with(tile.wide);
        match mask {
            Some(mask) => key.dtype(mask),
            None => key,
        }
    }

    /// Whether its tiles fit that many bytes of shared memory.
    pub(crate) fn fits(self, shared_bytes: usize) -> bool {
        (self.tile.part_elements() + self.tile.weights_elements()) * self.wide().size() <= shared_bytes
    }

    /// The dtype of sums.
    fn wide(self) -> DType {
        self.dtype.accumulator()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::limits::{WEBGPU_SHARED, assert_within};

    const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

    /// The most columns of results in each kernel: of values, of queries, and of both.
    fn columns([dim, dim_v]: [usize; 2]) -> [usize; 3] {
        [dim_v, dim, dim + dim_v]
    }

    #[test]
    fn kernels_print_for_all_dtypes_and_masks() {
        for dtype in FLOATS {
            for mask in [None, Some(DType::Bool), Some(dtype)] {
                for dims in [[8, 5], [64, 64], [17, 40], [128, 128]] {
                    let [dim, dim_v] = dims;
                    let kernels = [attention, query_gradients, key_gradients];
                    for (kernel, columns) in kernels.into_iter().zip(columns(dims)) {
                        let tile = Tile::of(dtype.accumulator(), 8, [512, 512], columns, 1);
                        let form = Form { dtype, mask, dim, dim_v, tile };
                        assert!(form.fits(WEBGPU_SHARED), "{form:?}");
                        assert_within(&kernel(form), WEBGPU_SHARED);
                    }
                }
            }
            assert_within(&row_numbers(dtype, 40), WEBGPU_SHARED);
        }
    }

    #[test]
    fn every_tile_fits_16_kib() {
        for (sums, dtype) in FLOATS.map(|dtype| (dtype.accumulator(), dtype)) {
            for rows in [1, 16, 17, 33, 1000] {
                for others in [1, 16, 17, 33, 1000] {
                    for columns in [1, 64, 128, 256, 1024, 2048] {
                        let tile = Tile::of(sums, 4, [rows, others], columns, 1);
                        let form = Form { dtype, mask: None, dim: 1024, dim_v: 1024, tile };
                        assert!(form.fits(WEBGPU_SHARED), "{tile:?} of {dtype}");
                    }
                }
            }
        }
    }

    #[test]
    fn few_rows_or_blocks_and_many_columns_have_small_tiles() {
        let tile = |rows, others, columns| Tile::of(DType::F32, 1, [rows, others], columns, 8);
        assert_eq!(tile(1000, 1000, 64), Tile { tall: 4, wide: 2 });
        assert_eq!(tile(1000, 1000, 256), Tile { tall: 2, wide: 4 });
        assert_eq!(tile(1000, 1000, 512), Tile { tall: 1, wide: 4 });
        assert_eq!(tile(200, 1000, 64), Tile { tall: 1, wide: 4 });
        assert_eq!(tile(1, 20, 64), Tile { tall: 1, wide: 2 });
        assert_eq!(Tile::of(DType::F32, 64, [17, 7], 64, 8), Tile { tall: 2, wide: 1 });
        assert_eq!(Tile::of(DType::F64, 64, [100, 100], 64, 8), Tile { tall: 2, wide: 1 });
        assert_eq!(Tile { tall: 4, wide: 2 }.blocks(3, 65), 6);
    }
}
