//! Single operations.

use crate::{first, normal, wait};
use bench_protocol::vulkan::{ATTENTION, CHAIN, ROWS};
use bench_protocol::{Prepared, failed};
use burn::tensor::module::{attention, layer_norm};
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{DType, Device, Tensor, activation};
use std::f64::consts::FRAC_1_SQRT_2;

pub(crate) fn matmul(size: usize, dtype: DType, device: &Device, rounds: usize) -> Prepared {
    let [a, b] = [(); 2].map(|()| normal([size, size], dtype, device));
    together(rounds, device, move || a.clone().matmul(b.clone()))
}

/// `x (erf(x / √2) + 1) / 2`.
pub(crate) fn gelu(device: &Device, rounds: usize) -> Prepared {
    let x = normal([CHAIN], DType::F32, device);
    apart(rounds, device, move || x.clone() * ((x.clone() * FRAC_1_SQRT_2).erf() + 1.0) * 0.5)
}

pub(crate) fn softmax(device: &Device, rounds: usize) -> Prepared {
    let x = normal(ROWS, DType::F32, device);
    apart(rounds, device, move || activation::softmax(x.clone(), 1))
}

pub(crate) fn layernorm(device: &Device, rounds: usize) -> Prepared {
    let x = normal(ROWS, DType::F32, device);
    let (weight, bias) = (Tensor::<1>::ones([ROWS[1]], device), Tensor::<1>::zeros([ROWS[1]], device));
    apart(rounds, device, move || layer_norm(x.clone(), weight.clone(), Some(bias.clone()), 1e-5))
}

pub(crate) fn sum(device: &Device, rounds: usize) -> Prepared {
    let x = normal(ROWS, DType::F32, device);
    apart(rounds, device, move || x.clone().sum())
}

/// Causal.
pub(crate) fn attention_forward(dtype: DType, device: &Device, rounds: usize) -> Prepared {
    let [q, k, v] = [(); 3].map(|()| normal(ATTENTION, dtype, device));
    together(rounds, device, move || {
        let options = AttentionModuleOptions { is_causal: true, ..Default::default() };
        attention(q.clone(), k.clone(), v.clone(), None, None, options)
    })
}

/// An operation that is done so many times in one repeat, and waited for once. All results live until then, so that all
/// of them are computed.
fn together<const D: usize>(
    rounds: usize,
    device: &Device,
    mut operation: impl FnMut() -> Tensor<D> + 'static,
) -> Prepared {
    let device = device.clone();
    let repeat = move || {
        let mut results: Vec<Tensor<D>> = (0..rounds).map(|_| operation()).collect();
        wait(&device)?;
        first(results.pop().ok_or_else(|| failed("there are no rounds"))?)
    };
    Prepared::new(repeat).with_operations(rounds)
}

/// The same, waited for each time: fusion would compute several of them in one kernel.
fn apart<const D: usize>(
    rounds: usize,
    device: &Device,
    mut operation: impl FnMut() -> Tensor<D> + 'static,
) -> Prepared {
    let device = device.clone();
    let repeat = move || {
        let mut last = operation();
        wait(&device)?;
        for _ in 1..rounds {
            last = operation();
            wait(&device)?;
        }
        first(last)
    };
    Prepared::new(repeat).with_operations(rounds)
}
