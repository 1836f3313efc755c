//! The linear layer with a weight in quantized blocks.

use crate::module::forward::forward_modules;
use crate::{Linear, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::blocks::{BlockFormat, BlockTensor};
use kiln_tensor::{Backend, Int, Result, Tensor};

/// Linear layer `y = x Wᵀ + b` whose weight is in quantized blocks ([`blocks`](mod@kiln_tensor::blocks)), for
/// inference.
///
/// The weight is a buffer: optimizers do not update it. The gradient flows through the layer to its input, so that
/// adapters of other layers train.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{BlockLinear, LinearConfig};
/// use kiln_tensor::blocks::BlockFormat;
/// use kiln_tensor::{Distribution, Tensor};
///
/// let device = Default::default();
/// let linear = LinearConfig::new(64, 8).init::<Flex>(&device);
/// let quantized = BlockLinear::quantize(&linear, BlockFormat::Q8_0)?;
/// let x = Tensor::<Flex, 2>::random([4, 64], Distribution::Normal(0.0, 1.0), &device);
/// let difference = (quantized.forward(x.clone()) - linear.forward(x)).abs().max();
/// assert!(difference.into_scalar::<f32>() < 0.05);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[derive(Module, Clone, Debug)]
pub struct BlockLinear<B: Backend = Dyn> {
    /// The bytes of the blocks, `u8 [out, bytes]`.
    pub weight: Param<Tensor<B, 2, Int>>,
    /// `[out]`.
    pub bias: Option<Param<Tensor<B, 1>>>,
    /// The format of the blocks.
    #[module(attribute)]
    pub format: BlockFormat,
}

impl<B: Backend> BlockLinear<B> {
    /// Returns a layer with this weight, `[out, in]`, and bias, `[out]`.
    pub fn new(weight: BlockTensor<B>, bias: Option<Tensor<B, 1>>) -> Self {
        BlockLinear {
            weight: Param::buffer(weight.blocks),
            bias: bias.map(Param::from_tensor),
            format: weight.format,
        }
    }

    /// Quantises the weight of a layer on the host, rounding to the nearest. The bias keeps its dtype. Waits for the
    /// device.
    ///
    /// # Errors
    /// When the rows of the weight are not whole blocks; [`BlockFormat::fitting`] has a format that fits.
    pub fn quantize(linear: &Linear<B>, format: BlockFormat) -> Result<Self> {
        let weight = BlockTensor::try_quantize(linear.weight.val(), format)?;
        Ok(BlockLinear { bias: linear.bias.clone(), ..BlockLinear::new(weight, None) })
    }

    /// Returns the layer with a float weight.
    ///
    /// # Panics
    /// When the weight is not `u8` in whole blocks.
    #[track_caller]
    pub fn dequantize(&self) -> Linear<B> {
        Linear { weight: Param::from_tensor(self.blocks().dequantize()), bias: self.bias.clone() }
    }

    /// Returns the weight, `[out, in]`.
    pub fn blocks(&self) -> BlockTensor<B> {
        BlockTensor { blocks: self.weight.val(), format: self.format }
    }

    /// Computes `x Wᵀ + b`: the input is `[.., in]`, the output `[.., out]`. See [`BlockTensor::linear`] on accuracy.
    ///
    /// # Panics
    /// When the last dimension differs from the weight's `in`.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let y = self.blocks().linear(x);
        match &self.bias {
            Some(bias) => y + bias.val().unsqueeze::<D>(),
            None => y,
        }
    }
}

forward_modules! {
    BlockLinear<B>;
}
