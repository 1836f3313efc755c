//! JVPs derived from the gradient rules (VJPs) of ops, and their cache.
//!
//! A gradient rule computes `Jᵀ g`, linear in `g`. The gradient of `t · Jᵀ g` by `g` is `J t`: differentiating the
//! rule's program once more, with the tangents `t` as gradients of its results, returns the program of the JVP.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};
use kiln_ir::{
    Engine, Instruction, Op, Operand, OperandType, Program, ProgramOperand, Recorder, Result, Scalar,
    TensorType, Value, Var, differentiate, vjp,
};
use spin::Mutex;

/// The capacity of the cache. It is cleared when full, so that ever-changing shapes do not exhaust memory.
const CAPACITY: usize = 1024;

/// The program that computes the tangents of an op's results.
#[derive(Debug)]
pub(super) struct Derived {
    pub(super) program: Program,
    /// The source of each input of the program.
    pub(super) sources: Vec<Source>,
    /// For each result of the op, whether it has a tangent. The program's outputs are these tangents, in order.
    pub(super) changes: Vec<bool>,
}

/// An input of a derived program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Operand(usize),
    Result(usize),
    /// The tangent of that operand.
    Tangent(usize),
}

/// The cache of derived programs by op, operands, and which operands have tangents.
#[derive(Default)]
pub(super) struct Cache(Mutex<BTreeMap<u64, Vec<Entry>>>);

struct Entry {
    op: Op,
    operands: Vec<OperandKey>,
    active: Vec<bool>,
    derived: Arc<Derived>,
}

/// The part of a cache key for one operand.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum OperandKey {
    Tensor(TensorType),
    Scalar(Scalar),
}

impl Cache {
    /// The JVP program of an op on operands of these types, derived on a cache miss.
    ///
    /// # Errors
    /// When the op has no gradient rule that can be differentiated by the gradients.
    pub(super) fn get(
        &self,
        op: &Op,
        operands: &[OperandType<'_>],
        results: &[TensorType],
        active: &[bool],
    ) -> Result<Arc<Derived>> {
        let hash = hash(op, operands, active);
        if let Some(derived) = self.find(hash, op, operands, active) {
            return Ok(derived);
        }
        let derived = Arc::new(derive(op, operands, results, active)?);
        let mut entries = self.0.lock();
        if entries.len() >= CAPACITY {
            entries.clear();
        }
        entries.entry(hash).or_default().push(Entry {
            op: op.clone(),
            operands: operands.iter().map(OperandKey::from).collect(),
            active: active.to_vec(),
            derived: derived.clone(),
        });
        Ok(derived)
    }

    fn find(
        &self,
        hash: u64,
        op: &Op,
        operands: &[OperandType<'_>],
        active: &[bool],
    ) -> Option<Arc<Derived>> {
        let entries = self.0.lock();
        let same = |entry: &&Entry| {
            entry.op == *op
                && entry.active == active
                && entry.operands.iter().copied().eq(operands.iter().map(OperandKey::from))
        };
        Some(entries.get(&hash)?.iter().find(same)?.derived.clone())
    }
}

impl From<&OperandType<'_>> for OperandKey {
    fn from(operand: &OperandType<'_>) -> OperandKey {
        match operand {
            OperandType::Tensor(ty) => OperandKey::Tensor(**ty),
            OperandType::Scalar(scalar) => OperandKey::Scalar(*scalar),
        }
    }
}

fn hash(op: &Op, operands: &[OperandType<'_>], active: &[bool]) -> u64 {
    let mut hasher = Fnv(0xCBF2_9CE4_8422_2325);
    op.hash(&mut hasher);
    operands.iter().map(OperandKey::from).for_each(|known| known.hash(&mut hasher));
    active.hash(&mut hasher);
    hasher.finish()
}

/// The hash [FNV-1a](https://www.rfc-editor.org/rfc/rfc9923), which needs no standard library.
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn derive(op: &Op, operands: &[OperandType<'_>], results: &[TensorType], active: &[bool]) -> Result<Derived> {
    let (rule, places) = gradient_rule(op, operands, results, active)?;
    let tensors: Vec<TensorType> = operands.iter().filter_map(|operand| operand.tensor()).copied().collect();
    let is_active = |(place, operand): (usize, &OperandType<'_>)| {
        if active[place] { Some((place, *operand.tensor()?)) } else { None }
    };
    let tangents: Vec<(usize, TensorType)> = operands.iter().enumerate().filter_map(is_active).collect();
    let num_known = tensors.len() + results.len();
    let inputs: Vec<TensorType> =
        tensors.iter().chain(results).copied().chain(tangents.iter().map(|(_, ty)| *ty)).collect();

    let recorder = Recorder::new(&inputs);
    let mut known: Vec<Var<'_>> =
        recorder.inputs().into_iter().map(|value| Var::new(&recorder as &dyn Engine, value)).collect();
    let given = known.split_off(num_known);
    // The rule is linear in the gradients, so they may have any value: `pruned` removes the code that reads them.
    known.extend(results.iter().filter(|ty| ty.dtype.is_float()).map(|ty| Var::zeros(&recorder, *ty)));
    let wanted: Vec<bool> = (0..known.len()).map(|place| place >= num_known).collect();
    let seed = |place: &usize| {
        let number = tangents.iter().position(|(tangent, _)| tangent == place)?;
        Some(given[number].clone())
    };
    let seeds: Vec<Option<Var<'_>>> = places.iter().map(seed).collect();
    let mut found = differentiate(&recorder, &rule, &known, &seeds, &wanted)?.into_iter().skip(num_known);
    let changes = |ty: &TensorType| if ty.dtype.is_float() { found.next().flatten() } else { None };
    let found: Vec<Option<Var<'_>>> = results.iter().map(changes).collect();

    let outputs: Vec<Operand> = found.iter().flatten().map(|var| var.operand().clone()).collect();
    let (program, kept) = pruned(recorder.finish(&outputs));
    let places = operands.iter().enumerate().filter(|(_, operand)| operand.tensor().is_some());
    let sources: Vec<Source> = places
        .map(|(place, _)| Source::Operand(place))
        .chain((0..results.len()).map(Source::Result))
        .chain(tangents.iter().map(|(place, _)| Source::Tangent(*place)))
        .collect();
    Ok(Derived {
        program,
        sources: kept.into_iter().map(|input| sources[input]).collect(),
        changes: found.iter().map(Option::is_some).collect(),
    })
}

/// Traces the gradient rule of an op as a program of its tensor operands, its results, and a gradient of each float
/// result. Its outputs are the gradients of the operands at the returned places.
fn gradient_rule(
    op: &Op,
    operands: &[OperandType<'_>],
    results: &[TensorType],
    active: &[bool],
) -> Result<(Program, Vec<usize>)> {
    let tensors = operands.iter().filter_map(|operand| operand.tensor());
    let floats = results.iter().filter(|ty| ty.dtype.is_float());
    let types: Vec<TensorType> = tensors.chain(results).chain(floats).copied().collect();
    let recorder = Recorder::new(&types);
    let engine: &dyn Engine = &recorder;
    let mut values = recorder.inputs().into_iter();
    let mut next = || values.next().expect("one slot for each");
    let var = |operand: &OperandType<'_>, next: &mut dyn FnMut() -> Value| match operand {
        OperandType::Tensor(_) => Var::new(engine, next()),
        OperandType::Scalar(scalar) => Var::new(engine, *scalar),
    };
    let inputs: Vec<Var<'_>> = operands.iter().map(|operand| var(operand, &mut next)).collect();
    let outputs: Vec<Var<'_>> = results.iter().map(|_| Var::new(engine, next())).collect();
    let gradients: Vec<Option<Var<'_>>> =
        results.iter().map(|ty| ty.dtype.is_float().then(|| Var::new(engine, next()))).collect();
    let found = vjp(op, &inputs, &outputs, &gradients, active)?;
    let found = found.into_iter().enumerate().filter_map(|(place, gradient)| Some((place, gradient?)));
    let (places, found): (Vec<usize>, Vec<Operand>) =
        found.map(|(place, gradient)| (place, gradient.into_operand())).unzip();
    Ok((recorder.finish(&found), places))
}

/// The program after dead-code elimination, and the numbers of the remaining inputs.
fn pruned(program: Program) -> (Program, Vec<usize>) {
    let mut needed = alloc::vec![false; program.num_slots()];
    mark(&program.outputs, &mut needed);
    let mut end = program.num_slots();
    for instruction in program.instructions.iter().rev() {
        let first = end - instruction.results.len();
        if needed[first..end].contains(&true) {
            mark(&instruction.operands, &mut needed);
        }
        end = first;
    }

    let inputs: Vec<usize> = (0..program.inputs.len()).filter(|&slot| needed[slot]).collect();
    let mut number: Vec<usize> = alloc::vec![usize::MAX; program.num_slots()];
    inputs.iter().enumerate().for_each(|(new, &old)| number[old] = new);
    let (mut next, mut first) = (inputs.len(), program.inputs.len());
    let mut instructions = Vec::new();
    for instruction in program.instructions {
        let slots = first..first + instruction.results.len();
        first = slots.end;
        if needed[slots.clone()].contains(&true) {
            slots.for_each(|slot| {
                number[slot] = next;
                next += 1;
            });
            let operands = renumbered(&instruction.operands, &number);
            instructions.push(Instruction { operands, ..instruction });
        }
    }
    let outputs = renumbered(&program.outputs, &number);
    let types = inputs.iter().map(|&slot| program.inputs[slot]).collect();
    (Program { inputs: types, instructions, outputs }, inputs)
}

fn mark(operands: &[ProgramOperand], needed: &mut [bool]) {
    for operand in operands {
        if let ProgramOperand::Slot(slot) = operand {
            needed[*slot] = true;
        }
    }
}

fn renumbered(operands: &[ProgramOperand], number: &[usize]) -> Vec<ProgramOperand> {
    let renumber = |operand: &ProgramOperand| match operand {
        ProgramOperand::Slot(slot) => ProgramOperand::Slot(number[*slot]),
        ProgramOperand::Scalar(scalar) => ProgramOperand::Scalar(*scalar),
    };
    operands.iter().map(renumber).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::{Binary, DType, Unary, verify};

    fn derived(op: &Op, operands: &[OperandType<'_>], active: &[bool]) -> Derived {
        let results = kiln_ir::infer(op, operands).expect("a valid op");
        let derived = derive(op, operands, &results, active).expect("a derivative");
        verify(&derived.program).expect("a valid program");
        derived
    }

    #[test]
    fn derived_programs_contain_only_needed_ops() {
        let x = TensorType::new([3], DType::F32);
        let exp = derived(&Op::Unary(Unary::Exp), &[(&x).into()], &[true]);
        assert_eq!(exp.sources, [Source::Result(0), Source::Tangent(0)]);
        assert_eq!(exp.program.instructions.len(), 1);
        let div = derived(&Op::Binary(Binary::Div), &[(&x).into(), (&x).into()], &[true, false]);
        assert_eq!(div.sources, [Source::Operand(1), Source::Tangent(0)]);
        assert_eq!(div.program.instructions.len(), 1);
    }

    #[test]
    fn derivatives_are_cached() {
        let x = TensorType::new([3], DType::F32);
        let cache = Cache::default();
        let op = Op::Unary(Unary::Exp);
        let get = |x: &TensorType| cache.get(&op, &[x.into()], &[*x], &[true]).expect("a derivative");
        let first = get(&x);
        assert!(Arc::ptr_eq(&first, &get(&x)));
        assert!(!Arc::ptr_eq(&first, &get(&x.with_shape([4]))));
    }

    #[test]
    fn the_cache_is_bounded() {
        let cache = Cache::default();
        for length in 0..CAPACITY + 10 {
            let x = TensorType::new([length], DType::F32);
            cache.get(&Op::Unary(Unary::Exp), &[(&x).into()], &[x], &[true]).expect("a derivative");
        }
        assert!(cache.0.lock().len() <= CAPACITY);
    }
}
