//! Kernels written by hand, for ops that have no form in [`kiln_kernel`]: C++ with names for dtypes, which each use sets.

use crate::Gpu;
use crate::driver::{Argument, Arguments, Driver, Grid};
use crate::strided::bits;
use kiln_ir::{DType, Result};
use kiln_kernel::print::{held_type, memory_type, narrowed, widened, with_prelude};
use std::fmt::Write;

/// Threads of a block.
const THREADS: u32 = 256;

/// The most blocks: their threads take several points each where there are more.
const MOST_BLOCKS: usize = 1 << 16;

/// A source, and what its names stand for.
pub(crate) struct Native {
    source: &'static str,
    names: String,
    entry: &'static str,
}

impl Native {
    pub(crate) fn new(source: &'static str, entry: &'static str) -> Native {
        Native { source, names: String::new(), entry }
    }

    /// What a name in the source stands for.
    pub(crate) fn name(mut self, name: &str, meaning: &str) -> Native {
        let _ = writeln!(self.names, "#define {name} {meaning}");
        self
    }

    /// `name` for elements of a dtype in memory, `name_VALUE` as they are computed with, and `name_READ` and `name_WRITTEN`
    /// between the two.
    pub(crate) fn dtype(self, name: &str, dtype: DType) -> Native {
        self.name(name, memory_type(dtype))
            .name(&format!("{name}_VALUE"), held_type(dtype))
            .name(&format!("{name}_READ(x)"), &format!("({})", widened(dtype, "(x)")))
            .name(&format!("{name}_WRITTEN(x)"), &format!("({})", narrowed(dtype, "(x)")))
    }

    /// `name` for elements of so many bytes, as they are copied.
    pub(crate) fn size(self, name: &str, dtype: DType) -> Native {
        self.name(name, memory_type(bits(dtype)))
    }
}

impl<D: Driver> Gpu<D> {
    /// Queues a native kernel for so many points.
    pub(crate) fn native(
        &self,
        native: Native,
        points: usize,
        arguments: Arguments<D::Memory>,
    ) -> Result<()> {
        if points == 0 {
            return Ok(());
        }
        let Native { source, names, entry } = native;
        let function =
            self.kernels.native(entry, names, |names| with_prelude(&format!("{names}{source}")))?;
        let blocks = points.div_ceil(THREADS as usize).min(MOST_BLOCKS);
        self.launch(&function, Grid { blocks, threads: THREADS }, arguments)
    }
}

/// A length as kernels take it.
pub(crate) fn length<M>(length: usize) -> Argument<M> {
    Argument::Word((length as u64).to_le_bytes())
}
