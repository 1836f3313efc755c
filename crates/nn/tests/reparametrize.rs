//! Reparametrized modules: LoRA, weight normalisation, spectral normalisation.

use kiln_backends::{Device, Dyn};
use kiln_nn::conv::Conv1dConfig;
use kiln_nn::reparametrize::{
    LoraConfig, LoraModel, Parametrization, Reparametrized, SpectralNormConfig, WeightNormConfig,
};
use kiln_nn::*;
use kiln_tensor::{AnyTensor, Backend, DType, Result, Tensor, TensorData, TensorType};
use std::collections::BTreeMap;

type B = Dyn;

/// A convolution, two linear layers and a norm.
#[derive(Module, Clone, Debug)]
struct Net<B: Backend> {
    conv: Conv1d<B>,
    layers: Vec<Linear<B>>,
    norm: LayerNorm<B>,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Net<B> {
        Net {
            conv: Conv1dConfig::new([2, 3], [2]).init(device),
            layers: vec![LinearConfig::new(6, 4).init(device), LinearConfig::new(4, 2).init(device)],
            norm: LayerNormConfig::new(4).init(device),
        }
    }

    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 2> {
        let x = self.conv.forward(x).tanh().flatten::<2>(1, 2);
        self.layers[1].forward(self.norm.forward(self.layers[0].forward(x).tanh()))
    }
}

fn seeded() -> Device {
    let device = crate::own_device().autodiff();
    B::seed(&device, 7);
    device
}

fn input(device: &Device) -> Tensor<B, 3> {
    Tensor::random([4, 2, 3], kiln_tensor::Distribution::Normal(0.0, 1.0), device)
}

fn numbers<B: Backend, const D: usize>(x: &Tensor<B, D>) -> Vec<f32> {
    x.to_data().to_vec()
}

fn bits(module: &dyn Module) -> BTreeMap<String, Vec<f32>> {
    trainable_parameters(module)
        .into_iter()
        .map(|(name, x)| (name, x.into_data().unwrap().to_vec()))
        .collect()
}

fn assert_close(got: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() <= tolerance, "{got} is not {expected}");
    }
}

/// Sets every adapter to random numbers.
fn with_random_adapters<M: Module>(mut model: LoraModel<M>) -> LoraModel<M> {
    model.map_parameters(|path, parameter| match path.as_str().contains("lora_") {
        true => parameter.map(|x| {
            let ty = *x.ty();
            AnyTensor::random(ty, kiln_tensor::Distribution::Normal(0.0, 0.5), x.stack()).unwrap()
        }),
        false => parameter,
    });
    model
}

const TARGETS: [&str; 2] = ["conv.weight", "layers.*.weight"];

#[test]
fn lora_does_not_change_the_output_at_first() {
    let device = seeded();
    let (net, x) = (Net::<B>::new(&device), input(&device));
    let model = LoraConfig::new(2).with_targets(TARGETS).init(net.clone()).unwrap();
    assert_eq!(model.num_parametrizations(), 3);
    assert_eq!(numbers(&model.module().forward(x.clone())), numbers(&net.forward(x)));
}

#[test]
fn lora_names_and_shapes_are_those_of_peft() {
    let model = LoraConfig::new(2).with_targets(TARGETS).init(Net::<B>::new(&seeded())).unwrap();
    let adapters: Vec<(String, Vec<usize>)> =
        model.adapter_parameters().into_iter().map(|(name, x)| (name, x.shape().to_vec())).collect();
    let expected = [
        ("conv.lora_A.weight", vec![2, 2, 2]),
        ("conv.lora_B.weight", vec![3, 2, 1]),
        ("layers.0.lora_A.weight", vec![2, 6]),
        ("layers.0.lora_B.weight", vec![4, 2]),
        ("layers.1.lora_A.weight", vec![2, 4]),
        ("layers.1.lora_B.weight", vec![2, 2]),
    ];
    assert_eq!(adapters, expected.map(|(name, shape)| (name.to_string(), shape)));
    assert!(model.to_string().contains("lora_A.weight f32[2, 6]"), "{model}");
    assert!(model.to_string().contains("weight f32[4, 6] (frozen)"), "{model}");
}

#[test]
fn the_adapted_weight_is_the_formula() {
    let device = seeded();
    let layer: Linear<B> = LinearConfig::new(3, 2).with_bias(false).init(&device);
    for (stabilized, scale) in [(false, 6.0 / 4.0), (true, 6.0 / 2.0)] {
        let config = LoraConfig::new(4).with_alpha(6.0).with_rank_stabilized(stabilized);
        let model = with_random_adapters(config.init(layer.clone()).unwrap());
        let adapters = model.adapter_parameters();
        let matrix = |name: &str| Tensor::<B, 2>::from_any(adapters[name].clone());
        let product = matrix("lora_B.weight").matmul(matrix("lora_A.weight")) * scale;
        let expected = numbers(&(layer.weight.val() + product));
        assert_close(&numbers(&model.module().weight.val()), &expected, 1e-6);
    }
}

#[test]
fn merged_output_is_the_output_of_adapters() {
    let device = seeded();
    let x = input(&device);
    let model = LoraConfig::new(2).with_targets(TARGETS).init(Net::<B>::new(&device)).unwrap();
    let model = with_random_adapters(model);
    let merged: Net<B> = model.merge();
    assert_eq!(numbers(&merged.forward(x.clone())), numbers(&model.module().forward(x)));
    // The merged weights are leaves with the roles of before.
    assert_eq!(merged.num_trainable_parameters(), merged.num_parameters());
    assert!(merged.conv.weight.is_require_grad());
    assert_eq!(merged.named_parameters().len(), 8);
}

#[test]
fn the_base_keeps_its_bits() {
    let device = seeded();
    let net = Net::<B>::new(&device);
    let before = bits(&net);
    let model = with_random_adapters(LoraConfig::new(2).with_targets(TARGETS).init(net).unwrap());
    let _merged: Net<B> = model.merge();
    assert_eq!(bits(&model.into_base()), before);
}

#[test]
fn only_adapters_have_gradients_equal_to_finite_differences() {
    let device = seeded();
    let x = input(&device);
    let net = Net::<B>::new(&device);
    let model = with_random_adapters(LoraConfig::new(2).with_targets(TARGETS).init(net).unwrap());
    let loss = |model: &LoraModel<Net<B>>| model.module().forward(x.clone()).square().mean();
    let gradients = GradientsParams::from_grads(loss(&model).backward(), &model);
    assert_eq!(gradients.len(), 6);
    let parameters = model.named_parameters();
    for name in model.adapter_parameters().keys() {
        let id = parameters.iter().find(|(own, _)| own == name).unwrap().1.id;
        let gradient: Vec<f32> = gradients.get(id).unwrap().to_vec().unwrap();
        for (place, gradient) in gradient.iter().enumerate().step_by(2) {
            let moved = |step: f32| {
                let mut moved = model.clone();
                moved.map_parameters(|path, parameter| match path.as_str() == name {
                    true => parameter.map(|x| shifted(x, place, step)),
                    false => parameter,
                });
                loss(&moved).into_scalar::<f32>()
            };
            let difference = (moved(2e-3) - moved(-2e-3)) / 4e-3;
            let tolerance = 3e-3 * gradient.abs().max(1.0);
            assert!((difference - gradient).abs() < tolerance, "{name}[{place}]: {difference} {gradient}");
        }
    }
}

fn shifted(x: AnyTensor, place: usize, step: f32) -> AnyTensor {
    let mut elements: Vec<f32> = x.to_vec().unwrap();
    elements[place] += step;
    AnyTensor::from_data(TensorData::new(elements, *x.shape()).unwrap(), x.stack())
}

#[test]
fn a_step_changes_only_adapters() {
    let device = seeded();
    let x = input(&device);
    let mut model = LoraConfig::new(2).with_targets(TARGETS).init(Net::<B>::new(&device)).unwrap();
    let before: BTreeMap<String, Vec<f32>> = all(&model);
    for _ in 0..2 {
        let loss = model.module().forward(x.clone()).square().mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model.map_parameters(|_, parameter| match gradients.get(parameter.id) {
            Some(gradient) => {
                let step = gradient.clone().mul_scalar(0.1).unwrap();
                parameter.map(|x| x.sub(step).unwrap())
            }
            None => parameter,
        });
    }
    for (name, values) in all(&model) {
        assert_eq!(values != before[&name], name.contains("lora_"), "{name}");
    }
}

fn all(module: &impl Module) -> BTreeMap<String, Vec<f32>> {
    module.named_parameters().into_iter().map(|(name, p)| (name, p.value.to_vec().unwrap())).collect()
}

#[test]
fn saved_adapters_load() {
    let device = seeded();
    let x = input(&device);
    let net = Net::<B>::new(&device);
    let config = LoraConfig::new(2).with_targets(TARGETS);
    let model = with_random_adapters(config.init(net.clone()).unwrap());
    let saved = model.adapter_parameters();
    let fresh = || config.init(net.clone()).unwrap();
    let loaded = fresh().load_adapters(saved.clone()).unwrap();
    assert_eq!(numbers(&loaded.module().forward(x.clone())), numbers(&model.module().forward(x)));
    assert_eq!(loaded.num_trainable_parameters(), model.num_trainable_parameters());

    // Files of PEFT have a prefix.
    let named = saved.iter().map(|(name, x)| (format!("base_model.model.{name}"), x.clone()));
    assert_eq!(all(&fresh().load_adapters(named).unwrap()), all(&model));

    let missing = saved.iter().skip(1).map(|(name, x)| (name.clone(), x.clone()));
    assert!(fresh().load_adapters(missing).unwrap_err().to_string().contains("`conv.lora_A.weight`"));
    let mut unknown = saved.clone();
    unknown.insert("other.lora_A.weight".into(), saved["conv.lora_A.weight"].clone());
    assert!(fresh().load_adapters(unknown).unwrap_err().to_string().contains("`other.lora_A.weight`"));
    let narrow = LoraConfig::new(1).with_targets(TARGETS).init(net.clone()).unwrap();
    assert!(narrow.load_adapters(saved).unwrap_err().to_string().contains("shape"));
}

#[test]
fn invalid_settings_are_errors() {
    let net = || Net::<B>::new(&seeded());
    let error = |config: LoraConfig| config.init(net()).unwrap_err().to_string();
    let text = error(LoraConfig::new(2).with_targets(["layers.*.weigth"]));
    assert!(text.contains("`layers.*.weigth`") && text.contains("`layers.0.weight`"), "{text}");
    // A bias has one dimension.
    assert!(error(LoraConfig::new(2).with_targets(["**.bias"])).contains("`**.bias`"));
    assert!(error(LoraConfig::new(2).with_targets(Vec::<String>::new())).contains("no target patterns"));
    assert!(error(LoraConfig::new(0)).contains("rank"));
    assert!(error(LoraConfig::new(2).with_dropout(1.0)).contains("dropout"));
    let dim = WeightNormConfig::new().with_dim(2).init(net()).unwrap_err().to_string();
    assert!(dim.contains("dimension 2"), "{dim}");
}

#[test]
fn configurations_are_json() {
    let config = LoraConfig::new(4).with_alpha(16.0).with_dropout(0.1).with_targets(["**.weight"]);
    assert_eq!(LoraConfig::from_json(&config.to_json()).unwrap(), config);
    assert_eq!(LoraConfig::from_json(r#"{ "rank": 3 }"#).unwrap(), LoraConfig::new(3));
    assert!(LoraConfig::from_json(r#"{ "rank": 3, "alfa": 1 }"#).is_err());
    assert_eq!(SpectralNormConfig::from_json("{}").unwrap(), SpectralNormConfig::new());
}

#[test]
fn dropout_omits_input_features_in_training_mode() {
    let device = seeded();
    let layer: Linear<B> = LinearConfig::new(64, 3).with_bias(false).init(&device);
    let model = with_random_adapters(LoraConfig::new(2).with_dropout(0.5).init(layer.clone()).unwrap());
    let added = |model: &LoraModel<Linear<B>>| numbers(&(model.module().weight.val() - layer.weight.val()));
    let (first, second) = (added(&model), added(&model));
    assert_ne!(first, second);
    for feature in 0..64 {
        let column: Vec<bool> = (0..3).map(|row| first[row * 64 + feature].abs() < 1e-6).collect();
        assert!(column.iter().all(|&zero| zero == column[0]));
    }
    let zeros = first.iter().filter(|x| x.abs() < 1e-6).count() / 3;
    assert!((12..52).contains(&zeros), "{zeros}");
    let model = model.eval();
    assert_eq!(added(&model), added(&model));
    let merged: Linear<B> = model.clone().train().merge();
    assert_eq!(numbers(&merged.weight.val()), numbers(&model.module().weight.val()));
}

/// The squares of the weights exceed the range of `f16`.
#[test]
fn norms_of_weights_in_16_bits() {
    let device = seeded();
    let mut layer: Linear<B> = LinearConfig::new(4, 2).with_bias(false).init(&device);
    layer.weight = Param::from_tensor(Tensor::<_, 2>::full([2, 4], 300.0, &device).cast(DType::F16));
    let normed = WeightNormConfig::new().init(layer.clone()).unwrap();
    assert_close(&numbers(&normed.module().weight.val()), &[300.0; 8], 0.3);
    let spectral = SpectralNormConfig::new().init(layer).unwrap();
    // One over the root of 8: the matrix has one singular value, 300 times this root.
    assert_close(&numbers(&spectral.module().weight.val()), &[0.353_55; 8], 1e-3);
}

#[test]
fn shared_weights_have_one_adapter() {
    let layer: Linear<B> = LinearConfig::new(3, 3).init(&seeded());
    let model = LoraConfig::new(1).with_targets(["0.weight"]).init((layer.clone(), layer)).unwrap();
    let model = with_random_adapters(model);
    assert_eq!((model.num_parametrizations(), model.num_trainable_parameters()), (1, 6));
    let (first, second) = model.module();
    assert_eq!(numbers(&first.weight.val()), numbers(&second.weight.val()));
}

#[test]
fn reparametrized_modules_are_modules() {
    let device = seeded();
    let x = Tensor::<B, 2>::ones([2, 3], &device);
    let lora =
        with_random_adapters(LoraConfig::new(2).init(LinearConfig::new(3, 4).init::<B>(&device)).unwrap());
    let norm = SpectralNormConfig::new().init(LinearConfig::new(4, 2).init::<B>(&device)).unwrap().eval();
    let expected = numbers(&norm.forward(lora.forward(x.clone())));

    // In a chain, and on the backend below.
    let chain = Sequential::<B>::new().push(lora.clone()).push(norm.clone());
    assert_eq!(numbers(&chain.forward(x.clone())), expected);
    let names: Vec<String> = chain.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names[..3], ["0.weight", "0.lora_A.weight", "0.lora_B.weight"]);
    assert!(names.contains(&"1.parametrizations.weight.0._u".to_string()), "{names:?}");
    let valid: Reparametrized<Linear<B>, _> = lora.valid();
    assert_eq!(numbers(&norm.valid().forward(valid.forward(x.clone().inner()))), expected);

    // As functions of their parameters.
    let zero = |ty: TensorType| AnyTensor::zeros(ty, lora.base().weight.as_any().stack()).unwrap();
    let zeros: NamedTensors =
        lora.adapter_parameters().into_iter().map(|(name, x)| (name, zero(*x.ty()))).collect();
    let plain: LoraModel<Linear<B>> = with_parameters(&lora, zeros);
    assert_eq!(numbers(&plain.forward(x.clone())), numbers(&lora.base().forward(x.clone())));

    // Frozen, and with the parameters of another device.
    assert_eq!(norm.clone().freeze().num_trainable_parameters(), 0);
    let moving: Linear<Dyn> = LinearConfig::new(3, 2).init(&Device::flex());
    let moved = WeightNormConfig::new().init(moving).unwrap().to_device(&Device::cpu());
    assert_eq!(moved.devices(), [Device::cpu()]);
    assert_eq!(moved.forward(Tensor::<Dyn, 2>::ones([1, 3], &Device::cpu())).dims(), [1, 2]);
}

#[test]
fn parametrizations_nest() {
    let device = seeded();
    let layer: Linear<B> = LinearConfig::new(3, 4).init(&device);
    let norm = WeightNormConfig::new().init(layer).unwrap();
    let model = LoraConfig::new(2).with_targets(["**.original1"]).init(norm).unwrap();
    let names: Vec<String> = model.adapter_parameters().into_keys().collect();
    let prefix = "parametrizations.weight";
    assert_eq!(names, ["A", "B"].map(|matrix| format!("{prefix}.lora_{matrix}.original1")));
    assert_eq!(model.module().module().weight.dims(), [4, 3]);
}

#[test]
fn wrapping_does_not_change_weights() {
    let device = seeded();
    let net = Net::<B>::new(&device);
    let x = input(&device);
    for dim in [Some(0), Some(1), None] {
        let normed = WeightNormConfig::new().with_dim(dim).init(net.clone()).unwrap();
        let expected = numbers(&net.forward(x.clone()));
        assert_close(&numbers(&normed.module().forward(x.clone())), &expected, 1e-5);
        assert_eq!(normed.num_trainable_parameters(), normed.num_parameters());
    }
}

#[test]
fn the_largest_singular_value_becomes_one() {
    let device = seeded();
    let layer: Linear<B> = LinearConfig::new(5, 4).with_bias(false).init(&device);
    let normed = SpectralNormConfig::new().with_iterations(40).init(layer).unwrap();
    let weight = normed.module().weight.val();
    let gram = weight.clone().matmul(weight.transpose());
    // The trace of (W Wᵀ)^32 approximates its largest eigenvalue to the 32nd power.
    let mut power = gram;
    for _ in 0..5 {
        power = power.clone().matmul(power);
    }
    let trace: f32 = (0..4).map(|i| numbers(&power)[i * 5]).sum();
    assert!((trace - 1.0).abs() < 0.1, "{trace}");
}

#[test]
fn running_statistics_of_the_base_can_be_kept() {
    let device = seeded();
    let base = (LinearConfig::new(2, 2).init::<B>(&device), BatchNormConfig::new(2).init::<B>(&device));
    let model = LoraConfig::new(1).with_targets(["0.weight"]).init(base).unwrap();
    let adapted = model.module();
    adapted.forward(Tensor::<B, 2>::from_floats([[1.0, 2.0], [3.0, 5.0]], &device));
    let mean = numbers(&adapted.1.running_mean.value());
    assert_ne!(mean, [0.0, 0.0]);
    let model = model.with_buffers_of(&adapted);
    assert_eq!(numbers(&model.base().1.running_mean.value()), mean);
}

/// Positive numbers.
#[derive(Clone, Debug, Module)]
struct Exponential {
    scale: Param<Tensor<Dyn, 1>>,
}

impl Parametrization for Exponential {
    fn weight(&self, original: AnyTensor) -> Result<AnyTensor> {
        original.exp()?.mul(self.scale.val().into_any())
    }
}

#[test]
fn custom_parametrizations_have_parameters() {
    let layer: LayerNorm<B> = LayerNormConfig::new(3).init(&seeded());
    let scaled = Reparametrized::new(layer, ["*"], |_, parameter| {
        let ty = TensorType::new([1], DType::F32);
        let scale = AnyTensor::full(ty, 2.0, parameter.value.stack())?;
        Ok(Exponential { scale: Param::from_tensor(Tensor::from_any(scale)) })
    })
    .unwrap();
    let names: Vec<String> = scaled.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "parametrizations.weight.original",
            "parametrizations.weight.0.scale",
            "parametrizations.bias.original",
            "parametrizations.bias.0.scale"
        ]
    );
    let weight = scaled.module().weight.unwrap();
    assert_close(&numbers(&weight.val()), &[2.0 * 1f32.exp(); 3], 1e-5);
    let gradients = GradientsParams::from_grads(weight.val().sum().backward(), &scaled);
    assert_eq!(gradients.len(), 2);
}
