//! Ops of the suite's cases, for kinds without a generator of their own.

use super::{Generator, Wanted};
use crate::random::Random;
use kiln_ir::{OpKind, ProgramOperand};
use kiln_suite::case::{Case, Input};
use kiln_suite::cases;
use std::sync::LazyLock;

/// A random case of an op of this kind.
pub(crate) fn case_of(random: &mut Random, kind: OpKind) -> Option<&'static Case> {
    static CASES: LazyLock<Vec<Case>> = LazyLock::new(cases::all);
    let cases: Vec<&Case> = CASES.iter().filter(|case| case.op.kind() == kind).collect();
    (!cases.is_empty()).then(|| cases[random.below(cases.len())])
}

impl Generator<'_> {
    /// Adds the op of a case, on inputs that are filled by its rules.
    pub(super) fn draw_case(&mut self, kind: OpKind) -> Option<()> {
        let case = case_of(self.random, kind)?;
        let mut operands: Vec<ProgramOperand> = Vec::new();
        for input in &case.inputs {
            operands.push(match input {
                Input::Tensor(ty, fill) => ProgramOperand::Slot(self.fresh(*ty, Wanted::Filled(*fill))),
                Input::Scalar(scalar) => ProgramOperand::Scalar(*scalar),
                Input::SameAs(place) => operands[*place],
                Input::Result { .. } => return None,
            });
        }
        self.emit(case.op.clone(), &operands).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Style;

    #[test]
    fn cases_become_valid_programs() {
        for kind in [OpKind::Softmax, OpKind::Norm, OpKind::Gather, OpKind::Pad] {
            let added = |number| {
                let mut random = Random::new(1, number);
                let style = Style::draw(&mut random);
                let mut generator = Generator::new(&mut random, style);
                generator.draw_case(kind)?;
                let (program, _) = generator.finish();
                kiln_ir::verify(&program).expect("a valid program");
                program.instructions.iter().any(|instruction| instruction.op.kind() == kind).then_some(())
            };
            assert!((0..32).any(|number| added(number).is_some()), "{kind:?}");
        }
    }
}
