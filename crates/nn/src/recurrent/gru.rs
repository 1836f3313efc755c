//! Gated recurrent units.

use super::lengths::SequenceLengths;
use super::options::GruOptions;
use super::run::{run, run_cell};
use super::weights::{
    LayerSettings, RecurrentLayers, RecurrentWeights, default_initializer, recurrent_modules,
};
use crate::{ActivationConfig, Config, Initializer, Module, Param};
use alloc::vec;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Int, Tensor};

/// Settings of [`Gru`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct GruConfig {
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
    /// The probability of [dropout](crate::Dropout) on the outputs of each layer except the last. Default: 0.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Whether inputs and outputs are `[batch, length, features]` instead of `[length, batch, features]`. Default:
    /// true (PyTorch: false).
    #[config(default = true)]
    pub batch_first: bool,
    /// Whether the reset gate multiplies the product with `W_hn`, as in PyTorch, instead of the hidden state, as in the
    /// paper. Default: true.
    #[config(default = true)]
    pub reset_after: bool,
    /// The bound of the hidden state: it is clamped to `-clip..=clip` after each step. Default: none.
    pub clip: Option<f64>,
    /// The activation of the reset and update gates. Default: sigmoid.
    #[config(default = ActivationConfig::Sigmoid)]
    pub gate_activation: ActivationConfig,
    /// The activation of the new state. Default: tanh.
    #[config(default = ActivationConfig::Tanh)]
    pub hidden_activation: ActivationConfig,
    /// The initializer of weights and biases. Default: uniform over `±1 / √d_hidden`, as in PyTorch.
    pub initializer: Option<Initializer>,
}

/// Gated recurrent units ([Cho et al. 2014](https://arxiv.org/abs/1406.1078)), of several layers and of one or two
/// directions.
///
/// Each step computes the hidden state `h` from its input `x`:
///
/// ```text
/// r = σ(W_ir x + b_ir + W_hr h + b_hr)            reset gate
/// z = σ(W_iz x + b_iz + W_hz h + b_hz)            update gate
/// n = tanh(W_in x + b_in + r ⊙ (W_hn h + b_hn))   new state
/// h' = (1 - z) ⊙ n + z ⊙ h
/// ```
///
/// The definition, the names and the shapes of the parameters are those of
/// [`torch.nn.GRU`](https://docs.pytorch.org/docs/stable/generated/torch.nn.GRU.html): `weight_ih_l0`
/// `[3 d_hidden, d_input]` holds the matrices of the gates r, z, n. A state dict of PyTorch loads without renames.
///
/// As in PyTorch, the reset gate multiplies the product with `W_hn`. With `reset_after = false` it multiplies `h`, as in
/// the latest revision of the paper and in Keras: `n = tanh(W_in x + b_in + W_hn (r ⊙ h) + b_hn)`. The parameters have
/// the same shapes. Other options of [`GruConfig`] clamp `h'` and replace σ and tanh.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::rnn::GruConfig;
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let module = GruConfig::new(3, 8, true).with_bidirectional(true).init::<Flex>(&device);
/// let x = Tensor::<Flex, 3>::ones([4, 5, 3], &device); // 4 sequences of 5 steps
/// let (y, state) = module.forward(x.clone(), None);
/// assert_eq!(y.dims(), [4, 5, 2 * 8]);
/// assert_eq!(state.dims(), [2, 4, 8]); // [layers * directions, batch, d_hidden]
/// // The next steps continue from the state.
/// let (_, _state) = module.forward(x, Some(state));
/// ```
///
/// Differences from Burn: a layer has one matrix for all gates instead of a `GateController` per gate; layers and
/// directions are options of one module; `forward` also returns the state after the last step; states have an axis for
/// layers and directions.
#[derive(Clone, Debug)]
pub struct Gru<B: Backend = Dyn> {
    /// The layers.
    pub layers: RecurrentLayers<B>,
    /// The options of a step.
    pub options: GruOptions,
}

impl GruConfig {
    /// Returns a GRU with initialized parameters on a device.
    ///
    /// # Panics
    /// When `num_layers` or `d_hidden` is 0, the probability of dropout is not between 0 and 1, `clip` is not greater
    /// than 0, or an activation has parameters or randomness.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> Gru<B> {
        let options = self.options();
        let settings = LayerSettings {
            gates: 3,
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
        Gru { layers: settings.init(device), options }
    }

    #[track_caller]
    fn options(&self) -> GruOptions {
        let options = GruOptions {
            reset_after: self.reset_after,
            clip: self.clip,
            gate_activation: self.gate_activation,
            hidden_activation: self.hidden_activation,
        };
        options.checked()
    }
}

impl<B: Backend> Gru<B> {
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

    /// Computes [`forward`](Gru::forward) of sequences of different lengths, padded at the end.
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
        let (y, mut states) = run(self.options, &self.layers, x, state.map(|hidden| vec![hidden]), lengths);
        (y, states.remove(0))
    }
}

recurrent_modules! {
    Gru { options }
}

/// [`Gru`] of two directions, as [`BiGruConfig`] makes it.
pub type BiGru<B = Dyn> = Gru<B>;

/// Settings of [`BiGru`]: [`GruConfig`] with `bidirectional` and one layer.
///
/// Burn's `BiGru` has two modules, `forward` and `reverse`. This one has PyTorch's parameters: those of the reverse
/// direction have the suffix `_reverse`.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct BiGruConfig {
    /// Number of input features.
    pub d_input: usize,
    /// Number of features of the hidden state of each direction.
    pub d_hidden: usize,
    /// Whether to add biases.
    pub bias: bool,
    /// Whether inputs and outputs are `[batch, length, features]` instead of `[length, batch, features]`. Default:
    /// true.
    #[config(default = true)]
    pub batch_first: bool,
    /// Whether the reset gate multiplies the product with `W_hn`, as in PyTorch, instead of the hidden state, as in the
    /// paper. Default: true.
    #[config(default = true)]
    pub reset_after: bool,
    /// The bound of the hidden state: it is clamped to `-clip..=clip` after each step. Default: none.
    pub clip: Option<f64>,
    /// The activation of the reset and update gates. Default: sigmoid.
    #[config(default = ActivationConfig::Sigmoid)]
    pub gate_activation: ActivationConfig,
    /// The activation of the new state. Default: tanh.
    #[config(default = ActivationConfig::Tanh)]
    pub hidden_activation: ActivationConfig,
    /// The initializer of weights and biases. Default: uniform over `±1 / √d_hidden`.
    pub initializer: Option<Initializer>,
}

impl BiGruConfig {
    /// Returns a GRU of two directions with initialized parameters on a device.
    ///
    /// # Panics
    /// When `d_hidden` is 0, `clip` is not greater than 0, or an activation has parameters or randomness.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> BiGru<B> {
        GruConfig::new(self.d_input, self.d_hidden, self.bias)
            .with_bidirectional(true)
            .with_batch_first(self.batch_first)
            .with_reset_after(self.reset_after)
            .with_clip(self.clip)
            .with_gate_activation(self.gate_activation)
            .with_hidden_activation(self.hidden_activation)
            .with_initializer(self.initializer)
            .init(device)
    }
}

/// Settings of [`GruCell`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct GruCellConfig {
    /// Number of input features.
    pub d_input: usize,
    /// Number of features of the hidden state.
    pub d_hidden: usize,
    /// Whether to add biases.
    pub bias: bool,
    /// Whether the reset gate multiplies the product with `W_hn`, as in PyTorch, instead of the hidden state, as in the
    /// paper. Default: true.
    #[config(default = true)]
    pub reset_after: bool,
    /// The bound of the hidden state: it is clamped to `-clip..=clip` after each step. Default: none.
    pub clip: Option<f64>,
    /// The activation of the reset and update gates. Default: sigmoid.
    #[config(default = ActivationConfig::Sigmoid)]
    pub gate_activation: ActivationConfig,
    /// The activation of the new state. Default: tanh.
    #[config(default = ActivationConfig::Tanh)]
    pub hidden_activation: ActivationConfig,
    /// The initializer of weights and biases. Default: uniform over `±1 / √d_hidden`, as in PyTorch.
    pub initializer: Option<Initializer>,
}

/// One step of [`Gru`], with the parameters of
/// [`torch.nn.GRUCell`](https://docs.pytorch.org/docs/stable/generated/torch.nn.GRUCell.html).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::rnn::GruCellConfig;
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let cell = GruCellConfig::new(3, 8, true).init::<Flex>(&device);
/// let x = Tensor::<Flex, 2>::ones([4, 3], &device);
/// let hidden = cell.forward(x.clone(), None);
/// assert_eq!(cell.forward(x, Some(hidden)).dims(), [4, 8]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct GruCell<B: Backend = Dyn> {
    /// `[3 d_hidden, d_input]`.
    pub weight_ih: Param<Tensor<B, 2>>,
    /// `[3 d_hidden, d_hidden]`.
    pub weight_hh: Param<Tensor<B, 2>>,
    /// `[3 d_hidden]`.
    pub bias_ih: Option<Param<Tensor<B, 1>>>,
    /// `[3 d_hidden]`.
    pub bias_hh: Option<Param<Tensor<B, 1>>>,
    /// The options of a step.
    pub options: GruOptions,
}

impl GruCellConfig {
    /// Returns a cell with initialized parameters on a device.
    ///
    /// # Panics
    /// When `d_hidden` is 0, `clip` is not greater than 0, or an activation has parameters or randomness.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> GruCell<B> {
        let options = self.options();
        let weights = RecurrentWeights::cell(
            [3 * self.d_hidden, self.d_input, self.d_hidden],
            self.bias,
            default_initializer(self.initializer, self.d_hidden),
            device,
        );
        let RecurrentWeights { weight_ih, weight_hh, bias_ih, bias_hh, .. } = weights;
        GruCell { weight_ih, weight_hh, bias_ih, bias_hh, options }
    }

    #[track_caller]
    fn options(&self) -> GruOptions {
        let options = GruOptions {
            reset_after: self.reset_after,
            clip: self.clip,
            gate_activation: self.gate_activation,
            hidden_activation: self.hidden_activation,
        };
        options.checked()
    }
}

impl<B: Backend> GruCell<B> {
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
        run_cell(self.options, &weights, x, state.map(|hidden| vec![hidden])).remove(0)
    }
}
