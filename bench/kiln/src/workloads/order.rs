//! Sorting.

use super::{first, normal};
use bench_protocol::Prepared;
use bench_protocol::shapes::SORTED;
use kiln::Backend;

pub(crate) fn sort<B: Backend>(device: &B::Device) -> Prepared {
    let x = normal::<B, 1>([SORTED], device);
    Prepared::new(move || {
        let (values, indices) = x.clone().sort_with_indices(0);
        Ok(first(&values)? + first(&indices)?)
    })
}
