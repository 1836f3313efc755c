//! The overhead of an eager op: allocations, memory reuse, nanoseconds.

use kiln_cpu::Cpu;
use kiln_ir::{
    Binary, DType, Engine, Op, OpKind, Operand, OperandType, Operands, Scalar, TensorData, TensorType, Unary,
    Value, block_on, infer,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts the allocations of `body` on this thread.
fn allocations<T>(body: impl FnOnce() -> T) -> (usize, T) {
    let before = COUNT.with(Cell::get);
    let result = body();
    (COUNT.with(Cell::get) - before, result)
}

fn run(cpu: &Cpu, op: &Op, inputs: Operands) -> Value {
    let types = infer(op, &OperandType::list(&inputs)).unwrap();
    cpu.execute(op, inputs, &types).remove(0)
}

fn operands<const N: usize>(list: [Operand; N]) -> Operands {
    let mut operands = Operands::new();
    list.into_iter().for_each(|operand| operands.push(operand));
    operands
}

fn data(n: usize) -> TensorData {
    TensorData::from((0..n).map(|i| i as f32).collect::<Vec<_>>())
}

#[test]
fn an_op_on_shared_operands_allocates_one_buffer_and_one_value() {
    let cpu = Cpu::with_threads(1);
    let (a, b) = (cpu.write(data(8)), cpu.write(data(8)));
    for op in [Op::Binary(Binary::Add), Op::Unary(Unary::Exp), Op::Reshape([2, 4].into())] {
        let inputs = if op.kind() == OpKind::Binary {
            operands([(&a).into(), (&b).into()])
        } else {
            operands([(&a).into()])
        };
        let (count, _) = allocations(|| run(&cpu, &op, inputs));
        assert!(count <= 2, "{op:?} made {count} allocations");
    }
}

#[test]
fn an_op_on_an_unshared_operand_reuses_value_and_buffer() {
    let cpu = Cpu::with_threads(1);
    let b = cpu.write(data(8));
    for op in [Op::Binary(Binary::Add), Op::Unary(Unary::Neg)] {
        let a = run(&cpu, &Op::Unary(Unary::Abs), operands([(&b).into()]));
        let address = a.address();
        let inputs = if op.kind() == OpKind::Binary {
            operands([(&b).into(), a.into()])
        } else {
            operands([a.into()])
        };
        let (count, y) = allocations(|| run(&cpu, &op, inputs));
        assert_eq!((count, y.address()), (0, address), "{op:?}");
    }
    // Another dtype of the same size: the buffer is reused, but not the value.
    let a = run(&cpu, &Op::Unary(Unary::Abs), operands([(&b).into()]));
    let (count, y) = allocations(|| run(&cpu, &Op::Cast(DType::I32), operands([a.into()])));
    assert_eq!(count, 1);
    assert_eq!(block_on(cpu.read(y)).unwrap().into_vec::<i32>().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn shared_operands_are_not_overwritten() {
    let cpu = Cpu::with_threads(1);
    let a = cpu.write(data(4));
    let view = run(&cpu, &Op::Reshape([2, 2].into()), operands([(&a).into()]));
    let y = run(&cpu, &Op::Binary(Binary::Mul), operands([a.into(), Scalar::Float(10.0).into()]));
    assert_eq!(block_on(cpu.read(view)).unwrap().into_vec::<f32>().unwrap(), [0., 1., 2., 3.]);
    let twice = run(&cpu, &Op::Binary(Binary::Add), operands([(&y).into(), y.into()]));
    assert_eq!(block_on(cpu.read(twice)).unwrap().into_vec::<f32>().unwrap(), [0., 20., 40., 60.]);
}

#[test]
fn a_vector_round_trips_without_a_copy() {
    let cpu = Cpu::new();
    let vec: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let address = vec.as_ptr();
    let value = cpu.write(TensorData::from(vec));
    let value = run(&cpu, &Op::Unary(Unary::Neg), operands([value.into()]));
    let back = block_on(cpu.read(value)).unwrap().into_vec::<f32>().unwrap();
    assert_eq!(back.as_ptr(), address);
    assert_eq!(back[7], -7.0);
}

#[test]
fn a_failed_allocation_poisons_the_value() {
    let cpu = Cpu::new();
    let ty = TensorType::new([1 << 50], DType::F32);
    let value = run(&cpu, &Op::Full(ty), operands([Scalar::Float(1.0).into()]));
    let error = block_on(cpu.read(value)).unwrap_err().to_string();
    assert!(error.contains("out of memory") && error.contains(&(1usize << 52).to_string()), "{error}");
}

/// `cargo test --release -p kiln-cpu --test allocations -- --ignored --nocapture`
#[test]
#[ignore = "measures time"]
fn latency_benchmark() {
    let cpu = Cpu::with_threads(1);
    let (a, b) = (cpu.write(data(1)), cpu.write(data(1)));
    let add = Op::Binary(Binary::Add);
    let time = |name: &str, body: &mut dyn FnMut()| {
        let mut best = f64::INFINITY;
        for _ in 0..2_000 {
            let start = std::time::Instant::now();
            for _ in 0..1_000 {
                body();
            }
            best = best.min(start.elapsed().as_nanos() as f64 / 1_000.0);
        }
        println!("{name}: {best:.1} ns");
    };
    time("infer", &mut || {
        std::hint::black_box(infer(&add, &[a.ty().into(), b.ty().into()]).unwrap());
    });
    time("add of shared operands, with infer", &mut || {
        std::hint::black_box(run(&cpu, &add, operands([(&a).into(), (&b).into()])));
    });
    let mut sum = run(&cpu, &add, operands([(&a).into(), (&b).into()]));
    time("add in place, with infer", &mut || {
        let last = std::mem::replace(&mut sum, b.clone());
        sum = run(&cpu, &add, operands([last.into(), (&b).into()]));
    });
    let mut sum = run(&cpu, &add, operands([(&a).into(), (&b).into()]));
    time("add of a number in place, with infer", &mut || {
        let last = std::mem::replace(&mut sum, b.clone());
        sum = run(&cpu, &add, operands([last.into(), Scalar::Float(1.0).into()]));
    });
}
