//! Mixed precision: every case in `bf16` against the reference in `f32`, gradients against those in `f32`, and training.

use kiln_autocast::{Autocast as Layer, LowPrecision, Precision, precision};
use kiln_backends::{Autocast, AutocastFloat, Cpu, Flex};
use kiln_ir::{DType, Engine, Op, OpKind, TensorData};
use kiln_nn::{GradientsParams, Linear, LinearConfig, Module};
use kiln_optim::{AdamWConfig, LossScalerConfig, Optimizer};
use kiln_suite::case::{Case, Tolerance};
use kiln_suite::cases::Group;
use kiln_suite::check::Expected;
use kiln_suite::engines::{CPU_ONE, FUSED_ONE, Neighbours, Tracked};
use kiln_suite::fill::epsilon;
use kiln_suite::run::{Summary, finish};
use kiln_tensor::{
    Autodiff, AutodiffBackend, Backend, Distribution, Tensor, activation, bf16, f16, loss, module,
};
use std::sync::Arc;

/// Attention adds the roundings of scores to those of the product, and both grow with the length of a sum.
const SLACK: f64 = 4.0;

/// The case, with its tolerance widened for operands and results rounded to `bf16`.
fn loosened(mut case: Case) -> Case {
    let types = case.operand_types();
    let sees_f32 = types.iter().filter_map(|ty| ty.tensor()).any(|ty| ty.dtype == DType::F32);
    let factor = SLACK * epsilon(DType::BF16) / epsilon(DType::F32);
    if let Op::Loop(looped) = &case.op
        && looped.kinds().contains(OpKind::MatMul)
        && sees_f32
    {
        // Each step rounds the operands of its matmuls.
        case.tolerance = Tolerance::Near { relative: 2.0 * factor, absolute: 2.0 * factor };
    }
    if precision(&case.op) == Precision::Low && sees_f32 {
        let (relative, absolute) = match case.tolerance {
            Tolerance::Bits | Tolerance::Exact => (1.0, 1.0),
            Tolerance::Near { relative, absolute } => (relative.max(1.0), absolute.max(1.0)),
        };
        case.tolerance = Tolerance::Near { relative: relative * factor, absolute: absolute * factor };
    }
    case
}

fn autocast(engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
    Arc::new(Layer::new(engine, LowPrecision::BF16))
}

fn values(group: Group) {
    let engines: [(&str, Arc<dyn Engine>); 3] = [
        ("autocast over cpu", autocast((CPU_ONE.open)())),
        ("autodiff over autocast over cpu", Arc::new(Tracked::new(autocast((CPU_ONE.open)())))),
        ("autocast over fusion, among neighbours", Arc::new(Neighbours(autocast((FUSED_ONE.open)())))),
    ];
    let mut summaries =
        engines.each_ref().map(|(name, _)| Summary::new(format!("value {group:?} on {name}")));
    for case in group.cases().into_iter().map(loosened) {
        let expected = Expected::of(&case);
        for ((_, engine), summary) in engines.iter().zip(&mut summaries) {
            summary.add(expected.check(&**engine));
        }
    }
    finish(summaries.into());
}

kiln_suite::group_tests!(values);

type Function<B> = fn(Tensor<B, 2>, Tensor<B, 2>) -> Tensor<B, 1>;

/// Functions of two matrices that use every precision.
fn functions<B: Backend>() -> Vec<(&'static str, Function<B>)> {
    vec![
        ("product", |x, w| x.matmul(w).tanh().sum()),
        ("gelu", |x, w| activation::gelu(x.clone().matmul(w.clone()) * 0.3).matmul(w).mean()),
        ("softmax", |x, w| (activation::softmax(x.clone().matmul(w.transpose()), 1) * x).sum()),
        ("log softmax", |x, w| activation::log_softmax(x.matmul(w), 1).slice([0..8, 2..3]).mean()),
        ("residual", |x, w| {
            let y = x.clone() + x.matmul(w.clone());
            let centred = y.clone() - y.mean_dim(1);
            (centred.clone() / (centred.square().mean_dim(1) + 1e-5).sqrt()).matmul(w).square().mean()
        }),
        ("least and greatest", |x, w| {
            // Columns far enough apart that rounding does not change which is the greatest.
            let column = Tensor::arange_float(0.0..4.0, 0.5, &x.device()).unsqueeze::<2>();
            let y = (x.abs() + 0.5).matmul(w * 0.01 + column);
            (y.clone().max_dim(1) * 2.0 - y.clone().min_dim(1)).sum() + y.clamp(-1.0, 3.1).sum()
        }),
        ("attention", |x, w| {
            let heads = |x: Tensor<B, 2>| x.reshape([1, 2, 8, 4]);
            let v = heads(x.clone().matmul(w.clone()));
            let y = module::attention(heads(x), heads(w.clone()), v, None, Default::default());
            (y.reshape([8, 8]) * w).sum()
        }),
        ("normalisation", |x, w| {
            module::layer_norm(x.clone().matmul(w), None, None, 1e-5).matmul(x).tanh().sum()
        }),
        ("convolution", |x, w| {
            let y = module::conv1d(x.unsqueeze::<3>(), w.reshape([8, 8, 1]), None, &Default::default());
            y.exp().mean()
        }),
    ]
}

fn matrices<B: AutodiffBackend>() -> [Tensor<B, 2>; 2] {
    let device = B::Device::default();
    let numbers = |seed: usize| -> Vec<f32> {
        (0..64).map(|i| ((i * 7919 + seed * 104_729) % 201) as f32 / 100.0 - 1.0).collect()
    };
    [1, 2].map(|seed| {
        let data = TensorData::new(numbers(seed), [8, 8]).unwrap();
        Tensor::<B, 2>::from_data(data, &device).require_grad()
    })
}

fn gradients<B: AutodiffBackend>() -> Vec<(&'static str, Vec<f32>)> {
    let gradient = |(name, function): (&'static str, Function<B>)| {
        let [x, w] = matrices::<B>();
        let found = function(x.clone(), w.clone()).backward();
        let of = |tensor: &Tensor<B, 2>| tensor.grad(&found).unwrap().into_data().to_vec::<f32>();
        (name, [of(&x), of(&w)].concat())
    };
    functions::<B>().into_iter().map(gradient).collect()
}

/// The distance of gradients relative to their length, for each function.
#[track_caller]
fn close(found: Vec<(&'static str, Vec<f32>)>, expected: &[(&'static str, Vec<f32>)], tolerance: f32) {
    let length = |numbers: &mut dyn Iterator<Item = f32>| numbers.map(|x| x * x).sum::<f32>().sqrt();
    for ((name, found), (_, expected)) in found.into_iter().zip(expected) {
        let distance = length(&mut found.iter().zip(expected).map(|(a, b)| a - b));
        let relative = distance / length(&mut expected.iter().copied());
        println!("{name}: {relative}");
        assert!(relative < tolerance, "{name}: {relative}");
        assert!(relative > 0.0, "{name}: nothing ran in 16 bits");
    }
}

#[test]
fn gradients_match_f32() {
    let expected = gradients::<Autodiff<Flex>>();
    close(gradients::<Autodiff<Autocast<Flex>>>(), &expected, 0.02);
    close(gradients::<Autodiff<Autocast<Cpu>>>(), &expected, 0.02);
    close(gradients::<Autodiff<Autocast<Flex, f16>>>(), &expected, 0.003);
    close(gradients::<Autodiff<Autocast<Cpu, f16>>>(), &expected, 0.003);
}

#[derive(Debug, Module)]
struct Mlp<B: Backend> {
    first: Linear<B>,
    second: Linear<B>,
}

impl<B: Backend> Mlp<B> {
    fn loss(&self, x: Tensor<B, 2>) -> Tensor<B, 1> {
        let target = x.clone().sin();
        let y = self.second.forward(activation::gelu(self.first.forward(x)));
        loss::mse(y, target, loss::Reduction::Mean)
    }
}

/// The losses of the first and last step, and the scales where the loss was scaled.
fn train<F: AutocastFloat>(scaled: bool) -> (f64, f64, Vec<f64>) {
    type B<F> = Autodiff<Autocast<Cpu, F>>;
    let device = Default::default();
    B::<F>::seed(&device, 3);
    let mut model = Mlp::<B<F>> {
        first: LinearConfig::new(8, 64).init(&device),
        second: LinearConfig::new(64, 8).init(&device),
    };
    let mut optimizer = AdamWConfig::new().init();
    // So large that the first gradients are not finite in f16.
    let config = LossScalerConfig::new().with_initial_scale(2f64.powi(30)).with_growth_interval(20);
    let mut scaler = config.init();
    let (mut losses, mut scales) = (Vec::new(), Vec::new());
    for _ in 0..120 {
        let loss = model.loss(Tensor::random([64, 8], Distribution::Normal(0.0, 1.0), &device));
        losses.push(f64::from(loss.clone().into_scalar::<f32>()));
        if scaled {
            let gradients = GradientsParams::from_grads(scaler.scale_loss(loss).backward(), &model);
            let before = model.first.weight.to_data();
            let is_changed = scaler.step(&mut optimizer, 0.01, &mut model, gradients).unwrap();
            assert_eq!(is_changed, model.first.weight.to_data() != before);
            scales.push(scaler.scale());
        } else {
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(0.01, model, gradients);
        }
    }
    (losses[0], losses[119], scales)
}

#[test]
fn a_model_trains_in_bf16() {
    let (first, last, _) = train::<bf16>(false);
    assert!(last < 0.25 * first, "{first} -> {last}");
}

#[test]
fn a_model_trains_in_f16_with_a_scaled_loss() {
    let (first, last, scales) = train::<f16>(true);
    assert!(last < 0.25 * first, "{first} -> {last}");
    assert!(scales[0] < 2f64.powi(30), "the first step was left out: {scales:?}");
    assert!(scales.windows(2).any(|pair| pair[1] > pair[0]), "the scale grows: {scales:?}");
}

#[test]
fn weights_are_updated_in_f32() {
    type B = Autodiff<Autocast<Flex>>;
    let device = Default::default();
    let weight = Tensor::<B, 2>::ones([2, 2], &device);
    // A step of less than half of `bf16`'s spacing at 1.
    let step = 1.0 / 1024.0;
    let moved = weight.clone().inner() - Tensor::<Autocast<Flex>, 2>::full([2, 2], step, &device);
    assert_eq!(moved.into_data().to_vec::<f32>(), [1.0 - 1.0 / 1024.0; 4]);
    let y = Tensor::<B, 2>::from_inner(weight.clone().inner()).matmul(weight);
    assert_eq!(y.into_data().to_vec::<f32>(), [2.0; 4]);
}
