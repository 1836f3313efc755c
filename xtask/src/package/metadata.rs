//! Crate metadata that a registry and docs.rs show: manifest fields, licences, the README.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::workspace::{Package, Workspace};

/// Fields that each published manifest has, as `cargo metadata` names them.
const FIELDS: &[&str] = &["description", "license", "readme", "keywords", "categories", "rust_version"];

/// Lists of the manifest, for which the registry accepts at most five entries.
const SHORT_LISTS: &[&str] = &["keywords", "categories"];

/// The licence files of each package.
pub(super) const LICENSES: &[&str] = &["LICENSE-MIT", "LICENSE-APACHE"];

/// Missing fields, licences, READMEs and docs.rs settings.
pub(super) fn problems(workspace: &Workspace, packages: &[&Package]) -> Vec<String> {
    packages
        .iter()
        .flat_map(|package| {
            let mut found = manifest_problems(&package.manifest, package.library().is_some());
            found.extend(file_problems(&workspace.root, package));
            found.into_iter().map(|problem| format!("{}: {problem}", package.name))
        })
        .collect()
}

fn manifest_problems(manifest: &Value, has_library: bool) -> Vec<String> {
    let missing = FIELDS.iter().filter(|field| is_empty(&manifest[**field]));
    let missing = missing.map(|field| format!("the manifest has no `{}`", field.replace('_', "-")));
    let long =
        SHORT_LISTS.iter().filter(|field| manifest[**field].as_array().is_some_and(|list| list.len() > 5));
    let long = long.map(|field| format!("`{field}` has more than five entries"));
    let mut found: Vec<String> = missing.chain(long).collect();
    let arguments = manifest["metadata"]["docs"]["rs"]["rustdoc-args"].as_array();
    if has_library && !arguments.is_some_and(|words| words.iter().any(|word| word == "docsrs")) {
        found.push("[package.metadata.docs.rs] does not pass `--cfg docsrs`".to_owned());
    }
    found
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("") || value.as_array().is_some_and(Vec::is_empty)
}

/// The crate's folder holds the workspace's licences, as links or copies, and a README with a title and a paragraph.
fn file_problems(root: &Path, package: &Package) -> Vec<String> {
    let folder = root.join(&package.folder);
    let mut found = Vec::new();
    for name in LICENSES {
        let text = fs::read_to_string(folder.join(name)).ok();
        if text.is_none() || text != fs::read_to_string(root.join(name)).ok() {
            found.push(format!(
                "{name} is not the workspace's; link it: ln -s ../../{name} {}",
                package.folder
            ));
        }
    }
    let Some(readme) = package.manifest["readme"].as_str() else { return found };
    let text = fs::read_to_string(folder.join(readme)).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    if !text.starts_with("# ") || lines.count() < 2 {
        found.push(format!("{readme} needs a title and a paragraph"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> Value {
        serde_json::json!({
            "description": "ops", "license": "MIT", "readme": "README.md", "keywords": ["tensor"],
            "categories": ["science"], "rust_version": "1.90",
            "metadata": {"docs": {"rs": {"rustdoc-args": ["--cfg", "docsrs"]}}},
        })
    }

    #[test]
    fn a_complete_manifest_passes() {
        assert_eq!(manifest_problems(&complete(), true), [""; 0]);
    }

    #[test]
    fn each_missing_or_empty_field_is_found() {
        for field in FIELDS {
            for empty in [Value::Null, "".into(), Value::Array(Vec::new())] {
                let mut manifest = complete();
                manifest[*field] = empty;
                let found = manifest_problems(&manifest, true);
                assert_eq!(found, [format!("the manifest has no `{}`", field.replace('_', "-"))]);
            }
        }
    }

    #[test]
    fn libraries_pass_cfg_docsrs_and_lists_are_short() {
        let mut manifest = complete();
        manifest["metadata"] = Value::Null;
        assert_eq!(manifest_problems(&manifest, false), [""; 0]);
        assert!(manifest_problems(&manifest, true)[0].contains("docsrs"));
        manifest["keywords"] = serde_json::json!(["a", "b", "c", "d", "e", "f"]);
        assert!(manifest_problems(&manifest, false)[0].contains("more than five"));
    }

    #[test]
    fn licences_must_be_those_of_the_workspace() {
        let root = std::env::temp_dir().join(format!("kiln-xtask-metadata-{}", std::process::id()));
        let package = Package { folder: "crates/ir".to_owned(), manifest: complete(), ..Package::default() };
        let folder = root.join(&package.folder);
        fs::create_dir_all(&folder).unwrap();
        for name in LICENSES {
            fs::write(root.join(name), "text").unwrap();
            fs::write(folder.join(name), "text").unwrap();
        }
        fs::write(folder.join("README.md"), "# kiln-ir\n\nOps.\n").unwrap();
        assert_eq!(file_problems(&root, &package), [""; 0]);
        fs::write(folder.join(LICENSES[0]), "other").unwrap();
        fs::remove_file(folder.join(LICENSES[1])).unwrap();
        fs::write(folder.join("README.md"), "").unwrap();
        assert_eq!(file_problems(&root, &package).len(), 3);
        fs::remove_dir_all(&root).unwrap();
    }
}
