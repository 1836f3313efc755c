//! Uniform numbers of a range are in it, in every dtype, and equally likely.

use super::chi_square;
use kiln_backends::Device;
use kiln_ir::{DTypeSet, OpKind, OpSet};
use kiln_reference::{Limited, Reference};
use kiln_tensor::random::Key;
use kiln_tensor::{AnyTensor, DType, Distribution, TensorType};
use std::sync::Arc;

const MANY: usize = 1 << 18;

/// The reference engine without custom ops, which it does not run.
pub(crate) fn limited() -> Limited {
    let kinds: Vec<OpKind> = OpKind::ALL.into_iter().filter(|kind| *kind != OpKind::Custom).collect();
    Limited::new(Arc::new(Reference::new()), OpSet::of(&kinds))
}

/// An engine without dtypes of 64 bits, as in browsers.
pub(crate) fn browser() -> Device {
    let narrow: Vec<DType> = DType::ALL.into_iter().filter(|dtype| dtype.size() < 8).collect();
    Device::from_engine(Arc::new(limited().with_dtypes(DTypeSet::of(&narrow))), "browser")
}

fn drawn(dtype: DType, count: usize, low: f64, high: f64, device: &Device) -> AnyTensor {
    let ty = TensorType::new([count], dtype);
    AnyTensor::random_with_key(ty, Distribution::Uniform(low, high), Key::new(7), device).unwrap()
}

fn floats(dtype: DType, low: f64, high: f64) -> Vec<f64> {
    drawn(dtype, MANY, low, high, &Device::cpu()).into_data().unwrap().to_vec()
}

#[test]
fn uniform_floats_are_below_the_upper_bound() {
    let ranges = [
        (1000.0, 1001.0),
        (1.0, 2.0),
        (-2.0, -1.0),
        (-1.0, 0.0),
        (0.1, 0.3),
        (-1e-3, 1e-3),
        (60_000.0, 65_504.0),
    ];
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        for (low, high) in ranges {
            let x = floats(dtype, low, high);
            let wrong = x.iter().filter(|x| !(low..high).contains(*x)).count();
            assert_eq!(wrong, 0, "{dtype} from {low} to {high}");
            let mean = x.iter().sum::<f64>() / MANY as f64;
            // Rounding within the range shifts the mean by less than two steps of the dtype.
            let bits = [(DType::BF16, 7), (DType::F16, 10)].into_iter().find(|(half, _)| *half == dtype);
            let step = bits.map_or(0.0, |(_, bits)| 0.5f64.powi(bits));
            let steps = 2.0 * step * f64::max(low.abs(), high.abs());
            let error = (mean - (low + high) / 2.0).abs();
            assert!(error < steps + 0.003 * (high - low), "{dtype} from {low} to {high}: {mean}");
        }
    }
}

/// Rounding to the nearest of 1024 numbers: half a share for the first, one and a half for the last.
#[test]
fn uniform_halves_are_equally_likely() {
    let mut counts = [0; 1024];
    for x in floats(DType::F16, 1.0, 2.0) {
        counts[((x - 1.0) * 1024.0) as usize] += 1;
    }
    let mut expected = [MANY as f64 / 1024.0; 1024];
    (expected[0], expected[1023]) = (expected[0] * 0.5, expected[0] * 1.5);
    // Mean 1023, four standard deviations.
    assert!(chi_square(&counts, &expected) < 1204.0, "{counts:?}");
}

#[test]
fn a_range_wider_than_the_dtype_is_drawn_without_overflow() {
    for (dtype, greatest) in [(DType::F64, f64::MAX), (DType::F32, f32::MAX.into()), (DType::F16, 65_504.0)] {
        let x = floats(dtype, -greatest, greatest);
        assert!(x.iter().all(|x| (-greatest..greatest).contains(x)), "{dtype}");
        let above = x.iter().filter(|x| **x > greatest / 2.0).count();
        assert!(above.abs_diff(MANY / 4) < 1200, "{dtype}: {above}");
    }
}

#[test]
fn ranges_without_numbers_of_the_dtype_are_errors() {
    let error = |dtype, low, high| {
        let ty = TensorType::new([1], dtype);
        let drawn = AnyTensor::random(ty, Distribution::Uniform(low, high), &Device::cpu());
        drawn.unwrap_err().to_string()
    };
    let cases = [
        (DType::BF16, 1001.0, 1003.0, "[random] no bf16 number is from 1001 to below 1003"),
        (DType::F16, 0.0, 1e5, "[random] the bounds 0 and 100000 exceed the numbers of f16"),
        (DType::I32, 0.25, 0.75, "[random] no integer is from 0.25 to below 0.75"),
        (DType::U8, 0.0, 257.0, "[random] the integers from 0 to 256 are out of bounds for u8: u8[1]"),
        (DType::U8, -1.0, 4.0, "[random] the integers from -1 to 3 are out of bounds for u8: u8[1]"),
        (DType::I64, 0.0, 1e30, "[random] the integers from 0 to"),
    ];
    for (dtype, low, high, expected) in cases {
        let error = error(dtype, low, high);
        assert!(error.starts_with(expected), "{error}");
    }
    let float = AnyTensor::randint(TensorType::new([1], DType::F32), 0..3, None, &Device::cpu());
    assert!(float.unwrap_err().to_string().starts_with("[randint] needs an integer dtype: f32[1]"));
}

/// The integers of a range are the upper halves of the products of their number with random bits.
#[test]
fn integers_come_from_integer_bits() {
    let device = Device::cpu();
    let bits = |count: usize| -> Vec<u64> {
        let ty = TensorType::new([count], DType::U64);
        let drawn = AnyTensor::random_with_key(ty, Distribution::Default, Key::new(7), &device).unwrap();
        drawn.into_data().unwrap().to_vec()
    };
    let of_64 =
        |count: u64| bits(100).into_iter().map(move |bits| (u128::from(bits) * u128::from(count)) >> 64);
    for (dtype, low, high) in [
        (DType::I32, 100_000.0, 100_010.0),
        (DType::I64, 0.0, 1e9),
        (DType::U32, 0.0, 4_294_967_295.0),
        (DType::I32, -2_147_483_648.0, 2_147_483_648.0),
        (DType::I8, -128.0, 128.0),
        (DType::U16, 0.5, 2.5),
    ] {
        let first = f64::ceil(low) as i128;
        let expected: Vec<i128> =
            of_64((f64::ceil(high) - f64::ceil(low)) as u64).map(|offset| first + offset as i128).collect();
        let found: Vec<i64> = drawn(dtype, 100, low, high, &device).into_data().unwrap().to_vec();
        assert_eq!(found.into_iter().map(i128::from).collect::<Vec<_>>(), expected, "{dtype} {low} {high}");
    }
    // Products of 192 bits, in parts.
    let of_128 = |count: u64| {
        let product = move |pair: &[u64]| {
            let (low, high) = (u128::from(pair[0]), u128::from(pair[1]));
            let count = u128::from(count);
            ((high * count + ((low * count) >> 64)) >> 64) as u64
        };
        bits(200).chunks(2).map(product).collect::<Vec<u64>>()
    };
    let found: Vec<u64> = drawn(DType::U64, 100, 0.0, 1e19, &device).into_data().unwrap().to_vec();
    assert_eq!(found, of_128(10_000_000_000_000_000_000));
    let all =
        AnyTensor::randint(TensorType::new([100], DType::I64), i64::MIN..i64::MAX, Key::new(7), &device);
    let offset = |x: i64| x.wrapping_sub(i64::MIN) as u64;
    let found: Vec<u64> = all.unwrap().into_data().unwrap().to_vec::<i64>().into_iter().map(offset).collect();
    assert_eq!(found, of_128(u64::MAX));
}

#[test]
fn uniform_integers_are_equally_likely() {
    let cases = [
        (DType::I32, 100_000.0, 100_010.0),
        (DType::I64, -5.0, 5.0),
        (DType::I32, 0.0, 1e9),
        (DType::U8, 0.0, 250.0),
        (DType::I64, -9_223_372_036_854_775_808.0, 9_223_372_036_854_775_808.0),
        (DType::U64, 0.0, 18_446_744_073_709_551_616.0),
    ];
    for (dtype, low, high) in cases {
        let data = drawn(dtype, MANY, low, high, &Device::cpu()).into_data().unwrap();
        let x: Vec<i128> = if dtype == DType::U64 {
            data.to_vec::<u64>().into_iter().map(i128::from).collect()
        } else {
            data.to_vec::<i64>().into_iter().map(i128::from).collect()
        };
        assert!(x.iter().all(|x| (low as i128..high as i128).contains(x)), "{dtype} {low} {high}");
        // The least digit and the tenths of the range; 27.9 is exceeded with a probability of 1 in 1,000.
        let width = high as i128 - low as i128;
        let cells: [&dyn Fn(i128) -> i128; 2] = [&|x| x.rem_euclid(10), &|x| (x - low as i128) * 10 / width];
        for cell in cells {
            let mut counts = [0; 10];
            x.iter().for_each(|x| counts[cell(*x) as usize] += 1);
            let found = chi_square(&counts, &[MANY as f64 / 10.0; 10]);
            assert!(found < 27.9, "{dtype} {low} {high}: {counts:?}");
        }
    }
}

/// Three quarters of 2⁶⁴: remainders of 64 bits would draw the lower quarter twice as often.
#[test]
fn large_ranges_have_no_bias() {
    let quarter = 2f64.powi(62);
    let x = drawn(DType::U64, MANY, 0.0, 3.0 * quarter, &Device::cpu()).into_data().unwrap().to_vec::<u64>();
    let mut counts = [0; 3];
    x.iter().for_each(|x| counts[(x >> 62) as usize] += 1);
    assert!(chi_square(&counts, &[MANY as f64 / 3.0; 3]) < 13.8, "{counts:?}");
}

#[test]
fn engines_without_64_bits_draw_the_same_numbers() {
    let devices = [Device::cpu(), Device::flex(), browser()];
    for (dtype, low, high) in [
        (DType::I32, -7.0, 1e9),
        (DType::U32, 0.0, 4_294_967_296.0),
        (DType::U8, 3.0, 9.0),
        (DType::F32, 0.1, 3.3),
        (DType::F16, 1.0, 2.0),
        (DType::BF16, -1.0, 1.0),
        (DType::Bool, 0.0, 1.0),
    ] {
        let [cpu, flex, browser] = devices
            .each_ref()
            .map(|device| drawn(dtype, 1000, low, high, device).into_data().unwrap().to_vec::<f64>());
        assert_eq!(cpu, flex, "{dtype}");
        assert_eq!(cpu, browser, "{dtype}");
    }
    let dice = devices.each_ref().map(|device| {
        let ty = TensorType::new([1000], DType::I32);
        AnyTensor::randint(ty, 1..7, Key::new(3), device).unwrap().into_data().unwrap().to_vec::<i32>()
    });
    assert!(dice[0] == dice[1] && dice[0] == dice[2]);
}

#[test]
fn truncated_normals_are_below_the_upper_bound() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let distribution = Distribution::TruncatedNormal { mean: 1.0, deviation: 5.0, low: 0.1, high: 1.7 };
        let ty = TensorType::new([MANY], dtype);
        let x = AnyTensor::random_with_key(ty, distribution, Key::new(1), &Device::cpu()).unwrap();
        let x: Vec<f64> = x.into_data().unwrap().to_vec();
        assert!(x.iter().all(|x| (0.1..1.7).contains(x)), "{dtype}");
    }
}

#[test]
fn tensors_of_rank_0_and_without_elements() {
    let device = Device::cpu();
    for shape in [vec![], vec![0], vec![2, 0, 3]] {
        let ty = TensorType::new(shape, DType::I64);
        for high in [5.0, 1e15] {
            let x = AnyTensor::random(ty, Distribution::Uniform(0.0, high), &device).unwrap();
            assert_eq!(x.ty(), &ty);
            assert_eq!(x.into_data().unwrap().to_vec::<i64>().len(), ty.num_elements());
        }
    }
}
