//! The programs that a session keeps, and their runs.

use super::sized;
use crate::budget::{Account, Charge};
use crate::codec::malformed;
use crate::message::{Source, Step, Template};
use kiln_ir::{
    Engine, Error, Op, OpClass, OpKind, Operand, OperandType, Operands, Result, ResultTypes, Scalar,
    TensorType, Value, Values, block_on, infer, poison_of, poisoned,
};
use std::sync::Arc;

/// A template, with the types of all results once they are known.
pub(super) struct Program {
    pub(super) template: Template,
    pub(super) types: Vec<ResultTypes>,
    /// The number of numbers that it takes.
    pub(super) numbers: usize,
    /// How often each input and each result is used, outputs included.
    uses: [Vec<u32>; 2],
    /// The bytes of the program itself.
    _charge: Charge,
}

/// A value, and the bytes that count for it.
#[derive(Clone)]
pub(super) struct ChargedValue {
    pub(super) value: Value,
    own: Arc<Charge>,
    /// Those of the larger value whose memory a view keeps.
    base: Option<Arc<Charge>>,
}

/// What a run needs besides its program.
pub(super) struct Context<'a> {
    pub(super) engine: &'a dyn Engine,
    pub(super) tensors: &'a Arc<Account>,
    /// Whether the session still has a client; asked between ops.
    pub(super) goes_on: &'a dyn Fn() -> bool,
}

/// The outputs of a run, by the number of the result.
pub(super) type Outputs = Vec<(u32, ChargedValue)>;

impl ChargedValue {
    /// A value with the bytes that were counted for it. An error holds none of them.
    pub(super) fn new(value: Value, mut charge: Charge) -> ChargedValue {
        let bytes = if value.error().is_some() { 0 } else { value.ty().num_bytes() as u64 };
        charge.shrink(bytes);
        ChargedValue { value, own: Arc::new(charge), base: None }
    }

    /// The bytes that count for the value alone.
    pub(super) fn bytes(&self) -> u64 {
        self.own.bytes()
    }

    /// The larger of the charges whose memory this value may keep.
    fn largest(&self) -> Arc<Charge> {
        let base = self.base.as_ref().filter(|base| base.bytes() > self.own.bytes());
        base.unwrap_or(&self.own).clone()
    }
}

impl Program {
    /// A program, whose own bytes are counted.
    ///
    /// # Errors
    /// When they exceed a quota.
    pub(super) fn new(template: Template, account: &Arc<Account>) -> Result<Program> {
        let operands = template.steps.iter().flat_map(|step| &step.operands);
        let numbers = operands.filter(|source| matches!(source, Source::Number)).count();
        let charge = account.charge(bytes(&template))?;
        Ok(Program { template, types: Vec::new(), numbers, uses: [vec![], vec![]], _charge: charge })
    }

    /// Checks the ops on their operands. Numbers differ from run to run, so ops with numbers are checked in each.
    pub(super) fn check(&mut self, numbers: &[Scalar]) -> Result<()> {
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
    pub(super) fn outputs(&self) -> impl Iterator<Item = (u32, TensorType)> {
        let types: Vec<TensorType> = self.types.iter().flatten().copied().collect();
        self.template.outputs.iter().map(move |result| (*result, types[*result as usize]))
    }

    /// The outputs, poisoned.
    fn refused(&self, error: &Error, tensors: &Arc<Account>) -> Result<Outputs> {
        let poisoned = |(result, ty)| {
            Ok((result, ChargedValue::new(Value::poisoned(ty, error.clone()), tensors.charge(0)?)))
        };
        self.outputs().map(poisoned).collect()
    }

    /// Runs the ops, or poisons the outputs beyond a quota: `refusal`, or that of the intermediate results.
    ///
    /// # Errors
    /// When the client has gone.
    pub(super) fn run(
        &self,
        context: &Context<'_>,
        inputs: Vec<ChargedValue>,
        numbers: &[Scalar],
        refusal: Option<Error>,
    ) -> Result<Outputs> {
        let outcome = match refusal {
            Some(error) => Err(Stop::Quota(error)),
            None => self.execute(context, inputs, numbers),
        };
        match outcome {
            Ok(outputs) => Ok(outputs),
            Err(Stop::Quota(error)) => self.refused(&error, context.tensors),
            Err(Stop::Gone) => Err(Error::device("server", "the client has gone")),
        }
    }

    /// Runs the ops. A value is passed on at its last use, so that the engine may overwrite it. The bytes of each result are
    /// counted before it is computed.
    fn execute(
        &self,
        context: &Context<'_>,
        inputs: Vec<ChargedValue>,
        numbers: &[Scalar],
    ) -> Result<Outputs, Stop> {
        let engine = context.engine;
        let mut as_inferred = true;
        let mut inputs = Slots::new(inputs.into_iter().map(Some).collect(), &self.uses[0]);
        let mut results = Slots::new(Vec::new(), &self.uses[1]);
        let mut numbers = numbers.iter();
        for (number, (step, types)) in self.template.steps.iter().zip(&self.types).enumerate() {
            if !(context.goes_on)() {
                return Err(Stop::Gone);
            }
            if number % UNIT == UNIT - 1 {
                // A failure is the value's.
                let _ = block_on(engine.sync());
            }
            let wanted = types.iter().fold(0, |sum: u64, ty| sum.saturating_add(ty.num_bytes() as u64));
            let mut charge = context.tensors.charge(wanted).map_err(Stop::Quota)?;
            let mut base = None;
            let mut operands = Operands::new();
            for source in &step.operands {
                let charged = match *source {
                    Source::Input(input) => inputs.take(input),
                    Source::Result(result) => results.take(result),
                    Source::Number => {
                        operands.extend(numbers.next().map(|number| Operand::Scalar(*number)));
                        continue;
                    }
                };
                let Some(charged) = charged else { continue };
                if base.is_none() && may_be_view(&step.op.0) {
                    base = Some(charged.largest());
                }
                operands.push(Operand::Value(charged.value));
            }
            let values = match as_inferred {
                true => engine.execute(&step.op.0, operands, types),
                false => run_inferred(engine, &step.op.0, operands, types),
            };
            as_inferred &= values.iter().map(Value::ty).eq(types);
            results.extend(values.into_iter().map(|value| {
                let own = charge.split(value.ty().num_bytes() as u64);
                ChargedValue { base: base.clone(), ..ChargedValue::new(value, own) }
            }));
        }
        Ok(self
            .template
            .outputs
            .iter()
            .filter_map(|output| Some((*output, results.take(*output)?)))
            .collect())
    }
}

/// An engine that batches ops gets longer runs in parts of so many ops, between which the client may leave. Kiln's clients send no
/// longer ones.
const UNIT: usize = 257;

/// Why a run ends early.
enum Stop {
    Quota(Error),
    Gone,
}

/// Whether the result of an op may keep the memory of its first operand.
fn may_be_view(op: &Op) -> bool {
    let kind = op.kind();
    let is_identity_at_times =
        [OpKind::Cast, OpKind::Pad, OpKind::Concat, OpKind::Copy, OpKind::CheckIndex].contains(&kind);
    kind.info().class == OpClass::View || is_identity_at_times
}

/// A bound of the bytes of a program, with those of the types and counts that its first run adds.
fn bytes(template: &Template) -> u64 {
    let Template { inputs, steps, outputs } = template;
    let of_step = |step: &Step| {
        let op = postcard::to_stdvec(&step.op.0).map_or(0, |bytes| bytes.len());
        // The lists of an op are at most 16 bytes for each of their bytes on the wire.
        size_of::<Step>()
            + 16 * op
            + step.operands.capacity() * size_of::<Source>()
            + 2 * size_of::<ResultTypes>()
    };
    let steps: usize = steps.iter().map(of_step).sum();
    let inputs = inputs.capacity() * (size_of::<TensorType>() + size_of::<u32>());
    (size_of::<Program>() + steps + inputs + outputs.capacity() * size_of::<u32>()) as u64
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
    values: Vec<Option<ChargedValue>>,
    uses: Vec<u32>,
}

impl Slots {
    fn new(values: Vec<Option<ChargedValue>>, uses: &[u32]) -> Slots {
        Slots { values, uses: uses.to_vec() }
    }

    fn extend(&mut self, values: impl Iterator<Item = ChargedValue>) {
        for value in values {
            let is_used = self.uses[self.values.len()] > 0;
            self.values.push(is_used.then_some(value));
        }
    }

    fn take(&mut self, number: u32) -> Option<ChargedValue> {
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
