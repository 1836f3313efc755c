//! Checks the dependencies between crates. The table of allowed dependencies defines the architecture.

use super::{Finding, Tree, line_of};
use crate::workspace::Package;

/// The dependencies that a crate may name under `[dependencies]` and `[build-dependencies]`.
enum May {
    /// These workspace crates and no others.
    Use(&'static [&'static str]),
    /// Every library of the workspace.
    UseAll,
}

/// Crate (its folder under `crates/`, or its folder) and its allowed dependencies. Tests, examples and benchmarks of a
/// crate (`[dev-dependencies]`) may use anything.
const LAYERS: &[(&str, May)] = &[
    ("ir", May::Use(&[])),
    ("macros", May::Use(&[])),
    ("reference", May::Use(&["ir"])),
    ("kernel", May::Use(&["ir"])),
    ("fusion", May::Use(&["ir", "kernel"])),
    ("cpu", May::Use(&["ir", "kernel"])),
    ("gpu", May::Use(&["ir", "kernel"])),
    ("cuda", May::Use(&["ir", "kernel", "gpu"])),
    ("wgpu", May::Use(&["ir", "kernel", "gpu"])),
    ("foreign", May::Use(&["ir", "cpu"])),
    ("candle", May::Use(&["ir", "foreign"])),
    ("torch", May::Use(&["ir", "foreign"])),
    ("autodiff", May::Use(&["ir"])),
    ("vmap", May::Use(&["ir"])),
    ("autocast", May::Use(&["ir"])),
    ("router", May::Use(&["ir"])),
    ("tensor", May::Use(&["ir", "autodiff", "vmap"])),
    ("remote", May::Use(&["ir", "tensor"])),
    (
        "backends",
        May::Use(&[
            "ir", "kernel", "autocast", "fusion", "cpu", "gpu", "cuda", "wgpu", "candle", "torch", "remote",
            "router", "tensor",
        ]),
    ),
    ("dlpack", May::Use(&["ir", "tensor"])),
    ("linalg", May::Use(&["ir", "tensor"])),
    ("nn", May::Use(&["ir", "tensor", "backends", "macros"])),
    ("optim", May::Use(&["ir", "tensor", "nn", "macros"])),
    ("data", May::Use(&["ir", "tensor", "macros"])),
    ("store", May::Use(&["tensor", "backends", "nn", "optim", "macros"])),
    ("train", May::Use(&["ir", "tensor", "nn", "optim", "data", "store", "macros"])),
    ("text", May::Use(&["tensor", "backends", "nn", "store"])),
    ("models", May::Use(&["ir", "tensor", "backends", "nn", "store", "text", "macros"])),
    // `train` for `kiln runs`: the format of the records of a run has one reader.
    (
        "cli",
        May::Use(&[
            "ir", "kernel", "fusion", "tensor", "backends", "remote", "train", "nn", "store", "text",
            "models",
        ]),
    ),
    ("kiln", May::UseAll),
    ("suite", May::UseAll),
    ("attack", May::UseAll),
    ("fuzz", May::UseAll),
    ("examples", May::Use(&["kiln", "reference"])),
    ("xtask", May::Use(&[])),
];

/// Leaf crates, and the test crates that may depend on them.
const LEAVES: &[(&str, &[&str])] =
    &[("suite", &["fuzz"]), ("attack", &[]), ("fuzz", &[]), ("examples", &[]), ("xtask", &[])];

/// Checks that the table allows every workspace dependency.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.workspace.packages.iter().flat_map(|package| check_package(tree, package)).collect()
}

fn check_package(tree: &Tree, package: &Package) -> Vec<Finding> {
    let short = package.short_name();
    let Some((_, may)) = LAYERS.iter().find(|(name, _)| *name == short) else {
        let problem = format!("crate `{short}` has no place in the layering");
        return vec![finding(
            tree,
            package,
            "[package]",
            problem,
            "add it to LAYERS in xtask/src/tidy/layers.rs",
        )];
    };
    let normal = package.dependencies.iter().filter(|dependency| !dependency.dev);
    let used = normal.filter_map(|dependency| tree.workspace.package(&dependency.name));
    let forbidden = used.filter(|used| {
        let other = used.short_name();
        let is_leaf = |(leaf, users): &(&str, &[&str])| *leaf == other && !users.contains(&short);
        LEAVES.iter().any(is_leaf)
            || match may {
                May::Use(allowed) => !allowed.contains(&other),
                May::UseAll => false,
            }
    });
    let report = |used: &Package| {
        let problem = format!("`{short}` may not depend on `{}`", used.short_name());
        let remedy = "turn the dependency round, or move the code to the layer that owns it";
        finding(tree, package, &used.name, problem, remedy)
    };
    forbidden.map(report).collect()
}

/// A finding at the line of the package's manifest that starts with `entry`.
fn finding(tree: &Tree, package: &Package, entry: &str, problem: String, remedy: &'static str) -> Finding {
    let path = format!("{}/Cargo.toml", package.folder);
    let text = tree.file(&path).and_then(|file| file.text.as_deref()).unwrap_or_default();
    let mut starts = text.match_indices(entry).map(|(offset, _)| offset);
    let at_line_start = starts.find(|&offset| offset == 0 || text.as_bytes()[offset - 1] == b'\n');
    Finding { line: at_line_start.map_or(1, |offset| line_of(text, offset)), path, problem, remedy }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{package, places, tree};
    use super::*;

    fn findings(packages: Vec<Package>) -> Vec<Finding> {
        let manifest = "[package]\nname = \"x\"\n\n[dependencies]\nhalf = \"2\"\nkiln-tensor = \"0\"\n";
        let mut tree = tree(&[("crates/cpu/Cargo.toml", manifest)]);
        tree.workspace.packages = packages;
        check(&tree)
    }

    #[test]
    fn allowed_dependencies_pass_and_external_crates_are_ignored() {
        let packages = vec![
            package("kiln-ir", "crates/ir", &["half"]),
            package("kiln-cpu", "crates/cpu", &["kiln-ir"]),
            package("kiln", "crates/kiln", &["kiln-ir", "kiln-cpu"]),
        ];
        assert_eq!(findings(packages), []);
    }

    #[test]
    fn an_upward_dependency_is_reported_at_its_line() {
        let packages = vec![
            package("kiln-tensor", "crates/tensor", &[]),
            package("kiln-cpu", "crates/cpu", &["kiln-tensor"]),
        ];
        let found = findings(packages);
        assert_eq!(places(&found), ["crates/cpu/Cargo.toml:6"]);
        assert!(found[0].problem.contains("`cpu` may not depend on `tensor`"));
    }

    #[test]
    fn dev_dependencies_are_unrestricted() {
        let mut cpu = package("kiln-cpu", "crates/cpu", &["kiln-suite"]);
        cpu.dependencies[0].dev = true;
        assert_eq!(findings(vec![cpu, package("kiln-suite", "crates/suite", &[])]), []);
    }

    #[test]
    fn no_library_depends_on_the_suite() {
        let packages =
            vec![package("kiln-suite", "crates/suite", &[]), package("kiln", "crates/kiln", &["kiln-suite"])];
        assert_eq!(findings(packages).len(), 1);
    }

    #[test]
    fn test_crates_may_depend_on_the_suite() {
        let packages =
            vec![package("kiln-suite", "crates/suite", &[]), package("kiln-fuzz", "fuzz", &["kiln-suite"])];
        assert_eq!(findings(packages), []);
    }

    #[test]
    fn an_unknown_crate_is_reported() {
        let found = findings(vec![package("kiln-novel", "crates/novel", &[])]);
        assert!(found[0].problem.contains("`novel` has no place"));
    }

    #[test]
    fn the_table_itself_has_no_cycle() {
        for (index, (name, may)) in LAYERS.iter().enumerate() {
            if let May::Use(allowed) = may {
                let earlier: Vec<&str> = LAYERS[..index].iter().map(|(name, _)| *name).collect();
                for used in allowed.iter().filter(|used| **used != "kiln") {
                    assert!(earlier.contains(used), "{name} uses {used}, which comes later");
                }
            }
        }
    }
}
