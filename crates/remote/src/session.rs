//! The server's side of one client: its values and programs on a stack, without any network.

mod program;

use crate::budget::{Account, Budget, Charge};
use crate::codec::{CHUNK, decode, malformed};
use crate::message::{Answer, Argument, MemoryChange, Question, Reply, Request, Template, UNSENT};
use kiln_ir::{Error, FxBuildHasher, OpSet, Result, Scalar, TensorData, TensorType, Value, block_on};
use kiln_tensor::Stack;
use program::{ChargedValue, Context, Program};
use std::collections::HashMap;
use std::sync::Arc;

/// The limits of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// The most bytes of all values that the client holds, uploads included, and of the intermediate results of a batch while
    /// they are needed. A view counts beside the value whose memory it keeps. Default: 8 GiB.
    pub memory_bytes: u64,
    /// The most bytes of everything else: programs, errors, and 256 bytes for each value. Default: 512 MiB.
    pub overhead_bytes: u64,
    /// The most values that the client holds. Default: 1,000,000.
    pub tensors: usize,
    /// The most programs that the session keeps. Default: 1,024, which clients rely on.
    pub programs: usize,
    /// The most messages that wait to be processed. Clients wait when as many are on the way. Default: 256.
    pub requests: u32,
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas {
            memory_bytes: 8 << 30,
            overhead_bytes: 512 << 20,
            tensors: 1_000_000,
            programs: 1024,
            requests: 256,
        }
    }
}

/// The usage of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Values.
    pub tensors: usize,
    /// The bytes of all values, and of those on the way.
    pub bytes: u64,
    /// Programs.
    pub programs: usize,
    /// Batches that ran.
    pub runs: u64,
    /// Ops that ran.
    pub ops: u64,
    /// Questions that were answered.
    pub questions: u64,
}

/// Where a session's replies go: a header, and the bytes behind it. An error ends the session.
pub type Replies<'a> = &'a mut dyn FnMut(Reply, &[u8]) -> Result<()>;

/// One client's values and programs on the server.
///
/// [`handle`](Session::handle) takes one message at a time, in order. Dropping the session frees all of them. Engines that record
/// ops by thread want all calls, and the drop, on one thread.
pub struct Session {
    stack: Stack,
    native: OpSet,
    quotas: Quotas,
    values: HashMap<u64, Entry, FxBuildHasher>,
    uploads: HashMap<u64, Upload, FxBuildHasher>,
    programs: HashMap<u32, Program, FxBuildHasher>,
    usage: Usage,
    /// The bytes of values that were dropped since ops were submitted: an engine that puts ops off may keep them for those.
    dropped: u64,
    tensors: Arc<Account>,
    overhead: Arc<Account>,
    /// The copies that are being sent, which only the server bounds: a value of the whole quota can be read.
    copies: Arc<Account>,
    goes_on: GoesOn,
}

/// Tells between two ops whether the session still has a client. It may wait for one.
pub(crate) type GoesOn = Box<dyn Fn() -> bool + Send>;

/// A value that the client holds.
struct Entry {
    charged: ChargedValue,
    /// That of the entry itself, and of its error.
    _overhead: Charge,
}

/// A value whose bytes have not all arrived.
struct Upload {
    ty: TensorType,
    total: usize,
    /// An error beyond a quota: the bytes are dropped as they arrive.
    bytes: Result<Vec<u8>>,
    received: usize,
    /// That of the bytes, and of the entry.
    charge: Charge,
    _overhead: Charge,
}

/// The bytes that count for a value besides its elements: entries of tables, and the engine's handle.
const ENTRY: u64 = 256;

impl Session {
    /// Returns a session without values, on a stack whose engine runs all ops, as the one of every [`Stack`] does.
    pub fn new(stack: Stack, quotas: Quotas) -> Session {
        Session::within(stack, quotas, &Budget::new(u64::MAX), Box::new(|| true))
    }

    /// As [`new`](Session::new), where all sessions of a budget are bounded together. A run ends when its session does not go on.
    pub(crate) fn within(stack: Stack, quotas: Quotas, budget: &Arc<Budget>, goes_on: GoesOn) -> Session {
        let native = stack.engine().caps().native.without(&UNSENT);
        let (values, uploads, programs) = (HashMap::default(), HashMap::default(), HashMap::default());
        let tensors = budget.account("tensors", quotas.memory_bytes);
        let overhead = budget.account("programs and errors", quotas.overhead_bytes);
        let copies = budget.account("copies of tensors", u64::MAX);
        let usage = Usage::default();
        Session {
            stack,
            native,
            quotas,
            values,
            uploads,
            programs,
            usage,
            dropped: 0,
            tensors,
            overhead,
            copies,
            goes_on,
        }
    }

    /// Returns the usage of the session.
    pub fn usage(&self) -> Usage {
        let tensors = self.values.len() + self.uploads.len();
        Usage { tensors, bytes: self.tensors.used(), programs: self.programs.len(), ..self.usage }
    }

    /// Processes one message. Ops that fail make poisoned values, whose errors are the answers to later questions.
    ///
    /// # Errors
    /// When the message breaks the protocol: it is malformed, or names a value or a program that this session does not have. The
    /// session must then end.
    pub fn handle(&mut self, message: &[u8], reply: Replies<'_>) -> Result<()> {
        let (request, tail) = decode::<Request>(message)?;
        if !tail.is_empty() && !matches!(request, Request::Write { .. } | Request::Chunk { .. }) {
            return Err(malformed(format!("{} bytes follow it", tail.len())));
        }
        match request {
            Request::Define { program, template } => self.define(program, template),
            Request::Run { program, inputs, numbers, first } => self.run(program, &inputs, &numbers, first),
            Request::Write { id, ty } => self.write(id, ty, tail),
            Request::Chunk { id } => self.chunk(id, tail),
            Request::Poison { id, ty, error } => {
                sized(&ty)?;
                let charged = ChargedValue::new(Value::poisoned(ty, error), self.tensors.charge(0)?);
                self.insert(id, charged)
            }
            Request::Free { ids } => ids.into_iter().try_for_each(|id| self.remove(id).map(drop)),
            Request::Ask { question, about } => self.answer(question, about, reply),
            Request::Submit => {
                self.stack.engine().submit();
                Ok(())
            }
            Request::Memory(change) => {
                self.change_memory(change);
                Ok(())
            }
        }
    }

    /// A limit is the session's own: other sessions share the device.
    fn change_memory(&mut self, change: MemoryChange) {
        match (change, self.stack.memory()) {
            (MemoryChange::Limit(bytes), _) => {
                self.tensors.set_limit(bytes.unwrap_or(u64::MAX).min(self.quotas.memory_bytes));
            }
            (MemoryChange::ResetPeak, Some(memory)) => memory.reset_peak(),
            (MemoryChange::Trim, Some(memory)) => memory.trim(),
            (MemoryChange::ResetPeak | MemoryChange::Trim, None) => {}
        }
    }

    fn define(&mut self, number: u32, template: Template) -> Result<()> {
        if !self.programs.contains_key(&number) && self.programs.len() >= self.quotas.programs {
            return Err(exceeds("programs", self.quotas.programs as u64));
        }
        template.inputs.iter().try_for_each(|ty| sized(ty).map(drop))?;
        if let Some(step) = template.steps.iter().find(|step| !self.native.contains(step.op.0.kind())) {
            return Err(malformed(format!("the op `{}` is not among those offered", step.op.0.name())));
        }
        // The one before goes first, so that both are never held.
        drop(self.programs.remove(&number));
        self.programs.insert(number, Program::new(template, &self.overhead)?);
        Ok(())
    }

    fn run(&mut self, number: u32, inputs: &[Argument], numbers: &[Scalar], first: u64) -> Result<()> {
        let mut program = self
            .programs
            .remove(&number)
            .ok_or_else(|| malformed(format!("there is no program {number}")))?;
        let outcome = self.run_program(&mut program, inputs, numbers, first);
        self.programs.insert(number, program);
        outcome
    }

    fn run_program(
        &mut self,
        program: &mut Program,
        inputs: &[Argument],
        numbers: &[Scalar],
        first: u64,
    ) -> Result<()> {
        if inputs.len() != program.template.inputs.len() || numbers.len() != program.numbers {
            return Err(malformed("the inputs are not those of the program"));
        }
        program.check(numbers)?;
        let taken =
            inputs.iter().map(|argument| self.argument(*argument)).collect::<Result<Vec<ChargedValue>>>()?;
        if !taken.iter().map(|charged| charged.value.ty()).eq(&program.template.inputs) {
            return Err(malformed("the types of the inputs are not those of the program"));
        }
        let last = u64::from(program.template.outputs.last().copied().unwrap_or_default());
        first.checked_add(2 * last).ok_or_else(|| malformed("an id is too large"))?;
        let refusal = self.refusal(program);
        let context = Context { engine: self.stack.engine(), tensors: &self.tensors, goes_on: &self.goes_on };
        let outputs = program.run(&context, taken, numbers, refusal)?;
        self.usage.runs += 1;
        self.usage.ops += program.template.steps.len() as u64;
        for (result, charged) in outputs {
            self.insert(first + 2 * u64::from(result), charged)?;
        }
        self.submit_if_much_waits();
        Ok(())
    }

    /// The error of a batch whose outputs would exceed a quota.
    fn refusal(&self, program: &Program) -> Option<Error> {
        let outputs = program.outputs().map(|(_, ty)| ty.num_bytes() as u64);
        let wanted = outputs.fold(self.tensors.used(), u64::saturating_add);
        let most = self.tensors.limit();
        let largest =
            program.types.iter().flatten().map(|ty| ty.num_bytes() as u64).max().unwrap_or_default();
        if wanted > most || largest > most {
            return Some(exceeds("bytes of tensors", most));
        }
        let tensors = self.values.len() + self.uploads.len() + program.template.outputs.len();
        (tensors > self.quotas.tensors).then(|| exceeds("tensors", self.quotas.tensors as u64))
    }

    fn argument(&mut self, argument: Argument) -> Result<ChargedValue> {
        match argument.is_last {
            true => self.remove(argument.id),
            false => self
                .values
                .get(&argument.id)
                .map(|entry| entry.charged.clone())
                .ok_or_else(|| missing(argument.id)),
        }
    }

    fn value(&self, id: u64) -> Result<&Value> {
        self.values.get(&id).map(|entry| &entry.charged.value).ok_or_else(|| missing(id))
    }

    fn remove(&mut self, id: u64) -> Result<ChargedValue> {
        let charged = self.values.remove(&id).map(|entry| entry.charged).ok_or_else(|| missing(id))?;
        self.dropped = self.dropped.saturating_add(charged.bytes());
        Ok(charged)
    }

    /// Has ops that the engine put off run, once they may keep much memory that does not count any more.
    fn submit_if_much_waits(&mut self) {
        if self.dropped > self.tensors.most() / 8 {
            self.dropped = 0;
            let engine = self.stack.engine();
            // An engine may put off the unit that ends until the next one does.
            engine.submit();
            engine.submit();
        }
    }

    /// Keeps a value.
    ///
    /// # Errors
    /// When its id is taken, or the session has no room for the entry: values beyond the quota of tensors are errors, which
    /// take room too.
    fn insert(&mut self, id: u64, charged: ChargedValue) -> Result<()> {
        if self.uploads.contains_key(&id) || self.values.contains_key(&id) {
            return Err(malformed(format!("the id {id} is taken")));
        }
        let error = charged.value.error().map_or(0, |error| error.to_string().len() as u64);
        let overhead = self.overhead.charge(ENTRY + 2 * error)?;
        self.values.insert(id, Entry { charged, _overhead: overhead });
        Ok(())
    }

    fn write(&mut self, id: u64, ty: TensorType, tail: &[u8]) -> Result<()> {
        let total = sized(&ty)?;
        if self.uploads.contains_key(&id) || self.values.contains_key(&id) {
            return Err(malformed(format!("the id {id} is taken")));
        }
        let granted = match self.values.len() + self.uploads.len() >= self.quotas.tensors {
            true => Err(exceeds("tensors", self.quotas.tensors as u64)),
            false => self.tensors.charge(total as u64),
        };
        let (bytes, charge) = match granted {
            Ok(charge) if tail.len() == total => {
                let value = self.written(ty, tail);
                return self.insert(id, ChargedValue::new(value, charge));
            }
            Ok(charge) => (Ok(Vec::new()), charge),
            Err(error) => (Err(error), self.tensors.charge(0)?),
        };
        let overhead = self.overhead.charge(ENTRY)?;
        self.uploads.insert(id, Upload { ty, total, bytes, received: 0, charge, _overhead: overhead });
        self.chunk(id, tail)
    }

    fn written(&self, ty: TensorType, bytes: &[u8]) -> Value {
        match TensorData::from_bytes(bytes, ty) {
            Ok(data) => self.stack.engine().write(data),
            Err(error) => Value::poisoned(ty, error),
        }
    }

    fn chunk(&mut self, id: u64, tail: &[u8]) -> Result<()> {
        let upload = self.uploads.get_mut(&id).ok_or_else(|| missing(id))?;
        if tail.len() > upload.total - upload.received || (tail.is_empty() && upload.total > upload.received)
        {
            return Err(malformed("the bytes do not fill the tensor"));
        }
        upload.received += tail.len();
        if let Ok(bytes) = &mut upload.bytes {
            // By halves, and never more than the tensor has.
            if bytes.capacity() - bytes.len() < tail.len() {
                let more = (bytes.len() / 2).max(tail.len()).min(upload.total - bytes.len());
                bytes.reserve_exact(more);
            }
            bytes.extend_from_slice(tail);
        }
        if upload.received < upload.total {
            return Ok(());
        }
        let Some(upload) = self.uploads.remove(&id) else { return Ok(()) };
        let value = match upload.bytes {
            Ok(bytes) => self.written(upload.ty, &bytes),
            Err(error) => Value::poisoned(upload.ty, error),
        };
        self.insert(id, ChargedValue::new(value, upload.charge))
    }

    /// The elements of a value, and the charge of this copy: a client that takes it slowly holds it.
    fn read(&self, value: Value) -> Result<(TensorData, Charge)> {
        let charge = self.copies.charge(value.ty().num_bytes() as u64)?;
        block_on(self.stack.engine().read(value)).map(|data| (data, charge))
    }

    fn answer(&mut self, question: u64, about: Question, reply: Replies<'_>) -> Result<()> {
        self.usage.questions += 1;
        let engine = self.stack.engine();
        let answer = match about {
            Question::Data(id) => match self.read(self.value(id)?.clone()) {
                Ok((data, _charge)) => return send(question, &data, reply),
                Err(error) => Answer::Failed(error),
            },
            Question::Type(id) => Answer::Type(*self.value(id)?.ty()),
            Question::Explain(id) => Answer::Text(engine.explain(self.value(id)?)),
            Question::Sync => block_on(engine.sync()).map_or_else(Answer::Failed, |()| Answer::Done),
            Question::Memory => Answer::Memory(self.stack.memory().map(|m| m.usage()).unwrap_or_default()),
        };
        reply(Reply::Answer { question, answer }, &[])
    }
}

/// Sends the elements of a value in chunks.
fn send(question: u64, data: &TensorData, reply: Replies<'_>) -> Result<()> {
    let bytes = data.bytes();
    let (first, mut rest) = bytes.split_at(bytes.len().min(CHUNK));
    reply(Reply::Data { question, ty: data.ty() }, first)?;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(rest.len().min(CHUNK));
        reply(Reply::Chunk { question }, chunk)?;
        rest = after;
    }
    Ok(())
}

/// The bytes of a type, if this machine can address them.
fn sized(ty: &TensorType) -> Result<usize> {
    let too_large = || malformed(format!("a tensor of type {ty} is too large for this machine"));
    ty.checked_num_bytes().ok_or_else(too_large)
}

fn missing(id: u64) -> Error {
    malformed(format!("this session has no value {id}"))
}

fn exceeds(what: &str, most: u64) -> Error {
    Error::device("remote", format!("the session would have more than its quota of {most} {what}"))
        .hint("drop tensors that are not needed, or raise the quota in the server's options")
}
