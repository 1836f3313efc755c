//! A layer that counts ops and measures their time.

use kiln::ir::{BoxFuture, Caps, Engine, Op, Operands, Result, TensorType, Value, Values};
use kiln::{Backend, Stack, TensorData};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A layer that counts the calls of each op and measures the time of [`Engine::execute`] in the engine below.
///
/// It leaves values unchanged, so it needs only five methods. All others forward to the engine below by default.
pub struct Profile {
    inner: Arc<dyn Engine>,
    times: Mutex<BTreeMap<String, (u64, Duration)>>,
}

/// The calls of one op: number and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpTime {
    /// Name of the op.
    pub name: String,
    /// Number of calls.
    pub calls: u64,
    /// Total time of all calls.
    pub time: Duration,
}

impl Profile {
    /// Wraps an engine.
    pub fn new(inner: Arc<dyn Engine>) -> Profile {
        Profile { inner, times: Mutex::default() }
    }

    /// The calls of each op, in descending order of time.
    pub fn times(&self) -> Vec<OpTime> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = times.iter();
        let mut rows: Vec<OpTime> =
            rows.map(|(name, &(calls, time))| OpTime { name: name.clone(), calls, time }).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.time));
        rows
    }
}

impl Engine for Profile {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&*self.inner)
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let start = Instant::now();
        let values = self.inner.execute(op, inputs, results);
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let (calls, time) = times.entry(op.name().to_owned()).or_default();
        *calls += 1;
        *time += start.elapsed();
        values
    }

    fn write(&self, data: TensorData) -> Value {
        self.inner.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.inner.read(value)
    }
}

/// A backend: the layer [`Profile`] around backend `B`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Profiled<B>(PhantomData<B>);

impl<B: Backend> Backend for Profiled<B> {
    type Device = B::Device;
    type FloatElem = B::FloatElem;
    type IntElem = B::IntElem;
    type BoolElem = B::BoolElem;

    fn stack(device: &B::Device) -> Stack {
        B::stack(device).layered("profile", (), |engine| Arc::new(Profile::new(engine)))
    }

    fn device(stack: &Stack) -> B::Device {
        B::device(stack.below().unwrap_or(stack))
    }
}
