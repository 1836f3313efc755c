//! The engines under test, each with its ignore list: cases that it does not pass yet.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "wgpu")]
mod wgpu;

#[cfg(feature = "cuda")]
pub use cuda::CUDA;
#[cfg(feature = "wgpu")]
pub use wgpu::{WEBGPU, WGPU};

use kiln_autodiff::{Autodiff, Checkpointing};
use kiln_cpu::Cpu;
use kiln_fusion::Fusion;
use kiln_ir::{
    BoxFuture, Caps, Engine, Expand, Op, Operand, Operands, TensorData, TensorType, Value, Values,
};
use kiln_reference::Reference;
use kiln_router::{Member, Router};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An engine under test.
#[derive(Clone, Copy)]
pub struct Subject {
    /// The name in messages.
    pub name: &'static str,
    /// Opens it.
    pub open: fn() -> Arc<dyn Engine>,
    /// Cases that it does not pass yet.
    pub ignored: &'static [Ignored],
}

impl Subject {
    /// Opens the engine, and returns its error where it cannot be opened, such as without a driver: one line, with the remedy.
    ///
    /// # Errors
    /// The message with which `open` panics.
    pub fn opened(&self) -> Result<Arc<dyn Engine>, String> {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let opened = std::panic::catch_unwind(self.open);
        std::panic::set_hook(hook);
        opened.map_err(|payload| {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
            text.unwrap_or("the engine cannot be opened").replace("\n  hint: ", "; ").replace('\n', " ")
        })
    }
}

/// An entry of an ignore list. The suite fails if an ignored case passes.
#[derive(Clone, Copy, Debug)]
pub struct Ignored {
    /// The mode.
    pub mode: Mode,
    /// Names of cases; `*` stands for any text.
    pub pattern: &'static str,
    /// The reason.
    pub reason: &'static str,
}

/// The check to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// [`check_value`](crate::check::check_value).
    Value,
    /// [`check_grad`](crate::check::check_grad).
    Grad,
    /// [`check_expand`](crate::check::check_expand).
    Expand,
    /// [`family_on`](crate::goldens::family_on).
    Golden,
}

/// Engines by the names that `cargo xtask suite --engine NAME` takes.
pub const NAMED: &[(&str, Subject)] = &[
    ("reference", REFERENCE),
    ("flex", CPU_MANY),
    ("cpu", FUSED_ONE),
    ("router", ROUTER),
    #[cfg(feature = "remote")]
    ("remote", REMOTE),
    #[cfg(feature = "candle")]
    ("candle", CANDLE),
    #[cfg(feature = "libtorch")]
    ("libtorch", LIBTORCH),
    #[cfg(feature = "cuda")]
    ("cuda", CUDA),
    #[cfg(feature = "wgpu")]
    ("wgpu", WGPU),
    #[cfg(feature = "wgpu")]
    ("webgpu", WEBGPU),
];

/// Named engines for which the program `conformance` runs the goldens too. For the others, tests of their crates do.
pub const WITH_GOLDENS: [&str; 3] = ["cuda", "wgpu", "webgpu"];

/// Returns the engine of that name.
pub fn named(name: &str) -> Option<Subject> {
    NAMED.iter().find(|(known, _)| *known == name).map(|(_, subject)| *subject)
}

/// The reference engine. Compared with itself, it tests that layouts, layers and expansions preserve values.
pub const REFERENCE: Subject = Subject { name: "reference", open: || Arc::new(reference()), ignored: &[] };

/// The CPU engine on the caller's thread.
pub const CPU_ONE: Subject =
    Subject { name: "cpu, 1 thread", open: || Arc::new(cpu(1)), ignored: CPU_IGNORED };

/// The CPU engine on several threads.
pub const CPU_MANY: Subject =
    Subject { name: "cpu, 3 threads", open: || Arc::new(cpu(3)), ignored: CPU_IGNORED };

/// The CPU engine on the caller's thread behind fusion.
pub const FUSED_ONE: Subject =
    Subject { name: "fusion over cpu, 1 thread", open: || fused(1), ignored: CPU_IGNORED };

/// The CPU engine on several threads behind fusion. Each op has neighbours to fuse with (see [`Neighbours`]).
pub const FUSED_MANY: Subject = Subject {
    name: "fusion over cpu, 3 threads, among neighbours",
    open: || Arc::new(Neighbours(fused(3))),
    ignored: CPU_IGNORED,
};

/// A router over the CPU engine alone and behind fusion, where data and constants are on one after the other: operands meet.
pub const ROUTER: Subject = Subject { name: "router", open: || Arc::new(router(1)), ignored: CPU_IGNORED };

/// The engine of a client whose server, over the loopback address, serves the CPU engine behind fusion. Opens in builds
/// with the feature `remote`.
pub const REMOTE: Subject = Subject { name: "remote over cpu", open: remote, ignored: CPU_IGNORED };

/// The engine over candle-core, on the processor. Opens in builds with the feature `candle`.
pub const CANDLE: Subject = Subject { name: "candle", open: candle, ignored: CANDLE_IGNORED };

#[cfg(not(feature = "candle"))]
fn candle() -> Arc<dyn Engine> {
    panic!("this build has no feature `candle`")
}

#[cfg(feature = "candle")]
fn candle() -> Arc<dyn Engine> {
    let engine = kiln_candle::Candle::open(kiln_candle::CandleDevice::Cpu);
    kiln_ir::expanding(Arc::new(engine.expect("the processor is there")))
}

const CANDLE_IGNORED: &[Ignored] = &[];

/// The engine over LibTorch, on the processor, or on the GPU whose number is in `KILN_LIBTORCH_CUDA`.
/// Opens in builds with the feature `libtorch`.
pub const LIBTORCH: Subject = Subject { name: "libtorch", open: libtorch, ignored: LIBTORCH_IGNORED };

#[cfg(not(feature = "libtorch"))]
fn libtorch() -> Arc<dyn Engine> {
    panic!("this build has no feature `libtorch`")
}

#[cfg(feature = "libtorch")]
fn libtorch() -> Arc<dyn Engine> {
    let device = match std::env::var("KILN_LIBTORCH_CUDA") {
        Ok(number) => kiln_torch::LibTorchDevice::Cuda(number.parse().expect("the number of a GPU")),
        Err(_) => kiln_torch::LibTorchDevice::Cpu,
    };
    let engine = kiln_torch::LibTorch::open(device);
    kiln_ir::expanding(Arc::new(engine.unwrap_or_else(|error| panic!("{error}"))))
}

const LIBTORCH_IGNORED: &[Ignored] = &[];

/// Every engine under test in a default build.
pub const SUBJECTS: [Subject; 5] = [REFERENCE, CPU_ONE, CPU_MANY, FUSED_ONE, FUSED_MANY];

/// Returns the reference engine with expansion of the ops that it does not support, as on every stack.
pub fn reference() -> Expand {
    Expand::new(Reference::new())
}

/// Returns the CPU engine with a number of threads, with expansion of the ops that it does not support, as on every
/// stack.
pub fn cpu(threads: usize) -> Expand {
    Expand::new(Cpu::with_threads(threads))
}

/// Returns a router over the CPU engine with that many threads, alone and behind fusion, as over `Flex` and `Cpu`.
pub fn router(threads: usize) -> Scattered {
    let plain = Member::new("flex", Arc::new(cpu(threads)) as Arc<dyn Engine>);
    Scattered::new(Router::new([plain, Member::new("cpu", fused(threads))]))
}

fn fused(threads: usize) -> Arc<dyn Engine> {
    Arc::new(Fusion::with_mode(Arc::new(cpu(threads)), kiln_fusion::Mode::On))
}

#[cfg(not(feature = "remote"))]
fn remote() -> Arc<dyn Engine> {
    panic!("this build has no feature `remote`")
}

/// A session of its own at the one server of the process.
#[cfg(feature = "remote")]
fn remote() -> Arc<dyn Engine> {
    use kiln_remote::client::RemoteEngine;
    use kiln_remote::server::{Server, ServerOptions};
    use std::sync::OnceLock;

    static SERVER: OnceLock<Server> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let options = ServerOptions::new().with_sessions(1000);
        Server::bind::<kiln_backends::Cpu>(&Default::default(), options).expect("a free port")
    });
    let device = kiln_remote::RemoteDevice::new(server.url());
    Arc::new(Expand::new(RemoteEngine::connect(&device).expect("the server answers")))
}

const CPU_IGNORED: &[Ignored] = &[];

impl Subject {
    /// Returns the ignore-list entry that matches a case.
    pub fn ignored(&self, mode: Mode, name: &str) -> Option<&'static Ignored> {
        self.ignored.iter().find(|entry| entry.mode == mode && matches(entry.pattern, name))
    }
}

/// Returns whether a name matches a pattern, in which `*` matches any text.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// An automatic-differentiation layer that makes all written floats leaves, so that every float op is recorded.
pub struct Tracked(Autodiff);

impl Tracked {
    /// Returns the layer over an engine.
    pub fn new(engine: Arc<dyn Engine>) -> Tracked {
        Tracked(Autodiff::new(engine, Checkpointing::None))
    }
}

impl Engine for Tracked {
    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.0.execute(op, inputs, results)
    }

    fn write(&self, data: TensorData) -> Value {
        let is_float = data.dtype().is_float();
        let value = self.0.write(data);
        if is_float { self.0.require_grad(value) } else { value }
    }

    fn read(&self, value: Value) -> BoxFuture<'_, kiln_ir::Result<TensorData>> {
        self.0.read(value)
    }

    fn saved_for_backward(&self, op: &Op, place: usize, value: &Value) -> Value {
        self.0.saved_for_backward(op, place, value)
    }

    fn mixes_precision(&self) -> bool {
        self.0.mixes_precision()
    }

    fn sync(&self) -> BoxFuture<'_, kiln_ir::Result<()>> {
        self.0.sync()
    }
}

/// A layer that places created values on the members of a router in turn.
pub struct Scattered {
    inner: Expand,
    members: usize,
    next: AtomicUsize,
}

impl Scattered {
    /// Returns the layer around a router.
    pub fn new(router: Router) -> Scattered {
        let members = router.members().len();
        Scattered { inner: Expand::new(router), members, next: AtomicUsize::new(0) }
    }

    /// Returns the router.
    ///
    /// # Panics
    /// Never: the layer is around one.
    pub fn router(&self) -> &Router {
        let engine: &dyn Engine = &self.inner;
        engine.find().expect("the layer is around a router")
    }

    fn scattered(&self, value: Value) -> Value {
        let member = self.next.fetch_add(1, Ordering::Relaxed) % self.members;
        self.inner.to_device(value, member)
    }
}

impl Engine for Scattered {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&self.inner)
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let is_placed = inputs.iter().any(|operand| operand.value().is_some());
        let values = self.inner.execute(op, inputs, results);
        if is_placed { values } else { values.into_iter().map(|value| self.scattered(value)).collect() }
    }

    fn write(&self, data: TensorData) -> Value {
        self.scattered(self.inner.write(data))
    }

    fn read(&self, value: Value) -> BoxFuture<'_, kiln_ir::Result<TensorData>> {
        self.inner.read(value)
    }
}

/// A layer that copies every operand before each op and every result after it, so that each op has neighbours to fuse
/// with. Values do not change.
pub struct Neighbours(pub Arc<dyn Engine>);

impl Neighbours {
    fn copied(&self, value: Value) -> Value {
        let ty = *value.ty();
        self.0.execute(&Op::Copy, [Operand::Value(value)].into_iter().collect(), &[ty]).remove(0)
    }
}

impl Engine for Neighbours {
    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&*self.0)
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let copied = inputs.into_iter().map(|operand| match operand {
            Operand::Value(value) => Operand::Value(self.copied(value)),
            Operand::Scalar(scalar) => Operand::Scalar(scalar),
        });
        let values = self.0.execute(op, copied.collect(), results);
        values.into_iter().map(|value| self.copied(value)).collect()
    }

    fn write(&self, data: TensorData) -> Value {
        self.0.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, kiln_ir::Result<TensorData>> {
        self.0.read(value)
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn ignore_patterns_match_names() {
        assert!(matches("exp/f32[2]", "exp/f32[2]"));
        assert!(matches("exp/*", "exp/f32[2]"));
        assert!(matches("*/f16*/corners", "exp/f16[2]/corners"));
        assert!(matches("*", ""));
        assert!(!matches("exp", "exp/f32"));
        assert!(!matches("*f16", "exp/f16[2]"));
    }
}
