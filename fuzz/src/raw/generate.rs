//! Programs of raw ops.

use super::ops::{Wanted, op};
use super::{Made, RawProgram, Source, Step};
use crate::random::Random;
use kiln_ir::{Op, OpKind, OperandType, ResultTypes, TensorType, cost, infer};

/// The greatest number of bytes of a tensor that is read, like the server's quota: longer loops are no hangs.
const MAX_BYTES: usize = 4 << 20;

/// The greatest number of arithmetic operations of an op, for the same reason.
const MAX_FLOPS: u64 = 1 << 27;

/// A result of so many bytes cannot be allocated.
const UNALLOCATABLE: usize = 1 << 40;

/// The program of a seed and a number: a few ops, each on tensors of its own or on results of earlier ops.
pub(super) fn program(seed: u64, number: u64) -> RawProgram {
    let random = Random::new(seed, number);
    let mut generator =
        Generator { random, program: RawProgram::default(), results: Vec::new(), has_ended: false };
    for _ in 0..generator.random.between(1, 4) {
        if !generator.has_ended && generator.step().is_none() {
            generator.program.refused += 1;
        }
    }
    generator.program
}

struct Generator {
    random: Random,
    program: RawProgram,
    /// The types of all results so far.
    results: Vec<TensorType>,
    /// Whether a result has another type than was inferred, or is too large to be an operand.
    has_ended: bool,
}

impl Generator {
    /// Adds an op. `None` if inference refuses it, or the server's quotas would.
    fn step(&mut self) -> Option<()> {
        let kind = self.random.pick(&OpKind::ALL);
        let (op, wanted) = op(&mut self.random, kind)?;
        let operand = |wanted: &'_ Wanted| match wanted {
            Wanted::Tensor(ty) => ty.checked_num_bytes().map(|_| *wanted),
            Wanted::Number(_) => Some(*wanted),
        };
        let wanted: Vec<Wanted> = wanted.iter().map(operand).collect::<Option<_>>()?;
        let types: Vec<OperandType<'_>> = wanted.iter().map(Wanted::ty).collect();
        let results = infer(&op, &types).ok()?;
        let is_small = self.is_affordable(&op, &types, &results)?;
        self.has_ended = !is_small || kind == OpKind::NonZero;
        let operands = wanted.iter().map(|wanted| self.source(*wanted)).collect();
        self.results.extend(&results);
        self.program.steps.push(Step { op, operands, results });
        Some(())
    }

    /// Whether all results are small. `None` if the op would not end soon.
    fn is_affordable(
        &mut self,
        op: &Op,
        operands: &[OperandType<'_>],
        results: &ResultTypes,
    ) -> Option<bool> {
        let fits = |ty: &TensorType| ty.num_bytes() <= MAX_BYTES;
        if !operands.iter().filter_map(|operand| operand.tensor()).all(fits) {
            return None;
        }
        if results.iter().all(fits) {
            return (cost(op, operands, results).flops <= MAX_FLOPS).then_some(true);
        }
        // An op on a view of a huge tensor would be a loop without end, without an allocation that fails.
        let fails = results.iter().any(|ty| ty.num_bytes() >= UNALLOCATABLE) && !op.is_view();
        (fails && self.random.chance(30)).then_some(false)
    }

    fn source(&mut self, wanted: Wanted) -> Source {
        let ty = match wanted {
            Wanted::Number(number) => return Source::Number(number),
            Wanted::Tensor(ty) => ty,
        };
        let same = self.results.iter().position(|result| *result == ty);
        match same.filter(|_| self.random.chance(70)) {
            Some(result) => Source::Result(result),
            None => {
                let is_broadcast = self.random.chance(20);
                let number = if self.random.chance(70) { 0 } else { self.random.between(1, 3) as i64 };
                Source::Made(Made { ty, is_broadcast, number })
            }
        }
    }
}
