//! Modules of `kiln_nn` whose weights have a layout that a reader of PyTorch files must match.

use super::call::{Call, Outputs};
use super::{recurrent, transformer};
use kiln_backends::Dyn;
use kiln_nn::{ModuleOn, Param, Path};
use kiln_tensor::Tensor;
use std::collections::BTreeSet;

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    match &*call.op {
        "lstm" | "gru" | "rnn" => recurrent::one_layer(call),
        "multi_head_attention" | "transformer_encoder_layer" => transformer::run(call),
        op => panic!("unknown op {op}"),
    }
}

/// The module with inputs of the case as its parameters; `input_of` returns the input of a path. The inputs are leaves
/// of the case, so their gradients are those of the parameters.
pub(crate) fn with_inputs<M: ModuleOn<Dyn, On = M>>(
    call: &Call<'_>,
    module: M,
    input_of: impl Fn(&str) -> String,
) -> M {
    module.on(&mut Path::new(), &mut |path, _| call.input(&input_of(path.as_str())).clone())
}

/// The module with all inputs of the case but `others` as its parameters, by name.
///
/// # Panics
/// When the names of the parameters are not those of the inputs.
pub(crate) fn with_state_dict<M: ModuleOn<Dyn, On = M>>(call: &Call<'_>, module: M, others: &[&str]) -> M {
    let stored: BTreeSet<&str> =
        call.inputs.iter().map(String::as_str).filter(|name| !others.contains(name)).collect();
    let parameters = module.named_parameters();
    let own: BTreeSet<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(own, stored, "the parameters and the inputs have other names");
    with_inputs(call, module, str::to_string)
}

/// An input as a parameter.
pub(crate) fn param<const D: usize>(call: &Call<'_>, name: &str) -> Param<Tensor<Dyn, D>> {
    Param::from_tensor(call.tensor(name))
}

/// An input as a parameter, if the case has it.
pub(crate) fn optional_param<const D: usize>(call: &Call<'_>, name: &str) -> Option<Param<Tensor<Dyn, D>>> {
    call.optional_tensor(name).map(Param::from_tensor)
}
