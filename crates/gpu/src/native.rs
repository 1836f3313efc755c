//! Hand-written kernels, for ops that have no form in [`kiln_kernel`]: C++ templates, specialised
//! by macros for dtypes and sizes.

use crate::Gpu;
use crate::driver::{Argument, Arguments, Driver, Grid};
use crate::strided::bits;
use crate::trace::Label;
use kiln_ir::{DType, Error, Result};
use kiln_kernel::print::{held_type, memory_type, narrowed, widened, with_prelude};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Threads per block.
pub(crate) const THREADS: u32 = 256;

/// The minimum number of threads per block.
const FEWEST_THREADS: u32 = 64;

/// The maximum number of blocks; their threads loop over several points if there are more.
const MAX_BLOCKS: usize = 1 << 16;

/// A source with its macro definitions.
pub(crate) struct Native {
    source: &'static str,
    known: NativeKey,
}

/// The cache key of a hand-written kernel. It is built for each launch; the source is generated only on a cache miss.
#[derive(PartialEq, Eq)]
pub(crate) struct NativeKey {
    pub(crate) entry: &'static str,
    names: SmallVec<[(&'static str, Definition); 8]>,
    /// Macro names of dtypes, and whether elements are only copied.
    dtypes: SmallVec<[(&'static str, DType, bool); 3]>,
}

/// The value of a macro.
#[derive(PartialEq, Eq, Hash)]
pub(crate) enum Definition {
    Number(usize),
    Text(Cow<'static, str>),
}

impl From<usize> for Definition {
    fn from(number: usize) -> Self {
        Definition::Number(number)
    }
}

impl From<bool> for Definition {
    fn from(truth: bool) -> Self {
        Definition::from(if truth { "true" } else { "false" })
    }
}

impl From<&'static str> for Definition {
    fn from(text: &'static str) -> Self {
        Definition::Text(text.into())
    }
}

impl From<String> for Definition {
    fn from(text: String) -> Self {
        Definition::Text(text.into())
    }
}

impl Hash for NativeKey {
    /// Macro names are not hashed: those of one entry point hardly differ.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.entry.hash(state);
        self.names.iter().for_each(|(_, meaning)| meaning.hash(state));
        self.dtypes.iter().for_each(|(_, dtype, is_copied)| (dtype, is_copied).hash(state));
    }
}

impl Native {
    pub(crate) fn new(source: &'static str, entry: &'static str) -> Native {
        Native { source, known: NativeKey { entry, names: SmallVec::new(), dtypes: SmallVec::new() } }
    }

    /// Defines a macro of the source.
    pub(crate) fn name(mut self, name: &'static str, meaning: impl Into<Definition>) -> Native {
        self.known.names.push((name, meaning.into()));
        self
    }

    /// Defines `name` as the dtype in memory, `name_VALUE` as the dtype of arithmetic, and `name_READ` and
    /// `name_WRITTEN` as the conversions between the two.
    pub(crate) fn dtype(mut self, name: &'static str, dtype: DType) -> Native {
        self.known.dtypes.push((name, dtype, false));
        self
    }

    /// Defines `name` as an unsigned type of the dtype's size, for copies.
    pub(crate) fn size(mut self, name: &'static str, dtype: DType) -> Native {
        self.known.dtypes.push((name, bits(dtype), true));
        self
    }
}

impl NativeKey {
    /// All macro definitions, as the source's first lines.
    fn written(&self) -> String {
        let mut all = String::new();
        for (name, meaning) in &self.names {
            match meaning {
                Definition::Number(number) => define(&mut all, name, &number.to_string()),
                Definition::Text(text) => define(&mut all, name, text),
            }
        }
        for &(name, dtype, is_copied) in &self.dtypes {
            define(&mut all, name, memory_type(dtype));
            if is_copied {
                continue;
            }
            define(&mut all, &format!("{name}_VALUE"), held_type(dtype));
            define(&mut all, &format!("{name}_READ(x)"), &format!("({})", widened(dtype, "(x)")));
            define(&mut all, &format!("{name}_WRITTEN(x)"), &format!("({})", narrowed(dtype, "(x)")));
        }
        all
    }
}

/// Appends a macro definition to the lines of a source.
fn define(lines: &mut String, name: &str, meaning: &str) {
    for part in ["#define ", name, " ", meaning, "\n"] {
        lines.push_str(part);
    }
}

impl<D: Driver> Gpu<D> {
    /// Queues a native kernel with a grid-stride loop over `points` points.
    pub(crate) fn native(
        &self,
        native: Native,
        points: usize,
        arguments: Arguments<D::Memory>,
    ) -> Result<()> {
        if points == 0 {
            return Ok(());
        }
        let grid = grid(points, self.driver.info().multiprocessors);
        let entry = native.known.entry;
        self.launch(&self.loaded(native)?, grid, arguments, || label(entry))
    }

    /// Queues a native kernel with a number of blocks of 256 threads, the block size that its source assumes.
    pub(crate) fn native_blocks(
        &self,
        native: Native,
        blocks: usize,
        arguments: Arguments<D::Memory>,
    ) -> Result<()> {
        if i32::try_from(blocks).is_err() {
            let problem = format!("`{}` has too many blocks: {blocks}", native.known.entry);
            return Err(Error::unsupported("gpu", problem));
        }
        let entry = native.known.entry;
        let grid = Grid { blocks, threads: THREADS };
        self.launch(&self.loaded(native)?, grid, arguments, || label(entry))
    }

    /// The entry point of a native kernel.
    pub(crate) fn loaded(&self, native: Native) -> Result<Arc<D::Function>> {
        let Native { source, known } = native;
        self.kernels.native(known, |known| with_prelude(&format!("{}{source}", known.written())))
    }
}

fn label(entry: &str) -> Label {
    Label { name: entry.to_owned(), read: 0, written: 0 }
}

/// The grid for a number of points: smaller blocks if there would be fewer blocks than multiprocessors.
fn grid(points: usize, multiprocessors: usize) -> Grid {
    let mut threads = THREADS;
    while threads > FEWEST_THREADS && points.div_ceil(threads as usize) < multiprocessors {
        threads /= 2;
    }
    Grid { blocks: points.div_ceil(threads as usize).min(MAX_BLOCKS), threads }
}

/// A length as a kernel argument.
pub(crate) fn length<M>(length: usize) -> Argument<M> {
    Argument::Word((length as u64).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With programmatic dependent launch, a kernel may begin before the previous one has ended.
    #[test]
    fn every_kernel_waits_for_the_previous_kernel() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/native");
        let mut kernels = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let source = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            for kernel in source.split("__global__").skip(1) {
                assert!(
                    kernel.contains("kiln_begin();"),
                    "a kernel does not wait: {}",
                    kernel.lines().next().unwrap_or_default()
                );
                kernels += 1;
            }
            // Reads through the constant cache may return data from before the previous kernel's writes.
            for constant in ["__restrict__", "__ldg", ".nc"] {
                assert!(!source.contains(constant), "a kernel reads by the cache for constants: {constant}");
            }
        }
        assert!(kernels > 30, "{kernels}");
    }

    #[test]
    fn small_grids_use_all_multiprocessors() {
        assert_eq!(grid(1 << 20, 132), Grid { blocks: 4096, threads: 256 });
        assert_eq!(grid(132 * 128, 132), Grid { blocks: 132, threads: 128 });
        assert_eq!(grid(1, 132), Grid { blocks: 1, threads: 64 });
        assert_eq!(grid(usize::MAX, 132), Grid { blocks: MAX_BLOCKS, threads: 256 });
    }
}
