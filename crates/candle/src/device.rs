//! Devices of candle.

use crate::library::CandleCore;
use candle_core::Device;
use core::fmt;
use kiln_foreign::Library;
use kiln_ir::{Error, Result};

/// A device of candle. The default is the processor.
///
/// ```
/// use kiln_candle::CandleDevice;
///
/// assert_eq!(CandleDevice::default(), CandleDevice::Cpu);
/// assert_eq!(CandleDevice::Cuda(1).to_string(), "candle:cuda:1");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CandleDevice {
    /// The processor.
    #[default]
    Cpu,
    /// The NVIDIA GPU of that number. Needs the crate feature `cuda`.
    Cuda(usize),
    /// The Apple GPU of that number. Needs the crate feature `metal`.
    Metal(usize),
}

impl CandleDevice {
    /// Returns a number that tells devices apart: 0 for the processor, odd for NVIDIA GPUs, even for Apple GPUs.
    pub const fn key(self) -> u64 {
        match self {
            CandleDevice::Cpu => 0,
            CandleDevice::Cuda(index) => 1 + 2 * index as u64,
            CandleDevice::Metal(index) => 2 + 2 * index as u64,
        }
    }

    pub(crate) fn open(self) -> Result<Device> {
        let device = match self {
            CandleDevice::Cpu => return Ok(Device::Cpu),
            CandleDevice::Cuda(index) => Device::new_cuda(index),
            CandleDevice::Metal(index) => Device::new_metal(index),
        };
        device.map_err(|error| {
            let error = Error::device(&self.to_string(), CandleCore::message(&error));
            match self {
                CandleDevice::Cpu => error,
                CandleDevice::Cuda(_) => error
                    .hint("build with the feature `candle-cuda` and `nvcc`, on a machine with an NVIDIA GPU"),
                CandleDevice::Metal(_) => error.hint("build with the feature `candle-metal`, on a Mac"),
            }
        })
    }
}

impl fmt::Display for CandleDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CandleDevice::Cpu => write!(f, "candle:cpu"),
            CandleDevice::Cuda(index) => write!(f, "candle:cuda:{index}"),
            CandleDevice::Metal(index) => write!(f, "candle:metal:{index}"),
        }
    }
}
