//! Mixed precision as a backend.

use alloc::format;
use alloc::sync::Arc;
use core::fmt::Debug;
use core::marker::PhantomData;
use half::{bf16, f16};
use kiln_autocast::{Autocast as Layer, LowPrecision};
use kiln_tensor::{Backend, Stack};

/// Mixed precision over another backend. Matmuls, convolutions and attention run in 16 bits, sums, norms and losses in
/// `f32`, and other ops in the storage precision of their operands. To the program, tensors are `f32`. The
/// [table of ops](kiln_autocast) lists the precision of each op.
///
/// `F` is the 16-bit type: [`bf16`](half::bf16), or [`f16`](half::f16), which needs loss scaling. Wrap automatic
/// differentiation around it; parameters and gradients are then `f32`:
///
/// ```
/// use kiln_backends::{Autocast, Flex};
/// use kiln_tensor::{Autodiff, Tensor};
///
/// type B = Autodiff<Autocast<Flex>>;
/// let device = Default::default();
/// let weight = Tensor::<B, 2>::from_floats([[1.001], [2.0]], &device).require_grad();
/// let y = Tensor::<B, 2>::from_floats([[3.0, 4.0]], &device).matmul(weight.clone());
/// let gradients = y.clone().sum().backward();
/// assert_eq!(y.into_scalar::<f32>(), 11.0, "1.001 is 1 in bf16");
/// assert_eq!(weight.grad(&gradients).unwrap().into_data().to_vec::<f32>(), [3.0, 4.0]);
/// assert_eq!(weight.into_data().to_vec::<f32>()[0], 1.001, "weights stay as they are");
/// ```
///
/// The design is that of [PyTorch's autocast](https://docs.pytorch.org/docs/stable/amp.html) and of
/// [Micikevicius et al. 2018](https://arxiv.org/abs/1710.03740).
#[derive(Clone, Copy, Debug, Default)]
pub struct Autocast<B, F = bf16>(PhantomData<(B, F)>);

/// A 16-bit float type, as the type parameter of [`Autocast`].
pub trait AutocastFloat: Copy + Default + Debug + Send + Sync + 'static {
    /// The precision as a value.
    const PRECISION: LowPrecision;
}

impl AutocastFloat for bf16 {
    const PRECISION: LowPrecision = LowPrecision::BF16;
}

impl AutocastFloat for f16 {
    const PRECISION: LowPrecision = LowPrecision::F16;
}

impl<B: Backend, F: AutocastFloat> Backend for Autocast<B, F> {
    type Device = B::Device;
    type FloatElem = B::FloatElem;
    type IntElem = B::IntElem;
    type BoolElem = B::BoolElem;

    fn stack(device: &B::Device) -> Stack {
        with_autocast(&B::stack(device), F::PRECISION)
    }

    fn device(stack: &Stack) -> B::Device {
        B::device(stack.below().unwrap_or(stack))
    }
}

/// Returns the stack with mixed precision: contractions run in 16 bits. Repeated calls with the same precision return
/// the same stack.
#[must_use]
pub fn with_autocast(stack: &Stack, precision: LowPrecision) -> Stack {
    let label = format!("autocast to {}", precision.dtype());
    stack.layered(&label, precision, |engine| Arc::new(Layer::new(engine, precision)))
}
