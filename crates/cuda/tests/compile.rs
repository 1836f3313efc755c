//! Every kernel of the suite compiles for a GPU. Needs the compiler, but no GPU: `pip install nvidia-cuda-nvrtc`.
//!
//! `cargo test -p kiln-cuda --test cuda compile -- --ignored` runs it.

use kiln_fusion::{Fusion, Mode};
use kiln_gpu::{DeviceInfo, DryDriver, Gpu};
use kiln_ir::{Engine, Expand};
use kiln_suite::cases::Group;
use kiln_suite::engines::{Neighbours, Subject};
use kiln_suite::run::{Stack, grads, values};
use std::sync::{Arc, Mutex, PoisonError};

/// The target architecture: Hopper, with its architecture-specific instructions.
const ARCHITECTURE: &str = "sm_90a";

static PROBLEMS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn dry() -> Arc<dyn Engine> {
    Arc::new(Expand::new(engine()))
}

/// The same with block kernels in the place of hand-written CUDA.
fn blocks() -> Arc<dyn Engine> {
    Arc::new(Expand::new(engine().with_native_kernels(false)))
}

fn engine() -> Gpu<DryDriver> {
    let info = DeviceInfo::absent(format!("cuda {ARCHITECTURE} dry"));
    let compile = |source: &str| {
        let compiled = kiln_cuda::compile(source, ARCHITECTURE);
        if let Err(error) = &compiled {
            PROBLEMS.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string());
        }
        compiled
    };
    Gpu::new(DryDriver::new(info, compile), kiln_ir::MemoryConfig::new())
}

fn fused() -> Arc<dyn Engine> {
    Arc::new(Fusion::with_mode(dry(), Mode::On))
}

const PLAIN: Subject = Subject { name: "dry", open: dry, ignored: &[] };
const BLOCKS: Subject = Subject { name: "dry, block kernels", open: blocks, ignored: &[] };
const FUSED: Subject = Subject { name: "fusion over dry", open: fused, ignored: &[] };
const AMONG: Subject = Subject {
    name: "fusion over dry, among neighbours",
    open: || Arc::new(Neighbours(fused())),
    ignored: &[],
};

/// Compiles the kernels of a group. Nothing runs, so that only compile errors are failures.
fn compiles(group: Group) {
    drop(values(&[(PLAIN, Stack::Plain), (BLOCKS, Stack::Plain), (AMONG, Stack::Plain)], group));
    drop(grads(&FUSED, group));
    let problems = PROBLEMS.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(problems.is_empty(), "{} kernels do not compile; the first:\n{}", problems.len(), problems[0]);
}

kiln_suite::group_tests!(
    compiles,
    ignored: "needs NVRTC",
    nothing_compiles Nothing, unary_compiles Unary, binary_compiles Binary, views_compile View,
    reductions_compile Reduce, indices_compile Index, contractions_compile Contraction,
    composites_compile Composite, edges_compile Edge
);
