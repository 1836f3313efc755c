//! Saving and loading of modules, optimizers and checkpoints.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kiln_backends::{Device, Dyn, Flex};
use kiln_nn::{GradientsParams, Module, Param};
use kiln_optim::{AdamConfig, Optimizer, SgdConfig};
use kiln_store::{
    Checkpoint, DTypePolicy, LoadOptions, TensorFile, TrainingState, load_module, load_module_into,
    load_module_with, load_optimizer, save_module, save_module_with, save_optimizer, save_tensors,
};
use kiln_tensor::{Autodiff, AutodiffBackend, Backend, DType, Distribution, Int, Tensor, TensorData};
use tempfile::TempDir;

type B = Autodiff<Flex>;

#[derive(Clone, Debug, Module)]
struct Layer<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Option<Param<Tensor<B, 1>>>,
}

#[derive(Clone, Debug, Module)]
struct Net<B: Backend> {
    layers: Vec<Layer<B>>,
    steps: Param<Tensor<B, 1, Int>>,
}

fn net<B: Backend>(start: f32) -> Net<B> {
    net_on(start, &Default::default())
}

fn net_on<B: Backend>(start: f32, device: &B::Device) -> Net<B> {
    let layer = |x: f32| Layer {
        weight: Param::from_tensor(Tensor::from_floats([[x, x + 1.0], [x + 2.0, x + 3.0]], device)),
        bias: (x == start).then(|| Param::from_tensor(Tensor::from_floats([x / 2.0, -x], device))),
    };
    Net {
        layers: vec![layer(start), layer(start * 10.0)],
        steps: Param::buffer(Tensor::from_ints([start as i32], device)),
    }
}

fn values(module: &dyn Module) -> BTreeMap<String, TensorData> {
    struct Values(BTreeMap<String, TensorData>);
    impl kiln_nn::Visitor for Values {
        fn parameter(&mut self, path: &kiln_nn::Path, parameter: kiln_nn::Parameter) {
            self.0.insert(path.to_string(), parameter.value.to_data().unwrap());
        }
    }
    let mut values = Values(BTreeMap::new());
    module.visit(&mut kiln_nn::Path::new(), &mut values);
    values.0
}

fn saved(folder: &TempDir, module: &dyn Module) -> std::path::PathBuf {
    let path = folder.path().join("net.safetensors");
    save_module(module, &path).unwrap();
    path
}

#[test]
fn a_module_is_loaded_on_any_backend() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(&folder, &net::<B>(1.0));
    let loaded = load_module(net::<B>(5.0), &path).unwrap();
    // The second layer of `net(5)` has other numbers, but the same parameters.
    assert_eq!(values(&loaded), values(&net::<B>(1.0)));
    assert!(loaded.layers[0].weight.is_require_grad());
    assert_eq!(values(&load_module(net::<Flex>(5.0), &path).unwrap()), values(&net::<Flex>(1.0)));

    let file = TensorFile::open(&path).unwrap();
    assert_eq!(
        file.names().collect::<Vec<_>>(),
        ["layers.0.bias", "layers.0.weight", "layers.1.weight", "steps"]
    );
    assert_eq!(file.metadata()["format"], "pt");
    let first = fs::read(&path).unwrap();
    save_module(&net::<B>(1.0), &path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), first);
}

#[test]
fn the_error_lists_all_mismatches() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.safetensors");
    let tensors = [
        ("layers.0.wieght", TensorData::from([[1.0f32; 2]; 2])),
        ("layers.0.bias", TensorData::from([1.0f32; 3])),
        ("layers.1.weight", TensorData::from([[1.0f64; 2]; 2])),
        ("steps", TensorData::from([1i32])),
        ("extra", TensorData::from([1i32])),
    ];
    save_tensors(&path, tensors.map(|(name, data)| (name.to_owned(), data)), &BTreeMap::new()).unwrap();
    let mut module = net::<B>(1.0);
    let before = values(&module);
    let error = load_module_into(&mut module, &path, &LoadOptions::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "{}: does not match the module\n  \
             missing in the file:\n    `layers.0.weight` (there is `layers.0.wieght`)\n  \
             unknown to the module:\n    `extra`\n    `layers.0.wieght` (the module has `layers.0.weight`)\n  \
             of another type:\n    \
             `layers.0.bias` is f32[2] in the module, f32[3] in the file\n    \
             `layers.1.weight` is f32[2, 2] in the module, f64[2, 2] in the file\n  \
             hint: `LoadOptions` can rename, cast, and skip tensors",
            path.display()
        )
    );
    assert_eq!(values(&module), before);
}

#[test]
fn load_options_rename_cast_and_skip() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.safetensors");
    let half = |data: TensorData| data.convert(DType::F16);
    let tensors = [
        ("module.layers.0.weight", half(TensorData::from([[0.5f32, 1.5], [2.5, 3.5]]))),
        ("module.layers.1.weight", TensorData::from([[1.0f32; 2]; 2])),
        ("module.steps", TensorData::from([7i64])),
        ("module.num_batches_tracked", TensorData::scalar(1i64)),
    ];
    save_tensors(&path, tensors.map(|(name, data)| (name.to_owned(), data)), &BTreeMap::new()).unwrap();
    let renaming = LoadOptions::new()
        .rename_prefix("module.", "")
        .rename(|name| (name != "num_batches_tracked").then(|| name.to_owned()));
    let strict = load_module_with(net::<B>(1.0), &path, &renaming).unwrap_err();
    assert!(strict.to_string().contains("missing in the file:\n    `layers.0.bias`"), "{strict}");

    let options = renaming.clone().allow_missing(true).dtype(DTypePolicy::Cast);
    let (module, report) = load_module_with(net::<B>(1.0), &path, &options).unwrap();
    assert_eq!(report.loaded, ["layers.0.weight", "layers.1.weight", "steps"]);
    assert_eq!(report.missing, ["layers.0.bias"]);
    assert_eq!(report.unexpected, ["module.num_batches_tracked"]);
    assert_eq!(report.cast, ["layers.0.weight", "steps"]);
    assert_eq!(values(&module)["layers.0.weight"], TensorData::from([[0.5f32, 1.5], [2.5, 3.5]]));
    assert_eq!(values(&module)["steps"], TensorData::from([7i32]));
    assert_eq!(values(&module)["layers.0.bias"], TensorData::from([0.5f32, -1.0]));

    let options = renaming.allow_missing(true).dtype(DTypePolicy::Keep);
    let (module, _) = load_module_with(net::<B>(1.0), &path, &options).unwrap();
    assert_eq!(values(&module)["layers.0.weight"].dtype(), DType::F16);
    assert_eq!(values(&module)["steps"].dtype(), DType::I64);

    let unexpected = LoadOptions::new().allow_missing(true).allow_unexpected(true);
    let (module, report) = load_module_with(net::<B>(1.0), &path, &unexpected).unwrap();
    assert_eq!((report.loaded.len(), report.unexpected.len()), (0, 4));
    assert_eq!(values(&module), values(&net::<B>(1.0)));

    let clash = LoadOptions::new().rename(|_| Some("same".to_owned()));
    let error = load_module_with(net::<B>(1.0), &path, &clash).unwrap_err();
    assert!(error.to_string().ends_with("duplicate tensor name `same`"), "{error}");
}

/// A file of 8-bit floats: the bits of all tensors are 0x38, 0xC5 and so on.
fn float8_file(folder: &tempfile::TempDir, tensors: &[(&str, &str, &[usize])]) -> std::path::PathBuf {
    let (mut header, mut data) = (Vec::new(), Vec::new());
    for (name, dtype, shape) in tensors {
        let start = data.len();
        data.extend((0..shape.iter().product()).map(|i: usize| [0x38u8, 0xC5, 0x01, 0x80, 0x3B][i % 5]));
        header.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{}]}}"#,
            data.len()
        ));
    }
    let header = format!("{{{}}}", header.join(","));
    let path = folder.path().join("float8.safetensors");
    fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()).unwrap();
    path
}

/// 0x38, 0xC5, 0x01 and 0x80 of `float8_e4m3fn` are 1, -3.25, 2⁻⁹ and -0 in PyTorch 2.15, and exact in every float dtype.
#[test]
fn eight_bit_floats_become_the_dtype_of_their_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let path = float8_file(&folder, &[("weight", "F8_E4M3", &[2, 2]), ("bias", "F8_E5M2", &[2])]);
    let layer = |dtype| Layer::<Flex> {
        weight: Param::from_tensor(Tensor::<Flex, 2>::zeros([2, 2], &Default::default()).cast(dtype)),
        bias: Some(Param::from_tensor(Tensor::<Flex, 1>::zeros([2], &Default::default()).cast(dtype))),
    };
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        for policy in [DTypePolicy::Exact, DTypePolicy::Keep, DTypePolicy::Cast] {
            let options = LoadOptions::new().dtype(policy);
            let (layer, report) = load_module_with(layer(dtype), &path, &options).unwrap();
            assert_eq!(report.loaded, ["bias", "weight"]);
            let (weight, bias) = (values(&layer)["weight"].clone(), values(&layer)["bias"].clone());
            assert_eq!((weight.dtype(), bias.dtype()), (dtype, dtype));
            let bits: Vec<u64> =
                weight.convert(DType::F64).to_vec::<f64>().into_iter().map(f64::to_bits).collect();
            assert_eq!(bits, [1.0f64, -3.25, 0.001953125, -0.0].map(f64::to_bits));
            // 0x38 and 0xC5 of `float8_e5m2`.
            assert_eq!(bias.convert(DType::F64).to_vec::<f64>(), [0.5, -5.0]);
        }
    }
    // A scale that no parameter takes would be lost.
    for scale in ["weight_scale", "weight_scale_inv", "scale_weight", "scale"] {
        let path = float8_file(
            &folder,
            &[("weight", "F8_E4M3", &[2, 2]), ("bias", "F8_E5M2", &[2]), (scale, "U8", &[1])],
        );
        let options = LoadOptions::new().allow_unexpected(true);
        let error = load_module_with(layer(DType::F32), &path, &options).unwrap_err().to_string();
        assert!(
            error.contains(&format!("tensor `weight`: has 8-bit floats with the scale `{scale}`")),
            "{error}"
        );
    }
    // The size in the header is that of bytes.
    let mut damaged = fs::read(&path).unwrap();
    let at = damaged.windows(6).position(|six| six == b"[2, 2]").unwrap();
    damaged[at + 4] = b'3';
    let error = TensorFile::from_bytes(damaged).unwrap_err().to_string();
    assert!(error.contains("tensor `weight` is F8_E4M3[2, 3] but has 4 bytes"), "{error}");
}

#[test]
fn a_failed_write_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(&folder, &net::<Flex>(1.0));
    let good = fs::read(&path).unwrap();
    // A label out of range poisons all results computed from it: the device fails while the file is written.
    let device = Default::default();
    let index = Tensor::<Flex, 1, Int>::from_ints([5, 0], &device);
    let poisoned = Tensor::<Flex, 2>::ones([2, 2], &device).select(0, index);
    let mut broken = net::<Flex>(2.0);
    broken.layers[0].weight.set(poisoned);
    let error = save_module(&broken, &path).unwrap_err().to_string();
    assert!(error.contains("net.safetensors: cannot save `layers.0.weight`: "), "{error}");
    assert_eq!(fs::read(&path).unwrap(), good);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    let below_a_file = path.join("model.safetensors");
    let error = save_module(&net::<Flex>(1.0), &below_a_file).unwrap_err().to_string();
    assert!(error.contains("model.safetensors: cannot write: "), "{error}");
    let error = load_module(net::<Flex>(1.0), folder.path().join("absent")).unwrap_err().to_string();
    assert!(error.contains("absent: cannot read: "), "{error}");
}

#[test]
fn metadata_round_trips() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.safetensors");
    let metadata = BTreeMap::from([
        ("format".to_owned(), "kiln".to_owned()),
        ("note".to_owned(), "\"quoted\"\n\u{1F525}".to_owned()),
    ]);
    save_module_with(&net::<Flex>(1.0), &path, &metadata).unwrap();
    let mut expected = metadata;
    expected.insert("kiln.format".to_owned(), "1".to_owned());
    assert_eq!(TensorFile::open(&path).unwrap().metadata(), &expected);
}

fn train<B: AutodiffBackend>(optimizer: &mut impl Optimizer, mut net: Net<B>, steps: usize) -> Net<B> {
    let device = net.layers[0].weight.device();
    for _ in 0..steps {
        let noise = Tensor::<B, 2>::random([2, 2], Distribution::Default, &device);
        let y = noise.matmul(net.layers[0].weight.val()).matmul(net.layers[1].weight.val());
        let gradients = GradientsParams::from_grads(y.square().mean().backward(), &net);
        net = optimizer.step(0.01, net, gradients);
    }
    net
}

#[test]
fn an_optimizer_resumes_from_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("optimizer.safetensors");
    let mut optimizer = AdamConfig::new().init();
    let net = train(&mut optimizer, net::<B>(1.0), 3);
    save_optimizer(&optimizer, &net, &path).unwrap();
    let mut other = AdamConfig::new().init();
    load_optimizer(&mut other, &net, &path).unwrap();
    assert_eq!(other.state(&net).unwrap(), optimizer.state(&net).unwrap());

    let mut sgd = SgdConfig::new().init();
    let error = load_optimizer(&mut sgd, &net, &path).unwrap_err().to_string();
    assert!(error.contains("optimizer.safetensors: [sgd] the state is of optimizer `adam`"), "{error}");
    let model = saved(&folder, &net);
    let error = load_optimizer(&mut other, &net, &model).unwrap_err().to_string();
    assert!(error.contains("net.safetensors: contains no optimizer state"), "{error}");
}

#[test]
fn training_resumes_bit_for_bit_from_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs/first/last");
    // A separate stack, since concurrent tests draw random numbers from the shared one.
    let device = Device::cpu_with_threads(1).autodiff();
    let mut optimizer = AdamConfig::new().init();
    let net = train(&mut optimizer, net_on::<Dyn>(1.0, &device), 3);
    let state = TrainingState::of(&net).at(2, 3).with_value("rate", &0.01).unwrap();
    Checkpoint::save(&path, &net, Some(&optimizer), &state).unwrap();
    Checkpoint::save(&path, &net, Some(&optimizer), &state).unwrap();
    assert_eq!(names(path.parent().unwrap()), ["last"]);
    assert_eq!(names(&path), ["model.safetensors", "optimizer.safetensors", "training.json"]);

    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.state(), &state);
    assert_eq!((checkpoint.state().epoch, checkpoint.state().step), (2, 3));
    assert_eq!(checkpoint.state().value::<f64>("rate").unwrap(), Some(0.01));
    assert_eq!(checkpoint.state().value::<f64>("absent").unwrap(), None);
    assert!(checkpoint.state().value::<String>("rate").is_err());
    assert!(checkpoint.has_optimizer());
    let mut resumed = AdamConfig::new().init();
    let loaded = checkpoint.load_module(net_on::<Dyn>(7.0, &device)).unwrap();
    checkpoint.load_optimizer(&mut resumed, &loaded).unwrap();
    assert_eq!(values(&loaded), values(&net));

    let straight = train(&mut optimizer, net, 3);
    checkpoint.state().restore_random(&loaded).unwrap();
    let resumed_net = train(&mut resumed, loaded, 3);
    assert_eq!(values(&resumed_net), values(&straight));
    assert_eq!(resumed.state(&resumed_net).unwrap(), optimizer.state(&straight).unwrap());
}

/// JSON has no NaN and no infinity.
#[test]
fn values_of_a_checkpoint_keep_nan_and_infinity() {
    #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    enum Kind {
        Unit,
        Newtype(f32),
        Tuple(f64, u8),
        Struct { best: Option<f64> },
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last");
    let net = net_on::<Dyn>(1.0, &Device::cpu_with_threads(1).autodiff());
    let kinds = vec![
        Kind::Unit,
        Kind::Newtype(f32::NEG_INFINITY),
        Kind::Tuple(f64::INFINITY, 3),
        Kind::Struct { best: Some(f64::INFINITY) },
        Kind::Struct { best: None },
    ];
    let exact = [0.1, -0.0, f64::MIN_POSITIVE, 5e-324, f64::MAX, 123_456_789.123_456_78];
    let maps = BTreeMap::from([(-3i64, f64::INFINITY), (5, 0.5)]);
    let state = TrainingState::of(&net)
        .with_value("nan", &f32::NAN)
        .and_then(|state| state.with_value("kinds", &kinds))
        .and_then(|state| state.with_value("exact", &exact))
        .and_then(|state| state.with_value("maps", &maps))
        .unwrap();
    Checkpoint::save(&path, &net, None, &state).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let state = checkpoint.state();
    assert!(state.value::<f32>("nan").unwrap().unwrap().is_nan());
    assert_eq!(state.value::<Vec<Kind>>("kinds").unwrap(), Some(kinds));
    let bits = state.value::<[f64; 6]>("exact").unwrap().unwrap().map(f64::to_bits);
    assert_eq!(bits, exact.map(f64::to_bits));
    assert_eq!(state.value::<BTreeMap<i64, f64>>("maps").unwrap(), Some(maps));
    assert!(state.value::<Vec<u8>>("kinds").is_err());
    let reserved = BTreeMap::from([("$float", "inf")]);
    let error = TrainingState::default().with_value("odd", &reserved).unwrap_err().to_string();
    assert!(error.contains("`odd`") && error.contains("$float"), "{error}");
}

#[test]
fn damaged_checkpoints_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    assert!(Checkpoint::open(&path).unwrap_err().to_string().contains("training.json: cannot read"));
    let net = net::<B>(1.0);
    Checkpoint::save(&path, &net, None, &TrainingState::of(&net)).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert!(!checkpoint.has_optimizer());
    assert!(checkpoint.load_optimizer(&mut AdamConfig::new().init(), &net).is_err());
    let one_stack = self::net::<Flex>(1.0);
    let error = checkpoint.state().restore_random(&one_stack).unwrap_err().to_string();
    assert!(error.contains("is of 2 engine stacks, but the module is on 1"), "{error}");

    let json = path.join("training.json");
    let text = fs::read_to_string(&json).unwrap();
    fs::write(&json, text.replace("\"version\": 3", "\"version\": 4")).unwrap();
    let error = Checkpoint::open(&path).unwrap_err().to_string();
    assert!(error.contains("has version 4; supported: 1 to 3"), "{error}");
    fs::write(&json, &text[..text.len() / 2]).unwrap();
    assert!(Checkpoint::open(&path).unwrap_err().to_string().contains("training.json: EOF"));
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
