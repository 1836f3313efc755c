//! Functions behind layers: edge cases, and messages of invalid calls.

use kiln_backends::{Device, Dyn, Flex, LowPrecision};
use kiln_tensor::module::{
    self, AttentionOptions, BagMode, BatchNormOptions, Causal, ConvSpec, DeformConvSpec, EmbeddingOptions,
    InterpolateMode, InterpolateOptions, PoolOptions, Pooling,
};
use kiln_tensor::{AnyTensor, Autodiff, DType, Distribution, Int, Result, Tensor, TensorData, TensorType};

const INFINITY: f32 = f32::INFINITY;

fn given(data: impl Into<TensorData>, shape: &[usize]) -> AnyTensor {
    AnyTensor::from_data(data, &Device::cpu().autodiff()).reshape(shape).unwrap()
}

fn random(shape: &[usize]) -> AnyTensor {
    let ty = TensorType::new(shape, DType::F32);
    AnyTensor::random(ty, Distribution::Normal(0.0, 1.0), &Device::cpu().autodiff()).unwrap()
}

fn values(any: &AnyTensor) -> Vec<f64> {
    any.to_data().unwrap().convert(DType::F64).to_vec::<f64>()
}

fn gradient(y: &AnyTensor, of: &AnyTensor) -> Vec<f64> {
    let sum: Tensor<Dyn, 1> = y.clone().sum().unwrap().try_into_tensor().unwrap();
    values(&sum.backward().get(of).expect("a gradient"))
}

fn close(a: &AnyTensor, b: &AnyTensor) {
    assert_eq!(a.shape(), b.shape());
    for (a, b) in values(a).into_iter().zip(values(b)) {
        assert!((a - b).abs() < 1e-4 || a == b, "{a} is not {b}");
    }
}

#[test]
fn max_pool_indices_never_point_into_padding() {
    let pooling = Pooling { stride: vec![1], padding: vec![(1, 1)], ..Pooling::new(&[3]) };
    let x = given(vec![-INFINITY, -INFINITY, 5.0, f32::NAN], &[1, 1, 4]);
    let (y, indices) = x.max_pool_with_indices(&pooling).unwrap();
    assert_eq!(values(&indices), [0.0, 2.0, 3.0, 3.0]);
    assert_eq!(values(&y)[..2], [f64::NEG_INFINITY, 5.0]);
    assert!(values(&y)[2..].iter().all(|y| y.is_nan()));
}

#[test]
fn max_unpool_restores_the_maxima() {
    let x = given(vec![1.0f32, 4.0, 2.0, 3.0], &[1, 1, 2, 2]).require_grad().unwrap();
    let (y, indices) = x.clone().max_pool_with_indices(&Pooling::new(&[1, 2])).unwrap();
    let back = y.max_unpool(indices, &[2, 2]).unwrap();
    assert_eq!(values(&back), [0.0, 4.0, 0.0, 3.0]);
    assert_eq!(gradient(&back, &x), [0.0, 1.0, 0.0, 1.0]);
}

#[test]
fn pooling_gradient_functions_match_backward() {
    let padding = vec![(1, 0), (0, 2)];
    let pooling = Pooling { stride: vec![2, 1], padding, ceil_mode: true, ..Pooling::new(&[2, 3]) };
    let x = random(&[2, 2, 5, 6]).require_grad().unwrap();
    let y = x.clone().max_pool(&pooling).unwrap();
    let ones = AnyTensor::ones(*y.ty(), y.stack()).unwrap();
    assert_eq!(values(&ones.max_pool_gradient(x.clone(), &pooling).unwrap()), gradient(&y, &x));
    let y = x.clone().avg_pool(&pooling, false).unwrap();
    let ones = AnyTensor::ones(*y.ty(), y.stack()).unwrap();
    assert_eq!(values(&ones.avg_pool_gradient(&[5, 6], &pooling, false).unwrap()), gradient(&y, &x));
}

#[test]
fn the_gradient_of_lp_pool_at_zero_is_zero() {
    let x = given(vec![0.0f32, 0.0, 3.0, 4.0], &[1, 1, 4]).require_grad().unwrap();
    let y = x.clone().lp_pool(2.0, &Pooling::new(&[2])).unwrap();
    assert_eq!(values(&y), [0.0, 5.0]);
    let slopes = gradient(&y, &x);
    assert_eq!(slopes[..2], [0.0, 0.0]);
    assert!((slopes[2] - 0.6).abs() < 1e-6 && (slopes[3] - 0.8).abs() < 1e-6);
}

#[test]
fn adaptive_pooling_ignores_nan_outside_the_window() {
    let x = given(vec![1.0f32, 2.0, 3.0, INFINITY, f32::NAN], &[1, 1, 5]);
    let y = values(&x.clone().adaptive_avg_pool(&[3]).unwrap());
    assert_eq!(y[..2], [1.5, f64::INFINITY]);
    assert!(y[2].is_nan());
    let (y, indices) = x.adaptive_max_pool_with_indices(&[3]).unwrap();
    assert_eq!(values(&y)[..2], [2.0, f64::INFINITY]);
    assert_eq!(values(&indices), [1.0, 3.0, 4.0]);
}

#[test]
fn adaptive_max_pool_gives_the_gradient_to_the_first_maximum() {
    let x = given(vec![7.0f32, 7.0, 7.0], &[1, 1, 3]).require_grad().unwrap();
    let y = x.clone().adaptive_max_pool(&[2]).unwrap();
    assert_eq!(gradient(&y, &x), [1.0, 1.0, 0.0]);
}

#[test]
fn interpolation_ignores_infinities_outside_the_support() {
    let x = given(vec![1.0f32, 2.0, INFINITY], &[1, 1, 3]);
    for mode in [InterpolateMode::Linear, InterpolateMode::Cubic] {
        for antialias in [false, true] {
            let options = InterpolateOptions { mode, antialias, align_corners: false };
            let same = x.clone().interpolate([1.0f64], options).unwrap();
            assert_eq!(values(&same), [1.0, 2.0, f64::INFINITY], "{options:?}");
        }
    }
    let wide = InterpolateOptions::new(InterpolateMode::Area);
    assert_eq!(values(&x.interpolate([2usize], wide).unwrap()), [1.5, f64::INFINITY]);
}

#[test]
fn deform_conv2d_with_zero_offsets_is_conv2d() {
    let (x, weight, bias) = (random(&[2, 4, 5, 6]), random(&[6, 2, 3, 2]), random(&[6]));
    let spec =
        DeformConvSpec { stride: [2, 1], padding: [1, 0], dilation: [1, 2], groups: 2, offset_groups: 2 };
    let plain =
        ConvSpec { stride: vec![2, 1], padding: vec![(1, 1), (0, 0)], dilation: vec![1, 2], groups: 2 };
    let expected = x.clone().conv(weight.clone(), Some(bias.clone()), &plain).unwrap();
    let (height, width) = (expected.shape()[2], expected.shape()[3]);
    let of = |count| TensorType::new([2, count, height, width], DType::F32);
    let offsets = AnyTensor::zeros(of(2 * 12), x.stack()).unwrap();
    let mask = AnyTensor::ones(of(12), x.stack()).unwrap();
    let found =
        x.clone().deform_conv2d(offsets, weight.clone(), Some(mask), Some(bias.clone()), &spec).unwrap();
    close(&found, &expected);
    // Offsets outside the image read 0.
    let far = AnyTensor::full(of(2 * 12), INFINITY, x.stack()).unwrap().require_grad().unwrap();
    let nothing = x.deform_conv2d(far.clone(), weight, None, None, &spec).unwrap();
    assert!(values(&nothing).iter().all(|&y| y == 0.0));
    assert!(gradient(&nothing, &far).iter().all(|&g| g == 0.0));
}

#[test]
fn fold_is_the_transpose_of_unfold() {
    let spec =
        ConvSpec { stride: vec![2, 1], padding: vec![(1, 0), (2, 1)], dilation: vec![1, 2], groups: 1 };
    let x = random(&[2, 3, 5, 4]).require_grad().unwrap();
    let columns = x.clone().unfold4d([2, 2], &spec).unwrap();
    let weights = random(columns.shape());
    let product = columns.mul(weights.clone()).unwrap();
    let folded = weights.fold4d([5, 4], [2, 2], &spec).unwrap();
    for (a, b) in gradient(&product, &x).into_iter().zip(values(&folded)) {
        assert!((a - b).abs() < 1e-5);
    }
}

#[test]
fn embedding_bags() {
    let table = given(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]).require_grad().unwrap();
    let bag = |mode| {
        let (indices, offsets) = (given(vec![2, 0, 1, 2], &[4]), given(vec![0, 2, 2, 4], &[4]));
        table.clone().embedding_bag_offsets(indices, offsets, None, mode).unwrap()
    };
    assert_eq!(values(&bag(BagMode::Sum)), [6.0, 8.0, 0.0, 0.0, 8.0, 10.0, 0.0, 0.0]);
    assert_eq!(values(&bag(BagMode::Mean)), [3.0, 4.0, 0.0, 0.0, 4.0, 5.0, 0.0, 0.0]);
    assert_eq!(values(&bag(BagMode::Max)), [5.0, 6.0, 0.0, 0.0, 5.0, 6.0, 0.0, 0.0]);
    assert_eq!(gradient(&bag(BagMode::Max), &table), [0.0, 0.0, 0.0, 0.0, 2.0, 2.0]);
    assert_eq!(gradient(&bag(BagMode::Mean), &table), [0.5, 0.5, 0.5, 0.5, 1.0, 1.0]);
    let rows = given(vec![2, 0], &[1, 2]);
    let weights = given(vec![2.0f32, -1.0], &[1, 2]);
    let y = table.clone().embedding_bag(rows, Some(weights), BagMode::Sum).unwrap();
    assert_eq!(values(&y), [9.0, 10.0]);
}

#[test]
fn padding_masks_accept_lengths_of_every_integer_dtype() {
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
        let lengths = given(vec![0, 2, 4, 9], &[4]).cast(dtype).unwrap();
        let mask = lengths.padding_mask(4).unwrap();
        let counts = mask.cast(DType::I32).unwrap().reduce(kiln_ir::Reduction::Sum, &[1]).unwrap();
        assert_eq!(values(&counts), [0.0, 2.0, 4.0, 4.0], "{dtype}");
    }
}

#[test]
fn both_alignments_of_causal_attention() {
    let (q, k) = (random(&[1, 2, 3, 4]), random(&[1, 2, 5, 4]));
    for (causal, seen) in [(Causal::First, [1, 2, 3]), (Causal::Last, [3, 4, 5]), (Causal::No, [5, 5, 5])] {
        let mask = AnyTensor::causal_mask(3, 5, causal, q.stack()).unwrap();
        let counts = mask.clone().cast(DType::I32).unwrap().reduce(kiln_ir::Reduction::Sum, &[1]).unwrap();
        assert_eq!(values(&counts), seen.map(f64::from));
        let options = AttentionOptions { causal, ..AttentionOptions::default() };
        let by_rule = q.clone().attention(k.clone(), k.clone(), None, options).unwrap();
        let by_mask =
            q.clone().attention(k.clone(), k.clone(), Some(mask), AttentionOptions::default()).unwrap();
        close(&by_rule, &by_mask);
    }
}

#[test]
fn batch_norm_updates_its_statistics_untracked() {
    let x = random(&[4, 3, 5]).require_grad().unwrap();
    let (mean, variance) = (random(&[3]), given(vec![1.0f32; 3], &[3]));
    let train = BatchNormOptions { training: true, momentum: 1.0, epsilon: 1e-5 };
    let (y, running) = x.clone().batch_norm(Some((mean, variance)), None, None, train).unwrap();
    let (mean, variance) = running.unwrap();
    assert!(gradient(&y, &x).iter().all(|g| g.abs() < 1e-4));
    let rows = |any: &AnyTensor| any.clone().permute([1, 0, 2]).unwrap().reshape([3, 20]).unwrap();
    let all = values(&rows(&x));
    for channel in 0..3 {
        let row = &all[channel * 20..channel * 20 + 20];
        let average = row.iter().sum::<f64>() / 20.0;
        let spread = row.iter().map(|x| (x - average).powi(2)).sum::<f64>() / 19.0;
        assert!((values(&mean)[channel] - average).abs() < 1e-5);
        assert!((values(&variance)[channel] - spread).abs() < 1e-5);
    }
}

/// Whether all numbers are exact in `bf16`.
fn fits_bf16(any: &AnyTensor) -> bool {
    any.to_data().unwrap().to_vec::<f32>().iter().all(|x| x.to_bits() & 0xffff == 0)
}

#[test]
fn mixed_precision_stores_batch_norm_in_the_precision_of_its_operand() {
    let device = Device::cpu().autocast(LowPrecision::BF16).autodiff();
    let random = |shape: [usize; 2]| {
        let ty = TensorType::new(shape, DType::F32);
        AnyTensor::random(ty, Distribution::Normal(0.0, 1.0), &device).unwrap()
    };
    let (x, weight) = (random([64, 16]), random([16, 8]).require_grad().unwrap());
    let train = BatchNormOptions { training: true, ..Default::default() };
    let norm = |x: &AnyTensor| x.clone().batch_norm(None, None, None, train).unwrap().0;
    let product = x.clone().matmul(weight.clone()).unwrap();
    let y = norm(&product);
    assert!(fits_bf16(&y) && !fits_bf16(&norm(&x)), "of a product in 16 bits, and of a tensor of `f32`");
    assert_eq!(y.dtype(), DType::F32, "what the program sees");
    // Without rounding, values agree within `bf16` precision; the gradient ignores the rounding.
    let factors = random([64, 8]);
    let slope =
        |y: &AnyTensor| gradient(&y.clone().binary(kiln_ir::Binary::Mul, factors.clone()).unwrap(), &weight);
    let exact = norm(&product.clone().cast(DType::F32).unwrap());
    let difference = |a: Vec<f64>, b: Vec<f64>, most: f64| {
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= most), "{a:?}\n{b:?}");
    };
    difference(values(&y), values(&exact), 0.02);
    difference(slope(&y), slope(&exact), 0.2);
}

#[test]
fn match_precision_without_mixed_precision_is_the_identity() {
    let (x, like) = (random(&[3, 4]), random(&[2]));
    let y = x.clone().match_precision(&like).unwrap();
    assert_eq!(values(&y), values(&x));
}

#[test]
fn dropout_with_probability_one_has_zero_output_and_gradient() {
    let x = given(vec![1.0f32, INFINITY], &[2]).require_grad().unwrap();
    for y in [x.clone().dropout(1.0, true).unwrap(), x.clone().alpha_dropout(1.0, true).unwrap()] {
        assert_eq!(values(&y), [0.0, 0.0]);
        assert_eq!(gradient(&y, &x), [0.0, 0.0]);
    }
    let channels = random(&[20, 10, 7]).dropout_channels(0.5, true).unwrap();
    let rows = values(&channels);
    assert!(rows.chunks(7).all(|row| row.iter().all(|&y| y == 0.0) || row.iter().all(|&y| y != 0.0)));
    // Mean 0 and variance 1 are preserved.
    let y = values(&random(&[100_000]).alpha_dropout(0.3, true).unwrap());
    let mean = y.iter().sum::<f64>() / 1e5;
    let variance = y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / 1e5;
    assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
}

#[test]
fn rotary_embedding_keeps_norms_and_depends_on_relative_position() {
    let (a, b) = (random(&[1, 8]), random(&[1, 8]));
    for layout in [Default::default(), kiln_tensor::module::RotaryLayout::Interleaved] {
        let at = |x: &AnyTensor, place: usize| {
            let (cos, sin) = AnyTensor::rotary_angles(place, 1, 8, 1e4, DType::F32, x.stack()).unwrap();
            x.clone().rotary_embedding(cos, sin, layout).unwrap()
        };
        let score = |i, j| values(&at(&a, i).mul(at(&b, j)).unwrap()).iter().sum::<f64>();
        assert!((score(3, 5) - score(10, 12)).abs() < 1e-4);
        let plain: f64 = values(&a.clone().mul(b.clone()).unwrap()).iter().sum();
        assert!((score(4, 4) - plain).abs() < 1e-4);
    }
}

#[test]
fn errors_of_invalid_calls() {
    let f = |shape: &[usize]| random(shape);
    let says = |result: Result<AnyTensor>, expected: &str| {
        assert_eq!(result.expect_err(expected).to_string(), expected);
    };
    says(
        f(&[2, 3]).linear(f(&[4, 5]), None),
        "[linear] the last axis must be as long as the weight's inputs: f32[2, 3] x f32[4, 5]\n  hint: the weight is \
         [out, in]: it expects 5 input features",
    );
    says(
        f(&[2, 3]).max_pool(&Pooling::new(&[2])),
        "[max_pool] needs at least 3 axes: f32[2, 3]\n  hint: the axes are [batch, channels, space..]",
    );
    says(
        f(&[1, 2, 3]).max_pool(&Pooling::new(&[2, 2])),
        "[max_pool] `window` has 2 entries for 1 spatial dimensions: f32[1, 2, 3]",
    );
    says(
        f(&[2, 6, 3]).group_norm(4, None, None, 1e-5),
        "[group_norm] 6 channels do not divide into 4 groups: f32[2, 6, 3]",
    );
    says(
        f(&[2, 6, 3]).group_norm(2, Some(f(&[3])), None, 1e-5),
        "[group_norm] expected one number for each of 6 channels: f32[2, 6, 3] x f32[3]\n  hint: channels are axis 1",
    );
    says(
        f(&[1, 3, 2, 2]).pixel_shuffle(2),
        "[pixel_shuffle] 3 channels do not divide into 2 x 2: f32[1, 3, 2, 2]",
    );
    says(
        f(&[1, 1, 4]).interpolate([0usize], InterpolateOptions::default()),
        "[interpolate] cannot resize to [0]: an axis is empty: f32[1, 1, 4]",
    );
    says(
        f(&[1, 1, 4])
            .interpolate([2usize], InterpolateOptions { antialias: true, ..InterpolateOptions::default() }),
        "[interpolate] Nearest has neither `align_corners` nor `antialias`: f32[1, 1, 4]\n  hint: they belong to `Linear` \
         and `Cubic`",
    );
    says(f(&[2]).dropout(1.5, true), "[dropout] the probability 1.5 is not between 0 and 1: f32[2]");
    says(
        f(&[4, 3]).rotary_embedding(f(&[4, 1]), f(&[4, 1]), Default::default()),
        "[rotary_embedding] the last axis has no pairs: its length is 3: f32[4, 3]",
    );
}

/// Windows beyond the end have fewer elements with the same divisor.
#[test]
fn avg_pool_divides_by_divisor_override() {
    let device = Default::default();
    let x = Tensor::<Flex, 3>::from_floats([[[1.0f32, 2.0, 3.0, 4.0, 5.0]]], &device);
    let options = PoolOptions { ceil_mode: true, ..PoolOptions::new([2]) };
    let y = module::avg_pool1d_with_divisor(x.clone(), &options, 4);
    assert_eq!(y.into_data().to_vec::<f32>(), [0.75, 1.75, 1.25]);
    let options = PoolOptions::new([2]).with_padding([(1, 1)]);
    let y = module::avg_pool1d_with_divisor(x, &options, 1);
    assert_eq!(y.into_data().to_vec::<f32>(), [1.0, 5.0, 9.0]);
}

/// Positions by the definition: length 7, windows of 2, 3 of them, sample 0.5: α = 2.5, starts 2.5 + .. less 1.
#[test]
fn fractional_max_pool_windows_start_at_the_samples() {
    let device = Default::default();
    let x = Tensor::<Flex, 3>::from_floats([[[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]], &device);
    let sample = Tensor::<Flex, 3>::from_floats([[[0.5f32]]], &device);
    // ⌊0.5 · 2.5⌋ = 1; starts 0, ⌊3.75⌋ - 1 = 2, and 7 - 2 = 5.
    let y = module::fractional_max_pool1d(x.clone(), [2], [3], Some(sample));
    assert_eq!(y.into_data().to_vec::<f32>(), [1.0, 3.0, 6.0]);
    let drawn = module::fractional_max_pool1d(x, [2], [3], None);
    assert_eq!(drawn.into_data().to_vec::<f32>()[2], 6.0);
}

#[test]
fn embedding_padding_idx_and_max_norm() {
    let device = Default::default();
    let table = Tensor::<Autodiff<Flex>, 2>::from_floats([[3.0f32, 4.0], [0.5, 0.0]], &device).require_grad();
    let words = Tensor::<Autodiff<Flex>, 1, Int>::from_ints([0, 1, 0], &device);
    let options = EmbeddingOptions { padding_idx: Some(1), max_norm: Some(1.0), norm_type: 2.0 };
    let rows = module::embedding_with(table.clone(), words, &options);
    let wanted = Tensor::from_floats([[0.6f32, 0.8], [0.5, 0.0], [0.6, 0.8]], &device);
    assert!(rows.clone().all_close(wanted, None, Some(1e-6)));
    let gradient = table.grad(&rows.sum().backward()).unwrap();
    assert_eq!(gradient.into_data().to_vec::<f32>(), [2.0, 2.0, 0.0, 0.0]);
}
