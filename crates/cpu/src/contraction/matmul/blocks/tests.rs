//! Tests against the same rounding in scalar code, and against products with expanded weights.

use super::*;
use alloc::vec;
use alloc::vec::Vec;

/// Every instruction set of this processor.
fn levels() -> impl Iterator<Item = Level> {
    let names = ["scalar", "avx2", "avx512"];
    names.into_iter().filter_map(Level::from_name).filter(|level| *level <= Level::of_processor())
}

/// Numbers from -1 to 1, the same on every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn float(&mut self) -> f32 {
        self.next() as f32 / (1u64 << 30) as f32 - 1.0
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}

/// Weights `[n, k]`: random bytes, so that all integers occur, with moderate scales.
struct Weights {
    format: BlockFormat,
    row_bytes: usize,
    /// One byte before the first row makes its address odd.
    bytes: Vec<u8>,
    floats: Vec<f32>,
}

impl Weights {
    fn new(format: BlockFormat, [n, k]: [usize; 2]) -> Weights {
        let mut numbers = Numbers(n as u64 * 1000 + k as u64);
        let row_bytes = format.row_bytes(k).unwrap();
        let mut bytes: Vec<u8> = (0..1 + n * row_bytes).map(|_| numbers.next() as u8).collect();
        for block in bytes[1..].chunks_exact_mut(format.bytes()) {
            let mut half = |at: usize| {
                let bits = half::f16::from_f32(0.02 + 0.01 * numbers.float()).to_bits();
                block[at..at + 2].copy_from_slice(&bits.to_le_bytes());
            };
            match format {
                BlockFormat::Q4_0
                | BlockFormat::Q5_0
                | BlockFormat::Q8_0
                | BlockFormat::IQ4_NL
                | BlockFormat::IQ4_XS => half(0),
                BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4_K | BlockFormat::Q5_K => {
                    half(0);
                    half(2);
                }
                BlockFormat::Q2_K => {
                    half(80);
                    half(82);
                }
                BlockFormat::Q3_K => half(108),
                BlockFormat::Q6_K => half(208),
                BlockFormat::Q8_K => block[..4].copy_from_slice(&0.013f32.to_le_bytes()),
            }
        }
        let mut floats = vec![0.0; n * k];
        format.decode(&bytes[1..], &mut floats);
        Weights { format, row_bytes, bytes, floats }
    }

    fn rows(&self) -> BlockRows {
        BlockRows { start: self.bytes[1..].as_ptr(), row_bytes: self.row_bytes, format: self.format }
    }

    fn matmul(&self, level: Level, pool: &Pool, sizes: [usize; 3], x: &[f32]) -> Vec<f32> {
        self.matmul_in(Precision::TwoBytes, level, pool, sizes, x)
    }

    fn matmul_in(
        &self,
        precision: Precision,
        level: Level,
        pool: &Pool,
        sizes: [usize; 3],
        x: &[f32],
    ) -> Vec<f32> {
        let mut c = vec![-7.0f32; sizes[0] * sizes[2]];
        // SAFETY: sizes as said.
        unsafe { matmul_blocks(level, pool, precision, sizes, x.as_ptr(), self.rows(), c.as_mut_ptr()) };
        c
    }
}

const PRECISIONS: [Precision; 2] = [Precision::OneByte, Precision::TwoBytes];

/// The number that each activation of a row becomes.
fn rounded(x: &[f32], precision: Precision) -> Vec<f64> {
    let mut all = Vec::new();
    for chunk in x.chunks(32) {
        let largest = chunk.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        let (scale, inverse) = if largest < 1e-30 { (0.0, 0.0) } else { (largest / 127.0, 127.0 / largest) };
        all.extend(chunk.iter().map(|x| {
            let first = (x * inverse).round_ties_even();
            let second = ((x * inverse - first) * 254.0).round_ties_even();
            let rest = if precision == Precision::TwoBytes { f64::from(second) / 254.0 } else { 0.0 };
            (f64::from(first) + rest) * f64::from(scale)
        }));
    }
    all
}

/// The depths to test: whole vectors of blocks and rests.
fn depths(format: BlockFormat) -> &'static [usize] {
    if format.len() == 32 { &[32, 96, 256, 576, 2112] } else { &[256, 768, 2304] }
}

#[test]
fn matmuls_with_blocks_match_scalar_arithmetic_on_every_simd_level() {
    let pools = [Pool::new(1), Pool::new(3)];
    for &format in BlockFormat::ALL {
        for &k in depths(format) {
            for n in [1, 7, 16, 65] {
                let weights = Weights::new(format, [n, k]);
                for m in [1, 2, 3, 8, 9, 33] {
                    let x = Numbers(m as u64).floats(m * k);
                    for precision in PRECISIONS {
                        let exact = exact(&x, &weights.floats, [m, k, n], precision);
                        for level in levels() {
                            let [c, other] =
                                [0, 1].map(|i| weights.matmul_in(precision, level, &pools[i], [m, k, n], &x));
                            assert_eq!(c, other, "threads");
                            let case = alloc::format!("{level:?} {format:?} {:?} {precision:?}", [m, k, n]);
                            assert_near(&c, &exact, n, &case);
                        }
                    }
                }
            }
        }
    }
}

#[track_caller]
fn assert_near(c: &[f32], exact: &[(f64, f64)], n: usize, case: &str) {
    for (at, (&got, &(wanted, magnitude))) in c.iter().zip(exact).enumerate() {
        let near = (f64::from(got) - wanted).abs() <= 1e-6 * magnitude;
        assert!(near, "{case}: {got}, not {wanted} at {:?}", [at / n, at % n]);
    }
}

/// The products of rounded activations in `f64`, with the sum of magnitudes, which bounds the rounding of sums.
fn exact(x: &[f32], weights: &[f32], [m, k, n]: [usize; 3], precision: Precision) -> Vec<(f64, f64)> {
    let mut all = Vec::new();
    for i in 0..m {
        let x = rounded(&x[i * k..(i + 1) * k], precision);
        for j in 0..n {
            let (mut sum, mut magnitude) = (0.0, 0.0);
            for (x, &w) in x.iter().zip(&weights[j * k..(j + 1) * k]) {
                let product = x * f64::from(w);
                sum += product;
                magnitude += product.abs();
            }
            all.push((sum, magnitude));
        }
    }
    all
}

#[test]
fn rounding_to_two_bytes_costs_less_than_a_ten_thousandth_and_to_one_less_than_a_hundredth() {
    for &format in BlockFormat::ALL {
        for (m, precision) in [1, 8, 9, 20].into_iter().flat_map(|m| PRECISIONS.map(|bytes| (m, bytes))) {
            let bound = if precision == Precision::TwoBytes { 1e-4 } else { 1e-2 };
            let [k, n] = [1024, 32];
            let weights = Weights::new(format, [n, k]);
            let x = Numbers(5).floats(m * k);
            let c = weights.matmul_in(precision, Level::of_processor(), &Pool::new(1), [m, k, n], &x);
            let (mut error, mut norm) = (0.0, 0.0);
            for i in 0..m {
                for j in 0..n {
                    let row = &weights.floats[j * k..(j + 1) * k];
                    let products = x[i * k..(i + 1) * k].iter().zip(row);
                    let wanted: f64 = products.map(|(&x, &w)| f64::from(x) * f64::from(w)).sum();
                    error += (f64::from(c[i * n + j]) - wanted).powi(2);
                    norm += wanted.powi(2);
                }
            }
            assert!(error.sqrt() < bound * norm.sqrt(), "{format:?}: {}", (error / norm).sqrt());
        }
    }
}

#[test]
fn extreme_integers_do_not_overflow() {
    for &format in BlockFormat::ALL {
        let [k, n] = [1024, 40];
        for byte in [0x00, 0x7f, 0x80, 0xff] {
            let row_bytes = format.row_bytes(k).unwrap();
            let mut weights = Weights::new(format, [n, k]);
            let greatest = weights.floats.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            // A unit may add 128 to signed weights, and subtract the sum of the activations 128 times.
            let offset = k as f64 * f64::from(greatest);
            let like = weights.bytes.clone();
            weights.bytes.fill(byte);
            // Keep the scales.
            let scales: &[usize] = match format {
                BlockFormat::Q2_K => &[80, 81, 82, 83],
                BlockFormat::Q3_K => &[108, 109],
                BlockFormat::Q6_K => &[208, 209],
                BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 => &[0, 1],
                BlockFormat::Q4_1
                | BlockFormat::Q5_1
                | BlockFormat::Q4_K
                | BlockFormat::Q5_K
                | BlockFormat::Q8_K
                | BlockFormat::IQ4_NL
                | BlockFormat::IQ4_XS => &[0, 1, 2, 3],
            };
            for block in (1..1 + n * row_bytes).step_by(format.bytes()) {
                for at in scales {
                    weights.bytes[block + at] = like[block + at];
                }
            }
            format.decode(&weights.bytes[1..], &mut weights.floats);
            for m in [1, 4, 12] {
                let x: Vec<f32> = (0..m * k).map(|i| if (i / 64) % 2 == 0 { 1.0 } else { -1.0 }).collect();
                for precision in PRECISIONS {
                    let exact = exact(&x, &weights.floats, [m, k, n], precision);
                    for level in levels() {
                        let c = weights.matmul_in(precision, level, &Pool::new(1), [m, k, n], &x);
                        for (&got, &(wanted, magnitude)) in c.iter().zip(&exact) {
                            let near = (f64::from(got) - wanted).abs() <= 1e-6 * (magnitude + offset);
                            assert!(near, "{level:?} {format:?} {byte:x} {m}: {got}, not {wanted}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_nan_or_infinity_makes_its_row_nan() {
    for &format in BlockFormat::ALL {
        let [k, n] = [256, 9];
        let weights = Weights::new(format, [n, k]);
        for m in [1, 3, 12] {
            for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut x = Numbers(2).floats(m * k);
                x[(m - 1) * k + 77] = bad;
                for (level, precision) in levels().flat_map(|level| PRECISIONS.map(|bytes| (level, bytes))) {
                    let c = weights.matmul_in(precision, level, &Pool::new(1), [m, k, n], &x);
                    for (at, value) in c.iter().enumerate() {
                        assert_eq!(value.is_nan(), at / n == m - 1, "{level:?} {format:?} {m} {bad}");
                    }
                }
            }
        }
    }
}

#[test]
fn zeros_tiny_numbers_and_empty_matrices() {
    for &format in BlockFormat::ALL {
        let [k, n] = [256, 9];
        let weights = Weights::new(format, [n, k]);
        for level in levels() {
            for m in [1, 12] {
                for x in [0.0, -0.0, f32::MIN_POSITIVE, 1e-45] {
                    let c = weights.matmul(level, &Pool::new(1), [m, k, n], &vec![x; m * k]);
                    assert!(c.iter().all(|c| c.abs() < 1e-30), "{level:?} {format:?} {x:e}");
                }
                let none = Weights::new(format, [n, 0]);
                assert_eq!(none.matmul(level, &Pool::new(1), [m, 0, n], &[]), vec![0.0; m * n]);
                assert_eq!(weights.matmul(level, &Pool::new(1), [0, k, n], &[]), []);
                assert_eq!(weights.matmul(level, &Pool::new(1), [m, k, 0], &vec![1.0; m * k]), []);
            }
            let mut empty = Weights::new(format, [n, k]);
            empty.bytes.fill(0);
            let c = empty.matmul(level, &Pool::new(1), [1, k, n], &Numbers(3).floats(k));
            assert!(c.iter().all(|&c| c == 0.0), "{level:?} {format:?}: blocks of zeros");
        }
    }
}

#[test]
fn expanded_blocks_equal_decoded_ones() {
    for &format in BlockFormat::ALL {
        for &k in depths(format) {
            let n = 13;
            let weights = Weights::new(format, [n, k]);
            for level in levels() {
                let pool = Pool::new(2);
                let mut single = vec![0.0f32; n * k];
                let mut double = vec![0.0f64; n * k];
                let mut half = vec![half::f16::ZERO; n * k];
                let mut brain = vec![half::bf16::ZERO; n * k];
                // SAFETY: sizes as said.
                unsafe {
                    dequantize_blocks(level, &pool, [n, k], weights.rows(), single.as_mut_ptr());
                    dequantize_blocks(level, &pool, [n, k], weights.rows(), double.as_mut_ptr());
                    dequantize_blocks(level, &pool, [n, k], weights.rows(), half.as_mut_ptr());
                    dequantize_blocks(level, &pool, [n, k], weights.rows(), brain.as_mut_ptr());
                }
                assert_eq!(single, weights.floats, "{level:?} {format:?}");
                for (i, &x) in weights.floats.iter().enumerate() {
                    assert_eq!(double[i], f64::from(x));
                    assert_eq!(half[i], half::f16::from_f32(x));
                    assert_eq!(brain[i], half::bf16::from_f32(x));
                }
            }
        }
    }
}

/// Run with `--ignored --nocapture`: bytes of weights per second for a row, multiplications for 512 rows, on one thread.
#[test]
#[ignore = "a benchmark"]
fn benchmark_of_matmuls_with_blocks() {
    use std::time::Instant;
    let best = |mut run: std::boxed::Box<dyn FnMut() + '_>| {
        (0..7).fold(f64::INFINITY, |best, _| {
            let start = Instant::now();
            run();
            best.min(start.elapsed().as_secs_f64())
        })
    };
    let pool = Pool::new(1);
    let (mut from, mut to) = (vec![1u64; 8 << 20], vec![0u64; 8 << 20]);
    let seconds = best(std::boxed::Box::new(|| {
        from[0] += 1;
        to[0] = from.iter().fold(0, |sum, x| sum ^ x);
    }));
    std::println!("reading memory: {:.1} GB/s", 8.0 * from.len() as f64 / seconds / 1e9);
    for level in levels() {
        for (&format, precision) in
            BlockFormat::ALL.iter().flat_map(|format| PRECISIONS.map(|bytes| (format, bytes)))
        {
            // 64 MiB of weights, at least: more than the caches hold.
            let [k, n] = [1536, (64 << 20) / format.row_bytes(1536).unwrap()];
            let n = if level == Level::Baseline { n / 8 } else { n };
            let row_bytes = format.row_bytes(k).unwrap();
            let like = Weights::new(format, [64, k]);
            let bytes: Vec<u8> = like.bytes[1..].iter().copied().cycle().take(n * row_bytes).collect();
            let rows = BlockRows { start: bytes.as_ptr(), row_bytes, format };
            let x = Numbers(1).floats(512 * k);
            let mut c = vec![0.0f32; 512 * n.max(576)];
            let mut seconds = |m: usize, n: usize| {
                let (x, c, pool) = (x.as_ptr(), c.as_mut_ptr(), &pool);
                // SAFETY: sizes as said.
                best(std::boxed::Box::new(move || unsafe {
                    matmul_blocks(level, pool, precision, [m, k, n], x, rows, c)
                }))
            };
            let (one, cached) = (seconds(1, n), seconds(1, 192));
            let four = seconds(4, n);
            let many: Vec<f64> =
                [12, 64, 512].into_iter().map(|m| 2e-9 * (m * k * 576) as f64 / seconds(m, 576)).collect();
            std::println!(
                "{level:?} {:7} {precision:?}: m=1 {:5.1} GB/s (in cache {:5.1}, {:5.1} GFLOP/s), m=4 {:5.1} GB/s, \
                 m=12, 64, 512: {:5.0} {:5.0} {:5.0} GFLOP/s",
                format.name(),
                1e-9 * (n * row_bytes) as f64 / one,
                1e-9 * (192 * row_bytes) as f64 / cached,
                2e-9 * (192 * k) as f64 / cached,
                1e-9 * (n * row_bytes) as f64 / four,
                many[0],
                many[1],
                many[2],
            );
        }
    }
}
