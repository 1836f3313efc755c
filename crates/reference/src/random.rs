//! Random ops; [`philox`](kiln_ir::philox) documents the layout of the random words.

use crate::call::Call;
use crate::numbers::{Numbers, integers};
use kiln_ir::{DType, Operand, RandomKind, Result, TensorData, philox};

pub(crate) fn random(call: &Call<'_>, kind: RandomKind) -> Result<TensorData> {
    let ty = call.ty();
    let key = match &call.inputs[0] {
        Operand::Scalar(scalar) => scalar.to_u64(),
        Operand::Value(_) => integers(call.data(0)?)[0] as u64,
    };
    let places = 0..ty.num_elements() as u64;
    let numbers = match kind {
        RandomKind::Bits => Numbers::Integer(places.map(|i| i128::from(bits(key, i, ty.dtype))).collect()),
        RandomKind::Uniform => Numbers::Real(places.map(|i| uniform(key, i, ty.dtype)).collect()),
        RandomKind::Normal => Numbers::Real(places.map(|i| normal(key, i)).collect()),
    };
    numbers.into_data(ty)
}

/// The random word of element `i`: 64 bits for 64-bit dtypes, otherwise 32.
fn bits(key: u64, i: u64, dtype: DType) -> u64 {
    if dtype.size() < 8 {
        return u64::from(philox::block(key, i / 4)[(i % 4) as usize]);
    }
    let block = philox::block(key, i / 2);
    let low = 2 * (i % 2) as usize;
    u64::from(block[low]) | u64::from(block[low + 1]) << 32
}

/// A uniform number in [0, 1): the top bits of the word, as many as the dtype represents exactly.
fn uniform(key: u64, i: u64, dtype: DType) -> f64 {
    let (width, kept) = match dtype {
        DType::F64 => (64, 53),
        DType::F32 => (32, 24),
        DType::F16 => (32, 11),
        DType::BF16 => (32, 8),
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => unreachable!("inference refuses uniform numbers of this dtype"),
    };
    let fraction = bits(key, i, dtype) >> (width - kept);
    fraction as f64 / (1u64 << kept) as f64
}

/// Element `i` of standard normals, by the Box-Muller transform of its pair of words.
fn normal(key: u64, i: u64) -> f64 {
    let pair = i / 2;
    let block = philox::block(key, pair / 2);
    let first = 2 * (pair % 2) as usize;
    let (a, b) = (f64::from(block[first]), f64::from(block[first + 1]));
    let scale = 1.0 / (1u64 << 32) as f64;
    let (u, v) = ((a + 1.0) * scale, b * scale);
    let radius = libm::sqrt(-2.0 * libm::log(u));
    let angle = 2.0 * core::f64::consts::PI * v;
    radius * if i.is_multiple_of(2) { libm::cos(angle) } else { libm::sin(angle) }
}
