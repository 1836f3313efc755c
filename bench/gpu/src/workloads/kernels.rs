//! The workloads of `cargo xtask bench kernels`: one or more for each file of hand-written CUDA
//! (`crates/gpu/src/native`).

use super::{Gpu, GpuDevice, first, normal, repeated, repeated_all, rows};
use crate::device::kernels;
use bench_protocol::random::Random;
use bench_protocol::{Prepared, Result, failed, unknown};
use kiln::module::{
    AttentionMask, AttentionOptions, ConvOptions, InterpolateMode, InterpolateOptions, PoolOptions,
    attention as attend, avg_pool2d, conv2d, interpolate, max_pool2d, max_pool2d_gradient,
};
use kiln::{Backend, Bool, DType, Int, Tensor, UpdateMode};
use std::time::Instant;

/// One repeat of a workload, which returns the milliseconds of an operation.
pub(crate) type Timed = Box<dyn FnMut() -> Result<f64>>;

/// The name of a workload, the file of its hand-written kernels, and its sizes.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) file: &'static str,
    pub(crate) shape: &'static str,
}

const fn row(name: &'static str, file: &'static str, shape: &'static str) -> Row {
    Row { name, file, shape }
}

/// All workloads, in the order they run.
pub(crate) const ROWS: &[Row] = &[
    row("take", "index.cu", "16384 rows of [50304, 768], f32"),
    row("gather", "index.cu", "[4096, 4096] of [4096, 4096], axis 1, f32"),
    row("scatter_add", "index.cu", "16384 rows into [50304, 768], f32"),
    row("put", "index.cu", "16384 rows into [50304, 768], f32"),
    row("sort", "sort.cu", "1 M, f32, with indices"),
    row("argsort", "sort.cu", "[1024, 4096], axis 1, f32"),
    row("top_k", "sort.cu", "50 of [64, 50257], f32"),
    row("cumsum_columns", "scan.cu", "[1024, 4096], axis 0, f32"),
    row("max_pool", "pool.cu", "[32, 64, 112, 112], 2 x 2, f32"),
    row("max_pool_gradient", "pool.cu", "[32, 64, 112, 112], 2 x 2, f32"),
    row("avg_pool", "pool.cu", "[32, 64, 112, 112], 2 x 2, f32"),
    row("resize", "resize.cu", "[16, 64, 112, 112] to 224 x 224, bilinear, f32"),
    row("rfft", "fft.cu", "256 x 4096, f32"),
    row("slim_1_f16", "slim.cu", "[1, 4096] [4096, 4096], f16"),
    row("slim_4_f16", "slim.cu", "[4, 4096] [4096, 4096], f16"),
    row("slim_1_f32", "slim.cu", "[1, 4096] [4096, 4096], f32"),
    row("slim_4_f32", "slim.cu", "[4, 4096] [4096, 4096], f32"),
    row("transpose_f16", "transpose.cu", "[4096, 4096] to channels last, f16; generated kernel"),
    row("pad_channels_f16", "pad_channels.cu", "[64, 3, 224, 224] to 8 channels, f16; generated kernels"),
    row("attention_few_rows_f32", "attention.cu", "[1, 8, 64, 64] of 8192 keys, f32"),
    row("attention_decode_bf16", "attention.cu", "1 query of 4096 keys, 8 x 32 heads of 128, bf16, mask"),
];

/// Makes the inputs of the workload with that name. `device` is [`GpuDevice::Native`] or [`GpuDevice::Blocks`].
pub(crate) fn prepare(workload: &str, device: &GpuDevice) -> Result<Timed> {
    Gpu::seed(device, 1);
    let prepared = match workload {
        "take" | "scatter_add" | "put" => rows_of_table(workload, device),
        "gather" => gather(device),
        "sort" | "argsort" | "top_k" => order(workload, device),
        "cumsum_columns" => cumsum_columns(device),
        "max_pool" | "max_pool_gradient" | "avg_pool" => pool(workload, device),
        "resize" => resize(device),
        "rfft" => rows::rfft([256, 4096], device, 50),
        "slim_1_f16" => slim(1, DType::F16, device),
        "slim_4_f16" => slim(4, DType::F16, device),
        "slim_1_f32" => slim(1, DType::F32, device),
        "slim_4_f32" => slim(4, DType::F32, device),
        "attention_few_rows_f32" => few_rows(device),
        "attention_decode_bf16" => decode(device),
        "transpose_f16" => return around_convolution([1, 4096, 64, 64], [8, 4096, 1, 1], device),
        "pad_channels_f16" => return around_convolution([64, 3, 224, 224], [64, 3, 7, 7], device),
        _ => return Err(unknown(workload)),
    };
    Ok(timed(prepared))
}

/// Milliseconds of an operation by the clock of the host, which waits once for all operations of a repeat.
fn timed(mut prepared: Prepared) -> Timed {
    Box::new(move || -> Result<f64> {
        let start = Instant::now();
        prepared.repeat()?;
        Ok(start.elapsed().as_secs_f64() * 1e3 / prepared.operations())
    })
}

/// Milliseconds on the device of the steps around a library's convolution, without it.
fn around_convolution(x: [usize; 4], weight: [usize; 4], device: &GpuDevice) -> Result<Timed> {
    let [x, weight] = [x, weight].map(|shape| normal::<Gpu, 4>(shape, DType::F16, device));
    let options = ConvOptions::new([1; 2], [0; 2], [1; 2], 1);
    let engine = kernels(*device == GpuDevice::Native)?;
    let device = *device;
    Ok(Box::new(move || -> Result<f64> {
        Gpu::sync(&device)?;
        engine.trace(true);
        let y = conv2d(x.clone(), weight.clone(), None, &options);
        y.as_any().stack().engine().submit();
        let waited = Gpu::sync(&device);
        let steps = engine.traced();
        engine.trace(false);
        waited?;
        let around = steps.iter().filter(|step| !step.name.starts_with("convolution"));
        let times: Option<Vec<f64>> = around.map(|step| step.ms).collect();
        times
            .filter(|times| !times.is_empty())
            .map(|times| times.iter().sum::<f64>())
            .ok_or_else(|| failed("no step around the convolution was timed"))
    }))
}

fn indices(count: usize, below: usize, device: &GpuDevice) -> Tensor<Gpu, 1, Int> {
    let drawn = Random::new(7).indices(count, below as u32);
    Tensor::from_data(drawn.into_iter().map(|index| index as i32).collect::<Vec<i32>>(), device)
}

/// An operation that consumes its operand, so that it is computed in place.
fn in_place<const D: usize>(
    rounds: usize,
    x: Tensor<Gpu, D>,
    mut operation: impl FnMut(Tensor<Gpu, D>) -> Tensor<Gpu, D> + 'static,
) -> Prepared {
    let mut kept = Some(x);
    let repeat = move || {
        let mut x = kept.take().ok_or_else(|| failed("an earlier repeat failed"))?;
        for _ in 0..rounds {
            x = operation(x);
            x.as_any().stack().engine().submit();
        }
        let read = first(x.as_any());
        kept = Some(x);
        read
    };
    Prepared::new(repeat).with_operations(rounds)
}

/// Rows of an embedding table, read or written.
fn rows_of_table(workload: &str, device: &GpuDevice) -> Prepared {
    let (rows, width, count) = (50_304, 768, 16_384);
    let table = normal::<Gpu, 2>([rows, width], DType::F32, device);
    let index = indices(count, rows, device);
    if workload == "take" {
        return repeated(50, move || table.clone().select(0, index.clone()));
    }
    let values = normal::<Gpu, 2>([count, width], DType::F32, device);
    let mode = if workload == "put" { UpdateMode::Set } else { UpdateMode::Add };
    in_place(50, table, move |table| table.put(0, index.clone(), values.clone(), mode))
}

fn gather(device: &GpuDevice) -> Prepared {
    let x = normal::<Gpu, 2>([4096, 4096], DType::F32, device);
    let index = indices(4096 * 4096, 4096, device).reshape([4096, 4096]);
    repeated(20, move || x.clone().gather(1, index.clone()))
}

fn order(workload: &str, device: &GpuDevice) -> Prepared {
    match workload {
        "sort" => {
            let x = normal::<Gpu, 1>([1 << 20], DType::F32, device);
            repeated_all(10, move || {
                let (values, indices) = x.clone().sort_with_indices(0);
                vec![values.into_any(), indices.into_any()]
            })
        }
        "argsort" => {
            let x = normal::<Gpu, 2>([1024, 4096], DType::F32, device);
            repeated_all(10, move || vec![x.clone().argsort(1).into_any()])
        }
        _ => {
            let x = normal::<Gpu, 2>([64, 50_257], DType::F32, device);
            repeated_all(20, move || {
                let (values, indices) = x.clone().topk_with_indices(50, 1);
                vec![values.into_any(), indices.into_any()]
            })
        }
    }
}

fn cumsum_columns(device: &GpuDevice) -> Prepared {
    let x = normal::<Gpu, 2>([1024, 4096], DType::F32, device);
    repeated(50, move || x.clone().cumsum(0))
}

fn pool(workload: &str, device: &GpuDevice) -> Prepared {
    let x = normal::<Gpu, 4>([32, 64, 112, 112], DType::F32, device);
    let options = PoolOptions::new([2, 2]);
    match workload {
        "max_pool" => repeated(20, move || max_pool2d(x.clone(), &options)),
        "avg_pool" => repeated(20, move || avg_pool2d(x.clone(), &options, false)),
        _ => {
            let gradient = normal::<Gpu, 4>([32, 64, 56, 56], DType::F32, device);
            repeated(20, move || max_pool2d_gradient(gradient.clone(), x.clone(), &options))
        }
    }
}

fn resize(device: &GpuDevice) -> Prepared {
    let x = normal::<Gpu, 4>([16, 64, 112, 112], DType::F32, device);
    let options = InterpolateOptions::new(InterpolateMode::Linear);
    repeated(20, move || interpolate(x.clone(), [224_usize, 224], options))
}

/// Products of few rows. Several operands take turns, so that neighbours are not joined and no matrix stays in the
/// cache.
fn slim(rows: usize, dtype: DType, device: &GpuDevice) -> Prepared {
    let operands = [(); 4].map(|()| {
        (normal::<Gpu, 2>([rows, 4096], dtype, device), normal::<Gpu, 2>([4096, 4096], dtype, device))
    });
    let mut turn = 0;
    repeated(48, move || {
        turn = (turn + 1) % operands.len();
        let (x, weight) = &operands[turn];
        x.clone().matmul(weight.clone())
    })
}

/// Attention whose rows alone do not occupy the device.
fn few_rows(device: &GpuDevice) -> Prepared {
    let q = normal::<Gpu, 4>([1, 8, 64, 64], DType::F32, device);
    let [k, v] = [(); 2].map(|()| normal::<Gpu, 4>([1, 8, 8192, 64], DType::F32, device));
    repeated(20, move || attend(q.clone(), k.clone(), v.clone(), None, AttentionOptions::default()))
}

/// Attention of the last token, with grouped queries and a mask.
fn decode(device: &GpuDevice) -> Prepared {
    let q = normal::<Gpu, 4>([8, 32, 1, 128], DType::BF16, device);
    let [k, v] = [(); 2].map(|()| normal::<Gpu, 4>([8, 8, 4096, 128], DType::BF16, device));
    let places = Tensor::<Gpu, 1, Int>::arange(0..4096, device);
    let last = Tensor::<Gpu, 1, Int>::from_ints([4095], device).expand([4096]);
    let visible: Tensor<Gpu, 4, Bool> = places.lower_equal(last).reshape([1, 1, 1, 4096]);
    repeated(50, move || {
        let mask = Some(AttentionMask::Visible(visible.clone()));
        attend(q.clone(), k.clone(), v.clone(), mask, AttentionOptions::default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_file_has_a_workload() {
        for (place, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..place].iter().all(|other| other.name != row.name), "{}", row.name);
        }
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/gpu/src/native");
        for entry in std::fs::read_dir(folder).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            assert!(ROWS.iter().any(|row| row.file == file), "no workload of {file}");
        }
    }
}
