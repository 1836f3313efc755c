//! Every kernel that the suite's cases launch is valid WGSL, and naga writes it as SPIR-V, HLSL and MSL. Needs no GPU and
//! no compiler of a vendor: nothing compiles HLSL and MSL further here. HLSL has no cooperative matrices.

use kiln_fusion::{Fusion, Mode};
use kiln_gpu::driver::CooperativeMatrix;
use kiln_gpu::{DeviceInfo, DryDriver, Gpu};
use kiln_ir::{DType, DTypeSet, Engine, Expand, MemoryConfig};
use kiln_kernel::print::{Dialect, Target, split_tensors};
use kiln_suite::cases::Group;
use kiln_suite::engines::{Neighbours, Subject};
use kiln_suite::run::{Stack, values};
use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The dtypes that WGSL has in every browser.
const BROWSER_DTYPES: DTypeSet = DTypeSet::of(&[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool,
]);

/// The smallest number of different kernels that the cases make: fewer would mean that they are not collected.
const LEAST: usize = 1000;

/// The cooperative matrices of an adapter, here Apple's, which MSL can express.
const MATRICES: CooperativeMatrix =
    CooperativeMatrix { rows: 8, columns: 8, inner: 8, factors: DType::F16, sums: DType::F32, threads: 32 };

/// The sources of the kernels for one kind of device.
type Sources = Mutex<BTreeSet<String>>;

/// Those for an adapter with dtypes of 64 bits.
static NATIVE: Sources = Mutex::new(BTreeSet::new());

/// Those for a browser.
static BROWSER: Sources = Mutex::new(BTreeSet::new());

fn native() -> Arc<dyn Engine> {
    let language = Target { dialect: Dialect::Wgsl, dtypes: DTypeSet::ALL, atomics_64: false };
    let info = DeviceInfo {
        name: "wgpu:dry".to_owned(),
        language,
        shared_bytes: 32 << 10,
        bindings: Some(32),
        binding_bytes: Some(128 << 20),
        cooperative_matrices: vec![MATRICES],
        ..DeviceInfo::absent("wgsl dry")
    };
    dry(info, &NATIVE)
}

fn browser() -> Arc<dyn Engine> {
    let language = Target { dialect: Dialect::Wgsl, dtypes: BROWSER_DTYPES, atomics_64: false };
    let info = DeviceInfo {
        name: "webgpu:dry".to_owned(),
        language,
        block_threads: 256,
        shared_bytes: 16 << 10,
        bindings: Some(8),
        binding_bytes: Some(128 << 20),
        ..DeviceInfo::absent("wgsl dry")
    };
    dry(info, &BROWSER)
}

/// An engine that runs nothing and notes the sources of its kernels.
fn dry(info: DeviceInfo, sources: &'static Sources) -> Arc<dyn Engine> {
    let note = |source: &str| {
        sources.lock().unwrap_or_else(PoisonError::into_inner).insert(source.to_owned());
        Ok(Vec::new())
    };
    Arc::new(Expand::new(Gpu::new(DryDriver::new(info, note), MemoryConfig::new())))
}

fn among(engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
    Arc::new(Neighbours(Arc::new(Fusion::with_mode(engine, Mode::On))))
}

const SUBJECTS: [(Subject, Stack); 4] = [
    (Subject { name: "dry wgpu", open: native, ignored: &[] }, Stack::Plain),
    (Subject { name: "fusion over dry wgpu", open: || among(native()), ignored: &[] }, Stack::Plain),
    (Subject { name: "dry browser", open: browser, ignored: &[] }, Stack::Plain),
    (Subject { name: "fusion over dry browser", open: || among(browser()), ignored: &[] }, Stack::Plain),
];

/// One of so many sources is also checked with all tensors in parts.
const SELDOM: usize = 8;

/// Validates a source with all tensors in parts.
fn check_split(source: &str, capabilities: Capabilities) -> Result<(), String> {
    let split = split_tensors(source, &[2; 32], 1 << 27);
    validate(&split.map_err(|lack| format!("is not split: {lack}\n{source}"))?, capabilities).map(drop)
}

/// Validates a source and writes it in the languages of the other APIs. Returns whether MSL can express it: Metal has no
/// `f64`.
fn check(source: &str, capabilities: Capabilities) -> Result<bool, String> {
    let (module, info) = validate(source, capabilities)?;
    let failed =
        |language: &str, error: &dyn std::fmt::Debug| format!("is no {language}: {error:?}\n{source}");
    let is_cooperative = source.contains("wgpu_cooperative_matrix");
    let mut options = spv::Options::default();
    if is_cooperative {
        options.lang_version = (1, 6);
    }
    spv::write_vec(&module, &info, &options, None).map_err(|error| failed("SPIR-V", &error))?;
    if !is_cooperative {
        write_hlsl(&module, &info).map_err(|error| failed("HLSL", &error))?;
    }
    let has_f64 = source.contains("f64");
    if !has_f64 {
        write_msl(&module, &info).map_err(|error| failed("MSL", &error))?;
    }
    Ok(!has_f64)
}

fn validate(source: &str, capabilities: Capabilities) -> Result<(naga::Module, ModuleInfo), String> {
    let module = naga::front::wgsl::parse_str(source)
        .map_err(|error| format!("is no WGSL: {}\n{source}", error.emit_to_string(source)))?;
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .map_err(|error| format!("is no valid WGSL: {}\n{source}", error.emit_to_string(source)))?;
    Ok((module, info))
}

fn write_hlsl(module: &naga::Module, info: &ModuleInfo) -> Result<String, hlsl::Error> {
    let options = hlsl::Options { shader_model: hlsl::ShaderModel::V6_6, ..hlsl::Options::default() };
    let pipeline = hlsl::PipelineOptions::default();
    let mut text = String::new();
    hlsl::Writer::new(&mut text, &options, &pipeline).write(module, info, None)?;
    Ok(text)
}

fn write_msl(module: &naga::Module, info: &ModuleInfo) -> Result<String, String> {
    let options = msl::Options { lang_version: (2, 4), ..msl::Options::default() };
    let (text, translated) = msl::write_string(module, info, &options, &msl::PipelineOptions::default())
        .map_err(|error| format!("{error:?}"))?;
    // Errors of single entry points are not errors of the module.
    match translated.entry_point_names.into_iter().find_map(Result::err) {
        Some(error) => Err(format!("{error:?}")),
        None => Ok(text),
    }
}

/// Calls a function with each source and its number, on all processors. The order of the results is another.
fn on_all_processors<R: Send>(sources: &[String], body: impl Fn(usize, &str) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let some = &|first: usize| {
        let own = sources.iter().enumerate().skip(first).step_by(threads);
        own.map(|(number, source)| body(number, source)).collect::<Vec<R>>()
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|first| scope.spawn(move || some(first))).collect();
        let results = workers.into_iter().map(|worker| worker.join());
        results.flat_map(|results| results.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

fn check_all(name: &str, sources: &Sources, capabilities: Capabilities) {
    let sources = std::mem::take(&mut *sources.lock().unwrap_or_else(PoisonError::into_inner));
    let sources: Vec<String> = sources.into_iter().collect();
    let outcomes = on_all_processors(&sources, |number, source| {
        if number % SELDOM == 0 {
            check_split(source, capabilities)?;
        }
        check(source, capabilities)
    });
    let in_msl = outcomes.iter().filter(|outcome| matches!(outcome, Ok(true))).count();
    println!("{name}: {} sources in WGSL, SPIR-V and HLSL, {in_msl} of them in MSL", sources.len());
    let problems: Vec<&String> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!(
        problems.is_empty(),
        "{} sources of {name} are not valid; the first {}",
        problems.len(),
        problems[0]
    );
    assert!(sources.len() >= LEAST, "{name}: only {} sources were collected", sources.len());
}

#[test]
fn every_kernel_is_valid_in_the_languages_of_all_apis() {
    // Nothing runs on the dry devices, so the values that the cases read are wrong.
    thread::scope(|scope| {
        for group in Group::ALL {
            scope.spawn(move || drop(values(&SUBJECTS, group)));
        }
    });
    check_all("wgpu", &NATIVE, Capabilities::all());
    check_all("browser", &BROWSER, Capabilities::empty());
}
