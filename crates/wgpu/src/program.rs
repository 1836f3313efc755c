//! Compiled kernels: shader modules and compute pipelines.

use crate::arguments::{Prepared, count_words};
use crate::driver::WgpuDriver;
use kiln_gpu::driver::part_bytes;
use kiln_ir::{Error, Result};
use kiln_kernel::print::{Entry, EntryParameter, split_tensors};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};

/// A compute pipeline, with the entry point that it was compiled from.
pub struct WgpuFunction {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
    pub(crate) entry: Entry,
    /// The source of its module.
    source: Arc<str>,
    /// The function for tensors in parts, by their numbers of parts.
    split: Mutex<BTreeMap<Parts, Arc<WgpuFunction>>>,
}

/// The number of parts of each tensor; a tensor beyond the list has one.
type Parts = SmallVec<[usize; 8]>;

impl WgpuFunction {
    /// The bytes of its uniform buffer.
    pub(crate) fn uniform_bytes(&self) -> u64 {
        uniform_bytes(&self.entry)
    }
}

/// Compiles the entry points of a WGSL source; `None` for those that it lacks.
///
/// # Errors
/// When the source or a pipeline does not compile; the error contains the compiler's log.
pub(crate) fn load(driver: &WgpuDriver, text: &str, entries: &[&Entry]) -> Result<Vec<Option<WgpuFunction>>> {
    let contained: Vec<bool> =
        entries.iter().map(|entry| text.contains(&format!("fn {}(", entry.name))).collect();
    let Some(first) = contained.iter().position(|is| *is) else {
        return Ok(entries.iter().map(|_| None).collect());
    };
    for (entry, _) in entries.iter().zip(&contained).filter(|(_, is)| **is) {
        check_limits(driver, entry)?;
    }
    let source: Arc<str> = text.into();
    let module = module(driver, entries[first], text)?;
    let whole = Parts::new();
    let load = |(entry, is): (&&Entry, &bool)| {
        is.then(|| pipeline(driver, &module, entry, &source, &whole)).transpose()
    };
    entries.iter().zip(&contained).map(load).collect()
}

/// The function for a launch with tensors in parts, compiled at its first use.
///
/// # Errors
/// When the kernel accesses a tensor in parts other than by elements, or does not compile.
pub(crate) fn split(
    driver: &WgpuDriver,
    function: &WgpuFunction,
    launch: &Prepared,
) -> Result<Arc<WgpuFunction>> {
    let known = || function.split.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(split) = known().get(&launch.parts) {
        return Ok(split.clone());
    }
    let (info, entry) = (driver.properties(), &function.entry);
    let limit = info.binding_bytes.unwrap_or(usize::MAX);
    let text = split_tensors(&function.source, &launch.parts, part_bytes(limit)).map_err(|lack| {
        let problem = format!(
            "kernel `{}` has tensors over the limit of a binding, which is {limit} bytes: {lack}",
            entry.name
        );
        Error::unsupported(&info.name, problem).hint("run the op on slices of the tensors")
    })?;
    let module = module(driver, entry, &text)?;
    let split = Arc::new(pipeline(driver, &module, entry, &text.into(), &launch.parts)?);
    known().insert(launch.parts.clone(), split.clone());
    Ok(split)
}

/// Compiles the module of an entry point.
fn module(driver: &WgpuDriver, entry: &Entry, text: &str) -> Result<wgpu::ShaderModule> {
    let name = &*entry.name;
    let source = wgpu::ShaderSource::Wgsl(text.into());
    let described = wgpu::ShaderModuleDescriptor { label: Some(name), source };
    let checks = runtime_checks(entry.is_guarded);
    // SAFETY: only printed kernels are without the checks. Their loops end and their indices are within bounds, as on
    // devices that check neither, and the launch has tensors of the sizes that they were printed for.
    let compile = || unsafe { driver.device.create_shader_module_trusted(described, checks) };
    driver.done(&format!("compiling kernel `{name}`"), compile)
}

/// The checks that wgpu adds to a kernel. The counter that bounds a loop keeps compilers from unrolling it. Divisions of
/// integers are always checked, because a printed kernel divides by numbers of the user.
fn runtime_checks(is_guarded: bool) -> wgpu::ShaderRuntimeChecks {
    let mut checks = wgpu::ShaderRuntimeChecks::checked();
    checks.bounds_checks = is_guarded;
    checks.force_loop_bounding = is_guarded;
    checks
}

/// Compiles one pipeline. Its layout comes from the entry point's parameters, so that a kernel with other bindings is an
/// error here.
fn pipeline(
    driver: &WgpuDriver,
    module: &wgpu::ShaderModule,
    entry: &Entry,
    source: &Arc<str>,
    parts: &Parts,
) -> Result<WgpuFunction> {
    let name = &*entry.name;
    let bindings = layout_entries(entry, parts);
    driver
        .done(&format!("compiling kernel `{name}`"), || {
            let device = &driver.device;
            // Browsers zero shared memory for every kernel.
            let compilation_options = wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: entry.is_guarded,
                ..wgpu::PipelineCompilationOptions::default()
            };
            let described = wgpu::BindGroupLayoutDescriptor { label: Some(name), entries: &bindings };
            let layout = device.create_bind_group_layout(&described);
            let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some(name),
                bind_group_layouts: &[Some(&layout)],
                immediate_size: 0,
            });
            let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(name),
                layout: Some(&pipeline_layout),
                module,
                entry_point: Some(name),
                compilation_options,
                cache: driver.pipeline_cache(),
            });
            let (entry, source) = (entry.clone(), source.clone());
            WgpuFunction { pipeline, layout, entry, source, split: Mutex::default() }
        })
        .inspect(|_| driver.count_pipeline())
}

/// The bindings of group 0: the parts of the tensors in their order, then the uniform buffer.
fn layout_entries(entry: &Entry, parts: &[usize]) -> Vec<wgpu::BindGroupLayoutEntry> {
    let described = |binding: usize, ty, min_binding_size| wgpu::BindGroupLayoutEntry {
        binding: binding as u32,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size },
        count: None,
    };
    let of_tensor = |(place, written): (usize, bool)| {
        core::iter::repeat_n(written, parts.get(place).copied().unwrap_or(1))
    };
    let mut list: Vec<_> = written(entry)
        .enumerate()
        .flat_map(of_tensor)
        .enumerate()
        .map(|(place, written)| {
            described(place, wgpu::BufferBindingType::Storage { read_only: !written }, None)
        })
        .collect();
    let uniform = NonZeroU64::new(uniform_bytes(entry));
    list.push(described(list.len(), wgpu::BufferBindingType::Uniform, uniform));
    list
}

/// For each tensor, whether the kernel writes to it.
fn written(entry: &Entry) -> impl Iterator<Item = bool> + '_ {
    entry.parameters.iter().filter_map(|parameter| match parameter {
        EntryParameter::Tensor { is_written, .. } => Some(*is_written),
        EntryParameter::Word(_) | EntryParameter::Index => None,
    })
}

fn uniform_bytes(entry: &Entry) -> u64 {
    (4 * count_words(entry) as u64).next_multiple_of(16)
}

/// # Errors
/// When a kernel exceeds a limit of the device, with both numbers.
fn check_limits(driver: &WgpuDriver, entry: &Entry) -> Result<()> {
    let info = driver.properties();
    let refused =
        |problem: String| Err(Error::unsupported(&info.name, format!("kernel `{}`: {problem}", entry.name)));
    let (tensors, threads) = (written(entry).count(), entry.threads as usize);
    if let Some(limit) = info.bindings.filter(|limit| tensors > *limit) {
        return refused(format!("{tensors} tensors, and the device binds at most {limit}"));
    }
    if threads > info.block_threads {
        return refused(format!(
            "{threads} threads per block, and the device's limit is {}",
            info.block_threads
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::DType;

    #[test]
    fn only_kernels_of_users_have_checks_of_bounds_and_loops() {
        for is_guarded in [false, true] {
            let checks = runtime_checks(is_guarded);
            assert_eq!([checks.bounds_checks, checks.force_loop_bounding], [is_guarded; 2]);
            assert!(checks.int_div_checks);
        }
    }

    #[test]
    fn the_uniform_buffer_follows_the_tensors() {
        let tensor = |is_written| EntryParameter::Tensor { dtype: DType::F32, is_written };
        let parameters =
            vec![tensor(false), EntryParameter::Index, tensor(true), EntryParameter::Word(DType::U64)];
        let entry = Entry { name: "kernel".into(), threads: 64, parameters, is_guarded: false };
        let types = |parts: &[usize]| -> Vec<wgpu::BindingType> {
            let entries = layout_entries(&entry, parts);
            let numbers = entries.iter().map(|entry| entry.binding);
            assert!(numbers.eq(0..entries.len() as u32));
            entries.iter().map(|entry| entry.ty).collect()
        };
        let buffer = |ty, min_binding_size| wgpu::BindingType::Buffer {
            ty,
            has_dynamic_offset: false,
            min_binding_size,
        };
        let storage = |read_only| buffer(wgpu::BufferBindingType::Storage { read_only }, None);
        let uniform = buffer(wgpu::BufferBindingType::Uniform, NonZeroU64::new(32));
        assert_eq!(types(&[]), [storage(true), storage(false), uniform]);
        let parts = [storage(true), storage(true), storage(false), storage(false), storage(false), uniform];
        assert_eq!(types(&[2, 3]), parts);
    }
}
