//! Causal attention in bf16.

use super::{Gpu, GpuDevice, Tape, normal, repeated};
use bench_protocol::Prepared;
use bench_protocol::gpu::ATTENTION;
use kiln::module::{AttentionOptions, Causal, attention};
use kiln::{DType, Tensor};

const OPTIONS: AttentionOptions = AttentionOptions { scale: None, causal: Causal::First };

pub(crate) fn forward(device: &GpuDevice, rounds: usize) -> Prepared {
    let [q, k, v] = [(); 3].map(|()| normal::<Gpu, 4>(ATTENTION, DType::BF16, device));
    repeated(rounds, move || attention(q.clone(), k.clone(), v.clone(), None, OPTIONS))
}

/// Forward and backward.
pub(crate) fn backward(device: &GpuDevice, rounds: usize) -> Prepared {
    let [q, k, v] = [(); 3].map(|()| normal::<Tape, 4>(ATTENTION, DType::BF16, device).require_grad());
    let gradient = normal::<Gpu, 4>(ATTENTION, DType::BF16, device);
    repeated(rounds, move || {
        let y: Tensor<Tape, 4> = attention(q.clone(), k.clone(), v.clone(), None, OPTIONS);
        let gradients = y.try_backward_from(gradient.clone()).unwrap_or_else(|error| panic!("{error}"));
        let [gq, gk, gv] = [&q, &k, &v].map(|x| x.grad(&gradients).expect("it requires a gradient"));
        // Something of each, so that all three are computed.
        let corner = |x: Tensor<Gpu, 4>| x.slice([0..1, 0..1, 0..1, 0..1]);
        corner(gq) + corner(gk) + corner(gv)
    })
}
