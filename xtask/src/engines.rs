//! The engines that the suite and the fuzzer take by name.

/// An engine. The [features](crate::programs::FEATURES) of the tests contain that of each.
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    /// Whether `cargo xtask suite` runs it.
    pub(crate) suite: bool,
    /// Whether `cargo xtask fuzz` compares it with the reference.
    pub(crate) fuzz: bool,
    /// The number of random programs that `cargo xtask suite` runs beside the cases.
    pub(crate) programs: u64,
}

/// Random programs on a GPU.
const GPU_PROGRAMS: u64 = 20_000;

/// Every engine. The names are those of `kiln_suite::engines::NAMED` and of the fuzzer's option `--engine`.
pub(crate) const ENGINES: &[Engine] = &[
    Engine { name: "reference", suite: true, fuzz: false, programs: 0 },
    Engine { name: "flex", suite: true, fuzz: false, programs: 0 },
    Engine { name: "cpu", suite: true, fuzz: true, programs: 0 },
    Engine { name: "router", suite: true, fuzz: true, programs: 0 },
    Engine { name: "remote", suite: true, fuzz: true, programs: 0 },
    Engine { name: "candle", suite: true, fuzz: true, programs: 0 },
    Engine { name: "libtorch", suite: true, fuzz: true, programs: 0 },
    Engine { name: "cuda", suite: true, fuzz: true, programs: GPU_PROGRAMS },
    Engine { name: "wgpu", suite: true, fuzz: true, programs: GPU_PROGRAMS },
    Engine { name: "webgpu", suite: true, fuzz: true, programs: GPU_PROGRAMS },
    Engine { name: "nvrtc", suite: false, fuzz: true, programs: 0 },
];

/// The engine of that name among those of one tool.
pub(crate) fn named(name: &str, tool: fn(&Engine) -> bool) -> Result<&'static Engine, String> {
    let mut engines = ENGINES.iter().filter(|engine| tool(engine));
    engines.clone().find(|engine| engine.name == name).ok_or_else(|| {
        let names: Vec<&str> = engines.by_ref().map(|engine| engine.name).collect();
        format!("no engine is called `{name}`\n  hint: the engines are {}", names.join(", "))
    })
}
