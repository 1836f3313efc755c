//! The client's engine.

use super::answers::{Answers, Found};
use super::recording::{Batch, Programs, Recording};
use crate::codec::{CHUNK, malformed};
use crate::message::{Answer, MAX_LIST, MemoryChange, Offer, Question, Request, Source, UNSENT};
use kiln_ir::{
    BoxFuture, CacheStrategy, Caps, DType, DTypeSet, Engine, Error, Machine, Memory, MemoryConfig, MemoryUse,
    Op, OpKind, OpSet, Operand, OperandType, Operands, Result, TensorData, TensorType, Value, Values,
    or_poisoned, poisoned, try_block_on, wait_for,
};
use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The most operands of one op, so that the lists of a batch stay within their bounds.
const MAX_OPERANDS: usize = MAX_LIST / 2;

/// Carries the messages of one client to its session, in order and each once.
pub trait Transport: Send + Sync + 'static {
    /// Sends a message, with the bytes behind it. Waits while too much is on the way.
    ///
    /// # Errors
    /// When the server is lost, or the message cannot be encoded.
    fn send(&self, request: &Request, tail: &[u8]) -> Result<()>;

    /// The error with which the session ended, if it has.
    fn lost(&self) -> Option<Error>;

    /// Adds the traffic statistics of the connection.
    fn count(&self, statistics: &mut Statistics) {
        let _ = statistics;
    }
}

/// The traffic of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Messages to the server. Repetitions after a reconnection do not count.
    pub messages_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Messages of the server.
    pub messages_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Connections that replaced a broken one.
    pub reconnections: u64,
    /// Ops that were executed, those of dead batches included.
    pub ops: u64,
    /// Batches that were sent.
    pub batches: u64,
    /// Programs that were sent: batches of a structure that the server did not know.
    pub programs: u64,
}

/// The engine of a device elsewhere: it records ops and sends them in batches.
///
/// Executing an op only records it. A batch is sent when it is full, when a value is read, at [`submit`](Engine::submit) and
/// [`sync`](Engine::sync), and when the program pauses. Only a read waits for the server, and
/// [`Op::NonZero`], whose shape depends on data. If the server is lost, all values carry the error.
pub struct RemoteEngine {
    caps: Caps,
    tracks_memory: bool,
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    transport: Box<dyn Transport>,
    answers: Arc<Answers>,
    /// Locked while messages are sent, which keeps them in order.
    state: Mutex<State>,
    programs: usize,
    lost: OnceLock<Error>,
    ops: AtomicU64,
    batches: AtomicU64,
    defined: AtomicU64,
}

#[derive(Default)]
struct State {
    recording: Recording,
    programs: Programs,
    /// The count of changes at the last look for a pause.
    seen: u64,
}

/// The payload of a value: the id under which the server knows it.
struct Handle {
    id: u64,
    shared: Arc<Shared>,
    /// Whether another handle has taken the id over.
    is_moved: AtomicBool,
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.is_moved.load(Ordering::Relaxed) {
            self.shared.lock().recording.drop_value(self.id);
        }
    }
}

impl RemoteEngine {
    /// Returns the engine of a server with this offer. Replies go to `answers`; the server keeps `programs` programs.
    pub fn new(
        offer: &Offer,
        transport: Box<dyn Transport>,
        answers: Arc<Answers>,
        programs: usize,
    ) -> RemoteEngine {
        let shared = Shared {
            transport,
            answers,
            state: Mutex::default(),
            programs,
            lost: OnceLock::new(),
            ops: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            defined: AtomicU64::new(0),
        };
        RemoteEngine { caps: offer.caps(), tracks_memory: offer.tracks_memory, shared: Arc::new(shared) }
    }

    /// Returns the engine of a server that cannot be reached: all values carry the error.
    pub fn unreachable(error: Error) -> RemoteEngine {
        struct Nowhere(Error);

        impl Transport for Nowhere {
            fn send(&self, _: &Request, _: &[u8]) -> Result<()> {
                Err(self.0.clone())
            }

            fn lost(&self) -> Option<Error> {
                Some(self.0.clone())
            }
        }

        let (name, machine) = ("nowhere".into(), Machine::processor());
        let caps = Caps { name, dtypes: DTypeSet::ALL, native: OpSet::ALL, machine };
        let offer = Offer::new(&caps, "nowhere", [DType::F32, DType::I32]);
        let answers = Arc::new(Answers::default());
        answers.fail(&error);
        RemoteEngine::new(&offer, Box::new(Nowhere(error)), answers, 1)
    }

    /// Returns the traffic so far.
    pub fn statistics(&self) -> Statistics {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut statistics = Statistics {
            ops: count(&self.shared.ops),
            batches: count(&self.shared.batches),
            programs: count(&self.shared.defined),
            ..Statistics::default()
        };
        self.shared.transport.count(&mut statistics);
        statistics
    }

    /// Returns the error with which the server was lost, if it was.
    pub fn lost(&self) -> Option<Error> {
        self.shared.is_lost()
    }

    #[cfg_attr(not(feature = "client"), expect(dead_code, reason = "called by the connection"))]
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn value(&self, id: u64, ty: TensorType) -> Value {
        Value::new(ty, Handle { id, shared: self.shared.clone(), is_moved: AtomicBool::new(false) })
    }

    /// The value under its actual type.
    fn retyped(&self, value: &Value, ty: TensorType) -> Value {
        let Some(handle) = self.handle(value) else { return value.clone() };
        handle.is_moved.store(true, Ordering::Relaxed);
        self.value(handle.id, ty)
    }

    /// The id of a value of this engine.
    fn handle<'v>(&self, value: &'v Value) -> Option<&'v Handle> {
        value.payload::<Handle>().filter(|handle| Arc::ptr_eq(&handle.shared, &self.shared))
    }

    fn source(&self, state: &mut State, operand: &Operand) -> Result<Source> {
        match operand {
            Operand::Scalar(number) => Ok(state.recording.number(*number)),
            Operand::Value(value) => {
                let id = match self.handle(value) {
                    Some(handle) => handle.id,
                    None => self.shared.poison(state, value)?,
                };
                Ok(state.recording.source(id, value.ty()))
            }
        }
    }

    /// Records an op. Returns the id of its first result.
    fn record(&self, op: &Op, inputs: &Operands, results: &[TensorType]) -> Result<u64> {
        if inputs.len() > MAX_OPERANDS {
            let problem = format!("{} operands are more than {MAX_OPERANDS}", inputs.len());
            return Err(
                Error::unsupported(&self.caps.name, problem).hint("join the tensors in several steps")
            );
        }
        let mut state = self.shared.lock();
        let count = state.recording.count_numbers();
        let sources: Result<Vec<Source>> =
            inputs.iter().map(|input| self.source(&mut state, input)).collect();
        let sources = sources.inspect_err(|_| state.recording.forget_numbers(count))?;
        let id = state.recording.push(op, sources, results);
        if state.recording.is_full() {
            self.shared.flush(&mut state)?;
        }
        Ok(id)
    }

    /// Sends everything recorded, and a question behind it.
    fn ask(&self, about: Question, expected: Option<TensorType>) -> Result<super::answers::Asked> {
        let mut state = self.shared.lock();
        self.shared.flush(&mut state)?;
        let asked = self.shared.answers.ask(expected);
        self.shared.send(&Request::Ask { question: asked.question(), about }, &[])?;
        Ok(asked)
    }

    /// Sends everything recorded, and a change of memory behind it. A loss surfaces with the next op or read.
    fn change_memory(&self, change: MemoryChange) {
        let mut state = self.shared.lock();
        let _ = self.shared.flush(&mut state).and_then(|()| self.shared.send(&Request::Memory(change), &[]));
    }

    fn ask_about(
        &self,
        value: &Value,
        about: fn(u64) -> Question,
        data: bool,
    ) -> Result<super::answers::Asked> {
        if let Some(error) = value.error() {
            return Err(error.clone());
        }
        let handle = self.handle(value).ok_or_else(|| self.shared.foreign(value))?;
        self.ask(about(handle.id), data.then_some(*value.ty()))
    }

    /// Records an op, and returns its results under the inferred types.
    fn recorded(&self, op: &Op, inputs: &Operands, results: &[TensorType]) -> Result<Values> {
        if UNSENT.contains(&op.kind()) {
            return Err(self.caps.unsupported(op));
        }
        self.shared.ops.fetch_add(1, Ordering::Relaxed);
        if let Some(error) = self.shared.is_lost() {
            return Err(error);
        }
        let first = self.record(op, inputs, results)?;
        let value = |(place, ty): (usize, &TensorType)| self.value(first + 2 * place as u64, *ty);
        Ok(results.iter().enumerate().map(value).collect())
    }

    /// Records [`Op::NonZero`]. The future ends with its result under the type that depends on data.
    fn start_nonzero(
        &self,
        op: &Op,
        inputs: &Operands,
        results: &[TensorType],
    ) -> Result<BoxFuture<'_, Result<Values>>> {
        let mut values = self.recorded(op, inputs, results)?;
        let asked = self.ask_about(&values[0], Question::Type, false)?;
        Ok(Box::pin(async move {
            match asked.await? {
                Found::Answer(Answer::Type(ty)) if ty == *values[0].ty() => Ok(values),
                Found::Answer(Answer::Type(ty)) => {
                    values[0] = self.retyped(&values[0], ty);
                    Ok(values)
                }
                Found::Answer(Answer::Failed(error)) => Err(error),
                Found::Answer(Answer::Done | Answer::Text(_) | Answer::Memory(_)) | Found::Data(_) => {
                    Err(malformed("an answer to another question"))
                }
            }
        }))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_lost(&self) -> Option<Error> {
        self.lost.get().cloned().or_else(|| {
            let error = self.transport.lost()?;
            Some(self.lost.get_or_init(|| error).clone())
        })
    }

    fn send(&self, request: &Request, tail: &[u8]) -> Result<()> {
        self.transport.send(request, tail)
    }

    /// Sends a value that carries an error. Returns its id. The server drops it after the batch.
    fn poison(&self, state: &mut State, value: &Value) -> Result<u64> {
        let error = value.error().cloned().unwrap_or_else(|| self.foreign(value));
        let id = state.recording.next_written();
        self.send(&Request::Poison { id, ty: *value.ty(), error }, &[])?;
        state.recording.source(id, value.ty());
        state.recording.drop_value(id);
        Ok(id)
    }

    fn foreign(&self, value: &Value) -> Error {
        Error::unsupported("remote", format!("the value, {}, is of another engine", value.ty()))
            .hint("move the tensor to the device first")
    }

    /// Sends everything recorded.
    fn flush(&self, state: &mut State) -> Result<()> {
        let batch = state.recording.take_batch();
        self.free(state)?;
        match batch {
            Some(batch) => self.send_batch(&mut state.programs, batch),
            None => Ok(()),
        }
    }

    /// Sends the ids of values that were dropped, so that later values can reuse their memory.
    fn free(&self, state: &mut State) -> Result<()> {
        let dropped = state.recording.take_dropped();
        dropped.chunks(MAX_LIST).try_for_each(|ids| self.send(&Request::Free { ids: ids.to_vec() }, &[]))
    }

    fn send_batch(&self, programs: &mut Programs, batch: Batch) -> Result<()> {
        let (program, is_new) = programs.number(&batch.template, self.programs);
        if is_new {
            let define = Request::Define { program, template: batch.template.clone() };
            if let Err(error) = self.send(&define, &[]) {
                // Too long for a message: the program cannot run there.
                programs.forget(&batch.template);
                return match self.is_lost() {
                    Some(lost) => Err(lost),
                    None => self.poison_outputs(&batch, &error),
                };
            }
            self.defined.fetch_add(1, Ordering::Relaxed);
        }
        self.batches.fetch_add(1, Ordering::Relaxed);
        let Batch { arguments: inputs, numbers, first, .. } = batch;
        self.send(&Request::Run { program, inputs, numbers, first }, &[])
    }

    fn poison_outputs(&self, batch: &Batch, error: &Error) -> Result<()> {
        for &result in &batch.template.outputs {
            let id = batch.first + 2 * u64::from(result);
            let ty = batch.types[result as usize];
            self.send(&Request::Poison { id, ty, error: error.clone() }, &[])?;
        }
        let last = batch.arguments.iter().filter(|argument| argument.is_last);
        let ids: Vec<u64> = last.map(|argument| argument.id).collect();
        self.send(&Request::Free { ids }, &[])
    }

    /// Sends everything recorded if nothing was added since the last call.
    #[cfg_attr(not(feature = "client"), expect(dead_code, reason = "called by the connection"))]
    pub(super) fn flush_if_paused(&self) {
        let mut state = self.lock();
        if state.seen == state.recording.changes && !state.recording.is_empty() && self.is_lost().is_none() {
            // A loss surfaces with the next op or read.
            let _ = self.flush(&mut state);
        }
        state.seen = state.recording.changes;
    }
}

impl Engine for RemoteEngine {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Whether the op can be sent: the server's stack runs whatever its engine does not.
    fn supports(&self, op: &Op, _: &[OperandType<'_>]) -> bool {
        !UNSENT.contains(&op.kind())
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let found = match op.kind() == OpKind::NonZero {
            true => self
                .start_nonzero(op, &inputs, results)
                .and_then(|found| wait_for(found, "`nonzero`", "await `nonzero_async`")),
            false => self.recorded(op, &inputs, results),
        };
        found.unwrap_or_else(|error| poisoned(results, &error))
    }

    fn execute_async(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> BoxFuture<'_, Values> {
        if op.kind() != OpKind::NonZero {
            return Box::pin(ready(self.execute(op, inputs, results)));
        }
        or_poisoned(self.start_nonzero(op, &inputs, results), results)
    }

    fn write(&self, data: TensorData) -> Value {
        let ty = data.ty();
        let bytes = data.bytes();
        let (first, rest) = bytes.split_at(bytes.len().min(CHUNK));
        let mut state = self.shared.lock();
        let id = state.recording.next_written();
        state.recording.changes += 1;
        let before = match state.recording.keeps_much() {
            true => self.shared.flush(&mut state),
            false => self.shared.free(&mut state),
        };
        let sent = before.and_then(|()| self.shared.send(&Request::Write { id, ty }, first)).and_then(|()| {
            rest.chunks(CHUNK).try_for_each(|chunk| self.shared.send(&Request::Chunk { id }, chunk))
        });
        drop(state);
        match sent {
            Ok(()) => self.value(id, ty),
            Err(error) => Value::poisoned(ty, error),
        }
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        let asked = self.ask_about(&value, Question::Data, true);
        drop(value);
        Box::pin(async move {
            match asked?.await? {
                Found::Data(data) => Ok(data),
                Found::Answer(Answer::Failed(error)) => Err(error),
                Found::Answer(Answer::Type(_) | Answer::Text(_) | Answer::Done | Answer::Memory(_)) => {
                    Err(malformed("an answer to another question"))
                }
            }
        })
    }

    fn outcome(&self, value: &Value) -> Option<Result<()>> {
        let error = value.error().cloned().or_else(|| self.shared.is_lost());
        error.map(Err)
    }

    fn submit(&self) {
        let mut state = self.shared.lock();
        // A loss surfaces with the next op or read.
        let _ = self.shared.flush(&mut state).and_then(|()| self.shared.send(&Request::Submit, &[]));
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        let asked = self.ask(Question::Sync, None);
        Box::pin(async move {
            match asked?.await? {
                Found::Answer(Answer::Done) => Ok(()),
                Found::Answer(Answer::Failed(error)) => Err(error),
                Found::Answer(Answer::Type(_) | Answer::Text(_) | Answer::Memory(_)) | Found::Data(_) => {
                    Err(malformed("an answer to another question"))
                }
            }
        })
    }

    fn explain(&self, value: &Value) -> Option<String> {
        let asked = self.ask_about(value, Question::Explain, false).ok()?;
        match try_block_on(asked)?.ok()? {
            Found::Answer(Answer::Text(text)) => text,
            Found::Answer(Answer::Type(_) | Answer::Done | Answer::Failed(_) | Answer::Memory(_))
            | Found::Data(_) => None,
        }
    }

    fn memory(&self) -> Option<&dyn Memory> {
        self.tracks_memory.then_some(self)
    }
}

/// The memory of the server's device, which all sessions of the server share.
impl Memory for RemoteEngine {
    /// Waits for the server. Zeros if it is lost.
    fn usage(&self) -> MemoryUse {
        let answer = self.ask(Question::Memory, None).ok().and_then(try_block_on);
        if let Some(Ok(Found::Answer(Answer::Memory(usage)))) = answer { usage } else { MemoryUse::default() }
    }

    fn reset_peak(&self) {
        self.change_memory(MemoryChange::ResetPeak);
    }

    fn trim(&self) {
        self.change_memory(MemoryChange::Trim);
    }

    /// Limits the bytes of this session's values, within the server's quota. The cache strategy is the server's: another than
    /// [`CacheStrategy::Automatic`] is logged as a warning.
    fn configure(&self, config: MemoryConfig) {
        if config.cache != CacheStrategy::Automatic {
            log::warn!("the cache of a server's device is not changed by clients: {:?}", config.cache);
        }
        self.change_memory(MemoryChange::Limit(config.limit.map(|bytes| bytes as u64)));
    }
}
