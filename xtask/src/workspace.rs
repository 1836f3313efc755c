//! The workspace as `cargo metadata` describes it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::process;

/// Every package of the workspace.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// The folder of the workspace's `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// The target folder of cargo.
    pub(crate) target: PathBuf,
    /// The members.
    pub(crate) packages: Vec<Package>,
}

/// One member.
#[derive(Debug, Default)]
pub(crate) struct Package {
    /// Package name, such as `kiln-ir`.
    pub(crate) name: String,
    /// Folder relative to the root, with forward slashes, such as `crates/ir`.
    pub(crate) folder: String,
    /// Every declared dependency, internal or external.
    pub(crate) dependencies: Vec<Dependency>,
    /// Libraries, programs, examples and tests.
    pub(crate) targets: Vec<Target>,
    /// Whether the package may be published: `publish` is not `false`.
    pub(crate) published: bool,
    /// The metadata of the manifest.
    pub(crate) manifest: Value,
}

/// One declared dependency.
#[derive(Debug)]
pub(crate) struct Dependency {
    /// Package name.
    pub(crate) name: String,
    /// Whether it is a dev-dependency.
    pub(crate) dev: bool,
    /// Whether it has a version. Published packages omit path-only dev-dependencies.
    pub(crate) versioned: bool,
}

/// A build target of a package.
#[derive(Debug)]
pub(crate) struct Target {
    /// Name, such as `mnist`.
    pub(crate) name: String,
    /// `lib`, `proc-macro`, `bin`, `example`, `test`, `bench` or `custom-build`.
    pub(crate) kind: String,
    /// Root source file relative to the workspace, with forward slashes.
    pub(crate) source: String,
}

impl Workspace {
    /// Loads the metadata of this workspace by cargo.
    pub(crate) fn load() -> Result<Self, String> {
        let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
        let mut command = process::cargo(&here);
        command.args(["metadata", "--no-deps", "--format-version", "1"]);
        let text = process::output(&mut command)?;
        let metadata = serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
        Self::from_metadata(&metadata)
    }

    /// Parses the output of `cargo metadata`.
    pub(crate) fn from_metadata(metadata: &Value) -> Result<Self, String> {
        let root = PathBuf::from(text(metadata, "workspace_root")?);
        let target = PathBuf::from(text(metadata, "target_directory")?);
        let packages = list(metadata, "packages")?.iter().map(|package| read_package(package, &root));
        let packages = packages.collect::<Result<_, String>>()?;
        Ok(Self { root, target, packages })
    }

    /// The member with a name.
    pub(crate) fn package(&self, name: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.name == name)
    }

    /// Whether some member has a target of this kind and name.
    pub(crate) fn has_target(&self, kind: &str, name: &str) -> bool {
        let wanted = |target: &Target| target.kind == kind && target.name == name;
        self.packages.iter().any(|package| package.targets.iter().any(wanted))
    }
}

impl Package {
    /// The part of [`Package::folder`] that names the crate in the layering: `ir` for `crates/ir`.
    pub(crate) fn short_name(&self) -> &str {
        self.folder.strip_prefix("crates/").unwrap_or(&self.folder)
    }

    /// The library or procedural macro, if there is one.
    pub(crate) fn library(&self) -> Option<&Target> {
        self.targets.iter().find(|target| target.kind == "lib" || target.kind == "proc-macro")
    }
}

fn read_package(package: &Value, root: &Path) -> Result<Package, String> {
    let manifest = PathBuf::from(text(package, "manifest_path")?);
    let folder = relative(manifest.parent().unwrap_or(root), root);
    let dependencies = list(package, "dependencies")?.iter().map(|dependency| {
        let dev = dependency["kind"].as_str() == Some("dev");
        let versioned = dependency["req"].as_str().is_some_and(|requirement| requirement != "*");
        Ok(Dependency { name: text(dependency, "name")?.to_owned(), dev, versioned })
    });
    let targets = list(package, "targets")?.iter().map(|target| {
        let kind = list(target, "kind")?.first().and_then(Value::as_str).unwrap_or_default();
        // All kinds of libraries count as `lib`.
        let kind = if ["rlib", "cdylib", "dylib", "staticlib"].contains(&kind) { "lib" } else { kind };
        let source = relative(Path::new(text(target, "src_path")?), root);
        Ok(Target { name: text(target, "name")?.to_owned(), kind: kind.to_owned(), source })
    });
    Ok(Package {
        name: text(package, "name")?.to_owned(),
        folder,
        dependencies: dependencies.collect::<Result<_, String>>()?,
        targets: targets.collect::<Result<_, String>>()?,
        published: package["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
        manifest: package.clone(),
    })
}

fn relative(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value[key].as_str().ok_or_else(|| format!("cargo metadata has no text `{key}`"))
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>, String> {
    value[key].as_array().ok_or_else(|| format!("cargo metadata has no list `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_read() {
        let metadata = serde_json::json!({
            "workspace_root": "/src", "target_directory": "/src/target",
            "packages": [{
                "name": "kiln-ir", "manifest_path": "/src/crates/ir/Cargo.toml",
                "publish": null,
                "dependencies": [
                    {"name": "half", "kind": null, "req": "^2.7"},
                    {"name": "kiln-suite", "kind": "dev", "req": "*"},
                ],
                "targets": [{"name": "kiln_ir", "kind": ["rlib"], "src_path": "/src/crates/ir/src/lib.rs"}],
            }],
        });
        let workspace = Workspace::from_metadata(&metadata).unwrap();
        let package = workspace.package("kiln-ir").unwrap();
        assert_eq!((package.folder.as_str(), package.short_name()), ("crates/ir", "ir"));
        assert_eq!(package.library().unwrap().source, "crates/ir/src/lib.rs");
        assert!(!package.dependencies[0].dev && package.dependencies[1].dev);
        assert!(package.dependencies[0].versioned && !package.dependencies[1].versioned);
        assert!(package.published);
        assert!(workspace.has_target("lib", "kiln_ir") && !workspace.has_target("bin", "kiln_ir"));
    }

    #[test]
    fn metadata_without_its_keys_is_an_error() {
        assert!(Workspace::from_metadata(&serde_json::json!({})).unwrap_err().contains("workspace_root"));
    }
}
