//! Single operations.

use crate::{first, normal};
use bench_protocol::random::Random;
use bench_protocol::shapes::{
    ADDITIONS, ATTENTION, CHAIN, Conv, GATHERED, MAXPOOL, ROWS, SORTED, SQUARE, TABLE, matmul as operands,
};
use bench_protocol::{Prepared, Result, unknown};
use burn::tensor::module::{attention, conv2d, layer_norm, max_pool2d};
use burn::tensor::ops::{ConvOptions, MaxPoolOptions};
use burn::tensor::{Device, Int, Tensor, activation};
use std::f64::consts::FRAC_1_SQRT_2;

pub(crate) fn matmul(workload: &str, device: &Device) -> Result<Prepared> {
    let (a, b) = operands(workload).ok_or_else(|| unknown(workload))?;
    let (a, b) = (normal(a, device), normal(b, device));
    if a.dims()[0] > 1 {
        return Ok(Prepared::new(move || first(a.clone().matmul(b.clone()))));
    }
    let (a, b) = (a.squeeze_dim::<2>(0), b.squeeze_dim::<2>(0));
    Ok(Prepared::new(move || first(a.clone().matmul(b.clone()))))
}

pub(crate) fn conv(workload: &str, device: &Device) -> Result<Prepared> {
    let conv = Conv::named(workload).ok_or_else(|| unknown(workload))?;
    let (x, weight) = (normal(conv.input(), device), normal(conv.weight(), device));
    let options = ConvOptions::new([conv.stride; 2], [conv.padding; 2], [1; 2], conv.groups);
    Ok(Prepared::new(move || first(conv2d(x.clone(), weight.clone(), None, options.clone()))))
}

pub(crate) fn maxpool(device: &Device) -> Prepared {
    let x = normal(MAXPOOL, device);
    let options = MaxPoolOptions { stride: [2; 2], padding: [(1, 1); 2], ..MaxPoolOptions::new([3; 2]) };
    Prepared::new(move || first(max_pool2d(x.clone(), options.clone())))
}

pub(crate) fn gelu_chain(device: &Device) -> Prepared {
    let x = normal([CHAIN], device);
    Prepared::new(move || first(x.clone() * ((x.clone() * FRAC_1_SQRT_2).erf() + 1.0) * 0.5))
}

pub(crate) fn fused_chain(device: &Device) -> Prepared {
    let [a, b, c, d] = [(); 4].map(|()| normal([CHAIN], device));
    Prepared::new(move || {
        let inner = (a.clone() * b.clone() + c.clone()).tanh();
        first((inner * d.clone() - a.clone()).exp())
    })
}

pub(crate) fn softmax(device: &Device) -> Prepared {
    let x = normal(ROWS, device);
    Prepared::new(move || first(activation::softmax(x.clone(), 1)))
}

pub(crate) fn layernorm(device: &Device) -> Prepared {
    let x = normal(ROWS, device);
    let (weight, bias) = (Tensor::<1>::ones([ROWS[1]], device), Tensor::<1>::zeros([ROWS[1]], device));
    Prepared::new(move || first(layer_norm(x.clone(), weight.clone(), Some(bias.clone()), 1e-5)))
}

pub(crate) fn cumsum(device: &Device) -> Prepared {
    let x = normal(ROWS, device);
    Prepared::new(move || first(x.clone().cumsum(1)))
}

pub(crate) fn sum_all(device: &Device) -> Prepared {
    let x = normal(SQUARE, device);
    Prepared::new(move || first(x.clone().sum()))
}

pub(crate) fn sum_dim0(device: &Device) -> Prepared {
    let x = normal(SQUARE, device);
    Prepared::new(move || first(x.clone().sum_dim(0)))
}

/// Flattening a transposed matrix has to copy it.
pub(crate) fn transpose_copy(device: &Device) -> Prepared {
    let x = normal(SQUARE, device);
    Prepared::new(move || first(x.clone().transpose().reshape([SQUARE[0] * SQUARE[1]])))
}

pub(crate) fn gather_rows(device: &Device) -> Prepared {
    let table = normal(TABLE, device);
    let rows: Vec<i32> =
        Random::new(7).indices(GATHERED, TABLE[0] as u32).into_iter().map(|row| row as i32).collect();
    let rows = Tensor::<1, Int>::from_data(rows.as_slice(), device);
    Prepared::new(move || first(table.clone().select(0, rows.clone())))
}

pub(crate) fn sort(device: &Device) -> Prepared {
    let x = normal([SORTED], device);
    Prepared::new(move || {
        let (values, indices) = x.clone().sort_with_indices(0);
        Ok(first(values)? + indices.narrow(0, 0, 1).try_into_scalar::<i64>()? as f64)
    })
}

pub(crate) fn attention_forward(device: &Device) -> Prepared {
    let [q, k, v] = [(); 3].map(|()| normal(ATTENTION, device));
    Prepared::new(move || first(attention(q.clone(), k.clone(), v.clone(), None, None, Default::default())))
}

pub(crate) fn overhead(device: &Device) -> Prepared {
    let x = normal([1], device);
    let repeat = move || {
        let mut y = x.clone();
        for _ in 0..ADDITIONS {
            y = y + x.clone();
        }
        first(y)
    };
    Prepared::new(repeat).with_operations(ADDITIONS)
}
