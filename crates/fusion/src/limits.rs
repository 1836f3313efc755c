//! The planner's limits, all derived here from the facts of a machine.

use kiln_ir::{DTypeSet, Machine, OpKind, OpSet, Products, Role};
use kiln_kernel::Nest;

/// Threads per block of a row kernel that accumulates column totals. Machines with smaller blocks have no such kernels.
pub(crate) const COLUMN_THREADS: usize = 1024;

/// The maximum number of tensors that a kernel reads on any machine: each input needs an address register.
const INPUTS: usize = 32;

/// The planner's limits: with the recording, the only inputs of planning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Whether elementwise ops on the result of a matmul or convolution run in its epilogue.
    pub(crate) continue_products: bool,
    /// Whether a bias and an activation run in a matmul's epilogue if nothing else follows the matmul.
    pub(crate) fuse_epilogues: bool,
    /// The maximum row length, in elements, of a kernel that combines rows with their own reductions.
    /// [`many_rows`](Limits::many_rows) lifts it.
    pub(crate) resident_row: usize,
    /// Whether such rows must be contiguous.
    pub(crate) contiguous_rows: bool,
    /// The number of rows from which longer rows still occupy the whole machine.
    pub(crate) many_rows: usize,
    /// Whether column reductions fuse into the kernel that iterates over the rows.
    pub(crate) columns: bool,
    /// The bytes of operands kept alive by pending ops alone at which the recording runs.
    pub(crate) kept_bytes: usize,
    /// Whether kernels read inputs by index.
    pub(crate) indexed_loads: bool,
    /// Whether [`Op::Recover`](kiln_ir::Op::Recover) may select past the poison of values that were never stored.
    pub(crate) selects_past_poison: bool,
    /// Whether predicted plans execute speculatively.
    pub(crate) speculates: bool,
    /// Whether regions compute the bits of their ops run one by one.
    pub(crate) exact: bool,
    /// The maximum number of operations of a kernel. Loads count; equal operations count once.
    pub(crate) kernel_ops: usize,
    /// The maximum number of tensors that a kernel reads.
    pub(crate) inputs: usize,
    /// The maximum number of tensors that a kernel reads or writes (buffer bindings).
    pub(crate) bindings: Option<usize>,
    /// The dtypes that kernels compute with.
    pub(crate) dtypes: DTypeSet,
    /// The ops that a region may contain; none if the engine runs no regions.
    pub(crate) kinds: OpSet,
}

/// The ops that every region may contain: kernels fold views, recompute constants, and cast operands.
const ANY_REGION: OpSet = OpSet::of_role(Role::View)
    .union(OpSet::of_role(Role::Constant))
    .union(OpSet::of(&[OpKind::Fused, OpKind::Cast]));

impl Limits {
    /// The limits of an engine that runs these ops natively.
    pub(crate) fn of_engine(machine: &Machine, native: OpSet) -> Limits {
        let kinds = if native.contains_all(ANY_REGION) { native } else { OpSet::default() };
        let limits = Limits::of(machine);
        Limits { kinds, fuse_epilogues: limits.fuse_epilogues && kinds.contains(OpKind::MatMul), ..limits }
    }

    /// The limits of a machine whose engine runs every op. They do not depend on [`Machine::threads`], so plans are the
    /// same for every number of threads.
    pub(crate) fn of(machine: &Machine) -> Limits {
        /// The minimum of the limit on bytes kept by pending ops.
        const KEPT_BYTES: u64 = 512 << 20;
        // Threads in lockstep need coalesced memory access, and a row belongs to one block.
        let lockstep = machine.subgroup > 1;
        let (library, epilogues) = match machine.products {
            Products::Kernels => (false, false),
            Products::Library { epilogues } => (true, epilogues),
        };
        let kept_bytes = machine.memory_bytes.map_or(0, |bytes| bytes / 16).max(KEPT_BYTES);
        Limits {
            continue_products: !library,
            // No machine has both such a library and few bindings, so the tensors moved between kernels are not counted
            // against bindings.
            fuse_epilogues: epilogues && machine.bindings.is_none(),
            resident_row: machine.row_elements,
            contiguous_rows: lockstep,
            many_rows: if lockstep { 4096 } else { 64 },
            columns: lockstep && machine.workgroup >= COLUMN_THREADS,
            kept_bytes: usize::try_from(kept_bytes).unwrap_or(usize::MAX),
            indexed_loads: machine.indexed_loads,
            selects_past_poison: machine.host_errors,
            speculates: machine.asynchronous,
            exact: machine.exact_regions,
            kernel_ops: machine.kernel_ops.min(Nest::MAX_VALUES),
            // One binding is reserved for a result.
            inputs: machine.bindings.map_or(INPUTS, |most| most.saturating_sub(1).min(INPUTS)),
            bindings: machine.bindings,
            dtypes: machine.dtypes,
            kinds: OpSet::ALL,
        }
    }
}

impl Default for Limits {
    /// The limits of a [processor](Machine::processor).
    fn default() -> Limits {
        Limits::of(&Machine::processor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_cpu() {
        let limits = Limits {
            continue_products: true,
            fuse_epilogues: false,
            resident_row: 32_768,
            contiguous_rows: false,
            many_rows: 64,
            columns: false,
            kept_bytes: 512 << 20,
            indexed_loads: false,
            selects_past_poison: true,
            speculates: false,
            exact: true,
            kernel_ops: 256,
            inputs: 32,
            bindings: None,
            dtypes: DTypeSet::ALL,
            kinds: OpSet::ALL,
        };
        assert_eq!(Limits::of(&Machine::processor()), limits);
        assert_eq!(Limits::default(), limits);
        // Plans do not depend on the number of threads.
        assert_eq!(Limits::of(&Machine { threads: 64, ..Machine::processor() }), limits);
    }

    #[test]
    fn limits_of_a_gpu() {
        let limits = Limits {
            continue_products: false,
            fuse_epilogues: true,
            resident_row: 16_384,
            contiguous_rows: true,
            many_rows: 4096,
            columns: true,
            kept_bytes: 5 << 30,
            indexed_loads: false,
            selects_past_poison: false,
            speculates: true,
            exact: false,
            kernel_ops: 256,
            inputs: 32,
            bindings: None,
            dtypes: DTypeSet::ALL,
            kinds: OpSet::ALL,
        };
        assert_eq!(Limits::of(&Machine::gpu()), limits);
    }

    #[test]
    fn limits_of_an_engine_that_lacks_ops() {
        let of = |native| Limits::of_engine(&Machine::gpu(), native);
        let limits = Limits::of(&Machine::gpu());
        assert_eq!(of(OpSet::ALL), limits);
        let native = OpSet::ALL.without(&[OpKind::Softmax, OpKind::Custom]);
        assert_eq!(of(native), Limits { kinds: native, ..limits });
        let native = OpSet::ALL.without(&[OpKind::MatMul]);
        assert_eq!(of(native), Limits { kinds: native, fuse_epilogues: false, ..limits });
        let without_regions = Limits { kinds: OpSet::default(), fuse_epilogues: false, ..limits };
        assert_eq!(of(OpSet::ALL.without(&[OpKind::Fused])), without_regions);
    }

    #[test]
    fn each_machine_fact_changes_only_its_limits() {
        let gpu = Machine::gpu();
        let limits = Limits::of(&gpu);
        let plain = Products::Library { epilogues: false };
        let small = Machine { memory_bytes: Some(4 << 30), ..gpu };
        for (machine, expected) in [
            (Machine { products: plain, ..gpu }, Limits { fuse_epilogues: false, ..limits }),
            (
                Machine { products: Products::Kernels, ..gpu },
                Limits { continue_products: true, fuse_epilogues: false, ..limits },
            ),
            (Machine { workgroup: 256, ..gpu }, Limits { columns: false, ..limits }),
            (small, Limits { kept_bytes: 512 << 20, ..limits }),
            (Machine { memory_bytes: None, ..gpu }, Limits { kept_bytes: 512 << 20, ..limits }),
            (Machine { asynchronous: false, ..gpu }, Limits { speculates: false, ..limits }),
            (
                Machine { bindings: Some(8), ..gpu },
                Limits { bindings: Some(8), inputs: 7, fuse_epilogues: false, ..limits },
            ),
            (
                Machine { bindings: Some(0), products: Products::Kernels, ..gpu },
                Limits {
                    bindings: Some(0),
                    inputs: 0,
                    continue_products: true,
                    fuse_epilogues: false,
                    ..limits
                },
            ),
            (Machine { kernel_ops: usize::MAX, ..gpu }, limits),
            (Machine { kernel_ops: 64, ..gpu }, Limits { kernel_ops: 64, ..limits }),
        ] {
            assert_eq!(Limits::of(&machine), expected, "{machine:?}");
        }
    }
}
