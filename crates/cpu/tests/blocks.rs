//! Matmuls with quantized blocks, and their expansion, on operands of any layout and float dtype.

use kiln_cpu::Cpu;
use kiln_ir::*;

fn run(cpu: &Cpu, op: &Op, inputs: &[Value]) -> Result<TensorData> {
    let operands: Operands = inputs.iter().map(|value| Operand::Value(value.clone())).collect();
    let list: Vec<Operand> = operands.iter().cloned().collect();
    let types = infer(op, &OperandType::list(&list))?;
    block_on(cpu.read(cpu.execute(op, operands, &types).remove(0)))
}

fn view(cpu: &Cpu, op: &Op, x: &Value) -> Value {
    let operand = [Operand::Value(x.clone())];
    let types = infer(op, &OperandType::list(&operand)).unwrap();
    cpu.execute(op, operand.into_iter().collect(), &types).remove(0)
}

fn floats(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + 13) % 1009) as f32 / 504.5 - 1.0).collect()
}

/// Blocks `[rows, row bytes]` and the numbers that they represent.
fn weights(format: BlockFormat, rows: usize, columns: usize) -> (TensorData, Vec<f32>) {
    let row_bytes = format.row_bytes(columns).unwrap();
    let (mut bytes, mut decoded) = (vec![0u8; rows * row_bytes], vec![0.0; rows * columns]);
    format.encode(&floats(rows * columns), &mut bytes);
    format.decode(&bytes, &mut decoded);
    (TensorData::new(bytes, [rows, row_bytes]).unwrap(), decoded)
}

/// The greatest error relative to the norm of the result.
fn error(got: &[f32], x: &[f32], w: &[f32], [m, k, n]: [usize; 3]) -> f32 {
    let (mut worst, mut norm) = (0.0f32, 0.0);
    for i in 0..m {
        for j in 0..n {
            let product = |p| f64::from(x[i * k + p]) * f64::from(w[j * k + p]);
            let wanted = (0..k).map(product).sum::<f64>() as f32;
            worst = worst.max((got[i * n + j] - wanted).abs());
            norm += wanted * wanted / (m * n) as f32;
        }
    }
    worst / norm.sqrt()
}

#[test]
fn every_float_dtype() {
    let cpu = Cpu::with_threads(2);
    for &format in BlockFormat::ALL {
        let [m, k, n] = [6, 256, 33];
        let (blocks, decoded) = weights(format, n, k);
        let w = cpu.write(blocks);
        let x = TensorData::new(floats(m * k), [2, m / 2, k]).unwrap();
        for (dtype, tolerance) in
            [(DType::F32, 3e-4), (DType::F16, 0.01), (DType::BF16, 0.04), (DType::F64, 1e-6)]
        {
            let x = view(&cpu, &Op::Cast(dtype), &cpu.write(x.clone()));
            let y = run(&cpu, &Op::MatMulBlocks { format }, &[x, w.clone()]).unwrap();
            assert_eq!(y.ty(), TensorType { shape: Shape::from([2, 3, n]), dtype });
            let y = block_on(cpu.read(view(&cpu, &Op::Cast(DType::F32), &cpu.write(y)))).unwrap();
            let found = error(&y.to_vec::<f32>(), &floats(m * k), &decoded, [m, k, n]);
            assert!(found < tolerance, "{format:?} {dtype}: {found}");
            let op = Op::DequantizeBlocks { format, dtype: DType::F32 };
            assert_eq!(run(&cpu, &op, std::slice::from_ref(&w)).unwrap().to_vec::<f32>(), decoded);
        }
    }
}

const ROWS: usize = 64;

/// Products with the greatest magnitude 54, the numbers that the weights represent, and the greatest error that `f32`
/// sums may have: the rounding of each step.
struct Products {
    x: Vec<f32>,
    exact: Vec<f64>,
    rounding: f64,
}

impl Products {
    fn new(w: &[f32], [k, n]: [usize; 2]) -> Products {
        let mut state = 1u64;
        let mut number = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1u32 << 30) - 1.0
        };
        let x: Vec<f64> = (0..ROWS * k).map(|_| number()).collect();
        let sums = |term: &dyn Fn(f64) -> f64| -> Vec<f64> {
            let dot = |i: usize, j: usize| -> f64 {
                let pairs = x[i * k..][..k].iter().zip(&w[j * k..][..k]);
                pairs.map(|(&x, &w)| term(x * f64::from(w))).sum()
            };
            (0..ROWS * n).map(|at| dot(at / n, at % n)).collect()
        };
        let greatest = |sums: &[f64]| sums.iter().fold(0.0f64, |greatest, y| greatest.max(y.abs()));
        let (exact, magnitudes) = (sums(&|product| product), sums(&|product| product.abs()));
        let scale = 54.0 / greatest(&exact);
        Products {
            x: x.iter().map(|x| (scale * x) as f32).collect(),
            exact: exact.iter().map(|y| scale * y).collect(),
            rounding: 1e-6 * scale * greatest(&magnitudes),
        }
    }
}

/// Multiplies every number of rows from 1 to 64; returns the greatest error. A row is the same beside other rows, up to
/// the rounding of sums.
#[track_caller]
fn greatest_error(cpu: &Cpu, format: BlockFormat, w: &Value, products: &Products, [k, n]: [usize; 2]) -> f64 {
    let multiply = |rows: usize| {
        let x = TensorData::new(products.x[..rows * k].to_vec(), [rows, k]).unwrap();
        run(cpu, &Op::MatMulBlocks { format }, &[cpu.write(x), w.clone()]).unwrap().to_vec::<f32>()
    };
    let all = multiply(ROWS);
    let mut error = 0.0f64;
    for rows in 1..=ROWS {
        let y = multiply(rows);
        assert_eq!(y.len(), rows * n);
        for (at, (&y, &beside)) in y.iter().zip(&all).enumerate() {
            let difference = f64::from(y - beside).abs();
            assert!(difference <= products.rounding, "{format:?}: {y} in {rows} rows, {beside} in {ROWS}");
            error = error.max((f64::from(y) - products.exact[at]).abs());
        }
    }
    error
}

#[test]
fn rows_are_as_exact_beside_other_rows_as_alone() {
    for name in ["scalar", "avx2", "avx512"] {
        let Some(cpu) = Cpu::with_threads(2).with_instructions(name) else { continue };
        let int8 = Cpu::with_threads(2).with_instructions(name).unwrap().with_int8_activations(true);
        for &format in BlockFormat::ALL {
            let [k, n] = [if format.len() == 32 { 576 } else { 768 }, 64];
            let (blocks, decoded) = weights(format, n, k);
            let (w, products) = (cpu.write(blocks), Products::new(&decoded, [k, n]));
            let error = greatest_error(&cpu, format, &w, &products, [k, n]);
            assert!(error < 0.0012, "{name} {format:?}: {error}");
            // One byte is 254 times as coarse.
            let error = greatest_error(&int8, format, &w, &products, [k, n]);
            assert!((0.03..0.4).contains(&error), "{name} {format:?}: {error} with one byte");
        }
    }
}

#[test]
fn views_give_the_same_result_as_copies() {
    let cpu = Cpu::with_threads(2);
    let (format, [m, k, n]) = (BlockFormat::Q4_1, [5, 96, 40]);
    let (blocks, _) = weights(format, n, k);
    let (w, x) = (cpu.write(blocks), cpu.write(TensorData::new(floats(m * k), [k, m]).unwrap()));
    let op = Op::MatMulBlocks { format };
    let transposed = view(&cpu, &Op::Permute(Axes::new(&[1, 0])), &x);
    let copied = view(&cpu, &Op::Copy, &transposed);
    let whole = run(&cpu, &op, &[copied, w.clone()]).unwrap().to_vec::<f32>();
    assert_eq!(run(&cpu, &op, &[transposed.clone(), w.clone()]).unwrap().to_vec::<f32>(), whole);
    // Rows in steps and in reverse order.
    for step in [3isize, -1] {
        let slice = if step > 0 {
            SliceAxis { start: 1, step, len: 13 }
        } else {
            SliceAxis { start: n - 1, step, len: n }
        };
        let bytes = SliceAxis { start: 0, step: 1, len: format.row_bytes(k).unwrap() };
        let some = view(&cpu, &Op::Slice(vec![slice, bytes]), &w);
        let y = run(&cpu, &op, &[transposed.clone(), some]).unwrap().to_vec::<f32>();
        for i in 0..m {
            for j in 0..slice.len {
                let from = (slice.start as isize + step * j as isize) as usize;
                assert_eq!(y[i * slice.len + j], whole[i * n + from]);
            }
        }
    }
}

#[test]
fn poison_reaches_the_result() {
    let cpu = Cpu::with_threads(1);
    let ty = TensorType { shape: Shape::from([2, 32]), dtype: DType::F32 };
    let poison = Value::poisoned(ty, Error::unsupported("test", "no such number"));
    let (blocks, _) = weights(BlockFormat::Q8_0, 3, 32);
    let op = Op::MatMulBlocks { format: BlockFormat::Q8_0 };
    let error = run(&cpu, &op, &[poison, cpu.write(blocks)]).unwrap_err();
    assert!(error.to_string().contains("no such number"));
}
