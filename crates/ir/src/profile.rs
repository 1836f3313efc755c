//! Profiling: the time and the work of each part of a program, on one thread.
//!
//! A program has no call that enters a module, so that a module is known by its parameters: reading a parameter
//! ([`read_parameter`]) starts the part of its module, which lasts until a parameter of another module is read. An
//! activation after a convolution thus counts with the convolution. [`scope`] runs a function as a part of its own.
//! Automatic differentiation runs the gradient rule of each op in the part that recorded it.
//!
//! * **Time.** When the part changes, the profiler waits for the devices ([`Engine::sync`]) and adds the time since the
//!   last change to the part that ends. It is the time of the device and of launching the ops. Ops fuse within a part,
//!   and not across parts.
//! * **Work.** Each op counts once, where it enters the engines below automatic differentiation, before fusion.
//!   [`cost`](fn@crate::cost) gives its arithmetic operations. The bytes of a part are those of the values that it
//!   reads from other parts, once per run of the part, and of its own values that other parts read: the least that a
//!   device with a large cache would move.
//!
//! Without a running profile, each place costs one read of a thread-local number.

mod data_flow;

use self::data_flow::DataFlow;
use crate::{
    BoxFuture, Cost, Engine, FxBuildHasher, Op, OperandType, Operands, TensorType, Values, anomaly, cost,
    try_block_on,
};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::HashMap;
use std::time::Instant;

/// The time and the work of each part of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The parts, modules first. Parts without calls, time and work are included.
    pub parts: Vec<Part>,
}

/// A part of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The name: the path of a module, or that of a [`scope`].
    pub name: String,
    /// The kind.
    pub kind: PartKind,
    /// The number of forward passes: for a module how often its parameters were read, for a scope how often it ran.
    pub calls: u64,
    /// The forward pass; for an optimizer its update.
    pub forward: Measured,
    /// The backward pass.
    pub backward: Measured,
}

/// The kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartKind {
    /// A module with parameters.
    Module,
    /// A function that ran in a [`scope`].
    Scope,
    /// The update of an optimizer.
    Optimizer,
    /// Ops before the first parameter is read.
    Input,
    /// Ops after a backward pass or an update, and those of parameters that belong to no module.
    Other,
}

/// A measured pass of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// The time.
    pub time: Duration,
    /// Arithmetic operations, and bytes that enter or leave the part.
    pub work: Cost,
}

/// A module for [`start`]: its path, and the ids of its parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfiledModule {
    /// The dotted path.
    pub path: String,
    /// The ids of its own parameters, without those of the modules inside.
    pub parameters: Vec<u64>,
}

std::thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Off) };
    static SESSION: RefCell<Option<Session>> = const { RefCell::new(None) };
}

/// Whether this thread is profiled, and what the engines count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Off,
    /// Within an op that is counted: ops of its expansion do not count.
    Inside,
    /// Within a custom op: the arithmetic operations of its expansion count, since those of the op are unknown.
    InsideCustom,
    /// Every op counts.
    On,
    /// The results of every op are checked; see [`anomaly`].
    Checking,
}

/// The parts that exist in every profile, before the modules.
const INPUT: usize = 0;
const OTHER: usize = 1;

/// A pass of a part.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    part: usize,
    is_backward: bool,
}

/// A running profile.
struct Session {
    engines: Vec<Arc<dyn Engine>>,
    /// The addresses of these engines and of those below them. Other engines, such as recorders of programs, do not
    /// count.
    addresses: Vec<usize>,
    parts: Vec<Part>,
    /// The part of each parameter, and how often it was read.
    parameters: HashMap<u64, (usize, u64), FxBuildHasher>,
    place: Place,
    /// Whether parameters do not change the part.
    is_pinned: bool,
    since: Instant,
    /// The parts of recorded nodes: the first id of each run of nodes.
    nodes: Vec<(u64, usize)>,
    data: DataFlow,
}

/// Starts a profile of this thread. A running one ends without a result.
///
/// `engines` are the engines that the program runs on; their queued work is done before the profile starts.
pub fn start(engines: Vec<Arc<dyn Engine>>, modules: Vec<ProfiledModule>) {
    stop();
    sync(&engines);
    let mut parts = Vec::from([
        Part::new("input".to_owned(), PartKind::Input),
        Part::new("other".to_owned(), PartKind::Other),
    ]);
    let mut parameters = HashMap::default();
    for module in modules {
        parameters.extend(module.parameters.into_iter().map(|id| (id, (parts.len(), 0))));
        parts.push(Part::new(module.path, PartKind::Module));
    }
    let layers = engines.iter().flat_map(|engine| engine.layers());
    let session = Session {
        addresses: layers.map(address).collect(),
        engines,
        parts,
        parameters,
        place: Place { part: INPUT, is_backward: false },
        is_pinned: false,
        since: Instant::now(),
        nodes: Vec::new(),
        data: DataFlow::default(),
    };
    SESSION.set(Some(session));
    STATE.set(State::On);
}

/// Ends the profile of this thread, after queued work is done. `None` if there is none.
pub fn stop() -> Option<Profile> {
    if STATE.get() == State::Off {
        return None;
    }
    sync(&with_session(|session| session.engines.clone())?);
    STATE.set(State::Off);
    let mut session = SESSION.take()?;
    session.enter(session.place);
    Some(session.finish())
}

/// Returns whether this thread is profiled.
#[inline]
pub fn is_on() -> bool {
    STATE.get() != State::Off
}

/// Runs a function as a part of its own, with this name. Parameters that it reads do not change the part; a scope
/// inside does. Its backward pass counts with it too.
///
/// ```
/// use kiln_ir::profile;
///
/// profile::start(Vec::new(), Vec::new());
/// assert_eq!(profile::scope("preprocessing", || 1 + 1), 2);
/// let profile = profile::stop().unwrap();
/// assert!(profile.parts.iter().any(|part| part.name == "preprocessing" && part.calls == 1));
/// ```
pub fn scope<T>(name: &str, run: impl FnOnce() -> T) -> T {
    in_part(Some((name, PartKind::Scope)), run)
}

/// Runs the update of an optimizer as a part of its own, with the name `optimizer NAME`.
pub fn optimizer<T>(name: &str, run: impl FnOnce() -> T) -> T {
    if !is_on() {
        return run();
    }
    in_part(Some((&alloc::format!("optimizer {name}"), PartKind::Optimizer)), run)
}

/// Runs a function outside of the scopes around it: parameters that it reads change the part. For a model that an
/// optimizer evaluates.
pub fn outside_scopes<T>(run: impl FnOnce() -> T) -> T {
    in_part(None, run)
}

fn in_part<T>(named: Option<(&str, PartKind)>, run: impl FnOnce() -> T) -> T {
    if !is_on() {
        return run();
    }
    let _restore = with_session(|session| {
        let part = match named {
            Some((name, kind)) => session.called(name, kind),
            None => OTHER,
        };
        (Place { part, ..session.place }, Restore::of(session))
    })
    .map(|(place, restore)| {
        enter(place);
        with_session(|session| session.is_pinned = named.is_some());
        restore
    });
    run()
}

/// Tells the profile that a parameter is read: its module's part starts.
#[inline]
pub fn read_parameter(id: u64) {
    if is_on() {
        change_module(id);
    }
}

/// Tells the profile that automatic differentiation records a node. Later nodes have greater ids.
#[inline]
pub fn record_node(id: u64) {
    if is_on() {
        with_session(|session| session.record_node(id));
    }
}

/// Starts a backward pass, which ends when the guard is dropped. Ops after it belong to no module, until the next
/// parameter is read.
#[inline]
pub fn backward() -> Option<Restore> {
    if !is_on() {
        return None;
    }
    let restore = with_session(|session| {
        let mut restore = Restore::of(session);
        if !session.is_pinned && !session.place.is_backward {
            restore.place.part = OTHER;
        }
        session.is_pinned = false;
        restore
    });
    if restore.is_some() {
        enter(Place { part: OTHER, is_backward: true });
    }
    restore
}

/// Tells the profile that a backward pass runs the gradient rule of a node: the part starts that recorded the node.
#[inline]
pub fn backward_of(id: u64) {
    if is_on() {
        let part = with_session(|session| session.part_of(id)).unwrap_or(OTHER);
        enter(Place { part, is_backward: true });
    }
}

/// Returns whether an engine passes this op to [`counted`].
#[inline]
pub fn counts(op: &Op) -> bool {
    match STATE.get() {
        State::Off | State::Inside => false,
        State::InsideCustom => !matches!(op, Op::Custom(_)),
        State::On | State::Checking => true,
    }
}

/// Runs an op on an engine and counts it. For implementations of [`Engine::execute`], where [`counts`] is true.
#[cold]
#[inline(never)]
pub fn counted(engine: &dyn Engine, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
    if STATE.get() == State::Checking {
        let _inside = inside();
        return anomaly::checked(engine, op, inputs, results);
    }
    let (viewed, inside) = start_op(engine, op, &inputs, results);
    let values = engine.execute(op, inputs, results);
    drop(inside);
    if let Some(viewed) = viewed {
        with_session(|session| session.data.produce(&viewed, &values));
    }
    values
}

/// Works like [`counted`], for implementations of [`Engine::execute_async`]. The bytes of the results count when the
/// future ends.
#[cold]
#[inline(never)]
pub fn counted_async<'e>(
    engine: &'e dyn Engine,
    op: &Op,
    inputs: Operands,
    results: &[TensorType],
) -> BoxFuture<'e, Values> {
    if !op.may_need_host() {
        return Box::pin(core::future::ready(counted(engine, op, inputs, results)));
    }
    if STATE.get() == State::Checking {
        return anomaly::checked_async(engine, op, inputs, results);
    }
    let (viewed, inside) = start_op(engine, op, &inputs, results);
    let started = engine.execute_async(op, inputs, results);
    drop(inside);
    if viewed.is_none() {
        return started;
    }
    Box::pin(async move {
        let values = started.await;
        // No result is a view. Another profile may run by now, without the buffers of this one.
        with_session(|session| session.data.produce(&[], &values));
        values
    })
}

/// Adds the work of an op, and stops counting the ops of its expansion. For an outermost op, also returns the buffers
/// that its results view.
fn start_op(
    engine: &dyn Engine,
    op: &Op,
    inputs: &Operands,
    results: &[TensorType],
) -> (Option<Vec<usize>>, Inside) {
    let is_outermost = STATE.get() == State::On;
    let count = |session: &mut Session| {
        let is_known = session.addresses.contains(&address(engine));
        is_known.then(|| session.count(op, inputs, results, is_outermost))
    };
    let viewed = with_session(count).flatten();
    let is_custom = matches!(op, Op::Custom(_)) && viewed.is_some();
    let inside = Inside::enter(if is_custom { State::InsideCustom } else { State::Inside });
    (viewed.filter(|_| is_outermost), inside)
}

/// Whether this thread runs within [`anomaly::detect`].
pub(crate) fn is_checking() -> bool {
    STATE.get() == State::Checking
}

/// Runs a function with checks of the results of every op.
pub(crate) fn checking<T>(body: impl FnOnce() -> T) -> T {
    struct Before(State);
    impl Drop for Before {
        fn drop(&mut self) {
            STATE.set(self.0);
        }
    }
    let _before = Before(STATE.replace(State::Checking));
    body()
}

/// Stops counting ops on this thread until the guard is dropped. For a layer that runs ops which were counted when it
/// recorded them.
#[inline]
pub fn inside() -> Inside {
    Inside::enter(State::Inside)
}

/// Restores what engines count, when it is dropped.
#[must_use]
pub struct Inside(State);

impl Inside {
    #[inline]
    fn enter(state: State) -> Inside {
        let before = STATE.get();
        if before != State::Off {
            STATE.set(state);
        }
        Inside(before)
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        if self.0 != State::Off && is_on() {
            STATE.set(self.0);
        }
    }
}

/// Restores the part, when it is dropped.
#[must_use]
pub struct Restore {
    place: Place,
    is_pinned: bool,
}

impl Restore {
    fn of(session: &Session) -> Restore {
        Restore { place: session.place, is_pinned: session.is_pinned }
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        if is_on() {
            enter(self.place);
            with_session(|session| session.is_pinned = self.is_pinned);
        }
    }
}

fn with_session<R>(f: impl FnOnce(&mut Session) -> R) -> Option<R> {
    SESSION.with_borrow_mut(|session| session.as_mut().map(f))
}

/// Starts a part: waits for the devices, and adds the time to the part that ends.
fn enter(place: Place) {
    // The engines run queued ops here, so that the session must not be borrowed.
    let engines = with_session(|session| (session.place != place).then(|| session.engines.clone())).flatten();
    if let Some(engines) = engines {
        sync(&engines);
        with_session(|session| session.enter(place));
    }
}

#[cold]
#[inline(never)]
fn change_module(id: u64) {
    let place = with_session(|session| {
        if session.is_pinned {
            return None;
        }
        let part = match session.parameters.get_mut(&id) {
            Some((part, reads)) => {
                *reads += u64::from(!session.place.is_backward);
                *part
            }
            None => OTHER,
        };
        Some(Place { part, ..session.place })
    });
    if let Some(Some(place)) = place {
        enter(place);
    }
}

/// Waits for engines. Errors of devices are those of the values, which the program reads. A browser cannot wait: times
/// are then those of the program's own thread.
fn sync(engines: &[Arc<dyn Engine>]) {
    for engine in engines {
        let _ = try_block_on(engine.sync());
    }
}

fn address(engine: &dyn Engine) -> usize {
    core::ptr::from_ref(engine).addr()
}

impl Part {
    fn new(name: String, kind: PartKind) -> Part {
        Part { name, kind, calls: 0, forward: Measured::default(), backward: Measured::default() }
    }

    /// Returns the time of both passes.
    pub fn time(&self) -> Duration {
        self.forward.time + self.backward.time
    }

    fn pass(&mut self, is_backward: bool) -> &mut Measured {
        if is_backward { &mut self.backward } else { &mut self.forward }
    }
}

impl Session {
    /// The part of a name, called once more.
    fn called(&mut self, name: &str, kind: PartKind) -> usize {
        let known = self.parts.iter().position(|part| part.kind == kind && part.name == name);
        let part = known.unwrap_or_else(|| {
            self.parts.push(Part::new(name.to_owned(), kind));
            self.parts.len() - 1
        });
        self.parts[part].calls += 1;
        part
    }

    fn enter(&mut self, place: Place) {
        let now = Instant::now();
        let before = self.place;
        self.parts[before.part].pass(before.is_backward).time += now - self.since;
        self.since = now;
        self.place = place;
        self.data.enter(place);
    }

    fn record_node(&mut self, id: u64) {
        let part = self.place.part;
        if self.nodes.last().is_none_or(|(_, last)| *last != part) {
            self.nodes.push((id, part));
        }
    }

    fn part_of(&self, id: u64) -> usize {
        let after = self.nodes.partition_point(|(first, _)| *first <= id);
        if after == 0 { OTHER } else { self.nodes[after - 1].1 }
    }

    /// Adds the work of an op. Returns the buffers that the results view, if they are views.
    fn count(
        &mut self,
        op: &Op,
        inputs: &Operands,
        results: &[TensorType],
        is_outermost: bool,
    ) -> Vec<usize> {
        let work = cost(op, &OperandType::list(inputs), results);
        let place = self.place;
        let pass = self.parts[place.part].pass(place.is_backward);
        pass.work.flops = pass.work.flops.saturating_add(work.flops);
        if is_outermost { self.data.read(op, inputs, results) } else { Vec::new() }
    }

    fn finish(mut self) -> Profile {
        for (part, reads) in core::mem::take(&mut self.parameters).into_values() {
            let part = &mut self.parts[part];
            part.calls = part.calls.max(reads);
        }
        let kinds: Vec<PartKind> = self.parts.iter().map(|part| part.kind).collect();
        let moved = self.data.finish(|place| kinds[place.part] == PartKind::Optimizer);
        for (place, bytes) in moved {
            let pass = self.parts[place.part].pass(place.is_backward);
            pass.work.bytes = pass.work.bytes.saturating_add(bytes);
        }
        let mut parts = self.parts;
        // Modules first.
        parts.rotate_left(2);
        Profile { parts }
    }
}
