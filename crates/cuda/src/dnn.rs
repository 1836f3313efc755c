//! Convolutions, attention and their gradients by cuDNN.

mod attention;
mod convolution;
mod graph;
#[cfg(test)]
mod tests;

use crate::blas::{Target, autotune, tf32};
use crate::failure::Failure;
use crate::library;
use crate::stopwatch;
use cudarc::cudnn::result::{self, CudnnError};
use cudarc::cudnn::sys;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
pub(crate) use graph::Refusal;
use graph::{Bounds, Machine, Outcome, Prepared};
use kiln_gpu::driver::{Attention, Convolution};
use kiln_ir::{DType, Error, Result};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum workspace of a plan in bytes.
const MAX_WORKSPACE: usize = 1 << 30;

/// The maximum number of plans of a convolution, which are created in microseconds.
const CONVOLUTION_PLANS: usize = 8;

/// The maximum number of plans of an attention, each of which compiles a kernel.
const ATTENTION_PLANS: usize = 2;

/// The cache key of plans; for a convolution it includes whether TF32 is allowed.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Task {
    Convolution(Box<Convolution>, bool),
    Attention(Attention),
}

type Plans = HashMap<Task, core::result::Result<Arc<Prepared>, Refusal>>;

/// The cuDNN handle with its cached plans.
pub(crate) struct Dnn {
    /// Only one thread may use the handle at a time.
    handle: Mutex<Handle>,
    version: usize,
    /// Whether only deterministic plans run, the first of them without timing.
    deterministic: bool,
    plans: Mutex<Plans>,
}

struct Handle(sys::cudnnHandle_t);

// SAFETY: the library's handles may be used from any thread, one at a time.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: it was created once and is destroyed once.
        let destroyed = unsafe { result::destroy_handle(self.0) };
        // A lost device has already destroyed it.
        let _ = destroyed;
    }
}

/// The addresses of a task's tensors and workspace.
pub(crate) struct Addresses<'a> {
    pub(crate) tensors: &'a [CUdeviceptr],
    pub(crate) workspace: CUdeviceptr,
}

impl Dnn {
    /// Creates the library handle for the current context.
    ///
    /// # Errors
    /// When the library is missing, or of a version that this crate does not support.
    pub(crate) fn open(device: &str, deterministic: bool) -> Result<Dnn> {
        library::load(library::DNN, device)?;
        let version = result::get_version();
        if !(90_000..100_000).contains(&version) {
            let problem = format!("cuDNN has version {version}, whose functions are not known");
            return Err(Error::device(device, problem).hint("install cuDNN 9"));
        }
        let failed = |error: CudnnError| error.on(device, "starting cuDNN");
        let handle = Handle(result::create_handle().map_err(failed)?);
        Ok(Dnn { handle: Mutex::new(handle), version, deterministic, plans: Mutex::default() })
    }

    /// The workspace of a convolution in bytes; `None` if the library has no algorithm for it.
    pub(crate) fn workspace(&self, convolution: &Convolution) -> Option<usize> {
        Some(self.plan(Task::Convolution(Box::new(convolution.clone()), tf32())).ok()?.workspace)
    }

    /// The workspace of an attention in bytes; `None` if the library has no algorithm for it.
    pub(crate) fn attention_workspace(&self, attention: &Attention) -> Option<usize> {
        Some(self.plan(Task::Attention(attention.clone())).ok()?.workspace)
    }

    /// Queues a convolution.
    ///
    /// # Safety
    /// As [`Library::convolve`](kiln_gpu::driver::Library::convolve).
    pub(crate) unsafe fn convolve(
        &self,
        convolution: &Convolution,
        memory: &Addresses<'_>,
        to: Target,
        device: &str,
    ) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.run(Task::Convolution(Box::new(convolution.clone()), tf32()), memory, to) }
            .map_err(|refusal| refusal.on(device, "a convolution"))
    }

    /// Queues an attention.
    ///
    /// # Safety
    /// As [`Library::attend`](kiln_gpu::driver::Library::attend).
    pub(crate) unsafe fn attend(
        &self,
        attention: &Attention,
        memory: &Addresses<'_>,
        to: Target,
        device: &str,
    ) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { self.run(Task::Attention(attention.clone()), memory, to) }
            .map_err(|refusal| refusal.on(device, "attention"))
    }

    /// # Safety
    /// The memory must be as large as the task's tensors and workspace.
    unsafe fn run(&self, task: Task, memory: &Addresses<'_>, to: Target) -> Outcome<()> {
        let prepared = self.plan(task)?;
        let arguments: Vec<*mut c_void> =
            memory.tensors.iter().map(|&address| address as *mut c_void).collect();
        let workspace = memory.workspace as *mut c_void;
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let (Target::Device(stream) | Target::Graph(stream)) = to;
        // SAFETY: the stream is alive.
        let set = unsafe { result::set_stream(handle.0, stream.cast()) };
        set.map_err(|error| Refusal(format!("setting the stream: {error:?}")))?;
        // SAFETY: the plans were made for these sizes, and the caller guarantees the memory.
        let queue = |plan: usize| unsafe { prepared.queue(plan, &handle, &arguments, workspace) };
        let plan = match to {
            // Each trial computes the whole result, so no work is lost if it is the fastest.
            Target::Device(stream) if !self.deterministic => {
                *prepared.fastest.get_or_init(|| fastest(&prepared, stream, &queue))
            }
            Target::Device(_) | Target::Graph(_) => prepared.fastest.get().copied().unwrap_or(0),
        };
        queue(plan).or_else(|refusal| {
            let mut others = (0..prepared.plans()).filter(|&other| other != plan);
            // A failed capture contains a part of that plan, so other plans are tried only on the device.
            let retried = matches!(to, Target::Device(_)) && others.any(|other| queue(other).is_ok());
            if retried { Ok(()) } else { Err(refusal) }
        })
    }

    fn plan(&self, task: Task) -> Outcome<Arc<Prepared>> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = plans.get(&task) {
            return plan.clone();
        }
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        // Problems that the library rejects use a fallback.
        let plan = prepare(&task, self.version, self.deterministic, Machine::Here(&handle)).map(Arc::new);
        plans.insert(task, plan.clone());
        plan
    }
}

fn prepare(task: &Task, version: usize, deterministic: bool, machine: Machine<'_>) -> Outcome<Prepared> {
    use sys::cudnnBackendNumericalNote_t as Note;
    let repeats = |notes: &[c_int]| {
        !deterministic || !notes.contains(&(Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC as c_int))
    };
    match task {
        Task::Convolution(convolution, tf32) => {
            let bounds =
                Bounds { most_plans: CONVOLUTION_PLANS, most_workspace: MAX_WORKSPACE, repeatable: true };
            // For `f32`, these notes mean that the factors are rounded.
            let rounding =
                [Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE, Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS];
            let exact = convolution.dtype == DType::F32 && !tf32;
            convolution::graph(convolution)?.prepare(machine, &bounds, |notes| {
                repeats(notes) && (!exact || !rounding.iter().any(|&note| notes.contains(&(note as c_int))))
            })
        }
        Task::Attention(attention) => {
            let bounds =
                Bounds { most_plans: ATTENTION_PLANS, most_workspace: usize::MAX, repeatable: false };
            attention::graph(attention, version)?.prepare(machine, &bounds, repeats)
        }
    }
}

/// Times the plans; returns the fastest. A plan that fails is not chosen, unless all fail.
fn fastest(prepared: &Prepared, stream: CUstream, queue: &dyn Fn(usize) -> Outcome<()>) -> usize {
    if prepared.plans() < 2 || !autotune() {
        return 0;
    }
    stopwatch::fastest(prepared.plans(), stream, &|plan| queue(plan).is_ok())
}
