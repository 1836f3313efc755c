//! Errors of invalid custom ops name the op, its operands, and both types. Numbers in the code of custom ops.

use crate::numeric::minimal;
use kiln_ir::{
    Custom, CustomOp, DType, Engine, Error, Expand, Op, OperandType, Operands, Recorder, Result, ResultTypes,
    Scalar, TensorData, TensorType, Var, block_on, infer,
};
use kiln_reference::Reference;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A custom op with the type of its first operand, and a defect by variant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    Shape,
    DType,
    Nothing,
    TooMany,
    Broadcast,
    MatMul,
    Kind,
    Gradient,
}

impl CustomOp for Wrong {
    fn name(&self) -> &str {
        "wrong"
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        let ty = inputs[0].tensor().ok_or_else(|| Error::type_error("wrong", "needs a tensor", inputs))?;
        Ok([*ty].into_iter().collect())
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        let x = &inputs[0];
        Some(match self {
            Wrong::Shape => vec![x.sum(&[0])],
            Wrong::DType => vec![x.cast(DType::F64)],
            Wrong::Nothing => vec![],
            Wrong::TooMany => vec![x.clone(), x.clone()],
            Wrong::Broadcast => vec![x.exp() * &inputs[1] + x.scalar(1.0)],
            Wrong::MatMul => vec![x.matmul(&inputs[1])],
            Wrong::Kind => vec![x.not()],
            Wrong::Gradient => vec![x.clone()],
        })
    }

    fn vjp<'e>(
        &self,
        inputs: &[Var<'e>],
        _outputs: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<Result<Vec<Option<Var<'e>>>>> {
        let gradient = gradients[0].as_ref().map(|gradient| gradient + &inputs[1]);
        Some(Ok(vec![gradient, None]))
    }
}

fn run(engine: &dyn Engine, op: Wrong, rest: &[TensorData]) -> Result<TensorData> {
    let data = core::iter::once(TensorData::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])).chain(rest.to_vec());
    let inputs: Operands = data.map(|data| engine.write(data).into()).collect();
    let op = Op::Custom(Custom::new(op));
    let types = infer(&op, &OperandType::list(&inputs))?;
    let value = engine.execute(&op, inputs, &types).remove(0);
    assert_eq!(*value.ty(), types[0], "a wrong result is an error, never another type");
    block_on(engine.read(value))
}

#[test]
fn an_expansion_with_other_result_types_is_an_error() {
    let expected = [
        (Wrong::Shape, "returns f32[1, 3] instead of f32[2, 3]"),
        (Wrong::DType, "returns f64[2, 3] instead of f32[2, 3]"),
        (Wrong::Nothing, "returns nothing instead of f32[2, 3]"),
        (Wrong::TooMany, "returns f32[2, 3], f32[2, 3] instead of f32[2, 3]"),
    ];
    let engines: [Box<dyn Engine>; 2] =
        [Box::new(Expand::new(Reference::new())), Box::new(Expand::new(minimal(&[])))];
    for engine in &engines {
        for (op, text) in expected {
            let error = run(&**engine, op, &[]).unwrap_err().to_string();
            assert!(error.starts_with("[wrong] `expand` ") && error.contains(text), "{error}");
        }
    }
}

fn panic_of(op: Wrong, rest: &[TensorData]) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| run(&Expand::new(Reference::new()), op, rest))).unwrap_err();
    panic.downcast_ref::<String>().expect("a message").clone()
}

#[test]
fn errors_in_custom_op_code_name_the_op_and_its_operands() {
    let four = TensorData::from([1.0f32, 2.0, 3.0, 4.0]);
    let text = panic_of(Wrong::Broadcast, std::slice::from_ref(&four));
    let expected = "[wrong] `expand` of f32[2, 3] x f32[4] emits an invalid op: \
                    [mul] shapes do not broadcast: [2, 3] x [4]";
    assert_eq!(text, expected);
    let text = panic_of(Wrong::MatMul, &[four]);
    assert!(
        text.starts_with("[wrong] `expand` of f32[2, 3] x f32[4] emits an invalid op: [matmul]"),
        "{text}"
    );
    let text = panic_of(Wrong::Kind, &[]);
    assert!(text.starts_with("[wrong] `expand` of f32[2, 3] emits an invalid op: [not] needs"), "{text}");
}

#[test]
fn errors_in_gradient_rules_name_the_op_and_its_operands() {
    let types = [TensorType::new([2, 3], DType::F32), TensorType::new([4], DType::F32)];
    let trace = || {
        Recorder::trace(&types, |inputs| {
            let op = Custom::new(Wrong::Gradient);
            let gradients = [Some(inputs[0].clone())];
            let found = op.vjp(inputs, &inputs[..1], &gradients).expect("it has a rule").expect("no error");
            found.into_iter().flatten().collect()
        })
    };
    let panic = catch_unwind(trace).unwrap_err();
    let text = panic.downcast_ref::<String>().expect("a message");
    assert!(text.starts_with("[wrong] `vjp` of f32[2, 3] x f32[4] emits an invalid op: [add]"), "{text}");
}

/// Returns the 64 bits of its second operand.
#[derive(Debug)]
struct Bits;

impl CustomOp for Bits {
    fn name(&self) -> &str {
        "bits"
    }

    fn infer(&self, _inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        Ok([TensorType::new([], DType::U64)].into_iter().collect())
    }

    fn evaluate(&self, inputs: &[TensorData]) -> Option<Result<Vec<TensorData>>> {
        Some(Ok(vec![TensorData::scalar(inputs[1].to_vec::<u64>()[0])]))
    }
}

#[test]
fn integer_scalars_reach_host_code_exactly() {
    let engines: [Box<dyn Engine>; 2] =
        [Box::new(Expand::new(Reference::new())), Box::new(Expand::new(minimal(&[])))];
    let odd = (1i64 << 53) + 1;
    let numbers = [(Scalar::Int(odd), odd as u64), (Scalar::UInt(u64::MAX), u64::MAX), (Scalar::Int(7), 7)];
    for engine in &engines {
        for beside in [TensorData::from([1.5f32]), TensorData::from([true]), TensorData::from([1u8])] {
            for (number, bits) in numbers {
                let inputs: Operands =
                    [engine.write(beside.clone()).into(), number.into()].into_iter().collect();
                let op = Op::Custom(Custom::new(Bits));
                let types = infer(&op, &OperandType::list(&inputs)).unwrap();
                let value = engine.execute(&op, inputs, &types).remove(0);
                assert_eq!(block_on(engine.read(value)).unwrap().to_vec::<u64>(), [bits], "{number}");
            }
        }
    }
}

#[test]
fn operators_take_numbers_of_both_float_types() {
    let engine = Reference::new();
    let x = Var::new(&engine, engine.write(TensorData::from([3.0f32, -1.0])));
    let read = |var: Var<'_>| block_on(engine.read(var.into_value())).unwrap().to_vec::<f32>();
    for (narrow, wide) in [
        (&x + 0.5f32, &x + 0.5),
        (x.clone() - 0.5f32, x.clone() - 0.5),
        (&x * 0.5f32, &x * 0.5),
        (x.clone() / 0.5f32, x.clone() / 0.5),
    ] {
        assert_eq!(read(narrow), read(wide));
    }
    // The type of the number does not change that of the result.
    assert_eq!(read((1.0 - &x * 2.0).abs() * 2.0f32), [10.0, 6.0]);
}
