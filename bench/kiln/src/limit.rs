//! The peak multiply-add throughput of the machine.

use bench_protocol::{Result, failed};
use pulp::{Arch, Simd, WithSimd};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Independent dependency chains: more than the latency of a multiply-add times its throughput per cycle.
const CHAINS: usize = 12;
const ROUNDS: usize = 20_000;
const DURATION: Duration = Duration::from_millis(300);

/// Measures GFLOP/s of `f32` multiply-adds in registers, on a number of threads; the best of several intervals.
pub(crate) fn multiply_adds(threads: usize) -> Result<f64> {
    let workers: Vec<_> = (0..threads).map(|_| std::thread::spawn(one_thread)).collect();
    let rates = workers.into_iter().map(|worker| worker.join().map_err(|_| failed("a thread panicked")));
    rates.sum()
}

fn one_thread() -> f64 {
    let (arch, started, mut best) = (Arch::new(), Instant::now(), 0.0f64);
    while started.elapsed() < DURATION {
        let now = Instant::now();
        let operations = arch.dispatch(MultiplyAdds);
        best = best.max(operations / now.elapsed().as_secs_f64() / 1e9);
    }
    best
}

/// Runs the chains and returns the number of floating-point operations.
struct MultiplyAdds;

impl WithSimd for MultiplyAdds {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let (factor, term) = (simd.splat_f32s(black_box(0.999)), simd.splat_f32s(black_box(0.001)));
        let mut chains = [simd.splat_f32s(1.0); CHAINS];
        for _ in 0..ROUNDS {
            for chain in &mut chains {
                *chain = simd.mul_add_e_f32s(*chain, factor, term);
            }
        }
        black_box(chains.map(|chain| simd.reduce_sum_f32s(chain)));
        (2 * S::F32_LANES * CHAINS * ROUNDS) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiply_adds_measures_a_positive_rate() {
        assert!(multiply_adds(2).is_ok_and(|gflops| gflops > 1.0));
    }
}
