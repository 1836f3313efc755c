//! The stream of a device: single launches, and CUDA graphs for launch sequences that repeat.
//!
//! Steps are queued until there are enough of them, or until a read, a write or a submit. The steps queued together are
//! a [run](run), which the [submit thread](line) passes to the driver while the program continues. A run whose form
//! (kernels and grid sizes) occurred before is captured as a CUDA graph and replayed from then on. Arguments that
//! changed since, such as addresses or a learning rate, are updated in the graph first.

mod line;
mod run;

use crate::Gpu;
use crate::driver::{
    Argument, Arguments, Attend, Convolve, DevicePtr, Driver, Grid, Products, Step, Transform,
};
use crate::joint::{self, Joint};
use crate::memory::Block;
use crate::slim::Slim;
use crate::strided::ALIGNMENT;
use crate::trace::{Label, Trace};
use kiln_ir::{BoxFuture, Error, Result};
use line::Line;
use run::{Counters, Run, alone};
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of steps of a run, so that the device does not idle.
const MOST_STEPS: usize = 128;

/// The number of steps of the first run for an idle device. Each later run is twice as long as the previous one, up to
/// [`MOST_STEPS`].
const FIRST_STEPS: usize = 16;

/// Usage counts of the graphs that replay repeated steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphUse {
    /// Graphs that were recorded.
    pub recorded: u64,
    /// Graph replays.
    pub replayed: u64,
    /// Steps that ran as part of a replay.
    pub steps_replayed: u64,
    /// Steps whose arguments were updated before a replay.
    pub steps_amended: u64,
    /// Steps that were launched individually.
    pub steps_alone: u64,
}

/// The queue of one device.
pub(crate) struct Queue<D: Driver> {
    driver: Arc<D>,
    /// Whether steps are queued for graph capture. If not, each is launched at once.
    graphs: bool,
    /// Whether launches of the same kernel over other tensors are joined (horizontal fusion).
    joins: bool,
    counters: Arc<Counters>,
    pub(crate) trace: Arc<Trace>,
    state: Mutex<State<D>>,
    line: Line<D>,
}

struct State<D: Driver> {
    waiting: Vec<Step<D>>,
    /// The trace labels of the last pending steps, while steps are traced.
    labels: Vec<Option<Label>>,
    /// The last pending step, if it is a GEMV-like matmul (few rows).
    slim: Option<Slim<D::Memory>>,
    /// The last pending launches, if they may be joined.
    group: Option<Group<D>>,
    /// The number of pending steps that form a run.
    enough: usize,
    /// Whether the device is known to be idle.
    is_idle: bool,
}

/// Consecutive launches that can run concurrently, with their joined kernel.
struct Group<D: Driver> {
    joint: Arc<Joint<D>>,
    count: usize,
}

/// Whether `KILN_GRAPHS` enables graphs; they are enabled by default.
pub(crate) fn graphs_wanted() -> bool {
    kiln_ir::switch("KILN_GRAPHS", true)
}

impl<D: Driver> Queue<D> {
    pub(crate) fn new(driver: Arc<D>, graphs: bool) -> Queue<D> {
        let (waiting, labels) = (Vec::new(), Vec::new());
        let state = State { waiting, labels, slim: None, group: None, enough: FIRST_STEPS, is_idle: true };
        let (counters, trace) = (Arc::<Counters>::default(), Arc::new(Trace::from_environment()));
        let line = Line::new(driver.clone(), counters.clone(), trace.clone());
        let joins = kiln_ir::switch("KILN_JOIN", true);
        Queue { driver, graphs, joins, counters, trace, state: Mutex::new(state), line }
    }

    /// Usage counts of graphs so far.
    pub(crate) fn graphs(&self) -> GraphUse {
        // The next read reports a failure.
        let _ = self.line.drain();
        self.counters.read()
    }

    /// Queues a step, to be submitted in a run.
    ///
    /// # Errors
    /// When the device failed.
    pub(crate) fn push(&self, step: Step<D>) -> Result<()> {
        self.push_labelled(step, || None)
    }

    /// As [`push`](Queue::push), with a trace label.
    fn push_labelled(&self, step: Step<D>, label: impl FnOnce() -> Option<Label>) -> Result<()> {
        let is_traced = self.trace.is_on();
        if !self.graphs && !is_traced {
            return alone(&*self.driver, &self.counters, &step);
        }
        self.with(|state| {
            close(state);
            self.add(state, step, is_traced.then(label))
        })
    }

    /// Queues a launch that may be joined with adjacent launches of the same function.
    ///
    /// # Errors
    /// When the device failed.
    fn push_joint(
        &self,
        step: Step<D>,
        joint: &Arc<Joint<D>>,
        label: impl FnOnce() -> Option<Label>,
    ) -> Result<()> {
        let is_traced = self.trace.is_on();
        if !self.joins || !self.graphs && !is_traced {
            return self.push_labelled(step, label);
        }
        self.with(|state| {
            let takes = |group: &Group<D>| {
                let before = &state.waiting[state.waiting.len() - group.count..];
                group.joint.takes(before, &step)
            };
            if !state.group.as_ref().is_some_and(takes) {
                close(state);
            }
            self.append(state, step, is_traced.then(label))?;
            state.group.get_or_insert_with(|| Group { joint: joint.clone(), count: 0 }).count += 1;
            self.submit_if_enough(state);
            Ok(())
        })
    }

    /// Queues a GEMV-like matmul (few rows). `make` gets the previous one if it is still pending, and returns whether
    /// its step computes both.
    ///
    /// # Errors
    /// When the device failed, or when `make` fails.
    pub(crate) fn push_slim(
        &self,
        make: impl FnOnce(Option<&Slim<D::Memory>>) -> Result<(Step<D>, Slim<D::Memory>, bool)>,
    ) -> Result<()> {
        let is_traced = self.trace.is_on();
        if !self.graphs && !is_traced {
            return alone(&*self.driver, &self.counters, &make(None)?.0);
        }
        self.with(|state| {
            let before = state.slim.take();
            close(state);
            let (step, slim, has_both) = make(before.as_ref())?;
            if has_both {
                state.waiting.pop();
                state.labels.truncate(state.waiting.len());
            }
            self.add(state, step, is_traced.then(|| Some(slim.label())))?;
            if !state.waiting.is_empty() {
                state.slim = Some(slim);
            }
            Ok(())
        })
    }

    /// Appends a pending step, with its label if steps are traced.
    fn add(&self, state: &mut State<D>, step: Step<D>, label: Option<Option<Label>>) -> Result<()> {
        self.append(state, step, label)?;
        self.submit_if_enough(state);
        Ok(())
    }

    fn append(&self, state: &mut State<D>, step: Step<D>, label: Option<Option<Label>>) -> Result<()> {
        self.line.failure()?;
        state.waiting.push(step);
        if let Some(label) = label {
            state.labels.resize_with(state.waiting.len() - 1, || None);
            state.labels.push(label);
        }
        Ok(())
    }

    fn submit_if_enough(&self, state: &mut State<D>) {
        if state.waiting.len() >= state.enough {
            state.enough = (2 * state.enough).min(MOST_STEPS);
            self.flush(state);
        }
    }

    /// Submits the pending steps. The next read reports a failure.
    pub(crate) fn submit(&self) {
        self.with(|state| self.flush(state));
    }

    /// Submits the pending steps, and waits until the device has received all of them.
    ///
    /// # Errors
    /// When the device failed.
    pub(crate) fn drain(&self) -> Result<()> {
        self.submit();
        self.line.drain()
    }

    /// Starts to copy the bytes of ranges, in one submission, as they are after all work that is queued so far. Does not
    /// wait for the device.
    ///
    /// # Errors
    /// When the device failed, here or in the future.
    pub(crate) fn read_all(
        &self,
        ranges: &[(DevicePtr<D::Memory>, usize)],
    ) -> Result<BoxFuture<'_, Result<Vec<Vec<u8>>>>> {
        self.with(|state| ranges.iter().try_for_each(|(from, _)| self.settle(state, from)))?;
        let copied = self.driver.read_all(ranges);
        Ok(Box::pin(async move {
            let bytes = copied.await?;
            self.with(rest);
            Ok(bytes)
        }))
    }

    /// Writes bytes; work queued before reads the old bytes.
    ///
    /// # Errors
    /// When the device failed.
    pub(crate) fn write(&self, to: &DevicePtr<D::Memory>, bytes: &[u8]) -> Result<()> {
        self.with(|state| {
            self.settle(state, to)?;
            self.driver.write(to, bytes)
        })
    }

    /// Submits all queued work. The future ends once it is done.
    ///
    /// # Errors
    /// When the device failed, here or in the future.
    pub(crate) fn synchronize(&self) -> Result<BoxFuture<'_, Result<()>>> {
        self.drain()?;
        let done = self.driver.synchronize();
        Ok(Box::pin(async move {
            done.await?;
            self.with(rest);
            self.trace.report(&self.driver.info().name);
            Ok(())
        }))
    }

    /// Submits the pending steps if one of them uses that memory. Other steps stay pending, so that threads which write
    /// data do not split the runs of other threads.
    fn settle(&self, state: &mut State<D>, place: &DevicePtr<D::Memory>) -> Result<()> {
        /// The references of the value and of the pointer itself.
        const OTHERS: usize = 2;
        if Arc::strong_count(&place.memory) > OTHERS {
            self.line.reclaim();
        }
        if Arc::strong_count(&place.memory) <= OTHERS {
            return self.line.failure();
        }
        self.flush(state);
        self.line.drain()
    }

    fn flush(&self, state: &mut State<D>) {
        close(state);
        if !state.waiting.is_empty() {
            let next = self.line.reclaim().unwrap_or_else(|| Vec::with_capacity(MOST_STEPS));
            let steps = core::mem::replace(&mut state.waiting, next);
            let run = Run { steps, labels: core::mem::take(&mut state.labels) };
            // If the device is idle, this thread submits the run: the submit thread would have to wake up first.
            self.line.submit(run, core::mem::take(&mut state.is_idle));
        }
    }

    fn with<R>(&self, body: impl FnOnce(&mut State<D>) -> R) -> R {
        body(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Resets the run length after the device became idle.
fn rest<D: Driver>(state: &mut State<D>) {
    (state.enough, state.is_idle) = (FIRST_STEPS, true);
}

/// Ends the current group of pending launches: enough launches are joined into one step.
fn close<D: Driver>(state: &mut State<D>) {
    state.slim = None;
    let Some(Group { joint, count }) = state.group.take() else { return };
    if count < joint::LEAST {
        return;
    }
    let first = state.waiting.len() - count;
    match joint.join(state.waiting.drain(first..).collect()) {
        Ok(step) => state.waiting.push(step),
        Err(steps) => return state.waiting.extend(steps),
    }
    if state.labels.len() > first {
        let label = joint::label(state.labels.drain(first..).collect());
        state.labels.push(label);
    }
}

/// Checks the alignment that libraries require. Some of them fail only at run time, which loses the device.
fn aligned<M>(op: &'static str, tensors: &[DevicePtr<M>]) -> Result<()> {
    if tensors.iter().all(|place| place.offset.is_multiple_of(ALIGNMENT)) {
        return Ok(());
    }
    Err(Error::unsupported(
        op,
        format!("a library was given an address that is not a multiple of {ALIGNMENT} bytes"),
    ))
}

impl<D: Driver> Gpu<D> {
    /// Queues one of our kernels. Callers pass the entry point's arguments, with memory large enough for its reads and
    /// writes. Each kernel documents its arguments, and extents come from the layouts of the operands.
    pub(crate) fn launch(
        &self,
        function: &Arc<D::Function>,
        grid: Grid,
        arguments: Arguments<D::Memory>,
        label: impl FnOnce() -> Label,
    ) -> Result<()> {
        self.launch_joint(function, grid, arguments, None, label)
    }

    /// As [`launch`](Gpu::launch), for a kernel that may be joined with others.
    pub(crate) fn launch_joint(
        &self,
        function: &Arc<D::Function>,
        grid: Grid,
        arguments: Arguments<D::Memory>,
        joint: Option<&Arc<Joint<D>>>,
        label: impl FnOnce() -> Label,
    ) -> Result<()> {
        if grid.blocks == 0 {
            return Ok(());
        }
        self.driver.check(function, &arguments)?;
        let step = Step::Launch { function: function.clone(), grid, arguments };
        self.assert_held(&step);
        match joint {
            Some(joint) => self.queue.push_joint(step, joint, || Some(label())),
            None => self.queue.push_labelled(step, || Some(label())),
        }
    }

    /// Asserts that the blocks of a step are held until it is queued. A block dropped before could already belong to
    /// another thread.
    pub(crate) fn assert_held(&self, step: &Step<D>) {
        let is_free = |argument: &Argument<D::Memory>| match argument {
            Argument::Pointer(place) => self.pool.is_free(&place.memory),
            Argument::Word(_) => false,
        };
        debug_assert!(!run::arguments(step).iter().any(is_free), "[gpu] a step uses freed memory");
    }

    fn push(&self, step: Step<D>) -> Result<()> {
        self.assert_held(&step);
        self.queue.push(step)
    }

    /// Queues matmuls by the vendor's library; `false` if the library does not support them. Sizes, leading dimensions
    /// and batch strides come from the layouts of the operands, and the result is contiguous.
    pub(crate) fn multiply(&self, products: Products<D::Memory>) -> Result<bool> {
        if !self.driver.library().is_some_and(|library| library.multiplies(&products)) {
            return Ok(false);
        }
        self.push(Step::Multiply(products))?;
        Ok(true)
    }

    /// Queues a convolution for which the vendor's library has an algorithm. The tensors are contiguous in the
    /// convolution's axis order and have its shapes. The workspace has the size that the driver returned.
    ///
    /// # Errors
    /// When the device failed, or an address is not a multiple of [`ALIGNMENT`].
    pub(crate) fn convolve(&self, convolve: Convolve<D::Memory>) -> Result<()> {
        aligned("conv", &convolve.tensors)?;
        self.push(Step::Convolve(convolve))
    }

    /// Queues an attention for which the vendor's library has an algorithm. Strides are those of the tensors' layouts,
    /// and sizes were checked by inference. The workspace has the size that the driver returned.
    ///
    /// # Errors
    /// When the device failed, or an address is not a multiple of [`ALIGNMENT`].
    pub(crate) fn attend(&self, attend: Attend<D::Memory>) -> Result<()> {
        aligned("attention", &attend.tensors)?;
        self.push(Step::Attend(attend))
    }

    /// Queues Fourier transforms that the vendor's library supports. The tensors hold all lines without gaps. The
    /// workspace has the size that the driver returned.
    ///
    /// # Errors
    /// When the device failed, or an address is not a multiple of [`ALIGNMENT`].
    pub(crate) fn transform(&self, transform: Transform<D::Memory>) -> Result<()> {
        aligned("fft", &transform.tensors)?;
        self.push(Step::Transform(transform))
    }

    /// Allocates a block of at least that many bytes.
    ///
    /// # Errors
    /// When the device is out of memory.
    pub(crate) fn block(&self, bytes: usize) -> Result<Block<D>> {
        self.pool.block(bytes).or_else(|_| {
            // Pending steps hold memory that is otherwise free. The next read reports a failure.
            let _ = self.queue.drain();
            self.pool.block(bytes)
        })
    }
}

#[cfg(test)]
mod tests;
