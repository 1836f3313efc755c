//! Scalars out of range of a dtype: errors with integer tensors, mathematically correct comparisons.

use kiln_ir::{Binary, Comparison, DType, Op, OperandType, PadAxis, Result, Scalar, TensorType, infer};

fn text(op: &Op, operands: &[OperandType<'_>]) -> String {
    infer(op, operands).expect_err("the number is out of bounds").to_string()
}

/// Every op with a scalar operand and a tensor, as NumPy 2 does for Python integers.
#[test]
fn errors_of_scalars_out_of_range_name_scalar_and_dtype() {
    let (bytes, mask) = (TensorType::new([3], DType::U8), TensorType::new([3], DType::Bool));
    let number = |x: i64| OperandType::Scalar(Scalar::Int(x));
    let mut texts = Vec::new();
    let integers = Binary::ALL.iter().filter(|function| **function != Binary::Atan2);
    for op in integers.map(|function| Op::Binary(*function)).chain([Op::Compare(Comparison::Lt)]) {
        texts.push(text(&op, &[(&bytes).into(), number(300)]));
        texts.push(text(&op, &[number(300), (&bytes).into()]));
        assert!(infer(&op, &[(&bytes).into(), number(255)]).is_ok(), "{op:?}");
    }
    texts.push(text(&Op::Select, &[(&mask).into(), number(300), (&bytes).into()]));
    texts.push(text(&Op::Full(bytes), &[number(300)]));
    texts.push(text(&Op::Pad(vec![PadAxis::default()]), &[(&bytes).into(), number(300)]));
    for text in texts {
        assert!(text.contains("the number 300 is out of bounds for u8"), "{text}");
        assert!(text.contains("hint: u8 represents 0 to 255"), "{text}");
    }
}

#[test]
fn scalars_fit_the_dtypes_that_represent_them() {
    let fits =
        |scalar: Scalar| DType::ALL.into_iter().filter(|dtype| scalar.fits(*dtype)).collect::<Vec<_>>();
    let floats = [DType::F64, DType::F32, DType::F16, DType::BF16];
    let expected = |rest: &[DType]| [&floats[..], rest].concat();
    use DType::{I8, I16, I32, I64, U8, U16, U32, U64};
    assert_eq!(fits(Scalar::Int(-1)), expected(&[I64, I32, I16, I8]));
    assert_eq!(fits(Scalar::Int(1 << 40)), expected(&[I64, U64]));
    assert_eq!(fits(Scalar::UInt(u64::MAX)), expected(&[U64]));
    assert_eq!(fits(Scalar::Float(200.0)), expected(&[I64, I32, I16, U64, U32, U16, U8]));
    assert_eq!(fits(Scalar::Float(2f64.powi(63))), expected(&[U64]));
    for odd in [0.5, f64::NAN, f64::INFINITY, 1e300] {
        assert_eq!(fits(Scalar::Float(odd)), floats);
    }
    assert_eq!(fits(Scalar::Bool(true)), [DType::Bool]);
}

fn holds(comparison: Comparison, a: i128, b: i128) -> bool {
    match comparison {
        Comparison::Eq => a == b,
        Comparison::Ne => a != b,
        Comparison::Lt => a < b,
        Comparison::Le => a <= b,
    }
}

/// For every integer dtype, comparison, operand order, scalar and element.
#[test]
fn comparisons_with_scalars_out_of_range_are_mathematically_correct() {
    let integer = |scalar: Scalar| match scalar {
        Scalar::Int(x) => i128::from(x),
        Scalar::UInt(x) => i128::from(x),
        Scalar::Float(x) => x as i128,
        Scalar::Bool(_) => panic!("no integer"),
    };
    let numbers = [i64::MIN, -300, -1, 0, 44, 255, 300, 1 << 40, i64::MAX].map(Scalar::Int);
    let others = [Scalar::UInt(u64::MAX), Scalar::Float(1e30), Scalar::Float(f64::NEG_INFINITY)];
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
        let bits = dtype.size() as u32 * 8;
        let (least, greatest) = match dtype.is_signed_int() {
            true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            false => (0, (1i128 << bits) - 1),
        };
        for number in numbers.into_iter().chain(others) {
            for comparison in Comparison::ALL.iter().copied() {
                for number_first in [false, true] {
                    let (bounded, inside) = comparison.bounded(number, dtype, number_first);
                    assert!(inside.fits(dtype), "{number} of {dtype} became {inside}");
                    for element in [least, least + 1, 0, 44, greatest - 1, greatest] {
                        let answer = |comparison, number| match number_first {
                            true => holds(comparison, integer(number), element),
                            false => holds(comparison, element, integer(number)),
                        };
                        assert_eq!(
                            answer(bounded, inside),
                            answer(comparison, number),
                            "{comparison:?} of {element} {dtype} and {number}, number first: {number_first}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn float_dtypes_accept_any_scalar() -> Result<()> {
    let half = TensorType::new([2], DType::F16);
    infer(&Op::Binary(Binary::Add), &[(&half).into(), Scalar::Float(1e300).into()])?;
    infer(&Op::Full(half), &[Scalar::UInt(u64::MAX).into()]).map(|_| ())
}
