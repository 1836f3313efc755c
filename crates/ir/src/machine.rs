//! Hardware facts of the machine that an engine computes on.

use crate::DTypeSet;
use serde::{Deserialize, Serialize};

/// The facts of a machine from which planners derive their limits: hardware and libraries. The one choice of a user among
/// them is [`exact_regions`](Machine::exact_regions).
///
/// An engine states them in its [`Caps`](crate::Caps). They serialize, so that a plan can be made for another machine.
/// Text with an unknown field is rejected, and a missing optional field is `None`.
///
/// ```
/// use kiln_ir::Machine;
///
/// // A GPU without a vendor's library whose kernels bind few tensors.
/// let machine = Machine { bindings: Some(8), products: kiln_ir::Products::Kernels, ..Machine::gpu() };
/// assert!(machine.subgroup > Machine::processor().subgroup);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The number of concurrent threads: of a processor's pool, or resident on all multiprocessors of a GPU. Plans do
    /// not depend on it, so that results are the same for every number of threads.
    pub threads: usize,
    /// The maximum number of threads of a workgroup (CUDA: block). 1 on a processor.
    pub workgroup: usize,
    /// Threads of one subgroup (CUDA: warp), which run in lockstep and coalesce memory accesses. 1 on a processor.
    pub subgroup: usize,
    /// Bytes of shared memory per workgroup. 0 on a processor.
    pub shared_bytes: usize,
    /// The maximum number of tensors that one kernel reads and writes (buffer bindings); plain numbers do not count.
    /// `None`: no limit.
    pub bindings: Option<usize>,
    /// Bytes of memory for tensors. `None`: unknown.
    pub memory_bytes: Option<u64>,
    /// The dtypes that fused kernels compute with. The engine may run single ops on others.
    pub dtypes: DTypeSet,
    /// The maximum length, in elements, of a row that stays in fast memory (a core's cache, or the registers of a
    /// workgroup) while it is combined with its own reductions.
    pub row_elements: usize,
    /// The maximum number of operations of one fused kernel.
    pub kernel_ops: usize,
    /// The implementation of matmuls and convolutions.
    pub products: Products,
    /// Whether fused kernels read inputs by index ([`Op::Take`](crate::Op::Take), [`Op::Gather`](crate::Op::Gather)).
    /// Otherwise these ops run alone, unless the region reads whole lines anyway.
    pub indexed_loads: bool,
    /// Whether the device computes asynchronously. Ops may then begin to run while later ones are recorded.
    pub asynchronous: bool,
    /// Whether the host knows, when an op runs, which of its operands are poisoned. [`Op::Select`](crate::Op::Select)
    /// then returns the operand that its condition selects everywhere, even if the other one is poisoned.
    pub host_errors: bool,
    /// Whether every fused region must compute, bit for bit, what its ops compute one by one. Results then do not
    /// depend on which ops run together, so not on when or by which thread a value is read.
    pub exact_regions: bool,
}

/// The implementation of matmuls and convolutions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Products {
    /// Kernels of the engine, which fuse elementwise ops on the result before it is stored.
    Kernels,
    /// A vendor's library, which stores the result before other kernels read it.
    Library {
        /// Whether the library adds a bias and applies an activation before it stores the result.
        epilogues: bool,
    },
}

impl Machine {
    /// Returns a processor with one thread: rows of 32,768 elements stay in a core's cache, matmuls fuse with the ops
    /// on their results, and errors are known immediately.
    pub const fn processor() -> Machine {
        Machine {
            threads: 1,
            workgroup: 1,
            subgroup: 1,
            shared_bytes: 0,
            bindings: None,
            memory_bytes: None,
            dtypes: DTypeSet::ALL,
            row_elements: 1 << 15,
            kernel_ops: 256,
            products: Products::Kernels,
            indexed_loads: false,
            asynchronous: false,
            host_errors: true,
            exact_regions: true,
        }
    }

    /// Returns a typical data-centre GPU with its vendor's libraries, for tests and tools. It has 132 multiprocessors
    /// of 2,048 threads, blocks of up to 1,024 threads with 48 KiB of shared memory, warps of 32, and 80 GiB of memory.
    /// Rows of 16,384 elements stay in a block's registers. Engines replace these facts by their device's.
    pub const fn gpu() -> Machine {
        Machine {
            threads: 132 * 2048,
            workgroup: 1024,
            subgroup: 32,
            shared_bytes: 48 << 10,
            bindings: None,
            memory_bytes: Some(80 << 30),
            dtypes: DTypeSet::ALL,
            row_elements: 1 << 14,
            kernel_ops: 256,
            products: Products::Library { epilogues: true },
            indexed_loads: false,
            asynchronous: true,
            host_errors: false,
            exact_regions: false,
        }
    }
}

impl Default for Machine {
    /// [`Machine::processor`].
    fn default() -> Machine {
        Machine::processor()
    }
}
