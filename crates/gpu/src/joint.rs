//! Horizontal fusion: consecutive launches of one elementwise kernel over different tensors become one launch. The
//! parameter updates of an optimizer are the typical case.

use crate::Gpu;
use crate::driver::{Argument, Arguments, Driver, Grid, Step};
use crate::kernels::Source;
use crate::trace::Label;
use kiln_kernel::print::{Dialect, GpuArgument, cpp_joined};
use kiln_kernel::{GpuSchedule, Kernel, KernelKind, ParamKind};
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};

/// The minimum number of consecutive launches that are joined.
pub(crate) const LEAST: usize = 4;

/// The maximum number of launches that one kernel joins.
pub(crate) const MOST: usize = 16;

/// The limit on a joined kernel's argument bytes: the limit of all devices, without the first-block numbers.
const BYTES: usize = 4096 - MOST * size_of::<u64>();

/// A kernel that joins several launches of a map (horizontal fusion).
pub(crate) struct Joint<D: Driver> {
    /// The function of a single launch.
    function: Arc<D::Function>,
    /// For each argument, whether the kernel writes it.
    writes: SmallVec<[bool; 16]>,
    /// The number of argument sets of the joined kernel.
    sets: usize,
    /// The joined kernel, compiled at its first use; `None` if it does not compile.
    joined: OnceLock<Option<Arc<D::Function>>>,
    make: Make<D>,
}

/// Compiles a joined kernel for a number of argument sets.
type Make<D> = Box<dyn Fn(usize) -> Option<Arc<<D as Driver>::Function>> + Send + Sync>;

impl<D: Driver> Joint<D> {
    /// The horizontal fusion of a kernel with these arguments and one launch; `None` if it cannot be joined.
    pub(crate) fn of(
        gpu: &Gpu<D>,
        (kernel, schedule): (&Arc<Kernel>, GpuSchedule),
        arguments: &[GpuArgument],
        function: &Arc<D::Function>,
    ) -> Option<Joint<D>> {
        let dialect = gpu.driver.info().language.dialect;
        if kernel.kind != KernelKind::Map || dialect == Dialect::Wgsl {
            return None;
        }
        let is_written = |argument: &GpuArgument| match argument {
            GpuArgument::Tensor(param) => kernel.params[*param as usize].kind == ParamKind::Output,
            GpuArgument::Failed | GpuArgument::Scratch(_) => true,
            GpuArgument::Offset(_)
            | GpuArgument::Number(_)
            | GpuArgument::Extent(_)
            | GpuArgument::Stride(..) => false,
        };
        let writes = arguments.iter().map(is_written).collect();
        let (kernels, kernel) = (gpu.kernels.clone(), kernel.clone());
        let make = move |sets| {
            let printed = cpp_joined(&kernel, &schedule, dialect, sets).ok()?;
            kernels.function(&Source { text: printed.text.into(), entries: printed.entries }, 0).ok()
        };
        Joint::new(function.clone(), writes, make)
    }

    /// Creates the joint; `None` if the argument space holds too few sets.
    pub(crate) fn new(
        function: Arc<D::Function>,
        writes: SmallVec<[bool; 16]>,
        make: impl Fn(usize) -> Option<Arc<D::Function>> + Send + Sync + 'static,
    ) -> Option<Joint<D>> {
        let sets = MOST.min(BYTES / (writes.len().max(1) * size_of::<u64>()));
        let joint = Joint { function, writes, sets, joined: OnceLock::new(), make: Box::new(make) };
        (sets >= LEAST).then_some(joint)
    }

    /// Whether a step can run concurrently with these launches of the joint. It must be a launch of the same function.
    /// There must be room for it, and no read-write or write-write conflict.
    pub(crate) fn takes(&self, before: &[Step<D>], step: &Step<D>) -> bool {
        let Step::Launch { function, arguments, .. } = step else { return false };
        let meets = |earlier: &Step<D>| match earlier {
            Step::Launch { arguments: earlier, .. } => self.meet(earlier, arguments),
            Step::Fill { .. }
            | Step::Multiply(_)
            | Step::Convolve(_)
            | Step::Attend(_)
            | Step::Transform(_) => true,
        };
        before.len() < self.sets && Arc::ptr_eq(&self.function, function) && !before.iter().any(meets)
    }

    fn meet(&self, a: &[Argument<D::Memory>], b: &[Argument<D::Memory>]) -> bool {
        a.iter().zip(&self.writes).any(|(a, a_writes)| {
            let Argument::Pointer(a) = a else { return false };
            b.iter().zip(&self.writes).any(|(b, b_writes)| match b {
                Argument::Pointer(b) => (*a_writes || *b_writes) && Arc::ptr_eq(&a.memory, &b.memory),
                Argument::Word(_) => false,
            })
        })
    }

    /// Joins launches into one step. Returns the launches if the joined kernel does not compile.
    pub(crate) fn join(&self, steps: Vec<Step<D>>) -> Result<Step<D>, Vec<Step<D>>> {
        let Some(function) = self.joined.get_or_init(|| (self.make)(self.sets)) else { return Err(steps) };
        let mut joined = Arguments::<D::Memory>::new();
        let mut firsts = SmallVec::<[usize; MOST]>::new();
        let mut grid = Grid { blocks: 0, threads: 0 };
        for step in steps {
            if let Step::Launch { grid: of_one, arguments, .. } = step {
                firsts.push(grid.blocks);
                grid = Grid { blocks: grid.blocks + of_one.blocks, ..of_one };
                joined.extend(arguments);
            }
        }
        // Unused sets begin after the last block, so their arguments have no effect.
        let first: Arguments<D::Memory> = joined[..self.writes.len()].iter().cloned().collect();
        for _ in firsts.len()..self.sets {
            firsts.push(grid.blocks);
            joined.extend(first.iter().cloned());
        }
        let word = |&first: &usize| Argument::Word((first as u64).to_le_bytes());
        joined.extend(firsts.iter().skip(1).map(word));
        Ok(Step::Launch { function: function.clone(), grid, arguments: joined })
    }
}

/// The trace label of joined launches.
pub(crate) fn label(labels: Vec<Option<Label>>) -> Option<Label> {
    let count = labels.len();
    let joined = labels.into_iter().flatten().reduce(|all, one| Label {
        read: all.read + one.read,
        written: all.written + one.written,
        ..all
    });
    joined.map(|label| Label { name: format!("{count} launches as one, the first: {}", label.name), ..label })
}
