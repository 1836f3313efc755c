//! Every optional method of an engine passes through every layer: a probe below notes the calls, and its answers come back.

use kiln_autocast::{Autocast, LowPrecision};
use kiln_autodiff::{Autodiff, Checkpointing, Forward};
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{
    Binary, BoxFuture, Caps, DType, Engine, Error, Expand, Memory, MemoryConfig, MemoryUse, Op, OpKind,
    Operand, OperandType, Operands, Result, SharedBytes, TensorData, TensorType, Value, Values, block_on,
};
use kiln_reference::Reference;
use kiln_vmap::Vmap;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// One optional method: its name, and a call on a layer around the probe that checks the answer.
struct Row {
    method: &'static str,
    check: fn(&Subject),
}

/// All optional methods that a layer passes on, in the order of the trait.
const ROWS: &[Row] = &[
    Row { method: "execute_async", check: execute_async },
    Row { method: "supports", check: supports },
    Row { method: "write_shared", check: write_shared },
    Row { method: "import", check: import },
    Row { method: "outcome", check: outcome },
    Row { method: "saved_for_backward", check: saved_for_backward },
    Row { method: "mixes_precision", check: mixes_precision },
    Row { method: "submit", check: submit },
    Row { method: "sync", check: sync },
    Row { method: "device_of", check: device_of },
    Row { method: "to_device", check: to_device },
    Row { method: "memory", check: memory },
    Row { method: "explain", check: explain },
];

/// Optional methods that define how a layer wraps engine and values; the other methods forward through them.
const OF_THE_LAYER: &[&str] = &["below", "lower", "lift", "rewrap"];

/// The device of the probe's values.
const DEVICE: usize = 7;

/// The engine of the probe's values. Its answers differ from every default.
struct Probe {
    inner: Reference,
    calls: Mutex<Vec<&'static str>>,
}

/// The payload of the probe's values.
#[derive(Clone)]
struct Probed {
    data: TensorData,
    made_by: &'static str,
}

/// A layer around a probe, and values of the layer that carry its addition.
struct Subject {
    name: &'static str,
    probe: Arc<Probe>,
    layer: Arc<dyn Engine>,
    /// A value of the probe as one of the layer, of a value that may be changed by the layer's own means.
    carry: fn(&dyn Engine, Value) -> Value,
    /// Whether a value still carries it.
    carries: fn(&dyn Engine, &Value) -> bool,
}

impl Probe {
    fn new() -> Arc<Probe> {
        Arc::new(Probe { inner: Reference::new(), calls: Mutex::default() })
    }

    fn note(&self, method: &'static str) {
        self.calls.lock().unwrap().push(method);
    }

    fn made(data: TensorData, made_by: &'static str) -> Value {
        Value::new(data.ty(), Probed { data, made_by })
    }

    /// Who made a value, which has to be one of the probe's own: a layer lowers it before it asks.
    fn maker(value: &Value) -> &'static str {
        value.payload::<Probed>().unwrap_or_else(|| panic!("{value:?} is not lowered")).made_by
    }
}

impl Engine for Probe {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn execute(&self, _op: &Op, _inputs: Operands, results: &[TensorType]) -> Values {
        results.iter().map(|ty| Probe::made(TensorData::zeros(*ty), "execute")).collect()
    }

    fn write(&self, data: TensorData) -> Value {
        Probe::made(data, "write")
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        let data = value.payload::<Probed>().map(|probed| probed.data.clone());
        Box::pin(async { data.ok_or_else(|| Error::value("probe", "the value is not lowered")) })
    }

    fn execute_async(&self, _op: &Op, inputs: Operands, results: &[TensorType]) -> BoxFuture<'_, Values> {
        self.note("execute_async");
        inputs.iter().filter_map(Operand::value).for_each(|value| {
            Probe::maker(value);
        });
        let made = |ty: &TensorType| Probe::made(TensorData::zeros(*ty), "execute_async");
        let values: Values = results.iter().map(made).collect();
        Box::pin(async { values })
    }

    fn supports(&self, op: &Op, operands: &[OperandType<'_>]) -> bool {
        self.note("supports");
        // The sets say that it runs everything.
        op.kind() == OpKind::NonZero || (op.kind() != OpKind::Binary && operands.len() == 2)
    }

    fn write_shared(&self, bytes: SharedBytes, ty: TensorType) -> Value {
        self.note("write_shared");
        let data = TensorData::from_bytes(bytes.as_slice(), ty).expect("the bytes are of the type");
        Probe::made(data, "write_shared")
    }

    fn import(&self, _from: &dyn Engine, value: Value) -> Value {
        self.note("import");
        Probe::made(TensorData::zeros(*value.ty()), "import")
    }

    fn device_of(&self, value: &Value) -> Option<usize> {
        self.note("device_of");
        Probe::maker(value);
        Some(DEVICE)
    }

    fn to_device(&self, value: Value, device: usize) -> Value {
        self.note("to_device");
        assert_eq!(device, DEVICE + 1);
        Probe::made(TensorData::zeros(*value.ty()), "to_device")
    }

    fn outcome(&self, value: &Value) -> Option<Result<()>> {
        self.note("outcome");
        Some(Err(Error::value("probe", Probe::maker(value))))
    }

    fn saved_for_backward(&self, _op: &Op, _place: usize, value: &Value) -> Value {
        self.note("saved_for_backward");
        Probe::maker(value);
        Probe::made(TensorData::zeros(*value.ty()), "saved_for_backward")
    }

    fn mixes_precision(&self) -> bool {
        self.note("mixes_precision");
        true
    }

    fn submit(&self) {
        self.note("submit");
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        self.note("sync");
        Box::pin(async { Err(Error::value("probe", "synced")) })
    }

    fn memory(&self) -> Option<&dyn Memory> {
        self.note("memory");
        Some(self)
    }

    fn explain(&self, value: &Value) -> Option<String> {
        self.note("explain");
        Some(format!("made by {}", Probe::maker(value)))
    }
}

impl Memory for Probe {
    fn usage(&self) -> MemoryUse {
        MemoryUse { live_bytes: 4711, ..MemoryUse::default() }
    }

    fn reset_peak(&self) {}

    fn trim(&self) {}

    fn configure(&self, _: MemoryConfig) {}
}

/// A layer that adds nothing, for a layer that owns the engine below.
struct Below(Arc<Probe>);

impl Engine for Below {
    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.0.execute(op, inputs, results)
    }

    fn write(&self, data: TensorData) -> Value {
        self.0.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.0.read(value)
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&*self.0)
    }
}

/// The layer of a type.
fn of<L: Engine>(layer: &dyn Engine) -> &L {
    layer.find().expect("it is the layer")
}

fn subjects() -> Vec<Subject> {
    fn subject(
        name: &'static str,
        wrap: impl FnOnce(Arc<Probe>) -> Arc<dyn Engine>,
        carry: fn(&dyn Engine, Value) -> Value,
        carries: fn(&dyn Engine, &Value) -> bool,
    ) -> Subject {
        let probe = Probe::new();
        Subject { name, layer: wrap(probe.clone()), probe, carry, carries }
    }
    let nothing = |_: &dyn Engine, _: &Value| true;
    let mut subjects = vec![
        subject(
            "Autodiff",
            |probe| Arc::new(Autodiff::new(probe, Checkpointing::None)),
            |layer, value| of::<Autodiff>(layer).require_grad(value),
            |layer, value| of::<Autodiff>(layer).is_tracked(value),
        ),
        subject(
            "Forward",
            |probe| Arc::new(Forward::new(probe)),
            |layer, value| of::<Forward>(layer).dual(value.clone(), value),
            |layer, value| of::<Forward>(layer).tangent(value).is_some(),
        ),
        subject(
            "Vmap",
            |probe| Arc::new(Vmap::new(probe)),
            |layer, value| of::<Vmap>(layer).batch(value, 0),
            |layer, value| of::<Vmap>(layer).is_batched(value),
        ),
        subject(
            "Autocast",
            |probe| Arc::new(Autocast::new(probe, LowPrecision::BF16)),
            |layer, value| layer.lift(value),
            |layer, value| of::<Autocast>(layer).stored_dtype(value) == DType::F32,
        ),
    ];
    for (name, mode) in [("Fusion", Mode::On), ("Fusion that is off", Mode::Off)] {
        let wrap = |probe: Arc<Probe>| -> Arc<dyn Engine> { Arc::new(Fusion::with_mode(probe, mode)) };
        subjects.push(subject(name, wrap, |layer, value| layer.lift(value), nothing));
    }
    let wrap = |probe: Arc<Probe>| -> Arc<dyn Engine> { Arc::new(Expand::new(Below(probe))) };
    subjects.push(subject("Expand", wrap, |layer, value| layer.lift(value), nothing));
    subjects
}

fn numbers() -> TensorData {
    TensorData::from([[1.0f32, 2.0], [3.0, 4.0]])
}

impl Subject {
    /// A value of the layer that carries the layer's addition, around one that the probe wrote.
    fn value(&self) -> Value {
        (self.carry)(&*self.layer, self.probe.write(numbers()))
    }

    /// Who made the probe's value inside one of the layer.
    fn maker(&self, value: &Value) -> &'static str {
        Probe::maker(&self.layer.lower(value.clone()))
    }
}

fn execute_async(subject: &Subject) {
    let op = Op::NonZero { index: DType::I32 };
    let inputs: Operands = core::iter::once(Operand::Value(subject.probe.write(numbers()))).collect();
    let found = subject.layer.execute_async(&op, inputs, &[TensorType::new([4, 2], DType::I32)]);
    assert_eq!(subject.maker(&block_on(found)[0]), "execute_async");
}

fn supports(subject: &Subject) {
    let ty = TensorType::new([2, 2], DType::F32);
    let operands = [OperandType::Tensor(&ty), OperandType::Tensor(&ty)];
    let sum = Op::Binary(Binary::Add);
    assert!(subject.probe.caps().supports(&sum, &operands), "the sets say more than the method");
    assert!(!subject.layer.supports(&sum, &operands));
    assert!(subject.layer.supports(&Op::Copy, &operands));
}

fn write_shared(subject: &Subject) {
    let bytes = SharedBytes::new(Arc::new(numbers().bytes().to_vec()), 0..16).expect("it is in range");
    let value = subject.layer.write_shared(bytes, numbers().ty());
    assert_eq!(subject.maker(&value), "write_shared");
    assert_eq!(block_on(subject.layer.read(value)), Ok(numbers()));
}

fn import(subject: &Subject) {
    let other = Reference::new();
    let value = subject.layer.import(&other, other.write(numbers()));
    assert_eq!(subject.maker(&value), "import");
}

fn device_of(subject: &Subject) {
    assert_eq!(subject.layer.device_of(&subject.value()), Some(DEVICE));
}

fn to_device(subject: &Subject) {
    let value = subject.value();
    let moved = subject.layer.to_device(value.clone(), DEVICE + 1);
    assert_eq!(subject.maker(&moved), "to_device");
    assert!((subject.carries)(&*subject.layer, &moved), "the attachment of the value is lost");
    assert_eq!(moved.ty(), value.ty());
}

fn outcome(subject: &Subject) {
    let error = Error::value("probe", "write");
    assert_eq!(subject.layer.outcome(&subject.value()), Some(Err(error)));
}

fn saved_for_backward(subject: &Subject) {
    // An op that no layer holds back anything of.
    let value = subject.value();
    let kept = subject.layer.saved_for_backward(&Op::Copy, 0, &value);
    assert_eq!(subject.maker(&kept), "saved_for_backward");
    assert!((subject.carries)(&*subject.layer, &kept), "what the value carries is lost");
    assert_eq!(kept.ty(), value.ty());
}

fn mixes_precision(subject: &Subject) {
    assert!(subject.layer.mixes_precision());
}

fn submit(subject: &Subject) {
    subject.layer.submit();
}

fn sync(subject: &Subject) {
    assert_eq!(block_on(subject.layer.sync()), Err(Error::value("probe", "synced")));
}

fn memory(subject: &Subject) {
    let usage = subject.layer.memory().map(Memory::usage);
    assert_eq!(usage.map(|usage| usage.live_bytes), Some(4711));
}

fn explain(subject: &Subject) {
    assert_eq!(subject.layer.explain(&subject.value()).as_deref(), Some("made by write"));
}

#[test]
fn every_layer_forwards_every_optional_method() {
    for subject in subjects() {
        let below = subject.layer.below().unwrap_or_else(|| panic!("{} names nothing below", subject.name));
        assert!(below.find::<Probe>().is_some(), "{}", subject.name);
        for row in ROWS {
            subject.probe.calls.lock().unwrap().clear();
            println!("{} of {}", row.method, subject.name);
            (row.check)(&subject);
            let arrived = subject.probe.calls.lock().unwrap().contains(&row.method);
            // This layer itself mixes precision.
            let answers_itself = (subject.name, row.method) == ("Autocast", "mixes_precision");
            assert!(arrived || answers_itself, "{} keeps `{}` to itself", subject.name, row.method);
        }
    }
}

#[test]
fn layers_lower_and_rewrap_values_with_their_attachments() {
    for subject in subjects() {
        let (layer, name) = (&*subject.layer, subject.name);
        let value = subject.value();
        assert!((subject.carries)(layer, &value), "{name}");
        let inside = layer.lower(value.clone());
        assert_eq!(Probe::maker(&inside), "write", "{name}");
        let other = subject.probe.write(TensorData::zeros(*inside.ty()));
        let again = layer.rewrap(&value, other.clone());
        assert!((subject.carries)(layer, &again) && layer.lower(again.clone()).same(&other), "{name}");
        assert_eq!(again.ty(), value.ty(), "{name}");
        // A value that is already inside the layer is returned unchanged.
        let same = layer.rewrap(&value, inside.clone());
        assert!(same.same(&value), "{name}");
        // A value of the probe is one of the layer.
        assert!(layer.lower(layer.lift(inside.clone())).same(&inside), "{name}");
    }
}

/// The optional methods of the trait, by its text: those with a body.
fn optional_methods() -> BTreeSet<&'static str> {
    let text = include_str!("../../ir/src/engine.rs");
    let start = text.find("pub trait Engine").expect("the trait is there");
    let body = &text[start..start + text[start..].find("\n}\n").expect("it ends")];
    let methods = body.split("\n    fn ").skip(1);
    // The signature ends with the first `{` of a body, or with a `;`.
    let optional =
        methods.filter(|method| method.find([';', '{']).is_some_and(|end| method[end..].starts_with('{')));
    optional.map(|method| method.split('(').next().unwrap_or(method)).collect()
}

#[test]
fn every_optional_method_has_a_test_row() {
    let rows: BTreeSet<&str> =
        ROWS.iter().map(|row| row.method).chain(OF_THE_LAYER.iter().copied()).collect();
    assert_eq!(rows, optional_methods(), "a method of `Engine` and the rows of this test differ");
}
