//! Launches of [block kernels](kiln_kernel::block), which are written once for all vendors.
//!
//! The files of this folder build the kernels, one file for each group of ops. The engine's ops choose between them and
//! hand-written CUDA (`native/`), which stays only where it is measurably faster.

pub(crate) mod attention;
pub(crate) mod contraction;
pub(crate) mod convolution;
pub(crate) mod cooperative;
pub(crate) mod counting_sort;
pub(crate) mod fourier;
pub(crate) mod index;
#[cfg(test)]
mod limits;
pub(crate) mod matmul;
pub(crate) mod order;
pub(crate) mod pool;
#[cfg(test)]
pub(crate) mod printed;
pub(crate) mod random;
pub(crate) mod resize;
pub(crate) mod scan;
pub(crate) mod sort;
pub(crate) mod tuning;

use crate::Gpu;
use crate::driver::{Arguments, DevicePtr, Driver, Grid};
use crate::kernels::Source;
use crate::trace::Label;
use kiln_ir::{DType, Error, FxBuildHasher, Result};
use kiln_kernel::block::BlockKernel;
use kiln_kernel::print::{Dialect, block};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of blocks of a loop over points; threads loop over several points if there are more.
const MAX_BLOCKS: usize = 1 << 16;

/// The name of a block kernel and the parameters of the function that builds it: equal keys have equal kernels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    name: &'static str,
    parameters: SmallVec<[usize; 8]>,
}

impl BlockKey {
    pub(crate) fn new(name: &'static str) -> BlockKey {
        BlockKey { name, parameters: SmallVec::new() }
    }

    /// Adds a dtype.
    pub(crate) fn dtype(self, dtype: DType) -> BlockKey {
        self.with(dtype as usize)
    }

    /// Adds a number or a truth value.
    pub(crate) fn with(mut self, parameter: impl Into<usize>) -> BlockKey {
        self.parameters.push(parameter.into());
        self
    }
}

/// A loaded block kernel.
pub(crate) struct Loaded<D: Driver> {
    function: Arc<D::Function>,
    threads: u32,
}

/// The loaded block kernels of an engine.
pub(crate) struct BlockCache<D: Driver>(Mutex<HashMap<BlockKey, Arc<Loaded<D>>, FxBuildHasher>>);

impl<D: Driver> Default for BlockCache<D> {
    fn default() -> Self {
        BlockCache(Mutex::default())
    }
}

impl<D: Driver> Gpu<D> {
    /// Whether hand-written CUDA runs where it exists: on CUDA devices, unless it is
    /// [switched off](Gpu::with_native_kernels).
    pub(crate) fn has_native(&self) -> bool {
        self.prefers_native_kernels && self.driver.info().language.dialect == Dialect::Cuda
    }

    /// Queues a block kernel whose threads [share points](kiln_kernel::block::Builder::for_points). `arguments` has one
    /// argument for each parameter of the kernel, in order.
    ///
    /// # Errors
    /// When the kernel does not compile, there are too many points, or the device failed.
    pub(crate) fn run_points(
        &self,
        key: BlockKey,
        build: impl FnOnce() -> BlockKernel,
        points: usize,
        arguments: Arguments<D::Memory>,
    ) -> Result<()> {
        if points == 0 {
            return Ok(());
        }
        let loaded = self.block_kernel(&key, build)?;
        let threads = loaded.threads as usize;
        let blocks = points.div_ceil(threads).min(MAX_BLOCKS);
        let language = &self.driver.info().language;
        // A thread adds the number of all threads to its last point.
        if language.dialect == Dialect::Wgsl && i32::try_from(points + blocks * threads).is_err() {
            let problem = format!("`{}` of {points} elements exceeds 32 bits", key.name);
            return Err(Error::unsupported(&self.driver.info().name, problem));
        }
        self.launch_block(&key, &loaded, blocks, arguments)
    }

    /// Queues a block kernel with that many blocks.
    ///
    /// # Errors
    /// When the kernel does not compile, there are too many blocks, or the device failed.
    pub(crate) fn run_blocks(
        &self,
        key: BlockKey,
        build: impl FnOnce() -> BlockKernel,
        blocks: usize,
        arguments: Arguments<D::Memory>,
    ) -> Result<()> {
        if i32::try_from(blocks).is_err() {
            let problem = format!("`{}` has too many blocks: {blocks}", key.name);
            return Err(Error::unsupported(&self.driver.info().name, problem));
        }
        let loaded = self.block_kernel(&key, build)?;
        self.launch_block(&key, &loaded, blocks, arguments)
    }

    /// Whether the memory of a tensor is within the device's limit of one binding, so that its vectors are.
    pub(crate) fn is_one_binding(&self, at: &DevicePtr<D::Memory>) -> bool {
        let most = self.driver.info().binding_bytes;
        most.is_none_or(|most| self.driver.size(&at.memory) <= most)
    }

    fn launch_block(
        &self,
        key: &BlockKey,
        loaded: &Loaded<D>,
        blocks: usize,
        arguments: Arguments<D::Memory>,
    ) -> Result<()> {
        let grid = Grid { blocks, threads: loaded.threads };
        self.launch(&loaded.function, grid, arguments, || Label {
            name: key.name.to_owned(),
            read: 0,
            written: 0,
        })
    }

    fn block_kernel(&self, key: &BlockKey, build: impl FnOnce() -> BlockKernel) -> Result<Arc<Loaded<D>>> {
        let known = || self.block_cache.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = known().get(key) {
            return Ok(loaded.clone());
        }
        let kernel = build();
        let name = &self.driver.info().name;
        let (text, entry) = block(&kernel, &self.driver.info().language).map_err(|lack| {
            Error::unsupported(name, format!("`{}` cannot run on this device: {lack}", key.name))
        })?;
        let function = self.kernels.function(&Source { text: text.into(), entries: vec![entry] }, 0)?;
        let loaded = Arc::new(Loaded { function, threads: kernel.threads });
        known().insert(key.clone(), loaded.clone());
        Ok(loaded)
    }
}
