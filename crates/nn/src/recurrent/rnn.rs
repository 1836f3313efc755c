//! Recurrent networks without gates.

use super::cell::RecurrentCell;
use super::layers::Recurrent;
use super::options::recurrent_kind;
use super::unit::{Unit, exactly};
use super::weights::LayerSettings;
use crate::{Config, Module, Path, Visitor};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};
use kiln_backends::Dyn;
use kiln_tensor::activation::relu;
use kiln_tensor::{Backend, Tensor};

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
pub type Rnn<B = Dyn> = Recurrent<RnnOptions, B>;

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
pub type RnnCell<B = Dyn> = RecurrentCell<RnnOptions, B>;

recurrent_kind! {
    /// The options of one step of an [`Rnn`] or [`RnnCell`], with the names of their configurations.
    RnnOptions {
        /// The activation. Default: [`Nonlinearity::Tanh`].
        nonlinearity: Nonlinearity = Nonlinearity::Tanh,
    }
    Rnn RnnConfig {}
    BiRnn BiRnnConfig
    RnnCell RnnCellConfig
    ""
}

/// The option of an RNN is a field of the module: `rnn.nonlinearity`.
macro_rules! option_as_field {
    ($($module:ident)*) => {$(
        impl<B: Backend> Deref for $module<B> {
            type Target = RnnOptions;

            fn deref(&self) -> &RnnOptions {
                &self.options
            }
        }

        impl<B: Backend> DerefMut for $module<B> {
            fn deref_mut(&mut self) -> &mut RnnOptions {
                &mut self.options
            }
        }
    )*};
}

option_as_field!(Rnn RnnCell);

/// The activation of an [`Rnn`](crate::Rnn).
#[derive(Config, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nonlinearity {
    /// Hyperbolic tangent.
    #[default]
    Tanh,
    /// `max(x, 0)`.
    Relu,
}

crate::plain_data!(Nonlinearity);

/// `h' = activation(product + h Wᵀ_hh)`
impl Unit for RnnOptions {
    type State<B: Backend, const D: usize> = Tensor<B, D>;

    const MODULES: [&'static str; 2] = ["Rnn", "RnnCell"];
    const NAME: &'static str = "rnn";
    const STATES: &'static [&'static str] = &["hidden"];

    fn gates(self) -> usize {
        1
    }

    fn visit_field(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        path.within("nonlinearity", |path| self.nonlinearity.visit(path, visitor));
    }

    fn step<B: Backend>(
        self,
        product: Tensor<B, 2>,
        states: Vec<Tensor<B, 2>>,
        constants: &[Tensor<B, 2>],
    ) -> Vec<Tensor<B, 2>> {
        let [hidden] = exactly(states);
        let sum = product + hidden.matmul(constants[0].clone());
        vec![match self.nonlinearity {
            Nonlinearity::Tanh => sum.tanh(),
            Nonlinearity::Relu => relu(sum),
        }]
    }
}
