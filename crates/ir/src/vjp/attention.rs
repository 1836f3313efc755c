//! The gradient rule of attention.

use super::{Gradients, Rule, index_dtype};
use crate::{AttentionSpec, Comparison, DType, Op, Operands, Scalar, TensorType, Var};
use alloc::vec::Vec;

impl<'e> Rule<'_, 'e> {
    /// Gradients of queries, keys and values by [`Op::AttentionGrad`], and of an additive mask by simpler ops.
    pub(super) fn attention(&self, spec: AttentionSpec) -> Gradients<'e> {
        let mut gradients = self.zero();
        if self.wanted[..3].contains(&true) {
            for (place, found) in self.attention_operands(spec).into_iter().enumerate() {
                gradients[place] = found.filter(|_| self.wanted[place]);
            }
        }
        if self.wanted.get(3) == Some(&true) {
            gradients[3] = Some(self.mask_gradient(spec));
        }
        gradients
    }

    fn attention_operands(&self, spec: AttentionSpec) -> [Option<Var<'e>>; 3] {
        let [mut dq, mut dk, mut dv] = [None, None, None];
        if let Some(g) = &self.gradients[0] {
            [dq, dk, dv] = self.attention_grad(spec, g, self.x(2), self.y()).map(Some);
        }
        if let Some(g) = &self.gradients[1] {
            let (q_part, k_part) = self.lse_gradients(spec, g);
            dq = Some(sum(dq, q_part));
            dk = Some(sum(dk, k_part));
        }
        [dq, dk, dv]
    }

    /// With `p` the attention weights, the derivative of the log-sum-exp by the scores is `p`. Its gradient for the
    /// queries is therefore attention with the keys as values, and for the keys the gradient of those values.
    fn lse_gradients(&self, spec: AttentionSpec, g: &Var<'e>) -> (Var<'e>, Var<'e>) {
        let (q, k) = (self.x(0), self.x(1));
        let g = (g * spec.scale.0).reshape(g.shape().inserted(3, 1)).cast(q.dtype());
        let mut operands: Operands = [q, k, k].into_iter().map(|var| var.operand().clone()).collect();
        operands.extend(self.inputs.get(3).map(|mask| mask.operand().clone()));
        let seen = Var::emit(self.engine(), &Op::Attention(spec), operands).remove(0);
        let [_, _, dk] = self.attention_grad(spec, &(&g * q), k, &seen);
        (g * seen, dk)
    }

    fn attention_grad(&self, spec: AttentionSpec, g: &Var<'e>, v: &Var<'e>, y: &Var<'e>) -> [Var<'e>; 3] {
        let operands =
            [g, self.x(0), self.x(1), v, y, &self.outputs[1]].into_iter().chain(self.inputs.get(3));
        let operands: Operands = operands.map(|var| var.operand().clone()).collect();
        let mut found = Var::emit(self.engine(), &Op::AttentionGrad(spec), operands).into_iter();
        [(); 3].map(|()| found.next().expect("attention_grad has three results"))
    }

    /// `p * (g · v - g · y + g_lse)`, summed over the broadcast axes of the mask.
    fn mask_gradient(&self, spec: AttentionSpec) -> Var<'e> {
        let mask = self.x(3);
        let wide = mask.dtype().accumulator();
        let mut inner = None;
        if let Some(g) = &self.gradients[0] {
            let g = g.cast(wide);
            let through_weights = g.matmul(&self.each_head(2, wide).transpose());
            inner = Some(through_weights - (&g * self.y().cast(wide)).sum(&[3]));
        }
        if let Some(g) = &self.gradients[1] {
            inner = Some(sum(inner, g.reshape(g.shape().inserted(3, 1)).cast(wide)));
        }
        let weights = self.weights(spec, wide);
        let inner = inner.unwrap_or_else(|| Var::zeros(self.engine(), weights.ty()));
        (weights * inner).sum_to(mask.shape()).cast(mask.dtype())
    }

    /// The attention weights, `[batch, heads, queries, keys]`.
    fn weights(&self, spec: AttentionSpec, wide: DType) -> Var<'e> {
        let scores = self.x(0).cast(wide).matmul(&self.each_head(1, wide).transpose()) * spec.scale.0;
        let scores = scores + self.x(3).cast(wide);
        let scores = match spec.causal {
            None => scores,
            Some(offset) => self.visible(&scores, offset).select(&scores, &scores.scalar(f64::NEG_INFINITY)),
        };
        let lse = &self.outputs[1];
        let lse = lse.reshape(lse.shape().inserted(3, 1)).cast(wide);
        // A fully masked query has -inf here; its weights are 0, not exp(-inf + inf).
        let nothing = lse.scalar(f64::NEG_INFINITY);
        let lse = lse.equal(&nothing).select(&lse.scalar(0.0), &lse);
        (scores - lse).exp()
    }

    /// The causal mask.
    fn visible(&self, scores: &Var<'e>, offset: i64) -> Var<'e> {
        let shape = scores.shape();
        let (queries, keys) = (shape[2], shape[3]);
        let index = index_dtype(queries.saturating_add(keys));
        let along = |axis: usize| {
            let ty = TensorType::new([1, 1, queries, keys], index);
            Var::iota(scores.engine(), ty, axis)
        };
        let furthest = (queries.saturating_add(keys)) as i64;
        let offset = Scalar::Int(offset.clamp(-furthest, furthest));
        let ahead = along(3) - along(2);
        ahead.compare(Comparison::Le, &ahead.scalar(offset)).broadcast(shape)
    }

    /// Keys or values, repeated for each query head.
    fn each_head(&self, place: usize, wide: DType) -> Var<'e> {
        let (heads, shared) = (self.x(0).shape()[1], self.x(place).cast(wide));
        let shape = shared.shape();
        if shape[1] == heads {
            return shared;
        }
        let group = heads / shape[1];
        let repeated: Vec<usize> = alloc::vec![shape[0], shape[1], group, shape[2], shape[3]];
        shared.reshape(shape.inserted(2, 1)).broadcast(repeated).reshape(shape.with(1, heads))
    }
}

fn sum<'e>(sum: Option<Var<'e>>, part: Var<'e>) -> Var<'e> {
    match sum {
        Some(sum) => sum + part,
        None => part,
    }
}
