//! Float8 matmuls by a library with the layout constraints of cuBLASLt: operands are converted to them.

use crate::host::driver::{Host, Multiplies};
use kiln_gpu::Gpu;
use kiln_ir::{Axes, DType, Engine, Float8, Op, SliceAxis, TensorData, TensorType, Var, block_on};
use kiln_reference::Reference;
use kiln_suite::case::Fill;
use kiln_suite::fill::{Random, filled};

/// `[batch, rows, inner]` by `[batch, inner, columns]`, each optionally transposed in memory.
fn product(engine: &dyn Engine, sizes: [usize; 4], formats: [Float8; 2], turned: [bool; 2]) -> TensorData {
    let [batch, rows, inner, columns] = sizes;
    let mut random = Random::new("float8", (rows * inner * columns) as u64);
    let mut factor = |which: usize, [down, across]: [usize; 2]| {
        let shape = if turned[which] { [batch, across, down] } else { [batch, down, across] };
        let bits = filled(TensorType::new(shape, DType::U8), Fill::halves(formats[which]), &mut random);
        let bits = Var::new(engine, engine.write(bits));
        if turned[which] { bits.apply(Op::Permute(Axes::new(&[0, 2, 1])), &[]) } else { bits }
    };
    let (a, b) = (factor(0, [rows, inner]), factor(1, [inner, columns]));
    // A separate scale, and a scale from a larger tensor.
    let scales = Var::new(engine, engine.write(TensorData::from([9.0f32, 9.0, 9.0, 0.5])));
    let second = Var::new(engine, engine.write(TensorData::scalar(4.0f32)));
    let first = scales.slice_axis(0, SliceAxis { start: 3, len: 1, step: 1 }).reshape([]);
    let op = Op::MatMulFloat8 { formats, dtype: DType::BF16 };
    let y = a.apply(op, &[&b, &first, &second]);
    block_on(engine.read(y.into_value())).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn library_float8_matmuls_support_any_size_and_layout() {
    use Float8::{E4M3, E5M2};
    let Some(driver) = Host::open() else { return };
    let gpu = Gpu::new(driver.multiplying(Multiplies::Finished), kiln_ir::MemoryConfig::new());
    let reference = Reference::new();
    gpu.trace(true);
    for sizes in [[1, 4, 16, 16], [1, 1, 32, 48], [2, 17, 19, 23], [3, 5, 48, 7]] {
        for formats in [[E4M3, E4M3], [E5M2, E4M3], [E5M2, E5M2]] {
            for turned in [[false, true], [false, false], [true, false], [true, true]] {
                let actual = product(&gpu, sizes, formats, turned);
                let expected = product(&reference, sizes, formats, turned);
                assert_eq!(
                    actual.to_vec::<f64>(),
                    expected.to_vec::<f64>(),
                    "{sizes:?} {formats:?} {turned:?}"
                );
                let by_library = gpu.traced().iter().any(|step| step.name.contains(formats[0].name()));
                assert_eq!(by_library, formats != [E5M2; 2], "{sizes:?} {formats:?} {turned:?}");
            }
        }
    }
}
