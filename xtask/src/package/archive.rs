//! Packs packages into archives and unpacks them in a separate workspace.

use std::fs;
use std::path::{Path, PathBuf};

use super::metadata::LICENSES;
use super::names;
use crate::process::{self, at};
use crate::workspace::{Package, Workspace};

/// The maximum archive size of the registry.
const LARGEST: u64 = 10 << 20;

/// Packages the crates and unpacks them beside each other; returns the folder of the workspace that they form.
///
/// The archives contain no lock file: it would need crates that are not in the registry yet.
pub(super) fn pack(workspace: &Workspace, packages: &[&Package]) -> Result<PathBuf, String> {
    let mut command = process::cargo(&workspace.root);
    command.args(["package", "--quiet", "--no-verify", "--allow-dirty", "--exclude-lockfile"]);
    command.args(names(packages).iter().flat_map(|name| ["-p", name]));
    println!("$ cargo package --no-verify of {} crates", packages.len());
    process::run(&mut command)?;
    let archives = workspace.target.join("package");
    let unpacked = archives.join("unpacked");
    if unpacked.exists() {
        fs::remove_dir_all(&unpacked).map_err(at(&unpacked))?;
    }
    fs::create_dir_all(&unpacked).map_err(at(&unpacked))?;
    let folders: Vec<(&str, String)> =
        packages.iter().map(|package| (package.name.as_str(), folder(package))).collect();
    for (_, folder) in &folders {
        unpack(&archives.join(format!("{folder}.crate")), &unpacked)?;
        link(&unpacked.join(folder), &folders)?;
    }
    let manifest = unpacked.join("Cargo.toml");
    let root = read(&workspace.root.join("Cargo.toml"))?;
    fs::write(&manifest, workspace_manifest(&folders, &root)).map_err(at(&manifest))?;
    let lock = workspace.root.join("Cargo.lock");
    fs::copy(&lock, unpacked.join("Cargo.lock")).map_err(at(&lock))?;
    Ok(unpacked)
}

/// The folder that the archive of a package unpacks to.
fn folder(package: &Package) -> String {
    format!("{}-{}", package.name, package.manifest["version"].as_str().unwrap_or_default())
}

/// Unpacks an archive into `folder` and checks for the required files of a package.
fn unpack(archive: &Path, folder: &Path) -> Result<(), String> {
    let bytes = fs::metadata(archive).map_err(at(archive))?.len();
    if bytes > LARGEST {
        return Err(format!("{}: {bytes} bytes, more than the registry takes", archive.display()));
    }
    // Files in archives have a fixed time. `m` sets the current time, so that cargo notices changes.
    process::run(process::program("tar", folder).arg("-xzmf").arg(archive))?;
    let package = folder.join(archive.file_stem().unwrap_or_default());
    let missing =
        LICENSES.iter().chain(&["README.md", "Cargo.toml"]).find(|name| !package.join(name).is_file());
    missing.map_or(Ok(()), |name| Err(format!("{}: the archive does not contain {name}", archive.display())))
}

/// Gives the dependencies of an unpacked package on other packages their paths.
fn link(package: &Path, folders: &[(&str, String)]) -> Result<(), String> {
    let manifest = package.join("Cargo.toml");
    let linked = with_paths(&read(&manifest)?, folders);
    fs::write(&manifest, linked).map_err(at(&manifest))
}

/// The manifest of a package with a path for each dependency on one of `folders`. Cargo writes each dependency as a table
/// of its own when it packages.
fn with_paths(manifest: &str, folders: &[(&str, String)]) -> String {
    let mut text = String::with_capacity(manifest.len());
    for line in manifest.lines() {
        text += line;
        text.push('\n');
        let table = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        let dependency = table.and_then(|table| table.rsplit_once("dependencies.")).map(|(_, name)| name);
        if let Some((_, folder)) = folders.iter().find(|(name, _)| Some(*name) == dependency) {
            text += &format!("path = \"../{folder}\"\n");
        }
    }
    text
}

/// A workspace of the folders. It has the profiles of the root manifest, so that compiled dependencies are reused.
fn workspace_manifest(folders: &[(&str, String)], root: &str) -> String {
    let members: String = folders.iter().map(|(_, folder)| format!("    \"{folder}\",\n")).collect();
    let mut text = format!("[workspace]\nresolver = \"3\"\nmembers = [\n{members}]\n\n");
    let mut in_profile = false;
    for line in root.lines() {
        if line.starts_with('[') {
            in_profile = line.starts_with("[profile.");
        }
        if in_profile {
            text += line;
            text.push('\n');
        }
    }
    text
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders() -> Vec<(&'static str, String)> {
        vec![("kiln-ir", "kiln-ir-0.1.0".to_owned()), ("kiln", "kiln-0.1.0".to_owned())]
    }

    #[test]
    fn dependencies_of_the_workspace_get_paths() {
        let manifest = "[package]\nname = \"kiln\"\n\n[dependencies.kiln-ir]\nversion = \"0.1.0\"\n\n\
            [dependencies.half]\nversion = \"2\"\n\n[target.\"cfg(unix)\".dev-dependencies.kiln]\nversion = \"0.1.0\"\n";
        let linked = with_paths(manifest, &folders());
        assert!(linked.contains("[dependencies.kiln-ir]\npath = \"../kiln-ir-0.1.0\"\nversion"), "{linked}");
        assert!(linked.contains("dev-dependencies.kiln]\npath = \"../kiln-0.1.0\"\nversion"), "{linked}");
        assert_eq!(linked.matches("path = ").count(), 2);
    }

    #[test]
    fn the_workspace_manifest_has_only_members_and_profiles() {
        let root = "[workspace]\nmembers = [\"crates/*\"]\n\n[profile.dev]\nopt-level = 1\n[lints]\nx = 1\n";
        let text = workspace_manifest(&folders(), root);
        assert!(text.contains("    \"kiln-ir-0.1.0\",\n    \"kiln-0.1.0\",\n]"), "{text}");
        assert!(text.ends_with("\n[profile.dev]\nopt-level = 1\n"), "{text}");
    }
}
