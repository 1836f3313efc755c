//! A linear layer with a weight in floats or in quantized blocks.

use crate::module::forward::forward_modules;
use crate::{BlockLinear, Linear, Module, Param};
use kiln_backends::Dyn;
use kiln_tensor::blocks::{BlockFormat, BlockTensor};
use kiln_tensor::{Backend, Result, Tensor};

/// Linear layer whose weight is in floats or in quantized blocks: the projections of
/// [`GroupedQueryAttention`](crate::attention::GroupedQueryAttention) and
/// [`GatedFeedForward`](crate::transformer::GatedFeedForward).
///
/// The names of the parameters are those of [`Linear`] in both cases: `weight` and `bias`.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{LinearConfig, Projection};
/// use kiln_tensor::Tensor;
/// use kiln_tensor::blocks::BlockFormat;
///
/// let device = Default::default();
/// let projection = Projection::from(LinearConfig::new(64, 8).init::<Flex>(&device));
/// let projection = projection.quantize(BlockFormat::Q4_1)?;
/// assert_eq!(projection.format(), Some(BlockFormat::Q4_1));
/// assert_eq!(projection.forward(Tensor::<_, 2>::ones([3, 64], &device)).dims(), [3, 8]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
#[derive(Module, Clone, Debug)]
pub enum Projection<B: Backend = Dyn> {
    /// A weight in floats.
    Float(Linear<B>),
    /// A weight in quantized blocks.
    Blocks(BlockLinear<B>),
}

impl<B: Backend> Projection<B> {
    /// Computes `x Wᵀ + b`: the input is `[.., in]`, the output `[.., out]`.
    ///
    /// # Panics
    /// When the last dimension differs from the weight's `in`.
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        match self {
            Projection::Float(linear) => linear.forward(x),
            Projection::Blocks(linear) => linear.forward(x),
        }
    }

    /// Returns the layer with its weight in blocks of a format, rounded to the nearest on the host. A weight in another
    /// format is dequantised first. Waits for the device.
    ///
    /// # Errors
    /// When the rows of the weight are not whole blocks; [`BlockFormat::fitting`] has a format that fits.
    pub fn quantize(self, format: BlockFormat) -> Result<Self> {
        match self {
            Projection::Blocks(linear) if linear.format == format => Ok(Projection::Blocks(linear)),
            Projection::Float(_) | Projection::Blocks(_) => {
                Ok(Projection::Blocks(BlockLinear::quantize(&self.dequantize(), format)?))
            }
        }
    }

    /// Returns the layer with a weight in floats.
    ///
    /// # Panics
    /// When the blocks are not `u8`, or not whole.
    #[track_caller]
    pub fn dequantize(self) -> Linear<B> {
        match self {
            Projection::Float(linear) => linear,
            Projection::Blocks(linear) => linear.dequantize(),
        }
    }

    /// Returns the format of the blocks; `None` of a weight in floats.
    pub fn format(&self) -> Option<BlockFormat> {
        match self {
            Projection::Float(_) => None,
            Projection::Blocks(linear) => Some(linear.format),
        }
    }

    /// Returns the layer with a weight in floats; `None` of a weight in blocks.
    pub fn linear(&self) -> Option<&Linear<B>> {
        match self {
            Projection::Float(linear) => Some(linear),
            Projection::Blocks(_) => None,
        }
    }

    /// Returns the number of input features.
    pub fn d_input(&self) -> usize {
        match self {
            Projection::Float(linear) => linear.weight.dims()[1],
            Projection::Blocks(linear) => linear.blocks().columns(),
        }
    }

    /// Returns the number of output features.
    pub fn d_output(&self) -> usize {
        match self {
            Projection::Float(linear) => linear.weight.dims()[0],
            Projection::Blocks(linear) => linear.weight.dims()[0],
        }
    }

    /// Returns the bias, `[out]`.
    pub fn bias(&self) -> Option<&Param<Tensor<B, 1>>> {
        match self {
            Projection::Float(linear) => linear.bias.as_ref(),
            Projection::Blocks(linear) => linear.bias.as_ref(),
        }
    }
}

impl<B: Backend> From<Linear<B>> for Projection<B> {
    fn from(linear: Linear<B>) -> Self {
        Projection::Float(linear)
    }
}

impl<B: Backend> From<BlockLinear<B>> for Projection<B> {
    fn from(linear: BlockLinear<B>) -> Self {
        Projection::Blocks(linear)
    }
}

/// A layer without bias.
impl<B: Backend> From<BlockTensor<B>> for Projection<B> {
    fn from(weight: BlockTensor<B>) -> Self {
        Projection::Blocks(BlockLinear::new(weight, None))
    }
}

forward_modules! {
    Projection<B>;
}
