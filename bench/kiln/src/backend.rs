//! The backends of Kiln that can be measured: the one place that names them.

use crate::workloads;
use bench_protocol::{Prepared, Result};
use kiln::{Cpu, Flex};

/// A backend by name.
pub(crate) struct Choice {
    /// As `--backend` has it.
    pub(crate) name: &'static str,
    /// Prepares a workload on it.
    pub(crate) prepare: fn(&str, &str) -> Result<Prepared>,
}

/// The eager backend, on which `op_overhead` is measured whatever was chosen.
pub(crate) type Eager = Flex;

/// The default of `--backend`.
pub(crate) const DEFAULT: &str = "cpu";

/// All of them.
pub(crate) const CHOICES: &[Choice] = &[
    Choice { name: "cpu", prepare: workloads::prepare::<Cpu> },
    Choice { name: "flex", prepare: workloads::prepare::<Flex> },
];
