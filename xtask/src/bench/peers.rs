//! The measured programs: finds, builds and describes them.

use std::path::{Path, PathBuf};

use super::compare::{Comparison, Options};
use super::models;
use super::peer::{Peer, Skipped, python};
use super::programs::{Build, Programs};
use crate::process::{self, at};

/// A program that may take part in a comparison.
pub(super) struct Contender {
    /// The word of `--peers` that chooses it.
    pub(super) option: &'static str,
    /// The name in tables.
    pub(super) name: &'static str,
    program: Program,
    arguments: &'static [&'static str],
}

/// How a program is found.
pub(super) enum Program {
    /// It is built here, or packed.
    Rust(Build),
    /// A script of the folder `bench`, which is the first argument.
    Python(Needs),
}

/// A statement of Python that fails where a package is missing, and the command that installs them.
pub(super) struct Needs {
    statement: &'static str,
    install: &'static str,
    /// Whether a C++ compiler is needed too.
    compiler: bool,
}

/// A program that `--peers` chooses by its name.
pub(super) const fn named(
    name: &'static str,
    program: Program,
    arguments: &'static [&'static str],
) -> Contender {
    Contender { option: name, name, program, arguments }
}

const fn python_with(statement: &'static str, install: &'static str) -> Program {
    Program::Python(Needs { statement, install, compiler: false })
}

pub(super) const ON_CUDA: &[&str] = &["--device", "cuda"];
pub(super) const ON_VULKAN: &[&str] = &["--device", "vulkan"];

/// PyTorch on CPUs, and with its compiler, whose memory is not measured: it is mostly the compiler's.
const TORCH: Needs =
    Needs { statement: "import torch", install: "`pip install torch safetensors`", compiler: false };
const TORCH_COMPILE: &str = "torch.compile";
/// PyTorch on GPUs.
const TORCH_ON_GPU: Program = python_with(
    "import torch; assert torch.cuda.is_available()",
    "`pip install torch` on a machine with a GPU",
);

pub(super) const CPU_PEERS: &[Contender] = &[
    named("torch", Program::Python(TORCH), &["pytorch.py"]),
    Contender {
        option: "torch",
        ..named(
            TORCH_COMPILE,
            Program::Python(Needs { compiler: true, ..TORCH }),
            &["pytorch.py", "--compile"],
        )
    },
    named("burn", Program::Rust(Build::BURN), &[]),
    named("candle", Program::Rust(Build::CANDLE), &[]),
];

/// Eager PyTorch, `torch.compile`, and CUDA graphs.
pub(super) const GPU_PEERS: &[Contender] = &[
    named("torch", TORCH_ON_GPU, &["pytorch.py", "--device", "cuda"]),
    named(TORCH_COMPILE, TORCH_ON_GPU, &["pytorch.py", "--device", "cuda", "--compile"]),
    named("torch.graph", TORCH_ON_GPU, &["pytorch.py", "--device", "cuda", "--graph"]),
];

pub(super) const VULKAN_PEERS: &[Contender] = &[
    named("kiln-cuda", Program::Rust(Build::KILN_FOR_GPU), ON_CUDA),
    named("burn", Program::Rust(Build::BURN_FOR_VULKAN), ON_VULKAN),
];

/// As `bench/models.py` names them.
pub(super) const MODEL_PEERS: &[Contender] = &[
    named(
        "llama.cpp",
        python_with(
            "from importlib.util import find_spec as f; assert f('llama_cpp') or f('xllamacpp')",
            "`pip install llama-cpp-python gguf`",
        ),
        &["models.py", "llama.cpp"],
    ),
    named(
        "torch",
        python_with(
            "import safetensors, torch, transformers",
            "`pip install torch transformers safetensors`",
        ),
        &["models.py", "torch"],
    ),
    named(
        "onnxruntime",
        python_with(
            "import onnx, onnxruntime, torch, transformers",
            "`pip install onnxruntime onnx torch transformers`",
        ),
        &["models.py", "onnxruntime"],
    ),
];

/// The programs of one run.
pub(super) struct Peers<'a> {
    pub(super) comparison: &'static Comparison,
    pub(super) options: &'a Options<'a>,
    pub(super) programs: Programs,
    pub(super) scratch: &'a Path,
}

impl Peers<'_> {
    /// Kiln's program. Each program has a folder with its caches, below one for each use.
    pub(super) fn kiln(&self, usage: &str) -> Result<Peer, String> {
        self.peer(&self.comparison.kiln, usage)
    }

    /// Kiln's prebuilt program of another tree.
    pub(super) fn before(&self, program: PathBuf) -> Result<Peer, String> {
        let kiln = self.kiln("before")?;
        Ok(Peer { name: "before", program, ..kiln })
    }

    /// The other programs that were asked for, and those of them that cannot run here.
    pub(super) fn others(&self, usage: &str) -> (Vec<Peer>, Vec<Skipped>) {
        let (mut peers, mut skipped) = (Vec::new(), Vec::new());
        for contender in self.comparison.peers {
            if self.options.frameworks.contains(&contender.option) {
                match self.peer(contender, usage) {
                    Ok(peer) => peers.push(peer),
                    Err(reason) => skipped.push(Skipped { name: contender.name, reason }),
                }
            }
        }
        (peers, skipped)
    }

    fn peer(&self, contender: &Contender, usage: &str) -> Result<Peer, String> {
        let caches = self.scratch.join(usage).join(contender.name);
        std::fs::create_dir_all(&caches).map_err(at(&caches))?;
        let (program, folder) = match &contender.program {
            Program::Rust(build) => (self.programs.program(build)?, caches.clone()),
            Program::Python(needs) => {
                missing(needs, self.programs.scripts()).map_or(Ok(()), Err)?;
                (python(), self.programs.scripts().to_owned())
            }
        };
        let mut arguments: Vec<String> = contender.arguments.iter().map(|word| (*word).to_owned()).collect();
        let mut environment = Vec::new();
        if let Some(threads) = self.options.threads {
            arguments.extend(["--threads".to_owned(), threads.to_string()]);
            environment.extend(THREADS.iter().map(|variable| (*variable, threads.to_string())));
        }
        if let Some(backend) = self.options.backend.filter(|_| contender.name == self.comparison.kiln.name) {
            arguments.extend(["--backend".to_owned(), backend.to_owned()]);
        }
        let place = caches.to_string_lossy();
        environment
            .extend(self.comparison.caches.iter().map(|variable| (*variable, place.clone().into_owned())));
        environment.extend(models::variable(self.comparison, self.programs.scripts()));
        Ok(Peer {
            name: contender.name,
            measures_memory: self.options.threads.is_some() && contender.name != TORCH_COMPILE,
            program,
            arguments,
            environment,
            folder,
        })
    }
}

/// The variables that set the number of threads of a framework.
const THREADS: &[&str] =
    &["KILN_NUM_THREADS", "RAYON_NUM_THREADS", "CANDLE_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"];

/// Why a script cannot run.
fn missing(needs: &Needs, folder: &Path) -> Option<String> {
    let python = python();
    let python = python.to_string_lossy();
    if !process::succeeds(process::program(&python, folder).args(["-c", needs.statement])) {
        return Some(format!("{python} does not have it; {}, or set PYTHON", needs.install));
    }
    (needs.compiler && !has_cpp_compiler(folder))
        .then(|| "torch.compile needs a C++ compiler, and there is neither g++ nor clang++".to_owned())
}

fn has_cpp_compiler(folder: &Path) -> bool {
    let named = std::env::var("CXX").into_iter();
    let mut candidates = named.chain(["g++".to_owned(), "clang++".to_owned()]);
    candidates.any(|compiler| process::succeeds(process::program(&compiler, folder).arg("--version")))
}

#[cfg(test)]
mod tests {
    use super::super::compare::VULKAN;
    use super::*;
    use crate::args::Args;

    #[test]
    fn a_missing_package_is_told_with_the_command_that_installs_it() {
        let needs =
            Needs { statement: "import no_such_package", install: "`pip install x`", compiler: false };
        let reason = missing(&needs, Path::new(".")).unwrap();
        assert!(reason.contains("`pip install x`") && reason.contains("PYTHON"), "{reason}");
    }

    #[test]
    fn every_cache_is_in_the_folder_of_a_peer() {
        let scratch = std::env::temp_dir().join(format!("kiln-xtask-caches-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).unwrap();
        std::fs::write(scratch.join("bench-kiln"), "").unwrap();
        let args = Args::default();
        let options = Options::read(&VULKAN, &args).unwrap();
        let peers = Peers {
            comparison: &VULKAN,
            options: &options,
            programs: Programs::packed(scratch.clone()),
            scratch: &scratch,
        };
        let peer = peers.kiln("run").unwrap();
        let folder = scratch.join("run/kiln-vulkan");
        assert!(folder.is_dir());
        std::fs::remove_dir_all(&scratch).unwrap();
        assert_eq!(
            (peer.folder, peer.arguments),
            (folder.clone(), vec!["--device".into(), "vulkan".to_owned()])
        );
        assert!(peer.environment.iter().all(|(_, value)| Path::new(value) == folder));
        assert!(peer.environment.iter().any(|(name, _)| *name == "KILN_CACHE_DIR"));
    }
}
