//! Numeric edge cases: promotion, casts, integer arithmetic, NaN, infinities, signed zeros, subnormals.

use kiln_backends::{Device, Flex, FlexDevice};
use kiln_tensor::{AnyTensor, Autodiff, Bool, DType, Elements, Float, Int, Tensor, TensorData};

const DEVICE: FlexDevice = FlexDevice;
const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

fn any(data: impl Into<TensorData>) -> AnyTensor {
    AnyTensor::from_data(data, &Device::cpu())
}

fn in_dtype(x: f64, dtype: DType) -> AnyTensor {
    any(TensorData::from([x]).convert(dtype))
}

fn floats(x: &[f32]) -> Tensor<Flex, 1> {
    Tensor::from_floats(x.to_vec(), &DEVICE)
}

fn ints(x: &[i32]) -> Tensor<Flex, 1, Int> {
    Tensor::from_ints(x.to_vec(), &DEVICE)
}

fn list<K: kiln_tensor::Kind>(x: Tensor<Flex, 1, K>) -> Vec<f32> {
    x.into_data().to_vec()
}

fn truths(x: Tensor<Flex, 1, Bool>) -> Vec<bool> {
    x.into_data().to_vec()
}

/// Asserts equality, with NaN equal to NaN and distinct signed zeros.
#[track_caller]
fn same(actual: &[f32], expected: &[f32]) {
    let alike = |(a, e): (&f32, &f32)| a.to_bits() == e.to_bits() || (a.is_nan() && e.is_nan());
    assert!(
        actual.len() == expected.len() && actual.iter().zip(expected).all(alike),
        "{actual:?} is not {expected:?}"
    );
}

#[test]
fn operands_are_promoted_to_a_common_dtype() {
    for a in DType::ALL {
        for b in DType::ALL {
            let sum = in_dtype(1.0, a).equal(in_dtype(1.0, b));
            match DType::promote(a, b) {
                Some(dtype) => {
                    assert_eq!(sum.unwrap().into_data().unwrap().to_vec::<bool>(), [true], "{a} and {b}");
                    if !dtype.is_bool() {
                        let product = in_dtype(1.0, a).mul(in_dtype(1.0, b)).unwrap();
                        assert_eq!(product.dtype(), dtype, "{a} and {b}");
                    }
                }
                None => assert!(sum.is_err(), "{a} and {b}"),
            }
        }
    }
}

#[test]
fn operands_without_a_common_dtype_are_an_error() {
    let error = in_dtype(1.0, DType::U64).add(in_dtype(1.0, DType::I32)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "[add] no integer dtype can represent u64 and i32: u64[1] x i32[1]\n  \
         hint: cast one of them: to `i64` if its numbers fit, or both to `f64`"
    );
}

#[test]
fn typed_tensors_of_one_kind_promote() {
    let wide = Tensor::<Flex, 1>::from_data_dtype([1.0f64, 2.0], DType::F64, &DEVICE);
    assert_eq!((floats(&[1.0, 2.0]) * wide.clone()).dtype(), DType::F64);
    assert_eq!((wide * floats(&[1.0, 2.0])).dtype(), DType::F64);
    let bytes = Tensor::<Flex, 1, Int>::from_data_dtype([200u8, 1], DType::U8, &DEVICE);
    assert_eq!((ints(&[100, 1]) + bytes).into_data().to_vec::<i32>(), [300, 2]);
    let halves = [DType::F16, DType::BF16].map(|d| Tensor::<Flex, 1>::from_data_dtype([1.0], d, &DEVICE));
    let [a, b] = halves;
    assert_eq!(a.maximum(b).dtype(), DType::F32);
}

#[test]
fn scalars_take_the_dtype_of_the_tensor_or_promote_it() {
    let int = any([1i32, 2]);
    assert_eq!(int.clone().add_scalar(2).unwrap().dtype(), DType::I32);
    let sum = int.clone().add_scalar(0.5).unwrap();
    assert_eq!((sum.dtype(), sum.into_data().unwrap().to_vec::<f32>()), (DType::F32, vec![1.5, 2.5]));
    assert_eq!(int.clone().mul_scalar(2.0).unwrap().dtype(), DType::F32);
    assert_eq!(int.lower_elem(1.5).unwrap().into_data().unwrap().to_vec::<bool>(), [true, false]);
    assert_eq!(any([true, false]).add_scalar(2).unwrap().into_data().unwrap().to_vec::<i32>(), [3, 2]);
    assert_eq!(in_dtype(1.0, DType::F16).add_scalar(1).unwrap().dtype(), DType::F16);
    // The kind of a typed tensor does not change.
    let error = std::panic::catch_unwind(|| ints(&[1]) + 0.5).unwrap_err();
    assert!(error.downcast_ref::<String>().unwrap().starts_with("[add] "), "{error:?}");
}

#[test]
fn casts_saturate_wrap_and_round() {
    let x = any([1.9f32, -1.9, 300.0, -300.0, 3e9, -3e9, INF, -INF, NAN]);
    let cast = |dtype| x.clone().cast(dtype).unwrap().into_data().unwrap();
    assert_eq!(
        cast(DType::I32).to_vec::<i32>(),
        [1, -1, 300, -300, i32::MAX, i32::MIN, i32::MAX, i32::MIN, 0]
    );
    assert_eq!(cast(DType::I8).to_vec::<i8>(), [1, -1, 127, -128, 127, -128, 127, -128, 0]);
    assert_eq!(cast(DType::U8).to_vec::<u8>(), [1, 0, 255, 0, 255, 0, 255, 0, 0]);
    assert_eq!(cast(DType::Bool).to_vec::<bool>(), [true; 9]);
    // Integer casts keep the lower bits.
    let wrapped = any([300i32, -1, i32::MIN]).cast(DType::U8).unwrap().into_data().unwrap();
    assert_eq!(wrapped.to_vec::<u8>(), [44, 255, 0]);
    // Casts to narrower floats round to nearest even and overflow to infinity.
    let half = any([2049.0f32, 2051.0, 65519.0, 65520.0, 1e-8, -1e-8]).cast(DType::F16).unwrap();
    same(&half.into_data().unwrap().to_vec::<f32>(), &[2048.0, 2052.0, 65504.0, INF, 0.0, -0.0]);
    let brain = any([257.0f32, 259.0, 3.4e38]).cast(DType::BF16).unwrap();
    same(&brain.into_data().unwrap().to_vec::<f32>(), &[256.0, 260.0, INF]);
    // Casts of large integers to floats round to nearest.
    let large = any([16_777_217i32, i32::MAX]).cast(DType::F32).unwrap();
    assert_eq!(large.into_data().unwrap().to_vec::<f32>(), [16_777_216.0, 2_147_483_648.0]);
}

#[test]
fn integers_wrap() {
    let top = ints(&[i32::MAX, i32::MIN, 65_536]);
    assert_eq!((top.clone() + 1).into_data().to_vec::<i32>(), [i32::MIN, i32::MIN + 1, 65_537]);
    assert_eq!((top.clone() * 65_536).into_data().to_vec::<i32>(), [-65_536, 0, 0]);
    assert_eq!((-top.clone()).into_data().to_vec::<i32>(), [-i32::MAX, i32::MIN, -65_536]);
    assert_eq!(top.abs().into_data().to_vec::<i32>(), [i32::MAX, i32::MIN, 65_536]);
    assert_eq!((ints(&[i32::MIN]) / -1).into_data().to_vec::<i32>(), [i32::MIN]);
    assert_eq!((ints(&[i32::MIN]) % ints(&[-1])).into_data().to_vec::<i32>(), [0]);
    let bytes = any([200u8, 100]);
    let sum = bytes.clone().add(bytes).unwrap().into_data().unwrap();
    assert_eq!(sum.to_vec::<u8>(), [144, 200]);
    let wide = any([i64::MAX]).add_scalar(1).unwrap().into_data().unwrap();
    assert_eq!(wide.to_vec::<i64>(), [i64::MIN]);
    assert_eq!(
        ints(&[3, -3]).powi_scalar(21).into_data().to_vec::<i32>(),
        [3i32.wrapping_pow(21), (-3i32).wrapping_pow(21)]
    );
}

#[test]
fn integer_divisions() {
    let (a, b) = (ints(&[7, -7, 7, -7, 7]), ints(&[3, 3, -3, -3, 0]));
    let of = |x: Tensor<Flex, 1, Int>| x.into_data().to_vec::<i32>();
    assert_eq!(of(a.clone() / b.clone()), [2, -2, -2, 2, 0]);
    assert_eq!(of(a.clone() % b.clone()), [1, -1, 1, -1, 0]);
    assert_eq!(of(a.clone().floor_divide(b.clone())), [2, -3, -3, 2, 0]);
    assert_eq!(of(a.clone().remainder(b.clone())), [1, 2, -2, -1, 0]);
    assert_eq!(of(a.clone().trunc_divide(b.clone())), [2, -2, -2, 2, 0]);
    assert_eq!(of(a.fmod(b)), [1, -1, 1, -1, 0]);
    // Quotient and remainder are consistent.
    for (a, b) in [(7, 3), (-7, 3), (7, -3), (-7, -3), (i32::MIN, 3), (i32::MAX, -2)] {
        let (x, y) = (ints(&[a]), ints(&[b]));
        let back = x.clone().floor_divide(y.clone()) * y.clone() + x.remainder(y);
        assert_eq!(of(back), [a], "{a} and {b}");
    }
    assert_eq!(of(ints(&[2, 1, -1, 0]).pow(ints(&[-1, -5, -3, -1]))), [0, 1, -1, 0]);
    assert_eq!(of(ints(&[0, i32::MIN, 12]).gcd(ints(&[0, 6, 0]))), [0, 2, 12]);
}

#[test]
fn shifts_by_the_width_or_more() {
    let by = ints(&[0, 1, 31, 32, 100, -1]);
    let of = |x: Tensor<Flex, 1, Int>| x.into_data().to_vec::<i32>();
    assert_eq!(of(ints(&[1; 6]).bitwise_left_shift(by.clone())), [1, 2, i32::MIN, 0, 0, 0]);
    assert_eq!(of(ints(&[-8; 6]).bitwise_right_shift(by.clone())), [-8, -4, -1, -1, -1, -1]);
    assert_eq!(of(ints(&[8; 6]).bitwise_right_shift(by)), [8, 4, 0, 0, 0, 0]);
}

#[test]
fn nan_in_comparisons_and_extrema() {
    let (a, b) = (floats(&[NAN, 1.0, NAN]), floats(&[1.0, NAN, NAN]));
    for lower in [a.clone().lower(b.clone()), a.clone().lower_equal(b.clone()), a.clone().equal(b.clone())] {
        assert_eq!(truths(lower), [false; 3]);
    }
    assert_eq!(truths(a.clone().not_equal(b.clone())), [true; 3]);
    same(&list(a.clone().minimum(b.clone())), &[NAN; 3]);
    same(&list(a.clone().maximum(b.clone())), &[NAN; 3]);
    same(&list(a.clone().fmin(b.clone())), &[1.0, 1.0, NAN]);
    same(&list(a.clone().fmax(b)), &[1.0, 1.0, NAN]);
    same(&list(a.clone().clamp(0.0, 0.5)), &[NAN, 0.5, NAN]);
    same(&list(a.sign()), &[NAN, 1.0, NAN]);
}

#[test]
fn infinities_and_zeros_in_arithmetic() {
    let x = floats(&[1.0, -1.0, 0.0, -0.0, INF]);
    same(&list(x.clone() / 0.0), &[INF, -INF, NAN, NAN, INF]);
    same(&list(1.0 / x.clone()), &[1.0, -1.0, INF, -INF, 0.0]);
    same(&list(x.clone() - INF), &[-INF, -INF, -INF, -INF, NAN]);
    same(&list(x.clone() % 0.0), &[NAN, NAN, NAN, NAN, NAN]);
    same(&list(floats(&[1.0, -1.0]).fmod(floats(&[INF, INF]))), &[1.0, -1.0]);
    same(&list(floats(&[1.0, -1.0]).remainder(floats(&[INF, INF]))), &[1.0, INF]);
    same(&list(floats(&[1.0, -1.0]).floor_divide(floats(&[INF, INF]))), &[0.0, -1.0]);
    same(&list(floats(&[1.0, 0.0]).floor_divide(floats(&[0.0, 0.0]))), &[INF, NAN]);
    same(&list(floats(&[0.0, INF]).hypot(floats(&[0.0, NAN]))), &[0.0, INF]);
    same(&list(floats(&[INF, -INF, INF]).logaddexp(floats(&[INF, -INF, -INF]))), &[INF, -INF, INF]);
    same(&list(floats(&[0.0, 0.0, 0.0]).xlogy(floats(&[0.0, INF, NAN]))), &[0.0, 0.0, NAN]);
    same(&list(floats(&[NAN, INF, -INF, 1.0]).nan_to_num(0.0, None, None)), &[0.0, f32::MAX, f32::MIN, 1.0]);
}

#[test]
fn the_sign_of_zero() {
    let x = floats(&[0.0, -0.0]);
    same(&list(x.clone().sign()), &[0.0, -0.0]);
    same(&list(x.clone().abs()), &[0.0, 0.0]);
    same(&list(-x.clone()), &[-0.0, 0.0]);
    same(&list(x.clone().sqrt()), &[0.0, -0.0]);
    type Function = fn(Tensor<Flex, 1>) -> Tensor<Flex, 1>;
    let odd: [(&str, Function); 13] = [
        ("sin", Tensor::sin),
        ("tan", Tensor::tan),
        ("asin", Tensor::asin),
        ("atan", Tensor::atan),
        ("sinh", Tensor::sinh),
        ("tanh", Tensor::tanh),
        ("asinh", Tensor::asinh),
        ("atanh", Tensor::atanh),
        ("expm1", Tensor::expm1),
        ("log1p", Tensor::log1p),
        ("cbrt", Tensor::cbrt),
        ("erf", Tensor::erf),
        ("erfinv", Tensor::erfinv),
    ];
    for (name, function) in odd {
        let y = list(function(x.clone()));
        assert_eq!(y.iter().map(|y| y.to_bits()).collect::<Vec<_>>(), [0, 1 << 31], "{name}");
    }
    same(&list(floats(&[-0.4, -0.5]).round()), &[-0.0, -0.0]);
    same(&list(floats(&[-0.4]).ceil()), &[-0.0]);
    same(&list(floats(&[-0.4]).trunc()), &[-0.0]);
    assert_eq!(truths(x.clone().equal(floats(&[-0.0, 0.0]))), [true, true]);
    assert_eq!(truths(x.clone().signbit()), [false, true]);
    same(&list(floats(&[2.0, 2.0]).copysign(x.clone())), &[2.0, -2.0]);
    same(&list(x.digamma()), &[-INF, INF]);
}

#[test]
fn subnormal_numbers_are_kept() {
    let least = f32::from_bits(1);
    let x = floats(&[least, -least, f32::MIN_POSITIVE]);
    same(&list(x.clone() * 1.0), &[least, -least, f32::MIN_POSITIVE]);
    same(&list(x.clone() * 0.5), &[0.0, -0.0, f32::MIN_POSITIVE / 2.0]);
    same(&list(x.clone().sin()), &[least, -least, f32::MIN_POSITIVE]);
    same(&list(x.clone().abs().log2()), &[-149.0, -149.0, -126.0]);
    same(&list(floats(&[-149.0, -126.0, -150.0]).exp2()), &[least, f32::MIN_POSITIVE, 0.0]);
    let (mantissa, exponent) = x.frexp();
    same(&list(mantissa.clone()), &[0.5, -0.5, 0.5]);
    assert_eq!(exponent.clone().into_data().to_vec::<i32>(), [-148, -148, -125]);
    same(&list(mantissa.ldexp(exponent)), &[least, -least, f32::MIN_POSITIVE]);
    same(&list(floats(&[0.0, 0.0, least]).nextafter(floats(&[1.0, -1.0, 0.0]))), &[least, -least, 0.0]);
    same(&list(floats(&[1.0, f32::MAX]).nextafter(floats(&[2.0, INF]))), &[1.0 + f32::EPSILON, INF]);
}

#[test]
fn sixteen_bit_floats_round_once() {
    // 1 + 2⁻¹¹ is halfway between two neighbours of f16; the exact function is rounded, not its steps.
    for dtype in [DType::F16, DType::BF16] {
        let x = TensorData::from(vec![0.1f32, 0.7, 1.3, 2.9, 7.7]).convert(dtype);
        let narrow = any(x.clone()).lgamma().unwrap().into_data().unwrap();
        let wide = any(x).cast(DType::F64).unwrap().lgamma().unwrap().into_data().unwrap().convert(dtype);
        assert_eq!(narrow, wide);
    }
    let ones = any(TensorData::from(vec![1.0f32; 4096]).convert(DType::BF16));
    assert!(matches!(ones.clone().into_data().unwrap().elements(), Elements::BF16(_)));
    let sum = ones.reduce_all(kiln_ir::Reduction::Sum).unwrap().into_data().unwrap();
    assert_eq!(sum.to_vec::<f32>(), [4096.0]);
}

type B = Autodiff<Flex>;

/// Checks the derivative of a function at some points.
#[track_caller]
fn slopes(x: &[f32], expected: &[f32], f: impl Fn(Tensor<B, 1>) -> Tensor<B, 1>) {
    let x = Tensor::<B, 1>::from_floats(x.to_vec(), &DEVICE).require_grad();
    let gradients = f(x.clone()).sum().backward();
    let slope: Tensor<Flex, 1, Float> = x.grad(&gradients).expect("a gradient");
    let slope = slope.into_data().to_vec::<f32>();
    let near = |(a, e): (&f32, &f32)| (a - e).abs() <= 1e-6 * e.abs();
    assert!(slope.iter().zip(expected).all(near), "{slope:?} is not {expected:?}");
}

#[test]
fn branches_not_taken_do_not_put_nan_into_gradients() {
    slopes(&[0.0], &[0.0], |x| x.sinc());
    slopes(&[0.0], &[0.0], |x| x.clone().hypot(x));
    slopes(&[0.0], &[1.0], |x| x.logaddexp(Tensor::from_floats([f32::NEG_INFINITY], &DEVICE)));
    slopes(&[-INF], &[1.0], |x| x.clone().logaddexp(x));
    slopes(&[2.0], &[0.0], |x| x.clone().zeros_like().xlogy(x));
    slopes(&[0.0], &[0.0], |x| x.clone().xlogy(x.zeros_like()));
    slopes(&[1e30, -1e30], &[1e-30, 1e-30], |x| x.asinh());
    slopes(&[200.0, -200.0], &[0.0, 0.0], |x| x.sigmoid());
    slopes(&[0.0], &[0.5], |x| x.i1());
    slopes(&[1.0, 2.0], &[1.0, 1.0], |x| x.nan_to_num(0.0, None, None));
    slopes(&[1.0, 5.0], &[-1.0, 1.0], |x| x.copysign(Tensor::from_floats([-1.0, 1.0], &DEVICE)));
    slopes(&[7.5], &[1.0], |x| x.remainder(Tensor::from_floats([2.0], &DEVICE)));
    slopes(&[-7.5], &[0.0], |x| x.floor_divide(Tensor::from_floats([2.0], &DEVICE)));
    slopes(&[NAN, 1.0], &[0.0, 1.0], |x| x.fmax(Tensor::from_floats([0.5, 0.5], &DEVICE)));
}

/// `cat` promotes its operands to one dtype, in any order.
#[test]
fn cat_promotes_dtypes() {
    let joined = |tensors| AnyTensor::cat(tensors, 0).unwrap().into_data().unwrap();
    let mixed = joined(vec![any([1u8, 2]), any([-3i32]), any([0.5f32])]);
    assert_eq!((mixed.dtype(), &*mixed.to_vec::<f32>()), (DType::F32, &[1.0, 2.0, -3.0, 0.5][..]));
    assert_eq!(joined(vec![any([true]), any([7i64])]).dtype(), DType::I64);
}
