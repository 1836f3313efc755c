//! The backend of NVIDIA GPUs.

use crate::device::{Device, DeviceInfo, Driver};
use crate::{FloatElement, IntElement, with_fusion};
use alloc::format;
use alloc::vec::Vec;
use core::marker::PhantomData;
use kiln_ir::or_unavailable;
use kiln_tensor::{Backend, DeviceKey, Result, Stack};

/// The backend of NVIDIA GPUs with [fusion](crate::Fusion): ops are recorded, and adjacent ops run as one kernel that
/// is compiled for the device. The environment variable `KILN_FUSION` (`off`, `on`, `check`) switches fusion.
///
/// `F` and `I` are the dtypes of new float and integer tensors; tensors of other dtypes are supported too. All backends
/// on one GPU share its engine.
///
/// CUDA is loaded at run time. If a library or the device is missing, tensors carry the error until one is read; it
/// names the missing library and the searched paths. [`CudaDevice::open`] returns the error at once.
///
/// ```
/// use kiln_backends::{Cuda, CudaDevice};
/// use kiln_tensor::Tensor;
///
/// let x = Tensor::<Cuda, 1>::from_floats([1.0, 2.0], &CudaDevice::new(0));
/// match (x * 2).try_into_data() {
///     Ok(data) => assert_eq!(data.to_vec::<f32>(), [2.0, 4.0]),
///     Err(error) => assert!(error.to_string().contains("cuda"), "{error}"),
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cuda<F = f32, I = i32>(PhantomData<(F, I)>);

/// An NVIDIA GPU, by its index among the devices that `CUDA_VISIBLE_DEVICES` shows. Default: 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CudaDevice {
    index: usize,
}

impl CudaDevice {
    /// Returns GPU `index`, which is opened on first use. If that fails, tensors on it carry the error.
    pub const fn new(index: usize) -> CudaDevice {
        CudaDevice { index }
    }

    /// Opens GPU `index`.
    ///
    /// # Errors
    /// When a library or the device is missing. The error names it and the searched paths.
    ///
    /// ```
    /// use kiln_backends::{CudaDevice, Device};
    ///
    /// let device = match CudaDevice::open(0) {
    ///     Ok(device) => Device::cuda(device.index()),
    ///     Err(_) => Device::cpu(),
    /// };
    /// # drop(device);
    /// ```
    pub fn open(index: usize) -> Result<CudaDevice> {
        kiln_cuda::shared(index)?;
        Ok(CudaDevice { index })
    }

    /// Sets whether matmuls and convolutions of `f32` round their factors to TF32 (10 of the 23 mantissa bits), on all
    /// devices from now on. They then run on tensor cores, many times as fast, with relative errors of about 1e-3.
    /// Default: no, unless `KILN_TF32=on` is in the environment.
    ///
    /// ```
    /// kiln_backends::CudaDevice::set_tf32(true);
    /// assert!(kiln_backends::CudaDevice::tf32());
    /// # kiln_backends::CudaDevice::set_tf32(false);
    /// ```
    #[doc(alias = "allow_tf32")]
    pub fn set_tf32(on: bool) {
        kiln_cuda::set_tf32(on);
    }

    /// Returns whether matmuls and convolutions use TF32. Default: no, unless the environment variable `KILN_TF32` is
    /// `on`.
    pub fn tf32() -> bool {
        kiln_cuda::tf32()
    }

    /// Returns whether partial sums of 16-bit matmuls may be rounded to 16 bits. Default: no.
    pub fn reduced_sums() -> bool {
        kiln_cuda::reduced_sums()
    }

    /// Sets whether cuBLASLt may round partial sums of 16-bit matmuls to 16 bits, on all devices from now on. Default: no,
    /// unless `KILN_REDUCED_SUMS=on` is in the environment. PyTorch's `allow_bf16_reduced_precision_reduction` is on by
    /// default.
    #[doc(alias = "allow_bf16_reduced_precision_reduction")]
    pub fn set_reduced_sums(on: bool) {
        kiln_cuda::set_reduced_sums(on);
    }

    /// Returns whether algorithms of cuBLASLt and cuDNN are autotuned. Default: yes.
    pub fn autotune() -> bool {
        kiln_cuda::autotune()
    }

    /// Sets whether algorithms of cuBLASLt and cuDNN are timed at the first use of a shape, on all devices from now on.
    /// Otherwise the libraries' first proposals run: the first step is faster, later ones may be slower. Default: yes,
    /// unless `KILN_TUNE=off` is in the environment.
    #[doc(alias = "cudnn_benchmark")]
    pub fn set_autotune(on: bool) {
        kiln_cuda::set_autotune(on);
    }

    /// Returns the number of GPUs; 0 if CUDA is missing.
    pub fn count() -> usize {
        kiln_cuda::count()
    }

    /// Returns the index of the GPU.
    pub const fn index(self) -> usize {
        self.index
    }
}

impl<F: FloatElement, I: IntElement> Backend for Cuda<F, I> {
    type Device = CudaDevice;
    type FloatElem = F;
    type IntElem = I;
    type BoolElem = bool;

    fn stack(device: &CudaDevice) -> Stack {
        let open = || {
            let name = format!("cuda:{}", device.index);
            let engine = or_unavailable(kiln_cuda::shared(device.index), &name);
            with_fusion(&Stack::of_device(engine, *device, &name, F::DTYPE, I::DTYPE))
        };
        Stack::opened::<Cuda<F, I>>(DeviceKey::Index(device.index as u64), open)
    }
}

/// The kind `cuda`.
pub(crate) const DRIVER: Driver = Driver { open, list };

fn open(index: usize) -> Result<Device> {
    CudaDevice::open(index).map(|_| Device::cuda(index))
}

fn list() -> Result<Vec<DeviceInfo>> {
    let gpus = kiln_cuda::list()?;
    let info = |(index, gpu): (usize, kiln_cuda::Installed)| DeviceInfo {
        memory_bytes: Some(gpu.memory_bytes),
        ..DeviceInfo::new("cuda", index, gpu.model)
    };
    Ok(gpus.into_iter().enumerate().map(info).collect())
}
