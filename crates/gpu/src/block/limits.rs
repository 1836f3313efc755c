//! Checks of block kernels against the limits of WebGPU devices.

use super::printed::assert_printed;
use kiln_kernel::block::{BlockKernel, BlockParamKind, Type};

/// The bytes of shared memory that each WebGPU device has.
pub(crate) const WEBGPU_SHARED: usize = 16 << 10;

/// The tensors that a kernel can bind on each WebGPU device.
const WEBGPU_BINDINGS: usize = 8;

/// The threads that a block can have on each WebGPU device.
const WEBGPU_THREADS: u32 = 256;

/// Asserts that a kernel prints in all languages, and keeps to the bindings and threads of each WebGPU device and to
/// `shared_bytes` of shared memory.
///
/// # Panics
/// When it does not.
pub(crate) fn assert_within(kernel: &BlockKernel, shared_bytes: usize) {
    let name = kernel.name;
    assert!(kernel.threads <= WEBGPU_THREADS, "`{name}` has {} threads", kernel.threads);
    let shared: usize = kernel.shared.iter().map(|array| array.len * element_bytes(array.ty)).sum();
    assert!(shared <= shared_bytes, "`{name}` needs {shared} bytes of shared memory");
    let is_word = |kind| matches!(kind, BlockParamKind::Number | BlockParamKind::Length);
    let tensors = kernel.params.iter().filter(|param| !is_word(param.kind)).count();
    assert!(tensors <= WEBGPU_BINDINGS, "`{name}` binds {tensors} tensors");
    assert_printed(kernel);
}

/// Bytes of an element in shared memory in WGSL, which has no types below 32 bits.
fn element_bytes(ty: Type) -> usize {
    match ty {
        Type::Index => 4,
        Type::Value(dtype) => dtype.size().max(4),
    }
}
