//! The short way of inference against the long one.

use kiln_ir::{Binary, Comparison, DType, Op, TensorType, infer, infer_alike};

/// Where `infer_alike` answers, it answers what `infer` does; elsewhere it is silent.
#[test]
fn infer_alike_agrees_with_infer() {
    let ops = Binary::ALL.iter().map(|function| Op::Binary(*function));
    let shapes: [&[usize]; 4] = [&[], &[1], &[2, 3], &[3, 2]];
    let types: Vec<TensorType> =
        DType::ALL.iter().flat_map(|dtype| shapes.map(|shape| TensorType::new(shape, *dtype))).collect();
    let mut answers = 0;
    for op in ops.chain([Op::Compare(Comparison::Lt), Op::MatMul]) {
        for a in &types {
            for b in &types {
                if let Some(ty) = infer_alike(&op, a, b) {
                    let long =
                        infer(&op, &[a.into(), b.into()]).expect("what the short way accepts is valid");
                    assert_eq!(long[..], [ty], "{op:?} of {a} and {b}");
                    answers += 1;
                }
            }
        }
    }
    assert!(answers > 0, "the short way answers for no op");
}
