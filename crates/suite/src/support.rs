//! A table of the ops and dtypes that an engine supports.

use crate::case::Case;
use crate::cases;
use kiln_ir::{DType, Engine, Expand, OpKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Returns a table with a line for each op and a column for each dtype: `n`: native; `x`: expanded;
/// `-`: the engine lacks the dtype; blank: the op does not accept the dtype.
pub fn support_table(name: &str, engine: &dyn Engine) -> String {
    let dtypes = dtypes_of_ops();
    // The expand layer supports every op; its inner engine reports the native ones.
    let engine = engine.find::<Expand>().map_or(engine, |layer| &**layer.inner());
    let mut table = format!("{name}\n{:<16}", "");
    DType::ALL.iter().for_each(|dtype| write!(table, "{:>5}", dtype.name()).expect("text grows"));
    for kind in OpKind::ALL {
        write!(table, "\n{:<16}", format!("{kind:?}")).expect("text grows");
        for dtype in DType::ALL {
            let takes = dtypes.get(&kind).is_some_and(|set| set.contains(&dtype));
            let mark = match (takes, engine.caps().dtypes.contains(dtype)) {
                (false, _) => "",
                (true, false) => "-",
                (true, true) if engine.caps().native.contains(kind) => "n",
                (true, true) => "x",
            };
            write!(table, "{mark:>5}").expect("text grows");
        }
    }
    table
}

/// The operand and result dtypes of each op, by the tables.
fn dtypes_of_ops() -> BTreeMap<OpKind, BTreeSet<DType>> {
    let mut dtypes: BTreeMap<OpKind, BTreeSet<DType>> = BTreeMap::new();
    for case in cases::all() {
        dtypes.entry(case.op.kind()).or_default().extend(main_dtype(&case));
    }
    dtypes
}

/// The dtype of the first tensor operand other than a condition, otherwise of the result.
fn main_dtype(case: &Case) -> Option<DType> {
    let operands = case.operand_types();
    let place = usize::from(case.op.kind() == OpKind::Select);
    let operand = operands.iter().skip(place).find_map(|kind| kind.tensor().map(|ty| ty.dtype));
    let result = || case.result_types().ok()?.first().map(|ty| ty.dtype);
    if case.op.kind() == OpKind::Random { result() } else { operand.or_else(result) }
}
