//! How fast copies, sorting, scans, indexing and attention are, beside the plain loops that one would write for each,
//! interleaved: `cargo bench -p kiln-cpu --bench order`. A word after `--` keeps the lines that contain it.
//!
//! The loops run on one thread, as does the engine in the first table; medians of many runs.

use kiln_cpu::Cpu;
use kiln_ir::{
    AttentionSpec, Axes, DType, Engine, Extremum, Op, Operand, OperandType, Operands, Real, Reduction,
    TensorData, UpdateMode, Value, infer,
};
use std::hint::black_box;
use std::time::Instant;

fn main() {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    for cpu in [Cpu::with_threads(1), Cpu::new()] {
        let bench = Bench { cpu, wanted: wanted.clone() };
        println!("-- {} threads {:>38} {:>10}", bench.cpu.threads(), "Kiln ms", "loops ms");
        copies(&bench);
        orders(&bench);
        scans(&bench);
        indices(&bench);
        attention(&bench);
    }
}

struct Bench {
    cpu: Cpu,
    wanted: String,
}

impl Bench {
    fn write(&self, data: impl Into<TensorData>, shape: &[usize]) -> Value {
        self.cpu.write(data.into().reshape(shape).unwrap())
    }

    fn apply(&self, op: &Op, inputs: &[&Value]) -> Value {
        let operands: Operands = inputs.iter().map(|&value| Operand::from(value)).collect();
        let types = infer(op, &OperandType::list(&operands)).unwrap();
        let values = self.cpu.execute(op, operands, &types);
        assert!(values[0].error().is_none(), "{:?}", values[0].error());
        values.into_iter().next().unwrap()
    }

    /// Prints the medians of an op and of a plain loop, run in turns for half a second.
    fn compare(&self, name: &str, op: &Op, inputs: &[&Value], mut plain: impl FnMut()) {
        if !name.contains(&self.wanted) {
            return;
        }
        let timed = |work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1e3
        };
        let mut times = [Vec::new(), Vec::new()];
        let begin = Instant::now();
        while times[0].len() < 3 || begin.elapsed().as_secs_f64() < 0.5 {
            times[0].push(timed(&mut || drop(black_box(self.apply(op, inputs)))));
            times[1].push(timed(&mut plain));
        }
        let [kiln, plain] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        });
        println!("{name:42} {kiln:10.3} {plain:10.3}   {:5.1} times", plain / kiln);
    }
}

/// Numbers in -1..1 that depend on the seed only.
fn random(seed: u32, count: usize) -> Vec<f32> {
    let mut state = 0x9E37_79B9u32.wrapping_mul(seed + 1) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn random_indices(seed: u32, limit: usize, count: usize) -> Vec<i32> {
    random(seed, count).into_iter().map(|x| ((x + 1.0) * 0.5 * (limit - 1) as f32) as i32).collect()
}

fn copies(bench: &Bench) {
    for [rows, columns] in [[256usize, 256], [1000, 1001], [4096, 4096]] {
        let x = random(1, rows * columns);
        let value = bench.write(x.clone(), &[rows, columns]);
        let turned = bench.apply(&Op::Permute(Axes::new(&[1, 0])), &[&value]);
        let mut y = vec![0.0f32; rows * columns];
        bench.compare(&format!("transpose {rows}x{columns}"), &Op::Copy, &[&turned], || {
            for column in 0..columns {
                for row in 0..rows {
                    y[column * rows + row] = x[row * columns + column];
                }
            }
            black_box(&mut y);
        });
    }
}

fn orders(bench: &Bench) {
    for [lines, len] in [[1usize, 1 << 20], [64, 16_384], [1024, 1024]] {
        let x = random(1, lines * len);
        let value = bench.write(x.clone(), &[lines, len]);
        let op = Op::Sort { axis: 1, descending: false, index: DType::I32 };
        bench.compare(&format!("sort {lines}x{len}"), &op, &[&value], || {
            for line in x.chunks(len) {
                let mut places: Vec<u32> = (0..len as u32).collect();
                places.sort_by(|&a, &b| line[a as usize].total_cmp(&line[b as usize]));
                black_box(places.iter().map(|&place| line[place as usize]).collect::<Vec<f32>>());
            }
        });
        let op = Op::TopK { axis: 1, k: 50, largest: true, index: DType::I32 };
        bench.compare(&format!("top 50 of {lines}x{len}"), &op, &[&value], || {
            for line in x.chunks(len) {
                let mut places: Vec<u32> = (0..len as u32).collect();
                let order = |a: &u32, b: &u32| line[*b as usize].total_cmp(&line[*a as usize]).then(a.cmp(b));
                places.select_nth_unstable_by(49, order);
                places[..50].sort_by(order);
                black_box(places);
            }
        });
        let op = Op::ArgReduce { extremum: Extremum::Max, axis: 1, index: DType::I32 };
        bench.compare(&format!("argmax {lines}x{len}"), &op, &[&value], || {
            for line in x.chunks(len) {
                black_box(line.iter().enumerate().fold((0, f32::NEG_INFINITY), |best, (place, &x)| {
                    if x > best.1 { (place, x) } else { best }
                }));
            }
        });
    }
}

fn scans(bench: &Bench) {
    let [rows, columns] = [4096usize, 1024];
    let x = random(1, rows * columns);
    let value = bench.write(x.clone(), &[rows, columns]);
    let mut y = vec![0.0f32; rows * columns];
    let op = |axis| Op::Scan { reduction: Reduction::Sum, axis, reverse: false, exclusive: false };
    bench.compare("cumsum 4096x1024", &op(1), &[&value], || {
        for (x, y) in x.chunks(columns).zip(y.chunks_mut(columns)) {
            x.iter().zip(y).fold(0.0f64, |total, (&x, y)| {
                *y = (total + f64::from(x)) as f32;
                total + f64::from(x)
            });
        }
        black_box(&mut y);
    });
    bench.compare("cumsum 4096x1024 down", &op(0), &[&value], || {
        let mut totals = vec![0.0f64; columns];
        for (x, y) in x.chunks(columns).zip(y.chunks_mut(columns)) {
            for ((total, &x), y) in totals.iter_mut().zip(x).zip(y) {
                *total += f64::from(x);
                *y = *total as f32;
            }
        }
        black_box(&mut y);
    });
    let line = bench.write(x.clone(), &[rows * columns]);
    bench.compare("cumsum 4194304", &op(0), &[&line], || {
        x.iter().zip(&mut y).fold(0.0f64, |total, (&x, y)| {
            *y = (total + f64::from(x)) as f32;
            total + f64::from(x)
        });
        black_box(&mut y);
    });
}

fn indices(bench: &Bench) {
    let [rows, columns, count] = [32_000usize, 512, 8192];
    let (table, index) = (random(1, rows * columns), random_indices(2, rows, count));
    let values = [bench.write(table.clone(), &[rows, columns]), bench.write(index.clone(), &[count])];
    let mut y = vec![0.0f32; count * columns];
    bench.compare("8192 rows of 32000x512", &Op::Take { axis: 0 }, &[&values[0], &values[1]], || {
        for (&row, y) in index.iter().zip(y.chunks_mut(columns)) {
            y.copy_from_slice(&table[row as usize * columns..][..columns]);
        }
        black_box(&mut y);
    });
    let [rows, columns, count] = [8192usize, 256, 2048];
    let (index, source) = (random_indices(2, rows, count), random(3, count * columns));
    let values = [
        bench.write(vec![0.0f32; rows * columns], &[rows, columns]),
        bench.write(index.clone(), &[count]),
        bench.write(source.clone(), &[count, columns]),
    ];
    let op = Op::Put { axis: 0, mode: UpdateMode::Add };
    bench.compare("2048 rows added to 8192x256", &op, &[&values[0], &values[1], &values[2]], || {
        let mut y = vec![0.0f32; rows * columns];
        for (&row, source) in index.iter().zip(source.chunks(columns)) {
            let y = &mut y[row as usize * columns..][..columns];
            y.iter_mut().zip(source).for_each(|(y, x)| *y += x);
        }
        black_box(y);
    });
}

/// The loops keep the scores of one query at a time.
fn attention(bench: &Bench) {
    let [heads, length, dim] = [8usize, 512, 64];
    let shape = [1, heads, length, dim];
    let size = heads * length * dim;
    let [q, k, v] = [1, 2, 3].map(|seed| random(seed, size));
    let values = [&q, &k, &v].map(|x| bench.write(x.clone(), &shape));
    let op = Op::Attention(AttentionSpec { scale: Real(0.125), causal: None });
    let mut y = vec![0.0f32; size];
    bench.compare("attention 1x8x512x64", &op, &[&values[0], &values[1], &values[2]], || {
        for head in 0..heads {
            let rows = |x: &[f32]| x[head * length * dim..][..length * dim].to_vec();
            let (q, k, v) = (rows(&q), rows(&k), rows(&v));
            let y = &mut y[head * length * dim..][..length * dim];
            for (q, y) in q.chunks(dim).zip(y.chunks_mut(dim)) {
                let dot = |k: &[f32]| q.iter().zip(k).map(|(q, k)| q * k).sum::<f32>() * 0.125;
                let scores: Vec<f32> = k.chunks(dim).map(dot).collect();
                let greatest = scores.iter().fold(f32::NEG_INFINITY, |best, &x| best.max(x));
                let weights: Vec<f32> = scores.iter().map(|x| (x - greatest).exp()).collect();
                let total: f32 = weights.iter().sum();
                y.fill(0.0);
                for (weight, v) in weights.iter().zip(v.chunks(dim)) {
                    y.iter_mut().zip(v).for_each(|(y, v)| *y += weight / total * v);
                }
            }
        }
        black_box(&mut y);
    });
}
