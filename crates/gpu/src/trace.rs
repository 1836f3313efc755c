//! Profiling: the steps of a device and the time of each.

use crate::driver::{
    Argument, Attention, AttentionPass, Convolve, Driver, Fourier, FourierKind, Pass, Products, Step,
};
use kiln_ir::Shape;
use std::collections::HashMap;
use std::fmt::Write;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// One executed step of a device's queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Traced {
    /// The work of the step: the loop of a fused region with its lengths, a kernel entry point, or a library call.
    pub name: String,
    /// Thread blocks; 0 if a library chooses.
    pub blocks: usize,
    /// Bytes read, each once. Handwritten kernels count whole memory blocks, read or written.
    pub read: usize,
    /// Bytes written.
    pub written: usize,
    /// Floating-point operations of matmuls and convolutions; 0 for others.
    pub operations: f64,
    /// Milliseconds on the device, if it has a clock.
    pub ms: Option<f64>,
}

/// Properties of a step that are known before it runs.
#[derive(Clone)]
pub(crate) struct Label {
    pub(crate) name: String,
    pub(crate) read: usize,
    pub(crate) written: usize,
}

/// The steps of one device since the last report.
pub(crate) struct Trace {
    on: AtomicBool,
    /// Whether a table is printed at each synchronization.
    prints: bool,
    steps: Mutex<Vec<Traced>>,
}

impl Trace {
    /// Tracing as `KILN_PROFILE` sets it; off by default.
    pub(crate) fn from_environment() -> Trace {
        let prints = kiln_ir::switch("KILN_PROFILE", false);
        Trace { on: AtomicBool::new(prints), prints, steps: Mutex::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    pub(crate) fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    pub(crate) fn take(&self) -> Vec<Traced> {
        core::mem::take(&mut *self.steps.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn add(&self, steps: impl IntoIterator<Item = Traced>) {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner).extend(steps);
    }

    /// Prints the steps since the last report to standard error, if the environment enables it.
    pub(crate) fn report(&self, device: &str) {
        if !self.prints {
            return;
        }
        let steps = self.take();
        if !steps.is_empty() {
            eprintln!("{device}\n{}", table(&steps));
        }
    }
}

/// Formats a table of steps, one line per name, sorted by time, or by bytes moved if there are no times.
///
/// ```
/// let step = kiln_gpu::Traced {
///     name: "fill".into(), blocks: 0, read: 0, written: 4_000_000, operations: 0.0, ms: Some(0.001),
/// };
/// assert!(kiln_gpu::table(&[step]).contains("4000"));
/// ```
pub fn table(steps: &[Traced]) -> String {
    let mut lines: HashMap<(&str, usize), Line> = HashMap::new();
    for step in steps {
        let line = lines.entry((&step.name, step.blocks)).or_default();
        line.count += 1;
        line.megabytes[0] += step.read as f64 / 1e6;
        line.megabytes[1] += step.written as f64 / 1e6;
        line.operations += step.operations;
        line.ms += step.ms.unwrap_or(0.0);
    }
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_by(|(_, a), (_, b)| {
        let moved = |line: &Line| line.megabytes[0] + line.megabytes[1];
        b.ms.total_cmp(&a.ms).then(moved(b).total_cmp(&moved(a)))
    });
    let all = lines.iter().fold(Line::default(), |mut all, (_, line)| {
        all.count += line.count;
        all.ms += line.ms;
        all.operations += line.operations;
        all.megabytes = [all.megabytes[0] + line.megabytes[0], all.megabytes[1] + line.megabytes[1]];
        all
    });
    let mut text =
        String::from("       ms   steps    MB read  MB written     GB/s   TFLOP/s    blocks  step\n");
    lines.insert(0, (("in all", 0), all));
    for ((name, blocks), line) in lines {
        let [read, written] = line.megabytes;
        let per_s = |amount: f64| if line.ms > 0.0 { amount / line.ms } else { 0.0 };
        let _ = writeln!(
            text,
            "{:9.3} {:7} {read:10.1} {written:11.1} {:8.0} {:9.1} {blocks:9}  {name}",
            line.ms,
            line.count,
            per_s(read + written),
            per_s(line.operations / 1e9),
        );
    }
    text
}

/// The sum of the steps of one name.
#[derive(Clone, Copy, Default)]
struct Line {
    count: usize,
    /// Megabytes read and written.
    megabytes: [f64; 2],
    operations: f64,
    ms: f64,
}

/// The traced properties of a step. A kernel without a label counts the memory of its arguments.
pub(crate) fn traced<D: Driver>(driver: &D, step: &Step<D>, label: Option<Label>) -> Traced {
    let plain =
        |name: String, read, written| Traced { name, blocks: 0, read, written, operations: 0.0, ms: None };
    match step {
        Step::Launch { grid, arguments, .. } => {
            let label = label.unwrap_or_else(|| Label { name: "kernel".to_owned(), read: 0, written: 0 });
            let mut read = label.read;
            if label.read + label.written == 0 {
                let mut blocks: Vec<&D::Memory> = Vec::new();
                for argument in arguments {
                    if let Argument::Pointer(place) = argument
                        && !blocks.iter().any(|known| ptr::eq(*known, &*place.memory))
                    {
                        blocks.push(&place.memory);
                    }
                }
                read = blocks.into_iter().map(|memory| driver.size(memory)).sum();
            }
            Traced { blocks: grid.blocks, ..plain(label.name, read, label.written) }
        }
        Step::Fill { bytes, .. } => plain("fill".to_owned(), 0, *bytes),
        Step::Multiply(products) => of_products(products),
        Step::Convolve(convolve) => of_convolution(convolve),
        Step::Attend(attend) => of_attention(&attend.attention),
        Step::Transform(transform) => of_fourier(&transform.fourier),
    }
}

fn of_products<M>(products: &Products<M>) -> Traced {
    let Products { count, rows, columns, inner, dtype, result, float8, factors, epilogue, .. } = products;
    let format = |i: usize| float8.as_ref().map(|float8| float8.formats[i].name());
    let matrices = |i: usize| if factors[i].step == 0 { 1 } else { *count };
    let lies = |i: usize| if factors[i].transposed { "ᵀ" } else { "" };
    let bias = if epilogue.bias.is_some() { *columns } else { 0 };
    Traced {
        name: format!(
            "matmul {count} × {}[{rows}, {inner}]{} · {}[{inner}, {columns}]{} -> {result}{}",
            format(0).unwrap_or(dtype.name()),
            lies(0),
            format(1).unwrap_or_default(),
            lies(1),
            epilogue.form()
        ),
        blocks: 0,
        read: (matrices(0) * rows * inner + matrices(1) * inner * columns + bias) * dtype.size(),
        written: count * rows * columns * result.size(),
        operations: 2.0 * (count * rows * columns) as f64 * *inner as f64,
        ms: None,
    }
}

fn of_convolution<M>(convolve: &Convolve<M>) -> Traced {
    let convolution = &convolve.convolution;
    let (x, w, y) = (&convolution.x, &convolution.w, &convolution.y);
    let bytes = |shape: &Shape| shape.num_elements() * convolution.dtype.size();
    let (name, read, written) = match convolution.pass {
        Pass::Forward => ("convolution", bytes(x) + bytes(w), bytes(y)),
        Pass::Input => ("gradient of a convolution's input", bytes(w) + bytes(y), bytes(x)),
        Pass::Weight => ("gradient of a convolution's weight", bytes(x) + bytes(y), bytes(w)),
    };
    Traced {
        name: format!("{name} {} x {x} w {w} stride {:?}", convolution.dtype, convolution.stride),
        blocks: 0,
        read,
        written,
        operations: 2.0 * y.num_elements() as f64 * w[1..].iter().product::<usize>() as f64,
        ms: None,
    }
}

fn of_fourier(fourier: &Fourier) -> Traced {
    let Fourier { kind, dtype, points, count } = *fourier;
    let (half, whole) = (2 * (points / 2 + 1), 2 * points);
    let (name, read, written) = match kind {
        FourierKind::Complex { .. } => ("transform", whole, whole),
        FourierKind::FromReal => ("transform from real", points, half),
        FourierKind::ToReal => ("transform to real", half, points),
    };
    let work = if matches!(kind, FourierKind::Complex { .. }) { 5.0 } else { 2.5 };
    Traced {
        name: format!("{name} {dtype} {count} x {points}"),
        blocks: 0,
        read: read * count * dtype.size(),
        written: written * count * dtype.size(),
        operations: work * (count * points) as f64 * (points as f64).log2(),
        ms: None,
    }
}

fn of_attention(attention: &Attention) -> Traced {
    let Attention { pass, dtype, batch, heads, kv_heads, queries, keys, dim, dim_v, causal, .. } = attention;
    let q = batch * heads * queries * dim * dtype.size();
    let y = batch * heads * queries * dim_v * dtype.size();
    let kv = batch * kv_heads * keys * (dim + dim_v) * dtype.size();
    let sums = batch * heads * queries * size_of::<f32>();
    let product = 2.0 * (batch * heads * queries) as f64 * *keys as f64 * (dim + dim_v) as f64;
    // Causal attention skips half of the scores. The backward pass has five matmuls, the forward pass two.
    let (name, read, written, products) = match pass {
        AttentionPass::Forward => ("attention", q + kv, y + sums, 1.0),
        AttentionPass::Backward => ("gradients of attention", q + kv + 2 * y + sums, q + kv, 2.5),
    };
    let seen = if causal.is_some() { 0.5 } else { 1.0 };
    Traced {
        name: format!("{name} {dtype}[{batch}, {heads}/{kv_heads}, {queries}, {dim}] of {keys} keys"),
        blocks: 0,
        read,
        written,
        operations: product * products * seen,
        ms: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceInfo, DryDriver, Gpu};
    use kiln_ir::{DType, Engine, TensorData, Var};

    #[test]
    fn traced_steps_have_names_and_byte_counts() {
        let info = DeviceInfo {
            name: "dry".into(),
            model: String::new(),
            target: String::new(),
            memory: 1 << 30,
            multiprocessors: 100,
            ..DeviceInfo::absent("")
        };
        let driver = DryDriver::new(info, |_| Ok(Vec::new())).with_libraries();
        let gpu = Gpu::new(driver, kiln_ir::MemoryConfig::new());
        let write = |shape: [usize; 2]| {
            Var::new(&gpu, gpu.write(TensorData::zeros(kiln_ir::TensorType::new(shape, DType::F32))))
        };
        let (x, w) = (write([8, 16]), write([16, 4]));
        drop(x.matmul(&w));
        assert_eq!(gpu.traced(), [], "nothing is traced yet");
        gpu.trace(true);
        let y = x.matmul(&w);
        drop((&y + &y).exp());
        let steps = gpu.traced();
        let moved: Vec<_> = steps.iter().map(|step| (step.read, step.written)).collect();
        assert_eq!(moved, [((8 * 16 + 16 * 4) * 4, 8 * 4 * 4), (256, 128), (128, 128)], "{steps:?}");
        assert!(steps[0].name.starts_with("matmul 1 × f32[8, 16] · [16, 4]"), "{}", steps[0].name);
        assert_eq!(steps[0].operations, 2.0 * 8.0 * 16.0 * 4.0);
        assert!(steps[1].name.ends_with("| add"), "{}", steps[1].name);
        gpu.trace(false);
        drop(y);
        assert_eq!(gpu.traced(), []);
        assert!(table(&steps).contains("in all"));
    }
}
