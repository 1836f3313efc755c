//! Inputs that `#[derive(Module)]` accepts, and the code it generates.
#![deny(warnings)]
#![allow(missing_docs, unreachable_pub)]

use kiln_backends::{Device, Dyn, Flex};
use kiln_nn::*;
use kiln_tensor::{Autodiff, Backend, Float, Int, Kind, Tensor};
use std::fmt::Debug;
use std::marker::PhantomData;

type Back = Autodiff<Flex>;

fn names(module: &impl Module) -> Vec<String> {
    module.named_parameters().into_iter().map(|(name, _)| name).collect()
}

fn linear<B: Backend>(input: usize, output: usize) -> Linear<B>
where
    B::Device: Default,
{
    LinearConfig::new(input, output).init(&Default::default())
}

#[derive(Clone, Debug, PartialEq)]
enum Mode {
    Fast,
    Slow,
}

#[derive(Module, Clone, Debug)]
struct Everything<B: Backend> {
    linear: Linear<B>,
    scale: Param<Tensor<B, 1>>,
    table: Param<Tensor<B, 2, Int>>,
    maybe: Option<Linear<B>>,
    nothing: Option<Linear<B>>,
    layers: Vec<Linear<B>>,
    pair: [Linear<B>; 2],
    tuple: (Linear<B>, Relu),
    boxed: Box<Linear<B>>,
    #[module(rename = "out_proj")]
    output: Linear<B>,
    r#type: Linear<B>,
    width: usize,
    name: String,
    #[module(attribute)]
    mode: Mode,
    #[module(skip)]
    secret: Mode,
    marker: PhantomData<B>,
}

fn everything<B: Backend>() -> Everything<B> {
    let device = Default::default();
    Everything {
        linear: linear(2, 3),
        scale: Param::from_tensor(Tensor::ones([3], &device)),
        table: Param::buffer(Tensor::zeros([2, 2], &device)),
        maybe: Some(linear(1, 1)),
        nothing: None,
        layers: vec![linear(1, 1), linear(1, 2)],
        pair: [linear(1, 1), linear(1, 1)],
        tuple: (linear(1, 1), Relu::new()),
        boxed: Box::new(linear(1, 1)),
        output: linear(1, 1),
        r#type: linear(1, 1),
        width: 7,
        name: "net".into(),
        mode: Mode::Fast,
        secret: Mode::Slow,
        marker: PhantomData,
    }
}

#[test]
fn parameter_names_are_field_paths() {
    let expected = [
        "linear.weight",
        "linear.bias",
        "scale",
        "table",
        "maybe.weight",
        "maybe.bias",
        "layers.0.weight",
        "layers.0.bias",
        "layers.1.weight",
        "layers.1.bias",
        "pair.0.weight",
        "pair.0.bias",
        "pair.1.weight",
        "pair.1.bias",
        "tuple.0.weight",
        "tuple.0.bias",
        "boxed.weight",
        "boxed.bias",
        "out_proj.weight",
        "out_proj.bias",
        "type.weight",
        "type.bias",
    ];
    assert_eq!(names(&everything::<Flex>()), expected);
}

#[test]
fn parameters_are_counted_without_buffers() {
    let module = everything::<Back>();
    assert_eq!(module.num_parameters(), 9 + 3 + 2 * 8 + 4);
    assert_eq!(module.num_trainable_parameters(), module.num_parameters());
    assert_eq!(module.freeze().num_trainable_parameters(), 0);
}

#[test]
fn valid_keeps_ids_values_and_plain_data() {
    let module = everything::<Back>();
    let copy: Everything<Flex> = module.valid();
    assert_eq!(copy.secret, Mode::Slow);
    assert_eq!((copy.width, copy.name.as_str(), &copy.mode), (7, "net", &Mode::Fast));
    let (before, after) = (module.named_parameters(), copy.named_parameters());
    assert_eq!(before.len(), after.len());
    for ((name, a), (other, b)) in before.into_iter().zip(after) {
        assert_eq!((&name, a.id, a.role), (&other, b.id, b.role));
        assert_eq!(a.value.into_data().unwrap(), b.value.into_data().unwrap(), "{name}");
    }
}

#[test]
fn the_summary_shows_layers_weights_and_totals() {
    let table = everything::<Flex>().freeze().to_string();
    let linear = "  linear: Linear";
    let line = table.lines().find(|line| line.starts_with(linear)).unwrap();
    assert!(line.contains("weight f32[3, 2] (frozen), bias f32[3] (frozen)"), "{table}");
    assert!(line.ends_with(" 9"), "{table}");
    assert!(table.contains("\n  layers.1: Linear "), "{table}");
    assert!(table.contains("width 7, name \"net\", mode Fast"), "{table}");
    assert!(!table.contains("Slow"), "{table}");
    assert!(table.contains("table i32[2, 2] (buffer)"), "{table}");
    assert!(table.ends_with("32 parameters (0 trainable, 32 frozen), 4 elements in buffers"), "{table}");
}

#[derive(Module, Clone, Debug)]
struct Pair<B: Backend>(Linear<B>, Param<Tensor<B, 1>>);

#[derive(Module, Clone, Debug)]
struct Nothing;

#[test]
fn tuple_structs_and_unit_structs() {
    let pair = Pair::<Back>(linear(1, 1), Param::from_tensor(Tensor::ones([1], &Default::default())));
    assert_eq!(names(&pair), ["0.weight", "0.bias", "1"]);
    assert_eq!(names(&pair.valid()), ["0.weight", "0.bias", "1"]);
    assert_eq!(names(&Nothing), [""; 0]);
    assert!(Nothing.to_string().contains("Nothing"));
}

#[derive(Module, Clone, Debug)]
enum Layer<B: Backend> {
    Plain(Linear<B>),
    Gated { value: Linear<B>, gate: Linear<B> },
    Both(Linear<B>, Linear<B>),
    Skip,
}

#[test]
fn a_single_unnamed_field_of_a_variant_is_transparent() {
    let layers: Vec<Layer<Back>> = vec![
        Layer::Plain(linear(1, 1)),
        Layer::Gated { value: linear(1, 1), gate: linear(1, 1) },
        Layer::Both(linear(1, 1), linear(1, 1)),
        Layer::Skip,
    ];
    let expected = [
        "0.weight",
        "0.bias",
        "1.value.weight",
        "1.value.bias",
        "1.gate.weight",
        "1.gate.bias",
        "2.0.weight",
        "2.0.bias",
        "2.1.weight",
        "2.1.bias",
    ];
    assert_eq!(names(&layers), expected);
    assert_eq!(names(&layers.valid()), expected);
    assert!(layers[1].to_string().contains("Layer::Gated"));
    assert!(layers[0].to_string().contains("Linear"));
}

/// No backend parameter: on the dynamic backend of its fields.
#[derive(Module, Clone, Debug)]
struct Default2 {
    linear: Linear,
    block: Block<Linear>,
    private: Private,
    width: usize,
}

#[derive(Module, Clone, Debug)]
struct Private {
    linear: Linear,
}

#[derive(Module, Clone, Debug)]
pub struct Public {
    private: Private,
}

#[test]
fn a_module_on_the_dynamic_backend() {
    let device = Device::cpu().autodiff();
    let linear = || LinearConfig::new(2, 2).init(&device);
    let net = Default2 {
        linear: linear(),
        block: Block { inner: linear() },
        private: Private { linear: linear() },
        width: 3,
    };
    let copy = net.valid();
    assert_eq!(copy.width, 3);
    assert!(!copy.linear.weight.device().is_autodiff());
    assert!(!copy.private.linear.weight.device().is_autodiff());
    assert_eq!(names(&net).len(), 6);
    let public = Public { private: copy.private }.to_device(&device);
    assert!(public.private.linear.weight.is_require_grad());
}

/// A type parameter that is a module.
#[derive(Module, Clone, Debug)]
struct Block<M> {
    inner: M,
}

#[derive(Module, Clone, Debug)]
struct Residual<B: Backend, M: Module + Forward<B>, const N: usize = 2>
where
    B::Device: Send,
{
    blocks: [M; N],
    scale: Param<Tensor<B, 1>>,
}

trait Forward<B: Backend> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2>;
}

impl<B: Backend> Forward<B> for Linear<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        Linear::forward(self, x)
    }
}

impl<B: Backend, M: Module + Forward<B>, const N: usize> Residual<B, M, N>
where
    B::Device: Send,
{
    fn run(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.blocks
            .iter()
            .fold(x, |x, block| &x + block.forward(x.clone()) * self.scale.val().unsqueeze::<2>())
    }
}

#[test]
fn generic_modules() {
    let device = Default::default();
    let scale = Param::from_tensor(Tensor::ones([2], &device));
    let net = Residual::<Back, Linear<Back>> { blocks: [linear(2, 2), linear(2, 2)], scale };
    let copy: Residual<Flex, Linear<Flex>> = net.valid();
    let x = Tensor::<Back, 2>::ones([3, 2], &device);
    assert!(net.run(x.clone()).inner().all_close(copy.run(x.inner()), None, None));
    let block = Block { inner: linear::<Back>(1, 2) };
    assert_eq!(names(&block.valid()), ["inner.weight", "inner.bias"]);
}

/// Type parameters for kinds and for plain data are unchanged by `valid`.
#[derive(Module, Clone, Debug)]
struct Labelled<B: Backend, K: Kind, T: Clone + Debug + Send> {
    tensor: Param<Tensor<B, 1, K>>,
    #[module(skip)]
    label: T,
}

#[test]
fn type_parameters_that_are_not_modules() {
    let device = Default::default();
    let module =
        Labelled::<Back, Float, &str> { tensor: Param::buffer(Tensor::ones([1], &device)), label: "a" };
    let copy: Labelled<Flex, Float, &str> = module.valid();
    assert_eq!(copy.label, "a");
}

#[derive(Module, Clone, Debug)]
struct Tree<B: Backend> {
    weight: Param<Tensor<B, 1>>,
    children: Vec<Tree<B>>,
}

#[derive(Module, Clone, Debug)]
struct PlainTree {
    linear: Linear,
    children: Vec<PlainTree>,
}

#[test]
fn recursive_modules() {
    let leaf = || Tree::<Back> {
        weight: Param::from_tensor(Tensor::ones([1], &Default::default())),
        children: vec![],
    };
    let tree = Tree { children: vec![leaf(), Tree { children: vec![leaf()], ..leaf() }], ..leaf() };
    let expected = ["weight", "children.0.weight", "children.1.weight", "children.1.children.0.weight"];
    assert_eq!(names(&tree), expected);
    assert_eq!(names(&tree.valid()), expected);
    let device = Device::cpu().autodiff();
    let plain = || LinearConfig::new(1, 1).init(&device);
    let tree = PlainTree { linear: plain(), children: vec![PlainTree { linear: plain(), children: vec![] }] };
    assert_eq!(names(&AutodiffModule::<Dyn>::valid(&tree)).len(), 4);
}

#[derive(Module, Debug)]
#[module(no_display, crate = kiln_nn)]
struct Custom {
    relu: Relu,
}

impl std::fmt::Display for Custom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "custom {:?}", self.relu)
    }
}

#[derive(Module, Debug)]
#[module(crate = "kiln_nn")]
struct Borrowed<'a> {
    #[module(skip)]
    name: &'a str,
}

#[test]
fn attributes_of_the_type() {
    assert_eq!(Custom { relu: Relu::new() }.to_string(), "custom Relu");
    let name = String::from("short");
    assert_eq!(Borrowed { name: &name }.num_parameters(), 0);
    assert_eq!(Borrowed { name: &name }.name, "short");
}

#[test]
fn modules_are_objects() {
    let mut modules: Vec<Box<dyn Module>> = vec![Box::new(linear::<Flex>(2, 2)), Box::new(Relu::new())];
    struct Count(usize);
    impl Visitor for Count {
        fn parameter(&mut self, _path: &Path, parameter: Parameter) {
            self.0 += parameter.value.shape().num_elements();
        }
    }
    impl VisitorMut for Count {
        fn parameter(&mut self, _path: &Path, parameter: Parameter) -> Parameter {
            self.0 += 1;
            parameter
        }
    }
    let mut count = Count(0);
    modules.visit(&mut Path::new(), &mut count);
    assert_eq!(count.0, 6);
    modules[0].visit_mut(&mut Path::new(), &mut count);
    assert_eq!(count.0, 8);
}
