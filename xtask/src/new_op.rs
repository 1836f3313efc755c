//! `cargo xtask new-op`: writes the table row of a new op, and lists the files that its author changes.
//!
//! The compiler lists the same files in its errors once the row exists, except those of functions that users call, of
//! tests, and of rules beside the match that calls them. `--check` adds ops to a copy of the tree and compares.

mod check;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::args::{Accepts, Args};
use crate::process::at;
use crate::workspace::Workspace;

const ACCEPTS: Accepts =
    Accepts { flags: &["--dry-run", "--unary", "--composite", "--check"], options: &[], words: true };

/// A kind of new op.
struct Form {
    /// The texts of the row. `{Name}` is the variant, `{name}` the name in text.
    row: &'static [Insertion],
    /// The files that an author changes, with their contents, in the order of work.
    files: &'static [(&'static str, &'static str)],
    /// The greatest number of files.
    most: usize,
}

/// A text that goes before the first line that starts with another one, after a line that does.
struct Insertion {
    file: &'static str,
    after: &'static str,
    before: &'static str,
    text: &'static str,
}

/// A function of one float.
const UNARY: Form = Form {
    row: &[Insertion {
        file: "crates/ir/src/op/functions.rs",
        after: "    Unary {",
        before: "    }",
        text: "        /// fill in: the formula of {name}.\n        {Name} \"{name}\" Float RULE A NO Elementary [12, 60], FULL;\n",
    }],
    files: &[
        ("crates/ir/src/op/functions.rs", "its row: dtypes, gradient, saved values, costs"),
        ("crates/ir/src/number.rs", "its value in f64"),
        ("crates/ir/src/vjp/elementwise.rs", "its derivative"),
        ("crates/kernel/src/print/functions.rs", "its text in C++ and WGSL"),
        ("crates/cpu/src/functions.rs", "its loop: `scalar`, or `vector` with functions in `math`"),
        ("crates/candle/src/elementwise.rs", "candle's function, or none"),
        ("crates/torch/src/elementwise.rs", "LibTorch's function, or none"),
        ("crates/tensor/src/tensor/elementwise.rs", "the methods, with documentation and an example"),
        ("crates/suite/src/methods/elementwise.rs", "the test of the method"),
    ],
    most: 9,
};

/// An op that others can express, of one float tensor along an axis.
const COMPOSITE: Form = Form {
    row: &[
        Insertion {
            file: "crates/ir/src/op/table.rs",
            after: "ops! {",
            before: "    Collective ",
            text: "    {Name} \"{name}\" Composite ONE, NEEDS_AXIS | EXPANDS =>\n        RULE AY NO KEEP X4 All FULL Alone Independent;\n",
        },
        Insertion {
            file: "crates/ir/src/op.rs",
            after: "pub enum Op {",
            before: "    // Extensions.",
            text: "    /// `(x) -> y`: fill in the formula of {name}.\n    {Name} {\n        /// The axis.\n        axis: usize,\n    },\n\n",
        },
    ],
    files: &[
        ("crates/ir/src/op.rs", "the variant: its attributes and formula"),
        ("crates/ir/src/op/table.rs", "its row: operands, gradient, saved values, costs, precision, role"),
        ("crates/ir/src/infer.rs", "the call of its inference rule"),
        ("crates/ir/src/infer/composite.rs", "the types of its results"),
        ("crates/ir/src/expand.rs", "the call of its expansion"),
        ("crates/ir/src/expand/composite.rs", "the op in simpler ones"),
        ("crates/ir/src/vjp.rs", "the call of its gradient rule"),
        ("crates/ir/src/vjp/composite.rs", "its gradient"),
        ("crates/vmap/src/rules.rs", "its batching rule"),
        ("crates/reference/src/engine.rs", "the call of its definition"),
        ("crates/reference/src/normal.rs", "its definition, in f64"),
        ("crates/tensor/src/any/reduce/logsum.rs", "the method of `AnyTensor`"),
        ("crates/tensor/src/tensor/reduce.rs", "the method of `Tensor`, with documentation and an example"),
        ("crates/suite/src/cases/composite.rs", "the cases that every engine must pass"),
        ("crates/suite/src/methods/reduce.rs", "the test of the method"),
    ],
    most: 15,
};

/// `cargo xtask new-op`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let workspace = Workspace::load()?;
    if args.has("--check") {
        return check::run(&workspace).map(|()| ExitCode::SUCCESS);
    }
    let [name] = args.words.as_slice() else {
        return Err("new-op takes one name, such as `log_sum_exp`".into());
    };
    if !is_name(name) {
        return Err(format!("`{name}` is not in snake case: letters a to z, digits, single underscores"));
    }
    let form = match (args.has("--unary"), args.has("--composite")) {
        (_, false) => UNARY,
        (false, true) => COMPOSITE,
        (true, true) => return Err("say --unary or --composite, not both".into()),
    };
    for insertion in form.row {
        let line = insertion.write(&workspace.root, name, args.has("--dry-run"))?;
        println!("{}:{line}", insertion.file);
        filled(insertion.text, name).lines().for_each(|text| println!("    {text}"));
    }
    println!("then, until `cargo check --workspace --all-targets` and the suite pass:");
    form.files.iter().for_each(|(file, what)| println!("{file}: {what}"));
    println!("at last `cargo xtask ops`, and a line in CHANGELOG.md");
    println!("{} files", form.files.len());
    Ok(ExitCode::SUCCESS)
}

impl Insertion {
    /// Inserts the text, unless `dry`, and returns the number of its first line.
    fn write(&self, root: &Path, name: &str, dry: bool) -> Result<usize, String> {
        let path = root.join(self.file);
        let source = fs::read_to_string(&path).map_err(at(&path))?;
        let lines = || source.split_inclusive('\n');
        let start = lines().position(|line| line.starts_with(self.after));
        let count = start.and_then(|start| {
            lines().skip(start + 1).position(|line| line.starts_with(self.before)).map(|n| start + 1 + n)
        });
        let count = count.ok_or_else(|| {
            format!("{}: no `{}` after `{}`", self.file, self.before.trim(), self.after.trim())
        })?;
        if !dry {
            let offset: usize = lines().take(count).map(str::len).sum();
            let text = [&source[..offset], &filled(self.text, name), &source[offset..]].concat();
            fs::write(&path, text).map_err(at(&path))?;
        }
        Ok(count + 1)
    }
}

fn filled(text: &str, name: &str) -> String {
    text.replace("{name}", name).replace("{Name}", &camel(name))
}

fn camel(name: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').map(capital).collect()
}

fn is_name(name: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    name.starts_with(|first: char| first.is_ascii_lowercase()) && name.split('_').all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_their_places_in_the_tree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        for form in [UNARY, COMPOSITE] {
            for insertion in form.row {
                assert_eq!(insertion.write(root, "dummy", true).err(), None);
            }
            assert!(form.files.iter().all(|(file, _)| root.join(file).exists()));
        }
    }

    #[test]
    fn a_new_op_touches_few_files() {
        for form in [UNARY, COMPOSITE] {
            assert!(form.files.len() <= form.most, "{}", form.files.len());
        }
    }

    #[test]
    fn names_are_written_in_both_cases() {
        assert_eq!(filled("{Name} {name}", "log_sum_exp"), "LogSumExp log_sum_exp");
        assert!(is_name("erfcx") && is_name("log_sum_exp"));
        assert!(!is_name("Erfcx") && !is_name("log__sum") && !is_name("2d") && !is_name(""));
    }
}
