//! The overhead of one eager operation: time on one-element tensors, and allocations.
//!
//! `bench_core` prints a table; `bench_core --json` one line for each figure:
//! `{"name": "…", "measured": 98.2, "unit": "ns", "target": 120}`. Run it in release mode.

use kiln_backends::Flex;
use kiln_suite::figure::{Figure, median};
use kiln_tensor::{Autodiff, Backend, Tensor};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: bench_core [--json]\n\n  --json  one line of JSON for each figure";

/// Additions per chain, and number of measured chains; the median is reported.
const CHAIN: usize = 2000;
const CHAINS: usize = 301;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts the allocations of each thread, at a cost of about 1 ns per allocation.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is forwarded unchanged to the system's allocator; the counter is a plain cell without a
// destructor, so that counting neither allocates nor fails.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--json"] => true,
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("unknown arguments: {}\n{USAGE}", arguments.join(" "));
            return ExitCode::FAILURE;
        }
    };
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: run with `--release` for figures that count");
    }
    let figures = figures();
    print!("{}", Figure::lines(&figures, json));
    ExitCode::SUCCESS
}

fn figures() -> Vec<Figure> {
    let ns = |name, measured, target| Figure { name, measured, unit: "ns", target };
    let count = |name, measured, target| Figure { name, measured, unit: "allocations", target };
    let [a, b] = pair::<Flex>();
    let [tracked_a, tracked_b] = pair::<Autodiff<Flex>>();
    let (tracked_a, tracked_b) = (tracked_a.require_grad(), tracked_b.require_grad());
    vec![
        ns("eager add, one element", time(|| chain(&a, &b)), Some(80.0)),
        ns("eager add, one element, tracked", time(|| chain(&tracked_a, &tracked_b)), Some(300.0)),
        count("allocations of an eager add", allocations(|| &a + &b), Some(2.0)),
        ns("eager add, one element, both operands kept", time(|| apart(&a, &b)), Some(120.0)),
        ns(
            "eager add, one element, tracked, both operands kept",
            time(|| apart(&tracked_a, &tracked_b)),
            Some(300.0),
        ),
        ns("backward pass, for each tracked add", backward(&tracked_a, &tracked_b), None),
        count("allocations of a tracked add", allocations(|| &tracked_a + &tracked_b), None),
    ]
}

fn pair<B: Backend>() -> [Tensor<B, 1>; 2] {
    let device = Default::default();
    [1.0, 2.0].map(|x| Tensor::from_floats([x], &device))
}

/// `((a + b) + b) + …`: each sum is unshared, so the next one may reuse its memory.
fn chain<B: Backend>(a: &Tensor<B, 1>, b: &Tensor<B, 1>) {
    black_box((1..CHAIN).fold(a + b, |sum, _| sum + b));
}

/// Repeated `a + b`: operands are shared, so no sum is written in place.
fn apart<B: Backend>(a: &Tensor<B, 1>, b: &Tensor<B, 1>) {
    for _ in 0..CHAIN {
        black_box(black_box(a) + black_box(b));
    }
}

/// The median of many measurements, after a warm-up.
fn typical(measure: impl Fn() -> f64) -> f64 {
    (0..CHAINS / 10).for_each(|_| {
        measure();
    });
    median((0..CHAINS).map(|_| measure()).collect())
}

/// Nanoseconds per operation of a `run` with [`CHAIN`] operations, including drops.
fn time(run: impl Fn()) -> f64 {
    let measure = || {
        let started = Instant::now();
        run();
        started.elapsed().as_secs_f64() * 1e9 / CHAIN as f64
    };
    typical(measure)
}

fn backward(a: &Tensor<Autodiff<Flex>, 1>, b: &Tensor<Autodiff<Flex>, 1>) -> f64 {
    let measure = || {
        let sum = (1..CHAIN).fold(a + b, |sum, _| sum + b);
        let started = Instant::now();
        black_box(sum.backward());
        started.elapsed().as_secs_f64() * 1e9 / CHAIN as f64
    };
    typical(measure)
}

fn allocations<T>(op: impl Fn() -> T) -> f64 {
    drop(op());
    let before = ALLOCATIONS.with(Cell::get);
    let result = op();
    let after = ALLOCATIONS.with(Cell::get);
    drop(result);
    (after - before) as f64
}
