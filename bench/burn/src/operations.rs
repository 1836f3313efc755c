//! Single operations.

use crate::{first, input, normal, wait};
use bench_protocol::random::Random;
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result, failed};
use burn::tensor::module::{attention, conv2d, layer_norm};
use burn::tensor::ops::{AttentionModuleOptions, ConvOptions};
use burn::tensor::{Device, Int, Tensor};

/// An operation of one operand.
pub(crate) fn unary<const D: usize, const E: usize>(
    row: &Row,
    device: &Device,
    operation: impl Fn(Tensor<D>) -> Tensor<E> + 'static,
) -> Result<Prepared> {
    let x = input::<D>(row, "x", device)?;
    apart(row, device, move || operation(x.clone()))
}

pub(crate) fn matmul<const D: usize>(row: &Row, device: &Device) -> Result<Prepared> {
    let (a, b) = (input::<D>(row, "a", device)?, input::<D>(row, "b", device)?);
    together(row, device, move || a.clone().matmul(b.clone()))
}

pub(crate) fn conv(row: &Row, device: &Device) -> Result<Prepared> {
    let (x, weight) = (input(row, "x", device)?, input(row, "weight", device)?);
    let (stride, padding) = ([row.size("stride")?; 2], [row.size("padding")?; 2]);
    let options = ConvOptions::new(stride, padding, [1; 2], row.size("groups")?);
    together(row, device, move || conv2d(x.clone(), weight.clone(), None, options.clone()))
}

pub(crate) fn fused_chain(row: &Row, device: &Device) -> Result<Prepared> {
    let input = || input::<1>(row, "x", device);
    let (a, b, c, d) = (input()?, input()?, input()?, input()?);
    apart(row, device, move || {
        let inner = (a.clone() * b.clone() + c.clone()).tanh();
        (inner * d.clone() - a.clone()).exp()
    })
}

pub(crate) fn layernorm(row: &Row, device: &Device) -> Result<Prepared> {
    let x = input::<2>(row, "x", device)?;
    let width = x.dims()[1];
    let (weight, bias) = (Tensor::<1>::ones([width], device), Tensor::<1>::zeros([width], device));
    apart(row, device, move || layer_norm(x.clone(), weight.clone(), Some(bias.clone()), 1e-5))
}

/// Rows of a table.
pub(crate) fn take(row: &Row, device: &Device) -> Result<Prepared> {
    let table = input::<2>(row, "table", device)?;
    let rows = Random::new(7).integers(row.size("count")?, table.dims()[0]);
    let rows = Tensor::<1, Int>::from_data(rows.as_slice(), device);
    apart(row, device, move || table.clone().select(0, rows.clone()))
}

pub(crate) fn sort(row: &Row, device: &Device) -> Result<Prepared> {
    let x = input::<1>(row, "x", device)?;
    Ok(Prepared::new(move || {
        let (values, indices) = x.clone().sort_with_indices(0);
        Ok(first(values)? + indices.narrow(0, 0, 1).try_into_scalar::<i64>()? as f64)
    }))
}

pub(crate) fn attention_forward(row: &Row, device: &Device) -> Result<Prepared> {
    let (q, k, v) = (input(row, "x", device)?, input(row, "x", device)?, input(row, "x", device)?);
    let is_causal = row.size("causal")? == 1;
    together(row, device, move || {
        let options = AttentionModuleOptions { is_causal, ..Default::default() };
        attention(q.clone(), k.clone(), v.clone(), None, None, options)
    })
}

pub(crate) fn overhead(row: &Row, device: &Device) -> Result<Prepared> {
    let (x, count) = (normal([1], device), row.size("count")?);
    let repeat = move || {
        let mut y = x.clone();
        for _ in 0..count {
            y = y + x.clone();
        }
        first(y)
    };
    Ok(Prepared::new(repeat).with_operations(count))
}

/// An operation that is done `rounds` times in one repeat, and waited for once. All results live until then, so that all
/// of them are computed.
fn together<const D: usize>(
    row: &Row,
    device: &Device,
    mut operation: impl FnMut() -> Tensor<D> + 'static,
) -> Result<Prepared> {
    let (rounds, device) = (row.rounds, device.clone());
    if rounds == 1 {
        return apart(row, &device, operation);
    }
    let repeat = move || {
        let mut results: Vec<Tensor<D>> = (0..rounds).map(|_| operation()).collect();
        wait(&device)?;
        first(results.pop().ok_or_else(|| failed("there are no rounds"))?)
    };
    Ok(Prepared::new(repeat).with_operations(rounds))
}

/// The same, waited for each time: fusion would compute several of them in one kernel. A single round is waited for by
/// reading its result.
fn apart<const D: usize>(
    row: &Row,
    device: &Device,
    mut operation: impl FnMut() -> Tensor<D> + 'static,
) -> Result<Prepared> {
    let (rounds, device) = (row.rounds, device.clone());
    let repeat = move || {
        let mut last = operation();
        for _ in 1..rounds {
            wait(&device)?;
            last = operation();
        }
        if rounds > 1 {
            wait(&device)?;
        }
        first(last)
    };
    Ok(Prepared::new(repeat).with_operations(rounds))
}
