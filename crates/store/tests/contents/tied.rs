//! Parameters that a module holds in two places, in files.

use std::collections::BTreeMap;
use std::fs;

use kiln_backends::Flex;
use kiln_nn::{GradientsParams, Module, Param, ParameterRole};
use kiln_optim::{AdamConfig, Optimizer};
use kiln_store::{
    Checkpoint, CheckpointContents, CheckpointWriter, DTypePolicy, LoadOptions, Mapping, SaveOptions,
    TensorFile, TrainingState, Weights, load_module, load_module_with, save_module, save_module_sharded,
    save_tensors,
};
use kiln_tensor::{Autodiff, Backend, DType, Tensor, TensorData};

type B = Autodiff<Flex>;

#[derive(Clone, Debug, Module)]
struct Model<B: Backend> {
    embed: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
    head: Param<Tensor<B, 2>>,
}

/// A model whose places are two parameters.
fn untied(number: f32) -> Model<B> {
    let device = Default::default();
    let weight = |x: f32| Param::from_tensor(Tensor::from_floats([[x, 2.0 * x], [-x, 0.5]], &device));
    Model {
        embed: weight(number),
        bias: Param::from_tensor(Tensor::ones([2], &device)),
        head: weight(-number),
    }
}

fn tied(number: f32) -> Model<B> {
    let mut model = untied(number);
    model.head = model.embed.clone();
    model
}

fn numbers(weight: &Param<Tensor<B, 2>>) -> Vec<f32> {
    weight.to_data().to_vec()
}

#[track_caller]
fn assert_tied(model: &Model<B>, expected: &[f32]) {
    assert_eq!((numbers(&model.embed), numbers(&model.head)), (expected.to_vec(), expected.to_vec()));
    assert_eq!(model.embed.as_any().value().address(), model.head.as_any().value().address());
    assert_eq!((model.head.role(), model.num_parameters()), (ParameterRole::Trainable, 6));
}

fn data(number: f32) -> TensorData {
    untied(number).embed.to_data()
}

#[test]
fn a_tied_parameter_is_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let model = tied(3.0);
    save_module(&model, &path).unwrap();
    let file = TensorFile::open(&path).unwrap();
    assert_eq!(file.names().collect::<Vec<_>>(), ["bias", "embed"]);
    assert_eq!(file.metadata().get("head").map(String::as_str), Some("embed"));

    let loaded = load_module(tied(1.0), &path).unwrap();
    assert_tied(&loaded, &numbers(&model.embed));
    // A model that does not tie them finds both.
    let loaded = load_module(untied(1.0), &path).unwrap();
    assert_eq!(
        (numbers(&loaded.embed), numbers(&loaded.head)),
        (numbers(&model.embed), numbers(&model.head))
    );
    assert_eq!(loaded.num_parameters(), 10);

    let sharded = folder.path().join("sharded");
    save_module_sharded(&model, &sharded, &SaveOptions::new().max_shard_bytes(16)).unwrap();
    assert_tied(&load_module(tied(1.0), &sharded).unwrap(), &numbers(&model.embed));
    assert_eq!(numbers(&load_module(untied(1.0), &sharded).unwrap().head), numbers(&model.embed));
}

#[test]
fn a_note_of_a_tie_is_no_unused_tensor() {
    #[derive(Clone, Debug, Module)]
    struct Part<B: Backend> {
        bias: Param<Tensor<B, 1>>,
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save_module(&tied(3.0), &path).unwrap();
    let part = Part { bias: Param::from_tensor(Tensor::<B, 1>::zeros([2], &Default::default())) };
    let (_, report) = load_module_with(part.clone(), &path, &LoadOptions::new().partial()).unwrap();
    assert_eq!((report.loaded, report.unexpected), (vec!["bias".to_string()], vec!["embed".to_string()]));
    // Under other names.
    let options = LoadOptions::new().rename(|name| Some(name.replace("embed", "e").replace("head", "h")));
    let (_, report) = load_module_with(part, &path, &options.partial()).unwrap();
    assert_eq!(report.unexpected, ["embed"]);
}

#[test]
fn a_tied_parameter_is_loaded_from_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let bias = ("bias".to_string(), TensorData::from([1.0f32, 1.0]));
    for names in [&["embed"][..], &["head"], &["embed", "head"]] {
        let tensors = names.iter().map(|name| (name.to_string(), data(7.0))).chain([bias.clone()]);
        save_tensors(&path, tensors, &BTreeMap::new()).unwrap();
        let (loaded, report) = load_module_with(tied(1.0), &path, &LoadOptions::new()).unwrap();
        assert_tied(&loaded, &data(7.0).to_vec::<f32>());
        assert_eq!(report.loaded, ["bias", "embed"]);
        assert_eq!(report.to_string(), "loaded 2 of 2 parameters and buffers");
        let gradients =
            GradientsParams::from_grads((loaded.embed.val() * loaded.head.val()).sum().backward(), &loaded);
        assert_eq!(gradients.len(), 1);
    }
    save_tensors(&path, [bias.clone()], &BTreeMap::new()).unwrap();
    let error = load_module(tied(1.0), &path).unwrap_err().to_string();
    assert!(error.contains("missing in the file:\n    `embed`\n"), "{error}");
}

#[test]
fn different_tensors_of_a_tied_parameter_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let tensors = |head: TensorData| {
        let bias = TensorData::from([1.0f32, 1.0]);
        [("embed", data(7.0)), ("head", head), ("bias", bias)].map(|(name, data)| (name.to_string(), data))
    };
    save_tensors(&path, tensors(data(8.0)), &BTreeMap::new()).unwrap();
    for options in [LoadOptions::new(), LoadOptions::new().copy(true), LoadOptions::new().partial()] {
        let error = load_module_with(tied(1.0), &path, &options).unwrap_err().to_string();
        assert!(error.contains("`embed` and `head` differ, but the module ties them"), "{error}");
    }
    let without = |name: &str| LoadOptions::new().mapping(Mapping::new().exclude(name).unwrap());
    let (loaded, _) = load_module_with(tied(1.0), &path, &without("embed")).unwrap();
    assert_tied(&loaded, &data(8.0).to_vec::<f32>());
    let (loaded, _) = load_module_with(tied(1.0), &path, &without("head")).unwrap();
    assert_tied(&loaded, &data(7.0).to_vec::<f32>());

    // Equal after a cast, and of another shape.
    save_tensors(&path, tensors(data(7.0).convert(DType::F64)), &BTreeMap::new()).unwrap();
    let options = LoadOptions::new().dtype(DTypePolicy::Cast);
    assert_tied(&load_module_with(tied(1.0), &path, &options).unwrap().0, &data(7.0).to_vec::<f32>());
    save_tensors(&path, tensors(TensorData::from([1.0f32])), &BTreeMap::new()).unwrap();
    let error = load_module(tied(1.0), &path).unwrap_err().to_string();
    assert!(error.contains("`head` is f32[2, 2] in the module, f32[1] in the file"), "{error}");
}

#[test]
fn a_mapping_may_take_both_names_from_one_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let tensors = [("embed", data(7.0)), ("bias", TensorData::from([1.0f32, 1.0]))];
    save_tensors(&path, tensors.map(|(name, data)| (name.to_string(), data)), &BTreeMap::new()).unwrap();
    let options = LoadOptions::new().mapping(Mapping::new().tie("head", "embed").unwrap());
    assert_tied(&load_module_with(tied(1.0), &path, &options).unwrap().0, &data(7.0).to_vec::<f32>());
}

#[test]
fn conversions_keep_ties() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let model = tied(3.0);
    save_module(&model, &path).unwrap();
    for name in ["copy.safetensors", "copy.pt", "folder"] {
        let copy = folder.path().join(name);
        Weights::open(&path).unwrap().save(&copy, &SaveOptions::new()).unwrap();
        assert_tied(&load_module(tied(1.0), &copy).unwrap(), &numbers(&model.embed));
        assert_eq!(numbers(&load_module(untied(1.0), &copy).unwrap().head), numbers(&model.embed), "{name}");
    }
    // PyTorch's state dict has both names, with one storage.
    let weights = Weights::open(folder.path().join("copy.pt")).unwrap();
    let mut names = weights.names();
    names.sort_unstable();
    assert_eq!(names, ["bias", "embed", "head"]);
    let bytes = fs::read(folder.path().join("copy.pt")).unwrap();
    assert!(!bytes.windows(14).any(|window| window == b"archive/data/2"));
}

#[test]
fn training_resumes_from_a_checkpoint() {
    let step = |optimizer: &mut dyn Optimizer, model: &mut Model<B>| {
        let loss = model.embed.val().matmul(model.head.val()).sum() + model.bias.val().square().sum();
        let gradients = GradientsParams::from_grads(loss.backward(), model);
        assert_eq!(optimizer.update(0.1, model, gradients).unwrap().updated, 2);
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last");
    let (mut adam, mut model) = (AdamConfig::new().init(), tied(0.5));
    (0..3).for_each(|_| step(&mut adam, &mut model));
    let contents = CheckpointContents::new(TrainingState::of_modules(&[&model]).at(1, 3));
    let contents = contents.with_module("model", &model).unwrap();
    let contents = contents.with_optimizer("optimizer", &adam, &model).unwrap();
    CheckpointWriter::open(&path).unwrap().write(&contents).unwrap();
    (0..3).for_each(|_| step(&mut adam, &mut model));

    let checkpoint = Checkpoint::open(&path).unwrap();
    let (mut resumed, mut other) = (AdamConfig::new().init(), tied(9.0));
    checkpoint.load_module_into("model", &mut other).unwrap();
    checkpoint.load_named_optimizer("optimizer", &mut resumed, &other).unwrap();
    (0..3).for_each(|_| step(&mut resumed, &mut other));
    assert_tied(&other, &numbers(&model.embed));
    assert_eq!(other.bias.to_data(), model.bias.to_data());
}
