//! A driver that runs kernels on the processor: C++ by `g++`, the threads of a block one after the other.

use kiln_gpu::driver::{Argument, Grid, Place, Products, Step};
use kiln_gpu::{DeviceInfo, Driver};
use kiln_ir::{Error, Result};
use kiln_kernel::print::Dialect;
use libloading::{Library, Symbol};
use std::alloc::{Layout, alloc, dealloc};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The processor as a device.
pub(crate) struct Host {
    info: DeviceInfo,
    /// Kernels write down in static memory which of their threads runs.
    running: Mutex<()>,
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

/// An entry point in a library that was compiled.
pub(crate) struct HostFunction {
    library: Arc<Library>,
    symbol: String,
}

type Entry = unsafe extern "C" fn(u32, u32, *const u64);

impl Host {
    /// `None` where there is no compiler.
    pub(crate) fn open() -> Option<Host> {
        Command::new("g++").arg("--version").output().ok()?;
        let info = DeviceInfo {
            name: "host:0".into(),
            model: "the processor".into(),
            target: format!("host {}", include_str!("shim.hpp").len()),
            dialect: Dialect::Cuda,
            memory: 1 << 32,
            multiprocessors: 2,
        };
        Some(Host { info, running: Mutex::new(()) })
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

fn address(at: &Place<HostMemory>) -> *mut u8 {
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
    type Graph = ();

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, bytes: usize) -> Result<HostMemory> {
        let layout = Layout::from_size_align(bytes.max(1), 256).map_err(problem)?;
        // SAFETY: the layout is not empty.
        let address = unsafe { alloc(layout) };
        if address.is_null() {
            return Err(problem("out of memory"));
        }
        // What a kernel leaves out is no number that could be right by chance.
        // SAFETY: so many bytes were allocated.
        unsafe { address.write_bytes(0xa5, layout.size()) };
        Ok(HostMemory { address, layout })
    }

    fn write(&self, to: &Place<HostMemory>, bytes: &[u8]) -> Result<()> {
        assert!(to.offset + bytes.len() <= to.memory.layout.size());
        // SAFETY: the bytes lie within the block.
        unsafe { address(to).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn read(&self, from: &Place<HostMemory>, bytes: &mut [u8]) -> Result<()> {
        assert!(from.offset + bytes.len() <= from.memory.layout.size());
        // SAFETY: the bytes lie within the block.
        unsafe { address(from).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn fill(&self, to: &Place<HostMemory>, bytes: usize, value: u8) -> Result<()> {
        assert!(to.offset + bytes <= to.memory.layout.size());
        // SAFETY: the bytes lie within the block.
        unsafe { address(to).write_bytes(value, bytes) };
        Ok(())
    }

    fn compile(&self, source: &str) -> Result<Vec<u8>> {
        let (from, to) = (temporary("cpp"), temporary("so"));
        std::fs::write(&from, source).map_err(problem)?;
        // The names of a source leave some entry points out.
        let plain = Command::new("g++").args(["-E", "-P"]).arg(&from).output().map_err(problem)?.stdout;
        let shim = include_str!("shim.hpp").replace("#pragma once", "");
        let mut text = format!("{shim}\n{source}\n");
        for entry in entries(&String::from_utf8_lossy(&plain)) {
            text += &format!("SHIM_ENTRY({entry})\n");
        }
        std::fs::write(&from, text).map_err(problem)?;
        let compiled = Command::new("g++")
            .args(["-std=c++17", "-O1", "-shared", "-fPIC", "-fno-strict-aliasing", "-fwrapv", "-w", "-o"])
            .args([&to, &from])
            .output();
        let output = compiled.map_err(problem)?;
        let binary = std::fs::read(&to);
        // The second is not there where the compiler failed.
        let _ = (std::fs::remove_file(&from), std::fs::remove_file(&to));
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(problem(format!("a kernel does not compile:\n{said}\n{source}")));
        }
        binary.map_err(problem)
    }

    fn load(&self, binary: &[u8], entry: &str) -> Result<HostFunction> {
        let path = temporary("so");
        std::fs::write(&path, binary).map_err(problem)?;
        // SAFETY: the library has no initialisers but those of the standard library.
        let library = unsafe { Library::new(path.display().to_string()) };
        let _ = std::fs::remove_file(&path);
        let function =
            HostFunction { library: Arc::new(library.map_err(problem)?), symbol: format!("shim_{entry}") };
        // SAFETY: the shim gives its entries this type.
        let found: core::result::Result<Symbol<'_, Entry>, _> =
            unsafe { function.library.get(function.symbol.as_bytes()) };
        found.map_err(problem)?;
        Ok(function)
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
                Argument::Place(at) => address(at) as u64,
                Argument::Word(bytes) => u64::from_ne_bytes(*bytes),
            })
            .collect();
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the shim gives its entries this type, and the caller passes what the kernel takes.
        unsafe {
            let entry: Symbol<'_, Entry> =
                function.library.get(function.symbol.as_bytes()).map_err(problem)?;
            entry(grid.blocks as u32, grid.threads, words.as_ptr());
        }
        Ok(())
    }

    fn multiplies(&self, _: &Products<HostMemory>) -> bool {
        false
    }

    unsafe fn multiply(&self, _: &Products<HostMemory>) -> Result<()> {
        Err(problem("has no library for products"))
    }

    unsafe fn record(&self, _: &[Step<Host>]) -> Option<()> {
        None
    }

    unsafe fn amend(&self, (): &mut (), _: usize, _: &Step<Host>) -> bool {
        false
    }

    unsafe fn replay(&self, (): &mut ()) -> Result<()> {
        Err(problem("has no graphs"))
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}
