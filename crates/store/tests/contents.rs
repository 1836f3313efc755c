//! Checkpoints of several modules, optimizers and groups of tensors.

mod background;
mod series;
mod tied;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kiln_backends::{Cpu, Flex};
use kiln_nn::{GradientsParams, Module, Param};
use kiln_optim::{Adam, AdamConfig, Optimizer, SgdConfig};
use kiln_store::{Checkpoint, CheckpointContents, CheckpointWriter, StoreError, TrainingState};
use kiln_tensor::random::KeyState;
use kiln_tensor::{Autodiff, AutodiffBackend, Backend, DType, Shape, Tensor, TensorData, TensorType};
use tempfile::TempDir;

type B = Autodiff<Flex>;

#[derive(Clone, Debug, Module)]
struct Weights<B: Backend> {
    weight: Param<Tensor<B, 1>>,
}

impl<B: Backend> Weights<B> {
    fn values(&self) -> Vec<f32> {
        self.weight.val().into_data().to_vec()
    }
}

/// Weights filled with one number.
fn weights<B: Backend>(number: f32, elements: usize) -> Weights<B> {
    let values = vec![number; elements];
    Weights { weight: Param::from_tensor(Tensor::from_floats(values.as_slice(), &Default::default())) }
}

/// One step with gradients of 1.
fn step<B: AutodiffBackend>(optimizer: &mut impl Optimizer, net: Weights<B>) -> Weights<B> {
    let gradients = GradientsParams::from_grads(net.weight.val().sum().backward(), &net);
    optimizer.step(0.5, net, gradients)
}

/// An optimizer after some steps.
fn adam_after(steps: usize, net: &Weights<B>) -> Adam {
    let mut adam = AdamConfig::new().init();
    (0..steps).for_each(|_| drop(step(&mut adam, net.clone())));
    adam
}

fn state_of(optimizer: &dyn Optimizer, module: &dyn Module) -> BTreeMap<String, TensorData> {
    optimizer.state(module).unwrap().into_tensors().unwrap().into_iter().collect()
}

/// Contents with one model, whose weights and step are this number.
fn numbered(number: u64) -> CheckpointContents {
    let net: Weights<B> = weights(number as f32, 100);
    let state = TrainingState::of(&net).at(0, number);
    CheckpointContents::new(state).with_module("model", &net).unwrap()
}

/// The step of a checkpoint of [`numbered`]. Checks that its weights are of that step.
fn number_in(folder: &Path) -> u64 {
    let checkpoint = Checkpoint::open(folder).unwrap();
    let net = checkpoint.load_module(weights::<B>(-1.0, 100)).unwrap();
    assert_eq!(net.values(), [checkpoint.state().step as f32; 100]);
    checkpoint.state().step
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn scratch() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    (folder, path)
}

fn write(folder: &Path, contents: &CheckpointContents) -> Result<(), StoreError> {
    CheckpointWriter::open(folder)?.write(contents)
}

#[test]
fn several_modules_and_optimizers_are_restored() {
    let (_folder, path) = scratch();
    let (generator, critic): (Weights<B>, Weights<B>) = (weights(1.0, 3), weights(2.0, 5));
    let (adam, other_adam) = (adam_after(1, &generator), adam_after(2, &critic));
    let stream = KeyState { seed: u64::MAX, drawn: 7 };
    let state = TrainingState::of_modules(&[&generator, &critic]).at(3, 40).with_stream("shuffle", stream);
    let contents = CheckpointContents::new(state.clone())
        .with_module("model", &generator)
        .and_then(|contents| contents.with_module("critic", &critic))
        .and_then(|contents| contents.with_optimizer("optimizer", &adam, &generator))
        .and_then(|contents| contents.with_optimizer("critic", &other_adam, &critic))
        .unwrap();
    write(&path, &contents).unwrap();
    let files = [
        "model-critic.safetensors",
        "model.safetensors",
        "optimizer-critic.safetensors",
        "optimizer.safetensors",
        "training.json",
    ];
    assert_eq!(names(&path), files);

    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.module_names(), ["critic", "model"]);
    assert_eq!(checkpoint.optimizer_names(), ["critic", "optimizer"]);
    assert!(checkpoint.tensor_names().is_empty() && checkpoint.has_optimizer());
    assert_eq!((checkpoint.state(), checkpoint.state().stream("shuffle")), (&state, Some(stream)));
    checkpoint.state().restore_random_of(&[&generator, &critic]).unwrap();
    let mut loaded: Weights<B> = weights(0.0, 5);
    checkpoint.load_module_into("critic", &mut loaded).unwrap();
    assert_eq!(loaded.values(), [2.0; 5]);
    assert_eq!(checkpoint.load_module(weights::<B>(0.0, 3)).unwrap().values(), [1.0; 3]);
    let mut fresh = AdamConfig::new().init();
    checkpoint.load_named_optimizer("critic", &mut fresh, &loaded).unwrap();
    assert_eq!(state_of(&fresh, &loaded), state_of(&other_adam, &critic));
    checkpoint.load_optimizer(&mut fresh, &generator).unwrap();
    assert_eq!(state_of(&fresh, &generator), state_of(&adam, &generator));

    // A checkpoint with other parts replaces it, and leaves none of its files.
    write(&path, &numbered(5)).unwrap();
    assert_eq!(names(&path), ["model.safetensors", "training.json"]);
    assert_eq!(number_in(&path), 5);
}

#[test]
fn unknown_names_are_errors_that_list_the_names() {
    let (_folder, path) = scratch();
    let tensors = BTreeMap::from([("x".to_owned(), TensorData::from([1.0f32]))]);
    let contents = numbered(1).with_tensors("accuracy", tensors.clone()).unwrap();
    write(&path, &contents.with_tensors("loss", tensors).unwrap()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let error = checkpoint.tensors("losses").unwrap_err().to_string();
    let expected = "run: no group of tensors `losses` in the checkpoint; it has `accuracy`, `loss`";
    assert!(error.ends_with(expected), "{error}");
    let mut net: Weights<B> = weights(0.0, 100);
    let error = checkpoint.load_module_into("../model", &mut net).unwrap_err().to_string();
    assert!(error.ends_with("no module `../model` in the checkpoint; it has `model`"), "{error}");
    let error = checkpoint.load_optimizer(&mut AdamConfig::new().init(), &net).unwrap_err();
    assert!(matches!(error, StoreError::NoSuchPart { .. }));
    assert!(
        error.to_string().ends_with("no optimizer `optimizer` in the checkpoint; it has none"),
        "{error}"
    );
}

#[test]
fn names_are_checked() {
    let net: Weights<B> = weights(1.0, 3);
    let new = || CheckpointContents::new(TrainingState::default());
    for name in ["", "Model", "a-b", "../x", "a/b", "a.b", "é", &"a".repeat(65)] {
        let error = new().with_module(name, &net).unwrap_err();
        assert!(matches!(error, StoreError::InvalidArgument { .. }));
        assert!(error.to_string().ends_with("use 1 to 64 characters of a-z, 0-9 and _"), "{error}");
        assert!(new().with_tensors(name, BTreeMap::new()).is_err());
        assert!(new().with_optimizer(name, &AdamConfig::new().init(), &net).is_err());
    }
    let twice = new().with_module("ema", &net).unwrap().with_module("ema", &net).unwrap_err().to_string();
    assert_eq!(twice, "the name `ema` of a module: it is used twice; use another name");
    // Other kinds have names of their own.
    new().with_module("ema", &net).unwrap().with_tensors("ema", BTreeMap::new()).unwrap();
    let reserved = BTreeMap::from([("__metadata__".to_owned(), TensorData::from([1.0f32]))]);
    assert!(new().with_tensors("x", reserved).unwrap_err().to_string().contains("reserves this name"));
    let many = (0..64).try_fold(new(), |contents, n| contents.with_module(&format!("m{n}"), &net)).unwrap();
    let error = many.clone().with_module("one_more", &net).unwrap_err().to_string();
    assert!(
        error.contains("a checkpoint has at most 64 modules, optimizers and groups of tensors"),
        "{error}"
    );
    let (_folder, path) = scratch();
    write(&path, &many).unwrap();
    assert_eq!(Checkpoint::open(&path).unwrap().module_names().len(), 64);
}

#[test]
fn tensors_are_stored_bit_for_bit() {
    let (_folder, path) = scratch();
    let not_a_number = f64::from_bits(0x7FF8_0000_DEAD_BEEF);
    let floats = vec![not_a_number, -0.0, f64::MIN_POSITIVE / 3.0, f64::INFINITY, 0.1];
    let bits: Vec<u64> = floats.iter().map(|x| x.to_bits()).collect();
    let empty = |dtype| TensorData::zeros(TensorType { shape: Shape::new([0, 3]), dtype });
    let tensors = BTreeMap::from([
        ("f64".to_owned(), TensorData::new(floats, [5]).unwrap()),
        ("i64".to_owned(), TensorData::from([[i64::MIN, -1], [0, i64::MAX]])),
        ("u64".to_owned(), TensorData::scalar(u64::MAX)),
        ("u8".to_owned(), TensorData::from([0u8, 255, 3])),
        ("bool".to_owned(), TensorData::from([true, false])),
        ("f32".to_owned(), TensorData::from([f32::MIN_POSITIVE, 1.0e-45])),
        ("empty.f64".to_owned(), empty(DType::F64)),
        ("empty.u8".to_owned(), empty(DType::U8)),
        ("naïve \"name\"/../.".to_owned(), TensorData::from([1i8])),
    ]);
    let contents = CheckpointContents::new(TrainingState::default())
        .with_tensors("metrics", tensors.clone())
        .and_then(|contents| contents.with_tensors("nothing", BTreeMap::new()))
        .unwrap();
    write(&path, &contents).unwrap();
    assert_eq!(names(&path), ["tensors-metrics.safetensors", "tensors-nothing.safetensors", "training.json"]);
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.tensor_names(), ["metrics", "nothing"]);
    let read = checkpoint.tensors("metrics").unwrap();
    assert_eq!(read.keys().collect::<Vec<_>>(), tensors.keys().collect::<Vec<_>>());
    for (name, data) in &tensors {
        assert_eq!((read[name].ty(), read[name].bytes()), (data.ty(), data.bytes()), "{name}");
    }
    let read: Vec<u64> = read["f64"].to_vec::<f64>().iter().map(|x| x.to_bits()).collect();
    assert_eq!(read, bits);
    assert!(checkpoint.tensors("nothing").unwrap().is_empty());
}

/// Steps after the contents were taken, on one thread and on another, must not change them.
fn contents_are_unchanged_by_steps<B: AutodiffBackend>() {
    fn is_send<T: Send + 'static>(contents: T) -> T {
        contents
    }
    let (_folder, path) = scratch();
    // Long enough for kernels that run in parallel.
    let mut net: Weights<B> = weights(1.0, 50_000);
    let mut sgd = SgdConfig::new().with_momentum(0.5).init();
    net = step(&mut sgd, net);
    let contents = CheckpointContents::new(TrainingState::of(&net))
        .with_module("model", &net)
        .and_then(|contents| contents.with_optimizer("optimizer", &sgd, &net))
        .unwrap();
    let contents = is_send(contents);
    net = step(&mut sgd, net);
    net.weight = net.weight.map(|weight| (weight.detach() * 3.0 + 1.0).require_grad());
    let later = net.values();
    assert_ne!(later[0], 0.5);
    let folder = path.clone();
    std::thread::spawn(move || write(&folder, &contents).unwrap()).join().unwrap();
    assert_eq!(net.values(), later);

    let checkpoint = Checkpoint::open(&path).unwrap();
    let loaded = checkpoint.load_module(weights::<B>(0.0, 50_000)).unwrap();
    assert!(loaded.values().iter().all(|&value| value == 0.5));
    let mut loaded_sgd = SgdConfig::new().with_momentum(0.5).init();
    checkpoint.load_optimizer(&mut loaded_sgd, &loaded).unwrap();
    let buffer = &state_of(&loaded_sgd, &loaded)["weight.momentum_buffer"];
    assert!(buffer.to_vec::<f32>().iter().all(|&value| value == 1.0));
    // From there, training continues as it did.
    assert_eq!(step(&mut loaded_sgd, loaded).values()[0], 0.5 - 0.5 * 1.5);
}

#[test]
fn contents_are_unchanged_by_later_steps() {
    contents_are_unchanged_by_steps::<Autodiff<Flex>>();
    contents_are_unchanged_by_steps::<Autodiff<Cpu>>();
}

#[test]
fn only_listed_files_are_replaced() {
    let (_folder, path) = scratch();
    let net: Weights<B> = weights(1.0, 3);
    let contents = numbered(1).with_module("ema", &net).unwrap();
    write(&path, &contents).unwrap();
    write(&path, &contents).unwrap();
    // A name that a checkpoint may have, but that this one does not list.
    let best = path.join("model-best.safetensors");
    fs::copy(path.join("model.safetensors"), &best).unwrap();
    let error = write(&path, &contents).unwrap_err();
    assert!(matches!(error, StoreError::NotReplaced { .. }));
    assert!(error.to_string().contains("a folder with `model-best.safetensors`"), "{error}");
    assert!(best.exists());
    fs::remove_file(&best).unwrap();
    for name in
        ["model-EMA.safetensors", "model-a-b.safetensors", "tensors.safetensors", "models-x.safetensors"]
    {
        let other = path.join(name);
        fs::write(&other, "").unwrap();
        assert!(matches!(write(&path, &contents), Err(StoreError::NotReplaced { .. })), "{name}");
        fs::remove_file(&other).unwrap();
    }
    // A damaged index lists nothing.
    fs::write(path.join("training.json"), "{}").unwrap();
    let error = write(&path, &contents).unwrap_err().to_string();
    assert!(error.contains("a folder with `model-ema.safetensors`"), "{error}");
}

#[cfg(unix)]
#[test]
fn an_open_checkpoint_reads_all_files_of_one_save() {
    let (_folder, path) = scratch();
    let with = |number: u64| {
        let tensors = BTreeMap::from([("number".to_owned(), TensorData::scalar(number))]);
        let net: Weights<B> = weights(number as f32, 100);
        let contents = numbered(number).with_module("ema", &net).unwrap();
        contents.with_tensors("numbers", tensors).unwrap()
    };
    let check = |checkpoint: &Checkpoint| {
        let number = checkpoint.state().step;
        let mut net: Weights<B> = weights(-1.0, 100);
        for name in ["model", "ema"] {
            checkpoint.load_module_into(name, &mut net).unwrap();
            assert_eq!(net.values()[0], number as f32);
        }
        assert_eq!(checkpoint.tensors("numbers").unwrap()["number"], TensorData::scalar(number));
    };
    write(&path, &with(0)).unwrap();
    let first = Checkpoint::open(&path).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| (0..50).for_each(|_| check(&Checkpoint::open(&path).unwrap())));
        let mut writer = CheckpointWriter::open(&path).unwrap();
        for number in 1.. {
            writer.write(&with(number)).unwrap();
            if reader.is_finished() {
                break;
            }
        }
        reader.join().unwrap();
    });
    fs::remove_dir_all(&path).unwrap();
    check(&first);
}

#[test]
fn damage_of_each_file_is_found() {
    let (_folder, path) = scratch();
    let tensors = BTreeMap::from([("x".to_owned(), TensorData::from([1.0f64]))]);
    let net: Weights<B> = weights(1.0, 100);
    let contents =
        numbered(1).with_module("ema", &net).unwrap().with_tensors("loss", tensors.clone()).unwrap();
    write(&path, &contents).unwrap();
    let load = || -> Result<(), StoreError> {
        let checkpoint = Checkpoint::open(&path)?;
        checkpoint.load_module_into("ema", &mut weights::<B>(0.0, 100))?;
        assert_eq!(checkpoint.tensors("loss")?, tensors);
        Ok(())
    };
    for name in ["model-ema.safetensors", "tensors-loss.safetensors", "training.json"] {
        let file = path.join(name);
        let good = fs::read(&file).unwrap();
        for place in 0..good.len() {
            let mut bytes = good.clone();
            bytes[place] ^= 1 << (place % 8);
            fs::write(&file, &bytes).unwrap();
            let error = load().unwrap_err().to_string();
            assert!(error.contains(name), "{name}, byte {place}: {error}");
        }
        fs::remove_file(&file).unwrap();
        assert!(load().unwrap_err().to_string().contains(&format!("{name}: cannot read")));
        fs::write(&file, &good).unwrap();
        load().unwrap();
    }
}
