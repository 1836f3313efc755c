//! Attention without a mask.

use super::{first, normal};
use bench_protocol::Prepared;
use bench_protocol::shapes::ATTENTION;
use kiln::Backend;
use kiln::module::attention;

pub(crate) fn forward<B: Backend>(device: &B::Device) -> Prepared {
    let [q, k, v] = [(); 3].map(|()| normal::<B, 4>(ATTENTION, device));
    Prepared::new(move || first(&attention(q.clone(), k.clone(), v.clone(), None, Default::default())))
}
