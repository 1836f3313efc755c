//! Devices without 64-bit integers, such as GPUs in browsers: ops that need such numbers only for large tensors run there.

use kiln_ir::{BoxFuture, Caps, Engine, Op, Operands, Value, Values, poisoned};
use kiln_reference::Reference;
use kiln_tensor::{AnyTensor, DType, Error, Result, ScatterReduction, Stack, TensorData, TensorType};
use std::ops::Range;
use std::sync::Arc;

/// The reference engine without dtypes of 64 bits.
struct Narrow(Reference);

impl Engine for Narrow {
    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        match results.iter().find(|ty| ty.dtype.size() == 8) {
            Some(ty) => poisoned(results, &Error::unsupported(op.name(), format!("no {}", ty.dtype))),
            None => self.0.execute(op, inputs, results),
        }
    }

    fn write(&self, data: TensorData) -> Value {
        assert!(data.ty().dtype.size() < 8, "{} is written", data.ty());
        self.0.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.0.read(value)
    }
}

fn stack() -> Stack {
    Stack::new(Arc::new(Narrow(Reference::new())), "narrow", DType::F32, DType::I32)
}

fn numbers(x: AnyTensor) -> Vec<f64> {
    x.to_vec().unwrap()
}

#[test]
fn distinct_slices_are_sorted() {
    let rows = [[2.0f32, 1.0, f32::NAN], [0.0, 3.0, 1.0], [2.0, 1.0, f32::NAN], [0.0, 1.0, 5.0]];
    let found = AnyTensor::from_data(rows, &stack()).unique_dim(0).unwrap();
    assert_eq!(numbers(found.values)[..6], [0.0, 1.0, 5.0, 0.0, 3.0, 1.0]);
    assert_eq!(numbers(found.counts)[..2], [1.0, 1.0]);
    let columns = AnyTensor::from_data([[3i32, 1, 3, 0], [1, 2, 1, 2]], &stack()).unique_dim(1).unwrap();
    assert_eq!(numbers(columns.values), [0.0, 1.0, 3.0, 2.0, 2.0, 1.0]);
    assert_eq!(numbers(columns.inverse), [2.0, 1.0, 2.0, 0.0]);
    assert_eq!(numbers(columns.counts), [1.0, 1.0, 2.0]);
}

#[test]
fn means_of_integers_round_down() {
    let device = stack();
    let index = AnyTensor::from_data([0i32, 1, 0, 1, 1], &device);
    for dtype in [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32] {
        let of = |numbers: &[f32]| AnyTensor::from_data(numbers.to_vec(), &device).cast(dtype).unwrap();
        let mean = |base: &[f32], source: &[f32], include_self| {
            let mean = ScatterReduction::Mean;
            numbers(of(base).index_reduce(0, index.clone(), of(source), mean, include_self).unwrap())
        };
        assert_eq!(mean(&[9.0, 9.0, 9.0], &[1.0, 4.0, 4.0, 5.0, 9.0], false), [2.0, 6.0, 9.0]);
        assert_eq!(mean(&[9.0, 9.0, 9.0], &[1.0, 4.0, 4.0, 5.0, 9.0], true), [4.0, 6.0, 9.0]);
        if dtype.is_signed_int() {
            assert_eq!(mean(&[0.0, 0.0, -7.0], &[-1.0, 1.0, -4.0, -2.0, -3.0], false), [-3.0, -2.0, -7.0]);
        }
    }
}

#[test]
fn ranges_of_floats_count_in_32_bits() {
    for dtype in [DType::F32, DType::I32, DType::U8, DType::I8] {
        let down = Range { start: 9, end: 0 };
        assert_eq!(numbers(AnyTensor::arange(down, -4, dtype, &stack()).unwrap()), [9.0, 5.0, 1.0]);
    }
    let far = i32::MAX as i64;
    let wide = AnyTensor::arange(-far..far, far, DType::F32, &stack()).unwrap();
    assert_eq!(numbers(wide), [-f64::from(i32::MAX as f32), 0.0]);
}
