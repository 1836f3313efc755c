//! The descriptor of an attention call to a vendor's library.

use super::DevicePtr;
use kiln_ir::{DType, Real};
use std::sync::Arc;

/// An attention with its memory.
pub struct Attend<M> {
    /// The attention problem.
    pub attention: Arc<Attention>,
    /// The first elements of all tensors, in the order of [`AttentionPass`].
    pub tensors: Vec<DevicePtr<M>>,
    /// The workspace.
    pub workspace: DevicePtr<M>,
}

/// An attention, or its gradients, without its memory: the key by which libraries choose algorithms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// The pass: forward or backward.
    pub pass: AttentionPass,
    /// The dtype of all tensors but the bias and the log-sum-exp. 16-bit floats accumulate in `f32`.
    pub dtype: DType,
    /// The batch size.
    pub batch: usize,
    /// The number of query heads.
    pub heads: usize,
    /// The number of key and value heads; it divides `heads`.
    pub kv_heads: usize,
    /// The number of query rows.
    pub queries: usize,
    /// The number of key and value rows.
    pub keys: usize,
    /// The number of columns of queries and keys.
    pub dim: usize,
    /// The number of columns of values.
    pub dim_v: usize,
    /// The scale of the scores.
    pub scale: Real,
    /// With `Some(offset)`, query `i` sees key `j` only where `j <= i + offset`.
    pub causal: Option<i64>,
    /// The shape of the additive bias, if there is one: a contiguous `f32` tensor. Each length is that of the scores
    /// (`batch`, `heads`, `queries`, `keys`), or 1 to broadcast.
    pub bias: Option<[usize; 4]>,
    /// Strides of batch, head and row for each tensor but the bias and the log-sum-exp; rows are contiguous. The
    /// log-sum-exp, `f32[batch, heads, queries]`, is contiguous.
    pub steps: Vec<[usize; 3]>,
}

/// The pass of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionPass {
    /// Forward: from `q, k, v` and the bias to `y` and the log-sum-exp.
    Forward,
    /// Backward: from the gradient of `y`, `q, k, v`, `y`, the log-sum-exp and the bias to the gradients of `q, k, v`.
    Backward,
}
