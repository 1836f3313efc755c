//! Checks names, lints and licences in the manifests.

use super::{Finding, Tree};
use crate::workspace::Package;

/// The lint that keeps matches over closed enums exhaustive.
const EXHAUSTIVE: &str = "wildcard_enum_match_arm = \"deny\"";

/// Packages whose names differ from their folders, because another project has the name in the registry.
const RENAMED: &[(&str, &str)] = &[("cli", "kiln-command")];

/// Keys that every package inherits from the workspace.
const INHERITED: &[&str] = &["version", "edition", "license", "rust-version"];

/// Checks that the workspace denies wildcard arms, and that packages inherit lints and metadata from it.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        tree.workspace.packages.iter().flat_map(|p| check_package(tree, p)).collect();
    if let Some(root) = tree.file("Cargo.toml") {
        let text = root.text.as_deref().unwrap_or_default();
        if !section(text, "[workspace.lints.clippy]").any(|(_, line)| line == EXHAUSTIVE) {
            let problem = "the workspace does not deny clippy::wildcard_enum_match_arm";
            findings.push(root.finding(1, problem, "put it under [workspace.lints.clippy]"));
        }
    }
    findings
}

fn check_package(tree: &Tree, package: &Package) -> Vec<Finding> {
    let Some(file) = tree.file(&format!("{}/Cargo.toml", package.folder)) else { return Vec::new() };
    let text = file.text.as_deref().unwrap_or_default();
    let mut findings = Vec::new();
    if !section(text, "[lints]").any(|(_, line)| line == "workspace = true") {
        let problem = "the package does not take the workspace's lints";
        findings.push(file.finding(1, problem, "add `[lints]` with `workspace = true`"));
    }
    for key in INHERITED {
        let inherits = format!("{key}.workspace = true");
        if !section(text, "[package]").any(|(_, line)| line == inherits) {
            let problem = format!("`{key}` is not the workspace's");
            findings.push(file.finding(1, problem, "write KEY.workspace = true under [package]"));
        }
    }
    if !section(text, "[package]").any(|(_, line)| line.starts_with("description")) {
        findings.push(file.finding(1, "the package has no description", "say in one line what it is for"));
    }
    if let Some(short) = package.folder.strip_prefix("crates/") {
        let renamed = RENAMED.iter().find(|(folder, _)| *folder == short).map(|(_, name)| (*name).to_owned());
        let of_folder = || if short == "kiln" { "kiln".to_owned() } else { format!("kiln-{short}") };
        let expected = renamed.unwrap_or_else(of_folder);
        if package.name != expected {
            let problem = format!("crates/{short} holds a package called `{}`", package.name);
            findings.push(file.finding(1, problem, "name it kiln-FOLDER"));
        }
    }
    findings
}

/// The trimmed, comment-free lines under a `[header]`, with their numbers.
fn section<'a>(text: &'a str, header: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let lines = text.lines().enumerate().map(|(index, line)| {
        let code = line.split('#').next().unwrap_or_default();
        (index + 1, code.trim())
    });
    lines.skip_while(move |(_, line)| *line != header).skip(1).take_while(|(_, line)| !line.starts_with('['))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{package, tree};
    use super::*;

    const GOOD: &str = "[package]\nname = \"kiln-ir\"\nversion.workspace = true\nedition.workspace = true\n\
        license.workspace = true\nrust-version.workspace = true\ndescription = \"ops\"\n\n[lints]\nworkspace = true\n";

    fn problems(name: &str, manifest: &str) -> Vec<String> {
        let mut tree = tree(&[("crates/ir/Cargo.toml", manifest)]);
        tree.workspace.packages = vec![package(name, "crates/ir", &[])];
        check(&tree).into_iter().map(|finding| finding.problem).collect()
    }

    #[test]
    fn a_complete_manifest_passes() {
        assert_eq!(problems("kiln-ir", GOOD), [""; 0]);
    }

    #[test]
    fn missing_parts_are_reported() {
        assert!(problems("kiln-ir", &GOOD.replace("[lints]", "[profile]"))[0].contains("lints"));
        assert!(
            problems("kiln-ir", &GOOD.replace("edition.workspace = true", "edition = \"2021\""))[0]
                .contains("edition")
        );
        assert!(problems("kiln-ir", &GOOD.replace("description", "summary"))[0].contains("description"));
        assert!(problems("ops", GOOD)[0].contains("`ops`"));
    }

    #[test]
    fn the_workspace_must_deny_wildcard_arms() {
        let denied = format!("[workspace.lints.clippy]\n{EXHAUSTIVE}\n");
        assert_eq!(check(&tree(&[("Cargo.toml", &denied)])), []);
        let warned = denied.replace("deny", "warn");
        assert_eq!(check(&tree(&[("Cargo.toml", &warned)])).len(), 1);
        let elsewhere = format!("[workspace.lints.clippy]\n\n[profile.dev]\n{EXHAUSTIVE}\n");
        assert_eq!(check(&tree(&[("Cargo.toml", &elsewhere)])).len(), 1);
    }
}
