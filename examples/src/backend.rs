//! The backend of an example, chosen on the command line.

use std::error::Error;
use std::sync::Arc;

use clap::ValueEnum;
use kiln::Device;

/// Backends for training.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendName {
    /// CPU engine with fusion: the fastest CPU backend.
    Cpu,
    /// CPU engine without fusion.
    Flex,
    /// NVIDIA GPU. Requires a build with `--features cuda`.
    Cuda,
    /// GPU of any vendor, by the API that the platform prefers. Requires a build with `--features wgpu`.
    Wgpu,
    /// The same through Vulkan. Requires a build with `--features vulkan`.
    Vulkan,
    /// Server at the first address of KILN_REMOTE. Requires a build with `--features remote`.
    Remote,
    /// Reference engine: naive and slow, for comparison.
    Reference,
}

impl BackendName {
    /// Opens the device. `threads` is the number of CPU threads; 0 means one per core.
    ///
    /// # Errors
    /// When the device is not available, or `threads` does not apply to the backend.
    pub fn open(self, threads: usize) -> Result<Device, Box<dyn Error>> {
        Ok(match (self, threads) {
            (BackendName::Cpu, 0) => Device::cpu(),
            (BackendName::Cpu, threads) => Device::cpu_with_threads(threads),
            (BackendName::Flex, 0) => Device::flex(),
            (BackendName::Flex, threads) => Device::flex_with_threads(threads),
            (BackendName::Cuda, 0) => Device::open("cuda", 0)?,
            (BackendName::Wgpu, 0) => Device::open("wgpu", 0)?,
            (BackendName::Vulkan, 0) => Device::open("vulkan", 0)?,
            (BackendName::Remote, 0) => Device::open("remote", 0)?,
            (BackendName::Cuda | BackendName::Wgpu | BackendName::Vulkan | BackendName::Remote, _) => {
                return Err("threads are those of this machine's processor: leave --threads out".into());
            }
            (BackendName::Reference, 0 | 1) => {
                Device::from_engine(Arc::new(kiln_reference::Reference::new()), "reference")
            }
            (BackendName::Reference, _) => {
                return Err("the reference engine has one thread: leave --threads out".into());
            }
        })
    }
}
