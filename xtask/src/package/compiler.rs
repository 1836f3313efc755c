//! Checks that default builds need no C compiler.

use crate::process;
use crate::workspace::Workspace;

/// Packages that new users build first, with default features.
const FIRST_BUILDS: &[&str] = &["kiln", "kiln-command", "kiln-examples"];

/// Packages by which build scripts call a C or C++ compiler.
const COMPILERS: &[&str] = &["cc", "cmake", "bindgen", "pkg-config", "autotools"];

/// Packages that call a C compiler while a first build runs.
pub(super) fn problems(workspace: &Workspace) -> Result<Vec<String>, String> {
    let mut command = process::cargo(&workspace.root);
    command.args(["tree", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    command.args(FIRST_BUILDS.iter().flat_map(|name| ["-p", name]));
    let found = compilers(&process::output(&mut command)?);
    let report =
        |name| format!("a default build of {} calls a C compiler by `{name}`", FIRST_BUILDS.join(", "));
    Ok(found.into_iter().map(report).collect())
}

/// The packages of [`COMPILERS`] in the output of `cargo tree`.
fn compilers(tree: &str) -> Vec<&'static str> {
    let named = |name: &&&str| tree.lines().any(|line| line.split(' ').next() == Some(name));
    COMPILERS.iter().filter(named).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_crates_are_matched_by_full_name() {
        assert_eq!(compilers("kiln v0.1.0 (/src/kiln)\nccsds v1.0.0\nlibm v0.2.1\n"), [""; 0]);
        assert_eq!(compilers("ring v0.17.0\ncc v1.2.0\ncmake v0.1.0 (*)\n"), ["cc", "cmake"]);
    }
}
