//! Comparison of results on engines that flush subnormal numbers to zero.
//!
//! Vulkan lets a device flush subnormal `f32` operands and results of arithmetic, and WGSL has no control for it. On such
//! an engine, results may differ by the least normal number. A result may also agree with that of zeros in place of the
//! subnormal operands. The case then counts as skipped.

use super::{HostOperand, Outcome, execute, expected, read};
use crate::case::Tolerance;
use crate::compare::{difference, difference_of_any};
use kiln_ir::{Binary, DType, Engine, Op, Operand, TensorData, Value};
use std::cell::OnceCell;

/// Whether arithmetic of an engine flushes subnormal `f32` numbers to zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subnormals {
    /// It computes with them, as IEEE 754 says.
    Kept,
    /// It flushes them to zero.
    Flushed,
}

impl Subnormals {
    /// Probes an engine with the product of a subnormal number and 2. An engine that fails counts as one that keeps them.
    pub fn of(engine: &dyn Engine) -> Subnormals {
        // 2^-130 and 2.
        let number = |bits: u32| -> Operand {
            let data = TensorData::new(vec![f32::from_bits(bits)], [1]).expect("one number of one element");
            Operand::Value(engine.write(data))
        };
        let operands = [number(0x0008_0000), number(0x4000_0000)].into_iter().collect();
        let product: Option<Value> = execute(engine, &Op::Binary(Binary::Mul), operands).into_iter().next();
        let product = product.and_then(|product| read(engine, product).ok());
        match product.is_some_and(|product| product.to_vec::<f32>() == [0.0]) {
            true => Subnormals::Flushed,
            false => Subnormals::Kept,
        }
    }
}

/// Returns whether devices may flush subnormal numbers of this dtype. Those of `f16` are normal in `f32`, and devices
/// keep those of `f64`.
pub fn may_flush(dtype: DType) -> bool {
    dtype == DType::F32 || dtype == DType::BF16
}

/// Compares the results of an op with those of the reference.
pub(super) struct Comparison<'a> {
    op: &'a Op,
    operands: &'a [HostOperand],
    subnormals: Subnormals,
    /// The results of operands with zeros for subnormal numbers, if there are such numbers.
    of_zeros: OnceCell<Option<Vec<TensorData>>>,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(op: &'a Op, operands: &'a [HostOperand], subnormals: Subnormals) -> Comparison<'a> {
        Comparison { op, operands, subnormals, of_zeros: OnceCell::new() }
    }

    /// Reads a result and notes the comparison.
    pub(super) fn note(
        &self,
        outcome: &mut Outcome,
        engine: &dyn Engine,
        result: (usize, Value),
        expected: &TensorData,
        tolerance: Tolerance,
    ) {
        let (number, value) = result;
        let problem = match read(engine, value) {
            Ok(actual) => self.problem(outcome, number, expected, &actual, tolerance),
            Err(error) => Some(format!("failed: {error}")),
        };
        outcome.note(&format!("result {number}"), problem);
    }

    fn problem(
        &self,
        outcome: &mut Outcome,
        number: usize,
        expected: &TensorData,
        actual: &TensorData,
        tolerance: Tolerance,
    ) -> Option<String> {
        if self.subnormals == Subnormals::Kept {
            return difference(expected, actual, tolerance);
        }
        let allowed = if may_flush(actual.dtype()) { f64::from(f32::MIN_POSITIVE) } else { 0.0 };
        let problem = difference_of_any(&[expected], actual, tolerance, allowed)?;
        let of_zeros = self.of_zeros.get_or_init(|| results_of_zeros(self.op, self.operands));
        let Some(of_zeros) = of_zeros.as_ref().and_then(|results| results.get(number)) else {
            return Some(problem);
        };
        let problem = difference_of_any(&[expected, of_zeros], actual, tolerance, allowed);
        outcome.flushes_operands |= problem.is_none();
        problem
    }
}

/// The reference's results for operands with zeros in the places of subnormal numbers; `None` without such numbers.
fn results_of_zeros(op: &Op, operands: &[HostOperand]) -> Option<Vec<TensorData>> {
    let has_subnormals = |operand: &HostOperand| match operand {
        HostOperand::Tensor(data) => has_subnormals(data),
        HostOperand::Scalar(_) | HostOperand::SameAs(_) => false,
    };
    let zeroed = |operand: &HostOperand| match operand {
        HostOperand::Tensor(data) if has_subnormals(operand) => HostOperand::Tensor(with_zeros(data)),
        HostOperand::Tensor(_) | HostOperand::Scalar(_) | HostOperand::SameAs(_) => operand.clone(),
    };
    if !operands.iter().any(has_subnormals) {
        return None;
    }
    Some(expected(op, &operands.iter().map(zeroed).collect::<Vec<_>>()))
}

fn has_subnormals(data: &TensorData) -> bool {
    may_flush(data.dtype()) && data.to_vec::<f32>().into_iter().any(f32::is_subnormal)
}

/// The data with zeros of the same sign for subnormal numbers.
fn with_zeros(data: &TensorData) -> TensorData {
    let zeroed = |x: f32| if x.is_subnormal() { 0.0_f32.copysign(x) } else { x };
    let numbers: Vec<f32> = data.to_vec::<f32>().into_iter().map(zeroed).collect();
    TensorData::new(numbers, *data.shape()).expect("as many numbers as elements").convert(data.dtype())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::reference;
    use kiln_ir::Unary;

    const SUBNORMAL: f32 = f32::from_bits(0x0008_0000);

    fn data(numbers: &[f32]) -> TensorData {
        TensorData::new(numbers.to_vec(), [numbers.len()]).unwrap()
    }

    fn noted(operand: f32, result: f32, subnormals: Subnormals) -> Outcome {
        let (engine, op) = (reference(), Op::Unary(Unary::Ln));
        let operands = [HostOperand::Tensor(data(&[operand]))];
        let expected = expected(&op, &operands).remove(0);
        let mut outcome = Outcome::default();
        let tolerance = Tolerance::Near { relative: 4.0, absolute: 1.0 };
        let value = engine.write(data(&[result]));
        Comparison::new(&op, &operands, subnormals).note(
            &mut outcome,
            &engine,
            (0, value),
            &expected,
            tolerance,
        );
        outcome
    }

    #[test]
    fn the_reference_keeps_subnormals() {
        assert_eq!(Subnormals::of(&reference()), Subnormals::Kept);
    }

    #[test]
    fn results_of_flushed_operands_are_skipped_only_where_the_engine_flushes() {
        let minus_infinity = f32::NEG_INFINITY;
        let flushed = noted(SUBNORMAL, minus_infinity, Subnormals::Flushed);
        assert!(flushed.problems.is_empty() && flushed.flushes_operands);
        assert_eq!(noted(SUBNORMAL, minus_infinity, Subnormals::Kept).problems.len(), 1);
        assert_eq!(noted(2.0, minus_infinity, Subnormals::Flushed).problems.len(), 1);
        let exact = noted(SUBNORMAL, SUBNORMAL.ln(), Subnormals::Flushed);
        assert!(exact.problems.is_empty() && !exact.flushes_operands);
    }

    #[test]
    fn zeros_keep_the_sign() {
        let zeros = with_zeros(&data(&[-SUBNORMAL, 1.0, f32::MIN_POSITIVE])).to_vec::<f32>();
        assert!(zeros[0] == 0.0 && zeros[0].is_sign_negative());
        assert_eq!(zeros[1..], [1.0, f32::MIN_POSITIVE]);
    }
}
