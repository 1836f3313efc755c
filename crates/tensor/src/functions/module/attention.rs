//! Attention, attention masks and positional encodings.

use crate::any::{AttentionOptions, Causal, RotaryLayout};
use crate::functions::table::{functions, typed};
use crate::tensor::ok;
use crate::{AnyTensor, Backend, Bool, Int, Tensor};

/// A mask of attention, `[batch, heads, queries, keys]`; axes of length 1 broadcast.
#[derive(Clone, Debug)]
pub enum AttentionMask<B: Backend> {
    /// True where a query attends to a key.
    Visible(Tensor<B, 4, Bool>),
    /// Added to the scores.
    Additive(Tensor<B, 4>),
}

/// Computes scaled dot-product attention ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)). `q` is
/// `[batch, heads, queries, dim]`, `k` `[batch, kv_heads, keys, dim]` and `v` `[batch, kv_heads, keys, dim_v]`; the
/// result is `[batch, heads, queries, dim_v]`. `heads` is a multiple of `kv_heads`: adjacent query heads share a
/// key/value head (grouped-query attention). A fully masked query returns zeros.
///
/// With as many queries as keys both [`Causal`] alignments are equal.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::Tensor;
/// use kiln_tensor::module::{self, AttentionOptions, Causal};
///
/// let device = Default::default();
/// let (q, k) = (Tensor::<Flex, 4>::zeros([1, 1, 1, 1], &device), Tensor::<Flex, 4>::zeros([1, 1, 2, 1], &device));
/// let v = Tensor::<Flex, 4>::from_data([[[[1.0f32], [3.0]]]], &device);
/// let see = |causal| {
///     let options = AttentionOptions { causal, ..Default::default() };
///     module::attention(q.clone(), k.clone(), v.clone(), None, options).into_data().to_vec::<f32>()
/// };
/// assert_eq!(see(Causal::First), [1.0]);
/// assert_eq!(see(Causal::Last), [2.0]);
/// ```
///
/// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html)
///
/// # Panics
/// When the shapes are incompatible, or `heads` is not a multiple of `kv_heads`.
#[doc(alias = "scaled_dot_product_attention")]
#[track_caller]
pub fn attention<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    v: Tensor<B, 4>,
    mask: Option<AttentionMask<B>>,
    options: AttentionOptions,
) -> Tensor<B, 4> {
    let mask = mask.map(|mask| match mask {
        AttentionMask::Visible(mask) => mask.into_any(),
        AttentionMask::Additive(mask) => mask.into_any(),
    });
    q.map(|any| any.attention(k.into_any(), v.into_any(), mask, options))
}

/// Creates a causal mask, `[queries, keys]`, true where a query attends to a key, for [`AttentionMask::Visible`].
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::module::{self, Causal};
/// use kiln_tensor::{Bool, Tensor};
///
/// let mask: Tensor<Flex, 2, Bool> = module::causal_mask(2, 3, Causal::Last, &Default::default());
/// assert_eq!(mask.into_data().to_vec::<bool>(), [true, true, false, true, true, true]);
/// ```
#[track_caller]
pub fn causal_mask<B: Backend>(
    queries: usize,
    keys: usize,
    causal: Causal,
    device: &B::Device,
) -> Tensor<B, 2, Bool> {
    Tensor::from_any(ok(AnyTensor::causal_mask(queries, keys, causal, &B::stack(device))))
}

functions! {
    typed;

    /// Creates a padding mask, `[batch, longest]`, true before the length of each example, from lengths `[batch]`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Int, Tensor, module};
    ///
    /// let lengths = Tensor::<Flex, 1, Int>::from_data([1, 2], &Default::default());
    /// let mask = module::padding_mask(lengths, 2);
    /// assert_eq!(mask.into_data().to_vec::<bool>(), [true, false, true, true]);
    /// ```
    pub fn padding_mask[B: Backend](lengths: Tensor<B, 1, Int>, longest: usize) -> Tensor<B, 2, Bool>;

    /// Applies rotary position embeddings ([Su et al. 2021](https://arxiv.org/abs/2104.09864)) to `[.., length, dim]`. Each
    /// pair of elements is rotated by an angle of its position and pair: `(a, b)` becomes `(a cos - b sin, a sin + b cos)`.
    /// Cosines and sines are `[length, dim / 2]`, as [`rotary_angles`] returns them. [`RotaryLayout`] selects the pairs.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{DType, Tensor, module};
    ///
    /// let device = Default::default();
    /// let x = Tensor::<Flex, 2>::from_data([[1.0f32, 0.0], [1.0, 0.0]], &device);
    /// let (cos, sin) = module::rotary_angles(0, 2, 2, 1e4, DType::F32, &device);
    /// let y = module::rotary_embedding(x, cos, sin, Default::default()).into_data().to_vec::<f32>();
    /// assert_eq!(y[..2], [1.0, 0.0]);
    /// assert!((y[2] - 1f32.cos()).abs() < 1e-6 && (y[3] - 1f32.sin()).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// When `dim` is odd, or the shape of the angles differs.
    pub fn rotary_embedding[B: Backend, const D: usize](
        x: Tensor<B, D>,
        cos: Tensor<B, 2> as any,
        sin: Tensor<B, 2> as any,
        layout: RotaryLayout,
    ) -> Tensor<B, D>;
}

/// Returns cosines and sines of the angles `position base^(-2 i / dim)` of `length` positions from `start`, each
/// `[length, dim / 2]`, for [`rotary_embedding`]. The base of the paper is 10,000. Computed in 64 bits.
///
/// # Panics
/// When `dim` is odd, or the dtype is not a float dtype.
#[track_caller]
pub fn rotary_angles<B: Backend>(
    start: usize,
    length: usize,
    dim: usize,
    base: f64,
    dtype: crate::DType,
    device: &B::Device,
) -> (Tensor<B, 2>, Tensor<B, 2>) {
    let (cos, sin) = ok(AnyTensor::rotary_angles(start, length, dim, base, dtype, &B::stack(device)));
    (Tensor::from_any(cos), Tensor::from_any(sin))
}

/// Returns sinusoidal positional encodings, `[length, dim]`: `sin(position base^(-2 i / dim))` in column `2 i` and its
/// cosine in column `2 i + 1` ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), whose base is 10,000). Computed
/// in 64 bits.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_tensor::{DType, Tensor, module};
///
/// let x: Tensor<Flex, 2> = module::sinusoidal_positions(1, 4, 1e4, DType::F32, &Default::default());
/// assert_eq!(x.into_data().to_vec::<f32>(), [0.0, 1.0, 0.0, 1.0]);
/// ```
///
/// # Panics
/// When `dim` is odd, or the dtype is not a float dtype.
#[track_caller]
pub fn sinusoidal_positions<B: Backend>(
    length: usize,
    dim: usize,
    base: f64,
    dtype: crate::DType,
    device: &B::Device,
) -> Tensor<B, 2> {
    Tensor::from_any(ok(AnyTensor::sinusoidal_positions(length, dim, base, dtype, &B::stack(device))))
}
