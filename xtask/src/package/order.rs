//! The order of publication: each package comes after its dependencies.

use std::collections::HashSet;

use crate::workspace::{Dependency, Package, Workspace};

/// The published packages, each after the packages it depends on.
///
/// The order is defined where [`problems`] finds none: then dependencies form no cycle.
pub(super) fn publish_order(workspace: &Workspace) -> Vec<&Package> {
    let mut visited = HashSet::new();
    let mut order = Vec::new();
    for package in workspace.packages.iter().filter(|package| package.published) {
        visit(workspace, package, &mut visited, &mut order);
    }
    order
}

fn visit<'a>(
    workspace: &'a Workspace,
    package: &'a Package,
    visited: &mut HashSet<&'a str>,
    order: &mut Vec<&'a Package>,
) {
    if !visited.insert(package.name.as_str()) {
        return;
    }
    for (_, used) in kept(workspace, package) {
        visit(workspace, used, visited, order);
    }
    order.push(package);
}

/// The dependencies on workspace members in the published package: all except path-only dev-dependencies.
fn kept<'a>(
    workspace: &'a Workspace,
    package: &'a Package,
) -> impl Iterator<Item = (&'a Dependency, &'a Package)> {
    let kept = package.dependencies.iter().filter(|dependency| !dependency.dev || dependency.versioned);
    kept.filter_map(|dependency| Some((dependency, workspace.package(&dependency.name)?)))
}

/// Dependencies that a registry would refuse, and roots that are missing or not published.
pub(super) fn problems(workspace: &Workspace, roots: &[&str]) -> Vec<String> {
    let missing = roots
        .iter()
        .filter(|name| workspace.package(name).is_none_or(|package| !package.published))
        .map(|name| format!("{name}: the workspace publishes no such package"));
    let published = workspace.packages.iter().filter(|package| package.published);
    let refused = published.flat_map(|package| {
        kept(workspace, package)
            .filter_map(|(dependency, used)| refusal(workspace, package, dependency, used))
    });
    missing.chain(refused).collect()
}

fn refusal(
    workspace: &Workspace,
    package: &Package,
    dependency: &Dependency,
    used: &Package,
) -> Option<String> {
    let (name, other) = (&package.name, &used.name);
    if !dependency.dev && !dependency.versioned {
        Some(format!("{name}: the dependency {other} has no version; add one"))
    } else if !dependency.dev && !used.published {
        Some(format!("{name}: the dependency {other} is not published"))
    } else if dependency.dev && !used.published {
        Some(format!(
            "{name}: the dev-dependency {other} is not published; write it by path alone, without a version"
        ))
    } else if dependency.dev && leads_to(workspace, used, name) {
        Some(format!(
            "{name}: the dev-dependency {other} depends on {name}; write it by path alone, without a version"
        ))
    } else {
        None
    }
}

/// Whether `from` is the package `name` or depends on it.
fn leads_to(workspace: &Workspace, from: &Package, name: &str) -> bool {
    let mut order = Vec::new();
    visit(workspace, from, &mut HashSet::new(), &mut order);
    order.iter().any(|package| package.name == name)
}

#[cfg(test)]
mod tests {
    use super::super::names;
    use super::super::tests::published;
    use super::*;

    fn workspace(packages: Vec<Package>) -> Workspace {
        Workspace { packages, ..Workspace::default() }
    }

    #[test]
    fn each_package_comes_after_its_dependencies() {
        let workspace = workspace(vec![
            published("kiln", &[("tensor", false, true), ("half", false, true)]),
            published("tensor", &[("ir", false, true), ("kiln", true, false), ("cpu", true, true)]),
            published("cpu", &[("ir", false, true)]),
            published("ir", &[]),
            Package { name: "suite".to_owned(), ..Package::default() },
        ]);
        assert_eq!(problems(&workspace, &["kiln"]), [""; 0]);
        assert_eq!(names(&publish_order(&workspace)), ["ir", "cpu", "tensor", "kiln"]);
    }

    #[test]
    fn cycles_through_dev_dependencies_are_found() {
        let cycle = |versioned| {
            workspace(vec![
                published("ir", &[("reference", true, versioned)]),
                published("middle", &[("ir", false, true)]),
                published("reference", &[("middle", false, true)]),
            ])
        };
        assert_eq!(problems(&cycle(false), &[]), [""; 0]);
        let found = problems(&cycle(true), &[]);
        assert!(found[0].starts_with("ir: the dev-dependency reference depends on ir"), "{found:?}");
    }

    #[test]
    fn unpublished_and_unversioned_dependencies_are_found() {
        let suite = || Package { name: "suite".to_owned(), ..Package::default() };
        let found = |dependency| problems(&workspace(vec![suite(), published("ir", &[dependency])]), &[]);
        assert_eq!(found(("suite", true, false)), [""; 0]);
        assert!(found(("suite", true, true))[0].contains("path alone"));
        assert!(found(("suite", false, true))[0].contains("is not published"));
        assert!(found(("suite", false, false))[0].contains("no version"));
    }

    #[test]
    fn roots_must_be_published() {
        let workspace = workspace(vec![Package { name: "kiln".to_owned(), ..Package::default() }]);
        assert_eq!(problems(&workspace, &["kiln"]).len(), 1);
        assert_eq!(problems(&workspace, &["other"]).len(), 1);
    }
}
