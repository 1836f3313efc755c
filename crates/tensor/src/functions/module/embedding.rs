//! Embedding lookups.

use crate::any::{BagMode, EmbeddingOptions};
use crate::functions::table::{functions, typed};
use crate::{Backend, Int, Tensor};

/// Looks up rows of an embedding table: weights are `[vocabulary, dim]`, indices `[batch, length]`, and the result
/// `[batch, length, dim]`. With indices of another rank the result is `[indices.., dim]`. An index out of range is an
/// error of the result.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{Int, Tensor, module};
///
/// let table = Tensor::<Flex, 2>::from_data([[1.0f32, 2.0], [3.0, 4.0]], &Default::default());
/// let words = Tensor::<Flex, 1, Int>::from_data([1, 1], &Default::default());
/// let rows = module::embedding(table, words);
/// assert_eq!(rows.into_data().to_vec::<f32>(), [3.0, 4.0, 3.0, 4.0]);
/// ```
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html)
#[track_caller]
pub fn embedding<B: Backend, I: Indices<B>>(weights: Tensor<B, 2>, indices: I) -> I::Rows {
    indices.rows_of(weights)
}

/// Like [`embedding`], with options: a padding row without gradient, and a maximum norm to which rows are scaled down.
/// PyTorch writes the scaled rows back into the table. Here the table does not change; the gradient is that of the
/// scaled rows, as in PyTorch.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::module::{self, EmbeddingOptions};
/// use kiln_tensor::{Int, Tensor};
///
/// let table = Tensor::<Flex, 2>::from_data([[3.0f32, 4.0], [0.5, 0.0]], &Default::default());
/// let words = Tensor::<Flex, 1, Int>::from_data([0, 1], &Default::default());
/// let options = EmbeddingOptions { max_norm: Some(1.0), ..EmbeddingOptions::default() };
/// let rows = module::embedding_with(table, words, &options);
/// let wanted = Tensor::from_data([[0.6f32, 0.8], [0.5, 0.0]], &Default::default());
/// assert!(rows.all_close(wanted, None, Some(1e-6)));
/// ```
///
/// # Panics
/// When the padding index is not in the table.
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding.html)
#[track_caller]
pub fn embedding_with<B: Backend, I: Indices<B>>(
    weights: Tensor<B, 2>,
    indices: I,
    options: &EmbeddingOptions,
) -> I::Rows {
    indices.rows_with(weights, options)
}

/// Integer indices of [`embedding`]: tensors of rank 1 to 5.
pub trait Indices<B: Backend> {
    /// The float tensor type with one axis more.
    type Rows;

    /// Looks up the rows of a table.
    fn rows_of(self, table: Tensor<B, 2>) -> Self::Rows;

    /// Looks up the rows of a table, with options.
    fn rows_with(self, table: Tensor<B, 2>, options: &EmbeddingOptions) -> Self::Rows;
}

macro_rules! indices {
    ($($rank:literal $rows:literal;)*) => {$(
        impl<B: Backend> Indices<B> for Tensor<B, $rank, Int> {
            type Rows = Tensor<B, $rows>;

            #[track_caller]
            fn rows_of(self, table: Tensor<B, 2>) -> Tensor<B, $rows> {
                table.convert(|any| any.embedding(self.into_any()))
            }

            #[track_caller]
            fn rows_with(self, table: Tensor<B, 2>, options: &EmbeddingOptions) -> Tensor<B, $rows> {
                table.convert(|any| any.embedding_with(self.into_any(), options))
            }
        }
    )*};
}

indices! { 1 2; 2 3; 3 4; 4 5; 5 6; }

functions! {
    typed;

    /// Looks up and reduces the rows of each bag: indices are `[bags, length]`, the result `[bags, dim]`. With
    /// [`BagMode::Sum`] each row may have a weight, `[bags, length]`. An empty bag returns zeros.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::module::{self, BagMode};
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let table = Tensor::<Flex, 2>::from_data([[1.0f32, 2.0], [3.0, 4.0]], &Default::default());
    /// let bags = Tensor::<Flex, 2, Int>::from_data([[0, 1]], &Default::default());
    /// let y = module::embedding_bag(table, bags, None, BagMode::Mean);
    /// assert_eq!(y.into_data().to_vec::<f32>(), [2.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// With weights and a mode other than [`BagMode::Sum`].
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding_bag.html)
    pub fn embedding_bag[B: Backend](
        table: Tensor<B, 2>,
        indices: Tensor<B, 2, Int> as any,
        weights: Option<Tensor<B, 2>> as anys,
        mode: BagMode,
    ) -> Tensor<B, 2>;

    /// Like [`embedding_bag`], for bags of different lengths: indices are `[count]`, the concatenated bags. Offsets,
    /// `[bags]`, are the start of each bag, ascending from 0. Weights are `[count]`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::module::{self, BagMode};
    /// use kiln_tensor::{Int, Tensor};
    ///
    /// let table = Tensor::<Flex, 2>::from_data([[1.0f32], [3.0]], &Default::default());
    /// let indices = Tensor::<Flex, 1, Int>::from_data([0, 1, 1], &Default::default());
    /// let offsets = Tensor::<Flex, 1, Int>::from_data([0, 1, 1], &Default::default());
    /// let y = module::embedding_bag_offsets(table, indices, offsets, None, BagMode::Sum);
    /// assert_eq!(y.into_data().to_vec::<f32>(), [1.0, 0.0, 6.0]);
    /// ```
    ///
    /// # Panics
    /// With weights and a mode other than [`BagMode::Sum`].
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.embedding_bag.html)
    pub fn embedding_bag_offsets[B: Backend](
        table: Tensor<B, 2>,
        indices: Tensor<B, 1, Int> as any,
        offsets: Tensor<B, 1, Int> as any,
        weights: Option<Tensor<B, 1>> as anys,
        mode: BagMode,
    ) -> Tensor<B, 2>;
}
