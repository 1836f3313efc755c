//! `cargo xtask features`: the README's table of Cargo features, from the façade's manifest.

use std::fs;
use std::process::ExitCode;

use crate::args::{Accepts, Args};
use crate::process::at;
use crate::workspace::Workspace;

const ACCEPTS: Accepts = Accepts { flags: &["--check"], options: &[], words: false };

/// The page with the table.
pub(crate) const PAGE: &str = "README.md";

/// The manifest whose features the table lists.
pub(crate) const MANIFEST: &str = "crates/kiln/Cargo.toml";

/// The lines around the table.
const BEGIN: &str = "<!-- features: written by `cargo xtask features` -->";
const END: &str = "<!-- end of features -->";

/// One feature of a manifest.
#[derive(Debug, PartialEq)]
struct Feature<'a> {
    name: &'a str,
    /// The comment above it, on one line.
    about: String,
    /// Features and dependencies that it enables.
    enables: Vec<&'a str>,
}

/// `cargo xtask features`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let root = Workspace::load()?.root;
    let read = |path: &str| fs::read_to_string(root.join(path)).map_err(at(path.as_ref()));
    let (page, manifest) = (read(PAGE)?, read(MANIFEST)?);
    let current = with_table(&page, &manifest)?;
    if !args.has("--check") {
        fs::write(root.join(PAGE), current).map_err(at(PAGE.as_ref()))?;
    } else if page != current {
        return Err(format!("{PAGE} is not current\n  hint: run `cargo xtask features`"));
    }
    Ok(ExitCode::SUCCESS)
}

/// The page with the table of the manifest's features between its two marks.
pub(crate) fn with_table(page: &str, manifest: &str) -> Result<String, String> {
    let unmarked = || format!("{PAGE} does not contain `{BEGIN}` and `{END}`");
    let (before, rest) = page.split_once(BEGIN).ok_or_else(unmarked)?;
    let (_, after) = rest.split_once(END).ok_or_else(unmarked)?;
    Ok(format!("{before}{BEGIN}\n\n{}\n{END}{after}", table(&features(manifest))?))
}

fn table(features: &[Feature]) -> Result<String, String> {
    let default = features.iter().find(|feature| feature.name == "default");
    let is_default = |name| default.is_some_and(|default| default.enables.contains(&name));
    let mut text = "| feature | default | adds |\n|---|---|---|\n".to_owned();
    for feature in features.iter().filter(|feature| feature.name != "default") {
        if feature.about.is_empty() {
            return Err(format!("{MANIFEST}: the feature `{}` has no comment", feature.name));
        }
        let default = if is_default(feature.name) { "yes" } else { "no" };
        text += &format!("| `{}` | {default} | {} |\n", feature.name, feature.about);
    }
    Ok(text)
}

/// The features of a manifest, each on one line, in order.
fn features(manifest: &str) -> Vec<Feature<'_>> {
    let mut features = Vec::new();
    let mut about = String::new();
    let lines = manifest.lines().map(str::trim).skip_while(|line| *line != "[features]").skip(1);
    for line in lines.take_while(|line| !line.starts_with('[')) {
        if let Some(comment) = line.strip_prefix('#') {
            let space = if about.is_empty() { "" } else { " " };
            about = format!("{about}{space}{}", comment.trim());
        } else if let Some((name, list)) = line.split_once('=') {
            let enables = list.split('"').skip(1).step_by(2).collect();
            features.push(Feature { name: name.trim(), about: std::mem::take(&mut about), enables });
        } else {
            about.clear();
        }
    }
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST_TEXT: &str = "[package]\nname = \"kiln\"\n# no feature\n\n[features]\ndefault = [\"std\", \"train\"]\n\
        # Files,\n# clocks.\nstd = [\"dep:half\"]\n# Training.\ntrain = []\n# GPUs.\ncuda = [\"std\"]\n\n[dependencies]\nhalf = \"2\"\n";

    #[test]
    fn features_have_their_comments() {
        let found = features(MANIFEST_TEXT);
        let names: Vec<&str> = found.iter().map(|feature| feature.name).collect();
        assert_eq!(names, ["default", "std", "train", "cuda"]);
        assert_eq!(found[0].enables, ["std", "train"]);
        assert_eq!(
            found[1],
            Feature { name: "std", about: "Files, clocks.".to_owned(), enables: vec!["dep:half"] }
        );
    }

    #[test]
    fn the_table_is_replaced_between_its_marks() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let current = with_table(&page, MANIFEST_TEXT).unwrap();
        let table = "| feature | default | adds |\n|---|---|---|\n| `std` | yes | Files, clocks. |\n\
            | `train` | yes | Training. |\n| `cuda` | no | GPUs. |\n";
        assert_eq!(current, format!("before\n{BEGIN}\n\n{table}\n{END}\nafter\n"));
        assert_eq!(with_table(&current, MANIFEST_TEXT).unwrap(), current);
        assert!(with_table("no marks", MANIFEST_TEXT).unwrap_err().contains("does not contain"));
    }

    #[test]
    fn a_feature_without_a_comment_is_an_error() {
        let page = format!("{BEGIN}\n{END}");
        let error = with_table(&page, &MANIFEST_TEXT.replace("# GPUs.\n", "")).unwrap_err();
        assert!(error.contains("`cuda` has no comment"), "{error}");
    }
}
