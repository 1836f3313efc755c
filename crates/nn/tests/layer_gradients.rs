//! Second derivatives of layers: the gradient of a projected gradient matches central differences of the gradient, in
//! 64-bit floats.

use kiln_backends::Flex;
use kiln_nn::*;
use kiln_tensor::{Autodiff, DType, Tensor, TensorData};

type B = Autodiff<Flex>;
type B2 = Autodiff<B>;

const STEP: f64 = 1e-5;

/// Numbers without a kink of any tested layer nearby.
fn numbers<const D: usize>(shape: [usize; D], phase: f64) -> Vec<f64> {
    let count = shape.iter().product::<usize>();
    (0..count).map(|place| 1.3 * (1.7 * place as f64 + phase).sin() + 0.05 * place as f64).collect()
}

fn tensor<const D: usize>(values: &[f64], shape: [usize; D]) -> Tensor<B, D> {
    let data = TensorData::new(values.to_vec(), kiln_tensor::Shape::from(shape)).unwrap();
    Tensor::from_data_dtype(data, DType::F64, &Default::default())
}

/// The gradient at `x` of the layer's output, projected along fixed directions, as a tensor on `B`.
fn gradient<const D: usize, const D2: usize>(
    layer: &impl ForwardModule<Tensor<B2, D>, Output = Tensor<B2, D2>>,
    x: &Tensor<B, D>,
) -> Tensor<B, D> {
    let above = Tensor::<B2, D>::from_inner(x.clone()).require_grad();
    let y = layer.forward(above.clone());
    let along = Tensor::<B2, D2>::from_inner(tensor(&numbers(y.dims(), 0.3), y.dims()));
    above.grad(&(y * along).sum().backward()).unwrap()
}

/// Compares the gradient of `u · gradient(x)` with the difference of gradients along `u`: the Hessian is symmetric.
fn check<const D: usize, const D2: usize>(
    name: &str,
    mut layer: impl ForwardModule<Tensor<B2, D>, Output = Tensor<B2, D2>>,
    shape: [usize; D],
) {
    layer.map_parameters(|_, parameter| parameter.map(|value| value.cast(DType::F64).unwrap()));
    let (x, u) = (numbers(shape, 0.9), numbers(shape, 2.2));
    let leaf = tensor(&x, shape).require_grad();
    // The last term is 0: the gradient of a piecewise linear layer does not depend on its input.
    let projected = (gradient(&layer, &leaf) * tensor(&u, shape)).sum() + leaf.clone().sum() * 0.0;
    let second: Vec<f64> = leaf.grad(&projected.backward()).unwrap().into_data().to_vec();
    let moved = |step: f64| -> Vec<f64> {
        let x: Vec<f64> = x.iter().zip(&u).map(|(x, u)| x + step * u).collect();
        gradient(&layer, &tensor(&x, shape)).into_data().to_vec()
    };
    for (place, ((second, after), before)) in second.iter().zip(moved(STEP)).zip(moved(-STEP)).enumerate() {
        let expected = (after - before) / (2.0 * STEP);
        let error = (second - expected).abs();
        assert!(error <= 1e-5 * expected.abs().max(1.0), "{name}[{place}]: {second}, expected {expected}");
    }
}

#[test]
fn activations() {
    let device = Default::default();
    let configs: [ActivationConfig; 20] = [
        ActivationConfig::Relu6,
        ActivationConfig::Silu,
        ActivationConfig::Tanh,
        ActivationConfig::Tanhshrink,
        ActivationConfig::Sigmoid,
        ActivationConfig::LogSigmoid,
        ActivationConfig::HardSwish,
        ActivationConfig::Mish,
        ActivationConfig::Selu,
        ActivationConfig::Softsign,
        ActivationConfig::Gelu,
        ActivationConfig::GeluApproximate,
        EluConfig::new().into(),
        CeluConfig::new().with_alpha(0.7).into(),
        SoftplusConfig::new().with_beta(1.5).into(),
        HardSigmoidConfig::new().into(),
        SoftShrinkConfig::new().into(),
        ShrinkConfig::new().into(),
        PReluConfig::new().into(),
        LeakyReluConfig::new().into(),
    ];
    for config in configs {
        let layer: Activation<B2> = config.init(&device);
        check(&config.to_json(), layer.eval(), [3, 4]);
    }
    check("softmin", Softmin::new(1), [3, 4]);
    check("quiet softmax", QuietSoftmax::new(1), [3, 4]);
    check("softmax 2d", Softmax2d::new(), [1, 3, 2, 2]);
    check("glu", Glu::new(1), [3, 4]);
}

#[test]
fn pools() {
    check("max", MaxPool3dConfig::new([2, 1, 2]).init(), [1, 1, 2, 2, 4]);
    check("average", AvgPool3dConfig::new([2, 1, 2]).init(), [1, 1, 2, 2, 4]);
    check("power", LpPool2dConfig::new(2.0, [2, 2]).init(), [1, 1, 4, 4]);
    check("adaptive average", AdaptiveAvgPool3dConfig::new([1, 2, 2]).init(), [1, 1, 2, 3, 2]);
    check("adaptive max", AdaptiveMaxPool2dConfig::new([2, 2]).init(), [1, 1, 3, 4]);
}

#[test]
fn norms() {
    check("local response", LocalResponseNormConfig::new(3).with_alpha(0.5).init(), [1, 4, 2]);
    let instance: InstanceNorm<B2> = InstanceNormConfig::new(2).init(&Default::default());
    check("instance", instance, [2, 2, 3]);
    let sync: SyncBatchNorm<B2> = SyncBatchNormConfig::new(2).with_affine(false).init(&Default::default());
    check("synchronized batch", sync, [4, 2, 2]);
}

#[test]
fn shapes_and_images() {
    check("unfold", Unfold4dConfig::new([2, 2]).init(), [1, 1, 3, 3]);
    check("fold", Fold4dConfig::new([3, 3], [2, 2]).init(), [1, 4, 4]);
    check("reflection", ReflectionPad2d::uniform(1), [1, 1, 2, 3]);
    check("circular", CircularPad1d::uniform(2), [1, 2, 3]);
    check("upsample", Upsample::bilinear(2.0), [1, 1, 2, 3]);
    check("shuffle", PixelShuffleConfig::new(2).init(), [1, 4, 1, 2]);
}
