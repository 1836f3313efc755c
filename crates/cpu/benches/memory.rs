//! Page faults and time of an op whose result is 64 MB: in memory that is used again, in memory fresh from the system, and
//! in a fresh vector, which is in small pages.
//!
//! `cargo bench -p kiln-cpu --bench memory`. Page faults are counted under Linux.

use kiln_cpu::Cpu;
use kiln_ir::{Binary, Engine, Memory, Op, Operand, TensorData, Value};
use std::hint::black_box;
use std::time::Instant;

/// Elements of 4 bytes.
const ELEMENTS: usize = 16 << 20;
const ROUNDS: usize = 15;

fn main() {
    let cpu = Cpu::new();
    let [a, b] = [1.5f32, 2.5].map(|x| cpu.write(TensorData::from(vec![x; ELEMENTS])));
    let add = || {
        let operands = [a.clone(), b.clone()].map(Operand::Value).into_iter().collect();
        cpu.execute(&Op::Binary(Binary::Add), operands, &[*a.ty()]).remove(0)
    };
    let kept = || drop(black_box(add()));
    let trimmed = || {
        kept();
        cpu.trim();
    };
    let (x, y) = (vec![1.5f32; ELEMENTS], vec![2.5f32; ELEMENTS]);
    let vector = || drop(black_box(x.iter().zip(&y).map(|(x, y)| x + y).collect::<Vec<f32>>()));
    let cases: [(&str, &dyn Fn()); 3] = [
        ("the pool's, used again", &kept),
        ("the system's, in huge pages", &trimmed),
        ("a fresh vector, one thread", &vector),
    ];

    check(&add());
    let mut measured = cases.map(|_| Vec::new());
    // Interleaved in each round, so that a disturbance affects all.
    for _ in 0..ROUNDS {
        for (place, ((_, run), measured)) in cases.iter().zip(&mut measured).enumerate() {
            // Each starts as it leaves off: the first with a block in the pool, the others without.
            if place == 0 {
                kept()
            } else {
                cpu.trim()
            }
            let (faults, start) = (page_faults(), Instant::now());
            run();
            let time = start.elapsed().as_secs_f64() * 1e3;
            measured.push((time, page_faults().zip(faults).map(|(after, before)| after - before)));
        }
    }
    println!("{:<28} {:>10} {:>10} {:>14}", "memory of the result", "median ms", "least ms", "page faults");
    for ((name, _), mut measured) in cases.into_iter().zip(measured) {
        measured.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let (least, _) = measured[0];
        let (median, faults) = measured[ROUNDS / 2];
        let faults = faults.map_or("unknown".to_string(), |faults| faults.to_string());
        println!("{name:<28} {median:>10.2} {least:>10.2} {faults:>14}");
    }
    println!("{:?}", cpu.usage());
}

fn check(sum: &Value) {
    assert!(sum.error().is_none(), "{sum:?}");
}

/// The page faults of this process so far that no disk was needed for.
fn page_faults() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The tenth field; the second, in parentheses, may hold spaces.
    let (_, fields) = status.rsplit_once(')')?;
    fields.split_whitespace().nth(7)?.parse().ok()
}
