//! Attention and its gradients as graphs of cuDNN.
//!
//! Both describe the ops of attention one by one. The library's engines match the pattern and run it as one kernel,
//! without storing the scores in memory.

use super::graph::{Graph, Number, Outcome, Refusal, Tensor, contiguous};
use cudarc::cudnn::sys::{
    cudnnDataType_t as Data, cudnnPointwiseMode_t as Pointwise, cudnnReduceTensorOp_t as Reduction,
};
use kiln_gpu::driver::{Attention, AttentionPass};
use kiln_ir::DType;

/// The first version whose engines support this module's graphs.
const MIN_VERSION: usize = 91_100;

/// Up to this version, gradients are wrong if the last keys do not fill a tile.
const LAST_WITH_WHOLE_TILES: usize = 91_500;

/// Keys per tile.
const TILE: usize = 128;

/// The maximum head dim of queries, keys and values.
const MAX_COLUMNS: usize = 256;

/// Head dims must be multiples of this many elements: 16 bytes.
const COLUMNS: usize = 8;

const F32: Data = Data::CUDNN_DATA_FLOAT;

/// The lengths of the intermediate tensors.
struct AttentionGraph<'a> {
    graph: Graph,
    attention: &'a Attention,
    element: Data,
    /// `[batch, heads, queries, keys]`.
    scores: [i64; 4],
    /// `[batch, heads, queries, 1]`.
    rows: [i64; 4],
}

/// The graph of an attention.
///
/// # Errors
/// When this version of the library does not support it; with the reason.
pub(super) fn graph(attention: &Attention, version: usize) -> Outcome<Graph> {
    let refused = |why: &str| Err(Refusal(why.to_owned()));
    let element = match attention.dtype {
        DType::F16 => Data::CUDNN_DATA_HALF,
        DType::BF16 => Data::CUDNN_DATA_BFLOAT16,
        DType::F32
        | DType::F64
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => return refused("attention is only fused for floats of 16 bits"),
    };
    if version < MIN_VERSION {
        return refused("the version is too old");
    }
    let Attention { dim, dim_v, queries, keys, causal, .. } = *attention;
    let fits = |columns: usize| columns <= MAX_COLUMNS && columns.is_multiple_of(COLUMNS);
    if !fits(dim) || !fits(dim_v) {
        return refused("the head dims are not supported");
    }
    // The library does not return zeros for a fully masked query.
    if causal.is_some_and(|offset| offset < 0) {
        return refused("some queries are fully masked");
    }
    let backward = attention.pass == AttentionPass::Backward;
    if backward && takes_whole_tiles_only(version, keys) {
        return refused("this version supports whole tiles of keys only");
    }
    if backward && queries == 1 && keys == 1 {
        return refused("gradients of one query and one key are not supported");
    }
    let lengths = [attention.batch, attention.heads, queries, keys].map(|length| length as i64);
    let [batch, heads, rows, _] = lengths;
    let graph = AttentionGraph {
        graph: Graph::default(),
        attention,
        element,
        scores: lengths,
        rows: [batch, heads, rows, 1],
    };
    match attention.pass {
        AttentionPass::Forward => graph.forward(),
        AttentionPass::Backward => graph.backward(),
    }
}

/// Whether a version does not support gradients for that many keys.
pub(super) fn takes_whole_tiles_only(version: usize, keys: usize) -> bool {
    version <= LAST_WITH_WHOLE_TILES && !keys.is_multiple_of(TILE)
}

impl AttentionGraph<'_> {
    fn forward(mut self) -> Outcome<Graph> {
        let Attention { heads, kv_heads, queries, keys, dim, dim_v, .. } = *self.attention;
        let q = self.rows_at(0, heads, queries, dim)?;
        let k = self.columns_at(1, kv_heads, keys, dim)?;
        let v = self.rows_at(2, kv_heads, keys, dim_v)?;
        let bias = self.bias()?;
        let y = self.rows_at(3, heads, queries, dim_v)?;
        let lse = self.per_row_outside()?;
        let scores = self.scores(q, k, bias)?;
        let scores = self.masked(scores)?;
        let greatest = self.per_row()?;
        let greatest = self.graph.reduce(Reduction::CUDNN_REDUCE_TENSOR_MAX, scores, greatest)?;
        let below = self.per_score(Pointwise::CUDNN_POINTWISE_SUB, &[scores, greatest])?;
        let exp = self.per_score(Pointwise::CUDNN_POINTWISE_EXP, &[below])?;
        let sum = self.per_row()?;
        let sum = self.graph.reduce(Reduction::CUDNN_REDUCE_TENSOR_ADD, exp, sum)?;
        let log = self.per_row()?;
        let log = self.graph.pointwise(Pointwise::CUDNN_POINTWISE_LOG, &[sum], log, F32)?;
        self.graph.pointwise(Pointwise::CUDNN_POINTWISE_ADD, &[greatest, log], lse, F32)?;
        let weights = self.over_scores(self.element)?;
        let weights = self.graph.pointwise(Pointwise::CUDNN_POINTWISE_DIV, &[exp, sum], weights, F32)?;
        self.graph.matmul(weights, v, y)?;
        Ok(self.graph)
    }

    fn backward(mut self) -> Outcome<Graph> {
        let Attention { heads, kv_heads, queries, keys, dim, dim_v, .. } = *self.attention;
        let grad = self.rows_at(0, heads, queries, dim_v)?;
        let q = self.rows_at(1, heads, queries, dim)?;
        let k = self.columns_at(2, kv_heads, keys, dim)?;
        let v = self.columns_at(3, kv_heads, keys, dim_v)?;
        let y = self.rows_at(4, heads, queries, dim_v)?;
        let lse = self.per_row_outside()?;
        let bias = self.bias()?;
        let dq = self.rows_at(5, heads, queries, dim)?;
        let dk = self.rows_at(6, kv_heads, keys, dim)?;
        let dv = self.rows_at(7, kv_heads, keys, dim_v)?;
        let delta = self.delta(grad, y)?;
        // Recomputes the weights.
        let scores = self.scores(q, k, bias)?;
        let below = self.per_score(Pointwise::CUDNN_POINTWISE_SUB, &[scores, lse])?;
        let below = self.masked(below)?;
        let weights = self.per_score(Pointwise::CUDNN_POINTWISE_EXP, &[below])?;
        self.summed_over_queries(weights, grad, dim_v, dv)?;
        // The gradients of the weights, and of the scores.
        let of_weights = self.over_scores(F32)?;
        let of_weights = self.graph.matmul(grad, v, of_weights)?;
        let less = self.per_score(Pointwise::CUDNN_POINTWISE_SUB, &[of_weights, delta])?;
        let unscaled = self.per_score(Pointwise::CUDNN_POINTWISE_MUL, &[less, weights])?;
        let scale = self.scale()?;
        let of_scores = self.over_scores(self.element)?;
        let of_scores =
            self.graph.pointwise(Pointwise::CUDNN_POINTWISE_MUL, &[unscaled, scale], of_scores, F32)?;
        self.summed_over_queries(of_scores, q, dim, dk)?;
        let (lengths, steps) = self.layout_of(2, kv_heads, keys, dim);
        let rows_of_k = self.graph.virtual_tensor(&lengths, &steps, self.element)?;
        let rows_of_k = self.graph.reshape(k, rows_of_k)?;
        // Blocks of keys accumulate into it, in any order.
        let sum = self.graph.scratch(&[self.rows[0], self.rows[1], self.rows[2], dim as i64])?;
        let sum = self.graph.matmul(of_scores, rows_of_k, sum)?;
        self.graph.pointwise(Pointwise::CUDNN_POINTWISE_IDENTITY, &[sum], dq, F32)?;
        Ok(self.graph)
    }

    /// The row sums of `grad * y`.
    fn delta(&mut self, grad: Tensor, y: Tensor) -> Outcome<Tensor> {
        let [batch, heads, queries, _] = self.scores;
        let lengths = [batch, heads, queries, self.attention.dim_v as i64];
        let product = self.graph.virtual_tensor(&lengths, &contiguous(&lengths), F32)?;
        let product = self.graph.pointwise(Pointwise::CUDNN_POINTWISE_MUL, &[grad, y], product, F32)?;
        let sum = self.per_row()?;
        let sum = self.graph.reduce(Reduction::CUDNN_REDUCE_TENSOR_ADD, product, sum)?;
        let (rows, one) = (self.rows, self.graph.number(Number::F32(1.0))?);
        let delta = self.graph.scratch(&rows)?;
        self.graph.pointwise(Pointwise::CUDNN_POINTWISE_MUL, &[sum, one], delta, F32)
    }

    /// Computes `to`, with one head per key head: the transpose of a per-score tensor times rows of the query heads.
    fn summed_over_queries(
        &mut self,
        per_score: Tensor,
        rows: Tensor,
        columns: usize,
        to: Tensor,
    ) -> Outcome<()> {
        let [batch, heads, queries, keys] = self.scores;
        let [_, _, row, one] = contiguous(&self.scores)[..] else { unreachable!("there are four axes") };
        let steps = [heads * queries * keys, queries * keys, one, row];
        let turned = self.graph.virtual_tensor(&[batch, heads, keys, queries], &steps, self.element)?;
        let turned = self.graph.reshape(per_score, turned)?;
        if self.attention.heads == self.attention.kv_heads {
            self.graph.matmul(turned, rows, to)?;
            return Ok(());
        }
        let lengths = [batch, heads, keys, columns as i64];
        let of_each = self.graph.virtual_tensor(&lengths, &contiguous(&lengths), self.element)?;
        let of_each = self.graph.matmul(turned, rows, of_each)?;
        self.graph.reduce(Reduction::CUDNN_REDUCE_TENSOR_ADD, of_each, to)?;
        Ok(())
    }

    /// The scaled scores plus bias, before masking.
    fn scores(&mut self, q: Tensor, k: Tensor, bias: Option<Tensor>) -> Outcome<Tensor> {
        let scores = self.over_scores(F32)?;
        let scores = self.graph.matmul(q, k, scores)?;
        let scale = self.scale()?;
        let scores = self.per_score(Pointwise::CUDNN_POINTWISE_MUL, &[scores, scale])?;
        match bias {
            Some(bias) => self.per_score(Pointwise::CUDNN_POINTWISE_ADD, &[scores, bias]),
            None => Ok(scores),
        }
    }

    fn bias(&mut self) -> Outcome<Option<Tensor>> {
        let Some(lengths) = self.attention.bias else { return Ok(None) };
        let lengths = lengths.map(|length| length as i64);
        self.graph.argument(&lengths, &contiguous(&lengths), F32).map(Some)
    }

    /// Masks the scores: negative infinity where a query does not attend to a key.
    fn masked(&mut self, scores: Tensor) -> Outcome<Tensor> {
        let Some(offset) = self.attention.causal else { return Ok(scores) };
        let (int, boolean) = (Data::CUDNN_DATA_INT32, Data::CUDNN_DATA_BOOLEAN);
        // Larger offsets have the same effect; clamped, the number fits.
        let offset = offset.min(self.scores[3]) as i32;
        let row = self.over_scores(int)?;
        let mut row = self.graph.index(2, scores, row)?;
        let column = self.over_scores(int)?;
        let column = self.graph.index(3, scores, column)?;
        if offset != 0 {
            let (shift, shifted) = (self.graph.number(Number::I32(offset))?, self.over_scores(int)?);
            row = self.graph.pointwise(Pointwise::CUDNN_POINTWISE_ADD, &[row, shift], shifted, int)?;
        }
        let visible = self.over_scores(boolean)?;
        let visible =
            self.graph.pointwise(Pointwise::CUDNN_POINTWISE_CMP_GE, &[row, column], visible, boolean)?;
        let hidden = self.graph.number(Number::F32(f32::NEG_INFINITY))?;
        self.per_score(Pointwise::CUDNN_POINTWISE_BINARY_SELECT, &[scores, hidden, visible])
    }

    fn scale(&mut self) -> Outcome<Tensor> {
        self.graph.number(Number::F32(self.attention.scale.0 as f32))
    }

    /// A pointwise function whose result has the shape of the scores; operands may broadcast.
    fn per_score(&mut self, function: Pointwise, operands: &[Tensor]) -> Outcome<Tensor> {
        let to = self.over_scores(F32)?;
        self.graph.pointwise(function, operands, to, F32)
    }

    fn over_scores(&mut self, data: Data) -> Outcome<Tensor> {
        let scores = self.scores;
        self.graph.virtual_tensor(&scores, &contiguous(&scores), data)
    }

    fn per_row(&mut self) -> Outcome<Tensor> {
        let rows = self.rows;
        self.graph.virtual_tensor(&rows, &contiguous(&rows), F32)
    }

    fn per_row_outside(&mut self) -> Outcome<Tensor> {
        let rows = self.rows;
        self.graph.argument(&rows, &contiguous(&rows), F32)
    }

    /// Lengths and strides of an operand or result.
    fn layout_of(&self, place: usize, heads: usize, rows: usize, columns: usize) -> ([i64; 4], [i64; 4]) {
        let [batch, head, row] = self.attention.steps[place].map(|step| step as i64);
        ([self.scores[0], heads as i64, rows as i64, columns as i64], [batch, head, row, 1])
    }

    fn rows_at(&mut self, place: usize, heads: usize, rows: usize, columns: usize) -> Outcome<Tensor> {
        let (lengths, steps) = self.layout_of(place, heads, rows, columns);
        self.graph.argument(&lengths, &steps, self.element)
    }

    /// The transposed layout, as the second factor of a matmul.
    fn columns_at(&mut self, place: usize, heads: usize, rows: usize, columns: usize) -> Outcome<Tensor> {
        let ([batch, heads, rows, columns], [per_batch, per_head, per_row, one]) =
            self.layout_of(place, heads, rows, columns);
        self.graph.argument(
            &[batch, heads, columns, rows],
            &[per_batch, per_head, one, per_row],
            self.element,
        )
    }
}
