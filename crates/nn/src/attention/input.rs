//! Inputs and outputs of attention modules.

use super::position::RotaryAngles;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Bool, Tensor};

/// The masks, bias and positions of attention.
#[derive(Clone, Debug)]
pub(crate) struct Conditions<B: Backend> {
    pub(crate) mask_pad: Option<Tensor<B, 2, Bool>>,
    pub(crate) mask_attn: Option<Tensor<B, 3, Bool>>,
    pub(crate) attn_bias: Option<Tensor<B, 4>>,
    pub(crate) rotary: Option<RotaryAngles<B>>,
    pub(crate) causal: bool,
}

impl<B: Backend> Conditions<B> {
    pub(crate) fn none() -> Self {
        Conditions { mask_pad: None, mask_attn: None, attn_bias: None, rotary: None, causal: false }
    }

    /// The conditions of the last of `length` queries, from `start`. Masks keep all keys.
    pub(crate) fn after(&self, start: usize, length: usize) -> Self {
        let count = length - start;
        let rows = |mask: Tensor<B, 3, Bool>| match mask.dims()[1] {
            1 => mask,
            _ => mask.narrow(1, start, count),
        };
        let rows_of_bias = |bias: Tensor<B, 4>| match bias.dims()[2] {
            1 => bias,
            _ => bias.narrow(2, start, count),
        };
        Conditions {
            mask_pad: self.mask_pad.clone(),
            mask_attn: self.mask_attn.clone().map(rows),
            attn_bias: self.attn_bias.clone().map(rows_of_bias),
            rotary: self.rotary.as_ref().map(|rotary| rotary.narrow(start, count)),
            causal: self.causal,
        }
    }
}

/// Implements the methods that set masks, bias and positions of an input with a field `conditions`.
macro_rules! conditions {
    ($input:ident) => {
        impl<B: kiln_tensor::Backend> $input<B> {
            /// Sets the padding mask `[batch, keys]`: true where a key is hidden from all queries. A mask of length 1
            /// in the first dimension is that of all examples.
            #[doc(alias = "key_padding_mask")]
            #[must_use]
            pub fn mask_pad(mut self, mask: kiln_tensor::Tensor<B, 2, kiln_tensor::Bool>) -> Self {
                self.conditions.mask_pad = Some(mask);
                self
            }

            /// Sets the attention mask `[batch, queries, keys]`: true where a key is hidden from a query. Dimensions of
            /// length 1 broadcast, except keys.
            #[must_use]
            pub fn mask_attn(mut self, mask: kiln_tensor::Tensor<B, 3, kiln_tensor::Bool>) -> Self {
                self.conditions.mask_attn = Some(mask);
                self
            }

            /// Sets the bias `[batch, heads, queries, keys]` that is added to the scores: an additive mask (`-inf`
            /// hides a key), [`Alibi`](crate::attention::Alibi) or
            /// [`RelativePositionBias`](crate::attention::RelativePositionBias). Dimensions of length 1 broadcast.
            #[must_use]
            pub fn attn_bias(mut self, bias: kiln_tensor::Tensor<B, 4>) -> Self {
                self.conditions.attn_bias = Some(bias);
                self
            }

            /// Sets the angles by which queries and keys are rotated; see
            /// [`RotaryEncoding::angles`](crate::attention::RotaryEncoding::angles).
            #[must_use]
            pub fn rotary(mut self, angles: crate::attention::RotaryAngles<B>) -> Self {
                self.conditions.rotary = Some(angles);
                self
            }

            /// Hides keys after the query, in addition to the masks. With fewer queries than keys, the last query is at
            /// the position of the last key. Faster than a mask.
            #[doc(alias = "is_causal")]
            #[must_use]
            pub fn causal(mut self) -> Self {
                self.conditions.causal = true;
                self
            }
        }
    };
}

pub(crate) use conditions;

/// The input of [`MultiHeadAttention`](super::MultiHeadAttention) and
/// [`GroupedQueryAttention`](super::GroupedQueryAttention). A tensor converts to the input of self-attention.
#[derive(Clone, Debug)]
pub struct MhaInput<B: Backend = Dyn> {
    pub(super) query: Tensor<B, 3>,
    /// `None`: the queries.
    pub(super) key: Option<Tensor<B, 3>>,
    /// `None`: the keys.
    pub(super) value: Option<Tensor<B, 3>>,
    pub(super) conditions: Conditions<B>,
    pub(super) need_weights: bool,
}

impl<B: Backend> MhaInput<B> {
    /// Returns the input of self-attention: `[batch, length, d_model]` as queries, keys and values.
    pub fn self_attn(tensor: Tensor<B, 3>) -> Self {
        let conditions = Conditions::none();
        MhaInput { query: tensor, key: None, value: None, conditions, need_weights: false }
    }

    /// Returns the input of cross-attention: queries `[batch, queries, d_model]`, and a memory `[batch, keys, kdim]` as
    /// keys and values.
    pub fn cross_attn(query: Tensor<B, 3>, memory: Tensor<B, 3>) -> Self {
        MhaInput { key: Some(memory), ..MhaInput::self_attn(query) }
    }

    /// Returns an input with queries `[batch, queries, d_model]`, keys `[batch, keys, kdim]` and values
    /// `[batch, keys, vdim]`.
    pub fn new(query: Tensor<B, 3>, key: Tensor<B, 3>, value: Tensor<B, 3>) -> Self {
        MhaInput { value: Some(value), ..MhaInput::cross_attn(query, key) }
    }

    /// Requests the weights in [`MhaOutput::weights`]. They need the memory of all pairs of queries and keys; without
    /// them the layer runs one fused kernel.
    #[must_use]
    pub fn need_weights(mut self) -> Self {
        self.need_weights = true;
        self
    }

    #[must_use]
    pub(crate) fn with_conditions(mut self, conditions: Conditions<B>) -> Self {
        self.conditions = conditions;
        self
    }
}

conditions!(MhaInput);

impl<B: Backend> From<Tensor<B, 3>> for MhaInput<B> {
    fn from(tensor: Tensor<B, 3>) -> Self {
        MhaInput::self_attn(tensor)
    }
}

/// The output of [`MultiHeadAttention`](super::MultiHeadAttention).
#[derive(Clone, Debug)]
pub struct MhaOutput<B: Backend = Dyn> {
    /// `[batch, queries, d_model]`.
    pub context: Tensor<B, 3>,
    /// The attention weights of each head, `[batch, heads, queries, keys]`, before dropout; only if
    /// [`MhaInput::need_weights`] requested them. PyTorch's weights are their mean over the heads.
    pub weights: Option<Tensor<B, 4>>,
}
