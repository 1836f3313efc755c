//! The driver of one device: its memory, kernels and queue.

use crate::arguments::{Bounds, Prepared, check, prepare};
use crate::bytes::{self, Fill, parts};
use crate::commands::{Commands, UNIFORM_BYTES};
use crate::failure::{Failure, watch};
use crate::info::{binding_bytes, bounds, cooperative_matrices, describe};
use crate::options::WgpuOptions;
use crate::pipeline_cache::PipelineCache;
use crate::program::{self, WgpuFunction};
use crate::signal::{Finished, Signal, wait};
use kiln_gpu::DeviceInfo;
use kiln_gpu::driver::{Argument, DevicePtr, Driver, Grid};
use kiln_ir::{BoxFuture, Error, Result};
use kiln_kernel::print::Entry;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Writes of this many bytes are submitted at once: wgpu holds a copy of the data until the next submission.
const LARGE_WRITE: usize = 1 << 20;

/// The driver of one device of wgpu.
///
/// Launches are recorded, and submitted when enough are pending, before a write, at a read, and at
/// [`flush`](Driver::flush). Errors of wgpu become errors of the call. If a submission is refused or the device is lost,
/// every later call returns that error.
pub struct WgpuDriver {
    info: DeviceInfo,
    bounds: Bounds,
    /// The maximum number of bytes of a buffer.
    most_bytes: u64,
    deterministic: bool,
    pub(crate) device: wgpu::Device,
    queue: wgpu::Queue,
    /// The words of the launches of one submission, written just before it.
    uniforms: wgpu::Buffer,
    commands: Mutex<Commands>,
    failure: Arc<Failure>,
    pipelines: AtomicU64,
    pipeline_cache: Option<PipelineCache>,
    /// The kernel that writes single bytes.
    fill: OnceLock<Result<WgpuFunction>>,
}

/// A block of device memory: a storage buffer.
pub struct WgpuMemory(pub(crate) wgpu::Buffer);

impl WgpuDriver {
    /// Opens a device of an adapter.
    ///
    /// # Errors
    /// When the adapter lacks a limit of the profile, or the device cannot be created.
    pub(crate) async fn open(
        name: &str,
        adapter: &wgpu::Adapter,
        options: &WgpuOptions,
    ) -> Result<WgpuDriver> {
        let features = options.features(adapter.features());
        let described = wgpu::DeviceDescriptor {
            label: Some("kiln"),
            required_features: features,
            required_limits: options.profile.limits(adapter.limits()),
            experimental_features: experimental(features),
            memory_hints: wgpu::MemoryHints::Performance,
            trace: wgpu::Trace::Off,
        };
        let (device, queue) = adapter
            .request_device(&described)
            .await
            .map_err(|error| Error::device(name, format!("opening the device failed: {error}")))?;
        let failure = Failure::new(name);
        watch(&device, &failure);
        let mut driver =
            WgpuDriver::new(name, &adapter.get_info(), device, queue, failure, options.binding_bytes)?;
        driver.deterministic = options.deterministic;
        // A device does not list them, only its adapter.
        driver.info.cooperative_matrices = cooperative_matrices(adapter, features);
        Ok(driver)
    }

    /// The driver of a device that the program opened. The device keeps its error handlers.
    ///
    /// # Errors
    /// When the device is out of memory.
    pub(crate) fn from_existing(name: &str, device: wgpu::Device, queue: wgpu::Queue) -> Result<WgpuDriver> {
        let adapter = device.adapter_info();
        WgpuDriver::new(name, &adapter, device, queue, Failure::new(name), None)
    }

    fn new(
        name: &str,
        adapter: &wgpu::AdapterInfo,
        device: wgpu::Device,
        queue: wgpu::Queue,
        failure: Arc<Failure>,
        most_bound: Option<u64>,
    ) -> Result<WgpuDriver> {
        let limits = device.limits();
        let bound = binding_bytes(&limits, most_bound);
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let described = buffer(UNIFORM_BYTES as u64, usage);
        let pipeline_cache = PipelineCache::open(adapter, &device, &failure);
        let uniforms =
            failure.done(&device, "allocating a uniform buffer", || device.create_buffer(&described))?;
        Ok(WgpuDriver {
            info: describe(name, adapter, &device, bound),
            bounds: bounds(name, &limits, bound),
            most_bytes: limits.max_buffer_size,
            deterministic: kiln_ir::deterministic(),
            device,
            queue,
            uniforms,
            commands: Mutex::default(),
            failure,
            pipelines: AtomicU64::new(0),
            pipeline_cache,
            fill: OnceLock::new(),
        })
    }

    /// The number of pipelines that were created since the device was opened. Each needs the driver's compiler, unless
    /// the [pipeline cache](WgpuDriver::pipeline_cache_bytes) has it.
    pub fn compiled_pipelines(&self) -> u64 {
        self.pipelines.load(Ordering::Relaxed)
    }

    /// The bytes of the compiled pipelines in the pipeline cache, with those that were found on disk. They do not change
    /// while every new pipeline is found there. `None` where the API has no pipeline cache (all but Vulkan, and
    /// [`Profile::WebGpu`](crate::Profile::WebGpu)), where `KILN_CACHE_DIR` is empty, and on a lost device.
    pub fn pipeline_cache_bytes(&self) -> Option<usize> {
        self.pipeline_cache.as_ref()?.bytes()
    }

    /// Saves the compiled pipelines on disk, and returns whether the file has all of them: `false` without a [pipeline
    /// cache](WgpuDriver::pipeline_cache_bytes), and on a full disk.
    ///
    /// The driver itself saves new pipelines after submissions, in at most about a hundredth of the time, and when it is
    /// dropped. A program that ends soon after its first step may call this method before.
    pub fn save_pipelines(&self) -> bool {
        self.pipeline_cache.as_ref().is_some_and(PipelineCache::save)
    }

    /// The device, for programs that share it with a renderer.
    pub fn device(&self) -> &wgpu::Device {
        &self.device
    }

    /// The queue of the device. Recorded launches are not in it before [`flush`](Driver::flush).
    pub fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    pub(crate) fn properties(&self) -> &DeviceInfo {
        &self.info
    }

    /// The cache to create pipelines with.
    pub(crate) fn pipeline_cache(&self) -> Option<&wgpu::PipelineCache> {
        self.pipeline_cache.as_ref().map(PipelineCache::of_pipelines)
    }

    pub(crate) fn count_pipeline(&self) {
        self.pipelines.fetch_add(1, Ordering::Relaxed);
        if let Some(cache) = &self.pipeline_cache {
            cache.note();
        }
    }

    /// Calls wgpu; `what` names the operation in errors.
    pub(crate) fn done<T>(&self, what: &str, body: impl FnOnce() -> T) -> Result<T> {
        self.failure.check()?;
        self.failure.done(&self.device, what, body)
    }

    fn commands(&self) -> MutexGuard<'_, Commands> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits the recorded commands.
    ///
    /// # Errors
    /// When wgpu refuses them. Their results are then missing, so that every later call returns the error too.
    fn submit(&self, commands: &mut Commands) -> Result<wgpu::SubmissionIndex> {
        self.failure.check()?;
        let submission = commands.take();
        let submit = || {
            if !submission.words.is_empty() {
                self.queue.write_buffer(&self.uniforms, 0, &submission.words);
            }
            self.queue.submit(submission.encoder.map(wgpu::CommandEncoder::finish))
        };
        let done = self.failure.done(&self.device, "submitting work", submit);
        done.map_err(|error| self.failure.keep(error))
    }

    /// Saves new pipelines, if it is time. Called after a submission, while the device works and other threads may
    /// record commands.
    fn save_if_due(&self) {
        if let Some(cache) = &self.pipeline_cache {
            cache.save_if_due();
        }
    }

    /// The range of bytes of a copy.
    ///
    /// # Errors
    /// When it is not within the memory.
    fn range(&self, at: &DevicePtr<WgpuMemory>, bytes: usize) -> Result<Range<usize>> {
        let size = self.size(&at.memory);
        match at.offset.checked_add(bytes).filter(|end| *end <= size) {
            Some(end) => Ok(at.offset..end),
            None => {
                let problem =
                    format!("{bytes} bytes at {} are not within a block of {size} bytes", at.offset);
                Err(Error::device(&self.info.name, problem))
            }
        }
    }

    fn try_allocate(&self, bytes: u64) -> Result<WgpuMemory> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let what = format!("allocating {bytes} bytes");
        self.done(&what, || WgpuMemory(self.device.create_buffer(&buffer(bytes, usage))))
    }

    /// Waits for all queued work, so that wgpu frees the buffers that were dropped.
    fn settle(&self) -> Result<()> {
        let submission = self.submit(&mut self.commands())?;
        wait(&self.device, &submission, &self.failure)
    }

    /// Records a launch.
    fn record(&self, function: &WgpuFunction, launch: &Prepared, memory: &[&WgpuMemory]) -> Result<()> {
        self.failure.check()?;
        let mut commands = self.commands();
        let alignment = self.bounds.uniform_alignment;
        let offset = match commands.append(&launch.words, alignment) {
            Some(offset) => offset,
            None => {
                self.submit(&mut commands)?;
                commands.append(&launch.words, alignment).ok_or_else(|| {
                    let problem = format!("kernel `{}` has too many arguments", function.entry.name);
                    Error::unsupported(&self.info.name, problem)
                })?
            }
        };
        let group = self.bind(function, launch, memory, offset)?;
        let pass = commands.pass(&self.device);
        pass.set_pipeline(&function.pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(launch.workgroups[0], launch.workgroups[1], 1);
        Ok(())
    }

    /// The bind group of a launch whose words are at an offset in the uniform buffer.
    fn bind(
        &self,
        function: &WgpuFunction,
        launch: &Prepared,
        memory: &[&WgpuMemory],
        offset: u64,
    ) -> Result<wgpu::BindGroup> {
        let tensors = launch
            .bindings
            .iter()
            .zip(memory)
            .map(|(binding, memory)| (&memory.0, binding.offset, binding.bytes));
        let words = (&self.uniforms, offset, function.uniform_bytes());
        let entries: SmallVec<[wgpu::BindGroupEntry<'_>; 9]> = tensors
            .chain([words])
            .enumerate()
            .map(|(place, (buffer, offset, bytes))| wgpu::BindGroupEntry {
                binding: place as u32,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer,
                    offset,
                    size: wgpu::BufferSize::new(bytes),
                }),
            })
            .collect();
        let described =
            wgpu::BindGroupDescriptor { label: None, layout: &function.layout, entries: &entries };
        let what = format!("binding the arguments of kernel `{}`", function.entry.name);
        self.done(&what, || self.device.create_bind_group(&described))
    }

    /// Records launches that write single bytes.
    fn run_fill(&self, memory: &WgpuMemory, fill: Fill) -> Result<()> {
        let compiled = || {
            let loaded = program::load(self, bytes::SOURCE, &[&bytes::entry()])?.pop().flatten();
            loaded.ok_or_else(|| Error::device(&self.info.name, "the kernel `kiln_fill` is missing"))
        };
        let function = self.fill.get_or_init(compiled).as_ref().map_err(Clone::clone)?;
        let launches = fill.launches(self.size(memory), &self.bounds);
        launches.iter().try_for_each(|launch| self.record(function, launch, &[memory]))
    }

    /// Starts to copy ranges to buffers that the host can map, in one submission.
    fn start_read(&self, ranges: &[(DevicePtr<WgpuMemory>, usize)]) -> Result<Reading> {
        let staged = ranges.iter().map(|(from, bytes)| self.range(from, *bytes).map(Staged::new));
        let mut staged: Vec<Staged> = staged.collect::<Result<_>>()?;
        let lengths = place(&mut staged, usize::try_from(self.most_bytes).unwrap_or(usize::MAX));
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let allocate = |len: &usize| {
            let what = format!("allocating {len} bytes for a read");
            self.done(&what, || self.device.create_buffer(&buffer(*len as u64, usage)))
        };
        let buffers: Vec<wgpu::Buffer> = lengths.iter().map(allocate).collect::<Result<_>>()?;
        let submission = {
            let mut commands = self.commands();
            for ((from, _), part) in ranges.iter().zip(&staged).filter(|(_, part)| !part.words.is_empty()) {
                let encoder = commands.encoder(&self.device);
                let (start, len) = (part.words.start as u64, part.words.len() as u64);
                let to = &buffers[part.buffer];
                encoder.copy_buffer_to_buffer(&from.memory.0, start, to, part.offset as u64, len);
            }
            self.submit(&mut commands)?
        };
        self.save_if_due();
        let map = |staging: wgpu::Buffer| -> Result<(wgpu::Buffer, Finished<bool>)> {
            let signal = Signal::new();
            let set = signal.clone();
            self.done("mapping memory", || {
                staging.map_async(wgpu::MapMode::Read, .., move |outcome| set.set(outcome.is_ok()));
            })?;
            Ok((staging, self.finished(signal, submission.clone())))
        };
        Ok(Reading { buffers: buffers.into_iter().map(map).collect::<Result<_>>()?, staged })
    }

    fn finished<T>(&self, signal: Arc<Signal<T>>, submission: wgpu::SubmissionIndex) -> Finished<T> {
        Finished { signal, device: self.device.clone(), submission, failure: self.failure.clone() }
    }
}

/// The token for the features of a device.
fn experimental(features: wgpu::Features) -> wgpu::ExperimentalFeatures {
    if !features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) {
        return wgpu::ExperimentalFeatures::disabled();
    }
    // SAFETY: wgpu does not check that matrices are within shared memory, nor that all threads of a subgroup execute an
    // operation. The engine's kernels keep to both, and no other experimental feature is requested.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}

/// A range of a block on its way to the host. Copies are of whole words.
struct Staged {
    /// The bytes of the words that contain the range.
    words: Range<usize>,
    /// The range, from the start of the words.
    range: Range<usize>,
    /// The number of the buffer that receives the words.
    buffer: usize,
    /// The place of the words in that buffer.
    offset: usize,
}

impl Staged {
    fn new(range: Range<usize>) -> Staged {
        if range.is_empty() {
            return Staged { words: 0..0, range: 0..0, buffer: 0, offset: 0 };
        }
        let words = range.start / 4 * 4..range.end.next_multiple_of(4);
        let range = range.start - words.start..range.end - words.start;
        Staged { words, range, buffer: 0, offset: 0 }
    }
}

/// Places copies one after the other in as few buffers as possible, of at most `most` bytes each. Returns the lengths
/// of the buffers.
fn place(staged: &mut [Staged], most: usize) -> Vec<usize> {
    let mut lengths: Vec<usize> = Vec::new();
    for part in staged.iter_mut().filter(|part| !part.words.is_empty()) {
        let len = part.words.len();
        if lengths.last().is_none_or(|last| last.saturating_add(len) > most) {
            lengths.push(0);
        }
        part.buffer = lengths.len() - 1;
        part.offset = lengths[part.buffer];
        lengths[part.buffer] += len;
    }
    lengths
}

/// Copies to the host that were started.
struct Reading {
    /// The buffers that receive the copies, with whether they could be mapped.
    buffers: Vec<(wgpu::Buffer, Finished<bool>)>,
    staged: Vec<Staged>,
}

impl Reading {
    /// The bytes of each range.
    async fn end(self) -> Result<Vec<Vec<u8>>> {
        let mut read = vec![Vec::new(); self.staged.len()];
        for (number, (staging, mapped)) in self.buffers.into_iter().enumerate() {
            let failure = mapped.failure.clone();
            let is_mapped = mapped.await?;
            failure.check()?;
            if !is_mapped {
                return Err(failure.lost("memory could not be read"));
            }
            let view = staging.get_mapped_range(..);
            let view = view.map_err(|error| failure.lost(&format!("memory could not be read: {error}")))?;
            let parts = self.staged.iter().zip(&mut read);
            for (part, read) in parts.filter(|(part, _)| part.buffer == number && !part.words.is_empty()) {
                *read = view[part.offset + part.range.start..part.offset + part.range.end].to_vec();
            }
        }
        Ok(read)
    }
}

fn buffer(bytes: u64, usage: wgpu::BufferUsages) -> wgpu::BufferDescriptor<'static> {
    wgpu::BufferDescriptor { label: None, size: bytes, usage, mapped_at_creation: false }
}

impl Driver for WgpuDriver {
    type Memory = WgpuMemory;
    type Function = WgpuFunction;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn deterministic(&self) -> bool {
        self.deterministic
    }

    fn allocate(&self, bytes: usize) -> Result<WgpuMemory> {
        let size = (bytes.max(1) as u64).next_multiple_of(4);
        if size > self.most_bytes {
            let what =
                format!("allocating {bytes} bytes, of which a buffer has at most {},", self.most_bytes);
            return Err(self.failure.out_of_memory(&what));
        }
        match self.try_allocate(size) {
            Err(error) if error.is_out_of_memory() && !cfg!(target_arch = "wasm32") => {
                self.settle()?;
                self.try_allocate(size)
            }
            done => done,
        }
    }

    fn size(&self, memory: &WgpuMemory) -> usize {
        memory.0.size() as usize
    }

    fn write(&self, to: &DevicePtr<WgpuMemory>, bytes: &[u8]) -> Result<()> {
        let start = self.range(to, bytes.len())?.start;
        let [head, body, tail] = parts(start, bytes.len());
        if !body.is_empty() {
            // A write takes effect before all commands of the next submission.
            let mut commands = self.commands();
            if !commands.is_empty() {
                self.submit(&mut commands)?;
            }
            let at = (start + body.start) as u64;
            let is_large = body.len() >= LARGE_WRITE;
            self.done("writing memory", || self.queue.write_buffer(&to.memory.0, at, &bytes[body]))?;
            if is_large {
                self.submit(&mut commands)?;
            }
        }
        for edge in [head, tail].into_iter().filter(|edge| !edge.is_empty()) {
            self.run_fill(&to.memory, Fill::with_bytes(start + edge.start, &bytes[edge]))?;
        }
        Ok(())
    }

    fn read_all(
        &self,
        ranges: &[(DevicePtr<WgpuMemory>, usize)],
    ) -> BoxFuture<'static, Result<Vec<Vec<u8>>>> {
        let started = self.start_read(ranges);
        Box::pin(async move { started?.end().await })
    }

    fn fill(&self, to: &DevicePtr<WgpuMemory>, bytes: usize, value: u8) -> Result<()> {
        let range = self.range(to, bytes)?;
        if range.is_empty() {
            return Ok(());
        }
        if value != 0 || !range.start.is_multiple_of(4) || !bytes.is_multiple_of(4) {
            return self.run_fill(&to.memory, Fill::with_byte(range, value));
        }
        self.failure.check()?;
        let mut commands = self.commands();
        commands.encoder(&self.device).clear_buffer(&to.memory.0, range.start as u64, Some(bytes as u64));
        Ok(())
    }

    fn compile(&self, source: &str) -> Result<Vec<u8>> {
        Ok(source.as_bytes().to_vec())
    }

    fn load(&self, binary: &[u8], entries: &[&Entry]) -> Result<Vec<Option<WgpuFunction>>> {
        let text = core::str::from_utf8(binary)
            .map_err(|_| Error::device(&self.info.name, "the source of a kernel is not UTF-8"))?;
        program::load(self, text, entries)
    }

    fn check(&self, function: &WgpuFunction, arguments: &[Argument<WgpuMemory>]) -> Result<()> {
        let most = self.info.bindings.unwrap_or(usize::MAX);
        check(&self.bounds, most, &function.entry, arguments, |memory| self.size(memory))
    }

    // wgpu checks the bounds of accesses itself, so that arguments which break the contract give wrong values only.
    unsafe fn launch(
        &self,
        function: &WgpuFunction,
        grid: Grid,
        arguments: &[Argument<WgpuMemory>],
    ) -> Result<()> {
        let launch = prepare(&self.bounds, &function.entry, grid, arguments, |memory| self.size(memory))?;
        let memory: SmallVec<[&WgpuMemory; 8]> = launch
            .bindings
            .iter()
            .filter_map(|binding| match &arguments[binding.argument] {
                Argument::Pointer(at) => Some(&*at.memory),
                Argument::Word(_) => None,
            })
            .collect();
        if launch.is_split() {
            let split = program::split(self, function, &launch)?;
            return self.record(&split, &launch, &memory);
        }
        self.record(function, &launch, &memory)
    }

    fn flush(&self) -> Result<()> {
        {
            let mut commands = self.commands();
            if commands.is_empty() {
                return self.failure.check();
            }
            self.submit(&mut commands)?;
        }
        self.save_if_due();
        Ok(())
    }

    fn synchronize(&self) -> BoxFuture<'static, Result<()>> {
        let submitted = self.submit(&mut self.commands());
        let ended = submitted.map(|submission| {
            self.save_if_due();
            let signal = Signal::new();
            let set = signal.clone();
            self.queue.on_submitted_work_done(move || set.set(()));
            self.finished(signal, submission)
        });
        let failure = self.failure.clone();
        Box::pin(async move {
            ended?.await?;
            failure.check()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staged(ranges: &[Range<usize>]) -> Vec<Staged> {
        ranges.iter().cloned().map(Staged::new).collect()
    }

    #[test]
    fn ranges_of_one_read_share_a_buffer() {
        let mut parts = staged(&[5..11, 3..3, 4096..8192, 0..1]);
        assert_eq!(place(&mut parts, 1 << 20), [8 + 4096 + 4]);
        let places: Vec<_> = parts.iter().map(|part| (part.words.clone(), part.range.clone())).collect();
        assert_eq!(places, [(4..12, 1..7), (0..0, 0..0), (4096..8192, 0..4096), (0..4, 0..1)]);
        assert_eq!([0, 2, 3].map(|i: usize| parts[i].offset), [0, 8, 8 + 4096]);
    }

    #[test]
    fn a_read_that_fills_a_buffer_has_another_for_the_rest() {
        let mut parts = staged(&[0..4096, 0..8, 0..8]);
        assert_eq!(place(&mut parts, 4096), [4096, 16]);
        assert_eq!([0, 1, 2].map(|i: usize| (parts[i].buffer, parts[i].offset)), [(0, 0), (1, 0), (1, 8)]);
        assert!(place(&mut staged(&[7..7, 2..2]), 4096).is_empty());
    }
}
