//! The driver interface of a GPU vendor: memory, kernels and one stream.

mod attention;
mod convolution;
mod cooperative;
mod epilogue;
mod fourier;
mod window;

pub use attention::{Attend, Attention, AttentionPass};
pub use convolution::{Convolution, Convolve, Pass};
pub use cooperative::CooperativeMatrix;
pub use epilogue::{Epilogue, EpilogueForm};
pub use fourier::{Fourier, FourierKind, Transform};
pub use kiln_ir::Activation;
pub(crate) use window::parts;
pub use window::{Reach, Window, part_bytes};

use kiln_ir::{BoxFuture, DType, Error, Float8, Result};
use kiln_kernel::print::{Entry, Target};
use smallvec::SmallVec;
use std::sync::Arc;

/// A vendor's interface to one device: memory, programs and launches. All work is submitted to one in-order queue; only
/// the futures of [`read_all`](Driver::read_all) and [`synchronize`](Driver::synchronize) wait.
///
/// A vendor's library ([`Library`]) and recorded graphs ([`Recorder`]) are optional. Methods may be called from any
/// thread.
pub trait Driver: Sized + Send + Sync + 'static {
    /// A block of the device's memory. Dropping it returns it to the system.
    type Memory: Send + Sync + 'static;

    /// A kernel function loaded on the device.
    type Function: Send + Sync + 'static;

    /// The properties of the device.
    fn info(&self) -> &DeviceInfo;

    /// Allocates a block of that many bytes (at least one), aligned to 256 bytes.
    ///
    /// # Errors
    /// When the device is out of memory.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory>;

    /// The size of a block in bytes.
    fn size(&self, memory: &Self::Memory) -> usize;

    /// Copies bytes to the device. Work queued before reads the old bytes.
    ///
    /// # Errors
    /// When the device failed.
    fn write(&self, to: &DevicePtr<Self::Memory>, bytes: &[u8]) -> Result<()>;

    /// Starts to copy bytes from the device: of each range, which is a start and a number of bytes. All copies are one
    /// submission. The future ends once everything queued before the call is done, with the bytes of each range as they
    /// are then. Work queued after the call does not change them.
    ///
    /// # Errors
    /// The future's: when the device failed, in a copy or in work queued before.
    fn read_all(
        &self,
        ranges: &[(DevicePtr<Self::Memory>, usize)],
    ) -> BoxFuture<'static, Result<Vec<Vec<u8>>>>;

    /// Starts to copy the bytes of one range, as [`read_all`](Driver::read_all) does.
    ///
    /// # Errors
    /// As [`read_all`](Driver::read_all).
    fn read(&self, from: &DevicePtr<Self::Memory>, bytes: usize) -> BoxFuture<'static, Result<Vec<u8>>> {
        let copied = self.read_all(&[(from.clone(), bytes)]);
        Box::pin(async move { Ok(copied.await?.pop().unwrap_or_default()) })
    }

    /// Fills bytes on the device with one value.
    ///
    /// # Errors
    /// When the device failed.
    fn fill(&self, to: &DevicePtr<Self::Memory>, bytes: usize, value: u8) -> Result<()>;

    /// Compiles source code to a binary that [`load`](Driver::load) accepts on devices of this kind. A driver that
    /// compiles when it loads returns the text.
    ///
    /// # Errors
    /// When the source does not compile; the error contains the compiler's log.
    fn compile(&self, source: &str) -> Result<Vec<u8>>;

    /// Loads entry points of a binary; `None` for those that it lacks. A function may begin before the previously queued
    /// kernel has ended. In C++, each waits for that kernel itself, by `kiln_begin` of the prelude, before it accesses
    /// memory that kernels write.
    ///
    /// # Errors
    /// When the binary is not for this device.
    fn load(&self, binary: &[u8], entries: &[&Entry]) -> Result<Vec<Option<Self::Function>>>;

    /// Checks a launch before it is queued. An error of [`launch`](Driver::launch) would end the queue, but an error here
    /// concerns only the results of the kernel.
    ///
    /// # Errors
    /// When the device cannot run the kernel on tensors of these sizes.
    fn check(&self, _function: &Self::Function, _arguments: &[Argument<Self::Memory>]) -> Result<()> {
        Ok(())
    }

    /// Queues a kernel.
    ///
    /// # Safety
    /// The arguments must match the entry point's parameters, and all its reads and writes must be within their memory.
    ///
    /// # Errors
    /// When the device failed.
    unsafe fn launch(
        &self,
        function: &Self::Function,
        grid: Grid,
        arguments: &[Argument<Self::Memory>],
    ) -> Result<()>;

    /// Passes queued work to the device, if the driver collects it. Nothing waits.
    ///
    /// # Errors
    /// When the device failed.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Starts to wait for all queued work. The future ends once it is done.
    ///
    /// # Errors
    /// The future's: when anything queued failed.
    fn synchronize(&self) -> BoxFuture<'static, Result<()>>;

    /// The vendor's library, if there is one.
    fn library(&self) -> Option<&dyn Library<Self::Memory>> {
        None
    }

    /// Whether results must not depend on the order in which threads run, on times, or on which ops run together. Both
    /// the engine and the driver's library then leave out what depends on them. Constant for a driver.
    fn deterministic(&self) -> bool;

    /// Graphs and clocks of the device, if it has them.
    fn recorder(&self) -> Option<&dyn Recorder<Self>> {
        None
    }
}

/// Matmuls, convolutions, attention and Fourier transforms of a vendor's library.
pub trait Library<M> {
    /// Whether it supports matmuls of 8-bit floats.
    fn has_float8(&self) -> bool {
        false
    }

    /// Whether it supports these matmuls with their epilogue.
    fn multiplies(&self, products: &Products<M>) -> bool;

    /// A number that identifies the settings which change the results of steps, such as TF32.
    fn settings(&self) -> u64 {
        0
    }

    /// Queues matmuls that it [supports](Library::multiplies).
    ///
    /// # Safety
    /// All elements that the matmuls read and write must be within the memory.
    ///
    /// # Errors
    /// When the device failed.
    unsafe fn multiply(&self, products: &Products<M>) -> Result<()>;

    /// Whether it computes convolutions.
    ///
    /// # Errors
    /// When it does not: the missing library, and the searched places.
    fn convolutions(&self) -> Result<()>;

    /// The workspace of a convolution in bytes; `None` if the library has no algorithm for it.
    ///
    /// # Errors
    /// When the library fails.
    fn workspace(&self, _: &Convolution) -> Result<Option<usize>> {
        Ok(None)
    }

    /// Queues a convolution for which the library has [an algorithm](Library::workspace).
    ///
    /// # Safety
    /// The tensors must hold the elements of the convolution's without gaps, and the workspace as many bytes as
    /// [`workspace`](Library::workspace) returns.
    ///
    /// # Errors
    /// When the device failed, or has no library.
    unsafe fn convolve(&self, _: &Convolve<M>) -> Result<()> {
        self.convolutions()
    }

    /// The workspace of an attention in bytes; `None` if the library is missing or has no algorithm for it.
    ///
    /// # Errors
    /// When the device failed.
    fn attention_workspace(&self, _: &Attention) -> Result<Option<usize>> {
        Ok(None)
    }

    /// Queues an attention for which the library has [an algorithm](Library::attention_workspace).
    ///
    /// # Safety
    /// The tensors must hold the elements that the attention's sizes and strides reach, and the workspace as many bytes
    /// as [`attention_workspace`](Library::attention_workspace) returns.
    ///
    /// # Errors
    /// When the device failed, or has no library.
    unsafe fn attend(&self, _: &Attend<M>) -> Result<()> {
        Err(Error::unsupported("gpu", "the device has no library for attention"))
    }

    /// The workspace of Fourier transforms in bytes; `None` if the library is missing or does not support them.
    ///
    /// # Errors
    /// When the device failed.
    fn fourier_workspace(&self, _: &Fourier) -> Result<Option<usize>> {
        Ok(None)
    }

    /// Queues Fourier transforms that the library [supports](Library::fourier_workspace).
    ///
    /// # Safety
    /// The tensors must hold the elements of all lines, and the workspace as many bytes as
    /// [`fourier_workspace`](Library::fourier_workspace) returns.
    ///
    /// # Errors
    /// When the device failed, or has no library.
    unsafe fn transform(&self, _: &Transform<M>) -> Result<()> {
        Err(Error::unsupported("gpu", "the device has no library for Fourier transforms"))
    }
}

/// Executable graphs of steps, and the clock of a device.
pub trait Recorder<D: Driver> {
    /// Instantiates a graph of steps without launching it; `None` if the device cannot.
    ///
    /// # Safety
    /// As for [`launch`](Driver::launch) and [`multiply`](Library::multiply), for each step as long as it is
    /// [replayed](Graph::replay) with these arguments.
    unsafe fn record(&self, steps: &[Step<D>]) -> Option<Box<dyn Graph<D>>>;

    /// Starts timing steps. The device is kept busy until some steps are queued, so that launch latency is not part of
    /// their times.
    ///
    /// # Errors
    /// When the device failed.
    fn start_laps(&self) -> Result<()>;

    /// Ends the lap of one step, and starts that of the next.
    ///
    /// # Errors
    /// When the device failed.
    fn lap(&self) -> Result<()>;

    /// Milliseconds of each lap since the start. Waits for the device.
    ///
    /// # Errors
    /// When the device failed.
    fn laps(&self) -> Result<Vec<f64>>;
}

/// An executable graph of steps.
pub trait Graph<D: Driver>: Send {
    /// Updates step number `place` with the arguments of another step, which must call the same function or be a similar
    /// matmul. Replays queued already keep the old arguments. `false` where the device cannot.
    ///
    /// # Safety
    /// As for [`record`](Recorder::record).
    unsafe fn amend(&mut self, driver: &D, place: usize, step: &Step<D>) -> bool;

    /// Queues all steps, in their order.
    ///
    /// # Safety
    /// As for [`record`](Recorder::record): memory and functions of its steps must still be alive.
    ///
    /// # Errors
    /// When the device failed.
    unsafe fn replay(&mut self, driver: &D) -> Result<()>;
}

/// Properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Device string for messages: `cuda:0`.
    pub name: String,
    /// The vendor's model name.
    pub model: String,
    /// The compilation target, which determines a kernel's code besides its source: architecture, driver and compiler
    /// versions.
    pub target: String,
    /// The language of its kernels, and the optional features that they may use.
    pub language: Target,
    /// Whether binaries of [`Driver::compile`] are worth a place on disk, which they are not if they are the text.
    pub keeps_binaries: bool,
    /// Bytes of its memory.
    pub memory: usize,
    /// The number of multiprocessors. At least one thread block runs on each at a time.
    pub multiprocessors: usize,
    /// Maximum number of resident threads per multiprocessor.
    pub multiprocessor_threads: usize,
    /// Maximum number of threads per block.
    pub block_threads: usize,
    /// Threads of one warp, which run in lockstep.
    pub warp_threads: usize,
    /// Bytes of shared memory that a block has by default.
    pub shared_bytes: usize,
    /// The maximum number of bindings of a kernel: its tensors, with scratch memory and flag. `None`: no limit.
    pub bindings: Option<usize>,
    /// The maximum number of bytes of a binding, at least 256. A larger tensor takes [several](Window). `None`: no limit.
    pub binding_bytes: Option<usize>,
    /// The cooperative matrices that kernels may use. Devices with a vendor's library for matmuls need none.
    pub cooperative_matrices: Vec<CooperativeMatrix>,
}

/// A device pointer: a byte offset into a block of memory, which it keeps alive.
pub struct DevicePtr<M> {
    /// The block.
    pub memory: Arc<M>,
    /// The offset from its start in bytes.
    pub offset: usize,
    /// The bytes of the block that accesses through the pointer reach.
    pub reach: Reach,
}

impl<M> DevicePtr<M> {
    /// A pointer through which the whole block may be accessed.
    pub fn new(memory: Arc<M>, offset: usize) -> DevicePtr<M> {
        DevicePtr { memory, offset, reach: Reach::ALL }
    }
}

// A derived impl would require `M: Clone`.
impl<M> Clone for DevicePtr<M> {
    fn clone(&self) -> Self {
        DevicePtr { memory: self.memory.clone(), offset: self.offset, reach: self.reach }
    }
}

/// An argument of a kernel.
pub enum Argument<M> {
    /// A device pointer.
    Pointer(DevicePtr<M>),
    /// A number, in native byte order in the leading bytes.
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

/// A unit of work for the queue.
pub enum Step<D: Driver> {
    /// A kernel launch.
    Launch {
        /// The kernel function.
        function: Arc<D::Function>,
        /// The launch grid.
        grid: Grid,
        /// The kernel arguments.
        arguments: Arguments<D::Memory>,
    },
    /// A memory fill.
    Fill {
        /// The first byte.
        to: DevicePtr<D::Memory>,
        /// The number of bytes.
        bytes: usize,
        /// The byte value.
        value: u8,
    },
    /// Matmuls by the vendor's library.
    Multiply(Products<D::Memory>),
    /// A convolution by the vendor's library.
    Convolve(Convolve<D::Memory>),
    /// An attention by the vendor's library.
    Attend(Attend<D::Memory>),
    /// Fourier transforms by the vendor's library.
    Transform(Transform<D::Memory>),
}

/// The launch grid of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Number of blocks: at least 1, and fewer than 2³¹.
    pub blocks: usize,
    /// Threads per block.
    pub threads: u32,
}

/// Batched matmuls `c = a b`, all of the same sizes.
pub struct Products<M> {
    /// The batch size.
    pub count: usize,
    /// The number of rows of `a` and `c`.
    pub rows: usize,
    /// The number of columns of `b` and `c`.
    pub columns: usize,
    /// The reduced dimension: columns of `a`, and rows of `b`.
    pub inner: usize,
    /// The dtype of `a` and `b`.
    pub dtype: DType,
    /// The dtype of `c`.
    pub result: DType,
    /// Formats and scales of `a` and `b` if they are 8-bit floats.
    pub float8: Option<Float8Factors<M>>,
    /// The left and right factors.
    pub factors: [Matrices<M>; 2],
    /// The first element of the results, row-major without gaps.
    pub to: DevicePtr<M>,
    /// The epilogue, applied before results are stored.
    pub epilogue: Epilogue<M>,
}

/// Formats and scales of 8-bit float factors.
pub struct Float8Factors<M> {
    /// The formats of `a` and `b`.
    pub formats: [Float8; 2],
    /// The `f32` scale factors of `a` and `b`, aligned to 16 bytes.
    pub scales: [DevicePtr<M>; 2],
}

/// The left or right factors of batched matmuls in memory.
pub struct Matrices<M> {
    /// The first element of the first matrix.
    pub at: DevicePtr<M>,
    /// Whether the matrices are column-major.
    pub transposed: bool,
    /// The leading dimension: elements from one row (or column, if transposed) to the next.
    pub leading_dim: usize,
    /// The batch stride: elements from one matrix to the next; 0 broadcasts one matrix.
    pub step: usize,
}
