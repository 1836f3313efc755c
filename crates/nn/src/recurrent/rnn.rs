//! Recurrent networks without gates.

use super::lengths::SequenceLengths;
use super::run::{run, run_cell};
use super::unit::{Nonlinearity, RnnUnit};
use super::weights::{
    LayerSettings, RecurrentLayers, RecurrentWeights, default_initializer, recurrent_modules,
};
use crate::{Config, Initializer, Module, Param};
use alloc::vec;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Int, Tensor};

/// Settings of [`Rnn`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct RnnConfig {
    /// Number of input features.
    pub d_input: usize,
    /// Number of features of the hidden state.
    pub d_hidden: usize,
    /// Whether to add biases.
    pub bias: bool,
    /// Number of layers. Each layer has the outputs of the one before as inputs. Default: 1.
    #[config(default = 1)]
    pub num_layers: usize,
    /// Whether each layer also runs from the last step to the first, with weights of its own. Default: false.
    #[config(default = false)]
    pub bidirectional: bool,
    /// The activation. Default: [`Nonlinearity::Tanh`].
    #[config(default = Nonlinearity::Tanh)]
    pub nonlinearity: Nonlinearity,
    /// The probability of [dropout](crate::Dropout) on the outputs of each layer except the last. Default: 0.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Whether inputs and outputs are `[batch, length, features]` instead of `[length, batch, features]`. Default:
    /// true (PyTorch: false).
    #[config(default = true)]
    pub batch_first: bool,
    /// The initializer of weights and biases. Default: uniform over `±1 / √d_hidden`, as in PyTorch.
    pub initializer: Option<Initializer>,
}

/// A recurrent network without gates ([Elman 1990](https://doi.org/10.1207/s15516709cog1402_1)), of several layers and
/// of one or two directions.
///
/// Each step computes the hidden state `h` from its input `x`:
///
/// ```text
/// h' = tanh(W_ih x + b_ih + W_hh h + b_hh)    or ReLU in place of tanh
/// ```
///
/// The definition, the names and the shapes of the parameters are those of
/// [`torch.nn.RNN`](https://docs.pytorch.org/docs/stable/generated/torch.nn.RNN.html): `weight_ih_l0`
/// `[d_hidden, d_input]`. A state dict of PyTorch loads without renames.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::rnn::RnnConfig;
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let module = RnnConfig::new(3, 8, true).with_bidirectional(true).init::<Flex>(&device);
/// let x = Tensor::<Flex, 3>::ones([4, 5, 3], &device); // 4 sequences of 5 steps
/// let (y, state) = module.forward(x.clone(), None);
/// assert_eq!(y.dims(), [4, 5, 2 * 8]);
/// assert_eq!(state.dims(), [2, 4, 8]); // [layers * directions, batch, d_hidden]
/// // The next steps continue from the state.
/// let (_, _state) = module.forward(x, Some(state));
/// ```
///
/// Differences from Burn: a layer has two matrices instead of a `GateController`; layers and directions are options of
/// one module; states have an axis for layers and directions.
#[derive(Clone, Debug)]
pub struct Rnn<B: Backend = Dyn> {
    /// The layers.
    pub layers: RecurrentLayers<B>,
    /// The activation.
    pub nonlinearity: Nonlinearity,
}

impl RnnConfig {
    /// Returns an RNN with initialized parameters on a device.
    ///
    /// # Panics
    /// When `num_layers` or `d_hidden` is 0, or the probability of dropout is not between 0 and 1.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> Rnn<B> {
        let settings = LayerSettings {
            gates: 1,
            d_input: self.d_input,
            d_hidden: self.d_hidden,
            projection: None,
            bias: self.bias,
            num_layers: self.num_layers,
            bidirectional: self.bidirectional,
            dropout: self.dropout,
            batch_first: self.batch_first,
            initializer: self.initializer,
        };
        Rnn { layers: settings.init(device), nonlinearity: self.nonlinearity }
    }
}

impl<B: Backend> Rnn<B> {
    /// Computes all steps. Returns the hidden states of the last layer, and the states after the last step,
    /// `[layers * directions, batch, d_hidden]`.
    ///
    /// * `x`: `[batch, length, d_input]`, or `[length, batch, d_input]` without `batch_first`.
    /// * `state`: `[layers * directions, batch, d_hidden]`; zeros if `None`.
    /// * The outputs are `[batch, length, directions * d_hidden]` (or length first): with two directions, the features
    ///   of the reverse direction are last.
    ///
    /// # Panics
    /// When a shape differs, or the length is 0.
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 3>, state: Option<Tensor<B, 3>>) -> (Tensor<B, 3>, Tensor<B, 3>) {
        self.run(x, state, None)
    }

    /// Computes [`forward`](Rnn::forward) of sequences of different lengths, padded at the end.
    ///
    /// A sequence ends at its length: later steps do not change its state, and their outputs are 0. The reverse
    /// direction starts at the last step of each sequence. `lengths` is a slice of `usize` or an integer tensor
    /// `[batch]`, in any order. The result is that of PyTorch's `pack_padded_sequence` with `enforce_sorted=False`,
    /// padded to the length of `x`.
    ///
    /// # Panics
    /// When a shape differs, the length of `x` is 0, or a length in a slice is above that of `x`.
    #[track_caller]
    pub fn forward_packed(
        &self,
        x: Tensor<B, 3>,
        lengths: impl SequenceLengths<B>,
        state: Option<Tensor<B, 3>>,
    ) -> (Tensor<B, 3>, Tensor<B, 3>) {
        let lengths = self.layers.lengths(&x, lengths);
        self.run(x, state, Some(lengths))
    }

    #[track_caller]
    fn run(
        &self,
        x: Tensor<B, 3>,
        state: Option<Tensor<B, 3>>,
        lengths: Option<Tensor<B, 1, Int>>,
    ) -> (Tensor<B, 3>, Tensor<B, 3>) {
        let unit = RnnUnit { nonlinearity: self.nonlinearity };
        let (y, mut states) = run(unit, &self.layers, x, state.map(|hidden| vec![hidden]), lengths);
        (y, states.remove(0))
    }
}

recurrent_modules! {
    Rnn { nonlinearity }
}

/// [`Rnn`] of two directions, as [`BiRnnConfig`] makes it.
pub type BiRnn<B = Dyn> = Rnn<B>;

/// Settings of [`BiRnn`]: [`RnnConfig`] with `bidirectional` and one layer.
///
/// Burn's `BiRnn` has two modules, `forward` and `reverse`. This one has PyTorch's parameters: those of the reverse
/// direction have the suffix `_reverse`.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct BiRnnConfig {
    /// Number of input features.
    pub d_input: usize,
    /// Number of features of the hidden state of each direction.
    pub d_hidden: usize,
    /// Whether to add biases.
    pub bias: bool,
    /// The activation. Default: [`Nonlinearity::Tanh`].
    #[config(default = Nonlinearity::Tanh)]
    pub nonlinearity: Nonlinearity,
    /// Whether inputs and outputs are `[batch, length, features]` instead of `[length, batch, features]`. Default:
    /// true.
    #[config(default = true)]
    pub batch_first: bool,
    /// The initializer of weights and biases. Default: uniform over `±1 / √d_hidden`.
    pub initializer: Option<Initializer>,
}

impl BiRnnConfig {
    /// Returns an RNN of two directions with initialized parameters on a device.
    ///
    /// # Panics
    /// When `d_hidden` is 0.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> BiRnn<B> {
        RnnConfig::new(self.d_input, self.d_hidden, self.bias)
            .with_bidirectional(true)
            .with_nonlinearity(self.nonlinearity)
            .with_batch_first(self.batch_first)
            .with_initializer(self.initializer)
            .init(device)
    }
}

/// Settings of [`RnnCell`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct RnnCellConfig {
    /// Number of input features.
    pub d_input: usize,
    /// Number of features of the hidden state.
    pub d_hidden: usize,
    /// Whether to add biases.
    pub bias: bool,
    /// The activation. Default: [`Nonlinearity::Tanh`].
    #[config(default = Nonlinearity::Tanh)]
    pub nonlinearity: Nonlinearity,
    /// The initializer of weights and biases. Default: uniform over `±1 / √d_hidden`, as in PyTorch.
    pub initializer: Option<Initializer>,
}

/// One step of [`Rnn`], with the parameters of
/// [`torch.nn.RNNCell`](https://docs.pytorch.org/docs/stable/generated/torch.nn.RNNCell.html).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::rnn::RnnCellConfig;
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let cell = RnnCellConfig::new(3, 8, true).init::<Flex>(&device);
/// let x = Tensor::<Flex, 2>::ones([4, 3], &device);
/// let hidden = cell.forward(x.clone(), None);
/// assert_eq!(cell.forward(x, Some(hidden)).dims(), [4, 8]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct RnnCell<B: Backend = Dyn> {
    /// `[d_hidden, d_input]`.
    pub weight_ih: Param<Tensor<B, 2>>,
    /// `[d_hidden, d_hidden]`.
    pub weight_hh: Param<Tensor<B, 2>>,
    /// `[d_hidden]`.
    pub bias_ih: Option<Param<Tensor<B, 1>>>,
    /// `[d_hidden]`.
    pub bias_hh: Option<Param<Tensor<B, 1>>>,
    /// The activation.
    pub nonlinearity: Nonlinearity,
}

impl RnnCellConfig {
    /// Returns a cell with initialized parameters on a device.
    ///
    /// # Panics
    /// When `d_hidden` is 0.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> RnnCell<B> {
        let weights = RecurrentWeights::cell(
            [self.d_hidden, self.d_input, self.d_hidden],
            self.bias,
            default_initializer(self.initializer, self.d_hidden),
            device,
        );
        let RecurrentWeights { weight_ih, weight_hh, bias_ih, bias_hh, .. } = weights;
        RnnCell { weight_ih, weight_hh, bias_ih, bias_hh, nonlinearity: self.nonlinearity }
    }
}

impl<B: Backend> RnnCell<B> {
    /// Computes one step: the hidden state after it, `[batch, d_hidden]`. `x` is `[batch, d_input]`, and `state`
    /// `[batch, d_hidden]`; zeros if `None`.
    ///
    /// # Panics
    /// When a shape differs.
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 2>, state: Option<Tensor<B, 2>>) -> Tensor<B, 2> {
        let weights = RecurrentWeights {
            weight_ih: self.weight_ih.clone(),
            weight_hh: self.weight_hh.clone(),
            bias_ih: self.bias_ih.clone(),
            bias_hh: self.bias_hh.clone(),
            weight_hr: None,
        };
        let unit = RnnUnit { nonlinearity: self.nonlinearity };
        run_cell(unit, &weights, x, state.map(|hidden| vec![hidden])).remove(0)
    }
}
