//! Groups of threads, whose collectives run in this process.
//!
//! The members exchange their operands here, in host memory. [`Expand`](crate::Expand) computes the results.

use crate::{Collective, CollectiveKind, Error, Result, TensorData, TensorType};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock};

/// A group whose members are threads of this process, each with an engine of its own: it runs
/// [collectives](crate::Collective) of several members.
///
/// [`join`](ThreadGroup::join) returns one [`GroupMember`] for each rank. Give each to a thread, and drop it where the
/// thread no longer takes part. Between these points the thread emits collectives with [`id`](ThreadGroup::id) as the
/// group. Each one waits until all members call the same collective on operands of the same type. Results are computed
/// in rank order, so all members get the same bits, in each run, if their engines compute alike.
///
/// A call never waits forever. It returns an error when a member leaves, [fails](GroupMember::fail) or panics, when the
/// members call different collectives, and when all members wait for each other.
///
/// ```
/// use kiln_ir::{Collective, CollectiveKind, Engine, Expand, Op, Reduction, TensorData, ThreadGroup, Value, Var};
/// use kiln_reference::Reference;
///
/// let group = ThreadGroup::new(2);
/// let threads: Vec<_> = group.join()?.into_iter().map(|member| {
///     std::thread::spawn(move || {
///         let engine = Expand::new(Reference::new());
///         let x = engine.write(TensorData::from([1.0f32 + member.rank() as f32]));
///         let sum = CollectiveKind::AllReduce(Reduction::Sum);
///         let y = Var::new(&engine, x).apply(Op::Collective(member.collective(sum)), &[]);
///         kiln_ir::block_on(engine.read(y.into_value()))
///     })
/// }).collect();
/// for thread in threads {
///     assert_eq!(thread.join().unwrap()?.to_vec::<f32>(), [3.0]);
/// }
/// # Ok::<(), kiln_ir::Error>(())
/// ```
pub struct ThreadGroup(Arc<Exchange>);

/// A member of a [`ThreadGroup`]. Dropping it leaves the group: calls that wait for this member, now or later, return
/// an error.
pub struct GroupMember {
    exchange: Arc<Exchange>,
    rank: usize,
    session: u64,
}

/// The groups of the process by id.
static GROUPS: RwLock<BTreeMap<u64, Weak<Exchange>>> = RwLock::new(BTreeMap::new());

/// The id of the next group. Lower ids are left to engines that communicate.
static NEXT_ID: AtomicU64 = AtomicU64::new(1 << 20);

/// The group of an id, if it is a [`ThreadGroup`].
pub(crate) fn find(id: u64) -> Option<Arc<Exchange>> {
    GROUPS.read().unwrap_or_else(PoisonError::into_inner).get(&id)?.upgrade()
}

impl ThreadGroup {
    /// Creates a group of `size` members and registers it under an id that is unique in the process. Dropping the group
    /// unregisters it.
    ///
    /// # Panics
    /// When `size` is 0.
    #[track_caller]
    pub fn new(size: usize) -> ThreadGroup {
        assert!(size > 0, "[thread_group] a group needs at least one member");
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let members = (0..size).map(|_| Member::default()).collect();
        let state = State { members, ..State::default() };
        let exchange = Arc::new(Exchange { id, size, state: Mutex::new(state), changed: Condvar::new() });
        let registered = Arc::downgrade(&exchange);
        GROUPS.write().unwrap_or_else(PoisonError::into_inner).insert(id, registered);
        ThreadGroup(exchange)
    }

    /// Returns the id, for [`Collective::group`].
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Returns the number of members.
    pub fn size(&self) -> usize {
        self.0.size
    }

    /// Returns the members, by rank. Messages and failures of former members are forgotten.
    ///
    /// # Errors
    /// When a former member has not left.
    pub fn join(&self) -> Result<Vec<GroupMember>> {
        let mut state = self.0.lock();
        if let Some(rank) = state.members.iter().position(|member| member.is_present) {
            let problem = format!("member {rank} has not left");
            return Err(self.0.error(problem).hint("drop the members of before first"));
        }
        let members = (0..self.0.size).map(|_| Member { is_present: true, ..Member::default() }).collect();
        let session = state.session + 1;
        *state = State { members, session, ..State::default() };
        Ok((0..self.0.size).map(|rank| GroupMember { exchange: self.0.clone(), rank, session }).collect())
    }

    /// Returns the rank of the member that failed first, if one did: it panicked, [failed](GroupMember::fail) or took
    /// part with an operand in error. A member that left is not one of these.
    pub fn first_failure(&self) -> Option<usize> {
        self.0.lock().first_failure
    }
}

impl Drop for ThreadGroup {
    fn drop(&mut self) {
        GROUPS.write().unwrap_or_else(PoisonError::into_inner).remove(&self.0.id);
    }
}

impl fmt::Debug for ThreadGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadGroup").field("id", &self.0.id).field("size", &self.0.size).finish()
    }
}

impl GroupMember {
    /// Returns the rank, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of members.
    pub fn size(&self) -> usize {
        self.exchange.size
    }

    /// Returns the id of the group.
    pub fn group(&self) -> u64 {
        self.exchange.id
    }

    /// Returns a collective of this member, for [`Op::Collective`](crate::Op::Collective).
    pub fn collective(&self, kind: CollectiveKind) -> Collective {
        Collective { kind, group: self.exchange.id, rank: self.rank, size: self.exchange.size }
    }

    /// Leaves the group with an error: all waiting and later calls of the other members return an error with this text.
    pub fn fail(self, problem: impl fmt::Display) {
        self.leave(Some(format!("failed: {problem}")));
    }

    fn leave(&self, failure: Option<String>) {
        let mut state = self.exchange.lock();
        if state.session != self.session || !state.members[self.rank].is_present {
            return;
        }
        state.members[self.rank].is_present = false;
        if let Some(problem) = failure {
            state.first_failure.get_or_insert(self.rank);
            state.failure.get_or_insert_with(|| format!("member {} {problem}", self.rank));
        }
        drop(state);
        self.exchange.changed.notify_all();
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        self.leave(std::thread::panicking().then(|| "panicked".to_string()));
    }
}

impl fmt::Debug for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupMember { exchange, rank, session: _ } = self;
        f.debug_struct("GroupMember").field("group", &exchange.id).field("rank", rank).finish_non_exhaustive()
    }
}

/// The meeting point of a group's members.
pub(crate) struct Exchange {
    id: u64,
    size: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Counts the calls of [`ThreadGroup::join`].
    session: u64,
    members: Vec<Member>,
    /// The open meetings by their number. Each member numbers its calls from 0.
    meetings: BTreeMap<u64, Meeting>,
    messages: BTreeMap<Channel, VecDeque<Message>>,
    /// The failure that all waiting and later calls return.
    failure: Option<String>,
    first_failure: Option<usize>,
}

#[derive(Clone, Default)]
struct Member {
    is_present: bool,
    /// The number of meetings that it has taken part in.
    calls: u64,
    waits: Option<Wait>,
}

/// The operands of one call of all members.
struct Meeting {
    parts: Vec<Option<Part>>,
    /// The number of members that have the parts.
    taken: usize,
}

/// The operand of one member.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) kind: CollectiveKind,
    pub(crate) ty: TensorType,
    /// `None` if no other member reads it.
    pub(crate) data: Option<Message>,
}

/// A tensor in host memory, or the error of its computation.
pub(crate) type Message = Result<Arc<TensorData>>;

/// The order of messages is that of their sender, for each receiver and tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Channel {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) tag: u32,
}

/// The reason why a member waits.
#[derive(Clone, Copy)]
enum Wait {
    Meeting(u64, CollectiveKind),
    Message(Channel),
}

impl Exchange {
    /// Checks the size of a call.
    pub(crate) fn check(&self, call: &Collective) -> Result<()> {
        if call.size == self.size {
            return Ok(());
        }
        let Collective { rank, size, .. } = call;
        Err(self.error(format!("has {} members, but member {rank} calls it with {size}", self.size)))
    }

    /// Waits until all members take part, and returns their parts by rank.
    pub(crate) fn meet(&self, rank: usize, part: Part) -> Result<Vec<Part>> {
        let mut state = self.enter(rank)?;
        let number = state.members[rank].calls;
        state.members[rank].calls += 1;
        if let Some(Err(_)) = part.data {
            state.first_failure.get_or_insert(rank);
        }
        let kind = part.kind;
        let size = self.size;
        let meeting = state
            .meetings
            .entry(number)
            .or_insert_with(|| Meeting { parts: (0..size).map(|_| None).collect(), taken: 0 });
        meeting.parts[rank] = Some(part);
        self.changed.notify_all();
        let parts = self.wait(state, rank, Wait::Meeting(number, kind), |state| {
            let meeting = state.meetings.get_mut(&number)?;
            let parts = meeting.parts.iter().cloned().collect::<Option<Vec<Part>>>()?;
            meeting.taken += 1;
            if meeting.taken == parts.len() {
                state.meetings.remove(&number);
            }
            Some(parts)
        })?;
        self.check_alike(&parts)?;
        Ok(parts)
    }

    /// Sends a message. Does not wait for the receiver.
    pub(crate) fn send(&self, channel: Channel, message: Message) -> Result<()> {
        let mut state = self.enter(channel.from)?;
        if !state.members[channel.to].is_present {
            return Err(self.gone(channel.to, channel.from, "send"));
        }
        if message.is_err() {
            state.first_failure.get_or_insert(channel.from);
        }
        state.messages.entry(channel).or_default().push_back(message);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for a message.
    pub(crate) fn receive(&self, channel: Channel) -> Result<Arc<TensorData>> {
        let state = self.enter(channel.to)?;
        let received = self.wait(state, channel.to, Wait::Message(channel), |state| {
            state.messages.get_mut(&channel)?.pop_front()
        })?;
        received.map_err(|error| self.error(format!("member {}: {error}", channel.from)))
    }

    /// The error of another member's operand.
    pub(crate) fn error_of(&self, rank: usize, error: &Error) -> Error {
        self.error(format!("the operand of member {rank} is in error: {error}"))
    }

    pub(crate) fn error(&self, problem: impl Into<String>) -> Error {
        Error::device(&format!("group {}", self.id), problem)
    }

    /// Locks the state for a call of a member.
    fn enter(&self, rank: usize) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(self.error(failure.clone()));
        }
        if !state.members[rank].is_present {
            let problem = format!("member {rank} calls a collective, but is not in the group");
            return Err(self.error(problem).hint("keep the `GroupMember` until the last call"));
        }
        Ok(state)
    }

    /// Waits until `ready` returns a result, or cannot do so any more.
    fn wait<R>(
        &self,
        mut state: MutexGuard<'_, State>,
        rank: usize,
        wait: Wait,
        mut ready: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R> {
        let session = state.session;
        loop {
            if state.session != session {
                return Err(self.error(format!("member {rank} left during a call")));
            }
            state.members[rank].waits = None;
            if let Some(result) = ready(&mut state) {
                return Ok(result);
            }
            if let Some(error) = self.obstacle(&state, rank, wait) {
                return Err(error);
            }
            state.members[rank].waits = Some(wait);
            if state.is_stuck() {
                let waits = state.members.iter().enumerate();
                let waits =
                    waits.filter_map(|(rank, member)| Some(format!("member {rank} in {}", member.waits?)));
                let waits: Vec<String> = waits.collect();
                state.failure = Some(format!("all members wait for each other: {}", waits.join(", ")));
                self.changed.notify_all();
                continue;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The reason why a member would wait forever, if there is one.
    fn obstacle(&self, state: &State, rank: usize, wait: Wait) -> Option<Error> {
        if let Some(failure) = &state.failure {
            return Some(self.error(failure.clone()));
        }
        let is_gone = |other: &usize| !state.members[*other].is_present;
        let gone = match wait {
            Wait::Meeting(number, _) => {
                let parts = &state.meetings.get(&number)?.parts;
                (0..self.size).find(|other| parts[*other].is_none() && is_gone(other))
            }
            Wait::Message(channel) => Some(channel.from).filter(is_gone),
        };
        gone.map(|gone| self.gone(gone, rank, wait.name()))
    }

    /// The error of a call that needs a member that left.
    fn gone(&self, gone: usize, rank: usize, op: &str) -> Error {
        let problem = format!("member {gone} has left, but member {rank} calls `{op}`");
        self.error(problem).hint("all members must call the same collectives in the same order")
    }

    /// Checks that all members called the same collective.
    fn check_alike(&self, parts: &[Part]) -> Result<()> {
        let first = &parts[0];
        let is_other = |part: &Part| part.kind != first.kind || part.ty != first.ty;
        let Some(rank) = parts.iter().position(is_other) else { return Ok(()) };
        let problem = format!("member 0 calls {first}, but member {rank} calls {}", parts[rank]);
        Err(self.error(problem).hint("all members must call the same collectives in the same order"))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether every member that is present waits, and none of them can go on.
    fn is_stuck(&self) -> bool {
        self.members.iter().filter(|member| member.is_present).all(|member| match member.waits {
            None => false,
            Some(Wait::Meeting(number, _)) => {
                self.meetings.get(&number).is_some_and(|meeting| meeting.parts.iter().any(Option::is_none))
            }
            Some(Wait::Message(channel)) => self.messages.get(&channel).is_none_or(VecDeque::is_empty),
        })
    }
}

impl Wait {
    fn name(self) -> &'static str {
        match self {
            Wait::Meeting(_, kind) => name(kind),
            Wait::Message(_) => "recv",
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Meeting(_, kind) => write!(f, "`{}`", name(*kind)),
            Wait::Message(Channel { from, tag, .. }) => write!(f, "`recv` from member {from} with tag {tag}"),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", name(self.kind))?;
        match self.kind {
            CollectiveKind::AllReduce(reduction) => write!(f, " ({})", reduction.name())?,
            CollectiveKind::AllGather { axis } => write!(f, " (axis {axis})")?,
            CollectiveKind::ReduceScatter { reduction, axis } => {
                write!(f, " ({}, axis {axis})", reduction.name())?;
            }
            CollectiveKind::Broadcast { root } => write!(f, " (root {root})")?,
            CollectiveKind::Send { .. } | CollectiveKind::Recv { .. } => {}
        }
        write!(f, " of {}", self.ty)
    }
}

fn name(kind: CollectiveKind) -> &'static str {
    match kind {
        CollectiveKind::AllReduce(_) => "all_reduce",
        CollectiveKind::AllGather { .. } => "all_gather",
        CollectiveKind::ReduceScatter { .. } => "reduce_scatter",
        CollectiveKind::Broadcast { .. } => "collective_broadcast",
        CollectiveKind::Send { .. } => "send",
        CollectiveKind::Recv { .. } => "recv",
    }
}
