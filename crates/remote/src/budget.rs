//! Counts of bytes that one session holds, and that all sessions of a server hold together.

use kiln_ir::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes that all sessions of a server may hold together.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
}

/// The bytes of one kind that one session holds, within its own limit and the server's budget.
#[derive(Debug)]
pub(crate) struct Account {
    what: &'static str,
    limit: AtomicU64,
    used: AtomicU64,
    server: Arc<Budget>,
}

/// Bytes that are held until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Budget {
    /// A budget of this many bytes.
    pub(crate) fn new(limit: u64) -> Arc<Budget> {
        Arc::new(Budget { limit, used: AtomicU64::new(0) })
    }

    /// The bytes in use.
    #[cfg_attr(not(any(feature = "server", test)), expect(dead_code, reason = "called by the server"))]
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// An account within the budget, for bytes of a kind.
    pub(crate) fn account(self: &Arc<Self>, what: &'static str, limit: u64) -> Arc<Account> {
        let (limit, used) = (AtomicU64::new(limit), AtomicU64::new(0));
        Arc::new(Account { what, limit, used, server: self.clone() })
    }
}

impl Account {
    /// The bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The most bytes that this account may hold.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// The most bytes, where no other session holds any.
    pub(crate) fn most(&self) -> u64 {
        self.limit().min(self.server.limit)
    }

    /// Changes the limit. What is held already stays.
    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Counts bytes until the result is dropped.
    ///
    /// # Errors
    /// When the session or the server would exceed its limit, which the error names.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge> {
        if bytes > 0 {
            add(&self.used, bytes, self.limit()).map_err(|limit| self.exceeded("session", bytes, limit))?;
            if let Err(limit) = add(&self.server.used, bytes, self.server.limit) {
                self.used.fetch_sub(bytes, Ordering::Relaxed);
                return Err(self.exceeded("server", bytes, limit));
            }
        }
        Ok(Charge { account: self.clone(), bytes })
    }

    fn exceeded(&self, whose: &str, bytes: u64, limit: u64) -> Error {
        let what = self.what;
        let problem =
            format!("{bytes} bytes more: the {whose} would exceed its quota of {limit} bytes of {what}");
        Error::device("remote", problem)
            .hint("drop tensors that are not needed, or raise the quota in the server's options")
    }
}

impl Charge {
    /// Counts fewer bytes than before.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        let excess = self.bytes.saturating_sub(bytes);
        self.account.give_back(excess);
        self.bytes -= excess;
    }

    /// Takes some of the bytes away as a charge of their own.
    pub(crate) fn split(&mut self, bytes: u64) -> Charge {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Charge { account: self.account.clone(), bytes }
    }

    /// The bytes that are counted.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

impl Account {
    fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            self.server.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// Adds within a limit, or returns the limit. Optimistic, so that it is one operation where there is room.
fn add(used: &AtomicU64, bytes: u64, limit: u64) -> Result<(), u64> {
    let next = |before: u64| before.checked_add(bytes).filter(|after| *after <= limit);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).map(drop).map_err(|_| limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_exactly_and_charges_give_back() {
        let budget = Budget::new(150);
        let (a, b) = (budget.account("tensors", 100), budget.account("tensors", 100));
        let charges = a.charge(100).unwrap();
        assert!(
            a.charge(1)
                .unwrap_err()
                .to_string()
                .contains("session would exceed its quota of 100 bytes of tensors")
        );
        let mut more = b.charge(50).unwrap();
        assert!(
            b.charge(1).unwrap_err().to_string().contains("the server would exceed its quota of 150 bytes")
        );
        assert_eq!((a.used(), b.used(), budget.used()), (100, 50, 150));
        more.shrink(20);
        let part = more.split(5);
        assert_eq!((part.bytes(), more.bytes(), budget.used()), (5, 15, 120));
        drop((charges, more, part));
        assert_eq!((a.used(), b.used(), budget.used()), (0, 0, 0));
        assert!(a.charge(u64::MAX).is_err());
        assert_eq!(a.charge(0).unwrap().bytes(), 0);
    }

    #[test]
    fn threads_never_exceed_the_budget_together() {
        let budget = Budget::new(1000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let account = budget.account("tensors", 1000);
                    for _ in 0..2000 {
                        let charges = (account.charge(300), account.charge(200));
                        assert!(budget.used() <= 1000);
                        drop(charges);
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }
}
