//! Training through fusion and autodiff on the default adapter: its losses, and the kernels that it compiles. On a machine without an
//! adapter, the tests print the reason and pass.

use kiln::activation::relu;
use kiln::nn::{
    Conv2d, Conv2dConfig, GradientsParams, Linear, LinearConfig, MaxPool2d, MaxPool2dConfig, Module,
};
use kiln::optim::{AdamConfig, Optimizer};
use kiln::{
    Autodiff, AutodiffBackend, Backend, Cpu, CpuDevice, Int, Tensor, TensorData, Wgpu, WgpuDevice, loss,
};
use kiln_wgpu::Api;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const CLASSES: usize = 4;
const SIDE: usize = 12;
const BATCH: usize = 16;

/// A convolutional network like that of the example `mnist`, for smaller images.
#[derive(Module, Clone, Debug)]
struct Net<B: Backend> {
    conv: Conv2d<B>,
    pool: MaxPool2d,
    hidden: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Self {
        Net {
            conv: Conv2dConfig::new([1, 6], [3, 3]).init(device),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            hidden: LinearConfig::new(6 * 5 * 5, 32).init(device),
            output: LinearConfig::new(32, CLASSES).init(device),
        }
    }

    /// Logits `[batch, classes]` of images `[batch, 1, 12, 12]`.
    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let x = self.pool.forward(relu(self.conv.forward(images)));
        self.output.forward(relu(self.hidden.forward(x.flatten(1, 3))))
    }
}

/// Serializes the tests, which count compiled kernels.
fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the default device, unless this machine has no adapter.
fn opened() -> Option<Arc<kiln_wgpu::Wgpu>> {
    match kiln_wgpu::shared(WgpuDevice::Default, Api::Auto) {
        Ok(engine) => Some(engine),
        Err(reason) => {
            println!("skipped: no adapter: {reason}");
            None
        }
    }
}

/// Images of waves, whose direction is their class.
fn batch<B: Backend>(number: usize, device: &B::Device) -> (Tensor<B, 4>, Tensor<B, 1, Int>) {
    let mut pixels: Vec<f32> = Vec::new();
    for image in 0..BATCH {
        let class = image % CLASSES;
        let phase = 0.3 * (number + image) as f32;
        for (y, x) in (0..SIDE * SIDE).map(|place| (place / SIDE, place % SIDE)) {
            pixels.push((0.5 * (x * class + y * (CLASSES - class)) as f32 + phase).sin());
        }
    }
    let targets: Vec<i32> = (0..BATCH).map(|image| (image % CLASSES) as i32).collect();
    let images = TensorData::new(pixels, [BATCH, 1, SIDE, SIDE]).expect("as many as the shape has");
    (Tensor::from_data(images, device), Tensor::from_data(targets, device))
}

/// The loss of each step. Calls `after` with the number of each step that is done.
fn train<B: AutodiffBackend>(device: &B::Device, steps: usize, mut after: impl FnMut(usize)) -> Vec<f32> {
    B::seed(device, 7);
    let mut model = Net::<B>::new(device);
    let mut optimizer = AdamConfig::new().init();
    let mut losses = Vec::new();
    for step in 0..steps {
        let (images, targets) = batch::<B>(step, device);
        let loss = loss::cross_entropy(model.forward(images), targets, &Default::default());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients);
        losses.push(loss.into_scalar::<f32>());
        B::sync(device).expect("the device works");
        after(step);
    }
    losses
}

#[test]
fn a_convolutional_network_trains_as_on_the_cpu() {
    let _alone = alone();
    if opened().is_none() {
        return;
    }
    let found = train::<Autodiff<Wgpu>>(&WgpuDevice::Default, 20, |_| {});
    let expected = train::<Autodiff<Cpu>>(&CpuDevice, 20, |_| {});
    println!("losses {found:?}\nexpected {expected:?}");
    // Only early losses agree; later rounding errors grow.
    for (found, expected) in found.iter().zip(&expected).take(6) {
        assert!((found - expected).abs() < 2e-3 * expected.abs().max(0.1), "{found} instead of {expected}");
    }
    for losses in [&found, &expected] {
        assert!(losses[19] < 0.9 * losses[0], "{losses:?}");
    }
}

/// Trains for some steps. Returns the numbers of compiled kernels and pipelines after each.
fn compiled(engine: &kiln_wgpu::Wgpu, steps: usize) -> Vec<(u64, u64)> {
    let mut counts = Vec::new();
    train::<Autodiff<Wgpu>>(&WgpuDevice::Default, steps, |_| {
        counts.push((engine.compiled_kernels(), engine.driver().compiled_pipelines()));
    });
    println!("kernels and pipelines after each step: {counts:?}");
    assert!(counts[0].0 > 0 && counts[0].1 > 0);
    counts
}

/// Fusion starts repeated steps early, in parts that change until its predictions settle.
#[test]
fn repeated_steps_compile_nothing() {
    const SETTLED: usize = 16;
    let _alone = alone();
    let Some(engine) = opened() else { return };
    let counts = compiled(&engine, SETTLED + 8);
    assert!(counts[SETTLED..].iter().all(|count| *count == counts[SETTLED - 1]), "{counts:?}");
}

/// The first step creates the optimizer's state, which the second one is the first to update.
#[test]
#[ignore = "a child of the test below"]
fn child_process_repeats_steps() {
    if kiln_ir::switch("KILN_HEAD_START", true) {
        return;
    }
    let _alone = alone();
    let Some(engine) = opened() else { return };
    let counts = compiled(&engine, 10);
    assert!(counts[2..].iter().all(|count| *count == counts[1]), "{counts:?}");
    println!("\nchild: {:?} at the end", counts[9]);
}

/// In a process of its own, since the setting is read once.
#[test]
fn the_third_step_compiles_nothing_where_steps_do_not_start_early() {
    if opened().is_some() {
        child("child_process_repeats_steps", "KILN_HEAD_START", Path::new("off"));
    }
}

/// Trains and saves the pipelines.
#[test]
#[ignore = "a child of the tests below"]
fn child_process_trains() {
    let _alone = alone();
    let Some(engine) = opened() else { return };
    train::<Autodiff<Wgpu>>(&WgpuDevice::Default, 2, |_| {});
    let driver = engine.driver();
    let is_saved = driver.save_pipelines();
    let (count, bytes) = (driver.compiled_pipelines(), driver.pipeline_cache_bytes());
    println!("\nchild: {count} pipelines of {bytes:?} bytes, saved: {is_saved}");
}

/// Runs a test in a child process, with an environment variable. Returns the line that it prints, and its errors.
fn child(test: &str, variable: &str, value: &Path) -> [String; 2] {
    let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
    command.args(["--ignored", "--exact", test, "--nocapture"]);
    let output = command.env(variable, value).output().expect("the test runs");
    let [text, errors] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{text}\n{errors}");
    let line = text.lines().find(|line| line.starts_with("child: "));
    [line.unwrap_or_else(|| panic!("{text}\n{errors}")).to_owned(), errors]
}

/// Trains in a child process with a cache directory.
fn trained(cache: &Path) -> [String; 2] {
    child("child_process_trains", "KILN_CACHE_DIR", cache)
}

/// A new folder for the test.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("kiln-pipelines-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
    folder
}

/// The files in a folder and its folders, with their contents.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let contents = std::fs::read(&path).expect("a readable file");
            found.insert(path, contents);
        }
    }
    found
}

/// Whether the default adapter has a pipeline cache; otherwise prints the reason.
fn has_pipeline_cache() -> bool {
    let Some(engine) = opened() else { return false };
    let has = engine.driver().device().features().contains(kiln_wgpu::wgpu::Features::PIPELINE_CACHE);
    if !has {
        println!("skipped: the API has no pipeline cache");
    }
    has
}

#[test]
fn a_second_process_adds_nothing_to_the_pipelines_on_disk() {
    if !has_pipeline_cache() {
        return;
    }
    let cache = folder("kept");
    let [line, _] = trained(&cache);
    assert!(line.ends_with("saved: true") && !line.contains("None"), "{line}");
    let kept = files(&cache);
    assert_eq!(kept.len(), 1, "{:?}", kept.keys());
    assert_eq!(trained(&cache)[0], line);
    assert_eq!(files(&cache), kept);
    std::fs::remove_dir_all(&cache).expect("the folder was made here");
}

#[test]
fn damaged_pipelines_on_disk_are_ignored_and_replaced() {
    if !has_pipeline_cache() {
        return;
    }
    let cache = folder("damaged");
    let [line, _] = trained(&cache);
    let (path, whole) = files(&cache).pop_first().expect("the pipelines were saved");
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let truncated = whole[..whole.len() / 2].to_vec();
    // A driver that compiles again may write a few bytes more or less.
    let pipelines = |line: &str| line.split_once(" of ").map(|(pipelines, _)| pipelines.to_owned());
    for damaged in [truncated, flipped(0), flipped(20), flipped(whole.len() - 1), Vec::new()] {
        std::fs::write(&path, &damaged).expect("the folder was made here");
        let [again, _] = trained(&cache);
        assert!(again.ends_with("saved: true"), "{again}");
        assert_eq!(pipelines(&again), pipelines(&line));
        assert_ne!(std::fs::read(&path).expect("it is replaced"), damaged);
    }
    std::fs::remove_dir_all(&cache).expect("the folder was made here");
}

#[test]
fn training_needs_no_cache_directory() {
    if !has_pipeline_cache() {
        return;
    }
    let [line, errors] = trained(Path::new(""));
    assert!(line.contains("None") && line.ends_with("saved: false"), "{line}");
    assert!(!errors.contains("KILN_CACHE_DIR"), "{errors}");
    // A file is in the way.
    let folder = folder("unwritable");
    let file = folder.join("file");
    std::fs::write(&file, "in the way").expect("the folder was made here");
    let [line, errors] = trained(&file.join("cache"));
    assert!(line.ends_with("saved: false"), "{line}");
    assert!(errors.contains("KILN_CACHE_DIR keeps no pipelines"), "{errors}");
    std::fs::remove_dir_all(&folder).expect("the folder was made here");
}
