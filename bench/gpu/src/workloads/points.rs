//! Distances of points, and counts.

use super::{Gpu, GpuDevice, normal, repeated, repeated_all};
use bench_protocol::Prepared;
use bench_protocol::gpu::{COUNTED, POINTS};
use bench_protocol::random::Random;
use kiln::{DType, Int, Tensor};

pub(crate) fn cdist(device: &GpuDevice, rounds: usize) -> Prepared {
    let [x, y] = [(); 2].map(|()| normal::<Gpu, 2>(POINTS, DType::F32, device));
    repeated(rounds, move || x.clone().cdist(y.clone(), 2.0))
}

/// Each waits for the device: the length of the result depends on the numbers.
pub(crate) fn bincount(device: &GpuDevice, rounds: usize) -> Prepared {
    let (count, different) = COUNTED;
    let numbers: Vec<i32> =
        Random::new(7).indices(count, different as u32).into_iter().map(|number| number as i32).collect();
    let numbers = Tensor::<Gpu, 1, Int>::from_data(numbers, device);
    repeated_all(rounds, move || vec![numbers.clone().bincount(0).into_any()])
}
