//! Convolutions and their gradients by cuDNN.

use crate::blas::tf32;
use crate::failure::Failure;
use crate::library;
use cudarc::cudnn::result::{self, CudnnError};
use cudarc::cudnn::sys;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use kiln_gpu::driver::{Convolution, Pass};
use kiln_ir::{DType, Error, Result, Shape};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// The most memory that an algorithm may use besides the tensors.
const MOST_WORKSPACE: usize = 1 << 30;

/// How many algorithms are asked for: more than there are.
const ALGORITHMS: usize = 16;

/// By convolution and by whether products may be rounded to TF32; `None` where the library has no algorithm.
type Plans = HashMap<(Convolution, bool), Option<Arc<Plan>>>;

/// The library, with what it found out about convolutions.
pub(crate) struct Dnn {
    /// Only one thread may use it at a time.
    handle: Mutex<Handle>,
    plans: Mutex<Plans>,
}

struct Handle(sys::cudnnHandle_t);

// SAFETY: the library's handles may be used from any thread, one at a time.
unsafe impl Send for Handle {}

/// How the library computes a convolution.
struct Plan {
    x: Tensor,
    w: Filter,
    y: Tensor,
    operation: Operation,
    algorithm: Algorithm,
    workspace: usize,
    /// Whether factors by which results are scaled are `f64`.
    double: bool,
}

// SAFETY: plans are only read once they are made.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

#[derive(Clone, Copy)]
enum Algorithm {
    Forward(sys::cudnnConvolutionFwdAlgo_t),
    Input(sys::cudnnConvolutionBwdDataAlgo_t),
    Weight(sys::cudnnConvolutionBwdFilterAlgo_t),
}

struct Tensor(sys::cudnnTensorDescriptor_t);
struct Filter(sys::cudnnFilterDescriptor_t);
struct Operation(sys::cudnnConvolutionDescriptor_t);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: it was created once and is destroyed once.
        let destroyed = unsafe { result::destroy_handle(self.0) };
        // A device that was lost has destroyed it.
        let _ = destroyed;
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: it was created once and is destroyed once.
        let destroyed = unsafe { result::destroy_tensor_descriptor(self.0) };
        debug_assert!(destroyed.is_ok(), "[cuda] {destroyed:?}");
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // SAFETY: it was created once and is destroyed once.
        let destroyed = unsafe { result::destroy_filter_descriptor(self.0) };
        debug_assert!(destroyed.is_ok(), "[cuda] {destroyed:?}");
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: it was created once and is destroyed once.
        let destroyed = unsafe { result::destroy_convolution_descriptor(self.0) };
        debug_assert!(destroyed.is_ok(), "[cuda] {destroyed:?}");
    }
}

impl Dnn {
    /// The library for the current context.
    ///
    /// # Errors
    /// When it is missing, or of a version that this crate does not know.
    pub(crate) fn open(device: &str) -> Result<Dnn> {
        library::load(library::CONVOLUTIONS, device)?;
        let version = result::get_version();
        if !(8_000..100_000).contains(&version) {
            let problem = format!("cuDNN has version {version}, whose functions are not known");
            return Err(Error::device(device, problem).hint("install cuDNN 9"));
        }
        let failed = |error: CudnnError| error.on(device, "starting cuDNN");
        let handle = Handle(result::create_handle().map_err(failed)?);
        Ok(Dnn { handle: Mutex::new(handle), plans: Mutex::default() })
    }

    /// The bytes that a convolution needs besides; `None` where the library has no algorithm for it.
    pub(crate) fn workspace(&self, convolution: &Convolution) -> Option<usize> {
        Some(self.plan(convolution)?.workspace)
    }

    /// Queues a convolution into a stream.
    ///
    /// # Safety
    /// As [`Driver::convolve`](kiln_gpu::Driver::convolve).
    pub(crate) unsafe fn convolve(
        &self,
        convolution: &Convolution,
        [x, w, y]: [CUdeviceptr; 3],
        workspace: CUdeviceptr,
        (stream, device): (CUstream, &str),
    ) -> Result<()> {
        let plan = self.plan(convolution);
        let plan =
            plan.ok_or_else(|| Error::unsupported(device, "cuDNN has no algorithm for a convolution"))?;
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the plan was made for these shapes, and the caller vouches for the memory.
        let queued = unsafe {
            result::set_stream(handle.0, stream.cast()).map_err(|error| error.on(device, "a convolution"))?;
            plan.queue(&handle, [x, w, y].map(|address| address as *mut c_void), workspace as *mut c_void)
        };
        queued.map_err(|error| error.on(device, "a convolution"))
    }

    fn plan(&self, convolution: &Convolution) -> Option<Arc<Plan>> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let tf32 = tf32();
        if let Some(plan) = plans.get(&(convolution.clone(), tf32)) {
            return plan.clone();
        }
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        // What the library refuses is computed in another way.
        let plan = Plan::new(&handle, convolution, tf32).ok().flatten().map(Arc::new);
        plans.insert((convolution.clone(), tf32), plan.clone());
        plan
    }
}

impl Plan {
    /// `None` where there is no algorithm.
    fn new(
        handle: &Handle,
        convolution: &Convolution,
        tf32: bool,
    ) -> core::result::Result<Option<Plan>, CudnnError> {
        use sys::cudnnDataType_t as Data;
        use sys::cudnnMathType_t as Math;
        let (element, compute, math) = match convolution.dtype {
            DType::F64 => (Data::CUDNN_DATA_DOUBLE, Data::CUDNN_DATA_DOUBLE, Math::CUDNN_DEFAULT_MATH),
            DType::F32 if tf32 => {
                (Data::CUDNN_DATA_FLOAT, Data::CUDNN_DATA_FLOAT, Math::CUDNN_TENSOR_OP_MATH)
            }
            DType::F32 => (Data::CUDNN_DATA_FLOAT, Data::CUDNN_DATA_FLOAT, Math::CUDNN_FMA_MATH),
            DType::F16 => (Data::CUDNN_DATA_HALF, Data::CUDNN_DATA_FLOAT, Math::CUDNN_TENSOR_OP_MATH),
            DType::BF16 => (Data::CUDNN_DATA_BFLOAT16, Data::CUDNN_DATA_FLOAT, Math::CUDNN_TENSOR_OP_MATH),
            DType::I64
            | DType::I32
            | DType::I16
            | DType::I8
            | DType::U64
            | DType::U32
            | DType::U16
            | DType::U8
            | DType::Bool => return Ok(None),
        };
        let fits = |shape: &Shape| i32::try_from(shape.num_elements()).is_ok();
        if ![&convolution.x, &convolution.w, &convolution.y].into_iter().all(fits) {
            return Ok(None);
        }
        let (Some(stride), Some(padding), Some(dilation)) =
            (whole(&convolution.stride), whole(&convolution.padding), whole(&convolution.dilation))
        else {
            return Ok(None);
        };
        let operation = Operation(result::create_convolution_descriptor()?);
        // SAFETY: the descriptor is alive, and the lists have an entry for each axis.
        unsafe {
            result::set_convolutionnd_descriptor(
                operation.0,
                stride.len() as c_int,
                padding.as_ptr(),
                stride.as_ptr(),
                dilation.as_ptr(),
                sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION,
                compute,
            )?;
            result::set_convolution_group_count(operation.0, convolution.groups as i32)?;
            result::set_convolution_math_type(operation.0, math)?;
        }
        let last = convolution.channels_last;
        let mut plan = Plan {
            x: tensor(&convolution.x, element, last)?,
            w: filter(&convolution.w, element, last)?,
            y: tensor(&convolution.y, element, last)?,
            operation,
            algorithm: Algorithm::Forward(
                sys::cudnnConvolutionFwdAlgo_t::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
            ),
            workspace: 0,
            double: convolution.dtype == DType::F64,
        };
        for (algorithm, proposed) in plan.proposals(handle, convolution.pass)? {
            // The default would allow TF32 where products are to be of `f32`.
            let math = if math == Math::CUDNN_FMA_MATH { math } else { proposed };
            // SAFETY: the descriptor is alive.
            unsafe { result::set_convolution_math_type(plan.operation.0, math)? };
            plan.algorithm = algorithm;
            if let Ok(workspace) = plan.needed(handle)
                && workspace <= MOST_WORKSPACE
            {
                plan.workspace = workspace;
                return Ok(Some(plan));
            }
        }
        Ok(None)
    }

    /// The library's algorithms, those it takes to be fastest first, but all that give the same sum each time before those
    /// that do not.
    fn proposals(
        &self,
        handle: &Handle,
        pass: Pass,
    ) -> core::result::Result<Vec<(Algorithm, sys::cudnnMathType_t)>, CudnnError> {
        macro_rules! asked {
            ($function:path, $performance:ty, $kind:path, $first:expr, $second:expr, $third:expr) => {{
                // SAFETY: zeros are values of each of its fields.
                let mut found = [unsafe { core::mem::zeroed::<$performance>() }; ALGORITHMS];
                let mut count: c_int = 0;
                // SAFETY: all descriptors are alive, and there is room for as many algorithms as are asked for.
                unsafe {
                    $function(
                        handle.0,
                        $first,
                        $second,
                        self.operation.0,
                        $third,
                        ALGORITHMS as c_int,
                        &mut count,
                        found.as_mut_ptr(),
                    )?;
                }
                let mut found: Vec<_> = found[..(count.max(0) as usize).min(ALGORITHMS)]
                    .iter()
                    .filter(|found| found.status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS)
                    .collect();
                found.sort_by_key(|found| {
                    found.determinism != sys::cudnnDeterminism_t::CUDNN_DETERMINISTIC
                });
                Ok(found.into_iter().map(|found| ($kind(found.algo), found.mathType)).collect())
            }};
        }
        let (x, w, y) = (self.x.0, self.w.0, self.y.0);
        match pass {
            Pass::Forward => asked!(
                result::get_convolution_forward_algorithm,
                sys::cudnnConvolutionFwdAlgoPerf_t,
                Algorithm::Forward,
                x,
                w,
                y
            ),
            Pass::Input => asked!(
                result::get_convolution_backward_data_algorithm,
                sys::cudnnConvolutionBwdDataAlgoPerf_t,
                Algorithm::Input,
                w,
                y,
                x
            ),
            Pass::Weight => asked!(
                result::get_convolution_backward_filter_algorithm,
                sys::cudnnConvolutionBwdFilterAlgoPerf_t,
                Algorithm::Weight,
                x,
                y,
                w
            ),
        }
    }

    /// The bytes that the algorithm needs.
    fn needed(&self, handle: &Handle) -> core::result::Result<usize, CudnnError> {
        let (x, w, y, operation) = (self.x.0, self.w.0, self.y.0, self.operation.0);
        let mut bytes = 0;
        // SAFETY: all descriptors are alive, and the number is written before the call returns.
        unsafe {
            match self.algorithm {
                Algorithm::Forward(algorithm) => sys::cudnnGetConvolutionForwardWorkspaceSize(
                    handle.0, x, w, operation, y, algorithm, &mut bytes,
                ),
                Algorithm::Input(algorithm) => sys::cudnnGetConvolutionBackwardDataWorkspaceSize(
                    handle.0, w, y, operation, x, algorithm, &mut bytes,
                ),
                Algorithm::Weight(algorithm) => sys::cudnnGetConvolutionBackwardFilterWorkspaceSize(
                    handle.0, x, y, operation, w, algorithm, &mut bytes,
                ),
            }
        }
        .result()?;
        Ok(bytes)
    }

    /// # Safety
    /// The tensors have the plan's shapes, and the workspace its size.
    unsafe fn queue(
        &self,
        handle: &Handle,
        [x, w, y]: [*mut c_void; 3],
        workspace: *mut c_void,
    ) -> core::result::Result<(), CudnnError> {
        let (one, zero, wide_one, wide_zero) = (1f32, 0f32, 1f64, 0f64);
        let pick = |narrow: &f32, wide: &f64| -> *const c_void {
            if self.double { core::ptr::from_ref(wide).cast() } else { core::ptr::from_ref(narrow).cast() }
        };
        let (one, zero) = (pick(&one, &wide_one), pick(&zero, &wide_zero));
        let (of_x, of_w, of_y, operation) = (self.x.0, self.w.0, self.y.0, self.operation.0);
        let (handle, bytes) = (handle.0, self.workspace);
        // SAFETY: as the caller says; all descriptors are alive.
        unsafe {
            match self.algorithm {
                Algorithm::Forward(algorithm) => sys::cudnnConvolutionForward(
                    handle, one, of_x, x, of_w, w, operation, algorithm, workspace, bytes, zero, of_y, y,
                ),
                Algorithm::Input(algorithm) => sys::cudnnConvolutionBackwardData(
                    handle, one, of_w, w, of_y, y, operation, algorithm, workspace, bytes, zero, of_x, x,
                ),
                Algorithm::Weight(algorithm) => sys::cudnnConvolutionBackwardFilter(
                    handle, one, of_x, x, of_y, y, operation, algorithm, workspace, bytes, zero, of_w, w,
                ),
            }
        }
        .result()
    }
}

/// Numbers as the library takes them.
fn whole(numbers: &[usize]) -> Option<Vec<c_int>> {
    numbers.iter().map(|&number| c_int::try_from(number).ok()).collect()
}

/// Steps between neighbouring elements along each axis of `[batch, channels, space..]` without gaps.
fn steps(shape: &Shape, channels_last: bool) -> Vec<c_int> {
    let mut steps = vec![0; shape.rank()];
    let space = (2..shape.rank()).rev();
    let inner: Vec<usize> =
        if channels_last { [1].into_iter().chain(space).collect() } else { space.chain([1]).collect() };
    let mut step = 1;
    for axis in inner.into_iter().chain([0]) {
        steps[axis] = step;
        step *= shape[axis] as c_int;
    }
    steps
}

fn tensor(
    shape: &Shape,
    element: sys::cudnnDataType_t,
    channels_last: bool,
) -> core::result::Result<Tensor, CudnnError> {
    let tensor = Tensor(result::create_tensor_descriptor()?);
    let lengths: Vec<c_int> = shape.iter().map(|&length| length as c_int).collect();
    let steps = steps(shape, channels_last);
    // SAFETY: the descriptor is alive, and both lists have an entry for each axis.
    unsafe {
        result::set_tensornd_descriptor(
            tensor.0,
            element,
            lengths.len() as c_int,
            lengths.as_ptr(),
            steps.as_ptr(),
        )?;
    }
    Ok(tensor)
}

fn filter(
    shape: &Shape,
    element: sys::cudnnDataType_t,
    channels_last: bool,
) -> core::result::Result<Filter, CudnnError> {
    use sys::cudnnTensorFormat_t as Format;
    let filter = Filter(result::create_filter_descriptor()?);
    let lengths: Vec<c_int> = shape.iter().map(|&length| length as c_int).collect();
    let format = if channels_last { Format::CUDNN_TENSOR_NHWC } else { Format::CUDNN_TENSOR_NCHW };
    // SAFETY: the descriptor is alive, and the list has an entry for each axis.
    unsafe {
        result::set_filternd_descriptor(filter.0, element, format, lengths.len() as c_int, lengths.as_ptr())?;
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_lie_innermost_or_before_space() {
        let shape = Shape::from([2, 3, 4, 5]);
        assert_eq!(steps(&shape, false), [60, 20, 5, 1]);
        assert_eq!(steps(&shape, true), [60, 1, 15, 3]);
    }
}
