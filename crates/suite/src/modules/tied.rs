//! An embedding and an output layer that share their weights, trained as in PyTorch.

use crate::check::Outcome;
use crate::engines::Subject;
use kiln_backends::{Device, Dyn};
use kiln_nn::{Embedding, EmbeddingConfig, GradientsParams, Linear, LinearConfig, Module, Param};
use kiln_optim::{AdamConfig, AdamWConfig, GradientClipping, Optimizer, SgdConfig};
use kiln_store::{load_module, load_optimizer, save_module, save_optimizer};
use kiln_tensor::loss::cross_entropy;
use kiln_tensor::{DType, Int, Tensor};

/// A language model of five tokens.
#[derive(Clone, Debug, Module)]
struct Model {
    embed: Embedding<Dyn>,
    head: Linear<Dyn>,
}

const WEIGHT: [[f64; 3]; 5] =
    [[0.5, -0.25, 1.0], [-1.0, 0.75, 0.25], [0.125, 0.5, -0.5], [1.5, -1.0, 0.5], [-0.75, -0.5, 0.25]];
const BIAS: [f64; 5] = [0.1, -0.2, 0.3, 0.0, -0.1];
/// Inputs and targets of two batches.
const TOKENS: [[[[i32; 3]; 2]; 2]; 2] =
    [[[[0, 1, 2], [3, 1, 4]], [[1, 2, 3], [1, 4, 0]]], [[[4, 4, 0], [2, 3, 1]], [[4, 0, 3], [3, 1, 2]]]];

impl Model {
    fn new(dtype: DType, device: &Device) -> Model {
        let mut model = Model {
            embed: EmbeddingConfig::new(5, 3).init(device),
            head: LinearConfig::new(3, 5).init(device),
        };
        model.embed.weight = Param::from_tensor(Tensor::from_data_dtype(WEIGHT, dtype, device));
        model.head.weight = model.embed.weight.clone();
        model.head.bias = Some(Param::from_tensor(Tensor::from_data_dtype(BIAS, dtype, device)));
        model
    }

    fn loss(&self, batch: usize, device: &Device) -> Tensor<Dyn, 1> {
        let [x, y] = TOKENS[batch % 2].map(|tokens| Tensor::<Dyn, 2, Int>::from_ints(tokens, device));
        let logits = self.head.forward(self.embed.forward(x).tanh());
        cross_entropy(logits.flatten::<2>(0, 1), y.flatten::<1>(0, 1), &Default::default())
    }

    fn step(
        &mut self,
        run: &Run,
        optimizer: &mut dyn Optimizer,
        step: usize,
        device: &Device,
    ) -> Result<(), String> {
        for pass in 0..run.passes {
            let batch = if run.passes == 1 { step } else { pass };
            let gradients = GradientsParams::from_grads(self.loss(batch, device).backward(), self);
            optimizer.update(run.rate, self, gradients).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The weights of one place and the bias.
    fn numbers(&self, weight: &Param<Tensor<Dyn, 2>>) -> Vec<f64> {
        let numbers = weight.to_data().convert(DType::F64).to_vec::<f64>();
        let bias =
            self.head.bias.as_ref().map_or(Vec::new(), |bias| bias.to_data().convert(DType::F64).to_vec());
        [numbers, bias].concat()
    }
}

/// Three steps with an optimizer.
struct Run {
    name: &'static str,
    new: fn() -> Box<dyn Optimizer>,
    rate: f64,
    /// Backward passes of a step.
    passes: usize,
    /// The numbers of PyTorch 1.13 in f64.
    expected: [f64; 20],
}

#[rustfmt::skip]
const RUNS: &[Run] = &[
    Run { name: "sgd", new: || Box::new(SgdConfig::new().init()), rate: 0.5, passes: 1, expected: [
        0.223947446, -0.212496343, 0.945811310, -0.554645349, 0.438240374, 0.269810448, 0.314882858, 0.389682887,
        -0.390500537, 1.340989360, -0.638178661, 0.286216331, -0.765814980, -0.478297403, 0.388019484, 0.042463815,
        -0.077859962, 0.258393708, -0.005283236, -0.117714325,
    ] },
    Run { name: "momentum", new: || Box::new(SgdConfig::new().with_momentum(0.9).init()), rate: 0.3, passes: 1, expected: [
        0.167109895, -0.193078293, 0.934329169, -0.466914241, 0.368808501, 0.276996408, 0.360888527, 0.362334211,
        -0.361040600, 1.305543491, -0.576821118, 0.239891726, -0.766292021, -0.479207638, 0.417154390, 0.042865213,
        -0.075745534, 0.254990814, -0.008746838, -0.113363655,
    ] },
    Run { name: "adam", new: || Box::new(AdamConfig::new().init()), rate: 0.1, passes: 1, expected: [
        0.269784672, -0.137369978, 0.751449035, -0.703169016, 0.468808422, 0.327244415, 0.410751988, 0.217470812,
        -0.210861245, 1.220601412, -0.703060426, 0.238051042, -0.751430342, -0.403727265, 0.538202907, -0.193943400,
        0.011535467, 0.048220842, -0.071579690, -0.141262327,
    ] },
    Run { name: "adam, weight decay", new: || Box::new(AdamConfig::new().with_weight_decay(0.1).init()), rate: 0.1, passes: 1, expected: [
        0.255062501, -0.109033911, 0.707634074, -0.702624603, 0.463236403, 0.262138949, 0.399718935, 0.211487617,
        -0.209174958, 1.206260575, -0.702647917, 0.226865095, -0.464420536, -0.317924030, 0.514297476, -0.185449321,
        0.026288424, 0.024444955, -0.061467769, -0.101735202,
    ] },
    Run { name: "adamw", new: || Box::new(AdamWConfig::new().with_weight_decay(0.1).init()), rate: 0.1, passes: 1, expected: [
        0.258161960, -0.132338215, 0.725890401, -0.676682370, 0.449997378, 0.318466951, 0.403561732, 0.206704709,
        -0.200346803, 1.179232894, -0.676626508, 0.227171652, -0.735603028, -0.390636342, 0.527443370, -0.194331954,
        0.015403053, 0.038274356, -0.068511958, -0.139881875,
    ] },
    Run { name: "sgd, accumulated", new: || Box::new(SgdConfig::new().init().with_accumulation(2).expect("two passes")), rate: 0.5, passes: 2, expected: [
        0.289053054, -0.258700426, 0.948423597, -0.565731226, 0.477013175, 0.241689641, 0.313109270, 0.400073914,
        -0.388762017, 1.362638641, -0.642780289, 0.309727822, -0.773779607, -0.523371341, 0.387658547, 0.041238351,
        -0.109034578, 0.262792842, 0.028736718, -0.123733334,
    ] },
    Run { name: "sgd, clipped", new: || Box::new(SgdConfig::new().with_grad_clipping(GradientClipping::GlobalNorm(0.1)).init()), rate: 0.5, passes: 1, expected: [
        0.457215158, -0.245025902, 0.990655734, -0.924607222, 0.696809913, 0.252815502, 0.159994120, 0.480335207,
        -0.478846077, 1.472997053, -0.939862098, 0.463417962, -0.752103884, -0.501317227, 0.273900939, 0.093049051,
        -0.186658748, 0.294171258, 0.000932107, -0.101493668,
    ] },
];

/// Six steps with Adam, in PyTorch.
#[rustfmt::skip]
const SIX: [f64; 20] = [
    0.103047057, -0.186316820, 0.727949295, -0.410143374, 0.219351552, 0.201522095, 0.615478027, 0.014295076,
    -0.019361814, 0.977335106, -0.422219051, 0.059465154, -0.905854682, -0.425166644, 0.785751367, -0.420637606,
    0.132160601, -0.108221823, 0.012296165, -0.410798783,
];

/// The dtypes of the model and the largest differences from PyTorch's numbers.
const DTYPES: [(DType, f64); 2] = [(DType::F64, 1e-8), (DType::F32, 5e-6)];

/// Trains the model on an engine: after three steps with each optimizer, both places hold PyTorch's weights. Adam also
/// continues from files.
pub fn check_tied(subject: &Subject) -> Outcome {
    let mut outcome = Outcome::default();
    let device = Device::from_engine((subject.open)(), subject.name).autodiff();
    for (dtype, tolerance) in DTYPES {
        let place = |name: &str| format!("{name} on {} {dtype}", subject.name);
        for run in RUNS {
            let mut optimizer = (run.new)();
            let trained = trained(Model::new(dtype, &device), run, &mut *optimizer, 0..3, &device);
            let compared = trained.and_then(|model| compare(&model, &run.expected, tolerance));
            outcome.note(&place(run.name), compared.err());
        }
        let resumed = resumed(dtype, &device).and_then(|model| compare(&model, &SIX, tolerance));
        outcome.note(&place("adam, resumed"), resumed.err());
    }
    outcome
}

fn trained(
    mut model: Model,
    run: &Run,
    optimizer: &mut dyn Optimizer,
    steps: std::ops::Range<usize>,
    device: &Device,
) -> Result<Model, String> {
    for step in steps {
        model.step(run, optimizer, step, device)?;
    }
    Ok(model)
}

/// Three steps with Adam, and three more after saving and loading.
fn resumed(dtype: DType, device: &Device) -> Result<Model, String> {
    let run = RUNS.iter().find(|run| run.name == "adam").ok_or("no run of Adam")?;
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let folder = tempfile::tempdir().map_err(|error| text(&error))?;
    let [weights, state] =
        ["model.safetensors", "optimizer.safetensors"].map(|name| folder.path().join(name));
    let mut optimizer = (run.new)();
    let model = trained(Model::new(dtype, device), run, &mut *optimizer, 0..3, device)?;
    save_module(&model, &weights).map_err(|error| text(&error))?;
    save_optimizer(&*optimizer, &model, &state).map_err(|error| text(&error))?;

    let mut optimizer = (run.new)();
    let model = load_module(Model::new(dtype, device), &weights).map_err(|error| text(&error))?;
    load_optimizer(&mut *optimizer, &model, &state).map_err(|error| text(&error))?;
    trained(model, run, &mut *optimizer, 3..6, device)
}

fn compare(model: &Model, expected: &[f64], tolerance: f64) -> Result<(), String> {
    for (place, weight) in [("embed", &model.embed.weight), ("head", &model.head.weight)] {
        let found = model.numbers(weight);
        let worst = expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        if found.len() != expected.len() || found.iter().any(|x| x.is_nan()) || worst > tolerance {
            return Err(format!("{place} differs by {worst}: {found:?}"));
        }
    }
    Ok(())
}
