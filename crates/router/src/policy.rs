//! Where operands on several members meet.

use crate::member::Member;
use kiln_ir::{Error, Op};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// When a router moves operands from one member to another by itself.
///
/// Moves by `to_device` are always possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TransferPolicy {
    /// Operands move to the member with most of their bytes; with equal bytes to that of the first operand.
    #[default]
    MoveSmaller,
    /// Operands move to the member of the first operand that is on one.
    MoveToFirst,
    /// Operands on several members are an error of the results. An op that a member does not run still runs on the next.
    Error,
    /// The router moves nothing by itself: as with [`Error`](TransferPolicy::Error), and an op that a member does not run is
    /// an error too.
    Explicit,
}

impl TransferPolicy {
    /// All policies, in declaration order.
    pub const ALL: [TransferPolicy; 4] = [
        TransferPolicy::MoveSmaller,
        TransferPolicy::MoveToFirst,
        TransferPolicy::Error,
        TransferPolicy::Explicit,
    ];

    /// Whether an op that a member does not run may run on the next one.
    pub(crate) fn falls_back(self) -> bool {
        match self {
            TransferPolicy::MoveSmaller | TransferPolicy::MoveToFirst | TransferPolicy::Error => true,
            TransferPolicy::Explicit => false,
        }
    }

    /// The member where operands meet: each with the member that it is on and its bytes.
    pub(crate) fn meeting(self, op: &Op, operands: &[(Arc<Member>, usize)]) -> Result<Arc<Member>, Error> {
        let first = operands[0].0.clone();
        match self {
            TransferPolicy::MoveToFirst => Ok(first),
            TransferPolicy::MoveSmaller => Ok(largest(operands, first)),
            TransferPolicy::Error | TransferPolicy::Explicit => Err(apart(op, operands)),
        }
    }
}

/// The member with most bytes; of equal ones the first.
fn largest(operands: &[(Arc<Member>, usize)], first: Arc<Member>) -> Arc<Member> {
    let bytes_on = |member: &Arc<Member>| -> usize {
        let here = operands.iter().filter(|(other, _)| Arc::ptr_eq(other, member));
        here.fold(0, |sum: usize, (_, bytes)| sum.saturating_add(*bytes))
    };
    let mut best = (bytes_on(&first), first);
    for (member, _) in operands {
        let bytes = bytes_on(member);
        if bytes > best.0 {
            best = (bytes, member.clone());
        }
    }
    best.1
}

fn apart(op: &Op, operands: &[(Arc<Member>, usize)]) -> Error {
    let places: Vec<&str> = operands.iter().map(|(member, _)| member.name()).collect();
    let problem = format!("`{}` has operands on several devices: {}", op.name(), places.join(", "));
    Error::unsupported("router", problem)
        .hint("move them together with `to_device`, or set `TransferPolicy::MoveSmaller`")
}

/// A policy that may change while ops run.
#[derive(Default)]
pub(crate) struct PolicyCell(AtomicU8);

impl PolicyCell {
    pub(crate) fn get(&self) -> TransferPolicy {
        TransferPolicy::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }

    pub(crate) fn set(&self, policy: TransferPolicy) {
        self.0.store(policy as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::{Binary, expanding};
    use kiln_reference::Reference;

    const ADD: Op = Op::Binary(Binary::Add);

    fn members() -> [Arc<Member>; 2] {
        ["a", "b"].map(|name| Arc::new(Member::new(name, expanding(Arc::new(Reference::new())))))
    }

    fn meets(policy: TransferPolicy, operands: &[(&Arc<Member>, usize)]) -> String {
        let operands: Vec<_> = operands.iter().map(|(member, bytes)| ((*member).clone(), *bytes)).collect();
        match policy.meeting(&ADD, &operands) {
            Ok(member) => member.name().into(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_smaller_operands_move() {
        let [a, b] = &members();
        let smaller = |operands: &[(&Arc<Member>, usize)]| meets(TransferPolicy::MoveSmaller, operands);
        assert_eq!(smaller(&[(a, 8), (b, 16)]), "b");
        assert_eq!(smaller(&[(a, 16), (b, 8)]), "a");
        assert_eq!(smaller(&[(a, 10), (b, 8), (b, 8)]), "b", "bytes of a member add up");
        assert_eq!(smaller(&[(b, 8), (a, 8)]), "b", "the first of equal ones");
        assert_eq!(smaller(&[(a, usize::MAX), (a, usize::MAX), (b, 1)]), "a");
    }

    #[test]
    fn the_first_may_stay() {
        let [a, b] = &members();
        assert_eq!(meets(TransferPolicy::MoveToFirst, &[(a, 1), (b, 100)]), "a");
    }

    #[test]
    fn errors_name_the_op_and_the_devices() {
        let [a, b] = &members();
        for policy in [TransferPolicy::Error, TransferPolicy::Explicit] {
            let said = meets(policy, &[(a, 1), (b, 1)]);
            assert!(said.contains("`add` has operands on several devices: a, b"), "{said}");
            assert!(said.contains("to_device"), "{said}");
        }
    }

    #[test]
    fn a_cell_holds_every_policy() {
        let cell = PolicyCell::default();
        assert_eq!(cell.get(), TransferPolicy::default());
        for policy in TransferPolicy::ALL {
            cell.set(policy);
            assert_eq!(cell.get(), policy);
        }
    }
}
