//! The router as an engine.

use crate::member::Member;
use crate::placed::{Placed, Source};
use crate::router::Router;
use kiln_ir::{
    BoxFuture, Caps, Engine, Error, Memory, Op, OpKind, OperandType, Operands, Result, SharedBytes,
    TensorData, TensorType, Value, Values, copied, lowered, poisoned,
};
use std::future::ready;
use std::ptr;
use std::sync::Arc;

impl Engine for Router {
    fn caps(&self) -> &Caps {
        self.caps_of_all()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.run(op, inputs, results).unwrap_or_else(|error| poisoned(results, &error))
    }

    fn execute_async(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> BoxFuture<'_, Values> {
        let home = match self.home(op, &inputs) {
            Ok(home) => home.unwrap_or_else(|| self.first()),
            Err(error) => return Box::pin(ready(poisoned(results, &error))),
        };
        // Another member that runs the op has its result brought back, which waits anyway.
        if !op.may_need_host() || !home.runs(op, &OperandType::list(&inputs)) {
            return Box::pin(ready(self.execute(op, inputs, results)));
        }
        let operands: Operands = inputs.into_iter().map(|operand| self.operand_on(operand, &home)).collect();
        home.count_op();
        let (op, types) = (op.clone(), results.to_vec());
        Box::pin(async move {
            let found = home.engine().execute_async(&op, operands, &types).await;
            let values: Values = found.into_iter().map(|value| self.wrap(&home, value)).collect();
            values
        })
    }

    /// On no member yet: the first that needs the data gets it.
    fn write(&self, data: TensorData) -> Value {
        let ty = data.ty();
        self.unplaced(Source::Data(data), 0, &[ty]).remove(0)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        let (member, inner) = match self.open(value) {
            Ok(Placed::On(member, inner)) => (member, inner),
            Ok(placed @ Placed::Unplaced(..)) => match self.host_data(&placed) {
                Some(data) => return Box::pin(ready(Ok(data))),
                None => self.on_first(placed),
            },
            Err(value) => return Box::pin(ready(Err(stray(&value)))),
        };
        Box::pin(async move { member.engine().read(inner).await })
    }

    /// True for everything but group operations of several members, which need an engine that communicates.
    fn supports(&self, op: &Op, operands: &[OperandType<'_>]) -> bool {
        op.kind() != OpKind::Collective || self.members().iter().any(|member| member.runs(op, operands))
    }

    fn write_shared(&self, bytes: SharedBytes, ty: TensorType) -> Value {
        self.unplaced(Source::Shared(bytes, ty), 0, &[ty]).remove(0)
    }

    /// A value of a member's engine, or of a layer around it, stays on that member. Any other is read, which waits.
    fn import(&self, from: &dyn Engine, value: Value) -> Value {
        let value = match lowered(from, self, value) {
            Ok(value) => return value,
            Err(value) => value,
        };
        let value = match from.find::<Router>().map(|source| (source, lowered(from, source, value.clone()))) {
            Some((source, Ok(inside))) => match source.open(inside) {
                Ok(Placed::On(member, inner)) => return self.import(&**member.engine(), inner),
                Ok(Placed::Unplaced(..)) | Err(_) => value,
            },
            Some((_, Err(_))) | None => value,
        };
        let holds = |member: &&Arc<Member>| from.layers().any(|layer| is_same(layer, &**member.engine()));
        if let Some(member) = self.members().iter().find(holds) {
            return self.wrap(member, member.engine().import(from, value));
        }
        copied(from, value, |data| self.write(data))
    }

    fn outcome(&self, value: &Value) -> Option<Result<()>> {
        match self.placed(value) {
            Some(Placed::On(member, inner)) => member.engine().outcome(inner),
            // Data, and ops that cannot fail.
            Some(Placed::Unplaced(..)) => Some(Ok(())),
            None => Some(Err(stray(value))),
        }
    }

    fn saved_for_backward(&self, op: &Op, place: usize, value: &Value) -> Value {
        match self.placed(value) {
            Some(Placed::On(member, inner)) => {
                let saved = member.engine().saved_for_backward(op, place, inner);
                if saved.same(inner) { value.clone() } else { self.wrap(member, saved) }
            }
            Some(Placed::Unplaced(..)) | None => value.clone(),
        }
    }

    fn mixes_precision(&self) -> bool {
        self.members().iter().any(|member| member.engine().mixes_precision())
    }

    fn submit(&self) {
        self.members().iter().for_each(|member| member.engine().submit());
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            let mut outcome = Ok(());
            for member in self.members() {
                // All are waited for, also behind an error.
                outcome = outcome.and(member.engine().sync().await);
            }
            outcome
        })
    }

    fn device_of(&self, value: &Value) -> Option<usize> {
        match self.placed(value)? {
            Placed::On(member, _) => self.number_of(member),
            Placed::Unplaced(..) => None,
        }
    }

    /// Moves the value to that member. A number without a member poisons it.
    fn to_device(&self, value: Value, device: usize) -> Value {
        match self.member(device) {
            Some(member) => self.moved(value, &member),
            None => {
                let problem = format!("there is no device {device} among {}", self.members().len());
                Value::poisoned(*value.ty(), Error::unsupported("router", problem))
            }
        }
    }

    fn memory(&self) -> Option<&dyn Memory> {
        let tracks = self.members().iter().any(|member| member.engine().memory().is_some());
        tracks.then_some(self)
    }

    fn explain(&self, value: &Value) -> Option<String> {
        let Placed::On(member, inner) = self.placed(value)? else { return None };
        Some(format!("on {}\n{}", member.name(), member.engine().explain(inner)?))
    }
}

impl Router {
    /// The data of a value that was only written.
    fn host_data(&self, placed: &Placed) -> Option<TensorData> {
        let Placed::Unplaced(deferred, _) = placed else { return None };
        match &deferred.source {
            Source::Data(data) => Some(data.clone()),
            Source::Shared(..) | Source::Op(..) => None,
        }
    }

    /// An unplaced value on the first member.
    fn on_first(&self, placed: Placed) -> (Arc<Member>, Value) {
        let first = self.first();
        let inner = self.made(placed, &first);
        (first, inner)
    }
}

/// The error of a value that is on no member.
fn stray(value: &Value) -> Error {
    value.error().cloned().unwrap_or_else(|| {
        Error::unsupported("router", format!("{} is a value of no member", value.ty()))
            .hint("bring it to the router with `import`")
    })
}

fn is_same(a: &dyn Engine, b: &dyn Engine) -> bool {
    ptr::addr_eq(a, b) && a.type_id() == b.type_id()
}
