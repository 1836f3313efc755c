//! Exclusion of algorithms that lose NaN.
//!
//! `max(x, 0)` is NaN where `x` is. Some of the library's algorithms return 0 there and others NaN, and its
//! documentation does not state which. Each is therefore tested: with NaN as alpha, all results must be NaN.

use super::{Blas, Call, Plan, addresses};
use crate::driver::{CudaDriver, CudaMemory};
use cudarc::cublaslt::sys::cublasLtMatmulAlgo_t as Algorithm;
use half::{bf16, f16};
use kiln_gpu::Driver;
use kiln_gpu::driver::{Activation, DevicePtr, Products};
use kiln_ir::{DType, Result};
use std::sync::Arc;

impl Blas {
    /// Removes algorithms that lose NaN from a plan.
    ///
    /// # Errors
    /// When the device is out of memory, or failed.
    pub(super) fn keep_nan(
        &self,
        plan: &mut Plan,
        products: &Products<CudaMemory>,
        driver: &CudaDriver,
    ) -> Result<()> {
        if products.epilogue.activation != Some(Activation::Relu) {
            return Ok(());
        }
        let elements = products.count * products.rows * products.columns;
        let memory = driver.allocate(elements * products.result.size())?;
        let results = DevicePtr::new(Arc::new(memory), 0);
        let mut kept = Vec::new();
        for proposal in &plan.proposals {
            if self.keeps_nan(plan, proposal, products, &results, driver)? {
                kept.push(*proposal);
            }
        }
        plan.proposals = kept;
        Ok(())
    }

    /// Whether an algorithm propagates NaN, tested by running it.
    fn keeps_nan(
        &self,
        plan: &Plan,
        algorithm: &Algorithm,
        products: &Products<CudaMemory>,
        results: &DevicePtr<CudaMemory>,
        driver: &CudaDriver,
    ) -> Result<bool> {
        let [a, b, _] = addresses(products);
        let addresses = [a, b, results.memory.address()];
        let workspace = self.workspace(driver)?;
        let call = Call { plan, operation: &plan.operation, addresses, workspace, factor: f64::NAN };
        driver.fill(results, driver.size(&results.memory), 0)?;
        // SAFETY: the plan was made for these matmuls, and there is room for as many results.
        let queued = unsafe { self.queue(&call, algorithm, driver.stream) };
        let mut first = [0; 4];
        let size = products.result.size().min(first.len());
        first[..size].copy_from_slice(&driver.read_now(results, size)?);
        Ok(queued.is_ok() && is_nan(first, products.result))
    }
}

/// Whether the first of these bytes are a NaN of that float dtype.
fn is_nan(bytes: [u8; 4], dtype: DType) -> bool {
    let [a, b, ..] = bytes;
    (dtype == DType::F32 && f32::from_le_bytes(bytes).is_nan())
        || (dtype == DType::F16 && f16::from_le_bytes([a, b]).is_nan())
        || (dtype == DType::BF16 && bf16::from_le_bytes([a, b]).is_nan())
}
