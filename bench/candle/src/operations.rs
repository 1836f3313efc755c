//! Single operations.

use crate::{first, input, normal};
use bench_protocol::random::Random;
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use candle_core::{D, DType, Device, Tensor};
use candle_nn::ops;

pub(crate) fn matmul(row: &Row) -> Result<Prepared> {
    let operand = |name| if row.operation == "bmm" { input::<3>(row, name) } else { input::<2>(row, name) };
    let (a, b) = (operand("a")?, operand("b")?);
    Ok(Prepared::new(move || first(&a.matmul(&b)?)))
}

pub(crate) fn conv(row: &Row) -> Result<Prepared> {
    let (x, weight) = (input::<4>(row, "x")?, input::<4>(row, "weight")?);
    let (stride, padding, groups) = (row.size("stride")?, row.size("padding")?, row.size("groups")?);
    Ok(Prepared::new(move || first(&x.conv2d(&weight, padding, stride, 1, groups)?)))
}

/// Windows of 3 by 3 with a stride of 2 and zeros around.
pub(crate) fn padded_maxpool(x: &Tensor) -> Result<Tensor> {
    let x = x.pad_with_zeros(2, 1, 1)?.pad_with_zeros(3, 1, 1)?;
    Ok(x.max_pool2d_with_stride(3, 2)?)
}

/// An operation of one operand with `N` dims.
pub(crate) fn unary<const N: usize>(
    row: &Row,
    operation: impl Fn(&Tensor) -> candle_core::Result<Tensor> + 'static,
) -> Result<Prepared> {
    let x = input::<N>(row, "x")?;
    Ok(Prepared::new(move || first(&operation(&x)?)))
}

/// candle pools without padding. Zeros do not change the maximum of numbers that are not negative.
pub(crate) fn max_pool(row: &Row) -> Result<Prepared> {
    let x = Tensor::rand(0f32, 1f32, &row.sizes::<4>("x")?[..], &Device::Cpu)?;
    Ok(Prepared::new(move || first(&padded_maxpool(&x)?)))
}

pub(crate) fn fused_chain(row: &Row) -> Result<Prepared> {
    let input = || input::<1>(row, "x");
    let (a, b, c, d) = (input()?, input()?, input()?, input()?);
    Ok(Prepared::new(move || {
        let inner = ((&a * &b)? + &c)?.tanh()?;
        first(&((inner * &d)? - &a)?.exp()?)
    }))
}

pub(crate) fn layernorm(row: &Row) -> Result<Prepared> {
    let x = input::<2>(row, "x")?;
    let width = x.dims()[1];
    let weight = Tensor::ones(width, DType::F32, &Device::Cpu)?;
    let bias = Tensor::zeros(width, DType::F32, &Device::Cpu)?;
    Ok(Prepared::new(move || first(&ops::layer_norm(&x, &weight, &bias, 1e-5)?)))
}

pub(crate) fn take(row: &Row) -> Result<Prepared> {
    let (table, count) = (input::<2>(row, "table")?, row.size("count")?);
    let rows = Random::new(7).indices(count, table.dims()[0] as u32);
    let rows = Tensor::from_vec(rows, count, &Device::Cpu)?;
    Ok(Prepared::new(move || first(&table.index_select(&rows, 0)?)))
}

pub(crate) fn sort(row: &Row) -> Result<Prepared> {
    let x = input::<1>(row, "x")?;
    Ok(Prepared::new(move || {
        let (values, indices) = x.sort_last_dim(true)?;
        Ok(first(&values)? + first(&indices)?)
    }))
}

pub(crate) fn attention(row: &Row) -> Result<Prepared> {
    let (q, k, v) = (input::<4>(row, "x")?, input::<4>(row, "x")?, input::<4>(row, "x")?);
    let scale = (q.dims()[3] as f64).powf(-0.5);
    Ok(Prepared::new(move || {
        let scores = (q.matmul(&k.transpose(D::Minus2, D::Minus1)?)? * scale)?;
        first(&ops::softmax_last_dim(&scores)?.matmul(&v)?)
    }))
}

pub(crate) fn overhead(row: &Row) -> Result<Prepared> {
    let (x, count) = (normal(1)?, row.size("count")?);
    let repeat = move || {
        let mut y = x.clone();
        for _ in 0..count {
            y = (y + &x)?;
        }
        first(&y)
    };
    Ok(Prepared::new(repeat).with_operations(count))
}

/// Loads all tensors and then reads every number of them once, so that reading cannot be put off.
pub(crate) fn load(file: &str) -> Prepared {
    let file = file.to_owned();
    Prepared::new(move || {
        let tensors = candle_core::safetensors::load(&file, &Device::Cpu)?;
        tensors.values().map(|tensor| first(&tensor.sum_all()?)).sum()
    })
}
