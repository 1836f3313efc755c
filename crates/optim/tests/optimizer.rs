//! Behaviour common to all optimizers: groups, frozen parameters, tied parameters, states, errors.

use kiln_backends::Flex;
use kiln_nn::{GradientsParams, Module, Param};
use kiln_optim::{
    AdamConfig, AdamWConfig, GradientClipping, OptimError, Optimizer, OptimizerState, ParameterGroup,
    SgdConfig, clip_grad_norm, grad_norm,
};
use kiln_tensor::{Autodiff, Backend, DType, Tensor, TensorData};

type B = Autodiff<Flex>;

#[derive(Clone, Debug, Module)]
struct Layer<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    bias: Param<Tensor<B, 1>>,
    mean: Param<Tensor<B, 1>>,
}

fn layer() -> Layer<B> {
    let device = Default::default();
    Layer {
        weight: Param::from_tensor(Tensor::from_floats([[1.0, -2.0], [0.5, 4.0]], &device)),
        bias: Param::from_tensor(Tensor::from_floats([0.25, -0.75], &device)),
        mean: Param::buffer(Tensor::from_floats([9.0], &device)),
    }
}

/// Gradients of a loss that depends on the step.
fn gradients(layer: &Layer<B>, step: usize) -> GradientsParams {
    let x = Tensor::<B, 2>::from_floats([[1.0, 2.0], [-0.5, step as f32]], &Default::default());
    let y = x.matmul(layer.weight.val()) + layer.bias.val().unsqueeze_dim::<2>(0);
    GradientsParams::from_grads(y.square().mean().backward(), layer)
}

fn numbers<const D: usize>(tensor: &Tensor<B, D>) -> Vec<f32> {
    tensor.to_data().to_vec()
}

fn train(optimizer: &mut impl Optimizer, mut layer: Layer<B>, steps: std::ops::Range<usize>) -> Layer<B> {
    for step in steps {
        let gradients = gradients(&layer, step);
        layer = optimizer.step(0.05, layer, gradients);
    }
    layer
}

#[test]
fn training_resumes_bit_for_bit_from_a_state() {
    let mut optimizer = AdamWConfig::new().with_amsgrad(true).init();
    let layer = train(&mut optimizer, layer(), 0..5);
    let state = optimizer.state(&layer).unwrap();
    assert_eq!(state.parameters().collect::<Vec<_>>(), ["bias", "weight"]);

    // The same names in another process have other ids.
    let mut other = Layer::<B> { mean: self::layer().mean, ..self::layer() };
    other.weight.set(layer.weight.val().detach());
    other.bias.set(layer.bias.val().detach());
    let tensors = state.clone().into_tensors().unwrap();
    let names: Vec<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "bias.exp_avg",
            "bias.exp_avg_sq",
            "bias.max_exp_avg_sq",
            "bias.step",
            "weight.exp_avg",
            "weight.exp_avg_sq",
            "weight.max_exp_avg_sq",
            "weight.step",
        ]
    );
    let loaded = OptimizerState::from_tensors("adamw", tensors).unwrap();
    assert_eq!(loaded, state);
    let mut resumed = AdamWConfig::new().with_amsgrad(true).init();
    resumed.load_state(loaded, &other).unwrap();

    let straight = train(&mut optimizer, layer, 5..9);
    let resumed = train(&mut resumed, other, 5..9);
    assert_eq!(numbers(&straight.weight), numbers(&resumed.weight));
    assert_eq!(numbers(&straight.bias), numbers(&resumed.bias));
}

#[test]
fn incompatible_states_are_refused_without_changes() {
    let mut adam = AdamConfig::new().init();
    let layer = train(&mut adam, layer(), 0..2);
    let before = adam.state(&layer).unwrap();

    let mut sgd = SgdConfig::new().with_momentum(0.9).init();
    let error = sgd.load_state(before.clone(), &layer).unwrap_err();
    assert_eq!(
        error.to_string(),
        "[sgd] the state is of optimizer `adam`\n  hint: load it into an optimizer of that kind"
    );

    type Tensors = Vec<(String, TensorData)>;
    let with = |change: &dyn Fn(&mut Tensors)| {
        let mut tensors = before.clone().into_tensors().unwrap();
        change(&mut tensors);
        OptimizerState::from_tensors("adam", tensors)
    };
    let renamed =
        with(&|tensors| tensors.iter_mut().for_each(|(name, _)| *name = name.replace("bias", "bais")));
    assert_eq!(
        adam.load_state(renamed.unwrap(), &layer).unwrap_err().to_string(),
        "[adam] the state contains parameters that the module does not have: `bais`"
    );
    let reshaped = with(&|tensors| {
        for (name, data) in tensors.iter_mut().filter(|(name, _)| name == "bias.exp_avg") {
            *data = TensorData::from([0.0f32; 3]);
            assert_eq!(name, "bias.exp_avg");
        }
    });
    assert_eq!(
        adam.load_state(reshaped.unwrap(), &layer).unwrap_err().to_string(),
        "[adam] state of parameter `bias`: `exp_avg` is f32[3], but should be f32[2]"
    );
    let missing = with(&|tensors| tensors.retain(|(name, _)| name != "weight.exp_avg_sq"));
    assert!(
        adam.load_state(missing.unwrap(), &layer)
            .unwrap_err()
            .to_string()
            .contains("`exp_avg_sq` is missing")
    );
    let without_steps = with(&|tensors| tensors.retain(|(name, _)| name != "weight.step"));
    assert!(without_steps.unwrap_err().to_string().contains("the step count is missing"));
    let no_number = with(&|tensors| {
        tensors.retain(|(name, _)| name != "weight.step");
        tensors.push(("weight.step".into(), TensorData::from([1.5f32])));
    });
    assert!(no_number.unwrap_err().to_string().contains("the step count is f32[1]"));
    assert!(OptimizerState::from_tensors("adam", [("x".into(), TensorData::scalar(1u64))]).is_err());

    assert_eq!(adam.state(&layer).unwrap(), before);
}

#[test]
fn parameter_groups_have_their_own_rates_and_decays() {
    let mut optimizer = SgdConfig::new()
        .with_weight_decay(0.5)
        .init()
        .with_group(ParameterGroup::new(|path| path == "bias").learning_rate_factor(10.0).weight_decay(0.0))
        .unwrap();
    let start = layer();
    let ones = GradientsParams::from_iter([
        (start.weight.id(), Tensor::<Flex, 2>::ones([2, 2], &Default::default()).into_any()),
        (start.bias.id(), Tensor::<Flex, 1>::ones([2], &Default::default()).into_any()),
    ]);
    let end = optimizer.step(0.5, start.clone(), ones);
    // p - 0.5 (1 + 0.5 p), and p - 5.
    assert_eq!(numbers(&end.weight), [0.25, -2.0, -0.125, 2.5]);
    assert_eq!(numbers(&end.bias), [-4.75, -5.75]);
    assert_eq!(numbers(&end.mean), [9.0]);
    assert!(end.weight.is_require_grad());
    assert_eq!(numbers(&start.weight), [1.0, -2.0, 0.5, 4.0]);
}

#[test]
fn parameters_frozen_or_without_gradient_are_unchanged() {
    let mut optimizer = AdamWConfig::new().init();
    let mut start = layer();
    start.bias = start.bias.freeze();
    let mut gradients = gradients(&start, 1);
    assert_eq!(gradients.len(), 1);
    gradients.insert(start.bias.id(), Tensor::<Flex, 1>::ones([2], &Default::default()).into_any());
    let end = optimizer.step(0.1, start.clone(), gradients);
    assert_ne!(numbers(&end.weight), numbers(&start.weight));
    assert_eq!(numbers(&end.bias), numbers(&start.bias));
    let same = optimizer.step(0.1, end.clone(), GradientsParams::new());
    assert_eq!(numbers(&same.weight), numbers(&end.weight));
}

#[test]
fn gradients_are_clipped_before_the_step() {
    let start = layer();
    let ones = || {
        GradientsParams::from_iter([
            (start.weight.id(), Tensor::<Flex, 2>::full([2, 2], 2, &Default::default()).into_any()),
            (start.bias.id(), Tensor::<Flex, 1>::full([2], -3, &Default::default()).into_any()),
        ])
    };
    let step = |clipping| {
        let mut optimizer = SgdConfig::new().with_grad_clipping(Some(clipping)).init();
        let end = optimizer.step(1.0, start.clone(), ones());
        let change = |a: Vec<f32>, b: Vec<f32>| a[0] - b[0];
        (
            change(numbers(&start.weight), numbers(&end.weight)),
            change(numbers(&start.bias), numbers(&end.bias)),
        )
    };
    let close = |(a, b): (f32, f32), (c, d): (f32, f32)| (a - c).abs() < 1e-5 && (b - d).abs() < 1e-5;
    assert!(close(step(GradientClipping::Value(0.5)), (0.5, -0.5)));
    let root = 2f32.sqrt();
    assert!(close(step(GradientClipping::Norm(1.0)), (0.5, -1.0 / root)));
    let total = 34f32.sqrt();
    assert!(close(step(GradientClipping::GlobalNorm(1.0)), (2.0 / total, -3.0 / total)));

    let mut gradients = ones();
    assert!((clip_grad_norm(&mut gradients, 1.0).unwrap() - 34f64.sqrt()).abs() < 1e-6);
    assert!((grad_norm(&gradients).unwrap() - 1.0).abs() < 1e-5);
    assert_eq!(clip_grad_norm(&mut GradientsParams::new(), 1.0).unwrap(), 0.0);
    assert!(clip_grad_norm(&mut gradients, f64::NAN).is_err());
}

#[test]
fn gradient_norms_of_f16_and_empty_tensors() {
    let device = Default::default();
    let half = Tensor::<Flex, 1>::full([4], 300.0, &device).cast(DType::F16);
    let empty = Tensor::<Flex, 2>::zeros([0, 3], &device);
    let scalar = Tensor::<Flex, 1>::full([1], 0.0, &device);
    let mut gradients = GradientsParams::from_iter([
        (kiln_nn::ParamId::new(), half.into_any()),
        (kiln_nn::ParamId::new(), empty.into_any()),
        (kiln_nn::ParamId::new(), scalar.into_any().reshape([0usize; 0]).unwrap()),
    ]);
    // The squares overflow 16-bit floats.
    assert_eq!(clip_grad_norm(&mut gradients, 1.0).unwrap(), 600.0);
    let clipped: Vec<_> = gradients.iter().map(|(_, gradient)| *gradient.ty()).collect();
    assert_eq!(clipped[0].dtype, DType::F16);
    assert_eq!(clipped[2].shape.rank(), 0);
    assert!((grad_norm(&gradients).unwrap() - 1.0).abs() < 1e-2);
    // A coefficient of 5.3e-7, of which f16 has the steps 4.8e-7, 5.4e-7.
    let large = Tensor::<Flex, 1>::full([1000], 60_000.0, &device).cast(DType::F16);
    let mut gradients = GradientsParams::from_iter([(kiln_nn::ParamId::new(), large.into_any())]);
    clip_grad_norm(&mut gradients, 1.0).unwrap();
    assert!((grad_norm(&gradients).unwrap() - 1.0).abs() < 1e-3);
}

#[test]
fn errors_leave_parameters_unchanged() {
    let mut optimizer = SgdConfig::new().init();
    let mut start = layer();
    let wrong = GradientsParams::from_iter([
        (start.weight.id(), Tensor::<Flex, 2>::ones([2, 2], &Default::default()).into_any()),
        (start.bias.id(), Tensor::<Flex, 1>::ones([3], &Default::default()).into_any()),
    ]);
    let error = optimizer.update(0.1, &mut start, wrong).unwrap_err();
    assert_eq!(
        error.to_string(),
        "[sgd] parameter `bias` is f32[2], but its gradient is f32[3]\n  \
         hint: pass the gradients of the same module, from `GradientsParams::from_grads`"
    );
    assert_eq!(numbers(&start.weight), numbers(&layer().weight));
    for rate in [f64::NAN, -0.1, f64::INFINITY] {
        let error = optimizer.update(rate, &mut start, GradientsParams::new()).unwrap_err();
        assert!(matches!(error, OptimError::InvalidOption { .. }), "{error}");
        assert!(error.to_string().starts_with("[sgd] the learning rate is "), "{error}");
    }
}

#[test]
fn errors_name_options_out_of_range() {
    let error = AdamConfig::new().with_beta_1(1.0).try_init().unwrap_err();
    assert_eq!(error.to_string(), "[adam] beta_1 is 1\n  hint: it must be at least 0 and below 1");
    assert!(AdamConfig::new().with_beta_2(-0.1).try_init().is_err());
    assert!(AdamConfig::new().with_beta_2(f64::NAN).try_init().is_err());
    assert!(AdamConfig::new().with_epsilon(-1e-8).try_init().is_err());
    let error = AdamWConfig::new().with_weight_decay(-1.0).try_init().unwrap_err();
    assert!(error.to_string().starts_with("[adamw] weight_decay is -1"), "{error}");
    assert!(SgdConfig::new().with_momentum(-0.5).try_init().is_err());
    assert!(SgdConfig::new().with_dampening(f64::NAN).try_init().is_err());
    assert!(SgdConfig::new().with_nesterov(true).try_init().is_err());
    assert!(SgdConfig::new().with_nesterov(true).with_momentum(0.9).with_dampening(0.1).try_init().is_err());
    assert!(SgdConfig::new().with_grad_clipping(Some(GradientClipping::Norm(0.0))).try_init().is_err());
    let sgd = || SgdConfig::new().init();
    assert!(sgd().with_group(ParameterGroup::new(|_| true).weight_decay(-1.0)).is_err());
    assert!(sgd().with_group(ParameterGroup::new(|_| true).learning_rate_factor(f64::NAN)).is_err());
}

#[test]
fn configurations_are_json() {
    use kiln_nn::Config;
    let config = AdamConfig::new().with_grad_clipping(Some(GradientClipping::GlobalNorm(1.0)));
    assert_eq!(AdamConfig::from_json(&config.to_json()).unwrap(), config);
    assert_eq!(SgdConfig::from_json(r#"{"momentum": 0.9}"#).unwrap(), SgdConfig::new().with_momentum(0.9));
    assert!(SgdConfig::from_json(r#"{"momentun": 0.9}"#).is_err());
}

/// Gradient descent that counts whether the engine may overwrite the parameter.
#[derive(Debug, Default)]
struct Spy(std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl kiln_optim::UpdateRule for Spy {
    fn name(&self) -> &'static str {
        "spy"
    }

    fn slots(&self) -> &'static [&'static str] {
        &[]
    }

    fn update(
        &self,
        value: &kiln_tensor::AnyTensor,
        gradient: kiln_tensor::AnyTensor,
        _state: &mut kiln_optim::ParameterState,
        _options: kiln_optim::StepOptions,
    ) -> kiln_optim::Result<kiln_optim::Update> {
        let unique = usize::from(value.value().is_unique());
        self.0.fetch_add(unique, std::sync::atomic::Ordering::Relaxed);
        Ok(kiln_optim::Update { keep: 1.0, step: gradient })
    }
}

#[test]
fn parameters_can_be_overwritten_once_the_tape_is_gone() {
    let spy = Spy::default();
    let count = spy.0.clone();
    let mut optimizer = kiln_optim::PerParameter::new(spy);
    let layer = train(&mut optimizer, layer(), 0..3);
    assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 6);
    drop(layer);
}
