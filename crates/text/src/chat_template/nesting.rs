//! Bounds on values that contain others many times: comparing, hashing and dropping them takes as long as they are big
//! when they are written out, and as much stack as they are deep. The engine does not count either.

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja::{filters, tests};

/// Values nested deeper are refused. It is the limit of `serde_json`.
const MAX_DEPTH: usize = 128;

/// The contained values that a unit of fuel pays for.
const VALUES_PER_UNIT: u64 = 2;

/// The bytes of contained text that a unit of fuel pays for.
const BYTES_PER_UNIT: u64 = 64;

/// Registers the functions that [`source`](super::source) adds, and bounds the filters and tests that compare, or make
/// text of lists.
pub(super) fn register(environment: &mut Environment<'static>) {
    environment.add_function("__bounded", bounded);
    environment.add_function("__stored", stored);
    environment.add_function("__all_bounded", all_bounded);
    let comparing_filters = [
        ("sort", Value::from_function(filters::sort)),
        ("unique", Value::from_function(filters::unique)),
        ("min", Value::from_function(filters::min)),
        ("max", Value::from_function(filters::max)),
        ("groupby", Value::from_function(filters::groupby)),
        ("dictsort", Value::from_function(filters::dictsort)),
    ];
    for (name, filter) in comparing_filters {
        environment.add_filter(name, move |state: &mut State<'_, '_>, args: Rest<Value>| {
            call(&filter, state, &args)
        });
    }
    let comparing_tests = [
        (&["eq", "equalto", "=="][..], Value::from_function(tests::is_eq)),
        (&["ne", "!="], Value::from_function(tests::is_ne)),
        (&["lt", "lessthan", "<"], Value::from_function(tests::is_lt)),
        (&["le", "<="], Value::from_function(tests::is_le)),
        (&["gt", "greaterthan", ">"], Value::from_function(tests::is_gt)),
        (&["ge", ">="], Value::from_function(tests::is_ge)),
        (&["in"], Value::from_function(tests::is_in)),
        (&["sameas"], Value::from_function(tests::is_sameas)),
        (&["lower"], Value::from_function(tests::is_lower)),
        (&["upper"], Value::from_function(tests::is_upper)),
        (&["startingwith"], Value::from_function(tests::is_startingwith)),
        (&["endingwith"], Value::from_function(tests::is_endingwith)),
    ];
    for (names, test) in comparing_tests {
        for name in names {
            let test = test.clone();
            environment.add_test(*name, move |state: &mut State<'_, '_>, args: Rest<Value>| {
                call(&test, state, &args).map(|answer| answer.is_true())
            });
        }
    }
}

/// Calls a function after a check of its arguments.
fn call(function: &Value, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
    args.iter().try_for_each(|value| check(state, value))?;
    function.call(state, args)
}

/// Returns the value, if it is not too big.
fn bounded(state: &State, value: Value) -> Result<Value, Error> {
    check(state, &value)?;
    Ok(value)
}

/// Returns the values, if they are not too big.
fn all_bounded(state: &State, values: Rest<Value>) -> Result<Vec<Value>, Error> {
    values.iter().try_for_each(|value| check(state, value))?;
    Ok(values.0)
}

/// Returns the value for a variable. What the engine computes when it is iterated over, such as a sum of lists, becomes
/// a list: its depth would be hidden.
fn stored(state: &State, value: Value) -> Result<Value, Error> {
    check(state, &value)?;
    Ok(if value.kind() == ValueKind::Iterable { value.try_iter()?.collect() } else { value })
}

/// Takes the fuel for the values and the text in a list or dict. The error says that it is nested too deeply, or that the
/// fuel does not suffice.
pub(super) fn check(state: &State, value: &Value) -> Result<(), Error> {
    if !is_container(value) {
        return Ok(());
    }
    let (_, fuel) = state.fuel_levels().unwrap_or((0, super::FUEL));
    let mut walk = Walk { spent: 0, limit: fuel.saturating_mul(VALUES_PER_UNIT) };
    let walked = walk.visit(value, 0);
    state.consume_fuel(walk.spent / VALUES_PER_UNIT)?;
    walked
}

fn is_container(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable)
}

struct Walk {
    /// In the part of a unit that a value costs.
    spent: u64,
    limit: u64,
}

impl Walk {
    fn visit(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let refused = |problem: String| Err(Error::new(ErrorKind::InvalidOperation, problem));
        if depth > MAX_DEPTH {
            return refused(format!("a value is nested deeper than the {MAX_DEPTH} levels allowed"));
        }
        let bytes = value.as_str().map_or(0, |text| text.len() as u64);
        self.spent += 1 + bytes / (BYTES_PER_UNIT / VALUES_PER_UNIT);
        if self.spent > self.limit {
            return refused("a value with all that it contains exceeds the limit of work".to_owned());
        }
        if !is_container(value) {
            return Ok(());
        }
        for item in value.try_iter()? {
            self.visit(&item, depth + 1)?;
            if value.kind() == ValueKind::Map {
                self.visit(&value.get_item(&item)?, depth + 1)?;
            }
        }
        Ok(())
    }
}
