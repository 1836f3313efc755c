//! Rules for every tracked file: size, no machine paths, no registry hosts.

use super::{File, Finding, Tree, line_of};

const LARGEST: u64 = 1 << 20;

/// Real data that ships with the repository.
const MAY_BE_LARGE: &[&str] = &["crates/data/mnist/"];

/// Absolute paths of a developer's machine. Written in two halves, so that this file passes its own check.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/tmp/", "bash")];

/// Hosts of package registries: a build takes them from the user's configuration.
const REGISTRIES: &[&str] = &[
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("pypi", ".org"),
    concat!("python", "hosted.org"),
    concat!("registry.", "npmjs.org"),
    concat!("proxy.", "golang.org"),
];

/// The one source a lock file may name.
const LOCK_SOURCE: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

/// Checks that only listed files are large.
pub(super) fn sizes(tree: &Tree) -> Vec<Finding> {
    let large = tree.files.iter().filter(|file| file.bytes > LARGEST);
    let unexpected = large.filter(|file| !MAY_BE_LARGE.iter().any(|start| file.path.starts_with(start)));
    let report = |file: &File| {
        let problem = format!("the file has {} bytes, more than 1 MiB", file.bytes);
        file.finding(
            1,
            problem,
            "make it smaller, generate it, or list it in xtask/src/tidy/tracked_files.rs",
        )
    };
    unexpected.map(report).collect()
}

/// Checks that no text contains a machine path or the host of a registry.
pub(super) fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in tree.texts() {
        for path in MACHINE_PATHS {
            let absolute = text.match_indices(path).filter(|(offset, _)| starts_path(text, *offset));
            findings.extend(absolute.map(|(offset, _)| {
                let problem = format!("`{path}` is a path of one machine");
                file.finding(
                    line_of(text, offset),
                    problem,
                    "use a path relative to the repository or a temporary folder",
                )
            }));
        }
        for host in REGISTRIES {
            findings.extend(text.match_indices(host).map(|(offset, _)| {
                let problem = format!("`{host}` is the host of a registry");
                file.finding(
                    line_of(text, offset),
                    problem,
                    "leave the choice of registry to the user's configuration",
                )
            }));
        }
    }
    findings
}

/// Checks that every package of a lock file comes from the public index.
pub(super) fn lock_sources(tree: &Tree) -> Vec<Finding> {
    let locks =
        tree.texts().filter(|(file, _)| file.path == "Cargo.lock" || file.path.ends_with("/Cargo.lock"));
    let check = |(file, text): (&File, &str)| {
        let foreign = text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.starts_with("source = ") && *line != LOCK_SOURCE);
        let report = |(index, _): (usize, &str)| {
            file.finding(
                index + 1,
                "a package comes from another source than the public index",
                "lock it again without a mirror",
            )
        };
        foreign.map(report).collect::<Vec<_>>()
    };
    locks.flat_map(check).collect()
}

/// Whether the slash at `offset` starts a path: no name character precedes it.
fn starts_path(text: &str, offset: usize) -> bool {
    let before = text[..offset].chars().next_back();
    !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '}' | '*'))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, tree};
    use super::*;

    #[test]
    fn large_files_are_reported_outside_the_list() {
        let large = "x".repeat(LARGEST as usize + 1);
        let files = [("a.bin", large.as_str()), ("crates/data/mnist/train.gz", &large), ("b.txt", "small")];
        assert_eq!(places(&sizes(&tree(&files))), ["a.bin:1"]);
    }

    #[test]
    fn machine_paths_and_registries_are_reported() {
        let page = format!(
            "ok\nsee {}main\nframe{}x\nhttps://{}/simple\n",
            MACHINE_PATHS[0], MACHINE_PATHS[0], REGISTRIES[2]
        );
        assert_eq!(places(&machine_paths(&tree(&[("a.md", &page)]))), ["a.md:2", "a.md:4"]);
    }

    #[test]
    fn lock_files_name_the_public_index_only() {
        let lock = format!(
            "[[package]]\n{LOCK_SOURCE}\n[[package]]\nsource = \"registry+https://mirror.example/index\"\n"
        );
        assert_eq!(places(&lock_sources(&tree(&[("Cargo.lock", &lock)]))), ["Cargo.lock:4"]);
    }
}
