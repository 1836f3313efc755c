//! The bilinear layer.

use crate::{Config, ForwardModule, Initializer, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor, module};

/// Settings of a [`Bilinear`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct BilinearConfig {
    /// Number of features of the first input.
    pub d_input1: usize,
    /// Number of features of the second input.
    pub d_input2: usize,
    /// Number of output features.
    pub d_output: usize,
    /// Whether to add a bias. Default: true.
    #[config(default = true)]
    pub bias: bool,
    /// The initializer of weight and bias; the fan in is `d_input1`, as in PyTorch. Default: [`Initializer::LINEAR`].
    #[config(default = Initializer::LINEAR)]
    pub initializer: Initializer,
}

/// Bilinear layer: `y_o = aᵀ W_o b + bias_o` for each output feature `o`, over the last dimensions of two inputs.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::BilinearConfig;
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let layer = BilinearConfig::new(3, 4, 2).init::<Flex>(&device);
/// let (a, b) = (Tensor::<Flex, 2>::ones([5, 3], &device), Tensor::ones([5, 4], &device));
/// assert_eq!(layer.forward(a, b).dims(), [5, 2]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct Bilinear<B: Backend = Dyn> {
    /// `[out, in1, in2]`.
    pub weight: Param<Tensor<B, 3>>,
    /// `[out]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
}

impl BilinearConfig {
    /// Returns a layer with initialized parameters on a device.
    pub fn init<B: Backend>(&self, device: &B::Device) -> Bilinear<B> {
        let (first, second, output) = (self.d_input1, self.d_input2, self.d_output);
        let bias = || self.initializer.init_with([output], first, output, device);
        Bilinear {
            weight: self.initializer.init_with([output, first, second], first, output, device),
            bias: self.bias.then(bias),
        }
    }
}

impl<B: Backend> Bilinear<B> {
    /// Computes the layer: the inputs are `[.., in1]` and `[.., in2]`, the output `[.., out]`.
    ///
    /// # Panics
    /// When a last dimension differs from the weight's, or the other dimensions differ.
    #[track_caller]
    pub fn forward<const D: usize>(&self, a: Tensor<B, D>, b: Tensor<B, D>) -> Tensor<B, D> {
        module::bilinear(a, b, self.weight.val(), self.bias.as_ref().map(Param::val))
    }
}

impl<B: Backend, const D: usize> ForwardModule<(Tensor<B, D>, Tensor<B, D>)> for Bilinear<B> {
    type Output = Tensor<B, D>;

    #[track_caller]
    fn forward(&self, (a, b): (Tensor<B, D>, Tensor<B, D>)) -> Tensor<B, D> {
        Bilinear::forward(self, a, b)
    }
}
