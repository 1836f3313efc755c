//! Operations bound by memory bandwidth.

use super::{first, normal};
use bench_protocol::Prepared;
use bench_protocol::random::Random;
use bench_protocol::shapes::{GATHERED, SCATTERED, SQUARE, TABLE};
use kiln::{Backend, Int, Tensor};

pub(crate) fn sum_all<B: Backend>(device: &B::Device) -> Prepared {
    let x = normal::<B, 2>(SQUARE, device);
    Prepared::new(move || first(&x.clone().sum()))
}

pub(crate) fn sum_dim0<B: Backend>(device: &B::Device) -> Prepared {
    let x = normal::<B, 2>(SQUARE, device);
    Prepared::new(move || first(&x.clone().sum_dim(0)))
}

/// Flattening a transposed matrix has to copy it.
pub(crate) fn transpose_copy<B: Backend>(device: &B::Device) -> Prepared {
    let x = normal::<B, 2>(SQUARE, device);
    Prepared::new(move || {
        let y: Tensor<B, 1> = x.clone().transpose().reshape([SQUARE[0] * SQUARE[1]]);
        first(&y)
    })
}

pub(crate) fn gather_rows<B: Backend>(device: &B::Device) -> Prepared {
    let table = normal::<B, 2>(TABLE, device);
    let rows: Vec<i32> =
        Random::new(7).indices(GATHERED, TABLE[0] as u32).into_iter().map(|row| row as i32).collect();
    let rows = Tensor::<B, 1, Int>::from_data(rows, device);
    Prepared::new(move || first(&table.clone().select(0, rows.clone())))
}

pub(crate) fn scatter_add<B: Backend>(device: &B::Device) -> Prepared {
    let (count, places) = SCATTERED;
    let indices: Vec<i32> =
        Random::new(7).indices(count, places as u32).into_iter().map(|place| place as i32).collect();
    let indices = Tensor::<B, 1, Int>::from_data(indices, device);
    let values = normal::<B, 1>([count], device);
    Prepared::new(move || {
        let sums = Tensor::<B, 1>::zeros([places], &values.device());
        first(&sums.scatter(0, indices.clone(), values.clone()))
    })
}
