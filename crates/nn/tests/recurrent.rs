//! Recurrent modules: parameters, options and derivatives. The suite compares results with PyTorch.

use kiln_backends::{Cpu, Flex};
use kiln_nn::rnn::*;
use kiln_nn::*;
use kiln_tensor::transform::{grad, vmap};
use kiln_tensor::{
    AnyTensor, Autodiff, AutodiffBackend, Backend, DType, Distribution, Int, Tensor, TensorData, Vmap,
};

type A = Autodiff<Flex>;

/// Gradients of 2 layers and 2 directions over 20 steps, of inputs and parameters.
fn long_gradients<B: AutodiffBackend>(parameters: &[TensorData], x: &TensorData) -> Vec<Vec<f64>> {
    let config = LstmConfig::new(5, 16, true).with_num_layers(2).with_bidirectional(true);
    let mut lstm: Lstm<B> = config.init(&Default::default());
    let mut values = parameters.iter().cloned();
    lstm.map_parameters(|_, parameter| {
        parameter.map(|old| AnyTensor::from_data(values.next().unwrap(), old.stack()))
    });
    let x = Tensor::<B, 3>::from_data(x.clone(), &Default::default()).require_grad();
    let (y, state) = lstm.forward_packed(x.clone(), &[20, 7, 13], None);
    let gradients = (y.square().sum() + state.cell.sum()).backward();
    let of = |value: &AnyTensor| gradients.get(value).unwrap().into_data().unwrap().to_vec::<f64>();
    let parameters = lstm.named_parameters();
    parameters.iter().map(|(_, parameter)| &parameter.value).chain([x.as_any()]).map(of).collect()
}

#[test]
fn fused_gradients_are_those_of_eager_ops() {
    let config = LstmConfig::new(5, 16, true).with_num_layers(2).with_bidirectional(true);
    let lstm: Lstm<Flex> = config.init(&Default::default());
    let data = |(_, parameter): (String, Parameter)| parameter.value.into_data().unwrap();
    let parameters: Vec<TensorData> = lstm.named_parameters().into_iter().map(data).collect();
    let x = random::<Flex, 3>([3, 20, 5]).into_data();
    let eager = long_gradients::<A>(&parameters, &x);
    let fused = long_gradients::<Autodiff<Cpu>>(&parameters, &x);
    assert_eq!(eager.len(), 17);
    for (eager, fused) in eager.iter().zip(&fused) {
        assert!(eager.iter().any(|x| x.abs() > 1e-3));
        assert_close(fused, eager, 1e-4);
    }
}

fn random<B: Backend, const D: usize>(shape: [usize; D]) -> Tensor<B, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Default::default())
}

fn numbers<B: Backend, const D: usize>(x: &Tensor<B, D>) -> Vec<f64> {
    x.to_data().to_vec()
}

#[track_caller]
fn assert_close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{a} is not {b}");
    }
}

fn names_and_shapes(module: &impl Module) -> Vec<(String, Vec<usize>)> {
    let of = |(name, parameter): (String, Parameter)| (name, parameter.value.shape().to_vec());
    module.named_parameters().into_iter().map(of).collect()
}

#[track_caller]
fn assert_parameters(module: &impl Module, expected: &[(&str, &[usize])]) {
    let expected: Vec<_> = expected.iter().map(|(name, shape)| (name.to_string(), shape.to_vec())).collect();
    assert_eq!(names_and_shapes(module), expected);
}

/// The state dict of `torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2)`.
#[test]
fn lstm_parameters_are_those_of_pytorch() {
    let config = LstmConfig::new(3, 4, true).with_num_layers(2).with_bidirectional(true).with_projection(2);
    let lstm: Lstm<Flex> = config.init(&Default::default());
    let expected: &[(&str, &[usize])] = &[
        ("weight_ih_l0", &[16, 3]),
        ("weight_hh_l0", &[16, 2]),
        ("bias_ih_l0", &[16]),
        ("bias_hh_l0", &[16]),
        ("weight_hr_l0", &[2, 4]),
        ("weight_ih_l0_reverse", &[16, 3]),
        ("weight_hh_l0_reverse", &[16, 2]),
        ("bias_ih_l0_reverse", &[16]),
        ("bias_hh_l0_reverse", &[16]),
        ("weight_hr_l0_reverse", &[2, 4]),
        ("weight_ih_l1", &[16, 4]),
        ("weight_hh_l1", &[16, 2]),
        ("bias_ih_l1", &[16]),
        ("bias_hh_l1", &[16]),
        ("weight_hr_l1", &[2, 4]),
        ("weight_ih_l1_reverse", &[16, 4]),
        ("weight_hh_l1_reverse", &[16, 2]),
        ("bias_ih_l1_reverse", &[16]),
        ("bias_hh_l1_reverse", &[16]),
        ("weight_hr_l1_reverse", &[2, 4]),
    ];
    assert_parameters(&lstm, expected);
    assert_eq!((lstm.layers.num_layers(), lstm.layers.num_directions(), lstm.layers.d_input()), (2, 2, 3));
}

/// The state dict of `torch.nn.GRU(3, 4, num_layers=2)`, inside a module.
#[test]
fn gru_parameters_are_those_of_pytorch() {
    #[derive(Module, Debug)]
    struct Net<B: Backend> {
        rnn: Gru<B>,
    }
    let net = Net::<Flex> { rnn: GruConfig::new(3, 4, true).with_num_layers(2).init(&Default::default()) };
    let expected: &[(&str, &[usize])] = &[
        ("rnn.weight_ih_l0", &[12, 3]),
        ("rnn.weight_hh_l0", &[12, 4]),
        ("rnn.bias_ih_l0", &[12]),
        ("rnn.bias_hh_l0", &[12]),
        ("rnn.weight_ih_l1", &[12, 4]),
        ("rnn.weight_hh_l1", &[12, 4]),
        ("rnn.bias_ih_l1", &[12]),
        ("rnn.bias_hh_l1", &[12]),
    ];
    assert_parameters(&net, expected);
}

#[test]
fn cells_and_bidirectional_configurations_have_pytorch_parameters() {
    let device = Default::default();
    let cell: LstmCell<Flex> = LstmCellConfig::new(3, 4, true).init(&device);
    assert_parameters(
        &cell,
        &[("weight_ih", &[16, 3]), ("weight_hh", &[16, 4]), ("bias_ih", &[16]), ("bias_hh", &[16])],
    );
    let lstm: BiLstm<Flex> = BiLstmConfig::new(3, 4, false).init(&device);
    let gru: BiGru<Flex> = BiGruConfig::new(3, 4, false).init(&device);
    let rnn: BiRnn<Flex> = BiRnnConfig::new(3, 4, false)
        .with_nonlinearity(Nonlinearity::Relu)
        .with_batch_first(false)
        .init(&device);
    let names = ["weight_ih_l0", "weight_hh_l0", "weight_ih_l0_reverse", "weight_hh_l0_reverse"];
    for parameters in [names_and_shapes(&lstm), names_and_shapes(&gru), names_and_shapes(&rnn)] {
        assert_eq!(parameters.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names);
    }
    assert_eq!(rnn.nonlinearity, Nonlinearity::Relu);
    assert_eq!(lstm.forward(random([2, 5, 3]), None).0.dims(), [2, 5, 8]);
    assert_eq!(gru.forward(random([2, 5, 3]), None).0.dims(), [2, 5, 8]);
    assert_eq!(rnn.forward(random([5, 2, 3]), None).0.dims(), [5, 2, 8]);
}

#[test]
fn parameters_start_uniform_with_the_bound_of_pytorch() {
    let lstm: Lstm<Flex> = LstmConfig::new(40, 25, true).with_projection(5).init(&Default::default());
    for (name, parameter) in lstm.named_parameters() {
        let values = parameter.value.into_data().unwrap().to_vec::<f64>();
        let greatest = values.iter().fold(0.0f64, |greatest, x| greatest.max(x.abs()));
        assert!((0.17..=0.2).contains(&greatest), "{name}: {greatest}");
    }
    let zeros: Gru<Flex> =
        GruConfig::new(2, 3, true).with_initializer(Initializer::Zeros).init(&Default::default());
    assert_eq!(numbers(&zeros.forward(random([1, 2, 2]), None).0), [0.0; 6]);
}

#[test]
fn configurations_are_read_from_json() {
    let config = LstmConfig::new(3, 4, true).with_num_layers(2).with_projection(2);
    assert_eq!(LstmConfig::from_json(&config.to_json()).unwrap(), config);
    let config = RnnConfig::from_json(r#"{"d_input": 3, "d_hidden": 4, "bias": false}"#).unwrap();
    assert_eq!(config, RnnConfig::new(3, 4, false));
}

#[test]
fn table_names_the_module_and_its_options() {
    let gru: Gru<Flex> = GruConfig::new(2, 3, false).with_bidirectional(true).init(&Default::default());
    let table = gru.to_string();
    assert!(table.contains("Gru (bidirectional true, batch_first true, dropout 0.0)"), "{table}");
    assert!(table.contains("weight_ih_l0_reverse"), "{table}");
    let rnn: Rnn<Flex> = RnnConfig::new(2, 3, false).init(&Default::default());
    assert!(rnn.train().to_string().contains("mode Train, nonlinearity Tanh"));
}

#[test]
fn dropout_is_between_layers_and_in_training_only() {
    let config = LstmConfig::new(3, 4, true).with_num_layers(2).with_dropout(1.0);
    let lstm: Lstm<Flex> = config.init(&Default::default());
    let (a, b) = (random::<Flex, 3>([2, 3, 3]), random([2, 3, 3]));
    let outputs = |lstm: &Lstm<Flex>, x: &Tensor<Flex, 3>| numbers(&lstm.forward(x.clone(), None).0);
    assert_ne!(outputs(&lstm, &a), outputs(&lstm, &b));
    let lstm = lstm.train();
    assert_eq!(outputs(&lstm, &a), outputs(&lstm, &b), "the last layer receives zeros");
    let one = LstmConfig::new(3, 4, true).with_dropout(1.0).init::<Flex>(&Default::default()).train();
    assert_ne!(outputs(&one, &a), outputs(&one, &b), "the last layer has no dropout");

    let trained: Lstm<A> = config.init(&Default::default());
    let x = Tensor::from_inner(a.clone());
    assert_eq!(numbers(&trained.forward(x.clone(), None).0), numbers(&trained.forward(x * 2, None).0));
    let valid = trained.valid();
    assert_ne!(outputs(&valid, &a), outputs(&valid, &b));
    assert_eq!(outputs(&valid, &a), numbers(&trained.eval().forward(Tensor::from_inner(a), None).0));
}

#[test]
fn parameters_are_arguments_under_transforms() {
    let config = GruConfig::new(3, 4, true).with_num_layers(2).with_bidirectional(true);
    let gru: Gru<A> = config.init(&Default::default());
    let below = gru.valid();
    let x = random::<Flex, 3>([2, 3, 3]);
    let loss = |(parameters, x): (NamedTensors, Tensor<A, 3>)| {
        let gru: Gru<A> = with_parameters(&below, parameters);
        gru.forward_packed(x, &[3, 2], None).0.square().sum()
    };
    let (by_name, _) = grad(loss)((trainable_parameters(&below), x.clone()));
    let (y, _) = gru.forward_packed(Tensor::from_inner(x), &[3, 2], None);
    let gradients = y.square().sum().backward();
    assert_eq!(by_name.len(), 16);
    for (name, parameter) in gru.named_parameters() {
        let expected = gradients.get(&parameter.value).unwrap().into_data().unwrap();
        let got = by_name[&name].clone().into_data().unwrap();
        assert_close(&got.to_vec::<f64>(), &expected.to_vec::<f64>(), 1e-5);
    }
}

#[test]
fn batching_by_vmap_is_batching() {
    let lstm: Lstm<Flex> = LstmConfig::new(3, 4, true).init(&Default::default());
    let parameters = trainable_parameters(&lstm);
    let x = random::<Flex, 3>([5, 2, 3]);
    let one = |x: Tensor<Vmap<Flex>, 2>| {
        let parameters = parameters
            .iter()
            .map(|(name, value)| (name.clone(), value.clone().lift_to(x.engine_stack()).unwrap()));
        let lstm: Lstm<Vmap<Flex>> = with_parameters(&lstm, parameters.collect());
        let (y, _) = lstm.forward_packed(x.unsqueeze_dim(0), &[2], None);
        y.squeeze_dim::<2>(0)
    };
    let y: Tensor<Flex, 3> = vmap(one)(x.clone());
    assert_close(&numbers(&y), &numbers(&lstm.forward(x, None).0), 1e-6);
}

/// The gradient by `x` of the squared norm of the gradient by `x`, against central differences, in `f64`.
#[test]
fn second_derivatives_match_finite_differences() {
    type AA = Autodiff<A>;
    let config = LstmConfig::new(2, 3, true).with_num_layers(2).with_projection(2).with_bidirectional(true);
    let mut lstm: Lstm<AA> = config.init(&Default::default());
    lstm.map_parameters(|_, parameter| {
        parameter.map(|value| value.cast(DType::F64).unwrap().mul_scalar(2.0).unwrap())
    });
    let squared_norm = |x: Tensor<A, 3>| {
        let x = Tensor::<AA, 3>::from_inner(x).require_grad();
        let (y, state) = lstm.forward_packed(x.clone(), &[3, 2], None);
        let loss = y.powi_scalar(3).sum() + state.cell.powi_scalar(3).sum();
        x.grad(&loss.backward()).unwrap().square().sum()
    };
    let start = random::<A, 3>([2, 3, 2]).cast(DType::F64);
    let x = start.clone().require_grad();
    let got = numbers(&x.grad(&squared_norm(x.clone()).backward()).unwrap());
    let step = 1e-5;
    let shifted = |place: usize, by: f64| {
        let mut values = numbers(&start);
        values[place] += by;
        let data = TensorData::new(values, start.shape()).unwrap();
        squared_norm(Tensor::from_data_dtype(data, DType::F64, &Default::default())).into_scalar::<f64>()
    };
    let expected: Vec<f64> =
        (0..got.len()).map(|place| (shifted(place, step) - shifted(place, -step)) / (2.0 * step)).collect();
    assert!(got.iter().any(|x| x.abs() > 1e-6));
    assert_close(&got, &expected, 1e-7);
}

#[test]
fn lengths_may_be_a_tensor_and_zero() {
    let gru: Gru<Flex> = GruConfig::new(2, 3, true).with_bidirectional(true).init(&Default::default());
    let (x, state) = (random::<Flex, 3>([3, 4, 2]), random::<Flex, 3>([2, 3, 3]));
    let (y, last) = gru.forward_packed(x.clone(), &[4, 0, 2], Some(state.clone()));
    let lengths = Tensor::<Flex, 1, Int>::from_ints([4, 0, 2], &Default::default());
    let (other, other_last) = gru.forward_packed(x, lengths, Some(state.clone()));
    assert_eq!((numbers(&y), numbers(&last)), (numbers(&other), numbers(&other_last)));
    assert_eq!(numbers(&y.narrow(0, 1, 1)), [0.0; 4 * 6]);
    assert_eq!(numbers(&last.narrow(1, 1, 1)), numbers(&state.narrow(1, 1, 1)));
}

#[test]
fn padding_may_hold_any_numbers() {
    let lstm: Lstm<A> =
        LstmConfig::new(1, 2, true).with_num_layers(2).with_bidirectional(true).init(&Default::default());
    let gradients = |padding: f64| {
        let x = Tensor::<A, 3>::from_floats(
            [[[1.0], [2.0], [padding]], [[1.0], [2.0], [3.0]]],
            &Default::default(),
        );
        let x = x.require_grad();
        let (y, state) = lstm.forward_packed(x.clone(), &[2, 3], None);
        let gradients = (y.sum() + state.cell.sum()).backward();
        let mut all = numbers(&x.grad(&gradients).unwrap());
        for (_, parameter) in lstm.named_parameters() {
            all.extend(gradients.get(&parameter.value).unwrap().into_data().unwrap().to_vec::<f64>());
        }
        all
    };
    assert_eq!(gradients(f64::NAN), gradients(0.0));
}

#[test]
fn sequences_are_padded_and_unpadded() {
    let sequences: Vec<Tensor<Flex, 2>> = [2, 3, 1].into_iter().map(|length| random([length, 2])).collect();
    for batch_first in [true, false] {
        let padded: Tensor<Flex, 3> = pad_sequence(sequences.clone(), batch_first, -1);
        assert_eq!(padded.dims(), [3, 3, 2]);
        let (batch, length) = if batch_first { (0, 1) } else { (1, 0) };
        assert_eq!(numbers(&padded.clone().narrow(batch, 2, 1).narrow(length, 1, 2)), [-1.0; 4]);
        let back: Vec<Tensor<Flex, 2>> = unpad_sequence(padded, &[2, 3, 1], batch_first);
        for (back, sequence) in back.iter().zip(&sequences) {
            assert_eq!(numbers(back), numbers(sequence));
        }
    }
}

#[test]
fn modules_of_one_input_form_chains() {
    let device = Default::default();
    let net = (LstmConfig::new(3, 4, true).init::<Flex>(&device), LinearConfig::new(4, 1).init(&device));
    assert_eq!(net.forward(random::<Flex, 3>([2, 5, 3])).dims(), [2, 5, 1]);
}

#[test]
fn state_of_a_layer_continues_a_cell() {
    let lstm: Lstm<Flex> = LstmConfig::new(3, 4, true).init(&Default::default());
    let weights = &lstm.layers.weights[0];
    let cell = LstmCell {
        weight_ih: weights.weight_ih.clone(),
        weight_hh: weights.weight_hh.clone(),
        bias_ih: weights.bias_ih.clone(),
        bias_hh: weights.bias_hh.clone(),
        options: lstm.options,
    };
    let x = random::<Flex, 3>([2, 3, 3]);
    let (_, state) = lstm.forward(x.clone().narrow(1, 0, 2), None);
    let by_cell = cell.forward(x.clone().select_dim(1, 2), Some(state.layer(-1)));
    let (_, by_lstm) = lstm.forward(x.narrow(1, 2, 1), Some(state.layer(0).into()));
    assert_close(&numbers(&by_cell.hidden), &numbers(&by_lstm.hidden), 1e-6);
    assert_close(&numbers(&by_cell.cell), &numbers(&by_lstm.cell), 1e-6);
}

#[test]
fn empty_batches_are_allowed() {
    let lstm: Lstm<A> = LstmConfig::new(3, 4, true).with_bidirectional(true).init(&Default::default());
    let (y, state) = lstm.forward(random([0, 2, 3]), None);
    assert_eq!((y.dims(), state.cell.dims()), ([0, 2, 8], [2, 0, 4]));
    let gradients = y.sum().backward();
    let gradient = lstm.layers.weights[0].weight_hh.grad(&gradients).unwrap();
    assert_eq!(numbers(&gradient), [0.0; 16 * 4]);
}

fn lstm() -> Lstm<Flex> {
    LstmConfig::new(3, 4, true).init(&Default::default())
}

#[test]
#[should_panic(expected = "[lstm] the input [2, 5, 2] has 2 features, but the weights expect 3")]
fn input_with_other_features_panics() {
    lstm().forward(random([2, 5, 2]), None);
}

#[test]
#[should_panic(expected = "[lstm] the input [2, 0, 3] has no steps")]
fn input_without_steps_panics() {
    lstm().forward(random([2, 0, 3]), None);
}

#[test]
#[should_panic(
    expected = "[lstm] the cell state is [1, 2, 3], but must be [layers * directions, batch, width] = [1, 2, 4]"
)]
fn state_of_another_shape_panics() {
    lstm().forward(random([2, 5, 3]), Some(LstmState { hidden: random([1, 2, 4]), cell: random([1, 2, 3]) }));
}

#[test]
#[should_panic(expected = "[lengths] there are 3 lengths for a batch of 2 sequences")]
fn wrong_number_of_lengths_panics() {
    lstm().forward_packed(random([2, 5, 3]), &[1, 2, 3], None);
}

#[test]
#[should_panic(expected = "[lengths] sequence 1 has length 6, but the input has 5 steps")]
fn length_above_the_input_panics() {
    lstm().forward_packed(random([2, 5, 3]), &[1, 6], None);
}

#[test]
#[should_panic(expected = "the projection is 4, but must be at least 1 and less than d_hidden = 4")]
fn projection_to_more_features_panics() {
    LstmConfig::new(3, 4, true).with_projection(4).init::<Flex>(&Default::default());
}

#[test]
#[should_panic(expected = "[gru_cell] the hidden state is [1, 4], but must be [batch, width] = [2, 4]")]
fn cell_state_of_another_batch_panics() {
    let cell: GruCell<Flex> = GruCellConfig::new(3, 4, true).init(&Default::default());
    cell.forward(random([2, 3]), Some(random([1, 4])));
}
