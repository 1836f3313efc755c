//! Tests that a derived plan equals the plan made from scratch.

use super::*;
use crate::plan::{Reference, StepKind};
use alloc::format;
use kiln_ir::{
    Axes, Binary, DType, DTypeSet, Machine, NormKind, PadAxis, Products, Real, Recorder, Reduction,
    SliceAxis, Unary, Var,
};

/// Batch size, sequence length, heads, head dim, and another length.
type Lengths = [usize; 5];

/// The limits of a processor, of a GPU, and of a machine without a library whose kernels bind few tensors.
fn limits_of_machines() -> [Limits; 3] {
    let few = Machine { bindings: Some(8), products: Products::Kernels, ..Machine::gpu() };
    [Machine::processor(), Machine::gpu(), few].map(|machine| Limits::of(&machine))
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % bound
    }
}

/// A recording of random ops whose choice does not depend on lengths.
fn recording(seed: u64, lengths: Lengths) -> Structure {
    let [batch, sequence, heads, width, other] = lengths;
    let total = heads * width;
    let shapes: [&[usize]; 7] = [
        &[batch, sequence, total],
        &[batch * sequence, total],
        &[batch, heads, sequence, width],
        &[total],
        &[total, total],
        &[total, other],
        &[batch, heads, sequence, sequence],
    ];
    let types: Vec<TensorType> = shapes.iter().map(|&shape| TensorType::new(shape, DType::F32)).collect();
    let program = Recorder::trace(&types, |inputs| {
        let mut random = Random(seed * 77 + 5);
        let mut pool: Vec<Var<'_>> = inputs.to_vec();
        for _ in 0..random.below(30) + 4 {
            let x = pool[random.below(pool.len())].clone();
            let new = step(&mut random, &pool, x, lengths);
            pool.push(new);
        }
        let first = inputs.len();
        let mut outputs = alloc::vec![pool[pool.len() - 1].clone()];
        outputs.extend(pool[first..].iter().filter(|_| random.below(4) == 0).cloned());
        outputs
    });
    Structure::of_program(&program)
}

fn step<'e>(random: &mut Random, pool: &[Var<'e>], x: Var<'e>, lengths: Lengths) -> Var<'e> {
    let [batch, sequence, heads, width, other] = lengths;
    let total = heads * width;
    let (rank, shape) = (x.rank(), x.shape());
    let is_float = x.dtype() == DType::F32;
    match random.below(16) {
        0 if is_float => x.unary(Unary::Exp),
        1 if is_float => x.unary(Unary::Tanh),
        2 if is_float => x * 2.0 + 1.0,
        3..=5 if is_float => {
            let like = pool.iter().filter(|y| y.shape() == shape && y.dtype() == DType::F32);
            let like: Vec<&Var<'e>> = like.collect();
            x.binary(Binary::Mul, like[random.below(like.len())])
        }
        6 | 7 if is_float && rank > 0 => {
            let axis = random.below(rank);
            let reduced = x.reduce([Reduction::Sum, Reduction::Max][random.below(2)], &[axis]);
            if random.below(2) == 0 { reduced } else { &x - &reduced.broadcast(shape) }
        }
        8 if is_float && rank > 0 => x.apply(Op::Softmax { axis: rank - 1, log: false }, &[]),
        9 if is_float && rank > 0 => {
            let epsilon = Real(1e-5);
            x.apply(Op::Norm { kind: NormKind::Layer, axes: 1, epsilon }, &[])
        }
        // Reshapes between the layouts of a transformer's tensors.
        10 | 11 => {
            let forms: [&[usize]; 3] =
                [&[batch, sequence, total], &[batch * sequence, total], &[batch, sequence, heads, width]];
            let size = shape.num_elements();
            let is_form = rank >= 2 && size == batch * sequence * total;
            if is_form { x.reshape(forms[random.below(3)]) } else { x.reshape([size]) }
        }
        12 if rank >= 2 => x.swap(rank - 1, rank - 2),
        13 if is_float && rank >= 2 => {
            let mut factors = pool.iter().filter(|y| y.rank() == 2 && y.shape()[0] == shape[rank - 1]);
            match (factors.next_back(), rank) {
                (Some(factor), 2) => x.matmul(factor),
                _ => x.unary(Unary::Neg),
            }
        }
        14 if is_float && rank > 0 => {
            let mut pads = alloc::vec![PadAxis::default(); rank];
            pads[rank - 1] = PadAxis::new(1, 2);
            if random.below(2) == 0 { x.pad(pads, 0.0) } else { Var::concat(&[x.clone(), x], rank - 1) }
        }
        15 if rank > 0 && shape[0] > other => x.slice_axis(0, SliceAxis::range(0..shape[0] - 1)),
        _ => x.cast(DType::BF16).cast(DType::F32),
    }
}

/// Derives a plan from a recording of other lengths and compares it with the full plan. Returns whether the likeness
/// was equal.
fn is_taken_over(seed: u64, from: Lengths, to: Lengths, limits: Limits) -> bool {
    let (plan, template) = Planner::new(recording(seed, from), limits).plan();
    let Some(template) = template else { return false };
    let template = template(Arc::new(plan));
    match Planner::new(recording(seed, to), limits).derive(&template) {
        Ok(plan) => {
            plan.compare_with_full();
            true
        }
        Err(_) => false,
    }
}

#[test]
fn derived_plans_of_random_recordings_equal_fresh_plans() {
    let mut random = Random(11);
    let mut taken = 0;
    for seed in 0..3000 {
        let from: Lengths = [random.below(9) + 2, random.below(40) + 2, 4, 24, 10];
        let mut to = from;
        if seed % 2 == 0 {
            to[1] += random.below(4) + 1;
        } else {
            // All lengths change.
            let most = [9, 60, 6, 30, 12];
            to.iter_mut().zip(most).for_each(|(length, most)| *length = random.below(most) + 1);
        }
        let limits = limits_of_machines()[random.below(3)];
        taken += usize::from(is_taken_over(seed, from, to, limits));
    }
    assert!(taken > 100, "{taken} of 3000 were planned alike");
}

/// The number of tensors that a step reads and writes.
fn bindings(step: &Step) -> usize {
    let slots: alloc::collections::BTreeSet<usize> = step
        .operands
        .iter()
        .filter_map(|operand| match operand {
            Reference::Slot { slot, .. } => Some(*slot),
            Reference::Number(_) | Reference::Constant(_) => None,
        })
        .collect();
    slots.len() + step.results.len()
}

#[test]
fn kernels_bind_no_more_tensors_than_the_machine_allows() {
    let (mut regions, mut smaller) = (0, 0);
    for seed in 0..3000 {
        let lengths = [3, 5, 4, 6, 10];
        let base = if seed % 2 == 0 { Machine::gpu() } else { Machine::processor() };
        let base = Machine { products: Products::Kernels, ..base };
        let most = 2 + seed as usize % 7;
        let plan = |bindings| Plan::new(recording(seed, lengths), Limits::of(&Machine { bindings, ..base }));
        let (free, bound) = (plan(None), plan(Some(most)));
        for step in bound.steps().iter().filter(|step| step.kind() == StepKind::Region) {
            assert!(bindings(step) <= most, "seed {seed}, {most} bindings: {}", bound.describe_steps());
            regions += 1;
        }
        smaller += usize::from(bound.steps().len() > free.steps().len());
        let any = plan(Some(usize::MAX));
        assert_eq!(free.describe_steps(), any.describe_steps(), "seed {seed}");
    }
    assert!(regions > 3000 && smaller > 300, "{regions} regions, {smaller} plans with more steps");
}

#[test]
fn kernels_have_no_more_ops_than_the_machine_allows() {
    let mut smaller = 0;
    for seed in 0..500 {
        let plan = |kernel_ops| {
            let machine = Machine { kernel_ops, ..Machine::processor() };
            Plan::new(recording(seed, [3, 5, 4, 6, 10]), Limits::of(&machine))
        };
        let (free, bound) = (plan(usize::MAX), plan(8));
        for step in &bound.steps {
            if let Op::Fused(region) = &step.op {
                let is_op = |instruction: &&Instruction| !instruction.op.is_view();
                let ops = region.program().instructions.iter().filter(is_op).count();
                assert!(ops <= 8, "seed {seed}: {}", bound.describe_steps());
            }
        }
        smaller += usize::from(bound.steps().len() > free.steps().len());
    }
    assert!(smaller > 100, "{smaller}");
}

#[test]
fn ops_of_dtypes_that_kernels_lack_are_separate_steps() {
    let program = Program::parse(
        "program(%0: f32[8], %1: i64[8]) {
  %2: f32[8] = exp %0
  %3: f64[8] = cast %2
  %4: f64[8] = mul %3, 2.0
  %5: f32[8] = cast %4
  %6: f32[8] = add %5, %2
  %7: f32[8] = cast %1
  %8: f32[8] = mul %7, %6
  return %8
}
",
    )
    .unwrap();
    let dtypes = DTypeSet::of(&[DType::F32, DType::I32]);
    let plan = Plan::for_machine(&program, &Machine { dtypes, ..Machine::processor() });
    let ops: Vec<&str> = plan.steps().iter().map(|step| step.op.name()).collect();
    assert_eq!(ops, ["exp", "cast", "mul", "cast", "cast", "fused"]);
    assert_eq!(Plan::of_program(&program).steps().len(), 1);
}

#[test]
fn plans_are_derived_for_indistinguishable_lengths() {
    let (from, to) = ([4, 37, 4, 24, 5000], [4, 38, 4, 24, 5000]);
    let taken = (0..200).filter(|&seed| is_taken_over(seed, from, to, Limits::default())).count();
    // The others merge axes in more than one way, which only lengths decide.
    assert!(taken > 40, "{taken} of 200");
}

#[test]
fn lengths_shared_with_another_axis_get_their_own_plan() {
    let taken = |to: Lengths| {
        (0..100).filter(|&seed| is_taken_over(seed, [4, 37, 4, 24, 5000], to, Limits::default())).count()
    };
    assert_eq!(taken([4, 24, 4, 24, 5000]), 0, "the sequence is as long as a head");
    assert_eq!(taken([4, 1, 4, 24, 5000]), 0, "there is nothing to reduce");
}

#[test]
fn reduced_lengths_select_the_plan() {
    let ty = |rows, columns| TensorType::new([rows, columns], DType::F32);
    let recording = |rows, columns| {
        Structure::of_program(&Recorder::trace(&[ty(rows, columns)], |x| {
            let sum = x[0].apply(Op::Reduce { reduction: Reduction::Sum, axes: Axes::one(1) }, &[]);
            alloc::vec![(&x[0] - &sum.broadcast(x[0].shape())).exp()]
        }))
    };
    let plan = |rows, columns| Planner::new(recording(rows, columns), Limits::default());
    let (full, template) = plan(10, 40_000).plan();
    assert_eq!(full.steps().len(), 3, "a row is too long for the cache: {full:?}");
    let template = template.expect("it has elements")(Arc::new(full));
    assert!(plan(11, 50_000).derive(&template).is_ok());
    assert!(plan(10, 30_000).derive(&template).is_err(), "its rows stay");
    assert!(plan(70, 40_000).derive(&template).is_err(), "there are many of them");
    let note =
        plan(11, 50_000).derive(&template).ok().and_then(|plan| plan.full()).map(|full| format!("{full:?}"));
    assert!(note.is_some_and(|note| note.contains("rows of 50000 elements")), "notes name their own lengths");
}

#[test]
fn recordings_with_empty_tensors_get_their_own_plan() {
    let empty = recording(3, [0, 5, 4, 24, 10]);
    assert!(Planner::new(empty, Limits::default()).signature().is_none());
}

/// Patterns contain no lengths, so a derived plan keeps them.
#[test]
fn patterns_are_derived_for_other_lengths() {
    let finished = |rows: usize| {
        let types = [[rows, 24], [24, 40], [1, 40]].map(|shape| TensorType::new(shape, DType::F32));
        Structure::of_program(&Recorder::trace(&types, |v| {
            let y = v[0].matmul(&v[1]);
            let y = &y + &v[2].broadcast(y.shape());
            alloc::vec![y.max(&y.scalar(0.0))]
        }))
    };
    let quantized = |rows: usize| {
        let types = [
            TensorType::new([rows, 24], DType::F32),
            TensorType::new([40, 24], DType::I8),
            TensorType::new([40, 1], DType::F32),
        ];
        Structure::of_program(&Recorder::trace(&types, |v| {
            let w = v[1].apply(Op::Dequantize, &[&v[2]]).transpose();
            alloc::vec![v[0].matmul(&w).tanh()]
        }))
    };
    let last = |plan: &Plan| match plan.steps().last() {
        Some(Step { op: Op::Fused(region), .. }) => region.clone(),
        step => panic!("{step:?}"),
    };
    let check = |recording: &dyn Fn(usize) -> Structure, limits: Limits, name: &str| {
        let (plan, template) = Planner::new(recording(7), limits).plan();
        let own = last(&plan).pattern().clone();
        assert_eq!(own.name(), name);
        let template = template.expect("it has elements")(Arc::new(plan));
        let Ok(taken) = Planner::new(recording(9), limits).derive(&template) else {
            panic!("{name} is planned anew")
        };
        taken.compare_with_full();
        let region = last(&taken);
        assert_eq!(*region.pattern(), own);
        assert!(region.program().slot_types().last().is_some_and(|ty| ty.shape[0] == 9), "{region:?}");
    };
    check(&finished, Limits::of(&Machine::gpu()), "epilogue");
    check(&quantized, Limits::default(), "quantized_matmul");
}
