//! Compiled kernels: shader modules and compute pipelines.

use crate::arguments::count_words;
use crate::driver::WgpuDriver;
use kiln_ir::{Error, Result};
use kiln_kernel::print::{Entry, EntryParameter};
use std::num::NonZeroU64;

/// A compute pipeline, with the entry point that it was compiled from.
pub struct WgpuFunction {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
    pub(crate) entry: Entry,
}

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
    let name = &*entries[first].name;
    let described =
        wgpu::ShaderModuleDescriptor { label: Some(name), source: wgpu::ShaderSource::Wgsl(text.into()) };
    let module = driver
        .done(&format!("compiling kernel `{name}`"), || driver.device.create_shader_module(described))?;
    let load = |(entry, is): (&&Entry, &bool)| is.then(|| pipeline(driver, &module, entry)).transpose();
    entries.iter().zip(&contained).map(load).collect()
}

/// Compiles one pipeline. Its layout comes from the entry point's parameters, so that a kernel with other bindings is an
/// error here.
fn pipeline(driver: &WgpuDriver, module: &wgpu::ShaderModule, entry: &Entry) -> Result<WgpuFunction> {
    let name = &*entry.name;
    let bindings = layout_entries(entry);
    driver
        .done(&format!("compiling kernel `{name}`"), || {
            let device = &driver.device;
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
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: driver.pipeline_cache(),
            });
            WgpuFunction { pipeline, layout, entry: entry.clone() }
        })
        .inspect(|_| driver.count_pipeline())
}

/// The bindings of group 0: the tensors in their order, then the uniform buffer.
fn layout_entries(entry: &Entry) -> Vec<wgpu::BindGroupLayoutEntry> {
    let described = |binding: usize, ty, min_binding_size| wgpu::BindGroupLayoutEntry {
        binding: binding as u32,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size },
        count: None,
    };
    let mut list: Vec<_> = written(entry)
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
    fn the_uniform_buffer_follows_the_tensors() {
        let tensor = |is_written| EntryParameter::Tensor { dtype: DType::F32, is_written };
        let parameters =
            vec![tensor(false), EntryParameter::Index, tensor(true), EntryParameter::Word(DType::U64)];
        let entries = layout_entries(&Entry { name: "kernel".into(), threads: 64, parameters });
        let types: Vec<wgpu::BindingType> = entries.iter().map(|entry| entry.ty).collect();
        let buffer = |ty, min_binding_size| wgpu::BindingType::Buffer {
            ty,
            has_dynamic_offset: false,
            min_binding_size,
        };
        let storage = |read_only| buffer(wgpu::BufferBindingType::Storage { read_only }, None);
        let uniform = buffer(wgpu::BufferBindingType::Uniform, NonZeroU64::new(32));
        assert_eq!(types, [storage(true), storage(false), uniform]);
    }
}
