//! Regions that read inputs by index.

use crate::memory_layouts::below;
use crate::tile::{case, data, ty};
use kiln_cpu::Cpu;
use kiln_ir::*;

/// An index tensor of numbers below a bound.
fn index(bound: usize, ty: TensorType) -> TensorData {
    let numbers: Vec<f64> = below(7, bound, ty.num_elements()).into_iter().map(|x| x as f64).collect();
    TensorData::new(numbers, ty.shape).unwrap().convert(ty.dtype)
}

#[test]
fn reads_by_index() {
    let rows = [ty(&[50, 70], DType::F32), ty(&[3, 5], DType::I32), ty(&[70], DType::F32)];
    let embedding = case("embedding", &rows, |v| {
        let rows = v[0].apply(Op::Take { axis: 0 }, &[&v[1]]);
        let norm = Op::Norm { kind: NormKind::Rms, axes: 1, epsilon: Real(1e-5) };
        vec![rows.apply(norm, &[&v[2]]), rows.exp() * 2.0]
    });
    let inputs = vec![data(1, &rows[0]), index(50, rows[1]), data(2, &rows[2])];
    embedding.with_inputs(inputs).check();
    for dtype in [DType::F32, DType::BF16, DType::F64, DType::I8, DType::Bool] {
        let types = [ty(&[4, 9, 20], dtype), ty(&[4, 33, 20], DType::I64), ty(&[17], DType::U8)];
        let each = case(format!("gather of {dtype}"), &types[..2], |v| {
            vec![v[0].gather(1, &v[1]).cast(DType::F32) + 1.0]
        });
        each.with_inputs(vec![data(1, &types[0]), index(9, types[1])]).check();
        let columns = case(format!("take of {dtype}"), &[types[0], types[2]], |v| {
            vec![v[0].apply(Op::Take { axis: 2 }, &[&v[1]]).cast(DType::F32).sum(&[2])]
        });
        columns.with_inputs(vec![data(1, &types[0]), index(20, types[2])]).check();
    }
}

#[test]
fn an_index_in_the_memory_of_the_result() {
    let types = [ty(&[5], DType::I32), ty(&[37, 29], DType::I32)];
    let both = case("take + index", &types, |v| vec![v[0].apply(Op::Take { axis: 0 }, &[&v[1]]) + &v[1]]);
    both.with_inputs(vec![data(1, &types[0]), index(5, types[1])]).check();
}

#[test]
fn reads_by_index_are_checked() {
    let types = [ty(&[6, 4], DType::F32), ty(&[3], DType::I32)];
    let case = case("take", &types, |v| vec![v[0].apply(Op::Take { axis: 0 }, &[&v[1]]) * 2.0]);
    for wrong in [6, -1, i32::MAX, i32::MIN] {
        let cpu = Cpu::with_threads(1);
        let operands: Operands = [data(1, &types[0]), TensorData::from([0, wrong, 5])]
            .into_iter()
            .map(|x| cpu.write(x).into())
            .collect();
        let values = cpu.execute(&Op::Fused(case.op.clone()), operands, &[ty(&[3, 4], DType::F32)]);
        let error = block_on(cpu.read(values[0].clone())).unwrap_err().to_string();
        assert!(error.contains(&format!("index {wrong}")), "{error}");
        assert!(cpu.compiled_regions() > 0);
    }
}
