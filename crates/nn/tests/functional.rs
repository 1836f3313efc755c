//! Modules as functions of their parameters, under transforms.

use kiln_backends::{Device, Dyn, Flex};
use kiln_nn::*;
use kiln_tensor::transform::{
    VmapOptions, grad, hessian_vector_product, jvp, value_and_grad_with_aux, vmap, vmap_with,
};
use kiln_tensor::{AnyTensor, Autodiff, Backend, Float, Forward, Tensor, Vmap};

type A = Autodiff<Flex>;

#[derive(Module, Clone, Debug)]
enum Last<B: Backend> {
    Plain(Linear<B>),
    Scaled { layer: Linear<B>, by: Param<Tensor<B, 1>> },
}

impl<B: Backend> Last<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        match self {
            Last::Plain(layer) => layer.forward(x),
            Last::Scaled { layer, by } => layer.forward(x) * by.val().unsqueeze::<2>(),
        }
    }
}

/// Every kind of container, and plain data.
#[derive(Module, Clone, Debug)]
struct Net<B: Backend> {
    hidden: Vec<Linear<B>>,
    norm: Option<LayerNorm<B>>,
    pair: [Linear<B>; 1],
    middle: Last<B>,
    last: Last<B>,
    scale: f64,
    #[module(skip)]
    name: String,
}

impl<B: Backend> Net<B> {
    fn new(device: &B::Device) -> Net<B> {
        Net {
            hidden: vec![LinearConfig::new(3, 4).init(device), LinearConfig::new(4, 4).init(device)],
            norm: Some(LayerNormConfig::new(4).init(device)),
            pair: [LinearConfig::new(4, 4).with_bias(false).init(device)],
            middle: Last::Plain(LinearConfig::new(4, 4).init(device)),
            last: Last::Scaled {
                layer: LinearConfig::new(4, 1).init(device),
                by: Param::from_tensor(Tensor::full([1], 1.5, device)),
            },
            scale: 0.5,
            name: "net".into(),
        }
    }

    fn forward(&self, mut x: Tensor<B, 2>) -> Tensor<B, 2> {
        for layer in &self.hidden {
            x = layer.forward(x).tanh();
        }
        let x = self.norm.as_ref().map_or(x.clone(), |norm| norm.forward(x));
        let x = self.middle.forward(self.pair[0].forward(x).tanh());
        self.last.forward(x) * self.scale
    }

    fn loss(&self, x: Tensor<B, 2>, y: Tensor<B, 2>) -> Tensor<B, 1> {
        (self.forward(x) - y).square().mean()
    }
}

fn examples(count: usize) -> (Tensor<Flex, 2>, Tensor<Flex, 2>) {
    let device = Default::default();
    let x = Tensor::<Flex, 1>::arange_float(0.0..(count * 3) as f64, 1.0, &device);
    let x = (x * 0.7).sin().reshape([count, 3]);
    let y = x.clone().sum_dim(1).cos();
    (x, y)
}

fn numbers(tensor: &AnyTensor) -> Vec<f32> {
    tensor.clone().into_data().unwrap().to_vec::<f32>()
}

#[track_caller]
fn assert_close(a: &[f32], b: &[f32], tolerance: f32) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{a} is not {b}");
    }
}

#[test]
fn functional_gradients_match_backward() {
    let model = Net::<A>::new(&Default::default());
    let (x, y) = examples(5);
    let below = model.valid();
    let parameters = trainable_parameters(&below);
    let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(parameters.len(), names.len());

    let loss = |(parameters, x, y): (NamedTensors, Tensor<A, 2>, Tensor<A, 2>)| {
        let model: Net<A> = with_parameters(&below, parameters);
        assert_eq!((model.scale, model.name.as_str()), (0.5, "net"));
        model.loss(x, y)
    };
    let (by_name, _, _) = grad(loss)((parameters, x.clone(), y.clone()));
    assert!(by_name.keys().all(|name| names.contains(name)));
    let by_name = GradientsParams::from_named(by_name, &model).unwrap();

    let gradients = model.loss(Tensor::from_inner(x), Tensor::from_inner(y)).backward();
    let expected = GradientsParams::from_grads(gradients, &model);
    assert_eq!(by_name.len(), expected.len());
    for (id, gradient) in expected.iter() {
        assert_close(&numbers(by_name.get(id).unwrap()), &numbers(gradient), 1e-6);
    }
}

#[test]
fn per_example_gradients() {
    type E = Autodiff<Vmap<Flex>>;
    let model = Net::<Flex>::new(&Default::default());
    let (x, y) = examples(4);
    fn row<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 2> {
        x.unsqueeze()
    }
    let loss = |(parameters, x, y): (NamedTensors, Tensor<E, 1>, Tensor<E, 1>)| {
        let model: Net<E> = with_parameters(&model, parameters);
        model.loss(row(x), row(y))
    };
    let options = VmapOptions::default().in_axes([None, Some(0), Some(0)]);
    let (all, _, _): (NamedTensors, Tensor<Flex, 2>, Tensor<Flex, 2>) =
        vmap_with(options, grad(loss))((trainable_parameters(&model), x.clone(), y.clone()));

    let loss = |(parameters, x, y): (NamedTensors, Tensor<A, 2>, Tensor<A, 2>)| {
        let model: Net<A> = with_parameters(&model, parameters);
        model.loss(x, y)
    };
    for example in 0..4 {
        let (x, y) = (x.clone().narrow(0, example, 1), y.clone().narrow(0, example, 1));
        let (one, _, _) = grad(loss)((trainable_parameters(&model), x, y));
        for (name, gradient) in &one {
            let batch = numbers(&all[name]);
            let size = gradient.shape().num_elements();
            assert_close(&batch[example * size..(example + 1) * size], &numbers(gradient), 1e-5);
        }
    }
}

#[test]
fn model_ensembles_run_as_a_batch() {
    type E = Vmap<Flex>;
    let device = Default::default();
    let models: Vec<Net<Flex>> = (0..3).map(|_| Net::new(&device)).collect();
    let (x, _) = examples(2);
    let all: Vec<NamedTensors> = models.iter().map(|model| trainable_parameters(model)).collect();
    let of_all = |name: &String| stacked(all.iter().map(|one| one[name].clone()).collect());
    let parameters: NamedTensors = all[0].keys().map(|name| (name.clone(), of_all(name))).collect();
    let run = |(parameters, x): (NamedTensors, Tensor<E, 2>)| {
        let model: Net<E> = with_parameters(&models[0], parameters);
        model.forward(x)
    };
    let options = VmapOptions::default().in_axes([Some(0), None]);
    let outputs: Tensor<Flex, 3> = vmap_with(options, run)((parameters, x.clone()));
    let outputs = outputs.into_data().to_vec::<f32>();
    for (index, model) in models.iter().enumerate() {
        let one = model.forward(x.clone()).into_data().to_vec::<f32>();
        assert_close(&outputs[index * 2..index * 2 + 2], &one, 1e-6);
    }
}

/// `[parts, shape..]`.
fn stacked(parts: Vec<AnyTensor>) -> AnyTensor {
    let shape: Vec<usize> = [1].into_iter().chain(parts[0].shape().iter().copied()).collect();
    let rows = parts.into_iter().map(|part| part.reshape(shape.clone()).unwrap()).collect();
    AnyTensor::cat(rows, 0).unwrap()
}

#[test]
fn hessian_vector_products_match_double_backward() {
    type S = Autodiff<Forward<Flex>>;
    let model = Net::<Flex>::new(&Default::default());
    let (x, y) = examples(5);
    let parameters = trainable_parameters(&model);
    let direction: NamedTensors =
        parameters.iter().map(|(name, tensor)| (name.clone(), tensor.clone().cos().unwrap())).collect();

    let second = |parameters: NamedTensors| {
        let model: Net<S> = with_parameters(&model, parameters);
        let inside = &model.pair[0].weight;
        model.loss(inside.lift(x.clone()), inside.lift(y.clone()))
    };
    let (gradient, product) = hessian_vector_product(second, parameters.clone(), direction.clone());

    // The same by double backward: the gradient of the directional derivative.
    type A2 = Autodiff<Autodiff<Flex>>;
    let loss = |parameters: NamedTensors| {
        let model: Net<A2> = with_parameters(&model, parameters);
        let inside = &model.pair[0].weight;
        model.loss(inside.lift(x.clone()), inside.lift(y.clone()))
    };
    let along = |parameters: NamedTensors| {
        let slopes = grad::<A2, NamedTensors, _, 1>(loss)(parameters);
        let change = |(name, slope): (String, AnyTensor)| -> Tensor<A, 1> {
            let direction = direction[&name].clone().lift_to(slope.stack()).unwrap();
            let change = slope.mul(direction).unwrap();
            let elements = change.shape().num_elements();
            change.reshape([elements]).unwrap().try_into_tensor::<A, 1, Float>().unwrap().sum()
        };
        slopes.into_iter().map(change).reduce(|sum, change| sum + change).unwrap()
    };
    let expected = grad::<A, NamedTensors, _, 1>(along)(parameters.clone());
    let first = |parameters: NamedTensors| {
        let model: Net<A> = with_parameters(&model, parameters);
        model.loss(Tensor::from_inner(x.clone()), Tensor::from_inner(y.clone()))
    };
    let slopes = grad::<A, NamedTensors, _, 1>(first)(parameters);
    assert_eq!(product.len(), expected.len());
    for (name, product) in &product {
        assert_close(&numbers(&gradient[name]), &numbers(&slopes[name]), 1e-5);
        assert_close(&numbers(product), &numbers(&expected[name]), 1e-3);
    }
}

#[test]
fn jvp_along_a_parameter_direction() {
    type F = Forward<Flex>;
    let device = Default::default();
    let model: Linear<Flex> = LinearConfig::new(2, 1).init(&device);
    let x = Tensor::<Flex, 2>::from_floats([[3.0, 4.0]], &device);
    let parameters = trainable_parameters(&model);
    let ones = |tensor: &AnyTensor| tensor.clone().mul_scalar(0.0).unwrap().add_scalar(1.0).unwrap();
    let direction = parameters.iter().map(|(name, tensor)| (name.clone(), ones(tensor))).collect();
    let run = |parameters: NamedTensors| {
        let model: Linear<F> = with_parameters(&model, parameters);
        model.forward(model.weight.lift(x.clone()))
    };
    let (y, change): (Tensor<Flex, 2>, Tensor<Flex, 2>) = jvp(run, parameters, direction);
    assert_eq!(y.into_data().to_vec::<f32>(), model.forward(x.clone()).into_data().to_vec::<f32>());
    assert_eq!(change.into_data().to_vec::<f32>(), [8.0]);
}

#[test]
fn running_statistics_are_returned_as_results() {
    let device = Default::default();
    let trained: BatchNorm<A> = BatchNormConfig::new(2).init(&device);
    let model = trained.valid();
    let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 10.0]], &device);
    let loss = |(parameters, x): (NamedTensors, Tensor<A, 2>)| {
        let model: BatchNorm<A> = with_parameters(&model, parameters);
        let weights = Tensor::<A, 1>::from_floats([1.0, 2.0], &x.device());
        ((model.forward(x).exp() * weights.unsqueeze::<2>()).sum(), buffers(&model))
    };
    let (_, (gradient, _), statistics): (_, _, NamedTensors) =
        value_and_grad_with_aux(loss)((trainable_parameters(&model), x.clone()));
    assert_eq!(gradient.keys().collect::<Vec<_>>(), ["bias", "weight"]);
    assert_eq!(statistics.keys().collect::<Vec<_>>(), ["running_mean", "running_var"]);
    // The outer model is unchanged; a model trained by hand has the returned statistics.
    assert_eq!(model.running_mean.value().into_data().to_vec::<f32>(), [0.0, 0.0]);
    let y = trained.forward(Tensor::from_inner(x));
    let weights = Tensor::<A, 1>::from_floats([1.0, 2.0], &device);
    let gradients = (y.exp() * weights.unsqueeze::<2>()).sum().backward();
    let expected = trained.weight.as_ref().unwrap().grad(&gradients).unwrap();
    assert_close(&numbers(&gradient["weight"]), &expected.into_data().to_vec::<f32>(), 1e-5);
    assert_close(
        &numbers(&statistics["running_mean"]),
        &trained.running_mean.value().into_data().to_vec::<f32>(),
        1e-6,
    );
    // They can be passed like parameters.
    let restored: BatchNorm<Flex> = with_parameters(&model, statistics);
    assert_close(&restored.running_mean.value().into_data().to_vec::<f32>(), &[0.2, 0.6], 1e-6);
}

#[test]
#[should_panic(expected = "more than one value per channel")]
fn training_batch_norm_inside_vmap_is_an_error() {
    type E = Autodiff<Vmap<Flex>>;
    let device = Default::default();
    let model: BatchNorm<Flex> = BatchNormConfig::new(2).init(&device);
    let loss = |(parameters, x): (NamedTensors, Tensor<E, 1>)| {
        let model: BatchNorm<E> = with_parameters(&model, parameters);
        model.forward(x.unsqueeze::<2>()).sum()
    };
    let options = VmapOptions::default().in_axes([None, Some(0)]);
    let x = Tensor::<Flex, 2>::ones([3, 2], &device);
    let _: (NamedTensors, Tensor<Flex, 2>) =
        vmap_with(options, grad(loss))((trainable_parameters(&model), x));
}

/// Autodiff may be the inner or the outer layer.
#[test]
fn batch_norm_and_dropout_train_under_vmap_of_autodiff() {
    type E = Vmap<A>;
    let device = Default::default();
    let model: BatchNorm<A> = BatchNormConfig::new(2).init(&device);
    let drop = DropoutConfig::new(0.5).init();
    let rows = [[[1.0, 2.0], [3.0, 10.0]], [[-1.0, 0.0], [5.0, 4.0]]];
    let x = Tensor::<A, 3>::from_floats(rows, &device);
    let parameters = trainable_parameters(&model);
    let forward = |(parameters, x): (NamedTensors, Tensor<E, 2>)| {
        let model: BatchNorm<E> = with_parameters(&model, parameters);
        (model.forward(x.clone()), drop.forward(x * 0.0 + 1.0))
    };
    let options = VmapOptions::default().in_axes([None, Some(0)]);
    let (normal, dropped): (Tensor<A, 3>, Tensor<A, 3>) = vmap_with(options, forward)((parameters, x));
    // Each example has its own statistics.
    let expected: [f32; 8] = [-1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 1.0];
    assert_close(&normal.into_data().to_vec::<f32>(), &expected, 1e-4);
    assert!(dropped.into_data().to_vec::<f32>().iter().all(|&x| x == 0.0 || x == 2.0));
}

#[test]
fn dropout_masks_differ_per_example() {
    type E = Autodiff<Vmap<Flex>>;
    let device = Default::default();
    let drop = DropoutConfig::new(0.5).init();
    let f = |x: Tensor<E, 1>| drop.forward(x).sum();
    let slopes: Tensor<Flex, 2> = vmap(grad(f))(Tensor::<Flex, 2>::ones([8, 16], &device));
    let slopes = slopes.into_data().to_vec::<f32>();
    assert!(slopes.iter().all(|&slope| slope == 0.0 || slope == 2.0));
    assert!(slopes.chunks(16).any(|row| row != &slopes[..16]));
}

#[derive(Module, Clone, Debug)]
struct Tied<B: Backend> {
    encoder: Param<Tensor<B, 2>>,
    decoder: Param<Tensor<B, 2>>,
}

fn tied() -> Tied<Flex> {
    let weight = Param::from_tensor(Tensor::from_floats([[3.0]], &Default::default()));
    Tied { encoder: weight.clone(), decoder: weight }
}

#[test]
fn a_shared_parameter_appears_once() {
    let model = tied();
    let parameters = trainable_parameters(&model);
    assert_eq!(parameters.keys().collect::<Vec<_>>(), ["encoder"]);
    let square = |parameters: NamedTensors| {
        let model: Tied<A> = with_parameters(&model, parameters);
        model.encoder.val().matmul(model.decoder.val()).sum()
    };
    let gradient = grad::<A, NamedTensors, _, 1>(square)(parameters);
    assert_eq!(numbers(&gradient["encoder"]), [6.0]);
}

#[test]
#[should_panic(expected = "`encoder` and `decoder` are one parameter")]
fn a_shared_parameter_passed_twice_is_an_error() {
    let model = tied();
    let tensor = model.encoder.val().into_any();
    let both = [("encoder".to_string(), tensor.clone()), ("decoder".to_string(), tensor)];
    let _: Tied<Flex> = with_parameters(&model, both.into());
}

#[test]
#[should_panic(expected = "the module has no parameter `wieght`")]
fn an_unknown_name_is_an_error() {
    let model: Linear<Flex> = LinearConfig::new(2, 1).init(&Default::default());
    let given = [("wieght".to_string(), model.weight.val().into_any())];
    let _: Linear<Flex> = with_parameters(&model, given.into());
}

#[test]
#[should_panic(expected = "parameter `weight` is f32[1, 2], but got f32[2, 1]")]
fn another_shape_is_an_error() {
    let model: Linear<Flex> = LinearConfig::new(2, 1).init(&Default::default());
    let given = [("weight".to_string(), model.weight.val().transpose().into_any())];
    let _: Linear<Flex> = with_parameters(&model, given.into());
}

#[test]
#[should_panic(expected = "is not a device of the backend")]
fn another_backend_is_an_error() {
    let model: Linear<Flex> = LinearConfig::new(2, 1).init(&Default::default());
    let _: Linear<A> = with_parameters(&model, trainable_parameters(&model));
}

#[test]
fn gradients_of_unknown_parameters_are_errors() {
    let model: Linear<Flex> = LinearConfig::new(2, 1).init(&Default::default());
    let given = [("other".to_string(), model.weight.val().into_any())];
    let error = GradientsParams::from_named(given.into(), &model).unwrap_err();
    assert!(error.to_string().contains("no parameter `other`"), "{error}");
}

#[test]
fn gradient_descent_steps_are_differentiated() {
    // The derivative of the loss after a gradient descent step by the weight before it: w' = w - 0.1 · 2w, (w'²)' = 2 ·
    // 0.8² · w.
    type A2 = Autodiff<Autodiff<Flex>>;
    let model: Linear<Flex> = LinearConfig::new(1, 1).with_bias(false).init(&Default::default());
    let inner = |parameters: NamedTensors| {
        let model: Linear<A2> = with_parameters(&model, parameters);
        model.weight.val().square().sum()
    };
    let outer = |parameters: NamedTensors| {
        let slope = grad::<A2, NamedTensors, _, 1>(inner)(parameters.clone());
        let step = |(name, tensor): (String, AnyTensor)| {
            let by = slope[&name].clone().mul_scalar(-0.1).unwrap();
            let tensor = tensor.add(by).unwrap();
            (name, tensor)
        };
        let model: Linear<A> = with_parameters(&model, parameters.into_iter().map(step).collect());
        model.weight.val().square().sum()
    };
    let slope = grad::<A, NamedTensors, _, 1>(outer)(trainable_parameters(&model));
    let weight = numbers(&model.weight.val().into_any())[0];
    assert_close(&numbers(&slope["weight"]), &[1.28 * weight], 1e-5);
}

#[test]
fn functional_transforms_work_on_the_dynamic_backend() {
    let device = Device::cpu();
    let model: Linear<Dyn> = LinearConfig::new(2, 1).init(&device);
    let x = Tensor::<Dyn, 2>::from_floats([[3.0, 4.0]], &device);
    let f = |(parameters, x): (NamedTensors, Tensor<Dyn, 2>)| {
        let model: Linear<Dyn> = with_parameters(&model, parameters);
        model.forward(x).sum()
    };
    let (slope, _) = grad(f)((trainable_parameters(&model), x));
    assert_eq!(numbers(&slope["weight"]), [3.0, 4.0]);
}
