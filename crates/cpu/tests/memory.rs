//! The pool: counts, caching, reuse and release.
//!
//! The counters are global to the process, so that all checks are in one test.

use kiln_cpu::Cpu;
use kiln_ir::{
    CacheStrategy, DType, Engine, Memory, MemoryConfig, MemoryUse, Op, TensorData, TensorType, Value,
    block_on,
};
use std::cell::RefCell;
use std::process::Command;
use std::sync::mpsc;

/// A tensor in a buffer of the pool.
fn filled(cpu: &Cpu, elements: usize) -> Value {
    let ty = TensorType::new([elements], DType::F32);
    cpu.execute(&Op::Full(ty), [1.5f32.into()].map(kiln_ir::Scalar::into).into_iter().collect(), &[ty])
        .remove(0)
}

#[test]
fn memory_accounting() {
    let cpu = Cpu::with_threads(1);
    counts(&cpu);
    reuses(&cpu);
    peak(&cpu);
    trims(&cpu);
    vectors(&cpu);
    other_threads(&cpu);
    ending_threads(&cpu);
    many_threads(&cpu);
    too_much(&cpu);
    strategies(&cpu);
    limit(&cpu);
}

fn counts(cpu: &Cpu) {
    for (elements, bytes) in [(1, 64), (16, 64), (17, 128), (1000, 4096), (5000, 20480), (1 << 20, 4 << 20)] {
        cpu.trim();
        let before = cpu.usage();
        let x = filled(cpu, elements);
        let with = cpu.usage();
        assert_eq!(with.live_bytes, before.live_bytes + bytes, "{elements} elements");
        assert_eq!(with.system_allocations, before.system_allocations + 1);
        let shared = x.clone();
        drop(x);
        assert_eq!(cpu.usage(), with, "a clone keeps the buffer");
        drop(shared);
        let after = cpu.usage();
        assert_eq!(after.live_bytes, before.live_bytes);
        assert_eq!(after.cached_bytes, before.cached_bytes + bytes);
    }
}

fn reuses(cpu: &Cpu) {
    for elements in [1, 100, 3000, 100_000, 3 << 20] {
        drop(filled(cpu, elements));
        let before = cpu.usage();
        for round in 1..=10 {
            drop(filled(cpu, elements));
            let now = cpu.usage();
            assert_eq!(now.system_allocations, before.system_allocations, "{elements} elements");
            assert_eq!(now.reuses, before.reuses + round);
            assert_eq!((now.live_bytes, now.cached_bytes), (before.live_bytes, before.cached_bytes));
        }
    }
}

fn peak(cpu: &Cpu) {
    cpu.reset_peak();
    let start = cpu.usage();
    assert_eq!(start.peak_live_bytes, start.live_bytes);
    let (a, b) = (filled(cpu, 1 << 20), filled(cpu, 1 << 20));
    drop(a);
    let c = filled(cpu, 1 << 19);
    drop((b, c));
    assert_eq!(cpu.usage().peak_live_bytes, start.live_bytes + (8 << 20));
    cpu.reset_peak();
    assert_eq!(cpu.usage().peak_live_bytes, cpu.usage().live_bytes);
}

fn trims(cpu: &Cpu) {
    let kept = [1, 500, 2000, 70_000, 4 << 20].map(|elements| filled(cpu, elements));
    let live = cpu.usage().live_bytes;
    drop(kept);
    assert!(cpu.usage().cached_bytes >= 16 << 20);
    cpu.trim();
    let MemoryUse { live_bytes, cached_bytes, .. } = cpu.usage();
    assert!(live_bytes < live);
    assert_eq!(cached_bytes, 0);
}

/// Imported vectors are counted, never cached, and returned without a copy.
fn vectors(cpu: &Cpu) {
    let before = cpu.usage();
    let data = vec![0.5f32; 1000];
    let address = data.as_ptr();
    let x = cpu.write(TensorData::from(data));
    assert_eq!(cpu.usage(), MemoryUse { live_bytes: before.live_bytes + 4000, ..more(before, cpu) });
    let back = block_on(cpu.read(x)).unwrap().into_vec::<f32>().unwrap();
    assert_eq!(back.as_ptr(), address);
    assert_eq!(cpu.usage().live_bytes, before.live_bytes);
    let (x, y) = (cpu.write(TensorData::from(back)), cpu.write(TensorData::from([1u8])));
    assert_eq!(cpu.usage().live_bytes, before.live_bytes + 4001);
    drop((x, y));
    assert_eq!(cpu.usage().live_bytes, before.live_bytes);
}

/// `before` with the current peak.
fn more(before: MemoryUse, cpu: &Cpu) -> MemoryUse {
    MemoryUse { peak_live_bytes: cpu.usage().peak_live_bytes, ..before }
}

/// Buffers freed on another thread than the allocating one.
fn other_threads(cpu: &Cpu) {
    let before = cpu.usage().live_bytes;
    let lengths = [1, 40, 900, 5000, 1 << 20];
    let made: Vec<Value> = lengths.iter().cycle().take(500).map(|&length| filled(cpu, length)).collect();
    assert!(cpu.usage().live_bytes > before);
    std::thread::scope(|scope| scope.spawn(move || drop(made)).join().unwrap());
    assert_eq!(cpu.usage().live_bytes, before);
    // Cached blocks of an ended thread are available to other threads.
    let allocations = cpu.usage().system_allocations;
    drop(lengths.map(|length| filled(cpu, length)));
    assert_eq!(cpu.usage().system_allocations, allocations);
}

std::thread_local! {
    static EARLY: RefCell<Option<Late>> = const { RefCell::new(None) };
    static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
}

/// Frees and allocates tensors while its thread ends.
struct Late(Option<Value>);

impl Drop for Late {
    fn drop(&mut self) {
        let cpu = Cpu::with_threads(1);
        let lengths = [1, 100, 1000, 5000];
        let made = lengths.map(|length| filled(&cpu, length));
        drop(self.0.take());
        drop(made);
    }
}

/// Blocks freed before and after the destructor of the thread's cache, in either order.
fn ending_threads(cpu: &Cpu) {
    let before = cpu.usage().live_bytes;
    let run = || {
        EARLY.set(Some(Late(None)));
        EARLY.with_borrow_mut(|early| early.as_mut().unwrap().0 = Some(filled(cpu, 10)));
        LATE.set(Some(Late(Some(filled(cpu, 200)))));
    };
    for _ in 0..20 {
        std::thread::scope(|scope| scope.spawn(run).join().unwrap());
    }
    assert_eq!(cpu.usage().live_bytes, before);
    cpu.trim();
    assert_eq!(cpu.usage().cached_bytes, 0);
}

fn many_threads(cpu: &Cpu) {
    let before = cpu.usage().live_bytes;
    let (send, receive) = mpsc::channel::<Value>();
    std::thread::scope(|scope| {
        // A scope waits for closures, `join` for the threads' caches too.
        let mut threads = Vec::new();
        for seed in 0..4usize {
            let send = send.clone();
            threads.push(scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..2000 {
                    let length = 1 << ((seed * 7 + round * 5) % 16);
                    let x = filled(cpu, length);
                    if round % 3 == 0 {
                        send.send(x).unwrap()
                    } else {
                        held.push(x)
                    }
                    if round % 64 == 63 {
                        held.drain(..held.len() / 2);
                    }
                    if round % 500 == 499 {
                        cpu.trim();
                    }
                }
            }));
        }
        drop(send);
        threads.push(scope.spawn(move || {
            for x in receive {
                let length = x.ty().num_elements();
                assert_eq!(block_on(cpu.read(x)).unwrap().to_vec::<f32>(), vec![1.5; length]);
            }
        }));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(cpu.usage().live_bytes, before);
    cpu.trim();
}

/// A failed system allocation poisons the value, after cached blocks were freed.
fn too_much(cpu: &Cpu) {
    let before = cpu.usage();
    for elements in [1 << 41, 1 << 45, 1 << 59, 1 << 60] {
        let x = filled(cpu, elements);
        let error = x.error().expect("more than any machine has").to_string();
        assert!(error.contains("out of memory"), "{error}");
    }
    let after = cpu.usage();
    assert_eq!(after.live_bytes, before.live_bytes);
    assert_eq!(after.peak_live_bytes, before.peak_live_bytes);
    assert_eq!(after.system_allocations, before.system_allocations);
}

fn strategies(cpu: &Cpu) {
    cpu.trim();
    let free_one_of = |elements| drop(filled(cpu, elements));
    cpu.configure(MemoryConfig::new().with_cache(CacheStrategy::Disabled));
    free_one_of(1 << 20);
    assert_eq!(cpu.usage().cached_bytes, 0);
    cpu.configure(MemoryConfig::new().with_cache(CacheStrategy::AtMost(4 << 20)));
    let before = cpu.usage().system_allocations;
    (0..3).for_each(|_| free_one_of(1 << 20));
    assert_eq!((cpu.usage().cached_bytes, cpu.usage().system_allocations), (4 << 20, before + 1));
    free_one_of(2 << 20);
    assert!(cpu.usage().cached_bytes <= 4 << 20);
    cpu.configure(MemoryConfig::new().with_cache(CacheStrategy::Unlimited));
    cpu.reset_peak();
    let made = [(); 8].map(|()| filled(cpu, 4 << 20));
    drop(made);
    assert!(cpu.usage().cached_bytes >= 8 * (16 << 20));
    // A new strategy applies at once.
    cpu.configure(MemoryConfig::new().with_cache(CacheStrategy::AtMost(1 << 20)));
    assert!(cpu.usage().cached_bytes <= 1 << 20);
    cpu.configure(MemoryConfig::new());
}

/// A tensor beyond the limit is an error; cached blocks are freed first, and live tensors stay.
fn limit(cpu: &Cpu) {
    cpu.trim();
    let live = cpu.usage().live_bytes;
    cpu.configure(MemoryConfig::new().with_limit(live + (10 << 20)));
    let kept = filled(cpu, 1 << 20);
    drop(filled(cpu, 1 << 20));
    assert_eq!(cpu.usage().cached_bytes, 4 << 20);
    let most = filled(cpu, 3 << 19);
    assert!(most.error().is_none(), "the cached block made room");
    assert_eq!(cpu.usage().cached_bytes, 0);
    let beyond = filled(cpu, 1 << 20);
    let error = beyond.error().expect("2 bytes too many").to_string();
    assert!(error.contains("out of memory") && error.contains("MemoryConfig"), "{error}");
    let small: Vec<Value> = (0..2000).map(|_| filled(cpu, 256)).collect();
    assert!(small[0].error().is_none() && small[1999].error().is_some(), "small tensors count too");
    drop((most, small));
    assert!(filled(cpu, 1 << 20).error().is_none());
    assert_eq!(block_on(cpu.read(kept)).unwrap().to_vec::<f32>(), vec![1.5; 1 << 20]);
    cpu.configure(MemoryConfig::new());
}

/// In a process of its own, since the variable is read once.
#[test]
fn the_environment_variable_limits_cached_bytes() {
    let run = |bytes: &str| {
        let this = std::env::current_exe().unwrap();
        let mut command = Command::new(this);
        let command = command.args(["--ignored", "--exact", "child_process_checks_the_cache_limit"]);
        let output = command.env("KILN_CPU_POOL_BYTES", bytes).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    };
    run("3000000");
    run("0");
}

#[test]
#[ignore = "run by the test above, in an environment of its own"]
fn child_process_checks_the_cache_limit() {
    let bound: usize = std::env::var("KILN_CPU_POOL_BYTES").unwrap().parse().unwrap();
    let cpu = Cpu::with_threads(1);
    // Above 4 KiB, which each thread caches in any case.
    let made: Vec<Value> = (1..200).map(|i| filled(&cpu, 1000 * i + 1000)).collect();
    for x in made {
        drop(x);
        assert!(cpu.usage().cached_bytes <= bound, "{:?}", cpu.usage());
    }
    assert!(cpu.usage().cached_bytes * 2 >= bound, "{:?}", cpu.usage());
}
