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
            [(DType::F32, 0.03), (DType::F16, 0.04), (DType::BF16, 0.06), (DType::F64, 1e-6)]
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
