//! `bench-kiln --kernels`: hand-written CUDA against block kernels, side by side in this process on one GPU.

use super::device::GpuDevice;
use crate::workloads::gpu::kernels::{Timed, prepare};
use bench_protocol::workloads::{Must, Row, select};
use bench_protocol::{Result, failed, quantile};
use std::process::ExitCode;
use std::time::Instant;

/// Turns of each side by default.
const ROUNDS: usize = 9;

/// Uncounted repeats before the first turn: compilation and caches.
const WARM_UP: usize = 2;

/// Milliseconds of a turn, and the maximum number of its repeats.
const TURN: f64 = 30.0;
const MAX_IN_TURN: usize = 40;

/// One side of a row: its work, the repeats of a turn, and the median of each turn in milliseconds.
struct Side {
    work: Timed,
    repeats: usize,
    turns: Vec<f64>,
}

/// Measures the workloads with these comma-separated names, all if there are none, and prints the table. `rounds` is the
/// number of turns of each side, as text.
pub(crate) fn compare(rounds: Option<&str>, only: &str) -> ExitCode {
    let rounds = rounds.map_or(Some(ROUNDS), |text| text.parse().ok()).filter(|rounds| *rounds > 0);
    let Some(rounds) = rounds else {
        eprintln!("the number of rounds is a whole number, at least 1");
        return ExitCode::FAILURE;
    };
    let names: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    let rows = match select("kernels", &names) {
        Ok(rows) => rows,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = GpuDevice::Native.engine().and(GpuDevice::Blocks.engine()) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    println!("{}", line(["workload", "file", "native ms", "block ms", "ratio", "quartiles", "", "shape"]));
    let mut failures = 0;
    for row in &rows {
        match measure(row, rounds) {
            Ok(sides) => println!("{}", report(row, &sides)),
            Err(refusal) => {
                failures += 1;
                println!("{:<24} failed: {}", row.name, refusal.reason());
            }
        }
    }
    let worth = worth(rows[0]);
    println!(
        "ratio: the median of block / native of the turns; a hand-written kernel earns its place from {worth} on"
    );
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A hand-written kernel earns its place from this ratio on.
fn worth(row: &Row) -> f64 {
    if let Must::Ratio(least) = row.must { least } else { 1.0 }
}

/// Both sides of a row, hand-written kernels first; every second round begins with the other side.
fn measure(row: &'static Row, rounds: usize) -> Result<[Side; 2]> {
    let mut sides = [side(row, GpuDevice::Native)?, side(row, GpuDevice::Blocks)?];
    for round in 0..rounds {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for place in order {
            sides[place].turn()?;
        }
    }
    Ok(sides)
}

fn side(row: &'static Row, device: GpuDevice) -> Result<Side> {
    let mut work = prepare(row, &device)?;
    for _ in 0..WARM_UP {
        work()?;
    }
    let start = Instant::now();
    work()?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let repeats = ((TURN / ms.max(1e-3)) as usize).clamp(1, MAX_IN_TURN);
    Ok(Side { work, repeats, turns: Vec::new() })
}

impl Side {
    fn turn(&mut self) -> Result<()> {
        // The caches hold the data of the other side.
        (self.work)()?;
        let times = (0..self.repeats).map(|_| (self.work)()).collect::<Result<Vec<f64>>>()?;
        self.turns.push(sorted_quantile(times, 0.5).ok_or_else(|| failed("a turn has no repeat"))?);
        Ok(())
    }
}

fn report(row: &Row, [native, blocks]: &[Side; 2]) -> String {
    let ratios: Vec<f64> =
        blocks.turns.iter().zip(&native.turns).map(|(blocks, native)| blocks / native).collect();
    let of_ratios = |share| sorted_quantile(ratios.clone(), share).unwrap_or(f64::NAN);
    let ms = |side: &Side| format!("{:.4}", sorted_quantile(side.turns.clone(), 0.5).unwrap_or(f64::NAN));
    let ratio = of_ratios(0.5);
    let verdict = if ratio >= worth(row) { "earns its place" } else { "does not earn its place" };
    let quartiles = format!("{:.3} to {:.3}", of_ratios(0.25), of_ratios(0.75));
    let (native, blocks, ratio) = (ms(native), ms(blocks), format!("{ratio:.3}"));
    let file = row.text("file").unwrap_or_default();
    line([row.name, file, &native, &blocks, &ratio, &quartiles, verdict, row.shape])
}

fn line([name, file, native, blocks, ratio, quartiles, verdict, shape]: [&str; 8]) -> String {
    let cells = format!("{name:<24} {file:<16} {native:>10} {blocks:>10} {ratio:>7} {quartiles:<16}");
    format!("{cells} {verdict:<24} {shape}")
}

fn sorted_quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    quantile(&values, share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(turns: &[f64]) -> Side {
        Side { work: Box::new(|| Ok(0.0)), repeats: 1, turns: turns.to_vec() }
    }

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(sorted_quantile(vec![3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(sorted_quantile(vec![1.0, 2.0], 0.25), Some(1.25));
        assert_eq!(sorted_quantile(Vec::new(), 0.5), None);
    }

    #[test]
    fn a_gain_of_three_percent_earns_a_place() {
        let verdict = |blocks: &[f64]| {
            report(select("kernels", &[]).unwrap()[0], &[side(&[1.0, 2.0, 1.0]), side(blocks)])
        };
        assert!(verdict(&[1.04, 2.08, 1.04]).contains(" earns its place"));
        assert!(verdict(&[1.02, 2.04, 1.02]).contains("does not earn its place"));
    }

    #[test]
    fn a_turn_has_a_median() {
        let mut next = 0.0;
        let work = move || {
            next += 1.0;
            Ok(next)
        };
        let mut side = Side { work: Box::new(work), repeats: 3, turns: Vec::new() };
        side.turn().unwrap_or_else(|_| panic!("the work never fails"));
        assert_eq!(side.turns, [3.0], "the first repeat is not counted");
    }
}
