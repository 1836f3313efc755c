//! Backends: zero-sized names of engine stacks.

use crate::{Checkpointing, CpuDevice, DType, Device, DeviceKey, FlexDevice, Stack};
use alloc::sync::Arc;
use core::any::TypeId;
use core::fmt::Debug;
use core::marker::PhantomData;
use half::{bf16, f16};
use kiln_autocast::LowPrecision;
use kiln_cpu::Cpu as CpuEngine;
use kiln_ir::MemoryUse;

/// The name of an engine stack, as a type parameter. Zero-sized, never constructed by programs.
pub trait Backend: Copy + Default + Debug + Send + Sync + 'static {
    /// What tells the backend which device to open.
    type Device: Clone + Default + Debug + PartialEq + Send + Sync + 'static;

    /// The opened stack of a device; opened on first use.
    fn stack(device: &Self::Device) -> Stack;

    /// The device of a stack that this backend opened.
    fn device(stack: &Stack) -> Self::Device;

    /// Tells the devices of this backend apart.
    fn device_key(device: &Self::Device) -> DeviceKey;

    /// Fixes the random numbers that follow on a device: the same seed gives the same numbers on every engine.
    fn seed(device: &Self::Device, seed: u64) {
        Self::stack(device).keys().seed(seed);
    }

    /// Waits until a device has done everything queued.
    ///
    /// # Errors
    /// When the device failed.
    fn sync(device: &Self::Device) -> crate::Result<()> {
        kiln_ir::block_on(Self::stack(device).engine().sync())
    }

    /// What tensors on a device take of its memory, as [`Device::memory`] says; `None` where its engine keeps no
    /// account.
    fn memory(device: &Self::Device) -> Option<MemoryUse> {
        Device(Self::stack(device)).memory()
    }

    /// Gives memory that a device keeps for later tensors back to the system.
    fn trim_memory(device: &Self::Device) {
        Device(Self::stack(device)).trim_memory();
    }

    /// Starts the [peak](MemoryUse::peak_live_bytes) of a device again from what lives now.
    fn reset_peak_memory(device: &Self::Device) {
        Device(Self::stack(device)).reset_peak_memory();
    }
}

/// A backend with automatic differentiation: `backward` exists only here.
pub trait AutodiffBackend: Backend {
    /// The backend below: of gradients, and of inference.
    type InnerBackend: Backend<Device = Self::Device>;
}

/// The eager CPU engine: portable, lowest latency. Results are the same for every number of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flex;

impl Backend for Flex {
    type Device = FlexDevice;

    fn stack(device: &FlexDevice) -> Stack {
        let open = || Stack::new(Arc::new(CpuEngine::new()), "flex", DType::F32, DType::I32);
        Stack::opened(TypeId::of::<Flex>(), Flex::device_key(device), open)
    }

    fn device(_stack: &Stack) -> FlexDevice {
        FlexDevice
    }

    fn device_key(_device: &FlexDevice) -> DeviceKey {
        (0, 0)
    }
}

/// The CPU engine behind [fusion](Fusion): ops are recorded, and what neighbours in a program compute runs as one kernel, on
/// all cores. The fastest on a processor; [`Flex`] answers single ops sooner. Results are the same for every number of threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu;

impl Backend for Cpu {
    type Device = CpuDevice;

    fn stack(device: &CpuDevice) -> Stack {
        let open = || Stack::new(Arc::new(CpuEngine::new()), "cpu", DType::F32, DType::I32).with_fusion();
        Stack::opened(TypeId::of::<Cpu>(), Cpu::device_key(device), open)
    }

    fn device(_stack: &Stack) -> CpuDevice {
        CpuDevice
    }

    fn device_key(_device: &CpuDevice) -> DeviceKey {
        (0, 0)
    }
}

/// Fusion over another backend: ops are recorded, and neighbours run as one kernel where the engine below can.
///
/// Reading a tensor runs what was recorded. [`Tensor::explain`](crate::Tensor::explain) tells which kernels made a tensor;
/// `KILN_FUSION` in the environment (`off`, `on`, `check`) switches fusion.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fusion<B>(PhantomData<B>);

impl<B: Backend> Backend for Fusion<B> {
    type Device = B::Device;

    fn stack(device: &B::Device) -> Stack {
        let open = || B::stack(device).with_fusion();
        Stack::opened(TypeId::of::<Fusion<B>>(), B::device_key(device), open)
    }

    fn device(stack: &Stack) -> B::Device {
        B::device(stack.below().unwrap_or(stack))
    }

    fn device_key(device: &B::Device) -> DeviceKey {
        B::device_key(device)
    }
}

/// Automatic differentiation over another backend. Stack it for second derivatives: `Autodiff<Autodiff<Flex>>`.
///
/// `C` says what the tape keeps: everything that gradients need ([`NoCheckpointing`]), or with
/// [`BalancedCheckpointing`] only what is expensive to compute again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Autodiff<B, C = NoCheckpointing>(PhantomData<(B, C)>);

/// The strategy of a tape, as a type parameter of [`Autodiff`].
pub trait CheckpointingStrategy: Copy + Default + Debug + Send + Sync + 'static {
    /// The strategy as a value.
    const STRATEGY: Checkpointing;
}

/// Keep everything that gradients need.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCheckpointing;

/// Compute cheap, memory-bound results again in the backward pass instead of keeping them.
#[derive(Clone, Copy, Debug, Default)]
pub struct BalancedCheckpointing;

impl CheckpointingStrategy for NoCheckpointing {
    const STRATEGY: Checkpointing = Checkpointing::None;
}

impl CheckpointingStrategy for BalancedCheckpointing {
    const STRATEGY: Checkpointing = Checkpointing::Balanced;
}

impl<B: Backend, C: CheckpointingStrategy> Backend for Autodiff<B, C> {
    type Device = B::Device;

    fn stack(device: &B::Device) -> Stack {
        let open = || B::stack(device).with_autodiff(C::STRATEGY);
        Stack::opened(TypeId::of::<Autodiff<B, C>>(), B::device_key(device), open)
    }

    fn device(stack: &Stack) -> B::Device {
        B::device(stack.inner().unwrap_or(stack))
    }

    fn device_key(device: &B::Device) -> DeviceKey {
        B::device_key(device)
    }
}

impl<B: Backend, C: CheckpointingStrategy> AutodiffBackend for Autodiff<B, C> {
    type InnerBackend = B;
}

/// Mixed precision over another backend: matrix products, convolutions and attention run in 16 bits, sums, norms and losses
/// in `f32`, and anything else as its operands are held. Tensors are `f32` to the program; the [table of
/// ops](kiln_autocast) says which op runs in what.
///
/// `F` is the type of 16 bits: [`bf16`](half::bf16), which trains as it is, or [`f16`](half::f16), which needs a scaled
/// loss. Automatic differentiation goes around it, and parameters and gradients are then `f32`:
///
/// ```
/// use kiln_tensor::{Autocast, Autodiff, Flex, Tensor};
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
/// The idea is that of [PyTorch's autocast](https://docs.pytorch.org/docs/stable/amp.html), and of
/// [Micikevicius et al. 2018](https://arxiv.org/abs/1710.03740).
#[derive(Clone, Copy, Debug, Default)]
pub struct Autocast<B, F = bf16>(PhantomData<(B, F)>);

/// A type of 16 bits, as the type parameter of [`Autocast`].
pub trait AutocastFloat: Copy + Default + Debug + Send + Sync + 'static {
    /// The type as a value.
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

    fn stack(device: &B::Device) -> Stack {
        let open = || B::stack(device).with_autocast(F::PRECISION);
        Stack::opened(TypeId::of::<Autocast<B, F>>(), B::device_key(device), open)
    }

    fn device(stack: &Stack) -> B::Device {
        B::device(stack.below().unwrap_or(stack))
    }

    fn device_key(device: &B::Device) -> DeviceKey {
        B::device_key(device)
    }
}

/// A backend with forward-mode differentiation; see [`transform::jvp`](crate::transform::jvp).
pub trait ForwardBackend: Backend {
    /// The backend below: of values and tangents outside.
    type InnerBackend: Backend<Device = Self::Device>;
}

/// Forward-mode differentiation over another backend: tensors carry the direction in which they change.
/// [`transform::jvp`](crate::transform::jvp) and its companions make such tensors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forward<B>(PhantomData<B>);

impl<B: Backend> Backend for Forward<B> {
    type Device = B::Device;

    fn stack(device: &B::Device) -> Stack {
        B::stack(device).with_forward()
    }

    fn device(stack: &Stack) -> B::Device {
        B::device(stack.below().unwrap_or(stack))
    }

    fn device_key(device: &B::Device) -> DeviceKey {
        B::device_key(device)
    }
}

impl<B: Backend> ForwardBackend for Forward<B> {
    type InnerBackend = B;
}

/// A backend on which tensors stand for one of many examples; see [`transform::vmap`](crate::transform::vmap).
pub trait VmapBackend: Backend {
    /// The backend below: of the batches.
    type InnerBackend: Backend<Device = Self::Device>;
}

/// Batching over another backend: a tensor stands for one of many examples. [`transform::vmap`](crate::transform::vmap)
/// makes such tensors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vmap<B>(PhantomData<B>);

impl<B: Backend> Backend for Vmap<B> {
    type Device = B::Device;

    fn stack(device: &B::Device) -> Stack {
        B::stack(device).with_vmap()
    }

    fn device(stack: &Stack) -> B::Device {
        B::device(stack.below().unwrap_or(stack))
    }

    fn device_key(device: &B::Device) -> DeviceKey {
        B::device_key(device)
    }
}

impl<B: Backend> VmapBackend for Vmap<B> {
    type InnerBackend = B;
}

/// The backend chosen at run time: its [`Device`] says which. With a device that has automatic differentiation
/// ([`Device::autodiff`]) `backward` works; on another it panics and says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dyn;

impl Backend for Dyn {
    type Device = Device;

    fn stack(device: &Device) -> Stack {
        device.0.clone()
    }

    fn device(stack: &Stack) -> Device {
        Device(stack.clone())
    }

    fn device_key(device: &Device) -> DeviceKey {
        device.0.key()
    }
}

impl AutodiffBackend for Dyn {
    type InnerBackend = Dyn;
}

impl ForwardBackend for Dyn {
    type InnerBackend = Dyn;
}

impl VmapBackend for Dyn {
    type InnerBackend = Dyn;
}
