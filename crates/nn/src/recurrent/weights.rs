//! The weights of recurrent layers, with PyTorch's names and shapes.

use super::lengths::SequenceLengths;
use crate::module::ReplaceParameter;
use crate::{BackendModule, Initializer, Mode, Module, ModuleOn, Param, Path, Visitor, VisitorMut};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Int, Tensor};

/// The weights of one direction of one recurrent layer.
///
/// The gates are stacked along axis 0: `gates` is 4 for an [`Lstm`](crate::Lstm) (input, forget, cell, output; 3 with
/// `input_forget`, which has no forget gate), 3 for a [`Gru`](crate::Gru) (reset, update, new) and 1 for an
/// [`Rnn`](crate::Rnn). `state` is the width of the hidden state:
/// `projection` of an LSTM that has one, otherwise `hidden`.
#[derive(Clone, Debug)]
pub struct RecurrentWeights<B: Backend = Dyn> {
    /// `[gates * hidden, input]`.
    pub weight_ih: Param<Tensor<B, 2>>,
    /// `[gates * hidden, state]`.
    pub weight_hh: Param<Tensor<B, 2>>,
    /// `[gates * hidden]`.
    pub bias_ih: Option<Param<Tensor<B, 1>>>,
    /// `[gates * hidden]`.
    pub bias_hh: Option<Param<Tensor<B, 1>>>,
    /// The projection of the hidden state, `[projection, hidden]`. Only in an LSTM with projections.
    pub weight_hr: Option<Param<Tensor<B, 2>>>,
}

/// The layers of an [`Rnn`](crate::Rnn), [`Gru`](crate::Gru) or [`Lstm`](crate::Lstm): their weights, and the options
/// that these modules have in common.
///
/// The parameters have PyTorch's flat names, without the name of this field: `weight_ih_l0`, `weight_hh_l0`,
/// `bias_ih_l0`, `bias_hh_l0` and `weight_hr_l0` of layer 0, with the suffix `_reverse` for the reverse direction.
#[derive(Clone, Debug)]
pub struct RecurrentLayers<B: Backend = Dyn> {
    /// The weights. With two directions, those of layer `i` are at `2 i` and (reverse) `2 i + 1`.
    pub weights: Vec<RecurrentWeights<B>>,
    /// Whether each layer also runs from the last step to the first.
    pub bidirectional: bool,
    /// Whether inputs and outputs are `[batch, length, features]` instead of `[length, batch, features]`.
    pub batch_first: bool,
    /// The probability of dropout on the outputs of each layer except the last.
    pub dropout: f64,
    /// Whether dropout is active.
    pub mode: Mode,
}

impl<B: Backend> RecurrentLayers<B> {
    /// Returns the number of layers.
    pub fn num_layers(&self) -> usize {
        self.weights.len() / self.num_directions()
    }

    /// Returns the number of directions: 1 or 2.
    pub fn num_directions(&self) -> usize {
        if self.bidirectional { 2 } else { 1 }
    }

    /// Returns the number of input features.
    ///
    /// # Panics
    /// When there are no layers.
    #[track_caller]
    pub fn d_input(&self) -> usize {
        self.weights[0].weight_ih.dims()[1]
    }

    /// The lengths of the sequences of `x` as a tensor `[batch]`.
    #[track_caller]
    pub(super) fn lengths(&self, x: &Tensor<B, 3>, lengths: impl SequenceLengths<B>) -> Tensor<B, 1, Int> {
        let [first, second, _] = x.dims();
        let (batch, longest) = if self.batch_first { (first, second) } else { (second, first) };
        lengths.into_tensor(batch, longest, x.engine_stack())
    }
}

/// The name of a parameter of the weights at `index`.
fn flat_name(parameter: &str, index: usize, directions: usize) -> String {
    let suffix = if index % directions == 1 { "_reverse" } else { "" };
    format!("{parameter}_l{}{suffix}", index / directions)
}

/// The settings that the configurations of recurrent modules have in common.
pub(super) struct LayerSettings {
    pub(super) gates: usize,
    pub(super) d_input: usize,
    pub(super) d_hidden: usize,
    pub(super) projection: Option<usize>,
    pub(super) bias: bool,
    pub(super) num_layers: usize,
    pub(super) bidirectional: bool,
    pub(super) dropout: f64,
    pub(super) batch_first: bool,
    pub(super) initializer: Option<Initializer>,
}

impl LayerSettings {
    #[track_caller]
    pub(super) fn init<B: Backend>(&self, device: &B::Device) -> RecurrentLayers<B> {
        self.check();
        let directions = if self.bidirectional { 2 } else { 1 };
        let state = self.projection.unwrap_or(self.d_hidden);
        let input = |layer| if layer == 0 { self.d_input } else { directions * state };
        let layers = (0..self.num_layers).flat_map(|layer| core::iter::repeat_n(input(layer), directions));
        RecurrentLayers {
            weights: layers.map(|input| self.weights(input, state, device)).collect(),
            bidirectional: self.bidirectional,
            batch_first: self.batch_first,
            dropout: self.dropout,
            mode: Mode::Auto,
        }
    }

    #[track_caller]
    fn check(&self) {
        let LayerSettings { d_hidden, num_layers, dropout, projection, .. } = *self;
        assert!(num_layers > 0, "[recurrent] num_layers must be at least 1");
        assert!(
            (0.0..=1.0).contains(&dropout),
            "[recurrent] the probability {dropout} of dropout is not between 0 and 1"
        );
        if let Some(width) = projection {
            assert!(
                (1..d_hidden).contains(&width),
                "[recurrent] the projection is {width}, but must be at least 1 and less than d_hidden = {d_hidden}"
            );
        }
    }

    #[track_caller]
    fn weights<B: Backend>(&self, input: usize, state: usize, device: &B::Device) -> RecurrentWeights<B> {
        let initializer = default_initializer(self.initializer, self.d_hidden);
        let shape = [self.gates * self.d_hidden, input, state];
        let projection = self.projection.map(|width| initializer.init([width, self.d_hidden], device));
        RecurrentWeights {
            weight_hr: projection,
            ..RecurrentWeights::cell(shape, self.bias, initializer, device)
        }
    }
}

/// The given initializer, or PyTorch's: uniform over `±1 / √hidden`.
#[track_caller]
pub(super) fn default_initializer(given: Option<Initializer>, d_hidden: usize) -> Initializer {
    assert!(d_hidden > 0, "[recurrent] d_hidden must be at least 1");
    let bound = 1.0 / libm::sqrt(d_hidden as f64);
    given.unwrap_or(Initializer::Uniform { min: -bound, max: bound })
}

impl<B: Backend> RecurrentWeights<B> {
    /// Returns initialized weights without a projection: `rows` is `gates * hidden`.
    #[track_caller]
    pub(super) fn cell(
        [rows, input, state]: [usize; 3],
        bias: bool,
        initializer: Initializer,
        device: &B::Device,
    ) -> Self {
        let bias = |fan_in| bias.then(|| initializer.init_with([rows], fan_in, rows, device));
        RecurrentWeights {
            weight_ih: initializer.init([rows, input], device),
            weight_hh: initializer.init([rows, state], device),
            bias_ih: bias(input),
            bias_hh: bias(state),
            weight_hr: None,
        }
    }

    fn modules(&self) -> [(&'static str, &dyn Module); 5] {
        [
            ("weight_ih", &self.weight_ih),
            ("weight_hh", &self.weight_hh),
            ("bias_ih", &self.bias_ih),
            ("bias_hh", &self.bias_hh),
            ("weight_hr", &self.weight_hr),
        ]
    }

    fn modules_mut(&mut self) -> [(&'static str, &mut dyn Module); 5] {
        [
            ("weight_ih", &mut self.weight_ih),
            ("weight_hh", &mut self.weight_hh),
            ("bias_ih", &mut self.bias_ih),
            ("bias_hh", &mut self.bias_hh),
            ("weight_hr", &mut self.weight_hr),
        ]
    }
}

/// The parameters have the path of the enclosing module, so that their names are PyTorch's.
impl<B: Backend> Module for RecurrentLayers<B> {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        let directions = self.num_directions();
        for (index, weights) in self.weights.iter().enumerate() {
            for (name, parameter) in weights.modules() {
                let name = flat_name(name, index, directions);
                path.within(&name, |path| parameter.visit(path, visitor));
            }
        }
        path.within("bidirectional", |path| self.bidirectional.visit(path, visitor));
        path.within("batch_first", |path| self.batch_first.visit(path, visitor));
        path.within("dropout", |path| self.dropout.visit(path, visitor));
        path.within("mode", |path| self.mode.visit(path, visitor));
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        let directions = self.num_directions();
        for (index, weights) in self.weights.iter_mut().enumerate() {
            for (name, parameter) in weights.modules_mut() {
                let name = flat_name(name, index, directions);
                path.within(&name, |path| parameter.visit_mut(path, visitor));
            }
        }
        path.within("mode", |path| self.mode.visit_mut(path, visitor));
    }
}

impl<B: Backend> BackendModule<B> for RecurrentLayers<B> {}

impl<B: Backend, B2: Backend> ModuleOn<B2> for RecurrentLayers<B> {
    type On = RecurrentLayers<B2>;

    #[track_caller]
    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> RecurrentLayers<B2> {
        let on = |(index, weights): (usize, &RecurrentWeights<B>)| {
            let mut at = Placer { index, directions: self.num_directions(), path, place };
            RecurrentWeights {
                weight_ih: at.on("weight_ih", &weights.weight_ih),
                weight_hh: at.on("weight_hh", &weights.weight_hh),
                bias_ih: at.on("bias_ih", &weights.bias_ih),
                bias_hh: at.on("bias_hh", &weights.bias_hh),
                weight_hr: at.on("weight_hr", &weights.weight_hr),
            }
        };
        RecurrentLayers {
            weights: self.weights.iter().enumerate().map(on).collect(),
            bidirectional: self.bidirectional,
            batch_first: self.batch_first,
            dropout: self.dropout,
            mode: self.mode,
        }
    }
}

/// Converts the parameters of the weights at `index` to another backend.
struct Placer<'a, 'b> {
    index: usize,
    directions: usize,
    path: &'a mut Path,
    place: &'a mut ReplaceParameter<'b>,
}

impl Placer<'_, '_> {
    #[track_caller]
    fn on<B2: Backend, M: ModuleOn<B2>>(&mut self, name: &str, parameter: &M) -> M::On {
        let name = flat_name(name, self.index, self.directions);
        self.path.within(&name, |path| parameter.on(path, self.place))
    }
}
