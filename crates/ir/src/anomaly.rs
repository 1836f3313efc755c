//! Detection of anomalies: the op that first returned NaN or infinity, on one thread.
//!
//! ```
//! use kiln_ir::{Engine, TensorData, Var, anomaly};
//! # use kiln_reference::Reference;
//! # use kiln_ir::Expand;
//!
//! let engine = Expand::new(Reference::new());
//! let found = anomaly::detect(|| {
//!     let x = Var::new(&engine, engine.write(TensorData::from([1.0f32, -1.0])));
//!     let _ = x.ln().exp();
//!     anomaly::found()
//! });
//! assert_eq!(found.unwrap().to_string(), "`ln` of f32[2] returned NaN");
//! ```

use crate::future::refusal;
use crate::{
    BoxFuture, Engine, Op, OperandType, Operands, TensorData, TensorType, Values, poisoned, profile,
    try_block_on,
};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;

/// An op that returned NaN or infinity though no op before it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// The name of the op.
    pub op: String,
    /// The types of its operands.
    pub operands: Vec<String>,
    /// Whether the result contains NaN. Otherwise it contains infinity.
    pub is_nan: bool,
    /// For NaN, the op that returned infinity before it, if any.
    pub infinity: Option<Box<Anomaly>>,
}

std::thread_local! {
    static FOUND: RefCell<Found> = const { RefCell::new(Found { nan: None, infinity: None }) };
}

/// The first anomalies of each kind.
#[derive(Default)]
struct Found {
    nan: Option<Anomaly>,
    infinity: Option<Anomaly>,
}

/// Runs a function, and reads the results of each op that it runs on this thread, to look for NaN and infinity:
/// [`found`] returns the first op inside `body`. The host waits for the device in each op, and nothing fuses. A
/// [profile](mod@profile) of the thread pauses.
pub fn detect<T>(body: impl FnOnce() -> T) -> T {
    FOUND.take();
    let result = profile::checking(body);
    FOUND.take();
    result
}

/// Returns the op that first returned NaN in this [`detect`], else the op that first returned infinity from finite
/// operands. Constants do not count. `None` outside of `detect`.
pub fn found() -> Option<Anomaly> {
    let infinity = FOUND.with_borrow(|found| found.infinity.clone());
    match FOUND.with_borrow(|found| found.nan.clone()) {
        Some(nan) => Some(Anomaly { infinity: infinity.map(Box::new), ..nan }),
        None => infinity,
    }
}

/// Runs an op and checks its results.
pub(crate) fn checked(engine: &dyn Engine, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
    let suspect = suspect(op, &inputs);
    let values = engine.execute(op, inputs, results);
    let Some(suspect) = suspect.filter(|_| !has_nan()) else { return values };
    for value in values.iter().filter(|value| value.dtype().is_float()) {
        match try_block_on(engine.read(value.clone())) {
            Some(Ok(data)) => check(&suspect, &data),
            // The error of a value is that of the program, which reads it.
            Some(Err(_)) => {}
            None => {
                let hint = "detect anomalies on a native platform, or on an engine of the processor";
                return poisoned(results, &refusal("the detection of anomalies", hint));
            }
        }
    }
    values
}

/// As [`checked`], for [`Engine::execute_async`].
pub(crate) fn checked_async<'e>(
    engine: &'e dyn Engine,
    op: &Op,
    inputs: Operands,
    results: &[TensorType],
) -> BoxFuture<'e, Values> {
    let suspect = suspect(op, &inputs);
    let inside = profile::inside();
    let started = engine.execute_async(op, inputs, results);
    drop(inside);
    let Some(suspect) = suspect else { return started };
    Box::pin(async move {
        let values = started.await;
        // The future may end outside of `detect`, where nothing is looked for.
        if !profile::is_checking() || has_nan() {
            return values;
        }
        for value in &values {
            if !value.dtype().is_float() {
                continue;
            }
            if let Ok(data) = engine.read(value.clone()).await {
                check(&suspect, &data);
            }
        }
        values
    })
}

/// The description of an op in an anomaly. `None` for constants, which do not count.
fn suspect(op: &Op, inputs: &Operands) -> Option<Anomaly> {
    if !inputs.iter().any(|operand| operand.value().is_some()) {
        return None;
    }
    let operands = OperandType::list(inputs).iter().map(ToString::to_string).collect();
    Some(Anomaly { op: op.name().to_string(), operands, is_nan: false, infinity: None })
}

/// Whether an op returned NaN: later results do not matter.
fn has_nan() -> bool {
    FOUND.with_borrow(|found| found.nan.is_some())
}

/// Records an anomaly if the data contains NaN or infinity.
fn check(suspect: &Anomaly, data: &TensorData) {
    if data.iter::<f64>().all(f64::is_finite) {
        return;
    }
    let is_nan = data.iter::<f64>().any(f64::is_nan);
    FOUND.with_borrow_mut(|found| {
        let place = if is_nan { &mut found.nan } else { &mut found.infinity };
        place.get_or_insert_with(|| Anomaly { is_nan, ..suspect.clone() });
    });
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = if self.is_nan { "NaN" } else { "infinity" };
        write!(f, "`{}` of {} returned {number}", self.op, self.operands.join(" and "))?;
        match &self.infinity {
            Some(infinity) => write!(f, ", after {infinity}"),
            None => Ok(()),
        }
    }
}
