use super::{assert_close, n, run, shaped, t, vec_of};
use kiln_ir::{Binary, Comparison, DType, Op, Scalar, Unary};
use std::slice::from_ref;

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn signs() {
    let sign: Vec<f32> = vec_of(&Op::Unary(Unary::Sign), &[t([-3.0f32, -0.0, 0.0, 2.0, INF])]);
    assert_eq!(bits(&sign), bits(&[-1.0, -0.0, 0.0, 1.0, 1.0]));
    assert!(vec_of::<f32>(&Op::Unary(Unary::Sign), &[t([NAN])])[0].is_nan());
    assert_eq!(vec_of::<u8>(&Op::Unary(Unary::Sign), &[t([0u8, 9])]), [0, 1]);
    assert_eq!(vec_of::<i8>(&Op::Unary(Unary::Sign), &[t([-5i8, 0, 9])]), [-1, 0, 1]);
}

#[test]
fn integers_wrap() {
    assert_eq!(vec_of::<i8>(&Op::Unary(Unary::Neg), &[t([i8::MIN, 1])]), [i8::MIN, -1]);
    assert_eq!(vec_of::<i64>(&Op::Unary(Unary::Abs), &[t([i64::MIN, -1])]), [i64::MIN, 1]);
    assert_eq!(vec_of::<u8>(&Op::Binary(Binary::Add), &[t([250u8, 1]), t([10u8, 1])]), [4, 2]);
    assert_eq!(
        vec_of::<u64>(&Op::Binary(Binary::Mul), &[t([u64::MAX]), t([u64::MAX])]),
        [u64::MAX.wrapping_mul(u64::MAX)]
    );
    assert_eq!(vec_of::<u32>(&Op::Binary(Binary::Sub), &[t([0u32]), n(1)]), [u32::MAX]);
    assert_eq!(vec_of::<i32>(&Op::Binary(Binary::Div), &[t([i32::MIN]), n(-1)]), [i32::MIN]);
}

#[test]
fn bitwise_not() {
    assert_eq!(vec_of::<bool>(&Op::Unary(Unary::Not), &[t([true, false])]), [false, true]);
    assert_eq!(vec_of::<u8>(&Op::Unary(Unary::Not), &[t([0b1010_0000u8])]), [0b0101_1111]);
    assert_eq!(vec_of::<i16>(&Op::Unary(Unary::Not), &[t([0i16, -1])]), [-1, 0]);
}

#[test]
fn functions_of_floats() {
    let at = |function, x: f64| vec_of::<f64>(&Op::Unary(function), &[t([x])])[0];
    assert_eq!(at(Unary::Recip, -0.0), f64::NEG_INFINITY);
    assert_eq!(at(Unary::Rsqrt, 4.0), 0.5);
    assert_eq!(at(Unary::Rsqrt, 0.0), f64::INFINITY);
    assert!(at(Unary::Sqrt, -1.0).is_nan());
    assert_eq!(at(Unary::Ln, 0.0), f64::NEG_INFINITY);
    assert_eq!(at(Unary::Expm1, 1e-20), 1e-20);
    assert_eq!(at(Unary::Log1p, 1e-20), 1e-20);
    assert!((at(Unary::Erf, 0.5) - 0.520_499_877_813_046_5).abs() < 1e-15);
    assert_eq!(at(Unary::Tanh, 1000.0), 1.0);
    assert_eq!(at(Unary::Exp, -1000.0), 0.0);
    let rounded = vec_of::<f64>(&Op::Unary(Unary::Round), &[t([0.5f64, 1.5, 2.5, -0.5, -1.5])]);
    assert_eq!(rounded, [0.0, 2.0, 2.0, 0.0, -2.0]);
    assert!(rounded[3].is_sign_negative());
    assert_eq!(vec_of::<f64>(&Op::Unary(Unary::Floor), &[t([-1.5f64, 1.5])]), [-2.0, 1.0]);
    assert_eq!(vec_of::<f64>(&Op::Unary(Unary::Ceil), &[t([-1.5f64, 1.5])]), [-1.0, 2.0]);
    assert_eq!(vec_of::<f64>(&Op::Unary(Unary::Trunc), &[t([-1.5f64, 1.5])]), [-1.0, 1.0]);
}

#[test]
fn division_and_remainder() {
    let (a, b) = (t([7i32, -7, 7, -7, 5]), t([2i32, 2, -2, -2, 0]));
    assert_eq!(vec_of::<i32>(&Op::Binary(Binary::Div), &[a.clone(), b.clone()]), [3, -3, -3, 3, 0]);
    assert_eq!(vec_of::<i32>(&Op::Binary(Binary::Rem), &[a, b]), [1, -1, 1, -1, 0]);
    let rem = vec_of::<f32>(&Op::Binary(Binary::Rem), &[t([5.5f32, -5.5, 1.0]), t([2.0f32, 2.0, 0.0])]);
    assert_eq!(rem[..2], [1.5, -1.5]);
    assert!(rem[2].is_nan());
    assert_eq!(vec_of::<f32>(&Op::Binary(Binary::Div), &[n(1.0), t([0.0f32, -0.0])]), [INF, -INF]);
}

#[test]
fn pow() {
    let (a, b) = (t([2i32, -1, -1, 1, 2, 0, 0, 3]), t([31i32, -1, -2, -9, -1, 0, -1, 40]));
    let expected = [i32::MIN, -1, 1, 1, 0, 1, 0, 3i32.wrapping_pow(40)];
    assert_eq!(vec_of::<i32>(&Op::Binary(Binary::Pow), &[a, b]), expected);
    let power = run(&Op::Binary(Binary::Pow), &[t([-8.0f32, 2.0, 0.0]), t([2.0f32, 0.5, 0.0])]);
    assert_close(&power, &[64.0, std::f64::consts::SQRT_2, 1.0]);
    assert!(vec_of::<f32>(&Op::Binary(Binary::Pow), &[t([-8.0f32]), n(0.5)])[0].is_nan());
}

#[test]
fn min_and_max_propagate_nan() {
    for function in [Binary::Min, Binary::Max] {
        let y = vec_of::<f32>(&Op::Binary(function), &[t([NAN, 1.0]), t([1.0f32, NAN])]);
        assert!(y.iter().all(|y| y.is_nan()));
    }
    assert_eq!(vec_of::<f32>(&Op::Binary(Binary::Max), &[t([-INF, 1.0]), n(0.5)]), [0.5, 1.0]);
}

#[test]
fn shifts() {
    let by = t([1i8, 7, 8, -1]);
    assert_eq!(vec_of::<i8>(&Op::Binary(Binary::Shl), &[t([3i8; 4]), by.clone()]), [6, -128, 0, 0]);
    assert_eq!(vec_of::<i8>(&Op::Binary(Binary::Shr), &[t([-4i8; 4]), by.clone()]), [-2, -1, -1, -1]);
    assert_eq!(vec_of::<i8>(&Op::Binary(Binary::Shr), &[t([4i8; 4]), by]), [2, 0, 0, 0]);
    assert_eq!(vec_of::<u64>(&Op::Binary(Binary::Shr), &[t([u64::MAX]), n(63)]), [1]);
}

#[test]
fn atan2() {
    let y = run(&Op::Binary(Binary::Atan2), &[t([1.0f64, 0.0, -1.0]), t([0.0f64, -1.0, 0.0])]);
    assert_close(&y, &[std::f64::consts::FRAC_PI_2, std::f64::consts::PI, -std::f64::consts::FRAC_PI_2]);
}

#[test]
fn comparisons() {
    let (a, b) = (t([NAN, 1.0, -0.0, INF]), t([NAN, 2.0, 0.0, INF]));
    let of = |c| vec_of::<bool>(&Op::Compare(c), &[a.clone(), b.clone()]);
    assert_eq!(of(Comparison::Eq), [false, false, true, true]);
    assert_eq!(of(Comparison::Ne), [true, true, false, false]);
    assert_eq!(of(Comparison::Lt), [false, true, false, false]);
    assert_eq!(of(Comparison::Le), [false, true, true, true]);
    assert_eq!(vec_of::<bool>(&Op::Compare(Comparison::Lt), &[t([false, true]), n(true)]), [true, false]);
    assert_eq!(vec_of::<bool>(&Op::Compare(Comparison::Lt), &[n(3), t([2u8, 4])]), [false, true]);
    assert_eq!(vec_of::<bool>(&Op::Compare(Comparison::Lt), &[t([1u64]), t([u64::MAX])]), [true]);
}

#[test]
fn select_does_not_propagate_nan_of_the_other_branch() {
    let condition = t([true, false]);
    let y = vec_of::<f32>(&Op::Select, &[condition.clone(), t([1.0f32, NAN]), n(5.0)]);
    assert_eq!(y, [1.0, 5.0]);
    assert_eq!(vec_of::<bool>(&Op::Select, &[condition, n(false), t([true, true])]), [false, true]);
}

#[test]
fn casts() {
    let x = t([NAN, INF, -INF, 2.9, -2.9, 300.0, -0.0]);
    assert_eq!(vec_of::<u8>(&Op::Cast(DType::U8), from_ref(&x)), [0, 255, 0, 2, 0, 255, 0]);
    assert_eq!(vec_of::<i8>(&Op::Cast(DType::I8), from_ref(&x)), [0, 127, -128, 2, -2, 127, 0]);
    let truths = [true, true, true, true, true, true, false];
    assert_eq!(vec_of::<bool>(&Op::Cast(DType::Bool), &[x]), truths);
    assert_eq!(vec_of::<u8>(&Op::Cast(DType::U8), &[t([-1i32, 256, 257])]), [255, 0, 1]);
    assert_eq!(vec_of::<i64>(&Op::Cast(DType::I64), &[t([u64::MAX])]), [-1]);
    assert_eq!(vec_of::<f32>(&Op::Cast(DType::F32), &[t([true, false])]), [1.0, 0.0]);
    // Just above the midpoint of 2^60 and the next f32: an intermediate f64 would round down.
    let above_middle = (1i64 << 60) + (1 << 36) + 1;
    let expected = ((1i64 << 60) + (1 << 37)) as f32;
    assert_eq!(vec_of::<f32>(&Op::Cast(DType::F32), &[t([above_middle])]), [expected]);
}

#[test]
fn sixteen_bits_round_once() {
    // Just above the midpoint of 1 and the next bf16 or f16: an intermediate f32 would round down to 1.
    let bf16 = run(&Op::Cast(DType::BF16), &[t([1.0 + 2f64.powi(-8) + 2f64.powi(-40)])]);
    assert_eq!(bf16.to_vec::<f64>(), [1.0 + 2f64.powi(-7)]);
    let f16 = run(&Op::Cast(DType::F16), &[t([1.0 + 2f64.powi(-11) + 2f64.powi(-40), 1e9, -1e-30])]);
    assert_eq!(f16.to_vec::<f64>(), [1.0 + 2f64.powi(-10), f64::INFINITY, 0.0]);
    let bf16 = run(&Op::Cast(DType::BF16), &[t([(1i64 << 60) + (1 << 52) + 1, -3])]);
    assert_eq!(bf16.to_vec::<f64>(), [2f64.powi(60) + 2f64.powi(53), -3.0]);
}

#[test]
fn bit_casts() {
    assert_eq!(vec_of::<u32>(&Op::Bitcast(DType::U32), &[t([1.0f32, -0.0])]), [0x3f80_0000, 0x8000_0000]);
    // A signaling NaN round-trips.
    let there = run(&Op::Bitcast(DType::F32), &[t([0x7f80_0001u32])]);
    assert_eq!(vec_of::<u32>(&Op::Bitcast(DType::U32), &[t(there)]), [0x7f80_0001]);
}

#[test]
fn empty_and_scalar_tensors() {
    assert_eq!(run(&Op::Unary(Unary::Exp), &[shaped::<f32>(&[], &[0, 3])]).shape()[..], [0, 3]);
    assert_eq!(vec_of::<f32>(&Op::Binary(Binary::Add), &[shaped(&[1.0f32], &[]), n(Scalar::Int(2))]), [3.0]);
}
