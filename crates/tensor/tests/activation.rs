//! Activations where naive formulas fail: infinities, large inputs, NaN, and kinks.

use kiln_backends::{Device, Flex};
use kiln_tensor::{AnyTensor, Autodiff, DType, Distribution, Result, Tensor, TensorData, TensorType};

type Function = (&'static str, fn(AnyTensor) -> Result<AnyTensor>);

const FUNCTIONS: &[Function] = &[
    ("relu", |x| x.relu()),
    ("relu6", |x| x.relu6()),
    ("hardtanh", |x| x.hardtanh(-1.0, 1.0)),
    ("tanhshrink", |x| x.tanhshrink()),
    ("leaky_relu", |x| x.leaky_relu(0.01)),
    ("leaky_relu without slope", |x| x.leaky_relu(0.0)),
    ("gelu", |x| x.gelu()),
    ("gelu_approximate", |x| x.gelu_approximate()),
    ("sigmoid", |x| x.sigmoid()),
    ("log_sigmoid", |x| x.log_sigmoid()),
    ("hard_sigmoid", |x| x.hard_sigmoid(1.0 / 6.0, 0.5)),
    ("silu", |x| x.silu()),
    ("hard_swish", |x| x.hard_swish()),
    ("mish", |x| x.mish()),
    ("softplus", |x| x.softplus(1.0)),
    ("softplus_with_threshold", |x| x.softplus_with_threshold(2.0, 20.0)),
    ("elu", |x| x.elu(1.0)),
    ("celu", |x| x.celu(2.0)),
    ("selu", |x| x.selu()),
    ("thresholded_relu", |x| x.thresholded_relu(1.0)),
    ("threshold", |x| x.threshold(1.0, -3.0)),
    ("softsign", |x| x.softsign()),
    ("hard_shrink", |x| x.hard_shrink(0.5)),
    ("soft_shrink", |x| x.soft_shrink(0.5)),
    ("shrink", |x| x.shrink(0.5, 0.25)),
    ("rrelu", |x| x.rrelu(0.1, 0.3, false)),
];

/// The value and gradient of a function at each point, for a dtype, as `f64`.
fn evaluate(function: Function, places: &[f64], dtype: DType) -> (Vec<f64>, Vec<f64>) {
    let device = Device::cpu().autodiff();
    let data = TensorData::from(places.to_vec()).convert(dtype);
    let x = AnyTensor::from_data(data, &device).require_grad().unwrap();
    let y = function.1(x.clone()).unwrap_or_else(|error| panic!("{}: {error}", function.0));
    let sum: Tensor<kiln_backends::Dyn, 1> = y.clone().sum().unwrap().try_into_tensor().unwrap();
    let gradient = sum.backward().get(&x).expect("a gradient");
    let values = |any: AnyTensor| any.into_data().unwrap().convert(DType::F64).to_vec::<f64>();
    (values(y), values(gradient))
}

#[test]
fn activations_reach_their_limits_at_large_and_infinite_inputs() {
    let infinity = f64::INFINITY;
    for &function in FUNCTIONS {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let places = [-infinity, -6e4, -700.0, -89.0, -30.0, 30.0, 89.0, 700.0, 6e4, infinity];
            let (y, slope) = evaluate(function, &places, dtype);
            assert!(!y.iter().any(|y| y.is_nan()), "{} {dtype}: {y:?}", function.0);
            assert!(slope.iter().all(|slope| slope.is_finite()), "{} {dtype}: {slope:?}", function.0);
            // At infinity, gradients equal their limits.
            assert!((slope[0] - slope[1]).abs() < 1e-2, "{} {dtype}: {slope:?}", function.0);
            assert!((slope[9] - slope[8]).abs() < 1e-2, "{} {dtype}: {slope:?}", function.0);
        }
    }
}

#[test]
fn gated_activations_save_only_their_input() {
    kiln_tensor::register_special_functions();
    for name in ["gelu", "gelu_approximate", "silu", "mish"] {
        let gate = kiln_tensor::Custom::from_parts(name, "").unwrap();
        assert_eq!(gate.saved(), kiln_ir::Saved { inputs: 1, outputs: 0 }, "{name}");
        assert!(gate.is_cheap(), "{name}: it can be computed again from that");
    }
}

#[test]
fn nan_propagates() {
    for &function in FUNCTIONS {
        let (y, _) = evaluate(function, &[f64::NAN], DType::F32);
        assert!(y[0].is_nan(), "{}", function.0);
    }
}

#[test]
fn gradients_at_kinks_match_pytorch() {
    let cases: &[(&str, &[f64], &[f64])] = &[
        ("relu", &[0.0, -0.0], &[0.0, 0.0]),
        ("relu6", &[0.0, 6.0], &[0.0, 0.0]),
        ("hardtanh", &[-1.0, 1.0], &[0.0, 0.0]),
        ("leaky_relu", &[0.0], &[0.01]),
        ("hard_sigmoid", &[-3.0, 3.0], &[0.0, 0.0]),
        ("hard_swish", &[-3.0, 3.0], &[0.0, 1.0]),
        ("elu", &[0.0], &[1.0]),
        ("celu", &[0.0], &[1.0]),
        ("selu", &[0.0], &[1.673_263_242_354_377_2 * 1.050_700_987_355_480_5]),
        ("threshold", &[1.0], &[0.0]),
        ("hard_shrink", &[-0.5, 0.5], &[0.0, 0.0]),
        ("soft_shrink", &[-0.5, 0.5], &[0.0, 0.0]),
        ("softsign", &[0.0], &[1.0]),
        ("sigmoid", &[0.0], &[0.25]),
        ("log_sigmoid", &[0.0], &[0.5]),
        ("softplus", &[0.0], &[0.5]),
        ("silu", &[0.0], &[0.5]),
        ("gelu", &[0.0], &[0.5]),
    ];
    for (name, places, expected) in cases {
        let function = *FUNCTIONS.iter().find(|(function, _)| function == name).unwrap();
        let (_, slopes) = evaluate(function, places, DType::F64);
        for (slope, expected) in slopes.iter().zip(*expected) {
            assert!((slope - expected).abs() < 1e-12, "{name}: {slopes:?}");
        }
    }
}

/// Second derivatives at 0, which formulas with `|x|` lack.
#[test]
fn second_derivatives_at_zero() {
    type B = Autodiff<Autodiff<Flex>>;
    // Of `x Φ(x)`: twice the density at 0.
    let gelu = ("gelu", core::f64::consts::FRAC_2_SQRT_PI * core::f64::consts::FRAC_1_SQRT_2);
    let curvatures = [("softplus", 0.25), ("log_sigmoid", -0.25), ("sigmoid", 0.0), ("silu", 0.5), gelu];
    for (name, expected) in curvatures {
        let function = FUNCTIONS.iter().find(|(function, _)| *function == name).unwrap().1;
        let inner = Tensor::<Autodiff<Flex>, 1>::zeros([1], &Default::default()).require_grad();
        let x = Tensor::<B, 1>::from_inner(inner.clone()).require_grad();
        let y = x.clone().map(function);
        let slope = x.grad(&y.backward()).unwrap();
        let bend = inner.grad(&slope.backward()).unwrap();
        assert!((bend.into_scalar::<f32>() as f64 - expected).abs() < 1e-6);
    }
}

#[test]
fn sigmoid_is_accurate_in_both_tails() {
    let function = *FUNCTIONS.iter().find(|(name, _)| *name == "sigmoid").unwrap();
    let (y, slope) = evaluate(function, &[-40.0, 40.0], DType::F64);
    assert!((y[0] / (-40.0f64).exp() - 1.0).abs() < 1e-14);
    assert!((slope[0] / (-40.0f64).exp() - 1.0).abs() < 1e-14);
    assert!((slope[1] / (-40.0f64).exp() - 1.0).abs() < 1e-14);
}

#[test]
fn an_infinite_positive_input_does_not_affect_the_gradient_of_the_prelu_weight() {
    let device = Device::cpu().autodiff();
    let x = AnyTensor::from_data([f32::INFINITY, -2.0], &device);
    let weight = AnyTensor::from_data([0.5f32], &device).require_grad().unwrap();
    let y = x.prelu(weight.clone()).unwrap();
    let sum: Tensor<kiln_backends::Dyn, 1> = y.sum().unwrap().try_into_tensor().unwrap();
    assert_eq!(sum.backward().get(&weight).unwrap().into_data().unwrap().to_vec::<f32>(), [-2.0]);
}

#[test]
fn empty_and_scalar_shapes() {
    let device = Device::cpu();
    for shape in [&[][..], &[0], &[1], &[2, 0, 3]] {
        for function in FUNCTIONS {
            let x = AnyTensor::zeros(TensorType::new(shape, DType::F32), &device).unwrap();
            assert_eq!(&**function.1(x).unwrap().shape(), shape, "{}", function.0);
        }
    }
    let x = || AnyTensor::ones(TensorType::new([2, 6], DType::F32), &device).unwrap();
    for gate in [AnyTensor::glu, AnyTensor::reglu, AnyTensor::geglu, AnyTensor::swiglu] {
        assert_eq!(**gate(x(), -1).unwrap().shape(), [2, 3]);
        assert_eq!(**gate(x(), 0).unwrap().shape(), [1, 6]);
    }
    assert_eq!(
        x().slice([0..2, 0..3]).unwrap().glu(-1).unwrap_err().to_string(),
        "[glu] axis 1 does not split into two halves: its length is 3: f32[2, 3]"
    );
}

#[test]
fn rrelu_slopes_are_in_range_and_scale_the_gradient() {
    let device = Device::cpu().autodiff();
    let ty = TensorType::new([1000], DType::F32);
    let x = AnyTensor::full(ty, -1.0, &device).unwrap().require_grad().unwrap();
    let y = x.clone().rrelu(0.1, 0.3, true).unwrap();
    let values = y.to_data().unwrap().to_vec::<f32>();
    assert!(values.iter().all(|&y| (-0.3..=-0.1).contains(&y)) && values[0] != values[1]);
    let sum: Tensor<kiln_backends::Dyn, 1> = y.sum().unwrap().try_into_tensor().unwrap();
    let slope = sum.backward().get(&x).unwrap().into_data().unwrap().to_vec::<f32>();
    assert!(slope.iter().zip(values).all(|(slope, y)| *slope == -y));
}

#[test]
fn hard_gumbel_softmax_is_one_hot_with_the_soft_gradient() {
    let device = Device::cpu().autodiff();
    let ty = TensorType::new([500, 4], DType::F32);
    let x = AnyTensor::random(ty, Distribution::Default, &device).unwrap().require_grad().unwrap();
    let y = x.clone().gumbel_softmax(0.7, true, -1).unwrap();
    let values = y.to_data().unwrap().to_vec::<f32>();
    for row in values.chunks(4) {
        assert_eq!(row.iter().sum::<f32>(), 1.0);
        assert!(row.iter().all(|&x| x == 0.0 || x == 1.0));
    }
    let weights = AnyTensor::random(ty, Distribution::Default, &device).unwrap();
    let sum: Tensor<kiln_backends::Dyn, 1> =
        y.mul(weights).unwrap().sum().unwrap().try_into_tensor().unwrap();
    let gradient = sum.backward().get(&x).unwrap().into_data().unwrap().to_vec::<f32>();
    assert!(gradient.iter().all(|g| g.is_finite()) && gradient.iter().any(|&g| g != 0.0));
    // The gradients of a softmax sum to 0 along the axis.
    assert!(gradient.chunks(4).all(|row| row.iter().sum::<f32>().abs() < 1e-5));
}

#[test]
fn quiet_softmax_may_sum_to_less_than_one() {
    let device = Device::cpu();
    let x = AnyTensor::from_data([[1e4f32, -1e4], [-1e4, f32::NEG_INFINITY], [0.0, 0.0]], &device);
    let y = x.quiet_softmax(-1).unwrap().into_data().unwrap().to_vec::<f32>();
    let third = 1.0 / 3.0;
    for (y, expected) in y.iter().zip([1.0, 0.0, 0.0, 0.0, third, third]) {
        assert!((y - expected).abs() < 1e-6);
    }
}
