//! Collectives of [thread groups](crate::ThreadGroup): the exchange of operands, and the results of each member.

use super::Expand;
use crate::group::{self, Channel, Exchange, Message, Part};
use crate::{
    Binary, Collective, CollectiveKind, Engine, Error, Op, Operands, Reduction, Result, SliceAxis,
    TensorType, Value, Values, Var, wait_for,
};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use smallvec::smallvec;

impl Expand {
    /// Runs a collective of a thread group; `None` if the group is none. Waits for the other members.
    pub(super) fn collective(&self, call: &Collective, inputs: &Operands) -> Option<Result<Values>> {
        let exchange = group::find(call.group)?;
        Some(exchange.check(call).and_then(|()| self.exchanged(call, &exchange, inputs)))
    }

    fn exchanged(&self, call: &Collective, exchange: &Exchange, inputs: &Operands) -> Result<Values> {
        let Collective { kind, rank, .. } = *call;
        let operand = inputs.first().and_then(|operand| operand.value());
        match (kind, operand) {
            (CollectiveKind::Recv { from, tag, ty }, _) => {
                let data = exchange.receive(Channel { from, to: rank, tag })?;
                if data.ty() != ty {
                    let problem =
                        format!("member {rank} receives {ty}, but member {from} sent {}", data.ty());
                    return Err(exchange.error(problem));
                }
                Ok(smallvec![self.write_part(data)])
            }
            (CollectiveKind::Send { to, tag }, Some(x)) => {
                let message = self.read_part(x);
                let error = message.as_ref().err().cloned();
                exchange.send(Channel { from: rank, to, tag }, message)?;
                error.map_or_else(|| Ok(smallvec![x.clone()]), Err)
            }
            (
                CollectiveKind::AllReduce(_)
                | CollectiveKind::AllGather { .. }
                | CollectiveKind::ReduceScatter { .. }
                | CollectiveKind::Broadcast { .. },
                Some(x),
            ) => self.met(call, exchange, x).map(|value| smallvec![value]),
            (_, None) => Err(exchange.error(format!("member {rank} needs a tensor as operand"))),
        }
    }

    /// Meets the other members, and computes the result of this one.
    fn met(&self, call: &Collective, exchange: &Exchange, x: &Value) -> Result<Value> {
        let Collective { kind, rank, size, .. } = *call;
        let is_read = !matches!(kind, CollectiveKind::Broadcast { root } if root != rank);
        let data = is_read.then(|| self.read_part(x));
        let own_error = data.as_ref().and_then(|data| data.as_ref().err().cloned());
        let parts = exchange.meet(rank, Part { kind, ty: *x.ty(), data })?;
        if let Some(error) = own_error {
            return Err(error);
        }
        // Every member fails, also where its own result would not depend on the failed part: they stay in step.
        for (other, part) in parts.iter().enumerate() {
            if let Some(Err(error)) = &part.data {
                return Err(exchange.error_of(other, error));
            }
        }
        let mut parts = parts.into_iter().enumerate().map(|(other, part)| match part.data {
            Some(Ok(data)) if other != rank => self.write_part(data),
            Some(_) | None => x.clone(),
        });
        Ok(match kind {
            CollectiveKind::AllReduce(reduction) => self.reduced(reduction, x.ty(), parts),
            CollectiveKind::ReduceScatter { reduction, axis } => {
                let len = x.shape()[axis] / size;
                let slice = SliceAxis { start: rank * len, len, step: 1 };
                let ty = x.ty().with_shape(x.shape().with(axis, len));
                let own = parts.map(|part| Var::new(self, part).slice_axis(axis, slice).into_value());
                self.reduced(reduction, &ty, own)
            }
            CollectiveKind::AllGather { axis } => {
                let parts: Vec<Var<'_>> = parts.map(|part| Var::new(self, part)).collect();
                Var::concat(&parts, axis).into_value()
            }
            CollectiveKind::Broadcast { root } => parts.nth(root).unwrap_or_else(|| x.clone()),
            // These have no meeting.
            CollectiveKind::Send { .. } | CollectiveKind::Recv { .. } => x.clone(),
        })
    }

    /// Reduces tensors in their order. Floats of 16 bits are reduced in `f32`.
    fn reduced(&self, reduction: Reduction, ty: &TensorType, parts: impl Iterator<Item = Value>) -> Value {
        let wide = ty.dtype.accumulator();
        let function = match reduction {
            Reduction::Sum => Binary::Add,
            Reduction::Prod => Binary::Mul,
            Reduction::Min => Binary::Min,
            Reduction::Max => Binary::Max,
        };
        let results = [TensorType::new(ty.shape, wide)];
        let parts = parts.map(|part| Var::new(self, part).cast(wide).into_value());
        let total = parts.reduce(|total, part| {
            self.execute(&Op::Binary(function), smallvec![total.into(), part.into()], &results).remove(0)
        });
        match total {
            Some(total) => Var::new(self, total).cast(ty.dtype).into_value(),
            None => Value::poisoned(*ty, Error::program("a group without members")),
        }
    }

    fn read_part(&self, value: &Value) -> Message {
        let read = self.inner.read(value.clone());
        wait_for(
            read,
            "a collective of a thread group",
            "browsers have no threads: use a group of one member",
        )
        .map(Arc::new)
    }

    fn write_part(&self, data: Arc<crate::TensorData>) -> Value {
        self.inner.write(Arc::unwrap_or_clone(data))
    }
}

/// Whether a collective is of a thread group.
pub(super) fn is_of_threads(op: &Op) -> bool {
    matches!(op, Op::Collective(call) if group::find(call.group).is_some())
}
