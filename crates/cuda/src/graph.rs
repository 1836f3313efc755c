//! CUDA graphs of queued steps: a chain, since all work of a device is in order.

use crate::blas::Target;
use crate::driver::{Context, CudaDriver, Stream, address, with_arguments};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUstreamCaptureMode};
use kiln_gpu::driver::Step;
use std::sync::{Arc, Mutex, PoisonError};

/// An executable CUDA graph.
pub struct CudaGraph {
    definition: Definition,
    executable: sys::CUgraphExec,
    /// One node for each step.
    nodes: Vec<sys::CUgraphNode>,
    context: Arc<Context>,
}

// SAFETY: CUDA's graphs may be used from any thread, by one at a time, which `&mut` ensures.
unsafe impl Send for CudaGraph {}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        // SAFETY: it was instantiated once. Work that is already launched still completes.
        let destroyed =
            self.context.enter().and_then(|()| unsafe { result::graph::exec_destroy(self.executable) });
        // A lost device has no graphs left.
        let _ = destroyed;
    }
}

/// A `CUgraph`: the graph from which an executable is instantiated.
struct Definition(sys::CUgraph);

impl Drop for Definition {
    fn drop(&mut self) {
        // SAFETY: it was created once, and executables do not need it.
        let destroyed = unsafe { result::graph::destroy(self.0) };
        let _ = destroyed;
    }
}

type Outcome<T> = core::result::Result<T, DriverError>;

impl CudaGraph {
    /// # Safety
    /// As [`Recorder::record`](kiln_gpu::driver::Recorder::record).
    pub(crate) unsafe fn new(driver: &CudaDriver, steps: &[Step<CudaDriver>]) -> Outcome<CudaGraph> {
        driver.context.enter()?;
        let mut definition = core::ptr::null_mut();
        // SAFETY: the graph is written before the call returns.
        unsafe { sys::cuGraphCreate(&mut definition, 0).result()? };
        let definition = Definition(definition);
        let mut nodes: Vec<sys::CUgraphNode> = Vec::with_capacity(steps.len());
        for (place, step) in steps.iter().enumerate() {
            let before = place
                .checked_sub(1)
                .map(|before| (&nodes[before], may_overlap(driver, &steps[before], step)));
            // SAFETY: as the caller says; the previous node is in this graph.
            let node = unsafe { add(driver, &definition, before, step)? };
            nodes.push(node);
        }
        // SAFETY: the graph is complete.
        let executable =
            unsafe { result::graph::instantiate(definition.0, sys::CUgraphInstantiate_flags_enum(0))? };
        Ok(CudaGraph { definition, executable, nodes, context: driver.context.clone() })
    }

    /// # Safety
    /// As [`Graph::amend`](kiln_gpu::driver::Graph::amend).
    pub(crate) unsafe fn update(
        &mut self,
        driver: &CudaDriver,
        place: usize,
        step: &Step<CudaDriver>,
    ) -> Outcome<()> {
        driver.context.enter()?;
        let (executable, node) = (self.executable, self.nodes[place]);
        match step {
            Step::Launch { .. } => with_kernel(driver, step, |kernel| {
                // SAFETY: the node is a kernel node of the same function; arguments are copied before the call returns.
                unsafe { sys::cuGraphExecKernelNodeSetParams_v2(executable, node, kernel).result() }
            }),
            Step::Fill { .. } => {
                let fill = fill(step);
                // SAFETY: the node is a memset node.
                unsafe {
                    sys::cuGraphExecMemsetNodeSetParams(executable, node, &fill, driver.context.handle)
                        .result()
                }
            }
            Step::Multiply(_) | Step::Convolve(_) | Step::Attend(_) | Step::Transform(_) => {
                // SAFETY: as the caller says.
                let part = unsafe { capture(driver, step)? };
                // SAFETY: the node is a child graph node, and CUDA checks that the new graph has the same nodes.
                unsafe { sys::cuGraphExecChildGraphNodeSetParams(executable, node, part.0).result() }
            }
        }
    }

    /// # Safety
    /// As [`Graph::replay`](kiln_gpu::driver::Graph::replay).
    pub(crate) unsafe fn launch(&mut self, stream: sys::CUstream) -> Outcome<()> {
        debug_assert!(!self.definition.0.is_null());
        self.context.enter()?;
        // SAFETY: as the caller says.
        unsafe { result::graph::launch(self.executable, stream) }
    }
}

/// Whether a step may begin before the previous one has ended: both are our kernels, which wait for it themselves.
fn may_overlap(driver: &CudaDriver, before: &Step<CudaDriver>, step: &Step<CudaDriver>) -> bool {
    driver.overlaps && matches!((before, step), (Step::Launch { .. }, Step::Launch { .. }))
}

/// Adds a step after the last one; with `last`, it may begin before that one has ended.
///
/// # Safety
/// The step's arguments must match its function.
unsafe fn add(
    driver: &CudaDriver,
    graph: &Definition,
    last: Option<(&sys::CUgraphNode, bool)>,
    step: &Step<CudaDriver>,
) -> Outcome<sys::CUgraphNode> {
    let mut node = core::ptr::null_mut();
    let whole = last.filter(|(_, overlaps)| !overlaps).map(|(node, _)| node);
    let (before, count) =
        (whole.map_or(core::ptr::null(), core::ptr::from_ref), usize::from(whole.is_some()));
    match step {
        Step::Launch { .. } => with_kernel(driver, step, |kernel| {
            // SAFETY: the graph and the previous node are alive; arguments are copied before the call returns.
            unsafe { sys::cuGraphAddKernelNode_v2(&mut node, graph.0, before, count, kernel).result() }
        })?,
        Step::Fill { .. } => {
            let fill = fill(step);
            // SAFETY: as above.
            unsafe {
                sys::cuGraphAddMemsetNode(&mut node, graph.0, before, count, &fill, driver.context.handle)
                    .result()?;
            }
        }
        Step::Multiply(_) | Step::Convolve(_) | Step::Attend(_) | Step::Transform(_) => {
            // SAFETY: as the caller says.
            let part = unsafe { capture(driver, step)? };
            // SAFETY: as above; the part is copied.
            unsafe { sys::cuGraphAddChildGraphNode(&mut node, graph.0, before, count, part.0).result()? };
        }
    }
    if let Some((last, true)) = last {
        let edge = sys::CUgraphEdgeData {
            from_port: sys::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8,
            to_port: 0,
            type_: sys::CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8,
            reserved: [0; 5],
        };
        // SAFETY: both nodes are kernels of this graph.
        unsafe { sys::cuGraphAddDependencies_v2(graph.0, last, &node, &edge, 1).result()? };
    }
    Ok(node)
}

/// The parameters of a kernel node.
fn with_kernel(
    driver: &CudaDriver,
    step: &Step<CudaDriver>,
    body: impl FnOnce(&sys::CUDA_KERNEL_NODE_PARAMS) -> Outcome<()>,
) -> Outcome<()> {
    let Step::Launch { function, grid, arguments } = step else { return Err(invalid_value()) };
    with_arguments(arguments, |list| {
        body(&sys::CUDA_KERNEL_NODE_PARAMS {
            func: function.handle,
            gridDimX: grid.blocks as u32,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: grid.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: list.as_mut_ptr(),
            extra: core::ptr::null_mut(),
            kern: core::ptr::null_mut(),
            ctx: driver.context.handle,
        })
    })
}

fn fill(step: &Step<CudaDriver>) -> sys::CUDA_MEMSET_NODE_PARAMS {
    let (dst, width, value) = match step {
        Step::Fill { to, bytes, value } => (address(to), *bytes, u32::from(*value)),
        Step::Launch { .. }
        | Step::Multiply(_)
        | Step::Convolve(_)
        | Step::Attend(_)
        | Step::Transform(_) => (0, 0, 0),
    };
    sys::CUDA_MEMSET_NODE_PARAMS { dst, pitch: 0, value, elementSize: 1, width, height: 1 }
}

fn invalid_value() -> DriverError {
    DriverError(sys::CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// Whether a library accepts a call, tested by graph capture. Nothing runs.
pub(crate) fn is_accepted(driver: &CudaDriver, queue: impl FnOnce(sys::CUstream) -> bool) -> bool {
    // SAFETY: the captured graph is never replayed.
    driver.context.enter().is_ok() && unsafe { captured(&driver.trials, queue) }.is_ok()
}

/// Captures a library call as a child graph.
///
/// # Safety
/// As [`Library::multiply`](kiln_gpu::driver::Library::multiply) and [`Library::convolve`](kiln_gpu::driver::Library::convolve).
unsafe fn capture(driver: &CudaDriver, step: &Step<CudaDriver>) -> Outcome<Definition> {
    // SAFETY: as the caller says.
    let queue = |stream: sys::CUstream| unsafe {
        match step {
            Step::Multiply(products) => driver.blas.multiply(products, Target::Graph(stream), driver).is_ok(),
            Step::Convolve(convolve) => driver.convolve_on(convolve, Target::Graph(stream)).is_ok(),
            Step::Attend(attend) => driver.attend_on(attend, Target::Graph(stream)).is_ok(),
            Step::Transform(transform) => driver.transform_on(transform, Target::Graph(stream)).is_ok(),
            Step::Launch { .. } | Step::Fill { .. } => false,
        }
    };
    // SAFETY: as above.
    unsafe { captured(&driver.capture, queue) }
}

/// Captures the work that `queue` submits to a stream as a graph.
///
/// # Safety
/// Replaying the graph must uphold the safety conditions of the captured work.
unsafe fn captured(stream: &Mutex<Stream>, queue: impl FnOnce(sys::CUstream) -> bool) -> Outcome<Definition> {
    // One capture at a time: the stream is used for captures only.
    let stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the stream is alive. The library may load a kernel during capture, which the other modes forbid.
    unsafe {
        result::stream::begin_capture(stream.0, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    }
    let queued = queue(stream.0);
    // SAFETY: the capture was begun here, and must end in any case.
    let graph = Definition(unsafe { result::stream::end_capture(stream.0)? });
    if queued { Ok(graph) } else { Err(invalid_value()) }
}
