//! Attention, by the method of `AnyTensor`.

use super::call::{Call, Outputs, one};
use kiln_tensor::module::{AttentionOptions, Causal};

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let input = |name: &str| call.input(name).clone();
    let causal = if call.flag("causal") { Causal::First } else { Causal::No };
    let options = AttentionOptions { scale: call.optional_real("scale"), causal };
    let mask = call.optional("mask").cloned();
    let y = input("query").attention(input("key"), input("value"), mask, options);
    one(y.unwrap_or_else(|error| panic!("{error}")))
}
