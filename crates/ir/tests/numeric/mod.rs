//! Runs a program and its expansion on the reference engine and compares the values.

use kiln_ir::{
    DType, DTypeSet, Engine, Expand, MINIMAL, OpKind, OpSet, Program, Result, TensorData, TensorType,
    block_on, philox,
};
use kiln_reference::{Limited, Reference};
use std::ops::Range;
use std::sync::Arc;

/// How to fill the inputs of a program.
#[derive(Clone, Debug)]
pub(crate) struct Fill {
    /// The range of integers.
    pub(crate) ints: Range<i64>,
    /// The inputs whose floats are positive.
    pub(crate) positive: Vec<usize>,
    /// Whether floats are drawn from few values, with NaN, infinities and signed zeros, for ties.
    pub(crate) special: bool,
}

impl Default for Fill {
    fn default() -> Fill {
        Fill { ints: -5..6, positive: Vec::new(), special: false }
    }
}

impl Fill {
    /// Data for an input of that type.
    pub(crate) fn data(&self, input: usize, ty: TensorType) -> TensorData {
        let float = |i: usize, word: u32| {
            let uniform = f64::from(word >> 8) / f64::from(1u32 << 24);
            let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, 2.0, -1.0];
            match (self.special, self.positive.contains(&input)) {
                (true, _) => special[(word >> 7) as usize % special.len()],
                (false, true) => uniform + 0.5,
                (false, false) if i % 7 == 3 => (uniform * 8.0).floor() - 4.0,
                (false, false) => uniform * 4.0 - 2.0,
            }
        };
        let span = (self.ints.end - self.ints.start) as u64;
        let number = |i: usize| {
            let word = philox::block(input as u64, i as u64)[0];
            if ty.dtype.is_float() {
                float(i, word)
            } else {
                (self.ints.start + (word as u64 % span) as i64) as f64
            }
        };
        let bits = |i: usize| philox::block(input as u64, i as u64)[0] & 1 == 1;
        let numbers = 0..ty.num_elements();
        if ty.dtype.is_bool() {
            return TensorData::new(numbers.map(bits).collect::<Vec<bool>>(), ty.shape).unwrap();
        }
        TensorData::new(numbers.map(number).collect::<Vec<f64>>(), ty.shape).unwrap().convert(ty.dtype)
    }
}

/// The reference engine, restricted to the minimal ops and to some dtypes.
pub(crate) fn minimal(without: &[DType]) -> Limited {
    let dtypes: Vec<DType> = DType::ALL.into_iter().filter(|dtype| !without.contains(dtype)).collect();
    let minimal = Limited::new(Arc::new(Reference::new()), MINIMAL).with_name("minimal");
    minimal.with_dtypes(DTypeSet::of(&dtypes))
}

/// The outputs of a program on an engine.
pub(crate) fn run(program: &Program, engine: &dyn Engine, inputs: &[TensorData]) -> Result<Vec<TensorData>> {
    let values = inputs.iter().map(|data| engine.write(data.clone())).collect();
    program.run(engine, values).into_iter().map(|value| block_on(engine.read(value))).collect()
}

/// Ops that move elements, whose expansions return the same bits.
const EXACT: OpSet = OpSet::of(&[
    OpKind::Pad,
    OpKind::Windows,
    OpKind::Sort,
    OpKind::TopK,
    OpKind::Take,
    OpKind::Gather,
    OpKind::SliceUpdate,
]);

/// Checks that the expansion of a program computes the same values.
pub(crate) fn check(program: &Program, fill: &Fill) -> std::result::Result<(), String> {
    let inputs: Vec<TensorData> =
        program.inputs.iter().enumerate().map(|(i, ty)| fill.data(i, *ty)).collect();
    let expected =
        run(program, &Expand::new(Reference::new()), &inputs).map_err(|error| format!("native: {error}"))?;
    let found =
        run(program, &Expand::new(minimal(&[])), &inputs).map_err(|error| format!("expanded: {error}"))?;
    let exact = program.instructions.iter().all(|instruction| EXACT.contains(instruction.op.kind()));
    for (output, (expected, found)) in expected.iter().zip(&found).enumerate() {
        same(expected, found, exact)
            .map_err(|problem| format!("output {output}: {problem}\ninputs: {inputs:?}"))?;
    }
    Ok(())
}

/// Checks that two tensors agree to rounding; integers exactly, and floats if `exact`.
pub(crate) fn same(
    expected: &TensorData,
    found: &TensorData,
    exact: bool,
) -> std::result::Result<(), String> {
    if expected.ty() != found.ty() {
        return Err(format!("{} instead of {}", found.ty(), expected.ty()));
    }
    let tolerance = match expected.dtype() {
        _ if exact => 0.0,
        DType::F64 => 1e-11,
        DType::F32 => 1e-5,
        DType::F16 => 2e-3,
        DType::BF16 => 1e-2,
        DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => 0.0,
    };
    let (a, b) = (expected.to_vec::<f64>(), found.to_vec::<f64>());
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        let equal = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * (1.0 + a.abs());
        let signs = !exact || *a != 0.0 || a.is_sign_positive() == b.is_sign_positive();
        if !equal || !signs {
            return Err(format!("element {i} is {b}, not {a}\nexpected: {expected:?}\nfound: {found:?}"));
        }
    }
    Ok(())
}
