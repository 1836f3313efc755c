use super::{assert_close, n, outcome, run, shaped, t, vec_of};
use kiln_ir::{
    AttentionSpec, DType, FftKind, NormKind, Op, Operand, RandomKind, Real, ResizeMode, TensorData,
    TensorType, philox,
};
use std::slice::from_ref;

const INF: f32 = f32::INFINITY;

#[test]
fn softmax() {
    let softmax = |log| Op::Softmax { axis: 0, log };
    assert_close(&run(&softmax(false), &[t([1000.0f32, 1000.0])]), &[0.5, 0.5]);
    let two = 2f64.ln();
    assert_close(&run(&softmax(true), &[t([1000.0f32, 1000.0])]), &[-two, -two]);
    assert_close(&run(&softmax(false), &[t([0.0f64, 3f64.ln(), f64::NEG_INFINITY])]), &[0.25, 0.75, 0.0]);
    assert!(vec_of::<f32>(&softmax(false), &[t([-INF, -INF])])[0].is_nan());
}

#[test]
fn norms() {
    let norm = |kind, epsilon| Op::Norm { kind, axes: 1, epsilon: Real(epsilon) };
    let x = t([[1.0f32, 3.0], [5.0, 5.0]]);
    let layer = run(&norm(NormKind::Layer, 0.0), &[t([[1.0f32, 3.0]]), t([2.0f32, 2.0]), t([1.0f32, 0.0])]);
    assert_close(&layer, &[-1.0, 2.0]);
    assert_close(&run(&norm(NormKind::Layer, 3.0), from_ref(&x)), &[-0.5, 0.5, 0.0, 0.0]);
    assert_close(
        &run(&norm(NormKind::Rms, 4.0), &[x]),
        &[1.0 / 3.0, 1.0, 5.0 / 29f64.sqrt(), 5.0 / 29f64.sqrt()],
    );
}

fn attention(causal: Option<i64>) -> AttentionSpec {
    AttentionSpec { scale: Real(1.0), causal }
}

/// Two queries that score 0 and ln 3 against two keys with the values 4 and 8.
fn small() -> [Operand; 3] {
    let q = shaped(&[1.0f64, 1.0], &[1, 1, 2, 1]);
    let k = shaped(&[0.0, 3f64.ln()], &[1, 1, 2, 1]);
    let v = shaped(&[4.0f64, 8.0], &[1, 1, 2, 1]);
    [q, k, v]
}

#[test]
fn causal_attention() {
    let all = outcome(&Op::Attention(attention(None)), &small()).unwrap();
    assert_close(&all[0], &[7.0, 7.0]);
    assert_close(&all[1], &[4f64.ln(), 4f64.ln()]);
    let causal = outcome(&Op::Attention(attention(Some(0))), &small()).unwrap();
    assert_close(&causal[0], &[4.0, 7.0]);
    assert_close(&causal[1], &[0.0, 4f64.ln()]);
    let none = outcome(&Op::Attention(attention(Some(-1))), &small()).unwrap();
    assert_close(&none[0], &[0.0, 4.0]);
    assert_close(&none[1], &[f64::NEG_INFINITY, 0.0]);
}

#[test]
fn attention_masks() {
    let with = |mask: Operand| {
        let [q, k, v] = small();
        outcome(&Op::Attention(attention(None)), &[q, k, v, mask]).unwrap()
    };
    let seen = with(shaped(&[false, true, false, false], &[1, 1, 2, 2]));
    assert_close(&seen[0], &[8.0, 0.0]);
    assert_close(&seen[1], &[3f64.ln(), f64::NEG_INFINITY]);
    let added = with(shaped(&[3f64.ln(), 0.0], &[1, 1, 1, 2]));
    assert_close(&added[0], &[6.0, 6.0]);
    let nothing = with(shaped(&[f64::NEG_INFINITY], &[1, 1, 1, 1]));
    assert_close(&nothing[0], &[0.0, 0.0]);
    assert_close(&nothing[1], &[f64::NEG_INFINITY, f64::NEG_INFINITY]);
}

#[test]
fn grouped_query_attention() {
    let q = shaped(&[0.0f32; 4], &[1, 4, 1, 1]);
    let (k, v) = (shaped(&[0.0f32; 2], &[1, 2, 1, 1]), shaped(&[5.0f32, 6.0], &[1, 2, 1, 1]));
    let y = outcome(&Op::Attention(attention(None)), &[q, k, v]).unwrap().remove(0);
    assert_eq!(y.into_vec::<f32>().unwrap(), [5.0, 5.0, 6.0, 6.0]);
}

/// Against central differences of the forward op.
#[test]
fn attention_gradients() {
    let spec = AttentionSpec { scale: Real(0.7), causal: Some(1) };
    let (q, k, v) =
        ([0.3, -0.2, 0.8, 0.1, 0.5, -0.6, 0.2, 0.9], [0.4, 0.1, -0.7, 0.6, 0.2, -0.3], [1.0, 2.0, -1.0]);
    let grad = [0.5, -1.5, 2.0, 1.0];
    let mask = || shaped(&[0.1, 0.2, -0.3], &[1, 1, 1, 3]);
    let operands = |x: [&[f64]; 3]| {
        [shaped(x[0], &[1, 2, 2, 2]), shaped(x[1], &[1, 1, 3, 2]), shaped(x[2], &[1, 1, 3, 1]), mask()]
    };
    let loss = |x: [&[f64]; 3]| -> f64 {
        let y = outcome(&Op::Attention(spec), &operands(x)).unwrap()[0].to_vec::<f64>();
        y.iter().zip(grad).map(|(y, g)| y * g).sum()
    };
    let base: [&[f64]; 3] = [&q, &k, &v];
    let forward = outcome(&Op::Attention(spec), &operands(base)).unwrap();
    let [q_, k_, v_, mask] = operands(base);
    let [y, lse] = [t(forward[0].clone()), t(forward[1].clone())];
    let inputs = [shaped(&grad, &[1, 2, 2, 1]), q_, k_, v_, y, lse, mask];
    let found = outcome(&Op::AttentionGrad(spec), &inputs).unwrap();
    for which in 0..3 {
        let differences: Vec<f64> = (0..base[which].len())
            .map(|i| {
                let moved = |by: f64| {
                    let mut x = base[which].to_vec();
                    x[i] += by;
                    let mut all = base;
                    all[which] = &x;
                    loss(all)
                };
                (moved(1e-5) - moved(-1e-5)) / 2e-5
            })
            .collect();
        assert_close(&found[which], &differences);
    }
}

fn resized(mode: ResizeMode, align_corners: bool, x: &[f64], to: usize) -> TensorData {
    let op = Op::Resize { mode, size: vec![to], align_corners };
    run(&op, &[shaped(x, &[1, 1, x.len()])])
}

#[test]
fn resize() {
    let x = [1.0, 2.0, 4.0];
    assert_close(&resized(ResizeMode::Nearest, false, &x, 5), &[1.0, 1.0, 2.0, 2.0, 4.0]);
    assert_close(&resized(ResizeMode::Linear, false, &x, 6), &[1.0, 1.25, 1.75, 2.5, 3.5, 4.0]);
    assert_close(&resized(ResizeMode::Linear, true, &x, 5), &[1.0, 1.5, 2.0, 3.0, 4.0]);
    assert_close(&resized(ResizeMode::Linear, true, &x, 1), &[1.0]);
    assert_close(&resized(ResizeMode::Cubic, true, &x, 3), &x);
    // Halfway between two samples, the weights are -3/32, 19/32, 19/32, -3/32; edges repeat.
    let middle = (19.0 * 1.0 + 19.0 * 2.0 - 3.0 * 1.0 - 3.0 * 4.0) / 32.0;
    assert_close(
        &resized(ResizeMode::Cubic, true, &x, 5).reshape([5]).unwrap(),
        &[1.0, middle, 2.0, (19.0 * 2.0 + 19.0 * 4.0 - 3.0 * 1.0 - 3.0 * 4.0) / 32.0, 4.0],
    );
    let flat = Op::Resize { mode: ResizeMode::Linear, size: vec![1, 1], align_corners: false };
    assert_close(&run(&flat, &[shaped(&[0.0f32, 1.0, 2.0, 3.0], &[1, 1, 2, 2])]), &[1.5]);
}

#[test]
fn fft() {
    let fft = |inverse| Op::Fft { kind: FftKind::Complex, axis: 0, inverse };
    let there = outcome(&fft(false), &[t([1.0f64, 2.0, 3.0]), t([0.0f64; 3])]).unwrap();
    let h = 3f64.sqrt() / 2.0;
    assert_close(&there[0], &[6.0, -1.5, -1.5]);
    assert_close(&there[1], &[0.0, h, -h]);
    let back = outcome(&fft(true), &[t(there[0].clone()), t(there[1].clone())]).unwrap();
    assert_close(&back[0], &[3.0, 6.0, 9.0]);
    assert_close(&back[1], &[0.0, 0.0, 0.0]);
    let empty = outcome(&fft(false), &[shaped::<f32>(&[], &[0]), shaped::<f32>(&[], &[0])]).unwrap();
    assert_eq!(empty[0].num_elements(), 0);
}

#[test]
fn real_fft() {
    let of =
        |kind, inverse, inputs: &[Operand]| outcome(&Op::Fft { kind, axis: 0, inverse }, inputs).unwrap();
    // numpy.fft.rfft([1, 2, 4, 8]) and of five points.
    let even = of(FftKind::FromReal, false, &[t([1.0f64, 2.0, 4.0, 8.0])]);
    assert_close(&even[0], &[15.0, -3.0, -5.0]);
    assert_close(&even[1], &[0.0, 6.0, 0.0]);
    let odd = of(FftKind::FromReal, false, &[t([1.0f64, 2.0, 4.0, 8.0, 16.0])]);
    assert_close(&odd[0], &[31.0, -3.145_898_033_750_315_3, -9.854_101_966_249_685]);
    assert_close(&odd[1], &[0.0, 15.665_932_237_302_04, 4.424_767_466_914_009]);
    let conjugate = of(FftKind::FromReal, true, &[t([1.0f64, 2.0, 4.0, 8.0])]);
    assert_close(&conjugate[1], &[0.0, -6.0, 0.0]);
    for (points, spectrum) in [(4, even), (5, odd)] {
        let back = of(FftKind::ToReal { points }, true, &[t(spectrum[0].clone()), t(spectrum[1].clone())]);
        let expected: Vec<f64> = (0..points).map(|i| (1 << i) as f64 * points as f64).collect();
        assert_close(&back[0], &expected);
    }
    // Imaginary parts at self-conjugate frequencies are ignored.
    let (re, im) = (t([1.0f64, 0.0, 1.0]), t([INF as f64, 1.0, INF as f64]));
    assert_close(&of(FftKind::ToReal { points: 4 }, true, &[re, im])[0], &[2.0, -2.0, 2.0, 2.0]);
}

#[test]
fn quantize() {
    let op = Op::Quantize { dtype: DType::U8 };
    let x = t([0.5f32, 1.5, -3.0, 1e9, f32::NAN, -INF]);
    assert_eq!(vec_of::<u8>(&op, &[x, t([1.0f32]), t([2u8])]), [2, 4, 0, 255, 0, 0]);
    let blocks = run(&Op::Quantize { dtype: DType::I8 }, &[t([1.0f32, 2.0, 3.0, 4.0]), t([1.0f32, 2.0])]);
    assert_eq!(blocks.into_vec::<i8>().unwrap(), [1, 2, 2, 2]);
    let back = run(&Op::Dequantize, &[t([1i8, 2, 2, -128]), t([1.0f32, 2.0]), t([1i8, 127])]);
    assert_eq!(back.into_vec::<f32>().unwrap(), [0.0, 1.0, -250.0, -510.0]);
}

#[test]
fn random_layout() {
    let random =
        |shape: usize, dtype, distribution| Op::Random { ty: TensorType::new([shape], dtype), distribution };
    let key = 0x1234_5678_9abc_def0u64;
    let (first, second) = (philox::block(key, 0), philox::block(key, 1));
    let words: Vec<u32> = first.into_iter().chain(second).collect();
    assert_eq!(vec_of::<u32>(&random(8, DType::U32, RandomKind::Bits), &[n(key)]), words);
    let bytes: Vec<u8> = words.iter().map(|&w| w as u8).collect();
    assert_eq!(vec_of::<u8>(&random(8, DType::U8, RandomKind::Bits), &[shaped(&[key], &[])]), bytes);
    let wide = vec_of::<u64>(&random(4, DType::U64, RandomKind::Bits), &[n(key)]);
    assert_eq!(wide[1], u64::from(first[2]) | u64::from(first[3]) << 32);
    let uniform = vec_of::<f32>(&random(8, DType::F32, RandomKind::Uniform), &[n(key)]);
    assert_eq!(uniform[5], (second[1] >> 8) as f32 / 16_777_216.0);
    let double = vec_of::<f64>(&random(4, DType::F64, RandomKind::Uniform), &[n(key)]);
    assert_eq!(double[2], (wide[2] >> 11) as f64 / (1u64 << 53) as f64);
    let normal = run(&random(4, DType::F32, RandomKind::Normal), &[n(key)]).to_vec::<f64>();
    let radius = (-2.0 * ((f64::from(first[2]) + 1.0) / 2f64.powi(32)).ln()).sqrt();
    assert!((normal[2].hypot(normal[3]) - radius).abs() < 1e-6);
}

#[test]
fn random_moments() {
    let ty = TensorType::new([20_000], DType::F64);
    let x = vec_of::<f64>(&Op::Random { ty, distribution: RandomKind::Normal }, &[n(7)]);
    let mean = x.iter().sum::<f64>() / 20_000.0;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20_000.0;
    assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
}
