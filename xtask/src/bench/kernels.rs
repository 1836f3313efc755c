//! `cargo xtask bench kernels`: hand-written CUDA against the kernels of all vendors, in one process on one GPU.

use std::path::Path;
use std::process::ExitCode;

use super::programs::{self, Build, PACK, PROGRAMS, Programs};
use super::{number_of, words_of};
use crate::args::{Accepts, Args};
use crate::process;

const ACCEPTS: Accepts = Accepts { flags: &[PACK], options: &["--only", "--rounds", PROGRAMS], words: false };

const DEFAULT_ROUNDS: usize = 9;
const MAX_ROUNDS: usize = 1000;

/// `cargo xtask bench kernels`: fails if a workload fails. Ratios have no target.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let rounds = number_of(&args, "--rounds", DEFAULT_ROUNDS, 1, MAX_ROUNDS)?.to_string();
    let only = words_of(&args, "--only").join(",");
    let programs = Programs::of(&args)?;
    if args.has(PACK) {
        return programs::pack(&programs);
    }
    let program = programs.program(&Build::KILN_FOR_GPU)?;
    let mut command = process::program(&program.to_string_lossy(), Path::new("."));
    process::run(command.args(["--kernels", &rounds, &only]))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::owned;

    #[test]
    fn errors_name_the_option() {
        let problem = |words: &[&str]| run(&owned(words)).unwrap_err();
        assert!(problem(&["--rounds", "0"]).contains("--rounds"));
        assert!(problem(&["--programs", "/nowhere"]).contains("/nowhere"));
    }
}
