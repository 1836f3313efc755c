//! Kernels of a graph read the previous kernel's writes. All kernels reuse the same few memory blocks, and caches hold
//! older contents. Each kernel may begin before the previous one has ended (except with `KILN_OVERLAP=off`).

use crate::alone;
use kiln::{Cuda, CudaDevice, Int, Tensor, TensorData};

/// Repeats of a chain; the second one is recorded as a graph.
const REPEATS: usize = 12;

/// The kernels of a chain: each reads the results of the previous one, written by another multiprocessor.
const LINKS: i32 = 60;

/// Repeats a chain of kernels and reports failures.
fn repeats(what: &str, mut chain: impl FnMut(&CudaDevice, i32) -> Result<(), String>) {
    let device = CudaDevice::open(0).unwrap_or_else(|error| panic!("{error}"));
    let graphs = || kiln_cuda::shared(0).unwrap_or_else(|error| panic!("{error}")).graphs();
    let before = graphs().replayed;
    for repeat in 0..REPEATS as i32 {
        chain(&device, repeat).unwrap_or_else(|problem| panic!("{what}, repeat {repeat}: {problem}"));
    }
    let wanted = kiln_ir::switch("KILN_GRAPHS", true);
    assert!(!wanted || graphs().replayed > before, "{what}: nothing ran as a graph: {:?}", graphs());
}

/// All blocks of a kernel read one number, which the last block replaces by the mean of many copies of it, plus 1.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_block_reads_a_value_that_one_block_wrote() {
    let _alone = alone();
    for length in [1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20] {
        repeats(&format!("{length} times one number"), |device, repeat| {
            let ones = Tensor::<Cuda, 1>::ones([length], device);
            let start = Tensor::<Cuda, 1>::from_floats([repeat as f32], device);
            let end = (0..LINKS).fold(start, |number, _| (&ones * number).mean_dim(0) + 1.0);
            let (found, expected) = (end.into_scalar::<f32>(), (repeat + LINKS) as f32);
            // Both are integers, and all sums are exact.
            if found == expected { Ok(()) } else { Err(format!("{found}, and not {expected}")) }
        });
    }
}

/// Gathers by a permutation, so that blocks read elements of other blocks.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn gathers_read_elements_that_other_blocks_wrote() {
    let _alone = alone();
    for length in [33_i32, 1000, 5000, 40_000, 300_000] {
        // A prime stride: adjacent elements come from distant positions.
        let places: Vec<i32> =
            (0..length).map(|i| ((i64::from(i) * 7919 + 13) % i64::from(length)) as i32).collect();
        repeats(&format!("{length} numbers"), |device, repeat| {
            let start: Vec<i32> = (0..length).map(|i| i.wrapping_mul(31) + repeat).collect();
            let expected = (0..LINKS).fold(start.clone(), |state, link| {
                let number = |&place: &i32| state[place as usize].wrapping_mul(5).wrapping_add(link);
                places.iter().map(number).collect()
            });
            let index = Tensor::<Cuda, 1, Int>::from_data(TensorData::from(places.clone()), device);
            let start = Tensor::<Cuda, 1, Int>::from_data(TensorData::from(start), device);
            let end = (0..LINKS).fold(start, |state, link| state.select(0, index.clone()) * 5 + link);
            let found = end.into_data().to_vec::<i32>();
            match found.iter().zip(&expected).position(|(found, expected)| found != expected) {
                None => Ok(()),
                Some(at) => Err(format!("element {at} is {}, and not {}", found[at], expected[at])),
            }
        });
    }
}
