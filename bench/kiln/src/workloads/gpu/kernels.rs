//! The workloads of `cargo xtask bench kernels`: one or more for each file of hand-written CUDA
//! (`crates/gpu/src/native`).

use super::super::conv::window;
use super::super::memory::indices;
use super::{Gpu, GpuDevice, input, normal, repeated, repeated_all, shared, unary};
use crate::gpu::device::kernels;
use crate::workloads::first;
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result, failed};
use kiln::module::{
    AttentionMask, AttentionOptions, ConvOptions, InterpolateMode, InterpolateOptions, attention as attend,
    avg_pool2d, conv2d, interpolate, max_pool2d_gradient,
};
use kiln::{Backend, Bool, DType, Int, Tensor, UpdateMode};
use std::time::Instant;

/// One repeat of a workload, which returns the milliseconds of an operation.
pub(crate) type Timed = Box<dyn FnMut() -> Result<f64>>;

/// Makes the inputs of a workload. `device` is [`GpuDevice::Native`] or [`GpuDevice::Blocks`].
pub(crate) fn prepare(row: &'static Row, device: &GpuDevice) -> Result<Timed> {
    Gpu::seed(device, 1);
    let prepared = match row.operation {
        "argsort" => argsort(row, device),
        "around_conv" => return around_convolution(row, device),
        "attention_decode" => decode(row, device),
        "attention_few_rows" => few_rows(row, device),
        "avg_pool" => {
            let options = window(row)?;
            unary(row, device, move |x: Tensor<Gpu, 4>| avg_pool2d(x, &options, false))
        }
        "gather" => gather(row, device),
        "max_pool_gradient" => max_pool_gradient(row, device),
        "put" => put(row, device),
        "resize" => {
            let size = [row.size("size")?; 2];
            let options = InterpolateOptions::new(InterpolateMode::Linear);
            unary(row, device, move |x: Tensor<Gpu, 4>| interpolate(x, size, options))
        }
        "slim" => slim(row, device),
        "top_k" => top_k(row, device),
        _ => shared::<Gpu>(row, device),
    };
    Ok(timed(prepared?))
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
fn around_convolution(row: &Row, device: &GpuDevice) -> Result<Timed> {
    let (x, weight) = (input::<Gpu, 4>(row, "x", device)?, input::<Gpu, 4>(row, "weight", device)?);
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

/// Rows of an embedding table, written in place: the operation consumes its operand.
fn put(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    let (table, count, rounds) = (input::<Gpu, 2>(row, "table", device)?, row.size("count")?, row.rounds);
    let [rows, width] = table.dims();
    let index = indices::<Gpu>(count, rows, device);
    let values = normal::<Gpu, 2>([count, width], DType::F32, device);
    let mode = if row.text("mode")? == "set" { UpdateMode::Set } else { UpdateMode::Add };
    let mut kept = Some(table);
    let repeat = move || {
        let mut table = kept.take().ok_or_else(|| failed("an earlier repeat failed"))?;
        for _ in 0..rounds {
            table = table.put(0, index.clone(), values.clone(), mode);
            table.as_any().stack().engine().submit();
        }
        let read = first(table.as_any());
        kept = Some(table);
        read
    };
    Ok(Prepared::new(repeat).with_operations(rounds))
}

fn gather(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    let x = input::<Gpu, 2>(row, "x", device)?;
    let index = indices::<Gpu>(x.num_elements(), x.dims()[1], device).reshape(x.dims());
    repeated(row, move || x.clone().gather(1, index.clone()))
}

fn argsort(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    let x = input::<Gpu, 2>(row, "x", device)?;
    repeated_all(row, move || vec![x.clone().argsort(1).into_any()])
}

fn top_k(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    let (x, k) = (input::<Gpu, 2>(row, "x", device)?, row.size("k")?);
    repeated_all(row, move || {
        let (values, indices) = x.clone().topk_with_indices(k, 1);
        vec![values.into_any(), indices.into_any()]
    })
}

fn max_pool_gradient(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    let (x, options) = (input::<Gpu, 4>(row, "x", device)?, window(row)?);
    let ([n, c, h, w], [kernel, _]) = (x.dims(), options.window);
    let gradient = normal::<Gpu, 4>([n, c, h / kernel, w / kernel], DType::F32, device);
    repeated(row, move || max_pool2d_gradient(gradient.clone(), x.clone(), &options))
}

/// Products of few rows. Several operands take turns, so that neighbours are not joined and no matrix stays in the
/// cache.
fn slim(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    let operand = |_| Ok((input::<Gpu, 2>(row, "x", device)?, input::<Gpu, 2>(row, "weight", device)?));
    let operands = (0..4).map(operand).collect::<Result<Vec<_>>>()?;
    let mut turn = 0;
    repeated(row, move || {
        turn = (turn + 1) % operands.len();
        let (x, weight) = &operands[turn];
        x.clone().matmul(weight.clone())
    })
}

/// Attention whose rows alone do not occupy the device.
fn few_rows(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    let [q, k, v] = operands(row, device)?;
    repeated(row, move || attend(q.clone(), k.clone(), v.clone(), None, AttentionOptions::default()))
}

/// Attention of the last token, with grouped queries and a mask.
fn decode(row: &'static Row, device: &GpuDevice) -> Result<Prepared> {
    let [q, k, v] = operands(row, device)?;
    let count = k.dims()[2];
    let places = Tensor::<Gpu, 1, Int>::arange(0..count as i64, device);
    let last = Tensor::<Gpu, 1, Int>::from_ints([count as i32 - 1], device).expand([count]);
    let visible: Tensor<Gpu, 4, Bool> = places.lower_equal(last).reshape([1, 1, 1, count]);
    repeated(row, move || {
        let mask = Some(AttentionMask::Visible(visible.clone()));
        attend(q.clone(), k.clone(), v.clone(), mask, AttentionOptions::default())
    })
}

/// Queries, keys and values.
fn operands(row: &Row, device: &GpuDevice) -> Result<[Tensor<Gpu, 4>; 3]> {
    Ok([input(row, "q", device)?, input(row, "keys", device)?, input(row, "keys", device)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench_protocol::workloads::of;

    #[test]
    fn names_are_unique_and_every_file_has_a_workload() {
        let rows: Vec<&Row> = of("kernels").collect();
        for (place, row) in rows.iter().enumerate() {
            assert!(rows[..place].iter().all(|other| other.name != row.name), "{}", row.name);
        }
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/gpu/src/native");
        for entry in std::fs::read_dir(folder).unwrap() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            assert!(rows.iter().any(|row| row.text("file").unwrap() == file), "no workload of {file}");
        }
    }
}
