//! Random regions: a kernel computes the same values as its program.

use crate::harness::{Fill, Random, Source, check, nest_operand, renumber, slot, typed};
use kiln_ir::{
    Axes, Binary, Comparison, DType, Instruction, NormKind, Op, OperandType, Operands, PadAxis, Program,
    ProgramOperand, Real, Reduction, Scalar, Shape, TensorType, Unary, UpdateMode, infer,
};
use kiln_kernel::{KernelKind, Nest, Refusal, Slot};
use std::collections::BTreeMap;

/// A region under construction, as a nest and as a program.
struct Region {
    random: Random,
    nest: Nest,
    slots: Vec<Slot>,
    types: Vec<TensorType>,
    /// Whether kernel and program compute a slot bitwise equally. Discontinuous functions use only such slots.
    exact: Vec<bool>,
    /// Whether a slot depends on no tensor in memory.
    free: Vec<bool>,
    is_input: Vec<bool>,
    program: Program,
    sources: Vec<Source>,
    fill: Fill,
    refused: BTreeMap<(String, String), usize>,
    pushed: usize,
}

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

impl Region {
    fn new(seed: u64) -> Region {
        let mut random = Random::new(seed);
        let fill = if random.chance(15) { Fill::Special } else { Fill::Quarters };
        Region {
            random,
            nest: if seed.is_multiple_of(3) { Nest::with_columns() } else { Nest::default() },
            slots: Vec::new(),
            types: Vec::new(),
            exact: Vec::new(),
            free: Vec::new(),
            is_input: Vec::new(),
            program: Program::default(),
            sources: Vec::new(),
            fill,
            refused: BTreeMap::new(),
            pushed: 0,
        }
    }

    fn input(&mut self, source: Source) -> usize {
        let ty = source.ty;
        self.free.push(source.number.is_some());
        self.is_input.push(true);
        let slot = match source.number {
            Some(_) => self.nest.number(ty.dtype),
            None => self.nest.input(ty),
        };
        self.sources.push(source);
        self.program.inputs.push(ty);
        self.slots.push(slot);
        self.types.push(ty);
        self.exact.push(true);
        self.slots.len() - 1
    }

    /// Pushes a valid op. Returns the new slot if the nest accepts it.
    fn push(&mut self, op: Op, operands: &[ProgramOperand], exact: bool) -> Option<usize> {
        let types: Operands = operands.iter().map(|operand| typed(operand, &self.types)).collect();
        let results = infer(&op, &OperandType::list(&types)).ok()?;
        let pushed: Vec<_> = operands.iter().map(|operand| nest_operand(operand, &self.slots)).collect();
        self.pushed += 1;
        let before = format!("{:?}", self.nest);
        let savepoint = self.nest.savepoint();
        let mut result = self.nest.push(&op, &pushed, &results);
        if self.pushed.is_multiple_of(2) {
            self.nest.rollback(savepoint);
            assert_eq!(before, format!("{:?}", self.nest), "a rollback takes back all of a push");
            result = self.nest.push(&op, &pushed, &results);
        }
        match result {
            Ok(slot) => {
                self.slots.push(slot);
                self.types.push(results[0]);
                self.exact.push(exact);
                self.is_input.push(false);
                let operands = operands.to_vec();
                let free = |operand: &ProgramOperand| match operand {
                    ProgramOperand::Slot(slot) => self.free[*slot],
                    ProgramOperand::Scalar(_) => true,
                };
                self.free.push(operands.iter().all(free));
                self.program.instructions.push(Instruction { op, operands, results: results.to_vec() });
                Some(self.slots.len() - 1)
            }
            Err(refusal) => {
                assert_eq!(before, format!("{:?}", self.nest), "a refused op leaves the region as it was");
                *self.refused.entry((op.name().into(), refusal.reason())).or_default() += 1;
                None
            }
        }
    }

    fn any(&mut self, accept: impl Fn(&Region, usize) -> bool) -> Option<usize> {
        let fitting: Vec<usize> = (0..self.slots.len()).filter(|&slot| accept(self, slot)).collect();
        // Later slots are more likely, so that chains grow.
        let at = self.random.below(fitting.len()).max(self.random.below(fitting.len()));
        (!fitting.is_empty()).then(|| fitting[at])
    }

    /// The program with slots renumbered, inputs first.
    fn renumbered(&self, outputs: &[usize]) -> Program {
        let (mut inputs, mut results) = (0, self.program.inputs.len());
        let numbers: Vec<usize> = self
            .is_input
            .iter()
            .map(|&is_input| {
                let next = if is_input { &mut inputs } else { &mut results };
                *next += 1;
                *next - 1
            })
            .collect();
        let mut program = self.program.clone();
        program.outputs = outputs.iter().map(|&output| slot(output)).collect();
        renumber(&mut program, &numbers);
        program
    }

    fn is_float(&self, slot: usize) -> bool {
        self.types[slot].dtype.is_float()
    }

    fn narrow(&self, slot: usize) -> bool {
        self.is_float(slot) && self.types[slot].dtype.size() == 2
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..20 => self.unary(),
            20..42 => self.binary(),
            42..45 => self.taken(),
            45..50 => self.select(),
            50..55 => self.cast(),
            55..62 => self.reshape(),
            62..67 => self.permute(),
            67..74 => self.broadcast(),
            74..84 => self.reduce(),
            84..88 => self.composite(),
            88..91 => self.generated(),
            91..93 => self.scan(),
            93..95 => self.by_index(),
            95..97 => self.matmul(),
            97..98 => self.padded(),
            98..99 => self.joined(),
            99..100 => self.new_input(),
            _ => unreachable!(),
        };
    }

    fn unary(&mut self) -> Option<usize> {
        let x = self.any(|region, slot| !region.types[slot].dtype.is_bool())?;
        let ty = self.types[x];
        let smooth = [Unary::Neg, Unary::Abs, Unary::Tanh, Unary::Atan, Unary::Erf];
        let integer = [Unary::Abs, Unary::Sign, Unary::Not, Unary::Neg];
        let function = match (ty.dtype.is_float(), self.exact[x]) {
            (false, _) => self.random.pick(&integer),
            (true, true) if !self.narrow(x) => self.random.pick(Unary::ALL),
            (true, _) => self.random.pick(&smooth),
        };
        let exact = self.exact[x] && (!self.narrow(x) || matches!(function, Unary::Neg | Unary::Abs));
        self.push(Op::Unary(function), &[slot(x)], exact)
    }

    /// Another operand of the same shape and dtype: a slot, broadcast if needed, or a scalar.
    fn beside(&mut self, x: usize) -> Option<ProgramOperand> {
        let ty = self.types[x];
        if self.random.chance(25) {
            if ty.dtype.is_bool() {
                return None;
            }
            return Some(ProgramOperand::Scalar(if ty.dtype.is_float() {
                Scalar::Float(self.random.below(17) as f64 / 4.0 - 2.0)
            } else if ty.dtype.is_unsigned_int() {
                Scalar::Int(self.random.below(5) as i64)
            } else {
                Scalar::Int(self.random.below(9) as i64 - 4)
            }));
        }
        let fits = |from: &Shape, to: &Shape| {
            from.rank() <= to.rank()
                && from.iter().rev().zip(to.iter().rev()).all(|(&a, &b)| a == b || a == 1)
        };
        let other = self.any(|region, slot| {
            region.types[slot].dtype == ty.dtype && fits(&region.types[slot].shape, &ty.shape)
        })?;
        if self.types[other].shape == ty.shape {
            return Some(slot(other));
        }
        let exact = self.exact[other];
        self.push(Op::Broadcast(ty.shape), &[slot(other)], exact).map(slot)
    }

    fn is_exact(&self, operand: &ProgramOperand) -> bool {
        match operand {
            ProgramOperand::Slot(slot) => self.exact[*slot],
            ProgramOperand::Scalar(_) => true,
        }
    }

    fn binary(&mut self) -> Option<usize> {
        let x = self.any(|_, _| true)?;
        let other = self.beside(x)?;
        let ty = self.types[x];
        let both = self.exact[x] && self.is_exact(&other);
        let smooth = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Min, Binary::Max];
        let function = if ty.dtype.is_bool() {
            self.random.pick(&[Binary::And, Binary::Or, Binary::Xor])
        } else if ty.dtype.is_float() && (!both || self.narrow(x)) || self.random.chance(50) {
            self.random.pick(&smooth)
        } else {
            self.random.pick(Binary::ALL)
        };
        let operands = if self.random.chance(50) { [slot(x), other] } else { [other, slot(x)] };
        if both && self.random.chance(10) {
            let comparison = self.random.pick(Comparison::ALL);
            return self.push(Op::Compare(comparison), &operands, true);
        }
        let exact = both && (!self.narrow(x) || matches!(function, Binary::Min | Binary::Max));
        self.push(Op::Binary(function), &operands, exact)
    }

    fn select(&mut self) -> Option<usize> {
        let condition = self.any(|region, slot| region.types[slot].dtype.is_bool())?;
        let shape = self.types[condition].shape;
        let x = self.any(|region, slot| region.types[slot].shape == shape)?;
        let other = self.beside(x)?;
        let exact = self.exact[x] && self.is_exact(&other);
        self.push(Op::Select, &[slot(condition), slot(x), other], exact)
    }

    fn cast(&mut self) -> Option<usize> {
        let x = self.any(|region, slot| region.exact[slot])?;
        let dtype =
            if self.random.chance(50) { self.random.pick(&FLOATS) } else { self.random.pick(&DType::ALL) };
        if self.random.chance(15) {
            return self.push(Op::Bitcast(dtype), &[slot(x)], true);
        }
        self.push(Op::Cast(dtype), &[slot(x)], true)
    }

    fn reshape(&mut self) -> Option<usize> {
        let x = self.any(|_, _| true)?;
        let mut lengths = self.types[x].shape.to_vec();
        let at = self.random.below(lengths.len());
        match self.random.below(3) {
            0 if lengths.len() > 1 && at > 0 => {
                let inner = lengths.remove(at);
                lengths[at - 1] *= inner;
            }
            1 if !lengths.is_empty() && lengths.len() < 5 => {
                let divisors: Vec<usize> =
                    (1..=lengths[at]).filter(|d| lengths[at].is_multiple_of(*d)).collect();
                let outer = self.random.pick(&divisors);
                lengths[at] /= outer;
                lengths.insert(at, outer);
            }
            _ => lengths.insert(at, 1),
        }
        let exact = self.exact[x];
        self.push(Op::Reshape(Shape::new(&lengths)), &[slot(x)], exact)
    }

    fn permute(&mut self) -> Option<usize> {
        let x = self.any(|region, slot| region.types[slot].rank() > 1)?;
        let mut axes: Vec<usize> = (0..self.types[x].rank()).collect();
        let (a, b) = (self.random.below(axes.len()), self.random.below(axes.len()));
        axes.swap(a, b);
        let exact = self.exact[x];
        self.push(Op::Permute(Axes::new(&axes)), &[slot(x)], exact)
    }

    fn broadcast(&mut self) -> Option<usize> {
        let x = self.any(|region, slot| region.types[slot].rank() < 4)?;
        let mut lengths = self.types[x].shape.to_vec();
        for length in &mut lengths {
            if *length == 1 {
                *length = self.random.pick(&[1, 2, 4, 6]);
            }
        }
        if self.random.chance(30) {
            lengths.insert(0, self.random.pick(&[1, 2, 3]));
        }
        if lengths.iter().product::<usize>() > 600 {
            return None;
        }
        let exact = self.exact[x];
        self.push(Op::Broadcast(Shape::new(&lengths)), &[slot(x)], exact)
    }

    fn reduce(&mut self) -> Option<usize> {
        let x = self.any(|region, slot| region.types[slot].rank() > 0)?;
        let rank = self.types[x].rank();
        let axes: Vec<usize> = match self.random.below(4) {
            0 => (0..rank).collect(),
            1 => vec![0],
            2 => vec![rank - 1],
            _ => (0..rank).filter(|_| self.random.chance(50)).collect(),
        };
        let reduction = self.random.pick(Reduction::ALL);
        let picks = matches!(reduction, Reduction::Min | Reduction::Max);
        let exact = self.exact[x] && (picks || !self.is_float(x));
        self.push(Op::Reduce { reduction, axes: Axes::new(&axes) }, &[slot(x)], exact)
    }

    fn composite(&mut self) -> Option<usize> {
        let x = self.any(|region, slot| region.is_float(slot) && region.types[slot].rank() > 0)?;
        let rank = self.types[x].rank();
        if self.random.chance(50) {
            let (axis, log) = (self.random.below(rank), self.random.chance(50));
            return self.push(Op::Softmax { axis, log }, &[slot(x)], false);
        }
        let axes = 1 + self.random.below(rank);
        let kind = self.random.pick(NormKind::ALL);
        let mut operands = vec![slot(x)];
        for _ in 0..self.random.below(3) {
            let ty = TensorType::new(&self.types[x].shape[rank - axes..], self.types[x].dtype);
            let source = Source::random(&mut self.random, ty, Fill::Quarters);
            operands.push(slot(self.input(source)));
        }
        self.push(Op::Norm { kind, axes, epsilon: Real(0.5) }, &operands, false)
    }

    fn generated(&mut self) -> Option<usize> {
        let like = self.any(|_, _| true)?;
        let ty = self.types[like];
        if ty.rank() > 0 && !ty.dtype.is_bool() && self.random.chance(60) {
            let axis = self.random.below(ty.rank());
            return self.push(Op::Iota { ty, axis }, &[], !self.narrow(like));
        }
        let scalar = if ty.dtype.is_bool() { Scalar::Bool(true) } else { Scalar::Int(3) };
        self.push(Op::Full(ty), &[ProgramOperand::Scalar(scalar)], true)
    }

    fn scan(&mut self) -> Option<usize> {
        let x =
            self.any(|region, slot| region.types[slot].rank() > 0 && !region.types[slot].dtype.is_bool())?;
        let op = Op::Scan {
            reduction: self.random.pick(Reduction::ALL),
            axis: self.random.below(self.types[x].rank()),
            reverse: self.random.chance(50),
            exclusive: self.random.chance(50),
        };
        let exact = self.exact[x] && !self.is_float(x);
        self.push(op, &[slot(x)], exact)
    }

    fn by_index(&mut self) -> Option<usize> {
        let x = self.any(|region, slot| region.types[slot].rank() > 0)?;
        let ty = self.types[x];
        let axis = self.random.below(ty.rank());
        let index = self.random.pick(&[DType::I32, DType::I64, DType::U8]);
        let fill = Fill::Below(ty.shape[axis]);
        let index_ty = TensorType::new(ty.shape.with(axis, 1), index);
        let source = Source::random(&mut self.random, index_ty, fill);
        let index = self.input(source);
        if self.random.chance(50) {
            let exact = self.exact[x];
            return self.push(Op::Gather { axis }, &[slot(x), slot(index)], exact);
        }
        let source_ty = ty.with_shape(index_ty.shape);
        let source = Source::random(&mut self.random, source_ty, Fill::Quarters);
        let source = self.input(source);
        let mode = self.random.pick(UpdateMode::ALL);
        let exact = self.exact[x] && !self.narrow(x);
        self.push(Op::Scatter { axis, mode }, &[slot(x), slot(index), slot(source)], exact)
    }

    /// Elements of a new input at an index, with the shape of another slot.
    fn taken(&mut self) -> Option<usize> {
        let like = self.any(|region, slot| region.types[slot].rank() > 0)?;
        let ty = self.types[like];
        let axis = self.random.below(ty.rank());
        let length = self.random.pick(&[1, 2, 5, 9]);
        let source = Source::random(&mut self.random, ty.with_shape(ty.shape.with(axis, length)), self.fill);
        let x = self.input(source);
        let takes = self.random.chance(50);
        let shape = if takes { Shape::new([ty.shape[axis]]) } else { ty.shape };
        let dtype = self.random.pick(&[DType::I32, DType::I64, DType::U8, DType::I8, DType::U64]);
        let source =
            Source::random(&mut self.random, TensorType::new(shape, dtype), Fill::Below(length.min(5)));
        let mut index = self.input(source);
        if self.random.chance(30) {
            let one = ProgramOperand::Scalar(Scalar::Int(length as i64 - 1));
            index = self.push(Op::Binary(Binary::Min), &[slot(index), one], true)?;
        }
        let op = if takes { Op::Take { axis } } else { Op::Gather { axis } };
        self.push(op, &[slot(x), slot(index)], true)
    }

    fn matmul(&mut self) -> Option<usize> {
        let x =
            self.any(|region, slot| region.types[slot].rank() > 1 && !region.types[slot].dtype.is_bool())?;
        let (ty, rank) = (self.types[x], self.types[x].rank());
        let other = self.random.pick(&[1, 2, 5]);
        let right = self.random.chance(60);
        let shape = if right {
            ty.shape.with(rank - 2, ty.shape[rank - 1]).with(rank - 1, other)
        } else {
            ty.shape.with(rank - 1, ty.shape[rank - 2]).with(rank - 2, other)
        };
        let source = Source::random(&mut self.random, ty.with_shape(shape), self.fill);
        let other = self.input(source);
        let operands = if right { [slot(x), slot(other)] } else { [slot(other), slot(x)] };
        let exact = self.exact[x] && !self.is_float(x);
        self.push(Op::MatMul, &operands, exact)
    }

    /// An operand, padded to the shape of another slot.
    fn padded(&mut self) -> Option<usize> {
        let like = self.any(|region, slot| region.types[slot].rank() > 0)?;
        let mut ty = self.types[like];
        let mut pads = vec![PadAxis::default(); ty.rank()];
        for (axis, pad) in pads.iter_mut().enumerate() {
            if self.random.chance(60) {
                let length = 1 + self.random.below(ty.shape[axis]);
                let low = self.random.below(ty.shape[axis] - length + 1);
                *pad = PadAxis::new(low, ty.shape[axis] - length - low);
                ty.shape[axis] = length;
            }
        }
        let source = Source::random(&mut self.random, ty, self.fill);
        let x = self.input(source);
        let padding = if ty.dtype.is_bool() {
            Scalar::Bool(self.random.chance(50))
        } else if ty.dtype.is_float() {
            Scalar::Float(self.random.pick(&[0.0, -0.0, 1.5]))
        } else {
            Scalar::Int(self.random.below(2) as i64)
        };
        let y = self.push(Op::Pad(pads), &[slot(x), ProgramOperand::Scalar(padding)], true)?;
        self.free[y] = true;
        Some(y)
    }

    /// Operands whose concatenation has the shape of another slot.
    fn joined(&mut self) -> Option<usize> {
        let like = self.any(|region, slot| region.types[slot].rank() > 0)?;
        let ty = self.types[like];
        let axis = self.random.below(ty.rank());
        let mut left = ty.shape[axis];
        let mut operands = Vec::new();
        while left > 0 {
            let length = 1 + self.random.below(left);
            left -= length;
            let part = ty.with_shape(ty.shape.with(axis, length));
            let source = Source::random(&mut self.random, part, self.fill);
            operands.push(slot(self.input(source)));
        }
        let y = self.push(Op::Concat { axis }, &operands, true)?;
        self.free[y] = true;
        Some(y)
    }

    fn new_input(&mut self) -> Option<usize> {
        let like = self.any(|_, _| true)?;
        let mut ty = self.types[like];
        if self.random.chance(20) {
            let source = Source::number(&mut self.random, ty.dtype);
            return Some(self.input(source));
        }
        if ty.rank() > 0 && self.random.chance(50) {
            let axis = self.random.below(ty.rank());
            ty.shape[axis] = 1;
        }
        let source = Source::random(&mut self.random, ty, self.fill);
        Some(self.input(source))
    }
}

/// Statistics over many regions.
#[derive(Default)]
struct Tally {
    kernels: usize,
    instructions: usize,
    kinds: BTreeMap<String, usize>,
    refused: BTreeMap<(String, String), usize>,
    pushed: usize,
    apart: usize,
    columns: usize,
}

fn region(seed: u64, tally: &mut Tally) -> Result<(), String> {
    let mut region = Region::new(seed);
    let rank = region.random.below(4);
    let base: Vec<usize> = (0..rank).map(|_| region.random.pick(&[1, 2, 3, 4, 6, 8])).collect();
    let float = if region.random.chance(70) { DType::F32 } else { region.random.pick(&DType::ALL) };
    for _ in 0..1 + region.random.below(3) {
        let mut shape = base.clone();
        for length in &mut shape {
            if region.random.chance(15) {
                *length = 1;
            }
        }
        let ty = TensorType::new(Shape::new(&shape), float);
        let source = Source::random(&mut region.random, ty, region.fill);
        region.input(source);
    }
    for _ in 0..2 + region.random.below(14) {
        region.step();
    }
    tally.pushed += region.pushed;
    for (why, count) in &region.refused {
        *tally.refused.entry(why.clone()).or_default() += count;
    }
    let storable: Vec<usize> =
        (0..region.slots.len()).filter(|&slot| region.nest.is_storable(region.slots[slot])).collect();
    if storable.is_empty() {
        return Ok(());
    }
    let mut outputs = vec![storable[storable.len() - 1]];
    for _ in 0..region.random.below(3) {
        let output = region.random.pick(&storable);
        // Tensors made only of scalars and indices need not share axes with others.
        if !region.free[output] && !region.free[outputs[0]] {
            outputs.push(output);
        }
    }
    let tolerance = |&slot: &usize| match (region.exact[slot], region.types[slot].dtype) {
        (true, dtype) if !dtype.is_float() || dtype.size() > 2 => 0.0,
        (_, DType::F64) => 1e-9,
        (_, DType::F16) => 4e-3,
        (_, DType::BF16) => 3e-2,
        _ => 2e-4,
    };
    let tolerances: Vec<f64> = outputs.iter().map(tolerance).collect();
    let program = region.renumbered(&outputs);
    let slots: Vec<Slot> = outputs.iter().map(|&output| region.slots[output]).collect();
    let mut checked = check(&region.nest, &slots, &program, &region.sources, &tolerances);
    if checked.as_ref().is_err_and(|problem| problem.starts_with("not lowered")) {
        // Two tensors made only of scalars may be unrelated.
        tally.apart += 1;
        let program = region.renumbered(&outputs[..1]);
        checked = check(&region.nest, &slots[..1], &program, &region.sources, &tolerances);
    }
    match checked {
        Ok(lowered) => {
            tally.kernels += 1;
            tally.columns += usize::from(lowered.kernel.has_columns());
            tally.instructions += region.program.instructions.len();
            let kind = &lowered.kernel.kind;
            let kind =
                if matches!(kind, KernelKind::MatMul(_)) { "MatMul".into() } else { format!("{kind:?}") };
            *tally.kinds.entry(kind).or_default() += 1;
            Ok(())
        }
        Err(problem) => Err(format!("seed {seed}: {problem}\n{program}")),
    }
}

#[test]
fn kernels_equal_programs() {
    let count = kiln_ir::setting("KILN_KERNEL_CASES", "a number", |n| n.parse().ok()).unwrap_or(6000);
    let first = kiln_ir::setting("KILN_KERNEL_SEED", "a number", |n| n.parse().ok()).unwrap_or(0);
    let mut tally = Tally::default();
    let mut failures = Vec::new();
    for seed in first..first + count {
        if let Err(problem) = region(seed, &mut tally) {
            failures.push(problem);
        }
    }
    println!(
        "{} kernels of {} ops, {} with columns; kinds {:?}; {} pushes, refused: {:?}",
        tally.kernels, tally.instructions, tally.columns, tally.kinds, tally.pushed, tally.refused
    );
    let shown = failures.iter().min_by_key(|problem| problem.len());
    assert!(failures.is_empty(), "{} of {count} failed\n{}", failures.len(), shown.unwrap());
    for kind in ["Map", "Transpose", "RowReduce", "ColReduce", "FullReduce", "Scan", "MatMul"] {
        assert!(tally.kinds.contains_key(kind), "no {kind} among {:?}", tally.kinds);
    }
    assert!(tally.columns * 1000 > count as usize, "{} kernels with columns", tally.columns);
    assert!(tally.apart * 1000 <= tally.kernels, "{} sets of outputs not lowered", tally.apart);
    let refused: usize =
        tally.refused.iter().filter(|((_, why), _)| *why != Refusal::NoKernel.reason()).map(|(_, n)| n).sum();
    assert!(refused * 3 < tally.pushed, "{refused} of {} ops refused", tally.pushed);
}
