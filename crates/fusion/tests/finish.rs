//! Matmuls with epilogues: the ops that become one region, the others, and that values match the inner engine.

use crate::changed::Changed;
use kiln_cpu::Cpu;
use kiln_ir::{
    Activation, Comparison, DType, Engine, Epilogue, Machine, Op, Pattern, Products, REARRANGES, Scalar,
    TensorData, Value, Var, block_on,
};
use std::sync::{Arc, Mutex};

/// `[6, 5]` by `[5, 8]`, and the other operands of epilogues: a row, a column, and a whole tensor.
struct Inputs<'e> {
    x: Var<'e>,
    w: Var<'e>,
    row: Var<'e>,
    column: Var<'e>,
    whole: Var<'e>,
}

impl<'e> Inputs<'e> {
    fn product(&self) -> Var<'e> {
        self.x.matmul(&self.w)
    }

    /// Two matmuls with the same right operand.
    fn batch(&self) -> Var<'e> {
        self.x.reshape([2, 3, 5]).matmul(&self.w.reshape([1, 5, 8]).broadcast([2, 5, 8]))
    }

    fn biased(&self) -> Var<'e> {
        self.product() + self.row.broadcast([6, 8])
    }

    /// The same in 32 bits, after the matmul.
    fn widened(&self) -> Var<'e> {
        self.product().cast(DType::F32) + self.row.cast(DType::F32).broadcast([6, 8])
    }
}

/// The names of the ops that an engine with epilogues gets in one step, without views.
///
/// A region has an epilogue pattern if and only if it contains a matmul.
fn step(op: &Op) -> Option<String> {
    if let Op::Fused(region) = op {
        let has_product = region.program().instructions.iter().any(|it| it.op == Op::MatMul);
        assert_eq!(matches!(region.pattern(), Pattern::Epilogue(_)), has_product, "{op}");
    }
    let is_step = |op: &&Op| !op.is(REARRANGES);
    let ops: Vec<&Op> = if let Op::Fused(region) = op {
        region.program().instructions.iter().map(|instruction| &instruction.op).collect()
    } else {
        vec![op]
    };
    let names: Vec<&str> = ops.into_iter().filter(is_step).map(Op::name).collect();
    (!names.is_empty()).then(|| names.join(" "))
}

/// The steps of a run, and its results.
fn run(
    finishes: bool,
    dtype: DType,
    body: impl for<'e> Fn(&Inputs<'e>) -> Vec<Var<'e>>,
) -> (Vec<String>, Vec<Vec<f32>>) {
    let steps = Arc::<Mutex<Vec<String>>>::default();
    let written = steps.clone();
    let below = Changed::new(Cpu::with_threads(1))
        .with_machine(Machine { products: Products::Library { epilogues: finishes }, ..Machine::processor() })
        .watched(move |op| written.lock().unwrap().extend(step(op)));
    let layer = below.fused();
    let write = |shape: &[usize], seed: usize| {
        let list: Vec<f32> = (0..shape.iter().product())
            .map(|i: usize| ((i * 37 + seed * 11) % 23) as f32 / 8.0 - 1.25)
            .collect();
        let data = TensorData::new(list, shape).unwrap().convert(dtype);
        Var::new(&layer, layer.write(data))
    };
    let (x, w, row) = (write(&[6, 5], 1), write(&[5, 8], 2), write(&[8], 3));
    let inputs = Inputs { x, w, row, column: write(&[6, 1], 4), whole: write(&[6, 8], 5) };
    let values: Vec<Value> = body(&inputs).into_iter().map(Var::into_value).collect();
    drop(inputs);
    let read = |value| block_on(layer.read(value)).unwrap().convert(DType::F32).into_vec().unwrap();
    let results = values.into_iter().map(read).collect();
    let steps = std::mem::take(&mut *steps.lock().unwrap());
    (steps, results)
}

/// The steps of a run. Checks that its values match a run with separate matmuls.
fn steps(dtype: DType, body: impl for<'e> Fn(&Inputs<'e>) -> Vec<Var<'e>>) -> Vec<String> {
    let ((steps, found), (_, expected)) = (run(true, dtype, &body), run(false, dtype, &body));
    for (found, expected) in found.iter().zip(&expected) {
        for (a, b) in found.iter().zip(expected) {
            let tolerance = if dtype.size() == 2 { 0.03 } else { 1e-5 };
            assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{dtype}: {a} != {b}, {steps:?}");
        }
    }
    steps
}

fn relu<'e>(x: &Var<'e>) -> Var<'e> {
    x.max(&x.scalar(0.0))
}

/// `x share(x)` as tensors record it.
fn gated<'e>(x: &Var<'e>, share: impl Fn(&Var<'e>) -> Var<'e>) -> Var<'e> {
    let near = x.max(&x.scalar(-30.0));
    &near * share(&near)
}

fn gelu<'e>(x: &Var<'e>) -> Var<'e> {
    gated(x, |x| {
        let inner = x + x.square() * x * 0.044715;
        ((inner * (2.0 / std::f64::consts::PI).sqrt()).tanh() + 1.0) * 0.5
    })
}

fn gelu_by_erf<'e>(x: &Var<'e>) -> Var<'e> {
    gated(x, |x| ((x * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0) * 0.5)
}

#[test]
fn matmul_epilogues_are_one_region() {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        assert_eq!(steps(dtype, |i| vec![i.biased()]), ["matmul add"]);
        assert_eq!(steps(dtype, |i| vec![i.row.broadcast([6, 8]) + i.product()]), ["matmul add"]);
        assert_eq!(steps(dtype, |i| vec![relu(&i.product())]), ["matmul max"]);
        assert_eq!(steps(dtype, |i| vec![relu(&i.biased())]), ["matmul add max"]);
    }
    for dtype in [DType::BF16, DType::F16] {
        let gelu_of = steps(dtype, |i| vec![gelu(&i.biased())]);
        assert!(matches!(&gelu_of[..], [one] if one.starts_with("matmul add max mul")), "{gelu_of:?}");
        let gelu_of = steps(dtype, |i| vec![gelu(&i.product())]);
        assert!(matches!(&gelu_of[..], [one] if one.starts_with("matmul max mul")), "{gelu_of:?}");
    }
}

/// The parts of an epilogue's pattern, and the plan's description of them.
#[test]
fn the_epilogue_pattern_names_its_parts() {
    let found = Arc::<Mutex<Vec<Pattern>>>::default();
    let written = found.clone();
    let layer = Changed::new(Cpu::with_threads(1))
        .with_machine(Machine { products: Products::Library { epilogues: true }, ..Machine::processor() })
        .watched(move |op| {
            if let Op::Fused(region) = op {
                written.lock().unwrap().push(region.pattern().clone());
            }
        })
        .fused();
    let write = |shape: [usize; 2]| {
        let list = vec![0.5f32; shape[0] * shape[1]];
        Var::new(&layer, layer.write(TensorData::new(list, shape).unwrap()))
    };
    let y = write([6, 5]).matmul(&write([5, 8])) + write([1, 8]).broadcast([6, 8]);
    let value = relu(&y).into_value();
    drop(y);
    let text = layer.explain(&value);
    assert!(text.contains("= one matmul with bias and relu: matmul, add, max ("), "{text}");
    drop(block_on(layer.read(value)).unwrap());
    let found = std::mem::take(&mut *found.lock().unwrap());
    let [Pattern::Epilogue(Epilogue { product, factors, bias, activation, numbers })] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((*product, *factors, *bias, *activation), (4, [0, 1], Some(2), Some(Activation::Relu)));
    assert_eq!(numbers[..], [(3, Scalar::Float(0.0))]);
}

#[test]
fn epilogues_fuse_across_reshapes() {
    assert_eq!(steps(DType::F32, |i| vec![relu(&i.biased().reshape([2, 3, 8]))]), ["matmul add max"]);
    assert_eq!(steps(DType::F32, |i| vec![relu(&i.product().reshape([48]))]), ["matmul max"]);
    assert_eq!(steps(DType::F32, |i| vec![i.batch() + i.row.broadcast([2, 3, 8])]), ["matmul add"]);
    // Views of the result are views.
    assert_eq!(
        steps(DType::F32, |i| vec![relu(&i.biased()).reshape([6, 2, 4]).permute(&[1, 0, 2])]).len(),
        1
    );
}

/// The gradient of `max(x, 0)` reads its result, and not a mask that would have to be stored.
#[test]
fn relu_masks_are_computed_in_the_gradient_kernel() {
    let found = steps(DType::F32, |i| {
        let y = relu(&i.biased());
        let g = y.matmul(&i.whole.transpose()).matmul(&i.whole);
        vec![y.compare(Comparison::Le, &y.scalar(0.0)).select(&y.scalar(0.0), &g)]
    });
    assert_eq!(found, ["matmul add max", "matmul", "matmul", "le select"]);
}

#[test]
fn other_ops_after_a_matmul_are_separate_kernels() {
    type Body = for<'e> fn(&Inputs<'e>) -> Vec<Var<'e>>;
    let cases: [(&str, DType, Body); 14] = [
        ("a column", DType::F32, |i| vec![i.product() + i.column.broadcast([6, 8])]),
        ("a whole tensor", DType::F32, |i| vec![i.product() + &i.whole]),
        ("a bias and a whole tensor", DType::F32, |i| vec![i.biased() + &i.whole]),
        ("a row that is subtracted", DType::F32, |i| vec![i.product() - i.row.broadcast([6, 8])]),
        ("the product twice", DType::F32, |i| {
            let y = i.product();
            vec![&y + &y]
        }),
        ("a product that is seen", DType::F32, |i| {
            let y = i.product();
            vec![&y + i.row.broadcast([6, 8]), y]
        }),
        ("an argument that is seen", DType::F32, |i| {
            let y = i.biased();
            vec![relu(&y), y]
        }),
        ("two ends", DType::F32, |i| {
            let y = i.biased();
            vec![relu(&y), y.exp()]
        }),
        ("what is computed from the result and seen", DType::F32, |i| {
            let y = relu(&i.biased());
            vec![y.compare(Comparison::Le, &y.scalar(0.0)), y]
        }),
        ("a bound on both sides", DType::F32, |i| vec![relu(&i.biased()).min(&i.x.scalar(6.0))]),
        ("two tensors", DType::F32, |i| vec![i.biased().max(&i.whole)]),
        ("a GELU by erf", DType::BF16, |i| vec![gelu_by_erf(&i.biased())]),
        ("a GELU of 32 bits", DType::F32, |i| vec![gelu(&i.biased())]),
        ("64 bits", DType::F64, |i| vec![relu(&i.biased())]),
    ];
    for (what, dtype, body) in cases {
        let found = steps(dtype, body);
        assert!(found.iter().any(|step| step == "matmul"), "{what}: {found:?}");
        assert!(found.iter().all(|step| step == "matmul" || !step.contains("matmul")), "{what}: {found:?}");
    }
}

/// As in mixed precision. The library rounds the bias to 16 bits, which may overflow in `f16`.
#[test]
fn an_f32_bias_fuses_into_bf16_but_not_f16_matmuls() {
    let found = |dtype| steps(dtype, |i| vec![i.widened().cast(i.x.dtype())]);
    let count = |steps: &[String], name: &str| steps.iter().filter(|step| *step == name).count();
    let [bf16, f16] = [DType::BF16, DType::F16].map(found);
    assert_eq!((count(&bf16, "matmul"), count(&bf16, "matmul cast add cast")), (0, 1), "{bf16:?}");
    assert_eq!((count(&f16, "matmul"), count(&f16, "cast add cast")), (1, 1), "{f16:?}");
    // An `f32` output is not rounded.
    let wide = steps(DType::BF16, |i| vec![i.widened()]);
    assert_eq!(count(&wide, "matmul"), 1, "{wide:?}");
}
