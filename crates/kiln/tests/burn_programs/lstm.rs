//! An LSTM classifier with a hand-written cell: does a bit sequence contain more ones in its first half?

use kiln as burn;

use burn::backend::{Autodiff, Flex};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams, Optimizer};
use burn::prelude::*;
use burn::tensor::activation;
use burn::tensor::backend::AutodiffBackend;

#[derive(Module, Debug, Clone)]
struct LstmCell<B: Backend> {
    input: nn::Linear<B>,
    hidden: nn::Linear<B>,
    d_hidden: usize,
}

struct LstmState<B: Backend> {
    cell: Tensor<B, 2>,
    hidden: Tensor<B, 2>,
}

impl<B: Backend> LstmCell<B> {
    fn new(d_input: usize, d_hidden: usize, device: &B::Device) -> Self {
        Self {
            input: nn::LinearConfig::new(d_input, 4 * d_hidden).init(device),
            hidden: nn::LinearConfig::new(d_hidden, 4 * d_hidden).with_bias(false).init(device),
            d_hidden,
        }
    }

    fn forward(&self, x: Tensor<B, 2>, state: LstmState<B>) -> LstmState<B> {
        let gates = self.input.forward(x) + self.hidden.forward(state.hidden);
        let gates: Vec<Tensor<B, 2>> = gates.chunk(4, 1);
        let [input, forget, update, output]: [Tensor<B, 2>; 4] = gates.try_into().unwrap();
        let cell =
            activation::sigmoid(forget) * state.cell + activation::sigmoid(input) * activation::tanh(update);
        let hidden = activation::sigmoid(output) * cell.clone().tanh();
        LstmState { cell, hidden }
    }
}

#[derive(Module, Debug, Clone)]
struct Classifier<B: Backend> {
    embedding: nn::Embedding<B>,
    lstm: LstmCell<B>,
    output: nn::Linear<B>,
}

impl<B: Backend> Classifier<B> {
    fn new(device: &B::Device) -> Self {
        Self {
            embedding: nn::EmbeddingConfig::new(2, 6).init(device),
            lstm: LstmCell::new(6, 12, device),
            output: nn::LinearConfig::new(12, 2).init(device),
        }
    }

    /// `[batch, length]` to `[batch, classes]`.
    fn forward(&self, tokens: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let [batch, length] = tokens.dims();
        let device = tokens.device();
        let x = self.embedding.forward(tokens);
        let zeros = || Tensor::zeros([batch, self.lstm.d_hidden], &device);
        let mut state = LstmState { cell: zeros(), hidden: zeros() };
        for step in 0..length {
            let x = x.clone().slice([0..batch, step..step + 1, 0..6]).squeeze_dim(1);
            state = self.lstm.forward(x, state);
        }
        self.output.forward(state.hidden)
    }
}

/// All sequences of six bits with unequal halves, and whether the first half has more ones.
fn sequences<B: Backend>(device: &B::Device) -> (Tensor<B, 2, Int>, Tensor<B, 1, Int>) {
    let ones = |bits: u32| i64::from(bits.count_ones());
    let unequal: Vec<u32> = (0..64).filter(|bits| ones(bits & 7) != ones(bits >> 3)).collect();
    let tokens: Vec<i64> =
        unequal.iter().flat_map(|bits| (0..6).map(move |step| i64::from(bits >> step & 1))).collect();
    let targets: Vec<i64> = unequal.iter().map(|bits| i64::from(ones(bits & 7) > ones(bits >> 3))).collect();
    let n = unequal.len();
    let tokens = Tensor::from_data(TensorData::new(tokens, [n, 6]).unwrap(), device);
    (tokens, Tensor::from_data(TensorData::new(targets, [n]).unwrap(), device))
}

fn train<B: AutodiffBackend>(device: &B::Device) -> f32 {
    B::seed(device, 5);
    let (tokens, targets) = sequences::<B>(device);
    let mut model = Classifier::<B>::new(device);
    let mut optim = AdamConfig::new().init();
    let loss_fn = CrossEntropyLossConfig::new().init(device);
    for _ in 0..150 {
        let loss = loss_fn.forward(model.forward(tokens.clone()), targets.clone());
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optim.step(0.03, model, grads);
    }
    let hits = model.valid().forward(tokens.inner()).argmax(1).squeeze_dim::<1>(1).equal(targets.inner());
    hits.float().mean().into_scalar::<f32>()
}

#[test]
fn an_lstm_classifier_compares_the_halves_of_a_sequence() {
    let accuracy = train::<Autodiff<Flex>>(&Default::default());
    assert!(accuracy > 0.95, "{accuracy}");
}
