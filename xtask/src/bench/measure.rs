//! Measures workloads one by one, with interleaved turns of the peers.

use std::time::Duration;

use bench_protocol::Refusal;
use bench_protocol::workloads::{Kind, Row};
use serde_json::{Map, Value, json};

use super::child::Running;
use super::peer::{Peer, Skipped};
use super::report::Report;

/// Warm-up repeats.
const WARM_UP: usize = 2;
/// Maximum repeats per turn.
const MAX_IN_TURN: usize = 40;
/// Pause between turns, so that the threads of the previous peer sleep: OpenMP threads spin for about 10 ms.
const PAUSE: Duration = Duration::from_millis(20);
/// A turn of a workload shorter than this, in milliseconds, begins with an uncounted repeat: caches hold data of the
/// previous peer, and threads must wake up.
const COLD_MS: f64 = 50.0;
/// Training steps of the memory measurement. Inference runs once: each repeat needs the same memory.
const MEMORY_STEPS: usize = 3;

/// The number and length of the turns on a workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turns {
    /// Turns of each peer.
    pub(crate) rounds: usize,
    /// Whether every second round runs in reverse order, so that no peer always follows the same other peer.
    pub(crate) back_and_forth: bool,
    /// Minimum repeats in all turns.
    pub(crate) repeats: usize,
    /// Target length of a turn in milliseconds; short workloads repeat more often.
    pub(crate) milliseconds: f64,
}

/// The outcome of one peer on one workload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// It ran.
    Measured(Measured),
    /// It has no such operation.
    Unsupported(String),
    /// It failed.
    Failed(String),
}

/// Times of one peer on one workload.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Measured {
    /// Milliseconds of each repeat, in the order they ran.
    pub(crate) times: Vec<f64>,
    /// The median of each turn.
    pub(crate) turns: Vec<f64>,
    /// Page faults of all repeats.
    pub(crate) all_faults: f64,
    pub(crate) all_repeats: usize,
    /// The numbers read from the results of the first and last repeat.
    pub(crate) values: Option<(f64, f64)>,
    /// Other results of the peer.
    pub(crate) extra: Map<String, Value>,
}

/// A peer with its process, which is restarted after a failure.
pub(crate) struct Player<'a> {
    /// The peer.
    pub(crate) peer: &'a Peer,
    /// Its version, as it reports it.
    pub(crate) version: String,
    running: Running,
}

impl<'a> Player<'a> {
    /// Starts it.
    pub(crate) fn start(peer: &'a Peer) -> Result<Player<'a>, String> {
        let (running, version) = peer.start()?;
        Ok(Player { peer, version, running })
    }

    /// Sends a request that is independent of workloads. Failures return the reason.
    pub(crate) fn request(&mut self, request: &str) -> Result<Value, String> {
        self.ask(request).map_err(Refusal::reason)
    }

    fn ask(&mut self, request: &str) -> Result<Value, Refusal> {
        if !self.running.is_alive() {
            self.running = self.peer.start().map_err(Refusal::Failed)?.0;
        }
        self.running.ask(request)
    }

    /// The peak multiply-add throughput of the machine, in GFLOP/s.
    pub(crate) fn limit(&mut self) -> Option<f64> {
        self.ask("limit").ok()?["gflops"].as_f64()
    }

    /// The overhead of an addition with fusion, in nanoseconds.
    fn fused_overhead(&mut self) -> Option<f64> {
        self.ask("prepare op_overhead_fused").ok()?;
        let answer = self.ask(&format!("run {MAX_IN_TURN}")).ok()?;
        let times = numbers(&answer["ms"]);
        (!times.is_empty()).then(|| super::median(times) * 1e6)
    }
}

/// Starts all peers, Kiln first. Peers that cannot start are skipped, except Kiln.
pub(crate) fn start_all<'a>(
    kiln: &'a Peer,
    others: &'a [Peer],
    report: &mut Report,
) -> Result<Vec<Player<'a>>, String> {
    let mut players = vec![Player::start(kiln)?];
    for peer in others {
        match Player::start(peer) {
            Ok(player) => players.push(player),
            Err(reason) => report.skipped.push(Skipped { name: peer.name, reason }),
        }
    }
    report.peers = players.iter().map(|player| (player.peer.name, player.version.clone())).collect();
    for (peer, version) in &report.peers {
        eprintln!("{peer} {version}");
    }
    Ok(players)
}

/// Runs one workload on all players in turn. `file` is the weights, for the workload that loads them.
pub(crate) fn measure(row: &Row, players: &mut [Player], turns: Turns, file: &str) -> Vec<Outcome> {
    let request = format!("prepare {} {file}", row.name);
    let prepare = |player: &mut Player| match player.ask(request.trim_end()) {
        Ok(_) => Outcome::Measured(Measured::default()),
        Err(refusal) => refused(refusal),
    };
    let mut outcomes: Vec<Outcome> = players.iter_mut().map(prepare).collect();
    let warm = turn(players, &mut outcomes, false, |_| Turn { cold: 0, counted: WARM_UP });
    let plan = |ms: &f64| Turn { cold: usize::from(*ms < COLD_MS), counted: turns.repeats_in_one(*ms) };
    let plans: Vec<Turn> = warm.iter().map(plan).collect();
    // Warm-up determines the first value; its times and page faults are not counted.
    for outcome in &mut outcomes {
        if let Outcome::Measured(measured) = outcome {
            measured.times.clear();
            measured.turns.clear();
            (measured.all_faults, measured.all_repeats) = (0.0, 0);
        }
    }
    for round in 0..turns.rounds {
        turn(players, &mut outcomes, turns.back_and_forth && round % 2 == 1, |i| plans[i]);
    }
    for (player, outcome) in players.iter_mut().zip(&mut outcomes) {
        finish(row, file, player, outcome);
    }
    outcomes
}

/// Repeats of one peer's turn.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// Uncounted repeats at the start.
    cold: usize,
    counted: usize,
}

/// Runs a turn of each active peer, in reverse order if `backwards`. Returns the last time of each.
fn turn(
    players: &mut [Player],
    outcomes: &mut [Outcome],
    backwards: bool,
    of: impl Fn(usize) -> Turn,
) -> Vec<f64> {
    let mut last = vec![0.0; players.len()];
    let mut order: Vec<usize> = (0..players.len()).collect();
    if backwards {
        order.reverse();
    }
    for i in order {
        let Outcome::Measured(measured) = &mut outcomes[i] else { continue };
        std::thread::sleep(PAUSE);
        let Turn { cold, counted } = of(i);
        let answer = players[i].ask(&format!("run {}", cold + counted));
        match answer.map_err(refused).and_then(|answer| measured.add(&answer, cold)) {
            Ok(()) => last[i] = measured.times.last().copied().unwrap_or(0.0),
            Err(problem) => outcomes[i] = problem,
        }
    }
    last
}

impl Turns {
    /// The rounds of a comparison that does not set them.
    pub(crate) const FIXED_ROUNDS: usize = 5;

    /// Repeats per turn, so that all turns reach `repeats`; more for short workloads.
    fn repeats_in_one(self, ms: f64) -> usize {
        let enough = (self.milliseconds / ms.max(1e-6)).min(MAX_IN_TURN as f64) as usize;
        self.repeats.div_ceil(self.rounds).max(enough)
    }
}

impl Measured {
    /// Adds an answer of `run`, without the first `cold` times.
    fn add(&mut self, answer: &Value, cold: usize) -> Result<(), Outcome> {
        let times = numbers(&answer["ms"]);
        let values = answer["values"].as_array().map(Vec::as_slice).unwrap_or_default();
        let (Some(first), Some(last)) = (values.first(), values.last()) else {
            return Err(Outcome::Failed("it answered without times".to_owned()));
        };
        let (Some(first), Some(last)) = (first.as_f64(), last.as_f64()) else {
            return Err(Outcome::Failed("the result is not a finite number".to_owned()));
        };
        self.values = Some((self.values.map_or(first, |(earliest, _)| earliest), last));
        self.all_faults += answer["faults"].as_f64().unwrap_or(0.0);
        self.all_repeats += times.len();
        let counted = times.get(cold..).filter(|counted| !counted.is_empty());
        let Some(counted) = counted else {
            return Err(Outcome::Failed("it answered with too few times".to_owned()));
        };
        self.turns.push(super::median(counted.to_vec()));
        self.times.extend(counted);
        Ok(())
    }

    /// Mean page faults per repeat.
    pub(crate) fn faults(&self) -> f64 {
        self.all_faults / self.all_repeats.max(1) as f64
    }

    /// The median of the times.
    pub(crate) fn median_ms(&self) -> f64 {
        super::median(self.times.clone())
    }

    /// The minimum of the times.
    pub(crate) fn min_ms(&self) -> f64 {
        self.times.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// Finishes a workload after all turns: frees inputs, checks losses, measures memory.
fn finish(row: &Row, file: &str, player: &mut Player, outcome: &mut Outcome) {
    let Outcome::Measured(measured) = outcome else { return };
    if let Err(refusal) = player.ask("drop") {
        *outcome = refused(refusal);
        return;
    }
    match row.kind {
        Kind::Training => {
            let (first, last) = measured.values.unwrap_or_default();
            measured.extra.insert("loss".to_owned(), json!([first, last]));
            measured.extra.extend(memory(row, file, player.peer));
            if last >= first {
                *outcome =
                    Outcome::Failed(format!("the loss does not fall: {first} at first, {last} at last"));
            }
        }
        Kind::Model => {
            measured.extra.insert("value".to_owned(), json!(measured.values.map(|(_, last)| last)));
            measured.extra.extend(memory(row, file, player.peer));
        }
        Kind::Overhead => {
            if let Some(nanoseconds) = player.fused_overhead() {
                measured.extra.insert("fused_ns".to_owned(), json!(nanoseconds));
            }
        }
        Kind::Contraction | Kind::Plain | Kind::Load | Kind::FirstStep => {}
    }
}

/// Memory of a new process that runs the workload, in MiB: before preparation, and at the peak. Nothing where it is not
/// measured.
fn memory(row: &Row, file: &str, peer: &Peer) -> Map<String, Value> {
    let ask = || -> Result<Map<String, Value>, Refusal> {
        let mut fresh = peer.start().map_err(Refusal::Failed)?.0;
        let before = fresh.ask("memory")?;
        fresh.ask(format!("prepare {} {file}", row.name).trim_end())?;
        let repeats = if row.kind == Kind::Training { MEMORY_STEPS } else { 1 };
        fresh.ask(&format!("run {repeats}"))?;
        let after = fresh.ask("memory")?;
        let mut found = Map::new();
        found.insert("peak_mib".to_owned(), after["peak_mib"].clone());
        found.insert("idle_mib".to_owned(), before["resident_mib"].clone());
        Ok(found)
    };
    if peer.measures_memory { ask().unwrap_or_default() } else { Map::new() }
}

fn refused(refusal: Refusal) -> Outcome {
    match refusal {
        Refusal::Unsupported(reason) => Outcome::Unsupported(reason),
        Refusal::Failed(reason) => Outcome::Failed(reason),
    }
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_workloads_are_repeated_more_often() {
        let turns = Turns { rounds: 5, back_and_forth: false, repeats: 7, milliseconds: 15.0 };
        let repeats_in_turn = |repeats, ms| Turns { repeats, ..turns }.repeats_in_one(ms);
        assert_eq!(repeats_in_turn(7, 1000.0), 2);
        assert_eq!(repeats_in_turn(7, 1.0), 15);
        assert_eq!(repeats_in_turn(7, 0.0), MAX_IN_TURN);
        assert_eq!(repeats_in_turn(400, 1.0), 80);
    }

    #[test]
    fn measurements_accumulate() {
        let mut measured = Measured::default();
        measured.add(&json!({"ms": [2.0, 1.0], "values": [5.0, 4.0], "faults": 10}), 0).unwrap();
        measured.add(&json!({"ms": [9.0, 6.0], "values": [9.0, 3.0], "faults": 2}), 1).unwrap();
        assert_eq!((measured.median_ms(), measured.min_ms(), measured.faults()), (2.0, 1.0, 3.0));
        assert_eq!(measured.values, Some((5.0, 3.0)));
        assert_eq!(measured.turns, [2.0, 6.0]);
    }

    #[test]
    fn a_non_finite_result_is_a_failure() {
        let mut measured = Measured::default();
        let problem = measured.add(&json!({"ms": [2.0], "values": [null], "faults": 0}), 0).unwrap_err();
        assert!(matches!(problem, Outcome::Failed(reason) if reason.contains("finite")));
        assert!(measured.add(&json!({"ms": [], "values": []}), 0).is_err());
        assert!(measured.add(&json!({"ms": [1.0], "values": [1.0]}), 1).is_err());
    }
}
