//! Backends: zero-sized types that name engine stacks.

use crate::{Checkpointing, Stack};
use alloc::boxed::Box;
use alloc::format;
use core::fmt::Debug;
use core::marker::PhantomData;
use kiln_ir::{BoxFuture, Element, MemoryConfig, MemoryUse};

/// The type that names an engine stack at compile time. Zero-sized, never constructed by programs.
///
/// A custom backend opens its stack with [`Stack::opened`]. This example wraps the reference engine:
///
/// ```
/// use kiln_reference::Reference;
/// use kiln_tensor::{Autodiff, Backend, DType, DeviceKey, Stack, Tensor};
/// use std::sync::Arc;
///
/// #[derive(Clone, Copy, Debug, Default)]
/// struct Slow;
///
/// #[derive(Clone, Debug, Default, PartialEq)]
/// struct SlowDevice;
///
/// impl Backend for Slow {
///     type Device = SlowDevice;
///     type FloatElem = f64;
///     type IntElem = i64;
///     type BoolElem = bool;
///
///     fn stack(device: &SlowDevice) -> Stack {
///         let engine = || Arc::new(Reference::new());
///         let open = || Stack::of_device(engine(), device.clone(), "slow", DType::F64, DType::I64);
///         Stack::opened::<Slow>(DeviceKey::Index(0), open)
///     }
/// }
///
/// let x = Tensor::<Autodiff<Slow>, 1>::from_floats([3.0], &SlowDevice).require_grad();
/// let gradients = (&x * &x).sum().backward();
/// assert_eq!(x.grad(&gradients).unwrap().into_data(), [6.0f64].into());
/// ```
pub trait Backend: Copy + Default + Debug + Send + Sync + 'static {
    /// The device type: a value selects the device that the backend opens.
    type Device: Clone + Default + Debug + PartialEq + Send + Sync + 'static;
    /// The element type of new float tensors. Where a device chooses the dtype at run time, as on `Dyn`, that of its
    /// default.
    type FloatElem: Element;
    /// The element type of new integer tensors, likewise.
    type IntElem: Element;
    /// The element type of `bool` tensors: `bool`.
    type BoolElem: Element;

    /// Returns the opened stack of a device; opens it on first use.
    fn stack(device: &Self::Device) -> Stack;

    /// Returns the device of a stack that this backend opened: its device [value](Stack::device) if that has this type,
    /// otherwise the default.
    fn device(stack: &Stack) -> Self::Device {
        stack.device().cloned().unwrap_or_default()
    }

    /// Seeds the random number generator of a device: the same seed produces the same numbers on every engine.
    fn seed(device: &Self::Device, seed: u64) {
        Self::stack(device).keys().seed(seed);
    }

    /// Waits until a device has completed all queued work.
    ///
    /// # Errors
    /// When the device failed. In a browser, where no thread may wait for a GPU: see
    /// [`sync_async`](Backend::sync_async).
    fn sync(device: &Self::Device) -> crate::Result<()> {
        let stack = Self::stack(device);
        kiln_ir::wait_for(stack.engine().sync(), "synchronization", "await `Backend::sync_async`")
    }

    /// Like [`sync`](Backend::sync), without blocking the thread.
    ///
    /// ```
    /// use kiln_backends::Cpu;
    /// use kiln_tensor::Backend;
    ///
    /// let done = Cpu::sync_async(&Default::default());
    /// # kiln_ir::block_on(done)?;
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future returns an error when the device failed.
    fn sync_async(device: &Self::Device) -> BoxFuture<'static, crate::Result<()>> {
        let stack = Self::stack(device);
        Box::pin(async move { stack.engine().sync().await })
    }

    /// Returns the memory statistics of a device; `None` if its engine does not track allocations.
    #[doc(alias = "memory_allocated")]
    fn memory(device: &Self::Device) -> Option<MemoryUse> {
        Self::stack(device).memory().map(|memory| memory.usage())
    }

    /// Sets the memory strategy of a device from now on: a limit, and the freed blocks that are cached. All CPU devices
    /// share one allocator, so on the CPU it applies to the process.
    ///
    /// # Errors
    /// When the device's engine has no caching allocator.
    ///
    /// ```
    /// use kiln_backends::Cpu;
    /// use kiln_tensor::{Backend, CacheStrategy, MemoryConfig};
    ///
    /// let config = MemoryConfig::new().with_limit(2 << 30).with_cache(CacheStrategy::AtMost(256 << 20));
    /// Cpu::configure_memory(&Default::default(), config)?;
    /// # Ok::<(), kiln_tensor::Error>(())
    /// ```
    #[doc(alias = "set_per_process_memory_fraction")]
    fn configure_memory(device: &Self::Device, config: MemoryConfig) -> crate::Result<()> {
        let stack = Self::stack(device);
        let memory = stack.memory().ok_or_else(|| no_allocator(&stack))?;
        memory.configure(config);
        Ok(())
    }

    /// Returns cached memory of a device to the system.
    #[doc(alias = "empty_cache")]
    fn memory_cleanup(device: &Self::Device) {
        if let Some(memory) = Self::stack(device).memory() {
            memory.trim();
        }
    }

    /// Resets the [peak](MemoryUse::peak_live_bytes) of a device to the bytes in use now.
    #[doc(alias = "reset_peak_memory_stats")]
    fn reset_peak_memory(device: &Self::Device) {
        if let Some(memory) = Self::stack(device).memory() {
            memory.reset_peak();
        }
    }
}

fn no_allocator(stack: &Stack) -> crate::Error {
    crate::Error::unsupported(
        "configure_memory",
        format!("`{}` has no caching allocator", stack.device_name()),
    )
    .hint("its engine allocates each tensor from the system")
}

/// A backend with automatic differentiation: `require_grad` and `backward` exist only here.
///
/// ```compile_fail,E0277
/// use kiln_backends::Cpu;
/// use kiln_tensor::Tensor;
///
/// let x = Tensor::<Cpu, 1>::ones([2], &Default::default()).require_grad(); // `Autodiff<Cpu>` has gradients.
/// ```
#[diagnostic::on_unimplemented(
    message = "the backend `{Self}` has no automatic differentiation",
    label = "gradients need a backend such as `Autodiff<{Self}>`",
    note = "use `Autodiff<{Self}>` as the backend of the tensors and modules, as in `type B = Autodiff<Cpu>;`"
)]
pub trait AutodiffBackend: Backend {
    /// The inner backend, of gradients and inference.
    type InnerBackend: Backend<Device = Self::Device, FloatElem = Self::FloatElem, IntElem = Self::IntElem>;

    /// Returns the device of the inner backend's tensors, such as the validation batches of a model from `valid()`. It is the
    /// same device, except on a backend whose device names its layers (`Dyn`): there it is the one below automatic
    /// differentiation.
    ///
    /// ```
    /// use kiln_backends::{Device, Dyn, Flex};
    /// use kiln_tensor::{Autodiff, AutodiffBackend, Tensor};
    ///
    /// fn ones<B: AutodiffBackend>(device: &B::Device) -> Tensor<B::InnerBackend, 1> {
    ///     Tensor::ones([2], &B::inner_device(device))
    /// }
    ///
    /// let _: Tensor<Flex, 1> = ones::<Autodiff<Flex>>(&Default::default());
    /// assert_eq!(ones::<Dyn>(&Device::cpu().autodiff()).device(), Device::cpu());
    /// ```
    #[must_use]
    fn inner_device(device: &Self::Device) -> Self::Device {
        device.clone()
    }
}

/// Implements the backends of layers by the method that adds the layer to a stack, and the one that returns the stack
/// below.
macro_rules! layers {
    ($(impl[$($generics:tt)*] $layer:ty: $add:ident($($option:expr)?), $below:ident;)*) => {$(
        impl<$($generics)*> Backend for $layer {
            type Device = B::Device;
            type FloatElem = B::FloatElem;
            type IntElem = B::IntElem;
            type BoolElem = B::BoolElem;

            fn stack(device: &B::Device) -> Stack {
                B::stack(device).$add($($option)?)
            }

            fn device(stack: &Stack) -> B::Device {
                B::device(stack.$below().unwrap_or(stack))
            }
        }
    )*};
}

/// Adds automatic differentiation (reverse mode) to a backend. Nest it for second derivatives:
/// `Autodiff<Autodiff<Flex>>`.
///
/// `C` is the checkpointing strategy of the tape. [`NoCheckpointing`] saves every tensor that gradients need;
/// [`BalancedCheckpointing`] saves only the tensors that are expensive to recompute.
#[derive(Clone, Copy, Debug, Default)]
pub struct Autodiff<B, C = NoCheckpointing>(PhantomData<(B, C)>);

/// The activation checkpointing strategy of a tape, as a type parameter of [`Autodiff`].
pub trait CheckpointingStrategy: Copy + Default + Debug + Send + Sync + 'static {
    /// The strategy as a value.
    const STRATEGY: Checkpointing;
}

/// Saves all tensors that gradients need.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCheckpointing;

/// Recomputes cheap, memory-bound results in the backward pass instead of saving them (activation checkpointing).
#[derive(Clone, Copy, Debug, Default)]
pub struct BalancedCheckpointing;

impl CheckpointingStrategy for NoCheckpointing {
    const STRATEGY: Checkpointing = Checkpointing::None;
}

impl CheckpointingStrategy for BalancedCheckpointing {
    const STRATEGY: Checkpointing = Checkpointing::Balanced;
}

impl<B: Backend, C: CheckpointingStrategy> AutodiffBackend for Autodiff<B, C> {
    type InnerBackend = B;
}

/// A backend with forward-mode differentiation; see [`transform::jvp`](crate::transform::jvp).
pub trait ForwardBackend: Backend {
    /// The inner backend, of values and tangents outside the transform.
    type InnerBackend: Backend<Device = Self::Device>;
}

/// Adds forward-mode differentiation to a backend: tensors carry a tangent. [`transform::jvp`](crate::transform::jvp)
/// and its companions create such tensors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forward<B>(PhantomData<B>);

impl<B: Backend> ForwardBackend for Forward<B> {
    type InnerBackend = B;
}

/// A backend whose tensors represent one example of a batch; see [`transform::vmap`](crate::transform::vmap).
pub trait VmapBackend: Backend {
    /// The inner backend, of the batches.
    type InnerBackend: Backend<Device = Self::Device>;
}

/// Adds batching to a backend: a tensor represents one example of a batch. [`transform::vmap`](crate::transform::vmap)
/// creates such tensors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vmap<B>(PhantomData<B>);

impl<B: Backend> VmapBackend for Vmap<B> {
    type InnerBackend = B;
}

layers! {
    impl[B: Backend, C: CheckpointingStrategy] Autodiff<B, C>: with_autodiff(C::STRATEGY), inner;
    impl[B: Backend] Forward<B>: with_forward(), below;
    impl[B: Backend] Vmap<B>: with_vmap(), below;
}
