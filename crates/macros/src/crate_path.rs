//! The path of `kiln::nn` in the deriving crate.

use proc_macro2::TokenStream;
use quote::quote;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Finds the path of the crate with the traits from the manifest of the package that is compiled.
pub(crate) fn find() -> TokenStream {
    static DIRECT: OnceLock<bool> = OnceLock::new();
    match DIRECT.get_or_init(depends_on_nn_alone) {
        true => quote!(::kiln_nn),
        false => quote!(::kiln::nn),
    }
}

fn depends_on_nn_alone() -> bool {
    if std::env::var("CARGO_PKG_NAME").is_ok_and(|name| name == "kiln-nn") {
        return true;
    }
    let Some(directory) = std::env::var_os("CARGO_MANIFEST_DIR") else { return false };
    let Ok(manifest) = std::fs::read_to_string(PathBuf::from(directory).join("Cargo.toml")) else {
        return false;
    };
    names_dependency(&manifest, "kiln-nn") && !names_dependency(&manifest, "kiln")
}

/// Whether a manifest contains the dependency, as `name = …`, `name.workspace = …` or `[dependencies.name]`.
fn names_dependency(manifest: &str, name: &str) -> bool {
    let mut in_dependencies = false;
    manifest.lines().map(str::trim).any(|line| {
        if let Some(table) = line.strip_prefix('[') {
            let table = table.split(']').next().unwrap_or_default();
            in_dependencies = table.ends_with("dependencies");
            return table.rsplit_once("dependencies.").is_some_and(|(_, key)| key == name);
        }
        let key = line.split(['=', '.', ' ']).next().unwrap_or_default();
        in_dependencies && key.trim_matches('"') == name
    })
}

#[cfg(test)]
mod tests {
    use super::names_dependency;

    #[test]
    fn dependencies_are_found_in_manifests() {
        let manifest = "[package]\nname = \"kiln\"\n[dependencies]\nkiln-nn = { workspace = true }\n";
        assert!(names_dependency(manifest, "kiln-nn"));
        assert!(!names_dependency(manifest, "kiln"));
        assert!(names_dependency("[dev-dependencies]\nkiln.workspace = true", "kiln"));
        assert!(names_dependency("[dependencies.kiln]\nversion = \"1\"", "kiln"));
        assert!(!names_dependency("[features]\nkiln = []", "kiln"));
    }
}
