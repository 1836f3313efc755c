//! Fourier transforms by cuFFT.

use crate::blas::Target;
use crate::failure::Failure;
use crate::library;
use cudarc::cufft::result::{self, CufftError};
use cudarc::cufft::sys::{self, cufftType};
use cudarc::driver::sys::CUdeviceptr;
use kiln_gpu::driver::{Fourier, FourierKind};
use kiln_ir::{DType, Result};
use std::collections::HashMap;
use std::ffi::c_longlong;
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of plans; further transforms use no library. Plans own device memory, and graphs refer to it, so
/// no plan is destroyed before the library is closed.
const MAX_PLANS: usize = 256;

type Outcome<T> = core::result::Result<T, CufftError>;

/// The cuFFT library with its cached plans.
#[derive(Default)]
pub(crate) struct Fft {
    plans: Mutex<HashMap<Fourier, Option<Arc<Plan>>>>,
}

struct Plan {
    /// Only one thread may use the handle at a time.
    handle: Mutex<sys::cufftHandle>,
    workspace: usize,
}

impl Drop for Plan {
    fn drop(&mut self) {
        let handle = *self.handle.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: it was created once and is destroyed once.
        let destroyed = unsafe { result::destroy(handle) };
        // A lost device has already destroyed it.
        let _ = destroyed;
    }
}

impl Fft {
    /// Creates the library handle for the current context.
    ///
    /// # Errors
    /// When the library is missing.
    pub(crate) fn open(device: &str) -> Result<Fft> {
        library::load(library::FFT, device)?;
        Ok(Fft::default())
    }

    /// The workspace of transforms in bytes; `None` if the library has no plan for them.
    pub(crate) fn workspace(&self, fourier: &Fourier) -> Option<usize> {
        Some(self.plan(fourier)?.workspace)
    }

    /// Queues transforms of interleaved complex lines from one address to another.
    ///
    /// # Safety
    /// As [`Library::transform`](kiln_gpu::driver::Library::transform).
    pub(crate) unsafe fn transform(
        &self,
        fourier: &Fourier,
        addresses: [CUdeviceptr; 2],
        workspace: CUdeviceptr,
        to: Target,
        device: &str,
    ) -> Result<()> {
        let plan = self.plan(fourier).ok_or(CufftError(sys::cufftResult::CUFFT_INVALID_PLAN));
        let queued = plan.and_then(|plan| {
            let handle = plan.handle.lock().unwrap_or_else(PoisonError::into_inner);
            let (Target::Device(stream) | Target::Graph(stream)) = to;
            // SAFETY: the stream is alive, the plan was made for these sizes, and the caller guarantees the memory.
            unsafe {
                result::set_stream(*handle, stream.cast())?;
                result::set_work_area(*handle, workspace as *mut _)?;
                execute(fourier, *handle, addresses)
            }
        });
        queued.map_err(|error| error.on(device, "a Fourier transform"))
    }

    fn plan(&self, fourier: &Fourier) -> Option<Arc<Plan>> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = plans.get(fourier) {
            return plan.clone();
        }
        if plans.len() >= MAX_PLANS {
            return None;
        }
        // Transforms that the library rejects use a fallback.
        let plan = Plan::new(fourier).ok().map(Arc::new);
        plans.insert(*fourier, plan.clone());
        plan
    }
}

impl Plan {
    fn new(fourier: &Fourier) -> Outcome<Plan> {
        let refused = || CufftError(sys::cufftResult::CUFFT_INVALID_SIZE);
        let (mut points, count) = match [fourier.points, fourier.count].map(c_longlong::try_from) {
            [Ok(points), Ok(count)] => (points, count),
            [..] => return Err(refused()),
        };
        let half = points / 2 + 1;
        let single = fourier.dtype == DType::F32;
        let (from, to, ty) = match (fourier.kind, single) {
            (FourierKind::Complex { .. }, true) => (points, points, cufftType::CUFFT_C2C),
            (FourierKind::Complex { .. }, false) => (points, points, cufftType::CUFFT_Z2Z),
            (FourierKind::FromReal, true) => (points, half, cufftType::CUFFT_R2C),
            (FourierKind::FromReal, false) => (points, half, cufftType::CUFFT_D2Z),
            (FourierKind::ToReal, true) => (half, points, cufftType::CUFFT_C2R),
            (FourierKind::ToReal, false) => (half, points, cufftType::CUFFT_Z2D),
        };
        let handle = result::create()?;
        let mut plan = Plan { handle: Mutex::new(handle), workspace: 0 };
        let (mut from_length, mut to_length) = (from, to);
        // SAFETY: the plan is new, and the lengths are read before the call returns.
        unsafe {
            result::set_auto_allocation(handle, false)?;
            plan.workspace = result::make_plan_many64(
                handle,
                1,
                &mut points,
                &mut from_length,
                1,
                from,
                &mut to_length,
                1,
                to,
                ty,
                count,
            )?;
        }
        Ok(plan)
    }
}

/// # Safety
/// The plan must be made for the transform, with a stream and a workspace; the memory must be as large as both sides.
unsafe fn execute(fourier: &Fourier, plan: sys::cufftHandle, [from, to]: [CUdeviceptr; 2]) -> Outcome<()> {
    let single = fourier.dtype == DType::F32;
    // SAFETY: as the caller says.
    unsafe {
        match (fourier.kind, single) {
            (FourierKind::Complex { inverse }, true) => {
                result::exec_c2c(plan, from as *mut _, to as *mut _, direction(inverse))
            }
            (FourierKind::Complex { inverse }, false) => {
                result::exec_z2z(plan, from as *mut _, to as *mut _, direction(inverse))
            }
            (FourierKind::FromReal, true) => result::exec_r2c(plan, from as *mut _, to as *mut _),
            (FourierKind::FromReal, false) => result::exec_d2z(plan, from as *mut _, to as *mut _),
            (FourierKind::ToReal, true) => result::exec_c2r(plan, from as *mut _, to as *mut _),
            (FourierKind::ToReal, false) => result::exec_z2d(plan, from as *mut _, to as *mut _),
        }
    }
}

/// The library's constant for the sign of the exponent.
fn direction(inverse: bool) -> i32 {
    if inverse { 1 } else { -1 }
}
