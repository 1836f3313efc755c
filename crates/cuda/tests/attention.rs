//! Attention and its gradients at sizes of many tiles, against the reference.
//!
//! `cargo test -p kiln-cuda --test cuda attention -- --ignored` runs it on a machine with a GPU.

use kiln_cuda::Cuda;
use kiln_ir::{
    AttentionSpec, Axes, DType, Engine, Op, Operand, OperandType, Operands, Real, TensorData, TensorType,
    Value, block_on, infer,
};
use kiln_suite::case::{Fill, Tolerance};
use kiln_suite::compare::difference;
use kiln_suite::engines::REFERENCE;
use kiln_suite::fill::{Random, filled};

fn data(shape: [usize; 4], dtype: DType) -> TensorData {
    filled(TensorType::new(shape, dtype), Fill::Normal, &mut Random::new("attention", shape[3] as u64))
}

fn run(engine: &dyn Engine, op: &Op, operands: &[Value]) -> Vec<Value> {
    let types: Vec<OperandType<'_>> = operands.iter().map(|value| OperandType::Tensor(value.ty())).collect();
    let results = infer(op, &types).unwrap();
    let operands: Operands = operands.iter().map(|value| Operand::Value(value.clone())).collect();
    engine.execute(op, operands, &results).into_iter().collect()
}

fn read(engine: &dyn Engine, value: &Value) -> TensorData {
    block_on(engine.read(value.clone())).unwrap_or_else(|error| panic!("{error}"))
}

/// Sizes are batch, heads, key heads, queries, keys, head dim and value head dim.
#[derive(Debug)]
struct Case {
    sizes: [usize; 7],
    causal: Option<i64>,
    dtype: DType,
    mask: Option<DType>,
    /// Whether the heads of a row are adjacent in memory, as after a projection.
    heads_inside: bool,
}

impl Case {
    /// Runs the case on an engine; gradients use output and log-sum-exp of another engine.
    fn run(&self, engine: &dyn Engine, forward: Option<&[TensorData]>) -> Vec<TensorData> {
        let [batch, heads, kv_heads, queries, keys, dim, dim_v] = self.sizes;
        let spec = AttentionSpec { scale: Real(1.0 / (dim as f64).sqrt()), causal: self.causal };
        let tensor = |heads: usize, rows: usize, columns: usize| match self.heads_inside {
            false => engine.write(data([batch, heads, rows, columns], self.dtype)),
            true => {
                let value = engine.write(data([batch, rows, heads, columns], self.dtype));
                run(engine, &Op::Permute(Axes::new(&[0, 2, 1, 3])), &[value]).remove(0)
            }
        };
        let [q, k] = [tensor(heads, queries, dim), tensor(kv_heads, keys, dim)];
        let [v, grad] = [tensor(kv_heads, keys, dim_v), tensor(heads, queries, dim_v)];
        let mask = self.mask.map(|dtype| engine.write(data([batch, 1, queries, keys], dtype)));
        let operands: Vec<Value> =
            [q.clone(), k.clone(), v.clone()].into_iter().chain(mask.clone()).collect();
        let mut results: Vec<TensorData> =
            run(engine, &Op::Attention(spec), &operands).iter().map(|value| read(engine, value)).collect();
        let given = forward.unwrap_or(&results).iter().take(2).map(|data| engine.write(data.clone()));
        let operands: Vec<Value> = [grad, q, k, v].into_iter().chain(given).chain(mask).collect();
        let gradients = run(engine, &Op::AttentionGrad(spec), &operands);
        results.extend(gradients.iter().map(|value| read(engine, value)));
        results
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn attention_of_any_size_and_layout_matches_the_reference() {
    let cuda: Cuda = kiln_cuda::open(0).unwrap_or_else(|error| panic!("{error}"));
    let reference = (REFERENCE.open)();
    let sizes: [([usize; 7], Option<i64>); 9] = [
        ([1, 2, 2, 512, 512, 128, 128], Some(0)),
        ([2, 4, 2, 256, 256, 64, 64], None),
        ([2, 4, 1, 77, 133, 128, 128], Some(56)),
        ([1, 4, 2, 1, 300, 64, 64], None),
        ([1, 2, 2, 3, 5, 64, 64], Some(2)),
        ([1, 2, 2, 130, 70, 256, 256], Some(0)),
        ([1, 2, 2, 130, 190, 96, 40], Some(0)),
        ([1, 2, 2, 65, 65, 17, 19], Some(-3)),
        ([1, 2, 1, 50, 60, 300, 20], None),
    ];
    let mut problems = Vec::new();
    for (sizes, causal) in sizes {
        for (dtype, mask, heads_inside) in [
            (DType::BF16, None, false),
            (DType::BF16, None, true),
            (DType::F16, Some(DType::Bool), false),
            (DType::F32, None, false),
            (DType::F32, Some(DType::F32), true),
        ] {
            let case = Case { sizes, causal, dtype, mask, heads_inside };
            let expected = case.run(&*reference, None);
            let found = case.run(&cuda, Some(&expected));
            for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
                // Exponentials propagate the errors of sums of up to 300 products to sums over up to 512 keys.
                let (relative, absolute) =
                    if expected.dtype() == DType::F32 { (64.0, 512.0) } else { (8.0, 8.0) };
                let tolerance = Tolerance::Near { relative, absolute };
                if let Some(problem) = difference(expected, found, tolerance) {
                    problems.push(format!("{case:?}, result {place}: {problem}"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
