//! Functions behind neural network modules: convolution, pooling, normalisation, attention, embedding.
//!
//! Layouts are channels-first: `[batch, channels, height, width]`. Definitions are PyTorch's where it has the function.
//! Functions panic when shapes or dtypes are incompatible. The methods of [`AnyTensor`](crate::AnyTensor) accept any
//! number of spatial dimensions, and return errors instead of panicking: [`conv2d`] is `AnyTensor::conv` and so on.
//!
//! ```
//! use kiln_backends::Flex;
//! use kiln_tensor::Tensor;
//! use kiln_tensor::module::{self, PoolOptions};
//!
//! let x = Tensor::<Flex, 4>::from_data([[[[1.0f32, 2.0], [3.0, 4.0]]]], &Default::default());
//! let y = module::max_pool2d(x, &PoolOptions::new([2, 2]));
//! assert_eq!(y.into_data().to_vec::<f32>(), [4.0]);
//! ```

mod attention;
mod conv;
mod custom_gradient;
mod embedding;
mod gradient_reversal;
mod image;
mod norm;
mod pool;

pub use crate::any::{
    AttentionOptions, BagMode, BatchNormOptions, BatchStatistics, Causal, DeformConvSpec, EmbeddingOptions,
    InterpolateMode, InterpolateOptions, InterpolateSize, RotaryLayout,
};
pub use attention::*;
pub use conv::*;
pub use custom_gradient::custom_gradient;
pub use embedding::*;
pub use gradient_reversal::gradient_reversal;
#[cfg(feature = "std")]
pub(crate) use gradient_reversal::register as register_gradient_reversal;
pub use image::*;
pub use kiln_ir::{ConvOptions, ConvSpec, PoolOptions, Pooling};
pub use norm::*;
pub use pool::*;

use crate::functions::table::{functions, typed};
use crate::{Backend, Custom, CustomOp, Error, Float, Kind, Result, Tensor};
use alloc::vec::Vec;
use kiln_ir::{Op, Operand};

functions! {
    typed;

    /// Applies a linear layer, `x · weightᵀ + bias`: `x` is `[.., in]`, weight `[out, in]`, bias `[out]`; the result is
    /// `[.., out]`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, module};
    ///
    /// let x = Tensor::<Flex, 1>::from_data([1.0f32, 2.0], &Default::default());
    /// let weight = Tensor::<Flex, 2>::from_data([[10.0f32, 1.0]], &Default::default());
    /// assert_eq!(module::linear(x, weight, None).into_data().to_vec::<f32>(), [12.0]);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.linear.html)
    ///
    /// # Panics
    /// When the inner sizes differ.
    pub fn linear[B: Backend, const D: usize](
        x: Tensor<B, D>,
        weight: Tensor<B, 2> as any,
        bias: Option<Tensor<B, 1>> as anys,
    ) -> Tensor<B, D>;

    /// Applies a bilinear layer, `aᵀ W_o b + bias_o` for each output `o`: `a` is `[.., in1]`, `b` `[.., in2]`, weight
    /// `[out, in1, in2]`, bias `[out]`; the result is `[.., out]`.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, module};
    ///
    /// let a = Tensor::<Flex, 1>::from_data([1.0f32, 2.0], &Default::default());
    /// let weight = Tensor::<Flex, 3>::ones([1, 2, 2], &Default::default());
    /// assert_eq!(module::bilinear(a.clone(), a, weight, None).into_data().to_vec::<f32>(), [9.0]);
    /// ```
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.bilinear.html)
    ///
    /// # Panics
    /// When the shapes are incompatible.
    pub fn bilinear[B: Backend, const D: usize](
        a: Tensor<B, D>,
        b: Tensor<B, D> as any,
        weight: Tensor<B, 3> as any,
        bias: Option<Tensor<B, 1>> as anys,
    ) -> Tensor<B, D>;
}

macro_rules! dropouts {
    ($($(#[$doc:meta])* $name:ident $rank:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Panics
        /// When the probability is not between 0 and 1.
        #[track_caller]
        pub fn $name<B: Backend>(x: Tensor<B, $rank>, probability: f64, training: bool) -> Tensor<B, $rank> {
            x.map(|any| any.dropout_channels(probability, training))
        }
    )*};
}

dropouts! {
    /// Applies [`dropout`] to whole channels of `[batch, channels, length]`
    /// ([PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout1d.html)).
    dropout1d 3;
    /// Applies [`dropout`] to whole channels of `[batch, channels, height, width]`
    /// ([PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout2d.html)).
    dropout2d 4;
    /// Applies [`dropout`] to whole channels of `[batch, channels, depth, height, width]`
    /// ([PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout3d.html)).
    dropout3d 5;
}

functions! {
    typed;

    /// Applies dropout ([Srivastava et al. 2014](https://jmlr.org/papers/v15/srivastava14a.html)). In training, elements
    /// become 0 with the given probability; the others are divided by `1 - probability`, which keeps the mean. Outside
    /// training, returns the tensor unchanged. Uses the next key of the device.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_tensor::{Tensor, module};
    ///
    /// let x = Tensor::<Flex, 1>::ones([100], &Default::default());
    /// let y = module::dropout(x, 0.5, true).into_data().to_vec::<f32>();
    /// assert!(y.iter().all(|&y| y == 0.0 || y == 2.0));
    /// ```
    ///
    /// # Panics
    /// When the probability is not between 0 and 1.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout.html)
    pub fn dropout[B: Backend, const D: usize](
        x: Tensor<B, D>,
        probability: f64,
        training: bool,
    ) -> Tensor<B, D>;

    /// Applies alpha dropout ([Klambauer et al. 2017](https://arxiv.org/abs/1706.02515)). In training, elements become the
    /// lower limit of [`selu`](crate::activation::selu) with this probability; then all are scaled and shifted to keep mean
    /// 0 and variance 1. With probability 1 the result is 0. Outside training, returns the tensor unchanged. Uses the next
    /// key of the device.
    ///
    /// # Panics
    /// When the probability is not between 0 and 1.
    ///
    /// [PyTorch](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.alpha_dropout.html)
    pub fn alpha_dropout[B: Backend, const D: usize](
        x: Tensor<B, D>,
        probability: f64,
        training: bool,
    ) -> Tensor<B, D>;
}

/// Runs a [`CustomOp`] with a single result of rank `D2` and kind `K2` on tensors of one backend.
///
/// # Panics
/// When the op does not accept the operands, or its result is of another rank or kind.
#[track_caller]
pub fn custom<B: Backend, const D: usize, const D2: usize, K2: Kind>(
    op: impl CustomOp,
    inputs: Vec<Tensor<B, D, Float>>,
) -> Tensor<B, D2, K2> {
    let op = Op::Custom(Custom::new(op));
    let mut inputs = inputs.into_iter();
    let Some(first) = inputs.next() else {
        panic!(
            "[{}] a custom op needs at least one tensor\n  hint: its device is that of the first",
            op.name()
        );
    };
    first.convert(|any| any.apply_with(&op, inputs.map(|input| input.into_any().into_value().into())))
}

/// Like [`custom`], without blocking the thread: the form for browsers of ops that run on the host. It
/// blocks for operands with tangents of forward mode, and for those that `vmap` batches. So does a gradient rule that
/// runs an op on the host. In a browser, these are errors: register a kernel for the device.
///
/// # Errors
/// When there is no operand, or the op does not accept the operands.
///
/// # Panics
/// When the result is of another rank or kind.
pub async fn custom_async<B: Backend, const D: usize, const D2: usize, K2: Kind>(
    op: impl CustomOp,
    inputs: Vec<Tensor<B, D, Float>>,
) -> Result<Tensor<B, D2, K2>> {
    let op = Op::Custom(Custom::new(op));
    let mut inputs = inputs.into_iter();
    let Some(first) = inputs.next() else {
        return Err(Error::type_error(op.name(), "a custom op needs at least one tensor", &[])
            .hint("its device is that of the first"));
    };
    let rest = inputs.map(|input| Operand::Value(input.into_any().into_value()));
    Ok(Tensor::from_any(first.into_any().apply_with_async(&op, rest).await?))
}
