//! Devices of LibTorch.

use crate::ffi::{self, Place};
use core::fmt;
use kiln_ir::{Error, Result};

/// The numbers of `c10::DeviceType`.
const CPU: i32 = 0;
const CUDA: i32 = 1;
const MPS: i32 = 13;

/// A device of LibTorch. The default is the processor.
///
/// ```
/// use kiln_torch::LibTorchDevice;
///
/// assert_eq!(LibTorchDevice::default(), LibTorchDevice::Cpu);
/// assert_eq!(LibTorchDevice::Cuda(1).to_string(), "libtorch:cuda:1");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LibTorchDevice {
    /// The processor.
    #[default]
    Cpu,
    /// The NVIDIA GPU of that number, or the AMD GPU in a LibTorch for ROCm.
    Cuda(usize),
    /// The Apple GPU.
    Mps,
}

impl LibTorchDevice {
    /// Returns a number that tells devices apart: 0 for the processor, 1 for the Apple GPU, 2 and more for GPUs.
    ///
    /// ```
    /// use kiln_torch::LibTorchDevice;
    ///
    /// assert_eq!(LibTorchDevice::Cuda(0).key(), 2);
    /// ```
    pub const fn key(self) -> u64 {
        match self {
            LibTorchDevice::Cpu => 0,
            LibTorchDevice::Mps => 1,
            LibTorchDevice::Cuda(index) => 2 + index as u64,
        }
    }

    /// Returns the number of NVIDIA or AMD GPUs that LibTorch finds.
    ///
    /// # Errors
    /// When LibTorch is missing.
    ///
    /// ```
    /// use kiln_torch::{LibTorch, LibTorchDevice};
    ///
    /// if LibTorchDevice::gpus().unwrap_or(0) == 0 {
    ///     assert!(LibTorch::open(LibTorchDevice::Cuda(0)).is_err());
    /// }
    /// ```
    #[doc(alias = "device_count")]
    pub fn gpus() -> Result<usize> {
        ffi::devices(CUDA)
    }

    /// The place, if LibTorch has it.
    pub(crate) fn open(self) -> Result<Place> {
        let (kind, index) = match self {
            LibTorchDevice::Cpu => (CPU, 0),
            LibTorchDevice::Cuda(index) => (CUDA, index),
            LibTorchDevice::Mps => (MPS, 0),
        };
        let count = ffi::devices(kind)?;
        if index < count
            && let Ok(index) = i32::try_from(index)
        {
            return Ok(Place { kind, index });
        }
        let version = ffi::version()?;
        let problem = format!("LibTorch {version} has {count} devices of this kind");
        let error = Error::device(&self.to_string(), problem);
        Err(match self {
            LibTorchDevice::Cpu => error,
            LibTorchDevice::Cuda(_) => error.hint(
                "a GPU needs its driver and a LibTorch with CUDA or ROCm: `pip install torch`, `cargo clean -p kiln-torch`, \
                 and build again",
            ),
            LibTorchDevice::Mps => error.hint("it needs a Mac with Apple's chip, and LibTorch 2.0 or newer"),
        })
    }
}

impl fmt::Display for LibTorchDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LibTorchDevice::Cpu => write!(f, "libtorch:cpu"),
            LibTorchDevice::Cuda(index) => write!(f, "libtorch:cuda:{index}"),
            LibTorchDevice::Mps => write!(f, "libtorch:mps"),
        }
    }
}

/// Returns the version of the LibTorch that the crate was built with, such as `1.13.1`.
///
/// # Errors
/// When LibTorch is missing: the error lists the searched places and the line to run.
///
/// ```
/// match kiln_torch::version() {
///     Ok(version) => println!("LibTorch {version}"),
///     Err(error) => assert!(error.to_string().contains("pip install torch")),
/// }
/// ```
pub fn version() -> Result<String> {
    ffi::version()
}
