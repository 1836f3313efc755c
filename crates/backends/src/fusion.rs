//! Fusion as a backend.

use alloc::sync::Arc;
use core::marker::PhantomData;
use kiln_fusion::Fusion as Layer;
use kiln_tensor::{Backend, Stack};

/// Fusion over another backend: ops are recorded, and adjacent ops run as one kernel if the engine below supports it.
///
/// Reading a tensor runs the recorded ops. [`Tensor::explain`](kiln_tensor::Tensor::explain) lists the kernels of a
/// tensor. The environment variable `KILN_FUSION` (`off`, `on`, `check`) switches fusion.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fusion<B>(PhantomData<B>);

impl<B: Backend> Backend for Fusion<B> {
    type Device = B::Device;
    type FloatElem = B::FloatElem;
    type IntElem = B::IntElem;
    type BoolElem = B::BoolElem;

    fn stack(device: &B::Device) -> Stack {
        with_fusion(&B::stack(device))
    }

    fn device(stack: &Stack) -> B::Device {
        B::device(stack.below().unwrap_or(stack))
    }
}

/// Returns the stack with fusion: ops are recorded, and adjacent ops run as one kernel. The environment variable
/// `KILN_FUSION` (`off`, `on`, `check`) switches fusion. Repeated calls return the same stack.
#[must_use]
pub fn with_fusion(stack: &Stack) -> Stack {
    // Fusion does not change values, so messages need not contain its name.
    stack.layered("", (), |engine| Arc::new(Layer::new(engine)))
}
