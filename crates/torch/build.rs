//! Finds LibTorch and compiles the shim against it into a shared library, which the crate opens at run time by its path. Programs that
//! depend on the crate need no flags for the linker therefore.
//!
//! Without LibTorch the build succeeds too: opening a device is then an error that lists the searched places.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The standards of C++ to try, the one of older versions first.
const STANDARDS: &[&str] = &["c++17", "c++20"];

/// The libraries of kernels for GPUs: registered by being loaded, not called by name.
const KERNELS: &[&str] = &["torch_cuda", "c10_cuda", "torch_hip", "c10_hip"];

/// Prints the folder of a Python's torch, without loading it.
const FOLDER_OF_TORCH: &str = "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim/shim.cpp");
    for name in ["LIBTORCH", "PYTHON", "CXX", "CXXFLAGS", "DOCS_RS"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let shim = find().and_then(|library| {
        println!("cargo:rerun-if-changed={}", library.libraries.join(file_name("torch_cpu")).display());
        compile(&library)
    });
    match shim {
        Ok(shim) => {
            println!("cargo:rustc-env=KILN_TORCH_SHIM={}", shim.display());
            println!("cargo:rustc-env=KILN_TORCH_MISSING=");
        }
        Err(problem) => {
            let problem = problem.replace(['\n', '\r'], " ");
            println!("cargo:warning=kiln-torch is built without LibTorch: {problem}");
            println!("cargo:rustc-env=KILN_TORCH_SHIM=");
            println!("cargo:rustc-env=KILN_TORCH_MISSING={problem}");
        }
    }
}

/// A LibTorch on this machine.
struct LibTorch {
    /// The folders of its headers.
    headers: Vec<PathBuf>,
    /// The folder of its libraries.
    libraries: PathBuf,
    /// The flag that selects the layout of C++'s strings, if it states one.
    abi: Option<String>,
}

/// The first LibTorch of the places to look at, or the list of them.
fn find() -> Result<LibTorch, String> {
    if env::var_os("DOCS_RS").is_some() {
        return Err("documentation is built without it".into());
    }
    if let Some(root) = env::var_os("LIBTORCH").filter(|root| !root.is_empty()) {
        let root = PathBuf::from(root);
        return at(&root).ok_or_else(|| {
            format!(
                "the folder of `LIBTORCH`, {}, has no include/ATen and lib/ with libtorch_cpu",
                root.display()
            )
        });
    }
    let python = env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    if let Some(found) = folder_of(&python).and_then(|root| at(&root)) {
        return Ok(found);
    }
    at(Path::new("/usr")).ok_or_else(|| {
        format!("`LIBTORCH` is not set, `{python}` has no module `torch`, and /usr/include/ATen is missing")
    })
}

fn folder_of(python: &str) -> Option<PathBuf> {
    let output = Command::new(python).args(["-c", FOLDER_OF_TORCH]).output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    let folder = folder.trim();
    (output.status.success() && !folder.is_empty()).then(|| folder.into())
}

/// The LibTorch below a folder: `include` and `lib`, or `lib` with a folder of the machine's name.
fn at(root: &Path) -> Option<LibTorch> {
    let include = root.join("include");
    let headers = vec![include.clone(), include.join("torch/csrc/api/include")];
    if !include.join("ATen/core/dispatch/Dispatcher.h").is_file() {
        return None;
    }
    let lib = root.join("lib");
    let machine = format!("{}-linux-gnu", env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default());
    let places = [lib.clone(), lib.join(machine), root.join("lib64")];
    let libraries = places.into_iter().find(|place| place.join(file_name("torch_cpu")).is_file())?;
    let config =
        std::fs::read_to_string(root.join("share/cmake/Torch/TorchConfig.cmake")).unwrap_or_default();
    let abi = config.split(['"', ' ', '\n']).find(|word| word.starts_with("-D_GLIBCXX_USE_CXX11_ABI="));
    Some(LibTorch { headers, libraries, abi: abi.map(str::to_owned) })
}

fn file_name(library: &str) -> String {
    match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("macos") => format!("lib{library}.dylib"),
        _ => format!("lib{library}.so"),
    }
}

/// Compiles the shim into a shared library that finds LibTorch by its folder.
fn compile(found: &LibTorch) -> Result<PathBuf, String> {
    if env::var("CARGO_CFG_TARGET_FAMILY").as_deref() != Ok("unix") {
        return Err("the shim is for Linux and macOS".into());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("`OUT_DIR` is not set")?);
    let shim = out.join(file_name("kiln_torch"));
    let mut problem = String::new();
    for standard in STANDARDS {
        match attempt(found, &shim, standard) {
            Ok(()) => return Ok(shim),
            Err(said) => problem = said,
        }
    }
    Err(format!("the shim does not compile against {}: {problem}", found.libraries.display()))
}

fn attempt(found: &LibTorch, shim: &Path, standard: &str) -> Result<(), String> {
    let mut build = cc::Build::new();
    build.cpp(true).pic(true).debug(false).opt_level(1).std(standard).warnings(false).cargo_output(false);
    let compiler = build.try_get_compiler().map_err(|error| error.to_string())?;
    let mut command = compiler.to_command();
    command.args(["-shared", "-fvisibility=hidden"]);
    for folder in &found.headers {
        command.arg("-I").arg(folder);
    }
    command.args(&found.abi).arg("shim/shim.cpp").arg("-o").arg(shim).arg("-L").arg(&found.libraries);
    if env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        command.arg("-Wl,--no-as-needed");
    }
    command.arg(format!("-Wl,-rpath,{}", found.libraries.display()));
    command.args(["-ltorch", "-ltorch_cpu", "-lc10"]);
    let kernels = KERNELS.iter().filter(|kernel| found.libraries.join(file_name(kernel)).is_file());
    command.args(kernels.map(|kernel| format!("-l{kernel}")));
    let output = command.output().map_err(|error| format!("the C++ compiler does not start: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let error = said.lines().find(|line| line.contains("error")).unwrap_or("no message");
    Err(format!("{standard}: {error}"))
}
