//! Gated recurrent units.

use super::cell::RecurrentCell;
use super::layers::Recurrent;
use super::options::{check_clip, check_elementwise, recurrent_kind};
use super::unit::{Unit, clipped, exactly, sum, value};
use super::weights::{LayerSettings, RecurrentWeights};
use crate::ActivationConfig;
use alloc::vec;
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor};

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
/// As in PyTorch, the reset gate multiplies the product with `W_hn`. With `reset_after = false` it multiplies `h`, as
/// in the latest revision of the paper and in Keras: `n = tanh(W_in x + b_in + W_hn (r ⊙ h) + b_hn)`. The parameters
/// have the same shapes. Other options of [`GruConfig`] clamp `h'` and replace σ and tanh.
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
pub type Gru<B = Dyn> = Recurrent<GruOptions, B>;

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
pub type GruCell<B = Dyn> = RecurrentCell<GruOptions, B>;

recurrent_kind! {
    /// The options of one step of a [`Gru`] or [`GruCell`], with the names of their configurations.
    GruOptions {
        /// Whether the reset gate multiplies the product with `W_hn`, as in PyTorch, instead of the hidden state, as in
        /// the paper. Default: true.
        reset_after: bool = true,
        /// The bound of the hidden state: it is clamped to `-clip..=clip` after each step. Default: none.
        clip: Option<f64> = None,
        /// The activation of the reset and update gates. Default: sigmoid.
        gate_activation: ActivationConfig = ActivationConfig::Sigmoid,
        /// The activation of the new state. Default: tanh.
        hidden_activation: ActivationConfig = ActivationConfig::Tanh,
    }
    Gru GruConfig {}
    BiGru BiGruConfig
    GruCell GruCellConfig
    ", `clip` is not greater than 0, or an activation has parameters or randomness"
}

/// `r, z = σ(product + h Wᵀ_hh)`, `n = tanh(product + r (h Wᵀ_hh + bias_hn))`, `h' = n + z (h - n)`
///
/// With `reset_after`, the bias of the new gate is inside the product with `r`, so it is a constant of the steps.
/// Otherwise `n = tanh(product + (r h) Wᵀ_hn)`, where the product contains the bias.
impl Unit for GruOptions {
    type State<B: Backend, const D: usize> = Tensor<B, D>;

    const MODULES: [&'static str; 2] = ["Gru", "GruCell"];
    const NAME: &'static str = "gru";
    const STATES: &'static [&'static str] = &["hidden"];

    #[track_caller]
    fn checked(self) -> GruOptions {
        check_clip("gru", self.clip);
        check_elementwise("gru", "gate_activation", self.gate_activation);
        check_elementwise("gru", "hidden_activation", self.hidden_activation);
        self
    }

    fn gates(self) -> usize {
        3
    }

    fn input_bias<B: Backend>(self, weights: &RecurrentWeights<B>) -> Option<Tensor<B, 1>> {
        let hidden = value(&weights.bias_hh).map(|bias| {
            let width = bias.dims()[0] / 3;
            if self.reset_after { bias.narrow(0, 0, 2 * width).pad([(0, width)], 0) } else { bias }
        });
        sum(value(&weights.bias_ih), hidden)
    }

    /// With `reset_after`: the transpose of `weight_hh`, and the part of `bias_hh` of the new gate, `[1, hidden]`.
    /// Otherwise the transposes of the rows of `weight_hh` of the two gates, and of the new state.
    fn constants<B: Backend>(self, weights: &RecurrentWeights<B>) -> Vec<Tensor<B, 2>> {
        let weight = weights.weight_hh.val();
        let width = weight.dims()[1];
        if !self.reset_after {
            let new = weight.clone().narrow(0, 2 * width, width);
            return vec![weight.narrow(0, 0, 2 * width).transpose(), new.transpose()];
        }
        let new = value(&weights.bias_hh).map(|bias| bias.narrow(0, 2 * width, width).unsqueeze_dim(0));
        core::iter::once(weight.transpose()).chain(new).collect()
    }

    fn step<B: Backend>(
        self,
        product: Tensor<B, 2>,
        states: Vec<Tensor<B, 2>>,
        constants: &[Tensor<B, 2>],
    ) -> Vec<Tensor<B, 2>> {
        let [hidden] = exactly(states);
        let (new, update) = match self.reset_after {
            true => self.reset_product(product, &hidden, constants),
            false => self.reset_hidden(product, &hidden, constants),
        };
        let new = self.hidden_activation.apply(new);
        vec![clipped(new.clone() + update * (hidden - new), self.clip)]
    }
}

impl GruOptions {
    /// The new state before its activation, and the update gate, with `reset_after`.
    fn reset_product<B: Backend>(
        self,
        product: Tensor<B, 2>,
        hidden: &Tensor<B, 2>,
        constants: &[Tensor<B, 2>],
    ) -> (Tensor<B, 2>, Tensor<B, 2>) {
        let [reset, update, new] = exactly(product.chunk(3, 1));
        let [hidden_reset, hidden_update, hidden_new] =
            exactly(hidden.clone().matmul(constants[0].clone()).chunk(3, 1));
        let hidden_new = match constants.get(1) {
            Some(bias) => hidden_new + bias.clone(),
            None => hidden_new,
        };
        let reset = self.gate_activation.apply(reset + hidden_reset);
        let update = self.gate_activation.apply(update + hidden_update);
        (new + reset * hidden_new, update)
    }

    /// The new state before its activation, and the update gate, without `reset_after`.
    fn reset_hidden<B: Backend>(
        self,
        product: Tensor<B, 2>,
        hidden: &Tensor<B, 2>,
        constants: &[Tensor<B, 2>],
    ) -> (Tensor<B, 2>, Tensor<B, 2>) {
        let [reset, update, new] = exactly(product.chunk(3, 1));
        let [hidden_reset, hidden_update] = exactly(hidden.clone().matmul(constants[0].clone()).chunk(2, 1));
        let reset = self.gate_activation.apply(reset + hidden_reset);
        let update = self.gate_activation.apply(update + hidden_update);
        (new + (reset * hidden.clone()).matmul(constants[1].clone()), update)
    }
}
