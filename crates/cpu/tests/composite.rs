//! Composite ops against the reference engine.

use crate::against::{Case, against_reference, compare, uniform, within};
use kiln_cpu::Cpu;
use kiln_ir::{AttentionSpec, DType, FftKind, NormKind, Op, Real, ResizeMode, Shape, TensorData};
use kiln_reference::Reference;

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

#[test]
fn softmax_along_every_axis() {
    let shapes: [&[usize]; 7] = [&[7], &[3, 5], &[2, 33, 4], &[4, 100], &[2, 3, 130], &[2, 0, 3], &[300, 70]];
    for shape in shapes {
        for axis in 0..shape.len() {
            for log in [false, true] {
                let case = Case::new(Op::Softmax { axis, log }, &[shape]).map(|_, x| x * 9.0);
                against_reference(&case);
                against_reference(&case.clone().transposed());
                against_reference(&case.clone().flipped());
                against_reference(&case.clone().with_infinities());
                against_reference(&case.clone().map(|_, _| f64::NEG_INFINITY));
                FLOATS.into_iter().for_each(|dtype| against_reference(&case.clone().dtype(dtype)));
            }
        }
    }
}

#[test]
fn layer_norm_and_rms_norm() {
    for kind in [NormKind::Layer, NormKind::Rms] {
        for (shape, axes) in
            [(&[4, 10][..], 1), (&[3, 2, 70], 2), (&[2, 1], 1), (&[0, 4], 1), (&[3, 0], 1), (&[9], 1)]
        {
            let op = Op::Norm { kind, axes, epsilon: Real(1e-5) };
            let row = &shape[shape.len() - axes..];
            for operands in [&[shape][..], &[shape, row], &[shape, row, row]] {
                let case = Case::new(op.clone(), operands);
                within(&case, 5.0);
                within(&case.clone().transposed(), 5.0);
                FLOATS.into_iter().for_each(|dtype| within(&case.clone().dtype(dtype), 5.0));
            }
            within(&Case::new(op, &[shape]).map(|_, x| x + 100.0), 10.0);
        }
    }
}

fn mask(shape: [usize; 4], visible: bool) -> TensorData {
    let values = uniform(77, shape.iter().product());
    if visible {
        TensorData::new(values.iter().map(|&x| x > -0.3).collect::<Vec<bool>>(), shape).unwrap()
    } else {
        TensorData::new(values, shape).unwrap()
    }
}

#[test]
fn attention_and_its_gradient() {
    for ([batch, heads, kv_heads], [queries, keys], [dim, dim_v]) in [
        ([1, 1, 1], [1, 1], [1, 1]),
        ([2, 2, 2], [5, 7], [8, 8]),
        ([1, 4, 2], [70, 130], [16, 12]),
        ([2, 3, 1], [129, 65], [8, 4]),
        ([1, 2, 2], [4, 300], [32, 32]),
        // Grouped-query heads with few queries each, in one block or two.
        ([2, 6, 2], [3, 150], [33, 20]),
        ([1, 8, 2], [20, 70], [17, 9]),
        // Single queries, as in decoding.
        ([3, 2, 2], [1, 150], [20, 37]),
        ([1, 8, 2], [1, 70], [64, 16]),
        // One head, whose gradient is split along keys and along queries.
        ([1, 1, 1], [100, 700], [24, 40]),
        ([1, 1, 1], [600, 30], [5, 3]),
        ([1, 1, 1], [70, 90], [256, 130]),
        ([1, 2, 2], [3, 0], [4, 4]),
        ([1, 2, 2], [0, 3], [4, 4]),
    ] {
        let q = [batch, heads, queries, dim];
        let k = [batch, kv_heads, keys, dim];
        let v = [batch, kv_heads, keys, dim_v];
        let y = [batch, heads, queries, dim_v];
        let masks = [
            None,
            Some(mask([batch, heads, queries, keys], true)),
            Some(mask([1, 1, queries, keys], false)),
            Some(mask([batch, 1, 1, keys], true)),
        ];
        for causal in [None, Some(0), Some(-3), Some(keys as i64 - queries as i64)] {
            for mask in &masks {
                let spec = AttentionSpec { scale: Real(0.7), causal };
                let mut forward = Case::new(Op::Attention(spec), &[&q, &k, &v]);
                if let Some(mask) = mask {
                    forward = forward.and(mask.clone());
                }
                within(&forward, 2.0);
                within(&forward.clone().transposed(), 2.0);
                let results = forward.on_cpu(1);
                let operands: [&[usize]; 6] = [&y, &q, &k, &v, &y, &y[..3]];
                let mut backward = Case::new(Op::AttentionGrad(spec), &operands);
                for (place, data) in [(1, 0), (2, 1), (3, 2)] {
                    backward = backward.operand(place, forward.data(data).clone());
                }
                backward = backward.operand(4, results[0].clone()).operand(5, results[1].clone());
                if let Some(mask) = mask {
                    backward = backward.and(mask.clone());
                }
                within(&backward, 20.0);
                within(&backward.transposed(), 20.0);
            }
        }
    }
}

/// On every instruction set that this processor has, and with the same bits for any number of threads.
#[test]
fn attention_on_every_instruction_set() {
    let (q, kv) = ([1, 2, 90, 40], [1, 1, 200, 40]);
    for dtype in [DType::F32, DType::F64] {
        let spec = AttentionSpec { scale: Real(0.4), causal: Some(70) };
        let forward = Case::new(Op::Attention(spec), &[&q, &kv, &kv]).dtype(dtype);
        let results = forward.on_cpu(1);
        let mut backward = Case::new(Op::AttentionGrad(spec), &[&q, &q, &kv, &kv, &q, &q[..3]]).dtype(dtype);
        for (place, data) in [(1, forward.data(0)), (2, forward.data(1)), (3, forward.data(2))] {
            backward = backward.operand(place, data.clone());
        }
        backward = backward.operand(4, results[0].clone()).operand(5, results[1].clone());
        for case in [forward, backward] {
            let wanted = case.run(&Reference::new());
            for name in ["scalar", "avx2", "avx512"] {
                let engine = |threads| Cpu::with_threads(threads).with_instructions(name);
                let (Some(one), Some(three)) = (engine(1), engine(3)) else { continue };
                let found = case.run(&one);
                assert_eq!(found, case.run(&three), "{name}");
                for (got, wanted) in found.iter().zip(&wanted) {
                    compare(&case, got, wanted, 20.0);
                }
            }
        }
    }
}

#[test]
fn attention_of_all_float_dtypes() {
    for dtype in FLOATS {
        let spec = AttentionSpec { scale: Real(0.4), causal: Some(2) };
        let case = Case::new(Op::Attention(spec), &[&[1, 2, 20, 8], &[1, 1, 22, 8], &[1, 1, 22, 6]]);
        within(&case.dtype(dtype), 3.0);
    }
}

/// Also NaN with payload bits, as other programs set them.
#[test]
fn attention_propagates_every_nan() {
    for queries in [1, 20] {
        let spec = AttentionSpec { scale: Real(0.4), causal: None };
        let case = Case::new(Op::Attention(spec), &[&[1, 1, queries, 8], &[1, 1, 5, 8], &[1, 1, 5, 8]]);
        for nan in [f32::NAN, f32::from_bits(0x7fc0_0001), f32::from_bits(0xffc0_00ff)] {
            let mut keys = case.data(1).to_vec::<f32>();
            keys[11] = nan;
            let case = case.clone().operand(1, TensorData::new(keys, [1, 1, 5, 8]).unwrap());
            for name in ["scalar", "avx2", "avx512"] {
                let Some(cpu) = Cpu::with_threads(1).with_instructions(name) else { continue };
                for result in case.run(&cpu) {
                    assert!(
                        result.to_vec::<f32>().iter().all(|x| x.is_nan()),
                        "{queries} {name}: {result:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn resize() {
    for mode in [ResizeMode::Nearest, ResizeMode::Linear, ResizeMode::Cubic] {
        for align_corners in [false, true] {
            for (shape, size) in [
                (&[2, 3, 5, 7][..], &[10, 14][..]),
                (&[1, 2, 9, 8], &[4, 3]),
                (&[1, 1, 1, 1], &[3, 1]),
                (&[2, 2, 6], &[11]),
                (&[1, 2, 3, 4, 5], &[5, 4, 3]),
                (&[0, 2, 3], &[5]),
                (&[1, 2, 3], &[0]),
            ] {
                let case = Case::new(Op::Resize { mode, size: size.to_vec(), align_corners }, &[shape]);
                within(&case, 2.0);
                within(&case.clone().transposed(), 2.0);
                FLOATS.into_iter().for_each(|dtype| within(&case.clone().dtype(dtype), 2.0));
            }
        }
    }
}

/// All FFT ops of an axis of a length, and the axis length of their operands.
fn transforms(points: usize, axis: usize) -> Vec<(Op, usize, usize)> {
    let mut all = Vec::new();
    for inverse in [false, true] {
        let op = |kind| Op::Fft { kind, axis, inverse };
        all.push((op(FftKind::Complex), points, 2));
        if points > 0 {
            all.push((op(FftKind::FromReal), points, 1));
            all.push((op(FftKind::ToReal { points }), points / 2 + 1, 2));
        }
    }
    all
}

/// Checks an FFT. Errors are relative to the greatest summand, since sums may cancel.
fn near_fourier(case: &Case) {
    let expected = case.run(&Reference::new());
    let actual: Vec<TensorData> = [1, 2].into_iter().flat_map(|threads| case.on_cpu(threads)).collect();
    for (expected, actual) in expected.iter().cycle().zip(&actual) {
        let dtype = expected.dtype();
        let (expected, actual) = (expected.to_vec::<f64>(), actual.to_vec::<f64>());
        let largest = expected.iter().fold(1.0f64, |most, x| most.max(x.abs()));
        let step = if dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
        let worst = expected.iter().zip(&actual).fold(0.0f64, |most, (e, a)| most.max((e - a).abs()));
        let is_near = worst <= 16.0 * step * largest && actual.iter().all(|x| x.is_finite());
        assert!(is_near, "{} of {}: {worst:e} of {largest}", case.name(), case.data(0).ty());
    }
}

#[test]
fn fft_of_every_length() {
    for length in (0..70).chain([77, 97, 100, 128, 210, 256, 331, 37 * 3, 512, 1018, 1000, 2048]) {
        for (op, from, count) in transforms(length, 1) {
            let shapes = |shape: [usize; 2]| vec![shape; count];
            let case = |shapes: &[[usize; 2]]| {
                Case::new(op.clone(), &shapes.iter().map(|shape| &shape[..]).collect::<Vec<_>>())
            };
            near_fourier(&case(&shapes([3, from])));
            near_fourier(&case(&shapes([3, from])).dtype(DType::F64));
            near_fourier(&case(&shapes([35, from])));
        }
        for (op, from, count) in transforms(length, 0) {
            let shape = [from, 21];
            let shapes = vec![&shape[..]; count];
            near_fourier(&Case::new(op.clone(), &shapes));
            near_fourier(&Case::new(op, &shapes).transposed());
        }
    }
    let case =
        Case::new(Op::Fft { kind: FftKind::Complex, axis: 1, inverse: false }, &[&[2, 12, 3], &[2, 12, 3]]);
    FLOATS.into_iter().for_each(|dtype| within(&case.clone().dtype(dtype), 3.0));
}

/// Lines that are split into matrices, lines longer than a cache, both along axes other than the last.
#[test]
fn fft_of_long_lines() {
    for (points, others) in [(4096, 1), (6000, 2), (8192, 2), (2 * 2039, 1), (4099, 2), (3 * 5 * 7 * 11, 2)] {
        for (op, from, count) in transforms(points, 0) {
            let shape = [from, others];
            let shapes = vec![&shape[..]; count];
            near_fourier(&Case::new(op, &shapes));
        }
    }
}

/// Numbers of `scipy.fft.rfft`, SciPy 1.17, of `sin(n²)` for `n` below the length.
#[test]
fn fft_matches_scipy() {
    for (points, bins) in SCIPY {
        let x: Vec<f64> = (0..points).map(|n| ((n * n) as f64).sin()).collect();
        let op = Op::Fft { kind: FftKind::FromReal, axis: 0, inverse: false };
        let case = Case::new(op, &[&[points]]).dtype(DType::F64).operand(0, TensorData::from(x));
        let found = case.on_cpu(2);
        for (k, re, im) in bins {
            let (found_re, found_im) = (found[0].to_vec::<f64>()[k], found[1].to_vec::<f64>()[k]);
            let error = (found_re - re).abs().max((found_im - im).abs());
            assert!(error < 1e-12, "{points}: {k} is {found_re} + {found_im}i");
        }
    }
}

type Bins = [(usize, f64, f64); 3];

const SCIPY: [(usize, Bins); 4] = [
    (
        1000,
        [
            (0, -2.419_972_420_373_93, 0.0),
            (1, -3.532_901_052_948_53, -0.880_199_649_374_276),
            (500, -44.122_215_619_678, 0.0),
        ],
    ),
    (
        1018,
        [
            (0, -4.436_889_614_604_87, 0.0),
            (1, -5.550_417_408_163_37, -1.261_228_145_444_31),
            (509, -47.313_609_869_054, 0.0),
        ],
    ),
    (
        1021,
        [
            (0, -3.886_528_535_555_17, 0.0),
            (1, -4.995_124_407_135_91, -1.332_747_428_196_08),
            (510, -5.614_424_718_777_76, -32.448_451_972_920_6),
        ],
    ),
    (
        1024,
        [
            (0, -4.618_728_646_627_37, 0.0),
            (1, -5.720_868_382_178_91, -1.429_184_173_829_47),
            (512, -49.912_617_396_271, 0.0),
        ],
    ),
];

#[test]
fn blockwise_quantization() {
    for (shape, scales) in [
        (&[4, 6][..], &[1, 1][..]),
        (&[4, 6], &[4, 1]),
        (&[4, 6], &[1, 6]),
        (&[4, 64], &[2, 4]),
        (&[2, 3, 8], &[1, 3, 2]),
        (&[0, 4], &[1, 2]),
        (&[], &[]),
    ] {
        for dtype in [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32] {
            let scale = |x: f64| x.abs() * 0.01 + 0.01;
            let zero = |scales: &[usize]| {
                let values = uniform(5, Shape::new(scales).num_elements());
                TensorData::new(values.iter().map(|x| (x * 50.0).abs().round()).collect::<Vec<_>>(), scales)
                    .unwrap()
                    .convert(dtype)
            };
            for float in FLOATS {
                let scale = || {
                    let values = uniform(9, Shape::new(scales).num_elements());
                    let values: Vec<f64> = values.iter().map(|&x| scale(f64::from(x))).collect();
                    TensorData::new(values, scales).unwrap().convert(float)
                };
                let quantize = Case::new(Op::Quantize { dtype }, &[shape, scales])
                    .map(|i, x| if i % 17 == 16 { f64::NAN } else { x * 2.0 })
                    .dtype(float)
                    .operand(1, scale());
                against_reference(&quantize);
                against_reference(&quantize.clone().transposed());
                against_reference(&quantize.and(zero(scales)));
                let values = uniform(3, Shape::new(shape).num_elements());
                let q = TensorData::new(values.iter().map(|x| (x * 100.0).abs()).collect::<Vec<_>>(), shape)
                    .unwrap();
                let dequantize = Case::new(Op::Dequantize, &[shape, scales])
                    .operand(0, q.convert(dtype))
                    .operand(1, scale());
                against_reference(&dequantize);
                against_reference(&dequantize.and(zero(scales)));
            }
        }
    }
}
