//! The properties of a device, as the engine needs them.

use crate::arguments::Bounds;
use crate::device::{Api, WgpuDevice};
use crate::options::LEAST_BINDING_BYTES;
use kiln_gpu::DeviceInfo;
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

/// The maximum number of bytes of a binding: that of the device, or a smaller one, of at least [`LEAST_BINDING_BYTES`].
pub(crate) fn binding_bytes(limits: &wgpu::Limits, most: Option<u64>) -> usize {
    let of_device = limits.max_storage_buffer_binding_size;
    let bytes = most.map_or(of_device, |most| of_device.min(most.max(LEAST_BINDING_BYTES)));
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
}
