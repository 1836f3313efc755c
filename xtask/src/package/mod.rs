//! `cargo xtask package`: packages every published crate as for the registry, and verifies the packages.
//!
//! The manifests come first: [`order`] finds dependencies that a registry would refuse, [`metadata`] missing fields, licences
//! and READMEs. Then [`archive`] packages and unpacks the crates, gives each dependency between them the path of the
//! unpacked one, and [`verify`] compiles the result. Files outside a crate's folder are absent, so that packages that
//! include them fail. Crates of this workspace are never fetched from the registry.

mod archive;
mod compiler;
mod metadata;
mod order;
mod verify;

use std::process::ExitCode;

use crate::args::{Accepts, Args};
use crate::workspace::{Package, Workspace};

const ACCEPTS: Accepts = Accepts { flags: &["--full", "--list"], options: &[], words: false };

/// The package of the library and that of the command: users install these.
const ROOTS: &[&str] = &["kiln", "kiln-command"];

/// `cargo xtask package`.
pub(crate) fn run(words: &[String]) -> Result<ExitCode, String> {
    let args = Args::parse(words, &ACCEPTS)?;
    let workspace = Workspace::load()?;
    let mut problems = order::problems(&workspace, ROOTS);
    if !problems.is_empty() {
        return Ok(report(&problems));
    }
    let packages = order::publish_order(&workspace);
    if args.has("--list") {
        packages.iter().for_each(|package| println!("{}", package.name));
        return Ok(ExitCode::SUCCESS);
    }
    problems.extend(metadata::problems(&workspace, &packages));
    problems.extend(compiler::problems(&workspace)?);
    if !problems.is_empty() {
        return Ok(report(&problems));
    }
    if packages.iter().any(|package| package.manifest["repository"].is_null()) {
        println!("package: no `repository` yet: set it in Cargo.toml before the first publication");
    }
    let unpacked = archive::pack(&workspace, &packages)?;
    verify::check(&workspace, &unpacked, &names(&packages), args.has("--full"))?;
    println!("package: {} crates, all verified", packages.len());
    Ok(ExitCode::SUCCESS)
}

fn names<'a>(packages: &[&'a Package]) -> Vec<&'a str> {
    packages.iter().map(|package| package.name.as_str()).collect()
}

fn report(problems: &[String]) -> ExitCode {
    problems.iter().for_each(|problem| println!("{problem}"));
    println!("package: {} problems", problems.len());
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    /// A published package whose dependencies are `(name, dev, versioned)`.
    pub(super) fn published(name: &str, dependencies: &[(&str, bool, bool)]) -> Package {
        let dependency = |&(name, dev, versioned): &(&str, bool, bool)| Dependency {
            name: name.to_owned(),
            dev,
            versioned,
        };
        Package {
            name: name.to_owned(),
            folder: format!("crates/{name}"),
            dependencies: dependencies.iter().map(dependency).collect(),
            published: true,
            ..Package::default()
        }
    }
}
