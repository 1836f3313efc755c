//! Layers whose weight is computed: weight normalisation and spectral normalisation.

use super::call::{Call, Outputs};
use super::module::with_inputs;
use kiln_backends::Dyn;
use kiln_nn::conv::{Conv1dConfig, ConvTranspose1d, ConvTranspose1dConfig};
use kiln_nn::reparametrize::{Parametrization, Reparametrized, SpectralNormConfig, WeightNormConfig};
use kiln_nn::{Conv1d, Linear, LinearConfig, Module, ModuleOn};
use kiln_tensor::{AnyTensor, Backend};

/// The end of a parameter's path, and its input.
type Names = &'static [(&'static str, &'static str)];

const WEIGHT_NORM: Names =
    &[("parametrizations.weight.original0", "g"), ("parametrizations.weight.original1", "v")];
const SPECTRAL_NORM: Names = &[
    ("parametrizations.weight.original", "weight"),
    ("parametrizations.weight.0._u", "u"),
    ("parametrizations.weight.0._v", "v"),
];

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let wrapped = "the layer has a weight";
    match &*call.op {
        "weight_norm" => {
            let dim = call.attributes["dim"].as_u64().map(|dim| dim as usize);
            let layer = Layer::new(call, call.input("v").shape());
            let model = WeightNormConfig::new().with_dim(dim).init(layer).expect(wrapped);
            outputs(call, model, WEIGHT_NORM)
        }
        "spectral_norm" => {
            let config = SpectralNormConfig::new().with_dim(call.count("dim"));
            let layer = Layer::new(call, call.input("weight").shape());
            let model = config.with_iterations(call.count("iterations")).init(layer).expect(wrapped);
            outputs(call, model, SPECTRAL_NORM)
        }
        op => panic!("unknown op {op}"),
    }
}

/// The output of the last pass, then the buffers after it.
fn outputs<P: Parametrization>(call: &Call<'_>, model: Reparametrized<Layer<Dyn>, P>, names: Names) -> Outputs
where
    Reparametrized<Layer<Dyn>, P>: ModuleOn<Dyn, On = Reparametrized<Layer<Dyn>, P>>,
{
    let input_of = |path: &str| {
        let found = names.iter().find(|(name, _)| path.ends_with(name));
        found.unwrap_or_else(|| panic!("no input is the parameter {path}")).1.to_string()
    };
    let steps = call.attributes["steps"].as_u64().unwrap_or(1);
    let model = if steps == 0 { model.eval() } else { model.train() };
    let model = with_inputs(call, model, input_of);
    (1..steps).for_each(|_| drop(model.module()));
    let y = model.module().forward(call.input("x").clone());
    let buffers = model.named_parameters().into_iter().filter(|(_, parameter)| parameter.is_buffer());
    Ok([Some(y)].into_iter().chain(buffers.map(|(_, parameter)| Some(parameter.value))).collect())
}

/// A layer without bias.
#[derive(Module, Clone, Debug)]
enum Layer<B: Backend> {
    Linear(Linear<B>),
    Conv(Conv1d<B>),
    ConvTranspose(ConvTranspose1d<B>),
}

impl Layer<Dyn> {
    fn new(call: &Call<'_>, shape: &[usize]) -> Layer<Dyn> {
        let device = &call.device;
        match call.text("layer") {
            "linear" => Layer::Linear(LinearConfig::new(shape[1], shape[0]).with_bias(false).init(device)),
            "conv1d" => {
                let config = Conv1dConfig::new([shape[1], shape[0]], [shape[2]]);
                Layer::Conv(config.with_bias(false).init(device))
            }
            "conv_transpose1d" => {
                let config = ConvTranspose1dConfig::new([shape[0], shape[1]], [shape[2]]);
                Layer::ConvTranspose(config.with_bias(false).init(device))
            }
            other => panic!("unknown layer {other}"),
        }
    }

    fn forward(&self, x: AnyTensor) -> AnyTensor {
        match self {
            Layer::Linear(layer) => layer.forward(super::call::typed::<2>(x)).into_any(),
            Layer::Conv(layer) => layer.forward(super::call::typed(x)).into_any(),
            Layer::ConvTranspose(layer) => layer.forward(super::call::typed(x)).into_any(),
        }
    }
}
