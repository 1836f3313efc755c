//! What a vendor must give: memory, programs, and one queue.

use kiln_ir::{DType, Result};
use kiln_kernel::print::Dialect;

/// A vendor's interface to one device. All work goes into one queue and happens in the order in which it came; only
/// [`read`](Driver::read) and [`synchronize`](Driver::synchronize) wait.
///
/// Methods may be called from any thread.
pub trait Driver: Send + Sync + 'static {
    /// A block of the device's memory. Dropping it gives it back to the system.
    type Memory: Send + Sync + 'static;

    /// An entry point that is loaded on the device.
    type Function: Send + Sync + 'static;

    /// What the device is.
    fn info(&self) -> &DeviceInfo;

    /// A fresh block of that many bytes (at least one), its address a multiple of 256.
    ///
    /// # Errors
    /// When the device has not that much memory left.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory>;

    /// Copies bytes to the device. What is queued before still sees the old ones.
    ///
    /// # Errors
    /// When the device failed.
    fn write(&self, to: At<'_, Self::Memory>, bytes: &[u8]) -> Result<()>;

    /// Copies bytes from the device, once everything queued before is done.
    ///
    /// # Errors
    /// When the device failed, then or with anything queued before.
    fn read(&self, from: At<'_, Self::Memory>, bytes: &mut [u8]) -> Result<()>;

    /// Sets bytes on the device.
    ///
    /// # Errors
    /// When the device failed.
    fn fill(&self, to: At<'_, Self::Memory>, bytes: usize, value: u8) -> Result<()>;

    /// Compiles source code to what [`load`](Driver::load) takes on devices like this one.
    ///
    /// # Errors
    /// When the source does not compile; the error holds what the compiler said.
    fn compile(&self, source: &str) -> Result<Vec<u8>>;

    /// Loads an entry point.
    ///
    /// # Errors
    /// When the binary is not for this device or lacks the entry point.
    fn load(&self, binary: &[u8], entry: &str) -> Result<Self::Function>;

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
        arguments: &[Argument<'_, Self::Memory>],
    ) -> Result<()>;

    /// Queues products of matrices by the vendor's library; `false` where it has none for these.
    ///
    /// # Safety
    /// What the products read and write must lie within the memory.
    ///
    /// # Errors
    /// When the device failed.
    unsafe fn multiply(&self, products: &Products<'_, Self::Memory>) -> Result<bool>;

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
}

/// A place in a block of memory.
pub struct At<'a, M> {
    /// The block.
    pub memory: &'a M,
    /// Bytes from its start.
    pub offset: usize,
}

// Derived, these would ask the same of `M`.
impl<M> Clone for At<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for At<'_, M> {}

/// An argument of a kernel.
pub enum Argument<'a, M> {
    /// The address of a place in memory.
    Place(At<'a, M>),
    /// A number: of its eight bytes, in the processor's order, as many from the first as its type has.
    Word([u8; 8]),
}

/// How many threads run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks: at least 1, and fewer than 2³¹.
    pub blocks: usize,
    /// Threads of each.
    pub threads: u32,
}

/// Products `c = a b` of matrices, all of the same sizes.
pub struct Products<'a, M> {
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
    /// The factors.
    pub factors: [Matrices<'a, M>; 2],
    /// Where results go, row by row without gaps.
    pub to: At<'a, M>,
}

/// Where matrices lie.
pub struct Matrices<'a, M> {
    /// The first element of the first.
    pub at: At<'a, M>,
    /// Whether columns lie without gaps, instead of rows.
    pub transposed: bool,
    /// Elements from one row (or column, if transposed) to the next.
    pub pitch: usize,
    /// Elements from one matrix to the next; 0 where all are the same.
    pub step: usize,
}
