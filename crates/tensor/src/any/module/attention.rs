//! Scaled dot-product attention, and masks for it.

use crate::any::index_dtype;
use crate::{AnyTensor, Result, Shape, Stack, TensorType};
use alloc::format;
use kiln_ir::{AttentionSpec, DType, Op, Operand, Real, Var};

/// Causal masking of [`attention`](crate::module::attention).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Causal {
    /// No causal mask.
    #[default]
    No,
    /// Query `i` attends to keys `0..=i`: the first query is aligned with the first key, as with PyTorch's `is_causal`.
    First,
    /// Query `i` of `q` attends to keys `0..=i + k - q` of `k`: the last query is aligned with the last key, as for a
    /// key/value cache.
    Last,
}

impl Causal {
    /// Returns the offset: query `i` attends to key `j` only where `j <= i + offset`.
    fn offset(self, queries: usize, keys: usize) -> Option<i64> {
        match self {
            Causal::No => None,
            Causal::First => Some(0),
            Causal::Last => Some(keys as i64 - queries as i64),
        }
    }
}

/// Options of [`attention`](crate::module::attention).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttentionOptions {
    /// The scale of the scores. Default (`None`): `1 / sqrt(dim)`.
    pub scale: Option<f64>,
    /// The causal mask. Default: none.
    pub causal: Causal,
}

impl AnyTensor {
    /// Computes scaled dot-product attention: `self` are queries `[batch, heads, queries, dim]`, keys
    /// `[batch, kv_heads, keys, dim]`, values `[batch, kv_heads, keys, dim_v]`. The result is
    /// `[batch, heads, queries, dim_v]`. The mask broadcasts to `[batch, heads, queries, keys]`; it is `bool` (true:
    /// attend) or is added to the scores. See [`module::attention`](crate::module::attention).
    ///
    /// # Errors
    /// When the operands are not of these shapes, `heads` is not a multiple of `kv_heads`, queries, keys and values are
    /// not of one float dtype, or the mask is neither `bool` nor of that dtype.
    #[doc(alias = "scaled_dot_product_attention")]
    pub fn attention(
        self,
        keys: AnyTensor,
        values: AnyTensor,
        mask: Option<AnyTensor>,
        options: AttentionOptions,
    ) -> Result<AnyTensor> {
        const OP: &str = "attention";
        for other in [Some(&keys), Some(&values), mask.as_ref()].into_iter().flatten() {
            self.in_same_domain(OP, other)?;
        }
        if self.rank() != 4 || keys.rank() != 4 {
            return Err(self
                .unlike(OP, "needs 4 axes", &keys)
                .hint("the axes are [batch, heads, length, dim]"));
        }
        let dim = self.shape()[3].max(1) as f64;
        let spec = AttentionSpec {
            scale: Real(options.scale.unwrap_or_else(|| 1.0 / libm::sqrt(dim))),
            causal: options.causal.offset(self.shape()[2], keys.shape()[2]),
        };
        let mask = match mask {
            Some(mask) if mask.rank() < 4 => {
                let ones = core::iter::repeat_n(1, 4 - mask.rank());
                let shape: Shape = ones.chain(mask.shape().iter().copied()).collect();
                Some(mask.reshape(shape)?)
            }
            mask => mask,
        };
        let rest = [Some(keys), Some(values), mask].into_iter().flatten();
        self.apply_with(&Op::Attention(spec), rest.map(|any| Operand::from(any.into_value())))
    }

    /// Creates a causal mask, `bool[queries, keys]`, true where a query attends to a key. See
    /// [`module::causal_mask`](crate::module::causal_mask).
    ///
    /// # Errors
    /// Those of [every method](AnyTensor#errors).
    pub fn causal_mask(
        queries: usize,
        keys: usize,
        causal: Causal,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        let ty = |queries, keys, dtype| TensorType::new([queries, keys], dtype);
        let Some(offset) = causal.offset(queries, keys) else {
            return AnyTensor::full(ty(queries, keys, DType::Bool), true, device);
        };
        let index = index_dtype(queries.max(keys));
        let query = AnyTensor::iota(ty(queries, 1, index), 0, device)?;
        let key = AnyTensor::iota(ty(1, keys, index), 1, device)?;
        let last = query.binary_scalar(kiln_ir::Binary::Add, offset)?;
        key.compare(kiln_ir::Comparison::Le, last)
    }

    /// Creates a padding mask, `bool[batch, longest]`, true before each length, from lengths `[batch]`. See
    /// [`module::padding_mask`](crate::module::padding_mask).
    ///
    /// # Errors
    /// When the lengths are not a vector of integers.
    pub fn padding_mask(self, longest: usize) -> Result<AnyTensor> {
        const OP: &str = "padding_mask";
        self.check_int(OP)?;
        if self.rank() != 1 {
            return Err(self.wrong(OP, format!("lengths need 1 axis, not {}", self.rank())));
        }
        let batch = self.shape()[0];
        let is_wide = self.dtype().size() == 8 || index_dtype(longest) == DType::I64;
        let narrow = if self.dtype() == DType::U32 { DType::U32 } else { DType::I32 };
        let index = if is_wide { DType::I64 } else { narrow };
        Ok(self.cast(index)?.expression(|lengths| {
            let place = Var::iota(lengths.engine(), TensorType::new([1, longest], index), 1);
            place.less(&lengths.reshape([batch, 1]))
        }))
    }
}
