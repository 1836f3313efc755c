//! Containers: chains, boxed modules, lists and dictionaries are modules in every respect.

use kiln_backends::{Cpu, Device, Dyn, Flex};
use kiln_nn::conv::{Conv2d, Conv2dConfig};
use kiln_nn::*;
use kiln_tensor::transform::grad;
use kiln_tensor::{Autodiff, Backend, Int, Tensor};

type B = Autodiff<Flex>;
type Chain<B> = Sequential<B, Tensor<B, 4>, Tensor<B, 2>>;

/// Convolution, batch normalisation, activation, flattening, dropout and a head.
fn network<B: Backend>(device: &B::Device) -> Chain<B> {
    Sequential::<B, Tensor<B, 4>>::new()
        .push(Conv2dConfig::new([1, 2], [3, 3]).init::<B>(device))
        .push(BatchNormConfig::new(2).init::<B>(device))
        .push(Relu::new())
        .push(Flatten::new(1, 3))
        .push(DropoutConfig::new(0.5).init())
        .push_named("head", LinearConfig::new(8, 3).init::<B>(device))
}

fn names(module: &impl Module) -> Vec<String> {
    module.named_parameters().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_chain_names_its_modules_by_index() {
    let chain = network::<Flex>(&Default::default());
    let expected = [
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
        "head.weight",
        "head.bias",
    ];
    assert_eq!(names(&chain), expected);
    assert_eq!((chain.len(), chain.is_empty()), (6, false));
    assert_eq!(chain.iter().last().unwrap().0, "head");
    let text = chain.to_string();
    assert!(text.contains("head: Linear") && text.contains("1: BatchNorm"), "{text}");
}

#[test]
fn a_chain_computes_its_modules_in_order() {
    let device = Default::default();
    let conv: Conv2d<Flex> = Conv2dConfig::new([1, 2], [3, 3]).init(&device);
    let linear: Linear<Flex> = LinearConfig::new(8, 3).init(&device);
    let x = Tensor::<Flex, 4>::ones([2, 1, 4, 4], &device);
    let expected: Tensor<Flex, 2> =
        linear.forward(Relu::new().forward(conv.forward(x.clone())).flatten(1, 3));
    let chain = Sequential::<Flex, Tensor<Flex, 4>>::new()
        .push(conv.clone())
        .push(Relu::new())
        .push(Flatten::new(1, 3))
        .push(linear.clone());
    assert_eq!(chain.forward(x.clone()).into_data(), expected.clone().into_data());
    let tuple = (conv, Relu::new(), Flatten::new(1, 3), linear);
    assert_eq!(tuple.forward(x.clone()).into_data(), expected.clone().into_data());
    let nested = Sequential::<Flex, Tensor<Flex, 4>>::new().push(chain);
    assert_eq!(nested.forward(x).into_data(), expected.into_data());
    let y = Sequential::<Flex>::new().forward(Tensor::ones([2, 2], &device));
    assert_eq!(y.dims(), [2, 2]);
}

#[test]
fn a_chain_trains_and_its_copy_infers() {
    let device = Default::default();
    let chain = network::<B>(&device);
    let x = Tensor::<B, 4>::random([5, 1, 4, 4], kiln_tensor::Distribution::Default, &device);
    let gradients = chain.forward(x.clone()).square().sum().backward();
    let gradients = GradientsParams::from_grads(gradients, &chain);
    assert_eq!(gradients.len(), 6);
    let valid: Chain<Flex> = chain.valid();
    let once = valid.forward(x.clone().inner()).into_data();
    assert_eq!(valid.forward(x.clone().inner()).into_data(), once);
    // Training mode: dropout is random.
    let train = valid.clone().train();
    assert_ne!(train.forward(x.clone().inner()).into_data(), train.forward(x.clone().inner()).into_data());
    // Evaluation mode with gradients: equal to inference, and the running statistics stay.
    let before = buffers(&chain)["1.running_mean"].to_data().unwrap();
    let chain = chain.eval();
    let y = chain.forward(x);
    assert_eq!(y.clone().inner().into_data(), once);
    let gradients = GradientsParams::from_grads(y.sum().backward(), &chain);
    assert_eq!(gradients.len(), 6);
    assert_eq!(buffers(&chain)["1.running_mean"].to_data().unwrap(), before);
}

#[test]
fn a_chain_is_a_function_of_its_parameters() {
    let device = Default::default();
    let chain = Sequential::<Flex>::new()
        .push(LinearConfig::new(2, 1).init::<Flex>(&device))
        .push(LinearConfig::new(1, 1).with_bias(false).init::<Flex>(&device));
    let x = Tensor::<B, 2>::from([[1.0, 2.0]]);
    let second = chain.named_parameters()[2].1.value.to_data().unwrap().to_vec::<f32>()[0];
    let output = |parameters: NamedTensors| {
        let chain: Sequential<B> = with_parameters(&chain, parameters);
        chain.forward(x.clone()).sum()
    };
    let gradients: NamedTensors = grad(output)(trainable_parameters(&chain));
    let weight = gradients["0.weight"].to_data().unwrap().to_vec::<f32>();
    assert_eq!(weight, [second, 2.0 * second]);
}

#[test]
fn a_boxed_module_moves_between_devices() {
    let boxed: BoxedModule<Dyn> = BoxedModule::new(LinearConfig::new(3, 3).init::<Dyn>(&Device::flex()));
    let boxed = boxed.to_device(&Device::cpu());
    assert_eq!(boxed.devices(), [Device::cpu()]);
    let x = Tensor::<Dyn, 2>::ones([1, 3], &Device::cpu());
    assert_eq!(boxed.forward(x).device(), Device::cpu());
}

#[test]
fn boxed_modules_keep_ids_and_roles() {
    let device = Default::default();
    let linear: Linear<B> = LinearConfig::new(2, 2).init(&device);
    let (weight, bias) = (linear.weight.id(), linear.bias.as_ref().unwrap().id());
    let boxed: BoxedModule<B> = BoxedModule::new(linear.freeze());
    let parameters = boxed.clone().named_parameters();
    let ids: Vec<ParamId> = parameters.iter().map(|(_, parameter)| parameter.id).collect();
    assert_eq!(ids, [weight, bias]);
    assert!(parameters.iter().all(|(_, parameter)| parameter.role == ParameterRole::Frozen));
    assert_eq!(boxed.unfreeze().num_trainable_parameters(), 6);
}

#[test]
fn boxed_modules_have_inputs_of_other_kinds_and_several_tensors() {
    #[derive(Clone, Debug, Module)]
    struct Sum;
    impl<B: Backend> ForwardModule<(Tensor<B, 1>, Tensor<B, 1>)> for Sum {
        type Output = Tensor<B, 1>;
        fn forward(&self, (a, b): (Tensor<B, 1>, Tensor<B, 1>)) -> Tensor<B, 1> {
            a + b
        }
    }
    let device = Default::default();
    let sum: BoxedModule<Cpu, (Tensor<Cpu, 1>, Tensor<Cpu, 1>), Tensor<Cpu, 1>> = BoxedModule::new(Sum);
    let y = sum.forward((Tensor::from([1.0, 2.0]), Tensor::from([3.0, 4.0])));
    assert_eq!(y.into_data().to_vec::<f32>(), [4.0, 6.0]);
    let words = Sequential::<Cpu, Tensor<Cpu, 2, Int>>::new()
        .push(EmbeddingConfig::new(5, 4).init::<Cpu>(&device))
        .push(LinearConfig::new(4, 2).init::<Cpu>(&device));
    assert_eq!(words.forward(Tensor::<Cpu, 2, Int>::from([[0, 1, 4]])).dims(), [1, 3, 2]);
}

#[test]
fn lists_and_dictionaries_hold_boxed_modules() {
    #[derive(Clone, Debug, Module)]
    struct Net<B: Backend> {
        blocks: ModuleList<BoxedModule<B>>,
        heads: ModuleDict<Linear<B>>,
    }
    let device = Default::default();
    let net = Net::<B> {
        blocks: vec![
            BoxedModule::new(LinearConfig::new(4, 4).init::<B>(&device)),
            BoxedModule::new(DropoutConfig::new(0.5).init()),
            BoxedModule::new(LayerNormConfig::new(4).init::<B>(&device)),
        ],
        heads: [("b", LinearConfig::new(4, 1).init(&device)), ("a", LinearConfig::new(4, 2).init(&device))]
            .into_iter()
            .collect(),
    };
    let expected = [
        "blocks.0.weight",
        "blocks.0.bias",
        "blocks.2.weight",
        "blocks.2.bias",
        "heads.b.weight",
        "heads.b.bias",
        "heads.a.weight",
        "heads.a.bias",
    ];
    assert_eq!(names(&net), expected);
    let valid: Net<Flex> = net.valid();
    let x = Tensor::<Flex, 2>::ones([1, 4], &device);
    let y = valid.blocks.iter().fold(x, |x, block| block.forward(x));
    assert_eq!(valid.heads["a"].forward(y).dims(), [1, 2]);
    assert!(net.train().to_string().contains("mode Train"));
}

#[test]
fn dictionaries_replace_and_remove() {
    let mut dict = ModuleDict::new();
    assert!(dict.insert("a", Relu::new()).is_none() && dict.insert("a", Relu::new()).is_some());
    assert_eq!((dict.len(), dict.get("b").is_none()), (1, true));
    assert!(dict.remove("a").is_some() && dict.is_empty());
}

#[test]
#[should_panic(expected = "[module_dict] `a.b` cannot be the name of a module")]
fn names_have_no_dots() {
    ModuleDict::new().insert("a.b", Relu::new());
}

#[test]
#[should_panic(expected = "[sequential] there are two modules `1`")]
fn names_in_a_chain_are_unique() {
    let _ = Sequential::<Flex>::new().push_named("1", Relu::new()).push(Relu::new());
}

#[test]
fn the_mode_of_a_part_differs_from_that_of_the_whole() {
    let device = Default::default();
    let mut chain = (DropoutConfig::new(0.5).init(), DropoutConfig::new(0.5).init()).train();
    chain.0 = chain.0.eval();
    let x = Tensor::<Flex, 1>::ones([1000], &device);
    assert_eq!(chain.0.forward(x.clone()).sum().into_scalar::<f32>(), 1000.0);
    let kept = chain.1.forward(x).sum().into_scalar::<f32>();
    assert!((700.0..1300.0).contains(&kept) && kept != 1000.0);
    assert_eq!(chain.with_mode(Mode::Auto).0.mode, Mode::Auto);
}

#[test]
fn a_frozen_batch_norm_in_a_training_model_keeps_its_statistics() {
    let device = Default::default();
    let norm: BatchNorm<B> = BatchNormConfig::new(1).init(&device);
    let norm = norm.eval().freeze();
    let x = Tensor::<B, 2>::from([[1.0], [5.0]]).require_grad();
    let y = norm.forward(x.clone());
    let gradients = y.clone().sum().backward();
    assert!((x.grad(&gradients).unwrap().into_data().to_vec::<f32>()[0] - 1.0).abs() < 1e-4);
    assert_eq!(GradientsParams::from_grads(gradients, &norm).len(), 0);
    assert!((y.inner().into_data().to_vec::<f32>()[1] - 5.0).abs() < 1e-3);
}
