//! The values of a router: on a member, or not yet.

use crate::member::Member;
use kiln_ir::{Op, Operand, Operands, SharedBytes, TensorData, TensorType, Value, Values};
use std::sync::{Arc, Mutex, PoisonError};

/// The payload of a router's value.
#[derive(Clone)]
pub(crate) enum Placed {
    /// A value of that member's engine.
    On(Arc<Member>, Value),
    /// One result of something that is made on the member that first needs it.
    Unplaced(Arc<Deferred>, usize),
}

/// A computation that depends on no member, deferred until a member needs it.
pub(crate) struct Deferred {
    pub(crate) source: Source,
    /// Ops on the longest way from data. Making a value follows it by recursion.
    pub(crate) depth: usize,
    /// The values, as they were made last.
    made: Mutex<Option<(Arc<Member>, Values)>>,
}

pub(crate) enum Source {
    /// Data of the host.
    Data(TensorData),
    /// Bytes of the host that stay where they are.
    Shared(SharedBytes, TensorType),
    /// An op that cannot fail, all of whose operands are unplaced or numbers.
    Op(Op, Operands, Vec<TensorType>),
}

/// Brings an operand to a member.
pub(crate) type Opener<'a> = dyn Fn(Operand, &Arc<Member>) -> Operand + 'a;

impl Deferred {
    /// Longer chains of ops are computed at once.
    pub(crate) const MAX_DEPTH: usize = 16;

    pub(crate) fn new(source: Source, depth: usize) -> Arc<Deferred> {
        Arc::new(Deferred { source, depth, made: Mutex::default() })
    }

    /// The values on a member. They stay here while others hold this, and are made again for another member.
    pub(crate) fn on(self: Arc<Deferred>, member: &Arc<Member>, open: &Opener<'_>) -> Values {
        let deferred = match Arc::try_unwrap(self) {
            Ok(owned) => return owned.into_values(member, open),
            Err(shared) => shared,
        };
        let mut made = deferred.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((on, values)) = &*made
            && Arc::ptr_eq(on, member)
        {
            return values.clone();
        }
        let values = match &deferred.source {
            Source::Data(data) => Values::from_iter([member.engine().write(data.clone())]),
            Source::Shared(bytes, ty) => shared(member, bytes.clone(), *ty),
            Source::Op(op, operands, results) => execute(member, op, operands.clone(), results, open),
        };
        *made = Some((member.clone(), values.clone()));
        values
    }

    fn into_values(self, member: &Arc<Member>, open: &Opener<'_>) -> Values {
        let made = self.made.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some((on, values)) = made
            && Arc::ptr_eq(&on, member)
        {
            return values;
        }
        match self.source {
            Source::Data(data) => Values::from_iter([member.engine().write(data)]),
            Source::Shared(bytes, ty) => shared(member, bytes, ty),
            Source::Op(op, operands, results) => execute(member, &op, operands, &results, open),
        }
    }
}

fn shared(member: &Member, bytes: SharedBytes, ty: TensorType) -> Values {
    Values::from_iter([member.engine().write_shared(bytes, ty)])
}

fn execute(
    member: &Arc<Member>,
    op: &Op,
    operands: Operands,
    results: &[TensorType],
    open: &Opener<'_>,
) -> Values {
    let operands = operands.into_iter().map(|operand| open(operand, member)).collect();
    member.count_op();
    member.engine().execute(op, operands, results)
}
