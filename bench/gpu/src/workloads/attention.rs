//! Causal attention in bf16.

use super::{Gpu, GpuDevice, Tape, normal, repeated, repeated_all, with_gradients};
use bench_protocol::Prepared;
use bench_protocol::gpu::ATTENTION;
use kiln::module::{AttentionOptions, Causal, attention};
use kiln::DType;

const OPTIONS: AttentionOptions = AttentionOptions { scale: None, causal: Causal::First };

pub(crate) fn forward(device: &GpuDevice, rounds: usize) -> Prepared {
    let [q, k, v] = [(); 3].map(|()| normal::<Gpu, 4>(ATTENTION, DType::BF16, device));
    repeated(rounds, move || attention(q.clone(), k.clone(), v.clone(), None, OPTIONS))
}

/// Forward and backward.
pub(crate) fn backward(device: &GpuDevice, rounds: usize) -> Prepared {
    let [q, k, v] = [(); 3].map(|()| normal::<Tape, 4>(ATTENTION, DType::BF16, device).require_grad());
    let gradient = normal::<Gpu, 4>(ATTENTION, DType::BF16, device);
    repeated_all(rounds, move || {
        let y = attention(q.clone(), k.clone(), v.clone(), None, OPTIONS);
        with_gradients(y, &gradient, &[&q, &k, &v].map(|x| x.clone().into_any()))
    })
}
