//! Losses where naive formulas fail, and messages of invalid calls.

use kiln_backends::{Device, Dyn};
use kiln_tensor::loss::{ClassOptions, CtcOptions, Reduction, TripletOptions};
use kiln_tensor::{AnyTensor, DType, Element, Result, Tensor, TensorData, TensorType};

fn given<E: Element>(data: impl Into<Vec<E>>) -> AnyTensor
where
    TensorData: From<Vec<E>>,
{
    AnyTensor::from_data(data.into(), &Device::cpu().autodiff())
}

fn leaf(data: impl Into<TensorData>) -> AnyTensor {
    AnyTensor::from_data(data, &Device::cpu().autodiff()).require_grad().unwrap()
}

fn values(any: &AnyTensor) -> Vec<f64> {
    any.to_data().unwrap().convert(DType::F64).to_vec::<f64>()
}

fn gradient(loss: &AnyTensor, of: &AnyTensor) -> Vec<f64> {
    let sum: Tensor<Dyn, 1> = loss.clone().sum().unwrap().try_into_tensor().unwrap();
    values(&sum.backward().get(of).expect("a gradient"))
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * (1.0 + b.abs()) || a == b;
    assert!(found.iter().zip(expected).all(near), "{found:?} instead of {expected:?}");
}

#[test]
fn reductions() {
    let (x, t) = (leaf([[1.0f32, 2.0], [3.0, 4.0]]), given::<f32>([0.0; 4]).reshape([2, 2]).unwrap());
    let of = |reduction| values(&x.clone().l1_loss(t.clone(), reduction).unwrap());
    assert_eq!(of(Reduction::None), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(of(Reduction::Sum), [10.0]);
    assert_eq!(of(Reduction::Mean), [2.5]);
    assert_eq!(of(Reduction::BatchMean), [5.0]);
    assert_eq!(of(Reduction::Auto), [2.5]);
    let divergence = |reduction| values(&x.clone().kl_div_loss(x.clone(), false, reduction).unwrap());
    assert_eq!(divergence(Reduction::Auto), divergence(Reduction::BatchMean));
    let empty = || AnyTensor::zeros(TensorType::new([0, 2], DType::F32), &Device::cpu()).unwrap();
    assert!(values(&empty().mse_loss(empty(), Reduction::Mean).unwrap())[0].is_nan());
    assert_eq!(values(&empty().mse_loss(empty(), Reduction::Sum).unwrap()), [0.0]);
}

#[test]
fn smooth_l1_and_huber_have_gradients_at_infinity() {
    let (x, t) = (leaf([f32::INFINITY, f32::NEG_INFINITY, 0.0, 1.0]), given::<f32>([0.0; 4]));
    for loss in [
        x.clone().smooth_l1_loss(t.clone(), 1.0, Reduction::None).unwrap(),
        x.clone().huber_loss(t.clone(), 1.0, Reduction::None).unwrap(),
    ] {
        assert_eq!(values(&loss), [f64::INFINITY, f64::INFINITY, 0.0, 0.5]);
        assert_eq!(gradient(&loss, &x), [1.0, -1.0, 0.0, 1.0]);
    }
    let zero = x.clone().smooth_l1_loss(t, 0.0, Reduction::None).unwrap();
    assert_eq!(gradient(&zero, &x), [1.0, -1.0, 0.0, 1.0]);
}

#[test]
fn binary_cross_entropy_clamps_at_100() {
    let (x, t) = (leaf([0.0f32, 1.0, 0.5]), given([1.0f32, 1.0, 0.0]));
    let loss = x.clone().binary_cross_entropy_loss(t, None, Reduction::None).unwrap();
    close(&values(&loss), &[100.0, 0.0, 2f64.ln()]);
    close(&gradient(&loss, &x), &[0.0, -1.0, 2.0]);
}

#[test]
fn zero_target_probabilities_have_zero_loss() {
    let log = leaf([[f32::NEG_INFINITY, 0.0]]);
    let target = given([0.0f32, 1.0]).reshape([1, 2]).unwrap();
    let loss = log.clone().kl_div_loss(target.clone(), false, Reduction::Sum).unwrap();
    assert_eq!(values(&loss), [0.0]);
    assert_eq!(gradient(&loss, &log), [0.0, -1.0]);
    let loss = log.clone().cross_entropy_loss(target, &ClassOptions::default()).unwrap();
    assert_eq!(values(&loss), [0.0]);
    assert!(gradient(&loss, &log).iter().all(|g| g.is_finite()));
}

#[test]
fn a_class_that_is_ignored_has_no_gradient() {
    let x = leaf([[1.0f32, 2.0], [f32::NAN, 0.0]]);
    let options = ClassOptions { ignore_index: Some(-100), ..ClassOptions::default() };
    let loss = x.clone().cross_entropy_loss(given([1, -100]), &options).unwrap();
    close(&values(&loss), &[(1.0 + (-1f64).exp()).ln()]);
    assert!(gradient(&loss, &x)[..2].iter().sum::<f64>().abs() < 1e-6);
    let none = x.clone().cross_entropy_loss(given([-100, -100]), &options).unwrap();
    assert!(values(&none)[0].is_nan());
}

#[test]
fn gradients_at_the_margin_match_pytorch() {
    // `clamp_min` passes the gradient on at the bound.
    let x = leaf([1.0f32]);
    let loss = x.clone().hinge_embedding_loss(given([-1.0f32]), 1.0, Reduction::Sum).unwrap();
    assert_eq!((values(&loss), gradient(&loss, &x)), (vec![0.0], vec![-1.0]));
    // PyTorch's kernel of this loss compares strictly.
    let x = leaf([[1.0f32, 0.0]]);
    let loss = x.clone().multi_margin_loss(given([0]), 1, 1.0, None, Reduction::Sum).unwrap();
    assert_eq!((values(&loss), gradient(&loss, &x)), (vec![0.0], vec![0.0, 0.0]));
}

#[test]
fn triplet_loss_of_equal_vectors_has_a_finite_gradient() {
    for p in [1.0, 2.0, 3.0, f64::INFINITY] {
        let x = leaf([[0.0f32, 0.0]]);
        let options = TripletOptions { p, epsilon: 0.0, ..TripletOptions::default() };
        let same = given::<f32>([0.0; 2]).reshape([1, 2]).unwrap();
        let loss = x.clone().triplet_margin_loss(same.clone(), same, options).unwrap();
        assert_eq!(values(&loss), [1.0]);
        assert!(gradient(&loss, &x).iter().all(|g| g.is_finite()), "p = {p}");
    }
}

#[test]
fn multilabel_targets_end_at_the_first_negative() {
    // The example of PyTorch's documentation.
    let x = leaf([[0.1f32, 0.2, 0.4, 0.8]]);
    let target = given([3, 0, -1, 1]).reshape([1, 4]).unwrap();
    let loss = x.multilabel_margin_loss(target, Reduction::Mean).unwrap();
    close(&values(&loss), &[0.85]);
}

#[test]
fn gaussian_nll_clamps_the_variance_but_not_its_gradient() {
    let (x, t) = (leaf([1.0f32]), given([0.0f32]));
    let variance = leaf([0.0f32]);
    let loss = x.gaussian_nll_loss(t, variance.clone(), false, 0.5, Reduction::Sum).unwrap();
    close(&values(&loss), &[(1.0 / 0.5 + 0.5f64.ln()) / 2.0]);
    close(&gradient(&loss, &variance), &[(1.0 / 0.5 - 1.0 / 0.25) / 2.0]);
}

/// The sum over all paths, one by one.
fn paths(log: &[Vec<f64>], target: &[usize], blank: usize) -> f64 {
    let (time, classes) = (log.len(), log.first().map_or(1, Vec::len));
    let mut total = 0.0;
    for number in 0..classes.pow(time as u32) {
        let path: Vec<usize> = (0..time).map(|t| number / classes.pow(t as u32) % classes).collect();
        let mut spelled: Vec<usize> = Vec::new();
        let mut before = None;
        for &class in &path {
            if before != Some(class) && class != blank {
                spelled.push(class);
            }
            before = Some(class);
        }
        if spelled == target {
            total += path.iter().enumerate().map(|(t, &class)| log[t][class]).sum::<f64>().exp();
        }
    }
    -total.ln()
}

#[test]
fn ctc_sums_over_all_paths() {
    let (time, batch, classes) = (5, 4, 3);
    let raw: Vec<f64> = (0..time * batch * classes).map(|i| -((i * 37 % 11) as f64) / 7.0 - 0.1).collect();
    let log = AnyTensor::from_data(
        TensorData::new(raw.clone(), [time, batch, classes]).unwrap(),
        &Device::cpu().autodiff(),
    )
    .require_grad()
    .unwrap();
    let targets: [&[usize]; 4] = [&[1, 2], &[2, 2, 1], &[], &[1, 1]];
    let times = [5usize, 5, 4, 2];
    let padded: Vec<i32> =
        targets.iter().flat_map(|t| (0..3).map(move |i| t.get(i).map_or(-1, |&c| c as i32))).collect();
    let joined: Vec<i32> = targets.iter().flat_map(|t| t.iter().map(|&c| c as i32)).collect();
    let lengths = given(targets.map(|t| t.len() as i32));
    let inputs = given(times.map(|t| t as i32));
    let expected: Vec<f64> = (0..batch)
        .map(|n| {
            let rows: Vec<Vec<f64>> = (0..times[n])
                .map(|t| (0..classes).map(|c| raw[(t * batch + n) * classes + c]).collect())
                .collect();
            paths(&rows, targets[n], 0)
        })
        .collect();
    assert_eq!(expected[3], f64::INFINITY, "the last target needs a blank and has no time for it");
    let options = CtcOptions { reduction: Reduction::None, ..CtcOptions::default() };
    let rows = given(padded).reshape([4, 3]).unwrap();
    for target in [rows.clone(), given(joined)] {
        let loss = log.clone().ctc_loss(target, inputs.clone(), lengths.clone(), options).unwrap();
        close(&values(&loss), &expected);
        assert!(gradient(&loss, &log).iter().all(|g| g.is_finite()));
    }
    let zero = CtcOptions { zero_infinity: true, ..CtcOptions::default() };
    let loss = log.clone().ctc_loss(rows, inputs, lengths, zero).unwrap();
    close(&values(&loss), &[(expected[0] / 2.0 + expected[1] / 3.0 + expected[2]) / 4.0]);
}

#[test]
fn ctc_of_impossible_classes_and_empty_inputs() {
    let log = leaf([[[f32::NEG_INFINITY, 0.0]], [[f32::NEG_INFINITY, 0.0]]]);
    let one = || given([1]);
    let options = CtcOptions::default();
    let loss = log.clone().ctc_loss(given([1]).reshape([1, 1]).unwrap(), given([2]), one(), options).unwrap();
    assert_eq!(values(&loss), [0.0]);
    assert_eq!(gradient(&loss, &log), [0.0, -1.0, 0.0, -1.0]);
    let nothing = given([0]);
    let empty = AnyTensor::zeros(TensorType::new([1, 0], DType::I32), log.stack()).unwrap();
    let loss = log.ctc_loss(empty, nothing.clone(), nothing, options).unwrap();
    assert_eq!(values(&loss), [0.0]);
}

#[test]
fn errors_of_invalid_calls() {
    let f = |shape: &[usize]| AnyTensor::ones(TensorType::new(shape, DType::F32), &Device::cpu()).unwrap();
    let i = |shape: &[usize]| AnyTensor::ones(TensorType::new(shape, DType::I32), &Device::cpu()).unwrap();
    let says = |result: Result<AnyTensor>, expected: &str| {
        assert_eq!(result.expect_err(expected).to_string(), expected);
    };
    says(
        f(&[2, 3]).mse_loss(f(&[2, 1]), Reduction::Mean),
        "[mse] predictions and targets differ in shape: f32[2, 3] x f32[2, 1]\n  hint: reshape or expand the \
         targets: one that broadcasts is nearly always a mistake",
    );
    says(
        f(&[2, 3]).cross_entropy_loss(i(&[3]), &ClassOptions::default()),
        "[cross_entropy] logits [batch, classes, ..] and targets [batch, ..] do not suit: f32[2, 3] x i32[3]\n  hint: \
         class indices are integers with the axes of the logits but for the classes, axis 1; probabilities are floats \
         with the shape of the logits",
    );
    says(
        f(&[2, 3])
            .cross_entropy_loss(i(&[2]), &ClassOptions { weight: Some(f(&[2])), ..ClassOptions::default() }),
        "[cross_entropy] the class weights must be [3]: f32[2, 3] x f32[2]\n  hint: there is one weight for \
         each class",
    );
    says(
        i(&[2, 3]).kl_div_loss(i(&[2, 3]), false, Reduction::Mean),
        "[kl_div] needs floats: i32[2, 3]\n  hint: cast the tensor first",
    );
    says(
        f(&[2, 1, 3]).ctc_loss(
            i(&[1, 1]),
            i(&[1]),
            i(&[1]),
            CtcOptions { blank: 3, ..CtcOptions::default() },
        ),
        "[ctc] the blank 3 is out of range for 3 classes: f32[2, 1, 3]",
    );
}
