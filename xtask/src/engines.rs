//! The engines that the suite and the fuzzer take by name.

use crate::{fuzz, suite};

/// An engine, and the feature of the packages `kiln-suite` and `kiln-fuzz` with which it is built.
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    pub(crate) feature: Option<&'static str>,
    /// Whether `cargo xtask suite` runs it.
    pub(crate) suite: bool,
    /// Whether `cargo xtask fuzz` compares it with the reference.
    pub(crate) fuzz: bool,
    /// The number of random programs that `cargo xtask suite` runs beside the cases.
    pub(crate) programs: u64,
}

/// Random programs on a GPU.
const GPU_PROGRAMS: u64 = 20_000;

/// Every engine. The features of the tests, [`crate::programs::FEATURES`], contain those without a feature here. The names
/// are those of `kiln_suite::engines::NAMED` and of the fuzzer's option `--engine`.
pub(crate) const ENGINES: &[Engine] = &[
    Engine { name: "reference", feature: None, suite: true, fuzz: false, programs: 0 },
    Engine { name: "flex", feature: None, suite: true, fuzz: false, programs: 0 },
    Engine { name: "cpu", feature: None, suite: true, fuzz: true, programs: 0 },
    Engine { name: "router", feature: None, suite: true, fuzz: true, programs: 0 },
    Engine { name: "remote", feature: Some("remote"), suite: true, fuzz: true, programs: 0 },
    Engine { name: "candle", feature: Some("candle"), suite: true, fuzz: true, programs: 0 },
    Engine { name: "libtorch", feature: Some("libtorch"), suite: true, fuzz: true, programs: 0 },
    Engine { name: "cuda", feature: Some("cuda"), suite: true, fuzz: true, programs: GPU_PROGRAMS },
    Engine { name: "wgpu", feature: None, suite: true, fuzz: true, programs: GPU_PROGRAMS },
    Engine { name: "webgpu", feature: None, suite: true, fuzz: true, programs: GPU_PROGRAMS },
    Engine { name: "nvrtc", feature: Some("cuda"), suite: false, fuzz: true, programs: 0 },
];

/// The engine of that name among those of one tool.
pub(crate) fn named(name: &str, tool: fn(&Engine) -> bool) -> Result<&'static Engine, String> {
    let mut engines = ENGINES.iter().filter(|engine| tool(engine));
    engines.clone().find(|engine| engine.name == name).ok_or_else(|| {
        let names: Vec<&str> = engines.by_ref().map(|engine| engine.name).collect();
        format!("no engine is called `{name}`\n  hint: the engines are {}", names.join(", "))
    })
}

/// The features of all engines that run the suite, of the packages of the suite and of the fuzzer.
pub(crate) fn features() -> Vec<String> {
    let features: Vec<&str> =
        ENGINES.iter().filter(|engine| engine.suite).filter_map(|engine| engine.feature).collect();
    let of_packages = [suite::PACKAGE, fuzz::PACKAGE].into_iter();
    of_packages.flat_map(|package| features.iter().map(move |name| of_package(package, name))).collect()
}

/// A feature as the workspace names it: `kiln-suite/candle`.
pub(crate) fn of_package(package: &str, feature: &str) -> String {
    format!("{package}/{feature}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_engines_are_built_at_once() {
        let features = features().join(",");
        let expected = "kiln-suite/remote,kiln-suite/candle,kiln-suite/libtorch,kiln-suite/cuda,kiln-fuzz/remote,kiln-fuzz/candle,kiln-fuzz/libtorch,kiln-fuzz/cuda";
        assert_eq!(features, expected);
    }
}
