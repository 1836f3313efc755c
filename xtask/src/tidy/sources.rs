//! Rules for source files.

use super::{File, Finding, Tree, line_of, words};

const LONGEST: usize = 700;
const SOURCE_ENDINGS: &[&str] = &[".rs", ".py", ".sh", ".wgsl", ".cu", ".cuh", ".ir", ".js"];

/// Module names that describe no purpose.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "base", "misc", "helpers"];

const UNFINISHED: &[&str] = &["todo", "unimplemented", "dbg"];

/// Paths that may contain `unsafe`: CPU kernels, exchange with C, device drivers, foreign libraries, and programs that
/// count allocations (the standard library's allocator trait is unsafe to implement).
const MAY_BE_UNSAFE: &[&str] = &[
    "crates/cpu/",
    "crates/dlpack/",
    "crates/gpu/",
    "crates/cuda/",
    "crates/rocm/",
    "crates/store/tests/npz_memory.rs",
    "crates/wgpu/",
    "crates/torch/",
    "crates/suite/src/bin/",
    "crates/suite/tests/",
];

const SHORTEST_TOUR: usize = 5;

/// Checks that long files give the reason at their top.
pub(super) fn length(tree: &Tree) -> Vec<Finding> {
    let sources =
        tree.texts().filter(|(file, _)| SOURCE_ENDINGS.iter().any(|ending| file.path.ends_with(ending)));
    let too_long = sources.filter_map(|(file, text)| {
        let lines = text.lines().count();
        let explained = text.lines().take(10).any(|line| line.contains("over 700 lines:"));
        let remedy = "split it, or give the reason in its first 10 lines as `over 700 lines: …`";
        (lines > LONGEST && !explained)
            .then(|| file.finding(1, format!("the file has {lines} lines"), remedy))
    });
    too_long.collect()
}

/// Checks that module names describe their contents.
pub(super) fn module_names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let remedy = "name the module after what it holds";
    for (file, code) in tree.rust() {
        let parts = file.path.trim_end_matches(".rs").split('/');
        if let Some(name) = parts.into_iter().find(|part| EMPTY_NAMES.contains(part)) {
            findings.push(file.finding(1, format!("a module is called `{name}`"), remedy));
        }
        for offset in words(code, "mod") {
            let name =
                code[offset + 3..].trim_start().split(|c: char| !c.is_alphanumeric() && c != '_').next();
            if let Some(name) = name.filter(|name| EMPTY_NAMES.contains(name)) {
                findings.push(file.finding(
                    line_of(code, offset),
                    format!("a module is called `{name}`"),
                    remedy,
                ));
            }
        }
    }
    findings
}

/// Checks that no placeholder or debugging macro is left.
pub(super) fn unfinished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, code) in tree.rust() {
        for name in UNFINISHED {
            for offset in words(code, name).filter(|offset| code[offset + name.len()..].starts_with('!')) {
                let remedy = match *name {
                    "dbg" => "remove it",
                    _ => "finish it, or return an error that says what is not supported",
                };
                findings.push(file.finding(
                    line_of(code, offset),
                    format!("`{name}!` is left in the code"),
                    remedy,
                ));
            }
        }
    }
    findings
}

/// Checks that only allowed paths contain `unsafe`.
pub(super) fn unsafe_code(tree: &Tree) -> Vec<Finding> {
    let safe = tree.rust().filter(|(file, _)| !may_be_unsafe(&file.path));
    let report = |(file, code): (&File, &str)| {
        let remedy =
            "only CPU kernels and device drivers may use it: find a safe form or move the code there";
        let found = words(code, "unsafe")
            .map(|offset| file.finding(line_of(code, offset), "`unsafe` in a safe crate", remedy));
        found.collect::<Vec<_>>()
    };
    safe.flat_map(report).collect()
}

/// Checks that crate roots forbid unsafe code, unless allowed, and that libraries start with a tour.
pub(super) fn crate_roots(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.workspace.packages {
        let roots = package
            .targets
            .iter()
            .filter(|target| ["lib", "proc-macro", "bin"].contains(&target.kind.as_str()));
        for file in roots.filter_map(|target| tree.file(&target.source)) {
            let code = file.code.as_deref().unwrap_or_default();
            if !may_be_unsafe(&file.path) && !code.contains("#![forbid(unsafe_code)]") {
                findings.push(file.finding(
                    1,
                    "the crate root lets unsafe code in",
                    "add #![forbid(unsafe_code)]",
                ));
            }
        }
        let library = package.library().filter(|_| package.folder.starts_with("crates/"));
        if let Some(file) = library.and_then(|target| tree.file(&target.source)) {
            let text = file.text.as_deref().unwrap_or_default();
            let tour = text.lines().take_while(|line| line.starts_with("//!")).count();
            if tour < SHORTEST_TOUR {
                let problem = format!("the crate's documentation has {tour} lines at the top of the file");
                findings.push(file.finding(1, problem, "open with a short tour in //! lines, at least 5"));
            }
        }
    }
    findings
}

/// Checks that ignored tests have a reason, which `cargo xtask test` prints.
pub(super) fn ignored_tests(tree: &Tree) -> Vec<Finding> {
    let report = |(file, code): (&File, &str)| {
        let bare = code.match_indices("#[ignore]").map(|(offset, _)| {
            file.finding(
                line_of(code, offset),
                "a test is ignored without a reason",
                "write #[ignore = \"reason\"]",
            )
        });
        bare.collect::<Vec<_>>()
    };
    tree.rust().flat_map(report).collect()
}

/// Checks that every file of a package's `tests` is a test program, or a module of one.
pub(super) fn orphaned_tests(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.workspace.packages {
        let folder = format!("{}/tests/", package.folder);
        let programs: Vec<&File> =
            package.targets.iter().filter_map(|target| tree.file(&target.source)).collect();
        let modules: Vec<&str> = programs.iter().filter_map(|file| file.code.as_deref()).collect();
        let is_module = |name: &str| {
            let declaration = format!("mod {name};");
            modules.iter().any(|code| code.lines().any(|line| line.trim() == declaration))
        };
        for (file, _) in tree.rust() {
            let name = file.path.strip_prefix(&folder).and_then(|path| path.strip_suffix(".rs"));
            let is_program = programs.iter().any(|program| program.path == file.path);
            if name.is_some_and(|name| !name.contains('/') && !is_program && !is_module(name)) {
                let remedy = "declare it as a module in tests/main.rs";
                findings.push(file.finding(1, "no test program contains this file", remedy));
            }
        }
    }
    findings
}

/// Checks that the exhaustiveness lint is disabled only with a reason.
pub(super) fn silenced_lint(tree: &Tree) -> Vec<Finding> {
    let report = |(file, code): (&File, &str)| {
        let lint = words(code, "wildcard_enum_match_arm");
        let unexplained = lint.filter(|&offset| {
            let rest = code[offset..].split(']').next().unwrap_or_default();
            words(rest, "reason").next().is_none()
        });
        let findings = unexplained.map(|offset| {
            let problem = "the lint against wildcard arms is switched off";
            file.finding(line_of(code, offset), problem, "name the variants, or add `reason = \"…\"`")
        });
        findings.collect::<Vec<_>>()
    };
    tree.rust().flat_map(report).collect()
}

fn may_be_unsafe(path: &str) -> bool {
    MAY_BE_UNSAFE.iter().any(|start| path.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{package, places, tree};
    use super::*;
    use crate::workspace::Target;

    #[test]
    fn long_files_need_a_reason() {
        let long = "x();\n".repeat(LONGEST + 1);
        let explained = format!("// over 700 lines: one table\n{long}");
        let edge = "x();\n".repeat(LONGEST);
        let files = [("a.rs", long.as_str()), ("b.rs", &explained), ("c.rs", &edge), ("d.csv", &long)];
        assert_eq!(places(&length(&tree(&files))), ["a.rs:1"]);
    }

    #[test]
    fn meaningless_module_names_are_found_in_paths_and_in_code() {
        let files = [
            ("crates/ir/src/utils.rs", ""),
            ("crates/ir/tests/common/mod.rs", ""),
            ("crates/ir/src/lib.rs", "mod shape;\npub mod helpers {}\n"),
            ("crates/ir/src/base_types.rs", ""),
        ];
        let expected =
            ["crates/ir/src/utils.rs:1", "crates/ir/tests/common/mod.rs:1", "crates/ir/src/lib.rs:2"];
        assert_eq!(places(&module_names(&tree(&files))), expected);
    }

    #[test]
    fn test_files_outside_all_programs_are_found() {
        let files = [
            ("crates/ir/tests/main.rs", "mod infer;\n"),
            ("crates/ir/tests/infer.rs", ""),
            ("crates/ir/tests/lost.rs", ""),
            ("crates/ir/tests/alone.rs", ""),
            ("crates/ir/tests/infer/part.rs", ""),
        ];
        let mut tree = tree(&files);
        let program = |name: &str| Target {
            name: name.to_owned(),
            kind: "test".to_owned(),
            source: format!("crates/ir/tests/{name}.rs"),
        };
        let mut ir = package("kiln-ir", "crates/ir", &[]);
        ir.targets.extend(["main", "alone"].map(program));
        tree.workspace.packages = vec![ir];
        assert_eq!(places(&orphaned_tests(&tree)), ["crates/ir/tests/lost.rs:1"]);
    }

    #[test]
    fn placeholders_are_found_outside_comments_only() {
        let source = "// todo!()\nlet s = \"dbg!(x)\";\ndbg!(x);\nunimplemented!();\nfn todo() {}\n";
        let mut found = places(&unfinished(&tree(&[("a.rs", source)])));
        found.sort();
        assert_eq!(found, ["a.rs:3", "a.rs:4"]);
    }

    #[test]
    fn unsafe_code_is_reported_outside_allowed_crates() {
        let source = "#![forbid(unsafe_code)]\n// unsafe\nfn f() { unsafe { g() } }\n";
        let files = [("crates/nn/src/lib.rs", source), ("crates/cpu/src/simd.rs", source)];
        assert_eq!(places(&unsafe_code(&tree(&files))), ["crates/nn/src/lib.rs:3"]);
    }

    #[test]
    fn roots_forbid_unsafe_code_and_open_with_a_tour() {
        let tour = "//! a\n//! b\n//!\n//! c\n//! d\n";
        let check = |source: &str| {
            let mut tree = tree(&[("crates/ir/src/lib.rs", source)]);
            tree.workspace.packages = vec![package("kiln-ir", "crates/ir", &[])];
            crate_roots(&tree).len()
        };
        assert_eq!(check(&format!("{tour}#![forbid(unsafe_code)]\n")), 0);
        assert_eq!(check(&format!("{tour}// #![forbid(unsafe_code)]\n")), 1);
        assert_eq!(check("//! short\n#![forbid(unsafe_code)]\n"), 1);
    }

    #[test]
    fn ignored_tests_and_silenced_lints_need_reasons() {
        let source = "#[ignore]\n#[ignore = \"slow\"]\n#[allow(clippy::wildcard_enum_match_arm)]\n#[allow(clippy::wildcard_enum_match_arm, reason = \"foreign enum\")]\n";
        let tree = tree(&[("a.rs", source)]);
        assert_eq!(places(&ignored_tests(&tree)), ["a.rs:1"]);
        assert_eq!(places(&silenced_lint(&tree)), ["a.rs:3"]);
    }
}
