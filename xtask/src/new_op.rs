//! `cargo xtask new-op`: the places that a new op touches, as a list or written into the tree.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::args::{Accepts, Args};
use crate::workspace::Workspace;

const ACCEPTS: Accepts =
    Accepts { flags: &["--dry-run", "--unary", "--composite"], options: &[], words: true };

/// An insertion point in the tree, and the inserted text. `{Name}` is the variant, `{name}` the name in text.
struct Insertion {
    file: &'static str,
    /// Text that occurs once in the file. The new text is inserted before it.
    before: &'static str,
    text: &'static str,
}

/// The insertions of a unary float function.
const UNARY: &[Insertion] = &[
    Insertion {
        file: "crates/ir/src/op/functions.rs",
        before: "        /// Rounds down to an integer (floor).\n",
        text: "        /// fill in: the formula of {name}.\n        {Name} \"{name}\" Float RULE A NO Elementary [12, 60], FULL;\n",
    },
    Insertion {
        file: "crates/ir/src/number.rs",
        before: "            Unary::Floor => libm::floor(self),\n",
        text: "            Unary::{Name} => compile_error!(\"the value of {name}\"),\n",
    },
    Insertion {
        file: "crates/ir/src/number.rs",
        before: "            | Unary::Floor\n",
        text: "            | Unary::{Name}\n",
    },
    Insertion {
        file: "crates/ir/src/vjp/elementwise.rs",
        before: "            Unary::Sign | Unary::Floor | Unary::Ceil",
        text: "            Unary::{Name} => compile_error!(\"the derivative of {name}; its row says what it reads\"),\n",
    },
    Insertion {
        file: "crates/kernel/src/print/functions.rs",
        before: "    plain(Unary::Floor,",
        text: "    Function {\n        function: Unary::{Name},\n        cpp: Call(compile_error!(\"the name of {name} in C++\")),\n        narrow: None,\n        wgsl: Call(compile_error!(\"the name of {name} in WGSL\")),\n        definition: \"\",\n    },\n",
    },
    Insertion {
        file: "crates/cpu/src/functions.rs",
        before: "    Exp exp vector |x|",
        text: "    {Name} {name} vector |x| compile_error!(\"the value of {name} of f64\");\n",
    },
    Insertion {
        file: "crates/cpu/src/math.rs",
        before: "#[inline(always)]\npub(crate) fn tanh(",
        text: "#[inline(always)]\npub(crate) fn {name}(x: f32) -> f32 {\n    compile_error!(\"the value of {name} of f32\")\n}\n\n",
    },
    Insertion {
        file: "crates/cpu/src/math/single.rs",
        before: "#[inline(always)]\npub(crate) fn tanh<",
        text: "#[inline(always)]\npub(crate) fn {name}<V: Single>(x: V) -> V {\n    compile_error!(\"the value of {name} in vectors of f32; or `scalar` in its row of `functions.rs`\")\n}\n\n",
    },
    Insertion {
        file: "crates/tensor/src/any/elementwise.rs",
        before: "    floor Floor;\n",
        text: "    {name} {Name};\n",
    },
    Insertion {
        file: "crates/tensor/src/tensor/elementwise.rs",
        before: "    /// Rounds down to an integer (floor).\n",
        text: "    /// fill in: the formula of {name}.\n    {name} \"[`torch.special.{name}`](https://docs.pytorch.org/docs/stable/special.html#torch.special.{name})\"\n        \"[0.0, 1.0]\" \"[fill in]\";\n",
    },
];

/// The insertions of a composite of one float tensor along an axis.
const COMPOSITE: &[Insertion] = &[
    Insertion {
        file: "crates/ir/src/op.rs",
        before: "    /// `(x)`, `(x, weight)` or `(x, weight, bias) -> y`: normalises",
        text: "    /// `(x) -> y`: fill in the formula of {name}.\n    {Name} {\n        /// The axis.\n        axis: usize,\n    },\n",
    },
    Insertion {
        file: "crates/ir/src/op/table.rs",
        before: "    Norm          \"norm\"",
        text: "    {Name} \"{name}\" Composite ONE, NEEDS_AXIS =>\n        RULE gradient_of_{name}_reads NO KEEP flops_of_{name} All FULL Alone Independent;\n",
    },
    Insertion {
        file: "crates/ir/src/infer.rs",
        before: "        Op::Norm { axes, .. } => rule.norm(",
        text: "        Op::{Name} { axis } => rule.{name}(*axis),\n",
    },
    Insertion {
        file: "crates/ir/src/infer/composite.rs",
        before: "    pub(super) fn norm(",
        text: "    pub(super) fn {name}(&self, axis: usize) -> Result<ResultTypes> {\n        compile_error!(\"the type of the result of {name}\")\n    }\n\n",
    },
    Insertion {
        file: "crates/ir/src/expand.rs",
        before: "        Op::Norm { kind, axes, epsilon } => one(",
        text: "        Op::{Name} { axis } => one(composite::{name}(&inputs[0], *axis)),\n",
    },
    Insertion {
        file: "crates/ir/src/expand/composite.rs",
        before: "pub(super) fn norm<",
        text: "pub(super) fn {name}<'e>(x: &Var<'e>, axis: usize) -> Var<'e> {\n    compile_error!(\"{name} in simpler ops\")\n}\n\n",
    },
    Insertion {
        file: "crates/ir/src/vjp.rs",
        before: "            Op::Norm { kind, axes, epsilon } => self.norm(",
        text: "            Op::{Name} { axis } => self.{name}(*axis),\n",
    },
    Insertion {
        file: "crates/ir/src/vjp/composite.rs",
        before: "    /// With `c` the row less its mean,",
        text: "    pub(super) fn {name}(&self, axis: usize) -> Gradients<'e> {\n        compile_error!(\"the gradient of {name}\")\n    }\n\n",
    },
    Insertion {
        file: "crates/ir/src/op/names.rs",
        before: "            | Op::LogSumExp { .. }\n",
        text: "            | Op::{Name} { .. }\n",
    },
    Insertion {
        file: "crates/ir/src/cost.rs",
        before: "        | Op::LogSumExp { .. }\n",
        text: "        | Op::{Name} { .. }\n",
    },
    Insertion {
        file: "crates/ir/src/vjp/saved.rs",
        before: "        | Op::LogSumExp { .. }\n",
        text: "        | Op::{Name} { .. }\n",
    },
    Insertion {
        file: "crates/autodiff/src/forward/rule.rs",
        before: "        | Op::LogSumExp { .. }\n",
        text: "        | Op::{Name} { .. }\n",
    },
    Insertion {
        file: "crates/autocast/src/policy.rs",
        before: "        | Op::LogSumExp { .. }\n",
        text: "        | Op::{Name} { .. }\n",
    },
    Insertion {
        file: "crates/ir/src/vjp.rs",
        before: "        | Op::LogSumExp { .. }\n",
        text: "        | Op::{Name} { .. }\n",
    },
    Insertion {
        file: "crates/vmap/src/rules.rs",
        before: "        | Op::Norm { .. }\n        | Op::Attention(_)\n",
        text: "        | Op::{Name} { .. }\n",
    },
    Insertion {
        file: "crates/vmap/src/rules.rs",
        before: "        Op::Norm { kind, axes, epsilon } => one(",
        text: "        Op::{Name} { axis } => call.run(&Op::{Name} { axis: axis + 1 }),\n",
    },
    Insertion {
        file: "crates/reference/src/engine.rs",
        before: "            Op::Norm { kind, axes, epsilon } => normal::norm(",
        text: "            Op::{Name} { axis } => normal::{name}(x()?, *axis, call.ty()),\n",
    },
    Insertion {
        file: "crates/reference/src/normal.rs",
        before: "pub(crate) fn norm(",
        text: "pub(crate) fn {name}(x: &TensorData, axis: usize, ty: TensorType) -> Result<TensorData> {\n    compile_error!(\"the definition of {name}, in f64\")\n}\n\n",
    },
    Insertion {
        file: "crates/cpu/src/engine.rs",
        before: "    // A layer that fuses decodes 8-bit floats",
        text: "    OpKind::{Name},\n",
    },
    Insertion {
        file: "crates/cpu/src/engine.rs",
        before: "            Op::LogSumExp { .. }\n            | Op::MatMulFloat8 { .. }\n",
        text: "            Op::{Name} { .. } => Err(self.caps.left_out(op)),\n",
    },
    Insertion {
        file: "crates/kernel/src/nest/push.rs",
        before: "            | Op::Pool(_)\n            | Op::PoolGrad { .. }\n",
        text: "            | Op::{Name} { .. }\n",
    },
    Insertion {
        file: "crates/gpu/src/engine.rs",
        before: "    // Connections between devices are not the engine's.",
        text: "    OpKind::{Name},\n",
    },
    Insertion {
        file: "crates/gpu/src/engine.rs",
        before: "            Op::LogSumExp { .. }\n            | Op::MatMulBlocks { .. }\n",
        text: "            Op::{Name} { .. } => Err(self.caps.left_out(op)),\n",
    },
    Insertion {
        file: "crates/tensor/src/any/reduce/logsum.rs",
        before: "    /// Computes the logarithm of the sum of exponentials along axes.",
        text: "    /// See [`Tensor::{name}`](crate::Tensor::{name}).\n    pub fn {name}(self, axis: impl Into<Axis>) -> Result<AnyTensor> {\n        let axis = axis.into().of(\"{name}\", self.ty())?;\n        self.apply(&kiln_ir::Op::{Name} { axis })\n    }\n\n",
    },
    Insertion {
        file: "crates/tensor/src/tensor/reduce.rs",
        before: "    /// Computes `ln(Σ eˣ)` along axes, which are kept with length 1.",
        text: "    /// fill in: the formula of {name}, and an example.\n    pub fn {name}(self, axis: impl Into<Axis>) -> Self;\n\n",
    },
];

/// Tests and generated files that also change, not counted.
const BESIDE: &str = "\
beside these: a case in crates/suite/src/cases, a row in crates/suite/src/methods and its surface.rs; of a composite a
generator in fuzz/src/generate and a tolerance in fuzz/src/tolerance.rs; then `cargo xtask ops`, and a line in CHANGELOG.md";

/// `cargo xtask new-op`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let [name] = args.words.as_slice() else {
        return Err("new-op takes one name, such as `log_sum_exp`".into());
    };
    if !is_name(name) {
        return Err(format!("`{name}` is not in snake case: letters a to z, digits, single underscores"));
    }
    let places = match (args.has("--unary"), args.has("--composite")) {
        (_, false) => UNARY,
        (false, true) => COMPOSITE,
        (true, true) => return Err("say --unary or --composite, not both".into()),
    };
    let root = Workspace::load()?.root;
    let found: Vec<(&Insertion, usize)> =
        places.iter().map(|place| Ok((place, line(&root, place)?))).collect::<Result<_, String>>()?;
    for (place, line) in found {
        println!("{}:{line}", place.file);
        filled(place.text, name).lines().for_each(|text| println!("    {text}"));
        if !args.has("--dry-run") {
            write(&root, place, name)?;
        }
    }
    println!("{BESIDE}");
    println!("{} files", files(places));
    Ok(ExitCode::SUCCESS)
}

/// The line before which a text is inserted.
fn line(root: &Path, place: &Insertion) -> Result<usize, String> {
    let source = read(root, place)?;
    match source.matches(place.before).count() {
        1 => Ok(source.split(place.before).next().unwrap_or_default().lines().count() + 1),
        count => {
            Err(format!("{}: the anchor `{}` occurs {count} times", place.file, place.before.trim_end()))
        }
    }
}

fn write(root: &Path, place: &Insertion, name: &str) -> Result<(), String> {
    let source = read(root, place)?;
    let text = format!("{}{}", filled(place.text, name), place.before);
    let path = root.join(place.file);
    fs::write(path, source.replacen(place.before, &text, 1))
        .map_err(|error| format!("{}: {error}", place.file))
}

fn read(root: &Path, place: &Insertion) -> Result<String, String> {
    fs::read_to_string(root.join(place.file)).map_err(|error| format!("{}: {error}", place.file))
}

/// The number of changed files.
fn files(places: &[Insertion]) -> usize {
    places.iter().map(|place| place.file).collect::<BTreeSet<_>>().len()
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
    fn each_anchor_occurs_once_in_the_tree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        for place in UNARY.iter().chain(COMPOSITE) {
            assert_eq!(line(root, place).err(), None);
        }
    }

    #[test]
    fn a_new_op_touches_few_files() {
        assert!(files(UNARY) <= 10, "{}", files(UNARY));
        assert!(files(COMPOSITE) <= 25, "{}", files(COMPOSITE));
    }

    #[test]
    fn names_are_written_in_both_cases() {
        assert_eq!(filled("{Name} {name}", "log_sum_exp"), "LogSumExp log_sum_exp");
        assert!(is_name("erfcx") && is_name("log_sum_exp"));
        assert!(!is_name("Erfcx") && !is_name("log__sum") && !is_name("2d") && !is_name(""));
    }
}
