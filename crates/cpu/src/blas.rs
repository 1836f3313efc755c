//! The vendor's BLAS: OpenBLAS, Intel oneMKL or Apple's Accelerate, loaded at run time for matmuls of `f32` and `f64`.
//!
//! `KILN_BLAS` chooses it: `openblas`, `mkl`, `accelerate`, the path of a library with the interface CBLAS (32-bit
//! integers), or `off`. Unset, the first library that is found is used, and Kiln's own kernels if there is none.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use kiln_ir::{Error, Result};
use libloading::Library;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// `cblas_?gemm`: order, transpositions, `m`, `n`, `k`, alpha, `a`, `lda`, `b`, `ldb`, beta, `c`, `ldc`.
pub(crate) type Gemm<T> = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    T,
    *const T,
    c_int,
    *const T,
    c_int,
    T,
    *mut T,
    c_int,
);

/// The values of CBLAS's enumerations.
pub(crate) const ROW_MAJOR: c_int = 101;
pub(crate) const NO_TRANSPOSE: c_int = 111;
pub(crate) const TRANSPOSE: c_int = 112;

/// A loaded library.
pub(crate) struct Blas {
    name: String,
    pub(crate) sgemm: Gemm<f32>,
    pub(crate) dgemm: Gemm<f64>,
    /// The functions stay valid as long as the library is loaded, which is until the process ends.
    set_threads: Option<SetThreads>,
}

/// How a library is told its number of threads.
enum SetThreads {
    /// For the calling thread.
    Local(unsafe extern "C" fn(c_int) -> c_int),
    /// For the process. The last number is kept: a call may take a lock.
    Global(unsafe extern "C" fn(c_int), AtomicI32),
}

/// A vendor's library: its name in `KILN_BLAS`, in messages, its file names, and the packages that have it.
struct Vendor {
    setting: &'static str,
    title: &'static str,
    files: &'static [&'static str],
    package: &'static str,
}

/// In the order in which they are looked for.
const VENDORS: &[Vendor] = &[
    #[cfg(target_os = "macos")]
    Vendor {
        setting: "accelerate",
        title: "Accelerate",
        files: &["/System/Library/Frameworks/Accelerate.framework/Accelerate"],
        package: "macOS has it",
    },
    Vendor {
        setting: "mkl",
        title: "oneMKL",
        files: if cfg!(windows) {
            &["mkl_rt.3.dll", "mkl_rt.2.dll", "mkl_rt.1.dll"]
        } else if cfg!(target_os = "macos") {
            &["libmkl_rt.dylib"]
        } else {
            &["libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so.1", "libmkl_rt.so"]
        },
        package: "`pip install mkl` in an active virtual environment, or `apt-get install libmkl-rt`",
    },
    Vendor {
        setting: "openblas",
        title: "OpenBLAS",
        files: if cfg!(windows) {
            &["libopenblas.dll", "openblas.dll"]
        } else if cfg!(target_os = "macos") {
            &["/opt/homebrew/opt/openblas/lib/libopenblas.dylib", "libopenblas.dylib"]
        } else {
            &["libopenblas.so.0", "libopenblas.so"]
        },
        package: "`apt-get install libopenblas0`, or `brew install openblas`",
    },
];

const ACCEPTED: &str = "`openblas`, `mkl`, `accelerate`, the path of a library, or `off`";

/// The value of `KILN_BLAS`.
enum Choice {
    Any,
    Off,
    Vendor(&'static str),
    File(PathBuf),
}

static IS_ON: AtomicBool = AtomicBool::new(true);

/// The library for matmuls; `None` if there is none, or it is [off](set_blas).
///
/// # Errors
/// When `KILN_BLAS` names a library that is missing or is no CBLAS.
pub(crate) fn library() -> Result<Option<&'static Blas>> {
    static LOADED: OnceLock<Result<Option<Blas>>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| load(&choice())).as_ref().map_err(Error::clone)?;
    Ok(loaded.as_ref().filter(|_| IS_ON.load(Ordering::Relaxed)))
}

/// The library that computes matmuls of `f32` and `f64`, such as `OpenBLAS (libopenblas.so.0)`; `None` for Kiln's own
/// kernels.
///
/// # Errors
/// When the environment variable `KILN_BLAS` names a library that is missing. Matmuls then have the same error.
///
/// ```
/// if let Ok(Some(name)) = kiln_cpu::blas() {
///     println!("matmuls by {name}");
/// }
/// ```
pub fn blas() -> Result<Option<String>> {
    Ok(library()?.map(|blas| blas.name.clone()))
}

/// Sets whether the vendor's library computes matmuls, for all CPU engines from now on. Default: yes.
///
/// ```
/// kiln_cpu::set_blas(false);
/// assert_eq!(kiln_cpu::blas().unwrap_or(None), None);
/// # kiln_cpu::set_blas(true);
/// ```
pub fn set_blas(on: bool) {
    IS_ON.store(on, Ordering::Relaxed);
}

fn choice() -> Choice {
    kiln_ir::setting("KILN_BLAS", ACCEPTED, parse).unwrap_or(Choice::Any)
}

fn parse(text: &str) -> Option<Choice> {
    const NAMES: [&str; 3] = ["accelerate", "mkl", "openblas"];
    if text == "off" {
        return Some(Choice::Off);
    }
    if let Some(name) = NAMES.into_iter().find(|name| *name == text) {
        return Some(Choice::Vendor(name));
    }
    let path = Path::new(text);
    let is_file = path.components().count() > 1 || path.extension().is_some();
    is_file.then(|| Choice::File(path.into()))
}

fn load(choice: &Choice) -> Result<Option<Blas>> {
    match choice {
        Choice::Off => Ok(None),
        // A file of that name that cannot be used counts as absent.
        Choice::Any => Ok(VENDORS.iter().find_map(|vendor| open_vendor(vendor).ok())),
        Choice::File(path) => open(path, &path.display().to_string()).map(Some).map_err(|problem| {
            missing(&format!("`{}`, which KILN_BLAS names, cannot be used: {problem}", path.display()))
                .hint(format!("set KILN_BLAS to {ACCEPTED}, or unset it"))
        }),
        Choice::Vendor(name) => match VENDORS.iter().find(|vendor| vendor.setting == *name) {
            Some(vendor) => open_vendor(vendor).map(Some).map_err(|problems| {
                let problem = format!(
                    "{}, which KILN_BLAS names, cannot be used: {}",
                    vendor.title,
                    problems.join("; ")
                );
                missing(&problem).hint(format!("install it ({}), or unset KILN_BLAS", vendor.package))
            }),
            None => Err(missing(&format!("KILN_BLAS is `{name}`, which this system does not have"))
                .hint("Accelerate is part of macOS; unset KILN_BLAS elsewhere")),
        },
    }
}

fn missing(problem: &str) -> Error {
    Error::device("cpu", problem)
}

/// The first of a vendor's files that can be used, on the loader's path or beside an active Python.
fn open_vendor(vendor: &Vendor) -> core::result::Result<Blas, Vec<String>> {
    let mut problems = Vec::new();
    for path in vendor.files.iter().flat_map(|file| places(file)) {
        match open(&path, &format!("{} ({})", vendor.title, path.display())) {
            Ok(blas) => return Ok(blas),
            Err(problem) => problems.push(problem),
        }
    }
    Err(problems)
}

fn places(file: &str) -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from(file)];
    let prefixes = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os);
    let folders =
        prefixes.map(|prefix| Path::new(&prefix).join(if cfg!(windows) { "Library/bin" } else { "lib" }));
    places.extend(folders.map(|folder| folder.join(file)).filter(|path| path.is_file()));
    places
}

/// # Errors
/// A short text: the reason why the file cannot be used.
fn open(path: &Path, name: &str) -> core::result::Result<Blas, String> {
    // SAFETY: the user or this table names a BLAS, whose initialisers may run at any time.
    let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
    // SAFETY: CBLAS defines these signatures.
    let blas = unsafe {
        Blas {
            name: name.to_string(),
            sgemm: *library.get::<Gemm<f32>>(b"cblas_sgemm\0").map_err(|error| error.to_string())?,
            dgemm: *library.get::<Gemm<f64>>(b"cblas_dgemm\0").map_err(|error| error.to_string())?,
            set_threads: set_threads(&library),
        }
    };
    // The functions must outlive every engine.
    core::mem::forget(library);
    if blas.multiplies() { Ok(blas) } else { Err(format!("{} gives a wrong product", path.display())) }
}

/// # Safety
/// The library is a BLAS.
unsafe fn set_threads(library: &Library) -> Option<SetThreads> {
    // SAFETY: the vendors define these signatures; the caller vouches for the library.
    unsafe {
        if let Ok(function) =
            library.get::<unsafe extern "C" fn(c_int) -> c_int>(b"MKL_Set_Num_Threads_Local\0")
        {
            return Some(SetThreads::Local(*function));
        }
        let function = library.get::<unsafe extern "C" fn(c_int)>(b"openblas_set_num_threads\0").ok()?;
        Some(SetThreads::Global(*function, AtomicI32::new(0)))
    }
}

impl Blas {
    /// Sets the number of threads of the next calls. Where the library has one number for the process, engines with
    /// different numbers share it: that changes their speed only.
    pub(crate) fn set_threads(&self, threads: usize) {
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        match &self.set_threads {
            // SAFETY: any positive number is valid.
            Some(SetThreads::Local(set)) => drop(unsafe { set(threads) }),
            Some(SetThreads::Global(set, last)) => {
                if last.swap(threads, Ordering::Relaxed) != threads {
                    // SAFETY: any positive number is valid.
                    unsafe { set(threads) };
                }
            }
            None => {}
        }
    }

    /// Whether a small product is right: a library with 64-bit integers, or another interface of that name, gives
    /// another one.
    fn multiplies(&self) -> bool {
        let (a, b, mut c) = ([1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0], [7.0, 8.0, 9.0, 10.0, 11.0, 12.0], [1.0; 4]);
        // SAFETY: matrices [2, 3], [3, 2] and [2, 2].
        unsafe {
            (self.dgemm)(
                ROW_MAJOR,
                NO_TRANSPOSE,
                NO_TRANSPOSE,
                2,
                2,
                3,
                2.0,
                a.as_ptr(),
                3,
                b.as_ptr(),
                2,
                1.0,
                c.as_mut_ptr(),
                2,
            );
        }
        c == [117.0, 129.0, 279.0, 309.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed() {
        assert!(matches!(parse("off"), Some(Choice::Off)));
        assert!(matches!(parse("mkl"), Some(Choice::Vendor("mkl"))));
        assert!(matches!(parse("/opt/lib/libblis.so.4"), Some(Choice::File(_))));
        assert!(matches!(parse("libblis.so"), Some(Choice::File(_))));
        assert!(parse("opnblas").is_none());
    }

    #[test]
    fn a_named_library_that_is_missing_is_an_error() {
        let said = load(&Choice::File("/no/such/libblas.so".into())).err().unwrap().to_string();
        assert!(said.contains("/no/such/libblas.so") && said.contains("KILN_BLAS"), "{said}");
        if cfg!(not(target_os = "macos")) {
            let said = load(&Choice::Vendor("accelerate")).err().unwrap().to_string();
            assert!(said.contains("macOS"), "{said}");
        }
        assert!(load(&Choice::Off).unwrap().is_none());
    }

    #[test]
    fn a_library_without_blas_is_an_error() {
        let found =
            ["libm.so.6", "libSystem.dylib"].into_iter().find_map(|name| open(Path::new(name), name).err());
        assert!(found.is_some());
    }
}
