//! Recurrent modules and their cells.

use super::call::{Call, Outputs, one};
use super::module::{with_inputs, with_state_dict};
use kiln_backends::Dyn;
use kiln_nn::ModuleOn;
use kiln_nn::rnn::{
    GruCellConfig, GruConfig, LstmCellConfig, LstmConfig, LstmState, Nonlinearity, RnnCellConfig, RnnConfig,
};
use kiln_tensor::Tensor;

/// The inputs that are not parameters.
const OTHERS: [&str; 3] = ["x", "hidden", "cell"];

/// The family `recurrent`: outputs and last states as one vector.
pub(crate) fn run(call: &Call<'_>) -> Outputs {
    match &*call.op {
        "lstm" | "gru" | "rnn" => {
            one(joined(layers(call, &Load { by_name: true }).iter().map(flat).collect()))
        }
        "lstm_cell" | "gru_cell" | "rnn_cell" => one(joined(cell(call).iter().map(flat).collect())),
        op => panic!("unknown op {op}"),
    }
}

/// Modules of one layer, whose inputs have the names of the weights without the number of the layer.
pub(crate) fn one_layer(call: &Call<'_>) -> Outputs {
    let outputs = layers(call, &Load { by_name: false });
    Ok(outputs.into_iter().map(|output| Some(output.into_any())).collect())
}

fn flat<const D: usize>(x: &Tensor<Dyn, D>) -> Tensor<Dyn, 1> {
    x.clone().reshape([-1])
}

fn joined(parts: Vec<Tensor<Dyn, 1>>) -> kiln_tensor::AnyTensor {
    Tensor::cat(parts, 0).into_any()
}

/// Replaces the parameters by inputs of the case.
struct Load {
    /// Whether inputs have the names of the parameters, or those without the number of the layer.
    by_name: bool,
}

impl Load {
    fn load<M: ModuleOn<Dyn, On = M>>(&self, call: &Call<'_>, module: M) -> M {
        match self.by_name {
            true => with_state_dict(call, module, &OTHERS),
            false => with_inputs(call, module, |name| name.replace("_l0", "")),
        }
    }
}

/// The outputs, then the last states.
fn layers(call: &Call<'_>, load: &Load) -> Vec<Tensor<Dyn, 3>> {
    let x = call.tensor::<3>("x");
    let hidden = call.optional_tensor::<3>("hidden");
    let gates = if call.op == "lstm" {
        4
    } else if call.op == "gru" {
        3
    } else {
        1
    };
    let weight = if load.by_name { "weight_hh_l0" } else { "weight_hh" };
    let (d_input, d_hidden) = (x.dims()[2], call.input(weight).shape()[0] / gates);
    let lengths = call.optional_counts("lengths");
    macro_rules! config {
        ($config:ident) => {
            $config::new(d_input, d_hidden, has_bias(call))
                .with_num_layers(call.attributes["layers"].as_u64().unwrap_or(1) as usize)
                .with_bidirectional(call.flag("bidirectional"))
                .with_batch_first(call.attributes["batch_first"].as_bool().unwrap_or(true))
        };
    }
    macro_rules! forward {
        ($module:ident, $state:expr) => {
            match lengths {
                Some(lengths) => $module.forward_packed(x, &lengths, $state),
                None => $module.forward(x, $state),
            }
        };
    }
    match &*call.op {
        "lstm" => {
            let projection = call.attributes["proj_size"].as_u64().map(|size| size as usize);
            let lstm =
                load.load(call, config!(LstmConfig).with_projection(projection).init::<Dyn>(&call.device));
            let state = hidden.zip(call.optional_tensor("cell"));
            let (y, last) = forward!(lstm, state.map(|(hidden, cell)| LstmState { hidden, cell }));
            vec![y, last.hidden, last.cell]
        }
        "gru" => {
            let gru = load.load(call, config!(GruConfig).init::<Dyn>(&call.device));
            let (y, last) = forward!(gru, hidden);
            vec![y, last]
        }
        _ => {
            let config = config!(RnnConfig).with_nonlinearity(nonlinearity(call));
            let rnn = load.load(call, config.init::<Dyn>(&call.device));
            let (y, last) = forward!(rnn, hidden);
            vec![y, last]
        }
    }
}

/// The new states of a cell.
fn cell(call: &Call<'_>) -> Vec<Tensor<Dyn, 2>> {
    let x = call.tensor::<2>("x");
    let hidden = call.optional_tensor::<2>("hidden");
    let (d_input, d_hidden) = (x.dims()[1], call.input("weight_hh").shape()[1]);
    match &*call.op {
        "lstm_cell" => {
            let config = LstmCellConfig::new(d_input, d_hidden, has_bias(call));
            let cell = with_state_dict(call, config.init::<Dyn>(&call.device), &OTHERS);
            let state = hidden.zip(call.optional_tensor("cell"));
            let LstmState { hidden, cell } =
                cell.forward(x, state.map(|(hidden, cell)| LstmState::new(cell, hidden)));
            vec![hidden, cell]
        }
        "gru_cell" => {
            let config = GruCellConfig::new(d_input, d_hidden, has_bias(call));
            let cell = with_state_dict(call, config.init::<Dyn>(&call.device), &OTHERS);
            vec![cell.forward(x, hidden)]
        }
        _ => {
            let config = RnnCellConfig::new(d_input, d_hidden, has_bias(call));
            let config = config.with_nonlinearity(nonlinearity(call));
            let cell = with_state_dict(call, config.init::<Dyn>(&call.device), &OTHERS);
            vec![cell.forward(x, hidden)]
        }
    }
}

fn has_bias(call: &Call<'_>) -> bool {
    call.inputs.iter().any(|name| name.contains("bias"))
}

fn nonlinearity(call: &Call<'_>) -> Nonlinearity {
    match call.text("nonlinearity") {
        "relu" => Nonlinearity::Relu,
        "tanh" => Nonlinearity::Tanh,
        other => panic!("unknown nonlinearity {other}"),
    }
}
