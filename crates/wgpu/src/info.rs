//! The properties of a device, as the engine needs them.

use crate::arguments::Bounds;
use crate::device::{Api, WgpuDevice};
use crate::options::MIN_BINDING_BYTES;
use kiln_gpu::DeviceInfo;
use kiln_gpu::driver::CooperativeMatrix;
use kiln_ir::{DType, DTypeSet};
use kiln_kernel::print::{Dialect, Target};
use std::thread::available_parallelism;

/// The properties of an opened device. Kernels bind at most `binding_bytes` bytes at once.
pub(crate) fn describe(
    name: &str,
    adapter: &wgpu::AdapterInfo,
    device: &wgpu::Device,
    binding_bytes: usize,
) -> DeviceInfo {
    let (features, limits) = (device.features(), device.limits());
    let [multiprocessors, multiprocessor_threads] = parallelism(adapter.device_type);
    DeviceInfo {
        name: name.to_owned(),
        model: adapter.name.clone(),
        target: format!("wgsl {} {} {}", Api::of(adapter.backend), adapter.driver, adapter.driver_info),
        language: Target {
            dialect: Dialect::Wgsl,
            dtypes: dtypes(features),
            atomics_64: features.contains(wgpu::Features::SHADER_INT64_ATOMIC_ALL_OPS),
        },
        keeps_binaries: false,
        memory: memory(&limits),
        multiprocessors,
        multiprocessor_threads,
        block_threads: limits.max_compute_invocations_per_workgroup.min(limits.max_compute_workgroup_size_x)
            as usize,
        warp_threads: warp_threads(features, adapter),
        shared_bytes: limits.max_compute_workgroup_storage_size as usize,
        bindings: Some(limits.max_storage_buffers_per_shader_stage as usize),
        binding_bytes: Some(binding_bytes),
        cooperative_matrices: Vec::new(),
    }
}

/// The limits that launches keep to.
pub(crate) fn bounds(name: &str, limits: &wgpu::Limits, binding_bytes: usize) -> Bounds {
    Bounds {
        name: name.to_owned(),
        storage_alignment: limits.min_storage_buffer_offset_alignment as usize,
        uniform_alignment: limits.min_uniform_buffer_offset_alignment as usize,
        binding_bytes,
        workgroups: limits.max_compute_workgroups_per_dimension as usize,
    }
}

/// The maximum number of bytes of a binding: that of the device, or a smaller one, of at least [`MIN_BINDING_BYTES`].
pub(crate) fn binding_bytes(limits: &wgpu::Limits, most: Option<u64>) -> usize {
    let of_device = limits.max_storage_buffer_binding_size;
    let bytes = most.map_or(of_device, |most| of_device.min(most.max(MIN_BINDING_BYTES)));
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The device by the type of its adapter and its index among the adapters of that type.
pub(crate) fn device_of(kind: wgpu::DeviceType, index: usize) -> WgpuDevice {
    match kind {
        wgpu::DeviceType::DiscreteGpu => WgpuDevice::DiscreteGpu(index),
        wgpu::DeviceType::IntegratedGpu => WgpuDevice::IntegratedGpu(index),
        wgpu::DeviceType::VirtualGpu | wgpu::DeviceType::Other => WgpuDevice::VirtualGpu(index),
        wgpu::DeviceType::Cpu => WgpuDevice::Cpu,
    }
}

/// The dtypes that kernels compute with. 8- and 16-bit elements are unpacked from words, which needs no feature.
fn dtypes(features: wgpu::Features) -> DTypeSet {
    let supported = |dtype: &DType| match dtype {
        DType::F64 => features.contains(wgpu::Features::SHADER_F64),
        DType::I64 | DType::U64 => features.contains(wgpu::Features::SHADER_INT64),
        DType::F32
        | DType::F16
        | DType::BF16
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => true,
    };
    let list: Vec<DType> = DType::ALL.into_iter().filter(supported).collect();
    DTypeSet::of(&list)
}

/// Threads that certainly run in lockstep: 1 without subgroups.
fn warp_threads(features: wgpu::Features, adapter: &wgpu::AdapterInfo) -> usize {
    if features.contains(wgpu::Features::SUBGROUP) { adapter.subgroup_min_size.max(1) as usize } else { 1 }
}

/// The cooperative matrices of an adapter whose device has those features.
pub(crate) fn cooperative_matrices(
    adapter: &wgpu::Adapter,
    features: wgpu::Features,
) -> Vec<CooperativeMatrix> {
    let needed = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX | wgpu::Features::SUBGROUP;
    let Some(threads) = subgroup_threads(&adapter.get_info()).filter(|_| features.contains(needed)) else {
        return Vec::new();
    };
    let listed = adapter.cooperative_matrix_properties();
    listed.iter().filter_map(|properties| cooperative_matrix(properties, features, threads)).collect()
}

/// A cooperative matrix whose dtypes kernels have.
fn cooperative_matrix(
    properties: &wgpu::CooperativeMatrixProperties,
    features: wgpu::Features,
    threads: usize,
) -> Option<CooperativeMatrix> {
    let dtype = |scalar| match scalar {
        wgpu::CooperativeScalarType::F32 => Some(DType::F32),
        wgpu::CooperativeScalarType::F16 => {
            features.contains(wgpu::Features::SHADER_F16).then_some(DType::F16)
        }
        // WGSL has no matrices of integers.
        wgpu::CooperativeScalarType::I32 | wgpu::CooperativeScalarType::U32 => None,
    };
    Some(CooperativeMatrix {
        rows: properties.m_size as usize,
        columns: properties.n_size as usize,
        inner: properties.k_size as usize,
        factors: dtype(properties.ab_type)?,
        sums: dtype(properties.cr_type)?,
        threads,
    })
}

/// The threads of each subgroup, if all kernels have subgroups of one size. Metal reports a range, but the SIMD groups of
/// Apple's GPUs have 32 threads.
fn subgroup_threads(adapter: &wgpu::AdapterInfo) -> Option<usize> {
    let is_apple = adapter.backend == wgpu::Backend::Metal && adapter.name.starts_with("Apple");
    let is_fixed = adapter.subgroup_min_size == adapter.subgroup_max_size;
    match (is_apple, is_fixed) {
        (true, _) => Some(32),
        (false, true) => Some(adapter.subgroup_max_size as usize),
        (false, false) => None,
    }
}

/// The bytes of memory: wgpu does not report them, so this is the size of the largest buffer.
fn memory(limits: &wgpu::Limits) -> usize {
    usize::try_from(limits.max_buffer_size).unwrap_or(usize::MAX)
}

/// Estimates of the number of multiprocessors and their resident threads, which wgpu does not report.
fn parallelism(kind: wgpu::DeviceType) -> [usize; 2] {
    match kind {
        wgpu::DeviceType::DiscreteGpu => [64, 1024],
        wgpu::DeviceType::IntegratedGpu | wgpu::DeviceType::VirtualGpu | wgpu::DeviceType::Other => {
            [16, 1024]
        }
        // Each core runs one workgroup at a time.
        wgpu::DeviceType::Cpu => [available_parallelism().map_or(1, usize::from), 256],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_is_limited_by_the_device_and_the_options() {
        let limits = wgpu::Limits { max_storage_buffer_binding_size: 1 << 27, ..wgpu::Limits::default() };
        let found = [None, Some(1 << 16), Some(1 << 40), Some(1)].map(|most| binding_bytes(&limits, most));
        assert_eq!(found, [1 << 27, 1 << 16, 1 << 27, 256]);
    }

    #[test]
    fn dtypes_of_64_bits_need_features() {
        let without = dtypes(wgpu::Features::empty());
        assert!([DType::F64, DType::I64, DType::U64].iter().all(|dtype| !without.contains(*dtype)));
        assert_eq!(without.iter().count(), DType::ALL.len() - 3);
        let with = dtypes(wgpu::Features::SHADER_INT64);
        assert!(with.contains(DType::I64) && with.contains(DType::U64) && !with.contains(DType::F64));
        assert_eq!(dtypes(wgpu::Features::all()), DTypeSet::ALL);
    }

    #[test]
    fn cooperative_matrices_have_dtypes_of_kernels() {
        let properties = |ab_type, cr_type| wgpu::CooperativeMatrixProperties {
            m_size: 16,
            n_size: 16,
            k_size: 16,
            ab_type,
            cr_type,
            saturating_accumulation: false,
        };
        let (half, single) = (wgpu::CooperativeScalarType::F16, wgpu::CooperativeScalarType::F32);
        let mixed = properties(half, single);
        let found = cooperative_matrix(&mixed, wgpu::Features::SHADER_F16, 32);
        let expected = CooperativeMatrix {
            rows: 16,
            columns: 16,
            inner: 16,
            factors: DType::F16,
            sums: DType::F32,
            threads: 32,
        };
        assert_eq!(found, Some(expected));
        assert_eq!(cooperative_matrix(&mixed, wgpu::Features::empty(), 32), None);
        let integers = properties(half, wgpu::CooperativeScalarType::I32);
        assert_eq!(cooperative_matrix(&integers, wgpu::Features::all(), 32), None);
    }
}
