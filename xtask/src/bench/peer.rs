//! Measured programs and their commands.

use std::path::PathBuf;

use super::child::Running;
use crate::process;

/// A measured program.
pub(crate) struct Peer {
    /// The name in tables.
    pub(crate) name: &'static str,
    /// Whether its memory is measured; the memory of `torch.compile` is mostly the compiler's.
    pub(crate) measures_memory: bool,
    /// The program, with its arguments, environment variables and working folder.
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(&'static str, String)>,
    pub(crate) folder: PathBuf,
}

/// A skipped framework, with the reason.
pub(crate) struct Skipped {
    pub(crate) name: &'static str,
    pub(crate) reason: String,
}

/// The Python interpreter that the variable `PYTHON` names; `python3` without it.
pub(crate) fn python() -> PathBuf {
    let named = std::env::var_os("PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    // Peers run in another folder, which a path relative to this one does not survive.
    match named.components().count() {
        1 => named,
        _ => std::path::absolute(&named).unwrap_or(named),
    }
}

impl Peer {
    /// Starts the program and asks for its version.
    pub(crate) fn start(&self) -> Result<(Running, String), String> {
        let mut command = process::program(&self.program.to_string_lossy(), &self.folder);
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        let mut running = Running::start(&mut command).map_err(|error| format!("{}: {error}", self.name))?;
        let hello = running.ask("hello").map_err(|refusal| format!("{}: {}", self.name, refusal.reason()))?;
        let version = hello["version"].as_str().unwrap_or("unknown version").to_owned();
        Ok((running, version))
    }
}
