//! Float8 matmuls on a GPU with float8 tensor cores, by the library, against the reference.

use crate::alone;
use kiln::float8;
use kiln::{Autodiff, Cuda, CudaDevice, Distribution, Tensor};
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{
    Axes, DType, Engine, Float8, Op, Operand, OperandType, Operands, TensorData, TensorType, Value, block_on,
    infer,
};
use kiln_suite::case::Fill;
use kiln_suite::engines::REFERENCE;
use kiln_suite::fill::{Random, filled};
use std::sync::Arc;

fn run(engine: &dyn Engine, op: &Op, operands: &[&Value]) -> Value {
    let types: Vec<OperandType<'_>> = operands.iter().map(|value| OperandType::Tensor(value.ty())).collect();
    let results = infer(op, &types).unwrap();
    let operands: Operands = operands.iter().map(|&value| Operand::Value(value.clone())).collect();
    engine.execute(op, operands, &results).remove(0)
}

fn numbers(engine: &dyn Engine, value: &Value) -> Vec<f64> {
    block_on(engine.read(value.clone())).unwrap_or_else(|error| panic!("{error}")).to_vec::<f64>()
}

/// Batch, rows, inner length and columns; whether the columns of the second factor are contiguous.
struct Case {
    sizes: [usize; 4],
    formats: [Float8; 2],
    dtype: DType,
    columns_inward: bool,
}

impl Case {
    fn operands(&self, engine: &dyn Engine) -> [Value; 4] {
        let [batch, rows, inner, columns] = self.sizes;
        let mut random = Random::new("float8", inner as u64);
        let mut bits = |format: Float8, last: [usize; 2]| {
            let ty = TensorType::new([batch, last[0], last[1]], DType::U8);
            engine.write(filled(ty, Fill::halves(format), &mut random))
        };
        let a = bits(self.formats[0], [rows, inner]);
        let b = if self.columns_inward {
            let turned = bits(self.formats[1], [columns, inner]);
            run(engine, &Op::Permute(Axes::new(&[0, 2, 1])), &[&turned])
        } else {
            bits(self.formats[1], [inner, columns])
        };
        [a, b, scale(engine, 0.25), scale(engine, 2.0)]
    }

    fn run(&self, engine: &dyn Engine) -> Value {
        let [a, b, scale_a, scale_b] = self.operands(engine);
        let op = Op::MatMulFloat8 { formats: self.formats, dtype: self.dtype };
        run(engine, &op, &[&a, &b, &scale_a, &scale_b])
    }
}

fn scale(engine: &dyn Engine, number: f32) -> Value {
    engine.write(TensorData::scalar(number))
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn float8_matmuls_of_any_layout_and_size_match_the_reference() {
    let _alone = alone();
    use Float8::{E4M3, E5M2};
    let cuda = kiln_cuda::open(0).unwrap_or_else(|error| panic!("{error}"));
    let reference = (REFERENCE.open)();
    cuda.trace(true);
    for sizes in [[1, 64, 128, 32], [1, 1, 16, 16], [3, 17, 48, 80], [2, 5, 19, 23], [1, 300, 1000, 7]] {
        for formats in [[E4M3, E4M3], [E4M3, E5M2], [E5M2, E4M3], [E5M2, E5M2]] {
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                for columns_inward in [true, false] {
                    let case = Case { sizes, formats, dtype, columns_inward };
                    let actual = numbers(&cuda, &case.run(&cuda));
                    let expected = numbers(&*reference, &case.run(&*reference));
                    assert_eq!(actual, expected, "{sizes:?} {formats:?} {dtype} {columns_inward}");
                    let traced = cuda.traced();
                    let by_library = traced.iter().any(|step| step.name.contains(formats[0].name()));
                    assert_eq!(by_library, formats != [E5M2; 2], "{sizes:?} {formats:?} {dtype} {traced:?}");
                }
            }
        }
    }
}

/// Scales and results of repeated steps have other addresses and values each time.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn scales_change_between_replays() {
    let _alone = alone();
    let cuda = Arc::new(kiln_cuda::open(0).unwrap_or_else(|error| panic!("{error}")));
    let fused = Fusion::with_mode(cuda.clone(), Mode::On);
    let case =
        Case { sizes: [1, 32, 64, 32], formats: [Float8::E4M3; 2], dtype: DType::F32, columns_inward: true };
    let [a, b, one, two] = case.operands(&fused);
    let op = Op::MatMulFloat8 { formats: case.formats, dtype: case.dtype };
    let plain = numbers(&fused, &run(&fused, &op, &[&a, &b, &one, &two]));
    let mut kept = Vec::new();
    for step in 1..=20u8 {
        // This many matmuls make a graph.
        let scales: Vec<Value> = (0..24u8).map(|i| scale(&fused, f32::from(step + i))).collect();
        let products: Vec<Value> =
            scales.iter().map(|scale_a| run(&fused, &op, &[&a, &b, scale_a, &two])).collect();
        fused.submit();
        for (i, y) in (0u8..).zip(&products) {
            let number = f64::from(step + i) * 4.0;
            let expected: Vec<f64> = plain.iter().map(|x| x * number).collect();
            assert_eq!(numbers(&fused, y), expected, "step {step}, product {i}");
        }
        kept.extend(scales);
    }
    assert!(cuda.graphs().replayed > 0, "{:?}", cuda.graphs());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn float8_matmuls_and_gradients_approximate_f32() {
    let _alone = alone();
    type B = Autodiff<Cuda>;
    let device = CudaDevice::new(0);
    let normal = |shape| Tensor::<B, 2>::random(shape, Distribution::Normal(0.0, 1.0), &device);
    let (x, w) = (normal([130, 257]).require_grad(), normal([257, 72]).require_grad());
    let g = normal([130, 72]);
    let run = |product: fn(Tensor<B, 2>, Tensor<B, 2>) -> Tensor<B, 2>| {
        let y = product(x.clone(), w.clone());
        let gradients = (y.clone() * g.clone()).sum().backward();
        let of = |tensor: &Tensor<B, 2>| tensor.grad(&gradients).unwrap().into_data().to_vec::<f64>();
        [y.into_data().to_vec::<f64>(), of(&x), of(&w)]
    };
    for (rough, exact) in run(float8::matmul).iter().zip(&run(Tensor::matmul)) {
        let difference: f64 = rough.iter().zip(exact).map(|(a, b)| (a - b).powi(2)).sum();
        let error = (difference / exact.iter().map(|x| x * x).sum::<f64>()).sqrt();
        assert!((1e-4..0.08).contains(&error), "{error}");
    }
}
