//! Causal attention.

use super::{Gpu, GpuDevice, Tape, normal, repeated, repeated_all, with_gradients};
use bench_protocol::Prepared;
use kiln::DType;
use kiln::module::{AttentionOptions, Causal, attention};

const OPTIONS: AttentionOptions = AttentionOptions { scale: None, causal: Causal::First };

/// `shape` is `[batch, heads, length, width]`.
pub(crate) fn forward(shape: [usize; 4], dtype: DType, device: &GpuDevice, rounds: usize) -> Prepared {
    let [q, k, v] = [(); 3].map(|()| normal::<Gpu, 4>(shape, dtype, device));
    repeated(rounds, move || attention(q.clone(), k.clone(), v.clone(), None, OPTIONS))
}

/// Forward and backward.
pub(crate) fn backward(shape: [usize; 4], dtype: DType, device: &GpuDevice, rounds: usize) -> Prepared {
    let [q, k, v] = [(); 3].map(|()| normal::<Tape, 4>(shape, dtype, device).require_grad());
    let gradient = normal::<Gpu, 4>(shape, dtype, device);
    repeated_all(rounds, move || {
        let y = attention(q.clone(), k.clone(), v.clone(), None, OPTIONS);
        with_gradients(y, &gradient, &[&q, &k, &v].map(|x| x.clone().into_any()))
    })
}
