//! A driver that runs kernels on the CPU: C++ by `g++`, with the threads of a block in sequence.

use crate::host::library;
use kiln_gpu::driver::{
    Argument, Attend, Attention, Convolution, Convolve, DevicePtr, Fourier, Grid, Pass, Products, Transform,
};
use kiln_gpu::{DeviceInfo, Driver};
use kiln_ir::{BoxFuture, DType, Error, Result, Shape};
use kiln_kernel::print::{Dialect, Entry, Target};
use libloading::{Library, Symbol};
use std::alloc::{Layout, alloc, dealloc};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The CPU as a device.
pub(crate) struct Host {
    info: DeviceInfo,
    /// Kernels store the current thread in static memory, so that one kernel runs at a time.
    running: Mutex<()>,
    has_library: bool,
    multiplies: Multiplies,
    /// Whether its library has Fourier transforms.
    transforms: bool,
    deterministic: bool,
}

/// The matmul support of the test library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Multiplies {
    /// No matmul support.
    Never,
    /// Matmuls without an epilogue.
    Plain,
    /// Matmuls with bias and activation.
    Finished,
}

/// Memory at an address that is a multiple of 256.
pub(crate) struct HostMemory {
    address: *mut u8,
    layout: Layout,
}

// SAFETY: plain memory, which the one queue of the engine reads and writes.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { dealloc(self.address, self.layout) };
    }
}

/// An entry point of a compiled library.
pub(crate) struct HostFunction {
    library: Arc<Library>,
    symbol: String,
}

/// The compiler's options. Fortified long jumps would abort when they change the stack.
const FLAGS: [&str; 9] = [
    "-std=c++17",
    "-nostdinc++",
    "-O1",
    "-shared",
    "-fPIC",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-U_FORTIFY_SOURCE",
    "-w",
];

type HostEntry = unsafe extern "C" fn(u32, u32, *const u64);

impl Host {
    /// Opens the device; `None` without a compiler.
    pub(crate) fn open() -> Option<Host> {
        Command::new("g++").arg("--version").output().ok()?;
        let info = DeviceInfo {
            name: "host:0".into(),
            model: "the processor".into(),
            target: format!("host {}", include_str!("shim.hpp").len()),
            memory: 1 << 32,
            multiprocessors: 2,
            ..DeviceInfo::absent("")
        };
        Some(Host {
            info,
            running: Mutex::new(()),
            has_library: true,
            multiplies: Multiplies::Never,
            transforms: false,
            deterministic: false,
        })
    }

    /// Removes the library. Kernels are then those that are written once for all vendors.
    pub(crate) fn without_library(self) -> Host {
        let info = DeviceInfo { language: Target::new(Dialect::Hip), ..self.info };
        Host { info, has_library: false, ..self }
    }

    /// Gives the device another name, so that no other test has its files.
    pub(crate) fn of_model(self, model: &str) -> Host {
        Host { info: DeviceInfo { model: model.to_owned(), ..self.info }, ..self }
    }

    /// Adds a matmul library.
    pub(crate) fn multiplying(self, multiplies: Multiplies) -> Host {
        Host { multiplies, ..self }
    }

    /// Makes results independent of the order in which threads run.
    pub(crate) fn in_order(self) -> Host {
        Host { deterministic: true, ..self }
    }

    /// Adds an FFT library.
    pub(crate) fn transforming(self) -> Host {
        Host { transforms: true, ..self }
    }
}

fn problem(what: impl std::fmt::Display) -> Error {
    Error::device("host:0", what.to_string())
}

/// A file of this process in the folder for temporary ones.
fn temporary(ending: &str) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("kiln_gpu_host_{}_{number}.{ending}", std::process::id()))
}

fn address(at: &DevicePtr<HostMemory>) -> *mut u8 {
    assert!(at.offset <= at.memory.layout.size());
    at.memory.address.wrapping_add(at.offset)
}

/// The names of the entry points of a source.
fn entries(source: &str) -> impl Iterator<Item = &str> {
    source.match_indices("__global__ void").filter_map(|(at, _)| {
        let head = source[at..].split_once("void")?.1.trim_start();
        let head = match head.strip_prefix("__launch_bounds__") {
            Some(rest) => rest.split_once(')')?.1.trim_start(),
            None => head,
        };
        head.split_once('(').map(|(name, _)| name.trim())
    })
}

impl Driver for Host {
    type Memory = HostMemory;
    type Function = HostFunction;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn deterministic(&self) -> bool {
        self.deterministic
    }

    fn allocate(&self, bytes: usize) -> Result<HostMemory> {
        let layout = Layout::from_size_align(bytes.max(1), 256).map_err(problem)?;
        // SAFETY: the layout is not empty.
        let address = unsafe { alloc(layout) };
        if address.is_null() {
            return Err(problem("out of memory"));
        }
        // Fresh memory gets a pattern, so that elements a kernel skips are wrong.
        // SAFETY: so many bytes were allocated.
        unsafe { address.write_bytes(0xa5, layout.size()) };
        Ok(HostMemory { address, layout })
    }

    fn size(&self, memory: &HostMemory) -> usize {
        memory.layout.size()
    }

    fn write(&self, to: &DevicePtr<HostMemory>, bytes: &[u8]) -> Result<()> {
        assert!(to.offset + bytes.len() <= to.memory.layout.size());
        // SAFETY: the bytes lie within the block.
        unsafe { address(to).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn read_all(
        &self,
        ranges: &[(DevicePtr<HostMemory>, usize)],
    ) -> BoxFuture<'static, Result<Vec<Vec<u8>>>> {
        let copy = |(from, bytes): &(DevicePtr<HostMemory>, usize)| {
            assert!(from.offset + bytes <= from.memory.layout.size());
            let mut read = vec![0; *bytes];
            // SAFETY: the bytes lie within the block.
            unsafe { address(from).copy_to_nonoverlapping(read.as_mut_ptr(), *bytes) };
            read
        };
        let read: Vec<Vec<u8>> = ranges.iter().map(copy).collect();
        Box::pin(async move { Ok(read) })
    }

    fn fill(&self, to: &DevicePtr<HostMemory>, bytes: usize, value: u8) -> Result<()> {
        assert!(to.offset + bytes <= to.memory.layout.size());
        // SAFETY: the bytes lie within the block.
        unsafe { address(to).write_bytes(value, bytes) };
        Ok(())
    }

    fn compile(&self, source: &str) -> Result<Vec<u8>> {
        let (from, to) = (temporary("cpp"), temporary("so"));
        std::fs::write(&from, source).map_err(problem)?;
        let preprocess = || Command::new("g++").args(["-E", "-P"]).arg(&from).output().map_err(problem);
        // Conditions remove entry points, and macros rename them.
        let has_macros = ["#if", "#define"].iter().any(|directive| source.contains(directive));
        let preprocessed = has_macros.then(preprocess).transpose()?;
        let plain =
            preprocessed.as_ref().map_or(source.into(), |output| String::from_utf8_lossy(&output.stdout));
        let barriers = ["__syncthreads", "__shfl_xor"].iter().any(|barrier| source.contains(barrier));
        let shim = include_str!("shim.hpp").replace("#pragma once", "");
        let mut text = if barriers { "#define SHIM_BARRIERS\n" } else { "" }.to_owned();
        text += &format!("{shim}\n{source}\n");
        for entry in entries(&plain) {
            text += &format!("SHIM_ENTRY({entry})\n");
        }
        std::fs::write(&from, text).map_err(problem)?;
        let compiled = Command::new("g++").args(FLAGS).arg("-o").args([&to, &from]).output();
        let output = compiled.map_err(problem)?;
        let binary = std::fs::read(&to);
        // The second file does not exist if the compiler failed.
        let _ = (std::fs::remove_file(&from), std::fs::remove_file(&to));
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(problem(format!("a kernel does not compile:\n{said}\n{source}")));
        }
        binary.map_err(problem)
    }

    fn load(&self, binary: &[u8], entries: &[&Entry]) -> Result<Vec<Option<HostFunction>>> {
        entries.iter().map(|entry| loaded(binary, &entry.name).map(Some)).collect()
    }

    fn synchronize(&self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn library(&self) -> Option<&dyn kiln_gpu::driver::Library<HostMemory>> {
        self.has_library.then_some(self as _)
    }

    unsafe fn launch(
        &self,
        function: &HostFunction,
        grid: Grid,
        arguments: &[Argument<HostMemory>],
    ) -> Result<()> {
        let words: Vec<u64> = arguments
            .iter()
            .map(|argument| match argument {
                Argument::Pointer(at) => address(at) as u64,
                Argument::Word(bytes) => u64::from_ne_bytes(*bytes),
            })
            .collect();
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the shim gives its entries this type, and the caller passes the kernel's arguments.
        unsafe {
            let entry: Symbol<'_, HostEntry> =
                function.library.get(function.symbol.as_bytes()).map_err(problem)?;
            entry(grid.blocks as u32, grid.threads, words.as_ptr());
        }
        Ok(())
    }
}

fn loaded(binary: &[u8], entry: &str) -> Result<HostFunction> {
    let path = temporary("so");
    std::fs::write(&path, binary).map_err(problem)?;
    // SAFETY: the library has no initialisers but those of the standard library.
    let library = unsafe { Library::new(path.display().to_string()) };
    let _ = std::fs::remove_file(&path);
    let function =
        HostFunction { library: Arc::new(library.map_err(problem)?), symbol: format!("shim_{entry}") };
    // SAFETY: the shim gives its entries this type.
    let found: core::result::Result<Symbol<'_, HostEntry>, _> =
        unsafe { function.library.get(function.symbol.as_bytes()) };
    found.map_err(problem)?;
    Ok(function)
}

impl kiln_gpu::driver::Library<HostMemory> for Host {
    fn has_float8(&self) -> bool {
        self.multiplies != Multiplies::Never
    }

    fn multiplies(&self, products: &Products<HostMemory>) -> bool {
        let plain = products.epilogue.form().is_plain();
        library::multiplies(products)
            && match self.multiplies {
                Multiplies::Never => false,
                Multiplies::Plain => plain,
                Multiplies::Finished => true,
            }
    }

    unsafe fn multiply(&self, products: &Products<HostMemory>) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { library::multiplied(products, address) };
        Ok(())
    }

    fn convolutions(&self) -> Result<()> {
        Ok(())
    }

    /// Supports every convolution except those with five channels, like a library with gaps.
    fn workspace(&self, convolution: &Convolution) -> Result<Option<usize>> {
        Ok((convolution.x[1] != 5).then_some(16))
    }

    unsafe fn convolve(&self, convolve: &Convolve<HostMemory>) -> Result<()> {
        let [x, w, y] = &convolve.tensors;
        // SAFETY: as the caller says.
        unsafe { convolved(&convolve.convolution, [address(x), address(w), address(y)]) };
        Ok(())
    }

    fn attention_workspace(&self, attention: &Attention) -> Result<Option<usize>> {
        Ok(library::takes(attention).then_some(16))
    }

    unsafe fn attend(&self, attend: &Attend<HostMemory>) -> Result<()> {
        let tensors: Vec<*mut u8> = attend.tensors.iter().map(address).collect();
        // SAFETY: as the caller says.
        unsafe { library::attended(&attend.attention, &tensors) };
        Ok(())
    }

    fn fourier_workspace(&self, _: &Fourier) -> Result<Option<usize>> {
        Ok(self.transforms.then_some(16))
    }

    unsafe fn transform(&self, transform: &Transform<HostMemory>) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe { library::transformed(&transform.fourier, transform.tensors.each_ref().map(address)) };
        Ok(())
    }
}

/// A convolution by its definition, in `f64`.
///
/// # Safety
/// The tensors must hold the elements of the convolution's.
unsafe fn convolved(convolution: &Convolution, [x, w, y]: [*mut u8; 3]) {
    let Convolution { pass, dtype, stride, padding, dilation, groups, channels_last, .. } = convolution;
    let shapes = [convolution.x, convolution.w, convolution.y];
    let place = |which: usize, index: &[usize]| {
        let shape = &shapes[which];
        let order: Vec<usize> = match channels_last {
            true => [0].into_iter().chain(2..shape.rank()).chain([1]).collect(),
            false => (0..shape.rank()).collect(),
        };
        order.iter().fold(0, |at, &axis| at * shape[axis] + index[axis])
    };
    // SAFETY: as the caller says; places lie within the shapes.
    let get = |from: *mut u8, at: usize| unsafe {
        match dtype {
            DType::F64 => from.cast::<f64>().add(at).read(),
            DType::F16 => from.cast::<half::f16>().add(at).read().to_f64(),
            DType::BF16 => from.cast::<half::bf16>().add(at).read().to_f64(),
            DType::F32 => f64::from(from.cast::<f32>().add(at).read()),
            DType::I64
            | DType::I32
            | DType::I16
            | DType::I8
            | DType::U64
            | DType::U32
            | DType::U16
            | DType::U8
            | DType::Bool => unreachable!("no library convolves {dtype}"),
        }
    };
    // SAFETY: as above.
    let set = |to: *mut u8, at: usize, number: f64| unsafe {
        match dtype {
            DType::F64 => to.cast::<f64>().add(at).write(number),
            DType::F16 => to.cast::<half::f16>().add(at).write(half::f16::from_f64(number)),
            DType::BF16 => to.cast::<half::bf16>().add(at).write(half::bf16::from_f64(number)),
            DType::F32 => to.cast::<f32>().add(at).write(number as f32),
            DType::I64
            | DType::I32
            | DType::I16
            | DType::I8
            | DType::U64
            | DType::U32
            | DType::U16
            | DType::U8
            | DType::Bool => unreachable!("no library convolves {dtype}"),
        }
    };
    let (result, into) = match pass {
        Pass::Forward => (2, y),
        Pass::Input => (0, x),
        Pass::Weight => (1, w),
    };
    let mut sums = vec![0.0; shapes[result].num_elements()];
    let [of_x, of_w, of_y] = &shapes;
    let (each_in, each_out) = (of_w[1], of_w[0] / groups);
    for at_y in positions(of_y) {
        for at_w in positions(of_w).filter(|at_w| at_w[0] == at_y[1]) {
            let channel = at_y[1] / each_out * each_in + at_w[1];
            let along = |axis: usize| {
                let padded = at_y[axis + 2] * stride[axis] + at_w[axis + 2] * dilation[axis];
                padded.checked_sub(padding[axis]).filter(|&place| place < of_x[axis + 2])
            };
            let space: Option<Vec<usize>> = (0..stride.len()).map(along).collect();
            let Some(space) = space else { continue };
            let at_x: Vec<usize> = [at_y[0], channel].into_iter().chain(space).collect();
            let [at_x, at_w, at_y] = [place(0, &at_x), place(1, &at_w), place(2, &at_y)];
            match pass {
                Pass::Forward => sums[at_y] += get(x, at_x) * get(w, at_w),
                Pass::Input => sums[at_x] += get(y, at_y) * get(w, at_w),
                Pass::Weight => sums[at_w] += get(x, at_x) * get(y, at_y),
            }
        }
    }
    for (at, sum) in sums.into_iter().enumerate() {
        set(into, at, sum);
    }
}

/// The indices of all elements.
fn positions(shape: &Shape) -> impl Iterator<Item = Vec<usize>> + use<> {
    let shape = *shape;
    (0..shape.num_elements()).map(move |mut rest| {
        let mut index = vec![0; shape.rank()];
        for axis in (0..shape.rank()).rev() {
            index[axis] = rest % shape[axis];
            rest /= shape[axis];
        }
        index
    })
}
