//! Mode *value*: the engine agrees with the reference.

use super::subnormal::{Comparison, Subnormals};
use super::{HostOperand, Outcome, expected, guarded, host_operands, operands, read, types_of};
use crate::case::Case;
use crate::compare::difference;
use crate::layout::{Layout, Placed, elements};
use kiln_ir::{Engine, OpKind, Operands, TensorData, TensorType, Value, Values, block_on};

/// Runs a case in each of its layouts and compares the type and elements of every result with the reference. Checks
/// that shared operands are not overwritten. An op that [may need the host](kiln_ir::Op::may_need_host) also runs
/// asynchronously.
pub fn check_value(engine: &dyn Engine, case: &Case) -> Outcome {
    Expected::of(case).check(engine)
}

/// A case with the reference's results, for checks of several engines.
pub struct Expected<'a> {
    case: &'a Case,
    /// The operands and results, as they are and with repeated elements.
    plain: Pair,
    repeated: Option<Pair>,
    /// The layouts of the case.
    layouts: Vec<InLayout>,
}

struct Pair {
    operands: Vec<HostOperand>,
    results: Vec<TensorData>,
}

struct InLayout {
    layout: Layout,
    /// The operands that are tensors.
    operands: Vec<Option<Placed>>,
}

impl<'a> Expected<'a> {
    /// Runs the reference.
    pub fn of(case: &'a Case) -> Expected<'a> {
        let pair = |operands: Vec<HostOperand>| Pair { results: expected(&case.op, &operands), operands };
        let list = host_operands(case);
        let repeats = case.layouts.list().contains(&Layout::Repeated);
        let repeated = repeats.then(|| pair(repeated(&list)));
        let mut made = Expected { case, plain: pair(list), repeated, layouts: Vec::new() };
        made.layouts = case.layouts.list().iter().map(|&layout| made.in_layout(layout)).collect();
        made
    }

    fn in_layout(&self, layout: Layout) -> InLayout {
        let placed = |operand: &HostOperand| match operand {
            HostOperand::Tensor(data) => Some(Placed::new(layout, data)),
            HostOperand::Scalar(_) | HostOperand::SameAs(_) => None,
        };
        InLayout { layout, operands: self.pair(layout).operands.iter().map(placed).collect() }
    }

    /// The operands as they are seen in a layout, with the results.
    fn pair(&self, layout: Layout) -> &Pair {
        self.repeated.as_ref().filter(|_| layout == Layout::Repeated).unwrap_or(&self.plain)
    }

    /// Runs an engine in each layout, and compares.
    pub fn check(&self, engine: &dyn Engine) -> Outcome {
        self.check_with(engine, Subnormals::Kept)
    }

    /// Works like [`check`](Self::check), for an engine that may flush subnormal numbers.
    pub fn check_with(&self, engine: &dyn Engine, subnormals: Subnormals) -> Outcome {
        let mut outcome = Outcome::default();
        for placed in &self.layouts {
            let pair = self.pair(placed.layout);
            let result = guarded(|| in_layout(engine, self.case, placed, pair, subnormals));
            outcome.absorb(&format!("{} {:?}", self.case.name, placed.layout), result);
        }
        outcome
    }
}

fn repeated(list: &[HostOperand]) -> Vec<HostOperand> {
    let repeat = |operand: &HostOperand| match operand {
        HostOperand::Tensor(data) => HostOperand::Tensor(elements(Layout::Repeated, data)),
        HostOperand::Scalar(scalar) => HostOperand::Scalar(*scalar),
        HostOperand::SameAs(place) => HostOperand::SameAs(*place),
    };
    list.iter().map(repeat).collect()
}

fn in_layout(
    engine: &dyn Engine,
    case: &Case,
    placed: &InLayout,
    pair: &Pair,
    subnormals: Subnormals,
) -> Outcome {
    let Pair { operands: seen, results: expected } = pair;
    let write = |place: usize, _: &TensorData| {
        placed.operands[place].as_ref().expect("a tensor is placed").on(engine)
    };
    let operands = operands(seen, &write);
    let kept = if placed.layout == Layout::Owned { Operands::new() } else { operands.clone() };
    let types = types_of(&case.op, &operands);
    let results = engine.execute(&case.op, operands, &types);
    let comparison = Comparison::new(&case.op, seen, subnormals);
    let mut outcome = Outcome::default();
    compare(&mut outcome, engine, case, &comparison, (results, types.as_slice()), expected);
    if case.op.may_need_host() {
        let operands = super::operands(seen, &write);
        let results = block_on(engine.execute_async(&case.op, operands, &types));
        compare(&mut outcome, engine, case, &comparison, (results, types.as_slice()), expected);
    }
    for (i, (operand, seen)) in kept.into_iter().zip(seen).enumerate() {
        if let (Some(value), HostOperand::Tensor(data)) = (operand.value(), seen) {
            outcome.note(&format!("operand {i} was changed"), unchanged(engine, value.clone(), data));
        }
    }
    outcome
}

/// Compares the number, the types and the elements of results with those of the reference.
fn compare(
    outcome: &mut Outcome,
    engine: &dyn Engine,
    case: &Case,
    comparison: &Comparison<'_>,
    (results, types): (Values, &[TensorType]),
    expected: &[TensorData],
) {
    if results.len() != expected.len() {
        return outcome.note("results", Some(format!("{} instead of {}", results.len(), expected.len())));
    }
    for (i, (value, expected)) in results.into_iter().zip(expected).enumerate() {
        let claimed = *value.ty();
        let wrong_type = case.op.kind() != OpKind::NonZero && claimed != types[i];
        outcome.note("type", wrong_type.then(|| format!("{claimed} instead of {}", types[i])));
        comparison.note(outcome, engine, (i, value), expected, case.tolerance);
    }
}

fn unchanged(engine: &dyn Engine, value: Value, data: &TensorData) -> Option<String> {
    match read(engine, value) {
        Ok(actual) => difference(data, &actual, crate::case::Tolerance::Bits),
        Err(error) => Some(format!("failed: {error}")),
    }
}
