//! The overhead of an operation: chained additions of one element.

use super::{first, normal};
use crate::backend::Eager;
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Refusal, Result};
use kiln::{Backend, DType};
use std::any::TypeId;

/// On a backend with fusion.
pub(crate) fn fused<B: Backend>(row: &Row, device: &B::Device) -> Result<Prepared> {
    if TypeId::of::<B>() == TypeId::of::<Eager>() {
        return Err(Refusal::Unsupported("the chosen backend is eager".to_owned()));
    }
    additions::<B>(row, device)
}

pub(super) fn additions<B: Backend>(row: &Row, device: &B::Device) -> Result<Prepared> {
    let (x, count) = (normal::<B, 1>([1], DType::F32, device), row.size("count")?);
    let repeat = move || {
        let mut y = x.clone();
        for _ in 0..count {
            y = y + &x;
        }
        first(y.as_any())
    };
    Ok(Prepared::new(repeat).with_operations(count))
}
