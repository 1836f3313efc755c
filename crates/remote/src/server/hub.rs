//! The sessions of a server: each a thread that runs its messages, and a link that connections come and go on.

use super::ServerOptions;
use super::metrics::{Metrics, add};
use super::{machine, options::same_secret};
use crate::budget::{Account, Budget, Charge};
use crate::codec::MAX_FRAME;
use crate::link::Link;
use crate::message::{Offer, Resume, Welcome};
use crate::session::{Session, Usage};
use kiln_ir::{Error, Result};
use kiln_tensor::Stack;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_tungstenite::tungstenite::Bytes;

/// All sessions of a server.
pub(super) struct Hub {
    pub(super) stack: Stack,
    pub(super) options: ServerOptions,
    pub(super) metrics: Metrics,
    budget: Arc<Budget>,
    sessions: Mutex<Sessions>,
    /// A session has ended.
    ended: Condvar,
}

#[derive(Default)]
struct Sessions {
    live: HashMap<u64, Arc<Live>>,
    /// The usage of ended sessions.
    past: Usage,
    past_traffic: [u64; 4],
    is_closed: bool,
}

/// A session, as connections see it.
pub(super) struct Live {
    pub(super) id: u64,
    secret: [u64; 2],
    pub(super) link: Link,
    /// Messages for the session's thread; `None` once no more are taken.
    queue: Mutex<Option<SyncSender<(Bytes, Charge)>>>,
    /// The bytes of these messages.
    queued: Arc<Account>,
    usage: Mutex<Usage>,
    last_message: Mutex<Instant>,
    /// Since when it has no connection, if so. Its work waits meanwhile.
    detached: Mutex<Option<Instant>>,
    is_detached: AtomicBool,
    /// It has a connection again, or has ended.
    returned: Condvar,
    /// Held by the connection that runs.
    pub(super) connection: tokio::sync::Mutex<()>,
    /// The number of the newest connection, which takes over from earlier ones.
    pub(super) epoch: AtomicU64,
    pub(super) superseded: tokio::sync::Notify,
}

impl Hub {
    pub(super) fn new(stack: Stack, options: ServerOptions) -> Hub {
        let of_device = stack.engine().caps().machine.memory_bytes;
        let budget = Budget::new(options.memory.unwrap_or_else(|| machine::memory(of_device)));
        let (metrics, sessions, ended) = (Metrics::default(), Mutex::default(), Condvar::new());
        Hub { stack, options, metrics, budget, sessions, ended }
    }

    pub(super) fn device(&self) -> &str {
        self.stack.device_name()
    }

    pub(super) fn is_encrypted(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.options.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    pub(super) fn sessions(&self) -> usize {
        self.lock().live.len()
    }

    pub(super) fn usage(&self) -> Usage {
        let sessions = self.lock();
        sessions.live.values().fold(sessions.past, |sum, live| add(sum, *locked(&live.usage)))
    }

    pub(super) fn metrics(&self) -> String {
        let (sessions, usage) = (self.sessions(), self.usage());
        let traffic = {
            let sessions = self.lock();
            let all = sessions.live.values().map(|live| traffic(&live.link));
            all.fold(sessions.past_traffic, |sum, more| std::array::from_fn(|place| sum[place] + more[place]))
        };
        self.metrics.text(sessions, &usage, self.budget.used(), traffic)
    }

    /// A new session, with its thread. Where places are short, it takes that of the session whose client is away for longest.
    ///
    /// # Errors
    /// When there are too many, or the server shuts down.
    pub(super) fn open(self: &Arc<Self>) -> Result<Arc<Live>> {
        let mut sessions = self.lock();
        if sessions.is_closed {
            return Err(Error::device("server", "the server shuts down"));
        }
        let most = self.options.sessions;
        let open = sessions.live.values().filter(|live| !live.link.is_closed());
        if open.clone().count() >= most {
            let away = open.filter_map(|live| Some(((*locked(&live.detached))?, live)));
            let Some((_, away)) = away.min_by_key(|(since, _)| *since) else { return Err(full(most)) };
            away.fail(Error::device("server", "its client was away, and another one needed the place"));
        }
        // Those that have ended may still run an op.
        if sessions.live.len() >= most.saturating_mul(2).saturating_add(8) {
            return Err(full(most));
        }
        let [id, first, second] = random()?;
        if id == 0 || sessions.live.contains_key(&id) {
            return Err(Error::device("server", "the number of a session is taken").hint("try again"));
        }
        let (queue, messages) = sync_channel(self.options.quotas.requests as usize + 1);
        let window = usize::try_from(self.options.window_bytes).unwrap_or(usize::MAX);
        // The headers of messages do not count in the client's window.
        let queued = self.options.window_bytes.saturating_add(MAX_FRAME as u64);
        let replies = self.budget.account("replies on the way", u64::MAX);
        let live = Arc::new(Live {
            id,
            secret: [first, second],
            link: Link::new(self.options.quotas.requests as usize, window, Some(replies)),
            queue: Mutex::new(Some(queue)),
            queued: self.budget.account("messages that wait", queued),
            usage: Mutex::default(),
            last_message: Mutex::new(Instant::now()),
            detached: Mutex::default(),
            is_detached: AtomicBool::new(false),
            returned: Condvar::new(),
            connection: tokio::sync::Mutex::default(),
            epoch: AtomicU64::new(0),
            superseded: tokio::sync::Notify::new(),
        });
        let thread = std::thread::Builder::new().name("kiln-session".into()).spawn({
            let (hub, live) = (self.clone(), live.clone());
            move || hub.serve(&live, messages)
        });
        thread.map_err(|error| Error::device("server", format!("no thread for a session: {error}")))?;
        sessions.live.insert(id, live.clone());
        self.metrics.opened.fetch_add(1, Ordering::Relaxed);
        log::info!("session {id:x} opened");
        Ok(live)
    }

    /// The session that a client goes on with.
    ///
    /// # Errors
    /// When there is none with that number and secret.
    pub(super) fn resume(&self, resume: &Resume) -> Result<Arc<Live>> {
        let live = self.lock().live.get(&resume.session).cloned();
        let live = live.filter(|live| {
            let bytes = |secret: [u64; 2]| secret.map(u64::to_le_bytes).concat();
            same_secret(&bytes(live.secret), &bytes(resume.secret)) && !live.link.is_closed()
        });
        live.ok_or_else(|| {
            Error::device("server", "there is no such session: it has ended, or the server was restarted")
                .hint("its tensors are lost: start the program again")
        })
    }

    pub(super) fn welcome(&self, live: &Live) -> Welcome {
        let stack = &self.stack;
        let dtypes = [stack.float_dtype(), stack.int_dtype()];
        let offer = Offer::new(stack.engine().caps(), stack.device_name(), dtypes);
        Welcome {
            session: live.id,
            secret: live.secret,
            received: live.link.received(),
            window_messages: self.options.quotas.requests,
            window_bytes: self.options.window_bytes,
            programs: u32::try_from(self.options.quotas.programs).unwrap_or(u32::MAX),
            grace_millis: millis(self.options.grace),
            heartbeat_millis: millis(self.options.heartbeat),
            offer: Offer { tracks_memory: stack.memory().is_some(), ..offer },
        }
    }

    /// Runs a session's messages until it ends. Its values are dropped on this thread, as engines that record by thread want.
    fn serve(&self, live: &Arc<Live>, messages: Receiver<(Bytes, Charge)>) {
        let goes_on = Box::new({
            let live = live.clone();
            move || live.goes_on()
        });
        let mut session = Session::within(self.stack.clone(), self.options.quotas, &self.budget, goes_on);
        for (message, charge) in messages {
            if !live.goes_on() {
                break;
            }
            let handle = || session.handle(&message, &mut |reply, tail| live.link.send(&reply, tail));
            let outcome = catch_unwind(AssertUnwindSafe(handle));
            *locked(&live.usage) = session.usage();
            drop((message, charge));
            live.link.done();
            match outcome {
                Ok(Ok(())) => {}
                Ok(Err(error)) => live.fail(error),
                Err(_) => {
                    live.fail(Error::device("server", "a message made the server panic: a bug of Kiln's"))
                }
            }
        }
        // A panic of an engine may leave values whose drop panics too.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(session)));
        if dropped.is_err() {
            log::error!("dropping the values of session {:x} panicked", live.id);
        }
        live.link.finish(Some(Error::device("server", "the server shuts down")));
        if let Some(error) = live.link.closed().flatten() {
            self.metrics.failed.fetch_add(1, Ordering::Relaxed);
            log::warn!("session {:x} failed: {error}", live.id);
        }
        self.remove(live);
    }

    fn remove(&self, live: &Live) {
        let mut sessions = self.lock();
        let done = *locked(&live.usage);
        let done = Usage { tensors: 0, bytes: 0, programs: 0, ..done };
        *locked(&live.usage) = Usage::default();
        sessions.past = add(sessions.past, done);
        let more = traffic(&live.link);
        sessions.past_traffic = std::array::from_fn(|place| sessions.past_traffic[place] + more[place]);
        sessions.live.remove(&live.id);
        log::info!("session {:x} ended", live.id);
        drop(sessions);
        self.ended.notify_all();
    }

    /// Ends sessions that have sent nothing for long.
    pub(super) fn end_idle(&self) {
        let idle = self.options.idle;
        let all: Vec<Arc<Live>> = self.lock().live.values().cloned().collect();
        for live in
            all.iter().filter(|live| live.link.backlog() == 0 && locked(&live.last_message).elapsed() > idle)
        {
            let problem = format!("the session was idle for {idle:?}");
            live.fail(Error::device("server", problem).hint("raise the server's idle timeout"));
        }
    }

    /// Takes no more sessions and messages, and waits until the sessions have ended.
    pub(super) fn drain(&self, patience: Duration) {
        let mut sessions = self.lock();
        sessions.is_closed = true;
        for live in sessions.live.values() {
            match locked(&live.detached).is_some() {
                true => live.fail(Error::device("server", "the server shuts down")),
                false => live.take_no_more(),
            }
        }
        let is_busy = |sessions: &mut Sessions| !sessions.live.is_empty();
        drop(self.ended.wait_timeout_while(sessions, patience, is_busy));
    }

    /// Ends all sessions.
    pub(super) fn close(&self, error: &Error) {
        let mut sessions = self.lock();
        sessions.is_closed = true;
        for live in sessions.live.values() {
            live.fail(error.clone());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        locked(&self.sessions)
    }
}

impl Live {
    /// Gives a message to the session's thread.
    ///
    /// # Errors
    /// When more wait than the client may send, or the server has no room for it.
    pub(super) fn deliver(&self, message: Bytes) -> Result<()> {
        *locked(&self.last_message) = Instant::now();
        let queue = locked(&self.queue);
        // The thread takes no more: the link tells the client why.
        let Some(queue) = &*queue else { return Ok(()) };
        let charge = self.queued.charge(message.len() as u64)?;
        match queue.try_send((message, charge)) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
            Err(TrySendError::Full(_)) => Err(crate::codec::malformed("more messages than the window holds")),
        }
    }

    /// Ends the session: because its client is done, or for an error.
    pub(super) fn end(&self, reason: Option<Error>) {
        self.link.close(reason);
        self.take_no_more();
        // Under the lock, so that a thread that is about to wait sees it.
        drop(locked(&self.detached));
        self.returned.notify_all();
    }

    /// Notes whether the session has a connection.
    pub(super) fn set_attached(&self, is_attached: bool) {
        let mut detached = locked(&self.detached);
        *detached = (!is_attached).then(|| detached.unwrap_or_else(Instant::now));
        self.is_detached.store(!is_attached, Ordering::Release);
        drop(detached);
        self.returned.notify_all();
    }

    /// Whether the session goes on. Waits while its client is away: nobody may want the work.
    fn goes_on(&self) -> bool {
        if self.is_detached.load(Ordering::Acquire) {
            let detached = locked(&self.detached);
            let is_away = |detached: &mut Option<Instant>| detached.is_some() && !self.link.is_closed();
            drop(self.returned.wait_while(detached, is_away));
        }
        !self.link.is_closed()
    }

    pub(super) fn fail(&self, error: Error) {
        self.end(Some(error));
    }

    fn take_no_more(&self) {
        locked(&self.queue).take();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Messages and bytes from clients, then to them.
fn traffic(link: &Link) -> [u64; 4] {
    let [received, sent] = [&link.traffic.received, &link.traffic.sent];
    [&received[0], &received[1], &sent[0], &sent[1]].map(|counter| counter.load(Ordering::Relaxed))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A number and a secret that others cannot guess.
fn random() -> Result<[u64; 3]> {
    let mut bytes = [[0; 8]; 3];
    let failed = |error| Error::device("server", format!("the system has no random numbers: {error}"));
    getrandom::fill(bytes.as_flattened_mut()).map_err(failed)?;
    Ok(bytes.map(u64::from_le_bytes))
}

fn full(sessions: usize) -> Error {
    Error::device("server", format!("the server has {sessions} sessions, and takes no more"))
        .hint("try again later, or raise the server's limit")
}
