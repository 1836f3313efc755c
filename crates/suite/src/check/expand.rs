//! Mode *expand*: an op's expansion means what the op means.

use super::{Outcome, expected, given, guarded, operands, read, types_of};
use crate::case::{Case, Layouts, Tolerance};
use crate::compare::difference;
use kiln_ir::{
    BoxFuture, Caps, Engine, Expand, MINIMAL, Op, OpKind, Operands, TensorData, TensorType, Value, Values,
};
use std::sync::Arc;

/// An engine that claims to run only [`MINIMAL`], so that a layer above must expand everything else.
pub struct Minimal {
    inner: Arc<dyn Engine>,
    caps: Caps,
}

impl Minimal {
    /// The engine with fewer abilities.
    pub fn new(inner: Arc<dyn Engine>) -> Minimal {
        let caps = Caps { native: MINIMAL, ..inner.caps().clone() };
        Minimal { inner, caps }
    }
}

impl Engine for Minimal {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        assert!(MINIMAL.contains(op.kind()), "[{}] reached an engine that does not run it", op.name());
        self.inner.execute(op, inputs, results)
    }

    fn write(&self, data: TensorData) -> Value {
        self.inner.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, kiln_ir::Result<TensorData>> {
        self.inner.read(value)
    }

    fn sync(&self) -> BoxFuture<'_, kiln_ir::Result<()>> {
        self.inner.sync()
    }
}

/// Whether the case's op has an expansion, and operands small enough for it: expansions of order and contraction
/// write out what a kernel only visits.
pub fn expands(case: &Case) -> bool {
    let expandable = !MINIMAL.contains(case.op.kind()) || case.op.kind() == OpKind::Collective;
    expandable && case.layouts != Layouts::Few
}

/// Compares the expansion of a case, run by an engine that is left with [`MINIMAL`], with the native reference.
pub fn check_expand(engine: Arc<dyn Engine>, case: &Case) -> Outcome {
    let mut outcome = Outcome::default();
    let list = given(case);
    let expected = expected(&case.op, &list);
    let result = guarded(|| {
        let layer = Expand::new(Minimal::new(engine));
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

/// An expansion rounds after every op that a kernel runs in one go.
fn widened(case: &Case) -> Tolerance {
    match case.tolerance {
        Tolerance::Near { relative, absolute } => {
            Tolerance::Near { relative: 4.0 * relative, absolute: 4.0 * absolute }
        }
        Tolerance::Bits | Tolerance::Exact => case.tolerance,
    }
}
