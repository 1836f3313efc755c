//! Matmuls by cuBLASLt.
//!
//! The library is column-major: a row-major `[m, n]` matrix here is a column-major `[n, m]` matrix there. Computing
//! `cᵀ = bᵀ aᵀ` therefore needs no transpose. A bias along our columns is one along its rows, as it expects.

mod nan;
mod operation;

use crate::driver::{CudaDriver, CudaMemory, address};
use crate::failure::Failure;
use crate::graph;
use crate::stopwatch;
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use cudarc::driver::sys::CUstream;
use kiln_gpu::Driver;
use kiln_gpu::driver::{EpilogueForm, Matrices, Products};
use kiln_ir::{DType, Error, Float8, Result};
use operation::operation;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

/// The workspace of matmuls: the size that the library recommends for Hopper.
const WORKSPACE: usize = 32 << 20;

/// The maximum number of algorithms that are timed.
const PROPOSALS: usize = 8;

/// Matmuls with fewer multiply-adds use the first algorithm of the heuristic: timing others would cost more than it
/// saves.
const MIN_TRIED: f64 = 1e6;

static TF32: LazyLock<AtomicBool> = LazyLock::new(|| AtomicBool::new(kiln_ir::switch("KILN_TF32", false)));
static REDUCED_SUMS: LazyLock<AtomicBool> =
    LazyLock::new(|| AtomicBool::new(kiln_ir::switch("KILN_REDUCED_SUMS", false)));
static AUTOTUNE: LazyLock<AtomicBool> = LazyLock::new(|| AtomicBool::new(kiln_ir::switch("KILN_TUNE", true)));

pub(crate) fn autotune() -> bool {
    AUTOTUNE.load(Ordering::Relaxed)
}

pub(crate) fn set_autotune(on: bool) {
    AUTOTUNE.store(on, Ordering::Relaxed);
}

pub(crate) fn reduced_sums() -> bool {
    REDUCED_SUMS.load(Ordering::Relaxed)
}

pub(crate) fn set_reduced_sums(on: bool) {
    REDUCED_SUMS.store(on, Ordering::Relaxed);
}

pub(crate) fn tf32() -> bool {
    TF32.load(Ordering::Relaxed)
}

pub(crate) fn set_tf32(on: bool) {
    TF32.store(on, Ordering::Relaxed);
}

/// The cuBLASLt handle with its cached plans.
pub(crate) struct Blas {
    handle: sys::cublasLtHandle_t,
    plans: Mutex<HashMap<Key, Option<Arc<Plan>>>>,
    workspace: OnceLock<Result<CudaMemory>>,
}

// SAFETY: the library's handles may be used from any thread.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

/// The cache key of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    sizes: [usize; 4],
    dtypes: [DType; 2],
    /// The formats of 8-bit float factors.
    formats: Option<[Float8; 2]>,
    factors: [(bool, usize, usize); 2],
    /// The power of 2 that divides all addresses, at most 256; at most 16 if deterministic, since a result that was copied
    /// for a view has another address.
    alignment: u32,
    tf32: bool,
    reduced_sums: bool,
    deterministic: bool,
    epilogue: EpilogueForm,
}

/// A plan: descriptors and algorithms of a matmul.
struct Plan {
    /// With the bias and the scales of the matmul for which the plan was made.
    operation: Descriptor,
    types: Types,
    /// Of the library's first and second factor, and of the result.
    layouts: [Layout; 3],
    /// The algorithms that the library's heuristic proposes, best first.
    proposals: Vec<sys::cublasLtMatmulAlgo_t>,
    /// The index of the fastest algorithm, once measured.
    fastest: OnceLock<usize>,
}

/// A call of the library, except for its algorithm.
struct Call<'a> {
    plan: &'a Plan,
    operation: &'a Descriptor,
    /// The addresses of both factors and the result.
    addresses: [u64; 3],
    workspace: u64,
    /// The scale of the result (alpha).
    factor: f64,
}

// SAFETY: finished plans are only read.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

struct Descriptor(sys::cublasLtMatmulDesc_t);
struct Layout(sys::cublasLtMatrixLayout_t);
struct Preference(sys::cublasLtMatmulPreference_t);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it was created once and is destroyed once.
        let destroyed = unsafe { result::destroy_matmul_desc(self.0) };
        debug_assert!(destroyed.is_ok(), "[cuda] {destroyed:?}");
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: it was created once and is destroyed once.
        let destroyed = unsafe { result::destroy_matrix_layout(self.0) };
        debug_assert!(destroyed.is_ok(), "[cuda] {destroyed:?}");
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: it was created once and is destroyed once.
        let destroyed = unsafe { result::destroy_matmul_pref(self.0) };
        debug_assert!(destroyed.is_ok(), "[cuda] {destroyed:?}");
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: the handle was created once; no matmul is queued when the device is closed.
        let destroyed = unsafe { result::destroy_handle(self.handle) };
        debug_assert!(destroyed.is_ok(), "[cuda] {destroyed:?}");
    }
}

impl Blas {
    /// Creates the library handle for the current context.
    pub(crate) fn new(device: &str) -> Result<Blas> {
        // An invalid setting must panic here, not on the submit thread.
        LazyLock::force(&TF32);
        LazyLock::force(&REDUCED_SUMS);
        LazyLock::force(&AUTOTUNE);
        let handle = result::create_handle().map_err(|error| error.on(device, "starting cuBLASLt"))?;
        Ok(Blas { handle, plans: Mutex::default(), workspace: OnceLock::new() })
    }

    /// Whether the library supports these matmuls.
    pub(crate) fn multiplies(&self, products: &Products<CudaMemory>, driver: &CudaDriver) -> bool {
        self.plan(products, driver).is_some()
    }

    /// Queues matmuls.
    ///
    /// # Safety
    /// As [`Library::multiply`](kiln_gpu::driver::Library::multiply).
    pub(crate) unsafe fn multiply(
        &self,
        products: &Products<CudaMemory>,
        to: Target,
        driver: &CudaDriver,
    ) -> Result<()> {
        let device = &driver.info().name;
        let (key, plan) = self
            .plan(products, driver)
            .ok_or_else(|| Error::unsupported(device, "the library does not support this matmul"))?;
        let failed = |error: CublasError| error.on(device, "multiplying matrices");
        // Descriptors contain the addresses of bias and scales.
        let has_own = products.epilogue.bias.is_some() || products.float8.is_some();
        let own = has_own.then(|| operation(plan.types, products)).transpose().map_err(failed)?;
        let call = Call {
            plan: &plan,
            operation: own.as_ref().unwrap_or(&plan.operation),
            addresses: addresses(products),
            workspace: self.workspace(driver)?,
            factor: 1.0,
        };
        let queue = |proposal: usize, stream: CUstream| {
            // SAFETY: the plan was made for these sizes, and the caller guarantees the memory.
            unsafe { self.queue(&call, &plan.proposals[proposal], stream) }
        };
        let (stream, proposal) = match to {
            // Each trial computes the whole result, so no work is lost if it is the fastest.
            Target::Device(stream) => {
                let try_all = || fastest(&plan, &key, stream, &|proposal| queue(proposal, stream));
                (stream, *plan.fastest.get_or_init(try_all))
            }
            Target::Graph(stream) => (stream, plan.fastest.get().copied().unwrap_or(0)),
        };
        queue(proposal, stream).map_err(failed)
    }

    /// Queues matmuls by one of the plan's algorithms.
    ///
    /// # Safety
    /// The plan must have been made for the matmul with these addresses.
    unsafe fn queue(
        &self,
        call: &Call<'_>,
        algorithm: &sys::cublasLtMatmulAlgo_t,
        stream: CUstream,
    ) -> core::result::Result<(), CublasError> {
        let Call { plan, operation, addresses, workspace, factor } = call;
        let (scales, narrow) = ([*factor, 0.0], [*factor as f32, 0.0]);
        let scale = |place: usize| -> *const c_void {
            if plan.types.scale == sys::cudaDataType_t::CUDA_R_64F {
                core::ptr::from_ref(&scales[place]).cast()
            } else {
                core::ptr::from_ref(&narrow[place]).cast()
            }
        };
        let [a, b, c] = addresses.map(|address| address as *mut c_void);
        // SAFETY: as the caller says.
        unsafe {
            result::matmul(
                self.handle,
                operation.0,
                scale(0),
                scale(1),
                b,
                plan.layouts[0].0,
                a,
                plan.layouts[1].0,
                c,
                plan.layouts[2].0,
                c,
                plan.layouts[2].0,
                algorithm,
                *workspace as *mut c_void,
                WORKSPACE,
                stream.cast(),
            )
        }
    }

    fn workspace(&self, driver: &CudaDriver) -> Result<u64> {
        let workspace = self.workspace.get_or_init(|| driver.allocate(WORKSPACE)).as_ref();
        Ok(workspace.map_err(Clone::clone)?.address())
    }

    /// Drops the first algorithms of a plan while the library rejects them. Some are only rejected at launch, so each
    /// is captured into a graph that is discarded.
    ///
    /// # Errors
    /// When the device is out of memory, or failed.
    fn skip_refused(
        &self,
        plan: &mut Plan,
        products: &Products<CudaMemory>,
        driver: &CudaDriver,
    ) -> Result<()> {
        let workspace = self.workspace(driver)?;
        let (operation, addresses) = (&plan.operation, addresses(products));
        let call = Call { plan, operation, addresses, workspace, factor: 1.0 };
        let takes = |algorithm| {
            // SAFETY: the captured work never runs.
            let queue = |stream: CUstream| unsafe { self.queue(&call, algorithm, stream) };
            graph::is_accepted(driver, |stream| queue(stream).is_ok())
        };
        let refused = plan.proposals.iter().position(takes).unwrap_or(plan.proposals.len());
        plan.proposals.drain(..refused);
        Ok(())
    }

    fn plan(&self, products: &Products<CudaMemory>, driver: &CudaDriver) -> Option<(Key, Arc<Plan>)> {
        let types = Types::of(products)?;
        let key = Key::of(products, types, driver.deterministic);
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        // A kernel computes matmuls for which the library has no algorithm.
        let make = || {
            let mut plan = Plan::new(self.handle, &key, types, products).ok()?;
            self.keep_nan(&mut plan, products, driver).ok()?;
            self.skip_refused(&mut plan, products, driver).ok()?;
            (!plan.proposals.is_empty()).then(|| Arc::new(plan))
        };
        let plan = plans.entry(key).or_insert_with(make).clone();
        Some((key, plan?))
    }
}

/// The destination of a call.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// The device: the call runs, and algorithms may be timed.
    Device(CUstream),
    /// A graph capture: nothing runs.
    Graph(CUstream),
}

impl Key {
    fn of(products: &Products<CudaMemory>, types: Types, deterministic: bool) -> Key {
        let bias = products.epilogue.bias.as_ref().map(address);
        let together = addresses(products).into_iter().chain(bias).fold(256u64, |all, address| all | address);
        Key {
            sizes: [products.count, products.rows, products.columns, products.inner],
            dtypes: [products.dtype, products.result],
            formats: products.float8.as_ref().map(|float8| float8.formats),
            factors: [0, 1].map(|i| {
                let Matrices { transposed, leading_dim, step, .. } = products.factors[i];
                (transposed, leading_dim, step)
            }),
            alignment: together.trailing_zeros().min(if deterministic { 4 } else { 8 }),
            tf32: types.compute == sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            reduced_sums: reduced_sums(),
            deterministic,
            epilogue: products.epilogue.form(),
        }
    }
}

/// The addresses of both factors and the result.
fn addresses(products: &Products<CudaMemory>) -> [u64; 3] {
    let [a, b] = &products.factors;
    [&a.at, &b.at, &products.to].map(address)
}

/// Times the plan's algorithms; returns the fastest. An algorithm that fails is not chosen, unless all fail.
fn fastest(
    plan: &Plan,
    key: &Key,
    stream: CUstream,
    queue: &dyn Fn(usize) -> core::result::Result<(), CublasError>,
) -> usize {
    let multiply_adds: f64 = key.sizes.iter().map(|&size| size as f64).product();
    if plan.proposals.len() < 2 || multiply_adds < MIN_TRIED || key.deterministic || !autotune() {
        return 0;
    }
    stopwatch::fastest(plan.proposals.len(), stream, &|proposal| queue(proposal).is_ok())
}

/// The library's dtypes of a matmul.
#[derive(Clone, Copy)]
struct Types {
    /// The dtypes of the factors.
    elements: [sys::cudaDataType; 2],
    result: sys::cudaDataType,
    compute: sys::cublasComputeType_t,
    scale: sys::cudaDataType,
}

impl Types {
    fn of(products: &Products<CudaMemory>) -> Option<Types> {
        use sys::cublasComputeType_t as Compute;
        use sys::cudaDataType_t as Data;
        if let Some(float8) = &products.float8 {
            return Types::of_float8(float8.formats, products.result);
        }
        if products.dtype != products.result {
            return None;
        }
        let element = element(products.dtype)?;
        let (compute, scale) = if products.dtype == DType::F64 {
            (Compute::CUBLAS_COMPUTE_64F, Data::CUDA_R_64F)
        } else if products.dtype == DType::F32 && tf32() {
            (Compute::CUBLAS_COMPUTE_32F_FAST_TF32, Data::CUDA_R_32F)
        } else {
            (Compute::CUBLAS_COMPUTE_32F, Data::CUDA_R_32F)
        };
        Some(Types { elements: [element; 2], result: element, compute, scale })
    }

    /// The library does not support two factors in E5M2.
    fn of_float8(formats: [Float8; 2], result: DType) -> Option<Types> {
        use sys::cudaDataType_t as Data;
        let elements = formats.map(|format| match format {
            Float8::E4M3 => Data::CUDA_R_8F_E4M3,
            Float8::E5M2 => Data::CUDA_R_8F_E5M2,
        });
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let result = element(result)?;
        let is_there = formats != [Float8::E5M2; 2];
        is_there.then_some(Types { elements, result, compute, scale: Data::CUDA_R_32F })
    }
}

/// The library's name of a dtype; `None` if it does not support matmuls of it.
fn element(dtype: DType) -> Option<sys::cudaDataType> {
    use sys::cudaDataType_t as Data;
    match dtype {
        DType::F64 => Some(Data::CUDA_R_64F),
        DType::F32 => Some(Data::CUDA_R_32F),
        DType::F16 => Some(Data::CUDA_R_16F),
        DType::BF16 => Some(Data::CUDA_R_16BF),
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => None,
    }
}

impl Plan {
    fn new(
        handle: sys::cublasLtHandle_t,
        key: &Key,
        types: Types,
        products: &Products<CudaMemory>,
    ) -> core::result::Result<Plan, CublasError> {
        let [count, rows, columns, inner] = key.sizes;
        let operation = operation(types, products)?;
        let factor = |i: usize, down: usize, across: usize| {
            let (turned, leading_dim, step) = key.factors[i];
            let (down, across) = if turned { (across, down) } else { (down, across) };
            layout(types.elements[i], [down, across, leading_dim], count, step)
        };
        let layouts = [
            factor(1, columns, inner)?,
            factor(0, inner, rows)?,
            layout(types.result, [columns, rows, columns], count, rows * columns)?,
        ];
        let preference = preference(key)?;
        let proposals = proposals(handle, &operation, &layouts, &preference)?;
        Ok(Plan { types, operation, layouts, proposals, fastest: OnceLock::new() })
    }
}

/// The algorithms that the library's heuristic proposes, likely fastest first; at least one.
fn proposals(
    handle: sys::cublasLtHandle_t,
    operation: &Descriptor,
    layouts: &[Layout; 3],
    preference: &Preference,
) -> core::result::Result<Vec<sys::cublasLtMatmulAlgo_t>, CublasError> {
    let mut found = [core::mem::MaybeUninit::<sys::cublasLtMatmulHeuristicResult_t>::uninit(); PROPOSALS];
    let mut count = 0;
    // SAFETY: all descriptors are alive, and there is room for the requested number of results.
    unsafe {
        sys::cublasLtMatmulAlgoGetHeuristic(
            handle,
            operation.0,
            layouts[0].0,
            layouts[1].0,
            layouts[2].0,
            layouts[2].0,
            preference.0,
            PROPOSALS as i32,
            found.as_mut_ptr().cast(),
            &mut count,
        )
        .result()?;
    }
    let count = usize::try_from(count).unwrap_or(0).min(PROPOSALS);
    // SAFETY: the library initialized the first `count` results.
    let found = found[..count].iter().map(|proposal| unsafe { proposal.assume_init_ref() });
    let usable = found.filter(|proposal| proposal.state.result().is_ok());
    let list: Vec<sys::cublasLtMatmulAlgo_t> = usable.map(|proposal| proposal.algo).collect();
    if list.is_empty() {
        return Err(CublasError(sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED));
    }
    Ok(list)
}

/// The cuBLASLt layout of a batch of column-major matrices.
fn layout(
    element: sys::cudaDataType,
    [rows, columns, leading_dim]: [usize; 3],
    count: usize,
    step: usize,
) -> core::result::Result<Layout, CublasError> {
    use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
    let layout =
        Layout(result::create_matrix_layout(element, rows as u64, columns as u64, leading_dim as i64)?);
    if count > 1 {
        let (count, step) = (count as i32, step as i64);
        // SAFETY: the layout is alive, and the values have the sizes of the attributes.
        unsafe {
            result::set_matrix_layout_attribute(
                layout.0,
                Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                (&raw const count).cast(),
                size_of::<i32>(),
            )?;
            result::set_matrix_layout_attribute(
                layout.0,
                Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                (&raw const step).cast(),
                size_of::<i64>(),
            )?;
        }
    }
    Ok(layout)
}

fn preference(key: &Key) -> core::result::Result<Preference, CublasError> {
    use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
    use sys::cublasLtReductionScheme_t as Scheme;
    let preference = Preference(result::create_matmul_pref()?);
    let (workspace, bytes) = (WORKSPACE as u64, 1u32 << key.alignment);
    // Sums of parts of a product are kept in the dtype that it is computed in: rounded to 16 bits, each would add an error of its own.
    let is_wide = key.dtypes[1].size() > 2 || key.reduced_sums;
    let scheme = if is_wide {
        Scheme::CUBLASLT_REDUCTION_SCHEME_MASK
    } else {
        Scheme::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
    } as u32;
    // Parts that are added in place are added in the order in which they arrive.
    let in_place = Scheme::CUBLASLT_REDUCTION_SCHEME_INPLACE as u32;
    let scheme = if key.deterministic { scheme & !in_place } else { scheme };
    // SAFETY: the preference is alive, and the values have the sizes of the attributes.
    unsafe {
        result::set_matmul_pref_attribute(
            preference.0,
            Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
            (&raw const workspace).cast(),
            size_of::<u64>(),
        )?;
        for (attribute, value) in [
            (Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, scheme),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes),
        ] {
            result::set_matmul_pref_attribute(
                preference.0,
                attribute,
                (&raw const value).cast(),
                size_of::<u32>(),
            )?;
        }
    }
    Ok(preference)
}
