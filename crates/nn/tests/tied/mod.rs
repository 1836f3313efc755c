//! Parameters that a module holds in two places.

use kiln_backends::{Device, Dyn, Flex};
use kiln_nn::reparametrize::{LoraConfig, WeightNormConfig};
use kiln_nn::*;
use kiln_tensor::{Autodiff, AutodiffBackend, Backend, Int, Tensor};

type B = Autodiff<Flex>;

#[derive(Clone, Debug, Module)]
struct Model<B: Backend> {
    embed: Embedding<B>,
    head: Linear<B>,
}

fn model<B: Backend>(device: &B::Device) -> Model<B> {
    let mut model = Model {
        embed: EmbeddingConfig::new(5, 3).init(device),
        head: LinearConfig::new(3, 5).with_bias(false).init(device),
    };
    model.head.weight = model.embed.weight.clone();
    model
}

fn output<B: Backend>(model: &Model<B>, device: &B::Device) -> Tensor<B, 3> {
    model.head.forward(model.embed.forward(Tensor::<B, 2, Int>::from_ints([[0, 2, 1]], device)))
}

/// Both places hold one tensor below automatic differentiation.
#[track_caller]
fn assert_tied<B: Backend>(model: &Model<B>) {
    let address = |weight: &Param<Tensor<B, 2>>| weight.as_any().clone().inner().value().address();
    assert_eq!(address(&model.embed.weight), address(&model.head.weight));
    assert_eq!(
        (model.embed.weight.id(), model.embed.weight.role()),
        (model.head.weight.id(), model.head.weight.role())
    );
    assert_eq!(model.num_parameters(), 15);
}

/// Both places are one leaf.
#[track_caller]
fn assert_one_leaf<B: AutodiffBackend>(model: &Model<B>) {
    assert_tied(model);
    let leaf = |weight: &Param<Tensor<B, 2>>| weight.as_any().value().address();
    assert_eq!(leaf(&model.embed.weight), leaf(&model.head.weight));
    assert!(model.embed.weight.is_require_grad());
}

fn names(module: &impl Module) -> Vec<String> {
    module.named_parameters().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_tied_parameter_is_visited_once() {
    let device = Default::default();
    let mut model = model::<B>(&device);
    assert_one_leaf(&model);
    assert_eq!((names(&model), model.num_trainable_parameters()), (vec!["embed.weight".to_string()], 15));
    let mut count = 0;
    model.map_parameters(|_, parameter| {
        count += 1;
        parameter.map(|value| value.mul_scalar(2.0).unwrap())
    });
    assert_eq!(count, 1);
    assert_one_leaf(&model);
    let gradients = GradientsParams::from_grads(output(&model, &device).sum().backward(), &model);
    assert_eq!(gradients.len(), 1);
}

#[test]
fn a_tied_parameter_stays_tied() {
    let device = Default::default();
    let model = model::<B>(&device);
    assert_one_leaf(&model.clone());
    assert_tied(&model.valid());
    assert_tied(&model.clone().freeze());
    assert_one_leaf(&model.clone().freeze().unfreeze());
    assert_one_leaf(&model.clone().eval().to_device(&device));
    // A clone that changes leaves the model as it is.
    let mut other = model.clone();
    other.map_parameters(|_, parameter| parameter.map(|value| value.mul_scalar(2.0).unwrap()));
    assert_one_leaf(&other);
    assert_ne!(other.head.weight.to_data(), model.head.weight.to_data());
}

#[test]
fn a_tied_parameter_moves_as_one() {
    let model = model::<Dyn>(&Device::flex().autodiff());
    for device in [Device::flex(), Device::cpu()] {
        assert_tied(&model.clone().to_device(&device));
        assert_one_leaf(&model.clone().to_device(&device.autodiff()));
    }
    let back = model.clone().to_device(&Device::cpu()).to_device(&Device::flex().autodiff());
    assert_one_leaf(&back);
    assert_eq!(back.head.weight.to_data(), model.head.weight.to_data());
}

#[test]
fn separate_tensors_of_one_id_are_separate_parameters() {
    let mut model = model::<B>(&Default::default());
    model.head.weight = model.head.weight.map(|weight| weight * 2);
    assert_eq!(names(&model), ["embed.weight", "head.weight"]);
    let before = model.head.weight.to_data();
    let model = model.to_device(&Default::default());
    assert_eq!((model.num_parameters(), model.head.weight.to_data()), (30, before));

    let mut copy = self::model::<B>(&Default::default());
    copy.head.weight = copy.head.weight.freeze();
    assert_eq!((copy.num_parameters(), copy.num_trainable_parameters()), (30, 15));
    copy.head.weight = copy.embed.weight.clone();
    assert_eq!(copy.num_parameters(), 15);
}

/// One gradient for each of two leaves.
#[test]
fn gradients_of_two_leaves_add() {
    let device = Default::default();
    let model = model::<B>(&device);
    let whole = GradientsParams::from_grads(output(&model, &device).sum().backward(), &model);
    let mut apart = model.clone();
    apart.embed = apart.embed.freeze().unfreeze();
    let parts = GradientsParams::from_grads(output(&apart, &device).sum().backward(), &apart);
    let id = model.embed.weight.id();
    let numbers = |gradients: &GradientsParams| gradients.tensor::<Flex, 2>(id).unwrap().to_vec::<f32>();
    let (whole, parts) = (numbers(&whole), numbers(&parts));
    assert!(whole.iter().zip(&parts).all(|(a, b)| (a - b).abs() < 1e-6), "{parts:?} instead of {whole:?}");

    let ones = |name: &str| (name.to_string(), model.embed.weight.val().ones_like().into_any().inner());
    let both = [ones("embed.weight"), ones("head.weight")];
    let summed = GradientsParams::from_named(both.into(), &model).unwrap();
    assert_eq!(numbers(&summed), [2.0; 15]);
}

#[test]
fn a_path_can_be_used_for_a_second_traversal() {
    struct Count(usize, usize);
    impl Visitor for Count {
        fn parameter(&mut self, _path: &Path, _parameter: Parameter) {
            self.0 += 1;
        }

        fn tied(&mut self, path: &Path, _parameter: Parameter) {
            assert_eq!(path.as_str(), "head.weight");
            self.1 += 1;
        }
    }
    impl VisitorMut for Count {
        fn parameter(&mut self, _path: &Path, parameter: Parameter) -> Parameter {
            self.0 += 1;
            parameter
        }

        fn tied(&mut self, path: &Path, _id: ParamId) {
            assert_eq!(path.as_str(), "head.weight");
            self.1 += 1;
        }
    }
    let mut model = model::<Flex>(&Default::default());
    let (mut path, mut read, mut replaced) = (Path::new(), Count(0, 0), Count(0, 0));
    for _ in 0..3 {
        model.visit(&mut path, &mut read);
        model.visit_mut(&mut path, &mut replaced);
    }
    assert_eq!((read.0, read.1, replaced.0, replaced.1), (3, 3, 3, 3));
}

#[test]
fn tables_show_all_places_and_count_one() {
    let model = model::<Flex>(&Default::default());
    let table = model.to_string();
    assert!(table.contains("weight f32[5, 3] (tied to embed.weight)"), "{table}");
    assert!(table.ends_with("15 parameters"), "{table}");

    let summary = model.summary_of(output);
    assert_eq!(summary.num_parameters(), 15);
    // A matmul of three rows belongs to the head.
    assert_eq!(summary.layer("head").unwrap().flops, 2 * 3 * 3 * 5);
    assert_eq!(summary.layer("head").unwrap().parameters, 0);
}

#[test]
fn a_function_of_tied_parameters_has_one_argument() {
    let model = model::<Flex>(&Default::default());
    assert_eq!(trainable_parameters(&model).keys().collect::<Vec<_>>(), ["embed.weight"]);
    // A frozen copy is another parameter of the function.
    let mut copy = model.clone();
    copy.head.weight = copy.head.weight.freeze();
    let given = trainable_parameters(&copy).into_iter().map(|(name, x)| (name, x.mul_scalar(2.0).unwrap()));
    let placed: Model<Flex> = with_parameters(&copy, given.collect());
    assert_eq!(placed.head.weight.to_data(), model.head.weight.to_data());
    assert_ne!(placed.embed.weight.to_data(), model.embed.weight.to_data());
}

#[test]
fn boxed_modules_can_be_tied() {
    let device = Default::default();
    let first = LinearConfig::new(3, 3).with_bias(false).init::<B>(&device);
    let second = first.clone();
    let mut model: Vec<BoxedModule<B>> = vec![BoxedModule::new(first), BoxedModule::new(second)];
    assert_eq!(names(&model), ["0.weight"]);
    model.map_parameters(|_, parameter| parameter.map(|value| value.mul_scalar(2.0).unwrap()));
    assert_eq!(model.valid().num_parameters(), 9);
    let x = Tensor::<B, 2>::ones([1, 3], &device);
    assert_eq!(model[0].forward(x.clone()).to_data(), model[1].forward(x).to_data());
}

#[test]
fn reparametrized_modules_can_be_tied() {
    let device = Default::default();
    let layer = LinearConfig::new(3, 2).with_bias(false).init::<B>(&device);
    let layer = WeightNormConfig::new().init(layer).unwrap();
    let mut model = (layer.clone(), layer);
    let expected = ["0.parametrizations.weight.original1", "0.parametrizations.weight.original0"];
    assert_eq!(names(&model), expected);
    model.map_parameters(|_, parameter| parameter.map(|value| value.mul_scalar(3.0).unwrap()));
    let weights = |model: &(_, _)| -> [Linear<B>; 2] { [&model.0, &model.1].map(reparametrize_module) };
    let [a, b] = weights(&model);
    assert_eq!(a.weight.to_data(), b.weight.to_data());
    assert_eq!(names(&model.valid()), expected);
    let gradients =
        GradientsParams::from_grads((a.weight.val() * 2 + b.weight.val()).sum().backward(), &model);
    assert_eq!(gradients.len(), 2);
}

fn reparametrize_module(
    model: &reparametrize::Reparametrized<Linear<B>, reparametrize::WeightNorm>,
) -> Linear<B> {
    model.module()
}

#[test]
fn adapters_keep_a_base_tied() {
    let device = Default::default();
    let adapted = LoraConfig::new(1).init(model::<B>(&device)).unwrap();
    assert_eq!(adapted.num_parametrizations(), 1);
    assert_eq!(names(&adapted), ["embed.weight", "embed.lora_A.weight", "embed.lora_B.weight"]);
    assert_tied(adapted.base());
    assert_one_leaf(&adapted.merge());
    assert_one_leaf(&adapted.into_base());
}
