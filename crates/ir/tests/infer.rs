//! Fast paths of inference against `infer`.

use kiln_ir::{
    Binary, Comparison, DType, Extremum, Op, PoolKind, PoolSpec, Scalar, TensorType, infer, infer_alike,
    infer_with_number,
};

/// Where `infer_alike` returns a type, it equals the type from `infer`.
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

/// Where `infer_with_number` returns a type, it equals the type from `infer`, with the scalar left or right.
#[test]
fn infer_with_scalar_agrees_with_infer() {
    let numbers =
        [Scalar::Float(1.5), Scalar::Float(2.0), Scalar::Int(-3), Scalar::UInt(u64::MAX), Scalar::Bool(true)];
    let mut answers = 0;
    for op in Binary::ALL.iter().map(|function| Op::Binary(*function)).chain([Op::Compare(Comparison::Lt)]) {
        for ty in DType::ALL.iter().map(|dtype| TensorType::new([2, 3], *dtype)) {
            for number in numbers {
                let Some(found) = infer_with_number(&op, &ty, number) else { continue };
                for operands in [[(&ty).into(), number.into()], [number.into(), (&ty).into()]] {
                    let long = infer(&op, &operands).expect("what the short way accepts is valid");
                    assert_eq!(long[..], [found], "{op:?} of {ty} and {number}");
                }
                answers += 1;
            }
        }
    }
    assert!(answers > 0, "the short way answers for no op");
}

/// Indices never wrap: an axis that is too long for their dtype is refused.
#[test]
fn dims_too_long_for_the_index_dtype_are_refused() {
    let infer_of = |op: Op, ty: TensorType| infer(&op, &[(&ty).into()]);
    let long = |length: usize| TensorType::new([2, length], DType::U8);
    let ops = |index: DType| {
        [
            Op::ArgReduce { extremum: Extremum::Max, axis: 1, index },
            Op::Sort { axis: 1, descending: false, index },
            Op::TopK { axis: 1, k: 3, largest: true, index },
            Op::NonZero { index },
        ]
    };
    for (index, most) in
        [(DType::I32, 1usize << 31), (DType::U32, 1 << 32), (DType::I8, 128), (DType::U8, 256)]
    {
        for op in ops(index) {
            assert!(infer_of(op.clone(), long(most)).is_ok(), "{op:?}");
            let error = infer_of(op.clone(), long(most + 1)).unwrap_err().to_string();
            let problem = format!("axis 1 has {} elements, but {index} counts to {}", most + 1, most - 1);
            assert!(error.contains(&problem), "{op:?}: {error}");
        }
    }
    assert!(ops(DType::I64).into_iter().all(|op| infer_of(op, long(1 << 40)).is_ok()));
}

/// A type is valid up to `isize::MAX` bytes, where lengths of 0 count as 1, so that no product of lengths wraps.
#[test]
fn types_that_no_memory_holds_are_errors() {
    let bytes = |lengths: &[usize]| {
        let ty = TensorType::new(lengths, DType::U8);
        infer(&Op::Iota { ty, axis: 0 }, &[]).map(|types| types[0].num_bytes())
    };
    let most = isize::MAX as usize;
    assert_eq!(bytes(&[most]).unwrap(), most);
    assert_eq!(bytes(&[most, 0]).unwrap(), 0);
    for lengths in [&[most + 1, 1][..], &[most + 1, 0], &[0, most, 2], &[1 << 40, 1 << 40, 0], &[usize::MAX]]
    {
        assert!(bytes(lengths).unwrap_err().to_string().contains("too large"), "{lengths:?}");
    }
    // An index has more bytes than the element that it replaces.
    let x = TensorType::new([most, 0], DType::U8);
    let sort = Op::Sort { axis: 1, descending: false, index: DType::I64 };
    assert!(infer(&sort, &[(&x).into()]).is_err());
}

/// The padding of a window is bounded: it costs time and memory, but has no elements.
#[test]
fn padding_of_pooling_is_bounded() {
    let x = TensorType::new([1, 1, 1], DType::F32);
    for (padding, is_valid) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let spec = PoolSpec { padding: vec![(padding, 0)], ..PoolSpec::new(PoolKind::Max, &[padding + 1]) };
        assert_eq!(infer(&Op::Pool(spec), &[(&x).into()]).is_ok(), is_valid, "{padding}");
    }
}
