//! Discovery and loading of CUDA's libraries at run time.
//!
//! The loader finds libraries on its path by name. Libraries elsewhere, in a toolkit's folder or in Python packages,
//! are loaded from there first. A later request by name then returns the library that is already loaded.

use kiln_ir::{Error, Result};
use libloading::Library;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A CUDA library, by the middle of its file name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) name: &'static str,
    /// The package that contains it.
    pub(crate) from: &'static str,
}

/// The CUDA driver.
pub(crate) const DRIVER: Name = Name { name: "cuda", from: "NVIDIA's driver" };
/// The compiler: NVRTC.
pub(crate) const COMPILER: Name =
    Name { name: "nvrtc", from: "the CUDA toolkit, or `pip install nvidia-cuda-nvrtc`" };
/// Linear algebra: cuBLASLt.
pub(crate) const BLAS: Name =
    Name { name: "cublasLt", from: "the CUDA toolkit, or `pip install nvidia-cublas`" };
/// Convolutions and attention: cuDNN.
pub(crate) const DNN: Name =
    Name { name: "cudnn", from: "NVIDIA's cuDNN, or `pip install nvidia-cudnn-cu13`" };

/// Fourier transforms: cuFFT.
pub(crate) const FFT: Name = Name { name: "cufft", from: "the CUDA toolkit, or `pip install nvidia-cufft`" };

/// Loads a library permanently, so that it is found by name.
///
/// # Errors
/// When the library is not found; the error lists the searched places.
pub(crate) fn load(library: Name, device: &str) -> Result<()> {
    static LOADED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let mut loaded = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if loaded.contains(&library.name) {
        return Ok(());
    }
    let files = files(library.name);
    let folders = folders();
    let places = || {
        files.iter().map(PathBuf::from).chain(folders.iter().flat_map(|f| files.iter().map(|n| f.join(n))))
    };
    for place in places().filter(|place| place.parent() == Some(Path::new("")) || place.is_file()) {
        // SAFETY: these are NVIDIA's libraries, whose initialisers may run at any time.
        if let Ok(found) = unsafe { Library::new(&place) } {
            // The library stays loaded until the process ends.
            core::mem::forget(found);
            loaded.push(library.name);
            return Ok(());
        }
    }
    let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let problem = format!(
        "the library `{}` is missing: looked for {} on the loader's path and in {}",
        library.name,
        files.join(", "),
        if folders.is_empty() { "no other folder".to_owned() } else { folders.join(", ") }
    );
    let hint = format!("it comes with {}; put its folder on LD_LIBRARY_PATH (PATH on Windows)", library.from);
    Err(Error::device(device, problem).hint(hint))
}

/// The possible file names: those of the versions that this crate supports.
fn files(name: &str) -> Vec<String> {
    if cfg!(windows) {
        return match name {
            "cuda" => vec!["nvcuda.dll".to_owned()],
            "cudnn" => vec!["cudnn64_9.dll".to_owned()],
            "cufft" => vec!["cufft64_12.dll".to_owned(), "cufft64_11.dll".to_owned()],
            _ => ["64_13.dll", "64_130_0.dll", "64_12.dll", "64_120_0.dll"]
                .map(|end| format!("{name}{end}"))
                .into(),
        };
    }
    match name {
        "cuda" => vec!["libcuda.so.1".to_owned(), "libcuda.so".to_owned()],
        "cudnn" => vec!["libcudnn.so.9".to_owned(), "libcudnn.so".to_owned()],
        // CUDA 13 contains version 12, CUDA 12 version 11.
        "cufft" => ["", ".12", ".11"].map(|version| format!("lib{name}.so{version}")).into(),
        _ => ["", ".13", ".12"].map(|version| format!("lib{name}.so{version}")).into(),
    }
}

/// The folders where toolkits and packages install libraries.
fn folders() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut folders = Vec::new();
    for toolkit in ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"].iter().filter_map(|name| variable(name)) {
        folders.extend(["lib64", "lib", "bin"].map(|folder| toolkit.join(folder)));
    }
    folders.push("/usr/local/cuda/lib64".into());
    // Python's folder, and its packages next to it.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let pythons = std::env::split_paths(&path).filter(|folder| folder.join("python3").is_file());
    let beside = pythons.filter_map(|folder| Some(folder.parent()?.to_owned()));
    let named = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| variable(name));
    for prefix in named.chain(beside) {
        folders.push(prefix.join("lib"));
        for python in entries(&prefix.join("lib")).into_iter().filter(|path| starts_with(path, "python3")) {
            for package in entries(&python.join("site-packages/nvidia")) {
                folders.push(package.join("lib"));
            }
        }
    }
    let mut seen = HashSet::new();
    folders.retain(|folder| folder.is_dir() && seen.insert(folder.clone()));
    folders
}

/// The entries of a folder, sorted by name.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn starts_with(path: &Path, start: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_error_lists_the_searched_paths() {
        let nowhere = Name { name: "kiln-has-no-such-library", from: "nobody" };
        let error = load(nowhere, "cuda:0").unwrap_err().to_string();
        assert!(error.contains("libkiln-has-no-such-library.so.12"), "{error}");
        assert!(error.contains("cuda:0") && error.contains("nobody"), "{error}");
    }
}
