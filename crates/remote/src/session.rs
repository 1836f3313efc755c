//! The server's side of one client: its values and programs on a stack, without any network.

use crate::codec::{CHUNK, decode, malformed};
use crate::message::{Answer, Argument, MemoryChange, Question, Reply, Request, Source, Template, UNSENT};
use kiln_ir::{
    Engine, Error, FxBuildHasher, Op, OpSet, Operand, OperandType, Operands, Result, ResultTypes, Scalar,
    TensorData, TensorType, Value, Values, block_on, infer, poison_of, poisoned,
};
use kiln_tensor::Stack;
use std::collections::HashMap;

/// The limits of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// The most bytes of all values that the client holds, uploads included. Intermediate results of a batch do not count: the
    /// engine may never store them. Default: 8 GiB.
    pub memory_bytes: u64,
    /// The most values that the client holds. Default: 1,000,000.
    pub tensors: usize,
    /// The most programs that the session keeps. Default: 1,024, which clients rely on.
    pub programs: usize,
    /// The most messages that wait to be processed. Clients wait when as many are on the way. Default: 256.
    pub requests: u32,
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas { memory_bytes: 8 << 30, tensors: 1_000_000, programs: 1024, requests: 256 }
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
    /// The server's quota of bytes, which that in `quotas` never exceeds.
    granted: u64,
    values: HashMap<u64, Value, FxBuildHasher>,
    uploads: HashMap<u64, Upload, FxBuildHasher>,
    programs: HashMap<u32, Program, FxBuildHasher>,
    usage: Usage,
}

/// A value whose bytes have not all arrived.
struct Upload {
    ty: TensorType,
    total: usize,
    /// An error beyond a quota: the bytes are dropped as they arrive.
    bytes: Result<Vec<u8>>,
    received: usize,
}

/// A template, with the types of all results once they are known.
struct Program {
    template: Template,
    types: Vec<ResultTypes>,
    /// The number of numbers that it takes.
    numbers: usize,
    /// How often each input and each result is used, outputs included.
    uses: [Vec<u32>; 2],
}

impl Session {
    /// A session without values, on a stack whose engine runs all ops, as the one of every [`Stack`] does.
    pub fn new(stack: Stack, quotas: Quotas) -> Session {
        let native = stack.engine().caps().native.without(&UNSENT);
        let (values, uploads, programs) = (HashMap::default(), HashMap::default(), HashMap::default());
        let granted = quotas.memory_bytes;
        Session { stack, native, quotas, granted, values, uploads, programs, usage: Usage::default() }
    }

    /// The usage of the session.
    pub fn usage(&self) -> Usage {
        Usage { tensors: self.values.len() + self.uploads.len(), programs: self.programs.len(), ..self.usage }
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
                self.insert(id, Value::poisoned(ty, error))
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
                self.quotas.memory_bytes = bytes.unwrap_or(u64::MAX).min(self.granted);
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
        let operands = template.steps.iter().flat_map(|step| &step.operands);
        let numbers = operands.filter(|source| matches!(source, Source::Number)).count();
        self.programs
            .insert(number, Program { template, types: Vec::new(), numbers, uses: [vec![], vec![]] });
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
        let taken = inputs.iter().map(|argument| self.argument(*argument)).collect::<Result<Vec<Value>>>()?;
        if !taken.iter().map(Value::ty).eq(&program.template.inputs) {
            return Err(malformed("the types of the inputs are not those of the program"));
        }
        let last = u64::from(program.template.outputs.last().copied().unwrap_or_default());
        first.checked_add(2 * last).ok_or_else(|| malformed("an id is too large"))?;
        let values = match self.refusal(program) {
            Some(error) => program.refused(&error),
            None => program.run(self.stack.engine(), taken, numbers),
        };
        self.usage.runs += 1;
        self.usage.ops += program.template.steps.len() as u64;
        for (result, value) in values {
            self.insert(first + 2 * u64::from(result), value)?;
        }
        Ok(())
    }

    /// The error of a batch whose outputs would exceed a quota.
    fn refusal(&self, program: &Program) -> Option<Error> {
        let outputs = program.outputs().map(|(_, ty)| ty.num_bytes() as u64);
        let wanted = outputs.fold(self.usage.bytes, u64::saturating_add);
        let most = self.quotas.memory_bytes;
        let largest =
            program.types.iter().flatten().map(|ty| ty.num_bytes() as u64).max().unwrap_or_default();
        if wanted > most || largest > most {
            return Some(exceeds("bytes of tensors", most));
        }
        let tensors = self.values.len() + self.uploads.len() + program.template.outputs.len();
        (tensors > self.quotas.tensors).then(|| exceeds("tensors", self.quotas.tensors as u64))
    }

    fn argument(&mut self, argument: Argument) -> Result<Value> {
        match argument.is_last {
            true => self.remove(argument.id),
            false => self.value(argument.id).cloned(),
        }
    }

    fn value(&self, id: u64) -> Result<&Value> {
        self.values.get(&id).ok_or_else(|| missing(id))
    }

    fn remove(&mut self, id: u64) -> Result<Value> {
        let value = self.values.remove(&id).ok_or_else(|| missing(id))?;
        self.usage.bytes -= held(&value);
        Ok(value)
    }

    fn insert(&mut self, id: u64, value: Value) -> Result<()> {
        if self.uploads.contains_key(&id) || self.values.contains_key(&id) {
            return Err(malformed(format!("the id {id} is taken")));
        }
        self.usage.bytes += held(&value);
        self.values.insert(id, value);
        Ok(())
    }

    fn write(&mut self, id: u64, ty: TensorType, tail: &[u8]) -> Result<()> {
        let total = sized(&ty)?;
        if self.uploads.contains_key(&id) || self.values.contains_key(&id) {
            return Err(malformed(format!("the id {id} is taken")));
        }
        let bytes = if self.usage.bytes.saturating_add(total as u64) > self.quotas.memory_bytes {
            Err(exceeds("bytes of tensors", self.quotas.memory_bytes))
        } else if self.values.len() + self.uploads.len() >= self.quotas.tensors {
            Err(exceeds("tensors", self.quotas.tensors as u64))
        } else {
            self.usage.bytes += total as u64;
            Ok(Vec::new())
        };
        if bytes.is_ok() && tail.len() == total {
            self.usage.bytes -= total as u64;
            let value = self.written(ty, tail);
            return self.insert(id, value);
        }
        self.uploads.insert(id, Upload { ty, total, bytes, received: 0 });
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
            bytes.extend_from_slice(tail);
        }
        if upload.received < upload.total {
            return Ok(());
        }
        let Some(upload) = self.uploads.remove(&id) else { return Ok(()) };
        let value = match upload.bytes {
            Ok(bytes) => {
                self.usage.bytes -= upload.total as u64;
                self.written(upload.ty, &bytes)
            }
            Err(error) => Value::poisoned(upload.ty, error),
        };
        self.insert(id, value)
    }

    fn answer(&mut self, question: u64, about: Question, reply: Replies<'_>) -> Result<()> {
        self.usage.questions += 1;
        let engine = self.stack.engine();
        let answer = match about {
            Question::Data(id) => match block_on(engine.read(self.value(id)?.clone())) {
                Ok(data) => return send(question, &data, reply),
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

impl Program {
    /// Checks the ops on their operands. Numbers differ from run to run, so ops with numbers are checked in each.
    fn check(&mut self, numbers: &[Scalar]) -> Result<()> {
        let is_known = self.types.len() == self.template.steps.len() && !self.uses[0].is_empty();
        let mut numbers = numbers.iter();
        let mut results: Vec<TensorType> = Vec::new();
        let mut known = std::mem::take(&mut self.types).into_iter();
        let mut types = Vec::with_capacity(self.template.steps.len());
        for step in &self.template.steps {
            let before = known.next();
            let has_number = step.operands.contains(&Source::Number);
            let found = match before {
                Some(found) if !has_number => found,
                before => {
                    let found = self.template.infer(&step.op.0, &step.operands, &results, &mut numbers)?;
                    if before.is_some_and(|before| before != found) {
                        return Err(malformed("the types of results depend on numbers"));
                    }
                    found
                }
            };
            results.extend(&found);
            types.push(found);
        }
        self.types = types;
        if !is_known {
            self.uses = self.template.count_uses(results.len())?;
        }
        Ok(())
    }

    /// The outputs with their numbers and types.
    fn outputs(&self) -> impl Iterator<Item = (u32, TensorType)> {
        let types: Vec<TensorType> = self.types.iter().flatten().copied().collect();
        self.template.outputs.iter().map(move |result| (*result, types[*result as usize]))
    }

    /// The outputs, poisoned.
    fn refused(&self, error: &Error) -> Vec<(u32, Value)> {
        self.outputs().map(|(result, ty)| (result, Value::poisoned(ty, error.clone()))).collect()
    }

    /// Runs the ops. A value is passed on at its last use, so that the engine may overwrite it.
    fn run(&self, engine: &dyn Engine, inputs: Vec<Value>, numbers: &[Scalar]) -> Vec<(u32, Value)> {
        let mut as_inferred = true;
        let mut inputs = Slots::new(inputs.into_iter().map(Some).collect(), &self.uses[0]);
        let mut results = Slots::new(Vec::new(), &self.uses[1]);
        let mut numbers = numbers.iter();
        for (step, types) in self.template.steps.iter().zip(&self.types) {
            let operand = |source: &Source| match *source {
                Source::Input(input) => inputs.take(input).map(Operand::Value),
                Source::Result(result) => results.take(result).map(Operand::Value),
                Source::Number => numbers.next().map(|number| Operand::Scalar(*number)),
            };
            let operands: Operands = step.operands.iter().filter_map(operand).collect();
            let values = match as_inferred {
                true => engine.execute(&step.op.0, operands, types),
                false => run_inferred(engine, &step.op.0, operands, types),
            };
            as_inferred &= values.iter().map(Value::ty).eq(types);
            results.extend(values);
        }
        self.template.outputs.iter().filter_map(|output| Some((*output, results.take(*output)?))).collect()
    }
}

/// Runs an op on operands that may be of other types than was inferred: after [`Op::NonZero`].
fn run_inferred(engine: &dyn Engine, op: &Op, operands: Operands, types: &ResultTypes) -> Values {
    let inferred = infer(op, &OperandType::list(&operands));
    match inferred {
        Ok(types) => engine.execute(op, operands, &types),
        Err(error) => poisoned(types, &poison_of(&operands).unwrap_or(error)),
    }
}

/// Values by number, each with the uses that it still has.
struct Slots {
    values: Vec<Option<Value>>,
    uses: Vec<u32>,
}

impl Slots {
    fn new(values: Vec<Option<Value>>, uses: &[u32]) -> Slots {
        Slots { values, uses: uses.to_vec() }
    }

    fn extend(&mut self, values: Values) {
        for value in values {
            let is_used = self.uses[self.values.len()] > 0;
            self.values.push(is_used.then_some(value));
        }
    }

    fn take(&mut self, number: u32) -> Option<Value> {
        let number = number as usize;
        self.uses[number] -= 1;
        if self.uses[number] == 0 { self.values[number].take() } else { self.values[number].clone() }
    }
}

impl Template {
    fn infer<'n>(
        &self,
        op: &Op,
        operands: &[Source],
        results: &[TensorType],
        numbers: &mut impl Iterator<Item = &'n Scalar>,
    ) -> Result<ResultTypes> {
        let undefined = || malformed("an operand is not defined yet");
        let mut types = Vec::with_capacity(operands.len());
        for source in operands {
            types.push(match *source {
                Source::Input(input) => {
                    OperandType::Tensor(self.inputs.get(input as usize).ok_or_else(undefined)?)
                }
                Source::Result(result) => {
                    OperandType::Tensor(results.get(result as usize).ok_or_else(undefined)?)
                }
                Source::Number => OperandType::Scalar(*numbers.next().ok_or_else(undefined)?),
            });
        }
        let found = infer(op, &types)?;
        found.iter().try_for_each(|ty| sized(ty).map(drop))?;
        Ok(found)
    }

    /// How often each input and each result is used. Outputs must ascend.
    fn count_uses(&self, results: usize) -> Result<[Vec<u32>; 2]> {
        let mut uses = [vec![0; self.inputs.len().max(1)], vec![0; results]];
        for source in self.steps.iter().flat_map(|step| &step.operands) {
            match *source {
                Source::Input(input) => uses[0][input as usize] += 1,
                Source::Result(result) => uses[1][result as usize] += 1,
                Source::Number => {}
            }
        }
        if !self.outputs.is_sorted_by(|a, b| a < b) {
            return Err(malformed("the outputs do not ascend"));
        }
        for &output in &self.outputs {
            let uses = uses[1].get_mut(output as usize);
            *uses.ok_or_else(|| malformed("an output is not defined"))? += 1;
        }
        Ok(uses)
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
    let bytes = ty.shape.checked_num_elements().and_then(|n| n.checked_mul(ty.dtype.size()));
    let bytes = bytes.filter(|bytes| isize::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| malformed(format!("a tensor of type {ty} is too large for this machine")))
}

/// The bytes that count for a value.
fn held(value: &Value) -> u64 {
    if value.error().is_some() { 0 } else { value.ty().num_bytes() as u64 }
}

fn missing(id: u64) -> Error {
    malformed(format!("this session has no value {id}"))
}

fn exceeds(what: &str, most: u64) -> Error {
    Error::device("remote", format!("the session would have more than its quota of {most} {what}"))
        .hint("drop tensors that are not needed, or raise the quota in the server's options")
}
