//! Long short-term memory.

use super::cell::RecurrentCell;
use super::layers::Recurrent;
use super::options::{check_clip, check_elementwise, recurrent_kind};
use super::unit::{State, Unit, clipped, exactly};
use super::weights::{LayerSettings, RecurrentWeights};
use crate::ActivationConfig;
use alloc::vec;
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor};

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
pub type Lstm<B = Dyn> = Recurrent<LstmOptions, B>;

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
pub type LstmCell<B = Dyn> = RecurrentCell<LstmOptions, B>;

recurrent_kind! {
    /// The options of one step of an [`Lstm`] or [`LstmCell`], with the names of their configurations.
    LstmOptions {
        /// The bound of the cell state: it is clamped to `-clip..=clip` after each step. Default: none.
        clip: Option<f64> = None,
        /// Whether the forget gate is `1 - i` for the input gate `i`. The weights then have no forget gate. Default:
        /// false.
        input_forget: bool = false,
        /// The activation of the input, forget and output gates. Default: sigmoid.
        gate_activation: ActivationConfig = ActivationConfig::Sigmoid,
        /// The activation of the new cell state. Default: tanh.
        cell_activation: ActivationConfig = ActivationConfig::Tanh,
        /// The activation of the cell state in the hidden state. Default: tanh.
        hidden_activation: ActivationConfig = ActivationConfig::Tanh,
    }
    Lstm LstmConfig {
        /// Number of features of the hidden state after a projection by `weight_hr`
        /// ([Sak et al. 2014](https://arxiv.org/abs/1402.1128)), less than `d_hidden`. PyTorch's `proj_size`. Default:
        /// none.
        projection: Option<usize>,
    }
    BiLstm BiLstmConfig
    LstmCell LstmCellConfig
    ", `clip` is not greater than 0, or an activation has parameters or randomness"
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

impl<B: Backend, const D: usize> State<B, D> for LstmState<B, D> {
    fn into_tensors(self) -> Vec<Tensor<B, D>> {
        vec![self.hidden, self.cell]
    }

    fn from_tensors(tensors: Vec<Tensor<B, D>>) -> Self {
        let [hidden, cell] = exactly(tensors);
        LstmState { cell, hidden }
    }
}

/// `i, f, g, o = product + h Wᵀ_hh`, `c' = σ(f) c + σ(i) tanh(g)`, `h' = σ(o) tanh(c')`, with a projection
/// `h' = W_hr σ(o) tanh(c')`
///
/// With `input_forget` there is no `f`: `c' = c + σ(i) (tanh(g) - c)`.
impl Unit for LstmOptions {
    type State<B: Backend, const D: usize> = LstmState<B, D>;

    const MODULES: [&'static str; 2] = ["Lstm", "LstmCell"];
    const NAME: &'static str = "lstm";
    const STATES: &'static [&'static str] = &["hidden", "cell"];

    #[track_caller]
    fn checked(self) -> LstmOptions {
        check_clip("lstm", self.clip);
        check_elementwise("lstm", "gate_activation", self.gate_activation);
        check_elementwise("lstm", "cell_activation", self.cell_activation);
        check_elementwise("lstm", "hidden_activation", self.hidden_activation);
        self
    }

    fn gates(self) -> usize {
        if self.input_forget { 3 } else { 4 }
    }

    fn widths<B: Backend>(self, weights: &RecurrentWeights<B>) -> Vec<usize> {
        let [rows, width] = weights.weight_hh.dims();
        vec![width, rows / self.gates()]
    }

    fn constants<B: Backend>(self, weights: &RecurrentWeights<B>) -> Vec<Tensor<B, 2>> {
        let projection = weights.weight_hr.as_ref().map(|weight| weight.val().transpose());
        core::iter::once(weights.weight_hh.val().transpose()).chain(projection).collect()
    }

    fn step<B: Backend>(
        self,
        product: Tensor<B, 2>,
        states: Vec<Tensor<B, 2>>,
        constants: &[Tensor<B, 2>],
    ) -> Vec<Tensor<B, 2>> {
        let [hidden, cell] = exactly(states);
        let gates = product + hidden.matmul(constants[0].clone());
        let (cell, output) = match self.input_forget {
            true => self.coupled_cell(gates, cell),
            false => self.cell(gates, cell),
        };
        let cell = clipped(cell, self.clip);
        let hidden = self.gate_activation.apply(output) * self.hidden_activation.apply(cell.clone());
        let hidden = match constants.get(1) {
            Some(projection) => hidden.matmul(projection.clone()),
            None => hidden,
        };
        vec![hidden, cell]
    }
}

impl LstmOptions {
    /// The cell state, and the output gate before its activation.
    fn cell<B: Backend>(self, gates: Tensor<B, 2>, cell: Tensor<B, 2>) -> (Tensor<B, 2>, Tensor<B, 2>) {
        let [input, forget, new, output] = exactly(gates.chunk(4, 1));
        let kept = self.gate_activation.apply(forget) * cell;
        (kept + self.gate_activation.apply(input) * self.cell_activation.apply(new), output)
    }

    /// The cell state with `input_forget`, and the output gate before its activation.
    fn coupled_cell<B: Backend>(
        self,
        gates: Tensor<B, 2>,
        cell: Tensor<B, 2>,
    ) -> (Tensor<B, 2>, Tensor<B, 2>) {
        let [input, new, output] = exactly(gates.chunk(3, 1));
        let change = self.cell_activation.apply(new) - cell.clone();
        (cell + self.gate_activation.apply(input) * change, output)
    }
}
