//! Mistakes of users are compile errors at the right place.
//!
//! Each program in `compile_fail` must fail to compile, with the compiler's output in the file beside it. After a message
//! was changed on purpose, `UPDATE_EXPECT=1 cargo test -p kiln --test kiln compile_fail` writes the files again; read the
//! difference before it is committed. A program that marks lines with `// ERROR` has one error at each of them and no
//! other. The first line `//! codegen` is that of a program whose error appears when its code is generated.
//!
//! The compiler runs directly, on the library that this test was built with. A build of its own by Cargo would compile
//! Kiln and all its dependencies again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;
use std::{env, fs};

/// The folder of this package.
const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");
/// The same, relative to the workspace.
const PACKAGE_IN_WORKSPACE: &str = "crates/kiln";
/// The folder for the compiler's output.
const OUTPUT: &str = env!("CARGO_TARGET_TMPDIR");
/// The folder of the programs, relative to the package.
const PROGRAMS: &str = "tests/compile_fail";
/// Stands for the workspace's folder in the expected output.
const WORKSPACE: &str = "$WORKSPACE";
/// Minimum number of programs, so that none is lost unnoticed.
const MIN_PROGRAMS: usize = 7;
/// Marks a line with an error.
const MARK: &str = "// ERROR";
/// A program that compiles with each library that the others can be tested with.
const VALID: &str = "use kiln::{Autodiff, Flex, Tensor, nn::{Config, Linear, Module}};\n\
    #[derive(Module, Clone, Debug)] struct Net<B: kiln::Backend> { linear: Linear<B> }\n\
    #[derive(Config)] struct Settings { #[config(default = 3)] width: usize }\n\
    fn main() { let _ = Tensor::<Autodiff<Flex>, 2>::ones([2, 2], &Default::default()).sum().backward(); }\n";

#[test]
fn mistakes_are_reported() {
    let compiler = Compiler::find();
    let update = env::var_os("UPDATE_EXPECT").is_some_and(|value| value == "1");
    let programs = programs();
    assert!(programs.len() >= MIN_PROGRAMS, "only {} programs", programs.len());
    let problems: Vec<String> =
        programs.iter().filter_map(|program| compiler.check(program, update).err()).collect();
    assert!(
        problems.is_empty(),
        "{} of {} programs\n{}",
        problems.len(),
        programs.len(),
        problems.join("\n")
    );
}

/// The programs, as paths relative to the package.
fn programs() -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new(PACKAGE).join(PROGRAMS)).expect("the folder of programs is here");
    let names = entries.map(|entry| entry.expect("the folder is readable").file_name());
    let paths = names.map(|name| Path::new(PROGRAMS).join(name));
    let mut programs: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "rs")).collect();
    programs.sort();
    programs
}

/// The Rust compiler with a built library.
struct Compiler {
    /// The folder of all built libraries.
    libraries: PathBuf,
    /// The file of the crate `kiln`.
    kiln: PathBuf,
}

impl Compiler {
    /// The library beside this test's program. Of builds with several sets of features, it is the latest that has what
    /// the programs use.
    fn find() -> Compiler {
        let own = env::current_exe().expect("a test knows its program");
        let libraries = own.parent().expect("a program is in a folder").to_owned();
        let valid = Path::new(OUTPUT).join("valid.rs");
        fs::write(&valid, VALID).expect("the temporary folder is writable");
        let mut compiler = Compiler { libraries, kiln: PathBuf::new() };
        let mut said = String::new();
        for kiln in compiler.candidates() {
            compiler.kiln = kiln;
            let output = compiler.compile(&valid);
            if output.status.success() {
                return compiler;
            }
            said = String::from_utf8_lossy(&output.stderr).into_owned();
        }
        panic!("no library of `kiln` in {} compiles a valid program\n{said}", compiler.libraries.display());
    }

    /// All built libraries of the crate `kiln`, latest first.
    fn candidates(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.libraries).expect("the program's folder is readable");
        let mut found: Vec<(SystemTime, PathBuf)> = entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let name = path.file_name()?.to_str()?;
                let is_library = name.starts_with("libkiln-") && name.ends_with(".rlib");
                is_library.then_some((fs::metadata(&path).ok()?.modified().ok()?, path))
            })
            .collect();
        found.sort_by(|a, b| b.cmp(a));
        found.into_iter().map(|(_, path)| path).collect()
    }

    /// Checks a program as `cargo check` does, or generates its code.
    fn compile(&self, program: &Path) -> Output {
        let emit = match source(program).starts_with("//! codegen") {
            true => "--emit=obj",
            false => "--emit=metadata",
        };
        let joined = |name: &str, path: &Path| {
            let mut argument = OsString::from(name);
            argument.push(path);
            argument
        };
        Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
            .current_dir(workspace())
            .env("CARGO_MANIFEST_DIR", PACKAGE)
            .env("CARGO_PKG_NAME", env!("CARGO_PKG_NAME"))
            .args(["--edition=2024", "--crate-type=bin", emit])
            .args(["--color=never", "--diagnostic-width=140", "--extern"])
            .arg(joined("kiln=", &self.kiln))
            .arg("-L")
            .arg(joined("dependency=", &self.libraries))
            .arg("--out-dir")
            .arg(OUTPUT)
            .arg(Path::new(PACKAGE_IN_WORKSPACE).join(program))
            .output()
            .expect("the Rust compiler runs")
    }

    /// Compares the compiler's output with the expected one.
    fn check(&self, program: &Path, update: bool) -> Result<(), String> {
        let output = self.compile(program);
        if output.status.success() {
            return Err(format!("{} compiles", program.display()));
        }
        let found = portable(&String::from_utf8_lossy(&output.stderr));
        check_marks(program, &found)?;
        let path = Path::new(PACKAGE).join(program).with_extension("stderr");
        if update {
            return fs::write(&path, found).map_err(|error| format!("{}: {error}", path.display()));
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        if are_equal(&expected, &found) {
            return Ok(());
        }
        let program = program.display();
        Err(format!("{program}: UPDATE_EXPECT=1 accepts this.\n-- expected:\n{expected}\n-- found:\n{found}"))
    }
}

/// The text of a program.
fn source(program: &Path) -> String {
    fs::read_to_string(Path::new(PACKAGE).join(program)).expect("the program is readable")
}

/// Checks that the errors are at the marked lines, one at each, if lines are marked.
fn check_marks(program: &Path, found: &str) -> Result<(), String> {
    let source = source(program);
    let lines = source.lines().zip(1..);
    let marked: Vec<usize> =
        lines.filter(|(line, _)| line.contains(MARK)).map(|(_, number)| number).collect();
    let mut lines = found.lines();
    let mut errors = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with("error") {
            let place = lines.next().unwrap_or_default();
            errors.push(place.rsplit(':').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0));
        }
    }
    errors.sort_unstable();
    if marked.is_empty() || errors == marked {
        return Ok(());
    }
    Err(format!("{}: errors at the lines {errors:?} instead of {marked:?}\n{found}", program.display()))
}

/// The folder of the workspace, where Cargo runs the compiler: paths of its sources in libraries are relative to it.
fn workspace() -> &'static Path {
    Path::new(PACKAGE).ancestors().nth(2).expect("the package is in the workspace")
}

/// The compiler's output without what depends on the machine and on other files: the path of the workspace, places in
/// its sources, how many types are not listed, and the last summary.
fn portable(text: &str) -> String {
    const SUMMARIES: [&str; 3] =
        ["error: aborting due to ", "For more information about ", "Some errors have detailed explanations"];
    /// Parts of lines with a place in the compiler's sources, and with a file that it wrote.
    const OF_THE_COMPILER: [&str; 3] = ["library/core/src", "long-type-", "consider using `--verbose`"];
    let text = text.replace(&*workspace().to_string_lossy(), WORKSPACE).replace('\\', "/");
    let text = text.replace(&format!("{PACKAGE_IN_WORKSPACE}/{PROGRAMS}"), PROGRAMS);
    let text = text.replace("::: crates/", &format!("::: {WORKSPACE}/crates/"));
    let text = text.replace("--> crates/", &format!("--> {WORKSPACE}/crates/"));
    let is_portable = |line: &&str| {
        !SUMMARIES.iter().any(|start| line.starts_with(start))
            && !OF_THE_COMPILER.iter().any(|part| line.contains(part))
    };
    let mut elsewhere = false;
    let mut portable = String::new();
    for line in text.lines().filter(is_portable) {
        elsewhere = line.contains(WORKSPACE) || elsewhere && !line.is_empty() && !line.contains("--> ");
        portable += &portable_line(line, elsewhere);
        portable.push('\n');
    }
    portable.trim().to_owned() + "\n"
}

/// One line, of a source elsewhere in the workspace or not.
fn portable_line(line: &str, elsewhere: bool) -> String {
    if let Some((before, path)) = line.split_once(WORKSPACE) {
        // The path is followed by line and column.
        let path = path.split(':').next().unwrap_or_default();
        return format!("{before}{WORKSPACE}{path}");
    }
    let is_number = |text: &str| text.parse::<usize>().is_ok();
    if let Some((number, source)) = line.split_once(" |")
        && elsewhere
        && is_number(number.trim())
    {
        return format!("{} |{source}", " ".repeat(number.len()));
    }
    let others = line.trim_start().strip_prefix("and ").and_then(|rest| rest.strip_suffix(" others"));
    match others.filter(|number| is_number(number)) {
        Some(number) => line.replacen(number, "$N", 1),
        None => line.to_owned(),
    }
}

/// Whether two outputs are equal except for the width of line numbers.
fn are_equal(a: &str, b: &str) -> bool {
    a.lines().map(str::trim).eq(b.lines().map(str::trim))
}
