//! Sums of squares, powers and products of 16-bit floats are computed in `f32`, on engines with and without fusion: the
//! squares of these operands exceed the range of `f16`, the results do not. Values by NumPy in `f64`.

use kiln_backends::{Device, LowPrecision};
use kiln_tensor::linalg::Norm;
use kiln_tensor::loss::{ClassOptions, Reduction, TripletOptions};
use kiln_tensor::module::{BatchNormOptions, Pooling};
use kiln_tensor::stats::CdistMode;
use kiln_tensor::{AnyTensor, DType, Result, TensorData};
use std::f64::consts::LN_10;

type Formula = fn([AnyTensor; 2]) -> Result<AnyTensor>;

fn devices() -> [Device; 3] {
    [Device::flex(), Device::cpu(), Device::cpu_with_threads(3)]
}

fn half(data: &TensorData, device: &Device) -> AnyTensor {
    AnyTensor::from_data(data.clone().convert(DType::F16), device)
}

fn data(values: Vec<f64>, shape: &[usize]) -> TensorData {
    TensorData::new(values, shape).unwrap()
}

/// `length` numbers 300 with the signs of `sign`.
fn large(sign: fn(usize) -> f64, length: usize) -> TensorData {
    data((0..length).map(|i| 300.0 * sign(i)).collect(), &[1, length])
}

fn ones(_: usize) -> f64 {
    1.0
}

/// 1 and -1 in turn.
fn turns(i: usize) -> f64 {
    if i.is_multiple_of(2) { 1.0 } else { -1.0 }
}

fn first(i: usize) -> f64 {
    if i == 0 { 1.0 } else { 0.0 }
}

#[track_caller]
fn holds(name: &str, found: AnyTensor, expected: &[f64]) {
    assert_eq!(found.dtype(), DType::F16, "{name}");
    let found: Vec<f64> = found.into_data().unwrap().to_vec();
    let close = |(x, y): (&f64, &f64)| (x - y).abs() <= 2e-3 * y.abs().max(0.5);
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(close),
        "{name}: {found:?} is not {expected:?}"
    );
}

#[test]
fn norms_and_products() {
    let rows: Vec<(&str, [TensorData; 2], Formula, &[f64])> = vec![
        ("l2", [large(turns, 4), large(ones, 4)], |[x, _]| x.vector_norm(2, -1), &[600.0]),
        ("l3", [large(turns, 4), large(ones, 4)], |[x, _]| x.vector_norm(3, -1), &[476.22]),
        ("all", [large(turns, 4), large(ones, 4)], |[x, _]| x.vector_norm_dims(2, [0, 1]), &[600.0]),
        ("l0", [large(ones, 4), large(ones, 4)], |[x, _]| x.vector_norm(Norm::L0, -1), &[4.0]),
        (
            "normalize",
            [large(ones, 4), large(ones, 4)],
            |[x, _]| x.mul_scalar(200.0)?.vector_normalize(2, -1, 1e-12),
            &[0.5; 4],
        ),
        ("cosine", [large(ones, 16), large(ones, 16)], |[x, y]| x.cosine_similarity(y, -1, 1e-8), &[1.0]),
        ("cosine", [large(ones, 16), large(turns, 16)], |[x, y]| x.cosine_similarity(y, -1, 1e-8), &[0.0]),
        ("vecdot", [large(ones, 4), large(turns, 4)], |[x, y]| x.vecdot(y, -1), &[0.0]),
        ("dot", [large(ones, 4), large(turns, 4)], |[x, y]| x.reshape([4])?.dot(y.reshape([4])?), &[0.0]),
        (
            "pairwise",
            [large(ones, 4), large(|_| -1.0, 4)],
            |[x, y]| x.pairwise_distance(y, 2, 1e-6),
            &[1200.0],
        ),
        ("renorm", [large(ones, 4), large(ones, 4)], |[x, _]| x.renorm(2.0, 0, 6.0), &[3.0; 4]),
        ("cdist", [large(ones, 4), large(first, 4)], |[x, y]| x.cdist(y, 2.0), &[519.615]),
        (
            "cdist by matmul",
            [large(ones, 4), large(first, 4)],
            |[x, y]| x.cdist_with_mode(y, 2.0, CdistMode::Matmul),
            &[519.615],
        ),
        ("cdist of 3", [large(ones, 4), large(first, 4)], |[x, y]| x.cdist(y, 3.0), &[432.675]),
        (
            "pdist",
            [large(ones, 4), large(first, 4)],
            |[x, y]| AnyTensor::cat(vec![x, y], 0)?.pdist(2.0),
            &[519.615],
        ),
        (
            "corrcoef",
            [large(turns, 8), large(turns, 8)],
            |[x, y]| AnyTensor::cat(vec![x, y.mul_scalar(-2)?], 0)?.corrcoef(1),
            &[1.0, -1.0, -1.0, 1.0],
        ),
        ("std", [large(turns, 8), large(ones, 8)], |[x, _]| x.std_dims([1], 0.0), &[300.0]),
        (
            "lp_pool",
            [large(ones, 4), large(ones, 4)],
            |[x, _]| x.reshape([1, 1, 4])?.lp_pool(2.0, &Pooling::new(&[2])),
            &[424.264; 2],
        ),
        (
            "local_response_norm",
            [large(ones, 3), large(ones, 3)],
            |[x, _]| x.reshape([1, 3, 1])?.local_response_norm(3, 1e-4, 0.75, 1.0),
            &[LRN_EDGE, LRN, LRN_EDGE],
        ),
        (
            "batch_norm",
            [large(turns, 4), large(ones, 4)],
            |[x, _]| {
                let options = BatchNormOptions { training: true, ..Default::default() };
                Ok(x.reshape([4, 1])?.batch_norm(None, None, None, options)?.0)
            },
            &[1.0, -1.0, 1.0, -1.0],
        ),
        (
            "layer_norm",
            [large(turns, 4), large(ones, 4)],
            |[x, _]| x.layer_norm(1, None, None, 1e-5),
            &[1.0, -1.0, 1.0, -1.0],
        ),
        ("rms_norm", [large(turns, 2), large(ones, 2)], |[x, _]| x.rms_norm(1, None, 1e-5), &[1.0, -1.0]),
        (
            "group_norm",
            [large(turns, 2), large(ones, 2)],
            |[x, _]| x.group_norm(1, None, None, 1e-5),
            &[1.0, -1.0],
        ),
    ];
    for device in devices() {
        for (name, operands, formula, expected) in &rows {
            let found = formula(operands.each_ref().map(|data| half(data, &device))).unwrap();
            holds(&format!("{name} on {device:?}"), found, expected);
        }
    }
}

/// By `x / (1 + 1e-4 mean(x²))^0.75` for three channels of 300, padded with 0.
const LRN: f64 = 53.3484;
const LRN_EDGE: f64 = 69.7104;

#[test]
fn losses() {
    let many = |value: f64, shape: &[usize]| data(vec![value; shape.iter().product()], shape);
    let one = |value: f64| data(vec![value, 0.0, 0.0, 0.0], &[1, 4]);
    let rows: Vec<(&str, [TensorData; 2], Formula, &[f64])> = vec![
        ("mse", [one(300.0), one(0.0)], |[x, t]| x.mse_loss(t, Reduction::Mean), &[22_500.0]),
        (
            "mse of many",
            [many(10.0, &[4096]), many(0.0, &[4096])],
            |[x, t]| x.mse_loss(t, Reduction::Mean),
            &[100.0],
        ),
        (
            "l1 of many",
            [many(100.0, &[4096]), many(0.0, &[4096])],
            |[x, t]| x.l1_loss(t, Reduction::Mean),
            &[100.0],
        ),
        (
            "huber of many",
            [many(100.0, &[4096]), many(0.0, &[4096])],
            |[x, t]| x.huber_loss(t, 1.0, Reduction::Mean),
            &[99.5],
        ),
        (
            "gaussian_nll",
            [one(300.0), many(100.0, &[1, 4])],
            |[x, v]| x.zeros_like()?.gaussian_nll_loss(x, v, false, 1e-6, Reduction::None),
            &[450.0 + LN_10, LN_10, LN_10, LN_10],
        ),
        (
            "cosine_embedding",
            [many(300.0, &[2, 16]), many(300.0, &[2, 16])],
            |[x, y]| {
                let target = AnyTensor::from_data([1i32, -1], y.stack());
                x.cosine_embedding_loss(y, target, 0.0, Reduction::None)
            },
            &[0.0, 1.0],
        ),
        (
            "triplet_margin",
            [many(300.0, &[1, 4]), many(0.0, &[1, 4])],
            |[x, y]| x.clone().triplet_margin_loss(y, x, TripletOptions::default()),
            &[601.0],
        ),
        (
            "info_nce",
            [data(vec![300.0, 0.0, 0.0, 300.0], &[2, 2]), data(vec![300.0, 0.0, 0.0, 300.0], &[2, 2])],
            |[x, y]| x.info_nce_loss(y, 1.0, Reduction::Mean),
            &[0.313_26],
        ),
        (
            "multi_margin",
            [data(vec![0.0, 300.0], &[1, 2]), many(0.0, &[1])],
            |[x, y]| x.multi_margin_loss(y.cast(DType::I32)?, 2, 0.0, None, Reduction::Mean),
            &[45_000.0],
        ),
        (
            "cross_entropy of many",
            [many(0.0, &[65_536, 4]), many(0.0, &[65_536])],
            |[x, y]| x.cross_entropy_loss(y.cast(DType::I32)?, &ClassOptions::default()),
            &[1.386_3],
        ),
        (
            "smoothed cross_entropy",
            [many(0.0, &[1, 20_000]), many(0.0, &[1])],
            |[x, y]| {
                let options = ClassOptions { label_smoothing: 0.5, ..Default::default() };
                x.cross_entropy_loss(y.cast(DType::I32)?, &options)
            },
            &[9.903_5],
        ),
    ];
    for device in devices() {
        for (name, operands, formula, expected) in &rows {
            let found = formula(operands.each_ref().map(|data| half(data, &device))).unwrap();
            holds(&format!("{name} on {device:?}"), found, expected);
        }
    }
}

/// The gradient of each sum by the first operand.
#[test]
fn gradients() {
    let rows: Vec<(&str, [TensorData; 2], Formula, &[f64])> = vec![
        ("l2", [large(turns, 4), large(ones, 4)], |[x, _]| x.vector_norm(2, -1), &[0.5, -0.5, 0.5, -0.5]),
        ("l3", [large(ones, 4), large(ones, 4)], |[x, _]| x.vector_norm(3, -1), &[0.396_85; 4]),
        ("cosine", [large(ones, 16), large(ones, 16)], |[x, y]| x.cosine_similarity(y, -1, 1e-8), &[0.0; 16]),
        ("normalize", [large(ones, 4), large(ones, 4)], |[x, _]| x.vector_normalize(2, -1, 1e-8), &[0.0; 4]),
        (
            "vecdot",
            [large(ones, 4), large(turns, 4)],
            |[x, y]| x.vecdot(y, -1),
            &[300.0, -300.0, 300.0, -300.0],
        ),
        (
            "mse",
            [large(ones, 4), large(turns, 4)],
            |[x, t]| x.mse_loss(t, Reduction::Mean),
            &[0.0, 300.0, 0.0, 300.0],
        ),
        ("cdist", [large(ones, 4), large(|_| 0.0, 4)], |[x, y]| x.cdist(y, 2.0), &[0.5; 4]),
        (
            "std",
            [large(turns, 4), large(ones, 4)],
            |[x, _]| x.std_dims([1], 0.0),
            &[0.25, -0.25, 0.25, -0.25],
        ),
        (
            "batch_norm",
            [large(turns, 4), large(ones, 4)],
            |[x, _]| {
                let options = BatchNormOptions { training: true, ..Default::default() };
                Ok(x.reshape([4, 1])?.batch_norm(None, None, None, options)?.0)
            },
            &[0.0; 4],
        ),
    ];
    for device in devices() {
        let device = device.autodiff();
        for (name, operands, formula, expected) in &rows {
            let [x, y] = operands.each_ref().map(|data| half(data, &device));
            let x = x.require_grad().unwrap();
            let sum = formula([x.clone(), y]).unwrap().sum().unwrap();
            let gradient = x.grad(&sum.backward().unwrap()).unwrap();
            holds(&format!("gradient of {name} on {device:?}"), gradient, expected);
        }
    }
}

/// The result of a matmul is stored in 16 bits there.
#[test]
fn mixed_precision() {
    let device = Device::cpu().autocast(LowPrecision::F16);
    let column = AnyTensor::from_data([[300.0f32], [-300.0]], &device);
    let x = column.matmul(AnyTensor::from_data([[1.0f32; 8]], &device)).unwrap();
    let number = |x: AnyTensor| x.into_data().unwrap().to_vec::<f64>();
    let close = |found: Vec<f64>, expected: f64| {
        assert!(found.iter().all(|x| (x / expected - 1.0).abs() < 1e-3), "{found:?} is not {expected}");
    };
    close(number(x.clone().vector_norm(2, 1).unwrap()), 848.528);
    close(number(x.clone().cosine_similarity(x.clone(), 1, 1e-8).unwrap()), 1.0);
    close(number(x.clone().cdist(x.clone(), 2.0).unwrap().max().unwrap()), 1697.056);
    let zeros = AnyTensor::zeros(*x.ty(), &device).unwrap();
    close(number(x.mse_loss(zeros, Reduction::Mean).unwrap()), 90_000.0);
}
