//! A layer that counts ops and their time.

use kiln::ir::{BoxFuture, Caps, Engine, Op, Operands, Result, TensorType, Value, Values};
use kiln::{Backend, Stack, TensorData};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A layer that counts the ops that pass, and the time until the engine below has taken each.
///
/// It changes no value, so that it says nothing of values: all methods but these five come from the engine below.
pub struct Profile {
    inner: Arc<dyn Engine>,
    times: Mutex<BTreeMap<String, (u64, Duration)>>,
}

/// The calls of one op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpTime {
    /// The op's name.
    pub name: String,
    /// How often it ran.
    pub calls: u64,
    /// The time of all calls.
    pub time: Duration,
}

impl Profile {
    /// The layer around an engine.
    pub fn new(inner: Arc<dyn Engine>) -> Profile {
        Profile { inner, times: Mutex::default() }
    }

    /// All ops that passed, the most costly first.
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

/// The layer as a backend around another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Profiled<B>(PhantomData<B>);

impl<B: Backend> Backend for Profiled<B> {
    type Device = B::Device;

    fn stack(device: &B::Device) -> Stack {
        B::stack(device).layered("profile", (), |engine| Arc::new(Profile::new(engine)))
    }

    fn device(stack: &Stack) -> B::Device {
        B::device(stack.below().unwrap_or(stack))
    }
}
