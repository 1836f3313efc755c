//! Cases of elementwise ops.

use super::{FLOATS, LARGE, SHAPES};
use crate::case::{Case, Fill, Grad, Input, number, tensor};
use kiln_ir::{Binary, Comparison, DType, Effort, Gradient, Linearity, Op, Scalar, Unary};

/// A shape that likely pairs all edge values with each other.
const CORNERS: &[usize] = &[13, 79];

pub(super) fn unary() -> Vec<Case> {
    let mut cases = Vec::new();
    for &function in Unary::ALL {
        for dtype in DType::ALL {
            cases.extend(unary_of(function, dtype));
        }
    }
    cases.retain(Case::is_valid);
    cases
}

fn unary_of(function: Unary, dtype: DType) -> Vec<Case> {
    let (fill, wide) = unary_domain(function);
    let case = |shape: &[usize], fill: Fill| {
        unary_tolerance(Case::new(Op::Unary(function), vec![tensor(shape, dtype, fill)]), function)
    };
    let grad = unary_grad(function);
    let mut cases: Vec<Case> = SHAPES.into_iter().map(|shape| case(shape, fill).grad(grad)).collect();
    cases.push(case(CORNERS, Fill::Special).label("corners"));
    cases.push(case(&[31, 33], wide).label("wide"));
    cases.extend(LARGE.into_iter().map(|shape| case(shape, fill).large()));
    cases
}

/// Functions with their domains for differentiation and for evaluation.
const DOMAINS: [(&[Unary], Fill, Fill); 9] = [
    (&[Unary::Neg, Unary::Not], Fill::Normal, Fill::Bits),
    (&[Unary::Sqrt, Unary::Rsqrt, Unary::Ln], Fill::Positive, Fill::Uniform(0.0, 1e6)),
    (&[Unary::Log1p], Fill::Positive, Fill::Uniform(-1.0, 3.0)),
    (&[Unary::Recip, Unary::Abs, Unary::Sign], Fill::Away, Fill::Uniform(-1e4, 1e4)),
    (&[Unary::Tan], Fill::Uniform(-1.0, 1.0), Fill::Uniform(-50.0, 50.0)),
    (
        &[Unary::Floor, Unary::Ceil, Unary::Round, Unary::Trunc],
        Fill::Uniform(0.1, 0.4),
        Fill::Uniform(-1e4, 1e4),
    ),
    (&[Unary::Exp, Unary::Expm1], Fill::Normal, Fill::Uniform(-120.0, 120.0)),
    (&[Unary::Sin, Unary::Cos], Fill::Normal, Fill::Uniform(-1e4, 1e4)),
    (&[Unary::Erfcx], Fill::Normal, Fill::Uniform(-8.0, 40.0)),
];

fn unary_domain(function: Unary) -> (Fill, Fill) {
    let listed = DOMAINS.iter().find(|(functions, ..)| functions.contains(&function));
    listed.map_or((Fill::Normal, Fill::Uniform(-12.0, 12.0)), |(_, smooth, wide)| (*smooth, *wide))
}

fn unary_grad(function: Unary) -> Grad {
    let info = function.info();
    if info.gradient == Gradient::Constant {
        Grad::None("has no float operands")
    } else if info.linearity == Linearity::Constant || function == Unary::Abs {
        Grad::Piecewise
    } else {
        Grad::Smooth
    }
}

fn unary_tolerance(case: Case, function: Unary) -> Case {
    if function == Unary::Rsqrt {
        case.near(2.0, 0.0)
    } else if function == Unary::Tan {
        // Near a pole, the result is sensitive to the last bit of the operand.
        case.near(16.0, 2.0)
    } else if function.info().effort < Effort::Elementary {
        case
    } else {
        case.near(4.0, 1.0)
    }
}

pub(super) fn binary() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DType::ALL {
        for &function in Binary::ALL {
            cases.extend(binary_of(function, dtype));
        }
        for &comparison in Comparison::ALL {
            cases.extend(compare_of(comparison, dtype));
        }
        cases.extend(select_of(dtype));
        for to in DType::ALL {
            cases.extend(cast(dtype, to));
            cases.extend(bitcast(dtype, to));
        }
    }
    cases.retain(Case::is_valid);
    cases
}

fn binary_of(function: Binary, dtype: DType) -> Vec<Case> {
    let (left, right) = binary_domain(function, dtype);
    let case = |inputs: Vec<Input>| binary_tolerance(Case::new(Op::Binary(function), inputs), function);
    let two =
        |shape: &[usize], left, right| case(vec![tensor(shape, dtype, left), tensor(shape, dtype, right)]);
    let grad = binary_grad(function);
    let mut cases: Vec<Case> = SHAPES.into_iter().map(|shape| two(shape, left, right).grad(grad)).collect();
    for x in binary_scalars(function, dtype) {
        let base_grad = if function == Binary::Pow && x.to_f64() <= 0.0 { NO_POWER } else { grad };
        let (label, x) = (format!("{x}"), number(x));
        cases.push(case(vec![tensor([3, 4], dtype, left), x.clone()]).grad(grad));
        cases.push(case(vec![x.clone(), tensor([3, 4], dtype, right)]).grad(base_grad));
        cases.push(case(vec![tensor([0], dtype, left), x.clone()]));
        cases.push(case(vec![x.clone(), tensor([], dtype, right)]).grad(base_grad));
        cases.push(case(vec![tensor(LARGE[0], dtype, left), x.clone()]).large());
        cases.push(case(vec![tensor(CORNERS, dtype, Fill::Special), x.clone()]).label("corners"));
        cases.push(case(vec![x, tensor(CORNERS, dtype, Fill::Special)]).label(format!("corners{label}")));
    }
    cases.push(two(CORNERS, Fill::Special, Fill::Special).label("corners"));
    cases.push(case(vec![tensor([4, 5], dtype, right), Input::SameAs(0)]).grad(same_grad(function)));
    cases.extend(LARGE.into_iter().map(|shape| two(shape, left, right).large()));
    cases
}

const NO_POWER: Grad = Grad::None("a power of 0 or a negative number is not smooth in its exponent");

/// Differentiability of a function of an operand with itself: none at ties and at jumps of the remainder.
fn same_grad(function: Binary) -> Grad {
    if function == Binary::Rem {
        Grad::None("the remainder jumps where both are equal")
    } else if function == Binary::Pow {
        NO_POWER
    } else {
        binary_grad(function)
    }
}

fn binary_domain(function: Binary, dtype: DType) -> (Fill, Fill) {
    match function {
        Binary::Pow if dtype.is_float() => (Fill::Positive, Fill::Normal),
        Binary::Pow => (Fill::Uniform(-5.0, 5.0), Fill::Uniform(-2.0, 9.0)),
        Binary::Div | Binary::Atan2 | Binary::Rem => (Fill::Away, Fill::Away),
        Binary::Min | Binary::Max => (Fill::Distinct, Fill::Distinct),
        Binary::Shl | Binary::Shr => (Fill::Bits, Fill::Uniform(-3.0, 70.0)),
        Binary::And | Binary::Or | Binary::Xor => (Fill::Bits, Fill::Bits),
        Binary::Add | Binary::Sub | Binary::Mul => (Fill::Normal, Fill::Normal),
    }
}

fn binary_scalars(function: Binary, dtype: DType) -> Vec<Scalar> {
    if dtype.is_bool() {
        return vec![Scalar::Bool(true), Scalar::Bool(false)];
    }
    let mut scalars = vec![Scalar::Int(2)];
    if dtype.is_float() {
        scalars.push(Scalar::Float(0.75));
    }
    if function == Binary::Pow {
        scalars.extend([Scalar::Int(0), Scalar::Int(1), Scalar::Int(3)]);
    }
    if function == Binary::Pow && dtype.is_float() {
        scalars.extend([0.5, -1.0, -0.5].map(Scalar::Float));
    }
    scalars
}

fn binary_grad(function: Binary) -> Grad {
    match function {
        Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Pow | Binary::Atan2 => Grad::Smooth,
        Binary::Rem | Binary::Min | Binary::Max => Grad::Piecewise,
        Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => {
            Grad::None("has no float operands")
        }
    }
}

fn binary_tolerance(case: Case, function: Binary) -> Case {
    if function == Binary::Pow {
        case.near(16.0, 0.0)
    } else if function == Binary::Atan2 {
        case.near(4.0, 1.0)
    } else {
        case
    }
}

const CONSTANT: Grad = Grad::None("the result is constant or not a float");

fn compare_of(comparison: Comparison, dtype: DType) -> Vec<Case> {
    let op = || Op::Compare(comparison);
    let ties = Fill::Uniform(0.0, 3.0);
    let case = |inputs: Vec<Input>| Case::new(op(), inputs).grad(CONSTANT);
    let two = |shape: &[usize], fill| case(vec![tensor(shape, dtype, fill), tensor(shape, dtype, fill)]);
    let mut cases: Vec<Case> = SHAPES.into_iter().map(|shape| two(shape, ties)).collect();
    let x = number(if dtype.is_bool() { Scalar::Bool(true) } else { Scalar::Int(1) });
    cases.push(case(vec![tensor(CORNERS, dtype, Fill::Special), x.clone()]));
    cases.push(case(vec![x, tensor(CORNERS, dtype, Fill::Special)]));
    cases.push(two(CORNERS, Fill::Special).label("corners"));
    cases.push(case(vec![tensor(CORNERS, dtype, Fill::Special), Input::SameAs(0)]));
    cases.extend(LARGE.into_iter().map(|shape| two(shape, ties).large()));
    cases
}

fn select_of(dtype: DType) -> Vec<Case> {
    let x = number(if dtype.is_bool() { Scalar::Bool(true) } else { Scalar::Int(1) });
    let mut cases = Vec::new();
    for shape in SHAPES.into_iter().chain(LARGE) {
        let condition = || tensor(shape, DType::Bool, Fill::Normal);
        let side = || tensor(shape, dtype, Fill::Normal);
        let large = |case: Case| if shape.iter().product::<usize>() > 1000 { case.large() } else { case };
        for (a, b) in [(side(), side()), (x.clone(), side()), (side(), x.clone())] {
            cases.push(large(Case::new(Op::Select, vec![condition(), a, b]).grad(Grad::Smooth)));
        }
    }
    let special = || tensor(CORNERS, dtype, Fill::Special);
    let condition = tensor(CORNERS, DType::Bool, Fill::Normal);
    cases.push(Case::new(Op::Select, vec![condition, special(), special()]));
    cases
}

fn cast(from: DType, to: DType) -> Vec<Case> {
    let case = |shape: &[usize], fill| {
        Case::new(Op::Cast(to), vec![tensor(shape, from, fill)]).label(format!("to_{to}"))
    };
    let grad = match (from.is_float(), to.is_float()) {
        (true, true) if from == DType::F64 && to == DType::F64 => Grad::Smooth,
        (true, true) => Grad::None("a narrower dtype is too coarse for finite differences"),
        (true, false) | (false, true) | (false, false) => CONSTANT,
    };
    let mut cases: Vec<Case> =
        SHAPES.into_iter().map(|shape| case(shape, Fill::Uniform(-300.0, 300.0)).grad(grad)).collect();
    cases.push(case(CORNERS, Fill::Special).label("corners"));
    cases.push(case(&[40, 41], Fill::Among(TIES)).label("ties"));
    cases.push(case(LARGE[1], Fill::Normal).large());
    cases
}

/// Ties of rounding: halves, and midpoints of adjacent 16-bit floats.
const TIES: &[f64] = &[
    0.5,
    1.5,
    2.5,
    -0.5,
    -1.5,
    0.49999,
    2049.0,
    2051.0,
    -2049.0,
    257.0,
    259.0,
    1.00048828125,
    1.0014648,
    65519.0,
    65520.0,
    1e5,
    -1e5,
    3e38,
    3.4e38,
    1e39,
    1e-7,
    5.960464477539063e-8,
    2.98e-8,
    1e-40,
    255.4,
    255.6,
    127.5,
    -128.5,
    1e10,
    -1e10,
    1e19,
    1e20,
];

fn bitcast(from: DType, to: DType) -> Vec<Case> {
    let case = |shape: &[usize]| {
        Case::new(Op::Bitcast(to), vec![tensor(shape, from, Fill::Bits)])
            .label(format!("to_{to}"))
            .bits()
            .grad(Grad::None("bits do not change smoothly"))
    };
    let mut cases: Vec<Case> = SHAPES.into_iter().map(case).collect();
    if FLOATS.contains(&from) || from == DType::U8 {
        cases.push(case(LARGE[1]).large());
    }
    cases
}
