//! Single operations.

use crate::{first, normal};
use bench_protocol::random::Random;
use bench_protocol::shapes::{
    ADDITIONS, ATTENTION, CHAIN, Conv, GATHERED, MAXPOOL, ROWS, SORTED, SQUARE, TABLE, matmul as operands,
};
use bench_protocol::{Prepared, Result, unknown};
use candle_core::{D, DType, Device, Tensor};
use candle_nn::ops;
use std::f64::consts::FRAC_1_SQRT_2;

pub(crate) fn matmul(workload: &str) -> Result<Prepared> {
    let (a, b) = operands(workload).ok_or_else(|| unknown(workload))?;
    let batched = a[0] > 1;
    let (a, b) = (normal(&a[..])?, normal(&b[..])?);
    let (a, b) = if batched { (a, b) } else { (a.squeeze(0)?, b.squeeze(0)?) };
    Ok(Prepared::new(move || first(&a.matmul(&b)?)))
}

pub(crate) fn conv(workload: &str) -> Result<Prepared> {
    let conv = Conv::named(workload).ok_or_else(|| unknown(workload))?;
    let (x, weight) = (normal(&conv.input()[..])?, normal(&conv.weight()[..])?);
    Ok(Prepared::new(move || first(&x.conv2d(&weight, conv.padding, conv.stride, 1, conv.groups)?)))
}

/// candle pools without padding. Zeros do not change the maximum of numbers that are not negative.
pub(crate) fn maxpool() -> Result<Prepared> {
    let x = Tensor::rand(0f32, 1f32, &MAXPOOL[..], &Device::Cpu)?;
    Ok(Prepared::new(move || first(&padded_maxpool(&x)?)))
}

/// Windows of 3 by 3 with a stride of 2 and zeros around.
pub(crate) fn padded_maxpool(x: &Tensor) -> Result<Tensor> {
    let x = x.pad_with_zeros(2, 1, 1)?.pad_with_zeros(3, 1, 1)?;
    Ok(x.max_pool2d_with_stride(3, 2)?)
}

pub(crate) fn gelu_chain() -> Result<Prepared> {
    let x = normal(CHAIN)?;
    Ok(Prepared::new(move || first(&((&x * ((&x * FRAC_1_SQRT_2)?.erf()? + 1.0)?)? * 0.5)?)))
}

pub(crate) fn fused_chain() -> Result<Prepared> {
    let (a, b, c, d) = (normal(CHAIN)?, normal(CHAIN)?, normal(CHAIN)?, normal(CHAIN)?);
    Ok(Prepared::new(move || {
        let inner = ((&a * &b)? + &c)?.tanh()?;
        first(&((inner * &d)? - &a)?.exp()?)
    }))
}

pub(crate) fn softmax() -> Result<Prepared> {
    let x = normal(&ROWS[..])?;
    Ok(Prepared::new(move || first(&ops::softmax_last_dim(&x)?)))
}

pub(crate) fn layernorm() -> Result<Prepared> {
    let x = normal(&ROWS[..])?;
    let weight = Tensor::ones(ROWS[1], DType::F32, &Device::Cpu)?;
    let bias = Tensor::zeros(ROWS[1], DType::F32, &Device::Cpu)?;
    Ok(Prepared::new(move || first(&ops::layer_norm(&x, &weight, &bias, 1e-5)?)))
}

pub(crate) fn cumsum() -> Result<Prepared> {
    let x = normal(&ROWS[..])?;
    Ok(Prepared::new(move || first(&x.cumsum(1)?)))
}

pub(crate) fn sum_all() -> Result<Prepared> {
    let x = normal(&SQUARE[..])?;
    Ok(Prepared::new(move || first(&x.sum_all()?)))
}

pub(crate) fn sum_dim0() -> Result<Prepared> {
    let x = normal(&SQUARE[..])?;
    Ok(Prepared::new(move || first(&x.sum(0)?)))
}

pub(crate) fn transpose_copy() -> Result<Prepared> {
    let x = normal(&SQUARE[..])?;
    Ok(Prepared::new(move || first(&x.t()?.contiguous()?)))
}

pub(crate) fn gather_rows() -> Result<Prepared> {
    let table = normal(&TABLE[..])?;
    let rows = Random::new(7).indices(GATHERED, TABLE[0] as u32);
    let rows = Tensor::from_vec(rows, GATHERED, &Device::Cpu)?;
    Ok(Prepared::new(move || first(&table.index_select(&rows, 0)?)))
}

pub(crate) fn sort() -> Result<Prepared> {
    let x = normal(SORTED)?;
    Ok(Prepared::new(move || {
        let (values, indices) = x.sort_last_dim(true)?;
        Ok(first(&values)? + first(&indices)?)
    }))
}

pub(crate) fn attention() -> Result<Prepared> {
    let (q, k, v) = (normal(&ATTENTION[..])?, normal(&ATTENTION[..])?, normal(&ATTENTION[..])?);
    let scale = (ATTENTION[3] as f64).powf(-0.5);
    Ok(Prepared::new(move || {
        let scores = (q.matmul(&k.transpose(D::Minus2, D::Minus1)?)? * scale)?;
        first(&ops::softmax_last_dim(&scores)?.matmul(&v)?)
    }))
}

pub(crate) fn overhead() -> Result<Prepared> {
    let x = normal(1)?;
    let repeat = move || {
        let mut y = x.clone();
        for _ in 0..ADDITIONS {
            y = (y + &x)?;
        }
        first(&y)
    };
    Ok(Prepared::new(repeat).with_operations(ADDITIONS))
}

/// Loads all tensors and then reads every number of them once, so that reading cannot be put off.
pub(crate) fn load(file: &str) -> Prepared {
    let file = file.to_owned();
    Prepared::new(move || {
        let tensors = candle_core::safetensors::load(&file, &Device::Cpu)?;
        tensors.values().map(|tensor| first(&tensor.sum_all()?)).sum()
    })
}
