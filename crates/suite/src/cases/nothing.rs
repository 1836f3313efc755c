//! Cases of ops without tensor operands.

use super::{LARGE, SHAPES};
use crate::case::{Case, Fill, Grad, Input, number, tensor};
use kiln_ir::{DType, Op, RandomKind, Scalar, TensorType};

const NO_OPERAND: Grad = Grad::None("there is no float operand");

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DType::ALL {
        for shape in SHAPES.into_iter().chain(LARGE) {
            let ty = TensorType::new(shape, dtype);
            cases.extend(fill_values(dtype).into_iter().map(|x| full(ty, x)));
            cases.extend((0..shape.len()).map(|axis| iota(ty, axis)));
            cases.extend(RandomKind::ALL.iter().flat_map(|&kind| random(ty, kind)));
        }
    }
    cases.retain(Case::is_valid);
    cases
}

fn fill_values(dtype: DType) -> Vec<Scalar> {
    if dtype.is_bool() {
        return vec![Scalar::Bool(true), Scalar::Bool(false)];
    }
    let mut values = vec![Scalar::Int(3), Scalar::Float(2.0), Scalar::Int(300), Scalar::UInt(u64::MAX)];
    if !dtype.is_unsigned_int() {
        values.push(Scalar::Int(-7));
    }
    if dtype.is_float() {
        values.extend([0.1, f64::NAN, f64::INFINITY, -0.0, 1e300, 1e-320].map(Scalar::Float));
    }
    values
}

fn full(ty: TensorType, x: Scalar) -> Case {
    Case::new(Op::Full(ty), vec![number(x)]).label(ty.to_string().replace(' ', "")).grad(NO_OPERAND)
}

fn iota(ty: TensorType, axis: usize) -> Case {
    Case::new(Op::Iota { ty, axis }, vec![]).label(format!("axis{axis}")).grad(NO_OPERAND)
}

/// Random ops with the key as a scalar and as a tensor. Normals use `sin` and `ln`, whose rounding differs by engine: an angle
/// near 2π has an error of up to 4 epsilons, and is multiplied by a radius of up to 7.
fn random(ty: TensorType, distribution: RandomKind) -> Vec<Case> {
    let keys: [Input; 3] =
        [number(0x1234_5678_9ABC_DEF0u64), number(7i64), tensor([], DType::U64, Fill::Bits)];
    let case = |key: Input| {
        let case = Case::new(Op::Random { ty, distribution }, vec![key]);
        let case = case.label(ty.to_string().replace(' ', "")).grad(NO_OPERAND);
        match distribution {
            RandomKind::Normal => case.near(4.0, 32.0),
            RandomKind::Bits | RandomKind::Uniform => case,
        }
    };
    keys.map(case).into()
}
