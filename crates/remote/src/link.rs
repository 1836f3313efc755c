//! One direction of messages that survives broken connections: each is numbered, and kept until the other side has processed it.

use crate::budget::{Account, Charge};
use crate::codec::{encode, encode_parts};
use crate::message::Frame;
use kiln_ir::{Error, Result};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::Bytes;

/// Acknowledge at least every so many messages, if the window is not smaller.
const ACK_MESSAGES: u64 = 8;

/// The messages between one client and its session, in both directions, over any number of connections.
pub(crate) struct Link {
    outbox: Mutex<Outbox>,
    /// There is room for a message, or the link is closed.
    room: Condvar,
    /// There is something to write.
    pub(crate) work: Notify,
    /// The number of the last message received, and of the last one processed.
    received: AtomicU64,
    processed: AtomicU64,
    /// Where the bytes that were not acknowledged count.
    account: Option<Arc<Account>>,
    /// Acknowledge at least every so many messages.
    ack_every: u64,
    /// Why the link ended. `None` inside: because this side was done.
    closed: OnceLock<Option<Error>>,
    pub(crate) traffic: Traffic,
}

/// Messages and bytes in both directions.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(crate) sent: [AtomicU64; 2],
    pub(crate) received: [AtomicU64; 2],
}

struct Outbox {
    frames: VecDeque<(Bytes, Option<Charge>)>,
    /// The number of the first of them.
    first: u64,
    bytes: usize,
    window_messages: usize,
    window_bytes: usize,
    /// No more messages come: the link closes when all are written, for this reason.
    finished: Option<Option<Error>>,
}

impl Link {
    /// A link without messages. As many messages, and bytes, may be on the way before [`send`](Link::send) waits. They count on
    /// the account.
    pub(crate) fn new(window_messages: usize, window_bytes: usize, account: Option<Arc<Account>>) -> Link {
        let outbox = Outbox {
            frames: VecDeque::new(),
            first: 1,
            bytes: 0,
            window_messages: window_messages.max(1),
            window_bytes: window_bytes.max(1),
            finished: None,
        };
        Link {
            outbox: Mutex::new(outbox),
            room: Condvar::new(),
            work: Notify::new(),
            received: AtomicU64::new(0),
            processed: AtomicU64::new(0),
            account,
            ack_every: ACK_MESSAGES.min(window_messages as u64 / 2).max(1),
            closed: OnceLock::new(),
            traffic: Traffic::default(),
        }
    }

    /// Queues a message. Waits while the window is full.
    ///
    /// # Errors
    /// When the message cannot be encoded, has no room on the account, or the link is closed.
    pub(crate) fn send<T: serde::Serialize>(&self, header: &T, tail: &[u8]) -> Result<()> {
        let header = encode(header, &[])?;
        let mut outbox = self.outbox();
        while self.closed().is_none() && outbox.is_full(header.len() + tail.len()) {
            outbox = self.room.wait(outbox).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(reason) = self.closed() {
            return Err(reason.unwrap_or_else(|| Error::device("remote", "the connection is closed")));
        }
        let sequence = outbox.first + outbox.frames.len() as u64;
        let frame = encode_parts(&Frame::Payload { sequence }, &[&header, tail])?;
        self.traffic.sent[0].fetch_add(1, Ordering::Relaxed);
        self.traffic.sent[1].fetch_add(frame.len() as u64, Ordering::Relaxed);
        let charge = self.account.as_ref().map(|account| account.charge(frame.len() as u64)).transpose()?;
        outbox.bytes += frame.len();
        outbox.frames.push_back((frame.into(), charge));
        drop(outbox);
        self.work.notify_one();
        Ok(())
    }

    /// The frame of a message that is not acknowledged, by number.
    pub(crate) fn frame(&self, sequence: u64) -> Option<Bytes> {
        let outbox = self.outbox();
        outbox
            .frames
            .get(usize::try_from(sequence.checked_sub(outbox.first)?).ok()?)
            .map(|(frame, _)| frame.clone())
    }

    /// The other side has processed all messages up to this number.
    ///
    /// # Errors
    /// When there was no such message.
    pub(crate) fn acknowledged(&self, sequence: u64) -> Result<()> {
        let mut outbox = self.outbox();
        if sequence >= outbox.first + outbox.frames.len() as u64 {
            return Err(crate::codec::malformed("a message is acknowledged that was never sent"));
        }
        while outbox.first <= sequence {
            let frame = outbox.frames.pop_front();
            outbox.bytes -= frame.map_or(0, |(frame, _)| frame.len());
            outbox.first += 1;
        }
        drop(outbox);
        self.room.notify_all();
        Ok(())
    }

    /// The number of the first message to write on a new connection, whose other side has received those up to `received`.
    ///
    /// # Errors
    /// When messages are missing here, or there.
    pub(crate) fn resume(&self, received: u64) -> Result<u64> {
        let outbox = self.outbox();
        if received >= outbox.first + outbox.frames.len() as u64 || received + 1 < outbox.first {
            return Err(crate::codec::malformed("the other side is at another place of the session"));
        }
        Ok(received + 1)
    }

    /// Notes that a message arrived. Returns whether it is new; one that was sent again is not.
    ///
    /// # Errors
    /// When messages before it are missing.
    pub(crate) fn arrived(&self, sequence: u64, bytes: usize) -> Result<bool> {
        let received = self.received.load(Ordering::Acquire);
        if sequence <= received {
            return Ok(false);
        }
        if sequence != received + 1 {
            return Err(crate::codec::malformed(format!("message {sequence} follows message {received}")));
        }
        self.received.store(sequence, Ordering::Release);
        self.traffic.received[0].fetch_add(1, Ordering::Relaxed);
        self.traffic.received[1].fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(true)
    }

    /// Notes that the next message was processed. The other side hears of it soon.
    pub(crate) fn done(&self) {
        let processed = self.processed.fetch_add(1, Ordering::AcqRel) + 1;
        if processed.is_multiple_of(self.ack_every) {
            self.work.notify_one();
        }
    }

    /// The number of the last message that arrived.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Acquire)
    }

    /// The number of the last message that was processed.
    pub(crate) fn processed(&self) -> u64 {
        self.processed.load(Ordering::Acquire)
    }

    /// Whether to acknowledge processed messages now, given the last acknowledgement.
    pub(crate) fn owes_ack(&self, told: u64) -> bool {
        self.processed() >= told + self.ack_every
    }

    /// Bytes and messages that arrived and were not processed.
    #[cfg_attr(not(any(feature = "server", test)), expect(dead_code, reason = "called by the server"))]
    pub(crate) fn backlog(&self) -> u64 {
        self.received().saturating_sub(self.processed())
    }

    /// Ends the link: those who wait for room get the error. The first reason stays.
    pub(crate) fn close(&self, reason: Option<Error>) {
        // Under the lock, so that nobody misses it between looking and waiting.
        let outbox = self.outbox();
        let _ = self.closed.set(reason);
        drop(outbox);
        self.room.notify_all();
        self.work.notify_one();
    }

    /// Ends the link once all messages are written.
    pub(crate) fn finish(&self, reason: Option<Error>) {
        self.outbox().finished.get_or_insert(reason);
        self.work.notify_one();
    }

    /// Whether no message comes any more.
    #[cfg_attr(not(feature = "client"), expect(dead_code, reason = "called by the client"))]
    pub(crate) fn is_finished(&self) -> bool {
        self.is_closed() || self.outbox().finished.is_some()
    }

    /// Why the link ended or is about to.
    pub(crate) fn reason(&self) -> Option<Error> {
        self.closed().or_else(|| self.outbox().finished.clone()).flatten()
    }

    /// Whether no message comes after this number.
    pub(crate) fn is_finished_after(&self, sequence: u64) -> bool {
        let outbox = self.outbox();
        outbox.finished.is_some() && sequence >= outbox.first + outbox.frames.len() as u64
    }

    /// Why the link ended, if it has.
    pub(crate) fn closed(&self) -> Option<Option<Error>> {
        self.closed.get().cloned()
    }

    /// Whether the link ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outbox {
    fn is_full(&self, bytes: usize) -> bool {
        let is_over = self.frames.len() >= self.window_messages || self.bytes + bytes > self.window_bytes;
        is_over && !self.frames.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn messages_stay_until_they_are_acknowledged() {
        let link = Link::new(8, 1 << 20, None);
        for number in 1..=3u32 {
            link.send(&number, &[]).unwrap();
        }
        assert_eq!(link.resume(1).unwrap(), 2);
        link.acknowledged(2).unwrap();
        assert!(link.frame(2).is_none() && link.frame(3).is_some() && link.frame(4).is_none());
        assert!(link.resume(0).is_err() && link.resume(4).is_err());
        assert!(link.acknowledged(4).is_err(), "never sent");
    }

    #[test]
    fn repeated_messages_are_known_and_gaps_are_errors() {
        let link = Link::new(8, 1 << 20, None);
        assert!(link.arrived(1, 0).unwrap() && link.arrived(2, 0).unwrap());
        assert!(!link.arrived(1, 0).unwrap());
        assert!(link.arrived(4, 0).is_err());
        assert_eq!(link.backlog(), 2);
    }

    #[test]
    fn a_full_window_waits_for_room_or_the_end() {
        let link = Arc::new(Link::new(1, 1 << 20, None));
        link.send(&1u32, &[]).unwrap();
        let waiting = std::thread::spawn({
            let link = link.clone();
            move || (link.send(&2u32, &[]), link.send(&3u32, &[]))
        });
        std::thread::sleep(Duration::from_millis(20));
        link.acknowledged(1).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        link.close(Some(Error::device("remote", "gone")));
        let (second, third) = waiting.join().unwrap();
        assert!(second.is_ok() && third.unwrap_err().to_string().contains("gone"));
    }
}
