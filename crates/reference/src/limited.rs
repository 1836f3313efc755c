//! An engine restricted to some ops of another engine, for tests of layers and expansions.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::{
    BoxFuture, Caps, DTypeSet, Engine, Op, OpSet, OperandType, Operands, Result, TensorData, TensorType,
    Value, Values,
};
use spin::Mutex;

/// Whether an op outside the sets of an engine runs on operands of these types.
type Condition = dyn Fn(&Op, &[OperandType<'_>]) -> bool + Send + Sync;

/// An engine restricted to some ops and dtypes of an inner engine. It logs the ops that it runs.
///
/// It is not a layer, so that layers do not find the inner engine. Its values are the inner engine's values.
///
/// ```
/// use kiln_ir::{Engine, Expand, MINIMAL, Var};
/// use kiln_reference::{Limited, Reference};
/// use std::sync::Arc;
///
/// let limited = Arc::new(Limited::new(Arc::new(Reference::new()), MINIMAL));
/// let engine = Expand::around(limited.clone());
/// let x = Var::new(&engine, engine.write([[1.0f32, 2.0]].into()));
/// x.matmul(&x.permute(&[1, 0]));
/// assert!(!limited.take_ran().contains(&"matmul".into()));
/// ```
pub struct Limited {
    inner: Arc<dyn Engine>,
    caps: Caps,
    condition: Box<Condition>,
    ran: Mutex<Vec<String>>,
}

impl Limited {
    /// Restricts an engine to these ops.
    pub fn new(inner: Arc<dyn Engine>, native: OpSet) -> Limited {
        let caps = Caps { native, ..inner.caps().clone() };
        Limited { inner, caps, condition: Box::new(|_, _| false), ran: Mutex::default() }
    }

    /// Sets the name.
    #[must_use]
    pub fn with_name(self, name: &str) -> Limited {
        Limited { caps: Caps { name: name.into(), ..self.caps }, ..self }
    }

    /// Restricts the engine to these dtypes.
    #[must_use]
    pub fn with_dtypes(self, dtypes: DTypeSet) -> Limited {
        Limited { caps: Caps { dtypes, ..self.caps }, ..self }
    }

    /// Adds a condition under which [`Engine::supports`] accepts further ops outside the sets.
    #[must_use]
    pub fn with_condition(
        self,
        condition: impl Fn(&Op, &[OperandType<'_>]) -> bool + Send + Sync + 'static,
    ) -> Limited {
        Limited { condition: Box::new(condition), ..self }
    }

    /// Takes the names of the ops that ran since the last call, in order. The name of a fused region joins those of its ops
    /// by `+`.
    pub fn take_ran(&self) -> Vec<String> {
        core::mem::take(&mut self.ran.lock())
    }
}

impl Engine for Limited {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn supports(&self, op: &Op, operands: &[OperandType<'_>]) -> bool {
        self.caps.supports(op, operands) || (self.condition)(op, operands)
    }

    /// # Panics
    /// When the engine does not [support](Engine::supports) the op.
    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let is_supported = self.supports(op, &OperandType::list(&inputs));
        assert!(is_supported, "[{}] `{}` reached an engine that does not run it", self.caps.name, op.name());
        self.ran.lock().push(name_of(op));
        self.inner.execute(op, inputs, results)
    }

    fn write(&self, data: TensorData) -> Value {
        self.inner.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.inner.read(value)
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.sync()
    }
}

fn name_of(op: &Op) -> String {
    if let Op::Fused(region) = op {
        let names: Vec<&str> = region.program().instructions.iter().map(|it| it.op.name()).collect();
        names.join("+")
    } else {
        op.name().into()
    }
}
