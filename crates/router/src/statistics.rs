//! Statistics of a router.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of a router since it was made, or since [`reset_statistics`](crate::Router::reset_statistics).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Transfers by `to_device`.
    pub explicit: Transfers,
    /// Transfers by the [policy](crate::TransferPolicy): operands that met, and operands and results of fallbacks.
    pub automatic: Transfers,
    /// Ops that ran on another member than that of their operands, since that one does not run them.
    pub fallbacks: u64,
    /// Ops that the router expanded, since the member of their operands runs only a part of all ops.
    pub expansions: u64,
    /// The members, in the order of their numbers.
    pub members: Vec<MemberStatistics>,
}

/// Transfers from one member to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// How many tensors moved.
    pub transfers: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Counts of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberStatistics {
    /// Its name.
    pub name: String,
    /// Ops that ran on it, or were queued there.
    pub ops: u64,
}

/// [`Transfers`] that threads add to.
#[derive(Default)]
pub(crate) struct TransferCounter {
    transfers: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) explicit: TransferCounter,
    pub(crate) automatic: TransferCounter,
    pub(crate) fallbacks: AtomicU64,
    pub(crate) expansions: AtomicU64,
}

impl TransferCounter {
    pub(crate) fn add(&self, bytes: usize) {
        self.transfers.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Transfers {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Transfers { transfers: read(&self.transfers), bytes: read(&self.bytes) }
    }

    fn reset(&self) {
        self.transfers.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }
}

impl Counters {
    pub(crate) fn reset(&self) {
        self.explicit.reset();
        self.automatic.reset();
        self.fallbacks.store(0, Ordering::Relaxed);
        self.expansions.store(0, Ordering::Relaxed);
    }
}
