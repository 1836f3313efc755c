//! The descriptor of an attention call to a vendor's library.

use super::DevicePtr;
use kiln_ir::{DType, Real};
use std::sync::Arc;

/// An attention with its memory.
pub struct Attend<M> {
    /// What is computed.
    pub attention: Arc<Attention>,
    /// The first elements of all tensors, in the order of [`AttentionPass`].
    pub tensors: Vec<DevicePtr<M>>,
    /// Memory besides.
    pub workspace: DevicePtr<M>,
}

/// An attention, or its gradients, without its memory: what libraries choose algorithms by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// What is computed.
    pub pass: AttentionPass,
    /// Of all tensors but the bias and the log-sum-exp. 16-bit floats are added up in `f32`.
    pub dtype: DType,
    /// How many independent attentions share no keys.
    pub batch: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values, of which `heads` is a multiple.
    pub kv_heads: usize,
    /// Rows of the queries.
    pub queries: usize,
    /// Rows of keys and values.
    pub keys: usize,
    /// Columns of queries and keys.
    pub dim: usize,
    /// Columns of the values.
    pub dim_v: usize,
    /// The factor of the scores.
    pub scale: Real,
    /// With `Some(offset)`, query `i` sees key `j` only where `j <= i + offset`.
    pub causal: Option<i64>,
    /// The lengths of what is added to the scores, if anything: a tensor of `f32` without gaps, each length that of
    /// `[batch, heads, queries, keys]`, or 1 where all share it.
    pub bias: Option<[usize; 4]>,
    /// Elements from one batch, head and row to the next, of each tensor but the bias and the log-sum-exp; rows have no gaps. The
    /// log-sum-exp, `f32[batch, heads, queries]`, has none at all.
    pub steps: Vec<[usize; 3]>,
}

/// Which tensors of an attention are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionPass {
    /// Of `q, k, v` and the bias, results `y` and the log-sum-exp.
    Forward,
    /// Of the gradient of `y`, `q, k, v`, `y`, the log-sum-exp and the bias, the gradients of `q, k, v`.
    Backward,
}
