//! Mode *expand*: the expansion of an op matches the op.

use super::subnormal::{Comparison, Subnormals};
use super::{Outcome, expected, guarded, host_operands, operands, types_of};
use crate::case::{Case, Layouts, Tolerance};
use kiln_ir::{Engine, Expand, MINIMAL, OpKind};
use kiln_reference::Limited;
use std::sync::Arc;

/// Returns whether the op of the case has an expansion and small enough operands. Expansions of sorts and contractions
/// materialize intermediates that a kernel never stores.
pub fn expands(case: &Case) -> bool {
    let expandable = !MINIMAL.contains(case.op.kind()) || case.op.kind() == OpKind::Collective;
    expandable && case.layouts != Layouts::Few
}

/// Compares the expansion of a case, on an engine restricted to [`MINIMAL`], with the native reference. `subnormals` is
/// the engine's [`Subnormals::of`].
pub fn check_expand(engine: Arc<dyn Engine>, case: &Case, subnormals: Subnormals) -> Outcome {
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
        let comparison = Comparison::new(&case.op, &list, subnormals);
        for (i, (value, expected)) in values.into_iter().zip(&expected).enumerate() {
            comparison.note(&mut outcome, &layer, (i, value), expected, widened(case));
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
