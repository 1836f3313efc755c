//! CPU backends.

use crate::{FloatElement, IntElement, with_fusion};
use alloc::format;
use alloc::sync::Arc;
use core::marker::PhantomData;
use kiln_cpu::Cpu as CpuEngine;
use kiln_ir::{Engine, Expand};
use kiln_tensor::{Backend, DType, DeviceKey, Stack};

/// The device of [`Flex`]: the CPU, with one engine per process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlexDevice;

/// The device of [`Cpu`]: the CPU with all cores, with one engine per process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuDevice;

impl CpuDevice {
    /// Returns the library that computes large matmuls of `f32` and `f64` on all CPU backends, such as `OpenBLAS
    /// (libopenblas.so.0)`; `None` for Kiln's own kernels. The environment variable `KILN_BLAS` chooses it: `openblas`,
    /// `mkl`, `accelerate`, the path of a library with the interface CBLAS, or `off`. Unset, the first that is found is
    /// used.
    ///
    /// # Errors
    /// When `KILN_BLAS` names a library that is missing. Matmuls then have the same error.
    #[cfg(feature = "blas")]
    pub fn blas() -> kiln_tensor::Result<Option<alloc::string::String>> {
        kiln_cpu::blas()
    }

    /// Sets whether the library computes matmuls, from now on. Default: yes.
    ///
    /// ```
    /// use kiln_backends::{Cpu, CpuDevice};
    /// use kiln_tensor::Tensor;
    ///
    /// let x = Tensor::<Cpu, 2>::ones([128, 128], &CpuDevice);
    /// let by_library = x.clone().matmul(x.clone()).into_data();
    /// CpuDevice::set_blas(false);
    /// assert_eq!(x.clone().matmul(x).into_data(), by_library);
    /// # CpuDevice::set_blas(true);
    /// ```
    #[cfg(feature = "blas")]
    pub fn set_blas(on: bool) {
        kiln_cpu::set_blas(on);
    }
}

/// The eager CPU backend: each op runs at once, with the lowest latency. Results do not depend on the number of
/// threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flex;

impl Backend for Flex {
    type Device = FlexDevice;
    type FloatElem = f32;
    type IntElem = i32;
    type BoolElem = bool;

    fn stack(device: &FlexDevice) -> Stack {
        let open = || Stack::of_device(processor(CpuEngine::new()), *device, "flex", DType::F32, DType::I32);
        Stack::opened::<Flex>(DeviceKey::Index(0), open)
    }
}

/// [`Flex`] under the older name that Burn uses, with the dtypes of new float and integer tensors as type parameters.
/// It does not require the crate feature `ndarray`, which adds conversions.
///
/// ```
/// use kiln_backends::{NdArray, NdArrayDevice};
/// use kiln_tensor::Tensor;
///
/// let x = Tensor::<NdArray<f64>, 1>::from_floats([1.0, 2.0], &NdArrayDevice::Cpu);
/// assert_eq!((x * 2).into_data(), [2.0f64, 4.0].into());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NdArray<F = f32, I = i32>(PhantomData<(F, I)>);

/// The device of [`NdArray`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum NdArrayDevice {
    /// The CPU.
    #[default]
    Cpu,
}

impl<F: FloatElement, I: IntElement> Backend for NdArray<F, I> {
    type Device = NdArrayDevice;
    type FloatElem = F;
    type IntElem = I;
    type BoolElem = bool;

    fn stack(device: &NdArrayDevice) -> Stack {
        let open = || Stack::of_device(processor(CpuEngine::new()), *device, "ndarray", F::DTYPE, I::DTYPE);
        Stack::opened::<NdArray<F, I>>(DeviceKey::Index(0), open)
    }
}

/// The CPU engine with [fusion](crate::Fusion): ops are recorded, and adjacent ops run as one kernel on all cores. It
/// is the fastest CPU backend; [`Flex`] has lower latency for single ops. Results do not depend on the number of
/// threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu;

impl Backend for Cpu {
    type Device = CpuDevice;
    type FloatElem = f32;
    type IntElem = i32;
    type BoolElem = bool;

    fn stack(device: &CpuDevice) -> Stack {
        let engine = || processor(CpuEngine::new());
        let open = || with_fusion(&Stack::of_device(engine(), *device, "cpu", DType::F32, DType::I32));
        Stack::opened::<Cpu>(DeviceKey::Index(0), open)
    }
}

/// Returns the stack of [`Flex`] with a number of threads.
pub(crate) fn with_threads(threads: usize) -> Stack {
    struct WithThreads;
    let open = || {
        let name = format!("cpu with {threads} threads");
        Stack::new(processor(CpuEngine::with_threads(threads)), &name, DType::F32, DType::I32)
    };
    Stack::opened::<WithThreads>(DeviceKey::Index(threads as u64), open)
}

fn processor(engine: CpuEngine) -> Arc<Expand> {
    with_kernels(Arc::new(engine))
}

/// Wraps an engine with the kernels of the custom ops of tensors, which run on the host.
pub(crate) fn with_kernels(engine: Arc<dyn Engine>) -> Arc<Expand> {
    let engine = Expand::around(engine);
    #[cfg(feature = "std")]
    for (name, kernel) in kiln_tensor::HOST_KERNELS {
        engine.register_kernel(name, kernel);
    }
    Arc::new(engine)
}
