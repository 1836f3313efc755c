//! Token sequences of different lengths as one rectangle.

use crate::{Result, TextError};
use kiln_tensor::{Backend, Bool, Int, Tensor, TensorData};

/// The side of a row that padding fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PaddingSide {
    /// The start: the last token of each row is in the last column, as generation needs it.
    Left,
    /// The end, as encoders such as BERT need it.
    #[default]
    Right,
}

/// Token sequences, padded to the length of the longest.
///
/// ```
/// use kiln_text::{PaddingSide, TokenBatch};
///
/// let batch = TokenBatch::from_rows(&[vec![5, 6, 7], vec![8]], 0, PaddingSide::Left);
/// assert_eq!(batch.row(1), [0, 0, 8]);
/// assert_eq!(batch.mask(), [true, true, true, false, false, true]);
/// assert_eq!(batch.padding(), [0, 2]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBatch {
    ids: Vec<u32>,
    mask: Vec<bool>,
    lengths: Vec<usize>,
    columns: usize,
}

impl TokenBatch {
    /// Pads rows with `padding_id` to the length of the longest.
    pub fn from_rows<R: AsRef<[u32]>>(rows: &[R], padding_id: u32, side: PaddingSide) -> Self {
        let lengths: Vec<usize> = rows.iter().map(|row| row.as_ref().len()).collect();
        let columns = lengths.iter().copied().max().unwrap_or(0);
        let mut ids = Vec::with_capacity(rows.len() * columns);
        let mut mask = Vec::with_capacity(rows.len() * columns);
        for row in rows {
            let row = row.as_ref();
            let (before, after) = match side {
                PaddingSide::Left => (columns - row.len(), 0),
                PaddingSide::Right => (0, columns - row.len()),
            };
            ids.extend(std::iter::repeat_n(padding_id, before).chain(row.iter().copied()));
            ids.extend(std::iter::repeat_n(padding_id, after));
            mask.extend((0..columns).map(|column| column >= before && column < columns - after));
        }
        TokenBatch { ids, mask, lengths, columns }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.lengths.len()
    }

    /// Returns the number of columns: the length of the longest row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the ids, row by row, padding included.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Returns the ids of a row, padding included.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, row: usize) -> &[u32] {
        &self.ids[row * self.columns..(row + 1) * self.columns]
    }

    /// Returns whether each position is a token (true) or padding, row by row: Hugging Face's `attention_mask`.
    #[doc(alias = "attention_mask")]
    pub fn mask(&self) -> &[bool] {
        &self.mask
    }

    /// Returns the number of tokens of each row.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Returns the number of padding positions of each row.
    pub fn padding(&self) -> Vec<usize> {
        self.lengths.iter().map(|length| self.columns - length).collect()
    }

    /// Returns the ids as a tensor `[rows, columns]`.
    ///
    /// # Errors
    /// When the device cannot hold them.
    pub fn ids_tensor<B: Backend>(&self, device: &B::Device) -> Result<Tensor<B, 2, Int>> {
        let ids: Vec<i64> = self.ids.iter().map(|&id| i64::from(id)).collect();
        self.tensor(ids, device)
    }

    /// Returns the mask of padding, `[rows, columns]`: true where a position is padding, for
    /// [`MhaInput::mask_pad`](kiln_nn::attention::MhaInput::mask_pad).
    ///
    /// # Errors
    /// When the device cannot hold it.
    pub fn padding_mask<B: Backend>(&self, device: &B::Device) -> Result<Tensor<B, 2, Bool>> {
        let hidden: Vec<bool> = self.mask.iter().map(|&is_token| !is_token).collect();
        let data = TensorData::new(hidden, [self.rows(), self.columns]).map_err(TextError::Tensor)?;
        Ok(Tensor::from_data(data, device))
    }

    fn tensor<B: Backend>(&self, ids: Vec<i64>, device: &B::Device) -> Result<Tensor<B, 2, Int>> {
        let data = TensorData::new(ids, [self.rows(), self.columns]).map_err(TextError::Tensor)?;
        Ok(Tensor::from_data(data, device))
    }
}
