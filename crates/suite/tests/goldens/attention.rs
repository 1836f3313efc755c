//! Attention.

use crate::call::{Call, Outputs, one};
use kiln_ir::{AttentionSpec, Op, Real, Var};
use kiln_tensor::module::{self, AttentionMask, AttentionOptions};

/// By the public function; but where queries and keys differ in number it aligns a causal mask at the last query,
/// PyTorch at the first: the op can do both.
pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let (q, k) = (call.input("query").shape(), call.input("key").shape());
    let causal = call.flag("causal");
    let mask = call.optional("mask");
    let wide = mask.is_some_and(|mask| mask.rank() != 4);
    if wide || (causal && q[2] != k[2]) {
        return one(call.done(by_op(call, causal)));
    }
    let options = AttentionOptions { scale: call.optional_real("scale"), causal };
    let mask = mask.cloned().map(|mask| match mask.dtype().is_bool() {
        true => AttentionMask::Visible(mask.try_into_tensor().expect("a bool mask")),
        false => AttentionMask::Additive(mask.try_into_tensor().expect("a float mask")),
    });
    let y = module::attention(call.tensor("query"), call.tensor("key"), call.tensor("value"), mask, options);
    one(y.into_any())
}

fn by_op<'c>(call: &'c Call<'_>, causal: bool) -> Var<'c> {
    let (q, k, v) = (call.var("query"), call.var("key"), call.var("value"));
    let scale = call.optional_real("scale").unwrap_or(1.0 / (q.shape()[3] as f64).sqrt());
    let mask = call.optional_var("mask").map(|mask| {
        let mut shape = vec![1; 4 - mask.rank()];
        shape.extend_from_slice(&mask.shape());
        mask.reshape(shape)
    });
    let op = Op::Attention(AttentionSpec { scale: Real(scale), causal: causal.then_some(0) });
    let mut inputs = vec![&q, &k, &v];
    inputs.extend(&mask);
    call.emit(op, &inputs).remove(0)
}
