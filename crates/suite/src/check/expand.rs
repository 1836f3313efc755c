//! Mode *expand*: the expansion of an op matches the op.

use super::{Outcome, expected, guarded, host_operands, operands, read, types_of};
use crate::case::{Case, Layouts, Tolerance};
use crate::compare::difference;
use kiln_ir::{Engine, Expand, MINIMAL, OpKind};
use kiln_reference::Limited;
use std::sync::Arc;

/// Whether the op of the case has an expansion and small enough operands. Expansions of sorts and contractions
/// materialize intermediates that a kernel never stores.
pub fn expands(case: &Case) -> bool {
    let expandable = !MINIMAL.contains(case.op.kind()) || case.op.kind() == OpKind::Collective;
    expandable && case.layouts != Layouts::Few
}

/// Compares the expansion of a case, on an engine restricted to [`MINIMAL`], with the native reference.
pub fn check_expand(engine: Arc<dyn Engine>, case: &Case) -> Outcome {
    let mut outcome = Outcome::default();
    let list = host_operands(case);
    let expected = expected(&case.op, &list);
    let result = guarded(|| {
        let layer = Expand::new(Limited::new(engine, MINIMAL));
        let operands = operands(&list, &|_, data| layer.write(data.clone()));
        let types = types_of(&case.op, &operands);
        let values = layer.execute(&case.op, operands, &types);
        let mut outcome = Outcome::default();
        outcome.note("results", (values.len() != expected.len()).then(|| format!("{}", values.len())));
        for (i, (value, expected)) in values.into_iter().zip(&expected).enumerate() {
            let problem = match read(&layer, value) {
                Ok(actual) => difference(expected, &actual, widened(case)),
                Err(error) => Some(format!("failed: {error}")),
            };
            outcome.note(&format!("result {i}"), problem);
        }
        outcome
    });
    outcome.absorb(&case.name, result);
    outcome
}

/// The tolerance of an expansion, which rounds after each of its ops.
fn widened(case: &Case) -> Tolerance {
    match case.tolerance {
        Tolerance::Near { relative, absolute } => {
            Tolerance::Near { relative: 4.0 * relative, absolute: 4.0 * absolute }
        }
        Tolerance::Bits | Tolerance::Exact => case.tolerance,
    }
}
