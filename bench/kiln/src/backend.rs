//! The backends of Kiln that the benchmark supports.

use crate::workloads;
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use kiln::{Cpu, Flex};

/// A backend by name.
pub(crate) struct Choice {
    /// The name for `--backend`.
    pub(crate) name: &'static str,
    /// Prepares a workload on it.
    pub(crate) prepare: fn(&'static Row, &str) -> Result<Prepared>,
}

/// The eager backend, which always runs `op_overhead`.
pub(crate) type Eager = Flex;

/// The default of `--backend`.
pub(crate) const DEFAULT: &str = "cpu";

/// All of them.
pub(crate) const CHOICES: &[Choice] = &[
    Choice { name: "cpu", prepare: workloads::prepare::<Cpu> },
    Choice { name: "flex", prepare: workloads::prepare::<Flex> },
];
