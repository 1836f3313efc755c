//! `cargo xtask goldens`: makes the PyTorch reference files again.

use std::path::Path;
use std::process::ExitCode;

use crate::args::{Accepts, Args};
use crate::process;
use crate::workspace::Workspace;

const SCRIPT: &str = crate::checks::GOLDENS;

/// `cargo xtask goldens`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    Args::parse(words, &Accepts { flags: &[], options: &[], words: false })?;
    let root = Workspace::load()?.root;
    if !root.join(SCRIPT).is_file() {
        return Err(format!("there is no {SCRIPT}"));
    }
    has_torch(&root)?;
    process::run(process::program("python3", &root).arg(SCRIPT))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether `python3` can import PyTorch, or how to make it.
pub(crate) fn has_torch(root: &Path) -> Result<(), String> {
    let import = process::succeeds(process::program("python3", root).args(["-c", "import torch"]));
    if import {
        return Ok(());
    }
    Err("python3 cannot import torch; `python3 -m pip install torch numpy` in a virtual environment adds it"
        .to_owned())
}
