//! Attention without a mask, or causal.

use super::{input, repeated};
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use kiln::Backend;
use kiln::module::{AttentionOptions, Causal, attention};

pub(crate) fn forward<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    let options = options(row)?;
    let (q, k, v) = (input::<B, 4>(row, "x", device)?, input(row, "x", device)?, input(row, "x", device)?);
    repeated(row, move || attention(q.clone(), k.clone(), v.clone(), None, options))
}

pub(super) fn options(row: &Row) -> Result<AttentionOptions> {
    let causal = if row.size("causal")? == 1 { Causal::First } else { Causal::No };
    Ok(AttentionOptions { scale: None, causal })
}
