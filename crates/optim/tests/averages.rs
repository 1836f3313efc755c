//! Averages of weights: their states and errors. The suite compares them with PyTorch.

use kiln_backends::Flex;
use kiln_nn::{
    AutodiffModule, BatchNorm, BatchNormConfig, Linear, LinearConfig, Module, Param, RunningState,
};
use kiln_optim::{AverageState, EmaConfig, ModelAverage, OptimError, SwaConfig, update_batch_norm};
use kiln_tensor::{Autodiff, Backend, DType, Int, Tensor, TensorData};

type B = Autodiff<Flex>;

#[derive(Clone, Debug, Module)]
struct Layer<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    mean: RunningState<Tensor<B, 1>>,
}

#[derive(Clone, Debug, Module)]
struct Net<B: Backend> {
    first: BatchNorm<B>,
    second: BatchNorm<B>,
}

#[test]
fn running_statistics_change_only_in_training_mode() {
    let device = Default::default();
    let net = || Net::<B> {
        first: BatchNormConfig::new(2).with_momentum(0.3).init(&device),
        second: BatchNormConfig::new(2).with_momentum(1.0).init(&device),
    };
    let batch = || Tensor::<B, 2>::from_floats([[1.0, 2.0], [3.0, 6.0]], &device);
    let numbers = |layer: &BatchNorm<B>| {
        [&layer.running_mean, &layer.running_var].map(|state| state.value().to_data().to_vec::<f32>())
    };

    // A layer that does not run keeps its statistics.
    let mut model = net();
    update_batch_norm(&mut model, [batch(), batch()], |net, batch| drop(net.second.forward(batch))).unwrap();
    assert_eq!(numbers(&model.first), [vec![0.0, 0.0], vec![1.0, 1.0]]);
    assert_eq!(numbers(&model.second), [vec![2.0, 4.0], vec![2.0, 8.0]]);
    update_batch_norm(&mut model, [batch()], |net, batch| drop(net.second.forward(net.first.forward(batch))))
        .unwrap();
    assert_eq!(numbers(&model.first), [vec![2.0, 4.0], vec![2.0, 8.0]]);

    // On an error all keep theirs.
    let before = [numbers(&model.first), numbers(&model.second)];
    let error = update_batch_norm(&mut model, [(); 2], |net, ()| {
        let inference = net.valid();
        drop(inference.first.forward(batch().inner()));
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("must run the model in training mode"), "{error}");
    assert_eq!([numbers(&model.first), numbers(&model.second)], before);
    update_batch_norm(&mut model, Vec::<()>::new(), |_, ()| {}).unwrap();
    assert_eq!([numbers(&model.first), numbers(&model.second)], before);

    let mut fixed: BatchNorm<B> = BatchNormConfig::new(2).with_momentum(0.0).init(&device);
    let error = update_batch_norm(&mut fixed, [batch()], |layer, batch| drop(layer.forward(batch)));
    assert!(error.unwrap_err().to_string().contains("momentum of a layer is 0"));
    let mut linear: Linear<B> = LinearConfig::new(2, 1).init(&device);
    update_batch_norm(&mut linear, [batch()], |layer, batch| drop(layer.forward(batch))).unwrap();
}

#[test]
fn the_decay_warms_up() {
    let device = Default::default();
    let mut param = Param::from_tensor(Tensor::<B, 1>::from_floats([1.0], &device));
    let mut average = EmaConfig::new().with_decay(0.3).with_decay_warmup(true).init();
    let mut expected = 1.0;
    for (updates, value) in [1.0f64, 2.0, 4.0, 8.0, 16.0].into_iter().enumerate() {
        param.set(Tensor::from_floats([value as f32], &device));
        average.update(&param).unwrap();
        let count = updates as f64;
        let decay = if updates == 0 { 0.0 } else { ((1.0 + count) / (10.0 + count)).min(0.3) };
        expected = decay * expected + (1.0 - decay) * value;
        let found = average.averaged(param.clone()).val().into_scalar::<f64>();
        assert!((found - expected).abs() < 1e-5, "{found} instead of {expected}");
    }
    assert_eq!(average.updates(), 5);
}

#[test]
fn averages_resume_bit_for_bit_from_a_state() {
    let device = Default::default();
    let layer = |x: f32| Layer::<B> {
        weight: Param::from_tensor(Tensor::from_floats([[x, 1.0 / x]], &device)),
        mean: RunningState::new(Tensor::from_floats([3.0 * x], &device)),
    };
    let mut changing = layer(1.0);
    let change = |average: &mut ModelAverage, x: f32, layer: &mut Layer<B>| {
        layer.weight.set(Tensor::from_floats([[x, 1.0 / x]], &device));
        average.update(layer).unwrap();
    };
    for make in [|| EmaConfig::new().with_use_buffers(true).init(), || SwaConfig::new().init()] {
        let mut average = make();
        assert_eq!(average.state(&changing).unwrap(), AverageState::default());
        for x in [1.0, 3.0, 7.0] {
            change(&mut average, x, &mut changing);
        }
        let tensors = average.state(&changing).unwrap().into_tensors();
        // Another process: the same names with other ids.
        let mut other = layer(5.0);
        other.mean.update(|_| changing.mean.value());
        let mut resumed = make();
        resumed.load_state(AverageState::from_tensors(tensors).unwrap(), &other).unwrap();
        for x in [0.3, 11.0] {
            change(&mut average, x, &mut changing);
            change(&mut resumed, x, &mut other);
        }
        assert_eq!(average.state(&changing).unwrap(), resumed.state(&other).unwrap());
        assert_eq!(resumed.updates(), 5);
    }
}

#[test]
fn states_that_do_not_match_are_errors() {
    let device = Default::default();
    let layer = Layer::<B> {
        weight: Param::from_tensor(Tensor::from_floats([[1.0, 2.0]], &device)),
        mean: RunningState::new(Tensor::from_floats([3.0], &device)),
    };
    let named = |name: &str, data: TensorData| (name.to_owned(), data);
    let count = || named("n_averaged", TensorData::scalar(2i64));
    let weight = || named("module.weight", TensorData::from([[1.0f32, 2.0]]));
    let load = |tensors: Vec<(String, TensorData)>| {
        let mut average = SwaConfig::new().init();
        average.load_state(AverageState::from_tensors(tensors)?, &layer)
    };
    load(vec![count(), weight()]).unwrap();
    // PyTorch saves buffers that are not averaged.
    load(vec![count(), weight(), named("module.mean", TensorData::from([3.0f32]))]).unwrap();
    let problem = |tensors| load(tensors).unwrap_err().to_string();
    assert!(problem(vec![count()]).contains("`weight`: the average is missing"));
    assert!(problem(vec![weight()]).contains("the number of updates is missing"));
    assert!(problem(vec![count(), named("module.weight", TensorData::from([1.0f32]))]).contains("should be"));
    assert!(problem(vec![count(), weight(), named("module.x", TensorData::from([1.0f32]))]).contains("`x`"));
    assert!(problem(vec![count(), named("weight", TensorData::from([1.0f32]))]).contains("`module.`"));
    assert!(problem(vec![named("n_averaged", TensorData::scalar(-1i64))]).contains("one i64"));
    assert!(EmaConfig::new().with_decay(1.1).try_init().is_err());
}

#[test]
fn other_models_are_errors_and_change_nothing() {
    let device = Default::default();
    let model: Linear<B> = LinearConfig::new(2, 1).init(&device);
    let mut other: Linear<B> = LinearConfig::new(2, 1).init(&device);
    let mut average = SwaConfig::new().init();
    // Before the first update the model is its own average.
    let before = other.weight.to_data();
    average.apply(&mut other).unwrap();
    average.update(&model).unwrap();
    let state = average.state(&model).unwrap();
    for result in [average.apply(&mut other), average.update(&other), average.state(&other).map(drop)] {
        assert!(matches!(result, Err(OptimError::InvalidState { .. })), "{result:?}");
    }
    assert_eq!(other.weight.to_data(), before);
    assert_eq!(average.state(&model).unwrap(), state);
}

#[test]
fn inference_copies_shared_parameters_and_other_dtypes() {
    #[derive(Clone, Debug, Module)]
    struct Tied<B: Backend> {
        here: Param<Tensor<B, 1>>,
        there: Param<Tensor<B, 1>>,
        half: Param<Tensor<B, 1>>,
        count: Param<Tensor<B, 1, Int>>,
    }
    let device = Default::default();
    let here = Param::from_tensor(Tensor::<B, 1>::from_floats([1.0], &device));
    let half = |x: f32| Tensor::<B, 1>::from_floats([x], &device).cast(DType::BF16);
    let mut tied = Tied {
        there: here.clone(),
        here,
        half: Param::from_tensor(half(1.0)),
        count: Param::buffer(Tensor::from_ints([1], &device)),
    };
    let mut average = EmaConfig::new().with_decay(0.999).with_use_buffers(true).init();
    for step in 0..2000 {
        if step == 1 {
            let two = Tensor::<B, 1>::from_floats([2.0], &device);
            tied.here.set(two.clone());
            tied.there.set(two);
            tied.half.set(half(2.0));
            tied.count = Param::clone(&tied.count).map(|count| count + 1);
        }
        average.update(&tied).unwrap();
    }
    let averaged: Tied<Flex> = average.averaged(tied.valid());
    let expected = 2.0 - 0.999f64.powi(1999);
    for found in [&averaged.here, &averaged.there] {
        assert!((found.val().into_scalar::<f64>() - expected).abs() < 1e-4);
    }
    assert_eq!(averaged.half.dtype(), DType::BF16);
    assert!((averaged.half.val().into_scalar::<f64>() - expected).abs() < 0.01);
    assert_eq!(averaged.count.val().into_scalar::<i64>(), 2);
    // The averaged model in training has leaves again.
    assert!(average.averaged(tied).here.is_require_grad());
}
