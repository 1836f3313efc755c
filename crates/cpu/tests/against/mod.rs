//! Runs one op with random operands on the CPU engine and on the reference engine.

use kiln_cpu::Cpu;
use kiln_ir::{
    Axes, DType, Engine, Op, Operand, OperandType, Operands, Shape, SliceAxis, TensorData, TensorType, Value,
    block_on, infer,
};
use kiln_reference::Reference;

/// An op and its operands.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    op: Op,
    operands: Vec<TensorData>,
    view: View,
}

/// The memory layout of operands.
#[derive(Clone, Copy, Debug, PartialEq)]
enum View {
    Plain,
    /// The last two axes are transposed.
    Transposed,
    /// Every axis is reversed.
    Flipped,
    /// This operand repeats its first element along the first axis.
    Repeated(usize),
}

impl Case {
    /// Operands of `f32`, uniform in -1..1.
    pub(crate) fn new(op: Op, shapes: &[&[usize]]) -> Case {
        let operand = |(seed, shape): (usize, &&[usize])| {
            TensorData::new(uniform(seed as u64 + 1, shape.iter().product()), *shape).unwrap()
        };
        let operands = shapes.iter().enumerate().map(operand).collect();
        Case { op, operands, view: View::Plain }
    }

    /// Sets the operand dtype; integers are in -9..=9 or 0..=9.
    pub(crate) fn dtype(mut self, dtype: DType) -> Case {
        for operand in &mut self.operands {
            let ty = operand.ty();
            let mut values = operand.to_vec::<f64>();
            if !dtype.is_float() {
                values.iter_mut().for_each(|x| *x = (*x * 9.0).round());
            }
            if dtype.is_unsigned_int() {
                values.iter_mut().for_each(|x| *x = x.abs());
            }
            *operand = TensorData::new(values, ty.shape).unwrap().convert(dtype);
        }
        self
    }

    /// Replaces an operand.
    pub(crate) fn operand(mut self, place: usize, data: TensorData) -> Case {
        self.operands[place] = data;
        self
    }

    /// Adds an operand.
    pub(crate) fn and(mut self, data: TensorData) -> Case {
        self.operands.push(data);
        self
    }

    /// The name of the op.
    pub(crate) fn name(&self) -> &str {
        self.op.name()
    }

    /// An operand.
    pub(crate) fn data(&self, place: usize) -> &TensorData {
        &self.operands[place]
    }

    pub(crate) fn transposed(mut self) -> Case {
        self.view = View::Transposed;
        self
    }

    pub(crate) fn flipped(mut self) -> Case {
        self.view = View::Flipped;
        self
    }

    pub(crate) fn repeated(mut self, place: usize) -> Case {
        self.view = View::Repeated(place);
        self
    }

    /// Uses few distinct values, so that extrema are not unique.
    pub(crate) fn with_few_values(self) -> Case {
        self.map(|_, x| (x * 2.0).round())
    }

    /// Adds NaN and infinities.
    pub(crate) fn with_infinities(self) -> Case {
        self.map(|i, x| match i % 11 {
            3..=5 => f64::NEG_INFINITY,
            7 if i % 77 == 7 => f64::NAN,
            _ => x,
        })
    }

    pub(crate) fn map(mut self, f: impl Fn(usize, f64) -> f64) -> Case {
        for operand in &mut self.operands {
            let values = operand.to_vec::<f64>().into_iter().enumerate().map(|(i, x)| f(i, x)).collect();
            let ty = operand.ty();
            *operand = TensorData::new::<f64>(values, ty.shape).unwrap().convert(ty.dtype);
        }
        self
    }

    /// The results on the CPU engine with a number of threads.
    pub(crate) fn on_cpu(&self, threads: usize) -> Vec<TensorData> {
        self.run(&Cpu::with_threads(threads))
    }

    /// The results on an engine.
    pub(crate) fn run(&self, engine: &dyn Engine) -> Vec<TensorData> {
        let inputs: Operands =
            (0..self.operands.len()).map(|i| Operand::Value(self.value(engine, i))).collect();
        let types = infer(&self.op, &OperandType::list(&inputs)).unwrap();
        let values = engine.execute(&self.op, inputs, &types);
        let read = |(value, ty): (Value, &TensorType)| {
            let data = block_on(engine.read(value)).unwrap_or_else(|error| panic!("{error}: {self:?}"));
            assert_eq!(data.ty(), *ty);
            data
        };
        values.into_iter().zip(&types).map(read).collect()
    }

    /// An operand on an engine, in the layout of the case.
    fn value(&self, engine: &dyn Engine, place: usize) -> Value {
        let data = self.operands[place].clone();
        let (shape, rank) = (*data.shape(), data.shape().rank());
        let view = |op: Op, value: Value| {
            let types = infer(&op, &[OperandType::Tensor(value.ty())]).unwrap();
            engine.execute(&op, [Operand::Value(value)].into_iter().collect(), &types).swap_remove(0)
        };
        match self.view {
            View::Transposed if rank >= 2 => {
                let mut axes: Vec<usize> = (0..rank).collect();
                axes.swap(rank - 1, rank - 2);
                let reference = Reference::new();
                let op = Op::Permute(Axes::new(&axes));
                let moved = permuted(&reference, &op, data);
                view(op, engine.write(moved))
            }
            View::Flipped if shape.num_elements() > 0 => {
                let all = |&len: &usize| SliceAxis { start: len - 1, len, step: -1 };
                view(Op::Slice(shape.iter().map(all).collect()), engine.write(data))
            }
            View::Repeated(which) if which == place && shape[0] > 0 => {
                let first = |(axis, &len): (usize, &usize)| SliceAxis::all(if axis == 0 { 1 } else { len });
                let one = view(Op::Slice(shape.iter().enumerate().map(first).collect()), engine.write(data));
                view(Op::Broadcast(shape), one)
            }
            View::Plain | View::Transposed | View::Flipped | View::Repeated(_) => engine.write(data),
        }
    }
}

fn permuted(reference: &Reference, op: &Op, data: TensorData) -> TensorData {
    let value = reference.write(data);
    let types = infer(op, &[OperandType::Tensor(value.ty())]).unwrap();
    let moved = reference.execute(op, [Operand::Value(value)].into_iter().collect(), &types).swap_remove(0);
    block_on(reference.read(moved)).unwrap()
}

/// Numbers in -1..1 that depend on the seed only.
pub(crate) fn uniform(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 40) as f32) / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Checks that both engines agree, within the dtype's tolerance for sums of this size.
#[track_caller]
pub(crate) fn against_reference(case: &Case) {
    within(case, 1.0);
}

/// Like [`against_reference`], with a factor for the tolerance.
#[track_caller]
pub(crate) fn within(case: &Case, factor: f64) {
    let wanted = case.run(&Reference::new());
    for threads in [1, 2] {
        for (got, wanted) in case.on_cpu(threads).iter().zip(&wanted) {
            compare(case, got, wanted, factor);
        }
    }
}

/// Checks that an engine agrees with the reference, with a factor for the tolerance.
#[track_caller]
pub(crate) fn agree(case: &Case, engine: &dyn Engine, factor: f64) {
    for (got, wanted) in case.run(engine).iter().zip(&case.run(&Reference::new())) {
        compare(case, got, wanted, factor);
    }
}

/// Checks that two results agree, within a multiple of the dtype's tolerance.
#[track_caller]
pub(crate) fn compare(case: &Case, got: &TensorData, wanted: &TensorData, factor: f64) {
    let tolerance = factor
        * match wanted.dtype() {
            DType::F64 => 1e-12,
            DType::F32 => 2e-5,
            DType::F16 => 4e-3,
            DType::BF16 => 2e-2,
            DType::I64
            | DType::I32
            | DType::I16
            | DType::I8
            | DType::U64
            | DType::U32
            | DType::U16
            | DType::U8
            | DType::Bool => 0.0,
        };
    let scale = if wanted.dtype() == DType::F32 && case.operands.iter().any(|x| x.dtype().size() == 2) {
        100.0
    } else {
        1.0
    };
    for (i, (got, wanted)) in got.to_vec::<f64>().into_iter().zip(wanted.to_vec::<f64>()).enumerate() {
        let same = got == wanted || (got.is_nan() && wanted.is_nan());
        let near = (got - wanted).abs() <= tolerance * scale * wanted.abs().max(1.0);
        let shapes: Vec<Shape> = case.operands.iter().map(|operand| *operand.shape()).collect();
        assert!(same || near, "element {i} is {got}, not {wanted}: {:?} {shapes:?} {:?}", case.op, case.view);
    }
}
