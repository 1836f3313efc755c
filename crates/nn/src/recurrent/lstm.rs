//! Long short-term memory.

use super::lengths::SequenceLengths;
use super::options::LstmOptions;
use super::run::{run, run_cell};
use super::weights::{
    LayerSettings, RecurrentLayers, RecurrentWeights, default_initializer, recurrent_modules,
};
use crate::{ActivationConfig, Config, Initializer, Module, Param};
use alloc::vec;
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Int, Tensor};

/// Settings of an [`Lstm`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct LstmConfig {
    /// Number of input features.
    pub d_input: usize,
    /// Number of features of the cell state, and of the hidden state unless there is a projection.
    pub d_hidden: usize,
    /// Whether to add biases.
    pub bias: bool,
    /// Number of layers. Each layer has the outputs of the one before as inputs. Default: 1.
    #[config(default = 1)]
    pub num_layers: usize,
    /// Whether each layer also runs from the last step to the first, with weights of its own. Default: false.
    #[config(default = false)]
    pub bidirectional: bool,
    /// Number of features of the hidden state after a projection by `weight_hr`
    /// ([Sak et al. 2014](https://arxiv.org/abs/1402.1128)), less than `d_hidden`. PyTorch's `proj_size`. Default:
    /// none.
    pub projection: Option<usize>,
    /// The probability of [dropout](crate::Dropout) on the outputs of each layer except the last. Default: 0.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Whether inputs and outputs are `[batch, length, features]` instead of `[length, batch, features]`. Default:
    /// true (PyTorch: false).
    #[config(default = true)]
    pub batch_first: bool,
    /// The bound of the cell state: it is clamped to `-clip..=clip` after each step. Default: none.
    pub clip: Option<f64>,
    /// Whether the forget gate is `1 - i` for the input gate `i`. The weights then have no forget gate. Default: false.
    #[config(default = false)]
    pub input_forget: bool,
    /// The activation of the input, forget and output gates. Default: sigmoid.
    #[config(default = ActivationConfig::Sigmoid)]
    pub gate_activation: ActivationConfig,
    /// The activation of the new cell state. Default: tanh.
    #[config(default = ActivationConfig::Tanh)]
    pub cell_activation: ActivationConfig,
    /// The activation of the cell state in the hidden state. Default: tanh.
    #[config(default = ActivationConfig::Tanh)]
    pub hidden_activation: ActivationConfig,
    /// The initializer of weights and biases. Default: uniform over `±1 / √d_hidden`, as in PyTorch.
    pub initializer: Option<Initializer>,
}

/// Long short-term memory ([Hochreiter and Schmidhuber
/// 1997](https://doi.org/10.1162/neco.1997.9.8.1735)), of several layers and of one or two directions.
///
/// Each step computes, from its input `x`, the hidden state `h` and the cell state `c`:
///
/// ```text
/// i = σ(W_ii x + b_ii + W_hi h + b_hi)       input gate
/// f = σ(W_if x + b_if + W_hf h + b_hf)       forget gate
/// g = tanh(W_ig x + b_ig + W_hg h + b_hg)    new cell state
/// o = σ(W_io x + b_io + W_ho h + b_ho)       output gate
/// c' = f ⊙ c + i ⊙ g
/// h' = o ⊙ tanh(c')                          with a projection: W_hr (o ⊙ tanh(c'))
/// ```
///
/// The definition, the names and the shapes of the parameters are those of
/// [`torch.nn.LSTM`](https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html): `weight_ih_l0`
/// `[4 d_hidden, d_input]` holds the matrices of the gates i, f, g, o. A state dict of PyTorch loads without renames.
///
/// Options of [`LstmConfig`] that PyTorch does not have: `clip` clamps `c'` before `h'` is computed; `input_forget`
/// couples the gates, `f = 1 - i` (CIFG in [Greff et al. 2015](https://arxiv.org/abs/1503.04069)), and the weights then
/// hold the gates i, g, o in `3 d_hidden` rows; the activations replace σ of the gates, tanh of `g` and tanh of `c'`.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{LstmConfig, Module};
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let lstm = LstmConfig::new(3, 8, true).with_num_layers(2).with_bidirectional(true).init::<Flex>(&device);
/// let x = Tensor::<Flex, 3>::ones([4, 5, 3], &device); // 4 sequences of 5 steps
/// let (y, state) = lstm.forward(x.clone(), None);
/// assert_eq!(y.dims(), [4, 5, 2 * 8]);
/// assert_eq!(state.hidden.dims(), [2 * 2, 4, 8]); // [layers * directions, batch, d_hidden]
/// // The next steps continue from the state.
/// let (_, _state) = lstm.forward(x, Some(state));
/// assert_eq!(lstm.named_parameters()[4].0, "weight_ih_l0_reverse");
/// ```
///
/// Differences from Burn: a layer has one matrix for all gates instead of a `GateController` per gate; layers and
/// directions are options of one module; states have an axis for layers and directions
/// ([`LstmState::layer`] removes it). The reverse direction alone (`reverse`) is `x.flip` before and after the module.
#[derive(Clone, Debug)]
pub struct Lstm<B: Backend = Dyn> {
    /// The layers.
    pub layers: RecurrentLayers<B>,
    /// The options of a step.
    pub options: LstmOptions,
}

/// The state of an LSTM. `D` is 3 in an [`Lstm`], with the shape `[layers * directions, batch, features]`, and 2 in an
/// [`LstmCell`], with the shape `[batch, features]`.
#[derive(Clone, Debug)]
pub struct LstmState<B: Backend, const D: usize> {
    /// The cell state: the features are `d_hidden`.
    pub cell: Tensor<B, D>,
    /// The hidden state: the features are `d_hidden`, or those of the projection.
    pub hidden: Tensor<B, D>,
}

impl<B: Backend, const D: usize> LstmState<B, D> {
    /// Returns a state of these tensors.
    pub fn new(cell: Tensor<B, D>, hidden: Tensor<B, D>) -> Self {
        LstmState { cell, hidden }
    }

    /// Hidden state first.
    fn into_states(self) -> Vec<Tensor<B, D>> {
        vec![self.hidden, self.cell]
    }

    fn from_states(mut states: Vec<Tensor<B, D>>) -> Self {
        let hidden = states.remove(0);
        LstmState { cell: states.remove(0), hidden }
    }
}

impl<B: Backend> LstmState<B, 3> {
    /// Returns the state of one layer and direction, `[batch, features]`. With two directions, those of layer `i` have
    /// the indices `2 i` and (reverse) `2 i + 1`. A negative index counts from the end.
    ///
    /// # Panics
    /// When the index is out of range.
    #[track_caller]
    pub fn layer(&self, index: i64) -> LstmState<B, 2> {
        let of = |state: &Tensor<B, 3>| state.clone().select_dim(0, index);
        LstmState { cell: of(&self.cell), hidden: of(&self.hidden) }
    }
}

/// The state of an LSTM with one layer and one direction.
impl<B: Backend> From<LstmState<B, 2>> for LstmState<B, 3> {
    fn from(state: LstmState<B, 2>) -> Self {
        LstmState { cell: state.cell.unsqueeze_dim(0), hidden: state.hidden.unsqueeze_dim(0) }
    }
}

impl LstmConfig {
    /// Returns an LSTM with initialized parameters on a device.
    ///
    /// # Panics
    /// When `num_layers` or `d_hidden` is 0, the projection is not between 1 and `d_hidden - 1`, the probability of
    /// dropout is not between 0 and 1, `clip` is not greater than 0, or an activation has parameters or randomness.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> Lstm<B> {
        let options = self.options();
        let settings = LayerSettings {
            gates: options.gates(),
            d_input: self.d_input,
            d_hidden: self.d_hidden,
            projection: self.projection,
            bias: self.bias,
            num_layers: self.num_layers,
            bidirectional: self.bidirectional,
            dropout: self.dropout,
            batch_first: self.batch_first,
            initializer: self.initializer,
        };
        Lstm { layers: settings.init(device), options }
    }

    #[track_caller]
    fn options(&self) -> LstmOptions {
        let options = LstmOptions {
            clip: self.clip,
            input_forget: self.input_forget,
            gate_activation: self.gate_activation,
            cell_activation: self.cell_activation,
            hidden_activation: self.hidden_activation,
        };
        options.checked()
    }
}

impl<B: Backend> Lstm<B> {
    /// Computes all steps. Returns the hidden states of the last layer, and the states after the last step.
    ///
    /// * `x`: `[batch, length, d_input]`, or `[length, batch, d_input]` without `batch_first`.
    /// * `state`: both tensors `[layers * directions, batch, features]`; zeros if `None`.
    /// * The outputs are `[batch, length, directions * features]` (or length first): with two directions, the features
    ///   of the reverse direction are last.
    ///
    /// # Panics
    /// When a shape differs, or the length is 0.
    #[track_caller]
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        state: Option<LstmState<B, 3>>,
    ) -> (Tensor<B, 3>, LstmState<B, 3>) {
        self.run(x, state, None)
    }

    /// Computes [`forward`](Lstm::forward) of sequences of different lengths, padded at the end.
    ///
    /// A sequence ends at its length: later steps do not change its state, and their outputs are 0. The reverse
    /// direction starts at the last step of each sequence. `lengths` is a slice of `usize` or an integer tensor
    /// `[batch]`, in any order. The result is that of PyTorch's `pack_padded_sequence` with `enforce_sorted=False`,
    /// padded to the length of `x`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::LstmConfig;
    /// use kiln_tensor::Tensor;
    ///
    /// let device = Default::default();
    /// let lstm = LstmConfig::new(3, 4, true).init::<Flex>(&device);
    /// let x = Tensor::<Flex, 3>::ones([2, 5, 3], &device);
    /// let (y, state) = lstm.forward_packed(x.clone(), &[2, 5], None);
    /// assert_eq!(y.narrow(0, 0, 1).narrow(1, 2, 3).abs().max().into_scalar::<f32>(), 0.0);
    /// // The state of the first sequence is the one after 2 steps.
    /// let (_, short) = lstm.forward(x.narrow(0, 0, 1).narrow(1, 0, 2), None);
    /// let difference = state.hidden.narrow(1, 0, 1) - short.hidden;
    /// assert!(difference.abs().max().into_scalar::<f32>() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// When a shape differs, the length of `x` is 0, or a length in a slice is above that of `x`.
    #[track_caller]
    pub fn forward_packed(
        &self,
        x: Tensor<B, 3>,
        lengths: impl SequenceLengths<B>,
        state: Option<LstmState<B, 3>>,
    ) -> (Tensor<B, 3>, LstmState<B, 3>) {
        let lengths = self.layers.lengths(&x, lengths);
        self.run(x, state, Some(lengths))
    }

    #[track_caller]
    fn run(
        &self,
        x: Tensor<B, 3>,
        state: Option<LstmState<B, 3>>,
        lengths: Option<Tensor<B, 1, Int>>,
    ) -> (Tensor<B, 3>, LstmState<B, 3>) {
        let (y, states) = run(self.options, &self.layers, x, state.map(LstmState::into_states), lengths);
        (y, LstmState::from_states(states))
    }
}

recurrent_modules! {
    Lstm { options }
}

/// An [`Lstm`] of two directions, as [`BiLstmConfig`] makes it.
pub type BiLstm<B = Dyn> = Lstm<B>;

/// Settings of a [`BiLstm`]: an [`LstmConfig`] with `bidirectional`, one layer and no projection.
///
/// Burn's `BiLstm` has two modules, `forward` and `reverse`. This one has PyTorch's parameters: those of the reverse
/// direction have the suffix `_reverse`.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct BiLstmConfig {
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
    /// The bound of the cell state: it is clamped to `-clip..=clip` after each step. Default: none.
    pub clip: Option<f64>,
    /// Whether the forget gate is `1 - i` for the input gate `i`. The weights then have no forget gate. Default: false.
    #[config(default = false)]
    pub input_forget: bool,
    /// The activation of the input, forget and output gates. Default: sigmoid.
    #[config(default = ActivationConfig::Sigmoid)]
    pub gate_activation: ActivationConfig,
    /// The activation of the new cell state. Default: tanh.
    #[config(default = ActivationConfig::Tanh)]
    pub cell_activation: ActivationConfig,
    /// The activation of the cell state in the hidden state. Default: tanh.
    #[config(default = ActivationConfig::Tanh)]
    pub hidden_activation: ActivationConfig,
    /// The initializer of weights and biases. Default: uniform over `±1 / √d_hidden`.
    pub initializer: Option<Initializer>,
}

impl BiLstmConfig {
    /// Returns an LSTM of two directions with initialized parameters on a device.
    ///
    /// # Panics
    /// When `d_hidden` is 0, `clip` is not greater than 0, or an activation has parameters or randomness.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> BiLstm<B> {
        LstmConfig::new(self.d_input, self.d_hidden, self.bias)
            .with_bidirectional(true)
            .with_batch_first(self.batch_first)
            .with_clip(self.clip)
            .with_input_forget(self.input_forget)
            .with_gate_activation(self.gate_activation)
            .with_cell_activation(self.cell_activation)
            .with_hidden_activation(self.hidden_activation)
            .with_initializer(self.initializer)
            .init(device)
    }
}

/// Settings of an [`LstmCell`].
#[derive(Config, Clone, Debug, PartialEq)]
pub struct LstmCellConfig {
    /// Number of input features.
    pub d_input: usize,
    /// Number of features of the state.
    pub d_hidden: usize,
    /// Whether to add biases.
    pub bias: bool,
    /// The bound of the cell state: it is clamped to `-clip..=clip` after each step. Default: none.
    pub clip: Option<f64>,
    /// Whether the forget gate is `1 - i` for the input gate `i`. The weights then have no forget gate. Default: false.
    #[config(default = false)]
    pub input_forget: bool,
    /// The activation of the input, forget and output gates. Default: sigmoid.
    #[config(default = ActivationConfig::Sigmoid)]
    pub gate_activation: ActivationConfig,
    /// The activation of the new cell state. Default: tanh.
    #[config(default = ActivationConfig::Tanh)]
    pub cell_activation: ActivationConfig,
    /// The activation of the cell state in the hidden state. Default: tanh.
    #[config(default = ActivationConfig::Tanh)]
    pub hidden_activation: ActivationConfig,
    /// The initializer of weights and biases. Default: uniform over `±1 / √d_hidden`, as in PyTorch.
    pub initializer: Option<Initializer>,
}

/// One step of an [`Lstm`], with the parameters of
/// [`torch.nn.LSTMCell`](https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTMCell.html).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::LstmCellConfig;
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let cell = LstmCellConfig::new(3, 8, true).init::<Flex>(&device);
/// let x = Tensor::<Flex, 2>::ones([4, 3], &device);
/// let state = cell.forward(x.clone(), None);
/// let state = cell.forward(x, Some(state));
/// assert_eq!(state.hidden.dims(), [4, 8]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct LstmCell<B: Backend = Dyn> {
    /// `[4 d_hidden, d_input]`, with `input_forget` `[3 d_hidden, d_input]`.
    pub weight_ih: Param<Tensor<B, 2>>,
    /// `[4 d_hidden, d_hidden]`, with `input_forget` `[3 d_hidden, d_hidden]`.
    pub weight_hh: Param<Tensor<B, 2>>,
    /// `[4 d_hidden]`, with `input_forget` `[3 d_hidden]`.
    pub bias_ih: Option<Param<Tensor<B, 1>>>,
    /// `[4 d_hidden]`, with `input_forget` `[3 d_hidden]`.
    pub bias_hh: Option<Param<Tensor<B, 1>>>,
    /// The options of a step.
    pub options: LstmOptions,
}

impl LstmCellConfig {
    /// Returns a cell with initialized parameters on a device.
    ///
    /// # Panics
    /// When `d_hidden` is 0, `clip` is not greater than 0, or an activation has parameters or randomness.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> LstmCell<B> {
        let options = self.options();
        let weights = RecurrentWeights::cell(
            [options.gates() * self.d_hidden, self.d_input, self.d_hidden],
            self.bias,
            default_initializer(self.initializer, self.d_hidden),
            device,
        );
        let RecurrentWeights { weight_ih, weight_hh, bias_ih, bias_hh, .. } = weights;
        LstmCell { weight_ih, weight_hh, bias_ih, bias_hh, options }
    }

    #[track_caller]
    fn options(&self) -> LstmOptions {
        let options = LstmOptions {
            clip: self.clip,
            input_forget: self.input_forget,
            gate_activation: self.gate_activation,
            cell_activation: self.cell_activation,
            hidden_activation: self.hidden_activation,
        };
        options.checked()
    }
}

impl<B: Backend> LstmCell<B> {
    /// Computes one step: the state after it. `x` is `[batch, d_input]`, and both tensors of the state are
    /// `[batch, d_hidden]`; zeros if `None`.
    ///
    /// # Panics
    /// When a shape differs.
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 2>, state: Option<LstmState<B, 2>>) -> LstmState<B, 2> {
        let weights = RecurrentWeights {
            weight_ih: self.weight_ih.clone(),
            weight_hh: self.weight_hh.clone(),
            bias_ih: self.bias_ih.clone(),
            bias_hh: self.bias_hh.clone(),
            weight_hr: None,
        };
        LstmState::from_states(run_cell(self.options, &weights, x, state.map(LstmState::into_states)))
    }
}
