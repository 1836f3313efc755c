//! `cargo xtask goldens`: regenerates the PyTorch reference files.

use std::path::Path;
use std::process::ExitCode;

use crate::args::{Accepts, Args};
use crate::process;
use crate::workspace::Workspace;

/// The script that generates the files; with `--check` it compares instead of writing.
pub(crate) const SCRIPT: &str = "crates/suite/goldens/generate.py";

/// The page with the package versions of the files, in a line `pip install NAME==VERSION ...`.
const PAGE: &str = "crates/suite/goldens/README.md";

/// Prints `NAME VERSION` for each argument that is installed.
const VERSIONS: &str = "\
import sys
from importlib.metadata import PackageNotFoundError, version
for name in sys.argv[1:]:
    try:
        print(name, version(name))
    except PackageNotFoundError:
        pass
";

/// `cargo xtask goldens`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    Args::parse(words, &Accepts { flags: &[], options: &[], words: false })?;
    let root = Workspace::load()?.root;
    can_run(&root)?;
    process::run(process::program("python3", &root).arg(SCRIPT))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether `python3` has the exact packages of the files, or the missing ones. Other versions round differently, so
/// their files would differ without being wrong.
pub(crate) fn can_run(root: &Path) -> Result<(), String> {
    if !root.join(SCRIPT).is_file() {
        return Err(format!("there is no {SCRIPT}"));
    }
    if !process::succeeds(process::program("python3", root).arg("--version")) {
        return Err("there is no python3".to_owned());
    }
    let page = std::fs::read_to_string(root.join(PAGE)).map_err(process::at(Path::new(PAGE)))?;
    let wanted = requirements(&page);
    let mut command = process::program("python3", root);
    command.args(["-c", VERSIONS]).args(wanted.iter().map(|(name, _)| name));
    let installed = process::output(&mut command)?;
    match unmet(&wanted, &installed) {
        None => Ok(()),
        Some(problem) => {
            let packages: Vec<String> =
                wanted.iter().map(|(name, version)| format!("{name}=={version}")).collect();
            let packages = packages.join(" ");
            Err(format!(
                "{problem}; in a virtual environment, `python3 -m pip install {packages}` mends that"
            ))
        }
    }
}

/// Names and versions of the page's `pip install` line.
fn requirements(page: &str) -> Vec<(&str, &str)> {
    let line = page.lines().find_map(|line| line.trim().strip_prefix("pip install "));
    line.unwrap_or_default().split_whitespace().filter_map(|word| word.split_once("==")).collect()
}

/// The first requirement that `installed` (lines of name and version) does not meet. Build tags after `+` are ignored.
fn unmet(wanted: &[(&str, &str)], installed: &str) -> Option<String> {
    wanted.iter().find_map(|(name, version)| {
        let found = installed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        match found {
            None => Some(format!("python3 has no {name}")),
            Some(found) if found.split('+').next() == Some(version) => None,
            Some(found) => Some(format!("the goldens were made with {name} {version}, python3 has {found}")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Goldens\n\n    pip install torch==2.13.0 numpy==2.4.6\n";

    #[test]
    fn required_versions_are_read_from_the_page() {
        let wanted = requirements(PAGE);
        assert_eq!(wanted, [("torch", "2.13.0"), ("numpy", "2.4.6")]);
        assert_eq!(unmet(&wanted, "torch 2.13.0+cpu\nnumpy 2.4.6\n"), None);
        assert_eq!(unmet(&wanted, "torchvision 1.0\nnumpy 2.4.6\n").unwrap(), "python3 has no torch");
        assert!(unmet(&wanted, "torch 2.9.1\nnumpy 2.4.6\n").unwrap().contains("python3 has 2.9.1"));
    }
}
