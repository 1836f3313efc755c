//! The driver interface of a GPU vendor: memory, kernels and one stream.

mod attention;
mod convolution;
mod epilogue;
mod fourier;

pub use attention::{Attend, Attention, AttentionPass};
pub use convolution::{Convolution, Convolve, Pass};
pub use epilogue::{Epilogue, EpilogueForm};
pub use fourier::{Fourier, FourierKind, Transform};
pub use kiln_ir::Activation;

use kiln_ir::{DType, Error, Float8, Result};
use kiln_kernel::print::Dialect;
use smallvec::SmallVec;
use std::sync::Arc;

/// A vendor's interface to one device. All work goes into one queue and happens in the order in which it came; only
/// [`read`](Driver::read) and [`synchronize`](Driver::synchronize) wait.
///
/// Methods may be called from any thread.
pub trait Driver: Sized + Send + Sync + 'static {
    /// A block of the device's memory. Dropping it gives it back to the system.
    type Memory: Send + Sync + 'static;

    /// An entry point that is loaded on the device.
    type Function: Send + Sync + 'static;

    /// Steps that are queued together, made ready once.
    type Graph: Send + 'static;

    /// What the device is.
    fn info(&self) -> &DeviceInfo;

    /// A fresh block of that many bytes (at least one), its address a multiple of 256.
    ///
    /// # Errors
    /// When the device has not that much memory left.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory>;

    /// The bytes of a block.
    fn size(&self, memory: &Self::Memory) -> usize;

    /// Copies bytes to the device. What is queued before still sees the old ones.
    ///
    /// # Errors
    /// When the device failed.
    fn write(&self, to: &DevicePtr<Self::Memory>, bytes: &[u8]) -> Result<()>;

    /// Copies bytes from the device, once everything queued before is done.
    ///
    /// # Errors
    /// When the device failed, then or with anything queued before.
    fn read(&self, from: &DevicePtr<Self::Memory>, bytes: &mut [u8]) -> Result<()>;

    /// Sets bytes on the device.
    ///
    /// # Errors
    /// When the device failed.
    fn fill(&self, to: &DevicePtr<Self::Memory>, bytes: usize, value: u8) -> Result<()>;

    /// Compiles source code to what [`load`](Driver::load) takes on devices like this one.
    ///
    /// # Errors
    /// When the source does not compile; the error holds what the compiler said.
    fn compile(&self, source: &str) -> Result<Vec<u8>>;

    /// Loads an entry point. It may begin before the kernel queued right before it has ended: all entry points wait for that
    /// themselves, by `kiln_begin` of the prelude, before they touch what kernels write.
    ///
    /// # Errors
    /// When the binary is not for this device or lacks the entry point.
    fn load(&self, binary: &[u8], entry: &str) -> Result<Self::Function>;

    /// Loads a binary once for several entry points; nothing for those that it lacks.
    ///
    /// # Errors
    /// When the binary is not for this device.
    fn load_all(&self, binary: &[u8], entries: &[&str]) -> Result<Vec<Option<Self::Function>>> {
        Ok(entries.iter().map(|entry| self.load(binary, entry).ok()).collect())
    }

    /// Queues a kernel.
    ///
    /// # Safety
    /// The arguments must be those that the entry point takes, and what it then reads and writes must lie within their
    /// memory.
    ///
    /// # Errors
    /// When the device failed.
    unsafe fn launch(
        &self,
        function: &Self::Function,
        grid: Grid,
        arguments: &[Argument<Self::Memory>],
    ) -> Result<()>;

    /// Whether the vendor's library has products of 8-bit floats at all.
    fn has_float8(&self) -> bool {
        false
    }

    /// Whether the vendor's library has products like these, with what is done with them before they are stored.
    fn multiplies(&self, products: &Products<Self::Memory>) -> bool;

    /// A number that changes with all settings that change what steps compute.
    fn settings(&self) -> u64 {
        0
    }

    /// Queues products of matrices by the vendor's library, which [has](Driver::multiplies) such.
    ///
    /// # Safety
    /// What the products read and write must lie within the memory.
    ///
    /// # Errors
    /// When the device failed.
    unsafe fn multiply(&self, products: &Products<Self::Memory>) -> Result<()>;

    /// Makes steps ready to be queued together, and queues nothing; `None` where the device cannot.
    ///
    /// # Safety
    /// As for [`launch`](Driver::launch) and [`multiply`](Driver::multiply), for each step as long as it is
    /// [replayed](Driver::replay) with these arguments.
    unsafe fn record(&self, steps: &[Step<Self>]) -> Option<Self::Graph>;

    /// Gives step number `place` of a graph the arguments of another step that is of the same function, or products like
    /// these. What is queued already keeps those it had. `false` where the device cannot.
    ///
    /// # Safety
    /// As for [`record`](Driver::record).
    unsafe fn amend(&self, graph: &mut Self::Graph, place: usize, step: &Step<Self>) -> bool;

    /// Queues all steps of a graph, in their order.
    ///
    /// # Safety
    /// As for [`record`](Driver::record): memory and functions of its steps must still be there.
    ///
    /// # Errors
    /// When the device failed.
    unsafe fn replay(&self, graph: &mut Self::Graph) -> Result<()>;

    /// Whether the vendor's library computes convolutions.
    ///
    /// # Errors
    /// Why not: which library is missing, and where it was looked for.
    fn convolutions(&self) -> Result<()> {
        Err(Error::unsupported(&self.info().name, "has no library for convolutions"))
    }

    /// How many bytes a convolution by the vendor's library needs besides its tensors; `None` where it has no algorithm for
    /// this one.
    ///
    /// # Errors
    /// When the library fails.
    fn workspace(&self, _: &Convolution) -> Result<Option<usize>> {
        Ok(None)
    }

    /// Queues a convolution by the vendor's library, which has [an algorithm](Driver::workspace) for it.
    ///
    /// # Safety
    /// The tensors must hold the elements of the convolution's without gaps, and the workspace as many bytes as
    /// [`workspace`](Driver::workspace) gave.
    ///
    /// # Errors
    /// When the device failed, or has no library.
    unsafe fn convolve(&self, _: &Convolve<Self::Memory>) -> Result<()> {
        self.convolutions()
    }

    /// How many bytes an attention by the vendor's library needs besides its tensors; `None` where it has no algorithm for
    /// this one, or is missing.
    ///
    /// # Errors
    /// When the device failed.
    fn attention_workspace(&self, _: &Attention) -> Result<Option<usize>> {
        Ok(None)
    }

    /// Queues an attention by the vendor's library, which has [an algorithm](Driver::attention_workspace) for it.
    ///
    /// # Safety
    /// The tensors must hold the elements that the attention's sizes and steps reach, and the workspace as many bytes as
    /// [`attention_workspace`](Driver::attention_workspace) gave.
    ///
    /// # Errors
    /// When the device failed, or has no library.
    unsafe fn attend(&self, _: &Attend<Self::Memory>) -> Result<()> {
        Err(Error::unsupported(&self.info().name, "has no library for attention"))
    }

    /// How many bytes Fourier transforms by the vendor's library need besides their tensors; `None` where it has none like these,
    /// or is missing.
    ///
    /// # Errors
    /// When the device failed.
    fn fourier_workspace(&self, _: &Fourier) -> Result<Option<usize>> {
        Ok(None)
    }

    /// Queues Fourier transforms by the vendor's library, which [has](Driver::fourier_workspace) such.
    ///
    /// # Safety
    /// The tensors must hold the numbers of all lines, and the workspace as many bytes as
    /// [`fourier_workspace`](Driver::fourier_workspace) gave.
    ///
    /// # Errors
    /// When the device failed, or has no library.
    unsafe fn transform(&self, _: &Transform<Self::Memory>) -> Result<()> {
        Err(Error::unsupported(&self.info().name, "has no library for Fourier transforms"))
    }

    /// Begins to take times of steps. The device is kept busy until some are queued, so that what it takes to queue them is no
    /// part of their times.
    ///
    /// # Errors
    /// When the device failed.
    fn start_laps(&self) -> Result<()> {
        Ok(())
    }

    /// The end of one step, and the start of the next.
    ///
    /// # Errors
    /// When the device failed.
    fn lap(&self) -> Result<()> {
        Ok(())
    }

    /// Milliseconds of each lap since the start. Waits for the device; empty where it has no clock.
    ///
    /// # Errors
    /// When the device failed.
    fn laps(&self) -> Result<Vec<f64>> {
        Ok(Vec::new())
    }

    /// Waits until everything queued is done.
    ///
    /// # Errors
    /// When anything queued failed.
    fn synchronize(&self) -> Result<()>;
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its place, for messages: `cuda:0`.
    pub name: String,
    /// What the vendor calls it.
    pub model: String,
    /// Everything that a compiled kernel depends on besides its source: architecture, and versions of driver and compiler.
    pub target: String,
    /// The language of its kernels.
    pub dialect: Dialect,
    /// Bytes of its memory.
    pub memory: usize,
    /// How many blocks of threads run at once, at least: its multiprocessors.
    pub multiprocessors: usize,
    /// Most threads that run at once on one multiprocessor.
    pub multiprocessor_threads: usize,
    /// Most threads of one block.
    pub block_threads: usize,
    /// Threads of one warp, which run in lockstep.
    pub warp_threads: usize,
    /// Bytes of shared memory that a block has without asking for more.
    pub shared_bytes: usize,
}

/// A device pointer: a byte offset into a block of memory, which it keeps alive.
pub struct DevicePtr<M> {
    /// The block.
    pub memory: Arc<M>,
    /// Bytes from its start.
    pub offset: usize,
}

// Derived, this would ask the same of `M`.
impl<M> Clone for DevicePtr<M> {
    fn clone(&self) -> Self {
        DevicePtr { memory: self.memory.clone(), offset: self.offset }
    }
}

/// An argument of a kernel.
pub enum Argument<M> {
    /// A device pointer.
    Pointer(DevicePtr<M>),
    /// A number: of its eight bytes, in the processor's order, as many from the first as its type has.
    Word([u8; 8]),
}

impl<M> Clone for Argument<M> {
    fn clone(&self) -> Self {
        match self {
            Argument::Pointer(place) => Argument::Pointer(place.clone()),
            Argument::Word(word) => Argument::Word(*word),
        }
    }
}

/// The arguments of a kernel, in order.
pub type Arguments<M> = SmallVec<[Argument<M>; 16]>;

/// Work for the queue.
pub enum Step<D: Driver> {
    /// A kernel.
    Launch {
        /// What runs.
        function: Arc<D::Function>,
        /// By how many threads.
        grid: Grid,
        /// With what.
        arguments: Arguments<D::Memory>,
    },
    /// Bytes that are all set to one value.
    Fill {
        /// The first.
        to: DevicePtr<D::Memory>,
        /// How many.
        bytes: usize,
        /// What they become.
        value: u8,
    },
    /// Products by the vendor's library.
    Multiply(Products<D::Memory>),
    /// A convolution by the vendor's library.
    Convolve(Convolve<D::Memory>),
    /// An attention by the vendor's library.
    Attend(Attend<D::Memory>),
    /// Fourier transforms by the vendor's library.
    Transform(Transform<D::Memory>),
}

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Blocks: at least 1, and fewer than 2³¹.
    pub blocks: usize,
    /// Threads of each.
    pub threads: u32,
}

/// Products `c = a b` of matrices, all of the same sizes.
pub struct Products<M> {
    /// How many.
    pub count: usize,
    /// The rows of `a` and `c`.
    pub rows: usize,
    /// The columns of `b` and `c`.
    pub columns: usize,
    /// The columns of `a`, and the rows of `b`.
    pub inner: usize,
    /// Of `a` and `b`.
    pub dtype: DType,
    /// Of `c`.
    pub result: DType,
    /// What `a` and `b` are if their bytes are 8-bit floats.
    pub float8: Option<Float8Factors<M>>,
    /// The factors.
    pub factors: [Matrices<M>; 2],
    /// Where results go, row by row without gaps.
    pub to: DevicePtr<M>,
    /// What is done with results before they are stored.
    pub epilogue: Epilogue<M>,
}

/// Factors that are 8-bit floats.
pub struct Float8Factors<M> {
    /// Of `a` and `b`.
    pub formats: [Float8; 2],
    /// The `f32` numbers by which the product of `a` and that of `b` are multiplied, at multiples of 16 bytes.
    pub scales: [DevicePtr<M>; 2],
}

/// The factors of batched matrix products in memory.
pub struct Matrices<M> {
    /// The first element of the first.
    pub at: DevicePtr<M>,
    /// Whether columns lie without gaps, instead of rows.
    pub transposed: bool,
    /// The leading dimension: elements from one row (or column, if transposed) to the next.
    pub leading_dim: usize,
    /// Elements from one matrix to the next; 0 where all are the same.
    pub step: usize,
}
