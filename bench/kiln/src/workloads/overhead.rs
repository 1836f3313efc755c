//! The overhead of an operation: chained additions of one element.

use super::{first, normal};
use crate::backend::Eager;
use bench_protocol::shapes::ADDITIONS;
use bench_protocol::{Prepared, Refusal, Result};
use kiln::Backend;
use std::any::TypeId;

/// On the eager backend.
pub(crate) fn eager() -> Prepared {
    additions::<Eager>(&Default::default())
}

/// On a backend with fusion.
pub(crate) fn fused<B: Backend>(device: &B::Device) -> Result<Prepared> {
    if TypeId::of::<B>() == TypeId::of::<Eager>() {
        return Err(Refusal::Unsupported("the chosen backend is eager".to_owned()));
    }
    Ok(additions::<B>(device))
}

fn additions<B: Backend>(device: &B::Device) -> Prepared {
    let x = normal::<B, 1>([1], device);
    let repeat = move || {
        let mut y = x.clone();
        for _ in 0..ADDITIONS {
            y = y + &x;
        }
        first(&y)
    };
    Prepared::new(repeat).with_operations(ADDITIONS)
}
