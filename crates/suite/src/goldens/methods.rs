//! Methods, by the rows of the method tables: the op is the key of a row, and the inputs are its operands in order.

use super::call::{Call, Outputs};
use crate::methods::{Method, all};
use kiln_ir::DType;
use std::collections::BTreeMap;
use std::sync::LazyLock;

static ROWS: LazyLock<BTreeMap<String, Method>> =
    LazyLock::new(|| all().into_iter().map(|method| (method.key(), method)).collect());

/// The dtype of the intermediates of the method of a key, if it is not that of the result. `None` for unknown keys.
pub(crate) fn intermediate_dtype(key: &str) -> Option<DType> {
    ROWS.get(key)?.intermediate_dtype
}

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let Some(row) = ROWS.get(&call.op) else { panic!("no row of the method tables has the key {}", call.op) };
    let operands: Vec<_> = call.inputs.iter().map(|name| call.input(name).clone()).collect();
    let results = (row.call)(&operands).unwrap_or_else(|error| panic!("{error}"));
    Ok(results.into_iter().map(Some).collect())
}
