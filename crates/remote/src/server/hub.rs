//! The sessions of a server: each a thread that runs its messages, and a link that connections come and go on.

use super::ServerOptions;
use super::metrics::{Metrics, add};
use crate::link::Link;
use crate::message::{Offer, Resume, Welcome};
use crate::session::{Session, Usage};
use kiln_ir::{Error, Result};
use kiln_tensor::Stack;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_tungstenite::tungstenite::Bytes;

/// All sessions of a server.
pub(super) struct Hub {
    pub(super) stack: Stack,
    pub(super) options: ServerOptions,
    pub(super) metrics: Metrics,
    sessions: Mutex<Sessions>,
    /// A session has ended.
    ended: Condvar,
}

#[derive(Default)]
struct Sessions {
    live: HashMap<u64, Arc<Live>>,
    next: u64,
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
    queue: Mutex<Option<SyncSender<Bytes>>>,
    usage: Mutex<Usage>,
    last_message: Mutex<Instant>,
    /// Held by the connection that runs.
    pub(super) connection: tokio::sync::Mutex<()>,
    /// The number of the newest connection, which takes over from earlier ones.
    pub(super) epoch: AtomicU64,
    pub(super) superseded: tokio::sync::Notify,
}

impl Hub {
    pub(super) fn new(stack: Stack, options: ServerOptions) -> Hub {
        Hub { stack, options, metrics: Metrics::default(), sessions: Mutex::default(), ended: Condvar::new() }
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
        self.metrics.text(sessions, &usage, traffic)
    }

    /// A new session, with its thread.
    ///
    /// # Errors
    /// When there are too many, or the server shuts down.
    pub(super) fn open(self: &Arc<Self>) -> Result<Arc<Live>> {
        let mut sessions = self.lock();
        if sessions.is_closed {
            return Err(Error::device("server", "the server shuts down"));
        }
        if sessions.live.len() >= self.options.sessions {
            let problem = format!("the server has {} sessions, and takes no more", self.options.sessions);
            return Err(Error::device("server", problem).hint("try again later, or raise the server's limit"));
        }
        sessions.next += 1;
        let id = sessions.next;
        let (queue, messages) = sync_channel(self.options.quotas.requests as usize + 1);
        let window = usize::try_from(self.options.window_bytes).unwrap_or(usize::MAX);
        let live = Arc::new(Live {
            id,
            secret: [random(), random()],
            link: Link::new(self.options.quotas.requests as usize, window),
            queue: Mutex::new(Some(queue)),
            usage: Mutex::default(),
            last_message: Mutex::new(Instant::now()),
            connection: tokio::sync::Mutex::default(),
            epoch: AtomicU64::new(0),
            superseded: tokio::sync::Notify::new(),
        });
        let thread = std::thread::Builder::new().name(format!("kiln-session-{id}")).spawn({
            let (hub, live) = (self.clone(), live.clone());
            move || hub.serve(&live, messages)
        });
        thread.map_err(|error| Error::device("server", format!("no thread for a session: {error}")))?;
        sessions.live.insert(id, live.clone());
        self.metrics.opened.fetch_add(1, Ordering::Relaxed);
        log::info!("session {id} opened");
        Ok(live)
    }

    /// The session that a client goes on with.
    ///
    /// # Errors
    /// When there is none with that number and secret.
    pub(super) fn resume(&self, resume: &Resume) -> Result<Arc<Live>> {
        let live = self.lock().live.get(&resume.session).cloned();
        let live = live.filter(|live| live.secret == resume.secret && !live.link.is_closed());
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
    fn serve(&self, live: &Arc<Live>, messages: Receiver<Bytes>) {
        let mut session = Session::new(self.stack.clone(), self.options.quotas);
        for message in messages {
            if live.link.is_closed() {
                break;
            }
            let handle = || session.handle(&message, &mut |reply, tail| live.link.send(&reply, tail));
            let outcome = catch_unwind(AssertUnwindSafe(handle));
            *locked(&live.usage) = session.usage();
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
            log::error!("dropping the values of session {} panicked", live.id);
        }
        live.link.finish(Some(Error::device("server", "the server shuts down")));
        if let Some(error) = live.link.closed().flatten() {
            self.metrics.failed.fetch_add(1, Ordering::Relaxed);
            log::warn!("session {} failed: {error}", live.id);
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
        log::info!("session {} ended", live.id);
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
            live.take_no_more();
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
    /// When more wait than the client may send.
    pub(super) fn deliver(&self, message: Bytes) -> Result<()> {
        *locked(&self.last_message) = Instant::now();
        let queue = locked(&self.queue);
        // The thread takes no more: the link tells the client why.
        let Some(queue) = &*queue else { return Ok(()) };
        match queue.try_send(message) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
            Err(TrySendError::Full(_)) => Err(crate::codec::malformed("more messages than the window holds")),
        }
    }

    /// Ends the session: because its client is done, or for an error.
    pub(super) fn end(&self, reason: Option<Error>) {
        self.link.close(reason);
        self.take_no_more();
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

/// 64 bits that others cannot guess: keys of the standard library's hasher come from the system.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
