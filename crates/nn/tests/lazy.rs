//! Lazy layers: parameters appear with the first input.

use kiln_backends::{Device, Dyn, Flex};
use kiln_nn::*;
use kiln_tensor::{Autodiff, Tensor};

type B = Autodiff<Flex>;

fn names(module: &impl Module) -> Vec<String> {
    module.named_parameters().into_iter().map(|(name, _)| name).collect()
}

/// The first input initializes a layer: its output and its weight have these shapes.
macro_rules! first_inputs {
    ($($test:ident $lazy:ident($config:expr) $input:expr => $output:expr, $weight:expr;)*) => {$(
        #[test]
        fn $test() {
            let layer = $lazy::<B>::new($config);
            assert!(layer.named_parameters().is_empty() && layer.get().is_none());
            let y = layer.forward(Tensor::ones($input, &Default::default()));
            assert_eq!(y.dims(), $output);
            assert_eq!(layer.named_parameters()[0].0, "weight");
            assert_eq!(layer.named_parameters()[0].1.value.shape()[..], $weight);
        }
    )*};
}

first_inputs! {
    linear LazyLinear(LinearConfig::new(0, 3)) [2, 4, 5] => [2, 4, 3], [3, 5];
    conv1d LazyConv1d(Conv1dConfig::new([0, 4], [3])) [2, 6, 5] => [2, 4, 3], [4, 6, 3];
    conv2d LazyConv2d(Conv2dConfig::new([0, 4], [3, 1]).with_groups(2)) [2, 6, 5, 2] => [2, 4, 3, 2], [4, 3, 3, 1];
    conv3d LazyConv3d(Conv3dConfig::new([0, 2], [1, 1, 2])) [1, 3, 2, 2, 2] => [1, 2, 2, 2, 1], [2, 3, 1, 1, 2];
    conv_transpose1d LazyConvTranspose1d(ConvTranspose1dConfig::new([0, 4], [3])) [2, 6, 5] => [2, 4, 7], [6, 4, 3];
    conv_transpose2d LazyConvTranspose2d(ConvTranspose2dConfig::new([0, 4], [1, 2]))
        [2, 6, 5, 1] => [2, 4, 5, 2], [6, 4, 1, 2];
    conv_transpose3d LazyConvTranspose3d(ConvTranspose3dConfig::new([0, 1], [1, 1, 1]))
        [1, 2, 1, 2, 3] => [1, 1, 1, 2, 3], [2, 1, 1, 1, 1];
    batch_norm LazyBatchNorm(BatchNormConfig::new(0)) [2, 6, 5] => [2, 6, 5], [6];
    instance_norm LazyInstanceNorm(InstanceNormConfig::new(0).with_affine(true)) [2, 6, 5] => [2, 6, 5], [6];
}

#[test]
fn later_inputs_use_the_same_parameters() {
    let device = Default::default();
    let layer = LazyLinear::<B>::new(LinearConfig::new(0, 3));
    let x = Tensor::<B, 2>::ones([2, 5], &device);
    let (a, b) = (layer.forward(x.clone()), layer.forward(x.clone()));
    assert_eq!(a.into_data(), b.clone().into_data());
    let gradients = GradientsParams::from_grads(b.sum().backward(), &layer);
    assert_eq!(gradients.len(), 2);
    // A clone has the parameters, and so has the module on another backend.
    assert_eq!(layer.clone().forward(x.clone()).into_data(), layer.forward(x.clone()).into_data());
    assert_eq!(layer.valid().forward(x.clone().inner()).into_data(), layer.forward(x).into_data());
    assert_eq!(names(&layer), ["weight", "bias"]);
    assert_eq!(layer.into_inner().unwrap().weight.dims(), [3, 5]);
}

#[test]
#[should_panic(expected = "the input has too few dimensions: f32[4]")]
fn a_vector_has_no_channels() {
    LazyBatchNorm::<B>::new(BatchNormConfig::new(0)).forward(Tensor::<B, 1>::ones([4], &Default::default()));
}

/// A panic in the first call does not make the layer unusable.
#[test]
fn a_failed_first_call_can_be_repeated() {
    let layer = LazyConv2d::<Flex>::new(Conv2dConfig::new([0, 4], [1, 1]).with_groups(2));
    let call = |channels| layer.forward(Tensor::ones([1, channels, 2, 2], &Default::default())).dims();
    let odd = std::panic::AssertUnwindSafe(|| call(3));
    assert!(std::panic::catch_unwind(odd).is_err());
    assert_eq!(call(6), [1, 4, 2, 2]);
}

#[test]
fn a_mode_that_was_set_before_is_kept() {
    let x = || Tensor::<B, 2>::from_floats([[1.0, 2.0], [3.0, 5.0]], &Default::default());
    let layer = LazyBatchNorm::<B>::new(BatchNormConfig::new(0)).eval();
    layer.forward(x());
    assert_eq!(layer.get().unwrap().running_mean.value().into_data().to_vec::<f32>(), [0.0, 0.0]);
    let layer = layer.train();
    layer.forward(x());
    assert_eq!(layer.get().unwrap().running_mean.value().into_data().to_vec::<f32>(), [0.2, 0.35]);
}

#[derive(Clone, Debug, Module)]
struct Net<B: kiln_tensor::Backend> {
    first: LazyLinear<B>,
    second: Linear<B>,
}

#[test]
fn lazy_layers_are_fields_of_models() {
    let device = Default::default();
    let net = Net::<B> {
        first: LazyLinear::new(LinearConfig::new(0, 4)),
        second: LinearConfig::new(4, 2).init(&device),
    };
    assert_eq!(names(&net), ["second.weight", "second.bias"]);
    assert!(net.to_string().contains("Lazy"), "{net}");
    net.first.materialize(&Tensor::<B, 2>::ones([1, 3], &device));
    assert_eq!(names(&net), ["first.weight", "first.bias", "second.weight", "second.bias"]);
    assert_eq!(net.clone().freeze().num_trainable_parameters(), 0);
}

/// Inside a chain layers are on `Dyn`; parameters get the stack of the input, with automatic differentiation.
#[test]
fn lazy_layers_are_elements_of_chains() {
    let device = Default::default();
    let chain = Sequential::<B, Tensor<B, 4>>::new()
        .push(LazyConv2d::<B>::new(Conv2dConfig::new([0, 2], [1, 1])))
        .push(LazyBatchNorm::<B>::new(BatchNormConfig::new(0)))
        .push(Flatten::new(1, 3))
        .push(LazyLinear::<B>::new(LinearConfig::new(0, 3)));
    let y = chain.forward(Tensor::ones([2, 5, 2, 2], &device));
    assert_eq!(y.dims(), [2, 3]);
    let gradients = GradientsParams::from_grads(y.sum().backward(), &chain);
    assert_eq!(gradients.len(), 6);
    assert_eq!(names(&chain)[0], "0.weight");
}

#[test]
fn parameters_are_on_the_device_of_the_input() {
    let device = Device::cpu();
    let layer = LazyLinear::<Dyn>::new(LinearConfig::new(0, 3));
    layer.forward(Tensor::<Dyn, 2>::ones([2, 5], &device));
    assert_eq!(layer.devices(), [device]);
}
