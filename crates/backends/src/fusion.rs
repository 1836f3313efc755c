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

/// Sets the maximum size in bytes of each cache that grows with the number of different shapes: the plans of fusion, and
/// on the CPU also the compiled regions. What exceeds it is evicted at once, the least recently used first; the newest
/// plan stays. Without fusion and on other engines it has no effect.
///
/// Default: the environment variable `KILN_PLAN_CACHE_BYTES`, or 384 MiB of plans and 128 MiB of regions. A training step
/// of 1,500 ops takes about 0.8 MiB of plans for each set of shapes. A program that cycles through more shapes than fit
/// derives a plan in each step, which takes about as long as a step of a small model.
///
/// ```
/// use kiln_backends::{Cpu, set_plan_limit};
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// set_plan_limit::<Cpu>(&device, 16 << 20);
/// let x = Tensor::<Cpu, 1>::ones([4], &device);
/// assert_eq!((x * 2 + 1).into_data().to_vec::<f32>(), [3.0; 4]);
/// ```
pub fn set_plan_limit<B: Backend>(device: &B::Device, bytes: usize) {
    let stack = B::stack(device);
    if let Some(fusion) = stack.find::<Layer>() {
        fusion.set_plan_limit(bytes);
    }
    if let Some(engine) = stack.find::<kiln_cpu::Cpu>() {
        engine.set_plan_limit(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cpu, CpuDevice};
    use kiln_tensor::Tensor;

    #[test]
    fn the_limit_reaches_both_caches() {
        let run = |length: usize| {
            let x = Tensor::<Cpu, 1>::ones([length], &CpuDevice);
            let found = (x.exp() + 1).log().into_data().to_vec::<f32>();
            assert!(found.len() == length && (found[0] - 3.718_281_8_f32.ln()).abs() < 1e-6);
        };
        (1..60).for_each(run);
        let stack = Cpu::stack(&CpuDevice);
        let fusion = stack.find::<Layer>().unwrap();
        let engine = stack.find::<kiln_cpu::Cpu>().unwrap();
        let (plans, regions) = (fusion.statistics().plan_bytes as usize, engine.plan_bytes());
        let most = plans.min(regions) / 3;
        assert!(most > 0);
        set_plan_limit::<Cpu>(&CpuDevice, most);
        (1..200).for_each(|length| {
            run(length);
            let (plans, regions) = (fusion.statistics().plan_bytes as usize, engine.plan_bytes());
            assert!(plans <= most && regions <= most, "{plans} and {regions} bytes, limited to {most}");
        });
    }
}
